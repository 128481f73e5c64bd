"""Forks and the losses that elections cause: all findings of small replicas, compared with the golden ones in `forks.json`.

After a change of a rule: `python -m tests.analysis.replicas.test_forks`, and read the difference before it is committed.
"""

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, strategies as st
from msgspec import structs

from kafka_forensics.analysis.replica import Replica, ReplicaState, whole
from kafka_forensics.analysis.replicas import diff as differences
from kafka_forensics.analysis.replicas.comparison import compare, with_holders
from kafka_forensics.analysis.replicas.controller_state import with_controller_findings
from kafka_forensics.analysis.replicas.forks import brokers_epochs, fork_findings
from kafka_forensics.analysis.replicas.single_replica import single_replica_findings
from kafka_forensics.model.batches import Damage
from kafka_forensics.model.controller import PartitionControl, PartitionEvent, PartitionHistory, PartitionState
from kafka_forensics.model.findings import Finding
from kafka_forensics.replication.epochs import truncation_offset
from tests.analysis.producer_log import context
from tests.analysis.replica_logs import Batch, Logs, batches, conflicts_of
from tests.support.faults_verdict import offset_range
from tests.support.kept_answers import write_answers
from tests.support.segments import log, read

Epochs = list[tuple[int, int]]


@dataclass(frozen=True)
class Side:
    """A replica: its batches, high watermark and leader-epoch-checkpoint, and other fields of its context."""

    log: list[Batch]
    high_watermark: int | None
    checkpoint: Epochs | None
    context_fields: dict[str, Any] = field(default_factory=dict)


def side(*runs: tuple[int, str], hw: int | None = None, epochs: Epochs | None = None, start: int = 0, **options: Any) -> Side:
    """A replica with batches of runs (epoch, letters), see `batches`; it lacks the first `start` batches."""
    return Side(batches(*runs, **options)[start:], hw, epochs)


def clean(*sides: Side, **context_fields: Any) -> list[Side]:
    """The same replicas after a clean stop of their brokers."""
    return [replace(side, context_fields={"clean_shutdown": True, **side.context_fields, **context_fields}) for side in sides]


def replicas_on(*brokers: int, sides: list[Side]) -> dict[int, Side]:
    return dict(zip(brokers, sides, strict=True))


Sides = list[Side] | dict[int, Side]
NEW, LATER = side((0, "ab"), (3, "uvwxyz"), hw=8), (0, "ab")
FORKS: dict[str, Sides] = {
    "F34: nothing will ever cut it": [side((0, "a"), (2, "z"), hw=1), side((1, "b"), (2, "z"), hw=1)],
    "grown together again": [side((0, "a"), (2, "zzz"), hw=4), side((1, "b"), (2, "zzz"), hw=4)],
    "grown together again, and one is longer": [side((0, "a"), (2, "zzz"), hw=3), side((1, "b"), (2, "zzzz"), hw=3)],
    "they differ at the end, too": [side((0, "a"), (2, "zzz"), hw=4), side((1, "b"), (2, "zzy"), hw=4)],
    "what was committed is held by its brokers": [
        *(side((0, "ab"), (2, "z"), hw=2), side((1, "bc"), (2, "z"), hw=0), side((0, "ab"), (2, "z"), hw=1))
    ],
    **{
        f"F35: what a failover leaves above watermark {hw}": [side((0, "abcde"), hw=hw), side((0, "abc"), (1, "xyz"), hw=hw)]
        for hw in (0, 2, 3)
    },
    "a checkpoint that cuts elsewhere": [side((0, "abcde"), hw=3, epochs=[(0, 0), (1, 2)]), side((0, "abc"), (1, "xyz"), hw=3)],
    "F36: committed records are on 1 alone": [side((1, "abcd"), hw=4), side((1, "ab"), (2, "xyz"), hw=2)],
    "the new history's watermark says nothing of the old": [side((0, "abcdef"), hw=4), NEW, NEW],
    **{f"gives way to a leader that went on, watermark {hw}": [side((0, "abcdef"), hw=hw), NEW] for hw in (2, 0, None)},
    "a copy of the old log led in the newest epoch": [
        *(side((0, "abcd"), hw=2), side((0, "abcd"), (3, "z"), hw=2), side(LATER, (1, "uv"), (3, "z"), hw=5))
    ],
    "F38: elections do not make this": [side((0, "abcd"), hw=4), side((0, "abXd"), hw=4), side((0, "abcd"), hw=4)],
    "F38: one against one": [side(LATER), side((0, "aX"))],
    "F38: a third version does not excuse it": [side((0, "abcd"), hw=2), side((0, "abX"), hw=2), side(LATER, (1, "yz"), hw=2)],
    **{
        f"without epochs, watermarks {left} {right}": [
            side((0, "abc"), hw=left, magic=1),
            side((0, "aXY" if left != 50 else "aX"), hw=right, magic=1),
        ]
        for left, right in ((3, 1), (1, 3), (3, 3), (1, 1), (None, None), (50, 1))
    },
    "three histories that part at two places": [
        *(side((0, "abcd"), (3, "z")), side((0, "abc"), (1, "x"), (2, "y")), side((0, "a"), (4, "uvwx")))
    ],
    "batches bounded otherwise": [
        Side([Batch(0, ["a", "b"]), Batch(2, ["c", "d"])], 2, None),
        Side([Batch(0, ["a", "b"]), Batch(2, ["x"], 1), Batch(3, ["y"], 1)], 2, None),
    ],
    **{
        f"F36: the leader has written nothing yet and kept {kept}": replicas_on(
            1, 3, sides=[side((1, "abcd"), hw=4), side((1, "abcd"[:kept]), hw=0, epochs=[(1, 0), (2, kept)] if kept else [(2, 0)])]
        )
        for kept in (0, 1, 3)
    },
    "every holder of what would be cut": [
        *(side((1, "abcd"), hw=3), side((1, "abc"), hw=2), side((1, "a"), epochs=[(1, 0), (2, 1)]))
    ],
    **{
        f"a shorter log cuts nothing committed: {hw} {epochs}": replicas_on(
            1, 3, sides=[side((1, "abcd"), hw=hw), side((1, "a"), epochs=epochs)]
        )
        for hw, epochs in ((1, [(1, 0), (2, 1)]), (4, [(1, 0)]), (4, None), (4, [(0, 0), (1, 1)]), (None, [(1, 0), (2, 1)]))
    },
    "a new leader at the end of the longest log": [side((0, "abcd"), hw=4, epochs=[(0, 0), (2, 4)]), side((0, "abc"), hw=3)],
}

