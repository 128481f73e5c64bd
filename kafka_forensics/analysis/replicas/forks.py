"""Classification of forks by epochs and watermarks: the kind of conflict and its cost (`docs/soundness.md`).

Where logs first differ at an offset: equal epochs there cannot come from elections; a fork at or above all watermarks, or where
only uncommitted records are cut, is normal after a failover; a version that a higher epoch cuts below its own watermark loses
committed records; any other fork below a watermark is one that Kafka does not repair.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations
from typing import TYPE_CHECKING

from msgspec import Struct, field

from kafka_forensics.analysis.kinds import finding
from kafka_forensics.analysis.replica import Replica, place_of
from kafka_forensics.analysis.replicas.diff import DIFFERENCES_KEPT, IN_REMOTE_STORAGE, Conflicts, compaction_premise
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import Confidence, Finding, Severity
from kafka_forensics.model.json_objects import Json
from kafka_forensics.replication.epochs import epoch_at, follower_cut, truncation_offset
from kafka_forensics.replication.planner import loaded_epochs, recovered_epochs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def lineage(replica: Replica) -> list[EpochEntry]:
    """Epochs of the batches, with the checkpoint's last epoch if it began at the log end and has no batches yet."""
    entries = list(replica.epochs)
    checkpoint = replica.context.epoch_checkpoint
    if checkpoint:
        last = max(checkpoint)
        if last.start_offset == replica.log_end_offset and (not entries or last.leader_epoch > entries[-1].leader_epoch):
            entries.append(last)
    return entries


def last_epoch(replica: Replica) -> int:
    """The last epoch of its lineage, -1 if that is empty."""
    entries = lineage(replica)
    return entries[-1].leader_epoch if entries else -1


def cut_offset(follower: Replica, leader: Replica) -> int | None:
    """Where `follower` cuts its log under `leader`; None unless the leader's last epoch is higher."""
    ours, theirs = lineage(follower), lineage(leader)
    if not ours or not theirs or theirs[-1].leader_epoch <= ours[-1].leader_epoch:
        return None
    return truncation_offset(ours, follower.log_end_offset, theirs, leader.log_end_offset)


def truncation_when_leading(follower: Replica, leader: Replica) -> Json:
    """Where a replica cuts its log under a leader whose epoch begins at its log end, by the batches and by what both brokers load;
    at least at the leader's local log start, where the replica starts an empty log. None if a broker refuses its checkpoint."""
    loaded = [loaded_epochs(brokers_epochs(replica), replica.log_end_offset) for replica in (follower, leader)]
    batches = [lineage(follower), lineage(leader)]
    latest = max((entry.leader_epoch for entries in (*batches, *loaded) for entry in entries), default=-1)
    new_epoch = EpochEntry(latest + 1, leader.log_end_offset)

    def cut(ours: Sequence[EpochEntry], theirs: Sequence[EpochEntry]) -> int:
        ends = follower.log_start_offset, follower.log_end_offset
        cut_to = follower_cut(ours, *ends, [*theirs, new_epoch], leader.log_end_offset, follower.context.high_watermark)
        return max(cut_to, leader.local_log_start_offset)

    contexts = follower.context, leader.context
    refused = any(context.epoch_checkpoint is None and context.leader_epochs is not None for context in contexts)
    cuts = {"from_batches": cut(*batches), "from_checkpoint": None if refused else cut(*loaded)}
    return {"follower": follower.broker, "leader": leader.broker} | cuts


def _truncations(pairs: Iterable[tuple[Replica, Replica]]) -> list[Json]:
    """Evidence for (follower, leader) pairs: where the follower cuts, if the leader's last epoch is higher."""
    return [truncation_when_leading(*pair) for pair in pairs if cut_offset(*pair) is not None]


def brokers_epochs(replica: Replica) -> tuple[EpochEntry, ...]:
    """The epochs that a broker knows once it runs. A missing checkpoint is loaded as an empty one; after an unclean stop, segments
    from that of the recovery point on are read. Of a broker copied while it ran, those of the file, or of its batches if the copy
    has no file: it writes the file with every new epoch (LeaderEpochFileCache.assign)."""
    context, checkpoint = replica.context, replica.context.epoch_checkpoint
    if context.live and checkpoint is None:
        return tuple(replica.epochs)
    if context.clean_shutdown or context.live:
        return tuple(checkpoint or ())
    point = context.recovery_point or 0
    walked_from = max((base for base in context.segment_base_offsets if base <= point), default=0)
    runs = ((run.leader_epoch, run.start_offset, run.end_offset) for run in replica.state.epochs.runs)
    return recovered_epochs(checkpoint or (), runs, walked_from)


