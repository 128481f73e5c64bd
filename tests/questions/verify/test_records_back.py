"""Which recovered records count as back: by old offsets, in aborted transactions, and after compaction."""

from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.verify import ExecutedPlan, Outcome, Verified, read_lost_records, read_promises, verify
from kafka_forensics.writers.batches import RecordToWrite, write_batch, write_marker
from lab.fault_base import read_log
from tests.questions.verify.verifications import LOG, append, put_back, put_rows, rows_of, with_records
from tests.support.audit import put_audit
from tests.support.brokers import write_checkpoint

OLD = "kafka-forensics-original-offset"
EQUAL_RECORDS = 30_000


def record_promises(copies: Path, lost: Path, **arguments: Any) -> list[Verified]:
    """The promises about records, of each partition."""
    document = read_promises(str(lost.parent / "plan.json"))
    checked = verify([str(copies)], document, ScanOptions(**arguments), ExecutedPlan("1", read_lost_records(str(lost))))
    return [promise for promise in checked.promises if promise.promise == "records"]


def outcome(copies: Path, lost: Path) -> tuple[str, Any]:
    (promise,) = record_promises(copies, lost)
    return promise.reason, promise.found


@pytest.fixture
def copies(plan: Path) -> Path:
    """Copies from after the plan was carried out; the records are still missing."""
    return put_audit(plan.parent / "after")


@pytest.mark.parametrize("sent", [1, 2, 3])
def test_equal_records_at_one_offset_of_two_versions(sent: int, lost: Path, copies: Path) -> None:
    row = rows_of(lost)[0]
    twins = [row, row | {"timestamp_ms": row["timestamp_ms"] + 640_000}]
    put_rows(lost, twins)
    with_records(copies, [*map(put_back, twins), put_back(row)][:sent])
    assert outcome(copies, lost) == [("records_missing", 1), ("records_back", 2), ("records_twice", 3)][sent - 1]


@pytest.mark.parametrize("header", [True, False])
def test_records_that_were_lost_again(header: bool, lost: Path, copies: Path) -> None:
    """They have the header of the first time; without another one, other means produced them again."""
    rows = [row | {"headers": [[OLD, "12"]]} for row in rows_of(lost)]
    put_rows(lost, rows)
    with_records(copies, [put_back(row, header=header) for row in rows])
    assert outcome(copies, lost) == ("records_back", 70)


def in_transaction(rows: list[dict[str, Any]]) -> Callable[[int], bytes]:
    """The records, produced again in a transaction."""
    made = [put_back(row) for row in rows]
    records = [
        RecordToWrite(key, value, headers=headers, timestamp_delta=time_ms - made[0][2]) for key, value, time_ms, headers in made
    ]
    producer: dict[str, Any] = {
        "base_timestamp": made[0][2],
        "partition_leader_epoch": 2,
        "producer_id": 77,
        "producer_epoch": 0,
        "base_sequence": 0,
    }
    return lambda offset: write_batch(records, base_offset=offset, is_transactional=True, **producer)


def marker(*, commit: bool) -> Callable[[int], bytes]:
    producer = {"producer_id": 77, "producer_epoch": 0, "coordinator_epoch": 0, "timestamp": 5, "partition_leader_epoch": 2}
    return lambda offset: write_marker(commit, base_offset=offset, **producer)


@pytest.mark.parametrize(
    ("endings", "expected"),
    [
        ([[marker(commit=True)]], ("records_back", 70)),
        ([[marker(commit=False)]], ("records_missing", 0)),
        ([[]], ("records_missing", 0)),
        ([[marker(commit=False)], [marker(commit=True)]], ("records_back", 70)),
    ],
    ids=["committed", "aborted", "open", "aborted and tried again"],
)
def test_only_records_that_consumers_see_are_back(
    endings: list[list[Any]], expected: tuple[str, int], lost: Path, copies: Path
) -> None:
    for ending in endings:
        append(copies, 1, in_transaction(rows_of(lost)), *ending)
    assert outcome(copies, lost) == expected


