"""One log of a compacted partition from several damaged copies, where that is provably what a replica could hold.

Every replica is cleaned by itself. Where a tombstone has done its work a cleaner takes it away after the value that it deleted, so
that a range of one copy beside a range of another may hold the value and no tombstone: a deleted key comes back. And a value that
another took the place of is dead, though the later one be damaged. So the ranges of a merged log must bear each other out: of any
two, one copy is good on both and holds there just what the merged log holds, as it stands in it; then that copy would show the same
record of a key as the latest. Or nothing is missing from the later one: its offsets join, and every batch has all its records, so
that whatever supersedes or deletes a record of the earlier one is there. Batches whose headers prove that another copy's are the
same stand for the damaged ones from the start (`cleaned_copies`). As the last resort, where gaps are allowed, ranges of other
copies that do not go with the base's are left out.

That ranges are of one history is proven as replication does it (KIP-101): two logs that have batches of one leader epoch are the
same up to the last offset at which both have such.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise, product
from typing import Final

from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.evidence.options import listed
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import INTERNAL_TOPICS
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import Finding
from kafka_forensics.questions.plan import Planned
from kafka_forensics.questions.salvage.batch_runs import Run, held_alike
from kafka_forensics.questions.salvage.cleaned_copies import CleanedCopy, kept_start, read_copies
from kafka_forensics.questions.salvage.lineage import BASE, CONTINUED, FILLED, HEAD, LeftBehind, Lineage, Piece
from kafka_forensics.questions.salvage.manifest import Refused
from kafka_forensics.questions.salvage.slices import Slice, Source
from kafka_forensics.replication.offset_ranges import Range, Ranges, clipped, normalised, without
from kafka_forensics.replication.planner import NO_END, Broker, loaded_epochs

_RANGES_TOLD: Final = 4


@dataclass(frozen=True, slots=True)
class Merged:
    """A log that several copies make together, by the number of its base."""

    lineage: Lineage
    slices: list[Slice]
    damaged: list[Ranges]
    """Offsets at which each copy is damaged, by its number."""
    is_last_resort: bool = False
    """Whether it has gaps where other copies are good, but were cleaned otherwise."""


@dataclass(frozen=True, slots=True)
class _Problem:
    """Why a base cannot be completed: what decides, and whose copies these are."""

    reason: str
    hint: str
    offsets: Ranges
    brokers: tuple[Broker, ...]
    is_gap: bool = False
    """No copy is good there; of all else the log could be made."""


TAKE_ONE: Final = "compare the copies, and take one of them as it is"
_GIVE_MORE: Final = "give the log directories of more brokers, or --allow-gaps: then older values and deleted keys may be read"
_LEAVE_OUT: Final = (
    "give the log directories of more brokers; or --allow-gaps, and what is damaged in one copy is left out:"
    " then keys may be missing, have older values, or be back from deletion"
)


def merge(
    sources: Sequence[Source], planned: Planned, differing: Sequence[Finding], prefer: str | None, *, allow_gaps: bool
) -> Merged | Refused:
    """The log of a compacted partition from copies of which none is whole, or why there is none.

    What is `differing` by the scan must be what holes of copies explain. Bases are tried in order: the copy that the user prefers,
    those that go on furthest, the one that the plan recommends. Gaps where other copies are good are the last resort.
    """
    copies = read_copies(sources)
    merging = _Merging(copies)
    problem = merging.unexplained(differing)
    if problem is None:
        brokers = [str(source.plan.context.broker) for source in sources]
        recommended = str(planned.plan.recommended)
        order = sorted(
            range(len(copies)),
            key=lambda number: (
                brokers[number] != prefer,
                -min(copies[number].end_offset, merging.end),
                brokers[number] != recommended,
                number,
            ),
        )
        for gaps_allowed, base in product((False, True) if allow_gaps else (False,), order):
            answer = merging.completed(base, allow_gaps=gaps_allowed)
            if isinstance(answer, Merged):
                return answer
            problem = answer if problem is None or (problem.is_gap and gaps_allowed) else problem
        if allow_gaps:
            return merging.last_resort(order[:1] if brokers[order[0]] == prefer else order)
        assert problem is not None
    return refusal(sources[0].plan.context, problem.reason, problem.hint, problem.offsets, problem.brokers)


def refusal(context: ReplicaContext, reason: str, hint: str | None, offsets: Ranges, brokers: tuple[Broker, ...]) -> Refused:
    """That a topic whose copies may differ for good reasons is not salvaged, with the reason why this one is not."""
    kind, noun = ("internal_topic", "an internal topic") if context.topic in INTERNAL_TOPICS else ("compacted", "compacted")
    return Refused(context.topic, context.partition, kind, f"it is {noun}, and {reason}", hint, offsets, brokers)


def may_be_of_holes(finding: Finding) -> bool:
    """Whether a finding that copies differ tells only of records that one has and another lacks, which damage may explain."""
    told = finding.evidence.get("contents") or finding.evidence.get("markers")
    return finding.kind == "COMPACTED_VALUE_DIFFERS" and not told and finding.place.offset_start is not None


def first_dirty_offset(lineage: Lineage, slices: Sequence[Slice], sources: Sequence[Source]) -> int:
    """Where cleaning of a log goes on: the first dirty offset of all copies that gave something to it. A lower one has a cleaner
    look at records again; above a copy's own, it would leave what that copy never looked at for good."""
    used = {lineage.base, *(part.copy for part in slices)}
    lowest = min(sources[number].plan.context.cleaner_checkpoint or 0 for number in used)
    return min(max(lowest, lineage.log_start_offset), lineage.log_end_offset)


