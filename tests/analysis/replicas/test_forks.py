"""Naming a fork: the rule of the fault catalogue, case by case, on replicas made by hand."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kafka_forensics.analysis.replica import Replica, ReplicaState, whole
from kafka_forensics.analysis.replicas import diff as differences
from kafka_forensics.analysis.replicas.comparison import compare
from kafka_forensics.analysis.replicas.forks import fork_findings, lineage, premises, trailing_epoch_loss
from kafka_forensics.analysis.replicas.verdicts import own_findings
from kafka_forensics.engine.local import scan
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import Confidence, Finding, Severity
from kafka_forensics.replication.epochs import truncation_offset
from tests.support.faults import healthy
from tests.support.producer_log import context
from tests.support.replica_logs import Batch, Logs, batches, conflicts_of
from tests.support.segments import log, read


def fork_of(logs: Logs, *replicas: Replica) -> Finding:
    (finding,) = fork_findings(list(replicas), conflicts_of(logs, list(replicas)))[0]
    return finding


def span(found: Finding) -> tuple[int | None, int | None]:
    return found.place.offset_start, found.place.offset_end


def versions(found: Finding) -> list[tuple[list[int], int, int, int]]:
    return [(one["brokers"], one["epoch"], one["log_end_offset"], one["high_watermark"]) for one in found.evidence["versions"]]


NEW, OLD = ((0, "ab"), (3, "uvwxyz"), 8), (0, "abcdef")
CUT_AT_2, CUT_AT_3 = [(1, 2, 2, 2)], [(1, 2, 3, 3)]
"""Follower, leader, where it cuts by the batches and by the checkpoint."""
FORKS: dict[str, tuple[list[Any], str, tuple[int, int], list[int], dict[str, Any]]] = {
    "F34: nothing will ever cut it": ([((0, "a"), (2, "z"), 1), ((1, "b"), (2, "z"), 1)], "FORK_BELOW_HW", (0, 1), [], {}),
    "grown together again": ([((0, "a"), (2, "zzz"), 4), ((1, "b"), (2, "zzz"), 4)], "FORK_BELOW_HW", (0, 1), [], {}),
    "and one is longer": ([((0, "a"), (2, "zzz"), 3), ((1, "b"), (2, "zzzz"), 3)], "FORK_BELOW_HW", (0, 1), [], {}),
    "and they differ at the end, too": ([((0, "a"), (2, "zzz"), 4), ((1, "b"), (2, "zzy"), 4)], "FORK_BELOW_HW", (0, 4), [], {}),
    "what was committed is held by its brokers": (
        [((0, "ab"), (2, "z"), 2), ((1, "bc"), (2, "z"), 0), ((0, "ab"), (2, "z"), 1)], "FORK_BELOW_HW", (0, 2), [1, 3], {}
    ),
    **{
        f"F35: what a failover leaves above watermark {watermark}": (
            [((0, "abcde"), watermark), ((0, "abc"), (1, "xyz"), watermark)], "FORK_ABOVE_HW", (3, 6), [], {"cuts": CUT_AT_3}
        )
        for watermark in (0, 2, 3)
    },
    "F36: committed records are on 1 alone": (
        [((1, "abcd"), 4), ((1, "ab"), (2, "xyz"), 2)], "UNCLEAN_LOSS", (2, 4), [1], {"cuts": CUT_AT_2, "loses": 2}
    ),
    "the new history's watermark says nothing of the old": (
        [(OLD, 4), NEW, NEW], "UNCLEAN_LOSS", (2, 4), [1], {"cuts": CUT_AT_2, "loses": 2}
    ),
    "what nobody fetched gives way to a leader that went on": (
        [(OLD, 2), NEW], "FORK_ABOVE_HW", (2, 8), [], {"cuts": CUT_AT_2, "committed_on": [2]}
    ),
    "a watermark of 0": ([(OLD, 0), NEW], "FORK_ABOVE_HW", (2, 8), [], {"cuts": CUT_AT_2, "committed_on": [2]}),
    "no watermark: it may have been committed": (
        [(OLD, None), NEW], "FORK_ABOVE_HW", (2, 8), [], {"cuts": CUT_AT_2, "committed_on": [2], "watermark_unknown": [1]}
    ),
    "a copy of the old log led in the newest epoch, and nothing is cut": (
        [((0, "abcd"), 2), ((0, "abcd"), (3, "z"), 2), ((0, "ab"), (1, "uv"), (3, "z"), 5)], "FORK_BELOW_HW", (2, 5), [3], {}
    ),
    "F38: elections do not make this": (
        [((0, "abcd"), 4), ((0, "abXd"), 4), ((0, "abcd"), 4)], "SAME_EPOCH_DIVERGENCE", (2, 3), [1, 3], {}
    ),
    "one against one": ([((0, "ab"), None), ((0, "aX"), None)], "SAME_EPOCH_DIVERGENCE", (1, 2), [], {}),
    "nor does a third version excuse it": (
        [((0, "abcd"), 2), ((0, "abX"), 2), ((0, "ab"), (1, "yz"), 2)], "SAME_EPOCH_DIVERGENCE", (2, 4), [], {}
    ),
}  # fmt: skip
"""Sides as runs of (epoch, records) and the watermark → the kind, the offsets, who holds them, and more of the evidence."""


@pytest.mark.parametrize("case", FORKS)
def test_a_fork_by_its_sides(case: str) -> None:
    sides, kind, ends, held_by, more = FORKS[case]
    logs = Logs()
    written = [batches(*runs) for *runs, _ in sides]
    finding = fork_of(logs, *(logs.add(n, log, high_watermark=sides[n - 1][-1]) for n, log in enumerate(written, 1)))
    suspected = "watermark_unknown" in more
    severity = Severity.WARNING if suspected else Severity.INFO if kind == "FORK_ABOVE_HW" else Severity.CRITICAL
    assert (finding.kind, finding.severity, span(finding), finding.evidence["held_by"]) == (kind, severity, ends, held_by)
    assert finding.confidence is (Confidence.SUSPECTED if suspected else Confidence.PROVEN)
    names = ("follower", "leader", "from_batches", "from_checkpoint")
    evidence = dict(finding.evidence) | {
        "cuts": [tuple(row[name] for name in names) for row in finding.evidence.get("truncation_offsets", [])]
    }
    for name in ("cuts", "loses", "committed_on", "watermark_unknown"):
        assert evidence.get(name) == more.get(name, [] if name == "cuts" else None)
    offset = finding.evidence["offset"]
    assert versions(finding) == [
        (
            brokers,
            next(batch.epoch for batch in written[brokers[0] - 1] if batch.base_offset == offset),
            max(len(written[broker - 1]) for broker in brokers),
            max(sides[broker - 1][-1] or 0 for broker in brokers),
        )
        for brokers in (version["brokers"] for version in finding.evidence["versions"])
    ]


@pytest.mark.parametrize(("watermarks", "kind", "held_by"), [
    ((3, 1), "FORK_BELOW_HW", [1]),
    ((1, 3), "FORK_BELOW_HW", [2]),
    ((50, 1), "FORK_BELOW_HW", [1]),
    ((3, 3), "FORK_BELOW_HW", []),
    ((1, 1), "FORK_ABOVE_HW", []),
    ((None, None), "FORK_ABOVE_HW", []),
])  # fmt: skip
def test_forks_without_epochs_are_inferred(watermarks: tuple[int | None, int | None], kind: str, held_by: list[int]) -> None:
    """Before KIP-101: magic 1 has no epochs, so nobody can tell who must cut; a watermark beyond the log counts to its end."""
    logs = Logs()
    sides = zip(("abc", "aXY"), watermarks, strict=True)
    finding = fork_of(logs, *(logs.add(n, batches((0, word), magic=1), high_watermark=at) for n, (word, at) in enumerate(sides, 1)))
    assert (finding.kind, span(finding), finding.evidence["held_by"]) == (kind, (1, 3), held_by)
    if kind == "FORK_BELOW_HW":
        assert finding.confidence is Confidence.INFERRED
    assert [epoch for _, epoch, _, _ in versions(finding)] == [-1, -1]


def test_both_cuts_are_told_where_the_checkpoint_differs() -> None:
    logs = Logs()
    old = logs.add(1, batches((0, "abcde")), high_watermark=3, checkpoint=[(0, 0), (1, 2)])
    new = logs.add(2, batches((0, "abc"), (1, "xyz")), high_watermark=3)
    (row,) = fork_of(logs, old, new).evidence["truncation_offsets"]
    assert row == {"follower": 1, "leader": 2, "from_batches": 3, "from_checkpoint": 5}


def test_a_leader_without_records_threatens_either_side_of_a_fork() -> None:
    """An empty log whose checkpoint starts a higher epoch counts as a side."""
    logs = Logs()
    replicas = [
        logs.add(1, batches((0, "a"), (2, "z")), high_watermark=2),
        logs.add(2, batches((1, "b"), (2, "z")), high_watermark=1),
        logs.add(3, [], high_watermark=0, checkpoint=[(5, 0)]),
    ]
    findings = fork_findings(replicas, conflicts_of(logs, replicas))[0]
    assert [(finding.kind, span(finding), finding.evidence["held_by"]) for finding in findings] == [
        ("UNCLEAN_LOSS", (0, 2), [1]),
        ("UNCLEAN_LOSS", (0, 1), [2]),
    ]


def test_the_first_fork_is_named() -> None:
    """Three histories that part at two places: the first is the finding."""
    logs = Logs()
    replicas = [
        logs.add(1, batches((0, "abcd"), (3, "z"))),
        logs.add(2, batches((0, "abc"), (1, "x"), (2, "y"))),
        logs.add(3, batches((0, "a"), (4, "uvwx"))),
    ]
    (finding,), epochs, first = fork_findings(replicas, conflicts_of(logs, replicas))
    assert first == finding.place.offset_start == 1
    assert epochs == {"1": 0, "2": 0, "3": 4}
    assert [brokers for brokers, _, _, _ in versions(finding)] == [[1, 2], [3]]


def test_batches_bounded_otherwise_part_inside_a_batch() -> None:
    logs = Logs()
    left = logs.add(1, [Batch(0, ["a", "b"]), Batch(2, ["c", "d"])], high_watermark=2)
    right = logs.add(2, [Batch(0, ["a", "b"]), Batch(2, ["x"], 1), Batch(3, ["y"], 1)], high_watermark=2)
    assert (fork_of(logs, left, right).kind, span(fork_of(logs, left, right))) == ("FORK_ABOVE_HW", (2, 4))


def test_premises_name_their_sources() -> None:
    logs = Logs()
    replica = logs.add(1, batches((0, "ab")), high_watermark=2, checkpoint=[(0, 0)])
    other = logs.add(2, batches((0, "aX")))
    lines = premises([replica, other])
    assert lines[0] == "broker 1: high watermark 2, epochs (0,0), log end 2"
    assert lines[1] == "broker 2: no high watermark, no leader-epoch-checkpoint, log end 2"
    assert fork_of(logs, replica, other).evidence["premises"] == lines


def test_a_leader_that_wrote_nothing_lends_its_epoch_to_the_lineage() -> None:
    logs = Logs()
    empty = logs.add(1, [], checkpoint=[(5, 0)])
    waiting = logs.add(2, batches((0, "ab")), checkpoint=[(0, 0), (3, 2)])
    stale = logs.add(3, batches((0, "abc")), checkpoint=[(0, 0), (3, 2)])
    assert lineage(empty) == [EpochEntry(5, 0)]
    assert lineage(waiting) == [EpochEntry(0, 0), EpochEntry(3, 2)]
    assert lineage(stale) == [EpochEntry(0, 0)]
    assert lineage(logs.add(4, [])) == []


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_an_unclean_leader_that_has_written_nothing_yet(kept: int) -> None:
    """F36: b1=[…@1], b3 leads epoch 2 from a shorter log; no record differs, and b1 will cut all the same."""
    logs = Logs()
    replicas = [
        logs.add(1, batches((1, "abcd")), high_watermark=4),
        logs.add(3, batches((1, "abcd"[:kept])), high_watermark=0, checkpoint=[(1, 0), (2, kept)] if kept else [(2, 0)]),
    ]
    assert conflicts_of(logs, replicas) == {}
    finding = trailing_epoch_loss(replicas)
    assert finding is not None
    assert (finding.kind, span(finding)) == ("UNCLEAN_LOSS", (kept, 4))
    assert (finding.evidence["held_by"], finding.evidence["loses"]) == ([1], 4 - kept)
    assert [one["brokers"] for one in finding.evidence["versions"]] == [[1], [3]]


def test_every_holder_of_what_would_be_cut_is_named() -> None:
    logs = Logs()
    replicas = [
        logs.add(1, batches((1, "abcd")), high_watermark=3),
        logs.add(2, batches((1, "abc")), high_watermark=2),
        logs.add(3, batches((1, "a")), checkpoint=[(1, 0), (2, 1)]),
    ]
    finding = trailing_epoch_loss(replicas)
    assert finding is not None
    assert (span(finding), finding.evidence["held_by"]) == ((1, 3), [1, 2])


@pytest.mark.parametrize(("watermark", "checkpoint"), [
    (1, [(1, 0), (2, 1)]),
    (4, [(1, 0)]),
    (4, None),
    (4, [(0, 0), (1, 1)]),
    (None, [(1, 0), (2, 1)]),
])  # fmt: skip
def test_a_shorter_log_that_makes_nobody_cut_committed_records(
    watermark: int | None, checkpoint: list[tuple[int, int]] | None
) -> None:
    logs = Logs()
    replicas = [logs.add(1, batches((1, "abcd")), high_watermark=watermark), logs.add(3, batches((1, "a")), checkpoint=checkpoint)]
    assert trailing_epoch_loss(replicas) is None


def test_a_new_leader_at_the_end_of_the_longest_log_loses_nothing() -> None:
    logs = Logs()
    leader = logs.add(1, batches((0, "abcd")), high_watermark=4, checkpoint=[(0, 0), (2, 4)])
    assert trailing_epoch_loss([leader, logs.add(2, batches((0, "abc")), high_watermark=3)]) is None


@st.composite
def partings(draw: st.DrawFn) -> tuple[int, list[tuple[int, str]], list[tuple[int, str]]]:
    """A common prefix, and two histories behind it that begin with other epochs."""
    common = draw(st.integers(0, 3))
    tails = []
    for letters in ("uvw", "xyz"):
        epochs = draw(st.lists(st.integers(1, 6), min_size=1, max_size=2, unique=True))
        tails.append([(epoch, letters[: draw(st.integers(1, 3))]) for epoch in sorted(epochs)])
    assume(tails[0][0][0] != tails[1][0][0])
    return common, tails[0], tails[1]


@pytest.mark.properties
@given(partings(), st.lists(st.integers(0, 10), min_size=2, max_size=2))
def test_the_rule_on_any_two_histories(
    parted: tuple[int, list[tuple[int, str]], list[tuple[int, str]]], watermarks: list[int]
) -> None:
    """The catalogue's rule, clause by clause, spelled once more."""
    common, *tails = parted
    logs = Logs()
    sides = [logs.add(n + 1, batches((0, "c" * common), *tail), high_watermark=watermarks[n]) for n, tail in enumerate(tails)]
    finding = fork_of(logs, *sides)
    committed = [min(watermarks[n], side.log_end_offset) for n, side in enumerate(sides)]
    expected: tuple[str, int]
    losses, settled = [], False
    for n, (side, other) in enumerate([sides, sides[::-1]]):
        higher = other.epochs[-1].leader_epoch > side.epochs[-1].leader_epoch
        cut = truncation_offset(side.epochs, side.log_end_offset, other.epochs, other.log_end_offset)
        if common < committed[n] and higher and cut <= common:
            losses.append(committed[n])
        if committed[n] <= common < committed[1 - n] and higher and cut <= common:
            settled = True
    if common >= max(watermarks) or settled:
        expected = ("FORK_ABOVE_HW", max(side.log_end_offset for side in sides))
    elif losses:
        expected = ("UNCLEAN_LOSS", max(losses))
    else:
        expected = ("FORK_BELOW_HW", max(committed))
    assert (finding.kind, finding.place.offset_start, finding.place.offset_end) == (expected[0], common, expected[1])


