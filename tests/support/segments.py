"""Bytes of segments for tests: batches, index files, legacy entries written without the package, damage; and whole segments
read."""

import random
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kafka_forensics.analysis.segments import chunk_facts
from kafka_forensics.model.batches import BATCH_COLUMNS, BatchChunk, BatchColumn, Damage
from kafka_forensics.model.constants import NO_TIMESTAMP
from kafka_forensics.parsers.log import damage as log_damage, segment
from kafka_forensics.parsers.log.segment import SegmentReader
from kafka_forensics.parsers.spec.indexes import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY, build_entries
from kafka_forensics.parsers.spec.record_batch import RECORD_BATCH_HEADER
from kafka_forensics.writers.batches import RecordToWrite, compress, write_batch, write_legacy_entry, write_marker, write_raw_batch
from tests.support.memory import MemoryFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

BASE_TIMESTAMP = 1_700_000_000_000


def segment_file(base_offset: int, suffix: str = "log") -> str:
    """The name of a file of the segment with this base offset."""
    return f"{base_offset:020d}.{suffix}"


def batch(base_offset: int, count: int = 1, *, epoch: int = 0, value: bytes = b"value", **given: Any) -> bytes:
    """A magic 2 batch of `count` equal records, timestamped by its offset unless `base_timestamp` is given, each 3 ms later."""
    given.setdefault("base_timestamp", BASE_TIMESTAMP + base_offset)
    records = [RecordToWrite(b"key", value, timestamp_delta=3 * number) for number in range(1, count + 1)]
    return write_batch(records, base_offset=base_offset, partition_leader_epoch=epoch, **given)


def values(
    base_offset: int, *texts: str, key: bytes | None = b"key", epoch: int = 0, time_ms: int = BASE_TIMESTAMP, **given: Any
) -> bytes:
    """A batch of records with these values; each record is one millisecond later than the previous."""
    records = [RecordToWrite(key, text.encode(), timestamp_delta=number) for number, text in enumerate(texts)]
    return write_batch(records, base_offset=base_offset, base_timestamp=time_ms, partition_leader_epoch=epoch, **given)


def producer_batch(
    base_offset: int, *texts: str, sequence: int = 0, producer: int = 7, producer_epoch: int = 0, **given: Any
) -> bytes:
    """A batch of records with these values, of an idempotent producer."""
    given |= {"producer_id": producer, "producer_epoch": producer_epoch, "base_sequence": sequence}
    return values(base_offset, *texts, **given)


def marker(base_offset: int, *, commit: bool, producer: int = 7, producer_epoch: int = 0, epoch: int = 0, **given: int) -> bytes:
    given = {"timestamp": BASE_TIMESTAMP, "coordinator_epoch": 0, "partition_leader_epoch": epoch} | given
    return write_marker(commit, base_offset=base_offset, producer_id=producer, producer_epoch=producer_epoch, **given)


def keyed_batch(offset: int, *records: tuple[str, str | None], epoch: int = 0) -> bytes:
    return write_batch(
        [RecordToWrite(key.encode(), None if value is None else value.encode() * 20) for key, value in records],
        base_offset=offset,
        base_timestamp=BASE_TIMESTAMP + offset,
        partition_leader_epoch=epoch,
    )


def with_payload(payload: bytes, **given: Any) -> bytes:
    """A batch with the header that `write_batch` writes, these bytes in place of records, and a correct CRC."""
    return write_raw_batch(RECORD_BATCH_HEADER.parse(write_batch([], **given)), payload)


def legacy_entry(offset: int, magic: int = 1, *, value: bytes = b"value", attributes: int = 0, timestamp: int = 7) -> bytes:
    """An entry of magic 0 or 1 with a key and a value, written without the package's writers."""
    stamp = struct.pack(">q", timestamp) if magic else b""
    body = struct.pack(">bb", magic, attributes) + stamp + struct.pack(">i", 3) + b"key" + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def write_legacy_wrapper(
    entries: Sequence[bytes],
    *,
    offset: int,
    magic: int,
    compression_type: str,
    timestamp: int = NO_TIMESTAMP,
    timestamp_type: str = "CreateTime",
) -> bytes:
    """A compressed message that holds `entries`; `offset` is the absolute offset of the last entry.

    The caller sets the entries' offsets: absolute for magic 0, relative to the first entry for magic 1. The LZ4 frame of magic 0
    has the wrong header checksum that Kafka's clients wrote before 0.10 (KAFKA-3160).
    """
    return write_legacy_entry(
        None,
        compress(compression_type, b"".join(entries), magic=magic),
        offset=offset,
        magic=magic,
        timestamp=timestamp,
        timestamp_type=timestamp_type,
        compression_type=compression_type,
    )


