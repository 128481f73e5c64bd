"""Naming a fork: by epochs and watermarks, the kind of conflict and what it costs (`docs/soundness.md`).

Where logs first differ at offset o: equal epochs there cannot come from elections; a fork at or above every side's watermark, or
where only what has to give way was not committed, is what a failover leaves; a side that a higher epoch would make cut below its
own watermark loses committed records; anything else below a watermark is a fork that Kafka will not repair.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafka_forensics.analysis.kinds import finding
from kafka_forensics.analysis.replica import Replica, place_of
from kafka_forensics.analysis.replicas.diff import DIFFERENCES_KEPT, IN_REMOTE_STORAGE, Conflicts, compaction_premise
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity
from kafka_forensics.model.json_objects import Json
from kafka_forensics.replication.epochs import epoch_at, follower_cut, truncation_offset
from kafka_forensics.replication.planner import loaded_epochs, recovered_epochs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# Where one replica cuts its log under another, by the leader epochs of both.


def lineage(replica: Replica) -> list[EpochEntry]:
    """Epochs of the batches, with the checkpoint's last epoch if it began at the log end and has written nothing yet."""
    entries = list(replica.epochs)
    checkpoint = replica.context.epoch_checkpoint
    if checkpoint:
        last = max(checkpoint)
        if last.start_offset == replica.log_end_offset and (not entries or last.leader_epoch > entries[-1].leader_epoch):
            entries.append(last)
    return entries


def last_epoch(replica: Replica) -> int:
    """The last epoch of its lineage, -1 without any."""
    entries = lineage(replica)
    return entries[-1].leader_epoch if entries else -1


def cut_offset(follower: Replica, leader: Replica) -> int | None:
    """Where `follower` would cut its log under `leader`; None unless the leader's last epoch is higher."""
    mine, theirs = lineage(follower), lineage(leader)
    if not mine or not theirs or theirs[-1].leader_epoch <= mine[-1].leader_epoch:
        return None
    return truncation_offset(mine, follower.log_end_offset, theirs, leader.log_end_offset)


def truncation(follower: Replica, leader: Replica) -> Json | None:
    """Where a replica would cut under another, by its checkpoint and its batches; None unless that one's last epoch is higher."""
    return None if cut_offset(follower, leader) is None else truncation_when_leading(follower, leader)


def truncation_when_leading(follower: Replica, leader: Replica) -> Json:
    """Where a replica cuts once another leads in an epoch that begins at its log end, by the batches and by what both brokers load;
    where the leader's local log starts if that is higher: there it begins anew. None where a broker refuses its checkpoint.
    """
    loaded = [loaded_epochs(brokers_epochs(replica), replica.log_end_offset) for replica in (follower, leader)]
    batches = [lineage(follower), lineage(leader)]
    latest = max((entry.leader_epoch for entries in (*batches, *loaded) for entry in entries), default=-1)
    begun = EpochEntry(latest + 1, leader.log_end_offset)

    def cut(mine: list[EpochEntry], theirs: list[EpochEntry]) -> int:
        ends = follower.log_start_offset, follower.log_end_offset
        kept = follower_cut(mine, *ends, [*theirs, begun], leader.log_end_offset, follower.context.high_watermark)
        return max(kept, leader.local_log_start_offset)

    refused = any(
        replica.context.epoch_checkpoint is None and replica.context.leader_epochs is not None for replica in (follower, leader)
    )
    cuts = {"from_batches": cut(*batches), "from_checkpoint": None if refused else cut(*loaded)}
    return {"follower": follower.broker, "leader": leader.broker} | cuts