class LogVersion(Struct):
    """Replicas with the same batch at a fork."""

    replicas: list[Replica]
    epoch: int
    batches: "list[NDArray[np.int64]]"
    """The batch of each replica; its last row is the segment."""
    later_starts: list[Replica] = field(default_factory=list)
    """Replicas whose logs begin after the fork and continue only this version: retention removed the rest there."""

    @property
    def high_watermark(self) -> int:
        """Highest checkpointed watermark of its replicas, which holds only for this version."""
        return max(replica.context.high_watermark or 0 for replica in self.replicas)

    @property
    def log_end_offset(self) -> int:
        """End of the longest copy."""
        return max(replica.log_end_offset for replica in self.replicas)

    @property
    def committed_end(self) -> int:
        """End of its records known to be committed."""
        return min(self.high_watermark, self.log_end_offset)

    @property
    def proving_replica(self) -> Replica:
        """The replica whose log and watermark prove most of them."""
        return max(self.replicas, key=lambda replica: min(replica.context.high_watermark or 0, replica.log_end_offset))

    @property
    def latest_replica(self) -> Replica:
        """The replica of the latest epoch; the others will follow it, or whoever it follows."""
        return max((*self.replicas, *self.later_starts), key=last_epoch)

    @property
    def brokers(self) -> list[int | str]:
        """Brokers of its replicas."""
        return [replica.broker for replica in self.replicas]

    def as_evidence(self) -> Json:
        """A row of `evidence.versions`."""
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
    context, start = replica.context, int(batch[BatchColumn.POSITION])
    file = f"{context.directory}/{context.log_file(int(batch[-1]))}"
    return {"broker": replica.broker, "file": file, "byte_start": start, "byte_end": start + int(batch[BatchColumn.SIZE_IN_BYTES])}


def versions_at(replicas: list[Replica], conflicts: Conflicts, all_conflicts: Conflicts, first: int) -> list[LogVersion]:
    """Groups of replicas that have offset `first` and do not conflict there, ordered by broker.

    `all_conflicts` are all pairs that differ, `conflicts` those to examine.
    """
    at = {
        pair: next((difference for difference in differences if difference.offset == first), None)
        for pair, differences in conflicts.items()
    }
    batches: dict[int, NDArray[np.int64]] = {}
    for (i, j), difference in at.items():
        if difference is not None:
            batches[i], batches[j] = difference.left.row, difference.right.row
    epoch_of = {index: int(batch[BatchColumn.PARTITION_LEADER_EPOCH]) for index, batch in batches.items()}
    grouped = _without_conflict(epoch_of, at)
    versions = [LogVersion([replicas[k] for k in members], epoch, [batches[k] for k in members]) for epoch, members in grouped]
    for index, replica in enumerate(replicas):
        if replica.first_held_offset > first:
            continued = [version for version in versions if continues_version(index, version, replicas, all_conflicts)]
            if len(continued) == 1:
                continued[0].later_starts.append(replica)
    return versions


