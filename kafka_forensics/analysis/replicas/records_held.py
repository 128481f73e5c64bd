"""How many records a replica has in a range of offsets: the size of a loss where there are more offsets than records.

Transaction markers have offsets but are not records; a cleaner removes records and leaves their offsets out.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas.damaged_forks import damaged_offsets
from kafka_forensics.analysis.replicas.diff import READ_AGAIN_BYTES, read_in_steps
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import CONTROL_MASK
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.offset_ranges import Ranges, clipped, counted, without
from kafka_forensics.model.results import ReadExtent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_forensics.analysis.kinds.evidence_classes import Broker
    from kafka_forensics.analysis.replicas.diff import BatchReader


_SIZE_AND_TIMES: Final = (BatchColumn.SIZE_IN_BYTES, BatchColumn.BASE_TIMESTAMP, BatchColumn.MAX_TIMESTAMP)


class BatchPart(NamedTuple):
    """The part of a batch in a range: records, bytes of the whole batch, offsets; of a control batch no records and no bytes."""

    records: int
    size_in_bytes: int
    offsets: int
    is_exact: bool
    """False if only some offsets are in the range, and the header does not say which of them have records."""
    base_timestamp: int = -1
    max_timestamp: int = -1
    """Times of the whole batch; -1: none."""


def batches_held(replica: Replica, reader: "BatchReader", ranges: Ranges) -> Iterator[BatchPart]:
    """Every batch with some of these offsets, by its header."""
    for low, high in ranges:
        for rows in read_in_steps(reader, replica, low, high):
            for row in range(rows.shape[1]):
                base, end = int(rows[BatchColumn.BASE_OFFSET, row]), int(rows[BatchColumn.LAST_OFFSET, row]) + 1
                inside = min(end, high) - max(base, low)
                if inside <= 0:
                    continue
                if int(rows[BatchColumn.ATTRIBUTES, row]) & CONTROL_MASK and int(rows[BatchColumn.MAGIC, row]) >= 2:
                    yield BatchPart(0, 0, inside, is_exact=True)
                    continue
                count = int(rows[BatchColumn.RECORDS_COUNT, row])
                whole = low <= base and end <= high and count >= 0
                records = count if whole else inside if count < 0 else min(count, inside)
                size, *times = (int(rows[column, row]) for column in _SIZE_AND_TIMES)
                yield BatchPart(records, size, inside, whole or count == end - base, *times)


def with_records(
    findings: list[Finding], replicas: Sequence[Replica], reader: "BatchReader", kinds: frozenset[str]
) -> list[Finding]:
    """The findings; those of `kinds` above `info` with the number of records at their offsets (evidence `records_held`): by the
    good copy with the most, or by the version of a fork with the most; not if such a log was not read completely, is damaged there,
    or is too large to count."""
    readable = {replica.broker: replica for replica in replicas if replica.read is ReadExtent.WHOLE}
    return [
        _counted(finding, readable, reader) if finding.kind in kinds and finding.severity is not Severity.INFO else finding
        for finding in findings
    ]


def _counted(finding: Finding, readable: "Mapping[Broker, Replica]", reader: "BatchReader") -> Finding:
    start, end = finding.place.offset_start, finding.place.offset_end
    if start is None or end is None or "records_held" in finding.evidence or finding.evidence.get("in_remote_storage"):
        return finding
    held_by, versions = finding.evidence.get("held_by"), finding.evidence.get("versions")
    groups = [held_by] if held_by else [version["brokers"] for version in versions] if versions else [[]]
    most = 0
    for holders in groups:
        counts = [records_held(readable[broker], reader, start, end) for broker in holders if broker in readable]
        if None in counts or not counts:
            return finding
        most = max(most, *(count for count in counts if count is not None))
    return finding.with_evidence(records_held=most)


def records_held(replica: Replica, reader: "BatchReader", start: int, end: int) -> int | None:
    """Records of a replica's good batches in `[start, end)`; None if it has damage or remote segments there, is too large to count,
    or an end is within a cleaned batch.

    In an orderly log without control batches, the records outside the range are subtracted from the total, if they are fewer.
    """
    if damaged_offsets(replica, start, end) or clipped(replica.remote, start, end):
        return None
    runs = replica.good_ranges
    first, last = (runs[0][0], runs[-1][1]) if runs else (0, 0)
    inside = clipped(runs, start, end)
    gaps = without(((max(start, first), min(end, last)),), runs) if max(start, first) < min(end, last) else ()
    if gaps and not replica.context.compacted:
        return None
    outside = without(((first, last),), ((start, end),)) if runs else ()
    if replica.state.framing.broker_timestamp < 0 and not replica.offset_sequence.anomalies and counted(outside) < counted(inside):
        others = _sum(replica, reader, clipped(runs, first, start) + clipped(runs, end, last))
        return None if others is None else replica.state.framing.records - others
    return _sum(replica, reader, inside)


def _sum(replica: Replica, reader: "BatchReader", ranges: Ranges) -> int | None:
    records = size = 0
    for batch in batches_held(replica, reader, ranges):
        records, size = records + batch.records, size + batch.size_in_bytes
        if not batch.is_exact or size > READ_AGAIN_BYTES:
            return None
    return records
