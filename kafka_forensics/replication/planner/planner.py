"""The outcome of every possible election of one partition: what followers truncate and what is lost, from small values alone.

A new leader starts a new epoch at its log end; every other replica truncates as Kafka's followers do and copies the leader. A
record is lost if a replica has it and the leader's log lacks it or has another there, whether the replica truncates it or keeps it
where no reader gets it. Only witnesses prove what was committed, and each only for the log it was read with (docs/soundness.md).
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final

from msgspec.structs import replace

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import Broker
from kafka_forensics.model.offset_ranges import Ranges, clipped, counted, holds, normalised, without
from kafka_forensics.replication.epochs import EpochLog, assign_epoch, by_high_watermark, epoch_at, follower_cut
from kafka_forensics.replication.planner.election_needs import missing_witnesses
from kafka_forensics.replication.planner.plans import (
    CHOSEN_BY,
    NO_END,
    AlreadyLost,
    Candidate,
    FollowerPlan,
    Loss,
    Plan,
    PlanControl,
    PlanPartition,
    PlanReplica,
    TruncateBy,
    Witness,
)
from kafka_forensics.replication.remote_segments import diverging_offsets, is_in_lineage, remote_fate

_ELECTION_ORDER: Final = {"leads": 0, "clean": 1, "elr": 2, "last_known_leader": 3, "unclean": 4, "unknown": 4}
"""Kinds of elections, from ordinary to forced."""
_COSTS: Final = 3
"""The leading numbers of a preference, which are losses."""


def plan_partition(partition: PlanPartition, truncate_by: TruncateBy | None = None) -> Plan:
    """Plan every election of a partition; the evidence decides how followers truncate unless `truncate_by` is given."""
    truncation_rule = truncate_by or truncates_by(partition.replicas)
    planning = _Planning(partition, truncation_rule)
    able = [
        number
        for number, replica in enumerate(partition.replicas)
        if replica.is_live and replica.starts and partition.strays is None
    ]
    candidates = tuple(planning.candidate(number) for number in able)
    preferences = (planning.preference(number, candidate) for number, candidate in zip(able, candidates, strict=True))
    ranked = sorted(zip(preferences, (candidate.broker for candidate in candidates), strict=True), key=itemgetter(0))
    best, recommended = ranked[0] if ranked else ((), None)
    equally_good = [(preference, broker) for preference, broker in ranked[1:] if preference[:_COSTS] == best[:_COSTS]]
    # the first difference decides; the last number, the order of the replicas, is never equal
    deciding = {
        next(
            reason
            for reason, best_value, other in zip(CHOSEN_BY, best[_COSTS:], preference[_COSTS:], strict=True)
            if best_value != other
        )
        for preference, _ in equally_good
    }
    return Plan(
        partition.topic,
        partition.partition,
        truncation_rule,
        candidates,
        recommended,
        tuple(missing_witnesses(partition, truncation_rule)),
        tuple(planning.already_lost()) if partition.differing and truncation_rule == "high_watermark" else (),
        () if candidates else planning.everything(),
        partition.strays,
        tuple([broker for _, broker in equally_good]),
        ordinary_leaders(candidates, partition.replicas),
        tuple(sorted(deciding, key=CHOSEN_BY.index)),
        _contested_by(partition, candidates, recommended),
    )


def _contested_by(partition: PlanPartition, candidates: Sequence[Candidate], recommended: Broker | None) -> Broker | None:
    without_watermark = {replica.broker for replica in partition.replicas if replica.high_watermark is None}
    if not without_watermark or recommended is None:
        return None
    at_most = {
        candidate.broker: sum(
            loss.committed if without_watermark.isdisjoint(loss.held_by) else loss.end - loss.start for loss in candidate.losses
        )
        for candidate in candidates
    }
    least = min(at_most, key=at_most.__getitem__)
    return least if at_most[least] < at_most[recommended] else None


def losses_without(
    partition: PlanPartition, truncate_by: TruncateBy, kept: Iterable[tuple[int, int, int]], log_start_offset: int
) -> tuple[Loss, ...]:
    """What is lost if only the offsets `[start, end)` of some replicas are kept, as (number of the replica, start, end)."""
    return _Planning(partition, truncate_by).losses_without(list(kept), log_start_offset)


def truncates_by(replicas: Sequence[PlanReplica]) -> TruncateBy:
    """How the brokers of these logs truncate: by epochs if any batch or checkpoint has one (Kafka 0.11, KIP-101), else by high
    watermarks. Empty logs lose nothing either way."""
    if any(replica.epochs or replica.checkpoint is not None for replica in replicas):
        return "epochs"
    return "high_watermark" if any(replica.log_end_offset > replica.log_start_offset for replica in replicas) else "epochs"


def high_watermark_truncation(follower_end: int, high_watermark: int | None, leader_end: int) -> tuple[int, bool]:
    """Where a follower without epochs truncates, and whether its broker halts instead if unclean elections are off.

    It first truncates to its high watermark (0 without a checkpoint). A log that is still longer than the leader's is out of range
    and truncated to the leader's log end, unless that is not allowed (ReplicaFetcherThread of 0.10).
    """
    done = by_high_watermark(EpochLog((), follower_end, high_watermark or 0), EpochLog((), leader_end))
    return done.log_end_offset, min(high_watermark or 0, follower_end) > leader_end


def loaded_epochs(entries: Sequence[EpochEntry], log_end_offset: int) -> list[EpochEntry]:
    """A broker's epochs after it loads a checkpoint (LeaderEpochFileCache.assign); epochs that start at or after the log end are
    dropped (LogLoader)."""
    cache: list[EpochEntry] = []
    for entry in entries:
        assign_epoch(cache, entry)
    while cache and cache[-1].start_offset >= log_end_offset:
        cache.pop()
    return cache


def recovered_epochs(
    checkpoint: Sequence[EpochEntry], runs: Iterable[tuple[int, int, int]], walked_from: int
) -> tuple[EpochEntry, ...]:
    """A checkpoint after recovery from offset `walked_from` on, which adds later epochs (LogSegment.recover). `runs` are (leader
    epoch, start offset, end offset) of consecutive batches, in file order."""
    entries = list(checkpoint)
    latest = max((entry.leader_epoch for entry in entries), default=-1)
    for leader_epoch, start, end in runs:
        if end > walked_from and leader_epoch > latest:
            entries.append(EpochEntry(leader_epoch, max(start, walked_from)))
            latest = leader_epoch
    return tuple(entries)


def election_kind(control: PlanControl | None, node: Broker, *, crashed: bool = False) -> str:
    """The kind of election of a broker, see `Candidate.election`; `unknown` for a copy that does not name its broker.

    A leader that crashed (`PlanReplica.crashed`) does not lead again: its broker registers after its session has expired, and by
    then the controller has fenced it and elected another ISR member (ClusterControlManager.registerBroker).
    """
    if control is None or control.isr is None or not isinstance(node, int):
        return "unknown"
    if control.leader == node and not crashed:
        return "leads"
    if node in control.isr:
        return "clean"
    elr = set(control.elr or ())
    if node in elr and not crashed:
        return "elr"
    return "unclean" if control.isr or elr - {node} or node != control.last_leader else "last_known_leader"


def ordinary_leaders(candidates: Sequence[Candidate], replicas: Sequence[PlanReplica]) -> tuple[Broker, ...]:
    """Brokers that an ordinary start may elect: all brokers start, in any order, and no election is forced.

    By the controllers' log (KRaft): the leader or any ISR member; of an empty ISR, any ELR member; if both are empty, the last
    leader. Without that log (ZooKeeper, where no disk has the ISR): every ISR member has everything that was committed, unless its
    disk was replaced. So it is the brokers whose election loses least of that, and those without a directory.
    """
    for kinds in (("leads", "clean"), ("elr",), ("last_known_leader",)):
        brokers = tuple(candidate.broker for candidate in candidates if candidate.election in kinds)
        if brokers:
            return brokers
    absent = {replica.broker for replica in replicas if replica.is_absent}
    unknown = [candidate for candidate in candidates if candidate.election == "unknown"]
    least = min((candidate.committed for candidate in unknown if candidate.broker not in absent), default=0)
    return tuple(candidate.broker for candidate in unknown if candidate.committed == least or candidate.broker in absent)


def _next_epoch(partition: PlanPartition) -> int:
    """One above every epoch in the controller's log, a batch or a checkpoint."""
    epochs = [entry.leader_epoch for replica in partition.replicas for entry in (*replica.epochs, *replica.brokers_epochs)]
    if partition.control is not None and partition.control.leader_epoch is not None:
        epochs.append(partition.control.leader_epoch)
    return max(epochs, default=-1) + 1


