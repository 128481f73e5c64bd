"""Blocks of batches: what a bundle holds of consecutive batches instead of each, and their identities, which add.

A block is one row of a matrix of batches: offsets, bytes and records of all its batches together, the sum of their stored CRCs, the
earliest and the latest time. Beside it stand its number of batches and the sums of their identities (`BLOCK_SUMS`). An identity is
what two copies of a batch must have in common, its header's offsets, epoch, magic and size and both CRCs, as a BLAKE2b of 128 bits:
it needs no key, so that bundles of any brokers, and log directories beside them, can be compared.

Where replicas cut their logs into segments they cut blocks; sums of parts are the sum of the whole. No block reaches over a
multiple of 2^`BLOCK_SHIFT` offsets, into another leader epoch or to another kind of timestamps.
"""

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kafka_forensics.errors import FormatError
from kafka_forensics.model.batches import BATCH_COLUMNS, BLOCK_SHIFT, CHUNK_ROWS, BatchColumn
from kafka_forensics.model.constants import (
    COMPRESSION_MASK,
    INT64_MAX,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
)
from kafka_forensics.parsers.kernels.strong_identities import fill_strong_identities
from kafka_forensics.parsers.log.collected import stored_columns, summed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

BLOCKS_HEAD: Final = struct.Struct("<Iqq")
"""Rows; byte and offset of the first block."""
BLOCK_COLUMNS: Final = 12
MOST_BATCHES: Final = 1 << BLOCK_SHIFT
"""Of a block, whose batches have their last offsets between two multiples of that."""
MOST_RECORDS: Final = 1 << BLOCK_SHIFT
"""A batch of more stands by itself."""
_LOW: Final = 0xFFFFFFFF
_MAGIC: Final = 2
_LAST_EPOCH: Final = (1 << 31) - 1


def sums_of(columns: "Ints") -> "Ints":
    """Of each batch of a matrix what a block of it alone would have, (BLOCK_SUMS, n)."""
    high, low = columns[BatchColumn.HASH_HIGH], columns[BatchColumn.HASH_LOW]
    return np.stack([np.ones_like(high), high & _LOW, (high >> 32) & _LOW, low & _LOW, (low >> 32) & _LOW])


class Blocks(NamedTuple):
    """Blocks as rows: a (BATCH_COLUMNS, n) matrix, and (BLOCK_SUMS, n)."""

    columns: "Ints"
    sums: "Ints"

    def together(self) -> "Blocks":
        """With neighbours put together that belong to one block: all follow each other in offsets and bytes."""
        columns = self.columns
        if columns.shape[1] < 2:
            return self
        apart = np.ones(columns.shape[1], np.bool_)
        apart[1:] = ~_of_one_block(columns[:, :-1], columns[:, 1:])
        starts = np.flatnonzero(apart)
        ends = np.append(starts[1:], columns.shape[1]) - 1
        joined = columns[:, starts].copy()
        joined[BatchColumn.LAST_OFFSET] = columns[BatchColumn.LAST_OFFSET, ends]
        joined[BatchColumn.LAST_OFFSET_DELTA] = joined[BatchColumn.LAST_OFFSET] - joined[BatchColumn.BASE_OFFSET]
        for column in (BatchColumn.SIZE_IN_BYTES, BatchColumn.RECORDS_COUNT, BatchColumn.CRC, BatchColumn.CRC_COMPUTED):
            joined[column] = np.add.reduceat(columns[column], starts)
        joined[BatchColumn.ATTRIBUTES] = np.bitwise_or.reduceat(columns[BatchColumn.ATTRIBUTES], starts)
        joined[BatchColumn.BASE_TIMESTAMP] = np.minimum.reduceat(columns[BatchColumn.BASE_TIMESTAMP], starts)
        joined[BatchColumn.MAX_TIMESTAMP] = np.maximum.reduceat(columns[BatchColumn.MAX_TIMESTAMP], starts)
        return Blocks(joined, np.add.reduceat(self.sums, starts, axis=1))


def as_blocks(columns: "Ints") -> Blocks:
    """Consecutive batches as blocks of one batch each; `Blocks.together` makes the larger ones."""
    columns = columns.copy()
    fill_strong_identities(columns)
    sums = sums_of(columns)
    columns[BatchColumn.ATTRIBUTES] &= COMPRESSION_MASK | TIMESTAMP_TYPE_MASK
    times = columns[BatchColumn.BASE_TIMESTAMP], columns[BatchColumn.MAX_TIMESTAMP]
    columns[BatchColumn.BASE_TIMESTAMP] = np.minimum(*times)  # a broker's time of appending may be before a client's
    columns[BatchColumn.HASH_HIGH] = columns[BatchColumn.HASH_LOW] = 0
    columns[_NONE] = -1
    return Blocks(columns, sums)


