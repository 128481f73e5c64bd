"""Which copy gives which offsets of a salvaged log: one epoch lineage a partition, and only offsets of that lineage.

The copy that a plan recommends, or the one that the user prefers, is the base. Its lineage goes on where another copy holds more
of it, and is filled where another holds what it lacks. That a copy is of the lineage is proven by the rules that replication
stands on: an epoch has one leader, so that two logs have the same batch at an offset of the same epoch, and the same below it
where none below differs (KIP-101). Damaged batches are told by the plan's rules, the CRC in their headers among them. What proves
nothing fills nothing: it stays behind, and is named.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.offset_ranges import Range, Ranges, clipped, counted, holds, normalised, without
from kafka_forensics.replication.epochs import epoch_at
from kafka_forensics.replication.planner import NO_END, Broker, PlanReplica

BASE, CONTINUED, FILLED, HEAD = "base", "continued", "filled", "head"
"""Why a copy gives a piece: it is the base; it goes on where the base ends; the base lacks it or has it damaged; so at its head."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of a partition; offsets are exclusive ends."""

    broker: Broker
    good: Ranges
    """Offsets of batches that may be taken from it."""
    log_start_offset: int
    log_end_offset: int
    epochs: tuple[EpochEntry, ...] = ()
    """As its batches show them; empty before Kafka 0.11."""
    damaged: Ranges = ()
    """Offsets of bytes that are there and are no good batches."""
    committed_end: int = 0
    """`[0, committed_end)` of its log is proven committed."""
    head_start: int | None = None
    """Where its log would begin, if its head were not gone for no reason that is known."""
    high_watermark: int = 0
    """As its checkpoint has it, which may lie behind the end of its log, if that has lost its end."""


class Piece(NamedTuple):
    """Offsets `[start, end)`, to be taken from the copy of this number; `why` is BASE, CONTINUED, FILLED or HEAD."""

    copy: int
    start: int
    end: int
    why: str


class LeftBehind(NamedTuple):
    """Offsets `[start, end)` that a copy holds and the salvaged log has not, or has differently.

    `[start, committed_end)` is proven committed by that copy's witnesses; `rival_of` is the broker from whose log the salvaged one
    has other records there, None where it has none.
    """

    broker: Broker
    start: int
    end: int
    committed_end: int
    rival_of: Broker | None


@dataclass(frozen=True, slots=True)
class Lineage:
    """What a log is made of: pieces, ascending and apart, in `[log_start_offset, log_end_offset)`; gaps are what none has."""

    base: int
    log_start_offset: int
    log_end_offset: int
    pieces: tuple[Piece, ...]
    gaps: Ranges
    left_behind: tuple[LeftBehind, ...] = ()
    rivals: tuple[LeftBehind, ...] = ()
    """Of `left_behind` those proven committed where other records of the lineage are proven committed, too: a choice."""


@dataclass(slots=True)
class _Stretch:
    """Offsets `[start, end)` for which the copy `anchor` says what the lineage is."""

    anchor: int
    start: int
    end: int


