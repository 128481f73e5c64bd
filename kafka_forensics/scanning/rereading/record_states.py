"""How the transaction of each record of a segment ended, as a read_committed consumer sees it.

The next marker of its producer ends a record's transaction, so all markers are read first: 16 bytes each, 64 MiB at most.
"""

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.errors import PathMissingError, SourceError
from kafka_forensics.model.batches import BatchChunk, BatchColumn, has_right_crc
from kafka_forensics.model.constants import CONTROL_ABORT, CONTROL_COMMIT, CONTROL_MASK, INT64_MAX, TRANSACTIONAL_MASK
from kafka_forensics.parsers.log import SegmentReader
from kafka_forensics.parsers.log_dir import FileKind, parse_file_name
from kafka_forensics.storage.open import open_parent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from kafka_forensics.storage.source import ByteFile, ByteSource

MAX_MARKERS: Final = 1 << 22
"""Markers of a segment that are kept; a transaction that ends with a later one is unknown."""
NONE, COMMITTED, ABORTED, OPEN, UNKNOWN = "none", "committed", "aborted", "open", "unknown"
STATES: Final = (NONE, COMMITTED, ABORTED, OPEN, UNKNOWN)
"""`RecordStates.of_batches` gives indexes of it."""
_KIND_BITS: Final = 2
_BY_MARKER: Final = (UNKNOWN, ABORTED, COMMITTED)
_NO_POSITION: Final = 1 << 61
_STEP_BYTES: Final = 1 << 20
"""Bytes that are read at once after a part, until all its transactions have ended."""


class RecordStates:
    """The states of the records of one segment; `log_continues`: the log has later segments.

    With a `part`, from the byte of one batch to that of another (None: to the end), only its batches can be looked up. Bytes before
    it are not read, and those after it only until its transactions have ended.
    """

    def __init__(
        self,
        file: "ByteFile",
        *,
        log_continues: bool,
        max_plausible_offset: int = INT64_MAX,
        limit: int = MAX_MARKERS,
        part: tuple[int, int | None] = (0, None),
    ) -> None:
        """Read the segment once, `max_plausible_offset` as for `SegmentReader`. Raises SourceError."""
        producers: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
        endings: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
        broken: list[int] = []
        count = 0
        self._log_continues = log_continues
        self._cut = False
        unended: dict[int, int] = {}
        for chunk in _chunks(file, max_plausible_offset, part, unended):
            columns = chunk.columns
            good = has_right_crc(columns)
            broken += [damage.position for damage in chunk.damage] + columns[BatchColumn.POSITION, ~good].tolist()
            control = columns[BatchColumn.CONTROL_RECORD_TYPE]
            is_marker = (columns[BatchColumn.ATTRIBUTES] & CONTROL_MASK != 0) & (control <= CONTROL_COMMIT)
            is_marker &= columns[BatchColumn.PRODUCER_ID] >= 0
            rows = np.flatnonzero(good & is_marker)
            self._cut = self._cut or count + rows.size > limit
            rows = rows[: max(limit - count, 0)]
            count += rows.size
            kinds = np.where(control[rows] == CONTROL_COMMIT, 2, np.where(control[rows] == CONTROL_ABORT, 1, 0))
            producers.append(columns[BatchColumn.PRODUCER_ID, rows])
            positions = columns[BatchColumn.POSITION, rows]
            endings.append(positions << _KIND_BITS | kinds)
            for producer_id, position in zip(producers[-1].tolist(), positions.tolist(), strict=True) if unended else ():
                if unended.get(producer_id, position) < position:
                    del unended[producer_id]
        all_producers, all_endings = np.concatenate(producers), np.concatenate(endings)
        order = np.lexsort((all_endings, all_producers))
        self._producers, self._endings = all_producers[order], all_endings[order]
        self._broken = np.sort(np.array(broken, np.int64))

    def state(self, attributes: int, producer_id: int, position: int) -> str:
        """State of the records of the batch at `position`: none, committed, aborted, open or unknown.

        Markers have none. It is unknown if the marker cannot be read, or may be in damaged bytes or in a later segment.
        """
        if not attributes & TRANSACTIONAL_MASK or attributes & CONTROL_MASK or producer_id < 0:
            return NONE
        first, end = (int(np.searchsorted(self._producers, producer_id, side=side)) for side in ("left", "right"))
        at = first + int(np.searchsorted(self._endings[first:end], (position + 1) << _KIND_BITS))
        marker = self._endings[at] >> _KIND_BITS if at < end else _NO_POSITION
        damage = int(np.searchsorted(self._broken, position, side="right"))
        if damage < len(self._broken) and self._broken[damage] <= marker:
            return UNKNOWN
        if at == end:
            return UNKNOWN if self._log_continues or self._cut else OPEN
        return _BY_MARKER[int(self._endings[at]) & 3]

    def of_batches(self, columns: "NDArray[np.int64]") -> "NDArray[np.int8]":
        """The index in `STATES` of the `state` of each batch of a (BATCH_COLUMNS, n) matrix."""
        answer = np.zeros(columns.shape[1], np.int8)
        rows = np.flatnonzero(in_transactions(columns))
        positions, producers = columns[BatchColumn.POSITION, rows], columns[BatchColumn.PRODUCER_ID, rows]
        firsts, ends = (np.searchsorted(self._producers, producers, side=side) for side in ("left", "right"))
        at = np.empty(rows.size, np.int64)
        for first, end in sorted(set(zip(firsts.tolist(), ends.tolist(), strict=True))):
            of_producer = (firsts == first) & (ends == end)
            requested = (positions[of_producer] + 1) << _KIND_BITS
            at[of_producer] = first + np.searchsorted(self._endings[first:end], requested)
        ended = at < ends
        endings = np.append(self._endings, 0)[np.where(ended, at, -1)]
        marker = np.where(ended, endings >> _KIND_BITS, _NO_POSITION)
        damage = np.append(self._broken, _NO_POSITION + 1)[np.searchsorted(self._broken, positions, side="right")]
        unended = STATES.index(UNKNOWN if self._log_continues or self._cut else OPEN)
        kinds = np.array([STATES.index(state) for state in _BY_MARKER], np.int8)[endings & 3]
        answer[rows] = np.where(damage <= marker, STATES.index(UNKNOWN), np.where(ended, kinds, unended))
        return answer


