"""What Kafka's recovery would do to a replica if a broker started on this copy, as findings and as evidence of damage."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from kafka_forensics.analysis.kinds import Trait, finding, kinds_with
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.segments import Run
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.offset_ranges import normalised, without
from kafka_forensics.model.results import RecoveryOutlook
from kafka_forensics.replication.recovery import (
    BATCH_BEYOND_FILE,
    BATCH_INVALID,
    END_BELOW_START,
    HEADER_CUT,
    LENGTH_TOO_SMALL,
    NEXT_OFFSET,
    OFFSET_REGRESSION,
    LoaderStep,
    LoadForecast,
    LogFacts,
    LogTruncation,
    segment_file,
)

if TYPE_CHECKING:
    from kafka_forensics.analysis.kinds.evidence_classes import RecoveryEvidence, SwapEvidence
    from kafka_forensics.model.json_objects import Json

FILES_LISTED: Final = 16
STEPS_LISTED: Final = 64
CUTS_LISTED: Final = 32
"""Only a log without indexes is truncated in several places."""
_TEMPORARY: Final = (".cleaned", ".swap", ".deleted")
"""Suffixes of files whose deletion does not change the log."""
REASONS: Final = {
    HEADER_CUT: "header_cut",
    LENGTH_TOO_SMALL: "length_too_small",
    BATCH_BEYOND_FILE: "batch_beyond_file",
    BATCH_INVALID: "batch_invalid",
    OFFSET_REGRESSION: "offsets_go_back",
    END_BELOW_START: "log_end_below_log_start",
    NEXT_OFFSET: "last_batch_read_wrongly",
}
"""Reason of a truncation, by check."""


class StartForecasts(Struct, frozen=True):
    """What becomes of a replica if its broker starts on this copy, and if it had crashed before (`unclean`)."""

    facts: LogFacts
    forecast: LoadForecast
    unclean: LoadForecast


def regresses(replica: Replica, base_offset: int) -> bool:
    """Whether offsets of a segment decrease: rebuilding its index may then fail."""
    return any(
        anomaly.kind in kinds_with(Trait.OUT_OF_ORDER) and anomaly.run.segment == base_offset
        for anomaly in replica.offset_sequence.anomalies
    )


def recovery_findings(replica: Replica, outlook: StartForecasts) -> list[Finding]:
    """`RECOVERY_WOULD_TRUNCATE` for truncations that cost offsets; all replicas together decide whether these were committed."""
    context = replica.context
    sizes = {segment.base_offset: segment.size_in_bytes for segment in outlook.facts.segments}
    costly = [cut for cut in outlook.forecast.cuts if cut.start_offset < cut.end_offset]
    findings = []
    for cut in costly[:CUTS_LISTED]:
        place = context.place(
            segment_file(cut.segment),
            byte_start=cut.position,
            byte_end=None if cut.position is None else sizes.get(cut.segment),
            offset_start=cut.start_offset,
            offset_end=cut.end_offset,
        )
        evidence: RecoveryEvidence = {
            "check": cut.check,
            "reason": REASONS.get(cut.check, "unknown"),
            "forecast_log_end": outlook.forecast.log_end_offset,
            "log_end_offset": replica.log_end_offset,
            "clean_shutdown": outlook.facts.clean_shutdown,
            "recovery_point": context.recovery_point,
            "segments": len(cut.segments_deleted),
            "segments_deleted": [segment_file(base_offset) for base_offset in cut.segments_deleted[:FILES_LISTED]],
            "batches_recovered": _batches_after(replica, cut),
        }
        if len(costly) > 1:
            evidence["count"] = len(costly)
        findings.append(finding("RECOVERY_WOULD_TRUNCATE", place, evidence))
    return findings


def _batches_after(replica: Replica, cut: LogTruncation) -> int | None:
    """Whole batches after the first byte cut; None if no byte is cut."""
    if cut.position is None:
        return None
    totals = replica.state.framing.by_segment
    deleted = {base_offset for base_offset in cut.segments_deleted if base_offset in totals} - {cut.segment}
    batches = sum(totals[base_offset].batches for base_offset in deleted)
    if cut.segment not in totals:
        return batches
    walk_end = replica.state.recovery.ends.get(cut.segment)
    batches_kept = walk_end.batches if walk_end is not None and walk_end.position == cut.position else 0
    return batches + totals[cut.segment].batches - batches_kept


def with_unclean_restart(findings: list[Finding], replica: Replica, outlook: StartForecasts) -> list[Finding]:
    """`findings`; those of damage where recovery would end get the effect of an unclean restart: `unclean_restart`."""
    context, unclean = replica.context, outlook.unclean
    cuts = {(cut.segment, cut.position): cut for cut in unclean.cuts}
    refusal = unclean.steps[-1] if unclean.refused else None
    restarts: dict[tuple[str | None, int | None], Json] = {}
    for segment, end in replica.state.recovery.ends.items():
        cut = cuts.get((segment, end.position))
        refused = refusal is not None and (refusal.check, refusal.file) == (end.check, segment_file(segment))
        restart: Json = {"walked": cut is not None or refused, "recovery_point": context.recovery_point}
        if refused:
            restart["starts"] = False
        elif cut is not None:
            restart |= {"log_end_offset": unclean.log_end_offset, "segments": len(cut.segments_deleted)}
        restarts[context.place(segment_file(segment)).file, end.position] = restart
    return [
        finding.with_evidence(unclean_restart=restarts[where])
        if finding.kind in kinds_with(Trait.CUT_AFTER_CRASH)
        and (where := (finding.place.file, finding.place.byte_start)) in restarts
        else finding
        for finding in findings
    ]


def swap_finding(replica: Replica, facts: LogFacts, steps: list[LoaderStep], swapped: Mapping[int, list[Run]]) -> Finding:
    """`INTERRUPTED_SWAP`: what the loader would rename or delete, in order.

    `swapped` has the offsets of the `.swap` files by base offset. Critical if live offsets below the high watermark would be
    deleted and no `.swap` file has them; a cleaner may drop any, so compacted topics are not judged. Info if the start discards the
    replacement and leaves the log unchanged, as after a kill during cleaning; and in a copy of a running broker, where the cleaner
    is at work.
    """
    context = replica.context
    names = [name for name in facts.files if name.endswith((".swap", ".cleaned"))]
    evidence: SwapEvidence = {
        "leftovers": names[:FILES_LISTED],
        "count": len(names),
        "steps": [_step(step) for step in steps[:STEPS_LISTED]],
        "files_deleted": sum(step.action == "delete" for step in steps),
        "files_renamed": sum(step.action == "rename" for step in steps),
    }
    if context.live:
        evidence |= {"under_way": True, "capped_by": "--live"}
        return finding("INTERRUPTED_SWAP", context.place(), evidence, severity=Severity.INFO)
    if all(step.action == "delete" and step.file.endswith(_TEMPORARY) for step in steps):
        return finding("INTERRUPTED_SWAP", context.place(), evidence, severity=Severity.INFO)
    renamed = {step.to for step in steps if step.action == "rename"}
    removed = {step.file for step in steps if step.action == "delete"} | renamed
    bases = [segment.base_offset for segment in facts.segments if segment_file(segment.base_offset) in removed]
    renamed_runs = [run for base_offset, runs in swapped.items() if segment_file(base_offset) in renamed for run in runs]
    ends = {segment.base_offset: segment.end_offset for segment in facts.segments}
    offsets = normalised((max(base, replica.log_start_offset), ends[base]) for base in bases if not context.compacted)
    lost = without(offsets, normalised((run.start_offset, run.end_offset) for run in renamed_runs))
    start, end = (lost[0][0], lost[-1][1]) if lost else (None, None)
    place = context.place(offset_start=start, offset_end=end)
    critical = start is not None and context.high_watermark is not None and start < context.high_watermark
    return finding("INTERRUPTED_SWAP", place, evidence, severity=Severity.CRITICAL if critical else None)


def recovery_outlook(forecast: LoadForecast) -> RecoveryOutlook:
    """The forecast for a replica's summary: of very many steps the first, and the last."""
    steps = forecast.steps if len(forecast.steps) <= STEPS_LISTED else (*forecast.steps[: STEPS_LISTED - 1], forecast.steps[-1])
    return RecoveryOutlook(
        not forecast.refused,
        forecast.log_start_offset,
        forecast.log_end_offset,
        sorted({step.check for step in forecast.steps}),
        list(map(_step, steps)),
    )


def refused_at(outlook: RecoveryOutlook) -> str | None:
    """The file at which the broker's start fails; None if it starts."""
    return None if outlook.starts else outlook.steps[-1].removeprefix("refuse ")


def _step(step: LoaderStep) -> str:
    """A step as `delete FILE`, `rename FILE to FILE` or `truncate FILE at offset N`."""
    to = f" to {step.to}" if step.to else ""
    at = f" at offset {step.offset}" if step.offset is not None else ""
    return " ".join(filter(None, (step.action, step.file))) + to + at