def known_epochs(lineage: Lineage, slices: Sequence[Slice], sources: Sequence[Source]) -> list[EpochEntry] | None:
    """Leader epochs as a copy's checkpoint has them, where a cleaner may have taken the first batches of one: of the copy that
    gives the end of the log, or else of its base, if that goes as far. None where neither has a checkpoint."""
    last = slices[-1].copy if slices else lineage.base
    for number in dict.fromkeys((last, *([lineage.base] if _reaches(lineage, sources[lineage.base]) else ()))):
        entries = sources[number].plan.context.epoch_checkpoint
        if entries is not None:
            return loaded_epochs(entries, lineage.log_end_offset)
    return None


def _reaches(lineage: Lineage, source: Source) -> bool:
    return source.replica.log_end_offset >= lineage.log_end_offset


def _broker(copy: CleanedCopy) -> Broker:
    return copy.source.plan.context.broker


def _offsets(ranges: Sequence[Range]) -> str:
    told = ", ".join(f"[{start}, {end})" for start, end in ranges[:_RANGES_TOLD])
    return told + (" and more" if len(ranges) > _RANGES_TOLD else "")


@dataclass(frozen=True, slots=True)
class _Part:
    """Offsets `[start, end)` in which no copy becomes good or ceases to be, and who gives them: None if nobody can."""

    start: int
    end: int
    giver: int | None
    runs: list[Run]
    """Of the giver."""
    borne_out_by: int
    """Bits of the copies that are good there and hold just these batches."""

    @property
    def is_complete(self) -> bool:
        """Whether it has every record that was ever written: offsets join, and no batch lacks any."""
        runs = self.runs
        if not runs:
            return False
        joined = runs[0].base_offset <= self.start and runs[-1].end_offset == self.end
        joined &= all(left.end_offset == right.base_offset for left, right in pairwise(runs))
        return joined and all(run.is_complete for run in runs)


