"""Questions about keys of a compacted partition and their answers, as values that can be sent to tasks."""

import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, Final, Self

import numpy as np
from msgspec import Struct, field

from kafka_forensics.analysis.compaction import (
    ROW_WIDTH,
    ComparedLog,
    KeyColumn,
    KeyComparison,
    KeyTally,
    RecordState,
    ReplicaPair,
    cleaned_end,
    reduce_rows,
    retention,
)
from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.segments import MisplacedBatch
from kafka_forensics.analysis.transactions import endings
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.model.batches import Damage
from kafka_forensics.model.constants import INT64_MAX
from kafka_forensics.model.results import Incomplete
from kafka_forensics.scanning.folding.keys.collected import hash_key_of
from kafka_forensics.storage.disks import why

if TYPE_CHECKING:
    from types import TracebackType

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


class KeyCounts(Struct):
    """Counts by interval between cuts: records by `RecordState`, records without a key, control batches."""

    records: "Ints"
    keyless: "Ints"
    markers: "Ints"

    @classmethod
    def none(cls, intervals: int) -> Self:
        """Zeros."""
        return cls(np.zeros((len(RecordState), intervals), np.int64), np.zeros(intervals, np.int64), np.zeros(intervals, np.int64))

    def merge(self, other: "KeyCounts") -> None:
        """Add those of another part."""
        self.records += other.records
        self.keyless += other.keyless
        self.markers += other.markers


class DamageEnd(Struct):
    """The good batch after the last damage that may have destroyed records, in a part of a log."""

    end: int = -1
    """Its base offset; -1 without any."""
    pending: bool = False
    """Whether damage came after the last good batch."""
    opening: int = -1
    """Base offset of the part's first good batch; -1 if damage comes before it."""
    is_blank: bool = True
    """Whether neither damage nor a good batch came yet."""

    def step(self, *, bad: bool, good: int | None) -> None:
        """Add a chunk: whether it has damage, and the base offset of the first good batch after the damage."""
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


class KeyPart(Struct):
    """What reading keys in a part of a log gives in addition to rows; parts in file order can be merged.

    `failed` says why its rows are not complete.
    """

    counts: KeyCounts
    newest_timestamp: int = -1
    damage: DamageEnd = field(default_factory=DamageEnd)
    problems: list[tuple[int, Damage]] = field(default_factory=list)
    """(segment, damage) of batches that could not be decoded."""
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


class TransactionOutcomes(Struct):
    """Aborted and open transactions by the markers of a folded log, and its misplaced batches."""

    aborted: "Ints"
    """(producer id, first offset, offset of the marker) of each aborted transaction, ascending, (n, 3)."""
    undecided: dict[int, int]
    """Producer id → first offset of its open transaction."""
    misplaced: tuple[MisplacedBatch, ...] = ()

    @classmethod
    def of(cls, replica: Replica) -> Self:
        """Those of a replica."""
        fold = replica.state.transactions
        rows = fold.non_commit_ending_rows()
        rows = rows[(rows[:, endings.IS_ABORT] != 0) & (rows[:, endings.FIRST_OFFSET] >= 0)]
        rows = rows[:, [endings.PRODUCER_ID, endings.FIRST_OFFSET, endings.LAST_OFFSET]]
        rows = rows[np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))]
        first_open = {transaction.producer_id: transaction.first_offset for transaction in fold.open_transactions()}
        return cls(np.asfortranarray(rows), first_open, replica.misplaced)

    def state(self, producer_id: int, offset: int) -> RecordState:
        """The state of a transactional batch at a base offset."""
        if offset >= self.undecided.get(producer_id, INT64_MAX):
            return RecordState.OPEN
        producers, firsts, lasts = self.aborted.T
        start, end = (int(producers.searchsorted(producer_id, side)) for side in ("left", "right"))
        index = start + int(firsts[start:end].searchsorted(offset, "right")) - 1
        return RecordState.ABORTED if index >= start and offset <= lasts[index] else RecordState.VISIBLE


class KeyReadOptions(Struct):
    """How the logs of a question are read, see `KeyReader`."""

    cuts: "Ints"
    """Ascending offsets that split rows into intervals."""
    seed: int
    """Seed of the hashes of keys and values."""
    delete_retention_ms: int
    hash_key: str | None = None
    """See `hash_key_of`."""


QuestionIdentity = tuple[tuple[tuple[int, ...], ...], ...]


