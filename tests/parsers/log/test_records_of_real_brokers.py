"""Batches that real brokers wrote: every one opens, holds what its header says, and is written again byte for byte."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.parsers.log.records import DecodedBatch, check_rows, decode_batch, parse_control_record
from kafka_forensics.parsers.log.segment import SegmentReader
from kafka_forensics.writers.batches import RecordToWrite, write_batch, write_marker
from tests.support.archives import members
from tests.support.memory import MemoryFile

LOGS = r".*\.log"


def batches(data: bytes) -> Iterator[tuple[bytes, DecodedBatch]]:
    """Every whole batch of a segment, opened."""
    position = 0
    while len(data) - position >= 17:
        size = int.from_bytes(data[position + 8 : position + 12], "big", signed=True) + 12
        if size < 26 or position + size > len(data):
            return
        batch = data[position : position + size]
        yield batch, decode_batch(batch, position=position)
        position += size


def written_again(decoded: DecodedBatch) -> bytes:
    """A plain magic 2 batch of CreateTime, from what was read of it."""
    header = decoded.header
    assert header is not None
    records = [
        RecordToWrite(
            record.key,
            record.value,
            [(name.decode(), value) for name, value in record.headers],
            record.timestamp - header.base_timestamp,
            record.offset - header.base_offset,
        )
        for record in decoded.iter_records()
    ]
    return write_batch(
        records,
        base_offset=header.base_offset,
        base_timestamp=header.base_timestamp,
        partition_leader_epoch=header.partition_leader_epoch,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
        is_control_batch=header.is_control_batch,
        delete_horizon_ms=header.delete_horizon_ms,
        last_offset_delta=header.last_offset_delta,
        records_count=header.records_count,
    )


@pytest.mark.corpora
@pytest.mark.parametrize(
    ("archive", "records", "rewritten"),
    [
        ("kafka-4.3.0-clean-end", 195_679, 2489),
        ("public-five-brokers", 23_300, 5240),
    ],
)
def test_every_batch_holds_what_its_header_says_and_plain_ones_are_written_again(
    corpora: Path, archive: str, records: int, rewritten: int
) -> None:
    found, same = 0, 0
    for _, data in members(corpora / f"{archive}.tar.xz", LOGS):
        for batch, decoded in batches(data):
            assert decoded.problems == []
            assert decoded.header is not None
            assert decoded.records_count == decoded.header.records_count
            found += decoded.records_count
            if decoded.header.codec == 0 and decoded.header.timestamp_type == "CreateTime":
                assert written_again(decoded) == batch
                same += 1
    assert (found, same) == (records, rewritten)


@pytest.mark.parametrize(
    ("archive", "records"),
    [
        ("kafka-4.3.0-healthy", 191_556),
        pytest.param("kafka-4.3.0-lag", 192_998, marks=pytest.mark.corpora),
        ("kafka-4.3.0-unclean", 194_831),
    ],
)
def test_every_batch_of_the_other_archives_holds_what_its_header_says(archives: Path, archive: str, records: int) -> None:
    found = 0
    for _, data in members(archives / f"{archive}.tar.xz", LOGS):
        for _, decoded in batches(data):
            assert decoded.problems == []
            assert decoded.header is not None
            assert decoded.records_count == decoded.header.records_count
            found += decoded.records_count
    assert found == records


@pytest.mark.parametrize(("archive", "records"), [("kafka-0.10.2.2-hw-divergence", 9), ("kafka-0.10.2.2-hw-truncation", 23)])
def test_every_legacy_batch_opens(archives: Path, archive: str, records: int) -> None:
    found = 0
    for _, data in members(archives / f"{archive}.tar.xz", LOGS):
        for _, decoded in batches(data):
            assert decoded.problems == []
            assert decoded.legacy is not None
            assert [record.offset for record in decoded.iter_records()] == [decoded.legacy.last_offset]
            found += decoded.records_count
    assert found == records


@pytest.mark.corpora
def test_control_records_of_a_kraft_cluster(corpora: Path) -> None:
    """Transaction markers are written again byte for byte; KRaft's own say who leads."""
    seen: Counter[str] = Counter()
    for _, data in members(corpora / "kafka-4.3.0-clean-end.tar.xz", LOGS):
        for batch, decoded in batches(data):
            header = decoded.header
            if header is None or not header.is_control_batch:
                continue
            for record in decoded.iter_records():
                control = parse_control_record(record.key, record.value)
                assert control.problem is None
                seen[control.name] += 1
                if control.coordinator_epoch is not None:
                    marker = write_marker(
                        control.name == "COMMIT",
                        base_offset=header.base_offset,
                        producer_id=header.producer_id,
                        producer_epoch=header.producer_epoch,
                        coordinator_epoch=control.coordinator_epoch,
                        timestamp=record.timestamp,
                        partition_leader_epoch=header.partition_leader_epoch,
                    )
                    assert marker == batch
                elif control.name == "LEADER_CHANGE":
                    assert control.fields["leader_id"] == 100
                    assert control.fields["voters"] == [{"voter_id": 100}]
    assert seen == {"COMMIT": 84, "ABORT": 66, "LEADER_CHANGE": 4}


@pytest.mark.corpora
def test_messages_of_magic_0_equal_their_golden_lines(corpora: Path) -> None:
    contents = dict(members(corpora / "public-magic0-golden.tar.xz", r".*(golden/.*|\.log)"))
    lines = 0
    for name, data in contents.items():
        topic = re.search(r"fs-data/([^/]+)/\d+\.log$", name)
        if topic is None:
            continue
        golden = next(content for other, content in contents.items() if other.endswith(f"golden/{topic[1]}"))
        expected = [line.split(": ", 1) for line in golden.decode().splitlines()]
        records = [record for _, decoded in batches(data) for record in decoded.iter_records()]
        values = [json.loads(quoted.replace("\\t", "\\u0009")) for _, quoted in expected]
        assert [(record.offset, (record.value or b"").decode()) for record in records] == [
            (int(offset), value) for (offset, _), value in zip(expected, values, strict=True)
        ]
        lines += len(expected)
    assert lines == 3 * 5382 + 11_394


@pytest.mark.corpora
def test_rows_of_real_segments_are_right(corpora: Path) -> None:
    rows = 0
    for _, data in members(corpora / "kafka-4.3.0-lag.tar.xz", r"lag/broker-1/.*\.log"):
        for chunk in SegmentReader(MemoryFile(data), inspect=check_rows).chunks():
            assert [damage.kind for damage in chunk.damage if damage.kind != "SEG_ZERO_TAIL"] == []
            rows += int((chunk.columns[BatchColumn.RECORDS_COUNT] > 0).sum())
    assert rows > 500
