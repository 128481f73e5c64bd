"""Forks of which some replicas begin behind: what retention removed there says nothing, but what is left names the version."""

import pytest

from kafka_forensics.analysis.replicas.comparison import compare
from kafka_forensics.analysis.replicas.forks import fork_findings
from kafka_forensics.model.findings import Severity
from tests.support.replica_logs import Logs, batches, conflicts_of


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


def test_a_later_leader_of_the_other_version_leaves_the_fork_critical() -> None:
    logs = Logs()
    replicas = [
        logs.add(1, batches((2, "zzz"), (6, "n"))[2:], high_watermark=4, checkpoint=[(2, 2), (6, 3)]),
        logs.add(2, batches((2, "zzz")), high_watermark=0, checkpoint=[(2, 0)]),
        logs.add(3, batches((3, "aaa")), high_watermark=3, checkpoint=[(3, 0)]),
    ]
    kinds = [(finding.kind, finding.place.offset_end, finding.evidence["held_by"]) for finding in compare(replicas, logs).findings]
    assert kinds[0] == ("UNCLEAN_LOSS", 3, [3])


def test_what_another_log_of_the_latest_epoch_removed_does_not_hide_a_loss() -> None:
    logs = Logs()
    replicas = [
        logs.add(1, batches((6, "nnnnn"))[3:], high_watermark=5, checkpoint=[(6, 3)]),
        logs.add(3, batches((6, "nnnnn")), high_watermark=5, checkpoint=[(6, 0)]),
        logs.add(4, batches((5, "o")), high_watermark=1, checkpoint=[(5, 0)]),
    ]
    (finding,) = [one for one in compare(replicas, logs).findings if one.kind != "REPLICA_LAGS"]
    assert (finding.kind, finding.place.offset_start, finding.place.offset_end) == ("UNCLEAN_LOSS", 0, 1)
    assert (finding.evidence["held_by"], finding.evidence["leaders"]) == ([4], [3])


def test_what_is_kept_below_the_leaders_log_start_is_no_fork_for_good() -> None:
    """The stale log ends where the leader's begins, so that nothing of it is cut."""
    logs = Logs()
    replicas = [
        logs.add(1, batches((0, "zz")), high_watermark=0, checkpoint=[(0, 0)]),
        logs.add(2, batches((1, "aaa")), high_watermark=2, checkpoint=[(1, 0)]),
        logs.add(4, batches((1, "aaaa"))[2:], high_watermark=2, checkpoint=[(1, 2), (3, 4)]),
    ]
    (finding,) = [one for one in compare(replicas, logs).findings if one.kind != "REPLICA_LAGS"]
    assert (finding.kind, finding.severity, finding.evidence["committed_on"]) == ("FORK_ABOVE_HW", Severity.INFO, [2])


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


def test_a_leader_that_ends_where_the_committed_log_begins_is_told_without_a_fork() -> None:
    """Nothing that both hold differs, since they share no offset; what is committed behind would be cut all the same."""
    logs = Logs()
    leader = logs.add(3, batches((6, "nnn"))[1:], high_watermark=3, checkpoint=[(6, 1)])
    behind = logs.add(4, batches((2, "aaaa"), (4, "bbb"))[3:], high_watermark=7, checkpoint=[(2, 3), (4, 4)])
    (finding,) = [one for one in compare([leader, behind], logs).findings if one.kind != "REPLICA_LAGS"]
    assert (finding.kind, finding.place.offset_start, finding.place.offset_end) == ("UNCLEAN_LOSS", 3, 7)
    assert (finding.evidence["held_by"], finding.evidence["leaders"], finding.evidence["loses"]) == ([4], [3], 4)


def test_a_log_that_goes_on_where_an_older_copy_of_it_ends_loses_nothing() -> None:
    logs = Logs()
    shorter = logs.add(1, batches((2, "aaaa")), high_watermark=4, checkpoint=[(2, 0)])
    later = logs.add(2, batches((2, "aaaa"), (6, "bbb"))[4:], high_watermark=7, checkpoint=[(6, 4)])
    assert [finding.kind for finding in compare([shorter, later], logs).findings] == ["REPLICA_LAGS"]


@pytest.mark.parametrize(("epoch", "begun"), [(6, []), (0, [(6, 2)])])
def test_a_watermark_below_what_is_left_of_the_log_loses_nothing(epoch: int, begun: list[tuple[int, int]]) -> None:
    """The checkpoint was written before retention moved the log start past it."""
    logs = Logs()
    leader = logs.add(1, batches((epoch, "aa")), high_watermark=2, checkpoint=[(epoch, 0), *begun])
    behind = logs.add(2, batches((0, "aaaa"), (1, "bb"))[4:], high_watermark=3, checkpoint=[(1, 4)])
    assert [finding.kind for finding in compare([leader, behind], logs).findings if finding.kind == "UNCLEAN_LOSS"] == []
