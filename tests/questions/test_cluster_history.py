"""The history of a cluster counts elections, changes of ISRs, and brokers that go down, from the controllers' log."""

from collections import Counter

from kafka_forensics.analysis.internal_topics.controller import ControllerReplay
from kafka_forensics.questions.cluster_history import ClusterHistory, cluster_history
from tests.support.brokers import TOPIC, TOPIC_ID
from tests.support.controllers import broker_registration, decode, partition, partition_change, record, topic


def history_of(*values: bytes) -> ClusterHistory:
    """The history after these records, one a second."""
    replay = ControllerReplay(0)
    for offset, value in enumerate(values):
        replay.step(offset, 1000 * offset, decode(value))
    history = cluster_history(replay.finish(len(values)))
    assert history is not None
    return history


MADE = (topic(), partition([1, 2, 3], 1))


def test_a_broker_that_registers_is_not_down_before_it_ran() -> None:
    unfenced, fenced = (record(17, broker_id=1, broker_epoch=0, fenced=change) for change in (-1, 1))
    history = history_of(broker_registration(1, 0), unfenced, fenced, broker_registration(1, 3))
    changes = [(moment.time_ms, moment.fenced, moment.unfenced) for moment in history.moments]
    assert changes == [(1000, set(), {1}), (2000, {1}, set())]
    assert history.end_ms == 3000


def test_elections_and_isr_changes_are_counted_by_broker() -> None:
    history = history_of(
        *MADE,
        partition_change(leader=2, isr=[2, 3]),
        partition_change(leader=-1, isr=[]),
        partition_change(leader=1, isr=[1], leader_recovery_state=1),
        partition_change(isr=[1, 2], leader_recovery_state=0),
        partition_change(leader=1),
    )
    created, clean, none, unclean, joined, same = history.moments
    assert not created.changes
    assert (clean.elected, clean.left_isr, clean.unclean) == (Counter({2: 1}), Counter({1: 1}), {})
    assert (none.leaderless, none.left_isr, none.elected) == (1, Counter({2: 1, 3: 1}), Counter())
    assert (dict(unclean.unclean), unclean.joined_isr, unclean.elected) == ({1: [(TOPIC, 0)]}, Counter(), Counter())
    assert (joined.joined_isr, joined.elected) == (Counter({2: 1}), Counter())
    assert not same.changes
    out = [sorted((broker, change) for broker, change in moment.out_of_sync.items() if change) for moment in history.moments]
    assert out == [[], [(1, 1)], [(2, 1), (3, 1)], [(1, -1)], [(2, -1)], []]


def test_a_deleted_topic_leaves_nobody_out_of_sync() -> None:
    history = history_of(*MADE, partition_change(isr=[1]), record(9, topic_id=TOPIC_ID))
    total: Counter[int] = Counter()
    for moment in history.moments:
        total.update(moment.out_of_sync)
    assert set(total.values()) == {0}
    assert not history.moments[-1].changes


def test_without_a_controllers_log_there_is_no_history() -> None:
    assert cluster_history(None) is None