class _Planning:
    """The replicas of one partition, by number, with derived values that every election needs."""

    def __init__(self, partition: PlanPartition, truncation_rule: TruncateBy) -> None:
        self._partition = partition
        self._truncation_rule = truncation_rule
        self._replicas = partition.replicas
        self._differing_ranges = dict(partition.differing) | {
            (right, left): ranges for (left, right), ranges in partition.differing.items()
        }
        self._on_disk = [replica.on_disk for replica in partition.replicas]
        self._damaged = [
            replica.damaged and clipped(replica.damaged, replica.log_start_offset, NO_END) for replica in partition.replicas
        ]
        self._batch_epochs = [
            [entry for entry in replica.epochs if entry.start_offset < replica.log_end_offset] for replica in partition.replicas
        ]
        self._checkpoint_epochs = [loaded_epochs(replica.brokers_epochs, replica.log_end_offset) for replica in partition.replicas]
        self._checkpoint_matches = [
            checkpoint == batches for checkpoint, batches in zip(self._checkpoint_epochs, self._batch_epochs, strict=True)
        ]
        self._witnesses = [_witnesses_of(replica, held) for replica, held in zip(partition.replicas, self._on_disk, strict=True)]
        self._with_gaps = [number for number, held in enumerate(self._on_disk) if len(held) > 1]
        self._proven_end = max([witness.end_offset for witnesses in self._witnesses for witness in witnesses], default=0)
        self._next_epoch = _next_epoch(partition)
        latest = max(self._checkpoint_epochs, key=lambda epochs: epochs[-1].leader_epoch if epochs else -1, default=[])
        self._remote_segments = [segment for segment in partition.remote_segments if latest and is_in_lineage(segment, latest)]
        """Remote segments that belong to the log with the latest epoch."""

    def candidate(self, leader: int) -> Candidate:
        """The election of one replica."""
        replica = self._replicas[leader]
        new_epoch = [EpochEntry(self._next_epoch, replica.log_end_offset)]
        epochs, loaded = self._batch_epochs[leader] + new_epoch, self._checkpoint_epochs[leader] + new_epoch
        sound = clipped(self._on_disk[leader], replica.log_start_offset, replica.log_end_offset)
        deleted = self._deleted_remotely(leader)
        damaged = self._damaged[leader] and clipped(self._damaged[leader], 0, replica.log_end_offset)
        if deleted or damaged:
            sound = without(sound, normalised((*deleted, *damaged)))
        sound = without(sound, replica.converted) if replica.converted else sound
        numbers = range(len(self._replicas))
        followers = tuple([self._follower(number, leader, sound, epochs, loaded) for number in numbers if number != leader])
        recovery_cut = clipped(self._on_disk[leader], replica.log_end_offset, NO_END)
        lost = recovery_cut or damaged or deleted or any(follower.lost for follower in followers)
        losses = tuple(self._losses(leader, normalised((*recovery_cut, *deleted)), damaged, followers)) if lost else ()
        if replica.start_may_be_expired:
            losses = tuple(loss if loss.end > replica.log_start_offset else loss.unproven() for loss in losses)
        kind = election_kind(self._partition.control, self.node(leader), crashed=replica.crashed)
        losses += tuple(_merged([*self._remote_losses(replica, loaded, losses)]))
        remote = remote_fate(self._partition.remote_segments, loaded, replica.log_start_offset, replica.log_end_offset)
        return Candidate(replica.broker, kind, followers, losses, counted(recovery_cut), remote)

    def _remote_losses(self, leader: PlanReplica, loaded: list[EpochEntry], losses: Sequence[Loss]) -> Iterator[Loss]:
        """Offsets that remote segments prove committed, and neither this leader's log nor any copy here has."""
        listed = normalised((loss.start, loss.end) for loss in losses)
        for segment in self._remote_segments:
            for start, end in without(diverging_offsets(segment, loaded, leader.log_start_offset), listed):
                yield Loss(start, end, (), (), end, Witness(end, "remote_segment", segment.broker_id, segment.segment_id))

    def _deleted_remotely(self, leader: int) -> Ranges:
        """Offsets in remote storage older than the epochs of the leader's broker, which deletes them."""
        replica, epochs = self._replicas[leader], self._checkpoint_epochs[leader]
        first = epochs[0].start_offset if epochs else replica.copied_from
        start, end = replica.log_start_offset, min(first, replica.copied_from)
        return ((start, end),) if start < end else ()

    def _follower(
        self, number: int, leader: int, sound: Ranges, epochs: list[EpochEntry], loaded: list[EpochEntry]
    ) -> FollowerPlan:
        """What one replica does under a leader with these good batches, epochs in batches and loaded epochs."""
        replica, new = self._replicas[number], self._replicas[leader]
        by_checkpoint = by_batches = None
        cut: int | None
        halts = disagrees = False
        if self._truncation_rule == "epochs":
            cut = by_checkpoint = by_batches = self._truncation_offset(number, leader, self._batch_epochs, epochs)
            if not (self._checkpoint_matches[number] and self._checkpoint_matches[leader]):
                cut = by_checkpoint = self._truncation_offset(number, leader, self._checkpoint_epochs, loaded)
                start = max(replica.log_start_offset, new.log_start_offset)
                disagrees = not self._partition.compacted and max(by_checkpoint, start) != max(by_batches, start)
        else:
            cut, halts = high_watermark_truncation(replica.log_end_offset, replica.high_watermark, new.log_end_offset)
        # out of the leader's range (AbstractFetcherThread.fetchOffsetAndTruncate, TierStateMachine)
        restarts_empty = cut < new.copied_from
        cut = max(cut, new.copied_from)
        if not (replica.is_live and replica.starts):
            cut, halts, restarts_empty = None, False, False
        lost = self._lost(number, leader, sound)
        below_start = counted(clipped(self._on_disk[number], 0, new.log_start_offset)) if new.log_start_offset else 0
        kept = lost if replica.is_live and not restarts_empty else ()
        if kept and cut is not None:
            kept = clipped(kept, 0 if new.expected_log_start is None else new.log_start_offset, cut)
        if kept and replica.local_log_start_offset is not None:
            kept = without(kept, ((0, replica.copied_from),))
        end = replica.log_end_offset
        return FollowerPlan(
            replica.broker, cut, end, by_checkpoint, by_batches, lost, kept, below_start, halts, disagrees, restarts_empty
        )

    def _truncation_offset(
        self, number: int, leader: int, epochs: Sequence[list[EpochEntry]], leader_epochs: list[EpochEntry]
    ) -> int:
        """Where a replica truncates by its epochs and the leader's, which include the new one. Equal epochs need no request."""
        replica, end = self._replicas[number], self._replicas[leader].log_end_offset
        if epochs[number] and epochs[number] == epochs[leader]:
            return min(replica.log_end_offset, end)
        start, high_watermark = replica.log_start_offset, replica.high_watermark
        return follower_cut(epochs[number], start, replica.log_end_offset, leader_epochs, end, high_watermark)

    def _lost(self, number: int, leader: int, sound: Ranges) -> Ranges:
        """Offsets from the leader's log start on that a replica has, and the leader's log lacks or has differently."""
        new, on_disk = self._replicas[leader], self._on_disk[number]
        start = new.log_start_offset if new.expected_log_start is None else new.expected_log_start
        differing = self._differing(number, leader)
        if not differing and on_disk == sound:
            return ()
        return without(clipped(on_disk, start, NO_END), without(sound, differing) if differing else sound)

    def _losses(self, leader: int, cut: Ranges, damaged: Ranges, followers: Sequence[FollowerPlan]) -> Iterator[Loss]:
        """What is lost, for each version of the log, in ranges with the same holders and keepers.

        `cut` is what the leader removes from its log when it starts, `damaged` what it keeps and no reader can read.
        """
        numbers = [number for number in range(len(self._replicas)) if number != leader]
        lost = [
            (number, follower.lost, follower.kept) for number, follower in zip(numbers, followers, strict=True) if follower.lost
        ]
        if cut or damaged:
            lost.append((leader, normalised((*damaged, *cut)), damaged))
        return self._by_version(lost)

    def everything(self) -> tuple[Loss, ...]:
        """Everything on the copies, as lost where no replica can lead; a replica whose broker comes back keeps what it has."""
        lost = [
            (number, ranges, ranges if replica.is_live and self._partition.strays != "deleted" else ())
            for number, (replica, ranges) in enumerate(zip(self._replicas, self._on_disk, strict=True))
            if ranges
        ]
        return tuple(self._by_version(lost)) if lost else ()

    def losses_without(self, kept: Sequence[tuple[int, int, int]], log_start_offset: int) -> tuple[Loss, ...]:
        """What is lost if only these offsets of these replicas are kept; equal records of other replicas are kept too."""
        lost: list[tuple[int, Ranges, Ranges]] = []
        for number, on_disk in enumerate(self._on_disk):
            same = normalised(span for copy, start, end in kept for span in without([(start, end)], self._differing(number, copy)))
            rest = without(clipped(on_disk, log_start_offset, NO_END), same)
            if rest:
                lost.append((number, rest, ()))
        return tuple(self._by_version(lost)) if lost else ()

    def _by_version(self, lost: Sequence[tuple[int, Ranges, Ranges]]) -> Iterator[Loss]:
        """Losses from (replica, what is lost of it, what it keeps of that); replicas with the same records share one."""
        losses: list[Loss] = []
        keepers = [(number, kept) for number, _, kept in lost if kept]
        for start, end in itertools.pairwise(self._edges(lost)):
            holders = [number for number, ranges, _ in lost if holds(ranges, start)]
            keeping = [number for number, kept in keepers if holds(kept, start)]
            for members in self._versions(holders, start):
                kept_by = self._names([number for number in members if number in keeping]) if keeping else ()
                losses.append(Loss(start, end, self._names(members), kept_by, *self._committed(members, start, end)))
        return iter(losses) if len(losses) < 2 else _merged(losses)

    def _names(self, numbers: Sequence[int]) -> tuple[Broker, ...]:
        return tuple([self._replicas[number].broker for number in numbers])

    def _edges(self, lost: Sequence[tuple[int, Ranges, Ranges]]) -> list[int]:
        """Offsets, ascending, between which holders, keepers and differences of `lost` stay the same."""
        edges = {edge for _, ranges, kept in lost for span in (*ranges, *kept) for edge in span}
        low, high = min(edges), max(edges)
        differing = [self._differing(loss[0], other[0]) for loss, other in itertools.combinations(lost, 2)]
        edges.update([edge for ranges in differing for span in ranges for edge in span if low < edge < high])
        return sorted(edges)

    def _versions(self, numbers: list[int], offset: int) -> list[list[int]]:
        """Groups of replicas with the same record at an offset."""
        if len(numbers) < 2:
            return [numbers] if numbers else []
        groups: list[list[int]] = []
        for number in sorted(numbers):
            for group in groups:
                if not any(holds(self._differing(number, other), offset) for other in group):
                    group.append(number)
                    break
            else:
                groups.append([number])
        return groups

    def _committed(self, members: Sequence[int], start: int, end: int) -> tuple[int, Witness | None]:
        """How far `[start, end)` of a version is proven committed, and by which witness: of one of its logs, or of a log with a gap
        there, up to where that log has other records or epochs."""
        if start >= self._proven_end:
            return start, None
        proofs = [(witness.end_offset, witness) for number in members for witness in self._witnesses[number]]
        for number in self._with_gaps:
            if number not in members and self._on_disk[number][0][0] < start:
                differing = self._differing(number, members[0])
                agreed = min(differing[0][0] if differing else NO_END, self._same_epochs(number, members[0], start))
                proofs.extend([(min(witness.end_offset, agreed), witness) for witness in self._witnesses[number]])
        proven = min(end, max([reach for reach, _ in proofs], default=start))
        return (proven, next(witness for reach, witness in proofs if reach >= proven)) if proven > start else (start, None)

    def _same_epochs(self, left: int, right: int, start: int) -> int:
        """Offset up to which two logs have the same epochs from `start` on; logs without epochs (before 0.11) never differ."""
        left_epochs, right_epochs = self._batch_epochs[left], self._batch_epochs[right]
        if not left_epochs or not right_epochs:
            return NO_END
        starts = sorted({start, *(entry.start_offset for entry in (*left_epochs, *right_epochs) if entry.start_offset > start)})
        return next((offset for offset in starts if epoch_at(left_epochs, offset) != epoch_at(right_epochs, offset)), NO_END)

    def already_lost(self) -> Iterator[AlreadyLost]:
        """Versions proven committed of which other replicas have fewer, and different, records."""
        numbers = range(len(self._replicas))
        listed: set[tuple[int, tuple[int, ...]]] = set()
        for offset in sorted({ranges[0][0] for ranges in self._partition.differing.values() if ranges}):
            is_damaged = any(holds(ranges, offset) for ranges in self._damaged)  # then nothing shows that the records differed
            for members in self._versions([number for number in numbers if holds(self._on_disk[number], offset)], offset):
                witnesses = [witness for number in members for witness in self._witnesses[number]]
                best = max(witnesses, key=lambda witness: witness.end_offset, default=None)
                for number in numbers:
                    end = self._replicas[number].log_end_offset
                    differs = holds(self._differing(number, members[0]), offset) and not is_damaged
                    is_shorter = best is not None and number not in members and end < best.end_offset
                    if best is not None and is_shorter and differs and (number, tuple(members)) not in listed:
                        listed.add((number, tuple(members)))
                        yield AlreadyLost(self._names([number]), offset, end, best.end_offset, self._names(members), best)

    def _differing(self, left: int, right: int) -> Ranges:
        return self._differing_ranges.get((left, right), ())

    def node(self, number: int) -> Broker:
        """The node id of a replica's broker; its name here if that is unknown."""
        return self._partition.node(self._replicas[number].broker)

    def preference(self, number: int, candidate: Candidate) -> tuple[int, ...]:
        """Sort key, best first: `costs` of the candidate; replicas that lose; disagreeing checkpoints; whether the
        election is forced; log start; kind of election; high watermark; the controller's order; the order of the replicas."""
        control, node = self._partition.control, self.node(number)
        order = () if control is None or control.assignment is None else control.assignment
        position = order.index(node) if isinstance(node, int) and node in order else len(order)
        kind = _ELECTION_ORDER[candidate.election]
        disagreeing = sum([follower.disagrees for follower in candidate.followers])
        losing = sum([bool(follower.lost) for follower in candidate.followers])
        watermark, start = self._replicas[number].high_watermark or 0, self._replicas[number].log_start_offset
        is_forced = kind >= _ELECTION_ORDER["unclean"]
        return *candidate.costs(), losing, disagreeing, is_forced, start, kind, -watermark, position, number