class KeyedLog(Struct):
    """A replica whose keys are compared."""

    plan: int
    """Its number among all replicas of the partition."""
    log_end_offset: int
    is_in_order: bool
    """Whether offsets ascend."""
    changed_ms: int
    """When a file of its log directory last changed; -1 if unknown."""
    decided: TransactionOutcomes

    def side(self, part: KeyPart) -> ComparedLog:
        """The replica for a `KeyComparison`; damage without a good batch after it reaches to the log's end."""
        is_bounded = self.is_in_order and not part.damage.pending
        return ComparedLog(self.log_end_offset, part.damage.end if is_bounded else self.log_end_offset)


class KeyQuestion(Struct):
    """Pairs of replicas whose latest record of each key is to be compared; `logs` by the numbers in the pairs."""

    pairs: list[ReplicaPair]
    cleaned_end: int
    delete_retention_ms: int
    seed: int
    """Seed of the hashes of keys and values."""
    logs: dict[int, KeyedLog]
    as_of_ms: int | None = None
    """The time that ages count to; None: the newest in the evidence."""
    hash_key: str | None = None
    """See `hash_key_of`."""

    @property
    def cuts(self) -> "Ints":
        """Offsets at which rows are cut."""
        return KeyComparison({}, self.pairs, self.cleaned_end, 0).cuts

    @property
    def read_options(self) -> KeyReadOptions:
        """How its logs are read."""
        return KeyReadOptions(self.cuts, self.seed, self.delete_retention_ms, self.hash_key)

    @property
    def identity(self) -> QuestionIdentity:
        """What identifies the question: all but the seed and the transactions."""
        pairs = tuple((pair.left, pair.right, pair.start, pair.end) for pair in self.pairs)
        logs = tuple((number, keyed_log.plan, keyed_log.log_end_offset) for number, keyed_log in sorted(self.logs.items()))
        return pairs, logs, ((self.cleaned_end, self.delete_retention_ms),)

    def comparison(self, parts: dict[int, KeyPart]) -> KeyComparison:
        """The comparison of its replicas, from what reading each of them gave."""
        sides = {number: keyed_log.side(parts[number]) for number, keyed_log in self.logs.items()}
        newest = max(max(parts[number].newest_timestamp, keyed_log.changed_ms) for number, keyed_log in self.logs.items())
        return KeyComparison(sides, self.pairs, self.cleaned_end, newest if self.as_of_ms is None else self.as_of_ms)


class KeyAnswer(Struct):
    """The answer to a question: what each replica's log holds, and the tally; `failed` says why they are not complete."""

    identity: QuestionIdentity
    parts: dict[int, KeyPart]
    tally: KeyTally
    failed: str | None = None


