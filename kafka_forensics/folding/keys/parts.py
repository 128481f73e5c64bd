"""What reading the keys of a replica gives beside rows, for any part of its log; parts in file order merge to the whole."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np

from kafka_forensics.analysis.compaction import RecordState
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.segments import Misplaced
from kafka_forensics.analysis.transactions import endings
from kafka_forensics.model.batches import Damage
from kafka_forensics.model.constants import INT64_MAX
from kafka_forensics.model.results import Incomplete

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


@dataclass(slots=True)
class KeyCounts:
    """How much of a log lies in each interval between cuts: records by `RecordState`, records without a key, control batches."""

    records: "Ints"
    keyless: "Ints"
    markers: "Ints"

    @classmethod
    def none(cls, intervals: int) -> Self:
        """Nothing yet."""
        return cls(np.zeros((len(RecordState), intervals), np.int64), np.zeros(intervals, np.int64), np.zeros(intervals, np.int64))

    def merge(self, other: "KeyCounts") -> None:
        """Add those of another part."""
        self.records += other.records
        self.keyless += other.keyless
        self.markers += other.markers


@dataclass(slots=True)
class DamageEnd:
    """Where the last damage that may have eaten records ends: with the next batch that is good."""

    end: int = -1
    """Its base offset, -1 while there is none."""
    pending: bool = False
    """Whether no good batch came yet."""
    opening: int = -1
    """Base offset of the good batch with which damage before this part ends, -1 if the part's own comes first."""
    is_blank: bool = True
    """Whether nothing good or bad came yet."""

    def step(self, *, bad: bool, good: int | None) -> None:
        """Take a chunk: whether it has damage, and the base offset of the first good batch behind that."""
        if not bad and good is None:
            return
        if self.is_blank:
            self.is_blank = False
            self.opening = -1 if good is None else good
        if bad or self.pending:
            self.end = max(self.end, -1 if good is None else good)
            self.pending = good is None

    def merge(self, right: "DamageEnd") -> None:
        """Add the part that follows."""
        if self.pending:
            self.end = max(self.end, right.opening)
        self.end = max(self.end, right.end)
        if not right.is_blank:
            self.pending = right.pending
        if self.is_blank:
            self.opening, self.is_blank = right.opening, right.is_blank


@dataclass(slots=True)
class KeyPart:
    """Of a part of a replica's log what is known beside its rows; `failed` says why its rows are not whole."""

    counts: KeyCounts
    newest_timestamp: int = -1
    damage: DamageEnd = field(default_factory=DamageEnd)
    problems: list[tuple[int, Damage]] = field(default_factory=list)
    """Batches that could not be opened, with their segment."""
    incomplete: list[Incomplete] = field(default_factory=list)
    failed: str | None = None

    def merge(self, right: "KeyPart") -> None:
        """Add the part that follows."""
        self.counts.merge(right.counts)
        self.newest_timestamp = max(self.newest_timestamp, right.newest_timestamp)
        self.damage.merge(right.damage)
        self.problems += right.problems
        self.incomplete += right.incomplete
        self.failed = self.failed or right.failed


@dataclass(slots=True)
class Decided:
    """What the folded log says of its batches: which belong to aborted transactions, and which to open ones, by the log's own
    markers; and which bear a wrong base offset."""

    aborted: "Ints"
    """(producer id, first offset, marker's offset) of each, ascending, (n, 3)."""
    undecided: dict[int, int]
    """First offset of the open transaction by producer id."""
    misplaced: tuple[Misplaced, ...] = ()

    @classmethod
    def of(cls, replica: Replica) -> Self:
        """By the folded log."""
        fold = replica.state.transactions
        rows = fold.ending_rows()
        rows = rows[(rows[:, endings.IS_ABORT] != 0) & (rows[:, endings.FIRST_OFFSET] >= 0)]
        rows = rows[:, [endings.PRODUCER_ID, endings.FIRST_OFFSET, endings.LAST_OFFSET]]
        rows = rows[np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))]
        first_open = {transaction.producer_id: transaction.first_offset for transaction in fold.open_transactions()}
        return cls(np.asfortranarray(rows), first_open, replica.misplaced)

    def state(self, producer_id: int, offset: int) -> RecordState:
        """State of a transactional batch with this base offset."""
        if offset >= self.undecided.get(producer_id, INT64_MAX):
            return RecordState.OPEN
        producers, firsts, lasts = self.aborted.T
        start, end = (int(producers.searchsorted(producer_id, side)) for side in ("left", "right"))
        index = start + int(firsts[start:end].searchsorted(offset, "right")) - 1
        return RecordState.ABORTED if index >= start and offset <= lasts[index] else RecordState.VISIBLE
