"""The coordinators' log replayed: latest states, decisions, unknown state, and the number of partitions."""

import pytest
from msgspec.structs import replace

from kafka_forensics.analysis.internal_topics import transaction_log
from kafka_forensics.analysis.internal_topics.transaction_log import TransactionLogReplay, java_hash, partition_count, will_be_ended
from kafka_forensics.model.coordinators import LoggedState, TransactionLog, TransactionMetadata

P0, P1 = ("t", 0), ("t", 1)


def meta(state: str, *partitions: tuple[str, int], epoch: int = 0, at: int = 0, producer_id: int = 7) -> TransactionMetadata:
    return TransactionMetadata(producer_id, epoch, 60_000, state, partitions, at, 100)


def replayed(*records: tuple[str, TransactionMetadata | None], partition: int = 0) -> TransactionLog:
    """A log of these records, at offsets and times that count from 0 and 1000."""
    replay = TransactionLogReplay()
    for offset, (name, metadata) in enumerate(records):
        replay.take(name, partition, offset, 1000 + offset, metadata)
    replay.read(partition, 1)
    return replay.finish()


def test_a_decision_is_a_prepare_and_its_complete_record() -> None:
    log = replayed(
        ("a", meta("Ongoing", P0, P1)),
        ("a", meta("PrepareCommit", P0, P1, at=500)),
        ("b", meta("PrepareAbort", P0, at=600, producer_id=8)),
        ("a", meta("CompleteCommit", at=700)),
    )
    first, second = log.decisions
    assert (first.transactional_id, first.commit, first.partitions, first.offset) == ("a", True, (P0, P1), 1)
    assert (first.decided_timestamp, first.completed_timestamp, first.start_timestamp) == (500, 1003, 100)
    assert (second.transactional_id, second.commit, second.completed_timestamp) == ("b", False, None)
    assert log.states["a"].metadata == meta("CompleteCommit", at=700)
    assert log.newest_timestamp == 1003


@pytest.mark.parametrize("after", [meta("Ongoing", P1, at=900), meta("Empty", at=900), meta("PrepareAbort", P1, at=900), None])
def test_a_decision_was_completed_if_the_id_went_on(after: TransactionMetadata | None) -> None:
    """The cleaner may have removed the Complete record; no other record can be in between."""
    assert replayed(("a", meta("PrepareCommit", P0, at=500)), ("a", after)).decisions[0].completed_timestamp == 1001


def test_an_id_is_found_by_all_its_producer_ids() -> None:
    rotated = replace(meta("CompleteCommit"), producer_id=9, previous_producer_id=7, next_producer_id=11)
    log = replayed(("a", rotated), ("b", meta("Empty", producer_id=7)), ("c", None))
    assert [logged_state.transactional_id for logged_state in log.owners(7)] == ["a", "b"]
    assert [[logged_state.transactional_id for logged_state in log.owners(name)] for name in (9, 11, 12)] == [["a"], ["a"], []]
    assert log.states["c"].metadata is None


def test_an_unreadable_id_is_unknown_until_its_next_record() -> None:
    replay = TransactionLogReplay()
    replay.read(0, 1)
    replay.take("a", 0, 0, 1000, meta("PrepareCommit", P0))
    replay.malformed("a", 0, 1)
    replay.malformed("b", 0, 2)
    replay.take("b", 0, 3, 1003, meta("Empty"))
    log = replay.finish()
    assert (log.unknown_ids, log.unknown_from, log.complete) == ({"a": (0, 1)}, {}, False)
    assert [decision.completed_timestamp for decision in log.decisions] == [None]
    replay.malformed(None, 0, 9)
    replay.lost(0, 5)
    assert (replay.finish().unknown_from, replay.damaged) == ({0: 5}, True)


def test_replays_of_partitions_are_merged() -> None:
    replay, two = TransactionLogReplay(), TransactionLogReplay()
    replay.take("a", 0, 5, 1000, meta("PrepareCommit", P0))
    two.take("b", 1, 2, 2000, meta("PrepareAbort", P0))
    two.malformed("c", 1, 3)
    replay.read(0, 1)
    two.read(1, 2)
    replay.merge(two)
    log = replay.finish()
    assert [decision.transactional_id for decision in log.decisions] == ["a", "b"]
    assert (log.partitions, log.newest_timestamp, list(log.unknown_ids)) == ({0: 1, 1: 2}, 2000, ["c"])
    assert [state.transactional_id for state in log.owners(7)] == ["a", "b"]