def brokers_epochs(replica: Replica) -> tuple[EpochEntry, ...]:
    """The epochs a broker knows once it runs. It loads a checkpoint that is not there as an empty one; after an unclean stop,
    segments from that of the recovery point on are walked. One that was running when it was copied has the file's, and its batches'
    where the copy has none: running brokers write it with every epoch that begins (LeaderEpochFileCache.assign)."""
    context, checkpoint = replica.context, replica.context.epoch_checkpoint
    if context.live and checkpoint is None:
        return tuple(replica.epochs)
    if context.clean_shutdown or context.live:
        return tuple(checkpoint or ())
    point = context.recovery_point or 0
    walked_from = max((base for base in context.segment_base_offsets if base <= point), default=0)
    runs = ((run.leader_epoch, run.start_offset, run.end_offset) for run in replica.state.epochs.runs)
    return recovered_epochs(checkpoint or (), runs, walked_from)


# Versions of the log at a fork: which replicas hold the same there, and which begin behind it and go on with one.


@dataclass(slots=True)
class LogVersion:
    """Replicas that hold the same batch at the fork."""

    replicas: list[Replica]
    epoch: int
    batches: "list[NDArray[np.int64]]"
    """The batch of each replica, with its segment in a last row."""
    starting_later: list[Replica] = field(default_factory=list)
    """Whose logs begin behind the fork and go on with this version alone: retention removed the rest of it there."""

    @property
    def high_watermark(self) -> int:
        """Highest watermark any of them checkpointed: it speaks for this version of the log only."""
        return max(replica.context.high_watermark or 0 for replica in self.replicas)

    @property
    def log_end_offset(self) -> int:
        """End of the longest copy."""
        return max(replica.log_end_offset for replica in self.replicas)

    @property
    def committed_end(self) -> int:
        """Up to where its records are known to have been committed."""
        return min(self.high_watermark, self.log_end_offset)

    @property
    def proving_replica(self) -> Replica:
        """Whose log and watermark prove the most of it."""
        return max(self.replicas, key=lambda replica: min(replica.context.high_watermark or 0, replica.log_end_offset))

    @property
    def latest_replica(self) -> Replica:
        """The one of the latest epoch: it speaks for the others, who will follow it or whoever it follows."""
        return max((*self.replicas, *self.starting_later), key=last_epoch)

    @property
    def brokers(self) -> list[int | str]:
        """Who holds it at the fork."""
        return [replica.broker for replica in self.replicas]

    def as_evidence(self) -> Json:
        """The row of `evidence.versions`."""
        return {
            "brokers": self.brokers,
            "epoch": self.epoch,
            "log_end_offset": self.log_end_offset,
            "high_watermark": self.high_watermark,
            "places": [
                _batch_place(replica, batch)
                for replica, batch in zip(self.replicas, self.batches, strict=True)
                if batch[-1] != IN_REMOTE_STORAGE
            ],
        }


def _batch_place(replica: Replica, batch: "NDArray[np.int64]") -> Json:
    """File and bytes of a batch."""
    context, start = replica.context, int(batch[BatchColumn.POSITION])
    file = f"{context.directory}/{context.log_file(int(batch[-1]))}"
    return {"broker": replica.broker, "file": file, "byte_start": start, "byte_end": start + int(batch[BatchColumn.SIZE_IN_BYTES])}


def versions_at(replicas: list[Replica], conflicts: Conflicts, all_conflicts: Conflicts, first: int) -> list[LogVersion]:
    """Groups of replicas that hold offset `first` and do not conflict with each other there, ordered by broker.

    `every` holds all pairs that differ, `conflicts` those that are asked about.
    """
    at = {
        pair: next((difference for difference in differences if difference.offset == first), None)
        for pair, differences in conflicts.items()
    }
    batches: dict[int, NDArray[np.int64]] = {}
    for (i, j), difference in at.items():
        if difference is not None:
            batches[i], batches[j] = difference.left, difference.right
    epoch_of = {index: int(batch[BatchColumn.PARTITION_LEADER_EPOCH]) for index, batch in batches.items()}
    grouped = _without_conflict(epoch_of, at)
    versions = [LogVersion([replicas[k] for k in members], epoch, [batches[k] for k in members]) for epoch, members in grouped]
    for index, replica in enumerate(replicas):
        if replica.held_from > first:
            own = [version for version in versions if continues_version(index, version, replicas, all_conflicts)]
            if len(own) == 1:
                own[0].starting_later.append(replica)
    return versions


