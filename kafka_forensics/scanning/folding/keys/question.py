"""Which keys of a compacted partition are to be compared, as a value that can go where that is done, and the answer coming back."""

import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Final, Self

import numpy as np

from kafka_forensics.analysis.compaction import (
    ROW_WIDTH,
    KeyComparison,
    KeyTally,
    Pair,
    RecordState,
    Row,
    Side,
    cleaned_end,
    reduced,
    retention,
)
from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.segments import Misplaced
from kafka_forensics.analysis.transactions import endings
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.model.batches import Damage
from kafka_forensics.model.constants import INT64_MAX
from kafka_forensics.model.results import Incomplete
from kafka_forensics.scanning.folding.keys.collected import hash_key_of
from kafka_forensics.storage.disks import why

# What reading the keys of a replica gives beside rows, for any part of its log; parts in file order merge to the whole.


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


if TYPE_CHECKING:
    from types import TracebackType

    from numpy.typing import NDArray

    Rows = NDArray[np.int64]


Gist = tuple[tuple[tuple[int, ...], ...], ...]


@dataclass(slots=True)
class KeyedLog:
    """A replica whose keys are compared."""

    plan: int
    """Its number among all of the partition's."""
    log_end_offset: int
    is_in_order: bool
    """Whether no offset comes before a lower one."""
    changed_ms: int
    """When a file of its log directory last changed, -1 if that is not known."""
    decided: Decided

    def side(self, part: KeyPart) -> Side:
        """The replica as the comparison sees it, once it is read; damage without an end reaches the log's end."""
        whole = self.is_in_order and not part.damage.pending
        return Side(self.log_end_offset, part.damage.end if whole else self.log_end_offset)


@dataclass(slots=True)
class KeyQuestion:
    """Pairs of replicas whose latest records of each key are to be compared; `logs` by the numbers that the pairs use."""

    pairs: list[Pair]
    cleaned_end: int
    delete_retention_ms: int
    seed: int
    """Of the hashes of keys and values."""
    logs: dict[int, KeyedLog]
    as_of_ms: int | None = None
    """To when ages count, None: the newest in the evidence."""
    hash_key: str | None = None
    """See `hash_key_of`."""

    @property
    def cuts(self) -> "NDArray[np.int64]":
        """Offsets at which rows are cut."""
        return KeyComparison({}, self.pairs, self.cleaned_end, 0).cuts

    @property
    def gist(self) -> Gist:
        """All but the seed, and what was decided of transactions."""
        pairs = tuple((pair.left, pair.right, pair.start, pair.end) for pair in self.pairs)
        logs = tuple((number, keyed_log.plan, keyed_log.log_end_offset) for number, keyed_log in sorted(self.logs.items()))
        return pairs, logs, ((self.cleaned_end, self.delete_retention_ms),)

    def comparison(self, parts: dict[int, KeyPart]) -> KeyComparison:
        """The comparison of replicas that are read."""
        sides = {number: keyed_log.side(parts[number]) for number, keyed_log in self.logs.items()}
        newest = max(max(parts[number].newest_timestamp, keyed_log.changed_ms) for number, keyed_log in self.logs.items())
        return KeyComparison(sides, self.pairs, self.cleaned_end, newest if self.as_of_ms is None else self.as_of_ms)


@dataclass(slots=True)
class KeyAnswer:
    """What came of a question: what each replica's log holds, by its number, and the tally; `failed` says why that is not whole."""

    gist: Gist
    parts: dict[int, KeyPart]
    tally: KeyTally
    failed: str | None = None


def key_question(
    plans: list[ReplicaPlan], replicas: list[Replica], pairs: list[Pair], every: list[ReplicaPlan], as_of_ms: int | None
) -> KeyQuestion:
    """What to ask of these replicas, whose plans are among `every` one of the partition; ages count to `as_of_ms`."""
    numbers = sorted({number for pair in pairs for number in (pair.left, pair.right)})
    logs = {number: _keyed_log(plans[number], replicas[number], every) for number in numbers}
    hash_key = hash_key_of(plans[number] for number in numbers)
    kept = retention(replicas).milliseconds
    return KeyQuestion(pairs, cleaned_end(replicas), kept, secrets.randbits(64), logs, as_of_ms, hash_key)


def _keyed_log(plan: ReplicaPlan, replica: Replica, every: list[ReplicaPlan]) -> KeyedLog:
    place = next(place for place, replica_plan in enumerate(every) if replica_plan is plan)
    put_right = {misplaced.place for misplaced in replica.misplaced}
    in_order = not any(
        irregularity.kind in kinds_with(Trait.OUT_OF_ORDER) and irregularity.run.last_place not in put_right
        for irregularity in replica.course.irregularities
    )
    return KeyedLog(place, replica.log_end_offset, in_order, _changed_ms(plan), Decided.of(replica))


