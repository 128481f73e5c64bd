"""Forks that the batches would settle and the checkpoints do not: what a follower keeps for good."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas.comparison import compare
from kafka_forensics.analysis.replicas.forks import brokers_epochs, fork_findings
from kafka_forensics.model.batches import Damage
from kafka_forensics.model.controller import PartitionControl
from kafka_forensics.model.findings import Confidence, Finding, Severity
from kafka_forensics.wording import advice, message
from tests.support.replica_logs import Logs, batches, conflicts_of

Entries = Sequence[tuple[int, int]]
RIGHT = [(0, 0), (2, 3)]
"""Epochs of the leader's batches."""
KEPT = {"broker": 2, "offset_start": 3, "offset_end": 5}


def forked(
    leader: Entries | None, follower: Entries | None = ((0, 0),), given: dict[str, Any] | None = None
) -> tuple[Finding, int | None]:
    """The fork of two logs at offset 3 after clean stops, and where the follower cuts by the checkpoints."""
    logs = Logs()
    replicas = [
        logs.add(1, batches((0, "aaa"), (2, "nnn")), high_watermark=6, checkpoint=leader),
        logs.add(2, batches((0, "aaaoo")), high_watermark=3, checkpoint=follower),
    ]
    for replica in replicas:
        replica.context.clean_shutdown = True
    for name, value in (given or {}).items():
        setattr(replicas[0].context, name, value)
    return fork_of(logs, replicas)


def fork_of(logs: Logs, replicas: list[Replica]) -> tuple[Finding, int | None]:
    (finding,) = fork_findings(replicas, conflicts_of(logs, replicas))[0]
    assert (finding.kind, finding.evidence["offset"], finding.evidence["committed_on"]) == ("FORK_ABOVE_HW", 3, [1])
    (row,) = [one for one in finding.evidence["truncation_offsets"] if one["follower"] == 2]
    assert row["from_batches"] == 3
    return finding, row["from_checkpoint"]


def test_right_checkpoints_settle_it() -> None:
    finding, cut = forked(RIGHT)
    assert (finding.severity, finding.confidence, cut, finding.evidence["held_by"]) == (Severity.INFO, Confidence.PROVEN, 3, [])
    assert "kept" not in finding.evidence


@pytest.mark.parametrize("leader", [[(0, 0)], [(0, 0), (2, 5)], [(0, 0), (3, 6)]])
def test_what_the_leaders_checkpoint_does_not_know_is_kept(leader: list[tuple[int, int]]) -> None:
    """It gives the follower's epoch an end at or behind the end of the follower's log."""
    finding, cut = forked(leader)
    assert (finding.severity, finding.confidence, cut) == (Severity.ERROR, Confidence.INFERRED, 5)
    assert finding.evidence["kept"] == [{**KEPT, "without_checkpoint": False}]
    assert message(finding).endswith("Kafka does not cut there, and broker 2 would keep other records than the leader for good.")
    assert (advice(finding) or "").startswith("Copy the log directories of broker 2 elsewhere before any broker")


def test_what_the_followers_checkpoint_claims_is_kept() -> None:
    finding, cut = forked(RIGHT, [(0, 0), (2, 3)])
    assert (finding.severity, cut, finding.evidence["kept_on"]) == (Severity.ERROR, 5, [2])


def test_a_leader_without_a_checkpoint_knows_no_epochs_unless_the_file_was_not_copied() -> None:
    finding, cut = forked(None)
    assert (finding.severity, finding.confidence, cut) == (Severity.WARNING, Confidence.SUSPECTED, 5)
    assert finding.evidence["kept"] == [{**KEPT, "without_checkpoint": True}]
    assert message(finding).endswith("which is harmless if the copy of the leader was made without its leader-epoch-checkpoint.")


@pytest.mark.parametrize("given", [{"clean_shutdown": False}, {"live": True}])
def test_after_a_crash_epochs_are_found_again_and_a_running_broker_knows_them(given: dict[str, bool]) -> None:
    leaders: list[Entries | None] = [None, [(0, 0)]]
    for leader in leaders:
        assert forked(leader, given=given)[0].severity == Severity.INFO


def test_a_follower_without_a_checkpoint_cuts_at_its_own_watermark() -> None:
    finding, cut = forked(RIGHT, None)
    assert (finding.severity, cut) == (Severity.INFO, 3)


