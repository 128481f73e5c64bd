"""`report`: a scan, and of the partitions that are drawn what its rows do not hold: elections, histories, transactions, bytes."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from heapq import heappush, heappushpop
from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.transactions import TransactionColumn
from kafka_forensics.analysis.transactions_across import best_copy
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan, gather, typed_path
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC, CONTROL_ABORT
from kafka_forensics.model.controller import PartitionControl
from kafka_forensics.model.findings import Severity, TopicPartition
from kafka_forensics.model.json_objects import JsonRow
from kafka_forensics.model.results import VERDICTS, Incomplete, Read, ScanResult
from kafka_forensics.parsers.log_dir import FileKind
from kafka_forensics.questions.dump import DumpFile, DumpOptions, explained_rows
from kafka_forensics.questions.plan import PlanMaker, Planned, PlanOptions
from kafka_forensics.questions.transactions import paired_transactions
from kafka_forensics.scanning.engine.local import Progress, scan_inputs
from kafka_forensics.scanning.judging.partitions import PartitionResult
from kafka_forensics.scanning.judging.whole_scan import Listener, ScanInterruptedError
from kafka_forensics.scanning.rereading.reader import LogReader
from kafka_forensics.scanning.witnesses.witnesses import Witnesses, read_witnesses
from kafka_forensics.storage.open import sha256
from kafka_forensics.storage.source import EntryKind

if TYPE_CHECKING:
    from kafka_forensics.storage.source import ByteSource, Entry

Gravity = tuple[int, int, bool]

DRAWN: Final = 200
"""Partitions that are drawn, the worst of all; of the rest only a row is told."""
TRANSACTIONS_KEPT: Final = 12
"""Open ones, the oldest first, and as many aborted ones, the newest."""
FIELDS_KEPT: Final = 40
"""Rows of annotated bytes of one side of a difference."""
_FIELDS_BEFORE: Final = 6
"""Of them, those before the first that differs."""
MOST_HOLE_BYTES: Final = 64 << 30
"""Of a file that is hashed; a hole costs nothing to make, and hours to read."""
_KEPT: Final = 2
"""For each that is drawn, partitions that are looked at closely: what all partitions show together may still change verdicts."""
_AGREEING: Final = frozenset({"identical", "prefix", "compacted", "not_compared"})


@dataclass(frozen=True, slots=True)
class TransactionSpan:
    """A transaction of one log: data in `[first_offset, last_offset]`, and the marker that ended it, None while it is open."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_offset: int
    marker_offset: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionTransactions:
    """Open and aborted transactions of a partition's best copy, by first offset; `left_out` counts further ones."""

    broker: int | str
    spans: list[TransactionSpan]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class DifferenceSide:
    """What one replica has at the first difference: the fields of its batch as `dump --explain` has them, and which differ."""

    broker: int | str
    file: str
    rows: list[JsonRow]
    differing: frozenset[int]
    """Numbers of the rows that the first side has otherwise, or not at all."""
    problem: str | None = None
    """Why there are no rows: it holds no batch there, or its file could not be read."""
    alike: tuple[int | str, ...] = ()
    """Other brokers that have the same there."""


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The batches around the first offset at which replicas part."""

    offset: int
    sides: list[DifferenceSide]


@dataclass(slots=True)
class PartitionDetails:
    """What is known of one partition beyond its row in a scan; None: not asked for, or no file tells."""

    planned: Planned | None = None
    control: PartitionControl | None = None
    transactions: PartitionTransactions | None = None
    difference: FirstDifference | None = None


@dataclass(frozen=True, slots=True)
class HashedFile:
    """A file that was read, as the user would type its path."""

    path: str
    size_in_bytes: int
    sha256: str | None
    """None: so much of it is a hole that reading it would never end, see `MOST_HOLE_BYTES`."""


@dataclass(slots=True)
class Reported:
    """A scan with the details of those partitions that may be drawn, and the range of the batches' own timestamps, None without."""

    result: ScanResult
    details: dict[TopicPartition, PartitionDetails] = field(default_factory=dict)
    oldest_ms: int | None = None
    newest_ms: int | None = None
    hashes: list[HashedFile] | None = None
    """None: not asked for."""


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """What a report is asked for beyond what a scan is."""

    payloads: bool = False
    """Whether the bytes of the first difference are shown."""
    hashes: bool = False
    """Whether every file that was read is read once more for its SHA-256."""


