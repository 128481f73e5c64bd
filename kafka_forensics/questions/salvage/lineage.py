"""Which copy supplies which offsets of a salvaged log.

The log follows one lineage of leader epochs. The copy that the plan recommends, or the user prefers, is the base. Other copies
continue the log after the end of the base and fill the offsets that the base lacks, where the replication rules prove that they
follow the same lineage: an epoch has one leader, so two logs have the same batch at an offset of the same epoch, and the same
batches below it where nothing differs (KIP-101). The plan's rules decide about damaged batches, also by the CRC in their headers.
Offsets without such a proof are not used, and are reported as left behind.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.offset_ranges import Range, Ranges, clipped, counted, holds, normalised, without
from kafka_forensics.replication.epochs import epoch_at
from kafka_forensics.replication.planner import NO_END, Broker, PlanReplica

BASE, CONTINUED, FILLED, LOG_START = "base", "continued", "filled", "log_start"
"""Why a copy supplies offsets: it is the base; it continues after the base ends; the base lacks them or has them damaged; the base
lacks the start of the log."""


class LogCopy(Struct, frozen=True):
    """One copy of a partition; ends are exclusive."""

    broker: Broker
    good: Ranges
    """Offsets of batches that may be copied."""
    log_start_offset: int
    log_end_offset: int
    epochs: tuple[EpochEntry, ...] = ()
    """Leader epochs by its batches; empty before Kafka 0.11."""
    damaged: Ranges = ()
    """Offsets of bytes that are not good batches."""
    committed_end: int = 0
    """`[0, committed_end)` of its log is proven committed."""
    expected_log_start: int | None = None
    """Where its log should start, if nothing known explains its missing start; None: nothing is missing."""
    high_watermark: int = 0
    """By its checkpoint; after the end of its log if that end is lost."""


class LineageRange(NamedTuple):
    """Offsets `[start, end)` from the copy with this number; `why` is BASE, CONTINUED, FILLED or LOG_START."""

    copy: int
    start: int
    end: int
    why: str


class LeftBehind(NamedTuple):
    """Offsets `[start, end)` of a copy that the salvaged log lacks, or has with other records.

    The witnesses of the copy prove `[start, committed_end)` committed. `rival_of` is the broker whose log supplies the other
    records; None where the salvaged log has no records.
    """

    broker: Broker
    start: int
    end: int
    committed_end: int
    rival_of: Broker | None


class LogLineage(Struct, frozen=True):
    """What a log consists of: disjoint ascending ranges in `[log_start_offset, log_end_offset)`; no copy has the gaps."""

    base: int
    log_start_offset: int
    log_end_offset: int
    ranges: tuple[LineageRange, ...]
    gaps: Ranges
    left_behind: tuple[LeftBehind, ...] = ()
    rivals: tuple[LeftBehind, ...] = ()
    """Those of `left_behind` that are proven committed although other records of the lineage are, too: the user must choose."""


class _FollowedCopy(Struct):
    """The copy that determines the lineage at offsets `[start, end)`."""

    number: int
    start: int
    end: int


class _Trace(Struct):
    """The copies and the offsets at which pairs of them differ, and the lineage as far as it is traced."""

    copies: Sequence[LogCopy]
    differences: Mapping[tuple[int, int], Ranges]
    ranges: list[LineageRange] = field(default_factory=list)
    followed: list[_FollowedCopy] = field(default_factory=list)
    _conflicts: dict[tuple[int, int], Ranges] = field(default_factory=dict)

    def differing(self, left: int, right: int) -> Ranges:
        """Offsets at which two copies have different records, or damaged ones that nothing proves to be the same."""
        return self.differences.get((min(left, right), max(left, right)), ())

    def conflicting(self, left: int, right: int) -> Ranges:
        """The differing offsets at which both copies have good batches."""
        pair = min(left, right), max(left, right)
        if pair not in self._conflicts:
            self._conflicts[pair] = conflicting(self.differing(left, right), self.copies[left].damaged, self.copies[right].damaged)
        return self._conflicts[pair]

    def follow(self, base: int) -> tuple[int, int]:
        """Use the base, fill it, and continue with other copies; the start of the log and the end of its batches."""
        first = self.copies[base]
        start = (
            first.log_start_offset if first.expected_log_start is None else min(first.expected_log_start, first.log_start_offset)
        )
        number: int | None = base
        position = start
        while number is not None:
            good = clipped(self.copies[number].good, max(position, first.log_start_offset), NO_END)
            end = max(good[-1][1], position) if good else position
            self.followed.append(_FollowedCopy(number, position, end))
            self.ranges += [LineageRange(number, *span, BASE if number == base else CONTINUED) for span in good]
            for missing in without([(position, end)], good):
                self._fill(number, missing, LOG_START if missing[1] <= first.log_start_offset else FILLED)
            position = end
            number = self._next(number, position)
        self.ranges.sort(key=lambda range_: range_.start)
        return start, position

    def _fill(self, followed: int, missing: Range, why: str) -> None:
        """Use what other copies have of a missing range; the copy that has most of it comes first."""
        others = [number for number in range(len(self.copies)) if number != followed]
        available = [(clipped(self._proven(followed, number, missing), *missing), number) for number in others]
        rest: Ranges = (missing,)
        for ranges, number in sorted(available, key=lambda item: (-counted(item[0]), item[1])):
            used = common(rest, ranges)
            self.ranges += [LineageRange(number, *span, why) for span in used]
            rest = without(rest, used)

    def _proven(self, followed: int, source: int, missing: Range) -> Ranges:
        """Good offsets of a source in a range that the followed copy lacks, proven to be of the same lineage."""
        ours, theirs = self.copies[followed], self.copies[source]
        start, end = missing
        conflicts = self.conflicting(followed, source)
        proven = list(without(clipped(ours.damaged, start, end), self.differing(followed, source)))
        next_epoch = epoch_at(ours.epochs, end)
        if next_epoch is not None and next_epoch >= 0:  # its leader had the whole epoch, and supplied the offsets after the range
            bounds = (*_epoch_range(ours.epochs, next_epoch), *_epoch_range(theirs.epochs, next_epoch))
            if not clipped(conflicts, min(bounds), max(bounds)):
                proven += clipped([_epoch_range(theirs.epochs, next_epoch)], start, end)
        joins = next_epoch is not None and holds(ours.good, end) and holds(theirs.good, end)
        if joins and epoch_at(theirs.epochs, end) == next_epoch and not clipped(conflicts, 0, end + 1):
            proven.append(missing)
        return common(normalised(proven), theirs.good)

    def _next(self, followed: int, position: int) -> int | None:
        """The copy that continues after the followed one: that proven committed furthest, then of the latest epoch, then the
        longest."""

        def rank(number: int) -> tuple[int, int, int, int]:
            copy = self.copies[number]
            return copy.committed_end, max((entry.leader_epoch for entry in copy.epochs), default=-1), copy.good[-1][1], -number

        others = [number for number in range(len(self.copies)) if number != followed]
        return max((number for number in others if self._continues(followed, number, position)), key=rank, default=None)

    def _continues(self, followed: int, source: int, position: int) -> bool:
        """Whether a source has more of the lineage after `position`, where the followed copy ends."""
        ours, theirs = self.copies[followed], self.copies[source]
        if not clipped(theirs.good, position, NO_END) or clipped(self.conflicting(followed, source), 0, position):
            return False
        if not ours.good:
            return theirs.log_start_offset <= position
        last = epoch_at(ours.epochs, position - 1)
        if last is None or last < 0:
            return not theirs.epochs and holds(theirs.good, position - 1) and not self.differing(followed, source)
        return epoch_at(theirs.epochs, position - 1) == last

    def left_behind(self, start: int) -> list[LeftBehind]:
        """What copies have after the start of the log and the lineage lacks, or has with other records."""
        used = normalised((range_.start, range_.end) for range_ in self.ranges)
        left = []
        for number, copy in enumerate(self.copies):
            good = clipped(copy.good, start, NO_END)
            lacking = without(good, used)
            rivals = list[tuple[Range, Broker | None]]()
            for followed in self.followed:
                if followed.number != number:
                    rival = common(good, clipped(self.conflicting(followed.number, number), followed.start, followed.end))
                    lacking = without(lacking, rival)
                    rivals += [(span, self.copies[followed.number].broker) for span in rival]
            for (low, high), rival_of in (*rivals, *((span, None) for span in lacking)):
                left.append(LeftBehind(copy.broker, low, high, min(max(copy.committed_end, low), high), rival_of))
        return sorted(left, key=lambda span: (span.start, span.end, str(span.broker)))

    def agreeing(self) -> list[LogCopy]:
        """Copies that nowhere have other records than the lineage."""
        return [
            copy
            for number, copy in enumerate(self.copies)
            if not any(self.conflicting(followed.number, number) for followed in self.followed if followed.number != number)
        ]

    def promised_end(self) -> int:
        """The end of the lineage by the high watermarks of agreeing copies of its last epoch. Clients have seen the offsets before
        it, so no other records may get them, even if every copy lost them."""
        last = _last_epoch(self.copies[self.followed[-1].number])
        return max((copy.high_watermark for copy in self.agreeing() if _last_epoch(copy) == last), default=0)


def trace(
    copies: Sequence[LogCopy], differences: Mapping[tuple[int, int], Ranges], base: int, *, preferred: bool = False
) -> LogLineage:
    """The lineage of a base through all copies; `differences` by ascending pairs of their numbers, as the plan has them.

    If a copy that is left behind was committed and the lineage was not, the lineage of that copy is used instead. A base that the
    user `preferred` stays, and records that differ from its own are no rivals.
    """
    lineage = _traced(copies, differences, base)
    if preferred:
        broker = copies[base].broker
        return replace(lineage, rivals=tuple([rival for rival in lineage.rivals if rival.rival_of != broker]))
    committed = [left for left in lineage.left_behind if left.rival_of is not None and left.committed_end > left.start]
    if committed and not lineage.rivals:
        number = next(number for number, copy in enumerate(copies) if copy.broker == committed[0].broker)
        return _traced(copies, differences, number)
    return lineage


def _traced(copies: Sequence[LogCopy], differences: Mapping[tuple[int, int], Ranges], base: int) -> LogLineage:
    trace = _Trace(copies, differences)
    start, end = trace.follow(base)
    last = copies[trace.followed[-1].number]
    log_end = max(end, last.log_end_offset, *(high for _, high in last.damaged), start, trace.promised_end())
    gaps = without([(start, log_end)], normalised((range_.start, range_.end) for range_ in trace.ranges))
    left_behind = tuple(trace.left_behind(start))
    committed = min(max((copy.committed_end for copy in trace.agreeing()), default=0), end)
    rivals = [left for left in left_behind if left.rival_of is not None and min(left.committed_end, committed) > left.start]
    return LogLineage(base, start, log_end, tuple(trace.ranges), gaps, left_behind, tuple(rivals))


def conflicting(differing: Ranges, damaged: Ranges, others_damaged: Ranges) -> Ranges:
    """Differing offsets at which two copies both have good batches."""
    return without(differing, normalised((*damaged, *others_damaged)))


def common(left: Ranges, right: Ranges) -> Ranges:
    """The offsets in both sets."""
    return normalised(span for low, high in left for span in clipped(right, low, high))


def committed_end(replica: PlanReplica) -> int:
    """`[0, end)` of a copy's log is proven committed."""
    return max([replica.high_watermark or 0, *(witness.end_offset for witness in replica.witnesses)])


def _last_epoch(copy: LogCopy) -> int | None:
    return copy.epochs[-1].leader_epoch if copy.epochs else None


def _epoch_range(epochs: Sequence[EpochEntry], leader_epoch: int) -> Range:
    """Offsets of one epoch in a log; empty if the log has none of it."""
    start = next((entry.start_offset for entry in epochs if entry.leader_epoch == leader_epoch), None)
    if start is None:
        return 0, 0
    return start, min((entry.start_offset for entry in epochs if entry.leader_epoch > leader_epoch), default=NO_END)
