"""What a replica's own files prove: damage, continuity, epochs, indexes and checkpoints as findings."""

from typing import Any, Final

from kafka_forensics.analysis.catalogue import finding
from kafka_forensics.analysis.epochs import checkpoint_contradiction
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.model.batches import Damage
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.replication.epochs import truncation_offset

_COMPACTED_INDEX_REASONS: Final = frozenset({"position_inside_batch", "out_of_order", "beyond_log"})
_TAIL_KINDS: Final = frozenset({"beyond_log"})


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
    found = []
    for kind, sample in sorted(framing.damage.items()):
        if kind == "BATCH_RANGE_INCONSISTENT" and context.compacted:
            continue
        for segment, one in sample:
            found.append(_damage_finding(replica, kind, segment, one, segment == last_segment, sample.count))
    for segment, hiding in sorted(framing.hiding.items()):
        totals = framing.by_segment.get(segment)
        behind = 0 if totals is None else totals.batches - hiding.batches_before
        if not hiding.runs_past_end or behind <= 0 or totals is None:
            continue
        first = replica.course.eaten.get((segment, hiding.position), (-1, -1))[1]
        place = context.place(
            context.log_file(segment),
            byte_start=hiding.position,
            byte_end=totals.end_position,
            offset_start=None if first < 0 else first,
            offset_end=totals.last_offset + 1,
        )
        evidence = {
            "bytes": totals.end_position - hiding.position,
            "batches_recovered": behind,
            "first_recovered_offset": first,
            "last_recovered_offset": totals.last_offset,
        }
        found.append(finding("HIDDEN_BYTES", place, evidence))
    return found


def _damage_finding(replica: Replica, kind: str, segment: int, one: Damage, last: bool, count: int) -> Finding:
    context = replica.context
    evidence: dict[str, Any] = dict(one.detail)
    severity = None
    start, end = (one.base_offset, one.last_offset + 1) if one.base_offset >= 0 else (None, None)
    if (segment, one.position) in replica.course.eaten:
        start, end = replica.course.eaten[(segment, one.position)]
    hiding = replica.state.framing.hiding.get(segment)
    if hiding is not None and hiding.position == one.position:
        totals = replica.state.framing.by_segment.get(segment)
        if totals is not None:
            evidence["batches_recovered"] = totals.batches - hiding.batches_before
            evidence["last_recovered_offset"] = totals.last_offset
            evidence["first_recovered_offset"] = end
    if kind == "SEG_TORN_TAIL":
        evidence["last_valid_offset"] = replica.state.framing.by_segment[segment].last_offset if _has(replica, segment) else None
        start, end = None, None
        if not last:
            kind = "SEG_SHORT"
        elif context.clean_shutdown:
            severity = Severity.WARNING
            evidence["clean_shutdown"] = True
    if count > 1:
        evidence["count"] = count
    place = context.place(
        context.log_file(segment),
        byte_start=one.position,
        byte_end=one.position + one.size_in_bytes,
        offset_start=start,
        offset_end=end,
    )
    return finding(kind, place, evidence, severity=severity)


def _has(replica: Replica, segment: int) -> bool:
    return segment in replica.state.framing.by_segment


def order_findings(replica: Replica) -> list[Finding]:
    """Gaps, regressions and batches out of line. Whether they lie below the high watermark is judged over all replicas."""
    context = replica.context
    found = []
    for one in replica.course.irregularities:
        evidence: dict[str, Any] = {"expected_offset": one.expected, "found_offset": one.run.start_offset}
        if one.kind == "OFFSET_GAP":
            evidence["missing"] = one.end - one.start
        place = context.place(
            context.log_file(one.run.segment), byte_start=one.run.position, offset_start=one.start, offset_end=one.end
        )
        found.append(finding(one.kind, place, evidence))
        if one.kind == "OFFSET_GAP" and _whole_segment(replica, one.start, one.end):
            missing = context.place(offset_start=one.start, offset_end=one.end)
            found.append(finding("SEGMENT_MISSING", missing, {"missing": one.end - one.start, "file": context.log_file(one.start)}))
    return found


def _whole_segment(replica: Replica, start: int, end: int) -> bool:
    """Whether a gap ends where a segment begins, and the one before it ends soundly: a file is gone, not a tail."""
    context, framing = replica.context, replica.state.framing
    if end not in context.segment_base_offsets:
        return False
    before = [segment for segment in context.segment_base_offsets if segment < end]
    if not before:
        return False
    torn = any(segment == before[-1] for segment, _ in framing.damage.get("SEG_TORN_TAIL", ()))
    cut = any(bad.segment == before[-1] and bad.reason == "beyond_log" for bad in replica.state.bad_entries)
    return not torn and not cut and start > before[-1]


