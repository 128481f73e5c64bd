"""How many records a replica holds in a range of offsets: what a loss comes to, where offsets are more than records.

Transaction markers have offsets and are no records; a cleaner took records and left their offsets out.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas.damaged_forks import damaged_offsets
from kafka_forensics.analysis.replicas.diff import READ_AGAIN_BYTES, walked
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import CONTROL_MASK
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.offset_ranges import Ranges, clipped, counted, normalised, without
from kafka_forensics.model.results import Read

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_forensics.analysis.kinds.evidence_classes import Broker
    from kafka_forensics.analysis.replicas.diff import BatchReader


class BatchPart(NamedTuple):
    """What of a batch lies in a range: records, bytes of the whole of it, offsets; of a control batch no records and no bytes."""

    records: int
    size_in_bytes: int
    offsets: int
    is_exact: bool
    """False where only part of the offsets are in the range, and which of them still have records does not stand in the header."""


def batches_held(replica: Replica, reader: "BatchReader", ranges: Ranges) -> Iterator[BatchPart]:
    """Every batch that has some of these offsets, by its header."""
    for low, high in ranges:
        for rows in walked(reader, replica, low, high):
            for row in range(rows.shape[1]):
                base, behind = int(rows[BatchColumn.BASE_OFFSET, row]), int(rows[BatchColumn.LAST_OFFSET, row]) + 1
                inside = min(behind, high) - max(base, low)
                if inside <= 0:
                    continue
                if int(rows[BatchColumn.ATTRIBUTES, row]) & CONTROL_MASK and int(rows[BatchColumn.MAGIC, row]) >= 2:
                    yield BatchPart(0, 0, inside, is_exact=True)
                    continue
                count = int(rows[BatchColumn.RECORDS_COUNT, row])
                whole = low <= base and behind <= high and count >= 0
                held = count if whole else inside if count < 0 else min(count, inside)
                yield BatchPart(held, int(rows[BatchColumn.SIZE_IN_BYTES, row]), inside, whole or count == behind - base)


def with_records(
    findings: list[Finding], replicas: Sequence[Replica], reader: "BatchReader", kinds: frozenset[str]
) -> list[Finding]:
    """The findings, those of `kinds` above `info` with the number of records that are held of their offsets (evidence
    `records_held`): by the good copy that has most, or by the version of a fork that does; without it where such a log was not read
    whole, is damaged there, or counting takes too long."""
    readable = {replica.broker: replica for replica in replicas if replica.read is Read.WHOLE}
    return [
        _counted(finding, readable, reader) if finding.kind in kinds and finding.severity is not Severity.INFO else finding
        for finding in findings
    ]


def _counted(finding: Finding, readable: "Mapping[Broker, Replica]", reader: "BatchReader") -> Finding:
    start, end = finding.place.offset_start, finding.place.offset_end
    if start is None or end is None or "records_held" in finding.evidence or finding.evidence.get("in_remote_storage"):
        return finding
    most = 0
    for holders in _holder_groups(finding):
        held = (readable[broker] for broker in holders if broker in readable)
        counts = [records_held(replica, reader, start, end) for replica in held]
        if None in counts or not counts:
            return finding
        most = max(most, *(count for count in counts if count is not None))
    return finding.with_evidence(records_held=most)


def _holder_groups(finding: Finding) -> "list[list[Broker]]":
    """Who holds the same: the good copies, or where none is known each version of a fork; a finding without either has none."""
    held_by, versions = finding.evidence.get("held_by"), finding.evidence.get("versions")
    return [held_by] if held_by else [version["brokers"] for version in versions] if versions else [[]]


def records_held(replica: Replica, reader: "BatchReader", start: int, end: int) -> int | None:
    """Records of a replica's good batches in `[start, end)`; None where it has damage there or remote segments, or counting takes
    too long, or an end lies within a batch of which a cleaner took records.

    Of a log that is in order and has no control batch, those outside the range are taken from all there are, if they are fewer.
    """
    if damaged_offsets(replica, start, end) or clipped(replica.remote, start, end):
        return None
    runs = normalised((run.start_offset, run.end_offset) for run in replica.state.continuity.runs)
    first, last = (runs[0][0], runs[-1][1]) if runs else (0, 0)
    there = clipped(runs, start, end)
    holes = without(((max(start, first), min(end, last)),), runs) if max(start, first) < min(end, last) else ()
    if holes and not replica.context.compacted:
        return None
    outside = without(((first, last),), ((start, end),)) if runs else ()
    if replica.state.framing.broker_timestamp < 0 and not replica.course.irregularities and counted(outside) < counted(there):
        others = _sum(replica, reader, clipped(runs, first, start) + clipped(runs, end, last))
        return None if others is None else replica.state.framing.records - others
    return _sum(replica, reader, there)


def _sum(replica: Replica, reader: "BatchReader", ranges: Ranges) -> int | None:
    records = size = 0
    for batch in batches_held(replica, reader, ranges):
        records, size = records + batch.records, size + batch.size_in_bytes
        if not batch.is_exact or size > READ_AGAIN_BYTES:
            return None
    return records