def _without_conflict(epoch_of: dict[int, int], at: Mapping[tuple[int, int], object]) -> list[tuple[int, list[int]]]:
    """(epoch, members) of groups of one epoch in which no two differ; `at`: pairs, and how they differ. Who has none, as in message
    formats before 2, belongs to any."""
    grouped: list[tuple[int, list[int]]] = []
    for index in sorted(epoch_of):
        for number, (epoch, members) in enumerate(grouped):
            of_one_epoch = epoch == epoch_of[index] or min(epoch, epoch_of[index]) < 0
            if of_one_epoch and all(at.get((min(m, index), max(m, index))) is None for m in members):
                grouped[number] = max(epoch, epoch_of[index]), [*members, index]
                break
        else:
            grouped.append((epoch_of[index], [index]))
    return grouped


def continues_version(index: int, version: LogVersion, replicas: list[Replica], conflicts: Conflicts) -> bool:
    """Whether a replica that does not hold the fork's offset is of a version: its log overlaps with one of that version at least,
    and holds the same as each where the overlap begins."""
    peer, overlaps = replicas[index], False
    for other in version.replicas:
        at = next(k for k, replica in enumerate(replicas) if replica is other)
        start = max(peer.held_from, other.held_from)
        if at == index:
            return False
        if min(peer.log_end_offset, other.log_end_offset) <= start:
            continue
        differences = conflicts.get((min(at, index), max(at, index)))
        if differences and (differences[0].offset <= start or epoch_at(peer.epochs, start) != epoch_at(other.epochs, start)):
            return False
        overlaps = True
    return overlaps


def fork_findings(
    replicas: list[Replica], conflicts: Conflicts, all_conflicts: Conflicts | None = None
) -> tuple[list[Finding], dict[str, int], int]:
    """The finding for the first conflict, the epochs at it by broker, and its offset. `conflicts` holds only pairs that differ,
    `every` all of them, if those are more.

    Where several versions lose committed records, one finding each, the longest loss first.
    """
    first = min(differences[0].offset for differences in conflicts.values())
    versions = versions_at(replicas, conflicts, conflicts if all_conflicts is None else all_conflicts, first)
    epochs = {str(broker): version.epoch for version in versions for broker in version.brokers}
    evidence: Json = {
        "offset": first,
        "versions": [version.as_evidence() for version in versions],
        "premises": premises(replicas),
    }
    committed_brokers = _only_committed_version(versions, first)
    if twins := [version for version in versions if _epoch_is_shared(version, versions)]:
        last = max(differences[-1].end_offset for differences in conflicts.values())
        evidence["held_by"] = _majority_brokers(twins)
        findings = [finding("SAME_EPOCH_DIVERGENCE", place_of(replicas, first, last), evidence)]
    elif first >= max(version.high_watermark for version in versions) or committed_brokers:
        findings = [_fork_above_watermarks(replicas, versions, first, evidence, committed_brokers)]
    else:
        findings = _losses(replicas, conflicts, versions, first, evidence)
        evidence["truncation_offsets"] = _truncations(versions)
    if not findings:
        findings = [_fork_below_watermark(replicas, conflicts, versions, first, evidence)]
    return findings, epochs, first


def _epoch_is_shared(version: LogVersion, versions: list[LogVersion]) -> bool:
    """Whether another version is of the same leader epoch, in which there was but one leader."""
    return version.epoch >= 0 and sum(other.epoch == version.epoch for other in versions) > 1


