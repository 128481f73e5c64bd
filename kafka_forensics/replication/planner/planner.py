"""What each possible election of one partition would cut and lose, from small values alone.

A new leader begins a new epoch at its log end; every other replica cuts its log as Kafka's followers do and copies the leader.
Lost is what a replica holds and the leader's log lacks or has differently, whether it is cut or stays behind where no reader
sees it. What was committed is known only from witnesses, and each speaks for the log it was read with (docs/soundness.md).
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Final

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import Broker
from kafka_forensics.model.offset_ranges import Ranges, clipped, counted, holds, normalised, without
from kafka_forensics.replication.epochs import Log, assign_epoch, by_high_watermark, epoch_at, follower_cut
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
from kafka_forensics.replication.remote_segments import is_in_lineage, left_out, remote_fate

_FORCED: Final = {"leads": 0, "clean": 1, "elr": 2, "last-known-leader": 3, "unclean": 4, "unknown": 4}
"""Elections by how little they need to be forced."""
_COSTS: Final = 3
"""Numbers at the head of a preference that say what is lost."""


def plan_partition(given: PlanPartition, truncate_by: TruncateBy | None = None) -> Plan:
    """Plan every election of a partition; the way followers truncate is told by the evidence unless it is given."""
    regime = truncate_by or truncates_by(given.replicas)
    planning = _Planning(given, regime)
    able = [number for number, replica in enumerate(given.replicas) if replica.is_live and replica.starts and given.strays is None]
    candidates = tuple(planning.candidate(number) for number in able)
    ranked = sorted(
        ((planning.preference(number, candidate), candidate.broker) for number, candidate in zip(able, candidates, strict=True)),
        key=itemgetter(0),
    )
    best, recommended = ranked[0] if ranked else ((), None)
    alike = [other for other in ranked[1:] if other[0][:_COSTS] == best[:_COSTS]]
    return Plan(
        given.topic,
        given.partition,
        regime,
        candidates,
        recommended,
        tuple(missing_witnesses(given, regime)),
        tuple(planning.already_lost()) if given.differing and regime == "high-watermark" else (),
        () if candidates else planning.everything(),
        given.strays,
        tuple([broker for _, broker in alike]),
        ordinary_leaders(candidates, given.replicas),
        tuple(sorted({_deciding(best, key) for key, _ in alike}, key=CHOSEN_BY.index)),
        _contested_by(given, candidates, recommended),
    )


def _contested_by(given: PlanPartition, candidates: Sequence[Candidate], recommended: Broker | None) -> Broker | None:
    """See `Plan.contested_by`."""
    silent = {replica.broker for replica in given.replicas if replica.high_watermark is None}

    def may_lose(candidate: Candidate) -> int:
        return sum(loss.committed if silent.isdisjoint(loss.held_by) else loss.end - loss.start for loss in candidate.losses)

    at_most = {candidate.broker: may_lose(candidate) for candidate in candidates} if silent else {}
    least = min(at_most, key=at_most.__getitem__, default=None)
    return least if least is not None and recommended is not None and at_most[least] < at_most[recommended] else None


def _deciding(first: tuple[int, ...], second: tuple[int, ...]) -> str:
    """What puts a candidate before another that loses as much; no two have the same last number."""
    pairs = zip(CHOSEN_BY, first[_COSTS:], second[_COSTS:], strict=True)
    return next(name for name, ours, theirs in pairs if ours != theirs)


def losses_without(
    given: PlanPartition, truncate_by: TruncateBy, kept: Iterable[tuple[int, int, int]], log_start_offset: int
) -> tuple[Loss, ...]:
    """What is lost of the copies where offsets `[start, end)` of some, given as (number of the replica, start, end), are kept."""
    return _Planning(given, truncate_by).losses_without(list(kept), log_start_offset)


def truncates_by(replicas: Sequence[PlanReplica]) -> TruncateBy:
    """How the brokers that wrote these logs truncate: by epochs if there is one in any batch or checkpoint (Kafka 0.11, KIP-101),
    else by their high watermarks. Logs that hold nothing tell nothing, and lose nothing either way."""
    if any(replica.epochs or replica.checkpoint is not None for replica in replicas):
        return "epochs"
    return "high-watermark" if any(replica.log_end_offset > replica.log_start_offset for replica in replicas) else "epochs"


def high_watermark_truncation(follower_end: int, high_watermark: int | None, leader_end: int) -> tuple[int, bool]:
    """Where a follower cuts that knows no epochs, and whether its broker halts instead if unclean elections are off.

    It first cuts to its own high watermark (0 without a checkpoint). A log that still ends behind the leader's is out of the
    leader's range: it is cut to the leader's end, whatever lies below, unless that is not allowed (ReplicaFetcherThread of 0.10).
    """
    done = by_high_watermark(Log((), follower_end, high_watermark or 0), Log((), leader_end))
    return done.log_end_offset, min(high_watermark or 0, follower_end) > leader_end


def loaded_epochs(entries: Sequence[EpochEntry], log_end_offset: int) -> list[EpochEntry]:
    """The epochs a broker has after loading a checkpoint: each entry drops those behind it that are not older, or start not below
    it; what begins at or beyond the log end is dropped (LeaderEpochFileCache.assign, LogLoader)."""
    cache: list[EpochEntry] = []
    for entry in entries:
        assign_epoch(cache, entry)
    while cache and cache[-1].start_offset >= log_end_offset:
        cache.pop()
    return cache


def recovered_epochs(
    checkpoint: Sequence[EpochEntry], runs: Iterable[tuple[int, int, int]], walked_from: int
) -> tuple[EpochEntry, ...]:
    """A checkpoint after recovery, which adds the epochs it meets from offset `walked_from` on that are later than all known
    (LogSegment.recover). `runs` are (leader epoch, start offset, end offset) of consecutive batches, in file order."""
    entries = list(checkpoint)
    latest = max((entry.leader_epoch for entry in entries), default=-1)
    for leader_epoch, start, end in runs:
        if end > walked_from and leader_epoch > latest:
            entries.append(EpochEntry(leader_epoch, max(start, walked_from)))
            latest = leader_epoch
    return tuple(entries)


def election_kind(control: PlanControl | None, node: Broker, *, crashed: bool = False) -> str:
    """How the election of a broker would be called, see `Candidate.election`; `crashed`: see `PlanReplica.crashed`.
    Of a copy that does not say whose it is, nothing says whether its broker is in sync.

    A leader that crashed leads no more: its broker registers again when its session has expired, and by then the controller has
    fenced it and looked for another in the ISR (ClusterControlManager.registerBroker).
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
    return "unclean" if control.isr or elr - {node} or node != control.last_leader else "last-known-leader"


