"""Naming a fork: the rule of the fault catalogue, case by case, on replicas made by hand."""

from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kafka_forensics.analysis.replica import Replica, ReplicaState, whole
from kafka_forensics.analysis.replicas.forks import fork_findings, lineage, premises, trailing_epoch_loss
from kafka_forensics.analysis.replicas.verdicts import own_findings
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import Confidence, Finding, Severity
from kafka_forensics.replication.epochs import truncation_offset
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


def test_a_settled_fork_below_the_watermark() -> None:
    """F34: b1=[r0@0,r2@2], b2=[r1@1,r2@2]; nothing will ever cut it."""
    logs = Logs()
    finding = fork_of(
        logs,
        logs.add(1, batches((0, "a"), (2, "z")), high_watermark=1),
        logs.add(2, batches((1, "b"), (2, "z")), high_watermark=1),
    )
    assert (finding.kind, finding.severity, finding.confidence) == ("FORK_BELOW_HW", Severity.CRITICAL, Confidence.PROVEN)
    assert span(finding) == (0, 1)
    assert versions(finding) == [([1], 0, 2, 1), ([2], 1, 2, 1)]
    assert finding.evidence["truncation_offsets"] == []
    assert finding.evidence["held_by"] == []


@pytest.mark.parametrize(("watermark", "tails", "end"), [(4, ("zz", "zz"), 1), (3, ("zz", "zzz"), 1), (4, ("zz", "zy"), 4)])
def test_what_is_equal_behind_a_fork_does_not_differ(watermark: int, tails: tuple[str, str], end: int) -> None:
    """Committed to `watermark` on both: the logs grew together again, or differ at their end, too."""
    logs = Logs()
    sides = [batches((n, "ab"[n]), (2, "z" + tails[n])) for n in (0, 1)]
    finding = fork_of(logs, *(logs.add(n + 1, side, high_watermark=watermark) for n, side in enumerate(sides)))
    assert (finding.kind, span(finding)) == ("FORK_BELOW_HW", (0, end))


def test_the_version_that_was_committed_is_held_by_its_brokers() -> None:
    logs = Logs()
    finding = fork_of(
        logs,
        logs.add(1, batches((0, "ab"), (2, "z")), high_watermark=2),
        logs.add(2, batches((1, "bc"), (2, "z")), high_watermark=0),
        logs.add(3, batches((0, "ab"), (2, "z")), high_watermark=1),
    )
    assert (finding.kind, span(finding), finding.evidence["held_by"]) == ("FORK_BELOW_HW", (0, 2), [1, 3])


@pytest.mark.parametrize("watermark", [0, 2, 3])
def test_a_fork_above_every_watermark_is_what_a_failover_leaves(watermark: int) -> None:
    """F35."""
    logs = Logs()
    old = logs.add(1, batches((0, "abcde")), high_watermark=watermark)
    new = logs.add(2, batches((0, "abc"), (1, "xyz")), high_watermark=watermark)
    finding = fork_of(logs, old, new)
    assert (finding.kind, finding.severity) == ("FORK_ABOVE_HW", Severity.INFO)
    assert span(finding) == (3, 6)
    assert finding.evidence["truncation_offsets"] == [{"follower": 1, "leader": 2, "from_batches": 3, "from_checkpoint": 3}]


def test_both_cuts_are_told_where_the_checkpoint_differs() -> None:
    logs = Logs()
    old = logs.add(1, batches((0, "abcde")), high_watermark=3, checkpoint=[(0, 0), (1, 2)])
    new = logs.add(2, batches((0, "abc"), (1, "xyz")), high_watermark=3)
    (row,) = fork_of(logs, old, new).evidence["truncation_offsets"]
    assert row == {"follower": 1, "leader": 2, "from_batches": 3, "from_checkpoint": 5}


def test_an_unclean_leader_with_records_of_its_own() -> None:
    """F36: b1's committed records will be cut; they are on b1 alone."""
    logs = Logs()
    finding = fork_of(
        logs,
        logs.add(1, batches((1, "abcd")), high_watermark=4),
        logs.add(3, batches((1, "ab"), (2, "xyz")), high_watermark=2),
    )
    assert (finding.kind, finding.severity) == ("UNCLEAN_LOSS", Severity.CRITICAL)
    assert span(finding) == (2, 4)
    assert finding.evidence["held_by"] == [1]
    assert finding.evidence["loses"] == 2


def test_the_watermark_of_the_new_history_says_nothing_of_the_old() -> None:
    """The new leader's high watermark rose far beyond; the old log is lost up to its own."""
    logs = Logs()
    finding = fork_of(
        logs,
        logs.add(1, batches((0, "abcdef")), high_watermark=4),
        logs.add(2, batches((0, "ab"), (3, "uvwxyz")), high_watermark=8),
        logs.add(3, batches((0, "ab"), (3, "uvwxyz")), high_watermark=8),
    )
    assert (finding.kind, span(finding), finding.evidence["held_by"]) == ("UNCLEAN_LOSS", (2, 4), [1])
    assert versions(finding) == [([1], 0, 6, 4), ([2, 3], 3, 8, 8)]