def report(
    paths: list[str],
    options: ScanOptions,
    asked: ReportOptions,
    progress: Progress | None = None,
    listener: Listener | None = None,
) -> Reported:
    """Scan the paths, and look closer at every partition that may be drawn. Raises UsageError for paths that make no sense."""
    inputs = gather(paths, options, scanned=True)
    witnesses = read_witnesses(inputs)
    closer = _Closer(inputs, PlanMaker(inputs, witnesses, PlanOptions()), asked)
    try:
        result = scan_inputs(inputs, options, progress, closer.look, witnesses, listener)
    except ScanInterruptedError as interruption:
        return Reported(interruption.result, closer.details, closer.oldest_ms, closer.newest_ms)
    hashes = list(_hashed(inputs, result.incomplete)) if asked.hashes else None
    return Reported(result, closer.details, closer.oldest_ms, closer.newest_ms, hashes)


def histories(inputs: Inputs) -> dict[TopicPartition, PartitionDetails]:
    """Of every partition that was scanned elsewhere what is known here: who led it, and who was in sync."""
    contexts = (plan.context for plan in inputs.replicas if plan.context.control is not None)
    return {(context.topic, context.partition): PartitionDetails(control=context.control) for context in contexts}


def details_of(inputs: Inputs, options: ScanOptions, witnesses: Witnesses, where: TopicPartition) -> PartitionDetails:
    """The details of one partition of what was gathered, whose logs are read again; none if it is not there."""
    plans = [plan for plan in inputs.replicas if (plan.context.topic, plan.context.partition) == where]
    chosen = replace(inputs, replicas=plans, incomplete=list(inputs.incomplete))
    closer = _Closer(chosen, PlanMaker(inputs, witnesses, PlanOptions()), ReportOptions())
    scan_inputs(chosen, options, None, closer.look, witnesses)
    return closer.details.get(where, PartitionDetails())


def gravity(verdict: str, lost: Iterable[tuple[int, int | None]], agreement: str) -> Gravity:
    """In which order partitions are drawn, the largest first: by the verdict, then by the offsets `[start, end)` that critical
    findings name, then those whose replicas disagree."""
    return VERDICTS.index(verdict), sum(end - start for start, end in lost if end is not None), agreement not in _AGREEING