def test_a_damaged_marker_leaves_the_promise_unknown(lost: Path, copies: Path) -> None:
    append(copies, 1, in_transaction(rows_of(lost)), lambda offset: marker(commit=True)(offset)[:-1] + b"?")
    assert outcome(copies, lost)[0] == "not_read"


@pytest.mark.parametrize(
    ("remaining", "later", "expected"),
    [
        ([0, 3], [], ("records_back", 4)),
        ([0, 1, 2], [], ("records_missing", 3)),
        ([2, 3], [b"a"], ("records_back", 4)),
        ([2, 3], [b"c"], ("records_missing", 3)),
    ],
    ids=["a later lost record", "the latest is missing", "a new record", "new records of other keys"],
)
def test_the_cleaner_may_remove_a_superseded_record(
    remaining: list[int], later: list[bytes], expected: Any, lost: Path, copies: Path
) -> None:
    """The keys of the lost records are a, b, b and b."""
    rows = [row | {"key": key} for row, key in zip(rows_of(lost)[:4], "abbb", strict=True)]
    put_rows(lost, rows)
    with_records(copies, [*(put_back(rows[number]) for number in remaining), *((key, b"new", 5, ()) for key in later)])
    assert outcome(copies, lost)[0] == "records_missing"
    write_checkpoint(copies / "broker-1", "cleaner", 400, "audit-0")
    assert outcome(copies, lost) == expected


def test_records_of_partitions_without_promises_are_listed(lost: Path, copies: Path) -> None:
    rows = rows_of(lost)
    put_rows(lost, [*rows, rows[0] | {"topic": "unplanned"}, rows[0] | {"partition": 7}])
    with_records(copies, [put_back(row) for row in rows])
    promises = record_promises(copies, lost)
    found = [(promise.topic, promise.partition, promise.reason, promise.planned) for promise in promises]
    assert found == [("audit", 0, "records_back", 70), ("audit", 7, "not_planned", 1), ("unplanned", 0, "not_planned", 1)]
    assert {promise.outcome for promise in promises[1:]} == {Outcome.UNKNOWN}
    assert len(record_promises(copies, lost, topic_glob="audit")) == 2
    assert len(record_promises(copies, lost, partition=0)) == 2


def test_records_of_partitions_without_a_copy_are_listed(lost: Path, copies: Path) -> None:
    for broker in (1, 2, 3):
        (copies / f"broker-{broker}" / "audit-0").rename(lost.parent / f"gone-{broker}")
    (promise,) = record_promises(copies, lost)
    assert (promise.broker, promise.reason, promise.planned) == (1, "no_copy", 70)


def test_deleted_records_may_have_been_back(lost: Path, copies: Path) -> None:
    with_records(copies, list(map(put_back, rows_of(lost))))
    write_checkpoint(copies / "broker-1", "log-start", 345, "audit-0")
    assert outcome(copies, lost) == ("records_back", 70)
    log = copies / "broker-1" / LOG
    log.write_bytes(log.read_bytes()[: read_log(log.parent).batches[-30].position])
    assert outcome(copies, lost) == ("records_missing", 40)
    write_checkpoint(copies / "broker-1", "log-start", 346, "audit-0")
    assert outcome(copies, lost) == ("records_deleted", 40)


@pytest.mark.nightly
def test_many_equal_records_are_found_in_linear_time(lost: Path, copies: Path) -> None:
    """They cannot be distinguished without the header of the original offset."""
    row = rows_of(lost)[0]
    put_rows(lost, [row] * EQUAL_RECORDS)
    key, value, time_ms, _ = put_back(row)
    batch = [RecordToWrite(key, value)] * EQUAL_RECORDS
    append(copies, 1, lambda offset: write_batch(batch, base_offset=offset, base_timestamp=time_ms, partition_leader_epoch=2))
    started = process_time()
    assert outcome(copies, lost) == ("records_back", EQUAL_RECORDS)
    assert process_time() - started < 10