def test_a_follower_without_a_checkpoint_keeps_all_that_it_knows_to_be_committed() -> None:
    """As the plan says of the same logs: its broker asks for no epoch, and cuts at its own watermark."""
    logs = Logs()
    leader = logs.add(1, batches((0, "aaa"), (2, "nnn")), high_watermark=3, checkpoint=RIGHT)
    follower = logs.add(2, batches((0, "aaaoo")), high_watermark=5, checkpoint=None)
    for replica in (leader, follower):
        replica.context.clean_shutdown = True
    (finding,) = fork_findings([leader, follower], conflicts_of(logs, [leader, follower]))[0]
    assert (finding.kind, finding.place.offset_start, finding.place.offset_end) == ("UNCLEAN_LOSS", 3, 5)
    (row,) = finding.evidence["truncation_offsets"]
    assert (row["from_batches"], row["from_checkpoint"]) == (3, 5)


def test_no_watermark_lies_below_the_log_start() -> None:
    """Broker 2 has no watermark and its empty checkpoint no epochs, and cuts where its log begins."""
    logs = Logs()
    leader = logs.add(1, batches((0, "aaa"), (2, "nnn"))[1:], high_watermark=3, checkpoint=[(0, 1), (2, 3)])
    follower = logs.add(2, batches((0, "aaaoo"))[2:], high_watermark=None, checkpoint=[])
    follower.context.clean_shutdown = True
    (finding,) = fork_findings([leader, follower], conflicts_of(logs, [leader, follower]))[0]
    (row,) = finding.evidence["truncation_offsets"]
    assert (row["from_batches"], row["from_checkpoint"]) == (3, 2)


@pytest.mark.parametrize("start", [4, 7])
def test_who_is_cut_below_the_leaders_log_start_begins_anew_there(start: int) -> None:
    """Records of the leader were deleted up to its log start, their bytes still lie there."""
    logs = Logs()
    leader = logs.add(1, batches((0, "aa"), (2, "nnnnnnn")), high_watermark=9, checkpoint=[(2, start)])
    follower = logs.add(2, batches((0, "aaoooo")), high_watermark=2, checkpoint=[(0, 0)])
    leader.log_start_offset = start
    leader.context.clean_shutdown = follower.context.clean_shutdown = True
    (finding,) = fork_findings([leader, follower], conflicts_of(logs, [leader, follower]))[0]
    (row,) = finding.evidence["truncation_offsets"]
    assert (row["from_batches"], row["from_checkpoint"]) == (start, start)


def test_a_malformed_checkpoint_says_nothing() -> None:
    logs = Logs()
    leader = logs.add(1, batches((0, "aaa"), (2, "nnn")), high_watermark=6, checkpoint=[(0, 0)])
    follower = logs.add(2, batches((0, "aaaoo")), high_watermark=3, checkpoint=[(0, 0)])
    assert leader.context.leader_epochs is not None
    leader.context.leader_epochs = replace(leader.context.leader_epochs, damage=[Damage("CHECKPOINT_MALFORMED", 0, 1)])
    finding, cut = fork_of(logs, [leader, follower])
    assert (finding.severity, cut) == (Severity.INFO, None)


@pytest.mark.parametrize(("leading", "severity"), [(None, Severity.INFO), (1, Severity.ERROR), (3, Severity.INFO)])
def test_of_two_that_may_lead_the_controllers_counts(leading: int | None, severity: Severity) -> None:
    logs = Logs()
    log = batches((0, "aaa"), (2, "nnn"))
    replicas = [
        logs.add(1, log, high_watermark=6, checkpoint=[(0, 0)]),
        logs.add(2, batches((0, "aaaoo")), high_watermark=3, checkpoint=[(0, 0)]),
        logs.add(3, log, high_watermark=6, checkpoint=RIGHT),
    ]
    for replica in replicas:
        replica.context.clean_shutdown = True
        replica.context.control = None if leading is None else PartitionControl(leading, 2, [1, 3], [], [1, 2, 3])
    (finding,) = fork_findings(replicas, conflicts_of(logs, replicas))[0]
    assert (finding.kind, finding.severity) == ("FORK_ABOVE_HW", severity)