@dataclass
class _Tracing:
    """The copies, with where they part (by pairs of their numbers), while a lineage is traced through them."""

    copies: Sequence[Copy]
    apart: Mapping[tuple[int, int], Ranges]
    pieces: list[Piece] = field(default_factory=list)
    stretches: list[_Stretch] = field(default_factory=list)
    _conflicts: dict[tuple[int, int], Ranges] = field(default_factory=dict)

    def differing(self, left: int, right: int) -> Ranges:
        """Offsets at which two copies have different records, or damaged ones that nothing proves to be the same."""
        return self.apart.get((min(left, right), max(left, right)), ())

    def conflicting(self, left: int, right: int) -> Ranges:
        """Those at which both have good batches."""
        pair = min(left, right), max(left, right)
        if pair not in self._conflicts:
            self._conflicts[pair] = conflicting(self.differing(left, right), self.copies[left].damaged, self.copies[right].damaged)
        return self._conflicts[pair]

    def follow(self, base: int) -> tuple[int, int]:
        """Take the base, fill it, and go on with other copies; where the log starts, and where its batches end."""
        first = self.copies[base]
        start = first.log_start_offset if first.head_start is None else min(first.head_start, first.log_start_offset)
        anchor: int | None = base
        position = start
        while anchor is not None:
            copy, why = self.copies[anchor], BASE if anchor == base else CONTINUED
            own = clipped(copy.good, max(position, first.log_start_offset), NO_END)
            end = max(own[-1][1], position) if own else position
            self.stretches.append(_Stretch(anchor, position, end))
            self.pieces += [Piece(anchor, *span, why) for span in own]
            for hole in without([(position, end)], own):
                self._fill(anchor, hole, HEAD if hole[1] <= first.log_start_offset else FILLED)
            position = end
            anchor = self._next(anchor, position)
        self.pieces.sort(key=lambda piece: piece.start)
        return start, position

    def _fill(self, anchor: int, hole: Range, why: str) -> None:
        """Take what other copies hold of a hole, those first who hold most of it."""
        given = [
            (clipped(self._proven(anchor, number, hole), *hole), number) for number in range(len(self.copies)) if number != anchor
        ]
        rest: Ranges = (hole,)
        for ranges, number in sorted(given, key=lambda one: (-counted(one[0]), one[1])):
            taken = normalised(span for low, high in rest for span in clipped(ranges, low, high))
            self.pieces += [Piece(number, *span, why) for span in taken]
            rest = without(rest, taken)

    def _proven(self, anchor: int, donor: int, hole: Range) -> Ranges:
        """What of a hole in the anchor's log another copy holds as the same lineage."""
        ours, theirs = self.copies[anchor], self.copies[donor]
        start, end = hole
        differing, conflicting = self.differing(anchor, donor), self.conflicting(anchor, donor)
        proven = list(without(clipped(ours.damaged, start, end), differing))
        behind = epoch_at(ours.epochs, end)
        if behind is not None and behind >= 0:  # its leader had all of that epoch, and what is behind the hole came from it
            edges = (*_span(ours.epochs, behind), *_span(theirs.epochs, behind))
            if not clipped(conflicting, min(edges), max(edges)):
                proven += clipped([_span(theirs.epochs, behind)], start, end)
        joins = behind is not None and holds(ours.good, end) and holds(theirs.good, end)
        if joins and epoch_at(theirs.epochs, end) == behind and not clipped(conflicting, 0, end + 1):
            proven.append(hole)
        return normalised(span for low, high in normalised(proven) for span in clipped(theirs.good, low, high))

    def _next(self, anchor: int, position: int) -> int | None:
        """The copy that goes on where the anchor ends: of several the one proven committed furthest, of the latest epoch, the
        longest."""
        able = [number for number in range(len(self.copies)) if number != anchor and self._continues(anchor, number, position)]
        return max(able, key=lambda number: (self._worth(number), -number), default=None)

    def _worth(self, number: int) -> tuple[int, int, int]:
        copy = self.copies[number]
        return copy.committed_end, max((entry.leader_epoch for entry in copy.epochs), default=-1), copy.good[-1][1]

    def _continues(self, anchor: int, donor: int, position: int) -> bool:
        """Whether a copy holds more of the lineage behind its end at `position`."""
        ours, theirs = self.copies[anchor], self.copies[donor]
        if not clipped(theirs.good, position, NO_END) or clipped(self.conflicting(anchor, donor), 0, position):
            return False
        if not ours.good:
            return theirs.log_start_offset <= position
        last = epoch_at(ours.epochs, position - 1)
        if last is None or last < 0:
            return not theirs.epochs and holds(theirs.good, position - 1) and not self.differing(anchor, donor)
        return epoch_at(theirs.epochs, position - 1) == last

    def left_behind(self, start: int) -> list[LeftBehind]:
        """What copies hold, from the log's start on, and the pieces have not, or have differently."""
        taken = normalised((piece.start, piece.end) for piece in self.pieces)
        left = []
        for number, copy in enumerate(self.copies):
            good = clipped(copy.good, start, NO_END)
            lacking = without(good, taken)
            for stretch in self.stretches:
                if stretch.anchor == number:
                    continue
                other = clipped(self.conflicting(stretch.anchor, number), stretch.start, stretch.end)
                rival = normalised(span for low, high in good for span in clipped(other, low, high))
                lacking = without(lacking, rival)
                left += [self._left(number, span, self.copies[stretch.anchor].broker) for span in rival]
            left += [self._left(number, span, None) for span in lacking]
        return sorted(left, key=lambda one: (one.start, one.end, str(one.broker)))

    def _left(self, number: int, span: Range, rival_of: Broker | None) -> LeftBehind:
        copy = self.copies[number]
        return LeftBehind(copy.broker, *span, min(max(copy.committed_end, span[0]), span[1]), rival_of)

    def committed_end(self, end: int) -> int:
        """How far the lineage is proven committed: by copies that nowhere hold other records."""
        agreeing = [
            copy.committed_end
            for number, copy in enumerate(self.copies)
            if not any(self.conflicting(stretch.anchor, number) for stretch in self.stretches if stretch.anchor != number)
        ]
        return min(max(agreeing, default=0), end)

    def promised_end(self) -> int:
        """How far the lineage goes by the high watermarks of copies of it that no later leader's epoch has gone beyond, whether
        any still holds that or not: offsets behind these ends were given to clients, and must not be given again."""
        last = _last_epoch(self.copies[self.stretches[-1].anchor])
        return max(
            (
                copy.high_watermark
                for number, copy in enumerate(self.copies)
                if _last_epoch(copy) == last
                and not any(self.conflicting(stretch.anchor, number) for stretch in self.stretches if stretch.anchor != number)
            ),
            default=0,
        )


