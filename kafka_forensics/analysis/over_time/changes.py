"""One broker's replica at two times: what was appended, cut off, deleted, and what changed under the same offsets.

A log only ever grows at its end, is cut there when a leader's log differs (ReplicaFetcherThread.truncate) or a start finds damage
(LogLoader), and loses what is old at its front (retention, DeleteRecords) or superseded in its middle (the cleaner). Everything
else that differs between two copies of one log is told as what it is: bytes that rotted, were written anew, or are missing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

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
    retention_for,
)
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.changes import UNREADABLE, Change, ChangeKind, ReplicaAt
from kafka_forensics.model.results import Read
from kafka_forensics.replication.epochs import epoch_at
from kafka_forensics.replication.offset_ranges import Range, normalised, without

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


def change(
    kind: ChangeKind,
    offsets: Range,
    old: Replica | None,
    new: Replica | None,
    between: Between,
    *,
    counts: Counts | None = None,
    **more: Any,
) -> Change:
    """A row about `offsets` of a replica that is there in at least one of the snapshots."""
    known = new or old
    assert known is not None
    context = known.context
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
    found = differences(old, new, reader)
    told = _Told(old, new, between, reader, found)
    told.end()
    told.front()
    told.middle()
    told.result.unlike = found.unlike
    if told.unread:
        told.row(ChangeKind.NOT_COMPARED, (told.common_end, max(told.common_end, old.log_end_offset)), reason="unreadable")
    return told.result


@dataclass(slots=True)
class _Told:
    """A comparison under way."""

    old: Replica
    new: Replica
    between: Between
    reader: BatchReader
    found: Differences
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

    def row(self, kind: ChangeKind, offsets: Range, *, counts: Counts | None = None, **more: Any) -> None:
        """Add a row."""
        if self.found.ranges_not_compared:
            more["evidence"] = more.get("evidence", {}) | {"ranges_not_compared": self.found.ranges_not_compared}
        self.result.changes.append(change(kind, offsets, self.old, self.new, self.between, counts=counts, **more))

    def end(self) -> None:
        """What was cut off at the end, and what was appended there."""
        old, new, result = self.old, self.new, self.result
        replaced = [difference for difference in self.found if _took_its_place(difference)]
        fork = next(iter(replaced), None)
        if self._is_as_it_was_behind(replaced):
            result.lost_from, fork = replaced[0].offset, None
        if fork is not None:
            result.cut = fork.offset
            result.lost_from = next((difference.offset for difference in self.found if difference.kind == "content"), None)
        elif not self.unread and new.log_end_offset < old.log_end_offset:
            result.cut = min(max(new.log_end_offset, old.log_start_offset), old.log_end_offset)
        if replaced and fork is None and result.cut is None:
            result.lost_to = max(difference.end_offset for difference in replaced)
        if fork is None and self.unread:
            return
        if result.cut is not None and result.lost_from is None and new.log_end_offset < old.log_end_offset:
            result.lost_from = max(new.log_end_offset, result.cut)
        if result.cut is not None and result.cut < old.log_end_offset:
            self._cut((result.cut, old.log_end_offset), fork)
        begin = old.log_end_offset if result.cut is None else min(result.cut, new.log_end_offset)
        if begin < new.log_end_offset and (result.cut is None or fork is not None):
            offsets = (begin, new.log_end_offset)
            counts = self._counts(new, offsets, whole_rest=old)
            self.row(ChangeKind.APPENDED, offsets, counts=counts, leader_epochs=_epochs(new, offsets))

    def _is_as_it_was_behind(self, replaced: list[Difference]) -> bool:
        """Whether both logs go on alike behind records of the same leader epoch that are others now: nothing was cut off there, for
        what is written after a cut is of a later epoch, or differs up to the end."""
        if not replaced or self.found.full or self.found.ranges_not_compared:
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
        expected = (
            (new.context.log_start_checkpoint or 0) >= end or new.context.segments_being_deleted or is_compacted(self.old, new)
        )
        if expected or not rows.shape[1]:
            return "retention"
        retention, now = retention_for(new.context.control), newest_time((self.old, new), self.reader)
        spared = retention.spares(int(rows[BatchColumn.MAX_TIMESTAMP, -1]), now, new.state.framing.bytes_decoded)
        return "head_gone" if spared else "retention"

    def middle(self) -> None:
        """What changed under the same offsets."""
        limits = self.common_start, self.common_end
        before = [difference for difference in self.found if difference.offset < self.common_end]
        for (kind, reason), group in sorted(_sorted_out(before, self.new, self.reader).items()):
            offsets = (group[0].offset, max(difference.end_offset for difference in group))
            self.row(kind, offsets, reason=reason, evidence={"batches_differing": len(group)})
        if self.old.state.unread or self.new.state.unread:
            return
        old_gaps, new_gaps = gaps(self.old), gaps(self.new)
        rotten = [(difference.offset, difference.end_offset) for difference in before if difference.kind == "damaged"]
        known = [*rotten, *old_gaps, *self.old.course.eaten.values()]
        for offsets, evidence in _clipped(without(sorted(self.new.course.eaten.values()), normalised(known)), limits):
            self.row(ChangeKind.DAMAGED, offsets, reason="framing", evidence=evidence)
        for offsets, evidence in _clipped(without(new_gaps, normalised(old_gaps)), limits):
            self.row(ChangeKind.MISSING, offsets, leader_epochs=_epochs(self.old, offsets), evidence=evidence)
        for offsets, evidence in _clipped(without(old_gaps, normalised(new_gaps)), limits):
            self.row(ChangeKind.RESTORED, offsets, leader_epochs=_epochs(self.new, offsets), reason="gap", evidence=evidence)
        compacted = is_compacted(self.old, self.new)
        if self.found.unlike and not compacted and not self.result.changes and limits[0] < limits[1]:
            self.row(ChangeKind.REWRITTEN, limits, reason="other_batches")

    def _counts(self, replica: Replica, offsets: Range, *, whole_rest: Replica) -> Counts | None:
        """Batches, records and bytes of a range at an end of a log; without reading where the rest of it is the other log."""
        same_start = replica.first_batch_offset == whole_rest.first_batch_offset and offsets[1] == replica.log_end_offset
        same_end = replica.log_end_offset == whole_rest.log_end_offset and offsets[0] <= replica.first_batch_offset
        begins_there = offsets[0] == whole_rest.log_end_offset if same_start else offsets[1] == whole_rest.first_batch_offset
        compacted = is_compacted(replica, whole_rest)
        if (same_start or same_end) and begins_there and not self.found.unlike and not self.unread and not compacted:
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


def _sorted_out(found: Iterable[Difference], new: Replica, reader: BatchReader) -> dict[tuple[ChangeKind, str], list[Difference]]:
    """Differences under the same offsets by what they are."""
    groups: dict[tuple[ChangeKind, str], list[Difference]] = {}
    for difference in found:
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


def gaps(replica: Replica) -> list[Range]:
    """Offsets that no batch covers, ascending."""
    return sorted(
        (irregularity.start, irregularity.end)
        for irregularity in replica.course.irregularities
        if irregularity.kind == "OFFSET_GAP"
    )


def _clipped(ranges: Iterable[Range], limits: Range) -> list[tuple[Range, dict[str, Any]]]:
    """The first of `ranges` within `limits`, with evidence: the last of them says how many more there are."""
    clipped = [(max(start, limits[0]), min(end, limits[1])) for start, end in ranges]
    within = [one for one in clipped if one[0] < one[1]]
    told: list[tuple[Range, dict[str, Any]]] = [(one, {}) for one in within[:_RANGES_TOLD]]
    if len(within) > _RANGES_TOLD:
        told[-1][1]["ranges_more"] = len(within) - _RANGES_TOLD
    return told