# Three and more logs: the latest epoch of all decides which log loses.

ALL, FIRST = side((0, "abcdef"), hw=5), side((0, "a"), hw=1, epochs=[(0, 0), (3, 1)])


def with_a_leader_that_wrote_nothing(epochs: Epochs, **context_fields: Any) -> list[Side]:
    """Brokers 1 and 2 fork at offset 2; broker 3, which has only offset 0, is the last leader."""
    sides = [side((0, "abcd"), hw=4), side((0, "ab"), (1, "yz"), hw=4), side((0, "a"), hw=1, epochs=epochs)]
    return [replace(side, context_fields=context_fields) for side in sides]


FORKS |= {
    "every version that loses": replicas_on(
        1, 2, 4, sides=[side((6, "vwxyz"), hw=5), side((3, "abcd"), hw=2), side((5, "e"), hw=1)]
    ),
    "who has less or parts further on is no holder": [
        *(side((6, "xyz"), hw=3), side((0, "a"), hw=0), side((0, "ab"), (1, "cd"), hw=0), side((0, "ab"), (2, "e"), hw=3))
    ],
    "a leader with an empty log was replaced": replicas_on(4, 1, 2, sides=[side(hw=0, epochs=[(2, 0)]), FIRST, ALL]),
    "a leader that wrote nothing, beside a fork": replicas_on(1, 2, 4, sides=[FIRST, ALL, side((2, "x"), hw=1)]),
    "what both sides share before their fork is lost, too": [
        *(side((0, "ab"), hw=2), side((0, "a"), (1, "y"), hw=1), side(hw=0, epochs=[(5, 0)]))
    ],
    "an empty leader threatens either side": [
        *(side((0, "a"), (2, "z"), hw=2), side((1, "b"), (2, "z"), hw=1), side(hw=0, epochs=[(5, 0)]))
    ],
    "a loss without a fork": [side((0, "ab"), hw=2), side((0, "abc"), hw=2), side(hw=0, epochs=[(5, 0)])],
    "of several latest logs those count that keep most": [
        *(side((0, "abcd"), hw=4), side((0, "ab"), (3, "yz"), hw=2), side((0, "ab"), (3, "y"), hw=2))
    ],
    "1 and 2 hold one version where 3 parts from them": [
        *(side((0, "abcd"), hw=4), side((0, "ab"), (1, "yz"), hw=4), side((0, "a"), (7, "q"), hw=0))
    ],
    "the same version goes on under a later leader": replicas_on(
        1, 2, 5, sides=[side((3, "xyz"), hw=0), side((2, "ab"), hw=2), side((2, "ab"), (5, "cd"), hw=3)]
    ),
    "the leader by whom all is lost does not lag": with_a_leader_that_wrote_nothing([(0, 0), (7, 1)]),
    "a follower lags": with_a_leader_that_wrote_nothing([(0, 0)]),
    **{
        f"a lost tail, the checkpoint has {epochs}": [
            *(side((0, "abc"), (2, "xyz"), hw=6, epochs=[(0, 0), (2, 3)]), side((0, "abc"), hw=6, epochs=epochs)),
            side((0, "abcdef"), hw=6, epochs=[(0, 0)]),
        ]
        for epochs in ([(0, 0)], [(0, 0), (2, 3)], None)
    },
    "a log of another epoch fills no gap": [
        Side([*batches(*runs), *batches((2, "xy"), start=4)], 6, epochs)
        for runs, epochs in (
            ([(0, "ab"), (1, "pq")], [(0, 0), (1, 2), (2, 4)]),
            ([(0, "ab")], [(0, 0), (2, 4)]),
            ([(0, "abcd")], [(0, 0), (2, 4)]),
        )
    ],
    **{
        f"a gap in {copies} copies": [Side([*batches((0, "ab")), *batches((0, "xy"), start=4)], 6, [(0, 0)])] * copies
        for copies in (1, 2)
    },
    "a lost tail is no gap that is lost everywhere": [side((0, "ab"), hw=6, epochs=[(0, 0)])] * 2,
}

