"""Which brokers hold which offsets of a lost or endangered range."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas.damaged_forks import damaged_by_headers, damaged_offsets
from kafka_forensics.analysis.replicas.diff import DIFFERENCES_KEPT, Conflicts
from kafka_forensics.analysis.replicas.forks import last_epoch
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.offset_ranges import Ranges, clipped, holds, normalised, without

if TYPE_CHECKING:
    from kafka_forensics.analysis.kinds.evidence_classes import Broker, HeldRange

_ROWS_KEPT: Final = 64
"""Most sub-ranges listed in one finding; the first ones are."""


def with_held_ranges(replicas: Sequence[Replica], conflicts: Conflicts, subject: Finding) -> Finding:
    """The finding, with `held_ranges` in its evidence if different brokers hold different parts of its offsets.

    A broker holds offsets where its log has the same batches as the first broker in `held_by`, which has all of them.
    """
    start, end, holders = subject.place.offset_start, subject.place.offset_end, subject.evidence.get("held_by")
    proving = next((number for number, replica in enumerate(replicas) if holders and replica.broker == holders[0]), None)
    if start is None or end is None or proving is None:
        return subject
    return with_ranges(subject, equal_ranges(replicas, conflicts, proving, start, end))


def with_ranges(subject: Finding, by_broker: "Iterable[tuple[Broker, Ranges]]") -> Finding:
    """A finding with the `held_ranges` of these brokers, and in `held_by` those that have all of its offsets, if there are any;
    unchanged if all its offsets have the same holders."""
    rows = held_ranges(by_broker, subject.place.offset_start or 0, subject.place.offset_end or 0)
    if len(rows) < 2:
        return subject
    whole = holding_all(rows) or subject.evidence["held_by"]
    return subject.with_evidence(held_by=whole, held_ranges=rows[:_ROWS_KEPT])


def equal_ranges(
    replicas: Sequence[Replica], conflicts: Conflicts, proving: int, start: int, end: int
) -> "list[tuple[Broker, Ranges]]":
    """The part of `[start, end)` that each replica holds the same as the one with number `proving`."""
    return [
        (replica.broker, without(held_offsets(replica, start, end), _different(replicas, conflicts, number, proving)))
        for number, replica in enumerate(replicas)
    ]


def holding_all(rows: "Sequence[HeldRange]") -> "list[Broker]":
    """The brokers that hold every range."""
    return [broker for broker in rows[0]["brokers"] if all(broker in row["brokers"] for row in rows)] if rows else []


def held_ranges(by_broker: "Iterable[tuple[Broker, Ranges]]", start: int, end: int) -> "list[HeldRange]":
    """Offsets `[start, end)` in ranges that the same brokers have completely; no brokers where none has."""
    inside = [(broker, clipped(ranges, start, end)) for broker, ranges in by_broker]
    edges = {start, end, *(edge for _, ranges in inside for span in ranges for edge in span)}
    rows: list[HeldRange] = []
    for low, high in pairwise(sorted(edges)):
        brokers = list(dict.fromkeys(broker for broker, ranges in inside if holds(ranges, low)))
        if rows and rows[-1]["brokers"] == brokers:
            rows[-1]["offset_end"] = high
        else:
            rows.append({"offset_start": low, "offset_end": high, "brokers": brokers})
    return rows


def held_offsets(replica: Replica, start: int, end: int) -> Ranges:
    """The part of `[start, end)` that a log has on its disk and undamaged; offsets removed by cleaning are not missing. Of a log
    that was not read completely, only what its batches cover."""
    if replica.state.unread or replica.state.continuity.dropped_runs:
        return without(clipped(replica.good_ranges, start, end), normalised(damaged_by_headers(replica)))
    local = clipped(normalised([(replica.local_log_start_offset, replica.log_end_offset)]), start, end)
    return without(local, normalised([*replica.offset_sequence.gaps(), *damaged_offsets(replica, start, end)])) if local else ()


def _different(replicas: Sequence[Replica], conflicts: Conflicts, left: int, right: int) -> Ranges:
    """Where the left of two replicas, by their numbers, holds other records than the right: from the first to the last difference,
    and in leader epochs after the right's last, where cleaned logs need not overlap."""
    ours, theirs = replicas[left], replicas[right]
    differences, latest = conflicts.get((min(left, right), max(left, right))), last_epoch(theirs)
    spans = [(entry.start_offset, ours.log_end_offset) for entry in ours.epochs if entry.leader_epoch > latest]
    if differences:
        start, end = differences[0].offset, differences[-1].end_offset
        log_continues = len(differences) >= DIFFERENCES_KEPT or end >= min(ours.log_end_offset, theirs.log_end_offset)
        spans.append((start, max(end, ours.log_end_offset) if log_continues else end))
    return normalised(spans)
