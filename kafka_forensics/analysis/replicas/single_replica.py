"""What a replica's own files prove: damage, continuity, epochs, indexes and checkpoints as findings."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.epochs import EpochRun, checkpoint_contradiction, differing_end
from kafka_forensics.analysis.kinds import Trait, finding, kinds_with
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.segments import BATCH_BEFORE, BadEntry
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.model.batches import Damage
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import Confidence, Finding, Severity
from kafka_forensics.replication.epochs import epoch_at

if TYPE_CHECKING:
    from kafka_forensics.analysis.kinds.evidence_classes import FramingEvidence
    from kafka_forensics.model.json_objects import Json

_COMPACTED_INDEX_REASONS: Final = frozenset({"position_inside_batch", "out_of_order", "beyond_log"})
_TAIL_KINDS: Final = frozenset({"beyond_log"})
_BY_OFFSET: Final = frozenset(
    {"offset_before_batch", "offset_in_earlier_batch", "timestamp_of_no_batch_there", "earlier_batch_is_newer", "beyond_log"}
)
"""What an index says wrongly of offsets: no fault of its own where the batches' own offsets are in doubt."""


def own_findings(replica: Replica) -> list[Finding]:
    """Every finding that needs no other replica."""
    return [
        *damage_findings(replica),
        *order_findings(replica),
        *name_findings(replica),
        *epoch_findings(replica),
        *index_findings(replica),
        *checkpoint_findings(replica),
    ]


def damage_findings(replica: Replica) -> list[Finding]:
    """Damage rows of the framing fold, each with the offsets it cost, and what lies hidden behind a lying length."""
    context, framing = replica.context, replica.state.framing
    last_segment = max(context.segment_base_offsets, default=0)
    findings = []
    for kind, sample in sorted(framing.damage.items()):
        if kind == "BATCH_RANGE_INCONSISTENT" and context.compacted:
            continue
        for segment, damage in sample:
            findings.append(damage_finding(replica, kind, segment, damage, last=segment == last_segment, count=sample.count))
    for segment, hiding in sorted(framing.readers_stop.items()):
        totals = framing.by_segment.get(segment)
        behind = 0 if totals is None else totals.batches - hiding.batches_before
        if not hiding.runs_past_end or behind <= 0 or totals is None:
            continue
        first = replica.course.eaten.get((segment, hiding.position), (-1, -1))[1]
        place = context.log_place(
            segment, hiding.position, totals.end_position - hiding.position, None if first < 0 else first, totals.last_offset + 1
        )
        evidence = {
            "bytes": totals.end_position - hiding.position,
            "batches_recovered": behind,
            "first_recovered_offset": first,
            "last_recovered_offset": totals.last_offset,
        }
        findings.append(finding("HIDDEN_BYTES", place, evidence))
    return findings


def damage_finding(replica: Replica, kind: str, segment: int, damage: Damage, *, last: bool, count: int) -> Finding:
    """The finding of one damage row; `last` says whether its segment is the log's last, `count` how many of its kind there are."""
    context = replica.context
    evidence: Json = dict(damage.detail)
    severity = None
    start, end = (damage.base_offset, damage.last_offset + 1) if damage.base_offset >= 0 else (None, None)
    if (segment, damage.position) in replica.course.eaten:
        start, end = replica.course.eaten[(segment, damage.position)]
    hiding = replica.state.framing.readers_stop.get(segment)
    if hiding is not None and hiding.position == damage.position:
        totals = replica.state.framing.by_segment.get(segment)
        if totals is not None:
            evidence["batches_recovered"] = totals.batches - hiding.batches_before
            evidence["last_recovered_offset"] = totals.last_offset
            evidence["first_recovered_offset"] = end
    if kind == "SEG_TORN_TAIL":
        totals = replica.state.framing.by_segment.get(segment)
        behind = replica.log_end_offset - 1 if last and replica.log_end_offset > replica.log_start_offset else None
        evidence["last_valid_offset"] = behind if totals is None else totals.last_offset
        start, end = None, None
        beyond = replica.entries_beyond[(segment, "index")]
        if beyond:
            evidence["index_entries_beyond"] = beyond
        if not last:
            kind = "SEG_SHORT"
        elif context.clean_shutdown:
            severity = Severity.WARNING
            evidence["clean_shutdown"] = True
    if count > 1:
        evidence["count"] = count
    place = context.log_place(segment, damage.position, damage.size_in_bytes, start, end)
    return finding(kind, place, evidence, severity=severity)


