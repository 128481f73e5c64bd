"""What a plan promises of each partition: who leads, what of the leader's log stays, and that every follower cuts and follows.

Records that were written since, and offsets that retention removed, break no promise.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import damaged_offsets, differences
from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.evidence.options import listed
from kafka_forensics.model.constants import INT64_MAX
from kafka_forensics.model.controller import NO_LEADER, PartitionControl
from kafka_forensics.model.coordinators import TransactionLog
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.offset_ranges import normalised
from kafka_forensics.model.results import Read
from kafka_forensics.questions.verify.documents import Broker, PlannedElection, PlannedFollower, PlannedPartition, PlannedReplica
from kafka_forensics.questions.verify.promises import REASONS, Answer, Verified, end_of, grave_kinds, start_of
from kafka_forensics.questions.verify.records_back import LostRecords, are_back
from kafka_forensics.replication.epochs import epoch_at
from kafka_forensics.scanning.judging.partitions import PartitionResult
from kafka_forensics.scanning.rereading.log_ranges import Endings, ReadLog
from kafka_forensics.scanning.rereading.reader import LogReader


def check_elected(wanted: Iterable[PlannedPartition], elected: str | None) -> None:
    """Raise UsageError for a leader that no plan has an election of."""
    known = sorted({str(candidate.broker) for planned in wanted for candidate in planned.candidates})
    if known and elected is not None and elected not in known:
        raise UsageError(f"the plan has no election of broker {elected}", hint=f"brokers it has elections of: {listed(known)}")


def promised(
    planned: PlannedPartition, election: PlannedElection, replicas: list[Replica], reader: LogReader, result: PartitionResult
) -> list[Verified]:
    """The promises of an election, beside the replicas that there are now."""
    return list(_Partition(planned, election, replicas, reader, result).promises())


def back_on_leader(
    planned: PlannedPartition,
    election: PlannedElection,
    replicas: list[tuple[Replica, ReplicaPlan]],
    lost: LostRecords,
    coordinators: TransactionLog | None,
) -> Verified:
    """Whether recovered records stand in the leader's log again, behind what it held when it was planned; `coordinators` say how
    transactions without a marker ended."""
    broker = election.broker
    leader = next(((replica, plan) for replica, plan in replicas if replica.broker == broker), None)
    if leader is None:
        answer = Answer("no_copy", lost.count)
    else:
        start = _planned_end(planned, election) or 0
        log, replica = ReadLog(*leader, [], (start, INT64_MAX)), leader[0]
        everywhere = ((start, INT64_MAX),)
        doubtful = normalised(damaged_offsets(replica, start, INT64_MAX)) if replica.read is Read.WHOLE else everywhere
        endings = Endings(log, everywhere[0], doubtful, open_end=not replica.end_is_known, coordinators=coordinators)
        answer = are_back(lost, log, start, endings, compacted=replica.context.compacted)
    return Verified.of(planned, "records", broker, *answer)


def without_copies(planned: PlannedPartition, election: PlannedElection, lost: LostRecords | None) -> list[Verified]:
    """What is promised of a partition of which no copy was given; `lost` was recovered of it."""
    before = planned.replica(election.broker)
    start = None if before is None else before.log_start_offset
    promised = [("start", election.broker, start), ("end", election.broker, _planned_end(planned, election))]
    promised += [
        ("cut", follower.broker, follower.truncation_offset)
        for follower in election.followers
        if follower.truncation_offset is not None
    ]
    leader = Verified.of(planned, "leader", election.broker, "no_copy", election.broker)
    if lost is not None:
        promised.append(("records", election.broker, lost.count))
    rows = [Verified.of(planned, promise, broker, "no_copy", told) for promise, broker, told in promised]
    return [leader, *(replace(row, leader=election.broker) if row.promise == "cut" else row for row in rows)]


def without_plan(topic: str, partition: int, lost: LostRecords) -> Verified:
    """What becomes of recovered records of a partition of which no election is promised."""
    assert lost.kept is not None
    return Verified(topic, partition, "records", lost.kept, REASONS["not_planned"], "not_planned", lost.count)


def _planned_end(planned: PlannedPartition, election: PlannedElection) -> int | None:
    """Where the leader's log ended, once its own recovery was done."""
    before = planned.replica(election.broker)
    return None if before is None or before.log_end_offset is None else before.log_end_offset - election.own_recovery_drops


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
        context = replicas[0].context
        self._control = context.control
        self._nodes: dict[Broker, int | str] = {replica.broker: replica.context.node for replica in replicas}
        self._nodes |= {row.broker: row.node for row in context.without_copy if row.node is not None}
        self._findings = result.findings
        self._leader = self._replicas.get(election.broker)

    def promises(self) -> Iterator[Verified]:
        """Each of them, the leader's first."""
        yield self._elected()
        before = self._planned.replica(self._election.broker)
        start, end = None if before is None else before.log_start_offset, _planned_end(self._planned, self._election)
        if self._leader is None or self._leader.read is Read.NONE:
            reason = "no_copy" if self._leader is None else "not_read"
            yield self._said("start", reason, start)
            yield self._said("end", reason, end)
        else:
            epochs = [] if before is None else before.leader_epochs or []
            damaged = [span for row in self._planned.damaged if row.broker == self._election.broker for span in row.offsets]
            yield self._said("start", *start_of(self._leader, start, self._findings))
            yield self._said("end", *end_of(self._leader, end, epochs, damaged))
        for follower in self._election.followers:
            if follower.truncation_offset is not None:
                yield self._cut(follower, follower.truncation_offset)
        yield self._intact()

    def _said(
        self, promise: str, reason: str, planned: Broker | None = None, found: Broker | None = None, broker: Broker | None = None
    ) -> Verified:
        whose = self._election.broker if broker is None else broker
        said = Verified.of(self._planned, promise, whose, reason, planned, found)
        return said if broker is None else replace(said, leader=self._election.broker)

    def _elected(self) -> Verified:
        """Who was elected first after the plan was made; who leads since is another matter."""
        control, broker = self._control, self._election.broker
        before = self._planned.controller
        if control is None or control.leader is None or control.leader_epoch is None:
            return self._said("leader", "no_controller_log", broker)
        leader = self._named(control.leader)
        if isinstance(self._nodes.get(broker, broker), str):
            return self._said("leader", "node_not_known", broker, leader)
        if before is None or before.leader_epoch is None:
            return self._said("leader", "leads" if leader == broker else "election_not_known", broker, leader)
        if control.leader_epoch < before.leader_epoch:
            return self._said("leader", "election_not_known", broker, leader)
        first = _first_leader(control, before.leader_epoch)
        if first is not None:
            return self._said("leader", "elected" if self._named(first) == broker else "other_elected", broker, self._named(first))
        if leader == broker:
            return self._said("leader", "leads", broker, leader)
        reason = "not_elected" if control.leader_epoch == before.leader_epoch else "election_not_known"
        return self._said("leader", "nobody_elected" if leader == NO_LEADER else reason, broker, leader)

    def _named(self, node: int) -> Broker:
        """What the broker is called here that the controller calls `node`."""
        return next((broker for broker, its_node in self._nodes.items() if its_node == node), node)

    def _cut(self, follower: PlannedFollower, truncation_offset: int) -> Verified:
        """Whether a follower has what the leader has, and kept what it was to keep."""
        replica, leader = self._replicas.get(follower.broker), self._leader
        if replica is None or leader is None:
            return self._said("cut", "no_copy", truncation_offset, None, follower.broker)
        if Read.NONE in (replica.read, leader.read):
            return self._said("cut", "not_read", truncation_offset, None, follower.broker)
        differing = differences(leader, replica, self._reader)
        apart = [found.offset for found in differing if found.kind == "content" or found.lacks_content]
        if apart:
            return self._said("cut", "differs", truncation_offset, apart[0], follower.broker)
        end = replica.log_end_offset
        if end > leader.log_end_offset and leader.end_is_known and not self._follows_on(leader, replica):
            is_live = leader.context.live or replica.context.live
            reason = "copied_later" if is_live else "goes_beyond"
            return self._said("cut", reason, truncation_offset, leader.log_end_offset, follower.broker)
        reason = "ends_before" if end < min(truncation_offset, leader.log_end_offset) else "follows"
        return self._said("cut", reason, truncation_offset, end, follower.broker)

    def _follows_on(self, leader: Replica, replica: Replica) -> bool:
        """Whether what a follower holds behind the leader's end was written after the election, and the follower copied later: it
        is of no older epoch than the leader's newest, and not what the follower held when it was planned."""
        own = [entry.leader_epoch for entry in (*leader.epochs, *(leader.context.epoch_checkpoint or ()))]
        control, node = self._control, leader.context.node
        if control is not None:
            events = [] if control.history is None else control.history.events
            own += [event.state.leader_epoch for event in events if event.state.leader == node]
            own += [control.leader_epoch] if control.leader == node and control.leader_epoch is not None else []
        end, before = leader.log_end_offset, self._planned.replica(replica.broker)
        surplus = epoch_at(replica.epochs, end)
        if surplus is None or surplus < max(own, default=0):
            return False
        had_it = before is not None and (before.log_end_offset or 0) > end and _epoch_before(before, end) == surplus
        return not had_it

    def _intact(self) -> Verified:
        """Whether a scan of the newer copies has anything to say of the partition."""
        grave = grave_kinds([finding for finding in self._findings if not self._is_watermark_of_before(finding)])
        unseen = any(
            planned.broker not in self._replicas or self._replicas[planned.broker].read is not Read.WHOLE
            for planned in self._planned.replicas
        )
        reason = "found" if grave else "not_all_given" if unseen else "nothing_found"
        return Verified.of(self._planned, "intact", self._election.broker, reason, kinds=grave)

    def _is_watermark_of_before(self, finding: Finding) -> bool:
        """Whether a high watermark beyond a log's end is the one that the broker had when it was planned for, and the log was cut
        since as planned: brokers write their watermarks every five seconds and when they are stopped (`ReplicaManager`), but cut
        at once."""
        if finding.kind != "HW_BEYOND_LEO":
            return False
        broker = finding.place.broker
        before = None if broker is None else self._planned.replica(broker)
        replica = None if broker is None else self._replicas.get(broker)
        if before is None or replica is None or replica.context.clean_shutdown:
            return False
        cuts = {follower.broker: follower.truncation_offset for follower in self._election.followers}
        cuts[self._election.broker] = _planned_end(self._planned, self._election)
        cut = cuts.get(before.broker)
        is_same = replica.context.high_watermark == before.high_watermark
        return is_same and cut is not None and replica.log_end_offset >= cut


def _epoch_before(planned: PlannedReplica, offset: int) -> int | None:
    """The leader epoch of an offset in a log as it was planned with."""
    return max((epoch for epoch, start in planned.leader_epochs or () if start <= offset), default=None)


def _first_leader(control: PartitionControl, epoch: int) -> int | None:
    """Who was the first leader in a later epoch than `epoch`; None if nobody is known to have been."""
    if control.history is None or control.history.dropped_events:
        return None
    for event in control.history.events:
        if event.state.leader_epoch > epoch and event.state.leader != NO_LEADER and event.kind != "deleted":
            return event.state.leader if event.kind != "snapshot" or event.state.leader_epoch == epoch + 1 else None
    return None
