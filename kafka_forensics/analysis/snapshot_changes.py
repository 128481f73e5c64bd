"""One broker's replica in two snapshots: what was appended, truncated or deleted, and what changed at the same offsets.

A log grows at its end and is truncated there, when the leader's log differs (ReplicaFetcherThread.truncate) or a start finds damage
(LogLoader). It loses old records at its start (retention, DeleteRecords) and superseded ones in its middle (the cleaner). Any other
difference between two copies of one log is reported as damaged, rewritten or missing bytes.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypedDict, Unpack

from msgspec import Struct, field
from msgspec.structs import replace

from kafka_forensics.analysis.compaction import REASONS, KeyTally
from kafka_forensics.analysis.kinds import finding
from kafka_forensics.analysis.replica import Replica, place_of
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
from kafka_forensics.model.batches import BatchColumn, has_right_crc
from kafka_forensics.model.changes import UNREADABLE, Change, ChangeKind, ReplicaAt
from kafka_forensics.model.findings import Confidence, Finding, Severity
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.offset_ranges import Range, Ranges, clipped, normalised, without
from kafka_forensics.model.results import PartitionSummary, ReadExtent
from kafka_forensics.replication.epochs import epoch_at

if TYPE_CHECKING:
    from kafka_forensics.analysis.kinds.evidence_classes import TruncatedSinceEvidence

_Brokers = tuple[int | str, ...]
_RANGES_LISTED: Final = 64
"""Ranges of a kind that get a row each; the last of these rows says how many more there are."""
_GAP: Final = -1
"""Stands among the numbers of replicas for the gaps of the older log."""


class SnapshotPair(NamedTuple):
    """Names of the compared snapshots, the older first."""

    older: str
    newer: str


class LogChanges(Struct):
    """The changes of one log between two snapshots."""

    changes: list[Change] = field(default_factory=list)
    has_differences: bool = False
    """Whether, in the common offsets, a batch is not in both logs."""
    cut: int | None = None
    """The first offset truncated from the older log's end."""
    lost_from: int | None = None
    """The first offset whose records were truncated or replaced, and did not come back unchanged."""
    lost_to: int | None = None
    """The offset from which both logs are equal again, after replaced records; None if they are not."""


def _replica_at(replica: Replica) -> ReplicaAt:
    """The replica as it is shown in a change."""
    context, epochs = replica.context, lineage(replica)
    return ReplicaAt(
        context.log_dir,
        context.topic_id,
        None if replica.read is ReadExtent.NONE else replica.log_start_offset,
        replica.log_end_offset if replica.end_is_known else None,
        context.high_watermark,
        epochs[-1].leader_epoch if epochs else None,
        len(context.segment_base_offsets),
    )


class Details(TypedDict, total=False):
    """Optional fields of `Change`."""

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
    between: SnapshotPair,
    *,
    counts: Counts | None = None,
    **more: Unpack[Details],
) -> Change:
    """The change of `offsets` of a replica that is in at least one of the snapshots."""
    replica_given = new or old
    assert replica_given is not None
    context = replica_given.context
    if any(clipped(replica.remote, *offsets) for replica in (old, new) if replica is not None):
        counts = None
        if new is not None and clipped(new.remote, *offsets):
            more["evidence"] = more.get("evidence", {}) | {"in_remote_storage": True}
    if counts is not None:
        more |= {"batches": counts.batches, "records": counts.records, "bytes": counts.bytes}
    before, after = (None if replica is None else _replica_at(replica) for replica in (old, new))
    place = context.topic, context.partition, context.broker, *between
    return Change(*place, kind, *offsets, before, after, **more)


def log_changes(old: Replica, new: Replica, between: SnapshotPair, reader: BatchReader) -> LogChanges:
    """The changes of a replica's log; of a compacted log all but the records that the cleaner removed."""
    if ReadExtent.NONE in (old.read, new.read):
        readable = [replica for replica in (old, new) if replica.read is not ReadExtent.NONE]
        offsets = (readable[0].log_start_offset, readable[0].log_end_offset) if readable else (0, 0)
        return LogChanges([change(ChangeKind.NOT_COMPARED, offsets, old, new, between, reason=UNREADABLE)])
    differing = differences(old, new, reader)
    comparison = _LogComparison(old, new, between, reader, differing)
    comparison.compare_ends()
    comparison.compare_starts()
    comparison.compare_common_offsets()
    comparison.result.has_differences = differing.has_differences
    if comparison.unread:
        offsets = comparison.common_end, max(comparison.common_end, old.log_end_offset)
        comparison.add(ChangeKind.NOT_COMPARED, offsets, reason="unreadable")
    return comparison.result


