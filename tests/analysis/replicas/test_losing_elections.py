"""Which election a loss is told with: the one by which the latest leader's log came to lack what its holders have."""

import pytest

from kafka_forensics.analysis.replicas.comparison import compare
from kafka_forensics.analysis.replicas.controllers_word import judged_by_controller
from kafka_forensics.model.controller import PartitionControl, PartitionEvent, PartitionHistory, PartitionState
from kafka_forensics.model.findings import Finding
from tests.support.replica_logs import Logs, batches

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