def log(count: int = 5, *, records: int = 2, start: int = 0, epoch: int = 0, value: bytes = b"value") -> list[bytes]:
    return [batch(start + records * index, records, epoch=epoch, value=value) for index in range(count)]


def replace_bytes(data: bytes, position: int, new: bytes) -> bytes:
    assert position + len(new) <= len(data)
    return data[:position] + new + data[position + len(new) :]


def flip_bit(data: bytes, position: int, bit: int = 0) -> bytes:
    return replace_bytes(data, position, bytes([data[position] ^ 1 << bit]))


def with_length(data: bytes, position: int, batch_length: int) -> bytes:
    return replace_bytes(data, position + 8, struct.pack(">i", batch_length))


Mutation = Callable[[random.Random, bytes], bytes]


def _cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _flip(rng: random.Random, data: bytes) -> bytes:
    mutated = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        if mutated:
            mutated[rng.randrange(len(mutated))] ^= 1 << rng.randrange(8)
    return bytes(mutated)


def _zero(rng: random.Random, data: bytes) -> bytes:
    start = rng.randrange(len(data) + 1)
    size = rng.choice((1, 4, 8, 61, 512, 4096))
    return data[:start] + bytes(min(size, len(data) - start)) + data[start + size :]


def _junk(rng: random.Random, data: bytes) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + rng.randbytes(rng.choice((1, 8, 61, 300))) + data[start:]


