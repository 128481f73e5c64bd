"""Findings from what the sweep over the keys of a compacted partition tallied."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafka_forensics.analysis.catalogue import finding
from kafka_forensics.analysis.compaction.compaction import EXPLANATIONS, REASONS, KeyTally
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import replicas_disagree
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DELETE_RETENTION_MS: Final = 24 * 60 * 60 * 1000
"""Kafka's default of `delete.retention.ms`."""
_LONGEST_RETENTION_MS: Final = 2**62


@dataclass(frozen=True, slots=True)
class Retention:
    """How long tombstones stay: `delete.retention.ms`, and whether the controller's log says so."""

    milliseconds: int
    is_known: bool


@dataclass(frozen=True, slots=True)
class Compared:
    """What of the compared replicas, by number, lies in the offsets `[start, end)` that all of them have."""

    start: int
    end: int
    records: dict[int, int]
    aborted: dict[int, int]
    keyless: dict[int, int]
    markers: dict[int, int]


def retention(replicas: list[Replica]) -> Retention:
    """`delete.retention.ms` as the controller's log has it for the topic or all brokers, else Kafka's default."""
    for replica in replicas:
        control = replica.context.control
        settings = {} if control is None else control.defaults | control.configs
        text = settings.get("delete.retention.ms", "")
        if text.isascii() and text.isdigit():
            return Retention(min(int(text[:19]), _LONGEST_RETENTION_MS), is_known=True)
    return Retention(DELETE_RETENTION_MS, is_known=False)


def cleaned_end(replicas: list[Replica]) -> int:
    """Up to where any of the replicas may have been cleaned, or copied from one that was; if no checkpoint tells, anywhere."""
    known = [replica.context.cleaner_checkpoint for replica in replicas if replica.context.cleaner_checkpoint is not None]
    return max(known) if known else max(replica.log_end_offset for replica in replicas)


def compaction_findings(replicas: list[Replica], tally: KeyTally, compared: Compared, kept: Retention) -> list[Finding]:
    """Keys whose latest records differ, and what was cleaned at different times; nothing if neither was found."""
    findings = [_differs(replicas, tally, kept)] if tally.differing else []
    skewed = {
        name: {str(replicas[number].broker): amount for number, amount in sorted(by_replica.items())}
        for name, by_replica in (("aborted", compared.aborted), ("keyless", compared.keyless), ("markers", compared.markers))
        if len(set(by_replica.values())) > 1
    }
    if tally.cleaned_differently or skewed:
        findings.append(_skew(replicas, tally, compared, skewed, kept))
    return findings


def _differs(replicas: list[Replica], tally: KeyTally, kept: Retention) -> Finding:
    def brokers(numbers: set[int]) -> list[int | str]:
        return [replicas[number].broker for number in sorted(numbers)]

    evidence: dict[str, Any] = {"keys": tally.differing}
    evidence |= {name: tally.reasons[name] for name in REASONS if tally.reasons[name]}
    if tally.transactional:
        evidence["transactional"] = tally.transactional
    evidence["records"] = [
        {
            "offset": offset,
            "reason": listed.reason,
            "key_hash": listed.key_hash,
            "held_by": brokers(listed.holders),
            "not_on": brokers(listed.others),
        }
        for offset, listed in sorted(tally.listed.items())
    ]
    if not tally.reasons["contents"] and not tally.reasons["markers"]:
        evidence["held_by"] = brokers(set(range(len(replicas))) - tally.lacking)
    evidence["premises"] = _premises(replicas, kept)
    severity, confidence = None, None
    if any(replica.context.live for replica in replicas):
        severity, confidence = Severity.WARNING, Confidence.SUSPECTED
        # A cleaner may have gone by between the copying of two files, and was told of newer records; where neither checkpoints nor
        # logs show one, nothing took the value of a key away.
        gone = tally.reasons["missing"] and not tally.beyond_checkpoint
        if "held_by" in evidence and not gone:
            severity, evidence["capped_by"] = Severity.INFO, "--live"
    place = _place(replicas, tally.first_offset or 0, tally.end_offset)
    return finding("COMPACTED_VALUE_DIFFERS", place, evidence, severity=severity, confidence=confidence)


def _skew(
    replicas: list[Replica], tally: KeyTally, compared: Compared, skewed: dict[str, dict[str, int]], kept: Retention
) -> Finding:
    explanations = {name: tally.explanations[name] for name in EXPLANATIONS if tally.explanations[name]}
    evidence: dict[str, Any] = {
        "brokers": [replicas[number].broker for number in sorted(compared.records)],
        "keys": tally.keys,
        "keys_cleaned_differently": tally.cleaned_differently,
        "records": {str(replicas[number].broker): amount for number, amount in sorted(compared.records.items())},
        **explanations,
        **skewed,
    }
    if tally.differing:
        evidence["keys_that_differ"] = tally.differing
    if tally.beyond_checkpoint:
        evidence["beyond_checkpoint"] = tally.beyond_checkpoint
    evidence["premises"] = _premises(replicas, kept)
    early = "tombstones_early" in explanations and kept.is_known
    severity, confidence = (Severity.WARNING, Confidence.SUSPECTED) if early else (None, None)
    place = _place(replicas, compared.start, max(compared.end, compared.start))
    return finding("COMPACTION_SKEW", place, evidence, severity=severity, confidence=confidence)


def _premises(replicas: list[Replica], kept: Retention) -> list[str]:
    """Where the cleaner had been, and how long it keeps tombstones."""
    lines = []
    for replica in replicas:
        checkpoint = replica.context.cleaner_checkpoint
        told = "no cleaner checkpoint" if checkpoint is None else f"cleaned up to offset {checkpoint}"
        lines.append(f"broker {replica.broker}: {told}, log [{replica.log_start_offset}, {replica.log_end_offset})")
    disagreement = replicas_disagree(replicas)
    lines += [] if disagreement is None else [disagreement]
    origin = "by the controller's log" if kept.is_known else "by default"
    lines.append(f"delete.retention.ms {kept.milliseconds} {origin}")
    return lines


def _place(replicas: list[Replica], start: int, end: int) -> Place:
    context = replicas[0].context
    return Place(context.topic, context.partition, offset_start=start, offset_end=end)


def within(cuts: "NDArray[np.int64]", counts: "NDArray[np.int64]", start: int, end: int) -> int:
    """Sum of counts by interval over `[start, end)`, which are cuts."""
    low, high = cuts.searchsorted([start, end], side="right")
    return int(counts[low:high].sum())
