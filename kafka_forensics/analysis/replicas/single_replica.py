"""Findings from a replica's own files: damage, continuity, epochs, indexes and checkpoints."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.epochs import EpochRun, checkpoint_contradiction, differing_end
from kafka_forensics.analysis.kinds import Trait, finding, kinds_with
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.segments import BATCH_BEFORE, BadEntry
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
"""Reasons that concern offsets: not reported of an index where the batches' own offsets are in doubt."""


def single_replica_findings(replica: Replica) -> list[Finding]:
    """Every finding that needs no other replica."""
    rules = (damage_findings, order_findings, name_findings, epoch_findings, index_findings, checkpoint_findings)
    return [found for rule in rules for found in rule(replica)]


def damage_findings(replica: Replica) -> list[Finding]:
    """Findings of the framing fold's damage, with the offsets lost, and of bytes hidden after a wrong length."""
    context, framing = replica.context, replica.state.framing
    last_segment = max(context.segment_base_offsets, default=0)
    findings = [
        damage_finding(replica, kind, segment, damage, last=segment == last_segment, count=sample.count)
        for kind, sample in sorted(framing.damage.items())
        if not (kind == "BATCH_RANGE_INCONSISTENT" and context.compacted)
        for segment, damage in sample
    ]
    for segment, stop in sorted(framing.readers_stop.items()):
        totals = framing.by_segment.get(segment)
        if totals is None or not stop.runs_past_end or totals.batches <= stop.batches_before:
            continue
        first, size = (
            replica.offset_sequence.lost_to_damage.get((segment, stop.position), (-1, -1))[1],
            totals.end_position - stop.position,
        )
        place = context.log_place(segment, stop.position, size, None if first < 0 else first, totals.last_offset + 1)
        evidence = {
            "bytes": size,
            "batches_recovered": totals.batches - stop.batches_before,
            "first_recovered_offset": first,
            "last_recovered_offset": totals.last_offset,
        }
        findings.append(finding("HIDDEN_BYTES", place, evidence))
    return findings


def damage_finding(replica: Replica, kind: str, segment: int, damage: Damage, *, last: bool, count: int) -> Finding:
    """The finding of one damage; `last`: its segment is the log's last; `count`: number of damages of this kind."""
    context, framing = replica.context, replica.state.framing
    evidence: Json = dict(damage.detail)
    severity = None
    start, end = (damage.base_offset, damage.last_offset + 1) if damage.base_offset >= 0 else (None, None)
    if (segment, damage.position) in replica.offset_sequence.lost_to_damage:
        start, end = replica.offset_sequence.lost_to_damage[(segment, damage.position)]
    stop, totals = framing.readers_stop.get(segment), framing.by_segment.get(segment)
    if stop is not None and stop.position == damage.position and totals is not None:
        evidence["batches_recovered"] = totals.batches - stop.batches_before
        evidence["last_recovered_offset"] = totals.last_offset
        evidence["first_recovered_offset"] = end
    if kind == "SEG_TORN_TAIL":
        end_of_log = replica.log_end_offset - 1 if last and replica.log_end_offset > replica.log_start_offset else None
        evidence["last_valid_offset"] = end_of_log if totals is None else totals.last_offset
        start, end = None, None
        beyond = replica.index_entries_beyond_log[(segment, "index")]
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
    """Gaps, regressions and misplaced batches; all replicas together decide which are below the high watermark."""
    context = replica.context
    misplaced = {moved.place: moved for moved in replica.misplaced}
    findings = []
    for anomaly in replica.offset_sequence.anomalies:
        run, start, end = anomaly.run, anomaly.start, anomaly.end
        evidence: Json = {"expected_offset": anomaly.expected, "found_offset": run.start_offset}
        severity = confidence = None
        is_gap = anomaly.kind == "OFFSET_GAP"
        if anomaly.kind == "OFFSET_DISCONTINUITY" and run.last_place in misplaced:
            witnesses = misplaced[run.last_place].witnesses
            evidence["witnesses"] = list(witnesses)
            confidence = Confidence.INFERRED if witnesses == (BATCH_BEFORE,) else None
        if is_gap:
            evidence["missing"] = end - start
            if end <= context.snapshot_end:
                evidence["snapshot_end"] = context.snapshot_end
                severity = Severity.INFO
        place = context.place(context.log_file(run.segment), byte_start=run.position, offset_start=start, offset_end=end)
        findings.append(finding(anomaly.kind, place, evidence, severity=severity, confidence=confidence))
        if is_gap and (cut := _cut_between_batches(replica, start)) is not None:
            findings.append(cut)
        if is_gap and severity is None and _is_missing_segment(replica, start, end):
            missing: Json = {"missing": end - start, "file": context.log_file(start)}
            findings.append(finding("SEGMENT_MISSING", context.place(offset_start=start, offset_end=end), missing))
    return findings