@pytest.mark.parametrize(
    ("leader", "leader_epoch", "checkpoint", "kept"),
    [
        (2, 3, [(0, 0)], [(1, 4)]),
        (2, 3, [(0, 0), (2, 3)], []),
        (2, None, [(0, 0)], [(1, 4)]),
        (2, 1, [(0, 0)], [(2, 4)]),
        (9, 3, [(0, 0)], [(2, 4)]),
        (None, None, [(0, 0)], [(2, 4)]),
    ],
)
def test_the_controllers_leader_leads_whatever_epoch_its_log_has(
    leader: int | None, leader_epoch: int | None, checkpoint: list[tuple[int, int]], kept: list[tuple[int, int]]
) -> None:
    """Broker 1 has the latest epoch, and its checkpoint knows nothing of that; broker 2 was elected after it, unless the
    controller's log is older than broker 1's, or its leader has no copy here."""
    logs = Logs()
    replicas = [
        logs.add(1, batches((0, "aaa"), (2, "nn")), high_watermark=3, checkpoint=checkpoint),
        logs.add(2, batches((0, "aaao")), high_watermark=3, checkpoint=[(0, 0)]),
    ]
    for replica in replicas:
        replica.context.clean_shutdown = True
        replica.context.control = PartitionControl(leader, leader_epoch, [1, 2], [], [1, 2])
    (finding,) = fork_findings(replicas, conflicts_of(logs, replicas))[0]
    assert finding.kind == "FORK_ABOVE_HW"
    assert [(row["broker"], row["offset_end"]) for row in finding.evidence.get("kept", [])] == kept


def test_a_leader_that_ends_before_the_fork_leaves_nothing_of_it() -> None:
    logs = Logs()
    replicas = [
        logs.add(1, batches((0, "aaa"), (2, "nn")), high_watermark=3, checkpoint=[(0, 0)]),
        logs.add(2, batches((0, "aaao")), high_watermark=3, checkpoint=[(0, 0)]),
        logs.add(3, batches((0, "aaa")), high_watermark=3, checkpoint=[(0, 0)]),
    ]
    for replica in replicas:
        replica.context.clean_shutdown = True
        replica.context.control = PartitionControl(3, 3, [3], [], [1, 2, 3])
    (finding,) = fork_findings(replicas, conflicts_of(logs, replicas))[0]
    assert (finding.kind, finding.severity, finding.evidence["held_by"]) == ("FORK_ABOVE_HW", Severity.INFO, [])


def test_after_a_crash_segments_are_walked_from_that_of_the_recovery_point_on() -> None:
    replica = Logs().add(1, batches((0, "ab"), (1, "cd"), (2, "ef")), checkpoint=[(0, 0)])
    replica.context.segment_base_offsets = [0, 2, 4, 6]
    known = {}
    for point in (0, 2, 3, 5, 6):
        replica.context.recovery_point = point
        known[point] = [(entry.leader_epoch, entry.start_offset) for entry in brokers_epochs(replica)]
    every = [(0, 0), (1, 2), (2, 4)]
    assert known == {0: every, 2: every, 3: every, 5: [(0, 0), (2, 4)], 6: [(0, 0)]}


@pytest.mark.parametrize("start", [0, 3, 5])
@pytest.mark.parametrize(("watermark", "tail"), [(6, ""), (7, ""), (6, "u")])
def test_what_the_present_leader_removed_makes_no_fork_critical(start: int, watermark: int, tail: str) -> None:
    """A stale log of a lost epoch, a follower that lags (with an uncommitted tail, too), and the leader, with all or the rest."""
    logs = Logs()
    whole = batches((0, "aaaaaa"), (6, "n"))
    replicas = [
        logs.add(1, whole[start:], high_watermark=watermark, checkpoint=[(0, start), (6, 6)]),
        logs.add(2, batches((2, "zz")), high_watermark=0, checkpoint=[(2, 0)]),
        logs.add(3, batches((0, "aaaaaa" + tail)), high_watermark=6, checkpoint=[(0, 0)]),
    ]
    findings = compare(replicas, logs).findings
    assert {(finding.kind, finding.severity) for finding in findings} == {("FORK_ABOVE_HW", Severity.INFO)}
    assert all(finding.evidence["committed_on"] for finding in findings if finding.evidence["offset"] == 0)