def order_findings(replica: Replica) -> list[Finding]:
    """Gaps, regressions and batches out of line. Whether they lie below the high watermark is judged over all replicas."""
    context = replica.context
    misplaced = {moved.place: moved for moved in replica.misplaced}
    findings = []
    for irregularity in replica.course.irregularities:
        evidence: Json = {"expected_offset": irregularity.expected, "found_offset": irregularity.run.start_offset}
        severity = confidence = None
        if irregularity.kind == "OFFSET_DISCONTINUITY" and irregularity.run.last_place in misplaced:
            witnesses = misplaced[irregularity.run.last_place].witnesses
            evidence["witnesses"] = list(witnesses)
            confidence = Confidence.INFERRED if witnesses == (BATCH_BEFORE,) else None
        if irregularity.kind == "OFFSET_GAP":
            evidence["missing"] = irregularity.end - irregularity.start
            if irregularity.end <= context.snapshot_end:
                evidence["snapshot_end"] = context.snapshot_end
                severity = Severity.INFO
        place = context.place(
            context.log_file(irregularity.run.segment),
            byte_start=irregularity.run.position,
            offset_start=irregularity.start,
            offset_end=irregularity.end,
        )
        findings.append(finding(irregularity.kind, place, evidence, severity=severity, confidence=confidence))
        cut = _cut_between_batches(replica, irregularity.start) if irregularity.kind == "OFFSET_GAP" else None
        if cut is not None:
            findings.append(cut)
        if (
            irregularity.kind == "OFFSET_GAP"
            and severity is None
            and _is_missing_segment(replica, irregularity.start, irregularity.end)
        ):
            missing = context.place(offset_start=irregularity.start, offset_end=irregularity.end)
            findings.append(
                finding(
                    "SEGMENT_MISSING",
                    missing,
                    {"missing": irregularity.end - irregularity.start, "file": context.log_file(irregularity.start)},
                )
            )
    return findings


def _cut_between_batches(replica: Replica, end_offset: int) -> Finding | None:
    """`SEG_SHORT` for the segment that ends with a whole batch before `end_offset`, though its index goes on behind it."""
    context, framing = replica.context, replica.state.framing
    for segment, totals in framing.by_segment.items():
        beyond = replica.entries_beyond[(segment, "index")]
        if totals.last_offset + 1 == end_offset and beyond and not _torn(replica, segment):
            place = context.place(context.log_file(segment), byte_start=totals.end_position, byte_end=totals.end_position)
            evidence: FramingEvidence = {"reason": "index", "index_entries_beyond": beyond, "last_valid_offset": totals.last_offset}
            return finding("SEG_SHORT", place, evidence)
    return None


def _is_missing_segment(replica: Replica, start: int, end: int) -> bool:
    """Whether a gap ends where a segment begins, and the one before it ends soundly or in bytes of none of its offsets: a file is
    gone, not a tail."""
    bases = replica.context.segment_base_offsets
    number = bisect_left(bases, end)
    if number == 0 or number == len(bases) or bases[number] != end:
        return False
    before = bases[number - 1]
    cut = any(replica.entries_beyond[(before, kind)] for kind in ("index", "timeindex"))
    eaten = any(end_of_eaten == start for _, end_of_eaten in replica.course.eaten.values())
    return not _torn(replica, before) and not cut and not eaten and start > before


def name_findings(replica: Replica) -> list[Finding]:
    """Segments whose name is not the offset it promises: content below it, or a joined log whose name is lower."""
    context = replica.context
    findings = []
    for segment, first in misnamed(replica):
        place = context.place(context.log_file(segment), offset_start=first, offset_end=first + 1)
        findings.append(finding("SEG_NAME_MISMATCH", place, {"name_offset": segment, "first_offset": first}))
    return findings


def misnamed(replica: Replica) -> list[tuple[int, int]]:
    """Segments whose name contradicts the log, by the offset in their name, each with its first batch's base offset."""
    context, runs = replica.context, replica.state.continuity.runs
    cuts = []
    for index, segment in enumerate(context.segment_base_offsets):
        first = replica.state.continuity.first_in_segment.get(segment)
        if first is None:
            continue
        joined = index > 0 and any(run.start_offset < first < run.end_offset for run in runs)
        if first < segment or (first > segment and joined and not context.compacted):
            cuts.append((segment, first))
    return cuts


