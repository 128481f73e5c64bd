"""One broker's replica at two times: what was appended, cut off, deleted, and what changed under the same offsets.

A log only ever grows at its end, is cut there when a leader's log differs (ReplicaFetcherThread.truncate) or a start finds damage
(LogLoader), and loses what is old at its front (retention, DeleteRecords) or superseded in its middle (the cleaner). Everything
else that differs between two copies of one log is told as what it is: bytes that rotted, were written anew, or are missing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypedDict, Unpack

from kafka_forensics.analysis.compaction import REASONS, KeyTally
from kafka_forensics.analysis.kinds import finding
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import (
    BatchReader,
    Counts,
    Difference,
    Differences,
    counted,
    differences,
    is_compacted,
    lineage,
    newest_time,
    records_held,
    retention_for,
)
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.changes import UNREADABLE, Change, ChangeKind, ReplicaAt
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.offset_ranges import Range, Ranges, clipped, normalised, without
from kafka_forensics.model.results import PartitionSummary, Read
from kafka_forensics.replication.epochs import epoch_at

if TYPE_CHECKING:
    from kafka_forensics.analysis.kinds.evidence_classes import TruncatedSinceEvidence

_RANGES_TOLD: Final = 64
"""Ranges of a kind that get a row of their own, from the first on; the last of these rows says how many more there are."""


class Between(NamedTuple):
    """Names of the snapshots that are compared, the older first."""

    older: str
    newer: str


@dataclass(slots=True)
class LogChanges:
    """What became of one log. `unlike`: some batch is not in both, where both reach; `cut`: the first offset that went at the end.

    `lost_from`: the first offset whose records went with the end and did not come back as they were; None if none did. `lost_to`:
    where the log is as it was again, behind records that others took the place of; None: it is not.
    """

    changes: list[Change] = field(default_factory=list)
    unlike: bool = False
    cut: int | None = None
    lost_from: int | None = None
    lost_to: int | None = None


def replica_at(replica: Replica) -> ReplicaAt:
    """The replica as a row of changes tells of it."""
    context, epochs = replica.context, lineage(replica)
    unread = replica.read is Read.NONE
    return ReplicaAt(
        context.log_dir,
        context.topic_id,
        None if unread else replica.log_start_offset,
        replica.log_end_offset if replica.end_is_known else None,
        context.high_watermark,
        epochs[-1].leader_epoch if epochs else None,
        len(context.segment_base_offsets),
    )


class Details(TypedDict, total=False):
    """What a change says beside its place: fields of `Change`."""

    reason: str | None
    leader_epochs: tuple[int, ...]
    replaced_by: int | None
    batches: int | None
    records: int | None
    bytes: int | None
    evidence: Json


def change(
    kind: ChangeKind,
    offsets: Range,
    old: Replica | None,
    new: Replica | None,
    between: Between,
    *,
    counts: Counts | None = None,
    **more: Unpack[Details],
) -> Change:
    """A row about `offsets` of a replica that is there in at least one of the snapshots."""
    known = new or old
    assert known is not None
    context = known.context
    if any(clipped(replica.remote, *offsets) for replica in (old, new) if replica is not None):
        counts = None
        if new is not None and clipped(new.remote, *offsets):
            more["evidence"] = more.get("evidence", {}) | {"in_remote_storage": True}
    if counts is not None:
        more |= {"batches": counts.batches, "records": counts.records, "bytes": counts.bytes}
    before, after = (None if replica is None else replica_at(replica) for replica in (old, new))
    place = context.topic, context.partition, context.broker, *between
    return Change(*place, kind, *offsets, before, after, **more)


def log_changes(old: Replica, new: Replica, between: Between, reader: BatchReader) -> LogChanges:
    """What became of the log of one replica; of a compacted one all but what the cleaner took."""
    if Read.NONE in (old.read, new.read):
        known = [replica for replica in (old, new) if replica.read is not Read.NONE]
        offsets = (known[0].log_start_offset, known[0].log_end_offset) if known else (0, 0)
        return LogChanges([change(ChangeKind.NOT_COMPARED, offsets, old, new, between, reason=UNREADABLE)])
    differing = differences(old, new, reader)
    comparison = _Comparison(old, new, between, reader, differing)
    comparison.end()
    comparison.front()
    comparison.middle()
    comparison.result.unlike = differing.unlike
    if comparison.unread:
        comparison.row(
            ChangeKind.NOT_COMPARED, (comparison.common_end, max(comparison.common_end, old.log_end_offset)), reason="unreadable"
        )
    return comparison.result


@dataclass(slots=True)
class _Comparison:
    """A comparison under way."""

    old: Replica
    new: Replica
    between: Between
    reader: BatchReader
    differences: Differences
    result: LogChanges = field(default_factory=LogChanges)

    @property
    def common_end(self) -> int:
        """End of the offsets that both logs reach and that were not cut off between."""
        ends = [self.old.log_end_offset, self.new.log_end_offset]
        return min(ends if self.result.cut is None else [*ends, self.result.cut])

    @property
    def common_start(self) -> int:
        """Start of the offsets that both logs have."""
        return max(self.old.log_start_offset, self.new.log_start_offset)

    @property
    def unread(self) -> bool:
        """Whether either log was not read to its end."""
        return not (self.old.end_is_known and self.new.end_is_known)

    def row(self, kind: ChangeKind, offsets: Range, *, counts: Counts | None = None, **more: Unpack[Details]) -> None:
        """Add a row."""
        if self.differences.ranges_not_compared:
            more["evidence"] = more.get("evidence", {}) | {"ranges_not_compared": self.differences.ranges_not_compared}
        self.result.changes.append(change(kind, offsets, self.old, self.new, self.between, counts=counts, **more))

    def end(self) -> None:
        """What was cut off at the end, and what was appended there."""
        old, new, result = self.old, self.new, self.result
        fork = self._find_cut()
        if fork is None and self.unread:
            return
        if result.cut is not None and result.lost_from is None and new.log_end_offset < old.log_end_offset:
            result.lost_from = max(new.log_end_offset, result.cut)
        if result.cut is not None and result.cut < old.log_end_offset:
            self._cut((result.cut, old.log_end_offset), fork)
        begin = old.log_end_offset if result.cut is None else min(result.cut, new.log_end_offset)
        if begin < new.log_end_offset and (result.cut is None or fork is not None):
            self._appended(begin)

    def _appended(self, begin: int) -> None:
        """Add the rows of what the newer log has from `begin` to its end, and of what lies below its log start again."""
        new = self.new
        start = min(max(begin, new.log_start_offset), new.log_end_offset)
        if begin < start:
            self.row(ChangeKind.DELETED, (begin, start), reason="came_and_went")
        offsets = (start, new.log_end_offset)
        if start < new.log_end_offset:
            counts = self._counts(new, offsets, whole_rest=self.old)
            self.row(ChangeKind.APPENDED, offsets, counts=counts, leader_epochs=_epochs(new, offsets))

    def _find_cut(self) -> Difference | None:
        """Where the older log was cut; the first of the records that others took the place of up to the end, if any did."""
        old, new, result = self.old, self.new, self.result
        replaced = [difference for difference in self.differences if _took_its_place(difference)]
        fork = next(iter(replaced), None)
        if self._is_as_it_was_behind(replaced):
            result.lost_from, fork = replaced[0].offset, None
        if fork is not None:
            result.cut = fork.offset
            result.lost_from = next((difference.offset for difference in self.differences if difference.kind == "content"), None)
        elif not self.unread and new.log_end_offset < old.log_end_offset:
            result.cut = min(max(new.log_end_offset, old.log_start_offset), old.log_end_offset)
        if replaced and fork is None and result.cut is None:
            result.lost_to = max(difference.end_offset for difference in replaced)
        return fork

    def _is_as_it_was_behind(self, replaced: list[Difference]) -> bool:
        """Whether both logs go on alike behind records of the same leader epoch that are others now: nothing was cut off there, for
        what is written after a cut is of a later epoch, or differs up to the end."""
        if not replaced or self.differences.full or self.differences.ranges_not_compared:
            return False
        common_end = min(self.old.log_end_offset, self.new.log_end_offset)
        same_epochs = all(difference.kind == "content" and difference.epochs[0] == difference.epochs[1] for difference in replaced)
        return same_epochs and max(difference.end_offset for difference in replaced) < common_end

    def _cut(self, offsets: Range, fork: Difference | None) -> None:
        """Add the row of what went at the end."""
        old, new = self.old, self.new
        counts, epochs = self._counts(old, offsets, whole_rest=new), _epochs(old, offsets)
        if fork is None and _ends_in_damage(new):
            self.row(ChangeKind.DAMAGED, offsets, counts=counts, leader_epochs=epochs, reason="tail")
            return
        place = None if fork is None else fork.epochs[1]
        equal = fork is not None and self.result.lost_from is None
        reason = "same_records_again" if equal else None
        self.row(ChangeKind.TRUNCATED, offsets, counts=counts, leader_epochs=epochs, replaced_by=place, reason=reason)

    def front(self) -> None:
        """What went at the front, or came back there."""
        old, new = self.old, self.new
        if old.log_start_offset < new.log_start_offset:
            offsets = (old.log_start_offset, min(new.log_start_offset, old.log_end_offset))
            if offsets[0] < offsets[1]:
                counts = self._counts(old, offsets, whole_rest=new)
                self.row(
                    ChangeKind.DELETED,
                    offsets,
                    counts=counts,
                    leader_epochs=_epochs(old, offsets),
                    reason=self._by_what(offsets[1]),
                )
        elif new.log_start_offset < old.log_start_offset:
            offsets = (new.log_start_offset, min(old.log_start_offset, new.log_end_offset))
            if offsets[0] < offsets[1]:
                self.row(ChangeKind.RESTORED, offsets, leader_epochs=_epochs(new, offsets), reason="log_start")

    def _by_what(self, end: int) -> str:
        """What took the head that ends before `end`: whole segments go by retention (or are followed from the leader), parts of one
        by DeleteRecords; nothing known if they are too young for that."""
        new = self.new
        if new.log_start_offset > min(new.context.segment_base_offsets, default=new.log_start_offset):
            return "log_start_moved"
        rows = self.reader.batches(self.old, end - 1, end)
        retention, now = retention_for(new.context.control), newest_time((self.old, new), self.reader)
        expected = (new.context.log_start_checkpoint or 0) >= end or new.context.segments_being_deleted
        if expected or (retention.deletes and (not rows.shape[1] or is_compacted(self.old, new))):
            return "retention"
        timestamp = int(rows[BatchColumn.MAX_TIMESTAMP, -1]) if rows.shape[1] else -1
        spared = retention.spares(timestamp, now, new.state.framing.bytes_decoded)
        return "head_gone" if spared else "retention"

    def middle(self) -> None:
        """What changed under the same offsets."""
        limits = self.common_start, self.common_end
        before = [difference for difference in self.differences if difference.offset < self.common_end]
        for (kind, reason), group in sorted(_sorted_out(before, self.new, self.reader).items()):
            offsets = (group[0].offset, max(difference.end_offset for difference in group))
            self.row(kind, offsets, reason=reason, evidence={"batches_differing": len(group)})
        if self.old.state.unread or self.new.state.unread:
            return
        old_gaps, new_gaps = sorted(self.old.course.gaps()), sorted(self.new.course.gaps())
        rotten = [(difference.offset, difference.end_offset) for difference in before if difference.kind == "damaged"]
        known = [*rotten, *old_gaps, *self.old.course.eaten.values()]
        for offsets, evidence in _clipped(without(sorted(self.new.course.eaten.values()), normalised(known)), limits):
            self.row(ChangeKind.DAMAGED, offsets, reason="framing", evidence=evidence)
        for offsets, evidence in _clipped(without(new_gaps, normalised(old_gaps)), limits):
            self.row(ChangeKind.MISSING, offsets, leader_epochs=_epochs(self.old, offsets), evidence=evidence)
        for offsets, evidence in _clipped(without(old_gaps, normalised(new_gaps)), limits):
            self.row(ChangeKind.RESTORED, offsets, leader_epochs=_epochs(self.new, offsets), reason="gap", evidence=evidence)
        compacted = is_compacted(self.old, self.new)
        if self.differences.unlike and not compacted and not self.result.changes and limits[0] < limits[1]:
            self.row(ChangeKind.REWRITTEN, limits, reason="other_batches")

    def _counts(self, replica: Replica, offsets: Range, *, whole_rest: Replica) -> Counts | None:
        """Batches, records and bytes of a range at an end of a log; without reading where the rest of it is the other log."""
        same_start = replica.first_batch_offset == whole_rest.first_batch_offset and offsets[1] == replica.log_end_offset
        same_end = replica.log_end_offset == whole_rest.log_end_offset and offsets[0] <= replica.first_batch_offset
        begins_there = offsets[0] == whole_rest.log_end_offset if same_start else offsets[1] == whole_rest.first_batch_offset
        compacted = is_compacted(replica, whole_rest)
        if (same_start or same_end) and begins_there and not self.differences.unlike and not self.unread and not compacted:
            ours, theirs = replica.state.framing, whole_rest.state.framing
            size = ours.bytes_decoded - theirs.bytes_decoded
            rest = Counts(ours.batches - theirs.batches, ours.records - theirs.records, size)
            if min(rest) >= 0:
                return rest
        return counted(replica, self.reader, *offsets)


def _ends_in_damage(replica: Replica) -> bool:
    """Whether bytes that are no good batch stand behind the last one."""
    state, last = replica.state, max(replica.context.segment_base_offsets, default=0)
    torn = any(segment == last for segment, _ in state.framing.damage.get("SEG_TORN_TAIL", ()))
    return torn or state.continuity.damage_at_end is not None or state.continuity.bad_tail is not None


def _took_its_place(difference: Difference) -> bool:
    """Whether a batch stands where another was cut off: with other records, or with equal ones under another leader epoch."""
    return difference.kind == "content" or (difference.kind == "reencoded" and difference.epochs[0] != difference.epochs[1])


def _epochs(replica: Replica, offsets: Range) -> tuple[int, ...]:
    """Leader epochs of a range, by the batches."""
    start, end = offsets
    first = epoch_at(replica.epochs, start)
    within = {entry.leader_epoch for entry in replica.epochs if start <= entry.start_offset < end}
    return tuple(sorted(within if first is None else within | {first}))


def _sorted_out(
    differing: Iterable[Difference], new: Replica, reader: BatchReader
) -> dict[tuple[ChangeKind, str], list[Difference]]:
    """Differences under the same offsets by what they are."""
    groups: dict[tuple[ChangeKind, str], list[Difference]] = {}
    for difference in differing:
        kind, reason = ChangeKind.REWRITTEN, difference.kind
        if difference.kind == "damaged":
            rotten_before, rotten = (
                row[BatchColumn.CRC] != row[BatchColumn.CRC_COMPUTED] for row in (difference.left, difference.right)
            )
            if rotten or (not rotten_before and reader.undecodable(new, difference.right)):
                kind, reason = ChangeKind.DAMAGED, "batch"
            else:
                reason = "repaired" if rotten_before else "unreadable"
        groups.setdefault((kind, reason), []).append(difference)
    return groups


def _clipped(ranges: Iterable[Range], limits: Range) -> list[tuple[Range, Json]]:
    """The first of `ranges` within `limits`, with evidence: the last of them says how many more there are."""
    clipped = [(max(start, limits[0]), min(end, limits[1])) for start, end in ranges]
    within = [span for span in clipped if span[0] < span[1]]
    listed: list[tuple[Range, Json]] = [(span, {}) for span in within[:_RANGES_TOLD]]
    if len(within) > _RANGES_TOLD:
        listed[-1][1]["ranges_more"] = len(within) - _RANGES_TOLD
    return listed


# Records that an older snapshot proves committed, and that went since: who cut them off, and who still has them.
#
# A high watermark never goes back in good order (Partition.maybeIncrementLeaderHW): what was below it once may expire or be
# cleaned, but not be cut off. A broker that did cut it recovered from damage and copies it again, or followed a leader that had
# lost it.


_GAP: Final = -1
"""Stands beside the numbers of replicas for what the older log itself lacked."""


@dataclass(frozen=True, slots=True)
class Went:
    """Offsets from `start` to `end` (None: all behind) that went from a replica's log, and the number of the row about it."""

    old: Replica
    start: int
    row: int
    end: int | None = None

    @property
    def brokers(self) -> list[int | str]:
        """Whose log it was."""
        return [self.old.broker]


