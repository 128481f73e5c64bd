"""`report`: a scan, with elections, histories, transactions and differing bytes of the partitions that are drawn."""

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
from kafka_forensics.model.results import VERDICTS, Incomplete, ReadExtent, ScanResult
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

SeverityOrder = tuple[int, int, bool]

DRAWN: Final = 200
"""The most severe partitions, which are drawn; each of the others gets only a row."""
TRANSACTIONS_KEPT: Final = 12
"""The oldest open transactions, and as many of the newest aborted ones."""
FIELDS_KEPT: Final = 40
"""Rows of annotated bytes on one side of a difference."""
_FIELDS_BEFORE: Final = 6
"""Those of them before the first that differs."""
MOST_HOLE_BYTES: Final = 64 << 30
"""Limit for the holes of a file that is hashed: holes are free to make, and take hours to read."""
_KEPT: Final = 2
"""Partitions with details for each that is drawn, because what all partitions show together may still change verdicts."""
_AGREEING: Final = frozenset({"identical", "prefix", "compacted", "not_compared"})


@dataclass(frozen=True, slots=True)
class TransactionSpan:
    """A transaction of one log: data in `[first_offset, last_offset]`, and its marker, None while it is open."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_offset: int
    marker_offset: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionTransactions:
    """Open and aborted transactions of a partition's best copy, by first offset; `left_out` counts the others."""

    broker: int | str
    spans: list[TransactionSpan]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class DifferenceSide:
    """One replica at the first difference: the fields of its batch as in `dump --explain`, and which of them differ."""

    broker: int | str
    file: str
    rows: list[JsonRow]
    differing: frozenset[int]
    """Numbers of the rows that differ from the first side, or that it lacks."""
    problem: str | None = None
    """Why there are no rows: it has no batch at this offset, or its file could not be read."""
    alike: tuple[int | str, ...] = ()
    """Other brokers with the same rows."""


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The batches at the first offset where replicas differ."""

    offset: int
    sides: list[DifferenceSide]


@dataclass(slots=True)
class PartitionDetails:
    """Details of one partition beyond its row in a scan; None if not requested, or unknown."""

    planned: Planned | None = None
    control: PartitionControl | None = None
    transactions: PartitionTransactions | None = None
    difference: FirstDifference | None = None


@dataclass(frozen=True, slots=True)
class InputHash:
    """A file that was read, with its path as the user would type it."""

    path: str
    size_in_bytes: int
    sha256: str | None
    """None if its holes are larger than `MOST_HOLE_BYTES`."""


@dataclass(slots=True)
class Reported:
    """A scan with details of the partitions that may be drawn, and the range of the batches' timestamps, None without any."""

    result: ScanResult
    details: dict[TopicPartition, PartitionDetails] = field(default_factory=dict)
    oldest_ms: int | None = None
    newest_ms: int | None = None
    hashes: list[InputHash] | None = None
    """None if not requested."""


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Options of a report beside those of a scan."""

    payloads: bool = False
    """Whether to show the bytes of the first difference."""
    hashes: bool = False
    """Whether to read every file again for its SHA-256."""


def report(
    paths: list[str],
    options: ScanOptions,
    asked: ReportOptions,
    progress: Progress | None = None,
    listener: Listener | None = None,
) -> Reported:
    """Scan the paths, and collect details of every partition that may be drawn. Raises UsageError for invalid paths."""
    inputs = gather(paths, options, scanned=True)
    witnesses = read_witnesses(inputs)
    collector = _DetailsCollector(inputs, PlanMaker(inputs, witnesses, PlanOptions()), asked)
    hashes = None
    try:
        result = scan_inputs(inputs, options, progress, collector.look, witnesses, listener)
        hashes = list(_hashed(inputs, result.incomplete)) if asked.hashes else None
    except ScanInterruptedError as interruption:
        result = interruption.result
    return Reported(result, collector.details, collector.oldest_ms, collector.newest_ms, hashes)


def controller_histories(inputs: Inputs) -> dict[TopicPartition, PartitionDetails]:
    """The history of leaders and ISRs of every partition that was scanned elsewhere."""
    contexts = (plan.context for plan in inputs.replicas if plan.context.control is not None)
    return {context.topic_partition: PartitionDetails(control=context.control) for context in contexts}


def details_of(inputs: Inputs, options: ScanOptions, witnesses: Witnesses, where: TopicPartition) -> PartitionDetails:
    """Details of one gathered partition, whose logs are read again; empty if it is not among the inputs."""
    plans = [plan for plan in inputs.replicas if plan.context.topic_partition == where]
    chosen = replace(inputs, replicas=plans, incomplete=list(inputs.incomplete))
    collector = _DetailsCollector(chosen, PlanMaker(inputs, witnesses, PlanOptions()), ReportOptions())
    scan_inputs(chosen, options, None, collector.look, witnesses)
    return collector.details.get(where, PartitionDetails())


def severity_order(verdict: str, lost: Iterable[tuple[int, int | None]], agreement: str) -> SeverityOrder:
    """Severity of a partition, the largest is drawn first: its verdict, how many offsets critical findings name as ranges
    `[start, end)` in `lost`, and whether its replicas disagree."""
    return VERDICTS.index(verdict), sum(end - start for start, end in lost if end is not None), agreement not in _AGREEING


class _DetailsCollector:
    """Collects details of each partition once the scan has judged it."""

    def __init__(self, inputs: Inputs, maker: PlanMaker, asked: ReportOptions) -> None:
        self.details: dict[TopicPartition, PartitionDetails] = {}
        self.oldest_ms: int | None = None
        self.newest_ms: int | None = None
        self._partitions = 0
        self._most_severe: list[tuple[SeverityOrder, int, TopicPartition]] = []
        """A heap of the partitions that are kept; first the least severe, of equal ones the latest."""
        self._maker, self._options = maker, asked
        self._plan_of = {id(plan.context): plan for plan in inputs.replicas}

    def look(self, replicas: list[Replica], reader: LogReader, result: PartitionResult) -> None:
        """Collect the details of a judged partition unless enough earlier ones are at least as severe."""
        read = [replica for replica in replicas if replica.read is not ReadExtent.NONE]
        self._take_times(read, reader)
        context = replicas[0].context
        if not self._is_kept(context.topic_partition, result):
            return
        details = PartitionDetails(control=context.control)
        if context.topic != CLUSTER_METADATA_TOPIC:
            details.planned = self._maker.plan_of(replicas, reader, result)
        if read:
            details.transactions = self._transactions(best_copy(read), result)
        if self._options.payloads and len(read) > 1:
            details.difference = self._difference(read, result)
        self.details[context.topic_partition] = details

    def _is_kept(self, where: TopicPartition, result: PartitionResult) -> bool:
        """Whether the partition is among the most severe so far; it may displace another, whose details are dropped."""
        lost = [
            (finding.place.offset_start or 0, finding.place.offset_end)
            for finding in result.findings
            if finding.severity is Severity.CRITICAL
        ]
        self._partitions += 1
        entry = severity_order(result.summary.verdict, lost, result.summary.agreement.kind), -self._partitions, where
        if len(self._most_severe) < _KEPT * DRAWN:
            heappush(self._most_severe, entry)
            return True
        dropped = heappushpop(self._most_severe, entry)
        self.details.pop(dropped[2], None)
        return dropped is not entry

    def _take_times(self, read: list[Replica], reader: LogReader) -> None:
        """Widen the range of times by these logs: the newest time of all batches, the oldest of the first batch."""
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
        """Open transactions from the fold over the log, aborted ones, if there are any, from a second reading."""
        fold = best.state.transactions
        counts = fold.counts()
        spans = [
            TransactionSpan(transaction.producer_id, transaction.producer_epoch, transaction.first_offset, transaction.last_offset)
            for transaction in fold.open_transactions(TRANSACTIONS_KEPT)
        ]
        if counts.aborted:
            spans += _aborted(self._plan_of[id(best.context)], result.incomplete)
        if not spans:
            return None
        left_out = (counts.open or 0) + (counts.aborted or 0) - len(spans)
        return PartitionTransactions(best.broker, sorted(spans, key=lambda span: span.first_offset), max(left_out, 0))

    def _difference(self, read: list[Replica], result: PartitionResult) -> FirstDifference | None:
        """The batch at the fork, of the first replica on each side."""
        agreement = result.summary.agreement
        offset = agreement.common_end_offset
        if agreement.kind not in ("conflict", "content") or offset is None:
            return None
        by_epoch: dict[int | None, Replica] = {}
        for replica in read:
            if replica.log_start_offset <= offset < replica.log_end_offset:
                epoch = agreement.fork_epochs.get(str(replica.broker))
                by_epoch.setdefault(epoch if len(set(agreement.fork_epochs.values())) > 1 else len(by_epoch), replica)
        sides: list[DifferenceSide] = []
        for side in (_explained(replica, self._plan_of[id(replica.context)], offset) for replica in by_epoch.values()):
            compared = list(map(_compared_fields, side.rows))
            same = (at for at, other in enumerate(sides) if compared and list(map(_compared_fields, other.rows)) == compared)
            if (at := next(same, None)) is None:
                sides.append(side)
            else:
                sides[at] = replace(sides[at], alike=(*sides[at].alike, side.broker))
        return FirstDifference(offset, _around_difference(sides)) if len(sides) > 1 else None


def _aborted(plan: ReplicaPlan, incomplete: list[Incomplete]) -> Iterator[TransactionSpan]:
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


def _around_difference(sides: list[DifferenceSide]) -> list[DifferenceSide]:
    """The sides with the rows that differ from the first side marked, cut to the rows around the first difference."""
    first = [_compared_fields(row) for row in sides[0].rows]
    others = [[_compared_fields(row) for row in side.rows] for side in sides[1:]]
    rows = range(max(map(len, (first, *others))))
    differing = {row for row in rows if any(first[row : row + 1] != other[row : row + 1] for other in others)}
    begin = max(min(differing, default=0) - _FIELDS_BEFORE, 0)
    end = begin + FIELDS_KEPT
    return [
        replace(
            side,
            rows=side.rows[begin:end],
            differing=frozenset(row - begin for row in differing if begin <= row < min(end, len(side.rows))),
        )
        for side in sides
    ]


def _compared_fields(row: JsonRow) -> JsonRow:
    """A row without its position in the file and its meaning."""
    structure, _, size_in_bytes, hexadecimal, name, value, _ = row
    return structure, size_in_bytes, hexadecimal, name, value


def _hashed(inputs: Inputs, incomplete: list[Incomplete]) -> Iterator[InputHash]:
    """Every file that was read, once each; an archive instead of its members."""
    files: dict[str, tuple[ByteSource, Entry]] = {}
    for source, entry in inputs.manifest.files():
        if entry.kind is EntryKind.FILE:
            files.setdefault(typed_path(source, entry.path), (source, entry))
    for path, (source, entry) in sorted(files.items()):
        holes = 0 if entry.allocated_bytes is None else entry.size_in_bytes - entry.allocated_bytes
        try:
            digest = None if holes > MOST_HOLE_BYTES else sha256(source, entry.path)
            yield InputHash(path, entry.size_in_bytes, digest)
        except SourceError as error:
            incomplete.append(Incomplete(path, f"{error.reason}, while its SHA-256 was computed"))