def _fork_above_watermarks(
    replicas: list[Replica], versions: list[LogVersion], first: int, evidence: Json, committed_brokers: list[int | str]
) -> Finding:
    """The fork at `first` of what was not committed, or gives way to what was and `stays` on these brokers."""
    evidence = {**evidence, "held_by": [], "truncation_offsets": _truncations(versions)}
    if committed_brokers:
        evidence["committed_on"] = committed_brokers
    unknown = [version for version in versions if all(replica.context.high_watermark is None for replica in version.replicas)]
    if unknown:
        evidence["watermark_unknown"] = [broker for version in unknown for broker in version.brokers]
    place = place_of(replicas, first, max(replica.log_end_offset for replica in replicas))
    return _above_watermarks(place, evidence, _kept_by_followers(versions, replicas, first))


def _losses(replicas: list[Replica], conflicts: Conflicts, versions: list[LogVersion], first: int, evidence: Json) -> list[Finding]:
    """A finding for each version that loses committed records to later leaders, the longest loss first."""
    losses = []
    for loser, leaders, start in _losing_versions(versions, replicas, first):
        held_by = _holders(loser, replicas, conflicts)
        following = [replica for replica in loser.replicas if replica.broker in held_by] or [loser.latest_replica]
        of_loser = {"held_by": held_by, "loses": loser.committed_end - start} | _cuts_under(following, leaders)
        losses.append(finding("UNCLEAN_LOSS", place_of(replicas, start, loser.committed_end), evidence | of_loser))
    return losses


def _fork_below_watermark(
    replicas: list[Replica], conflicts: Conflicts, versions: list[LogVersion], first: int, evidence: Json
) -> Finding:
    """The fork at `first` of committed records of which no version is known to be the later leaders'."""
    end = max(version.committed_end for version in versions)
    most = [version for version in versions if version.committed_end == end]
    evidence["held_by"] = _holders(most[0], replicas, conflicts) if len(most) == 1 else []
    confidence = Confidence.PROVEN if min(version.epoch for version in versions) >= 0 else Confidence.INFERRED
    place = place_of(replicas, first, min(end, _agree_from(replicas, conflicts, end)))
    return finding("FORK_BELOW_HW", place, evidence, confidence=confidence)


def _above_watermarks(place: Place, evidence: Json, kept: list[Json]) -> Finding:
    """A fork of what was not committed, or gives way: harmless where it does so and watermarks say it. `kept`: see `_kept_by_followers`."""
    doubtful = "watermark_unknown" in evidence
    severity, confidence = (Severity.WARNING, Confidence.SUSPECTED) if doubtful else (Severity.INFO, Confidence.PROVEN)
    if kept:
        evidence = {name: value for name, value in evidence.items() if name != "held_by"}
        evidence |= {"kept": kept, "kept_on": [row["broker"] for row in kept]}
        severity, confidence = Severity.ERROR, Confidence.SUSPECTED if doubtful else Confidence.INFERRED
        if all(row["without_checkpoint"] for row in kept):
            evidence["harmless_if"] = "the copy of the leader was made without its leader-epoch-checkpoint"
            severity, confidence = Severity.WARNING, Confidence.SUSPECTED
    return finding("FORK_ABOVE_HW", place, evidence, severity=severity, confidence=confidence)


def _majority_brokers(versions: list[LogVersion]) -> list[int | str]:
    """The brokers of the version that most replicas have; nobody where two have as many."""
    most = max(len(version.replicas) for version in versions)
    held = [version for version in versions if len(version.replicas) == most]
    return held[0].brokers if len(held) == 1 else []


def _kept_by_followers(versions: list[LogVersion], replicas: list[Replica], first: int) -> list[Json]:
    """What followers keep of other versions under the present leader, for good, because the checkpoints that brokers load let them,
    though by the batches they would cut there; of several copies that may lead, under each of them. Of copies of running brokers
    nothing is said: their checkpoint may have been copied before the epoch that their batches show."""
    leaders = _present_leaders(versions, replicas)
    known = set(map(id, leaders))
    other = [version for version in versions if known.isdisjoint(map(id, (*version.replicas, *version.starting_later)))]
    gone = max(first, *[replica.log_start_offset for replica in leaders])
    rows: list[Json] = []
    if len(other) == len(versions) or any(replica.context.live for replica in leaders):
        return rows
    for follower in (replica for version in other for replica in version.replicas):
        cuts = [truncation_when_leading(follower, replica) for replica in leaders]
        ends = [row["from_checkpoint"] or 0 for row in cuts if row["from_batches"] <= gone]
        if len(ends) == len(leaders) and min(ends) > gone:
            span = {"broker": follower.broker, "offset_start": first, "offset_end": min(ends)}
            rows.append(span | {"without_checkpoint": all(replica.context.leader_epochs is None for replica in leaders)})
    return rows


