"""Rewrites logs whose records have names, with a substitute for each batch, to be collected like any other log.

Size, CRC, digest and hashes of a batch would confirm a guess at the names in it, and so would positions of batches and sizes of
damage. In the rewritten log all of them are those of substitutes. What remains of a batch is its header, and whether its CRC was
right; of damage, what a broker reads from its first bytes as a header.
"""

import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from kafka_forensics.model.batches import BatchColumn, Damage, has_right_crc
from kafka_forensics.model.constants import (
    CRC_AT,
    CURRENT_MAGIC,
    HEADER_SIZE_UP_TO_MAGIC,
    LEGACY_V0_OVERHEAD,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    RECORD_BATCH_OVERHEAD,
)
from kafka_forensics.model.pseudonyms import Pseudonyms
from kafka_forensics.parsers.internal_topics import is_no_op_batch
from kafka_forensics.parsers.log import MAX_BATCH_BYTES, SegmentReader
from kafka_forensics.parsers.spec.batch_header import BATCH_HEADER
from kafka_forensics.storage.source import BytesFile
from kafka_forensics.writers.batches import fix_crc
from kafka_forensics.writers.witness_batches import witness_batch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafka_forensics.storage.source import ByteFile

    Ints = NDArray[np.int64]

PART_BYTES: Final = 4 << 20
"""Substitutes that are held at once, unless damage keeps more of them together."""
READ_BYTES: Final = 1 << 20
FRAME: Final = struct.Struct(BATCH_HEADER.format[:8])
"""The header of a batch up to the delta of its last offset."""
MAX_BATCH_LENGTH: Final = (1 << 31) - 1
_DAMAGE_BYTES: Final = 64
"""Size of the substitute for damage."""
_SHORT_TAIL_BYTES: Final = 8
"""The same for an end that is too short for a header."""
_HOLE: Final = bytes(4096)
"""So many zeros in damage are a page that was never written to the disk."""
_HEADER: Final = struct.Struct(BATCH_HEADER.format.replace("b", "B"))
"""With unsigned bytes: the magic in damage may be above 127."""
_HEADER_COLUMNS: Final = [
    *(BatchColumn.BASE_OFFSET, BatchColumn.PARTITION_LEADER_EPOCH, BatchColumn.MAGIC, BatchColumn.ATTRIBUTES),
    *(BatchColumn.LAST_OFFSET_DELTA, BatchColumn.BASE_TIMESTAMP, BatchColumn.MAX_TIMESTAMP, BatchColumn.PRODUCER_ID),
    *(BatchColumn.PRODUCER_EPOCH, BatchColumn.BASE_SEQUENCE, BatchColumn.RECORDS_COUNT),
]
"""The fields of `_HEADER` except length and CRC."""