class _LogComparison(Struct):
    """Collects the changes of one log in `result`."""

    old: Replica
    new: Replica
    between: SnapshotPair
    reader: BatchReader
    differences: Differences
    result: LogChanges = field(default_factory=LogChanges)

    @property
    def common_end(self) -> int:
        """End of the offsets that both logs have and that were not truncated in between."""
        ends = [self.old.log_end_offset, self.new.log_end_offset]
        return min(ends if self.result.cut is None else [*ends, self.result.cut])

    @property
    def unread(self) -> bool:
        """Whether a log was not read to its end."""
        return not (self.old.end_is_known and self.new.end_is_known)

    def add(self, kind: ChangeKind, offsets: Range, *, counts: Counts | None = None, **more: Unpack[Details]) -> None:
        """Add a change to the result."""
        if self.differences.ranges_not_compared:
            more["evidence"] = more.get("evidence", {}) | {"ranges_not_compared": self.differences.ranges_not_compared}
        self.result.changes.append(change(kind, offsets, self.old, self.new, self.between, counts=counts, **more))

    def compare_ends(self) -> None:
        """Add what was truncated from the end, what was appended there, and what of that is below the new log start already."""
        old, new, result = self.old, self.new, self.result
        fork = self._find_cut()
        if fork is None and self.unread:
            return
        if result.cut is not None and result.lost_from is None and new.log_end_offset < old.log_end_offset:
            result.lost_from = max(new.log_end_offset, result.cut)
        if result.cut is not None and result.cut < old.log_end_offset:
            self._add_truncated((result.cut, old.log_end_offset), fork)
        begin = old.log_end_offset if result.cut is None else min(result.cut, new.log_end_offset)
        if begin >= new.log_end_offset or (result.cut is not None and fork is None):
            return
        offsets = min(max(begin, new.log_start_offset), new.log_end_offset), new.log_end_offset
        if begin < offsets[0]:
            self.add(ChangeKind.DELETED, (begin, offsets[0]), reason="came_and_went")
        if offsets[0] < offsets[1]:
            counts = self._counts(new, offsets, whole_rest=self.old)
            self.add(ChangeKind.APPENDED, offsets, counts=counts, leader_epochs=_epochs(new, offsets))

    def _find_cut(self) -> Difference | None:
        """Find where the older log was truncated. Returns the first replaced record, if records up to the end were replaced."""
        old, new, result = self.old, self.new, self.result
        replaced = [difference for difference in self.differences if _is_replaced(difference)]
        fork = next(iter(replaced), None)
        if self._is_unchanged_after(replaced):
            result.lost_from, fork = replaced[0].offset, None
        if fork is not None:
            result.cut = fork.offset
            result.lost_from = next((difference.offset for difference in self.differences if difference.kind == "content"), None)
        elif not self.unread and new.log_end_offset < old.log_end_offset:
            result.cut = min(max(new.log_end_offset, old.log_start_offset), old.log_end_offset)
        if replaced and fork is None and result.cut is None:
            result.lost_to = max(difference.end_offset for difference in replaced)
        return fork

    def _is_unchanged_after(self, replaced: list[Difference]) -> bool:
        """Whether both logs are equal after replaced records of the same leader epoch. Then nothing was truncated: records appended
        after a truncation have a later epoch, or differ up to the end."""
        if not replaced or self.differences.full or self.differences.ranges_not_compared:
            return False
        common_end = min(self.old.log_end_offset, self.new.log_end_offset)
        same_epochs = all(difference.kind == "content" and difference.epochs[0] == difference.epochs[1] for difference in replaced)
        return same_epochs and max(difference.end_offset for difference in replaced) < common_end

    def _add_truncated(self, offsets: Range, fork: Difference | None) -> None:
        old, new = self.old, self.new
        counts, epochs = self._counts(old, offsets, whole_rest=new), _epochs(old, offsets)
        if fork is None and _ends_in_damage(new):
            self.add(ChangeKind.DAMAGED, offsets, counts=counts, leader_epochs=epochs, reason="tail")
            return
        replaced_by = None if fork is None else fork.epochs[1]
        reason = "same_records_again" if fork is not None and self.result.lost_from is None else None
        self.add(ChangeKind.TRUNCATED, offsets, counts=counts, leader_epochs=epochs, replaced_by=replaced_by, reason=reason)

    def compare_starts(self) -> None:
        """Add what was deleted at the start of the log, or restored there."""
        old, new = self.old, self.new
        deleted = old.log_start_offset, min(new.log_start_offset, old.log_end_offset)
        restored = new.log_start_offset, min(old.log_start_offset, new.log_end_offset)
        if deleted[0] < deleted[1]:
            counts, reason = self._counts(old, deleted, whole_rest=new), self._why_deleted(deleted[1])
            self.add(ChangeKind.DELETED, deleted, counts=counts, leader_epochs=_epochs(old, deleted), reason=reason)
        elif restored[0] < restored[1]:
            self.add(ChangeKind.RESTORED, restored, leader_epochs=_epochs(new, restored), reason="log_start")

    def _why_deleted(self, end: int) -> str:
        """What deleted the records before `end`: DeleteRecords, if they were part of a segment; else retention, here or on the
        leader; nothing known, if they are too young for retention."""
        new = self.new
        if new.log_start_offset > min(new.context.segment_base_offsets, default=new.log_start_offset):
            return "log_start_moved"
        rows = self.reader.batches(self.old, end - 1, end)
        retention, now = retention_for(new.context.control), newest_time((self.old, new), self.reader)
        expected = (new.context.log_start_checkpoint or 0) >= end or new.context.segments_being_deleted
        if expected or (retention.deletes and (not rows.shape[1] or is_compacted(self.old, new))):
            return "retention"
        timestamp = int(rows[BatchColumn.MAX_TIMESTAMP, -1]) if rows.shape[1] else -1
        spared = retention.certainly_keeps(timestamp, now, new.state.framing.bytes_decoded)
        return "log_start_missing" if spared else "retention"

    def compare_common_offsets(self) -> None:
        """Add what changed at offsets that both logs have."""
        old, new = self.old, self.new
        limits = max(old.log_start_offset, new.log_start_offset), self.common_end
        common = [difference for difference in self.differences if difference.offset < self.common_end]
        for (kind, reason), group in sorted(self._by_kind(common).items()):
            offsets = (group[0].offset, max(difference.end_offset for difference in group))
            self.add(kind, offsets, reason=reason, evidence={"batches_differing": len(group)})
        if old.state.unread or new.state.unread:
            return
        old_gaps, new_gaps = sorted(old.offset_sequence.gaps()), sorted(new.offset_sequence.gaps())
        damaged = [(difference.offset, difference.end_offset) for difference in common if difference.kind == "damaged"]
        reported = [*damaged, *old_gaps, *old.offset_sequence.lost_to_damage.values()]
        for offsets, evidence in _listed(
            without(sorted(new.offset_sequence.lost_to_damage.values()), normalised(reported)), limits
        ):
            self.add(ChangeKind.DAMAGED, offsets, reason="framing", evidence=evidence)
        for offsets, evidence in _listed(without(new_gaps, normalised(old_gaps)), limits):
            self.add(ChangeKind.MISSING, offsets, leader_epochs=_epochs(old, offsets), evidence=evidence)
        for offsets, evidence in _listed(without(old_gaps, normalised(new_gaps)), limits):
            self.add(ChangeKind.RESTORED, offsets, leader_epochs=_epochs(new, offsets), reason="gap", evidence=evidence)
        compacted = is_compacted(old, new)
        if self.differences.has_differences and not compacted and not self.result.changes and limits[0] < limits[1]:
            self.add(ChangeKind.REWRITTEN, limits, reason="other_batches")

    def _by_kind(self, differing: Iterable[Difference]) -> dict[tuple[ChangeKind, str], list[Difference]]:
        """Differences at common offsets by kind and reason of the change."""
        groups: dict[tuple[ChangeKind, str], list[Difference]] = {}
        for difference in differing:
            kind, reason = ChangeKind.REWRITTEN, difference.kind
            if difference.kind == "damaged":
                was_damaged, is_damaged = (not has_right_crc(batch.row) for batch in (difference.left, difference.right))
                if is_damaged or (not was_damaged and self.reader.undecodable(difference.right)):
                    kind, reason = ChangeKind.DAMAGED, "batch"
                else:
                    reason = "repaired" if was_damaged else "unreadable"
            groups.setdefault((kind, reason), []).append(difference)
        return groups

    def _counts(self, replica: Replica, offsets: Range, *, whole_rest: Replica) -> Counts | None:
        """Batches, records and bytes of a range at an end of a log. Nothing is read if the rest of the log is `whole_rest`."""
        same_start = replica.first_batch_offset == whole_rest.first_batch_offset and offsets[1] == replica.log_end_offset
        same_end = replica.log_end_offset == whole_rest.log_end_offset and offsets[0] <= replica.first_batch_offset
        starts_in_difference = (
            offsets[0] == whole_rest.log_end_offset if same_start else offsets[1] == whole_rest.first_batch_offset
        )
        compacted = is_compacted(replica, whole_rest)
        if (
            (same_start or same_end)
            and starts_in_difference
            and not self.differences.has_differences
            and not self.unread
            and not compacted
        ):
            ours, theirs = replica.state.framing, whole_rest.state.framing
            size = ours.bytes_decoded - theirs.bytes_decoded
            rest = Counts(ours.batches - theirs.batches, ours.records - theirs.records, size)
            if min(rest) >= 0:
                return rest
        return counted(replica, self.reader, *offsets)


