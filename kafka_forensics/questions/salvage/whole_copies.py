"""Compacted and internal topics: one whole copy of a partition is taken.

Every broker cleans its own copy in its own time. One may still hold a value and the tombstone after it, and another neither. If
ranges of both were joined, the value could remain without its tombstone, and a deleted key would come back. So no copy fills
another. A copy that is not whole is taken only if gaps are allowed, and what it lacks is named.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.evidence.options import listed
from kafka_forensics.model.batches import BatchColumn, has_right_crc
from kafka_forensics.model.constants import INTERNAL_TOPICS
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.offset_ranges import Range, Ranges, clipped, normalised, without
from kafka_forensics.model.results import Read
from kafka_forensics.questions.plan import Planned
from kafka_forensics.questions.salvage.lineage import BASE, LeftBehind, Lineage, Piece, committed_end, conflicting
from kafka_forensics.questions.salvage.manifest import MAY_BE_STALE, Refused, RefusedError, open_ended
from kafka_forensics.questions.salvage.slices import Choice, Slice, Source, slices_of
from kafka_forensics.replication.planner import NO_END, Broker, PlanReplica, loaded_epochs
from kafka_forensics.scanning.rereading.reader import LogReader

DIFFERING: Final = kinds_with(Trait.PARTS_REPLICAS) - {"REPLICA_DIFFERS"} | {"TOPIC_ID_MISMATCH"}
"""Findings that say that copies hold different records."""
_CONTRADICTING: Final = ("contents", "markers")
"""Reasons why the latest values of a key differ that no missing record explains."""
SAY_WHOSE: Final = "choose whose records to keep with --prefer-broker; `plan` and `compare` show both sides"
_RANGES_NAMED: Final = 4


@dataclass(slots=True)
class _Examined:
    """One copy, by its number, and why it is not whole."""

    number: int
    broker: Broker
    slices: list[Slice] = field(default_factory=list)
    damaged: Ranges = ()
    """Offsets that bad bytes, or missing segments, may have held: from one good batch to the next, up to NO_END after the last."""
    missing: Ranges = ()
    """Offsets after its end."""
    problems: list[str] = field(default_factory=list)
    was_read: bool = True

    @property
    def gaps(self) -> Ranges:
        """What the log lacks if it is made of this copy."""
        return normalised((*self.damaged, *self.missing))

    def __str__(self) -> str:
        return f"the copy of broker {self.broker} {listed(self.problems)}"


class WholeCopies:
    """The copies of one partition, of which one is taken."""

    def __init__(self, sources: list[Source], planned: Planned, findings: Sequence[Finding], reader: LogReader) -> None:
        """`findings` are those of the scan; `reader` reads the copies again."""
        self._sources, self._planned, self._reader = sources, planned, reader
        differing = [finding for finding in findings if finding.kind in DIFFERING]
        self._values = [finding for finding in differing if finding.kind == "COMPACTED_VALUE_DIFFERS"]
        self._rivals = [finding for finding in differing if not _is_only_missing_values(finding)]

    def take(self, prefer: str | None, *, allow_gaps: bool) -> Choice:
        """The first whole copy; if none is whole and gaps are allowed, the first.

        The copy of the preferred broker comes first, then the one that the plan recommends, then the longest. If the copies are of
        rival histories, only the first two are considered. Raises RefusedError, SourceError.
        """
        order = self._order(prefer)
        if self._rivals:
            order = [(number, why) for number, why in order if why in self._decisive(prefer)]
            if not order:
                raise self._differ()
        log_end_offset = self._promised_end([number for number, _ in order])
        examined = list[_Examined]()
        for number, why in order:
            copy = self._examined(number, log_end_offset)
            if not copy.problems:
                return self._taken(copy, why, log_end_offset, examined, prefer)
            examined.append(copy)
        taken = next(((copy, why) for copy, (_, why) in zip(examined, order, strict=True) if copy.was_read), None)
        if taken is None or not allow_gaps:
            raise self._not_whole(examined, None if taken is None else taken[0])
        return self._taken(*taken, log_end_offset, examined, prefer)

    def _order(self, prefer: str | None) -> list[tuple[int, str]]:
        """The copies by their numbers, in the order in which they are tried, each with the rule that puts it there."""
        ranked = []
        for number, (source, given) in enumerate(zip(self._sources, self._planned.given.replicas, strict=False)):
            broker, end = str(source.plan.context.broker), source.replica.log_end_offset
            why = "longest"
            if broker == prefer:
                why = "prefer-broker"
            elif broker == str(self._planned.plan.recommended):
                why = "plan"
            rank = ("prefer-broker", "plan", "longest").index(why)
            ranked.append((rank, -min(committed_end(given), end), -end, number, why))
        return [(number, why) for *_, number, why in sorted(ranked)]

    def _decisive(self, prefer: str | None) -> tuple[str, ...]:
        """By which rules one of rival histories may be chosen: by the plan only if nothing after a fork was committed anywhere."""
        if any(str(source.plan.context.broker) == prefer for source in self._sources):
            return ("prefer-broker",)
        harmless = all(
            finding.kind == "FORK_ABOVE_HW" and not finding.evidence.get("watermark_unknown") for finding in self._rivals
        )
        return ("plan",) if harmless else ()

    def _promised_end(self, numbers: Sequence[int]) -> int:
        """Where the log ends, by the furthest of these copies and of their high watermarks."""
        sources = [self._sources[number] for number in numbers]
        marks = [source.plan.context.high_watermark or 0 for source in sources if not source.plan.context.live]
        named = [segment.base_offset for source in sources for segment in source.plan.directory.segments]
        return max(*marks, *named, *(source.replica.log_end_offset for source in sources), 0)

    def _examined(self, number: int, log_end_offset: int) -> _Examined:
        source = self._sources[number]
        replica = source.replica
        start, broker = replica.log_start_offset, source.plan.context.broker
        if replica.read is not Read.WHOLE:
            return _Examined(number, broker, problems=["could not be read to its end"], was_read=False)
        wanted = without([(start, NO_END)], self._doubted(number))
        copy = _Examined(number, broker)
        copy.slices = list(slices_of(source, [Piece(number, *span, BASE) for span in wanted], gaps=True, begins=True))
        taken, there = sum(part.size_in_bytes for part in copy.slices), replica.state.framing.bytes_decoded
        copy.damaged = normalised(_holes(source, copy.slices, log_end_offset))
        if not source.is_whole or (taken != there and replica.first_batch_offset >= start):
            copy.problems.append(f"is damaged{_at(copy.damaged)}")
        elif copy.damaged:
            copy.problems.append(f"has lost a segment, or the end of one,{_at(copy.damaged)}")
        head = self._kept_start()
        if head is not None and head < start:
            copy.problems.append(f"lacks the start of the log{_at([(head, start)])}")
        end = max(replica.log_end_offset, *(high for _, high in copy.damaged if high < NO_END), 0)
        if end < log_end_offset:
            copy.missing = ((end, log_end_offset),)
            copy.problems.append(f"ends at offset {end}, before {log_end_offset}")
        if values := normalised(span for span, _, reason in self._lacked_values(broker) if reason not in _CONTRADICTING):
            copy.problems.append(f"lacks the latest value of a key that another copy has{_at(values)}")
        return copy

    def _doubted(self, number: int) -> Ranges:
        """Offsets of batches found after lost framing, if another copy has batches there and no other copy has the first one found:
        the value of a record may contain the bytes of a batch."""
        others = [source for other, source in enumerate(self._sources) if other != number]
        doubted = []
        for start, end, crc in self._sources[number].searched():
            contradicting = [source for source in others if clipped(source.good, start, end)]
            if contradicting and not any(self._holds(source, start, crc) for source in contradicting):
                doubted.append((start, end))
        return normalised(doubted)

    def _holds(self, source: Source, base_offset: int, crc: int) -> bool:
        rows = self._reader.batches(source.replica, base_offset, base_offset + 1)
        good = has_right_crc(rows)
        return bool((good & (rows[BatchColumn.BASE_OFFSET] == base_offset) & (rows[BatchColumn.CRC] == crc)).any())

    def _kept_start(self) -> int | None:
        """Where the log starts if only cleaners removed records: at the lowest start of all copies. None if retention or
        DeleteRecords may have moved the start of one, or if no copy has a batch."""
        for context in [source.plan.context for source in self._sources]:
            policy = None if context.control is None else context.control.setting("cleanup.policy")
            if context.log_start_checkpoint or "delete" in (policy or ""):
                return None
        starts = [source.replica.log_start_offset for source in self._sources if source.replica.state.framing.batches]
        return min(starts, default=None)

    def _lacked_values(self, broker: Broker) -> Iterator[tuple[Range, list[Broker], str]]:
        """Offsets of the latest records of keys that a broker lacks, with the brokers that hold them and the reason."""
        for finding in self._values:
            records, held_by = finding.evidence.get("records") or [], finding.evidence.get("held_by")
            for record in records:
                if broker in record["not_on"]:
                    yield (record["offset"], record["offset"] + 1), record["held_by"], record["reason"]
            if finding.evidence.get("keys", 0) > len(records) and held_by is not None and broker not in held_by:
                yield (finding.place.offset_start or 0, finding.place.offset_end or NO_END), held_by, "missing"

    def _taken(self, copy: _Examined, why: str, log_end_offset: int, examined: Sequence[_Examined], prefer: str | None) -> Choice:
        """The log made of a copy, with what the other copies hold besides."""
        number = copy.number
        start = self._sources[number].replica.log_start_offset
        pieces = (Piece(number, start, log_end_offset, BASE),) if start < log_end_offset else ()
        lineage = Lineage(number, start, log_end_offset, pieces, copy.gaps)
        left = self._left_behind(lineage) if copy.problems or self._rivals else []
        if self._rivals and why == "plan" and any(span.committed_end > span.start for span in left):
            raise self._differ()
        damaged_on = {other.number: other.damaged for other in (*examined, copy)}
        damaged = [damaged_on.get(other, ()) for other in range(len(self._sources))]
        lineage = Lineage(number, start, log_end_offset, pieces, copy.gaps, left_behind=tuple(left))
        warnings = [
            f"the copy of broker {copy.broker} was taken, because {other}"
            for other in examined
            if str(other.broker) == prefer and other is not copy
        ]
        warning = "; ".join([*warnings, *([MAY_BE_STALE] if copy.problems else [])]) or None
        return Choice(
            lineage,
            why,
            list(self._sources),
            self._planned,
            slices=copy.slices,
            damaged=damaged,
            is_cleaned=True,
            warning=warning,
        )

    def _left_behind(self, lineage: Lineage) -> list[LeftBehind]:
        """What other copies hold and the log lacks: before its start, in its gaps, after its end, and latest values of keys; of
        rival histories everything after they part."""
        base, start, end = lineage.base, lineage.log_start_offset, lineage.log_end_offset
        ours = self._sources[base].plan.context.broker
        lacked = list(self._lacked_values(ours))
        left = []
        for number, source in enumerate(self._sources):
            if number == base or source.replica.read is not Read.WHOLE:
                continue
            given = self._planned.given.replicas[number]
            values = [span for span, held_by, _ in lacked if given.broker in held_by]
            absent = [(0, start), *lineage.gaps, (end, NO_END)]
            parted = min(_parted(base, number, self._planned), end) if self._rivals else end
            rival = without([(max(parted, start), end)], lineage.gaps)
            for held, rival_of in (((*self._held(number, absent), *values), None), (self._held(number, rival), ours)):
                for low, high in normalised(held):
                    left.append(LeftBehind(given.broker, low, high, min(max(committed_end(given), low), high), rival_of))
        return sorted(left, key=lambda span: (span.start, span.end, str(span.broker)))

    def _held(self, number: int, ranges: Sequence[Range]) -> Ranges:
        """Offsets of a copy's good batches in ranges that begin and end between batches."""
        source = self._sources[number]
        spans = clipped(normalised(ranges), source.replica.log_start_offset, NO_END)
        found = slices_of(source, [Piece(number, *span, BASE) for span in spans], gaps=True)
        return normalised((part.start_offset, part.end_offset) for part in found)

    def _differ(self) -> RefusedError:
        kinds = listed(sorted({finding.kind for finding in self._rivals}))
        return self._refused(
            f"its copies differ ({kinds})", SAY_WHOSE, (), [source.plan.context.broker for source in self._sources]
        )

    def _not_whole(self, examined: Sequence[_Examined], first: _Examined | None) -> RefusedError:
        subject = "the chosen copy is not whole" if self._rivals else "no copy of it is whole"
        reason = f"{subject}: {'; '.join(map(str, examined))}"
        hint = "give the log directories of more brokers"
        if first is not None:
            hint += (
                f"; or --allow-gaps: the copy of broker {first.broker} is taken, and keys may be missing, have older values, or be"
            )
            hint += " back from deletion"
        offsets = () if first is None else first.gaps
        return self._refused(reason, hint, offsets, [copy.broker for copy in examined])

    def _refused(self, reason: str, hint: str, offsets: Ranges, brokers: Sequence[Broker]) -> RefusedError:
        context = self._sources[0].plan.context
        kind, noun = ("internal_topic", "an internal topic") if context.topic in INTERNAL_TOPICS else ("compacted", "compacted")
        reason = f"it is {noun}, and {reason}"
        named = tuple(dict.fromkeys(brokers))
        return RefusedError(Refused(context.topic, context.partition, kind, reason, hint, open_ended(offsets), named))


