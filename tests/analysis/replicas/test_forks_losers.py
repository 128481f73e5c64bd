"""Forks of three and more logs: who loses is decided by the latest epoch of all, and who holds what was lost by every record."""

from kafka_forensics import wording
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas.comparison import compare
from kafka_forensics.analysis.replicas.forks import fork_findings, trailing_epoch_loss
from kafka_forensics.model.findings import Finding
from tests.support.replica_logs import Logs, batches, conflicts_of


def told(found: list[Finding]) -> list[tuple[str, tuple[int | None, int | None], list[int]]]:
    return [
        (finding.kind, (finding.place.offset_start, finding.place.offset_end), finding.evidence["held_by"]) for finding in found
    ]


def test_a_version_that_a_leader_of_a_later_epoch_goes_on_with_loses_nothing() -> None:
    """Broker 2 lags; broker 5 has the same version and leads after broker 1 did: brokers 1 and 3 will cut, nobody else."""
    logs = Logs()
    replicas = [
        logs.add(1, batches((3, "xyz")), high_watermark=0),
        logs.add(2, batches((2, "ab")), high_watermark=2),
        logs.add(5, batches((2, "ab"), (5, "cd")), high_watermark=3),
    ]
    (finding,) = fork_findings(replicas, conflicts_of(logs, replicas))[0]
    assert (finding.kind, finding.evidence["committed_on"]) == ("FORK_ABOVE_HW", [2, 5])


def test_every_version_that_loses_is_named() -> None:
    logs = Logs()
    replicas = [
        logs.add(1, batches((6, "vwxyz")), high_watermark=5),
        logs.add(2, batches((3, "abcd")), high_watermark=2),
        logs.add(4, batches((5, "e")), high_watermark=1),
    ]
    findings = fork_findings(replicas, conflicts_of(logs, replicas))[0]
    assert told(findings) == [("UNCLEAN_LOSS", (0, 2), [2]), ("UNCLEAN_LOSS", (0, 1), [4])]
    assert [finding.evidence["loses"] for finding in findings] == [2, 1]


def test_who_has_less_or_parts_further_on_is_no_holder() -> None:
    logs = Logs()
    replicas = [
        logs.add(1, batches((6, "xyz")), high_watermark=3),
        logs.add(2, batches((0, "a")), high_watermark=0),
        logs.add(3, batches((0, "ab"), (1, "cd")), high_watermark=0),
        logs.add(4, batches((0, "ab"), (2, "e")), high_watermark=3),
    ]
    findings = fork_findings(replicas, conflicts_of(logs, replicas))[0]
    assert told(findings) == [("UNCLEAN_LOSS", (0, 3), [4])]


def test_a_leader_that_was_replaced_threatens_nothing_any_more() -> None:
    """Broker 4 led epoch 2 with an empty log; broker 1 leads epoch 3 and has the first record."""
    logs = Logs()
    replicas = [
        logs.add(4, [], high_watermark=0, checkpoint=[(2, 0)]),
        logs.add(1, batches((0, "a")), high_watermark=1, checkpoint=[(0, 0), (3, 1)]),
        logs.add(2, batches((0, "abcdef")), high_watermark=5),
    ]
    finding = trailing_epoch_loss(replicas)
    assert finding is not None
    assert told([finding]) == [("UNCLEAN_LOSS", (1, 5), [2])]


def test_a_leader_that_wrote_nothing_is_told_of_beside_a_fork() -> None:
    """Broker 4 parts from all at offset 0; broker 1 has led since, and makes broker 2 cut from offset 1 on."""
    logs = Logs()
    replicas = [
        logs.add(1, batches((0, "a")), high_watermark=1, checkpoint=[(0, 0), (3, 1)]),
        logs.add(2, batches((0, "abcdef")), high_watermark=5),
        logs.add(4, batches((2, "x")), high_watermark=1),
    ]
    conflicts = conflicts_of(logs, replicas)
    forks = fork_findings(replicas, conflicts)[0]
    assert told(forks) == [("UNCLEAN_LOSS", (0, 1), [4])]
    beside = trailing_epoch_loss(replicas, conflicts, forks)
    assert beside is not None
    assert told([beside]) == [("UNCLEAN_LOSS", (1, 5), [2])]
    assert trailing_epoch_loss(replicas, conflicts, [*forks, beside]) is None


def test_a_loss_begins_where_the_latest_leader_ends() -> None:
    """Both sides of the fork at offset 1 lose what they share before it, too: broker 3 leads and has nothing."""
    logs = Logs()
    replicas = [
        logs.add(1, batches((0, "ab")), high_watermark=2),
        logs.add(2, batches((0, "a"), (1, "y")), high_watermark=1),
        logs.add(3, [], high_watermark=0, checkpoint=[(5, 0)]),
    ]
    conflicts = conflicts_of(logs, replicas)
    forks = fork_findings(replicas, conflicts)[0]
    assert told(forks) == [("UNCLEAN_LOSS", (0, 2), [1])]
    assert trailing_epoch_loss(replicas, conflicts, forks) is None


