"""The first offset where replicas differ, and what each of them holds there."""

from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.compare import OffsetPresence, SideBySide, compare
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support.brokers import put_replica
from tests.support.places import SAMPLES
from tests.support.segments import BASE_TIMESTAMP, batch, flip_bit, legacy_entry, log

R, ABSENT, BEYOND, BEFORE, BROKEN = (
    OffsetPresence.RECORD,
    OffsetPresence.ABSENT,
    OffsetPresence.BEYOND_LOG_END,
    OffsetPresence.BEFORE_LOG_START,
    OffsetPresence.UNREADABLE,
)


def sample(name: str, topic: str, **arguments: Any) -> SideBySide:
    paths = sorted(str(path) for path in (SAMPLES / name).iterdir())
    return compare(paths, ScanOptions(topic_glob=topic, partition=0), **arguments)


def compare_folder(folder: Path, **arguments: Any) -> SideBySide:
    return compare([str(folder)], ScanOptions(), **arguments)


def states(compared: SideBySide) -> list[tuple[int, bool, list[OffsetPresence]]]:
    return [(row.offset, row.differs, [content.state for content in row.held]) for row in compared.rows]


def test_a_silent_divergence_differs_from_the_first_offset_on() -> None:
    compared = sample("silent-divergence", "ledger", payloads=True)
    assert compared.first_difference == 0
    assert states(compared) == [(offset, True, [R, R, R]) for offset in range(3)]
    values = [content.record.value for content in compared.rows[0].held if content.record is not None]
    assert values == [b"payment-1", b"after-1", b"after-1"]
    records = [content.record for row in compared.rows for content in row.held if content.record is not None]
    assert {(record.partition_leader_epoch, record.sequence, record.control_record_type) for record in records} == {(-1, -1, None)}
    assert sample("healthy", "payments").rows == []


@pytest.mark.parametrize(("context", "offsets"), [(0, [300]), (1, [299, 300, 301]), (400, list(range(370)))])
def test_context_has_the_requested_number_of_records(context: int, offsets: list[int]) -> None:
    assert [row.offset for row in sample("unclean-election", "audit", context=context).rows] == offsets


def four(value: bytes = b"c", codec: Any = "none") -> bytes:
    """A batch of four records at offset 20, with `value` in the third."""
    records = [RecordToWrite(b"key", letter * 9) for letter in (b"a", b"b", value, b"d")]
    return write_batch(records, base_offset=20, base_timestamp=BASE_TIMESTAMP, compression_type=codec)


TEN = log(10)
JOINED, PACKED = b"".join(TEN), four(codec="gzip")
OTHER_END = b"".join(TEN[:9]) + batch(18, 2, value=b"x") + batch(1 << 60)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (JOINED + four(), JOINED + four(b"x"), [(21, False, [R, R]), (22, True, [R, R]), (23, False, [R, R])]),
        (JOINED, b"".join(TEN[:6]), [(11, False, [R, R]), (12, True, [R, BEYOND]), (13, True, [R, BEYOND])]),
        (JOINED, b"".join(TEN[:3] + TEN[5:]), [(5, False, [R, R]), (6, True, [R, ABSENT]), (7, True, [R, ABSENT])]),
        (JOINED + PACKED, JOINED + flip_bit(PACKED, 63, 3), [(19, False, [R, R]), *((at, True, [R, BROKEN]) for at in (20, 21))]),
        (
            legacy_entry(0) + legacy_entry(1, value=b"a"),
            legacy_entry(0) + legacy_entry(1, value=b"b"),
            [(0, False, [R, R]), (1, True, [R, R])],
        ),
        (JOINED + batch(1 << 50), OTHER_END, [(17, False, [R, R]), (18, True, [R, R]), (19, True, [R, R])]),
    ],
    ids=[
        *("a record within a batch", "a prefix", "a gap", "a batch that cannot be decoded"),
        *("old formats by message", "absurd offsets"),
    ],
)
def test_the_first_difference_and_the_records_around_it(first: bytes, second: bytes, expected: Any, tmp_path: Path) -> None:
    for broker, data in ((1, first), (2, second)):
        put_replica(tmp_path, broker, data, high_watermark=12)
    compared = compare_folder(tmp_path, context=1)
    assert states(compared) == expected
    assert compared.first_difference == next(offset for offset, differs, _ in expected if differs)


def test_a_later_log_start_is_no_difference(tmp_path: Path) -> None:
    whole = log(10)
    put_replica(tmp_path, 1, whole)
    put_replica(tmp_path, 2, {8: whole[4:]})
    assert compare_folder(tmp_path).first_difference is None
    put_replica(tmp_path, 3, {8: log(4, start=8, value=b"other")})
    compared = compare_folder(tmp_path, context=2)
    assert states(compared)[:3] == [(6, False, [R, BEFORE, BEFORE]), (7, False, [R, BEFORE, BEFORE]), (8, True, [R, R, R])]


def test_a_corrupt_batch_is_recognised_by_its_crc(tmp_path: Path) -> None:
    whole = b"".join(log(10))
    size = len(whole) // 10
    put_replica(tmp_path, 1, whole, high_watermark=20)
    put_replica(tmp_path, 2, flip_bit(whole, 3 * size + 72), high_watermark=20)
    compared = compare_folder(tmp_path, context=0)
    assert compared.first_difference == 6
    good, bad = (content.record for content in compared.rows[0].held)
    assert good is not None
    assert bad is not None
    assert (good.is_valid, bad.is_valid, good == bad) == (True, False, False)


def test_logs_of_different_topics_are_shown_from_their_first_difference(tmp_path: Path) -> None:
    put_replica(tmp_path, 1, log(4), topic_id="q3Vb0Q0BQ7mKk0yJ9wS3tA")
    put_replica(tmp_path, 2, batch(0, 2) + b"".join(log(3, start=2, value=b"x")), topic_id="q3Vb0Q0BQ7mKk0yJ9wS3tB")
    compared = compare_folder(tmp_path)
    assert (compared.first_difference, compared.partition.agreement.kind) == (2, "not_compared")


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (ScanOptions(topic_glob="audt"), "no topic 'audt'", "did you mean --topic audit --partition 0?"),
        (ScanOptions(topic_glob="audit-0"), "no topic 'audit-0'", "did you mean --topic audit --partition 0?"),
        (ScanOptions(topic_glob="orders", partition=7), "no partition 'orders-7'", "did you mean --topic orders --partition "),
        (ScanOptions(topic_glob="orders"), "needs one partition, but there are 2", "from orders-0, orders-1"),
        (ScanOptions(), "needs one partition, but there are 14", "from append-time-0, audit-0, "),
        (ScanOptions(topic_glob="audit", broker="2"), "only one replica of audit-0, on broker 2", "leave out --broker"),
        (ScanOptions(topic_glob="zzzzzz"), "no topic 'zzzzzz'", "there is append-time-0, "),
    ],
)
def test_a_selection_of_several_or_no_partitions_is_refused(options: ScanOptions, message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        compare([str(SAMPLES / "unclean-election")], options)
    assert raised.value.hint is not None
    assert hint in raised.value.hint