class _Closer:
    """Looks closer at a partition whenever the scan has judged one."""

    def __init__(self, inputs: Inputs, maker: PlanMaker, asked: ReportOptions) -> None:
        self.details: dict[TopicPartition, PartitionDetails] = {}
        self.oldest_ms: int | None = None
        self.newest_ms: int | None = None
        self._seen = 0
        self._gravest: list[tuple[Gravity, int, TopicPartition]] = []
        """A heap of those that are kept, the least grave first, of equals the last."""
        self._maker, self._asked = maker, asked
        self._plan_of = {id(plan.context): plan for plan in inputs.replicas}

    def look(self, replicas: list[Replica], reader: LogReader, result: PartitionResult) -> None:
        """Take the replicas of one partition, unless as many as are kept are graver, or as grave."""
        read = [replica for replica in replicas if replica.read is not Read.NONE]
        self._take_times(read, reader)
        context = replicas[0].context
        if not self._is_kept((context.topic, context.partition), result):
            return
        details = PartitionDetails(control=context.control)
        if context.topic != CLUSTER_METADATA_TOPIC:
            details.planned = self._maker.plan_of(replicas, reader, result)
        if read:
            details.transactions = self._transactions(best_copy(read), result)
        if self._asked.payloads and len(read) > 1:
            details.difference = self._difference(read, result)
        self.details[context.topic, context.partition] = details

    def _is_kept(self, where: TopicPartition, result: PartitionResult) -> bool:
        """Whether the partition is among the gravest so far; one that is no more among them is forgotten."""
        lost = [
            (finding.place.offset_start or 0, finding.place.offset_end)
            for finding in result.findings
            if finding.severity is Severity.CRITICAL
        ]
        key = gravity(result.summary.verdict, lost, result.summary.agreement.kind)
        self._seen += 1
        entry = key, -self._seen, where
        if len(self._gravest) < _KEPT * DRAWN:
            heappush(self._gravest, entry)
            return True
        dropped = heappushpop(self._gravest, entry)
        self.details.pop(dropped[2], None)
        return dropped is not entry

    def _take_times(self, read: list[Replica], reader: LogReader) -> None:
        """Widen the range of times by these logs: the newest of all batches, the oldest of the first batch."""
        newest = max((replica.state.framing.max_timestamp for replica in read), default=-1)
        if newest >= 0:
            self.newest_ms = max(newest, -1 if self.newest_ms is None else self.newest_ms)
        first = min(read, key=lambda replica: replica.first_batch_offset, default=None)
        if first is None or not first.state.framing.batches:
            return
        rows = reader.batches(first, first.first_batch_offset, first.first_batch_offset + 1)
        times = [int(moment) for moment in rows[BatchColumn.BASE_TIMESTAMP] if moment >= 0]
        self.oldest_ms = min([*times, *([] if self.oldest_ms is None else [self.oldest_ms])], default=None)

    def _transactions(self, best: Replica, result: PartitionResult) -> PartitionTransactions | None:
        """Open transactions from the folded log; aborted ones from a second reading of a log that has any."""
        fold = best.state.transactions
        counts = fold.counts()
        spans = [
            TransactionSpan(open_one.producer_id, open_one.producer_epoch, open_one.first_offset, open_one.last_offset)
            for open_one in fold.open_transactions(TRANSACTIONS_KEPT)
        ]
        if counts.aborted:
            spans += _aborted(self._plan_of[id(best.context)], result.incomplete)
        if not spans:
            return None
        left_out = (counts.open or 0) + (counts.aborted or 0) - len(spans)
        return PartitionTransactions(best.broker, sorted(spans, key=lambda span: span.first_offset), max(left_out, 0))

    def _difference(self, read: list[Replica], result: PartitionResult) -> FirstDifference | None:
        """The bytes at the fork of the first replica of each side."""
        agreement = result.summary.agreement
        offset = agreement.common_end_offset
        if agreement.kind not in ("conflict", "content") or offset is None:
            return None
        by_epoch: dict[int | None, Replica] = {}
        for replica in read:
            if replica.log_start_offset <= offset < replica.log_end_offset:
                epoch = agreement.fork_epochs.get(str(replica.broker))
                by_epoch.setdefault(epoch if len(set(agreement.fork_epochs.values())) > 1 else len(by_epoch), replica)
        sides = _unlike(_explained(replica, self._plan_of[id(replica.context)], offset) for replica in by_epoch.values())
        return FirstDifference(offset, _marked(sides)) if len(sides) > 1 else None