def test_what_was_not_committed_gives_way_to_a_new_leader_that_has_gone_on() -> None:
    """As brokers leave it when a leader dies with records that nobody fetched (`tests/broker`)."""
    logs = Logs()
    finding = fork_of(
        logs,
        logs.add(1, batches((0, "abcdef")), high_watermark=2),
        logs.add(2, batches((0, "ab"), (3, "uvwxyz")), high_watermark=8),
    )
    assert (finding.kind, finding.severity, span(finding)) == ("FORK_ABOVE_HW", Severity.INFO, (2, 8))
    assert (finding.evidence["held_by"], finding.evidence["committed_on"]) == ([], [2])
    assert finding.evidence["truncation_offsets"] == [{"follower": 1, "leader": 2, "from_batches": 2, "from_checkpoint": 2}]


def test_what_will_not_give_way_is_a_fork_for_good() -> None:
    """One of the old log's copies was led in the newest epoch too, and Kafka finds nothing to cut."""
    logs = Logs()
    finding = fork_of(
        logs,
        logs.add(1, batches((0, "abcd")), high_watermark=2),
        logs.add(2, batches((0, "abcd"), (3, "z")), high_watermark=2),
        logs.add(3, batches((0, "ab"), (1, "uv"), (3, "z")), high_watermark=5),
    )
    assert (finding.kind, finding.severity, finding.evidence["held_by"]) == ("FORK_BELOW_HW", Severity.CRITICAL, [3])


@pytest.mark.parametrize(("watermark", "severity"), [(None, Severity.WARNING), (0, Severity.INFO)])
def test_an_old_log_without_a_watermark_may_have_been_committed(watermark: int | None, severity: Severity) -> None:
    logs = Logs()
    old = logs.add(1, batches((0, "abcdef")), high_watermark=watermark)
    finding = fork_of(logs, old, logs.add(2, batches((0, "ab"), (3, "uvwxyz")), high_watermark=8))
    assert (finding.kind, finding.severity) == ("FORK_ABOVE_HW", severity)
    assert finding.evidence.get("watermark_unknown") == ([1] if watermark is None else None)


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


def test_same_epoch_other_records() -> None:
    """F38: elections do not make this."""
    logs = Logs()
    finding = fork_of(
        logs,
        logs.add(1, batches((0, "abcd")), high_watermark=4),
        logs.add(2, batches((0, "abXd")), high_watermark=4),
        logs.add(3, batches((0, "abcd")), high_watermark=4),
    )
    assert (finding.kind, finding.severity, finding.confidence) == ("SAME_EPOCH_DIVERGENCE", Severity.CRITICAL, Confidence.PROVEN)
    assert (span(finding), finding.evidence["held_by"]) == ((2, 3), [1, 3])


def test_two_against_two_in_one_epoch_have_no_majority() -> None:
    logs = Logs()
    finding = fork_of(logs, logs.add(1, batches((0, "ab"))), logs.add(2, batches((0, "aX"))))
    assert (finding.kind, finding.evidence["held_by"]) == ("SAME_EPOCH_DIVERGENCE", [])


def test_three_versions_of_which_two_share_an_epoch() -> None:
    """What elections cannot make is not excused by a third version that they can."""
    logs = Logs()
    finding = fork_of(
        logs,
        logs.add(1, batches((0, "abcd")), high_watermark=2),
        logs.add(2, batches((0, "abX")), high_watermark=2),
        logs.add(3, batches((0, "ab"), (1, "yz")), high_watermark=2),
    )
    assert finding.kind == "SAME_EPOCH_DIVERGENCE"
    assert [(brokers, epoch) for brokers, epoch, _, _ in versions(finding)] == [([1], 0), ([2], 0), ([3], 1)]


@pytest.mark.parametrize(("watermarks", "kind", "ends", "held_by"), [
    ((3, 1), "FORK_BELOW_HW", (1, 3), [1]),
    ((1, 3), "FORK_BELOW_HW", (1, 3), [2]),
    ((3, 3), "FORK_BELOW_HW", (1, 3), []),
    ((1, 1), "FORK_ABOVE_HW", (1, 3), []),
    ((None, None), "FORK_ABOVE_HW", (1, 3), []),
])  # fmt: skip
def test_forks_without_epochs_are_inferred(
    watermarks: tuple[int | None, int | None], kind: str, ends: tuple[int, int], held_by: list[int]
) -> None:
    """Before KIP-101: magic 1 has no epochs, so nobody can tell who must cut."""
    logs = Logs()
    finding = fork_of(
        logs,
        logs.add(1, batches((0, "abc"), magic=1), high_watermark=watermarks[0]),
        logs.add(2, batches((0, "aXY"), magic=1), high_watermark=watermarks[1]),
    )
    assert (finding.kind, span(finding), finding.evidence["held_by"]) == (kind, ends, held_by)
    if kind == "FORK_BELOW_HW":
        assert finding.confidence is Confidence.INFERRED
    assert [epoch for _, epoch, _, _ in versions(finding)] == [-1, -1]


def test_a_watermark_beyond_the_log_counts_to_its_end() -> None:
    logs = Logs()
    finding = fork_of(
        logs,
        logs.add(1, batches((0, "abc"), magic=1), high_watermark=50),
        logs.add(2, batches((0, "aX"), magic=1), high_watermark=1),
    )
    assert (finding.kind, span(finding)) == ("FORK_BELOW_HW", (1, 3))


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