def _ends_in_damage(replica: Replica) -> bool:
    """Whether the last good batch is followed by other bytes."""
    state, last = replica.state, max(replica.context.segment_base_offsets, default=0)
    torn = any(segment == last for segment, _ in state.framing.damage.get("SEG_TORN_TAIL", ()))
    return torn or state.continuity.damage_at_end is not None or state.continuity.bad_tail is not None


def _is_replaced(difference: Difference) -> bool:
    """Whether a batch was replaced after a truncation: by other records, or by equal ones in another leader epoch."""
    return difference.kind == "content" or (difference.kind == "reencoded" and difference.epochs[0] != difference.epochs[1])


def _epochs(replica: Replica, offsets: Range) -> tuple[int, ...]:
    """Leader epochs of a range."""
    start, end = offsets
    first = epoch_at(replica.epochs, start)
    within = {entry.leader_epoch for entry in replica.epochs if start <= entry.start_offset < end}
    return tuple(sorted(within if first is None else within | {first}))


def _listed(ranges: Iterable[Range], limits: Range) -> list[tuple[Range, Json]]:
    """The first of `ranges` within `limits`, each with evidence: that of the last says how many more there are."""
    parts = ((max(start, limits[0]), min(end, limits[1])) for start, end in ranges)
    within = [part for part in parts if part[0] < part[1]]
    listed: list[tuple[Range, Json]] = [(span, {}) for span in within[:_RANGES_LISTED]]
    if len(within) > _RANGES_LISTED:
        listed[-1][1]["ranges_more"] = len(within) - _RANGES_LISTED
    return listed


