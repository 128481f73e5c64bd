"""The promises of a plan: who leads, what remains of the leader's log, and that every follower truncates and follows.

Records written later, and offsets that retention removed, break no promise.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import damaged_offsets, differences
from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.evidence.options import listed
from kafka_forensics.model.constants import INT64_MAX
from kafka_forensics.model.controller import NO_LEADER, PartitionControl
from kafka_forensics.model.coordinators import TransactionLog
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.offset_ranges import normalised, without
from kafka_forensics.model.results import ReadExtent
from kafka_forensics.questions.verify.documents import Broker, PlannedElection, PlannedPartition
from kafka_forensics.questions.verify.promises import REASONS, Judgement, Verified, end_of, error_kinds, start_of
from kafka_forensics.questions.verify.records_back import LostRecords, are_back
from kafka_forensics.replication.epochs import epoch_at
from kafka_forensics.scanning.judging.partitions import PartitionResult
from kafka_forensics.scanning.rereading.log_ranges import LogRangeReader, TransactionEndings
from kafka_forensics.scanning.rereading.reader import LogReader


def check_elected(wanted: Iterable[PlannedPartition], elected: str | None) -> None:
    """Raise UsageError for a leader that no partition of the plan has an election of."""
    known = sorted({str(candidate.broker) for planned in wanted for candidate in planned.candidates})
    if known and elected is not None and elected not in known:
        raise UsageError(f"the plan has no election of broker {elected}", hint=f"it has elections of brokers {listed(known)}")


def promised(
    planned: PlannedPartition, election: PlannedElection, replicas: list[Replica], reader: LogReader, result: PartitionResult
) -> list[Verified]:
    """The promises of an election, compared with the present replicas; the leader's come first."""
    return list(_ElectionPromises(planned, election, replicas, reader, result).promises())


def back_on_leader(
    planned: PlannedPartition,
    election: PlannedElection,
    replicas: list[tuple[Replica, ReplicaPlan]],
    lost: LostRecords,
    coordinators: TransactionLog | None,
) -> Verified:
    """Whether recovered records are in the leader's log again, after its planned end.

    `coordinators` tell how transactions without a marker ended.
    """
    broker = election.broker
    leader = next(((replica, plan) for replica, plan in replicas if replica.broker == broker), None)
    if leader is None:
        judgement = Judgement("no_copy", lost.count)
    else:
        replica, start = leader[0], _planned_end(planned, election) or 0
        offsets = start, INT64_MAX
        log = LogRangeReader(*leader, [], offsets)
        doubtful = normalised(damaged_offsets(replica, *offsets)) if replica.read is ReadExtent.WHOLE else (offsets,)
        endings = TransactionEndings(log, offsets, doubtful, open_end=not replica.end_is_known, coordinators=coordinators)
        judgement = are_back(lost, log, start, endings, compacted=replica.context.compacted)
    return Verified.of(planned, "records", broker, *judgement)


def without_copies(planned: PlannedPartition, election: PlannedElection, lost: LostRecords | None) -> list[Verified]:
    """The promises of a partition without a copy; `lost` are the records recovered from it."""
    before, broker = planned.replica(election.broker), election.broker
    start = None if before is None else before.log_start_offset
    rows = [
        Verified.of(planned, "leader", broker, "no_copy", broker),
        Verified.of(planned, "start", broker, "no_copy", start),
        Verified.of(planned, "end", broker, "no_copy", _planned_end(planned, election)),
    ]
    for follower in election.followers:
        if follower.truncation_offset is not None:
            row = Verified.of(planned, "cut", follower.broker, "no_copy", follower.truncation_offset)
            rows.append(replace(row, leader=broker))
    return rows if lost is None else [*rows, Verified.of(planned, "records", broker, "no_copy", lost.count)]


def without_plan(topic: str, partition: int, lost: LostRecords) -> Verified:
    """The promise of recovered records in a partition without a planned election."""
    assert lost.kept is not None
    return Verified(topic, partition, "records", lost.kept, REASONS["not_planned"], "not_planned", lost.count)