@dataclass(slots=True)
class Newer:
    """What the newer snapshot has of a partition: replicas of the same topic, brokers it leaves out, whether these are all."""

    between: Between
    replicas: list[Replica]
    not_given: list[int | str]
    assignment_is_known: bool


def committed_end(old: Replica, summary: PartitionSummary) -> tuple[int, str] | None:
    """Up to where the older snapshot proves this replica's records committed, and what proves it; None: nothing does.

    A witness speaks for the log it was read with: another broker's counts as far as both hold the same.
    """
    own = old.context.high_watermark or 0
    witness = f"replication-offset-checkpoint of broker {old.broker}"
    least, agreement = summary.high_watermark_at_least or 0, summary.agreement
    if agreement.kind == "conflict":
        least = min(least, agreement.common_end_offset or 0)
    elif agreement.kind == "not_compared":
        least = 0
    if least > own:
        own, witness = least, summary.high_watermark_witness or "another broker"
    end = min(own, old.log_end_offset)
    return (end, witness) if end > old.log_start_offset else None


class _Piece(NamedTuple):
    """Committed offsets that went from one log, all with the same holders; `high_watermark`: up to where they were committed."""

    went: Went
    offsets: Range
    high_watermark: int
    witness: str


def committed_gone(
    went: Sequence[Went],
    older: Sequence[Replica],
    newer: Newer,
    summary: PartitionSummary,
    changes: list[Change],
    reader: BatchReader,
) -> list[Finding]:
    """`COMMITTED_TRUNCATED_SINCE`, one for each set of brokers that still hold what others cut; their rows in `changes` say so too.

    What expired meanwhile is not missed, and a replica that was removed is no loss while any other holds what it had: offset by
    offset, for the others may have different parts of it.
    """
    groups: dict[tuple[int | str, ...], list[_Piece]] = {}
    for gone in went:
        known = committed_end(gone.old, summary)
        if known is None:
            continue
        high_watermark, witness = known
        end = high_watermark if gone.end is None else min(high_watermark, gone.end)
        expired = max((replica.log_start_offset for replica in newer.replicas), default=0)
        start = max(gone.start, expired)
        if start >= end:
            continue
        pieces = _pieces(gone.old, newer.replicas, (start, end), reader)
        changes[gone.row] = _with_holders(changes[gone.row], end, pieces)
        for offsets, holders in pieces:
            if not (holders and changes[gone.row].kind is ChangeKind.DELETED):
                groups.setdefault(holders, []).append(_Piece(gone, offsets, high_watermark, witness))
    return [
        _finding(holders, group, _held_before(group, older, reader), newer, changes, _records(group, reader))
        for holders, group in sorted(groups.items(), key=repr)
    ]


