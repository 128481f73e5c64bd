"""Forks of three and more logs: who loses is decided by the latest epoch of all, and who holds what was lost by every record."""

from collections.abc import Sequence

import pytest

from kafka_forensics import wording
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas.comparison import compare, with_holders
from kafka_forensics.analysis.replicas.controllers_word import judged_by_controller
from kafka_forensics.analysis.replicas.forks import fork_findings
from kafka_forensics.analysis.replicas.verdicts import own_findings
from kafka_forensics.model.controller import PartitionControl, PartitionEvent, PartitionHistory, PartitionState
from kafka_forensics.model.findings import Finding
from tests.support.replica_logs import Logs, batches, conflicts_of


def told(found: list[Finding]) -> list[tuple[str, tuple[int | None, int | None], tuple[int, ...]]]:
    return [(one.kind, (one.place.offset_start, one.place.offset_end), tuple(one.evidence["held_by"])) for one in found]


Side = tuple[list[tuple[int, str]], int, list[tuple[int, int]] | None]
"""Runs of (epoch, records), the high watermark, the leader-epoch-checkpoint."""
ALL = ([(0, "abcdef")], 5, None)
LOSSES: dict[str, tuple[dict[int, Side], list[int], int, dict[int, tuple[int, int, list[int]]]]] = {
    "every version that loses is named": (
        {1: ([(6, "vwxyz")], 5, None), 2: ([(3, "abcd")], 2, None), 4: ([(5, "e")], 1, None)},
        [1], 6, {2: (0, 2, [2]), 4: (0, 1, [4])},
    ),
    "who has less or parts further on is no holder": (
        {1: ([(6, "xyz")], 3, None), 2: ([(0, "a")], 0, None), 3: ([(0, "ab"), (1, "cd")], 0, None),
         4: ([(0, "ab"), (2, "e")], 3, None)}, [1], 6, {4: (0, 3, [4])},
    ),
    "4 led epoch 2 with an empty log and was replaced": (
        {4: ([], 0, [(2, 0)]), 1: ([(0, "a")], 1, [(0, 0), (3, 1)]), 2: ALL}, [1], 3, {2: (1, 5, [2])}
    ),
    "1 wrote nothing since it leads, beside the fork with 4": (
        {1: ([(0, "a")], 1, [(0, 0), (3, 1)]), 2: ALL, 4: ([(2, "x")], 1, None)}, [1], 3, {4: (0, 1, [4]), 2: (1, 5, [2])}
    ),
    "3 leads and has nothing: what both sides share before their fork is lost, too": (
        {1: ([(0, "ab")], 2, None), 2: ([(0, "a"), (1, "y")], 1, None), 3: ([], 0, [(5, 0)])}, [3], 5, {1: (0, 2, [1])}
    ),
    "without a fork": (
        {1: ([(0, "ab")], 2, None), 2: ([(0, "abc")], 2, None), 3: ([], 0, [(5, 0)])},
        [3], 5, {1: (0, 2, [1, 2]), 2: (0, 2, [1, 2])},
    ),
    "of several logs with the latest epoch those count that keep most": (
        {1: ([(0, "abcd")], 4, None), 2: ([(0, "ab"), (3, "yz")], 2, None), 3: ([(0, "ab"), (3, "y")], 2, None)},
        [2, 3], 3, {1: (2, 4, [1])},
    ),
    "1 and 2 hold one version where 3 parts from them, and two further on": (
        {1: ([(0, "abcd")], 4, None), 2: ([(0, "ab"), (1, "yz")], 4, None), 3: ([(0, "a"), (7, "q")], 0, None)},
        [3], 7, {1: (1, 4, [1]), 2: (1, 4, [2])},
    ),
}  # fmt: skip
"""Brokers' logs → who leads in the latest epoch, and of each follower that cuts there, where, to what end, and who holds that."""


def replicas_of(logs: Logs, sides: dict[int, Side]) -> list[Replica]:
    return [
        logs.add(broker, batches(*runs), high_watermark=watermark, checkpoint=checkpoint)
        for broker, (runs, watermark, checkpoint) in sides.items()
    ]


@pytest.mark.parametrize("case", LOSSES)
def test_who_loses_what_by_whom(case: str) -> None:
    sides, leaders, latest_epoch, cuts = LOSSES[case]
    logs = Logs()
    found = [finding for finding in compare(replicas_of(logs, sides), logs).findings if finding.kind == "UNCLEAN_LOSS"]
    assert sorted(told(found)) == sorted({("UNCLEAN_LOSS", (start, end), tuple(held)) for start, end, held in cuts.values()})
    rows = [row for finding in found for row in finding.evidence["truncation_offsets"]]
    assert [(row["follower"], row["leader"], row["from_batches"]) for row in rows] == [
        (broker, leaders[0], start) for broker, (start, _, _) in cuts.items()
    ]
    for finding in found:
        assert (finding.evidence["leaders"], finding.evidence["latest_epoch"]) == (leaders, latest_epoch)
        assert finding.evidence["loses"] == (finding.place.offset_end or 0) - (finding.place.offset_start or 0)