# Records that an older snapshot proves committed and that a log has lost since: which brokers lost them, which still have them.
#
# A high watermark never falls in normal operation (Partition.maybeIncrementLeaderHW): records below it may expire or be cleaned,
# but not be truncated. A broker that did so recovered from damage and copies them again, or followed a leader that had lost them.


class LostOffsets(Struct, frozen=True):
    """Offsets from `start` to `end` (None: the end of the log) that a replica lost, and the index of their change in the list."""

    old: Replica
    start: int
    row: int
    end: int | None = None


class NewerSnapshot(Struct):
    """The newer snapshot of a partition: replicas of the same topic, brokers not given, whether all replicas are known by name."""

    between: SnapshotPair
    replicas: list[Replica]
    not_given: list[int | str]
    assignment_is_known: bool


def committed_end(old: Replica, summary: PartitionSummary) -> tuple[int, str] | None:
    """Up to where the older snapshot proves this replica's records committed, and by which witness; None without proof.

    Another broker's high watermark counts as far as both logs are equal.
    """
    high_watermark = old.context.high_watermark or 0
    witness = f"replication-offset-checkpoint of broker {old.broker}"
    at_least, agreement = summary.high_watermark_at_least or 0, summary.agreement
    if agreement.kind == "conflict":
        at_least = min(at_least, agreement.common_end_offset or 0)
    elif agreement.kind == "not_compared":
        at_least = 0
    if at_least > high_watermark:
        high_watermark, witness = at_least, summary.high_watermark_witness or "another broker"
    end = min(high_watermark, old.log_end_offset)
    return (end, witness) if end > old.log_start_offset else None