def trace(copies: Sequence[Copy], apart: Mapping[tuple[int, int], Ranges], base: int, *, preferred: bool = False) -> Lineage:
    """The lineage of a base through all copies; `apart` by pairs of their numbers in ascending order, as a plan has it.

    Where a copy that is left behind was committed and the lineage was not, its own lineage is taken instead. A base that the user
    has `preferred` stays, and what is other than its own records is no rival any more.
    """
    lineage = _traced(copies, apart, base)
    if preferred:
        broker = copies[base].broker
        return replace(lineage, rivals=tuple([rival for rival in lineage.rivals if rival.rival_of != broker]))
    committed = [left for left in lineage.left_behind if left.rival_of is not None and left.committed_end > left.start]
    if committed and not lineage.rivals:
        return _traced(copies, apart, next(number for number, copy in enumerate(copies) if copy.broker == committed[0].broker))
    return lineage


def _traced(copies: Sequence[Copy], apart: Mapping[tuple[int, int], Ranges], base: int) -> Lineage:
    tracing = _Tracing(copies, apart)
    start, end = tracing.follow(base)
    last = copies[tracing.stretches[-1].anchor]
    log_end = max(end, last.log_end_offset, *(high for _, high in last.damaged), start, tracing.promised_end())
    gaps = without([(start, log_end)], normalised((piece.start, piece.end) for piece in tracing.pieces))
    left = tuple(tracing.left_behind(start))
    committed_end = tracing.committed_end(end)
    rivals = tuple([one for one in left if one.rival_of is not None and min(one.committed_end, committed_end) > one.start])
    return Lineage(base, start, log_end, tuple(tracing.pieces), gaps, left, rivals)


def conflicting(differing: Ranges, damaged: Ranges, others_damaged: Ranges) -> Ranges:
    """Where two copies that differ have both good batches."""
    return without(differing, normalised((*damaged, *others_damaged)))


def committed_end(replica: PlanReplica) -> int:
    """`[0, end)` of a copy's log is proven committed."""
    return max([replica.high_watermark or 0, *(witness.end_offset for witness in replica.witnesses)])


def _last_epoch(copy: Copy) -> int | None:
    return copy.epochs[-1].leader_epoch if copy.epochs else None


def _span(epochs: Sequence[EpochEntry], leader_epoch: int) -> Range:
    """Offsets of one epoch in a log; empty where it has none of it."""
    start = next((entry.start_offset for entry in epochs if entry.leader_epoch == leader_epoch), None)
    if start is None:
        return 0, 0
    return start, min((entry.start_offset for entry in epochs if entry.leader_epoch > leader_epoch), default=NO_END)