def _held_before(group: Sequence[_Piece], older: Sequence[Replica], reader: BatchReader) -> list[int | str]:
    """The brokers whose older logs held what is gone: those it went from, and others that held all of it."""
    gone: dict[int | str, list[Range]] = {}
    for piece in group:
        gone.setdefault(piece.went.old.broker, []).append(piece.offsets)
    logs = {piece.went.old.broker: piece.went.old for piece in group}

    def holds_all(other: Replica) -> bool:
        for broker, ranges in gone.items():
            ranges_lost = normalised(ranges)
            if without(ranges_lost, _held(logs[broker], other, (ranges_lost[0][0], ranges_lost[-1][1]), reader)):
                return False
        return True

    return [replica.broker for replica in older if replica.broker in gone or holds_all(replica)]


def _with_holders(row: Change, end: int, pieces: list[tuple[Range, tuple[int | str, ...]]]) -> Change:
    """The row, and who has the committed part of what it is about."""
    if not pieces:
        return row
    of_each = [set(holders) for _, holders in pieces]
    every = tuple(broker for broker in pieces[0][1] if all(broker in holders for holders in of_each))
    lost = [offsets for offsets, holders in pieces if not holders]
    evidence = dict(row.evidence)
    if not every and len(lost) < len(pieces):
        evidence["in_parts_on"] = list(dict.fromkeys(holder for _, holders in pieces for holder in holders))
        evidence["lost"] = [list(span) for span in lost[:_RANGES_TOLD]]
        evidence["lost_offsets"] = sum(high - low for low, high in lost)
    return replace(row, committed_end=end, held_by=every, evidence=evidence)


