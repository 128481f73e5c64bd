"""Segments for tests: batches by a few numbers, entries of the old formats spelled by hand, and readings held whole."""

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kafka_forensics.model.batches import BATCH_COLUMNS, BatchChunk, BatchColumn, Damage
from kafka_forensics.parsers.log.segment import SegmentReader
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support.memory import MemoryFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

BASE_TIMESTAMP = 1_700_000_000_000


def batch(base_offset: int, count: int = 1, *, epoch: int = 0, value: bytes = b"value", **given: Any) -> bytes:
    """A magic 2 batch of `count` equal records, timestamped by its offset unless `base_timestamp` is given, each 3 ms later."""
    given.setdefault("base_timestamp", BASE_TIMESTAMP + base_offset)
    records = [RecordToWrite(b"key", value, timestamp_delta=3 * number) for number in range(1, count + 1)]
    return write_batch(records, base_offset=base_offset, partition_leader_epoch=epoch, **given)


def legacy_entry(offset: int, magic: int = 1, *, value: bytes = b"value", attributes: int = 0, timestamp: int = 7) -> bytes:
    """An entry of magic 0 or 1 with a key and a value, spelled independently of the package."""
    stamp = struct.pack(">q", timestamp) if magic else b""
    body = struct.pack(">bb", magic, attributes) + stamp + struct.pack(">i", 3) + b"key" + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def log(count: int = 5, *, records: int = 2, start: int = 0, epoch: int = 0, value: bytes = b"value") -> list[bytes]:
    """`count` batches that join, each of `records` records."""
    return [batch(start + records * index, records, epoch=epoch, value=value) for index in range(count)]


def changed(data: bytes, position: int, new: bytes) -> bytes:
    """`data` with the bytes at `position` replaced by `new`."""
    assert position + len(new) <= len(data)
    return data[:position] + new + data[position + len(new) :]


def flipped(data: bytes, position: int, bit: int = 0) -> bytes:
    """`data` with one bit of the byte at `position` turned over."""
    return changed(data, position, bytes([data[position] ^ 1 << bit]))


def with_length(data: bytes, position: int, batch_length: int) -> bytes:
    """`data` with the batch_length of the batch at `position` replaced."""
    return changed(data, position + 8, struct.pack(">i", batch_length))


def starts(batches: list[bytes]) -> list[int]:
    """Position of each batch in their concatenation, and their end."""
    return [0, *np.cumsum([len(one) for one in batches]).tolist()]


@dataclass(slots=True)
class Reading:
    """What a reader said about a range: all rows in one matrix, all damage in order, the bytes by account, where it landed."""

    columns: "NDArray[np.int64]"
    damage: list[Damage]
    decoded: int
    damaged: int
    skipped: int
    landed: int
    chunks: list[BatchChunk]

    @property
    def total(self) -> int:
        """Bytes accounted for."""
        return self.decoded + self.damaged + self.skipped

    @property
    def kinds(self) -> list[str]:
        """Kinds of damage, in order."""
        return [damage.kind for damage in self.damage]

    def column(self, which: BatchColumn) -> list[int]:
        """One fact of every row."""
        return [int(value) for value in self.columns[which]]

    @property
    def good(self) -> list[int]:
        """Base offsets of the rows whose CRC is right."""
        right = self.columns[BatchColumn.CRC] == self.columns[BatchColumn.CRC_COMPUTED]
        return [int(value) for value in self.columns[BatchColumn.BASE_OFFSET, right]]

    @property
    def base_offsets(self) -> list[int]:
        """Base offsets of all rows."""
        return self.column(BatchColumn.BASE_OFFSET)


def read(data: "bytes | MemoryFile", start: int = 0, end: int | None = None, **given: Any) -> Reading:
    """Read `[start, end)` of a segment; every byte must be accounted for."""
    file = data if isinstance(data, MemoryFile) else MemoryFile(data)
    reader = SegmentReader(file, **given)
    chunks = []
    for chunk in reader.chunks(start, end):
        copied = BatchChunk(chunk.columns.copy(), chunk.damage, chunk.bytes_decoded, chunk.bytes_damaged, chunk.bytes_skipped)
        assert min(copied.bytes_decoded, copied.bytes_damaged, copied.bytes_skipped) >= 0
        chunks.append(copied)
    reading = Reading(
        np.concatenate([np.empty((BATCH_COLUMNS, 0), np.int64), *(batch_chunk.columns for batch_chunk in chunks)], axis=1),
        [damage for batch_chunk in chunks for damage in batch_chunk.damage],
        sum(batch_chunk.bytes_decoded for batch_chunk in chunks),
        sum(batch_chunk.bytes_damaged for batch_chunk in chunks),
        sum(batch_chunk.bytes_skipped for batch_chunk in chunks),
        reader.landed,
        chunks,
    )
    assert reading.total == reader.landed - start
    return reading


def columns_of(rows: list[dict[BatchColumn, int]]) -> "NDArray[np.int64]":
    """A matrix of batches that join bytes and hold what `rows` say, absent facts as an ordinary batch has them."""
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


def chunk_of(columns: "NDArray[np.int64]", damage: list[Damage] | None = None) -> BatchChunk:
    """A chunk of these batches and this damage; its bytes are those of the batches and of the damage."""
    right = columns[BatchColumn.CRC] == columns[BatchColumn.CRC_COMPUTED]
    size = columns[BatchColumn.SIZE_IN_BYTES]
    lost = sum(one.size_in_bytes for one in damage or [])
    return BatchChunk(columns, damage or [], int(size[right].sum()), int(size[~right].sum()) + lost, 0)
