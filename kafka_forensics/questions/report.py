"""`report`: a scan with the plans of all partitions, the history of the cluster, and differing bytes."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan, gather, typed_path
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.findings import Broker, TopicPartition
from kafka_forensics.model.json_objects import JsonRow
from kafka_forensics.model.results import Incomplete, ReadExtent, ScanResult
from kafka_forensics.parsers.log_dir import FileKind
from kafka_forensics.questions.cluster_history import ClusterHistory, cluster_history
from kafka_forensics.questions.dump import DumpFile, DumpOptions, explained_rows
from kafka_forensics.questions.plan import PlanMaker, Planned, PlanOptions, Plans, finish_plans
from kafka_forensics.questions.salvage import forecast
from kafka_forensics.scanning.engine.local import Progress, scan_inputs
from kafka_forensics.scanning.judging.partitions import PartitionResult
from kafka_forensics.scanning.judging.whole_scan import Listener, ScanInterruptedError
from kafka_forensics.scanning.rereading.reader import LogReader
from kafka_forensics.scanning.witnesses.witnesses import Witnesses, read_witnesses
from kafka_forensics.storage.open import sha256
from kafka_forensics.storage.source import EntryKind

if TYPE_CHECKING:
    from kafka_forensics.storage.source import ByteSource, Entry

DIFFERENCES_KEPT: Final = 400
"""Partitions with the bytes of their first difference."""
FIELDS_KEPT: Final = 40
"""Rows of annotated bytes on one side of a difference."""
_FIELDS_BEFORE: Final = 6
"""Those of them before the first that differs."""
MAX_HOLE_BYTES: Final = 64 << 30
"""Limit for the holes of a file that is hashed: holes are free to make, and take hours to read."""


class DifferenceSide(Struct, frozen=True):
    """One replica at the first difference: the fields of its batch as in `dump --explain`, and which of them differ."""

    broker: int | str
    file: str
    rows: list[JsonRow]
    differing: frozenset[int]
    """Numbers of the rows that differ from the first side, or that it lacks."""
    problem: str | None = None
    """Why there are no rows: it has no batch at this offset, or its file could not be read."""
    equal_brokers: tuple[int | str, ...] = ()
    """Other brokers with the same rows."""


class FirstDifference(Struct, frozen=True):
    """The batches at the first offset where replicas differ."""

    offset: int
    sides: list[DifferenceSide]


class InputHash(Struct, frozen=True):
    """A file that was read, with its path as the user would type it."""

    path: str
    size_in_bytes: int
    sha256: str | None
    """None if its holes are larger than `MAX_HOLE_BYTES`."""


class PageFacts(Struct):
    """What a page shows beside the document of a scan; empty or None: not known, or not requested."""

    planned: dict[TopicPartition, Planned] = field(default_factory=dict)
    history: ClusterHistory | None = None
    committed_ms: dict[Broker, int] = field(default_factory=dict)
    """Broker → time of its newest record below the high watermark of its copy."""
    differences: dict[TopicPartition, FirstDifference] = field(default_factory=dict)
    oldest_ms: int | None = None
    newest_ms: int | None = None
    """Of the batches' own timestamps."""
    hashes: list[InputHash] | None = None


class ReportContent(Struct):
    """A scan, its plans if they were made, and what else a page shows."""

    result: ScanResult
    plans: Plans | None = None
    facts: PageFacts = field(default_factory=PageFacts)


class ReportOptions(Struct, frozen=True):
    """Options of a report beside those of a scan."""

    payloads: bool = False
    """Whether to show the bytes of the first difference."""
    hashes: bool = False
    """Whether to read every file again for its SHA-256."""


def report(
    paths: list[str],
    options: ScanOptions,
    report_options: ReportOptions,
    progress: Progress | None = None,
    listener: Listener | None = None,
) -> ReportContent:
    """Scan the paths, plan all partitions, and collect what a page shows. Raises UsageError for invalid paths."""
    inputs = gather(paths, options, scanned=True)
    witnesses = read_witnesses(inputs)
    maker = PlanMaker(inputs, witnesses, PlanOptions(forecast=forecast))
    collector = _FactCollector(inputs, maker, report_options)
    facts = collector.facts
    try:
        result = scan_inputs(inputs, options, progress, collector.on_partition, witnesses, listener)
        facts.hashes = list(_hashed(inputs, result.incomplete)) if report_options.hashes else None
    except ScanInterruptedError as interruption:
        result = interruption.result
    maker.plans.result = result
    finish_plans(maker.plans, inputs, witnesses, options)
    facts.planned = {(planned.plan.topic, planned.plan.partition): planned for planned in maker.plans.planned}
    facts.history = cluster_history(witnesses.controller)
    return ReportContent(result, maker.plans, facts)


