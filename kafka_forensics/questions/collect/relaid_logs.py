"""Logs whose records are replaced by substitutes: laid out anew of what stands in the bundle, with nothing of their former bytes.

Size, CRC, digest and hashes of a batch would confirm a guess at the names in it, and so would places of batches, sizes of damage
and entries of indexes. So all of them are those of a log of the substitutes. What remains of a batch is its header, and whether its
CRC was right.
"""

from bisect import bisect_right
from dataclasses import replace
from functools import cache
from hashlib import blake2b
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.model.batches import BatchColumn, Damage
from kafka_forensics.model.constants import LOG_OVERHEAD, RECORD_BATCH_OVERHEAD
from kafka_forensics.parsers.indexes import parse_offset_index, parse_time_index
from kafka_forensics.parsers.log_dir import FileKind
from kafka_forensics.storage.bundles import Frame
from kafka_forensics.writers.redacted_files import RewrittenFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.storage.source import ByteFile

    Ints = NDArray[np.int64]
    Damages = list[tuple[Damage, bool]]
    """Each with whether only opening the batch tells."""

INDEXES: Final = {FileKind.INDEX: np.dtype(">i4,>i4"), FileKind.TIME_INDEX: np.dtype(">i8,>i4")}
"""Files of entries that point into a log, and the layout of an entry."""
BLANK_BATCH: Final = bytes(RECORD_BATCH_OVERHEAD)
"""In the place of a batch without a substitute."""
_GAP_BYTES: Final = 64
"""The size of a damaged place that is no batch, whatever it was; if no header fits, `_SHORT_GAP_BYTES`."""
_SHORT_GAP_BYTES: Final = 16
MOST_LENGTH: Final = (1 << 31) - 1
_LEAST_LENGTH: Final = 14
"""Kafka's recovery throws at a smaller one."""
_KEPT_DETAILS: Final = frozenset(
    (
        *("reason", "magic", "runs_past_end", "candidates", "crc_is_right_as_magic", "codec", "records_count", "records_found"),
        *("last_offset_delta", "record_index", "inner_offset", "limit", "crc_checked", "stored_crc", "computed_crc"),
    )
)
"""Details of damage that tell no size and no position; CRCs are hidden by themselves."""
_CRCS: Final = frozenset({"stored_crc", "computed_crc"})
CRC: Final = slice(17, 21)
"""Where a batch has its CRC."""


def hide_crcs(columns: "Ints", damage: "Damages", key: bytes) -> "tuple[Ints, Damages]":
    """Columns and damage with a digest in the place of each CRC: equal ones stay equal, and without the key nobody can test a guess
    at a batch."""

    @cache
    def hidden(crc: int) -> int:
        return int.from_bytes(blake2b(crc.to_bytes(4), digest_size=4, key=key).digest())

    columns = columns.copy()
    for column in (BatchColumn.CRC, BatchColumn.CRC_COMPUTED):
        columns[column] = list(map(hidden, columns[column].tolist()))
    hidden_damage: Damages = []
    for found, inside in damage:
        crcs = {name: hidden(value) for name, value in found.detail.items() if name in _CRCS and isinstance(value, int)}
        hidden_damage.append((replace(found, detail={**found.detail, **crcs}), inside))
    return columns, hidden_damage


def with_right_crc(columns: "Ints") -> "NDArray[np.bool_]":
    """Which batches have a right CRC."""
    is_right: NDArray[np.bool_] = columns[BatchColumn.CRC] == columns[BatchColumn.CRC_COMPUTED]
    return is_right