def _present_leaders(versions: list[LogVersion], replicas: list[Replica]) -> list[Replica]:
    """The copies of the leader that the controller names, unless a log has a later epoch than it knows; else those with the latest
    epoch, of the version that has it."""
    control = next((replica.context.control for replica in replicas if replica.context.control is not None), None)
    ruling = None if control is None else control.leader_epoch
    if control is not None and (ruling is None or ruling >= max(map(last_epoch, replicas))):
        named = [replica for replica in replicas if replica.context.node == control.leader]
        if named:
            return named
    latest = max(last_epoch(version.latest_replica) for version in versions)
    leading = next(version for version in versions if last_epoch(version.latest_replica) == latest)
    return [replica for replica in (*leading.replicas, *leading.starting_later) if last_epoch(replica) == latest]


def _agree_from(replicas: list[Replica], conflicts: Conflicts, end: int) -> int:
    """Offset from which all pairs that differ agree again as far as both go; `end` if one differs to where its shorter log ends, or
    in more than is kept."""
    agree = 0
    for (i, j), differences in conflicts.items():
        shared = min(replicas[i].log_end_offset, replicas[j].log_end_offset)
        if len(differences) >= DIFFERENCES_KEPT or differences[-1].end_offset >= shared:
            return end
        agree = max(agree, differences[-1].end_offset)
    return agree


def _holders(version: LogVersion, replicas: list[Replica], conflicts: Conflicts) -> list[int | str]:
    """Who holds all that is known to be committed of a version: others may be shorter, or part from it further on."""
    end, proving, first_differences = version.committed_end, version.proving_replica, _FirstDifferences(replicas, conflicts)
    return [
        replica.broker
        for replica in version.replicas
        if replica.log_end_offset >= end and not first_differences.below(replica, proving, end)
    ]


def unexplained_conflicts(replicas: list[Replica], conflicts: Conflicts, all_conflicts: Conflicts) -> Conflicts:
    """Those of `conflicts` that the first fork in them does not explain: their sides hold one version of it, or a side none.

    `every` holds all pairs that differ.

    A replica that does not hold the fork's offset is of the version it agrees with, unless its watermark proves more than theirs.
    """
    first = min(differences[0].offset for differences in conflicts.values())
    versions = versions_at(replicas, conflicts, all_conflicts, first)
    side_of = {id(replica): number for number, version in enumerate(versions) for replica in version.replicas}
    for index, replica in enumerate(replicas):
        for number, version in enumerate(versions):
            if (replica.context.high_watermark or 0) <= version.high_watermark and continues_version(
                index, version, replicas, all_conflicts
            ):
                side_of.setdefault(id(replica), number)

    def explained(i: int, j: int) -> bool:
        left, right = side_of.get(id(replicas[i])), side_of.get(id(replicas[j]))
        return left is not None and right is not None and left != right

    return {pair: differences for pair, differences in conflicts.items() if not explained(*pair)}


def histories_differ(replicas: list[Replica], conflicts: Conflicts, pair: tuple[int, int], offsets: tuple[int, int]) -> bool:
    """Whether two replicas, by their numbers, hold different histories at `[start, end)`: they forked before and are in different
    epochs there, or differ in a batch of it. What one lost of it, the other cannot give back."""
    start, end = offsets
    ours, theirs = (epoch_at(replicas[index].epochs, start) for index in pair)
    for difference in conflicts.get((min(pair), max(pair)), ()):
        forked = difference.epochs[0] != difference.epochs[1] and ours != theirs
        if difference.offset < end and (forked or start < difference.end_offset):
            return True
    return False


