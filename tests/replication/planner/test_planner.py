"""Parts of a plan: how followers truncate, the epochs that a broker loads, and kinds of elections."""

import pytest
from msgspec.structs import replace

from kafka_forensics.replication.planner import planner
from kafka_forensics.replication.planner.plans import PlanControl
from tests.support.plan_values import entries, replica


def test_the_rule_of_truncation_follows_from_the_logs() -> None:
    old = [replica(1, 10, hw=10), replica(2, 10, hw=0)]
    assert planner.truncates_by(old) == "high_watermark"
    assert planner.truncates_by([*old, replica(4, 3, (0, 0))]) == "epochs"
    assert planner.truncates_by([replace(replica(1, 3), checkpoint=())]) == "epochs", "Kafka 0.11 and later write a checkpoint file"
    assert planner.truncates_by([replica(1, 0)]) == "epochs"


def test_a_broker_loads_ascending_entries_of_a_checkpoint() -> None:
    assert planner.loaded_epochs(entries((0, 0), (2, 5), (3, 9)), 9) == list(entries((0, 0), (2, 5)))
    assert planner.loaded_epochs(entries((0, 0), (4, 5), (3, 7)), 9) == list(entries((0, 0), (3, 7)))
    assert planner.loaded_epochs(entries((0, 4), (1, 4)), 9) == list(entries((1, 4)))


def test_recovery_adds_the_epochs_of_the_batches_that_it_reads() -> None:
    runs = [(0, 0, 5), (1, 5, 12), (3, 12, 20)]
    assert planner.recovered_epochs(entries((0, 0)), runs, 0) == entries((0, 0), (1, 5), (3, 12))
    assert planner.recovered_epochs(entries((0, 0)), runs, 8) == entries((0, 0), (1, 8), (3, 12)), (
        "batches before offset 8 are not read"
    )
    assert planner.recovered_epochs(entries((0, 0), (2, 7)), runs, 0) == entries((0, 0), (2, 7), (3, 12))
    assert planner.recovered_epochs((), runs, 20) == ()


@pytest.mark.parametrize(("node", "kind"), [(1, "leads"), (2, "clean"), (3, "elr"), (4, "unclean"), ("x", "unknown")])
def test_the_kind_of_an_election_follows_from_the_isr_and_elr(node: int | str, kind: str) -> None:
    control = PlanControl(1, 1, 2, (1, 2), (3,), (1, 2, 3, 4))
    assert planner.election_kind(control, node) == kind
    assert (planner.election_kind(control, node, crashed=True) == kind) is (kind not in ("leads", "elr"))
    assert planner.election_kind(None, node) == planner.election_kind(replace(control, isr=None), node) == "unknown"


LEADERLESS = PlanControl(-1, 2, 2, (), (1, 2), (1, 2, 3))


@pytest.mark.parametrize(
    ("elr", "node", "crashed", "kind"),
    [
        ((1, 2), 1, False, "elr"),
        ((1, 2), 1, True, "unclean"),
        ((1, 2), 2, True, "unclean"),
        ((2,), 2, False, "elr"),
        ((2,), 2, True, "last_known_leader"),
        ((), 2, True, "last_known_leader"),
        ((), 2, False, "last_known_leader"),
        ((), 1, False, "unclean"),
        ((), 3, True, "unclean"),
    ],
)
def test_a_crashed_broker_leaves_the_elr_and_the_last_leader_can_lead(
    elr: tuple[int, ...], node: int, crashed: bool, kind: str
) -> None:
    assert planner.election_kind(replace(LEADERLESS, elr=elr), node, crashed=crashed) == kind
