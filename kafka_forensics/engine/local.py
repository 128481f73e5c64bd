"""The local engine: this machine's cores, no Java. Threads, because kernels and reads hold no interpreter lock."""

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.analysis.replica import Replica, ReplicaState, whole
from kafka_forensics.analysis.risky_settings import risky_settings
from kafka_forensics.analysis.transactions_across import TransactionsAcross
from kafka_forensics.analysis.witnesses import Witnesses
from kafka_forensics.compiled import use_compiled, using_compiled, worth_compiling
from kafka_forensics.engine.ahead import LARGE, ROOM, Walk, in_order, never
from kafka_forensics.engine.controller import take_control
from kafka_forensics.engine.environment import changed_findings, environment_findings, lost_partitions
from kafka_forensics.engine.folding import Folded, Pause, RecentIndexes, fold_split
from kafka_forensics.engine.inputs import Inputs, ReplicaPlan, broker_order, gather
from kafka_forensics.engine.options import ScanOptions
from kafka_forensics.engine.partitions import PartitionResult, judge_partition
from kafka_forensics.engine.placement import TopicPlacements
from kafka_forensics.engine.reader import LogReader
from kafka_forensics.engine.signatures import scan_matches
from kafka_forensics.engine.splits import Split, splits_of
from kafka_forensics.engine.transactions import SnapshotCheck
from kafka_forensics.engine.witnesses import read_witnesses, take_commits
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.results import BrokerSummary, Incomplete, PartitionSummary, ScanResult, Totals
from kafka_forensics.storage.archive import reading_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.storage.source import ByteSource

Progress = Callable[[int, int], None]
"""Called as `progress(bytes_done, bytes_total)`, from one thread."""
Look = Callable[[list[Replica], LogReader, PartitionResult], None]
"""Shown each partition once it is judged: its replicas, whose logs can be read again, and the result, which it may add to."""

DEEP_BELOW_BYTES: Final = 256 << 20
"""Logs of at most this many bytes in all are decoded to records unless the user says otherwise."""


def scan(paths: list[str], options: ScanOptions, progress: Progress | None = None) -> ScanResult:
    """Scan log directories, archives and files. Raises UsageError for paths that make no sense; bad bytes are findings."""
    return scan_inputs(gather(paths, options), options, progress)


def scan_inputs(
    inputs: Inputs,
    options: ScanOptions,
    progress: Progress | None = None,
    look: Look | None = None,
    witnesses: Witnesses | None = None,
) -> ScanResult:
    """Scan what was gathered; `look` is shown every partition. `witnesses` are read unless they have been already."""
    total = sum(plan.bytes for plan in inputs.replicas)
    deep = total <= DEEP_BELOW_BYTES if options.deep is None else options.deep
    use_compiled(worth_compiling(max(total, sum(plan.bytes for plan in inputs.internal))))
    key = np.array([[secrets.randbits(63), secrets.randbits(63)]], np.int64)
    totals = Totals(records_decoded=deep)
    witnesses = read_witnesses(inputs) if witnesses is None else witnesses
    inputs.features = {} if witnesses.controller is None else witnesses.controller.features
    for plan in inputs.replicas:
        take_control(plan, witnesses)
        take_commits(plan, witnesses)
    findings = lost_partitions(inputs, witnesses.controller, environment_findings(inputs)) + witnesses.findings
    partitions: list[PartitionSummary] = []
    incomplete = list(inputs.incomplete)
    controller_ms = None if witnesses.controller is None else witnesses.controller.last_ms
    across = TransactionsAcross(witnesses.transaction_log, options.as_of_ms, controller_ms)
    placements = TopicPlacements(inputs, witnesses)

    def looked(replicas: list[Replica], reader: LogReader, result: PartitionResult) -> None:
        across.add(replicas)
        placements.add(replicas)
        if look is not None:
            look(replicas, reader, result)

    for result in _partitions(inputs, key, options, deep, _Report(progress, total, incomplete), looked):
        partitions.append(result.summary)
        findings += result.findings
        incomplete += result.incomplete
        _count(totals, result)
    incomplete += [Incomplete(source.name, problem) for source in inputs.sources for problem in source.problems]
    findings = across.finish(findings, partitions) + placements.finish()
    findings += risky_settings(witnesses.controller, {plan.context.topic for plan in inputs.replicas}, findings, options.as_of_ms)
    findings += changed_findings(inputs)
    findings += scan_matches(findings, inputs)
    findings.sort(key=Finding.sort_key)
    brokers = _brokers(inputs)
    totals.brokers = sum(options.broker in (None, str(one.broker)) for one in brokers)
    seen = {(one.path, one.reason): one for one in incomplete}
    return ScanResult("local", brokers, partitions, findings, totals, [seen[key] for key in sorted(seen)])


def _brokers(inputs: Inputs) -> list[BrokerSummary]:
    by_broker: dict[int | str, BrokerSummary] = {}
    for one in inputs.log_dirs:
        cluster = None if one.meta is None else one.meta.cluster_id
        summary = by_broker.setdefault(one.broker, BrokerSummary(one.broker, cluster, [], clean_shutdown=True))
        summary.log_dirs.append(one.name)
        summary.clean_shutdown &= one.clean_shutdown is not None
    return [by_broker[broker] for broker in sorted(by_broker, key=broker_order)]