def first_dirty_offset(lineage: Lineage, source: Source) -> int:
    """From where a broker goes on cleaning the log: as far as the copy taken was cleaned."""
    return min(max(source.plan.context.cleaner_checkpoint or 0, lineage.log_start_offset), lineage.log_end_offset)


def known_epochs(lineage: Lineage, source: Source) -> list[EpochEntry] | None:
    """Leader epochs by the checkpoint of the copy: a cleaner may have removed the first batches of an epoch. None without one."""
    entries = source.plan.context.epoch_checkpoint
    return None if entries is None else loaded_epochs(entries, lineage.log_end_offset)


def _is_only_missing_values(finding: Finding) -> bool:
    """Whether a finding that copies differ names only records that one has and another lacks."""
    return finding.kind == "COMPACTED_VALUE_DIFFERS" and not any(finding.evidence.get(reason) for reason in _CONTRADICTING)


def _at(ranges: Sequence[Range]) -> str:
    if not ranges:
        return ""
    closed = [(start, end) for start, end in ranges if end < NO_END]
    named = [", ".join(f"[{start}, {end})" for start, end in closed[:_RANGES_NAMED])] if closed else []
    if len(closed) > _RANGES_NAMED:
        named.append("more")
    named += [f"from {start} on" for start, end in ranges if end == NO_END]
    return f" at offsets {' and '.join(named)}"


