"""Hostile coordinators' logs: work and memory are bounded, and nothing is concluded about what was dropped."""

from collections.abc import Mapping
from typing import Any

import pytest

from kafka_forensics.analysis.internal_topics import transaction_log
from kafka_forensics.analysis.internal_topics.transaction_log import TransactionLogReplay
from kafka_forensics.analysis.kinds import finding
from kafka_forensics.analysis.transactions_across.judging import CrossPartitionTransactions
from kafka_forensics.model.coordinators import TransactionLog, TransactionMetadata
from kafka_forensics.model.findings import Finding, Place

P0, P1 = ("t", 0), ("t", 1)
NOW = 1_700_000_000_000


def meta(producer_id: int, state: str = "Empty", *partitions: tuple[str, int], since: int = NOW, at: int = NOW) -> Any:
    return TransactionMetadata(producer_id, 0, 60_000, state, partitions, at, since)


def replay_of(*records: tuple[str, TransactionMetadata], partition: int = 0) -> TransactionLogReplay:
    replay = TransactionLogReplay()
    for offset, (name, metadata) in enumerate(records):
        replay.take(name, partition, offset, NOW, metadata)
    replay.read(partition, 1)
    return replay


def judged(log: TransactionLog, producer_id: int, as_of: int | None = None) -> Mapping[str, Any]:
    """The evidence about an open transaction of a producer in `t-0`."""
    numbers = {"first_offset": 0, "last_offset": 1, "first_timestamp": NOW, "last_timestamp": NOW, "last_stable_offset": 0}
    open_finding: Finding = finding("TXN_OPEN", Place(*P0, 1), {"producer_id": producer_id, "producer_epoch": 0, **numbers})
    (judged_finding,) = CrossPartitionTransactions(log, as_of).finish([open_finding], [])
    return judged_finding.evidence


@pytest.mark.parametrize(
    ("as_of", "written", "overdue"),
    [(NOW + 60_000, NOW, False), (NOW + 60_001, NOW, True), (None, NOW + 360_000, False), (None, NOW + 360_001, True)],
)
def test_a_transaction_is_overdue_after_its_timeout(as_of: int | None, written: int, overdue: bool) -> None:
    """At a given time; without one, five minutes later, by the time of the coordinators' newest record."""
    open_since = TransactionMetadata(7, 0, 60_000, "Ongoing", (P0,), NOW, NOW)
    replay = replay_of(("app", open_since))
    replay.take("other", 1, 0, written, meta(8))
    assert judged(replay.finish(), 7, as_of).get("overdue", False) is overdue


class CountingName(str):
    """A transactional id that counts comparisons of all instances."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        CountingName.compared += 1
        return str(self) == other

    __hash__ = str.__hash__


def test_owners_of_a_producer_id_are_bounded() -> None:
    few = replay_of(*((f"id-{number}", meta(7)) for number in range(transaction_log.OWNERS_KEPT))).finish()
    assert (few.forgot, few.knows_owners(7), len(few.owners(7))) == (False, True, transaction_log.OWNERS_KEPT)
    CountingName.compared = 0
    log = replay_of(*((CountingName(f"id-{number}"), meta(7)) for number in range(600))).finish()
    assert CountingName.compared < 40 * 600
    assert (len(log.states), len(log.ids_of_producer[7])) == (600, transaction_log.OWNERS_KEPT)
    assert (log.forgot, log.complete, log.knows_owners(7)) == (True, False, False)


def test_names_are_dropped_with_forgotten_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_log, "IDS_KEPT", 8)
    log = replay_of(*((f"id-{number}", meta(number // 3)) for number in range(30))).finish()
    assert len(log.states) <= 8
    assert {name for names in log.ids_of_producer.values() for name in names} == set(log.states)
    forgotten = {number // 3 for number in range(30) if f"id-{number}" not in log.states}
    assert (log.partly_known, log.any_partly_known) == (forgotten, False)
    assert [log.knows_owners(number) for number in (0, 9)] == [False, True]


def test_names_of_ids_without_a_last_state_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_log, "IDS_KEPT", 8)
    monkeypatch.setattr(transaction_log, "LISTED_KEPT", 0)
    records = [(f"id-{number}", metadata) for number in range(60) for metadata in (meta(number), meta(number, "Ongoing", P0))]
    log = replay_of(*records).finish()
    assert sum(map(len, log.ids_of_producer.values())) <= 16
    assert (len(log.states), len(log.unknown_ids), log.unknown_from) == (0, 8, {0: 17})
    assert not any(log.knows_owners(number) for number in range(60))


def test_any_producer_may_be_one_of_too_many_forgotten_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_log, "IDS_KEPT", 8)
    log = replay_of(*((f"id-{number}", meta(number)) for number in range(60))).finish()
    assert (len(log.partly_known), log.any_partly_known, log.knows_owners(1000)) == (16, True, False)


def test_nothing_is_concluded_about_a_dropped_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_log, "IDS_KEPT", 8)
    other_ids = [(f"o-{number}", meta(1000 + number, "Ongoing", P1)) for number in range(10)]
    replay = replay_of(("open", meta(77, "Ongoing", P0)), *other_ids, ("late", meta(77)))
    log = replay.finish()
    assert [[logged_state.transactional_id for logged_state in log.owners(number)] for number in (77, 1009)] == [["late"], ["o-9"]]
    assert [judged(log, number)["coordinator"] for number in (77, 1009)] == ["unknown", "does not list it"]
    merged = TransactionLogReplay()
    merged.merge(replay_of(("alone", meta(77)), partition=1))
    merged.merge(replay)
    assert judged(merged.finish(), 77)["coordinator"] == "unknown"


def test_nothing_is_concluded_about_a_producer_whose_id_became_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_log, "LISTED_KEPT", 0)
    log = replay_of(("bad", meta(77)), ("good", meta(77)), ("bad", meta(77, "Ongoing", P0))).finish()
    assert [logged_state.transactional_id for logged_state in log.owners(77)] == ["good"]
    evidence = judged(log, 77)
    assert (evidence["coordinator"], evidence["unknown_after_offset"]) == ("unknown", 1)


def test_unknown_ids_of_many_partitions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_log, "IDS_KEPT", 8)
    merged = TransactionLogReplay()
    for partition in range(4):
        replay = TransactionLogReplay()
        for offset in range(5):
            replay.malformed(f"{partition}-{offset}", partition, offset)
        replay.read(partition, 1)
        merged.merge(replay)
    log = merged.finish()
    assert (len(log.unknown_ids), log.unknown_from) == (8, {1: 3, 2: 0, 3: 0})


def test_a_decision_without_a_time_is_not_overdue() -> None:
    later = NOW + 3_600_000
    for state, at, coordinator in (
        ("PrepareCommit", -1, "will end it"),
        ("PrepareCommit", NOW, "should have ended it"),
        ("Ongoing", -1, "should have ended it"),
    ):
        assert judged(replay_of(("a", meta(7, state, P0, at=at))).finish(), 7, later)["coordinator"] == coordinator