class _Merging:
    """The copies of one partition, with what is known of them."""

    def __init__(self, copies: Sequence[CleanedCopy]) -> None:
        self._copies = copies
        self._start = kept_start([copy.source for copy in copies])
        self._holes = [copy.holes() for copy in copies]
        self._held = cache(self._hold)
        self._last_of_epoch = [{run.epoch: run.last_base_offset for run in copy.runs} for copy in copies]
        ends = [copy.end_offset for copy in copies]
        ends += [copy.source.replica.log_end_offset for copy in copies]
        contexts = [copy.source.plan.context for copy in copies]
        ends += [context.high_watermark or 0 for context in contexts if not context.live]
        self.end = max(ends)
        """No copy goes further, and none promises more."""

    def unexplained(self, differing: Sequence[Finding]) -> _Problem | None:
        """What of findings that copies differ is neither in a hole of those that lack it, nor before one of those that hold it:
        there what superseded or deleted it may have been."""
        for finding in differing:
            held_by, listed_records = finding.evidence.get("held_by") or [], finding.evidence.get("records") or []
            start, end = finding.place.offset_start or 0, finding.place.offset_end or self.end
            spans = [(row["offset"], row["offset"] + 1, row["held_by"], row["not_on"]) for row in listed_records]
            if finding.evidence.get("keys", 0) > len(spans):
                lacking = [_broker(copy) for copy in self._copies if _broker(copy) not in held_by]
                spans = [(start, end, held_by, lacking)]
            for low, high, holders, others in spans:
                if not all(self._may_lack(number, low, high, holders) for number in self._of(others)):
                    brokers = tuple(dict.fromkeys((*holders, *others)))
                    reason = f"its copies differ (COMPACTED_VALUE_DIFFERS at offsets {_offsets([(low, high)])})"
                    return _Problem(reason, TAKE_ONE, ((low, high),), brokers)
        return None

    def _of(self, brokers: Sequence[Broker]) -> list[int]:
        return [number for number, copy in enumerate(self._copies) if _broker(copy) in brokers]

    def _may_lack(self, number: int, start: int, end: int, holders: Sequence[Broker]) -> bool:
        """Whether a copy may have had, or rightly not have, what these hold in `[start, end)`."""
        behind = [clipped(self._holes[holder], end, self.end) for holder in self._of(holders)]
        return not without([(start, end)], self._holes[number]) or (bool(behind) and all(behind))

    def completed(self, base: int, *, allow_gaps: bool) -> Merged | _Problem:
        """The log of a base, filled from the others, or what is in the way; other copies are asked first in turn."""
        if not any(copy.end_is_sound and copy.end_offset == self.end for copy in self._copies) and not allow_gaps:
            brokers = tuple(_broker(copy) for copy in self._copies if not copy.end_is_sound)
            if brokers:
                reason = (
                    f"bytes behind the last good batch of broker {listed(map(str, brokers))} may hold more than offset {self.end}"
                )
                return _Problem(reason, _GIVE_MORE, ((self.end, self.end + 1),), brokers, is_gap=True)
        others = [number for number in range(len(self._copies)) if number != base]
        problem: _Problem | None = None
        for first in others or [base]:
            order = [base, *([first] if first != base else []), *(number for number in others if number != first)]
            parts = list(self._parts(base, order))
            found = self._problem(parts, allow_gaps=allow_gaps)
            if found is None:
                return self._merged(base, parts)
            problem = problem or found
        assert problem is not None
        return problem

    def _start_of(self, base: int) -> int:
        return self._copies[base].start_offset if self._start is None else self._start

    def _parts(self, base: int, order: Sequence[int]) -> Iterator[_Part]:
        """The offsets of the log, cut wherever a copy's holes begin or end, each from the first copy in order that can give it."""
        start = self._start_of(base)
        edges = {edge for holes in self._holes for span in holes for edge in span if start < edge < self.end}
        for low, high in pairwise(sorted({start, *edges, max(self.end, start)})):
            good = {number: runs for number in order if (runs := self._held(number, low, high, begins=low == start)) is not None}
            giver = next((number for number in order if number in good and self._is_of_lineage(base, number, low, high)), None)
            if giver is None:
                yield _Part(low, high, None, [], 0)
                continue
            alike = sum(1 << number for number, runs in good.items() if held_alike(runs, good[giver]))
            yield _Part(low, high, giver, good[giver], alike)

    def _hold(self, number: int, start: int, end: int, *, begins: bool) -> list[Run] | None:
        """What a copy has in `[start, end)`; None if it is not good there. Where that `begins` a log, a batch may reach into it."""
        if clipped(self._holes[number], start, end):
            return None
        runs = self._copies[number].between(start, end)
        if runs and ((runs[0].base_offset < start and not begins) or runs[-1].end_offset > end):
            return None
        return runs

    def _is_of_lineage(self, base: int, number: int, start: int, end: int) -> bool:
        """Whether what a copy has in `[start, end)` is of the base's history: that is the same up to there, or all of the base's is
        the copy's, which goes on."""
        ours = self._copies[base].runs
        if number == base or not ours:
            return True
        common = self._common_to(base, number)
        begun = self._copies[number].last_begun(end)
        if begun is None or begun <= common:
            return common >= 0
        return ours[-1].end_offset <= start and ours[-1].last_base_offset <= common

    def _common_to(self, left: int, right: int) -> int:
        """The last offset up to which two logs have one history: both have a batch there, or behind, of one leader epoch; or -1."""
        ours, theirs = self._last_of_epoch[left], self._last_of_epoch[right]
        return max((min(last, theirs[epoch]) for epoch, last in ours.items() if epoch >= 0 and epoch in theirs), default=-1)

    def _problem(self, parts: Sequence[_Part], *, allow_gaps: bool) -> _Problem | None:
        """What speaks against a log of these parts."""
        gaps = [part for part in parts if part.giver is None]
        if gaps and not allow_gaps:
            return self._of_gaps(normalised((gap.start, gap.end) for gap in gaps))
        apart = _apart(parts)
        return None if apart is None else self._of_parts_apart(*apart)

    def last_resort(self, bases: Sequence[int]) -> Merged:
        """The log of the base that needs the fewest offsets left out: all that it has, and of others what its parts bear out."""
        found = [(base, self._borne_out(base)) for base in bases]
        base, parts = min(
            found, key=lambda one: self._start_of(one[0]) + sum(part.end - part.start for part in one[1] if part.giver is None)
        )
        merged = self._merged(base, parts)
        head = ((0, merged.lineage.log_start_offset),) if merged.lineage.log_start_offset else ()
        left_out = *head, *merged.lineage.gaps
        left = [
            LeftBehind(_broker(copy), *span, min(max(copy.source.plan.context.high_watermark or 0, span[0]), span[1]), None)
            for copy in self._copies
            for low, high in clipped(left_out, copy.start_offset, NO_END)
            for span in normalised((max(run.base_offset, low), min(run.end_offset, high)) for run in copy.between(low, high))
        ]
        left.sort(key=lambda one: (one.start, one.end, str(one.broker)))
        return replace(merged, lineage=replace(merged.lineage, left_behind=tuple(left)), is_last_resort=True)

    def _borne_out(self, base: int) -> list[_Part]:
        """The parts of a base, and those of other copies that go with all of these and with each other; the others are gaps."""
        parts = list(self._parts(base, [base, *(number for number in range(len(self._copies)) if number != base)]))
        behind, masks = list[frozenset[int]](), frozenset[int]()
        for part in reversed(parts):  # the base's parts that want to be borne out by those before, by who bears them out
            behind.append(masks)
            masks |= {part.borne_out_by} if part.giver == base and not part.is_complete else frozenset()
        before, taken = set[int](), list[_Part]()
        for part, later in zip(parts, reversed(behind), strict=True):
            goes_with = part.giver == base or (
                part.giver is not None
                and (not part.runs or all(part.borne_out_by & mask for mask in later))
                and (part.is_complete or all(part.borne_out_by & mask for mask in before))
            )
            taken.append(part if goes_with else replace(part, giver=None, runs=[], borne_out_by=0))
            before |= {part.borne_out_by} if goes_with and part.runs else set()
        return taken

    def _of_gaps(self, gaps: Ranges) -> _Problem:
        there = [copy for number, copy in enumerate(self._copies) if clipped(self._holes[number], gaps[0][0], gaps[-1][1])]
        reason = f"no copy is good at offsets {_offsets(gaps)}, or provably of the same history"
        return _Problem(reason, _GIVE_MORE, gaps, tuple(_broker(copy) for copy in there), is_gap=True)

    def _of_parts_apart(self, first: _Part, second: _Part) -> _Problem:
        assert first.giver is not None
        assert second.giver is not None
        one, other = _broker(self._copies[first.giver]), _broker(self._copies[second.giver])
        spans = (first.start, first.end), (second.start, second.end)
        reason = (
            f"its copies were cleaned differently: no copy holds both offsets {_offsets(spans[:1])} as broker {one} does"
            f" and {_offsets(spans[1:])} as broker {other} does, so that keys deleted or changed since could come back"
        )
        return _Problem(reason, _LEAVE_OUT, spans, tuple(dict.fromkeys((one, other))))

    def _merged(self, base: int, parts: Sequence[_Part]) -> Merged:
        copy = self._copies[base]
        pieces, slices = list[Piece](), list[Slice]()
        for part in parts:
            for run in part.runs:
                for piece, why in _told(copy, base, run):
                    _add(slices, piece, why)
            if part.giver is not None:
                _add_piece(pieces, Piece(part.giver, part.start, part.end, _why_part(copy, base, part)))
        gaps = normalised((part.start, part.end) for part in parts if part.giver is None)
        lineage = Lineage(base, self._start_of(base), max(self.end, copy.start_offset), tuple(pieces), gaps)
        return Merged(lineage, slices, [other.damaged() for other in self._copies])


