"""Chooses one whole copy of a partition of a compacted or internal topic.

Brokers clean their copies independently: one may still have a value and the tombstone after it when another has neither. Joining
ranges of both could keep the value without its tombstone, and bring back a deleted key. So no copy fills another. A copy that is
not whole is used only if gaps are allowed, and the result names what it lacks.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.evidence.options import listed
from kafka_forensics.model.batches import BatchColumn, has_right_crc
from kafka_forensics.model.constants import INTERNAL_TOPICS
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.offset_ranges import Range, Ranges, clipped, normalised, offset_ranges, without
from kafka_forensics.model.results import ReadExtent
from kafka_forensics.questions.plan import Planned
from kafka_forensics.questions.salvage.lineage import BASE, LeftBehind, LineageRange, LogLineage, committed_end, conflicting
from kafka_forensics.questions.salvage.manifest import Refused, RefusedError, open_ended
from kafka_forensics.questions.salvage.slices import Choice, SegmentSlice, SourceCopy, slices_of
from kafka_forensics.replication.planner import NO_END, Broker, PlanReplica, loaded_epochs
from kafka_forensics.scanning.rereading.reader import LogReader

DIFFERING: Final = kinds_with(Trait.PARTS_REPLICAS) - {"REPLICA_DIFFERS"} | {"TOPIC_ID_MISMATCH"}
"""Findings that say that copies hold different records."""
_CONTRADICTING: Final = ("contents", "markers")
"""Reasons why the latest values of a key differ that no missing record explains."""
CHOOSE_BROKER: Final = "choose the broker whose records to keep with --prefer-broker; `plan` and `compare` show both sides"
MAY_BE_STALE: Final = (
    "keys whose newest value or tombstone was left out may be missing, have an older value, or be present although deleted"
)


class _CopyCheck(Struct):
    """One copy, by its number, and why it is not whole."""

    number: int
    broker: Broker
    slices: list[SegmentSlice] = field(default_factory=list)
    damaged: Ranges = ()
    """Offsets that bad bytes, or missing segments, may have held: from one good batch to the next, up to NO_END after the last."""
    missing: Ranges = ()
    """Offsets after its end."""
    problems: list[str] = field(default_factory=list)
    was_read: bool = True

    @property
    def gaps(self) -> Ranges:
        """The offsets that the log lacks if it is made of this copy."""
        return normalised((*self.damaged, *self.missing))

    def __str__(self) -> str:
        return f"the copy of broker {self.broker} {listed(self.problems)}"


class WholeCopyChooser:
    """The copies of one partition, of which one is used."""

    def __init__(self, sources: list[SourceCopy], planned: Planned, findings: Sequence[Finding], reader: LogReader) -> None:
        """`findings` are those of the scan; `reader` reads the copies again."""
        self._sources, self._planned, self._reader = sources, planned, reader
        differing = [finding for finding in findings if finding.kind in DIFFERING]
        self._values = [finding for finding in differing if finding.kind == "COMPACTED_VALUE_DIFFERS"]
        self._rivals = [
            finding
            for finding in differing
            if finding.kind != "COMPACTED_VALUE_DIFFERS" or any(finding.evidence.get(reason) for reason in _CONTRADICTING)
        ]

    def choose(self, prefer: str | None, *, allow_gaps: bool) -> Choice:
        """The first whole copy; if none is whole and gaps are allowed, the first.

        The copy of the preferred broker comes first, then the recommended one, then the longest. If the copies are of rival
        histories, only the first two are considered. Raises RefusedError, SourceError.
        """
        order = self._order(prefer)
        if self._rivals:
            rules = self._rules_between_rivals(prefer)
            order = [(number, rule) for number, rule in order if rule in rules]
            if not order:
                raise self._refused_as_differing()
        log_end_offset = self._promised_end([number for number, _ in order])
        checks = list[_CopyCheck]()
        for number, rule in order:
            check = self._check(number, log_end_offset)
            if not check.problems:
                return self._choice(check, rule, log_end_offset, checks, prefer)
            checks.append(check)
        first = next(((check, rule) for check, (_, rule) in zip(checks, order, strict=True) if check.was_read), None)
        if first is None or not allow_gaps:
            raise self._refused_as_not_whole(checks, None if first is None else first[0])
        return self._choice(*first, log_end_offset, checks, prefer)

    def _order(self, prefer: str | None) -> list[tuple[int, str]]:
        """The copies by their numbers, in the order in which they are tried, each with the rule that puts it there."""
        ranked = []
        for number, (source, replica) in enumerate(zip(self._sources, self._planned.planner_input.replicas, strict=False)):
            broker, end = str(source.broker), source.replica.log_end_offset
            rule = "prefer_broker" if broker == prefer else "plan" if broker == str(self._planned.plan.recommended) else "longest"
            rank = ("prefer_broker", "plan", "longest").index(rule)
            ranked.append((rank, -min(committed_end(replica), end), -end, number, rule))
        return [(number, rule) for *_, number, rule in sorted(ranked)]

    def _rules_between_rivals(self, prefer: str | None) -> tuple[str, ...]:
        """The rules that may choose between rival histories: the plan's only if nothing after a fork was committed anywhere."""
        if any(str(source.broker) == prefer for source in self._sources):
            return ("prefer_broker",)
        harmless = all(
            finding.kind == "FORK_ABOVE_HW" and not finding.evidence.get("watermark_unknown") for finding in self._rivals
        )
        return ("plan",) if harmless else ()

    def _promised_end(self, numbers: Sequence[int]) -> int:
        """The end of the log, by the furthest of these copies and of their high watermarks."""
        sources = [self._sources[number] for number in numbers]
        marks = [source.plan.context.high_watermark or 0 for source in sources if not source.plan.context.live]
        named = [segment.base_offset for source in sources for segment in source.plan.directory.segments]
        return max(*marks, *named, *(source.replica.log_end_offset for source in sources), 0)

    def _check(self, number: int, log_end_offset: int) -> _CopyCheck:
        source = self._sources[number]
        replica = source.replica
        start = replica.log_start_offset
        check = _CopyCheck(number, source.broker)
        if replica.read is not ReadExtent.WHOLE:
            check.problems, check.was_read = ["could not be read to its end"], False
            return check
        wanted = without([(start, NO_END)], self._doubtful_ranges(number))
        ranges = [LineageRange(number, *span, BASE) for span in wanted]
        check.slices = list(slices_of(source, ranges, compacted=True, starts_log=True))
        size_in_bytes = sum(part.size_in_bytes for part in check.slices)
        check.damaged = normalised(_holes(source, check.slices, log_end_offset))
        is_incomplete = size_in_bytes != replica.state.framing.bytes_decoded and replica.first_batch_offset >= start
        if not source.is_whole or is_incomplete:
            check.problems.append(f"is damaged{_at(check.damaged)}")
        elif check.damaged:
            check.problems.append(f"has lost a segment, or the end of a segment,{_at(check.damaged)}")
        expected_start = self._expected_start()
        if expected_start is not None and expected_start < start:
            check.problems.append(f"lacks the start of the log{_at([(expected_start, start)])}")
        end = max(replica.log_end_offset, *(high for _, high in check.damaged if high < NO_END), 0)
        if end < log_end_offset:
            check.missing = ((end, log_end_offset),)
            check.problems.append(f"ends at offset {end}, before {log_end_offset}")
        if values := normalised(span for span, _, reason in self._lacked_values(source.broker) if reason not in _CONTRADICTING):
            check.problems.append(f"lacks the latest value of a key that another copy has{_at(values)}")
        return check

    def _doubtful_ranges(self, number: int) -> Ranges:
        """Offsets of batches found after lost framing, if another copy has batches there and no other copy has the first one found:
        the value of a record may contain the bytes of a batch."""
        others = [source for other, source in enumerate(self._sources) if other != number]
        doubted = []
        for start, end, crc in self._sources[number].found_batches():
            contradicting = [source for source in others if clipped(source.good, start, end)]
            if contradicting and not any(self._has_batch(source, start, crc) for source in contradicting):
                doubted.append((start, end))
        return normalised(doubted)

    def _has_batch(self, source: SourceCopy, base_offset: int, crc: int) -> bool:
        columns = self._reader.batches(source.replica, base_offset, base_offset + 1)
        is_same = (columns[BatchColumn.BASE_OFFSET] == base_offset) & (columns[BatchColumn.CRC] == crc)
        return bool((has_right_crc(columns) & is_same).any())

    def _expected_start(self) -> int | None:
        """The lowest start of all copies, where the log starts if only cleaners removed records. None if retention or DeleteRecords
        may have moved the start of one, or if no copy has a batch."""
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

    def _choice(self, check: _CopyCheck, rule: str, end: int, checks: Sequence[_CopyCheck], prefer: str | None) -> Choice:
        """The log made of a copy, with what only the other copies hold."""
        number = check.number
        start = self._sources[number].replica.log_start_offset
        ranges = (LineageRange(number, start, end, BASE),) if start < end else ()
        lineage = LogLineage(number, start, end, ranges, check.gaps)
        left = self._left_behind(lineage) if check.problems or self._rivals else []
        if self._rivals and rule == "plan" and any(span.committed_end > span.start for span in left):
            raise self._refused_as_differing()
        damaged = {other.number: other.damaged for other in (*checks, check)}
        warnings = [
            f"the copy of broker {check.broker} was chosen, because {other}"
            for other in checks
            if str(other.broker) == prefer and other is not check
        ]
        return Choice(
            replace(lineage, left_behind=tuple(left)),
            rule,
            list(self._sources),
            self._planned,
            is_cleaned=True,
            slices=check.slices,
            damaged=[damaged.get(other, ()) for other in range(len(self._sources))],
            warning="; ".join([*warnings, *([MAY_BE_STALE] if check.problems else [])]) or None,
        )

    def _left_behind(self, lineage: LogLineage) -> list[LeftBehind]:
        """What other copies hold and the log lacks: before its start, in its gaps, after its end, and latest values of keys; of
        rival histories everything after they diverge."""
        base, start, end = lineage.base, lineage.log_start_offset, lineage.log_end_offset
        ours = self._sources[base].broker
        lacked = list(self._lacked_values(ours))
        left = []
        for number, (source, replica) in enumerate(zip(self._sources, self._planned.planner_input.replicas, strict=False)):
            if number == base or source.replica.read is not ReadExtent.WHOLE:
                continue
            values = [span for span, held_by, _ in lacked if replica.broker in held_by]
            absent = [(0, start), *lineage.gaps, (end, NO_END)]
            fork = min(_fork(base, number, self._planned), end) if self._rivals else end
            rival = without([(max(fork, start), end)], lineage.gaps)
            for spans, rival_of in (((*self._good(number, absent), *values), None), (self._good(number, rival), ours)):
                for low, high in normalised(spans):
                    left.append(LeftBehind(replica.broker, low, high, min(max(committed_end(replica), low), high), rival_of))
        return sorted(left, key=lambda span: (span.start, span.end, str(span.broker)))

    def _good(self, number: int, ranges: Sequence[Range]) -> Ranges:
        """Offsets of a copy's good batches in ranges that start and end between batches."""
        source = self._sources[number]
        spans = clipped(normalised(ranges), source.replica.log_start_offset, NO_END)
        slices = slices_of(source, [LineageRange(number, *span, BASE) for span in spans], compacted=True)
        return normalised((part.start_offset, part.end_offset) for part in slices)

    def _refused_as_differing(self) -> RefusedError:
        kinds = listed(sorted({finding.kind for finding in self._rivals}))
        return self._refused(f"its copies differ ({kinds})", CHOOSE_BROKER, (), [source.broker for source in self._sources])

    def _refused_as_not_whole(self, checks: Sequence[_CopyCheck], first: _CopyCheck | None) -> RefusedError:
        subject = "the chosen copy is not whole" if self._rivals else "no copy of it is whole"
        hint = "give the log directories of more brokers"
        if first is not None:
            hint += (
                f"; or --allow-gaps: the copy of broker {first.broker} is used, and keys may be missing, have older values, or be"
                " present although deleted"
            )
        reason = f"{subject}: {'; '.join(map(str, checks))}"
        return self._refused(reason, hint, () if first is None else first.gaps, [check.broker for check in checks])

    def _refused(self, reason: str, hint: str, offsets: Ranges, brokers: Sequence[Broker]) -> RefusedError:
        key = self._sources[0].key
        kind, noun = ("internal_topic", "an internal topic") if key[0] in INTERNAL_TOPICS else ("compacted", "compacted")
        brokers = tuple(dict.fromkeys(brokers))
        return RefusedError(Refused(*key, kind, f"it is {noun}, and {reason}", hint, open_ended(offsets), brokers))


