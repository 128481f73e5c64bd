"""Batches that real brokers wrote: every one opens, holds what its header says, and is written again byte for byte."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_forensics.parsers.log.records import DecodedBatch, decode_batch
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support.archives import members
from tests.support.plan_runs import SAMPLES

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


def logs_of(name: str, archives: Path) -> list[bytes]:
    """The segments of a sample, else of an archive."""
    if (SAMPLES / name).is_dir():
        return [path.read_bytes() for path in sorted((SAMPLES / name).rglob("*.log"))]
    return [data for _, data in members(archives / f"{name}.tar.xz", LOGS)]


@pytest.mark.parametrize(
    ("name", "records", "rewritten"),
    [
        ("unclean-election", 6344, 812),
        pytest.param("kafka-4.3.0-unclean", 194_831, 2174, marks=pytest.mark.nightly),
        pytest.param("kafka-4.3.0-clean-end", 195_679, 2489, marks=[pytest.mark.corpora, pytest.mark.nightly]),
        pytest.param("public-five-brokers", 23_300, 5240, marks=pytest.mark.corpora),
    ],
)
def test_every_batch_holds_what_its_header_says_and_plain_ones_are_written_again(
    archives: Path, name: str, records: int, rewritten: int
) -> None:
    found, same = 0, 0
    for data in logs_of(name, archives):
        for batch, decoded in batches(data):
            assert decoded.problems == []
            assert decoded.header is not None
            assert decoded.records_count == decoded.header.records_count
            found += decoded.records_count
            if decoded.header.codec == 0 and decoded.header.timestamp_type == "CreateTime":
                assert written_again(decoded) == batch
                same += 1
    assert (found, same) == (records, rewritten)


@pytest.mark.parametrize(("archive", "records"), [("kafka-0.10.2.2-hw-divergence", 9), ("kafka-0.10.2.2-hw-truncation", 23)])
def test_every_legacy_batch_opens(archives: Path, archive: str, records: int) -> None:
    found = 0
    for data in logs_of(archive, archives):
        for _, decoded in batches(data):
            assert decoded.problems == []
            assert decoded.legacy is not None
            assert [record.offset for record in decoded.iter_records()] == [decoded.legacy.last_offset]
            found += decoded.records_count
    assert found == records


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