def test_a_version_that_a_leader_of_a_later_epoch_goes_on_with_loses_nothing() -> None:
    """Broker 2 lags; broker 5 has the same version and leads after broker 1 did: brokers 1 and 3 will cut, nobody else."""
    logs = Logs()
    sides: dict[int, Side] = {1: ([(3, "xyz")], 0, None), 2: ([(2, "ab")], 2, None), 5: ([(2, "ab"), (5, "cd")], 3, None)}
    (finding,) = compare(replicas_of(logs, sides), logs).findings
    assert (finding.kind, finding.evidence["committed_on"]) == ("FORK_ABOVE_HW", [2, 5])


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
    assert told(findings) == [("UNCLEAN_LOSS", (1, 4), (1,)), ("UNCLEAN_LOSS", (1, 4), (2,))]
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


def test_the_leader_by_whom_all_is_lost_does_not_lag_behind_what_it_cuts() -> None:
    logs, replicas = with_a_leader_that_wrote_nothing(checkpoint=[(0, 0), (7, 1)])
    assert {finding.kind for finding in compare(replicas, logs).findings} == {"UNCLEAN_LOSS"}
    logs, replicas = with_a_leader_that_wrote_nothing(checkpoint=[(0, 0)])
    assert [finding.place.broker for finding in compare(replicas, logs).findings if finding.kind == "REPLICA_LAGS"] == [3]


def held_by(logs: Logs, replicas: list[Replica], kind: str) -> list[int | str]:
    """Whom the one finding of this kind names."""
    findings = [one for replica in replicas for one in own_findings(replica)]
    [finding] = [holder for holder in with_holders(replicas, findings, compare(replicas, logs)) if holder.kind == kind]
    return list(finding.evidence["held_by"])


@pytest.mark.parametrize(
    ("checkpoint", "holders"), [([(0, 0)], [3]), ([(0, 0), (2, 3)], [1, 3]), (None, [1, 3])], ids=["same", "contradicts", "none"]
)
def test_a_longer_log_of_another_epoch_holds_no_lost_tail(checkpoint: Sequence[tuple[int, int]] | None, holders: list[int]) -> None:
    """Broker 2 lost offsets 3 to 5 of epoch 0; broker 1 has others of epoch 2 there. Without a sure epoch nobody is left out."""
    logs = Logs()
    replicas = [
        logs.add(1, batches((0, "abc"), (2, "xyz")), high_watermark=6, checkpoint=[(0, 0), (2, 3)]),
        logs.add(2, batches((0, "abc")), high_watermark=6, checkpoint=checkpoint),
        logs.add(3, batches((0, "abcdef")), high_watermark=6, checkpoint=[(0, 0)]),
    ]
    assert held_by(logs, replicas, "HW_BEYOND_LEO") == holders


def test_a_log_of_another_epoch_fills_no_gap() -> None:
    """Broker 2's gap was of epoch 0; at its offsets broker 1 has batches of epoch 1."""
    logs = Logs()
    tail = batches((2, "xy"), start=4)
    replicas = [
        logs.add(1, [*batches((0, "ab"), (1, "pq")), *tail], high_watermark=6, checkpoint=[(0, 0), (1, 2), (2, 4)]),
        logs.add(2, [*batches((0, "ab")), *tail], high_watermark=6, checkpoint=[(0, 0), (2, 4)]),
        logs.add(3, [*batches((0, "abcd")), *tail], high_watermark=6, checkpoint=[(0, 0), (2, 4)]),
    ]
    assert held_by(logs, replicas, "OFFSET_GAP") == [3]


@pytest.mark.parametrize(("copies", "all_read", "is_lost"), [(2, True, True), (1, True, False), (2, False, False)])
def test_what_no_log_holds_is_lost_if_there_are_several_and_all_were_read(copies: int, all_read: bool, is_lost: bool) -> None:
    logs = Logs()
    gapped = [*batches((0, "ab")), *batches((0, "xy"), start=4)]
    replicas = [logs.add(1 + number, gapped, high_watermark=6, checkpoint=[(0, 0)]) for number in range(copies)]
    findings = [finding for replica in replicas for finding in own_findings(replica)]
    told = with_holders(replicas, findings, compare(replicas, logs), all_read=all_read)
    places = [
        (finding.place.offset_start, finding.place.offset_end) for finding in told if finding.kind == "COMMITTED_LOST_EVERYWHERE"
    ]
    assert places == ([(2, 4)] if is_lost else [])
    assert [finding.kind for finding in told].count("OFFSET_GAP") == copies