def first_dirty_offset(lineage: LogLineage, source: SourceCopy) -> int:
    """Where a broker continues to clean the log: as far as the used copy was cleaned."""
    return min(max(source.plan.context.cleaner_checkpoint or 0, lineage.log_start_offset), lineage.log_end_offset)


def known_epochs(lineage: LogLineage, source: SourceCopy) -> list[EpochEntry] | None:
    """Leader epochs by the checkpoint of the copy: a cleaner may have removed the first batches of an epoch. None without one."""
    entries = source.plan.context.epoch_checkpoint
    return None if entries is None else loaded_epochs(entries, lineage.log_end_offset)


def _at(ranges: Sequence[Range]) -> str:
    if not ranges:
        return ""
    closed = [(start, end) for start, end in ranges if end < NO_END]
    named = [offset_ranges(closed)] if closed else []
    named += [f"from offset {start} on" for start, end in ranges if end == NO_END]
    return f" at {' and '.join(named)}"


def _holes(source: SourceCopy, slices: Sequence[SegmentSlice], log_end_offset: int) -> Iterator[Range]:
    """Offsets between good batches, by a copy's slices, if other bytes are between them, or a segment is missing or was cut.

    They do not include what DeleteRecords removed, nor what a crash leaves at the end of a log. Other bytes after the last good
    batch of the longest copy held an unknown number of offsets: that range ends at NO_END.
    """
    replica, segments = source.replica, source.plan.directory.segments
    by_segment: dict[int, list[SegmentSlice]] = {}
    for part in slices:
        by_segment.setdefault(part.segment, []).append(part)
    starts_below = source.is_whole and replica.first_batch_offset < replica.log_start_offset
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        offset, position = max(segment.base_offset, replica.log_start_offset), 0
        for part in by_segment.get(segment.base_offset, ()):
            if part.byte_start != position and not starts_below:
                yield offset, part.start_offset
            offset, position, starts_below = part.end_offset, part.byte_end, False
        rest = 0 if segment.log is None or starts_below else segment.log.size_in_bytes - position
        if following is None:
            rest -= _tail(source, segment.base_offset, position)
        elif segment.log is None or replica.index_entries_beyond_log[segment.base_offset, "index"]:
            rest = 1
        if rest > 0:
            end = following.base_offset if following is not None else log_end_offset if offset < log_end_offset else NO_END
            yield offset, end