def _cut_between_batches(replica: Replica, end_offset: int) -> Finding | None:
    """`SEG_SHORT` for the segment that ends with a complete batch before `end_offset` though its index has later entries."""
    context, framing = replica.context, replica.state.framing
    for segment, totals in framing.by_segment.items():
        beyond = replica.index_entries_beyond_log[(segment, "index")]
        if totals.last_offset + 1 == end_offset and beyond and not _torn(replica, segment):
            place = context.place(context.log_file(segment), byte_start=totals.end_position, byte_end=totals.end_position)
            evidence: FramingEvidence = {"reason": "index", "index_entries_beyond": beyond, "last_valid_offset": totals.last_offset}
            return finding("SEG_SHORT", place, evidence)
    return None


def _is_missing_segment(replica: Replica, start: int, end: int) -> bool:
    """Whether a gap ends where a segment begins, and the previous segment ends soundly or in bytes without any of its offsets: a
    file is missing, not the end of one."""
    bases = replica.context.segment_base_offsets
    number = bisect_left(bases, end)
    if number == 0 or number == len(bases) or bases[number] != end:
        return False
    before = bases[number - 1]
    cut = any(replica.index_entries_beyond_log[(before, kind)] for kind in ("index", "timeindex"))
    lost = any(lost_end == start for _, lost_end in replica.offset_sequence.lost_to_damage.values())
    return not _torn(replica, before) and not cut and not lost and start > before


def name_findings(replica: Replica) -> list[Finding]:
    """Segments whose name is not the offset of their first batch: content below it, or a joined log whose name is lower."""
    context = replica.context
    findings = []
    for segment, first in misnamed(replica):
        place = context.place(context.log_file(segment), offset_start=first, offset_end=first + 1)
        findings.append(finding("SEG_NAME_MISMATCH", place, {"name_offset": segment, "first_offset": first}))
    return findings


def misnamed(replica: Replica) -> list[tuple[int, int]]:
    """Segments whose name contradicts the log: the offset in their name, and their first batch's base offset."""
    context, runs = replica.context, replica.state.continuity.runs
    segments = []
    for index, segment in enumerate(context.segment_base_offsets):
        first = replica.state.continuity.first_in_segment.get(segment)
        if first is None:
            continue
        joined = index > 0 and any(run.start_offset < first < run.end_offset for run in runs)
        if first < segment or (first > segment and joined and not context.compacted):
            segments.append((segment, first))
    return segments


def epoch_findings(replica: Replica) -> list[Finding]:
    """Wrong epoch fields, falling epochs, and `leader-epoch-checkpoint` against the batches."""
    contradicted_runs = replica.state.epochs.contradicted_runs(replica.context.epoch_checkpoint, replica.context.control)
    against_batches = _epoch_checkpoint_finding(replica, {run.leader_epoch for run, _ in contradicted_runs})
    return [*_epoch_field_findings(replica, contradicted_runs), *([] if against_batches is None else [against_batches])]


def _epoch_field_findings(replica: Replica, contradicted_runs: Sequence[tuple[EpochRun, int]]) -> Iterator[Finding]:
    """`EPOCH_FIELD_MISMATCH` of batches whose epoch their neighbours contradict, except those out of order."""
    context = replica.context
    displaced = {
        (anomaly.run.segment, anomaly.run.position) for anomaly in replica.offset_sequence.anomalies if anomaly.kind != "OFFSET_GAP"
    }
    for run, expected in [*contradicted_runs, *replica.state.epochs.regressions()]:
        run_place = _run_place(replica, run) if displaced else None
        if run_place in displaced and not _has_wrong_epoch_in(replica, run, run_place):
            continue
        place = context.log_place(run.segment, run.position, run.size_in_bytes, run.start_offset, run.end_offset)
        witnesses = ["neighbouring batches"]
        if context.epoch_checkpoint is not None and epoch_at(context.epoch_checkpoint, run.start_offset) == expected:
            witnesses.append("leader-epoch-checkpoint")
        evidence = {"epoch": run.leader_epoch, "expected_epoch": expected, "crc": "right", "witnesses": witnesses}
        yield finding("EPOCH_FIELD_MISMATCH", place, evidence)


