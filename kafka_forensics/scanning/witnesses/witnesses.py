"""The witnesses of a scan: what the logs of internal topics say about every partition; options that limit a scan do not apply."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct, field

from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan
from kafka_forensics.model.constants import (
    CLUSTER_METADATA_TOPIC,
    CONSUMER_OFFSETS_TOPIC,
    INTERNAL_TOPICS,
    REMOTE_LOG_METADATA_TOPIC,
    TRANSACTION_STATE_TOPIC,
    WITNESS_TOPICS,
)
from kafka_forensics.model.controller import ControllerHistory, PartitionControl
from kafka_forensics.model.coordinators import GroupHistory, TransactionLog
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.remote_log import RemoteLog, RemoteLogHistory
from kafka_forensics.scanning.witnesses.controller import read_controller
from kafka_forensics.scanning.witnesses.controller_copies import node_id
from kafka_forensics.storage.bundles import BundleSource

if TYPE_CHECKING:
    from kafka_forensics.analysis.internal_topics import PartitionCount


class Witnesses(Struct):
    """What each log says; None if it was not among the copies."""

    controller: ControllerHistory | None = None
    transaction_log: TransactionLog | None = None
    groups: GroupHistory | None = None
    remote_log: RemoteLogHistory | None = None
    findings: list[Finding] = field(default_factory=list)
    """Findings about the records of these logs."""

    def control(self, topic: str, partition: int, topic_id: str | None = None) -> PartitionControl | None:
        """The latest controller state of a partition; None if there is none, or only of another topic of that name."""
        partition_control = None if self.controller is None else self.controller.partitions.get((topic, partition))
        is_other = partition_control is not None and topic_id is not None and partition_control.topic_id != topic_id
        return None if is_other else partition_control


def read_witnesses(inputs: Inputs) -> Witnesses:
    """Read every witness in `inputs.internal`."""
    witnesses = Witnesses()
    clusters = {log_dir.meta.cluster_id for log_dir in inputs.log_dirs if log_dir.meta is not None} - {None}
    if not inputs.internal and len(clusters) < 2:
        return witnesses
    from kafka_forensics.analysis.replicas import malformed_findings  # a single partition does not pay for these imports
    from kafka_forensics.scanning.witnesses.coordinators import read_group_history, read_transaction_log
    from kafka_forensics.scanning.witnesses.remote_log import read_remote_log

    controller = read_controller(inputs)
    if controller is not None:
        witnesses.controller = controller.history
        witnesses.findings += controller.findings
    known = [partition for topic, partition in _partitions(witnesses) if topic == TRANSACTION_STATE_TOPIC]
    witnesses.transaction_log, findings = read_transaction_log(inputs, max(known, default=-1) + 1)
    witnesses.findings += findings
    witnesses.groups = read_group_history(inputs)
    if witnesses.groups is not None:
        witnesses.findings += [finding for log in witnesses.groups.logs for finding in malformed_findings(log)]
    witnesses.findings += _misplaced(inputs, witnesses, len(clusters))
    witnesses.remote_log, findings = read_remote_log(inputs)
    witnesses.findings += findings
    inputs.remote_log = witnesses.remote_log
    if witnesses.remote_log is not None:
        known_partitions = {partition for topic, partition in _partitions(witnesses) if topic == REMOTE_LOG_METADATA_TOPIC}
        witnesses.remote_log.partitions_missing = known_partitions - witnesses.remote_log.partitions_read
        if known_partitions and known_partitions == set(range(len(known_partitions))) and _has_real_names(inputs, len(clusters)):
            from kafka_forensics.analysis.internal_topics import misplaced_events

            witnesses.findings += misplaced_events(witnesses.remote_log, len(known_partitions))
    return witnesses


def set_controller_state(plan: ReplicaPlan, witnesses: Witnesses) -> None:
    """Set a replica's controller state, remote log and `compacted`.

    Internal topics stay compacted whatever their settings say. The cleaner's checkpoint decides where the controller state does
    not, and where its copy is from before the topic was compacted.
    """
    context = plan.context
    context.node_id = node_id(plan)
    history = witnesses.remote_log
    if history is not None:
        context.remote_log = history.log_of(context.topic, context.partition, context.topic_id)
        if context.remote_log is None and witnesses.controller is not None and context.topic not in WITNESS_TOPICS:
            is_complete = not (history.damaged or history.partitions_missing)
            log = RemoteLog(context.topic, context.topic_id or "", context.partition, (), is_complete, bool(history.forgotten))
            context.remote_log = log
    if witnesses.controller is not None and context.topic == CLUSTER_METADATA_TOPIC:
        context.snapshots = witnesses.controller.snapshots.get((context.broker, context.log_dir))
    context.control = control = witnesses.control(context.topic, context.partition, context.topic_id)
    if control is None or control.was_compacted is None or context.topic in INTERNAL_TOPICS:
        return
    cleaned = context.cleaner_checkpoint is not None and context.topic_id is not None and context.topic_id == control.topic_id
    context.compacted = control.was_compacted or cleaned


def take_commits(plan: ReplicaPlan, witnesses: Witnesses) -> None:
    """Set a replica's committed group offsets."""
    if witnesses.groups is not None:
        from kafka_forensics.scanning.witnesses.coordinators import cluster_of

        context = plan.context
        context.committed = witnesses.groups.committed(context.topic, context.partition, cluster_of(plan))


