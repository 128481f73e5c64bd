"""Records that an older snapshot proves committed, and that went since: who cut them off, and who still has them.

A high watermark never goes back in good order (Partition.maybeIncrementLeaderHW): what was below it once may expire or be cleaned,
but not be cut off. A broker that did cut it recovered from damage and copies it again, or followed a leader that had lost it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from kafka_forensics.analysis.catalogue import finding
from kafka_forensics.analysis.compaction import REASONS, KeyTally
from kafka_forensics.analysis.over_time.changes import Between, gaps
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import BatchReader, differences
from kafka_forensics.model.changes import Change, ChangeKind
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity
from kafka_forensics.model.results import PartitionSummary
from kafka_forensics.replication.offset_ranges import Range, Ranges, normalised, without

_RANGES_TOLD: Final = 64
"""Ranges of offsets that evidence lists; it counts the offsets of all."""
_GAP: Final = -1
"""Stands beside the numbers of replicas for what the older log itself lacked."""


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


class _Piece(NamedTuple):
    """Committed offsets that went from one log, all with the same holders; `high_watermark`: up to where they were committed."""

    went: Went
    offsets: Range
    high_watermark: int
    witness: str


def committed_gone(
    went: Sequence[Went],
    older: Sequence[Replica],
    newer: Newer,
    summary: PartitionSummary,
    between: Between,
    changes: list[Change],
    reader: BatchReader,
) -> list[Finding]:
    """`COMMITTED_TRUNCATED_SINCE`, one for each set of brokers that still hold what others cut; their rows in `changes` say so too.

    What expired meanwhile is not missed, and a replica that was removed is no loss while any other holds what it had: offset by
    offset, for the others may have different parts of it.
    """
    groups: dict[tuple[int | str, ...], list[_Piece]] = {}
    for one in went:
        known = committed_end(one.old, summary)
        if known is None:
            continue
        high_watermark, witness = known
        end = high_watermark if one.end is None else min(high_watermark, one.end)
        expired = max((replica.log_start_offset for replica in newer.replicas), default=0)
        start = max(one.start, expired)
        if start >= end:
            continue
        pieces = _pieces(one.old, newer.replicas, (start, end), reader)
        changes[one.row] = _with_holders(changes[one.row], end, pieces)
        for offsets, holders in pieces:
            if not (holders and changes[one.row].kind is ChangeKind.DELETED):
                groups.setdefault(holders, []).append(_Piece(one, offsets, high_watermark, witness))
    return [
        _finding(holders, group, _held_before(group, older, reader), newer, between, changes)
        for holders, group in sorted(groups.items(), key=repr)
    ]


def _held_before(group: Sequence[_Piece], older: Sequence[Replica], reader: BatchReader) -> list[int | str]:
    """The brokers whose older logs held what is gone: those it went from, and others that held all of it."""
    gone: dict[int | str, list[Range]] = {}
    for piece in group:
        gone.setdefault(piece.went.old.broker, []).append(piece.offsets)
    logs = {piece.went.old.broker: piece.went.old for piece in group}

    def holds_all(other: Replica) -> bool:
        for broker, ranges in gone.items():
            told = normalised(ranges)
            if without(told, _held(logs[broker], other, (told[0][0], told[-1][1]), reader)):
                return False
        return True

    return [replica.broker for replica in older if replica.broker in gone or holds_all(replica)]


def _with_holders(row: Change, end: int, pieces: list[tuple[Range, tuple[int | str, ...]]]) -> Change:
    """The row, and who has the committed part of what it is about."""
    if not pieces:
        return row
    of_each = [set(holders) for _, holders in pieces]
    every = tuple(each for each in pieces[0][1] if all(each in holders for holders in of_each))
    lost = [offsets for offsets, holders in pieces if not holders]
    evidence = dict(row.evidence)
    if not every and len(lost) < len(pieces):
        evidence["in_parts_on"] = list(dict.fromkeys(holder for _, holders in pieces for holder in holders))
        evidence["lost"] = [list(each) for each in lost[:_RANGES_TOLD]]
        evidence["lost_offsets"] = sum(high - low for low, high in lost)
    return replace(row, committed_end=end, held_by=every, evidence=evidence)


def _pieces(
    old: Replica, newer: Sequence[Replica], offsets: Range, reader: BatchReader
) -> list[tuple[Range, tuple[int | str, ...]]]:
    """The parts of `offsets` that the older log has, in order, each with the brokers whose newer logs hold all of it."""
    turns = [(place, _GAP, begins) for gap in gaps(old) for place, begins in zip(gap, (True, False), strict=True)]
    for index, replica in enumerate(newer):
        for low, high in _held(old, replica, offsets, reader):
            turns += [(low, index, True), (high, index, False)]
    open_there: set[int] = set()
    found: list[tuple[Range, tuple[int | str, ...]]] = []
    position, end = offsets
    for turn, index, begins in [*sorted(turns), (end, _GAP, True)]:
        place = min(turn, end)
        if position < place and _GAP not in open_there:
            holders = tuple(newer[each].broker for each in sorted(open_there))
            if found and found[-1][0][1] == position and found[-1][1] == holders:
                position = found.pop()[0][0]
            found.append(((position, place), holders))
        position = max(position, place)
        (open_there.add if begins else open_there.discard)(index)
    return found


def _held(old: Replica, new: Replica, offsets: Range, reader: BatchReader) -> Ranges:
    """The parts of `offsets` that another log, mostly the newer one, holds as the older one had them, in order."""
    start, end = max(offsets[0], new.log_start_offset), min(offsets[1], new.log_end_offset)
    clipped = ((max(run.start_offset, start), min(run.end_offset, end)) for run in new.state.continuity.runs)
    parts = normalised(clipped)
    found = differences(old, new, reader)
    others = [difference for difference in found if difference.kind == "content"]
    if not others:
        return parts
    same_epochs = all(difference.epochs[0] == difference.epochs[1] for difference in others)
    goes_on = same_epochs and not found.full and not found.ranges_not_compared
    end_of_others = max(difference.end_offset for difference in others) if goes_on else max(end, others[0].offset)
    return without(parts, [(others[0].offset, end_of_others)])


def _finding(
    holders: tuple[int | str, ...],
    group: list[_Piece],
    held_before: list[int | str],
    newer: Newer,
    between: Between,
    changes: list[Change],
) -> Finding:
    gone = normalised(piece.offsets for piece in group)
    committed = max(group, key=lambda piece: piece.high_watermark)
    brokers = list(dict.fromkeys(broker for piece in group for broker in piece.went.brokers))
    context = group[0].went.old.context
    place = Place(context.topic, context.partition, offset_start=gone[0][0], offset_end=gone[-1][1])
    ids = {piece.went.old.context.topic_id for piece in group} | {replica.context.topic_id for replica in newer.replicas}
    evidence: dict[str, Any] = {
        "from_snapshot": between.older,
        "to_snapshot": between.newer,
        "brokers": brokers,
        "missing": sum(end - start for start, end in gone),
        "high_watermark": committed.high_watermark,
        "witness": committed.witness,
        "replaced_by": sorted({each for piece in group if (each := changes[piece.went.row].replaced_by) is not None}),
        "held_before": held_before,
        "premises": [
            f"{committed.witness} in snapshot {between.older}",
            "one topic id" if len(ids) == 1 and None not in ids else "topic ids not all known",
            "the controller's log names all replicas" if newer.assignment_is_known else "no controller's log names all replicas",
        ],
    }
    if len(gone) > 1:
        evidence |= {"scattered": evidence["missing"], "ranges": [list(each) for each in gone[:_RANGES_TOLD]]}
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
