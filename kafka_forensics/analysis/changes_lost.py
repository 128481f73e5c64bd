"""Records that an older snapshot proves committed, and that went since: who cut them off, and who still has them.

A high watermark never goes back in good order (Partition.maybeIncrementLeaderHW): what was below it once may expire or be cleaned,
but not be cut off. A broker that did cut it recovered from damage and copies it again, or followed a leader that had lost it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kafka_forensics.analysis.catalogue import finding
from kafka_forensics.analysis.changes import Between
from kafka_forensics.analysis.compaction import REASONS, KeyTally
from kafka_forensics.analysis.differences import BatchReader, differences
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.model.changes import Change, ChangeKind
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity
from kafka_forensics.model.results import PartitionSummary


@dataclass(frozen=True, slots=True)
class Went:
    """Offsets from `start` to `end` (None: all behind) that went from a replica's log, and the number of the row about it."""

    old: Replica
    start: int
    row: int
    end: int | None = None

    @property
    def brokers(self) -> list[int | str]:
        """Whose log it was."""
        return [self.old.broker]


@dataclass(slots=True)
class Newer:
    """What the newer snapshot has of a partition: replicas of the same topic, brokers it leaves out, whether these are all."""

    replicas: list[Replica]
    not_given: list[int | str]
    assignment_is_known: bool


def committed_end(old: Replica, summary: PartitionSummary) -> tuple[int, str] | None:
    """Up to where the older snapshot proves this replica's records committed, and what proves it; None: nothing does.

    A witness speaks for the log it was read with: another broker's counts as far as both hold the same.
    """
    own = old.context.high_watermark or 0
    witness = f"replication-offset-checkpoint of broker {old.broker}"
    least, agreement = summary.high_watermark_at_least or 0, summary.agreement
    if agreement.kind == "conflict":
        least = min(least, agreement.common_end_offset or 0)
    elif agreement.kind == "not_compared":
        least = 0
    if least > own:
        own, witness = least, summary.high_watermark_witness or "another broker"
    end = min(own, old.log_end_offset)
    return (end, witness) if end > old.log_start_offset else None


def committed_gone(
    went: Sequence[Went], newer: Newer, summary: PartitionSummary, between: Between, changes: list[Change], reader: BatchReader
) -> list[Finding]:
    """`COMMITTED_TRUNCATED_SINCE`, one for each set of brokers that still hold what others cut; their rows in `changes` say so too.

    What expired meanwhile is not missed, and a replica that was removed is no loss while any other holds what it had.
    """
    groups: dict[tuple[int | str, ...], list[tuple[Went, int, int, str]]] = {}
    for one in went:
        known = committed_end(one.old, summary)
        if known is None:
            continue
        end, witness = known
        end = end if one.end is None else min(end, one.end)
        expired = max((each.log_start_offset for each in newer.replicas), default=0)
        start = max(one.start, expired)
        if start >= end:
            continue
        holders = tuple(each.broker for each in newer.replicas if _holds(one.old, each, (start, end), reader))
        changes[one.row] = replace(changes[one.row], committed_end=end, held_by=holders)
        if not (holders and changes[one.row].kind is ChangeKind.DELETED):
            groups.setdefault(holders, []).append((one, start, end, witness))
    return [_finding(holders, group, newer, between, changes) for holders, group in sorted(groups.items(), key=repr)]


def _holds(old: Replica, new: Replica, offsets: tuple[int, int], reader: BatchReader) -> bool:
    """Whether the newer replica holds what the older one had at these offsets."""
    start, end = offsets
    if new.log_start_offset > start or new.log_end_offset < end or not new.covers(start, end):
        return False
    return not any(one.kind == "content" and one.offset < end for one in differences(old, new, reader))


def _finding(
    holders: tuple[int | str, ...],
    group: list[tuple[Went, int, int, str]],
    newer: Newer,
    between: Between,
    changes: list[Change],
) -> Finding:
    start, end = min(each[1] for each in group), max(each[2] for each in group)
    witness = next(each[3] for each in group if each[2] == end)
    brokers = [broker for one, *_ in group for broker in one.brokers]
    context = group[0][0].old.context
    place = Place(context.topic, context.partition, offset_start=start, offset_end=end)
    ids = {one.old.context.topic_id for one, *_ in group} | {one.context.topic_id for one in newer.replicas}
    evidence: dict[str, Any] = {
        "from_snapshot": between.older,
        "to_snapshot": between.newer,
        "brokers": brokers,
        "missing": end - start,
        "high_watermark": end,
        "witness": witness,
        "replaced_by": sorted({each for one, *_ in group if (each := changes[one.row].replaced_by) is not None}),
        "held_before": brokers,
        "premises": [
            f"{witness} in snapshot {between.older}",
            "one topic id" if len(ids) == 1 and None not in ids else "topic ids not all known",
            "the controller's log names all replicas" if newer.assignment_is_known else "no controller's log names all replicas",
        ],
    }
    severity, confidence = Severity.CRITICAL, Confidence.PROVEN if len(ids) == 1 and None not in ids else Confidence.INFERRED
    if holders:
        severity = Severity.WARNING
        evidence["held_by"] = list(holders)
    elif newer.not_given:
        severity, confidence = Severity.ERROR, Confidence.SUSPECTED
        evidence["not_given"] = newer.not_given
    elif not newer.assignment_is_known:
        confidence = Confidence.INFERRED
    return finding("COMMITTED_TRUNCATED_SINCE", place, evidence, severity=severity, confidence=confidence)


def keys_lost(old: Replica, new: Replica, tally: KeyTally, between: Between) -> Finding | None:
    """`KEYS_LOST_SINCE` if the newer log lacks what was a key's latest record, and no rule of the cleaner explains it."""
    if not tally.differing or 1 not in tally.lacking:
        return None
    listed = [
        {"offset": offset, "reason": one.reason, "key_hash": one.key_hash}
        for offset, one in sorted(tally.listed.items())
        if 1 in one.others
    ]
    evidence: dict[str, Any] = {
        "from_snapshot": between.older,
        "to_snapshot": between.newer,
        "keys": tally.differing,
        **{name: tally.reasons[name] for name in REASONS if tally.reasons[name]},
        "records": listed,
        "held_before": [old.broker],
    }
    context = new.context
    place = context.place(offset_start=tally.first_offset, offset_end=tally.end_offset)
    live = old.context.live or context.live
    severity, confidence = (Severity.WARNING, Confidence.SUSPECTED) if live else (None, None)
    return finding("KEYS_LOST_SINCE", place, evidence, severity=severity, confidence=confidence)
