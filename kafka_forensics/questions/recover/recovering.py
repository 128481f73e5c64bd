"""`recover`: the records that the losing copies of each partition hold and the surviving side does not."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from msgspec import Struct, field

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import finished_segments, left_out
from kafka_forensics.evidence.inputs import Inputs, gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC, WITNESS_TOPICS
from kafka_forensics.model.findings import Finding, TopicPartition
from kafka_forensics.model.offset_ranges import Ranges, clipped, normalised, without
from kafka_forensics.model.recovered import CommittedCounts, RecoveredRecord
from kafka_forensics.model.results import Incomplete, ReadExtent, ScanResult
from kafka_forensics.questions.plan import LossSize, PlanMaker, Planned, PlanOptions, check_dead, require_matching_node_ids
from kafka_forensics.questions.recover.partition_logs import PartitionLogs
from kafka_forensics.questions.recover.sides import KeptSide, PlannedLeader, PlannedLeaders, Undecided, kept_side, name_of_kept
from kafka_forensics.questions.recover.versions import LosingVersions, RecoveredRange
from kafka_forensics.replication.planner import WITHOUT_UPPER_BOUND, Broker, Candidate, Loss, Witness
from kafka_forensics.scanning.engine.local import Progress, scan_inputs
from kafka_forensics.scanning.judging.partitions import PartitionResult
from kafka_forensics.scanning.judging.whole_scan import digest_key
from kafka_forensics.scanning.rereading.reader import LogReader
from kafka_forensics.scanning.witnesses.remote_chains import fold_remote_logs, take_remote_logs
from kafka_forensics.scanning.witnesses.witnesses import Witnesses, read_witnesses

Sink = Callable[[RecoveredRecord], object]
"""Receives every recovered record, in order."""


class RecoveredPartition(Struct):
    """What the surviving side of one partition loses, and what was recovered of it."""

    topic: str
    partition: int
    side: KeptSide | Undecided
    planned: LossSize = field(default_factory=lambda: LossSize(0, 0))
    """The size of all losses by the plan."""
    committed: int = 0
    """Lost offsets that the plan proves committed."""
    at_least: int = 0
    """Committed lost offsets that no replica keeps."""
    at_most: int = 0
    """All lost offsets, those of each version counted."""
    at_most_is_bound: bool = True
    """Whether every replica was read: no more can be lost."""
    ranges: list[RecoveredRange] = field(default_factory=list)
    below_log_start: list[tuple[Broker, int]] = field(default_factory=list)
    """Brokers, and how many offsets they hold below the surviving log's start: deleted there, not lost."""
    missing: list[tuple[str, Broker | None]] = field(default_factory=list)
    """Missing evidence: (kind of the plan's `Missing`, broker)."""
    unreadable: Counter[str] = field(default_factory=Counter)
    """Why no copy has the records of some lost offsets (`model.recovered.UNREADABLE`) → how many offsets."""
    not_compared: bool = False
    """Whether the surviving log may hold some of the recovered records, because not all of its records could be read."""

    @property
    def key(self) -> TopicPartition:
        """Topic and partition."""
        return self.topic, self.partition

    @property
    def kept(self) -> Broker | None:
        """The broker whose copy is kept, None where the side is undecided."""
        return self.side.candidate.broker if isinstance(self.side, KeptSide) else None

    @property
    def count(self) -> CommittedCounts:
        """The outcome of all offsets."""
        return _total(recovered.count for recovered in self.ranges)


class Recovery(Struct):
    """The partitions that lose something, or for which that is unknown; of a single partition always."""

    given: tuple[str, ...] = ()
    """Paths as the user wrote them, without secrets."""
    partitions: list[RecoveredPartition] = field(default_factory=list)
    looked_at: int = 0
    by_raft: int = 0
    """Partitions of the controllers' log, whose leader the controllers elect among themselves."""
    incomplete: list[Incomplete] = field(default_factory=list)
    """Files that could not be read, by the scan or when their records were read."""
    may_hold_more: Counter[tuple[str, Broker | None]] = field(default_factory=Counter)
    """Missing evidence of all partitions that may hold further records: (kind of `Missing`, broker) → partitions."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Internal topics → partitions that lose records; they are recovered only if `topic` names them."""
    result: ScanResult | None = None

    @property
    def count(self) -> CommittedCounts:
        """The outcome of all offsets of all partitions."""
        return _total(partition.count for partition in self.partitions)

    @property
    def undecided(self) -> list[RecoveredPartition]:
        """Partitions of which no side is kept."""
        return [partition for partition in self.partitions if isinstance(partition.side, Undecided)]

    @property
    def is_complete(self) -> bool:
        """Whether all inputs, and all lost offsets, could be read."""
        return not (self.incomplete or self.undecided or self.count.all.unreadable)