def take_decisions(plans: Iterable[ReplicaPlan], witnesses: Witnesses) -> None:
    """Set `decided` of replicas: whether transaction coordinators decided a transaction in their partitions."""
    if witnesses.transaction_log is not None:
        decided = {listed for decision in witnesses.transaction_log.decisions for listed in decision.partitions}
        for plan in plans:
            plan.context.decided = plan.context.topic_partition in decided


def _has_real_names(inputs: Inputs, clusters: int) -> bool:
    """Whether names and ids are those of one cluster, and not pseudonyms, whose hashes name other partitions."""
    redacted = (isinstance(source, BundleSource) and source.about.redaction is not None for source in inputs.sources)
    return clusters <= 1 and not any(redacted)


def _misplaced(inputs: Inputs, witnesses: Witnesses, clusters: int) -> list[Finding]:
    """Findings about coordinators' records in partitions where no coordinator reads them. None for several clusters, or for copies
    with pseudonyms, whose hashes name other partitions."""
    if not _has_real_names(inputs, clusters):
        return []
    from kafka_forensics.analysis.internal_topics import misplaced_ids, misplaced_offsets

    findings: list[Finding] = []
    offsets, ids = (_partition_count(inputs, witnesses, topic) for topic in (CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC))
    if offsets is not None and witnesses.groups is not None:
        findings += misplaced_offsets(witnesses.groups, offsets)
    if ids is not None and witnesses.transaction_log is not None:
        findings += misplaced_ids(witnesses.transaction_log, ids)
    return findings


def _partition_count(inputs: Inputs, witnesses: Witnesses, topic: str) -> "PartitionCount | None":
    """The number of partitions of a topic, by the controller's log or else by the copies; None if the copies contradict it."""
    from kafka_forensics.analysis.internal_topics import PartitionCount

    known = {partition for name, partition in _partitions(witnesses) if name == topic}
    directories = (part for log_dir in inputs.log_dirs for part in log_dir.found.partitions if part.legal)
    copied = {part.partition for part in directories if part.topic == topic and part.partition is not None}
    checkpoints = (file for log_dir in inputs.log_dirs for file in log_dir.checkpoints.values())
    copied |= {partition for file in checkpoints for name, partition in file.offsets if name == topic}
    here = known or copied
    has_gaps = here != set(range(len(here))) or not copied <= here
    return None if has_gaps or not here else PartitionCount(len(here), is_exact=bool(known))


def _partitions(witnesses: Witnesses) -> Iterable[tuple[str, int]]:
    """Every (topic, partition) in the controller's log."""
    return () if witnesses.controller is None else witnesses.controller.partitions