def with_a_leader_that_wrote_nothing(*, checkpoint: list[tuple[int, int]]) -> tuple[Logs, list[Replica]]:
    """Brokers 1 and 2 part at offset 2, and broker 3 has led since from offset 1 on."""
    logs = Logs()
    replicas = [
        logs.add(1, batches((0, "abcd")), high_watermark=4),
        logs.add(2, batches((0, "ab"), (1, "yz")), high_watermark=4),
        logs.add(3, batches((0, "a")), high_watermark=1, checkpoint=checkpoint),
    ]
    return logs, replicas


def test_a_loss_names_the_leader_of_the_latest_epoch_and_where_it_cuts() -> None:
    logs, replicas = with_a_leader_that_wrote_nothing(checkpoint=[(0, 0), (7, 1)])
    findings = fork_findings(replicas, conflicts_of(logs, replicas))[0]
    assert told(findings) == [("UNCLEAN_LOSS", (1, 4), [1]), ("UNCLEAN_LOSS", (1, 4), [2])]
    for finding, holder in zip(findings, (1, 2), strict=True):
        assert (finding.evidence["leaders"], finding.evidence["latest_epoch"]) == ([3], 7)
        assert finding.evidence["truncation_offsets"] == [
            {"follower": holder, "leader": 3, "from_batches": 1, "from_checkpoint": 1},
        ]
    assert wording.message(findings[0]) == (
        "t-0: committed records at offsets 1 to 3 survive only on broker 1, and Kafka will truncate them at offset 1 to match"
        " the new leader, broker 3 in epoch 7 (epoch 0 on broker 1 against epoch 1 on broker 2); other records are committed at"
        " offsets 2 to 3 on broker 2."
    )


def test_a_loss_without_a_fork_names_its_leader() -> None:
    logs = Logs()
    replicas = [
        logs.add(1, batches((0, "ab")), high_watermark=2),
        logs.add(2, batches((0, "abc")), high_watermark=2),
        logs.add(3, [], high_watermark=0, checkpoint=[(5, 0)]),
    ]
    finding = trailing_epoch_loss(replicas)
    assert finding is not None
    assert (finding.evidence["leaders"], finding.evidence["latest_epoch"]) == ([3], 5)
    assert [(row["follower"], row["leader"], row["from_batches"]) for row in finding.evidence["truncation_offsets"]] == [
        (1, 3, 0),
        (2, 3, 0),
    ]


def test_of_several_logs_with_the_latest_epoch_those_count_that_keep_most() -> None:
    logs = Logs()
    replicas = [
        logs.add(1, batches((0, "abcd")), high_watermark=4),
        logs.add(2, batches((0, "ab"), (3, "yz")), high_watermark=2),
        logs.add(3, batches((0, "ab"), (3, "y")), high_watermark=2),
    ]
    (finding,) = fork_findings(replicas, conflicts_of(logs, replicas))[0]
    assert (finding.evidence["leaders"], finding.evidence["latest_epoch"]) == ([2, 3], 3)
    assert [(row["follower"], row["leader"]) for row in finding.evidence["truncation_offsets"]] == [(1, 2)]


def test_one_loss_is_told_once() -> None:
    """Brokers 1 and 2 hold one version where broker 3 parts from them, and two further on."""
    logs = Logs()
    replicas = [
        logs.add(1, batches((0, "abcd")), high_watermark=4),
        logs.add(2, batches((0, "ab"), (1, "yz")), high_watermark=4),
        logs.add(3, batches((0, "a"), (7, "q")), high_watermark=0),
    ]
    findings = [finding for finding in compare(replicas, logs).findings if finding.kind == "UNCLEAN_LOSS"]
    assert told(findings) == [("UNCLEAN_LOSS", (1, 4), [1]), ("UNCLEAN_LOSS", (1, 4), [2])]


def test_the_leader_by_whom_all_is_lost_does_not_lag_behind_what_it_cuts() -> None:
    logs, replicas = with_a_leader_that_wrote_nothing(checkpoint=[(0, 0), (7, 1)])
    assert {finding.kind for finding in compare(replicas, logs).findings} == {"UNCLEAN_LOSS"}
    logs, replicas = with_a_leader_that_wrote_nothing(checkpoint=[(0, 0)])
    assert [finding.place.broker for finding in compare(replicas, logs).findings if finding.kind == "REPLICA_LAGS"] == [3]