# Records that a follower never truncates, because the checkpoints differ from the batches.

RIGHT = [(0, 0), (2, 3)]
"""Epochs of the leader's batches."""
OLD = side((0, "aaaoo"), hw=3, epochs=[(0, 0)])


def led(epochs: Epochs | None, hw: int = 6, **context_fields: Any) -> Side:
    return replace(side((0, "aaa"), (2, "nnn"), hw=hw, epochs=epochs), context_fields=context_fields)


def elected(leader: int | None, leader_epoch: int | None, isr: list[int], replicas: list[int]) -> dict[str, Any]:
    return {"control": PartitionControl(leader, leader_epoch, isr, [], replicas)}


TWO_NEW, ONE_OLD = side((0, "aaa"), (2, "nn"), hw=3, epochs=[(0, 0)]), side((0, "aaao"), hw=3, epochs=[(0, 0)])
FORKS |= {
    **{
        f"kept: the leader's checkpoint has {epochs}": clean(led(epochs), OLD)
        for epochs in (RIGHT, [(0, 0)], [(0, 0), (2, 5)], [(0, 0), (3, 6)], None)
    },
    "kept: the follower's checkpoint claims it": clean(led(RIGHT), replace(OLD, checkpoint=RIGHT)),
    **{
        f"kept: {words}, the leader's checkpoint has {epochs}": clean(led(epochs, **context_fields), OLD)
        for words, context_fields in {"after a crash": {"clean_shutdown": False}, "of running brokers": {"live": True}}.items()
        for epochs in (None, [(0, 0)])
    },
    "kept: a follower without a checkpoint": clean(led(RIGHT), replace(OLD, checkpoint=None)),
    "kept: all that it knows to be committed": clean(led(RIGHT, 3), side((0, "aaaoo"), hw=5)),
    "kept: no watermark lies below the log start": [
        side((0, "aaa"), (2, "nnn"), hw=3, epochs=[(0, 1), (2, 3)], start=1),
        *clean(side((0, "aaaoo"), epochs=[], start=2)),
    ],
    **{
        f"cut below the leader's log start {start}": clean(
            replace(side((0, "aa"), (2, "nnnnnnn"), hw=9, epochs=[(2, start)]), context_fields={"log_start_offset": start}),
            side((0, "aaoooo"), hw=2, epochs=[(0, 0)]),
        )
        for start in (4, 7)
    },
    "kept: a malformed checkpoint says nothing": [led([(0, 0)], damage=[Damage("CHECKPOINT_MALFORMED", 0, 1)]), OLD],
    **{
        f"kept: of two that may lead {leader} does": clean(
            led([(0, 0)]), OLD, led(RIGHT), **({} if leader is None else elected(leader, 2, [1, 3], [1, 2, 3]))
        )
        for leader in (None, 1, 3)
    },
    **{
        f"kept: {leader} leads in epoch {epoch}, checkpoint {epochs}": clean(
            replace(TWO_NEW, checkpoint=epochs), ONE_OLD, **elected(leader, epoch, [1, 2], [1, 2])
        )
        for leader, epoch, epochs in (
            *((2, 3, [(0, 0)]), (2, 3, RIGHT), (2, None, [(0, 0)])),
            *((2, 1, [(0, 0)]), (9, 3, [(0, 0)]), (None, None, [(0, 0)])),
        )
    },
    "kept: a leader that ends before the fork": clean(
        TWO_NEW, ONE_OLD, side((0, "aaa"), hw=3, epochs=[(0, 0)]), **elected(3, 3, [3], [1, 2, 3])
    ),
}