def _holes(source: Source, slices: Sequence[Slice], log_end_offset: int) -> Iterator[Range]:
    """Offsets between good batches, by a copy's slices, where other bytes lie between the two, or a segment is gone or was cut.

    They do not include what DeleteRecords took, nor what a crash leaves at the end of a log. Other bytes after the last good batch
    of the longest copy held an unknown number of offsets: that range ends at NO_END.
    """
    replica, segments = source.replica, source.plan.directory.segments
    by_segment: dict[int, list[Slice]] = {}
    for part in slices:
        by_segment.setdefault(part.segment, []).append(part)
    begins_below = source.is_whole and replica.first_batch_offset < replica.log_start_offset
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        offset, position = max(segment.base_offset, replica.log_start_offset), 0
        for part in by_segment.get(segment.base_offset, ()):
            if part.byte_start != position and not begins_below:
                yield offset, part.start_offset
            offset, position, begins_below = part.end_offset, part.byte_end, False
        rest = 0 if segment.log is None or begins_below else segment.log.size_in_bytes - position
        if following is None:
            rest -= _tail(source, segment.base_offset, position)
        elif segment.log is None or replica.entries_beyond[segment.base_offset, "index"]:
            rest = 1
        if rest > 0:
            end = following.base_offset if following is not None else log_end_offset if offset < log_end_offset else NO_END
            yield offset, end


