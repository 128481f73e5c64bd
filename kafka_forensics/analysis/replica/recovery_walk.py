"""Where the walk of Kafka's own recovery over each segment would end (LogSegment.recover), folded with everything else."""

from dataclasses import dataclass, replace
from typing import Final

from kafka_forensics.analysis.segments import Survey
from kafka_forensics.model.batches import BatchChunk, BatchColumn, Damage
from kafka_forensics.replication.recovery_facts import (
    BATCH_BEYOND_FILE,
    BATCH_INVALID,
    HEADER_CUT,
    LENGTH_TOO_SMALL,
    MAX_RELATIVE_OFFSET,
    OFFSET_OVERFLOW,
    Stop,
)

_SMALLEST_LENGTH: Final = 14
_HEADER_UP_TO_MAGIC: Final = 17
_ENDING: Final = frozenset(
    {
        "BATCH_CRC_MISMATCH",
        "BUDGET_EXCEEDED",
        "FRAMING_LOST",
        "SEG_HOLE",
        "SEG_TORN_TAIL",
        "SEG_ZERO_TAIL",
        "BATCH_MAGIC_REGRESSION",
    }
)


@dataclass(frozen=True, slots=True)
class WalkEnd:
    """The first byte of a segment that recovery cuts off, and why.

    `last_offset` is that of the batch before it in the stretch that was folded, None if that holds none; `batches` how many of the
    segment's batches begin up to there.
    """

    position: int
    check: int
    last_offset: int | None
    batches: int


class RecoveryFold:
    """State: for each segment that recovery would cut, the first such place; and the last offset seen of the current one."""

    def __init__(self, segment_base_offset: int) -> None:
        self._segment = segment_base_offset
        self._last_offset: int | None = None
        self._batches = 0
        self.ends: dict[int, WalkEnd] = {}

    def stop(self, segment: int) -> Stop | None:
        """Where recovery ends in a segment, once that is whole; None if it walks to its end."""
        end = self.ends.get(segment)
        if end is None:
            return None
        return Stop(end.position, segment if end.last_offset is None else end.last_offset + 1, end.check)

    def step(self, chunk: BatchChunk, seen: Survey | None = None) -> None:
        """Add the batches and the damage of a chunk. `seen` is the survey of its columns, if there are any."""
        last = chunk.columns[BatchColumn.LAST_OFFSET]
        plain = seen is not None and seen.joined and not chunk.damage
        inside = plain and self._segment <= int(last[0]) and int(last[-1]) - self._segment <= MAX_RELATIVE_OFFSET
        if self._segment not in self.ends and not inside:
            self._look(chunk)
        if last.size:
            self._last_offset = int(last[-1])
            self._batches += last.size

    def _look(self, chunk: BatchChunk) -> None:
        """Note the first place of the chunk at which recovery ends, if there is one."""
        found = [(damage.position, _check(damage)) for damage in chunk.damage if _ends_recovery(damage)]
        columns = chunk.columns
        relative = columns[BatchColumn.LAST_OFFSET] - self._segment
        if relative.size and (int(relative.max()) > MAX_RELATIVE_OFFSET or int(relative.min()) < 0):
            row = int(((relative > MAX_RELATIVE_OFFSET) | (relative < 0)).argmax())
            found.append((int(columns[BatchColumn.POSITION, row]), OFFSET_OVERFLOW))
        if not found:
            return
        position, check = min(found)
        before = int((columns[BatchColumn.POSITION] < position).sum())
        last_offset = int(columns[BatchColumn.LAST_OFFSET, before - 1]) if before else self._last_offset
        through = int((columns[BatchColumn.POSITION] <= position).sum())
        self.ends[self._segment] = WalkEnd(position, check, last_offset, self._batches + through)

    def merge(self, right: "RecoveryFold") -> None:
        """Add the stretch that follows ours."""
        for segment, end in right.ends.items():
            if segment == self._segment:
                before = self._last_offset if end.last_offset is None else end.last_offset
                end = replace(end, last_offset=before, batches=self._batches + end.batches)
            self.ends.setdefault(segment, end)
        if right._segment != self._segment:
            self._last_offset = None
            self._batches = 0
        self._segment = right._segment
        self._batches += right._batches
        self._last_offset = self._last_offset if right._last_offset is None else right._last_offset


def _ends_recovery(damage: Damage) -> bool:
    """Whether Kafka's recovery stops at this damage: it takes any magic byte from 2 to 127 for 2, all others for legacy."""
    if damage.kind == "BATCH_MAGIC_REGRESSION":
        return "crc_is_right_as_magic" in damage.detail
    if damage.kind == "BATCH_MAGIC_UNKNOWN":
        return int(str(damage.detail.get("magic", 0))) > 127
    return damage.kind in _ENDING


def _check(damage: Damage) -> int:
    """Number of the check that ends the walk there."""
    detail = damage.detail
    if damage.kind == "SEG_ZERO_TAIL":
        return LENGTH_TOO_SMALL if damage.size_in_bytes > _HEADER_UP_TO_MAGIC else HEADER_CUT
    if damage.kind == "SEG_TORN_TAIL" and detail.get("reason") == "header":
        return HEADER_CUT
    if damage.kind == "SEG_TORN_TAIL" or detail.get("runs_past_end"):
        return BATCH_BEYOND_FILE
    declared = detail.get("declared_length")
    if isinstance(declared, int) and declared < _SMALLEST_LENGTH:
        return LENGTH_TOO_SMALL
    return BATCH_INVALID