def ordinary_leaders(candidates: Sequence[Candidate], replicas: Sequence[PlanReplica]) -> tuple[Broker, ...]:
    """Whom an ordinary start may elect: all brokers are started, in any order, and nothing is forced.

    By the controllers' log (KRaft): the leader or any member of the ISR; where the ISR is empty, of the ELR; where that is, too,
    the last leader. Without it (ZooKeeper, where the ISR is on no disk): who is in the ISR holds all that was committed, unless
    its disk was replaced; so those whose election loses least of that, and those that are absent.
    """
    for kinds in (("leads", "clean"), ("elr",), ("last-known-leader",)):
        brokers = tuple(candidate.broker for candidate in candidates if candidate.election in kinds)
        if brokers:
            return brokers
    absent = {replica.broker for replica in replicas if replica.is_absent}
    unknown = [candidate for candidate in candidates if candidate.election == "unknown"]
    least = min((candidate.committed for candidate in unknown if candidate.broker not in absent), default=0)
    return tuple(candidate.broker for candidate in unknown if candidate.committed == least or candidate.broker in absent)


def _next_epoch(given: PlanPartition) -> int:
    """Above every epoch that the controller, a log or a checkpoint names."""
    named = {entry.leader_epoch for replica in given.replicas for entry in (*replica.epochs, *replica.brokers_epochs)}
    controllers = None if given.control is None else given.control.leader_epoch
    return max(-1 if controllers is None else controllers, *named, -1) + 1