def _total(counts: Iterable[CommittedCounts]) -> CommittedCounts:
    total = CommittedCounts()
    for count in counts:
        total.add(count)
    return total


def recover(
    paths: list[str],
    options: ScanOptions,
    keep: str | PlannedLeaders | None,
    sink: Sink,
    progress: Progress | None = None,
    *,
    dead: Collection[str] = (),
) -> Recovery:
    """Pass to `sink` every record that only losing copies hold, in the partitions that `options` select.

    `keep` is the broker whose copy is kept (its name here, or its node id), or the leaders of a plan; `dead` are brokers that will
    not come back. Raises UsageError for invalid paths, for a broker to keep that is dead or has no copy here, and for unknown dead
    brokers.
    """
    inputs = gather(paths, options)
    witnesses = read_witnesses(inputs)
    take_remote_logs(inputs, options, witnesses.remote_log)
    require_matching_node_ids(inputs)
    check_dead(dead, inputs, witnesses.controller)
    kept = name_of_kept(keep, inputs, dead) if isinstance(keep, str) else keep
    names_internal = options.topic_glob is not None and options.topic_glob.startswith("__")
    recoverer = _Recoverer(inputs, witnesses, kept, frozenset(dead), sink, with_internal_topics=names_internal)
    answer = recoverer.answer
    answer.result = scan_inputs(inputs, options, progress, recoverer.on_partition, witnesses)
    answer.incomplete += [unread for unread in answer.result.incomplete if unread not in answer.incomplete]
    return answer