def epoch_findings(replica: Replica) -> list[Finding]:
    """Stray epoch fields, falling epochs, and `leader-epoch-checkpoint` against the batches."""
    strays = replica.state.epochs.strays(replica.context.epoch_checkpoint, replica.context.control)
    against_batches = _epoch_checkpoint_finding(replica, {run.leader_epoch for run, _ in strays})
    return [*_epoch_field_findings(replica, strays), *([] if against_batches is None else [against_batches])]


def _epoch_field_findings(replica: Replica, strays: Sequence[tuple[EpochRun, int]]) -> Iterator[Finding]:
    """`EPOCH_FIELD_MISMATCH` of batches whose epoch their neighbours contradict, but for those that stand out of place."""
    context = replica.context
    displaced = {
        (irregularity.run.segment, irregularity.run.position)
        for irregularity in replica.course.irregularities
        if irregularity.kind != "OFFSET_GAP"
    }
    for run, expected in [*strays, *replica.state.epochs.regressions()]:
        stretch = _run_place(replica, run) if displaced else None
        if stretch in displaced and not _alone_in(replica, run, stretch):
            continue
        place = context.log_place(run.segment, run.position, run.size_in_bytes, run.start_offset, run.end_offset)
        witnesses = ["neighbouring batches"]
        if context.epoch_checkpoint is not None and epoch_at(context.epoch_checkpoint, run.start_offset) == expected:
            witnesses.append("leader-epoch-checkpoint")
        evidence = {"epoch": run.leader_epoch, "expected_epoch": expected, "crc": "right", "witnesses": witnesses}
        yield finding("EPOCH_FIELD_MISMATCH", place, evidence)


def _may_lack_batches(replica: Replica) -> bool:
    damaged = replica.state.framing.bytes_damaged or replica.course.irregularities or replica.state.unread
    return replica.context.compacted or bool(damaged)


def _epoch_checkpoint_finding(replica: Replica, stray_epochs: Collection[int]) -> Finding | None:
    """What `leader-epoch-checkpoint` says otherwise than the batches; None where nothing, or where nobody can say."""
    context, epochs = replica.context, replica.state.epochs
    checkpoint = context.epoch_checkpoint
    if checkpoint is None or epochs.dropped_runs or epochs.batches_without_epoch:
        return None
    lineage = [entry for entry in epochs.lineage() if entry.leader_epoch not in stray_epochs]
    start, end = replica.local_log_start_offset, replica.log_end_offset
    reason = checkpoint_contradiction(checkpoint, lineage, start, end, compacted=_may_lack_batches(replica))
    if reason is None:
        return None
    place = context.place("leader-epoch-checkpoint")
    if reason == "entry_missing" and context.live and checkpoint == lineage[: len(checkpoint)]:
        newer = {"reason": "epoch_newer_than_checkpoint", "epoch": lineage[len(checkpoint)].leader_epoch}
        return finding("INCONSISTENT_CUT", place, newer)
    epoch, by_file, by_batches = differing_end(checkpoint, lineage, end)
    evidence = {
        "reason": reason,
        "epoch": epoch,
        "checkpoint": [[entry.leader_epoch, entry.start_offset] for entry in checkpoint[:64]],
        "batches": [[entry.leader_epoch, entry.start_offset] for entry in lineage[:64]],
        "truncation_offset_by_checkpoint": by_file,
        "truncation_offset_by_batches": by_batches,
    }
    if context.clean_shutdown or context.compacted or not _log_start_moved(replica, checkpoint, lineage):
        return finding("EPOCH_CACHE_MISMATCH", place, evidence)
    evidence["harmless_if"] = "DeleteRecords moved the log start, and log-start-offset-checkpoint was not yet written"
    return finding("EPOCH_CACHE_MISMATCH", place, evidence, severity=Severity.INFO)


def _run_place(replica: Replica, batch: EpochRun) -> tuple[int, int] | None:
    """Where the stretch of joining batches begins in which a batch lies: what is out of line is so with the epoch it brought."""
    runs = replica.state.continuity.runs
    number = bisect_right(runs, (batch.segment, batch.position), key=lambda run: (run.segment, run.position))
    return (runs[number - 1].segment, runs[number - 1].position) if number else None


def _alone_in(replica: Replica, batch: EpochRun, stretch: tuple[int, int] | None) -> bool:
    """Whether both neighbours of a batch within its stretch have one epoch and it has another."""
    runs = replica.state.epochs.runs
    number = next(index for index, run in enumerate(runs) if run is batch)
    if (batch.segment, batch.position) == stretch or not 0 < number < len(runs) - 1:
        return False
    left, right = runs[number - 1], runs[number + 1]
    return left.leader_epoch == right.leader_epoch and _run_place(replica, right) == stretch


