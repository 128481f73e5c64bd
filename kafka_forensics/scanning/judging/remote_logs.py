"""Judging the logs of a partition in remote stores: their bytes, their events, and the replicas that have the same offsets."""

from collections.abc import Sequence

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import StoredSizes, remote_object_findings
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.results import ReadExtent
from kafka_forensics.scanning.rereading.reader import LogReader
from kafka_forensics.storage.tiered import DecodedStore


def judge_remote_logs(
    remote: Sequence[tuple[ReplicaPlan, Replica]], plans: list[ReplicaPlan], replicas: list[Replica], reader: LogReader
) -> list[Finding]:
    """The findings about the logs in remote stores; what cannot be read again goes to the reader of the replicas."""
    both = LogReader([*plans, *(plan for plan, _ in remote)], reader.key, reader.as_of_ms)
    both.incomplete = reader.incomplete
    read = [replica for replica in replicas if replica.read is not ReadExtent.NONE]
    return [found for plan, log in remote for found in remote_object_findings(log, _sizes(plan), read, both)]


def _sizes(plan: ReplicaPlan) -> StoredSizes:
    """The sizes of the segments of a log, as a broker copied them."""
    sizes, source = {}, plan.log_dir.source
    for log in plan.directory.logs():
        sizes[log.base_offset] = log.entry.size_in_bytes
        if isinstance(source, DecodedStore):
            try:
                with source.open(log.entry.path) as file:
                    sizes[log.base_offset] = file.size_in_bytes
            except SourceError:  # reported when it was folded
                continue
    return StoredSizes(sizes, is_plain=not isinstance(source, DecodedStore))
