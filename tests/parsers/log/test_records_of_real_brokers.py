"""Batches of real brokers are written again byte for byte, and agree with other readers; `tests/oracles` compares every field."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.parsers.log.records import DecodedBatch, decode_batch
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.oracles.decoder import batches
from tests.support.archives import archive_members
from tests.support.places import SAMPLES

HEADER_FIELDS = (
    *("base_offset", "base_timestamp", "partition_leader_epoch", "max_timestamp", "producer_id", "producer_epoch", "base_sequence"),
    *("is_transactional", "is_control_batch", "delete_horizon_ms", "last_offset_delta", "records_count"),
)
"""Header fields that the writer takes beside the records."""


def decoded_batches(data: bytes) -> Iterator[tuple[bytes, DecodedBatch]]:
    for found in batches(data):
        batch = data[found.position : found.position + found.size_in_bytes]
        yield batch, decode_batch(batch, position=found.position)


def written_again(decoded: DecodedBatch) -> bytes:
    """An uncompressed batch of magic 2 with CreateTime, written from its decoded form."""
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
    fields: dict[str, Any] = {name: getattr(header, name) for name in HEADER_FIELDS}
    return write_batch(records, **fields)


def test_uncompressed_batches_are_written_again_byte_for_byte() -> None:
    batches_written = 0
    for path in (SAMPLES / "unclean-election").rglob("*.log"):
        for batch, decoded in decoded_batches(path.read_bytes()):
            if decoded.header and decoded.header.codec == 0 and decoded.header.timestamp_type == "CreateTime":
                assert written_again(decoded) == batch
                batches_written += 1
    assert batches_written > 800


@pytest.mark.corpora
def test_messages_of_magic_0_equal_their_golden_lines(corpora: Path) -> None:
    contents = dict(archive_members(corpora / "public-magic0-golden.tar.xz", r".*(golden/.*|\.log)"))
    lines = 0
    for name, data in contents.items():
        topic = re.search(r"fs-data/([^/]+)/\d+\.log$", name)
        if topic is None:
            continue
        golden = next(content for other, content in contents.items() if other.endswith(f"golden/{topic[1]}"))
        expected = [line.split(": ", 1) for line in golden.decode().splitlines()]
        records = [record for _, decoded in decoded_batches(data) for record in decoded.iter_records()]
        values = [json.loads(quoted.replace("\\t", "\\u0009")) for _, quoted in expected]
        assert [(record.offset, (record.value or b"").decode()) for record in records] == [
            (int(offset), value) for (offset, _), value in zip(expected, values, strict=True)
        ]
        lines += len(expected)
    assert lines == 3 * 5382 + 11_394