def _losing_versions(
    versions: list[LogVersion], replicas: list[Replica], first: int
) -> list[tuple[LogVersion, list[Replica], int]]:
    """Versions with committed records at `first` that the leader of the latest epoch, be it empty, would make cut there or before,
    whose log that is, and where it would; the one that loses most comes first.

    Of several logs with that epoch it is the one that keeps most, or those that do; one that begins behind the fork says nothing
    of it if another does not.
    """
    latest = max(map(last_epoch, replicas), default=-1)
    leaders = [replica for replica in replicas if last_epoch(replica) == latest]
    leaders = [replica for replica in leaders if replica.held_from <= first] or leaders
    losers = []
    for version in versions:
        cuts = (
            [(cut_offset(version.latest_replica, replica), replica) for replica in leaders] if first < version.committed_end else []
        )
        start = max((cut for cut, _ in cuts if cut is not None), default=first + 1)
        if start <= first:
            losers.append((version, [replica for cut, replica in cuts if cut == start], start))
    return sorted(losers, key=lambda loser: -loser[0].committed_end)


def _cuts_under(following: list[Replica], leaders: list[Replica]) -> Json:
    """Evidence of a loss: who has the latest epoch and makes `following` cut, and where."""
    longest = max(leaders, key=lambda replica: replica.log_end_offset)
    rows = [truncation(replica, longest) for replica in following]
    return {
        "leaders": [replica.broker for replica in leaders],
        "latest_epoch": last_epoch(longest),
        "truncation_offsets": [row for row in rows if row is not None],
    }


def _only_committed_version(versions: list[LogVersion], first: int) -> list[int | str]:
    """Brokers of the one version that was committed at `first`, if its epochs make every other replica of the fork cut there.

    So it is after a failover once the new leader has gone on: what the old one had not committed gives way to what was. What a
    follower keeps below the leader's log start goes, too, since it takes that over with what it fetches.
    """
    committed = [version for version in versions if first < version.committed_end]
    if len(committed) != 1:
        return []
    leader = committed[0].latest_replica
    others = [
        replica for version in versions if version is not committed[0] for replica in (*version.replicas, *version.starting_later)
    ]
    cuts = [cut_offset(replica, leader) for replica in others]
    gone = max(first, leader.log_start_offset)
    return committed[0].brokers if all(cut is not None and cut <= gone for cut in cuts) else []


def _truncations(versions: list[LogVersion]) -> list[Json]:
    """For each version under each other with a higher last epoch: where it would cut."""
    rows = [
        truncation(version.latest_replica, other.latest_replica)
        for version in versions
        for other in versions
        if version is not other
    ]
    return [row for row in rows if row is not None]


def trailing_epoch_loss(
    replicas: list[Replica], conflicts: Conflicts | None = None, known_findings: Sequence[Finding] = ()
) -> Finding | None:
    """`UNCLEAN_LOSS` without a conflicting record: a leader of a new epoch that begins below another copy's watermark and wrote
    nothing yet, or that shares no offset with that copy, which begins where it ends or behind.

    `conflicts`: pairs that differ, whose forks are told by others; what of a loss `known_findings` has already is not said again.
    """
    worst: Finding | None = None
    first_differences = _FirstDifferences(replicas, conflicts or {})
    latest = max(map(last_epoch, replicas), default=-1)
    for leader in replicas:
        if not leader.end_is_known or not lineage(leader) or last_epoch(leader) < latest:
            continue
        for follower in replicas:
            loss = _loss_under(leader, follower, replicas, first_differences)
            if loss is None or any(_covers(known_loss, loss) for known_loss in known_findings):
                continue
            if worst is None or (loss.place.offset_end or 0) > (worst.place.offset_end or 0):
                worst = loss
    return worst