def test_the_newest_of_many_decisions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_log, "DECISIONS_KEPT", 3)
    records = [("a", meta(state, P0, epoch=epoch)) for epoch in range(9) for state in ("PrepareCommit", "CompleteCommit")]
    assert [decision.producer_epoch for decision in replayed(*records).decisions] == [6, 7, 8]


def test_states_that_list_too_many_partitions_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_log, "LISTED_KEPT", 10)
    many = [("t", number) for number in range(6)]
    log = replayed(
        ("a", meta("PrepareCommit", *many)),
        ("a", meta("CompleteCommit")),
        ("b", meta("Ongoing", *many)),
        ("c", meta("Ongoing", *many)),
        ("d", meta("Ongoing", P0)),
    )
    assert (log.decisions, list(log.unknown_ids), list(log.states)) == ([], ["c"], ["a", "b", "d"])


def test_ids_without_a_transaction_are_dropped_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_log, "IDS_KEPT", 8)
    ended = [(f"ended-{number}", meta("CompleteCommit", producer_id=number)) for number in range(8)]
    few = replayed(*ended)
    assert (few.forgot, few.complete, len(few.states)) == (False, True, 8)
    log = replayed(
        ("open", meta("Ongoing", P0, producer_id=100)), *ended, ("expired", None), ("ended-8", meta("Empty", producer_id=8))
    )
    assert (log.forgot, log.complete) == (True, False)
    assert "open" in log.states
    assert len(log.states) <= 8
    assert [state.transactional_id for state in log.owners(100)] == ["open"]
    assert log.owners(0) == []


def test_the_newest_of_many_producers_of_an_id_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_log, "IDS_KEPT", 8)
    log = replayed(*(("a", meta("Empty", producer_id=number)) for number in range(40)))
    assert (log.forgot, len(log.ids_of_producer) <= 16) == (True, True)
    assert [state.transactional_id for state in log.owners(39)] == ["a"]


def test_java_hashes() -> None:
    """The hash of `polygenelubricants` is the smallest int, whose absolute value is no int."""
    assert java_hash("") == 0
    assert java_hash("ab") == 97 * 31 + 98
    assert java_hash("polygenelubricants") == 0
    assert java_hash("\U0001f600") == 0xD83D * 31 + 0xDE00


def test_partitions_of_ids_equal_those_of_a_broker() -> None:
    """In `__transaction_state` of three partitions, by Kafka 4.3.0."""
    placed = {"pay-0": 0, "pay-1": 1, "pay-2": 2, "pay-3": 0, "bad": 1, "good": 2, "hung": 2}
    assert {name: java_hash(name) % 3 for name in placed} == placed


def test_ids_show_the_number_of_partitions() -> None:
    names = [f"name-{number}" for number in range(40)]
    placed = [(name, java_hash(name) % 50) for name in names]
    assert partition_count(50, placed) == 50
    assert partition_count(max(partition for _, partition in placed) + 1, placed) == 50
    assert partition_count(3, [(name, (java_hash(name) + 1) % 3) for name in names]) == 3
    assert (partition_count(4, []), partition_count(0, [])) == (4, 0)
    log = replayed(("good", meta("Empty")), ("hung", meta("Empty")), partition=2)
    assert (log.missing, log.complete) == ([0, 1], False)


def test_which_transactions_the_coordinator_will_end() -> None:
    def state(metadata: TransactionMetadata | None) -> LoggedState:
        return LoggedState("a", 0, 0, 0, metadata)

    assert will_be_ended(state(meta("Ongoing", P0)), *P0)
    assert will_be_ended(state(meta("PrepareAbort", P0, P1)), *P1)
    assert not will_be_ended(state(meta("Ongoing", P0)), *P1)
    assert not will_be_ended(state(meta("CompleteAbort", P0)), *P0)
    assert not will_be_ended(state(None), *P0)


def test_an_implausible_partition_does_not_count() -> None:
    replay = TransactionLogReplay()
    replay.read(2**31 - 1, 1)
    assert replay.finish([2**31 - 1, 3]).missing == [0, 1, 2, 3]
