"""Logs whose records are replaced by substitutes: laid out anew of what stands in the bundle, with nothing of their former bytes.

Size, CRC, digest and hashes of a batch would confirm a guess at the names in it, and so would places of batches, sizes of damage
and entries of indexes. So all of them are those of a log of the substitutes. What remains of a batch is its header, and whether its
CRC was right.
"""

from dataclasses import replace
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.analysis.segments import IndexFold
from kafka_forensics.model.batches import BATCH_COLUMNS, CHUNK_ROWS, BatchColumn, Damage
from kafka_forensics.model.constants import LOG_OVERHEAD, RECORD_BATCH_OVERHEAD
from kafka_forensics.model.files import OffsetIndex, TimeIndex
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

INDEXES: Final = {FileKind.INDEX: ">i4,>i4", FileKind.TIME_INDEX: ">i8,>i4"}
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
_CRC: Final = slice(17, 21)
"""Where a batch has its CRC."""


def hide_crcs(columns: "Ints", damage: "Damages", key: bytes, *, but: "NDArray[np.bool_]") -> "tuple[Ints, Damages]":
    """Columns and damage with a digest in the place of each CRC, except in the rows `but`: equal ones stay equal, and without the
    key nobody can test a guess at a batch."""

    @cache
    def hidden(crc: int) -> int:
        return int.from_bytes(blake2b(crc.to_bytes(4), digest_size=4, key=key).digest())

    columns = columns.copy()
    for column in (BatchColumn.CRC, BatchColumn.CRC_COMPUTED):
        columns[column, ~but] = list(map(hidden, columns[column, ~but].tolist()))
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
        self._places: list[Ints] = [np.zeros((_IS_BATCH + 1, 0), np.int64)]
        self._is_damaged = False

    def placed(
        self, columns: "Ints", damage: "Damages", frames: list[Frame], batches: list[bytes]
    ) -> "tuple[Ints, Damages, list[Frame]]":
        """The columns, the damage and the frames that come next, with these batches in the place of theirs."""
        sizes = np.array([len(batch) for batch in batches], np.int64)
        starts = columns[BatchColumn.POSITION]
        of_batches = set(starts.tolist())
        gaps = {found.position: found for found, inside in damage if not inside and found.position not in of_batches}
        places = np.zeros((_IS_BATCH + 1, len(starts) + len(gaps)), np.int64)
        places[:, : len(starts)] = [*columns[list(_PLACE)], sizes, np.ones(len(starts), np.int64)]
        for number, gap in enumerate(gaps.values(), len(starts)):
            size = _GAP_BYTES if gap.size_in_bytes > _SHORT_GAP_BYTES else _SHORT_GAP_BYTES
            places[[_POSITION, _SIZE, _NEW_POSITION], number] = gap.position, gap.size_in_bytes, size
        places = places[:, np.argsort(places[_POSITION], kind="stable")]
        new_sizes = places[_NEW_POSITION].copy()
        places[_NEW_POSITION] = self.size_in_bytes + np.cumsum(new_sizes) - new_sizes
        self.size_in_bytes += int(new_sizes.sum())
        self._places.append(places)
        self._is_damaged |= bool(damage)
        columns = columns.copy()
        columns[BatchColumn.POSITION] = places[_NEW_POSITION, places[_IS_BATCH] == 1]
        columns[BatchColumn.SIZE_IN_BYTES] = sizes
        is_right = with_right_crc(columns)
        crcs = np.array([int.from_bytes(batch[_CRC], "big") for batch in batches], np.int64)
        columns[BatchColumn.CRC, is_right] = columns[BatchColumn.CRC_COMPUTED, is_right] = crcs[is_right]

        def place(position: int) -> tuple[int, int, int]:
            row = int(np.searchsorted(places[_POSITION], position, side="right")) - 1
            return int(places[_NEW_POSITION, row]), int(new_sizes[row]), int(places[_SIZE, row])

        moved = [(_moved(found, *place(found.position)), inside) for found, inside in damage]
        return columns, moved, [self._framed(frame, *place(frame.position)) for frame in frames]

    def _framed(self, frame: Frame, position: int, size: int, old_size: int) -> Frame:
        """A frame at its new position; where the length led out of the log, or to the next place, it still does."""
        length = frame.batch_length
        if length >= _LEAST_LENGTH:
            end = frame.position + LOG_OVERHEAD + length
            length = size - LOG_OVERHEAD - (end != frame.position + old_size) if end <= self.old_size_in_bytes else MOST_LENGTH
        return frame._replace(position=position, batch_length=max(length, 0))

    def index(self, kind: FileKind, file: "ByteFile", *, has_grown: bool) -> RewrittenFile:
        """An `.index` or a `.timeindex` of the log: of a sound one an entry for every batch, whichever had one; of any other each
        entry where it points to now. If the log `has_grown` since it was read, later entries are left out. Raises SourceError."""
        places = np.concatenate(self._places, axis=1)
        batches = places[:, places[_IS_BATCH] == 1]
        offset_index = parse_offset_index(file, self._base_offset) if kind is FileKind.INDEX else None
        time_index = parse_time_index(file, self._base_offset) if offset_index is None else None
        index = time_index if offset_index is None else offset_index
        assert index is not None
        if has_grown:
            index.offsets = index.offsets[: np.count_nonzero(index.offsets <= batches[_LAST_OFFSET].max(initial=-1))]
        offsets = index.offsets
        if isinstance(index, OffsetIndex):
            values = index.positions = index.positions[: offsets.size]
        else:
            values = index.timestamps = index.timestamps[: offsets.size]
        if offsets.size and not self._is_damaged and _is_sound(batches, self._base_offset, offset_index, time_index):
            offsets = batches[_LAST_OFFSET]
            values = batches[_POSITION if time_index is None else _MAX_TIMESTAMP]
            rises = _rises(values, 0) & _rises(offsets, self._base_offset - 1)
            offsets, values = offsets[rises], values[rises]
        if time_index is None:
            values = self._moved_positions(places, values)
        columns = (offsets - self._base_offset, values) if time_index is None else (values, offsets - self._base_offset)
        layout = np.dtype(INDEXES[kind])
        entries = np.empty(offsets.size, layout)
        for name, column in zip(("f0", "f1"), columns, strict=True):
            entries[name] = column
        size = entries.nbytes + file.size_in_bytes % layout.itemsize
        if index.zero_tail_bytes:
            size = max(size + layout.itemsize, file.size_in_bytes)
        return RewrittenFile(entries.tobytes(), size)

    def _moved_positions(self, places: "Ints", positions: "Ints") -> "Ints":
        """Where bytes lie now: at the start of what they were the start of, behind it if they lay in it, or behind all."""
        rows = np.searchsorted(places[_POSITION], positions, side="right") - 1
        inside = np.flatnonzero((rows >= 0) & (positions < self.old_size_in_bytes))
        moved = np.where(positions < 0, -1, self.size_in_bytes)
        moved[inside] = places[_NEW_POSITION, rows[inside]] + (positions[inside] != places[_POSITION, rows[inside]])
        return moved


