"""Which topics are tiered (KIP-405): their logs begin before the segments on disk."""

from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan, read_leader_epochs
from kafka_forensics.model.constants import REMOTE_LOG_METADATA_TOPIC
from kafka_forensics.model.controller import PartitionControl
from kafka_forensics.model.remote_log import RemoteLog, RemoteLogHistory
from kafka_forensics.parsers.log_dir import REMOTE_INDEX_CACHE


def set_tiered_topics(inputs: Inputs, history: RemoteLogHistory | None) -> None:
    """Set `is_tiered` of all replicas.

    It is decided by finished segments in `__remote_log_metadata`, then by the topic's setting in the controllers' log, then no if
    `__remote_log_metadata` is complete or a replica is compacted, then by the replicas' files: only of tiered topics do brokers
    write a log start offset and epochs that precede the first segment.
    """
    by_topic: dict[tuple[str, str | None], list[ReplicaPlan]] = {}
    for plan in inputs.replicas:
        by_topic.setdefault((plan.context.topic, plan.context.topic_id), []).append(plan)
    is_complete = history is not None and not history.damaged and not history.partitions_missing
    has_remote_storage = history is not None or _has_remote_storage(inputs)
    for plans in by_topic.values():
        contexts = [plan.context for plan in plans]
        controls = [context.control for context in contexts if context.control is not None]
        settings = [control.is_tiered for control in controls if control.unknown_after is None]
        if any(
            context.remote_log is not None and _segments_prove_tiered(context.remote_log, context.control) for context in contexts
        ):
            is_tiered = True
        elif settings:
            is_tiered = any(settings)
        elif is_complete or any(context.compacted for context in contexts):
            is_tiered = False
        else:
            is_tiered = any(_begins_before_its_segments(inputs, plan, has_remote_storage=has_remote_storage) for plan in plans)
        for context in contexts:
            context.is_tiered = is_tiered


def _segments_prove_tiered(log: RemoteLog, control: PartitionControl | None) -> bool:
    """Whether finished segments prove the topic tiered: any of them, unless a dated controllers' log says it is not tiered; then
    only those newer than that log."""
    if control is None or control.as_of_ms is None or control.is_tiered:
        return bool(log.finished)
    return any(segment.event_timestamp_ms > control.as_of_ms for segment in log.finished)


def _has_remote_storage(inputs: Inputs) -> bool:
    """Whether files of the cluster show remote storage: a cache of remote indexes, or checkpoint entries of its metadata topic."""
    caches = any(REMOTE_INDEX_CACHE in log_dir.found.entries for log_dir in inputs.log_dirs)
    named = (key for log_dir in inputs.log_dirs for checkpoint in log_dir.checkpoints.values() for key in checkpoint.offsets)
    return caches or any(topic == REMOTE_LOG_METADATA_TOPIC for topic, _ in named)


def _begins_before_its_segments(inputs: Inputs, plan: ReplicaPlan, *, has_remote_storage: bool) -> bool:
    """Whether the log start offset and the first epoch in the replica's files precede its first segment; a copy of a running
    broker may have no log start offset yet."""
    context = plan.context
    first, start = min(context.segment_base_offsets, default=0), context.log_start_checkpoint
    if first == 0 or (start is None and not has_remote_storage) or (start is not None and start >= first):
        return False
    read_leader_epochs(inputs, plan)
    if context.epoch_checkpoint is None and has_remote_storage:
        return start is not None
    return any(entry.start_offset < first for entry in (context.epoch_checkpoint or ())[:1])