def _without_conflict(epoch_of: dict[int, int], at: Mapping[tuple[int, int], object]) -> list[tuple[int, list[int]]]:
    """(epoch, members) of groups of one epoch without a conflict between members; `at`: pairs and how they differ. A batch without
    an epoch, as in message formats before 2, fits any group."""
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
    """Whether a replica without the fork's offset continues a version: its log overlaps with one of that version's, and equals each
    where the overlap begins."""
    peer, overlaps = replicas[index], False
    for other in version.replicas:
        at = next(k for k, replica in enumerate(replicas) if replica is other)
        start = max(peer.first_held_offset, other.first_held_offset)
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
    """Findings for the first conflict, the epochs at it by broker, and its offset. `conflicts` has only pairs that differ,
    `all_conflicts` all of them, if there are more.

    Several versions that lose committed records have a finding each, the longest loss first.
    """
    first = min(differences[0].offset for differences in conflicts.values())
    versions = versions_at(replicas, conflicts, conflicts if all_conflicts is None else all_conflicts, first)
    epochs = {str(broker): version.epoch for version in versions for broker in version.brokers}
    evidence: Json = {
        "offset": first,
        "versions": [version.as_evidence() for version in versions],
        "premises": premises(replicas),
    }
    committed_brokers = _committed_brokers(versions, first)
    all_epochs = [version.epoch for version in versions]
    if same_epoch := [version for version in versions if version.epoch >= 0 and all_epochs.count(version.epoch) > 1]:
        last = max(differences[-1].end_offset for differences in conflicts.values())
        most = max(len(version.replicas) for version in same_epoch)
        largest = [version.brokers for version in same_epoch if len(version.replicas) == most]
        evidence["held_by"] = largest[0] if len(largest) == 1 else []
        findings = [finding("SAME_EPOCH_DIVERGENCE", place_of(replicas, first, last), evidence)]
    elif first >= max(version.high_watermark for version in versions) or committed_brokers:
        findings = [_fork_above_watermarks(replicas, versions, first, evidence, committed_brokers)]
    else:
        findings = []
        for losing_version, leaders, start in _losing_versions(versions, replicas, first):
            held_by = _holders(losing_version, replicas, conflicts)
            following = [replica for replica in losing_version.replicas if replica.broker in held_by] or [
                losing_version.latest_replica
            ]
            of_loser = {"held_by": held_by, "loses": losing_version.committed_end - start} | _truncation_evidence(
                following, leaders
            )
            findings.append(finding("UNCLEAN_LOSS", place_of(replicas, start, losing_version.committed_end), evidence | of_loser))
        evidence["truncation_offsets"] = _version_truncations(versions)
    if not findings:
        findings = [_fork_below_watermark(replicas, conflicts, versions, first, evidence)]
    return findings, epochs, first


def _fork_above_watermarks(
    replicas: list[Replica], versions: list[LogVersion], first: int, evidence: Json, committed_brokers: list[int | str]
) -> Finding:
    """A fork of uncommitted records, or where these are cut and the committed ones stay on `committed_brokers`: harmless if
    watermarks prove it and followers do cut."""
    evidence = {**evidence, "held_by": [], "truncation_offsets": _version_truncations(versions)}
    if committed_brokers:
        evidence["committed_on"] = committed_brokers
    unknown = [version for version in versions if all(replica.context.high_watermark is None for replica in version.replicas)]
    severity, confidence = (Severity.WARNING, Confidence.SUSPECTED) if unknown else (Severity.INFO, Confidence.PROVEN)
    if unknown:
        evidence["watermark_unknown"] = [broker for version in unknown for broker in version.brokers]
    if kept_rows := _kept_by_followers(versions, replicas, first):
        del evidence["held_by"]
        evidence |= {"kept": kept_rows, "kept_on": [row["broker"] for row in kept_rows]}
        severity, confidence = Severity.ERROR, Confidence.SUSPECTED if unknown else Confidence.INFERRED
        if all(row["without_checkpoint"] for row in kept_rows):
            evidence["harmless_if"] = "the copy of the leader was made without its leader-epoch-checkpoint"
            severity, confidence = Severity.WARNING, Confidence.SUSPECTED
    place = place_of(replicas, first, max(replica.log_end_offset for replica in replicas))
    return finding("FORK_ABOVE_HW", place, evidence, severity=severity, confidence=confidence)


def _fork_below_watermark(
    replicas: list[Replica], conflicts: Conflicts, versions: list[LogVersion], first: int, evidence: Json
) -> Finding:
    """A fork of committed records where no version is known to be that of the later leaders."""
    end = max(version.committed_end for version in versions)
    most = [version for version in versions if version.committed_end == end]
    evidence["held_by"] = _holders(most[0], replicas, conflicts) if len(most) == 1 else []
    confidence = Confidence.PROVEN if min(version.epoch for version in versions) >= 0 else Confidence.INFERRED
    place = place_of(replicas, first, min(end, _offset_of_agreement(replicas, conflicts, end)))
    return finding("FORK_BELOW_HW", place, evidence, confidence=confidence)


def _kept_by_followers(versions: list[LogVersion], replicas: list[Replica], first: int) -> list[Json]:
    """Records of other versions that followers keep under the present leader, because the checkpoints that brokers load do not cut
    them, though the batches' epochs would; under each copy of the leader. Nothing for copies of running brokers, whose checkpoint
    may be older than their batches."""
    leaders = _present_leaders(versions, replicas)
    leader_ids = set(map(id, leaders))
    others = [version for version in versions if leader_ids.isdisjoint(map(id, (*version.replicas, *version.later_starts)))]
    cut_to = max(first, *[replica.log_start_offset for replica in leaders])
    rows: list[Json] = []
    if len(others) == len(versions) or any(replica.context.live for replica in leaders):
        return rows
    for follower in (replica for version in others for replica in version.replicas):
        cuts = [truncation_when_leading(follower, replica) for replica in leaders]
        ends = [row["from_checkpoint"] or 0 for row in cuts if row["from_batches"] <= cut_to]
        if len(ends) == len(leaders) and min(ends) > cut_to:
            span = {"broker": follower.broker, "offset_start": first, "offset_end": min(ends)}
            rows.append(span | {"without_checkpoint": all(replica.context.leader_epochs is None for replica in leaders)})
    return rows