# Logs after retention.

FORKS |= {
    **{
        f"removed by the present leader, which begins at {start}, watermark {hw}, tail {tail}": [
            side((0, "aaaaaa"), (6, "n"), hw=hw, epochs=[(0, start), (6, 6)], start=start),
            side((2, "zz"), hw=0, epochs=[(2, 0)]),
            side((0, "aaaaaa" + tail), hw=6, epochs=[(0, 0)]),
        ]
        for start in (0, 3, 5)
        for hw, tail in ((6, ""), (7, ""), (6, "u"))
    },
    "a later leader of the other version": [
        side((2, "zzz"), (6, "n"), hw=4, epochs=[(2, 2), (6, 3)], start=2),
        *(side((2, "zzz"), hw=0, epochs=[(2, 0)]), side((3, "aaa"), hw=3, epochs=[(3, 0)])),
    ],
    "removed by another log of the latest epoch": replicas_on(
        *(1, 3, 4),
        sides=[
            *(side((6, "nnnnn"), hw=5, epochs=[(6, 3)], start=3), side((6, "nnnnn"), hw=5, epochs=[(6, 0)])),
            side((5, "o"), hw=1, epochs=[(5, 0)]),
        ],
    ),
    "a stale log that ends where the leader's begins": replicas_on(
        *(1, 2, 4),
        sides=[
            *(side((0, "zz"), hw=0, epochs=[(0, 0)]), side((1, "aaa"), hw=2, epochs=[(1, 0)])),
            side((1, "aaaa"), hw=2, epochs=[(1, 2), (3, 4)], start=2),
        ],
    ),
    "a log that goes on with either version": [
        *(side((0, "a"), (4, "cc"), hw=3), side((1, "b"), (4, "cc"), hw=0)),
        side((0, "a"), (4, "cc"), (6, "n"), hw=3, start=1),
    ],
    "committed behind the end of the leader's log": replicas_on(
        *(3, 4),
        sides=[
            side((6, "nnn"), hw=3, epochs=[(6, 1)], start=1),
            side((2, "aaaa"), (4, "bbb"), hw=7, epochs=[(2, 3), (4, 4)], start=3),
        ],
    ),
    "a log that goes on where an older copy of it ends": [
        *(side((2, "aaaa"), hw=4, epochs=[(2, 0)]), side((2, "aaaa"), (6, "bbb"), hw=7, epochs=[(6, 4)], start=4))
    ],
    **{
        f"a watermark below what is left, epochs {epochs}": [
            side((epochs[0][0], "aa"), hw=2, epochs=epochs),
            side((0, "aaaa"), (1, "bb"), hw=3, epochs=[(1, 4)], start=4),
        ]
        for epochs in ([(6, 0)], [(0, 0), (6, 2)])
    },
}

# Elections in the controller's log.

Step = tuple[int, int, bool, tuple[int, ...]]
"""Leader epoch, leader, whether its election was unclean, and the ISR before it."""
CREATED: Step = (0, 1, False, (1, 2, 3))
CLEAN: Step = (1, 2, False, (1, 2))


def event(number: int, step: Step, previous_leader: int) -> PartitionEvent:
    epoch, leader, unclean, before = step
    state = PartitionState(leader, epoch, epoch, (leader,), (), (), (1, 2, 3), (), (), (), 0)
    kind = "changed" if number else "created"
    return PartitionEvent(number, 1000 * number, kind, state, unclean, previous_leader, before)