def _apart(parts: Sequence[_Part]) -> tuple[_Part, _Part] | None:
    """The first two parts that do not bear each other out, if there are any."""
    earlier: dict[int, _Part] = {}
    for part in parts:
        if part.giver is not None and not part.is_complete:
            apart = next((other for mask, other in earlier.items() if not mask & part.borne_out_by), None)
            if apart is not None:
                return apart, part
        if part.runs:
            earlier.setdefault(part.borne_out_by, part)
    return None


def _why_part(copy: CleanedCopy, base: int, part: _Part) -> str:
    if part.giver == base:
        return BASE
    if part.start >= copy.end_offset:
        return CONTINUED
    return HEAD if part.end <= copy.start_offset else FILLED


def _told(copy: CleanedCopy, base: int, run: Run) -> Iterator[tuple[Run, str]]:
    """The batches of a run with why they are taken from the copy that gives their bytes."""
    if run.giver == base:
        yield run, BASE
        return
    before, behind = copy.reader.split(run, BatchColumn.BASE_OFFSET, copy.end_offset)
    for part in before:
        head, filled = copy.reader.split(part, BatchColumn.LAST_OFFSET, copy.start_offset)
        yield from [(part, HEAD) for part in head]
        yield from [(part, FILLED) for part in filled]
    yield from [(part, CONTINUED) for part in behind]


def _add_piece(pieces: list[Piece], piece: Piece) -> None:
    if pieces and (pieces[-1].copy, pieces[-1].end, pieces[-1].why) == (piece.copy, piece.start, piece.why):
        piece = pieces.pop()._replace(end=piece.end)
    pieces.append(piece)


def _add(slices: list[Slice], run: Run, why: str) -> None:
    """Add batches to the slices, to the last where their bytes follow."""
    last, byte_end = slices[-1] if slices else None, run.position + run.size_in_bytes
    if last is not None and (last.copy, last.segment, last.byte_end, last.why) == (run.giver, run.segment, run.position, why):
        slices[-1] = replace(last, byte_end=byte_end, end_offset=run.end_offset)
        return
    slices.append(Slice(run.giver, run.segment, run.position, byte_end, run.base_offset, run.end_offset, why))