class _Planning:
    """The replicas of one partition, with what is asked of them again and again looked up once."""

    def __init__(self, given: PlanPartition, regime: TruncateBy) -> None:
        self._given = given
        self._regime = regime
        self._replicas = given.replicas
        self._apart = dict(given.differing) | {(right, left): ranges for (left, right), ranges in given.differing.items()}
        self._on_disk = [replica.on_disk for replica in given.replicas]
        self._damaged = [
            replica.damaged and clipped(replica.damaged, replica.log_start_offset, NO_END) for replica in given.replicas
        ]
        self._batches = [
            [entry for entry in replica.epochs if entry.start_offset < replica.log_end_offset] for replica in given.replicas
        ]
        self._files = [loaded_epochs(replica.brokers_epochs, replica.log_end_offset) for replica in given.replicas]
        self._alike = [file == batches for file, batches in zip(self._files, self._batches, strict=True)]
        self._witnesses = [_capped(replica, held) for replica, held in zip(given.replicas, self._on_disk, strict=True)]
        self._holed = [number for number, held in enumerate(self._on_disk) if len(held) > 1]
        self._proven_end = max([witness.end_offset for witnesses in self._witnesses for witness in witnesses], default=0)
        self._next_epoch = _next_epoch(given)
        latest = max(self._files, key=lambda epochs: epochs[-1].leader_epoch if epochs else -1, default=[])
        self._remote_segments = [segment for segment in given.remote_segments if latest and is_in_lineage(segment, latest)]
        """Those that no later leader's log has left out already."""

    def candidate(self, leader: int) -> Candidate:
        """The election of one replica."""
        replica = self._replicas[leader]
        begun = [EpochEntry(self._next_epoch, replica.log_end_offset)]
        epochs, loaded = self._batches[leader] + begun, self._files[leader] + begun
        sound = clipped(self._on_disk[leader], replica.log_start_offset, replica.log_end_offset)
        forgotten = self._forgotten(leader)
        sound = without(sound, forgotten) if forgotten else sound
        rotten = self._damaged[leader]
        if rotten:
            rotten = clipped(rotten, 0, replica.log_end_offset)
            sound = without(sound, rotten)
        sound = without(sound, replica.converted) if replica.converted else sound
        numbers = range(len(self._replicas))
        followers = tuple([self._follower(number, leader, sound, epochs, loaded) for number in numbers if number != leader])
        own = clipped(self._on_disk[leader], replica.log_end_offset, NO_END)
        lost = own or rotten or forgotten or any(follower_plan.lost for follower_plan in followers)
        losses = tuple(self._losses(leader, normalised((*own, *forgotten)), rotten, followers)) if lost else ()
        if replica.head_may_be_expired:
            losses = tuple(loss if loss.end > replica.log_start_offset else loss.unproven() for loss in losses)
        kind = election_kind(self._given.control, self.node(leader), crashed=replica.crashed)
        losses += tuple(_joined([*self._lost_remotely(replica, loaded, losses)]))
        remote = remote_fate(self._given.remote_segments, loaded, replica.log_start_offset, replica.log_end_offset)
        return Candidate(replica.broker, kind, followers, losses, counted(own) if own else 0, remote)

    def _lost_remotely(self, leader: PlanReplica, loaded: list[EpochEntry], losses: Sequence[Loss]) -> Iterator[Loss]:
        """What remote segments prove committed, this leader's log lacks, and no copy here holds."""
        told = normalised((loss.start, loss.end) for loss in losses)
        for segment in self._remote_segments:
            for start, end in without(left_out(segment, loaded, leader.log_start_offset), told):
                yield Loss(start, end, (), (), end, Witness(end, "remote_segment", segment.broker_id, segment.segment_id))

    def _forgotten(self, leader: int) -> Ranges:
        """What of a replica's log is in remote storage and older than the epochs its broker knows: the leader deletes that."""
        replica, known = self._replicas[leader], self._files[leader]
        first = known[0].start_offset if known else replica.copied_from
        start, end = replica.log_start_offset, min(first, replica.copied_from)
        return ((start, end),) if start < end else ()

    def _follower(
        self, number: int, leader: int, sound: Ranges, epochs: list[EpochEntry], loaded: list[EpochEntry]
    ) -> FollowerPlan:
        """What one replica does under a leader whose good batches and epochs are these."""
        replica, new = self._replicas[number], self._replicas[leader]
        by_file = by_batches = None
        cut: int | None
        halts = disagrees = False
        if self._regime == "epochs":
            by_file = by_batches = self._cut(number, leader, self._batches, epochs)
            if not (self._alike[number] and self._alike[leader]):
                by_file = self._cut(number, leader, self._files, loaded)
                below = max(replica.log_start_offset, new.log_start_offset)
                disagrees = not self._given.compacted and max(by_file, below) != max(by_batches, below)
            cut = by_file
        else:
            cut, halts = high_watermark_truncation(replica.log_end_offset, replica.high_watermark, new.log_end_offset)
        anew = (
            cut < new.copied_from
        )  # then out of the leader's range (AbstractFetcherThread.fetchOffsetAndTruncate, TierStateMachine)
        cut = max(cut, new.copied_from)
        if not (replica.is_live and replica.starts):
            cut, halts, anew = None, False, False
        lost = self._lost(number, leader, sound)
        removed = counted(clipped(self._on_disk[number], 0, new.log_start_offset)) if new.log_start_offset else 0
        kept = (
            ()
            if anew
            else lost
            if cut is None or not lost
            else clipped(lost, 0 if new.head_start is None else new.log_start_offset, cut)
        )
        kept = without(kept, ((0, replica.copied_from),)) if replica.local_log_start_offset is not None else kept
        kept = kept if replica.is_live else ()
        return FollowerPlan(
            replica.broker, cut, replica.log_end_offset, by_file, by_batches, lost, kept, removed, halts, disagrees, anew
        )

    def _cut(self, number: int, leader: int, known: Sequence[list[EpochEntry]], begun: list[EpochEntry]) -> int:
        """Where a replica cuts by one of the two ways to know epochs; `begun` are the leader's, with the one it begins.

        Equal epochs need no asking."""
        replica, end = self._replicas[number], self._replicas[leader].log_end_offset
        own = known[number]
        if own and own == known[leader]:
            return min(replica.log_end_offset, end)
        return follower_cut(own, replica.log_start_offset, replica.log_end_offset, begun, end, replica.high_watermark)

    def _lost(self, number: int, leader: int, sound: Ranges) -> Ranges:
        """What a replica holds, from the leader's log start on, and the leader's log lacks or has differently."""
        new, held = self._replicas[leader], self._on_disk[number]
        start = new.log_start_offset if new.head_start is None else new.head_start
        differing = self._differing(number, leader)
        if not differing and held == sound:
            return ()
        return without(clipped(held, start, NO_END), without(sound, differing) if differing else sound)

    def _losses(self, leader: int, own: Ranges, rotten: Ranges, followers: Sequence[FollowerPlan]) -> Iterator[Loss]:
        """What is lost, version by version of the log, in ranges as long as who holds and who keeps it stays the same.

        `own` is what the leader drops of its own log, `rotten` what it keeps and nobody can read."""
        numbers = [number for number in range(len(self._replicas)) if number != leader]
        lost = [
            (number, follower_plan.lost, follower_plan.kept)
            for number, follower_plan in zip(numbers, followers, strict=True)
            if follower_plan.lost
        ]
        if own or rotten:
            lost.append((leader, normalised((*rotten, *own)), rotten))
        return self._by_version(lost)

    def everything(self) -> tuple[Loss, ...]:
        """All that the copies hold, as lost where nobody can lead; only who would be there keeps what it has."""
        held = [
            (number, ranges, ranges if replica.is_live and self._given.strays != "deleted" else ())
            for number, (replica, ranges) in enumerate(zip(self._replicas, self._on_disk, strict=True))
            if ranges
        ]
        return tuple(self._by_version(held)) if held else ()

    def losses_without(self, kept: Sequence[tuple[int, int, int]], log_start_offset: int) -> tuple[Loss, ...]:
        """What is lost where no more is kept than these offsets of these replicas, and what others have the same."""
        lost: list[tuple[int, Ranges, Ranges]] = []
        for number, held in enumerate(self._on_disk):
            same = normalised(span for copy, start, end in kept for span in without([(start, end)], self._differing(number, copy)))
            rest = without(clipped(held, log_start_offset, NO_END), same)
            if rest:
                lost.append((number, rest, ()))
        return tuple(self._by_version(lost)) if lost else ()

    def _by_version(self, lost: Sequence[tuple[int, Ranges, Ranges]]) -> Iterator[Loss]:
        """Losses of (replica, what of it is lost, what of that it keeps), those who hold the same as one."""
        losses: list[Loss] = []
        keepers = [(number, kept) for number, _, kept in lost if kept]
        for start, end in itertools.pairwise(self._edges(lost)):
            holders = [number for number, ranges, _ in lost if holds(ranges, start)]
            keeping = [number for number, kept in keepers if holds(kept, start)]
            for members in self._versions(holders, start):
                kept_by = self._called([number for number in members if number in keeping]) if keeping else ()
                losses.append(Loss(start, end, self._called(members), kept_by, *self._committed(members, start, end)))
        return iter(losses) if len(losses) < 2 else _joined(losses)

    def _called(self, numbers: Sequence[int]) -> tuple[Broker, ...]:
        return tuple([self._replicas[number].broker for number in numbers])

    def _edges(self, lost: Sequence[tuple[int, Ranges, Ranges]]) -> list[int]:
        """Offsets between which it stays the same who holds and keeps what of `lost`, and who differs, ascending."""
        edges = {edge for _, ranges, kept in lost for span in (*ranges, *kept) for edge in span}
        low, high = min(edges), max(edges)
        differing = [self._differing(loss[0], other[0]) for loss, other in itertools.combinations(lost, 2)]
        edges.update([edge for ranges in differing for span in ranges for edge in span if low < edge < high])
        return sorted(edges)

    def _versions(self, numbers: list[int], offset: int) -> list[list[int]]:
        """Replicas in groups that hold the same at an offset."""
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
        """How far `[start, end)` of a version is proven committed, and by what: a witness of its own logs, or of one that has a
        hole there, as far as that does not part from it, nor has other epochs."""
        if start >= self._proven_end:
            return start, None
        proofs = [(witness.end_offset, witness) for number in members for witness in self._witnesses[number]]
        for number in self._holed:
            if number not in members and self._on_disk[number][0][0] < start:
                parted = self._differing(number, members[0])
                agreed = min(parted[0][0] if parted else NO_END, self._same_epochs(number, members[0], start))
                proofs.extend([(min(witness.end_offset, agreed), witness) for witness in self._witnesses[number]])
        proven = min(end, max([reach for reach, _ in proofs], default=start))
        return (proven, next(witness for reach, witness in proofs if reach >= proven)) if proven > start else (start, None)

    def _same_epochs(self, left: int, right: int, start: int) -> int:
        """Offset up to which two logs have the same epochs from `start` on; logs without epochs (before 0.11) do not differ."""
        ours, theirs = self._batches[left], self._batches[right]
        if not ours or not theirs:
            return NO_END
        begun = sorted({start, *(entry.start_offset for entry in (*ours, *theirs) if entry.start_offset > start)})
        return next((offset for offset in begun if epoch_at(ours, offset) != epoch_at(theirs, offset)), NO_END)

    def already_lost(self) -> Iterator[AlreadyLost]:
        """Versions proven committed of which other replicas hold less, and that differently."""
        everyone = range(len(self._replicas))
        listed: set[tuple[int, tuple[int, ...]]] = set()
        for offset in sorted({ranges[0][0] for ranges in self._given.differing.values() if ranges}):
            for members in self._versions([member for member in everyone if holds(self._on_disk[member], offset)], offset):
                known = [witness for number in members for witness in self._witnesses[number]]
                best = max(known, key=lambda witness: witness.end_offset, default=None)
                for number in everyone:
                    end = self._replicas[number].log_end_offset
                    parted = holds(self._differing(number, members[0]), offset) and not self._is_damaged(offset)
                    if best is None or number in members or not parted or end >= best.end_offset:
                        continue
                    if (number, tuple(members)) not in listed:
                        listed.add((number, tuple(members)))
                        brokers = tuple(self._replicas[member].broker for member in members)
                        broker = self._replicas[number].broker
                        yield AlreadyLost((broker,), offset, end, best.end_offset, brokers, best)

    def _is_damaged(self, offset: int) -> bool:
        """Whether anybody's copy of an offset is: then nothing tells that it was ever another."""
        return any(holds(ranges, offset) for ranges in self._damaged if ranges)

    def _differing(self, left: int, right: int) -> Ranges:
        return self._apart.get((left, right), ())

    def node(self, number: int) -> Broker:
        """What the controller calls a replica's broker."""
        return self._given.node(self._replicas[number].broker)

    def preference(self, number: int, candidate: Candidate) -> tuple[int, ...]:
        """Sort key: who loses least of what is proven committed, then of all, on the fewest replicas; then an election that need
        not be forced, whose log begins first, the election that needs least, who has the highest watermark, and whom the controller
        would take first."""
        control, node = self._given.control, self.node(number)
        order = () if control is None or control.assignment is None else control.assignment
        place = order.index(node) if isinstance(node, int) and node in order else len(order)
        forced = _FORCED[candidate.election]
        disagreeing = losing = 0
        for follower_plan in candidate.followers:
            disagreeing += follower_plan.disagrees
            losing += bool(follower_plan.lost)
        watermark = self._replicas[number].high_watermark or 0
        start = self._replicas[number].log_start_offset
        return *candidate.costs(), losing, disagreeing, forced >= _FORCED["unclean"], start, forced, -watermark, place, number


