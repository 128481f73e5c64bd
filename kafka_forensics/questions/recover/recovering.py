"""`recover`: what the election of the surviving side loses, read from those who hold it, without what is there all the same."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.evidence.inputs import Inputs, gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.offset_ranges import normalised, without
from kafka_forensics.model.recovered import Count, RecoveredRecord
from kafka_forensics.model.results import Incomplete, Read, ScanResult
from kafka_forensics.questions.plan import Amount, PlanMaker, Planned, PlanOptions, check_dead, check_names
from kafka_forensics.questions.recover.copies import Copies
from kafka_forensics.questions.recover.sides import Kept, Undecided, kept_side, name_of_kept
from kafka_forensics.questions.recover.versions import RecoveredRange, Versions
from kafka_forensics.replication.planner import UNBOUNDED, Broker, Loss
from kafka_forensics.scanning.engine.local import Progress, scan_inputs
from kafka_forensics.scanning.judging.partitions import PartitionResult
from kafka_forensics.scanning.rereading.reader import LogReader
from kafka_forensics.scanning.witnesses.witnesses import Witnesses, read_witnesses

Sink = Callable[[RecoveredRecord], object]
"""Takes every recovered record, in order."""


@dataclass(slots=True)
class RecoveredPartition:
    """What the surviving side of one partition loses, and what of it was recovered."""

    topic: str
    partition: int
    side: Kept | Undecided
    planned: Amount = field(default_factory=lambda: Amount(0, 0))
    """What the plan says that all losses come to."""
    committed: int = 0
    """Offsets lost that are proven committed, by the plan."""
    at_least: int = 0
    """Those of them that no replica keeps."""
    at_most: int = 0
    """All offsets lost, each version counted."""
    at_most_is_bound: bool = True
    """Whether every replica there is was read, so that no more can be lost."""
    ranges: list[RecoveredRange] = field(default_factory=list)
    below_log_start: list[tuple[Broker, int]] = field(default_factory=list)
    """Brokers and how many offsets they hold below the surviving log's start: deleted since, and not lost."""
    missing: list[tuple[str, Broker | None]] = field(default_factory=list)
    """Witnesses that are not there, as the plan calls them."""
    unreadable: Counter[str] = field(default_factory=Counter)
    """Why no copy gives what stood at some lost offsets (`model.recovered.UNREADABLE`) → how many."""
    not_compared: bool = False
    """Whether the surviving log may hold some of the records given, for not all of its own records could be had."""

    @property
    def kept(self) -> Broker | None:
        """The broker whose copy stays, None where no side was taken."""
        return self.side.candidate.broker if isinstance(self.side, Kept) else None

    @property
    def count(self) -> Count:
        """What became of all offsets."""
        total = Count()
        for recovered in self.ranges:
            total.add(recovered.count)
        return total


@dataclass(slots=True)
class Recovery:
    """The answer: the partitions that lose something, or of which that is not known; of a single partition always."""

    given: tuple[str, ...] = ()
    """Paths as they were given, without secrets."""
    partitions: list[RecoveredPartition] = field(default_factory=list)
    looked_at: int = 0
    by_raft: int = 0
    """Partitions of the controllers' log, whose leader they elect among themselves."""
    incomplete: list[Incomplete] = field(default_factory=list)
    """What could not be read, of the scan and of the records."""
    may_hold_more: Counter[tuple[str, Broker | None]] = field(default_factory=Counter)
    """What is not here, or could not be read, of all partitions looked at: (kind of `Missing`, broker) → partitions."""
    result: ScanResult | None = None

    @property
    def count(self) -> Count:
        """What became of all offsets of all partitions."""
        total = Count()
        for partition in self.partitions:
            total.add(partition.count)
        return total

    @property
    def undecided(self) -> list[RecoveredPartition]:
        """Partitions of which no side was taken."""
        return [partition for partition in self.partitions if isinstance(partition.side, Undecided)]

    @property
    def is_complete(self) -> bool:
        """Whether all that was given could be read, and all that was lost was."""
        return not (self.incomplete or self.undecided or self.count.all.unreadable)


def recover(
    paths: list[str],
    options: ScanOptions,
    keep: str | None,
    sink: Sink,
    progress: Progress | None = None,
    *,
    dead: Collection[str] = (),
) -> Recovery:
    """Give `sink` every record that only losing copies hold, of the partitions that `options` leave; `keep` is the broker whose
    copy stays (its name here, or its node id), `dead` are those that will not come back, as in `PlanOptions`.

    Raises UsageError for paths that make no sense, for a broker to be kept that is dead or of which no copy is here, and for dead
    ones that nothing here knows.
    """
    inputs = gather(paths, options)
    witnesses = read_witnesses(inputs)
    check_names(inputs)
    check_dead(dead, inputs, witnesses.controller)
    kept = name_of_kept(keep, inputs, dead)
    recovering = _Recovering(inputs, witnesses, kept, frozenset(dead), sink)
    answer = recovering.answer
    answer.result = scan_inputs(inputs, options, progress, recovering.look, witnesses)
    answer.incomplete += [gap for gap in answer.result.incomplete if gap not in answer.incomplete]
    return answer