_NONE: Final = [
    BatchColumn.PRODUCER_ID,
    BatchColumn.PRODUCER_EPOCH,
    BatchColumn.BASE_SEQUENCE,
    BatchColumn.CONTROL_RECORD_TYPE,
    BatchColumn.COORDINATOR_EPOCH,
]
"""What a block does not say."""


def _of_one_block(left: "Ints", right: "Ints") -> "NDArray[np.bool_]":
    """Of neighbours whether they may stand in one block."""
    alike: NDArray[np.bool_] = (left[BatchColumn.LAST_OFFSET] ^ right[BatchColumn.LAST_OFFSET]) >> BLOCK_SHIFT == 0
    alike &= left[BatchColumn.PARTITION_LEADER_EPOCH] == right[BatchColumn.PARTITION_LEADER_EPOCH]
    alike &= (left[BatchColumn.ATTRIBUTES] ^ right[BatchColumn.ATTRIBUTES]) & TIMESTAMP_TYPE_MASK == 0
    return alike


def read_blocks(section: bytes, start: int, end: int) -> Blocks:
    """A section of blocks, which are all of bytes `[start, end)`. Raises FormatError, whatever the bytes are: also where
    they cannot be the blocks of these bytes of any log."""
    if len(section) < BLOCKS_HEAD.size:
        raise FormatError("a section of blocks without a head")
    rows, position, base_offset = BLOCKS_HEAD.unpack_from(section)
    if rows > CHUNK_ROWS:
        raise FormatError(f"a section of {rows} blocks")
    stored = stored_columns(section[BLOCKS_HEAD.size :], rows, BLOCK_COLUMNS)
    size, span, epoch, crc, attributes, earliest, time_span, count = stored[:8]
    wrong = _contradiction(stored, (position, base_offset), (start, end))
    if wrong is not None:
        raise FormatError(wrong)
    columns = np.full((BATCH_COLUMNS, rows), -1, np.int64)
    columns[BatchColumn.POSITION] = summed(np.zeros_like(size), size, position)
    columns[BatchColumn.SIZE_IN_BYTES] = size
    columns[BatchColumn.BASE_OFFSET] = summed(np.zeros_like(span), span, base_offset)
    columns[BatchColumn.LAST_OFFSET] = columns[BatchColumn.BASE_OFFSET] + span - 1
    columns[BatchColumn.LAST_OFFSET_DELTA] = span - 1
    columns[BatchColumn.RECORDS_COUNT] = span
    columns[BatchColumn.PARTITION_LEADER_EPOCH] = epoch
    columns[BatchColumn.MAGIC] = _MAGIC
    columns[BatchColumn.CRC] = columns[BatchColumn.CRC_COMPUTED] = crc
    columns[BatchColumn.ATTRIBUTES] = attributes
    columns[BatchColumn.BASE_TIMESTAMP] = earliest
    columns[BatchColumn.MAX_TIMESTAMP] = earliest + time_span
    columns[BatchColumn.HASH_HIGH] = columns[BatchColumn.HASH_LOW] = 0
    return Blocks(columns, np.stack([count, *stored[8:]]))


def _contradiction(stored: "list[Ints]", begins: tuple[int, int], bytes_told: tuple[int, int]) -> str | None:
    """Why these cannot be blocks of a log; None if they can. Sums are of numbers that were found to be small before."""
    size, span, epoch, crc, attributes, earliest, time_span, count, *parts = stored
    (position, base_offset), (start, end) = begins, bytes_told
    if not size.size or position != start or base_offset < 0:
        return "blocks that begin nowhere"
    if (size <= 0).any() or (size > end - start).any() or sum(size.tolist()) != end - start:
        return "blocks lie outside of their bytes, or over each other"
    if (count < 1).any() or (count > size // RECORD_BATCH_OVERHEAD).any() or (span < count).any():
        return "blocks of more batches than their bytes or offsets have room for"
    if (count > MOST_BATCHES).any() or (span > MOST_BATCHES + MOST_RECORDS).any():
        return "blocks of more offsets than any has"
    if int(span.sum()) > INT64_MAX - base_offset:
        return "blocks behind the last offset there is"
    if any((part < 0).any() or (part > count * _LOW).any() for part in (crc, *parts)):
        return "sums that the batches of a block cannot have"
    if (epoch < -1).any() or (epoch > _LAST_EPOCH).any() or (attributes & ~(COMPRESSION_MASK | TIMESTAMP_TYPE_MASK)).any():
        return "no block has such a leader epoch, or such attributes"
    if (time_span < 0).any() or (earliest > INT64_MAX - time_span).any():
        return "blocks whose times contradict each other"
    return None