def _tail(source: Source, segment: int, position: int) -> int:
    """Bytes at the end of a segment, from a position on, that a crash left there."""
    damage = source.replica.state.framing.damage
    tails = [found for kind in kinds_with(Trait.IS_TAIL) for base_offset, found in damage.get(kind, ()) if base_offset == segment]
    return sum(found.size_in_bytes for found in tails if found.position >= position)


def _parted(left: int, right: int, planned: Planned) -> int:
    """The first offset after which two copies may be of different histories: where their records differ, or at the end of what both
    have of their last common epoch (KIP-101). Without epochs (entries before Kafka 0.11) only the former is known."""
    given = planned.given
    ours, theirs = _ends(given.replicas[left]), _ends(given.replicas[right])
    shared = [min(end, theirs[epoch]) for epoch, end in ours.items() if epoch in theirs]
    differing = given.differing.get((min(left, right), max(left, right)), ())
    conflicts = conflicting(differing, given.replicas[left].damaged, given.replicas[right].damaged)
    return min([max(shared, default=0 if ours and theirs else NO_END), *(low for low, _ in conflicts)])


def _ends(replica: PlanReplica) -> dict[int, int]:
    """Leader epoch → where its batches end in a log."""
    ends = [*(entry.start_offset for entry in replica.epochs[1:]), replica.log_end_offset]
    return {entry.leader_epoch: end for entry, end in zip(replica.epochs, ends, strict=False) if entry.leader_epoch >= 0}