def judged(latest: int, *steps: Step) -> list[Side]:
    """The replicas of `with_a_leader_that_wrote_nothing` after these elections; broker 3 leads in epoch `latest`."""
    before = [-1, *(leader for _, leader, _, _ in steps)]
    events = PartitionHistory([event(number, step, before[number]) for number, step in enumerate(steps)])
    control = PartitionControl(3, latest, [3], [], [1, 2, 3], history=events, as_of_ms=99_000, last_offset=9)
    return with_a_leader_that_wrote_nothing([(0, 0), (latest, 1)], control=control)


FORKS |= {
    "judged: the leader of an earlier clean election lacked some": judged(2, CREATED, CLEAN, (2, 3, True, (2,))),
    "judged: an unclean election after a clean one": judged(2, CREATED, CLEAN, (2, 3, False, (2, 3)), (3, 3, True, (1,))),
    "judged: elected again before it wrote": judged(3, CREATED, CLEAN, (2, 3, True, (2,)), (3, 3, False, (3,))),
    "judged: the last of the ISR came back without them": judged(3, CREATED, CLEAN, (2, 3, False, (2, 3)), (3, 3, False, (3,))),
    **{
        f"judged: epoch 7 is not known, {alone[1]} was alone": judged(7, CREATED, CLEAN, alone)
        for alone in ((2, 2, False, (2,)), (2, 3, False, (3,)))
    },
}
GOLDEN = Path(__file__).with_name("forks.json")
EXPECTED: dict[str, Any] = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}


def replicas_of(logs: Logs, sides: Sides) -> list[Replica]:
    replicas = []
    for broker, side in (sides if isinstance(sides, dict) else dict(enumerate(sides, 1))).items():
        replica = logs.add(broker, side.log, high_watermark=side.high_watermark, checkpoint=side.checkpoint)
        context_fields = dict(side.context_fields)
        replica.log_start_offset = replica.local_log_start_offset = context_fields.pop("log_start_offset", replica.log_start_offset)
        if damage := context_fields.pop("damage", None):
            assert replica.context.leader_epochs is not None
            replica.context.leader_epochs = structs.replace(replica.context.leader_epochs, damage=damage)
        for name, value in context_fields.items():
            setattr(replica.context, name, value)
        replicas.append(replica)
    return replicas


def rows(findings: list[Finding]) -> list[list[Any]]:
    return [
        [finding.kind, finding.severity, finding.confidence, finding.place.broker, *offset_range(finding), dict(finding.evidence)]
        for finding in findings
    ]


def findings_of(name: str) -> Any:
    """The agreement of the replicas, findings from comparing them, of each one, and from the controller's log."""
    logs = Logs()
    replicas = replicas_of(logs, FORKS[name])
    compared = compare(replicas, logs)
    of_replicas = [finding for replica in replicas for finding in single_replica_findings(replica)]
    answer = [[compared.agreement.kind, compared.agreement.common_end_offset], rows(compared.findings)]
    answer += [
        rows(with_holders(replicas, of_replicas, compared, all_read=all_read))
        for all_read in ((True, False) if of_replicas else ())
    ]
    if replicas[0].context.control is not None:
        answer.append(rows(with_controller_findings(replicas, compared.conflicts, compared.findings, logs)))
    return json.loads(json.dumps(answer, default=structs.asdict))


@pytest.mark.parametrize("name", FORKS)
def test_findings_equal_the_golden_ones(name: str) -> None:
    assert findings_of(name) == EXPECTED[name]


def test_a_broker_reads_epochs_from_the_recovery_point_on_after_a_crash() -> None:
    replica = Logs().add(1, batches((0, "ab"), (1, "cd"), (2, "ef")), checkpoint=[(0, 0)])
    replica.context.segment_base_offsets = [0, 2, 4, 6]
    epochs_by_point = {}
    for point in (0, 2, 3, 5, 6):
        replica.context.recovery_point = point
        epochs_by_point[point] = [(entry.leader_epoch, entry.start_offset) for entry in brokers_epochs(replica)]
    all_epochs = [(0, 0), (1, 2), (2, 4)]
    assert epochs_by_point == {0: all_epochs, 2: all_epochs, 3: all_epochs, 5: [(0, 0), (2, 4)], 6: [(0, 0)]}


@st.composite
def forked_histories(draw: st.DrawFn) -> tuple[int, list[tuple[int, str]], list[tuple[int, str]]]:
    """Number of common batches, and two histories after them that begin with different epochs."""
    common = draw(st.integers(0, 3))
    tails = []
    for letters in ("uvw", "xyz"):
        epochs = draw(st.lists(st.integers(1, 6), min_size=1, max_size=2, unique=True))
        tails.append([(epoch, letters[: draw(st.integers(1, 3))]) for epoch in sorted(epochs)])
    assume(tails[0][0][0] != tails[1][0][0])
    return common, tails[0], tails[1]


