"""Writes blocks of hashed records; `parsers.record_hashes` describes the format."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import cramjam
import numpy as np

from kafka_forensics.parsers.log import KEY_BYTES, HashedRecords
from kafka_forensics.parsers.record_hashes import BLOCK_RECORDS, HEADER, MAGIC, VERSION, BlockSizes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


def write_record_hashes(records: HashedRecords) -> Iterator[bytes]:
    """Blocks of these records, without the hashes by which answers name keys.

    A batch may continue in the next block; `HashedRecords.together` joins them.
    """
    rows = max(len(records.positions), len(records.unread), 1)
    for start in range(0, rows, BLOCK_RECORDS):
        yield _block(records.part(start, start + BLOCK_RECORDS))


def _block(records: HashedRecords) -> bytes:
    positions, counts = np.unique(records.positions, return_counts=True)
    has_key, has_value = records.key_lengths >= 0, records.value_lengths >= 0
    keys = records.keys[has_key].astype("<i8").view(np.uint8).reshape(-1, 16)
    assert not keys[:, KEY_BYTES:].any()
    sizes = BlockSizes(len(positions), len(records.offsets), len(keys), int(has_value.sum()), len(records.unread))
    columns = [
        _differences(positions),
        _planes(counts.astype(np.uint64)),
        _differences(records.offsets),
        _differences(records.timestamps),
        _planes((records.key_lengths + 1).view(np.uint64)),
        _planes((records.value_lengths + 1).view(np.uint64)),
        _planes(records.headers.view(np.uint64)),
        _differences(records.unread),
        keys[:, :KEY_BYTES].tobytes(),
        records.values[has_value].astype("<i8").tobytes(),
    ]
    return HEADER.pack(MAGIC, VERSION, *sizes) + bytes(cramjam.zstd.compress(b"".join(columns)))


def _differences(column: "Ints") -> bytes:
    """Zigzag differences from the value before, the first from 0; they wrap around at the ends of int64."""
    words = column.view(np.uint64)
    differences = np.diff(words, prepend=np.uint64(0))
    signs = (differences.view(np.int64) >> 63).view(np.uint64)
    return _planes((differences << np.uint64(1)) ^ signs)


def _planes(words: "NDArray[np.uint64]") -> bytes:
    """Words as planes of bytes, the lowest first."""
    return np.ascontiguousarray(words.astype("<u8").view(np.uint8).reshape(-1, 8).T).tobytes()