def _pieces(
    old: Replica, newer: Sequence[Replica], offsets: Range, reader: BatchReader
) -> list[tuple[Range, tuple[int | str, ...]]]:
    """The parts of `offsets` that the older log has, in order, each with the brokers whose newer logs hold all of it."""
    turns = [(place, _GAP, begins) for gap in sorted(old.course.gaps()) for place, begins in zip(gap, (True, False), strict=True)]
    for index, replica in enumerate(newer):
        for low, high in _held(old, replica, offsets, reader):
            turns += [(low, index, True), (high, index, False)]
    open_there: set[int] = set()
    listed: list[tuple[Range, tuple[int | str, ...]]] = []
    position, end = offsets
    for turn, index, begins in [*sorted(turns), (end, _GAP, True)]:
        place = min(turn, end)
        if position < place and _GAP not in open_there:
            holders = tuple(newer[index].broker for index in sorted(open_there))
            if listed and listed[-1][0][1] == position and listed[-1][1] == holders:
                position = listed.pop()[0][0]
            listed.append(((position, place), holders))
        position = max(position, place)
        (open_there.add if begins else open_there.discard)(index)
    return listed


def _held(old: Replica, new: Replica, offsets: Range, reader: BatchReader) -> Ranges:
    """The parts of `offsets` that another log, mostly the newer one, holds as the older one had them, in order."""
    start, end = max(offsets[0], new.log_start_offset), min(offsets[1], new.log_end_offset)
    runs = [*new.remote, *((run.start_offset, run.end_offset) for run in new.state.continuity.runs)]
    parts = clipped(normalised(runs), start, end)
    differing = differences(old, new, reader)
    others = [difference for difference in differing if difference.kind == "content"]
    if not others:
        return parts
    same_epochs = all(difference.epochs[0] == difference.epochs[1] for difference in others)
    goes_on = same_epochs and not differing.full and not differing.ranges_not_compared
    end_of_others = max(difference.end_offset for difference in others) if goes_on else max(end, others[0].offset)
    return without(parts, [(others[0].offset, end_of_others)])