class _Recoverer:
    """Recovers each partition once the scan has judged it."""

    def __init__(
        self,
        inputs: Inputs,
        witnesses: Witnesses,
        keep: str | PlannedLeaders | None,
        dead: frozenset[str],
        sink: Sink,
        *,
        with_internal_topics: bool,
    ) -> None:
        self.answer = Recovery(inputs.typed_paths)
        self._maker = PlanMaker(inputs, witnesses, PlanOptions(dead=dead))
        self._plan_of = {id(plan.context): plan for plan in inputs.replicas}
        self._inputs, self._coordinators, self._keep, self._sink = inputs, witnesses.transaction_log, keep, sink
        self._with_internal_topics = with_internal_topics

    def on_partition(self, replicas: list[Replica], reader: LogReader, result: PartitionResult) -> None:
        """Recover a judged partition, and keep its answer if it loses something or is the only one."""
        answer = self.answer
        if replicas[0].context.topic == CLUSTER_METADATA_TOPIC:
            answer.by_raft += 1
            return
        key = replicas[0].context.topic, replicas[0].context.partition
        keep = self._keep if self._keep is None or isinstance(self._keep, str) else self._keep.get(key)
        planned = self._maker.plan_of(replicas, reader, result, keep.truncate_by if isinstance(keep, PlannedLeader) else None)
        plan, side = planned.plan, kept_side(planned, keep)
        partition = RecoveredPartition(plan.topic, plan.partition, side, at_most_is_bound=plan.at_most_is_bound)
        partition.missing = [(missing.kind, missing.broker) for missing in plan.missing]
        if isinstance(side, KeptSide):
            loses = bool(side.candidate.losses)
        else:
            loses = bool(plan.at_stake) or any(candidate.losses for candidate in plan.candidates)
        if loses and plan.topic in WITNESS_TOPICS and not self._with_internal_topics:
            answer.left_out[plan.topic] += 1
            return
        if isinstance(side, KeptSide):
            losses = [*side.candidate.losses, *_remote_losses(side.candidate, result.findings, replicas)]
            self._take_losses(partition, planned, side.candidate, losses, self._maker.present(replicas)[0])
        else:
            for loss in _remote_losses(None, result.findings, replicas):
                partition.ranges.append(RecoveredRange(loss, LossSize(None, None)))
                partition.ranges[-1].count.note("unreadable", loss.start, loss.end, loss.end)
                partition.unreadable["in_remote_storage"] += loss.end - loss.start
        answer.may_hold_more.update(missing for missing in partition.missing if missing[0] in WITHOUT_UPPER_BOUND)
        answer.looked_at += 1
        if (
            answer.looked_at == 2
            and answer.partitions
            and not answer.partitions[0].ranges
            and answer.partitions[0].kept is not None
        ):
            answer.partitions.clear()
        if loses or partition.ranges or answer.looked_at == 1:
            answer.partitions.append(partition)

    def _take_losses(
        self, partition: RecoveredPartition, planned: Planned, kept: Candidate, losses: list[Loss], replicas: list[Replica]
    ) -> None:
        """Add the losses of the kept side by the plan, and read them with those that only remote segments hold."""
        partition.planned = planned.total(kept.losses)
        partition.committed, partition.at_least, partition.at_most = kept.costs()
        partition.below_log_start = [
            (follower.broker, follower.below_leaders_start) for follower in kept.followers if follower.below_leaders_start
        ]
        if not losses:
            return
        losses.sort(key=lambda loss: (loss.start, loss.end, str(loss.held_by)))
        lost = losses[0].start, max(loss.end for loss in losses)
        copies = [(replica, self._plan_of[id(replica.context)]) for replica in replicas if replica.read is not ReadExtent.NONE]
        folded = fold_remote_logs(self._inputs, replicas[0].context, digest_key(), self.answer.incomplete, lost[0])
        remote = [(replica, plan) for plan, replica in folded]
        logs = PartitionLogs(planned.planner_input, copies, self._coordinators, lost, kept.broker, remote)
        sizes = {loss: planned.amount(loss) for loss in kept.losses}
        partition.ranges = [RecoveredRange(loss, sizes.get(loss, LossSize(None, None)), logs.sources(loss)) for loss in losses]
        versions = LosingVersions(logs, partition.ranges)
        for record in versions.records():
            self._sink(record)
        if versions.unreadable["not_collected"]:
            logs.note_uncollected_survivors(losses)
        kept_log = logs.log(kept.broker)
        partition.unreadable, partition.not_compared = versions.unreadable, kept_log is not None and kept_log.not_compared
        partition.not_compared |= logs.lacks_surviving
        self.answer.incomplete += logs.incomplete


def _remote_losses(kept: Candidate | None, findings: Sequence[Finding], replicas: Sequence[Replica]) -> Iterator[Loss]:
    """Losses that only remote segments hold, and so no replica of the plan; none of what the kept log has."""
    planned = () if kept is None else normalised((loss.start, loss.end) for loss in kept.losses)
    for finding in findings:
        start, end = finding.place.offset_start, finding.place.offset_end
        if not finding.evidence.get("in_remote_storage") or finding.kind != "UNCLEAN_LOSS" or start is None or end is None:
            continue
        if kept is None or kept.broker in finding.evidence["leaders"]:
            lost: Ranges = ((start, end),)
        else:
            lost = clipped(_left_out_by(kept.broker, replicas), start, end)
        witness = _witness(finding, replicas)
        yield from (Loss(low, high, (), (), high, witness) for low, high in without(lost, planned))


def _left_out_by(broker: Broker, replicas: Sequence[Replica]) -> Ranges:
    """Offsets at which remote segments of older epochs have other records than the broker's log."""
    segments = finished_segments(replicas)
    logs = [replica for replica in replicas if replica.broker == broker]
    return normalised(span for log in logs for spans in left_out(log, segments).values() for span in spans)


def _witness(loss: Finding, replicas: Sequence[Replica]) -> Witness | None:
    """The last remote segment with the offsets of a loss, which proves them committed."""
    listed = {segment["segment_id"] for segment in loss.evidence.get("remote_segments", ())}
    logs = [replica.context.remote_log for replica in replicas if replica.context.remote_log is not None]
    segments = [segment for log in logs for segment in log.finished if segment.segment_id in listed]
    last = max(segments, key=lambda segment: segment.end_offset, default=None)
    return None if last is None else Witness(last.end_offset + 1, "remote_segment", last.broker_id, last.segment_id)
