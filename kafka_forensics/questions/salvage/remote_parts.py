"""What a salvage keeps of a log that begins in remote storage (KIP-405): its start, epochs and producers, as the copy has them.

A leader deletes the remote segments that end below its log start, and those of epochs that are all older than its first: with a log
start or with epochs that begin at the local segments, Kafka deletes the remote log.
"""

from functools import partial

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.evidence.inputs import Inputs
from kafka_forensics.model.files import EpochEntry, ProducerEntry
from kafka_forensics.parsers.indexes import parse_producer_snapshot
from kafka_forensics.questions.salvage.lineage import Lineage
from kafka_forensics.questions.salvage.slices import Source


def may_begin_remotely(replica: Replica, lineage: Lineage) -> bool:
    """Whether a log may begin before its segments: it is tiered, or nothing tells whether it is and its epochs begin there."""
    context, epochs = replica.context, replica.context.epoch_checkpoint
    if replica.is_tiered or context.control is not None or context.compacted:
        return replica.is_tiered
    return any(entry.start_offset < lineage.log_start_offset for entry in epochs or ())


def remote_epochs(replica: Replica, lineage: Lineage) -> list[EpochEntry] | None:
    """The epochs that begin before the segments, or with them; None where the batches show all."""
    if not may_begin_remotely(replica, lineage):
        return None
    return [entry for entry in replica.context.epoch_checkpoint or () if entry.start_offset <= lineage.log_start_offset]


def log_start_line(replica: Replica, lineage: Lineage) -> int | None:
    """What `log-start-offset-checkpoint` is to say of the partition; None: nothing."""
    line = replica.context.log_start_checkpoint
    if may_begin_remotely(replica, lineage):
        return line
    start = lineage.log_start_offset if line is None or replica.context.control is not None else min(line, lineage.log_start_offset)
    return start or None


def producers_before(inputs: Inputs, source: Source, lineage: Lineage) -> list[ProducerEntry]:
    """The producers of a remote part, by the copy's snapshot where its segments begin; none where it has no sound one."""
    if not may_begin_remotely(source.replica, lineage):
        return []
    start = lineage.log_start_offset
    entry = next((entry for offset, entry in source.plan.directory.snapshots if offset == start), None)
    if entry is None:
        return []
    snapshot = inputs.read(source.plan.log_dir.source, entry, partial(parse_producer_snapshot, offset=start))
    return [] if snapshot is None or snapshot.damage else list(snapshot.entries)