def _present_leaders(versions: list[LogVersion], replicas: list[Replica]) -> list[Replica]:
    """The copies of the leader named by the controller, unless a log has a later epoch than it knows; else those of the latest
    epoch, of the version that has it."""
    control = next((replica.context.control for replica in replicas if replica.context.control is not None), None)
    if control is not None and (control.leader_epoch is None or control.leader_epoch >= max(map(last_epoch, replicas))):
        leaders = [replica for replica in replicas if replica.context.node == control.leader]
        if leaders:
            return leaders
    latest = max(last_epoch(version.latest_replica) for version in versions)
    leading = next(version for version in versions if last_epoch(version.latest_replica) == latest)
    return [replica for replica in (*leading.replicas, *leading.later_starts) if last_epoch(replica) == latest]


def _offset_of_agreement(replicas: list[Replica], conflicts: Conflicts, end: int) -> int:
    """Offset from which all differing pairs agree again as far as both go; `end` if a pair differs up to the end of the shorter
    log, or in more places than are kept."""
    agree = 0
    for (i, j), differences in conflicts.items():
        shared = min(replicas[i].log_end_offset, replicas[j].log_end_offset)
        if len(differences) >= DIFFERENCES_KEPT or differences[-1].end_offset >= shared:
            return end
        agree = max(agree, differences[-1].end_offset)
    return agree


def _holders(version: LogVersion, replicas: list[Replica], conflicts: Conflicts) -> list[int | str]:
    """Brokers with all records of a version known to be committed: others may be shorter, or differ further on."""
    end, proving, first_conflicts = version.committed_end, version.proving_replica, _FirstConflicts(replicas, conflicts)
    return [
        replica.broker
        for replica in version.replicas
        if replica.log_end_offset >= end and not first_conflicts.differ_below(replica, proving, end)
    ]