def _log_start_moved(replica: Replica, checkpoint: list[EpochEntry], lineage: list[EpochEntry]) -> bool:
    """Whether the checkpoint is right for a log that starts at its first entry: epochs are cut there at once when records are
    deleted, `log-start-offset-checkpoint` is written within a minute, and segments below the log start are removed with the next
    check of retention. Behind the first segment a file that lost its first entries looks the same, unless the cut is within an
    epoch."""
    start = checkpoint[0].start_offset if checkpoint else -1
    bases = replica.context.segment_base_offsets
    if start <= replica.local_log_start_offset:
        return False
    beyond_first_segment = len(bases) > 1 and start >= bases[1]
    if beyond_first_segment and not replica.context.live and any(entry.start_offset == start for entry in lineage):
        return False
    if start >= replica.log_end_offset and checkpoint[0].leader_epoch not in {entry.leader_epoch for entry in lineage[-1:]}:
        return False  # a file that was made anew, with the epoch that began then, looks the same
    return checkpoint_contradiction(checkpoint, lineage, start, replica.log_end_offset, compacted=False) is None


def index_findings(replica: Replica) -> list[Finding]:
    """Index entries that contradict the log, one finding for each index file."""
    by_file: dict[tuple[int, str], list[BadEntry]] = {}
    disordered = _disordered_segments(replica)
    for bad in replica.state.bad_entries:
        if replica.context.compacted and bad.reason in _BY_OFFSET - _COMPACTED_INDEX_REASONS:
            continue
        if (bad.segment in disordered and bad.reason in _BY_OFFSET) or _proves_lost_bytes(replica, bad):
            continue
        by_file.setdefault((bad.segment, bad.file_kind), []).append(bad)
    return [_index_finding(replica, segment, kind, by_file) for segment, kind in sorted(by_file)]


def _index_finding(replica: Replica, segment: int, kind: str, by_file: dict[tuple[int, str], list[BadEntry]]) -> Finding:
    entries = by_file[segment, kind]
    size = 8 if kind == "index" else 12
    first = min(entries, key=lambda bad: bad.entry)
    beyond = all(bad.reason in _TAIL_KINDS for bad in entries)
    evidence: Json = {"reason": first.reason, "entry": first.entry, "entries": len(entries)}
    if first.offset >= 0:
        evidence |= {"offset": first.offset, "position" if kind == "index" else "timestamp": first.value}
    if first.expected is not None:
        evidence["expected"] = first.expected
    place = replica.context.place(f"{segment:020d}.{kind}", byte_start=first.entry * size, byte_end=(first.entry + 1) * size)
    dropped = _may_be_dropped_entries(replica, segment, kind, entries)
    left_over = dropped and _was_cut_back(replica, segment, by_file)
    if left_over:
        evidence["harmless_if"] = CUT_BACK
    elif dropped:
        evidence["behind_log_end"] = True
    name = "INCONSISTENT_CUT" if beyond and replica.context.live else "INDEX_MISMATCH"
    return finding(name, place, evidence, severity=Severity.INFO if left_over else None)


CUT_BACK: Final = "the log was cut back while its broker ran, and the index was not closed since"
"""Why what an open index keeps behind its last entry is harmless."""


def _may_be_dropped_entries(replica: Replica, segment: int, kind: str, entries: list[BadEntry]) -> bool:
    """Whether these bad entries may be bytes that a truncation dropped: an open index keeps them behind its last entry until it is
    closed. `AbstractIndex.truncateToEntries` moves nothing but the end, and what is appended then overwrites them one by one.

    They are the last before the zeros of an index that was not trimmed: no sound entry follows, or they begin with one that is
    sound by itself and out of order, where a log was written again as it was.
    """
    tail = next(
        (zero_tail for zero_tail in replica.state.zero_tails if (zero_tail.segment, zero_tail.file_kind) == (segment, kind)), None
    )
    if replica.context.clean_shutdown or tail is None or any(entry.entry >= tail.entries for entry in entries):
        return False
    first = min(entry.entry for entry in entries)
    return tail.last_sound < first or {entry.reason for entry in entries if entry.entry == first} == {"out_of_order"}


