"""What a plan promised, held against copies that were taken after the brokers came up again.

Of each partition it promises the leader, where the leader's log starts, up to where its log stays as it was, and that every
follower cuts and follows. Records that were written since, and offsets that retention removed, break no promise.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import differences
from kafka_forensics.engine.local import Progress, scan_inputs
from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions, fits, listed
from kafka_forensics.judging.partitions import PartitionResult
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.controller import NO_LEADER, PartitionControl
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.results import Read, ScanResult
from kafka_forensics.questions.verify.plan_document import (
    Broker,
    PlanDocument,
    PlannedElection,
    PlannedFollower,
    PlannedPartition,
    PlannedReplica,
)
from kafka_forensics.rereading.reader import LogReader


class Outcome(StrEnum):
    """What became of a promise."""

    KEPT = "kept"
    BROKEN = "broken"
    UNKNOWN = "unknown"
    """The copies do not tell."""


@dataclass(frozen=True, slots=True)
class Verified:
    """One promise. `planned` and `found` are a broker or an offset; None: there is none, or it is not known.

    `promise`: `leader` · `start` (of the leader's log) · `end` (its log goes on from there) · `cut` (a follower follows the leader
    from there) · `intact` (nothing above warning is found in the partition). `reason` is a word for why, see `REASONS`.
    """

    topic: str
    partition: int
    promise: str
    broker: Broker
    outcome: Outcome
    reason: str
    planned: Broker | None = None
    found: Broker | None = None
    kinds: tuple[str, ...] = ()
    """Of `intact`: kinds of findings."""


REASONS: Final = {
    "elected": Outcome.KEPT,
    "leads": Outcome.KEPT,
    "other_elected": Outcome.BROKEN,
    "nobody_elected": Outcome.BROKEN,
    "not_elected": Outcome.BROKEN,
    "no_controller_log": Outcome.UNKNOWN,
    "election_not_known": Outcome.UNKNOWN,
    "as_planned": Outcome.KEPT,
    "went_on_before": Outcome.KEPT,
    "moved_on": Outcome.KEPT,
    "head_missing": Outcome.BROKEN,
    "cut_short": Outcome.BROKEN,
    "other_lineage": Outcome.BROKEN,
    "follows": Outcome.KEPT,
    "differs": Outcome.BROKEN,
    "ends_before": Outcome.BROKEN,
    "nothing_found": Outcome.KEPT,
    "found": Outcome.BROKEN,
    "not_planned": Outcome.UNKNOWN,
    "no_copy": Outcome.UNKNOWN,
    "not_read": Outcome.UNKNOWN,
}
"""Why a promise is kept, is broken, or nobody can tell."""


@dataclass(slots=True)
class Checked:
    """Every promise of the partitions asked for, in their order."""

    promises: list[Verified] = field(default_factory=list)
    partitions: int = 0
    without_election: int = 0
    """Partitions for which the plan has no election, or not that of the broker asked for."""
    result: ScanResult | None = None

    def count(self, outcome: Outcome) -> int:
        """How many came out so."""
        return sum(promise.outcome is outcome for promise in self.promises)


def verify(
    paths: list[str], document: PlanDocument, options: ScanOptions, elected: str | None = None, progress: Progress | None = None
) -> Checked:
    """Hold the promises of a plan against newer copies at `paths`; `elected` is the broker that was made the leader, None: the one
    that was recommended. Raises UsageError for paths that make no sense, and for a broker that the plan does not know."""
    wanted = {(planned.topic, planned.partition): planned for planned in document.partitions if _is_asked_for(planned, options)}
    _check_elected(wanted.values(), elected)
    inputs = gather(paths, options)
    inputs.replicas = [plan for plan in inputs.replicas if (plan.context.topic, plan.context.partition) in wanted]
    checked = Checked(partitions=len(wanted))
    by_partition: dict[tuple[str, int], list[Verified]] = {}

    def look(replicas: list[Replica], reader: LogReader, result: PartitionResult) -> None:
        key = replicas[0].context.topic, replicas[0].context.partition
        election = wanted[key].election(elected) if key in wanted else None
        if election is not None:
            by_partition[key] = list(_Partition(wanted[key], election, replicas, reader, result).promises())

    checked.result = scan_inputs(inputs, options, progress, look)
    for key, planned in sorted(wanted.items()):
        election = planned.election(elected)
        checked.without_election += election is None
        if election is not None:
            checked.promises += by_partition.get(key) or _without_copies(planned, election)
    return checked


def _is_asked_for(planned: PlannedPartition, options: ScanOptions) -> bool:
    return planned.topic != CLUSTER_METADATA_TOPIC and fits((planned.topic, planned.partition), options)


def _check_elected(wanted: Iterable[PlannedPartition], elected: str | None) -> None:
    """Raise UsageError for a leader that no plan has an election of."""
    known = sorted({str(candidate.broker) for planned in wanted for candidate in planned.candidates})
    if elected is not None and elected not in known:
        raise UsageError(f"the plan has no election of broker {elected}", hint=f"brokers it has elections of: {listed(known)}")


def _without_copies(planned: PlannedPartition, election: PlannedElection) -> list[Verified]:
    """What is promised of a partition of which no copy was given."""
    promised = [(promise, election.broker) for promise in ("leader", "start", "end")]
    promised += [("cut", follower.broker) for follower in election.followers if follower.truncation_offset is not None]
    return [_verified(planned, promise, broker, "no_copy") for promise, broker in promised]


def _verified(
    planned: PlannedPartition,
    promise: str,
    broker: Broker,
    reason: str,
    told: Broker | None = None,
    found: Broker | None = None,
    kinds: tuple[str, ...] = (),
) -> Verified:
    return Verified(planned.topic, planned.partition, promise, broker, REASONS[reason], reason, told, found, kinds)


class _Partition:
    """One partition of a plan, beside the replicas that there are now."""

    def __init__(
        self,
        planned: PlannedPartition,
        election: PlannedElection,
        replicas: list[Replica],
        reader: LogReader,
        result: PartitionResult,
    ) -> None:
        self._planned, self._election, self._reader = planned, election, reader
        self._replicas = {replica.broker: replica for replica in replicas}
        self._control = replicas[0].context.control
        self._findings = result.findings
        self._leader = self._replicas.get(election.broker)

    def promises(self) -> Iterator[Verified]:
        """Each of them, the leader's first."""
        yield self._elected()
        before = self._planned.replica(self._election.broker)
        if self._leader is None or self._leader.read is Read.NONE:
            reason = "no_copy" if self._leader is None else "not_read"
            yield from (self._said(promise, reason) for promise in ("start", "end"))
        else:
            yield self._start(self._leader, before)
            yield self._end(self._leader, before)
        for follower in self._election.followers:
            if follower.truncation_offset is not None:
                yield self._cut(follower, follower.truncation_offset)
        yield self._intact()

    def _said(
        self, promise: str, reason: str, planned: Broker | None = None, found: Broker | None = None, broker: Broker | None = None
    ) -> Verified:
        whose = self._election.broker if broker is None else broker
        return _verified(self._planned, promise, whose, reason, planned, found)

    def _elected(self) -> Verified:
        """Who was elected first after the plan was made; who leads since is another matter."""
        control, broker = self._control, self._election.broker
        before = self._planned.controller
        if control is None or control.leader is None or control.leader_epoch is None:
            return self._said("leader", "no_controller_log", broker)
        if before is None or before.leader_epoch is None:
            reason = "leads" if control.leader == broker else "election_not_known"
            return self._said("leader", reason, broker, control.leader)
        if control.leader_epoch < before.leader_epoch:
            return self._said("leader", "election_not_known", broker, control.leader)
        first = _first_leader(control, before.leader_epoch)
        if first is not None:
            return self._said("leader", "elected" if first == broker else "other_elected", broker, first)
        if control.leader == broker:
            return self._said("leader", "leads", broker, control.leader)
        reason = "not_elected" if control.leader_epoch == before.leader_epoch else "election_not_known"
        return self._said("leader", "nobody_elected" if control.leader == NO_LEADER else reason, broker, control.leader)

    def _start(self, leader: Replica, before: PlannedReplica | None) -> Verified:
        """Whether the leader's log still begins where it did."""
        if before is None or before.log_start_offset is None:
            return self._said("start", "not_planned", None, leader.log_start_offset)
        planned, found = before.log_start_offset, leader.log_start_offset
        if found <= planned:
            return self._said("start", "as_planned", planned, found)
        lost = any(
            finding.kind == "LOG_HEAD_MISSING" and finding.place.broker == leader.broker and finding.severity is not Severity.INFO
            for finding in self._findings
        )
        return self._said("start", "head_missing" if lost else "moved_on", planned, found)

    def _end(self, leader: Replica, before: PlannedReplica | None) -> Verified:
        """Whether the leader's log is what it was up to its end, and went on from there."""
        if before is None or before.log_end_offset is None:
            return self._said("end", "not_planned", None, leader.log_end_offset)
        end = before.log_end_offset - self._election.own_recovery_drops
        if not leader.end_is_known:
            return self._said("end", "not_read", end, leader.course.end_offset)
        known = [(epoch, start) for epoch, start in before.leader_epochs or [] if start < end]
        newest = max((epoch for epoch, _ in known), default=-1)
        went_on = next((entry.start_offset for entry in leader.epochs if entry.leader_epoch > newest), leader.log_end_offset)
        if went_on < end:
            return self._said("end", "cut_short", end, went_on)
        now = {entry.leader_epoch: entry.start_offset for entry in leader.epochs}
        others = [start for epoch, start in known if start > leader.log_start_offset and now.get(epoch) != start]
        if others:
            return self._said("end", "other_lineage", end, min(others))
        return self._said("end", "as_planned" if went_on == end or not known else "went_on_before", end, went_on)

    def _cut(self, follower: PlannedFollower, truncation_offset: int) -> Verified:
        """Whether a follower has what the leader has, and kept what it was to keep."""
        replica, leader = self._replicas.get(follower.broker), self._leader
        if replica is None or leader is None:
            return self._said("cut", "no_copy", truncation_offset, None, follower.broker)
        if Read.NONE in (replica.read, leader.read):
            return self._said("cut", "not_read", truncation_offset, None, follower.broker)
        apart = [found.offset for found in differences(leader, replica, self._reader) if found.kind == "content"]
        if apart:
            return self._said("cut", "differs", truncation_offset, apart[0], follower.broker)
        end = replica.log_end_offset
        reason = "ends_before" if end < min(truncation_offset, leader.log_end_offset) else "follows"
        return self._said("cut", reason, truncation_offset, end, follower.broker)

    def _intact(self) -> Verified:
        """Whether a scan of the newer copies has anything to say of the partition."""
        grave = sorted({finding.kind for finding in self._findings if _is_grave(finding)})
        reason = "found" if grave else "nothing_found"
        return _verified(self._planned, "intact", self._election.broker, reason, kinds=tuple(grave))


def _is_grave(finding: Finding) -> bool:
    return finding.severity.rank >= Severity.ERROR.rank


def _first_leader(control: PartitionControl, epoch: int) -> int | None:
    """Who was the first leader in a later epoch than `epoch`; None if nobody is known to have been."""
    if control.history is None or control.history.dropped_events:
        return None
    for event in control.history.events:
        if event.state.leader_epoch > epoch and event.state.leader != NO_LEADER and event.kind != "deleted":
            return event.state.leader if event.kind != "snapshot" or event.state.leader_epoch == epoch + 1 else None
    return None