def unexplained_conflicts(replicas: list[Replica], conflicts: Conflicts, all_conflicts: Conflicts) -> Conflicts:
    """The conflicts that the first fork in them does not explain: both sides have one version of it, or a side has none.

    `all_conflicts` are all pairs that differ. A replica without the fork's offset belongs to the version it continues, unless its
    watermark proves more than theirs.
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
    """Whether two replicas, by their numbers, have different histories at `[start, end)`: they forked before and are in different
    epochs there, or differ in a batch of it. One cannot restore what the other lost."""
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
    """Versions with committed records at `first` that the leader of the latest epoch, which may be empty, cuts there or before, the
    copies of that leader, and where it cuts; the largest loss first.

    Of several logs with that epoch, those that keep most count; those that begin after the fork only if there are no others.
    """
    latest = max(map(last_epoch, replicas), default=-1)
    leaders = [replica for replica in replicas if last_epoch(replica) == latest]
    leaders = [replica for replica in leaders if replica.first_held_offset <= first] or leaders
    losing = []
    for version in versions:
        cuts = (
            [(cut_offset(version.latest_replica, replica), replica) for replica in leaders] if first < version.committed_end else []
        )
        start = max((cut for cut, _ in cuts if cut is not None), default=first + 1)
        if start <= first:
            losing.append((version, [replica for cut, replica in cuts if cut == start], start))
    return sorted(losing, key=lambda losing_version: -losing_version[0].committed_end)


def _truncation_evidence(following: list[Replica], leaders: list[Replica]) -> Json:
    """Evidence of a loss: who has the latest epoch, and where `following` cut under it."""
    longest = max(leaders, key=lambda replica: replica.log_end_offset)
    return {
        "leaders": [replica.broker for replica in leaders],
        "latest_epoch": last_epoch(longest),
        "truncation_offsets": _truncations((replica, longest) for replica in following),
    }


def _committed_brokers(versions: list[LogVersion], first: int) -> list[int | str]:
    """Brokers of the only version that was committed at `first`, if its epochs make all other replicas of the fork cut there.

    This is normal after a failover once the new leader has records: uncommitted ones of the old leader are cut. Records below the
    leader's log start are deleted too, because followers adopt that start.
    """
    committed = [version for version in versions if first < version.committed_end]
    if len(committed) != 1:
        return []
    leader = committed[0].latest_replica
    others = [
        replica for version in versions if version is not committed[0] for replica in (*version.replicas, *version.later_starts)
    ]
    cuts = [cut_offset(replica, leader) for replica in others]
    cut_to = max(first, leader.log_start_offset)
    return committed[0].brokers if all(cut is not None and cut <= cut_to for cut in cuts) else []


def _version_truncations(versions: list[LogVersion]) -> list[Json]:
    return _truncations((version.latest_replica, other.latest_replica) for version, other in permutations(versions, 2))


def trailing_epoch_loss(
    replicas: list[Replica], conflicts: Conflicts | None = None, known_findings: Sequence[Finding] = ()
) -> Finding | None:
    """`UNCLEAN_LOSS` without a conflicting record: a leader's new epoch begins below another copy's watermark and has no batches
    yet, or shares no offset with that copy, which begins at its end or later.

    `conflicts`: pairs that differ, whose forks have their own findings; losses in `known_findings` are not repeated.
    """
    worst: Finding | None = None
    first_conflicts = _FirstConflicts(replicas, conflicts or {})
    latest = max(map(last_epoch, replicas), default=-1)
    for leader in replicas:
        if not leader.end_is_known or not lineage(leader) or last_epoch(leader) < latest:
            continue
        for follower in replicas:
            loss = _loss_under(leader, follower, replicas, first_conflicts)
            if loss is None or any(_covers(known_loss, loss) for known_loss in known_findings):
                continue
            if worst is None or (loss.place.offset_end or 0) > (worst.place.offset_end or 0):
                worst = loss
    return worst


def _loss_under(leader: Replica, follower: Replica, replicas: list[Replica], first_conflicts: "_FirstConflicts") -> Finding | None:
    """The committed records that a follower loses to a leader without batches in its epoch or without a shared offset; None if it
    loses none."""
    last = lineage(leader)[-1]
    wrote_nothing = last.start_offset == leader.log_end_offset and last not in leader.epochs
    cut = cut_offset(follower, leader) if wrote_nothing or follower.first_held_offset >= leader.log_end_offset else None
    end = min(follower.context.high_watermark or 0, follower.log_end_offset)
    if cut is None or cut >= end or not follower.end_is_known or first_conflicts.differ_below(leader, follower, end):
        return None
    holding = [
        replica
        for replica in replicas
        if replica.log_end_offset >= end and not first_conflicts.differ_below(replica, follower, end)
    ]
    start = max(cut, min(replica.log_start_offset for replica in holding))
    if start >= end:
        return None  # the watermark is below the log start of all possible holders
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
    } | _truncation_evidence(holding, [leader])
    return finding("UNCLEAN_LOSS", place_of(replicas, start, end), evidence)


class _FirstConflicts:
    """First differences of replicas, by the replicas themselves."""

    def __init__(self, replicas: list[Replica], conflicts: Conflicts) -> None:
        self._first: dict[tuple[int, int], int] = {}
        for (i, j), differences in conflicts.items():
            for pair in ((i, j), (j, i)):
                self._first[id(replicas[pair[0]]), id(replicas[pair[1]])] = differences[0].offset

    def differ_below(self, left: Replica, right: Replica, end: int) -> bool:
        """Whether two replicas have different records below an offset."""
        first = self._first.get((id(left), id(right)))
        return first is not None and first < end


def without_reported(findings: list[Finding], known_findings: Sequence[Finding]) -> list[Finding]:
    """`findings` without losses that `known_findings` report."""
    return [
        finding
        for finding in findings
        if finding.kind != "UNCLEAN_LOSS" or not any(_covers(other, finding) for other in known_findings)
    ]


def _covers(loss: Finding, other: Finding) -> bool:
    """Whether a loss reports another's offsets, with a common holder."""
    place, start, end = loss.place, other.place.offset_start or 0, other.place.offset_end or 0
    if loss.kind != "UNCLEAN_LOSS" or place.offset_start is None or place.offset_end is None:
        return False
    common = {*loss.evidence["held_by"]} & {*other.evidence["held_by"]}
    return bool(common) and place.offset_start <= start and end <= place.offset_end


def premises(replicas: list[Replica]) -> list[str]:
    """Where watermarks, epochs, topic ids and the cleanup policy came from, one short line each."""
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