def test_a_lost_tail_is_no_gap_that_is_lost_everywhere() -> None:
    logs = Logs()
    replicas = [logs.add(broker, batches((0, "ab")), high_watermark=6, checkpoint=[(0, 0)]) for broker in (1, 2)]
    findings = [finding for replica in replicas for finding in own_findings(replica)]
    told = {finding.kind for finding in with_holders(replicas, findings, compare(replicas, logs))}
    assert "HW_BEYOND_LEO" in told
    assert "COMMITTED_LOST_EVERYWHERE" not in told


Step = tuple[int, int, bool, tuple[int, ...]]
"""Leader epoch, leader, whether it was elected uncleanly, and the ISR before."""


def event(number: int, step: Step, previous_leader: int) -> PartitionEvent:
    epoch, leader, unclean, before = step
    state = PartitionState(leader, epoch, epoch, (leader,), (), (), (1, 2, 3), (), (), (), 0)
    kind = "changed" if number else "created"
    return PartitionEvent(number, 1000 * number, kind, state, unclean, previous_leader, before)


def judged(latest: int, *steps: Step) -> list[Finding]:
    """What is found where broker 1 has `abcd` and broker 2 parts from it in epoch 1, while broker 3 led from offset 1 on in epoch
    `latest`, and the controller wrote these elections down."""
    logs = Logs()
    replicas = [
        logs.add(1, batches((0, "abcd")), high_watermark=4),
        logs.add(2, batches((0, "ab"), (1, "yz")), high_watermark=4),
        logs.add(3, batches((0, "a")), high_watermark=1, checkpoint=[(0, 0), (latest, 1)]),
    ]
    before = [-1, *(leader for _, leader, _, _ in steps)]
    events = [event(number, step, before[number]) for number, step in enumerate(steps)]
    control = PartitionControl(3, latest, [3], [], [1, 2, 3], history=PartitionHistory(events), as_of_ms=99_000, last_offset=9)
    for replica in replicas:
        replica.context.control = control
    compared = compare(replicas, logs)
    return judged_by_controller(replicas, compared.conflicts, compared.findings, logs)


def elected(found: list[Finding]) -> list[tuple[str, int, int, bool, int]]:
    losses = [finding for finding in found if finding.kind in ("UNCLEAN_LOSS", "LRS_LOSS")]
    told = [(finding.kind, finding.evidence["election"]) for finding in losses if "election" in finding.evidence]
    return [
        (kind, *(by[name] for name in ("leader_epoch", "new_leader", "unclean", "unclean_elections_since"))) for kind, by in told
    ]


CREATED: Step = (0, 1, False, (1, 2, 3))
CLEAN: Step = (1, 2, False, (1, 2))


def test_an_earlier_clean_election_is_not_to_blame() -> None:
    findings = judged(2, CREATED, CLEAN, (2, 3, True, (2,)))
    assert elected(findings) == [("UNCLEAN_LOSS", 2, 3, True, 0)] * 2
    (election,) = [finding for finding in findings if finding.kind == "UNCLEAN_ELECTION"]
    assert (election.place.offset_start, election.place.offset_end, election.evidence["cost_finding"]) == (1, 4, "UNCLEAN_LOSS")


def test_an_unclean_election_after_it_is_no_word_about_a_clean_one() -> None:
    """Broker 3 is elected cleanly in epoch 2, and in epoch 3 uncleanly after a leader that left no log."""
    findings = judged(2, CREATED, CLEAN, (2, 3, False, (2, 3)), (3, 3, True, (1,)))
    assert elected(findings) == [("UNCLEAN_LOSS", 2, 3, False, 1)] * 2
    (election,) = [finding for finding in findings if finding.kind == "UNCLEAN_ELECTION"]
    assert "cost_finding" not in election.evidence


def test_a_leader_that_was_elected_again_before_it_wrote_is_told_with_the_unclean_election() -> None:
    findings = judged(3, CREATED, CLEAN, (2, 3, True, (2,)), (3, 3, False, (3,)))
    assert elected(findings) == [("UNCLEAN_LOSS", 2, 3, True, 0)] * 2


def test_the_last_of_the_isr_came_back_without_them() -> None:
    findings = judged(3, CREATED, CLEAN, (2, 3, False, (2, 3)), (3, 3, False, (3,)))
    assert elected(findings) == [("LRS_LOSS", 3, 3, False, 0)] * 2


@pytest.mark.parametrize("alone", [(2, 2, False, (2,)), (2, 3, False, (3,))])
def test_an_election_before_the_one_that_is_not_known_is_not_judged_in_its_place(alone: Step) -> None:
    """The controller's log does not have epoch 7: an earlier election from an ISR of one may have lost nothing."""
    findings = judged(7, CREATED, CLEAN, alone)
    assert [finding.kind for finding in findings] == ["UNCLEAN_LOSS", "UNCLEAN_LOSS"]
    assert elected(findings) == []