def _epoch_checkpoint_finding(replica: Replica, stray_epochs: Collection[int]) -> Finding | None:
    """Differences between `leader-epoch-checkpoint` and the batches; None if there are none, or it cannot be judged."""
    context, epochs = replica.context, replica.state.epochs
    checkpoint = context.epoch_checkpoint
    if checkpoint is None or epochs.dropped_runs or epochs.batches_without_epoch:
        return None
    lineage = [entry for entry in epochs.lineage() if entry.leader_epoch not in stray_epochs]
    start, end = replica.local_log_start_offset, replica.log_end_offset
    lacks_batches = bool(replica.state.framing.bytes_damaged or replica.offset_sequence.anomalies or replica.state.unread)
    reason = checkpoint_contradiction(checkpoint, lineage, start, end, compacted=context.compacted or lacks_batches)
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


def _run_place(replica: Replica, epoch_run: EpochRun) -> tuple[int, int] | None:
    """Segment and position of the run of consecutive batches that contains this one. If that run is out of order, so is this
    epoch."""
    runs = replica.state.continuity.runs
    number = bisect_right(runs, (epoch_run.segment, epoch_run.position), key=lambda run: (run.segment, run.position))
    return (runs[number - 1].segment, runs[number - 1].position) if number else None


def _has_wrong_epoch_in(replica: Replica, epoch_run: EpochRun, run_place: tuple[int, int] | None) -> bool:
    """Whether both neighbours of a batch within its run have one epoch and it has another."""
    runs = replica.state.epochs.runs
    number = next(index for index, run in enumerate(runs) if run is epoch_run)
    if (epoch_run.segment, epoch_run.position) == run_place or not 0 < number < len(runs) - 1:
        return False
    left, right = runs[number - 1], runs[number + 1]
    return left.leader_epoch == right.leader_epoch and _run_place(replica, right) == run_place


def _log_start_moved(replica: Replica, checkpoint: list[EpochEntry], lineage: list[EpochEntry]) -> bool:
    """Whether the checkpoint is right for a log that starts at its first entry: deleting records truncates epochs there at once,
    writes `log-start-offset-checkpoint` within a minute, and removes segments with the next check of retention. After the first
    segment a file that lost its first entries looks the same, unless the truncation is within an epoch."""
    start = checkpoint[0].start_offset if checkpoint else -1
    bases = replica.context.segment_base_offsets
    if start <= replica.local_log_start_offset:
        return False
    beyond_first_segment = len(bases) > 1 and start >= bases[1]
    if beyond_first_segment and not replica.context.live and any(entry.start_offset == start for entry in lineage):
        return False
    if start >= replica.log_end_offset and checkpoint[0].leader_epoch not in {entry.leader_epoch for entry in lineage[-1:]}:
        return False  # a new file with the epoch of that time looks the same
    return checkpoint_contradiction(checkpoint, lineage, start, replica.log_end_offset, compacted=False) is None


def index_findings(replica: Replica) -> list[Finding]:
    """Index entries that contradict the log, one finding for each index file."""
    by_file: dict[tuple[int, str], list[BadEntry]] = {}
    disordered = {anomaly.run.segment for anomaly in replica.offset_sequence.anomalies if anomaly.kind != "OFFSET_GAP"}
    disordered |= {segment for segment, _ in replica.state.framing.damage.get("BATCH_RANGE_INCONSISTENT", ())}
    disordered |= {segment for segment, _ in misnamed(replica)}
    for bad in replica.state.bad_entries:
        cleaned = replica.context.compacted and bad.reason in _BY_OFFSET - _COMPACTED_INDEX_REASONS
        doubtful = bad.segment in disordered and bad.reason in _BY_OFFSET
        if not (cleaned or doubtful or _proves_lost_bytes(replica, bad)):
            by_file.setdefault((bad.segment, bad.file_kind), []).append(bad)
    return [_index_finding(replica, segment, file_kind, by_file) for segment, file_kind in sorted(by_file)]