def _are_of_one_topic(replicas: Sequence[Replica]) -> bool:
    ids = {replica.context.topic_id for replica in replicas}
    return len(ids) == 1 and None not in ids


def _finding(
    holders: tuple[int | str, ...],
    group: list[_Piece],
    held_before: list[int | str],
    newer: Newer,
    changes: list[Change],
    records: int | None,
) -> Finding:
    gone = normalised(piece.offsets for piece in group)
    committed = max(group, key=lambda piece: piece.high_watermark)
    brokers = list(dict.fromkeys(broker for piece in group for broker in piece.went.brokers))
    context = group[0].went.old.context
    place = Place(context.topic, context.partition, offset_start=gone[0][0], offset_end=gone[-1][1])
    one_id = _are_of_one_topic([*(piece.went.old for piece in group), *newer.replicas])
    evidence: TruncatedSinceEvidence = {
        "from_snapshot": newer.between.older,
        "to_snapshot": newer.between.newer,
        "brokers": brokers,
        "missing": sum(end - start for start, end in gone),
        "high_watermark": committed.high_watermark,
        "witness": committed.witness,
        "replaced_by": sorted({epoch for piece in group if (epoch := changes[piece.went.row].replaced_by) is not None}),
        "held_before": held_before,
        "premises": [
            f"{committed.witness} in snapshot {newer.between.older}",
            "one topic id" if one_id else "topic ids not all known",
            "the controller's log names all replicas" if newer.assignment_is_known else "no controller's log names all replicas",
        ],
    }
    if len(gone) > 1:
        evidence |= {"scattered": evidence["missing"], "ranges": list(map(list, gone[:_RANGES_TOLD]))}
    if records is not None:
        evidence["records_held"] = records
    severity, confidence = Severity.CRITICAL, Confidence.PROVEN if one_id else Confidence.INFERRED
    if holders:
        severity = Severity.WARNING
        evidence["held_by"] = list(holders)
    elif newer.not_given:
        severity, confidence = Severity.ERROR, Confidence.SUSPECTED
        evidence["not_given"] = newer.not_given
    elif not newer.assignment_is_known:
        confidence = Confidence.INFERRED
    return finding("COMMITTED_TRUNCATED_SINCE", place, evidence, severity=severity, confidence=confidence)