class LogPart(BytesFile):
    """A rewritten log up to the end of `data`, which is at position `start`; bytes before it cannot be read."""

    def __init__(self, data: bytes, start: int) -> None:
        super().__init__(data)
        self._start = start
        self.size_in_bytes += start

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`, fewer only at the end."""
        assert position >= self._start or not size
        return self._data[position - self._start :][:size]

    def data_ranges(self) -> list[tuple[int, int]]:
        """The bytes that can be read."""
        return [(self._start, self.size_in_bytes)]


def redacted_log(
    file: "ByteFile", topic: str, end_offset: int, pseudonyms: Pseudonyms, progress: Callable[[int], None]
) -> Iterator[LogPart]:
    """The rewritten log of `file`, in parts that are read one after the other.

    A part starts with a good batch after another good one: reading it gives the same as reading the whole log. No batch starts at
    `end_offset` or beyond. `progress` is called with the bytes that are read. Raises SourceError.
    """
    data, start, was_good = bytearray(), 0, False
    for chunk in SegmentReader(file, max_plausible_offset=end_offset).chunks():
        columns, damage = chunk.columns, {found.position: found for found in chunk.damage}
        rows = {position: row for row, position in enumerate(columns[BatchColumn.POSITION].tolist())}
        is_good, attributes = has_right_crc(columns).tolist(), columns[BatchColumn.ATTRIBUTES].tolist()
        batches = right_batches(file, columns)
        for position in sorted({*damage, *rows}):
            row = rows.get(position)
            if row is None:
                data += _damage_substitute(file, damage[position])
                was_good = False
                continue
            if was_good and is_good[row] and len(data) >= PART_BYTES:
                yield LogPart(bytes(data), start)
                start += len(data)
                data.clear()
            was_good, batch = is_good[row], next(batches)
            if is_no_op_batch(batch, attributes[row]):
                data += batch
            else:
                substitute = _substitute(topic, batch, pseudonyms, has_wrong_magic=position in damage) if batch else None
                data += substitute or _without_records(columns[:, row], damage.get(position))
        progress(chunk.bytes_decoded + chunk.bytes_damaged + chunk.bytes_skipped)
    yield LogPart(bytes(data), start)


def right_batches(file: "ByteFile", columns: "Ints") -> Iterator[bytes]:
    """The bytes of each batch; empty for one with a wrong CRC or with too many bytes. Raises SourceError."""
    is_wanted = has_right_crc(columns) & (columns[BatchColumn.SIZE_IN_BYTES] <= MAX_BATCH_BYTES)
    block, start = b"", 0
    rows = zip(*columns[[BatchColumn.POSITION, BatchColumn.SIZE_IN_BYTES]].tolist(), is_wanted.tolist(), strict=True)
    for position, size, is_row_wanted in rows:
        if is_row_wanted and not start <= position <= position + size <= start + len(block):
            block, start = file.read_at(position, max(size, READ_BYTES)), position
        yield block[position - start : position - start + size] if is_row_wanted else b""


def _substitute(topic: str, batch: bytes, pseudonyms: Pseudonyms, *, has_wrong_magic: bool) -> bytes | None:
    """The substitute of a batch; `has_wrong_magic` if it has magic 2 except for the byte that says so."""
    if not has_wrong_magic:
        return witness_batch(topic, batch, pseudonyms)
    substitute = witness_batch(topic, _with_magic(batch, CURRENT_MAGIC), pseudonyms)
    return substitute and _with_magic(substitute, batch[MAGIC_AT])


def _with_magic(batch: bytes, magic: int) -> bytes:
    """A batch with another magic, which the CRC does not cover."""
    return batch[:MAGIC_AT] + bytes([magic]) + batch[MAGIC_AT + 1 :]


def _without_records(column: "Ints", damage: Damage | None) -> bytes:
    """The header of a batch without a substitute, with a wrong CRC or a hole if the batch had one."""
    is_right = bool(has_right_crc(column))
    offset, epoch, magic, *rest, count = column[_HEADER_COLUMNS].tolist()
    payload = _HOLE if damage is not None and damage.kind == "SEG_HOLE" else b""
    length = RECORD_BATCH_OVERHEAD - LOG_OVERHEAD + len(payload)
    count, magic = 0 if is_right else count, max(magic, CURRENT_MAGIC)
    batch = fix_crc(_HEADER.pack(offset, length, epoch, magic, 0, *rest, count) + payload)
    return batch if is_right else batch[:CRC_AT] + bytes([batch[CRC_AT] ^ 1]) + batch[CRC_AT + 1 :]


def _damage_substitute(file: "ByteFile", damage: Damage) -> bytes:
    """Replaces damage. The length in its header leads beyond the log, to the next batch or elsewhere, as before; if only the length
    was wrong, the CRC stays right."""
    reason = damage.detail.get("reason")
    if damage.kind == "SEG_ZERO_TAIL" or reason == "header":
        return bytes(_DAMAGE_BYTES if reason is None else _SHORT_TAIL_BYTES)
    header = file.read_at(damage.position, RECORD_BATCH_OVERHEAD).ljust(RECORD_BATCH_OVERHEAD, b"\0")
    offset, length, _, magic, _, _, delta = map(int, FRAME.unpack_from(header))
    hole = _HOLE if damage.kind == "SEG_HOLE" else b""
    substitute = FRAME.pack(offset, 0, 0, magic, 0, 0, delta) + hole + b"\xff" * (_DAMAGE_BYTES - FRAME.size)
    substitute = fix_crc(header) if reason == "wrong_length" else substitute
    if length >= LEGACY_V0_OVERHEAD:
        end, next_position = damage.position + LOG_OVERHEAD + length, damage.position + damage.size_in_bytes
        length = len(substitute) - LOG_OVERHEAD - HEADER_SIZE_UP_TO_MAGIC * (end != next_position)
        length = length if end <= file.size_in_bytes else MAX_BATCH_LENGTH
    return substitute[:LENGTH_AT] + max(length, 0).to_bytes(4) + substitute[LOG_OVERHEAD:]