def _changed_ms(plan: ReplicaPlan) -> int:
    """The last change to a file of a copy's log directory, ms."""
    directory, log_dir = plan.directory, plan.log_dir.found
    entries = [*log_dir.entries.values(), *directory.entries.values(), *(segment.log for segment in directory.segments)]
    return max((entry.mtime_ns // 1_000_000 for entry in entries if entry is not None), default=-1)


@dataclass(slots=True)
class KeysApart:
    """Questions about a partition's keys that are not answered where it is judged: those about logs of `least_bytes` and more.

    While there are no answers they are noted in `questions`, and what is judged is not the answer about the partition.
    """

    least_bytes: int
    plans: list[ReplicaPlan]
    """Of all replicas of the partition, in every snapshot."""
    answers: list[KeyAnswer] | None
    """None before anything was asked."""
    questions: list[KeyQuestion] = field(default_factory=list)

    def wanted(self, question: KeyQuestion) -> bool:
        """Whether the question is to be answered apart."""
        return sum(self.plans[keyed_log.plan].bytes for keyed_log in question.logs.values()) >= self.least_bytes

    @property
    def is_waiting(self) -> bool:
        """Whether what is judged is no answer yet."""
        return self.answers is None and bool(self.questions)

    def gaps(self) -> Iterator[Incomplete]:
        """What could not be read where the answers were found."""
        for key_answer in self.answers or ():
            for part in key_answer.parts.values():
                yield from part.incomplete

    def answer(self, question: KeyQuestion) -> KeyAnswer | None:
        """What came back about this very question, if it has been asked."""
        gist = question.gist
        return next((key_answer for key_answer in self.answers or () if key_answer.gist == gist), None)


# Rows of any number in bounded memory: sorted runs in a temporary file that has no name, merged block by block.


CAPACITY: Final = 1 << 17
"""Rows held before they are sorted: 8 MiB, and as much again several times while they are sorted and judged."""
LEAST_ROWS: Final = 64
"""Rows of a run that are read at a time, however many runs there are."""
_ROW_BYTES: Final = 8 * ROW_WIDTH


class KeyRuns:
    """Takes rows in any order and gives them back in blocks of whole keys, reduced; a context, at whose end the file is gone.

    Runs are written only when the rows do not fit, never below one of the directories of `evidence`. Raises SourceError where
    there is no room for them.
    """

    def __init__(self, evidence: Iterable[str] = (), capacity: int = CAPACITY) -> None:
        self._evidence = [os.path.realpath(path) for path in evidence]
        self._buffer: Rows = np.empty((capacity, ROW_WIDTH), np.int64)
        self._used = 0
        self._file: IO[bytes] | None = None
        self._folder = ""
        self._runs: list[tuple[int, int]] = []
        """Byte range of each run in the file."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: "TracebackType | None") -> None:
        if self._file is not None:
            self._file.close()

    def add(self, rows: "Rows") -> None:
        """Take rows, (n, ROW_WIDTH)."""
        while len(rows):
            if self._used == len(self._buffer):
                self._make_room()
            taken = min(len(rows), len(self._buffer) - self._used)
            self._buffer[self._used : self._used + taken] = rows[:taken]
            self._used += taken
            rows = rows[taken:]

    def _make_room(self) -> None:
        """Reduce what is held; if that is not to much avail, write it out as a run."""
        rows = reduced(self._buffer[: self._used])
        if 2 * len(rows) <= len(self._buffer):
            self._buffer[: len(rows)] = rows
            self._used = len(rows)
            return
        self._used = 0
        try:
            if self._file is None:
                self._folder = self._directory()
                self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - open until our own context ends
            start = self._runs[-1][1] if self._runs else 0
            self._file.write(rows.tobytes())
            self._file.flush()
        except OSError as error:
            where = f" in {self._folder} (TMPDIR names another)" if self._folder else ""
            raise SourceError("", f"no room for a temporary file{where}: {why(error, self._folder)}") from error
        self._runs.append((start, start + len(rows) * _ROW_BYTES))

    def _directory(self) -> str:
        """A directory for temporary files outside of the evidence.

        Not `tempfile.gettempdir()`, which tries a directory by writing to it.
        """
        for folder in (os.environ.get("TMPDIR") or "/tmp", "/var/tmp", os.path.expanduser("~")):  # noqa: S108 - the file has no name
            path = os.path.realpath(folder)
            if os.access(path, os.W_OK) and not any(os.path.commonpath((path, root)) == root for root in self._evidence):
                return path
        raise OSError(0, "every directory for temporary files is part of the input")

    def blocks(self) -> Iterator["Rows"]:
        """Blocks in ascending order of keys, each reduced and with all rows of its keys. Nothing may be added any more."""
        held = reduced(self._buffer[: self._used])
        if not self._runs:
            yield held
            return
        size = max(len(self._buffer) // len(self._runs), LEAST_ROWS)
        heads = [held, *(np.empty((0, ROW_WIDTH), np.int64) for _ in self._runs)]
        rest = [(0, 0), *self._runs]
        while True:
            for number, head in enumerate(heads):
                if not len(head):
                    heads[number] = self._more(rest, number, size)
            last = [tuple(heads[n][-1, : Row.PLACE].tolist()) for n, (start, end) in enumerate(rest) if start < end]
            if not last:
                yield reduced(np.concatenate(heads))
                return
            limit = min(last)
            counts = [below(head, limit) for head in heads]
            if any(counts):
                yield reduced(np.concatenate([head[:count] for head, count in zip(heads, counts, strict=True)]))
                heads = [head[count:] for head, count in zip(heads, counts, strict=True)]
                continue
            for number, (start, end) in enumerate(rest):
                if start < end and tuple(heads[number][-1, : Row.PLACE].tolist()) == limit:
                    heads[number] = np.concatenate((heads[number], self._more(rest, number, size)))

    def _more(self, rest: list[tuple[int, int]], number: int, size: int) -> "Rows":
        """The next rows of a run."""
        start, end = rest[number]
        stop = min(start + size * _ROW_BYTES, end)
        rest[number] = (stop, end)
        if start == stop:
            return np.empty((0, ROW_WIDTH), np.int64)
        assert self._file is not None
        self._file.seek(start)
        return np.frombuffer(self._file.read(stop - start), np.int64).reshape(-1, ROW_WIDTH)


def below(rows: "Rows", key: tuple[int, ...]) -> int:
    """How many of sorted rows have a lower key."""
    high = rows[:, Row.KEY_HIGH]
    first, end = int(np.searchsorted(high, key[0], "left")), int(np.searchsorted(high, key[0], "right"))
    return first + int(np.searchsorted(rows[first:end, Row.KEY_LOW], key[1], "left"))