def _tail(source: SourceCopy, segment: int, position: int) -> int:
    """Bytes that a crash left at the end of a segment, from a position on."""
    damage = source.replica.state.framing.damage
    tails = [found for kind in kinds_with(Trait.IS_TAIL) for base_offset, found in damage.get(kind, ()) if base_offset == segment]
    return sum(found.size_in_bytes for found in tails if found.position >= position)


def _fork(left: int, right: int, planned: Planned) -> int:
    """The first offset after which two copies may be of different histories: where their records differ, or at the end of what both
    have of their last common epoch (KIP-101). Without epochs (entries before Kafka 0.11) only the former is known."""
    ours, theirs = planned.planner_input.replicas[left], planned.planner_input.replicas[right]
    our_ends, their_ends = _epoch_ends(ours), _epoch_ends(theirs)
    shared = [min(end, their_ends[epoch]) for epoch, end in our_ends.items() if epoch in their_ends]
    differing = planned.planner_input.differing.get((min(left, right), max(left, right)), ())
    conflicts = conflicting(differing, ours.damaged, theirs.damaged)
    return min([max(shared, default=0 if our_ends and their_ends else NO_END), *(low for low, _ in conflicts)])


def _epoch_ends(replica: PlanReplica) -> dict[int, int]:
    """Leader epoch → the end of its batches in a log."""
    ends = [*(entry.start_offset for entry in replica.epochs[1:]), replica.log_end_offset]
    return {entry.leader_epoch: end for entry, end in zip(replica.epochs, ends, strict=False) if entry.leader_epoch >= 0}
