"""`.index`: which offset was appended at which byte of the segment (OffsetIndex)."""

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kafka_forensics.model.constants import INDEX_ENTRY_SIZE, INT64_MAX
from kafka_forensics.model.files import OffsetIndex
from kafka_forensics.parsers.bounded import read_index_entries
from kafka_forensics.storage.source import ByteFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ENTRY: Final = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])
assert _ENTRY.itemsize == INDEX_ENTRY_SIZE


def parse_offset_index(file: ByteFile, base_offset: int) -> OffsetIndex:
    """The entries of a `.index` whose name gives `base_offset` (not negative); order is not judged.

    Offsets come out absolute, held at 2^63 - 1 where the sum would pass it; positions are bytes of the `.log`. A live index is
    preallocated, so the all-zero entries at its end are counted and left out: no real entry is (0, 0).
    """
    index = read_index_entries(file, _ENTRY)
    offsets = absolute_offsets(index.entries["relative_offset"], base_offset)
    return OffsetIndex(offsets, index.entries["position"].astype(np.int64), index.zero_tail_bytes, index.damage)


def absolute_offsets(relative_offsets: "NDArray[Any]", base_offset: int) -> "NDArray[np.int64]":
    """`base_offset` (0 to 2^63 - 1) plus each relative offset, as int64, held at 2^63 - 1."""
    assert 0 <= base_offset <= INT64_MAX
    return np.minimum(relative_offsets.astype(np.int64), INT64_MAX - base_offset) + base_offset