def key_question(
    plans: list[ReplicaPlan], replicas: list[Replica], pairs: list[ReplicaPair], all_plans: list[ReplicaPlan], as_of_ms: int | None
) -> KeyQuestion:
    """The question about pairs of replicas; `all_plans` has the plans of all replicas of the partition, ages count to
    `as_of_ms`."""
    logs = {}
    numbers = sorted({number for pair in pairs for number in (pair.left, pair.right)})
    for number in numbers:
        plan, replica = plans[number], replicas[number]
        corrected = {misplaced.place for misplaced in replica.misplaced}
        in_order = not any(
            anomaly.kind in kinds_with(Trait.OUT_OF_ORDER) and anomaly.run.last_place not in corrected
            for anomaly in replica.offset_sequence.anomalies
        )
        files = [
            *plan.log_dir.found.entries.values(),
            *plan.directory.entries.values(),
            *(log.entry for log in plan.directory.logs()),
        ]
        changed_ms = max((entry.mtime_ns // 1_000_000 for entry in files), default=-1)
        place = next(place for place, replica_plan in enumerate(all_plans) if replica_plan is plan)
        logs[number] = KeyedLog(place, replica.log_end_offset, in_order, changed_ms, TransactionOutcomes.of(replica))
    hash_key = hash_key_of(plans[number] for number in numbers)
    kept = retention(replicas).milliseconds
    return KeyQuestion(pairs, cleaned_end(replicas), kept, secrets.randbits(64), logs, as_of_ms, hash_key)


class DeferredKeys(Struct):
    """Questions about a partition's keys that get separate tasks: those about logs of `least_bytes` or more.

    Before they are answered they are collected in `questions`, and the result of judging the partition is void.
    """

    least_bytes: int
    plans: list[ReplicaPlan]
    """Of all replicas of the partition, in every snapshot."""
    answers: list[KeyAnswer] | None
    """None before the first question."""
    questions: list[KeyQuestion] = field(default_factory=list)

    def is_deferred(self, question: KeyQuestion) -> bool:
        """Whether the question gets separate tasks."""
        return sum(self.plans[keyed_log.plan].bytes for keyed_log in question.logs.values()) >= self.least_bytes

    @property
    def is_waiting(self) -> bool:
        """Whether questions must be answered before the partition can be judged."""
        return self.answers is None and bool(self.questions)

    def gaps(self) -> Iterator[Incomplete]:
        """What could not be read for the answers."""
        for key_answer in self.answers or ():
            for part in key_answer.parts.values():
                yield from part.incomplete

    def answer(self, question: KeyQuestion) -> KeyAnswer | None:
        """The answer to the question, if there is one."""
        identity = question.identity
        return next((key_answer for key_answer in self.answers or () if key_answer.identity == identity), None)


CAPACITY: Final = 1 << 17
"""Rows kept in memory before they are sorted: 8 MiB, and several times that while they are sorted and compared."""
MIN_ROWS: Final = 64
"""Rows of a run that are read at a time, however many runs there are."""
_ROW_BYTES: Final = 8 * ROW_WIDTH


class KeyRuns:
    """Sorts any number of rows in bounded memory: sorted runs go to a temporary file without a name, and are merged block by block.

    A context manager; the file is deleted at its end. It is made only if the rows do not fit in memory, and never below the
    directories `evidence`. Raises SourceError if there is no space.
    """

    def __init__(self, evidence: Iterable[str] = (), capacity: int = CAPACITY) -> None:
        self._evidence = [os.path.realpath(path) for path in evidence]
        self._buffer: Ints = np.empty((capacity, ROW_WIDTH), np.int64)
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

    def add(self, rows: "Ints") -> None:
        """Add rows, (n, ROW_WIDTH)."""
        while len(rows):
            if self._used == len(self._buffer):
                self._reduce_or_write()
            taken = min(len(rows), len(self._buffer) - self._used)
            self._buffer[self._used : self._used + taken] = rows[:taken]
            self._used += taken
            rows = rows[taken:]

    def _reduce_or_write(self) -> None:
        """Reduce the rows in memory; if more than half remain, write them out as a run."""
        rows = reduce_rows(self._buffer[: self._used])
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
        """A directory for temporary files outside the evidence; `tempfile.gettempdir()` tests directories by writing to them."""
        for folder in (os.environ.get("TMPDIR") or "/tmp", "/var/tmp", os.path.expanduser("~")):  # noqa: S108 - the file has no name
            path = os.path.realpath(folder)
            if os.access(path, os.W_OK) and not any(os.path.commonpath((path, root)) == root for root in self._evidence):
                return path
        raise OSError(0, "every directory for temporary files is part of the input")

    def blocks(self) -> Iterator["Ints"]:
        """Blocks in ascending order of keys, each reduced and with all rows of its keys. No row may be added afterwards."""
        in_memory = reduce_rows(self._buffer[: self._used])
        if not self._runs:
            yield in_memory
            return
        size = max(len(self._buffer) // len(self._runs), MIN_ROWS)
        heads = [in_memory, *(np.empty((0, ROW_WIDTH), np.int64) for _ in self._runs)]
        rest = [(0, 0), *self._runs]
        while True:
            for number, head in enumerate(heads):
                if not len(head):
                    heads[number] = self._more(rest, number, size)
            last = [tuple(heads[n][-1, : KeyColumn.PLACE].tolist()) for n, (start, end) in enumerate(rest) if start < end]
            if not last:
                yield reduce_rows(np.concatenate(heads))
                return
            limit = min(last)
            counts = [count_below(head, limit) for head in heads]
            if any(counts):
                yield reduce_rows(np.concatenate([head[:count] for head, count in zip(heads, counts, strict=True)]))
                heads = [head[count:] for head, count in zip(heads, counts, strict=True)]
                continue
            for number, (start, end) in enumerate(rest):
                if start < end and tuple(heads[number][-1, : KeyColumn.PLACE].tolist()) == limit:
                    heads[number] = np.concatenate((heads[number], self._more(rest, number, size)))

    def _more(self, rest: list[tuple[int, int]], number: int, size: int) -> "Ints":
        """The next `size` rows of a run; `rest` has the bytes of each run that were not read."""
        start, end = rest[number]
        stop = min(start + size * _ROW_BYTES, end)
        rest[number] = (stop, end)
        if start == stop:
            return np.empty((0, ROW_WIDTH), np.int64)
        assert self._file is not None
        self._file.seek(start)
        return np.frombuffer(self._file.read(stop - start), np.int64).reshape(-1, ROW_WIDTH)


def count_below(rows: "Ints", key: tuple[int, ...]) -> int:
    """How many of the sorted rows have a lower key."""
    high = rows[:, KeyColumn.KEY_HIGH]
    first, end = int(np.searchsorted(high, key[0], "left")), int(np.searchsorted(high, key[0], "right"))
    return first + int(np.searchsorted(rows[first:end, KeyColumn.KEY_LOW], key[1], "left"))