def name_findings(replica: Replica) -> list[Finding]:
    """Segments whose name is not the offset it promises: content below it, or a joined log whose name is lower."""
    context = replica.context
    found = []
    starts = replica.state.continuity.first_in_segment
    runs = replica.state.continuity.runs
    for index, segment in enumerate(context.segment_base_offsets):
        first = starts.get(segment)
        if first is None:
            continue
        joined = index > 0 and any(run.start_offset < first < run.end_offset for run in runs)
        if first < segment or (first > segment and joined and not context.compacted):
            place = context.place(context.log_file(segment), offset_start=first, offset_end=first + 1)
            found.append(finding("SEG_NAME_MISMATCH", place, {"name_offset": segment, "first_offset": first}))
    return found


def epoch_findings(replica: Replica) -> list[Finding]:
    """Stray epoch fields, falling epochs, and `leader-epoch-checkpoint` against the batches."""
    context, epochs = replica.context, replica.state.epochs
    checkpoint = None if context.leader_epochs is None else context.leader_epochs.entries
    found = []
    strays = epochs.strays(checkpoint)
    for run, expected in [*strays, *epochs.regressions()]:
        place = context.place(
            context.log_file(run.segment),
            byte_start=run.position,
            byte_end=run.position + run.size_in_bytes,
            offset_start=run.start_offset,
            offset_end=run.end_offset,
        )
        evidence = {"epoch": run.leader_epoch, "expected_epoch": expected, "crc": "right", "witnesses": ["neighbouring batches"]}
        found.append(finding("EPOCH_FIELD_MISMATCH", place, evidence))
    if checkpoint is None or epochs.dropped_runs or epochs.batches_without_epoch:
        return found
    stray_epochs = {run.leader_epoch for run, _ in strays}
    lineage = [entry for entry in replica.epochs if entry.leader_epoch not in stray_epochs]
    start, end = replica.log_start_offset, replica.log_end_offset
    damaged = bool(replica.state.framing.bytes_damaged)
    reason = checkpoint_contradiction(checkpoint, lineage, start, end, compacted=context.compacted or damaged)
    if reason is not None and not (context.live and reason == "entry_missing"):
        by_file = truncation_offset(sorted(checkpoint), end, lineage, end)
        evidence = {
            "reason": reason,
            "checkpoint": [[entry.leader_epoch, entry.start_offset] for entry in checkpoint[:64]],
            "batches": [[entry.leader_epoch, entry.start_offset] for entry in lineage[:64]],
            "truncation_offset_by_checkpoint": by_file,
            "truncation_offset_by_batches": truncation_offset(lineage, end, lineage, end),
        }
        found.append(finding("EPOCH_CACHE_MISMATCH", context.place("leader-epoch-checkpoint"), evidence))
    return found


def index_findings(replica: Replica) -> list[Finding]:
    """Index entries that contradict the log, one finding for each index file."""
    context = replica.context
    by_file: dict[tuple[int, str], list[Any]] = {}
    for bad in replica.state.bad_entries:
        if context.compacted and bad.reason not in _COMPACTED_INDEX_REASONS:
            continue
        by_file.setdefault((bad.segment, bad.file_kind), []).append(bad)
    found = []
    for (segment, kind), entries in sorted(by_file.items()):
        size = 8 if kind == "index" else 12
        first = min(entries, key=lambda bad: bad.entry)
        beyond = all(bad.reason in _TAIL_KINDS for bad in entries)
        evidence = {"reason": first.reason, "entry": first.entry, "entries": len(entries), "offset": first.offset}
        evidence["position" if kind == "index" else "timestamp"] = first.value
        if first.expected is not None:
            evidence["expected"] = first.expected
        place = context.place(f"{segment:020d}.{kind}", byte_start=first.entry * size, byte_end=(first.entry + 1) * size)
        found.append(finding("INCONSISTENT_CUT" if beyond and context.live else "INDEX_MISMATCH", place, evidence))
    return found


def checkpoint_findings(replica: Replica) -> list[Finding]:
    """High watermark, recovery point and log start in order: log start ≤ HW ≤ log end, recovery point ≤ log end."""
    context = replica.context
    found = []
    end = replica.log_end_offset
    high_watermark = context.high_watermark
    if high_watermark is not None and high_watermark > end:
        place = context.place(offset_start=end, offset_end=high_watermark)
        evidence = {"high_watermark": high_watermark, "log_end_offset": end, "file": "replication-offset-checkpoint"}
        found.append(finding("INCONSISTENT_CUT" if context.live else "HW_BEYOND_LEO", place, evidence))
    if high_watermark == 0 and end > replica.log_start_offset:
        found.append(finding("HW_UNKNOWN", context.place(), {"reason": "zero", "log_end_offset": end}))
    checks = (
        ("recovery point", context.recovery_point, "log end", end),
        ("cleaner checkpoint", context.cleaner_checkpoint, "log end", end),
        ("log start", context.log_start_checkpoint, "log end", end),
        ("log start", context.log_start_checkpoint, "high watermark", high_watermark or None),
    )
    for what, value, limit_name, limit in checks:
        if value is not None and limit is not None and value > limit:
            evidence = {"what": what, "value": value, "limit_name": limit_name, "limit": limit}
            found.append(finding("INCONSISTENT_CUT" if context.live else "CHECKPOINT_OUT_OF_ORDER", context.place(), evidence))
    return found
