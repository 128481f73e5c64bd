"""The start, epochs and producers that a salvage keeps from a copy whose log starts in remote storage (KIP-405).

A leader deletes remote segments that end below its log start, and those whose epochs are all older than its first. With a log start
or epochs that start at the local segments, Kafka would delete the remote log.
"""

from functools import partial

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.evidence.inputs import Inputs
from kafka_forensics.model.files import EpochEntry, ProducerEntry
from kafka_forensics.parsers.indexes import parse_producer_snapshot
from kafka_forensics.questions.salvage.lineage import LogLineage
from kafka_forensics.questions.salvage.slices import SourceCopy


def may_start_remotely(replica: Replica, lineage: LogLineage) -> bool:
    """Whether a log may start before its segments: it is tiered, or nothing says whether it is and its epochs start earlier."""
    context, epochs = replica.context, replica.context.epoch_checkpoint
    if replica.is_tiered or context.control is not None or context.compacted:
        return replica.is_tiered
    return any(entry.start_offset < lineage.log_start_offset for entry in epochs or ())


def remote_epochs(replica: Replica, lineage: LogLineage) -> list[EpochEntry] | None:
    """The epochs that start before the segments, or with them; None if the batches show all epochs."""
    if not may_start_remotely(replica, lineage):
        return None
    return [entry for entry in replica.context.epoch_checkpoint or () if entry.start_offset <= lineage.log_start_offset]


def log_start_line(replica: Replica, lineage: LogLineage) -> int | None:
    """The offset of the partition in `log-start-offset-checkpoint`; None: no line."""
    line = replica.context.log_start_checkpoint
    if may_start_remotely(replica, lineage):
        return line
    start = lineage.log_start_offset if line is None or replica.context.control is not None else min(line, lineage.log_start_offset)
    return start or None


def producers_before(inputs: Inputs, source: SourceCopy, lineage: LogLineage) -> list[ProducerEntry]:
    """The producers of a remote part, by the copy's snapshot where its segments start; empty without a good snapshot."""
    start = lineage.log_start_offset
    entry = next((entry for offset, entry in source.plan.directory.snapshots if offset == start), None)
    if entry is None or not may_start_remotely(source.replica, lineage):
        return []
    snapshot = inputs.read(source.plan.log_dir.source, entry, partial(parse_producer_snapshot, offset=start))
    return [] if snapshot is None or snapshot.damage else list(snapshot.entries)
