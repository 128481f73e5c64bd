"""How the transaction of each record of a segment ended, as readers in read_committed mode would find it.

A record's transaction is ended by the next marker of its producer, so all markers are read before the first record is judged:
16 bytes each, at most 64 MiB of them.
"""

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.errors import PathMissingError, SourceError
from kafka_forensics.model.batches import BatchChunk, BatchColumn, has_right_crc
from kafka_forensics.model.constants import CONTROL_ABORT, CONTROL_COMMIT, CONTROL_MASK, INT64_MAX, TRANSACTIONAL_MASK
from kafka_forensics.parsers.log import SegmentReader
from kafka_forensics.parsers.log_dir import FileKind, FileName, parse_file_name
from kafka_forensics.storage.open import open_beside

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from kafka_forensics.storage.source import ByteFile, ByteSource

MAX_MARKERS: Final = 1 << 22
"""Markers of a segment that are held; what would be ended by a later one is unknown."""
NONE, COMMITTED, ABORTED, OPEN, UNKNOWN = "none", "committed", "aborted", "open", "unknown"
STATES: Final = (NONE, COMMITTED, ABORTED, OPEN, UNKNOWN)
"""By the numbers that `RecordStates.of_batches` gives."""
_KIND_BITS: Final = 2
_BY_MARKER: Final = (UNKNOWN, ABORTED, COMMITTED)
_NOWHERE: Final = 1 << 61
_STEP_BYTES: Final = 1 << 20
"""Bytes that are read behind a part before it is asked whether all transactions are ended."""


class RecordStates:
    """The markers of one segment; `goes_on` says that the log has later segments.

    With a `part`, from where a batch begins to where another does (None: to the end), only records of its batches can be asked for.
    What lies before it is not read then, and what lies behind only until their transactions are ended.
    """

    def __init__(
        self,
        file: "ByteFile",
        *,
        goes_on: bool,
        max_plausible_offset: int = INT64_MAX,
        limit: int = MAX_MARKERS,
        part: tuple[int, int | None] = (0, None),
    ) -> None:
        """Read the segment once, `max_plausible_offset` as for `SegmentReader`. Raises SourceError."""
        producers: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
        endings: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
        broken: list[int] = []
        held = 0
        self._goes_on = goes_on
        self._cut = False
        unended = _Unended()
        for chunk in _chunks(file, max_plausible_offset, part, unended):
            columns = chunk.columns
            good = has_right_crc(columns)
            broken += [damage.position for damage in chunk.damage] + columns[BatchColumn.POSITION, ~good].tolist()
            control = columns[BatchColumn.CONTROL_RECORD_TYPE]
            is_marker = (columns[BatchColumn.ATTRIBUTES] & CONTROL_MASK != 0) & (control <= CONTROL_COMMIT)
            is_marker &= columns[BatchColumn.PRODUCER_ID] >= 0
            rows = np.flatnonzero(good & is_marker)
            self._cut = self._cut or held + rows.size > limit
            rows = rows[: max(limit - held, 0)]
            held += rows.size
            kinds = np.where(control[rows] == CONTROL_COMMIT, 2, np.where(control[rows] == CONTROL_ABORT, 1, 0))
            producers.append(columns[BatchColumn.PRODUCER_ID, rows])
            endings.append(columns[BatchColumn.POSITION, rows] << _KIND_BITS | kinds)
            unended.end(producers[-1], columns[BatchColumn.POSITION, rows])
        names, ends = np.concatenate(producers), np.concatenate(endings)
        order = np.lexsort((ends, names))
        self._producers, self._endings = names[order], ends[order]
        self._broken = np.sort(np.array(broken, np.int64))

    def state(self, attributes: int, producer_id: int, position: int) -> str:
        """none, committed, aborted, open or unknown, of the records of the batch at `position`, which has these attributes.

        Markers themselves are none. Unknown is a record whose marker cannot be read, may stand in lost bytes or, where the log
        goes on, in a later segment.
        """
        if not attributes & TRANSACTIONAL_MASK or attributes & CONTROL_MASK or producer_id < 0:
            return NONE
        first, behind = (int(np.searchsorted(self._producers, producer_id, side=side)) for side in ("left", "right"))
        at = first + int(np.searchsorted(self._endings[first:behind], (position + 1) << _KIND_BITS))
        marker = self._endings[at] >> _KIND_BITS if at < behind else _NOWHERE
        damage = int(np.searchsorted(self._broken, position, side="right"))
        if damage < len(self._broken) and self._broken[damage] <= marker:
            return UNKNOWN
        if at == behind:
            return UNKNOWN if self._goes_on or self._cut else OPEN
        return _BY_MARKER[int(self._endings[at]) & 3]

    def of_batches(self, columns: "NDArray[np.int64]") -> "NDArray[np.int8]":
        """The state of the records of each batch of a (BATCH_COLUMNS, n) matrix, as its number in STATES; see `state`."""
        answer = np.zeros(columns.shape[1], np.int8)
        rows = np.flatnonzero(in_transactions(columns))
        positions, producers = columns[BatchColumn.POSITION, rows], columns[BatchColumn.PRODUCER_ID, rows]
        first, behind = (np.searchsorted(self._producers, producers, side=side) for side in ("left", "right"))
        at = np.empty(rows.size, np.int64)
        for start, end in sorted(set(zip(first.tolist(), behind.tolist(), strict=True))):
            of_producer = (first == start) & (behind == end)
            wanted = (positions[of_producer] + 1) << _KIND_BITS
            at[of_producer] = start + np.searchsorted(self._endings[start:end], wanted)
        ended = at < behind
        endings = np.append(self._endings, 0)[np.where(ended, at, -1)]
        marker = np.where(ended, endings >> _KIND_BITS, _NOWHERE)
        damage = np.append(self._broken, _NOWHERE + 1)[np.searchsorted(self._broken, positions, side="right")]
        unended = STATES.index(UNKNOWN if self._goes_on or self._cut else OPEN)
        kinds = np.array([STATES.index(state) for state in _BY_MARKER], np.int8)[endings & 3]
        answer[rows] = np.where(damage <= marker, STATES.index(UNKNOWN), np.where(ended, kinds, unended))
        return answer