class NewLayout:
    """Where the batches of a log and its damaged places lie in the bundle; `size_in_bytes` grows with what is `placed`."""

    def __init__(self, size_in_bytes: int, base_offset: int) -> None:
        """Of a log of this size."""
        self.size_in_bytes = 0
        self.old_size_in_bytes, self._base_offset = size_in_bytes, base_offset
        self._batches: list[Ints] = [np.zeros((len(_INDEXED), 0), np.int64)]

    def placed(
        self, columns: "Ints", damage: "Damages", frames: list[Frame], batches: list[bytes]
    ) -> "tuple[Ints, Damages, list[Frame]]":
        """The columns, the damage and the frames that come next, with these batches in the place of theirs."""
        old_sizes = {found.position: found.size_in_bytes for found, inside in damage if not inside}
        old_sizes |= dict(zip(*columns[[BatchColumn.POSITION, BatchColumn.SIZE_IN_BYTES]].tolist(), strict=True))
        sizes = {at: _GAP_BYTES if size > _SHORT_GAP_BYTES else _SHORT_GAP_BYTES for at, size in old_sizes.items()}
        sizes |= dict(zip(columns[BatchColumn.POSITION].tolist(), map(len, batches), strict=True))
        positions = sorted(sizes)
        *starts, self.size_in_bytes = accumulate(map(sizes.__getitem__, positions), initial=self.size_in_bytes)

        def place(position: int) -> tuple[int, int, int]:
            row = bisect_right(positions, position) - 1
            return starts[row], sizes[positions[row]], old_sizes[positions[row]]

        moved = [(_moved(found, *place(found.position)), inside) for found, inside in damage]
        frames = [self._framed(frame, *place(frame.position)) for frame in frames]
        columns = columns.copy()
        columns[BatchColumn.POSITION] = [place(position)[0] for position in columns[BatchColumn.POSITION].tolist()]
        columns[BatchColumn.SIZE_IN_BYTES] = list(map(len, batches))
        is_right = with_right_crc(columns)
        crcs = np.array([int.from_bytes(batch[CRC]) for batch in batches], np.int64)
        columns[BatchColumn.CRC, is_right] = columns[BatchColumn.CRC_COMPUTED, is_right] = crcs[is_right]
        self._batches.append(columns[list(_INDEXED)])
        return columns, moved, frames

    def _framed(self, frame: Frame, position: int, size: int, old_size: int) -> Frame:
        """A frame at its new position; where the length led out of the log, or to the next place, it still does."""
        length = frame.batch_length
        if length >= _LEAST_LENGTH:
            end = frame.position + LOG_OVERHEAD + length
            length = size - LOG_OVERHEAD - (end != frame.position + old_size) if end <= self.old_size_in_bytes else MOST_LENGTH
        return frame._replace(position=position, batch_length=max(length, 0))

    def index(self, kind: FileKind, file: "ByteFile") -> RewrittenFile:
        """An index with an entry for every batch; empty, or with zeros behind it, as `file` is. Raises SourceError."""
        is_time, layout = kind is FileKind.TIME_INDEX, INDEXES[kind]
        index = (parse_time_index if is_time else parse_offset_index)(file, self._base_offset)
        offsets, positions, timestamps = np.concatenate(self._batches[: None if index.offsets.size else 1], axis=1)
        values = timestamps if is_time else positions
        rises = _rises(values, 0) & _rises(offsets, self._base_offset - 1)
        entries = np.empty(np.count_nonzero(rises), layout)
        relative, values = offsets[rises] - self._base_offset, values[rises]
        entries["f0"], entries["f1"] = (values, relative) if is_time else (relative, values)
        size = entries.nbytes + file.size_in_bytes % layout.itemsize
        size = max(size + layout.itemsize, file.size_in_bytes) if index.zero_tail_bytes else size
        return RewrittenFile(entries.tobytes(), size)


_INDEXED: Final = (BatchColumn.LAST_OFFSET, BatchColumn.POSITION, BatchColumn.MAX_TIMESTAMP)
"""What indexes say of a batch."""


def _rises(values: "Ints", before: int) -> "NDArray[np.bool_]":
    """Which values are above all before them, and above this one."""
    rises: NDArray[np.bool_] = values > np.maximum.accumulate(np.concatenate(([before], values)))[:-1]
    return rises


def _moved(found: Damage, position: int, size: int, old_size: int) -> Damage:
    """Damage at its new position, without details that tell sizes or positions; zeros are all of it or not."""
    detail = {name: value for name, value in found.detail.items() if name in _KEPT_DETAILS}
    if found.detail.get("zero_bytes") == old_size:
        detail["zero_bytes"] = size
    declared = found.detail.get("declared_length")
    if isinstance(declared, int) and declared < _LEAST_LENGTH:
        detail["declared_length"] = 0
    return replace(found, position=position, size_in_bytes=size, detail=detail)