class _LostPart(NamedTuple):
    """Committed offsets that one log lost and whose holders are the same; `high_watermark` proves them committed."""

    lost_offsets: LostOffsets
    offsets: Range
    high_watermark: int
    witness: str


def committed_truncated_findings(
    lost_offsets: Sequence[LostOffsets],
    older: Sequence[Replica],
    newer: NewerSnapshot,
    summary: PartitionSummary,
    changes: list[Change],
    reader: BatchReader,
) -> list[Finding]:
    """`COMMITTED_TRUNCATED_SINCE`, one per set of brokers that still hold what others lost; adds these brokers to `changes`, too.

    Records that expired in between are not lost. A removed replica is a loss only at offsets that no other replica holds; the
    others may hold different parts of it.
    """
    groups: dict[_Brokers, list[_LostPart]] = {}
    for lost in lost_offsets:
        committed = committed_end(lost.old, summary)
        if committed is None:
            continue
        high_watermark, witness = committed
        end = high_watermark if lost.end is None else min(high_watermark, lost.end)
        start = max([0, lost.start, *(replica.log_start_offset for replica in newer.replicas)])
        if start >= end:
            continue
        parts = _by_holders(lost.old, newer.replicas, (start, end), reader)
        changes[lost.row] = _with_holders(changes[lost.row], end, parts)
        for offsets, holders in parts:
            if not (holders and changes[lost.row].kind is ChangeKind.DELETED):
                groups.setdefault(holders, []).append(_LostPart(lost, offsets, high_watermark, witness))
    return [
        _truncated_since(holders, group, _held_before(group, older, reader), newer, changes, _records(group, reader))
        for holders, group in sorted(groups.items(), key=repr)
    ]


def _held_before(group: Sequence[_LostPart], older: Sequence[Replica], reader: BatchReader) -> list[int | str]:
    """The brokers whose older logs held what is lost: those that lost it, and others that held all of it."""
    lost: dict[int | str, list[Range]] = {}
    for part in group:
        lost.setdefault(part.lost_offsets.old.broker, []).append(part.offsets)
    logs = {part.lost_offsets.old.broker: part.lost_offsets.old for part in group}

    def holds_all(other: Replica) -> bool:
        for broker, ranges in lost.items():
            ranges_lost = normalised(ranges)
            if without(ranges_lost, _equal_ranges(logs[broker], other, (ranges_lost[0][0], ranges_lost[-1][1]), reader)):
                return False
        return True

    return [replica.broker for replica in older if replica.broker in lost or holds_all(replica)]


def _with_holders(row: Change, end: int, parts: list[tuple[Range, _Brokers]]) -> Change:
    """The change, with the holders of its part that is committed."""
    if not parts:
        return row
    of_all = tuple(broker for broker in parts[0][1] if all(broker in holders for _, holders in parts))
    lost = [offsets for offsets, holders in parts if not holders]
    evidence = dict(row.evidence)
    if not of_all and len(lost) < len(parts):
        evidence["in_parts_on"] = list(dict.fromkeys(holder for _, holders in parts for holder in holders))
        evidence["lost"] = [list(span) for span in lost[:_RANGES_LISTED]]
        evidence["lost_offsets"] = sum(end - start for start, end in lost)
    return replace(row, committed_end_offset=end, held_by=of_all, evidence=evidence)