def _capped(replica: PlanReplica, on_disk: Ranges) -> list[Witness]:
    """What proves records of one replica's log to be committed, none further than that log goes."""
    end = on_disk[-1][1] if on_disk else 0
    known = [
        witness if witness.end_offset <= end else replace(witness, end_offset=end, said=witness.end_offset)
        for witness in replica.witnesses
    ]
    if replica.high_watermark:
        said = replica.high_watermark if replica.high_watermark > end else None
        known.insert(0, Witness(min(replica.high_watermark, end), "high_watermark", replica.broker, None, said))
    return known


def _joined(losses: Sequence[Loss]) -> Iterator[Loss]:
    """Losses that continue each other as one, in the order of their offsets: committed first, then the rest."""
    open_ones: dict[tuple[tuple[Broker, ...], tuple[Broker, ...]], Loss] = {}
    done: list[Loss] = []
    for loss in losses:
        key = loss.held_by, loss.kept_by
        before = open_ones.get(key)
        if before is not None and before.end == loss.start and (before.committed_end == before.end or not loss.committed):
            end = loss.committed_end if before.committed_end == before.end else before.committed_end
            open_ones[key] = Loss(before.start, loss.end, *key, end, loss.witness or before.witness)
            continue
        if before is not None:
            done.append(before)
        open_ones[key] = loss
    yield from sorted([*done, *open_ones.values()], key=lambda loss: (loss.start, loss.end, str(loss.held_by)))