def _has_nothing_of(leader: Replica, follower: Replica) -> bool:
    last = lineage(leader)[-1]
    wrote_nothing = last.start_offset == leader.log_end_offset and last not in leader.epochs
    return wrote_nothing or follower.held_from >= leader.log_end_offset


def _loss_under(
    leader: Replica, follower: Replica, replicas: list[Replica], first_differences: "_FirstDifferences"
) -> Finding | None:
    """What a follower loses of committed records to a leader that wrote nothing yet, or shares no offset with it; None: nothing."""
    if not _has_nothing_of(leader, follower):
        return None
    cut = cut_offset(follower, leader)
    end = min(follower.context.high_watermark or 0, follower.log_end_offset)
    if cut is None or cut >= end or not follower.end_is_known or first_differences.below(leader, follower, end):
        return None
    holding = [
        replica for replica in replicas if replica.log_end_offset >= end and not first_differences.below(replica, follower, end)
    ]
    start = max(cut, min(replica.log_start_offset for replica in holding))
    if start >= end:
        return None  # a watermark below the log start of all who might hold it: nothing of it is left to lose
    versions = [
        {
            "brokers": [replica.broker],
            "epoch": last_epoch(replica),
            "log_end_offset": replica.log_end_offset,
            "high_watermark": replica.context.high_watermark or 0,
        }
        for replica in (follower, leader)
    ]
    evidence = {
        "offset": start,
        "versions": versions,
        "held_by": [replica.broker for replica in holding],
        "loses": end - start,
        "premises": premises(replicas),
    } | _cuts_under(holding, [leader])
    return finding("UNCLEAN_LOSS", place_of(replicas, start, end), evidence)


class _FirstDifferences:
    """Which replicas differ, by the replicas themselves."""

    def __init__(self, replicas: list[Replica], conflicts: Conflicts) -> None:
        self._first: dict[tuple[int, int], int] = {}
        for (i, j), differences in conflicts.items():
            for pair in ((i, j), (j, i)):
                self._first[id(replicas[pair[0]]), id(replicas[pair[1]])] = differences[0].offset

    def below(self, left: Replica, right: Replica, end: int) -> bool:
        """Whether two replicas hold different records below an offset."""
        first = self._first.get((id(left), id(right)))
        return first is not None and first < end


def without_reported(findings: list[Finding], known_findings: Sequence[Finding]) -> list[Finding]:
    """`findings` without losses of what others, in `known_findings`, name as lost."""
    return [
        finding
        for finding in findings
        if finding.kind != "UNCLEAN_LOSS" or not any(_covers(other, finding) for other in known_findings)
    ]


def _covers(loss: Finding, other: Finding) -> bool:
    """Whether a loss names what some of another's holders have at its offsets."""
    place, start, end = loss.place, other.place.offset_start or 0, other.place.offset_end or 0
    if loss.kind != "UNCLEAN_LOSS" or place.offset_start is None or place.offset_end is None:
        return False
    return (
        bool({*loss.evidence["held_by"]} & {*other.evidence["held_by"]}) and place.offset_start <= start and end <= place.offset_end
    )


def premises(replicas: list[Replica]) -> list[str]:
    """Where watermarks, epochs, ids and the cleanup policy came from, one short line each."""
    lines = []
    for replica in replicas:
        high_watermark = replica.context.high_watermark
        epochs = replica.context.epoch_checkpoint
        watermark = "no high watermark" if high_watermark is None else f"high watermark {high_watermark}"
        checkpoint = (
            f"{'no' if replica.context.leader_epochs is None else 'malformed'} leader-epoch-checkpoint"
            if epochs is None
            else "epochs " + ",".join(f"({entry.leader_epoch},{entry.start_offset})" for entry in epochs[-8:])
        )
        lines.append(f"broker {replica.broker}: {watermark}, {checkpoint}, log end {replica.log_end_offset}")
    ids = {replica.context.topic_id for replica in replicas}
    lines.append("one topic id" if len(ids) == 1 and None not in ids else "topic ids not all known")
    lines.append(compaction_premise(replicas))
    return lines