def _records(group: Sequence[_Piece], reader: BatchReader) -> int | None:
    """How many records the older snapshot has of what went; None where no one log has all of a range, or they are too many."""
    total = 0
    for start, end in normalised(piece.offsets for piece in group):
        whole = (piece.went.old for piece in group if piece.offsets == (start, end))
        count = next((count for old in whole if (count := records_held(old, reader, start, end)) is not None), None)
        if count is None:
            return None
        total += count
    return total


def keys_lost(old: Replica, new: Replica, tally: KeyTally, between: Between) -> Finding | None:
    """`KEYS_LOST_SINCE` if the newer log lacks what was a key's latest record, and no rule of the cleaner explains it."""
    if not tally.differing or 1 not in tally.lacking:
        return None
    listed = [
        {"offset": offset, "reason": group.reason, "key_hash": group.key_hash}
        for offset, group in sorted(tally.listed.items())
        if 1 in group.others
    ]
    evidence: Json = {
        "from_snapshot": between.older,
        "to_snapshot": between.newer,
        "keys": tally.differing,
        **{name: tally.reasons[name] for name in REASONS if tally.reasons[name]},
        "records": listed,
        "held_before": [old.broker],
    }
    context = new.context
    place = context.place(offset_start=tally.first_offset, offset_end=tally.end_offset)
    live = old.context.live or context.live
    severity, confidence = (Severity.WARNING, Confidence.SUSPECTED) if live else (None, None)
    return finding("KEYS_LOST_SINCE", place, evidence, severity=severity, confidence=confidence)