def _extreme(rng: random.Random, data: bytes) -> bytes:
    start = rng.randrange(len(data) + 1)
    value = rng.choice(
        (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\x7f" + b"\xff" * 7, b"\x80" + bytes(7), b"9" * 40)
    )
    return data[:start] + value + data[start + len(value) :]


MUTATIONS: tuple[Mutation, ...] = (_cut, _flip, _zero, _junk, _extreme)
"""Small changes of bytes, as disks, copies and attackers make them."""


def write_offset_index(entries: Iterable[tuple[int, int]], base_offset: int) -> bytes:
    """A `.index` of (absolute offset, position in the `.log`), in any order. Raises FormatError for values over 32 bits."""
    rows = ({"relative_offset": offset - base_offset, "position": position} for offset, position in entries)
    return build_entries(OFFSET_INDEX_ENTRY, rows)


def write_time_index(entries: Iterable[tuple[int, int]], base_offset: int) -> bytes:
    """A `.timeindex` of (timestamp in ms, absolute offset), in any order. Raises FormatError for relative offsets over 32 bits."""
    rows = ({"timestamp": timestamp, "relative_offset": offset - base_offset} for timestamp, offset in entries)
    return build_entries(TIME_INDEX_ENTRY, rows)


def small_windows(patch: pytest.MonkeyPatch, ordinary: int, largest: int) -> None:
    """Make readers hold `ordinary` bytes at once, and never a whole batch of more than `largest` bytes."""
    patch.setattr(log_damage, "WINDOW_BYTES", ordinary)
    for module in (segment, log_damage):
        patch.setattr(module, "MAX_WINDOW_BYTES", largest)


def batch_positions(batches: list[bytes]) -> list[int]:
    """The position of each batch in their concatenation, and the end of the last."""
    return [0, *np.cumsum([len(data) for data in batches]).tolist()]


@dataclass(slots=True)
class SegmentRows:
    """A range that was read: all rows in one matrix, all damage in order, decoded, damaged and skipped bytes, where the reader
    ended."""

    columns: "NDArray[np.int64]"
    damage: list[Damage]
    decoded: int
    damaged: int
    skipped: int
    end_position: int
    chunks: list[BatchChunk]

    @property
    def total(self) -> int:
        return self.decoded + self.damaged + self.skipped

    @property
    def kinds(self) -> list[str]:
        return [damage.kind for damage in self.damage]

    def column(self, which: BatchColumn) -> list[int]:
        return [int(value) for value in self.columns[which]]

    @property
    def good(self) -> list[int]:
        """Base offsets of the batches with a correct CRC."""
        has_correct_crc = self.columns[BatchColumn.CRC] == self.columns[BatchColumn.CRC_COMPUTED]
        return [int(value) for value in self.columns[BatchColumn.BASE_OFFSET, has_correct_crc]]

    @property
    def base_offsets(self) -> list[int]:
        return self.column(BatchColumn.BASE_OFFSET)


def read(data: "bytes | MemoryFile", start: int = 0, end: int | None = None, **given: Any) -> SegmentRows:
    """Read `[start, end)` of a segment; every byte must be accounted for."""
    file = data if isinstance(data, MemoryFile) else MemoryFile(data)
    reader = SegmentReader(file, **given)
    chunks = []
    for chunk in reader.chunks(start, end):
        copied = BatchChunk(chunk.columns.copy(), chunk.damage, chunk.bytes_decoded, chunk.bytes_damaged, chunk.bytes_skipped)
        assert min(copied.bytes_decoded, copied.bytes_damaged, copied.bytes_skipped) >= 0
        chunks.append(copied)
    reading = SegmentRows(
        np.concatenate([np.empty((BATCH_COLUMNS, 0), np.int64), *(batch_chunk.columns for batch_chunk in chunks)], axis=1),
        [damage for batch_chunk in chunks for damage in batch_chunk.damage],
        sum(batch_chunk.bytes_decoded for batch_chunk in chunks),
        sum(batch_chunk.bytes_damaged for batch_chunk in chunks),
        sum(batch_chunk.bytes_skipped for batch_chunk in chunks),
        reader.end_position,
        chunks,
    )
    assert reading.total == reader.end_position - start
    return reading


def columns_of(rows: list[dict[BatchColumn, int]]) -> "NDArray[np.int64]":
    """A matrix of batches that follow each other without gaps; columns that a row does not set are those of an ordinary batch."""
    matrix = np.zeros((BATCH_COLUMNS, len(rows)), np.int64)
    position = 0
    for index, row in enumerate(rows):
        size = row.get(BatchColumn.SIZE_IN_BYTES, 100)
        base = row.get(BatchColumn.BASE_OFFSET, index)
        last = row.get(BatchColumn.LAST_OFFSET, base)
        usual = {
            BatchColumn.POSITION: position,
            BatchColumn.SIZE_IN_BYTES: size,
            BatchColumn.BASE_OFFSET: base,
            BatchColumn.LAST_OFFSET: last,
            BatchColumn.LAST_OFFSET_DELTA: last - base if 0 <= last - base < 2**31 else 0,
            BatchColumn.MAGIC: 2,
            BatchColumn.BASE_TIMESTAMP: BASE_TIMESTAMP - 3 - index,
            BatchColumn.RECORDS_COUNT: last - base + 1 if 0 <= last - base < 2**31 else 1,
            BatchColumn.PRODUCER_ID: -1,
            BatchColumn.CONTROL_RECORD_TYPE: -1,
        }
        for column, value in (usual | row).items():
            matrix[column, index] = value
        position = int(matrix[BatchColumn.POSITION, index]) + size
    return matrix


def add_batches(fold: Any, columns: "NDArray[np.int64]", *damage: list[Damage]) -> None:
    """Add batches to a fold that takes the facts of a chunk."""
    fold.step(columns, *damage, chunk_facts(columns))


def chunk_of(columns: "NDArray[np.int64]", damage: list[Damage] | None = None) -> BatchChunk:
    """A chunk of these batches and this damage, with the bytes of both as decoded or damaged."""
    has_correct_crc = columns[BatchColumn.CRC] == columns[BatchColumn.CRC_COMPUTED]
    size = columns[BatchColumn.SIZE_IN_BYTES]
    lost = sum(found.size_in_bytes for found in damage or [])
    return BatchChunk(columns, damage or [], int(size[has_correct_crc].sum()), int(size[~has_correct_crc].sum()) + lost, 0)