def _by_holders(old: Replica, newer: Sequence[Replica], offsets: Range, reader: BatchReader) -> list[tuple[Range, _Brokers]]:
    """The parts of `offsets` that the older log has, in order, each with the brokers whose newer logs hold all of it."""
    edges = [
        (offset, _GAP, begins)
        for gap in sorted(old.offset_sequence.gaps())
        for offset, begins in zip(gap, (True, False), strict=True)
    ]
    for index, replica in enumerate(newer):
        for start, end in _equal_ranges(old, replica, offsets, reader):
            edges += [(start, index, True), (end, index, False)]
    holding: set[int] = set()
    parts: list[tuple[Range, _Brokers]] = []
    position, end = offsets
    for edge, index, begins in [*sorted(edges), (end, _GAP, True)]:
        offset = min(edge, end)
        if position < offset and _GAP not in holding:
            holders = tuple(newer[number].broker for number in sorted(holding))
            if parts and parts[-1][0][1] == position and parts[-1][1] == holders:
                position = parts.pop()[0][0]
            parts.append(((position, offset), holders))
        position = max(position, offset)
        (holding.add if begins else holding.discard)(index)
    return parts


def _equal_ranges(old: Replica, new: Replica, offsets: Range, reader: BatchReader) -> Ranges:
    """The parts of `offsets`, in order, in which `new` holds the same records as `old`."""
    start, end = max(offsets[0], new.log_start_offset), min(offsets[1], new.log_end_offset)
    parts = clipped(normalised([*new.remote, *new.good_ranges]), start, end)
    differing = differences(old, new, reader)
    others = [difference for difference in differing if difference.kind == "content"]
    if not others:
        return parts
    same_epochs = all(difference.epochs[0] == difference.epochs[1] for difference in others)
    log_continues = same_epochs and not differing.full and not differing.ranges_not_compared
    end_of_others = max(difference.end_offset for difference in others) if log_continues else max(end, others[0].offset)
    return without(parts, [(others[0].offset, end_of_others)])


def _truncated_since(
    holders: _Brokers,
    group: list[_LostPart],
    held_before: list[int | str],
    newer: NewerSnapshot,
    changes: list[Change],
    records: int | None,
) -> Finding:
    lost = normalised(part.offsets for part in group)
    committed = max(group, key=lambda part: part.high_watermark)
    place = place_of([group[0].lost_offsets.old], lost[0][0], lost[-1][1])
    topic_ids = {replica.context.topic_id for replica in (*(part.lost_offsets.old for part in group), *newer.replicas)}
    one_id = len(topic_ids) == 1 and None not in topic_ids
    evidence: TruncatedSinceEvidence = {
        "from_snapshot": newer.between.older,
        "to_snapshot": newer.between.newer,
        "brokers": list(dict.fromkeys(part.lost_offsets.old.broker for part in group)),
        "missing": sum(end - start for start, end in lost),
        "high_watermark": committed.high_watermark,
        "witness": committed.witness,
        "replaced_by": sorted({epoch for part in group if (epoch := changes[part.lost_offsets.row].replaced_by) is not None}),
        "held_before": held_before,
        "premises": [
            f"{committed.witness} in snapshot {newer.between.older}",
            "one topic id" if one_id else "topic ids not all known",
            "the controller's log names all replicas" if newer.assignment_is_known else "no controller's log names all replicas",
        ],
    }
    if len(lost) > 1:
        evidence |= {"scattered": evidence["missing"], "ranges": list(map(list, lost[:_RANGES_LISTED]))}
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


def _records(group: Sequence[_LostPart], reader: BatchReader) -> int | None:
    """How many records of the lost offsets the older snapshot has; None if no log has all of a range, or they are too many."""
    total = 0
    for start, end in normalised(part.offsets for part in group):
        whole = (part.lost_offsets.old for part in group if part.offsets == (start, end))
        count = next((count for old in whole if (count := records_held(old, reader, start, end)) is not None), None)
        if count is None:
            return None
        total += count
    return total


def keys_lost(old: Replica, new: Replica, tally: KeyTally, between: SnapshotPair) -> Finding | None:
    """`KEYS_LOST_SINCE` if the newer log (number 1 in `tally`) lacks latest records of keys without an explanation."""
    if not tally.differing or 1 not in tally.lacking:
        return None
    listed = [
        {"offset": offset, "reason": record.reason, "key_hash": record.key_hash}
        for offset, record in sorted(tally.listed.items())
        if 1 in record.others
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