Side = tuple[list[tuple[int, str]], int, int, list[tuple[int, int]]]
"""Runs of (epoch, records), the log start, the high watermark, the leader-epoch-checkpoint."""
RETAINED: dict[str, tuple[dict[int, Side], str, tuple[int, int], dict[str, Any]]] = {
    "a later leader of the other version leaves the fork critical": (
        {1: ([(2, "zzz"), (6, "n")], 2, 4, [(2, 2), (6, 3)]), 2: ([(2, "zzz")], 0, 0, [(2, 0)]), 3: ([(3, "aaa")], 0, 3, [(3, 0)])},
        "UNCLEAN_LOSS", (0, 3), {"held_by": [3]},
    ),
    "what another log of the latest epoch removed does not hide a loss": (
        {1: ([(6, "nnnnn")], 3, 5, [(6, 3)]), 3: ([(6, "nnnnn")], 0, 5, [(6, 0)]), 4: ([(5, "o")], 0, 1, [(5, 0)])},
        "UNCLEAN_LOSS", (0, 1), {"held_by": [4], "leaders": [3]},
    ),
    "a stale log that ends where the leader's begins is no fork for good": (
        {1: ([(0, "zz")], 0, 0, [(0, 0)]), 2: ([(1, "aaa")], 0, 2, [(1, 0)]), 4: ([(1, "aaaa")], 2, 2, [(1, 2), (3, 4)])},
        "FORK_ABOVE_HW", (0, 4), {"committed_on": [2]},
    ),
    "what is committed behind the end of the leader's log is cut, though both share no offset": (
        {3: ([(6, "nnn")], 1, 3, [(6, 1)]), 4: ([(2, "aaaa"), (4, "bbb")], 3, 7, [(2, 3), (4, 4)])},
        "UNCLEAN_LOSS", (3, 7), {"held_by": [4], "leaders": [3], "loses": 4},
    ),
    "a log that goes on where an older copy of it ends loses nothing": (
        {1: ([(2, "aaaa")], 0, 4, [(2, 0)]), 2: ([(2, "aaaa"), (6, "bbb")], 4, 7, [(6, 4)])}, "REPLICA_LAGS", (4, 7), {}
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", RETAINED)
def test_what_retention_left_of_the_logs(case: str) -> None:
    sides, kind, ends, evidence = RETAINED[case]
    logs = Logs()
    replicas = [
        logs.add(broker, batches(*runs)[start:], high_watermark=watermark, checkpoint=checkpoint)
        for broker, (runs, start, watermark, checkpoint) in sides.items()
    ]
    (finding,) = compare(replicas, logs).findings
    assert (finding.kind, (finding.place.offset_start, finding.place.offset_end)) == (kind, ends)
    assert finding.severity is (Severity.CRITICAL if kind == "UNCLEAN_LOSS" else Severity.INFO)
    assert {name: finding.evidence[name] for name in evidence} == evidence


def test_a_log_that_goes_on_with_either_version_speaks_for_none() -> None:
    """Both grew together again behind the fork, so that a log that begins there is of both."""
    logs = Logs()
    replicas = [
        logs.add(1, batches((0, "a"), (4, "cc")), high_watermark=3),
        logs.add(2, batches((1, "b"), (4, "cc")), high_watermark=0),
        logs.add(3, batches((0, "a"), (4, "cc"), (6, "n"))[1:], high_watermark=3),
    ]
    (finding,) = fork_findings(replicas, conflicts_of(logs, replicas))[0]
    assert (finding.kind, finding.severity, finding.evidence["held_by"]) == ("FORK_BELOW_HW", Severity.CRITICAL, [1])


@pytest.mark.parametrize(("epoch", "begun"), [(6, []), (0, [(6, 2)])])
def test_a_watermark_below_what_is_left_of_the_log_loses_nothing(epoch: int, begun: list[tuple[int, int]]) -> None:
    """The checkpoint was written before retention moved the log start past it."""
    logs = Logs()
    leader = logs.add(1, batches((epoch, "aa")), high_watermark=2, checkpoint=[(epoch, 0), *begun])
    behind = logs.add(2, batches((0, "aaaa"), (1, "bb"))[4:], high_watermark=3, checkpoint=[(1, 4)])
    assert [finding.kind for finding in compare([leader, behind], logs).findings if finding.kind == "UNCLEAN_LOSS"] == []