def _was_cut_back(replica: Replica, segment: int, by_file: dict[tuple[int, str], list[BadEntry]]) -> bool:
    """Whether the segment has gone on since entries of its indexes were dropped: they are no witnesses of a tail that is gone.

    The first of a file points to what was written instead, or has an older time than the segment holds, which no append gives it.
    """
    newest = max((tail.max_timestamp for tail in replica.state.zero_tails if tail.segment == segment), default=-1)
    for (base_offset, kind), entries in by_file.items():
        if base_offset != segment or not _may_be_dropped_entries(replica, segment, kind, entries):
            continue
        first = min(entries, key=lambda entry: entry.entry)
        if first.reason not in _TAIL_KINDS or (kind == "timeindex" and first.value < newest):
            return True
    return False


def _disordered_segments(replica: Replica) -> set[int]:
    """Segments whose batches or names give offsets in doubt."""
    segments = {irregularity.run.segment for irregularity in replica.course.irregularities if irregularity.kind != "OFFSET_GAP"}
    segments |= {segment for segment, _ in replica.state.framing.damage.get("BATCH_RANGE_INCONSISTENT", ())}
    return segments | {segment for segment, _ in misnamed(replica)}


def _proves_lost_bytes(replica: Replica, bad: BadEntry) -> bool:
    """Whether an entry points to where bytes of the log are lost: then it is the log that is wrong."""
    damage = replica.state.framing.damage
    lost = [
        damaged
        for kind in kinds_with(Trait.RECORDS_IN_DOUBT) - {"BATCH_CRC_MISMATCH"}
        for segment, damaged in damage.get(kind, ())
        if segment == bad.segment
    ]
    if bad.reason == "position_inside_batch":
        return any(damaged.position <= bad.value < damaged.position + damaged.size_in_bytes for damaged in lost)
    totals = replica.state.framing.by_segment.get(bad.segment)
    if bad.reason == "beyond_log" and totals is None and (lost or bad.segment in replica.gap_starts):
        return True
    beyond = replica.entries_beyond[(bad.segment, "index")] > 0
    short = totals is not None and totals.last_offset + 1 in replica.gap_starts and beyond
    return bad.reason == "beyond_log" and (short or _torn(replica, bad.segment))


def _torn(replica: Replica, segment: int) -> bool:
    """Whether a segment is known to end in the middle of a batch."""
    return any(damaged_segment == segment for damaged_segment, _ in replica.state.framing.damage.get("SEG_TORN_TAIL", ()))


_Check = tuple[str, int | None, str, int | None]
"""What must not lie beyond what: name and offset of either, None where it is not known."""


def checkpoint_findings(replica: Replica) -> list[Finding]:
    """High watermark, recovery point and log start in order: log start ≤ HW ≤ log end, recovery point ≤ log end."""
    if not replica.end_is_known:
        return []
    findings: list[Finding] = []
    context, end = replica.context, replica.log_end_offset
    high_watermark = context.high_watermark
    stopped = {"clean_shutdown": True} if context.clean_shutdown else {}
    if high_watermark is not None and high_watermark > end:
        place = context.place(offset_start=end, offset_end=high_watermark)
        evidence = {"high_watermark": high_watermark, "log_end_offset": end, "file": "replication-offset-checkpoint"}
        findings.append(finding("INCONSISTENT_CUT" if context.live else "HW_BEYOND_LEO", place, evidence | stopped))
    if high_watermark == 0 and end > replica.log_start_offset:
        findings.append(finding("HW_UNKNOWN", context.place(), {"reason": "zero", "log_end_offset": end}))
    checks = (
        ("recovery point", context.recovery_point, "log end", end),
        ("cleaner checkpoint", context.cleaner_checkpoint, "log end", end),
        ("log start", context.log_start_checkpoint, "log end", end),
        ("log start", context.log_start_checkpoint, "high watermark", high_watermark or None),
    )
    return findings + _out_of_order(context, checks, stopped)


def _out_of_order(context: ReplicaContext, checks: Sequence[_Check], stopped: dict[str, bool]) -> list[Finding]:
    findings = []
    for name, value, limit_name, limit in checks:
        if value is not None and limit is not None and value > limit:
            evidence = {"what": name, "value": value, "limit_name": limit_name, "limit": limit} | stopped
            kind = "INCONSISTENT_CUT" if context.live else "CHECKPOINT_OUT_OF_ORDER"
            beyond = finding(kind, context.place(), evidence)
            harmless = limit_name == "high watermark" and not context.clean_shutdown
            findings.append(_by_crash(beyond) if harmless else beyond)
    return findings


def _by_crash(beyond: Finding) -> Finding:
    reason = "records were deleted within 5 s before a crash: the log start was then written down first"
    return replace(beyond.with_evidence(harmless_if=reason), severity=Severity.INFO)