_PLACE: Final = (
    *(BatchColumn.POSITION, BatchColumn.SIZE_IN_BYTES, BatchColumn.BASE_OFFSET, BatchColumn.LAST_OFFSET, BatchColumn.MAX_TIMESTAMP),
)
"""What is remembered of a batch; of a damaged place the first two. Behind it stand the new position, and 1 for a batch."""
_POSITION, _SIZE, _LAST_OFFSET, _MAX_TIMESTAMP, _NEW_POSITION, _IS_BATCH = 0, 1, 3, 4, 5, 6


def _rises(values: "Ints", before: int) -> "NDArray[np.bool_]":
    """Which values are above all before them, and above this one."""
    rises: NDArray[np.bool_] = values > np.maximum.accumulate(np.concatenate(([before], values)))[:-1]
    return rises


def _is_sound(batches: "Ints", base_offset: int, offset_index: OffsetIndex | None, time_index: TimeIndex | None) -> bool:
    """Whether an index agrees with these batches."""
    fold = IndexFold(base_offset, offset_index, time_index)
    for first in range(0, batches.shape[1], CHUNK_ROWS):
        part = batches[: len(_PLACE), first : first + CHUNK_ROWS]
        columns = np.zeros((BATCH_COLUMNS, part.shape[1]), np.int64)
        columns[list(_PLACE)] = part
        fold.step(columns)
    return not fold.finish()


def _moved(found: Damage, position: int, size: int, old_size: int) -> Damage:
    """Damage at its new position, without details that tell sizes or positions; zeros are all of it or not."""
    detail = {name: value for name, value in found.detail.items() if name in _KEPT_DETAILS}
    if found.detail.get("zero_bytes") == old_size:
        detail["zero_bytes"] = size
    declared = found.detail.get("declared_length")
    if isinstance(declared, int) and declared < _LEAST_LENGTH:
        detail["declared_length"] = 0
    return replace(found, position=position, size_in_bytes=size, detail=detail)