def _index_finding(replica: Replica, segment: int, file_kind: str, by_file: dict[tuple[int, str], list[BadEntry]]) -> Finding:
    entries = by_file[segment, file_kind]
    size = 8 if file_kind == "index" else 12
    first = min(entries, key=lambda bad: bad.entry)
    beyond = all(bad.reason in _TAIL_KINDS for bad in entries)
    evidence: Json = {"reason": first.reason, "entry": first.entry, "entries": len(entries)}
    if first.offset >= 0:
        evidence |= {"offset": first.offset, "position" if file_kind == "index" else "timestamp": first.value}
    if first.expected is not None:
        evidence["expected"] = first.expected
    place = replica.context.place(f"{segment:020d}.{file_kind}", byte_start=first.entry * size, byte_end=(first.entry + 1) * size)
    dropped = _may_be_dropped_entries(replica, segment, file_kind, entries)
    left_over = dropped and _was_cut_back(replica, segment, by_file)
    if left_over:
        evidence["harmless_if"] = CUT_BACK
    elif dropped:
        evidence["after_log_end"] = True
    kind = "INCONSISTENT_CUT" if beyond and replica.context.live else "INDEX_MISMATCH"
    return finding(kind, place, evidence, severity=Severity.INFO if left_over else None)


CUT_BACK: Final = "the log was truncated while its broker ran, and the index was not closed since"
"""Why entries of an open index after its last one are harmless."""


def _may_be_dropped_entries(replica: Replica, segment: int, file_kind: str, entries: list[BadEntry]) -> bool:
    """Whether these bad entries may be bytes dropped by a truncation: an open index keeps them after its last entry until it is
    closed. `AbstractIndex.truncateToEntries` moves only the end; later appends overwrite them one by one.

    They are the last before the zeros of an untrimmed index: no sound entry follows, or the first is only out of order, where a log
    was rewritten with the same content.
    """
    tail = next((tail for tail in replica.state.zero_tails if (tail.segment, tail.file_kind) == (segment, file_kind)), None)
    if replica.context.clean_shutdown or tail is None or any(entry.entry >= tail.entries for entry in entries):
        return False
    first = min(entry.entry for entry in entries)
    return tail.last_sound < first or {entry.reason for entry in entries if entry.entry == first} == {"out_of_order"}


def _was_cut_back(replica: Replica, segment: int, by_file: dict[tuple[int, str], list[BadEntry]]) -> bool:
    """Whether the segment grew after entries of its indexes were dropped: then they do not prove a missing end.

    The first dropped entry of a file points to newer content, or has an older time than the segment, which no append gives it.
    """
    newest = max((tail.max_timestamp for tail in replica.state.zero_tails if tail.segment == segment), default=-1)
    for (base_offset, file_kind), entries in by_file.items():
        if base_offset != segment or not _may_be_dropped_entries(replica, segment, file_kind, entries):
            continue
        first = min(entries, key=lambda entry: entry.entry)
        if first.reason not in _TAIL_KINDS or (file_kind == "timeindex" and first.value < newest):
            return True
    return False


def _proves_lost_bytes(replica: Replica, bad: BadEntry) -> bool:
    """Whether an entry points to lost bytes of the log: then the log is wrong, not the index."""
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
    beyond = replica.index_entries_beyond_log[(bad.segment, "index")] > 0
    short = totals is not None and totals.last_offset + 1 in replica.gap_starts and beyond
    return bad.reason == "beyond_log" and (short or _torn(replica, bad.segment))


def _torn(replica: Replica, segment: int) -> bool:
    """Whether a segment is known to end in the middle of a batch."""
    return any(damaged_segment == segment for damaged_segment, _ in replica.state.framing.damage.get("SEG_TORN_TAIL", ()))


def checkpoint_findings(replica: Replica) -> list[Finding]:
    """Findings of checkpoints that violate log start ≤ high watermark ≤ log end, or recovery point and cleaner checkpoint ≤ log
    end; and of a zero high watermark."""
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
    for name, value, limit_name, limit in checks:
        if value is not None and limit is not None and value > limit:
            order: Json = {"what": name, "value": value, "limit_name": limit_name, "limit": limit} | stopped
            severity = None
            if limit_name == "high watermark" and not context.clean_shutdown:
                order["harmless_if"] = _DELETED_BEFORE_CRASH
                severity = Severity.INFO
            kind = "INCONSISTENT_CUT" if context.live else "CHECKPOINT_OUT_OF_ORDER"
            findings.append(finding(kind, context.place(), order, severity=severity))
    return findings


_DELETED_BEFORE_CRASH: Final = "records were deleted within 5 s before a crash, and the log start was written first"