class LazyRecordStates(RecordStates):
    """The states of a segment's records, which `read` reads when the first transactional batch is looked up; None: all are none."""

    def __init__(self, read: Callable[[], RecordStates] | None) -> None:
        self._read = read
        self._states: RecordStates | None = None

    def of_batches(self, columns: "NDArray[np.int64]") -> "NDArray[np.int8]":
        """As `RecordStates.of_batches`. Raises what `read` raises."""
        if self._read is None or not in_transactions(columns).any():
            return np.zeros(columns.shape[1], np.int8)
        if self._states is None:
            self._states = self._read()
        return self._states.of_batches(columns)


def in_transactions(columns: "NDArray[np.int64]") -> "NDArray[np.bool_]":
    """Which batches of a (BATCH_COLUMNS, n) matrix hold transactional records; only magic 2 has these attribute bits."""
    attributes = columns[BatchColumn.ATTRIBUTES]
    answer: NDArray[np.bool_] = attributes & (TRANSACTIONAL_MASK | CONTROL_MASK) == TRANSACTIONAL_MASK
    answer &= (columns[BatchColumn.MAGIC] >= 2) & (columns[BatchColumn.PRODUCER_ID] >= 0)
    return answer


def transaction_facts(column: "Sequence[int] | NDArray[np.int64]") -> tuple[int, int]:
    """(attributes, producer id) of a batch by BatchColumn, as arguments of `RecordStates.state`; 0 for attributes of old formats,
    whose bits mean something else."""
    attributes = int(column[BatchColumn.ATTRIBUTES]) if column[BatchColumn.MAGIC] >= 2 else 0
    return attributes, int(column[BatchColumn.PRODUCER_ID])


def _chunks(
    file: "ByteFile", max_plausible_offset: int, part: tuple[int, int | None], unended: dict[int, int]
) -> Iterator[BatchChunk]:
    """Chunks of a part, and of what follows it while transactions of the part are `unended`.

    Adds producer id → position of the last transactional batch to `unended`, from which the caller removes those that markers end.
    """
    reader = SegmentReader(file, max_plausible_offset=max_plausible_offset)
    start, end = part
    if end is None:
        yield from reader.chunks(start)
        return
    for chunk in reader.chunks(start, end):
        data = in_transactions(chunk.columns) & has_right_crc(chunk.columns)
        unended.update(chunk.columns[[BatchColumn.PRODUCER_ID, BatchColumn.POSITION]][:, data].T.tolist())
        yield chunk
    position = reader.end_position
    while unended and position < file.size_in_bytes:
        yield from reader.chunks(position, position + _STEP_BYTES)
        if reader.end_position <= position:
            return
        position = reader.end_position


def base_offsets(source: "ByteSource") -> tuple[int | None, int | None]:
    """(base offset, next segment's base offset) of a `.log` file, by its name and those of files beside it; None if unknown."""
    base_offset = _base_offset(os.path.basename(source.name))
    if base_offset is None:
        return None, None
    try:
        base_offsets_in_folder = [_base_offset(entry.name) for entry in open_parent(source).list("")]
    except (PathMissingError, SourceError):
        return base_offset, None
    return base_offset, min(
        (offset for offset in base_offsets_in_folder if offset is not None and offset > base_offset), default=None
    )


def _base_offset(name: str) -> int | None:
    """The base offset in the name of a live `.log` file, None for any other name."""
    parsed = parse_file_name(name)
    return parsed.offset if parsed is not None and parsed.kind is FileKind.LOG and parsed.suffix is None else None