def _count(totals: Totals, result: PartitionResult) -> None:
    totals.partitions += 1
    for replica in result.summary.replicas:
        totals.replicas += 1
        totals.segments += replica.segments
        totals.batches += replica.batches
        totals.records += replica.records
    decoded, damaged, skipped = result.bytes
    totals.bytes_decoded += decoded
    totals.bytes_damaged += damaged
    totals.bytes_skipped += skipped
    totals.bytes_total += decoded + damaged + skipped


def _partitions(
    inputs: Inputs,
    key: "NDArray[np.int64]",
    options: ScanOptions,
    deep: bool,
    report: "_Report",
    look: Look | None,
) -> Iterator[PartitionResult]:
    """Results partition by partition, in order; splits of later partitions are folded meanwhile."""
    pending: list[tuple[ReplicaPlan, Replica, SnapshotCheck]] = []
    for plan, replica, snapshot in _replicas(inputs, key, options.jobs, deep, report):
        if pending and _partition(pending[0][0]) != _partition(plan):
            yield _judged(pending, key, options, look)
            pending = []
        pending.append((plan, replica, snapshot))
    if pending:
        yield _judged(pending, key, options, look)


def _partition(plan: ReplicaPlan) -> tuple[str, int]:
    return plan.context.topic, plan.context.partition


def _judged(
    pending: list[tuple[ReplicaPlan, Replica, SnapshotCheck]], key: "NDArray[np.int64]", options: ScanOptions, look: Look | None
) -> PartitionResult:
    plans = [plan for plan, _, _ in pending]
    replicas = [replica for _, replica, _ in pending]
    reader = LogReader(plans, key, options.as_of_ms)
    result = judge_partition(plans, replicas, [snapshot for _, _, snapshot in pending], reader)
    if look is not None:
        look(replicas, reader, result)
    return result


@dataclass(slots=True)
class _Report:
    """Where the merging thread tells how far it is and what could not be read."""

    progress: Progress | None
    total: int
    incomplete: list[Incomplete]
    done: int = 0

    def folded(self, one: Folded) -> None:
        """Count a split, or a stretch of one, that is merged."""
        self.done += one.split.end - one.split.start
        if one.incomplete is not None:
            self.incomplete.append(one.incomplete)
        if self.progress is not None:
            self.progress(self.done, self.total)


def _replicas(
    inputs: Inputs, key: "NDArray[np.int64]", jobs: int, deep: bool, report: _Report
) -> Iterator[tuple[ReplicaPlan, Replica, SnapshotCheck]]:
    """Every replica, folded and whole, in the order of the plans."""
    plans = inputs.replicas

    recent = RecentIndexes()

    def fold(split: Split, pause: Pause) -> Iterator[Folded]:
        plan = plans[split.replica]
        return fold_split(plan, split, key, recent.of(plan, split), pause, deep=deep)

    packed = _fold_packed(plans, fold)

    def fold_once(split: Split, pause: Pause) -> Iterator[Folded]:
        return iter(packed.pop(split)) if split in packed else fold(split, pause)

    def alone(split: Split) -> bool:
        return not plans[split.replica].log_dir.source.seekable

    splits = (split for index, plan in enumerate(plans) for split in [*splits_of(index, plan), None])
    merged: ReplicaState | None = None
    index = 0
    landed = 0
    snapshot = SnapshotCheck(plans[0], inputs) if plans else None
    for folded in in_order(fold_once, splits, jobs if using_compiled() else 1, alone):
        plan = plans[index]
        assert snapshot is not None
        if folded is None:
            state = merged or ReplicaState(0, compacted=plan.context.compacted)
            replica = whole(plan.context, state)
            snapshot.at(replica.log_end_offset, state)
            snapshot.rest()
            state.close()
            yield plan, replica, snapshot
            merged = None
            index += 1
            snapshot = SnapshotCheck(plans[index], inputs) if index < len(plans) else None
            continue
        split = folded.split
        right = split.first or landed == split.start
        for one in [folded] if right else fold(replace(split, start=min(landed, split.end)), never):
            landed = one.landed if one.split.first else max(landed, one.landed)
            report.folded(one)
            if merged is None:
                merged = one.state
                continue
            if one.split.first:
                snapshot.at(split.segment.base_offset, merged)
            merged.make_room(one.state)
            merged.merge(one.state)
            snapshot.merged(merged)


def _fold_packed(plans: list[ReplicaPlan], fold: Walk) -> dict[Split, list[Folded]]:
    """Splits of sources that cannot seek, folded as they lie in their archives: one inflation each, whatever order is judged.

    When they hold too much together, the rest is left to be folded in its turn, at an inflation each.
    """
    by_source: dict[int, tuple[ByteSource, dict[str, Split]]] = {}
    for index, plan in enumerate(plans):
        source = plan.log_dir.source
        if not source.seekable:
            _, found = by_source.setdefault(id(source), (source, {}))
            found.update({split.segment.log.path: split for split in splits_of(index, plan) if split.segment.log is not None})
    answer: dict[Split, list[Folded]] = {}
    held = 0
    for source, found in by_source.values():
        for path in reading_order(source, found):
            stretches = []
            for one in fold(found[path], never):
                stretches.append(one)
                held += one.state.size_in_bytes if one.state.size_in_bytes >= LARGE else 0
                if held > ROOM:
                    return answer
            answer[found[path]] = stretches
    return answer
