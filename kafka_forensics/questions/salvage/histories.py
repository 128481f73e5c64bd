"""Copies of a topic that cleaners change, which rival leaders wrote: a log is made of one of them, as it is. Others give nothing.
What these hold is named. Of any other topic `lineage` tells the same, offset by offset.
"""

from collections.abc import Sequence
from dataclasses import replace

from kafka_forensics.model.findings import Finding
from kafka_forensics.questions.plan import Planned
from kafka_forensics.questions.salvage.lineage import LeftBehind, Lineage, conflicting
from kafka_forensics.questions.salvage.slices import Source
from kafka_forensics.replication.offset_ranges import Range, clipped, without
from kafka_forensics.replication.planner import NO_END, Broker, PlanReplica


def is_lacked(finding: Finding, broker: Broker) -> bool:
    """Whether a finding that copies lack each other's values tells of one that a broker lacks, or does not list them all."""
    records = finding.evidence.get("records") or []
    return finding.evidence.get("keys", 0) > len(records) or any(broker in record["not_on"] for record in records)


def alone(planned: Planned, number: int) -> Planned:
    """The plan, with what it was made from cut down to one copy."""
    return replace(planned, given=replace(planned.given, replicas=[planned.given.replicas[number]], differing={}))


def left_behind(lineage: Lineage, base: int, sources: Sequence[Source], planned: Planned) -> list[LeftBehind]:
    """What other copies than the base hold and a log of its history has not: all from where they part on, and what is before its
    start, in its gaps, and beyond its end."""
    start, end, broker = lineage.log_start_offset, lineage.log_end_offset, planned.given.replicas[base].broker
    lacking = [(0, start), *lineage.gaps, (end, NO_END)]
    left = []
    for number, source in enumerate(sources):
        if number == base:
            continue
        parted = min(_parted(base, number, planned), end)
        rivals = without(clipped(source.good, max(parted, start), end), lineage.gaps)
        spans: list[tuple[Range, Broker | None]] = [(span, broker) for span in rivals]
        spans += [(span, None) for low, high in lacking for span in clipped(source.good, low, high)]
        replica = planned.given.replicas[number]
        left += [
            LeftBehind(replica.broker, low, high, min(max(committed_end(replica), low), high), rival)
            for (low, high), rival in spans
        ]
    return sorted(left, key=lambda span: (span.start, span.end, str(span.broker)))


def committed_end(replica: PlanReplica) -> int:
    """`[0, end)` of a copy's log is proven committed."""
    return max([replica.high_watermark or 0, *(witness.end_offset for witness in replica.witnesses)])


def _parted(left: int, right: int, planned: Planned) -> int:
    """The first offset from which on two copies are not known to be of one history: where they hold other records, or behind what
    both have of the last epoch that both have (KIP-101). Without epochs, of entries before Kafka 0.11, only the former is known."""
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