class _Recovering:
    """Recovers a partition whenever the scan has judged one."""

    def __init__(self, inputs: Inputs, witnesses: Witnesses, keep: str | None, dead: frozenset[str], sink: Sink) -> None:
        self.answer = Recovery(inputs.given)
        self._maker = PlanMaker(inputs, witnesses, PlanOptions(dead=dead))
        self._plan_of = {id(plan.context): plan for plan in inputs.replicas}
        self._coordinators, self._keep, self._sink = witnesses.transaction_log, keep, sink

    def look(self, replicas: list[Replica], reader: LogReader, result: PartitionResult) -> None:
        """Take the replicas of one partition, which were judged."""
        if replicas[0].context.topic == CLUSTER_METADATA_TOPIC:
            self.answer.by_raft += 1
            return
        planned = self._maker.plan_of(replicas, reader, result)
        partition = _partition_of(planned, kept_side(planned, self._keep))
        if isinstance(partition.side, Kept) and partition.side.candidate.losses:
            self._recover(planned, partition, partition.side, self._maker.present(replicas)[0])
        _take_remote(partition, result.findings)
        unseen = [missing for missing in planned.plan.missing if missing.kind in UNBOUNDED]
        self.answer.may_hold_more.update((missing.kind, missing.broker) for missing in unseen)
        self._take(partition, matters=bool(partition.ranges) or (partition.kept is None and _loses(planned)))

    def _recover(self, planned: Planned, partition: RecoveredPartition, side: Kept, replicas: list[Replica]) -> None:
        """Read what the kept side loses, and give what nothing speaks against."""
        losses = sorted(side.candidate.losses, key=lambda loss: (loss.start, loss.end, str(loss.held_by)))
        asked = losses[0].start, max(loss.end for loss in losses)
        read = [replica for replica in replicas if replica.read is not Read.NONE]
        plans = [self._plan_of[id(replica.context)] for replica in read]
        copies = Copies(planned.given, read, plans, self._coordinators, asked, side.candidate.broker)
        partition.ranges = [RecoveredRange(loss, planned.amount(loss), copies.sources(loss)) for loss in losses]
        versions = Versions(copies, side.candidate.broker, partition.ranges)
        for record in versions.records():
            self._sink(record)
        log = copies.log(side.candidate.broker)
        partition.unreadable, partition.not_compared = versions.unreadable, log is not None and log.not_compared
        self.answer.incomplete += copies.incomplete

    def _take(self, partition: RecoveredPartition, *, matters: bool) -> None:
        """Keep a partition that matters; the first of all until there is another."""
        partitions = self.answer.partitions
        self.answer.looked_at += 1
        if self.answer.looked_at == 2 and partitions and not partitions[0].ranges and partitions[0].kept is not None:
            partitions.clear()
        if matters or self.answer.looked_at == 1:
            partitions.append(partition)


def _take_remote(partition: RecoveredPartition, findings: Sequence[Finding]) -> None:
    """Add the losses that remote segments alone hold, and so no replica that a plan is made of; none of what the kept log has."""
    told = normalised((recovered.loss.start, recovered.loss.end) for recovered in partition.ranges)
    for finding in findings:
        start, end = finding.place.offset_start, finding.place.offset_end
        if not finding.evidence.get("in_remote_storage") or finding.kind != "UNCLEAN_LOSS" or start is None or end is None:
            continue
        if partition.kept not in (None, *finding.evidence["leaders"]):
            continue
        for low, high in without([(start, end)], told):
            recovered = RecoveredRange(Loss(low, high, (), (), high), Amount(None, None), [])
            recovered.count.note("unreadable", low, high, high)
            partition.ranges.append(recovered)
            partition.unreadable["in_remote_storage"] += high - low


def _loses(planned: Planned) -> bool:
    return bool(planned.plan.at_stake) or any(candidate.losses for candidate in planned.plan.candidates)


def _partition_of(planned: Planned, side: Kept | Undecided) -> RecoveredPartition:
    """What the plan says of a partition."""
    plan = planned.plan
    partition = RecoveredPartition(plan.topic, plan.partition, side, at_most_is_bound=plan.at_most_is_bound)
    partition.missing = [(missing.kind, missing.broker) for missing in plan.missing]
    if isinstance(side, Kept):
        candidate = side.candidate
        partition.planned = planned.total(candidate.losses)
        partition.committed, partition.at_least, partition.at_most = candidate.costs()
        partition.below_log_start = [
            (follower.broker, follower.below_leaders_start) for follower in candidate.followers if follower.below_leaders_start
        ]
    return partition