def plan_again(inputs: Inputs, options: ScanOptions, witnesses: Witnesses, where: TopicPartition) -> Planned | None:
    """The plan of one gathered partition, whose logs are read again; None if it is not among the inputs."""
    plans = [plan for plan in inputs.replicas if plan.context.topic_partition == where]
    chosen = replace(inputs, replicas=plans, incomplete=list(inputs.incomplete))
    maker = PlanMaker(inputs, witnesses, PlanOptions())
    scan_inputs(chosen, options, None, maker.on_partition, witnesses)
    return next(iter(maker.plans.planned), None)


class _FactCollector:
    """Plans each partition once the scan has judged it, and collects what a page shows of it."""

    def __init__(self, inputs: Inputs, maker: PlanMaker, report_options: ReportOptions) -> None:
        self.facts = PageFacts()
        self._maker, self._options = maker, report_options
        self._plan_of = {id(plan.context): plan for plan in inputs.replicas}

    def on_partition(self, replicas: list[Replica], reader: LogReader, result: PartitionResult) -> None:
        """Plan a judged partition, and note its times and its first difference."""
        read = [replica for replica in replicas if replica.read is not ReadExtent.NONE]
        self._maker.on_partition(replicas, reader, result)
        self._take_times(read, reader)
        if self._options.payloads and len(read) > 1 and len(self.facts.differences) < DIFFERENCES_KEPT:
            difference = self._difference(read, result)
            if difference is not None:
                self.facts.differences[replicas[0].context.topic_partition] = difference

    def _take_times(self, read: list[Replica], reader: LogReader) -> None:
        """Widen the range of times by these logs: the newest time of all batches, the oldest of the first batch."""
        facts = self.facts
        times = [replica.state.framing.max_timestamp for replica in read]
        facts.newest_ms = max([time for time in (*times, facts.newest_ms or -1) if time >= 0], default=None)
        for replica, newest in zip(read, times, strict=True):
            committed = self._committed_ms(replica, reader, newest)
            if replica.context.topic != CLUSTER_METADATA_TOPIC and committed >= 0:
                facts.committed_ms[replica.broker] = max(committed, facts.committed_ms.get(replica.broker, -1))
        first = min(read, key=lambda replica: replica.first_batch_offset, default=None)
        if first is None or not first.state.framing.batches:
            return
        rows = reader.batches(first, first.first_batch_offset, first.first_batch_offset + 1)
        oldest = [int(moment) for moment in rows[BatchColumn.BASE_TIMESTAMP] if moment >= 0]
        facts.oldest_ms = min([*oldest, *([] if facts.oldest_ms is None else [facts.oldest_ms])], default=None)

    def _committed_ms(self, replica: Replica, reader: LogReader, newest_ms: int) -> int:
        """Time of the newest record below the high watermark of a copy; -1: not known."""
        high_watermark = replica.context.high_watermark
        if high_watermark is None or high_watermark >= replica.log_end_offset:
            return -1 if high_watermark is None else newest_ms
        rows = reader.batches(replica, high_watermark - 1, high_watermark)
        return int(rows[BatchColumn.MAX_TIMESTAMP].max(initial=-1))

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
                sides[at] = replace(sides[at], equal_brokers=(*sides[at].equal_brokers, side.broker))
        return FirstDifference(offset, _around_difference(sides)) if len(sides) > 1 else None


def _explained(replica: Replica, plan: ReplicaPlan, offset: int) -> DifferenceSide:
    segment = plan.directory.segment_of(offset)
    if segment is None or segment.log is None:
        return DifferenceSide(replica.broker, "", [], frozenset(), "no segment of its log reaches there")
    source, log = plan.log_dir.source, segment.log
    shown = typed_path(source, log.path)
    file = DumpFile(source, log.path, shown, FileKind.LOG, segment.base_offset, log.size_in_bytes)
    report_options = DumpOptions(records=True, show_payloads=True, offset_start=offset, offset_end=offset + 1)
    try:
        rows = list(explained_rows(file, report_options))
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
            digest = None if holes > MAX_HOLE_BYTES else sha256(source, entry.path)
            yield InputHash(path, entry.size_in_bytes, digest)
        except SourceError as error:
            incomplete.append(Incomplete(path, f"{error.reason}, while its SHA-256 was computed"))