def _witnesses_of(replica: PlanReplica, on_disk: Ranges) -> list[Witness]:
    """The witnesses of one replica's log, none beyond the end of that log."""
    end = on_disk[-1][1] if on_disk else 0
    witnesses = list(replica.witnesses)
    if replica.high_watermark:
        witnesses.insert(0, Witness(replica.high_watermark, "high_watermark", replica.broker))
    return [
        witness if witness.end_offset <= end else replace(witness, end_offset=end, claimed_end_offset=witness.end_offset)
        for witness in witnesses
    ]


def _merged(losses: Sequence[Loss]) -> Iterator[Loss]:
    """Adjacent losses of the same holders and keepers as one, by offset; committed offsets come before the others."""
    open_losses: dict[tuple[tuple[Broker, ...], tuple[Broker, ...]], Loss] = {}
    done: list[Loss] = []
    for loss in losses:
        key = loss.held_by, loss.kept_by
        before = open_losses.get(key)
        if before is not None and before.end == loss.start and (before.committed_end == before.end or not loss.committed):
            end = loss.committed_end if before.committed_end == before.end else before.committed_end
            open_losses[key] = Loss(before.start, loss.end, *key, end, loss.witness or before.witness)
            continue
        if before is not None:
            done.append(before)
        open_losses[key] = loss
    yield from sorted([*done, *open_losses.values()], key=lambda loss: (loss.start, loss.end, str(loss.held_by)))
