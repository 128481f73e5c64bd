"""Copies of a topic that cleaners change, which rival leaders wrote: who is of one history with the copy that stays, and what stays
behind on the others. Of any other topic `lineage` tells the same, offset by offset.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from kafka_forensics.model.findings import Finding
from kafka_forensics.questions.plan import Planned
from kafka_forensics.questions.salvage.lineage import LeftBehind, Lineage
from kafka_forensics.questions.salvage.slices import Source
from kafka_forensics.replication.offset_ranges import Ranges, clipped, normalised, without
from kafka_forensics.replication.planner import NO_END, Broker


def of_one_history(base: int, planned: Planned, found: Sequence[Finding]) -> list[int]:
    """The numbers of copies, `base` among them, that nowhere hold other records than it, in none of their good batches, and that no
    finding names as holders of another version. Where these differ from each other, which of them is of its history is not known:
    then the base alone."""
    names = [replica.broker for replica in planned.given.replicas]
    apart: set[Broker] = set()
    for finding in found:
        versions = [set(version["brokers"]) for version in finding.evidence.get("versions", ())]
        apart.update(*(version for version in versions if names[base] not in version))
    together = [
        number for number, name in enumerate(names) if number == base or not (name in apart or conflicting(base, number, planned))
    ]
    return [base] if any(conflicting(*pair, planned) for pair in combinations(together, 2)) else together


def among(planned: Planned, numbers: Sequence[int]) -> Planned:
    """The plan with what it was made from cut down to the copies of these numbers, ascending, which are numbered anew."""
    given = planned.given
    differing = {
        (left, right): given.differing[pair]
        for (left, one), (right, other) in combinations(enumerate(numbers), 2)
        if (pair := (one, other)) in given.differing
    }
    return replace(planned, given=replace(given, replicas=[given.replicas[number] for number in numbers], differing=differing))


def between(finding: Finding, brokers: set[Broker]) -> bool:
    """Whether a value that one copy has and another lacks is a question between some of these brokers: two of them at least."""
    evidence = finding.evidence
    records = evidence.get("records") or []
    if evidence.get("keys", 0) > len(records):
        return len(brokers) > 1  # some are not listed
    named = {broker for row in records for broker in (*row["held_by"], *row["not_on"])}
    return len(named & brokers) > 1


def left_behind(
    lineage: Lineage, base: int, kept: Sequence[int], sources: Sequence[Source], planned: Planned
) -> Iterator[LeftBehind]:
    """What copies hold that are not `kept`, and a log has not that ends where its lineage does: other records than copies that are
    kept, and what is beyond."""
    replicas = planned.given.replicas
    for number in range(len(replicas)):
        if number in kept:
            continue
        replica, good = replicas[number], sources[number].good
        committed_end = max([replica.high_watermark or 0, *(witness.end_offset for witness in replica.witnesses)])
        rival = normalised(span for one in kept for span in conflicting(one, number, planned))
        beyond = without(clipped(good, lineage.log_end_offset, NO_END), rival)
        for ranges, rival_of in ((rival, replicas[base].broker), (beyond, None)):
            for start, end in normalised(span for low, high in ranges for span in clipped(good, low, high)):
                yield LeftBehind(replica.broker, start, end, min(max(committed_end, start), end), rival_of)


def conflicting(one: int, other: int, planned: Planned) -> Ranges:
    """Offsets at which two copies hold different records in good batches."""
    given = planned.given
    damaged = normalised((*given.replicas[one].damaged, *given.replicas[other].damaged))
    return without(given.differing.get((min(one, other), max(one, other)), ()), damaged)