@pytest.mark.parametrize("beyond", [0, 3])
@pytest.mark.parametrize("cut", [0, 20])
def test_a_segment_cut_short_is_told_once(beyond: int, cut: int) -> None:
    """By its torn batch, or by the index that goes on behind its last whole one, not by both."""
    data = b"".join(log(4))
    state, following = ReplicaState(0, compacted=False), ReplicaState(10, compacted=False)
    for chunk in read(data[: len(data) - cut]).chunks:
        state.step(chunk)
    for chunk in read(b"".join(log(2, start=10))).chunks:
        following.step(chunk)
    state.merge(following)
    replica = whole(context(segment_base_offsets=[0, 10]), state)
    replica.entries_beyond[0, "index"] = beyond
    told = {"SEG_SHORT": 1} if cut or beyond else {"SEGMENT_MISSING": 1}
    assert Counter(finding.kind for finding in own_findings(replica)) == {"OFFSET_GAP": 1} | told


@pytest.mark.faults
def test_a_hole_on_one_replica_is_missing(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    middle = brokers.file(1, brokers.log.segments[1])
    for path in middle.parent.glob(f"{middle.stem}.*"):
        path.unlink()
    result = scan([str(brokers.log_dir(broker)) for broker in (1, 2, 3)], ScanOptions())
    assert [partition.agreement.kind for partition in result.partitions] == ["missing"]


@pytest.mark.faults
def test_rot_on_one_replica_is_content_from_where_it_begins(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    batch = brokers.log.batches[3]
    brokers.flip(2, batch, 70)
    result = scan([str(brokers.log_dir(broker)) for broker in (1, 2, 3)], ScanOptions())
    [partition] = result.partitions
    assert (partition.agreement.kind, partition.agreement.common_end_offset) == ("content", batch.base_offset)


@pytest.mark.parametrize(("blocks", "unread"), [(2, 0), (3, 1), (6, 4)])
@pytest.mark.parametrize("lags", [False, True])
@pytest.mark.faults
def test_replicas_are_not_called_identical_where_ranges_were_left_unread(
    monkeypatch: pytest.MonkeyPatch, blocks: int, unread: int, lags: bool
) -> None:
    """Each second block holds other bytes; those read hold the same records, of the rest nobody knows."""
    monkeypatch.setattr(differences, "RUNS_READ", 1)
    plain = [Batch(number << 16, ["value" * 9]) for number in range(2 * blocks)]
    again = [Batch(batch.base_offset, batch.values, codec="gzip" if number % 2 else "none") for number, batch in enumerate(plain)]
    longer = [*plain, Batch(2 * blocks << 16, ["more"])] if lags else plain
    logs = Logs()
    result = compare([logs.add(1, longer), logs.add(2, again)], logs)
    kinds = {"BATCHES_REENCODED", "REPLICA_LAGS"} if lags else {"BATCHES_REENCODED"}
    assert {finding.kind for finding in result.findings} == kinds
    assert {finding.evidence.get("ranges_not_compared", 0) for finding in result.findings} == {unread}
    known = ("prefix" if lags else "identical", again[-1].base_offset + 1)
    assert (result.agreement.kind, result.agreement.common_end_offset) == (("not_compared", None) if unread else known)
