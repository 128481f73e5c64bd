"""Where replicas first differ, and what each of them holds there."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.compare import OffsetState, SideBySide, compare
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support.replicas import put_replica
from tests.support.segments import BASE_TIMESTAMP, batch, flipped, legacy_entry, log

SAMPLES = Path(__file__).resolve().parents[3] / "sample_logs"
R, ABSENT, BEYOND, BEFORE, BROKEN = (
    OffsetState.RECORD,
    OffsetState.ABSENT,
    OffsetState.BEYOND_LOG_END,
    OffsetState.BEFORE_LOG_START,
    OffsetState.UNREADABLE,
)


def sample(name: str, topic: str, **given: Any) -> SideBySide:
    paths = sorted(str(path) for path in (SAMPLES / name).iterdir())
    return compare(paths, ScanOptions(topic_glob=topic, partition=0), **given)


def of(folder: Path, **given: Any) -> SideBySide:
    return compare([str(folder)], ScanOptions(), **given)


def states(compared: SideBySide) -> list[tuple[int, bool, list[OffsetState]]]:
    return [(row.offset, row.differs, [held.state for held in row.held]) for row in compared.rows]


def test_an_unclean_election_parts_the_logs_at_300() -> None:
    compared = sample("unclean-election", "audit")
    assert compared.first_difference == 300
    told = [finding.kind for finding in compared.result.findings]
    assert told[:3] == ["UNCLEAN_LOSS", "INCIDENT_SIGNATURE", "REPLICA_LAGS"]
    agreeing = [(offset, False, [R, R, R]) for offset in range(297, 300)]
    assert states(compared) == agreeing + [(offset, True, [R, R, BEYOND]) for offset in range(300, 304)]
    one, two, three = compared.rows[3].held
    assert one.record is not None
    assert two.record is not None
    assert (one.record.partition_leader_epoch, two.record.partition_leader_epoch, three.record) == (2, 0, None)
    assert (one.record.key_digest, one.record.key_size) == (hashlib.sha256(b"user-11").hexdigest(), 7)
    assert one.record.value_digest != two.record.value_digest
    assert (one.record.key, one.record.value) == (None, None)


def test_a_silent_divergence_differs_from_the_first_offset_on() -> None:
    compared = sample("silent-divergence", "ledger", payloads=True)
    assert compared.first_difference == 0
    assert states(compared) == [(offset, True, [R, R, R]) for offset in range(3)]
    values = [held.record.value for held in compared.rows[0].held if held.record is not None]
    assert values == [b"payment-1", b"after-1", b"after-1"]


@pytest.mark.parametrize("topic", ["orders", "codec-lz4", "payments", "profiles", "__consumer_offsets"])
def test_healthy_replicas_have_no_difference(topic: str) -> None:
    compared = sample("healthy", topic)
    assert (compared.first_difference, compared.rows) == (None, [])


@pytest.mark.parametrize(("context", "offsets"), [(0, [300]), (1, [299, 300, 301]), (400, list(range(370)))])
def test_context_is_what_was_asked_for(context: int, offsets: list[int]) -> None:
    assert [row.offset for row in sample("unclean-election", "audit", context=context).rows] == offsets


def test_the_record_that_differs_is_found_within_its_batch(tmp_path: Path) -> None:
    def written(third: bytes) -> bytes:
        records = [RecordToWrite(b"key", value) for value in (b"a", b"b", third, b"d")]
        return write_batch(records, base_offset=10, base_timestamp=BASE_TIMESTAMP)

    before = b"".join(log(5))
    put_replica(tmp_path, 1, before + written(b"c"), high_watermark=14)
    put_replica(tmp_path, 2, before + written(b"x"), high_watermark=14)
    compared = of(tmp_path, context=1)
    assert compared.first_difference == 12
    assert [(row.offset, row.differs) for row in compared.rows] == [(11, False), (12, True), (13, False)]


def test_a_prefix_differs_where_the_shortest_log_ends(tmp_path: Path) -> None:
    whole = log(10)
    put_replica(tmp_path, 1, b"".join(whole), high_watermark=12)
    put_replica(tmp_path, 2, b"".join(whole[:6]), high_watermark=12)
    compared = of(tmp_path, context=1)
    assert compared.first_difference == 12
    assert states(compared) == [(11, False, [R, R]), (12, True, [R, BEYOND]), (13, True, [R, BEYOND])]
    assert [finding.kind for finding in compared.result.findings] == ["REPLICA_LAGS"]


def test_a_later_log_start_is_no_difference(tmp_path: Path) -> None:
    whole = log(10)
    put_replica(tmp_path, 1, b"".join(whole))
    put_replica(tmp_path, 2, b"".join(whole[4:]), base_offset=8)
    assert of(tmp_path).first_difference is None
    put_replica(tmp_path, 3, b"".join(log(4, start=8, value=b"other")), base_offset=8)
    compared = of(tmp_path, context=2)
    assert states(compared)[:3] == [(6, False, [R, BEFORE, BEFORE]), (7, False, [R, BEFORE, BEFORE]), (8, True, [R, R, R])]


def test_a_gap_shows_as_absent(tmp_path: Path) -> None:
    whole = log(10)
    put_replica(tmp_path, 1, b"".join(whole), high_watermark=20)
    put_replica(tmp_path, 2, b"".join(whole[:3] + whole[5:]), high_watermark=20)
    compared = of(tmp_path, context=4)
    assert compared.first_difference == 6
    absent = [offset for offset, _, held in states(compared) if held == [R, ABSENT]]
    assert absent == [6, 7, 8, 9]


def test_a_rotten_batch_is_told_by_its_crc(tmp_path: Path) -> None:
    whole = b"".join(log(10))
    size = len(whole) // 10
    put_replica(tmp_path, 1, whole, high_watermark=20)
    put_replica(tmp_path, 2, flipped(whole, 3 * size + 72), high_watermark=20)
    compared = of(tmp_path, context=0)
    assert compared.first_difference == 6
    good, bad = (held.record for held in compared.rows[0].held)
    assert good is not None
    assert bad is not None
    assert (good.is_valid, bad.is_valid, good == bad) == (True, False, False)


def test_a_batch_that_cannot_be_decoded_is_unreadable(tmp_path: Path) -> None:
    records = [RecordToWrite(b"key", b"value" * 9)] * 2
    packed = write_batch(records, base_offset=10, base_timestamp=BASE_TIMESTAMP, compression_type="gzip")
    before = b"".join(log(5))
    put_replica(tmp_path, 1, before + packed, high_watermark=12)
    put_replica(tmp_path, 2, before + flipped(packed, 63, 3), high_watermark=12)
    assert states(of(tmp_path, context=1)) == [(9, False, [R, R]), (10, True, [R, BROKEN]), (11, True, [R, BROKEN])]


def test_logs_of_different_topics_are_shown_from_where_they_differ(tmp_path: Path) -> None:
    put_replica(tmp_path, 1, b"".join(log(4)), topic_id="q3Vb0Q0BQ7mKk0yJ9wS3tA")
    put_replica(tmp_path, 2, batch(0, 2) + b"".join(log(3, start=2, value=b"x")), topic_id="q3Vb0Q0BQ7mKk0yJ9wS3tB")
    compared = of(tmp_path)
    assert compared.first_difference == 2
    assert compared.partition.agreement.kind == "not_compared"


def test_old_formats_have_no_epoch_and_no_sequence() -> None:
    compared = sample("silent-divergence", "ledger")
    records = [held.record for row in compared.rows for held in row.held if held.record is not None]
    assert {(record.partition_leader_epoch, record.sequence, record.control_record_type) for record in records} == {(-1, -1, None)}


def test_old_formats_are_compared_by_message(tmp_path: Path) -> None:
    put_replica(tmp_path, 1, legacy_entry(0) + legacy_entry(1, value=b"a"), high_watermark=2)
    put_replica(tmp_path, 2, legacy_entry(0) + legacy_entry(1, value=b"b"), high_watermark=2)
    compared = of(tmp_path)
    assert compared.first_difference == 1
    assert states(compared) == [(0, False, [R, R]), (1, True, [R, R])]


def test_an_absurd_offset_costs_no_time(tmp_path: Path) -> None:
    whole = b"".join(log(10))
    put_replica(tmp_path, 1, whole + batch(1 << 50), high_watermark=20)
    put_replica(tmp_path, 2, b"".join(log(9)) + batch(18, 2, value=b"x") + batch(1 << 60), high_watermark=20)
    assert of(tmp_path).first_difference == 18


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (ScanOptions(topic_glob="audt"), "no topic 'audt'", "did you mean --topic audit --partition 0?"),
        (ScanOptions(topic_glob="audit-0"), "no topic 'audit-0'", "did you mean --topic audit --partition 0?"),
        (ScanOptions(topic_glob="orders", partition=7), "no partition 'orders-7'", "did you mean --topic orders --partition "),
        (ScanOptions(topic_glob="orders"), "takes one partition, 2 are there", "from orders-0, orders-1"),
        (ScanOptions(), "takes one partition, 14 are there", "from append-time-0, audit-0, "),
        (ScanOptions(topic_glob="audit", broker="2"), "one replica of audit-0 only, that of broker 2", "leave out --broker"),
        (ScanOptions(topic_glob="zzzzzz"), "no topic 'zzzzzz'", "there is append-time-0, "),
    ],
)
def test_a_question_about_no_one_partition_is_answered_with_what_is_there(options: ScanOptions, message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        compare([str(SAMPLES / "unclean-election")], options)
    assert raised.value.hint is not None
    assert hint in raised.value.hint


def test_an_empty_input_holds_no_partition(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no Kafka log in"):
        of(tmp_path)