class LateStates(RecordStates):
    """The states of a segment's records, read by `read` when a batch of a transaction is met; None: nobody wants to know."""

    def __init__(self, read: Callable[[], RecordStates] | None) -> None:
        self._read = read
        self._states: RecordStates | None = None

    def of_batches(self, columns: "NDArray[np.int64]") -> "NDArray[np.int8]":
        """As `RecordStates.of_batches`. Raises what `read` does."""
        if self._read is None or not in_transactions(columns).any():
            return np.zeros(columns.shape[1], np.int8)
        if self._states is None:
            self._states = self._read()
        return self._states.of_batches(columns)


def in_transactions(columns: "NDArray[np.int64]") -> "NDArray[np.bool_]":
    """Which batches of a (BATCH_COLUMNS, n) matrix hold records of transactions; attributes of old formats say another thing."""
    attributes = columns[BatchColumn.ATTRIBUTES]
    answer: NDArray[np.bool_] = attributes & (TRANSACTIONAL_MASK | CONTROL_MASK) == TRANSACTIONAL_MASK
    answer &= (columns[BatchColumn.MAGIC] >= 2) & (columns[BatchColumn.PRODUCER_ID] >= 0)
    return answer


def txn_facts(column: "Sequence[int] | NDArray[np.int64]") -> tuple[int, int]:
    """(attributes, producer id) of a batch by BatchColumn, as `RecordStates.state` asks for them; attributes of old formats say
    another thing."""
    attributes = int(column[BatchColumn.ATTRIBUTES]) if column[BatchColumn.MAGIC] >= 2 else 0
    return attributes, int(column[BatchColumn.PRODUCER_ID])


class _Unended:
    """Transactions that were met, by producer with the position of their last data, and not their ends."""

    def __init__(self) -> None:
        self._last: dict[int, int] = {}

    def begin(self, columns: "NDArray[np.int64]") -> None:
        """Add what belongs to a transaction in these batches."""
        data = in_transactions(columns) & has_right_crc(columns)
        for producer_id, position in columns[[BatchColumn.PRODUCER_ID, BatchColumn.POSITION]][:, data].T.tolist():
            self._last[producer_id] = position

    def end(self, producers: "NDArray[np.int64]", positions: "NDArray[np.int64]") -> None:
        """Take out what these markers end."""
        for producer_id, position in zip(producers.tolist(), positions.tolist(), strict=True) if self._last else ():
            if self._last.get(producer_id, position) < position:
                del self._last[producer_id]

    def __bool__(self) -> bool:
        return bool(self._last)


def _chunks(file: "ByteFile", max_plausible_offset: int, part: tuple[int, int | None], unended: _Unended) -> Iterator[BatchChunk]:
    """Chunks of the whole file, or of a part and then of what lies behind while there is something `unended`."""
    reader = SegmentReader(file, max_plausible_offset)
    start, end = part
    if end is None:
        yield from reader.chunks(start)
        return
    for chunk in reader.chunks(start, end):
        unended.begin(chunk.columns)
        yield chunk
    position = reader.landed
    while unended and position < file.size_in_bytes:
        yield from reader.chunks(position, position + _STEP_BYTES)
        if reader.landed <= position:
            return
        position = reader.landed


def base_offsets(source: "ByteSource") -> tuple[int | None, int | None]:
    """(base offset, the next segment's) of a `.log` file by its name and by those beside it; None for what no name says."""
    own = _log(os.path.basename(source.name))
    if own is None or own.offset is None:
        return None, None
    base_offset = own.offset
    try:
        beside = [_log(entry.name) for entry in open_beside(source).list("")]
    except (PathMissingError, SourceError):
        return base_offset, None
    offsets = (name.offset for name in beside if name is not None and name.offset is not None)
    return base_offset, min((offset for offset in offsets if offset > base_offset), default=None)


def _log(name: str) -> FileName | None:
    """What the name of a live `.log` file says, None for any other name."""
    parsed = parse_file_name(name)
    return parsed if parsed is not None and parsed.kind is FileKind.LOG and parsed.suffix is None else None