@given(forked_histories(), st.lists(st.integers(0, 10), min_size=2, max_size=2))
def test_the_kind_of_a_fork_is_that_of_the_catalogue(
    histories: tuple[int, list[tuple[int, str]], list[tuple[int, str]]], watermarks: list[int]
) -> None:
    """The rule of the catalogue, computed from epochs and high watermarks."""
    common, *tails = histories
    logs = Logs()
    sides = [logs.add(n + 1, batches((0, "c" * common), *tail), high_watermark=watermarks[n]) for n, tail in enumerate(tails)]
    (finding,) = fork_findings(sides, conflicts_of(logs, sides))[0]
    committed = [min(watermarks[n], side.log_end_offset) for n, side in enumerate(sides)]
    expected: tuple[str, int]
    losses, will_truncate = [], False
    for n, (side, other) in enumerate([sides, sides[::-1]]):
        higher = other.epochs[-1].leader_epoch > side.epochs[-1].leader_epoch
        cut = truncation_offset(side.epochs, side.log_end_offset, other.epochs, other.log_end_offset)
        if common < committed[n] and higher and cut <= common:
            losses.append(committed[n])
        if committed[n] <= common < committed[1 - n] and higher and cut <= common:
            will_truncate = True
    if common >= max(watermarks) or will_truncate:
        expected = ("FORK_ABOVE_HW", max(side.log_end_offset for side in sides))
    elif losses:
        expected = ("UNCLEAN_LOSS", max(losses))
    else:
        expected = ("FORK_BELOW_HW", max(committed))
    assert (finding.kind, finding.place.offset_start, finding.place.offset_end) == (expected[0], common, expected[1])


@pytest.mark.parametrize("beyond", [0, 3])
@pytest.mark.parametrize("cut", [0, 20])
def test_a_truncated_segment_is_reported_once(beyond: int, cut: int) -> None:
    """Either its torn batch or index entries after its last whole batch show the truncation."""
    data = b"".join(log(4))
    state, following = ReplicaState(0, compacted=False), ReplicaState(10, compacted=False)
    for chunk in read(data[: len(data) - cut]).chunks:
        state.step(chunk)
    for chunk in read(b"".join(log(2, start=10))).chunks:
        following.step(chunk)
    state.merge(following)
    replica = whole(context(segment_base_offsets=[0, 10]), state)
    replica.index_entries_beyond_log[0, "index"] = beyond
    expected = {"SEG_SHORT": 1} if cut or beyond else {"SEGMENT_MISSING": 1}
    assert Counter(finding.kind for finding in single_replica_findings(replica)) == {"OFFSET_GAP": 1} | expected


@pytest.mark.parametrize(("blocks", "unread"), [(2, 0), (3, 1), (6, 4)])
@pytest.mark.parametrize("lags", [False, True])
@pytest.mark.faults
def test_replicas_with_unread_ranges_may_differ(monkeypatch: pytest.MonkeyPatch, blocks: int, unread: int, lags: bool) -> None:
    """The bytes of every second block differ; blocks that were read have equal records, the others are unknown."""
    monkeypatch.setattr(differences, "RUNS_READ", 1)
    plain = [Batch(number << 16, ["value" * 9]) for number in range(2 * blocks)]
    again = [Batch(batch.base_offset, batch.values, codec="gzip" if number % 2 else "none") for number, batch in enumerate(plain)]
    longer = [*plain, Batch(2 * blocks << 16, ["more"])] if lags else plain
    logs = Logs()
    result = compare([logs.add(1, longer), logs.add(2, again)], logs)
    kinds = {"BATCHES_REENCODED", "REPLICA_LAGS"} if lags else {"BATCHES_REENCODED"}
    assert {finding.kind for finding in result.findings} == kinds
    assert {finding.evidence.get("ranges_not_compared", 0) for finding in result.findings} == {unread}
    agreement = ("prefix" if lags else "identical", again[-1].base_offset + 1)
    assert (result.agreement.kind, result.agreement.common_end_offset) == (("not_compared", None) if unread else agreement)


if __name__ == "__main__":
    write_answers(GOLDEN, {name: findings_of(name) for name in FORKS}, depth=3)