def _aborted(plan: ReplicaPlan, incomplete: list[Incomplete]) -> Iterator[TransactionSpan]:
    """The newest aborted transactions of a log."""
    newest: deque[list[int]] = deque(maxlen=TRANSACTIONS_KEPT)
    for paired, ended in paired_transactions(plan, incomplete):
        if ended:
            aborted = (paired[TransactionColumn.MARKER_TYPE] == CONTROL_ABORT) & (paired[TransactionColumn.BATCHES] > 0)
            newest.extend(paired[:, aborted][:, -TRANSACTIONS_KEPT:].T.tolist())
    for row in newest:
        yield TransactionSpan(
            row[TransactionColumn.PRODUCER_ID],
            row[TransactionColumn.PRODUCER_EPOCH],
            row[TransactionColumn.FIRST_OFFSET],
            row[TransactionColumn.LAST_OFFSET],
            row[TransactionColumn.MARKER_OFFSET],
        )


def _explained(replica: Replica, plan: ReplicaPlan, offset: int) -> DifferenceSide:
    """The fields of the batch that holds an offset."""
    segment = plan.directory.segment_of(offset)
    if segment is None or segment.log is None:
        return DifferenceSide(replica.broker, "", [], frozenset(), "no segment of its log reaches there")
    source, log = plan.log_dir.source, segment.log
    shown = typed_path(source, log.path)
    file = DumpFile(source, log.path, shown, FileKind.LOG, segment.base_offset, log.size_in_bytes)
    asked = DumpOptions(records=True, show_payloads=True, offset_start=offset, offset_end=offset + 1)
    try:
        rows = list(explained_rows(file, asked))
    except SourceError as error:
        return DifferenceSide(replica.broker, shown, [], frozenset(), error.reason)
    return DifferenceSide(replica.broker, shown, rows, frozenset(), None if rows else "no batch of its log holds the offset")


def _unlike(sides: Iterable[DifferenceSide]) -> list[DifferenceSide]:
    """The sides that hold different things; of equal ones the first, which names the others."""
    unlike: list[DifferenceSide] = []
    for side in sides:
        fields = list(map(_field, side.rows))
        at = next((at for at, other in enumerate(unlike) if fields and list(map(_field, other.rows)) == fields), None)
        if at is None:
            unlike.append(side)
        else:
            unlike[at] = replace(unlike[at], alike=(*unlike[at].alike, side.broker))
    return unlike


def _marked(sides: list[DifferenceSide]) -> list[DifferenceSide]:
    """The sides with what differs from the first, cut to the fields around the first difference."""
    first = [_field(row) for row in sides[0].rows]
    others = [[_field(row) for row in side.rows] for side in sides[1:]]
    apart = {
        number
        for number in range(max(map(len, (first, *others))))
        if any(first[number : number + 1] != other[number : number + 1] for other in others)
    }
    begin = max(min(apart, default=0) - _FIELDS_BEFORE, 0)
    shown = range(begin, begin + FIELDS_KEPT)
    return [
        DifferenceSide(
            side.broker,
            side.file,
            side.rows[begin : shown.stop],
            frozenset(number - begin for number in apart if number in shown and number < len(side.rows)),
            side.problem,
            side.alike,
        )
        for side in sides
    ]


def _field(row: JsonRow) -> JsonRow:
    """What is compared of a row: all but its place in the file."""
    structure, _, size_in_bytes, hexadecimal, name, value, _ = row
    return structure, size_in_bytes, hexadecimal, name, value


def _hashed(inputs: Inputs, incomplete: list[Incomplete]) -> Iterator[HashedFile]:
    """Every file that was read, of an archive the archive itself, once each."""
    files: dict[str, tuple[ByteSource, Entry]] = {}
    for source, entry in inputs.manifest.files():
        if entry.kind is EntryKind.FILE:
            files.setdefault(typed_path(source, entry.path), (source, entry))
    for path, (source, entry) in sorted(files.items()):
        holes = 0 if entry.allocated_bytes is None else entry.size_in_bytes - entry.allocated_bytes
        try:
            digest = None if holes > MOST_HOLE_BYTES else sha256(source, entry.path)
            yield HashedFile(path, entry.size_in_bytes, digest)
        except SourceError as error:
            incomplete.append(Incomplete(path, f"{error.reason}, while its SHA-256 was made"))