def _planned_end(planned: PlannedPartition, election: PlannedElection) -> int | None:
    """The end of the leader's log after its own recovery."""
    before = planned.replica(election.broker)
    return None if before is None or before.log_end_offset is None else before.log_end_offset - election.recovery_cut


class _ElectionPromises:
    """The election of one partition, compared with the present replicas."""

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
        planned, broker = self._planned, self._election.broker
        reason, found = self._leader_outcome()
        yield Verified.of(planned, "leader", broker, reason, broker, found)
        before = planned.replica(broker)
        start, end = None if before is None else before.log_start_offset, _planned_end(planned, self._election)
        if self._leader is None or self._leader.read is ReadExtent.NONE:
            reason = "no_copy" if self._leader is None else "not_read"
            judgements = Judgement(reason, start), Judgement(reason, end)
        else:
            epochs = [] if before is None else before.leader_epochs or []
            damaged = [span for row in planned.damaged if row.broker == broker for span in row.offsets]
            judgements = start_of(self._leader, start, self._findings), end_of(self._leader, end, epochs, damaged)
        yield from (Verified.of(planned, name, broker, *row) for name, row in zip(("start", "end"), judgements, strict=True))
        for follower in self._election.followers:
            if follower.truncation_offset is not None:
                judgement = self._follows(follower.broker, follower.truncation_offset)
                yield replace(Verified.of(planned, "cut", follower.broker, *judgement), leader=broker)
        known = [finding for finding in self._findings if self._is_known_loss(finding)]
        new = [finding for finding in self._findings if finding not in known and not self._is_earlier_watermark(finding)]
        kinds = error_kinds(new)
        read = {replica.broker for replica in self._replicas.values() if replica.read is ReadExtent.WHOLE}
        all_read = all(replica.broker in read for replica in planned.replicas)
        if any(finding.kind in kinds_with(Trait.CONCERNS_GROUPS) for finding in known):
            known_reason = "offset_not_set"
        else:
            known_reason = "known_loss" if known else "nothing_found"
        reason = "found" if kinds else known_reason if all_read or known_reason == "offset_not_set" else "not_all_given"
        yield Verified.of(planned, "intact", broker, reason, kinds=kinds or error_kinds(known))

    def _leader_outcome(self) -> tuple[str, Broker | None]:
        """(reason, leader) by who was elected first after the plan was made; later elections do not count."""
        control, broker, before = self._control, self._election.broker, self._planned.controller
        if control is None or control.leader is None or control.leader_epoch is None:
            return "no_controller_log", None
        leader = self._name_of(control.leader)
        if isinstance(self._nodes.get(broker, broker), str):
            return "node_not_known", leader
        if before is None or before.leader_epoch is None:
            return "leads" if leader == broker else "election_not_known", leader
        if control.leader_epoch < before.leader_epoch:
            return "election_not_known", leader
        first = _first_leader(control, before.leader_epoch)
        if first is not None:
            name = self._name_of(first)
            return "elected" if name == broker else "other_elected", name
        if leader in (broker, NO_LEADER):
            return "leads" if leader == broker else "no_leader_elected", leader
        return "not_elected" if control.leader_epoch == before.leader_epoch else "election_not_known", leader

    def _name_of(self, node: int) -> Broker:
        """The name here of the broker with this node id."""
        return next((broker for broker, its_node in self._nodes.items() if its_node == node), node)

    def _follows(self, broker: Broker, truncation_offset: int) -> Judgement:
        """Whether a follower has what the leader has, and still has its log up to its planned truncation."""
        replica, leader = self._replicas.get(broker), self._leader
        if replica is None or leader is None:
            return Judgement("no_copy", truncation_offset)
        if ReadExtent.NONE in (replica.read, leader.read):
            return Judgement("not_read", truncation_offset)
        for difference in differences(leader, replica, self._reader):
            if difference.kind == "content" or difference.lacks_content:
                return Judgement("differs", truncation_offset, difference.offset)
        end = replica.log_end_offset
        if end > leader.log_end_offset and leader.end_is_known and not self._is_copied_later(leader, replica):
            is_live = leader.context.live or replica.context.live
            return Judgement("copied_later" if is_live else "goes_beyond", truncation_offset, leader.log_end_offset)
        return Judgement(
            "ends_before" if end < min(truncation_offset, leader.log_end_offset) else "follows", truncation_offset, end
        )

    def _is_copied_later(self, leader: Replica, follower: Replica) -> bool:
        """Whether a follower's records after the leader's end were written after the election: then it was copied later.

        Their epoch is no older than the leader's newest, and the follower did not have them when the plan was made.
        """
        leader_epochs = [entry.leader_epoch for entry in (*leader.epochs, *(leader.context.epoch_checkpoint or ()))]
        control, node = self._control, leader.context.node
        if control is not None:
            events = [] if control.history is None else control.history.events
            leader_epochs += [event.state.leader_epoch for event in events if event.state.leader == node]
            leader_epochs += [control.leader_epoch] if control.leader == node and control.leader_epoch is not None else []
        end, before = leader.log_end_offset, self._planned.replica(follower.broker)
        epoch = epoch_at(follower.epochs, end)
        if epoch is None or epoch < max(leader_epochs, default=0):
            return False
        if before is None or (before.log_end_offset or 0) <= end:
            return True
        return epoch != max((planned for planned, start in before.leader_epochs or () if start <= end), default=None)

    def _is_known_loss(self, finding: Finding) -> bool:
        """Whether it is an error about committed offsets in no copy, which the plan lists or gives up, and no newer witness."""
        start, end, evidence = finding.place.offset_start, finding.place.offset_end, finding.evidence
        if finding.kind not in kinds_with(Trait.ABSENT_OFFSETS) or finding.severity.rank < Severity.ERROR.rank:
            return False
        planned = self._planned
        if (committed_ms := evidence.get("commit_timestamp")) is not None:
            is_newer = planned.newest_commit_ms is None or committed_ms > planned.newest_commit_ms
        else:
            is_newer = evidence["high_watermark"] > max((replica.high_watermark or 0 for replica in planned.replicas), default=0)
        given_up = [(loss.offset_start, loss.offset_end) for loss in self._election.losses]
        return (
            not is_newer
            and start is not None
            and end is not None
            and not without([(start, end)], normalised([*planned.held_by_no_copy, *given_up]))
        )

    def _is_earlier_watermark(self, finding: Finding) -> bool:
        """Whether a high watermark beyond a log's end is that of the time of the plan, and the log was truncated since as planned.

        Brokers write their high watermarks every five seconds and when they stop (`ReplicaManager`), but truncate at once.
        """
        if finding.kind != "HW_BEYOND_LEO":
            return False
        broker = finding.place.broker
        before = None if broker is None else self._planned.replica(broker)
        replica = None if broker is None else self._replicas.get(broker)
        if before is None or replica is None or replica.context.clean_shutdown:
            return False
        ends = {follower.broker: follower.truncation_offset for follower in self._election.followers}
        ends[self._election.broker] = _planned_end(self._planned, self._election)
        end = ends.get(before.broker)
        is_same = replica.context.high_watermark == before.high_watermark
        return is_same and end is not None and replica.log_end_offset >= end


def _first_leader(control: PartitionControl, epoch: int) -> int | None:
    """The first leader in an epoch after `epoch`; None if unknown."""
    if control.history is None or control.history.dropped_events:
        return None
    for event in control.history.events:
        if event.state.leader_epoch > epoch and event.state.leader != NO_LEADER and event.kind != "deleted":
            return event.state.leader if event.kind != "snapshot" or event.state.leader_epoch == epoch + 1 else None
    return None
