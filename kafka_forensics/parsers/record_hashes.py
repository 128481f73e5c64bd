"""Blocks of hashed records, the payload-free form of a log in a bundle: records of a segment, column by column.

A block is a header (`HEADER`) and one zstd stream of all columns, as planes of 64-bit words: the lowest byte of every word first,
which compresses well. The columns:

    of batches: position*, number of records
    of records: offset*, timestamp*, length of the key + 1, length of the value + 1, hash of the headers
    of unread batches: position*
    hashes of all keys, and of all values, that are not null: bytes, not words

A column with a star has differences of neighbours, zigzag (0, -1, 1, -2 … as 0, 1, 2, 3 …), the first from 0.
"""

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kafka_forensics.errors import FormatError
from kafka_forensics.parsers.log import KEY_BYTES, VALUE_BYTES, HashedRecords, decompress

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Words = NDArray[np.uint64]

MAGIC: Final = b"KFRH"
VERSION: Final = 1
HEADER: Final = Struct("<4sB5Q")
"""Magic, version; numbers of batches, records, keys and values that are not null, unread batches."""
BLOCK_RECORDS: Final = 1 << 18
"""Records after which a writer starts another block."""
MAX_BLOCK_BYTES: Final = 64 << 20
"""Most bytes of a block's columns: several times what `BLOCK_RECORDS` take."""
_WORD: Final = 8
_ZSTD: Final = 4


class BlockSizes(NamedTuple):
    """Numbers of elements of a block."""

    batches: int
    records: int
    keys: int
    values: int
    unread: int

    @property
    def columns_bytes(self) -> int:
        """Size of the columns before they are compressed."""
        words = 2 * self.batches + 5 * self.records + self.unread
        return words * _WORD + self.keys * KEY_BYTES + self.values * VALUE_BYTES


def parse_record_hashes(block: bytes, *, limit: int = MAX_BLOCK_BYTES) -> HashedRecords:
    """The records of a block; keys are shown by the first half of their hashes, and hashes of null are 0.

    Raises FormatError for an invalid block, and for one with more than `limit` bytes of columns.
    """
    if len(block) < HEADER.size or block[: len(MAGIC)] != MAGIC:
        raise FormatError("no block of hashed records", position=0)
    _, version, *numbers = HEADER.unpack_from(block)
    sizes = BlockSizes(*numbers)
    if version != VERSION:
        raise FormatError(f"unknown version {version} of hashed records", position=len(MAGIC))
    expected = sizes.columns_bytes
    if expected > limit:
        raise FormatError(f"hashed records of {expected} bytes are more than {limit}", position=0)
    plain = decompress(_ZSTD, memoryview(block)[HEADER.size :], limit=expected)
    if plain.problem is not None or len(plain.data) != expected:
        raise FormatError("hashed records that do not fill their columns", position=HEADER.size)
    return _records(_Columns(plain.data), sizes)


class _Columns:
    """Reads the columns one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = np.frombuffer(data, np.uint8)
        self._at = 0

    def bytes(self, size: int) -> "NDArray[np.uint8]":
        self._at += size
        return self._data[self._at - size : self._at]

    def words(self, count: int) -> "Words":
        planes = self.bytes(count * _WORD).reshape(_WORD, count)
        return np.ascontiguousarray(planes.T).view("<u8").ravel().astype(np.uint64)

    def differences(self, count: int) -> "Ints":
        zigzag = self.words(count)
        return np.cumsum((zigzag >> np.uint64(1)) ^ (~(zigzag & np.uint64(1)) + np.uint64(1)), dtype=np.uint64).view(np.int64)

    def lengths(self, count: int) -> "Ints":
        return self.words(count).view(np.int64) - 1


def _records(columns: _Columns, sizes: BlockSizes) -> HashedRecords:
    positions, counts = columns.differences(sizes.batches), columns.words(sizes.batches)
    offsets, timestamps = columns.differences(sizes.records), columns.differences(sizes.records)
    key_lengths, value_lengths = columns.lengths(sizes.records), columns.lengths(sizes.records)
    headers = columns.words(sizes.records).view(np.int64)
    unread = columns.differences(sizes.unread)
    for column in (positions, unread):
        if (len(column) and column[0] < 0) or not np.all(column[1:] > column[:-1]):
            raise FormatError("hashed records whose batches are not in order")
    if np.any(counts > sizes.records) or int(counts.sum()) != sizes.records:
        raise FormatError("hashed records of other batches")
    has_key, has_value = key_lengths >= 0, value_lengths >= 0
    if np.any(key_lengths < -1) or np.any(value_lengths < -1):
        raise FormatError("hashed records with lengths below null")
    if (int(has_key.sum()), int(has_value.sum())) != (sizes.keys, sizes.values):
        raise FormatError("more or fewer hashes than keys and values")
    keys = np.zeros((sizes.records, 2 * _WORD), np.uint8)
    keys[has_key, :KEY_BYTES] = columns.bytes(sizes.keys * KEY_BYTES).reshape(-1, KEY_BYTES)
    hashes = keys.view("<i8").astype(np.int64)
    values = np.zeros(sizes.records, np.int64)
    values[has_value] = columns.bytes(sizes.values * VALUE_BYTES).view("<i8")
    batch_positions, shown = np.repeat(positions, counts.astype(np.int64)), hashes[:, 0].copy()
    return HashedRecords(batch_positions, offsets, timestamps, hashes, key_lengths, shown, values, value_lengths, headers, unread)
