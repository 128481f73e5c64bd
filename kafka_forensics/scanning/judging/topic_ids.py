"""Logs without the id of their topic, which a broker under KRaft does not serve: `partition.metadata` is not there."""

from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.kinds import Trait, finding, kinds_with
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.evidence.inputs import METADATA, Inputs, LogDir, ReplicaPlan
from kafka_forensics.evidence.paths import is_alone
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity
from kafka_forensics.model.results import Read
from kafka_forensics.parsers.log_dir import PartitionDirectory
from kafka_forensics.replication.recovery import EPOCHS_FILE

if TYPE_CHECKING:
    from kafka_forensics.analysis.kinds.evidence_classes import TopicIdMissingEvidence

EXAMPLES: Final = 6
_UNDER_KRAFT: Final = 1
"""Version of `meta.properties`."""
_FIRST_TO_REFUSE: Final = 15
"""`metadata.version` 3.7-IV0: of brokers that know it none serves such a log."""
_FIRST_TO_SET_ASIDE: Final = 20
"""`metadata.version` 3.8-IV0: those that know it rename its directory to `-stray`."""
_BEFORE_3_7: Final = "the broker is of Kafka before 3.7, which gives the log the id that the controllers have for the topic"
_NOT_COPIED: Final = "only the copy is without these files, and no broker starts on it"


def missing_topic_ids(plans: list[ReplicaPlan], replicas: list[Replica], inputs: Inputs) -> list[Finding]:
    """`TOPIC_ID_MISSING` of each replica that has, or had, batches and no `partition.metadata`, under KRaft.

    A broker writes that file before it appends anything (UnifiedLog.maybeFlushMetadataFile), so that of a log that ends at offset 0
    nothing is said. One that is empty and ends above 0 loses no records, but its offsets begin anew: a warning, unless its broker
    is known to give it the id. Of a copy of the logs alone `left_out_topic_ids` speaks.
    """
    level = inputs.features.get("metadata.version")
    findings = []
    for plan, replica in zip(plans, replicas, strict=True):
        is_empty = not replica.state.framing.batches
        if (is_empty and not _was_emptied(replica, plan.directory)) or not _lacks_id(plan.log_dir, plan.directory):
            continue
        if _is_of_logs_alone(plan.log_dir, plan.directory):
            continue
        evidence = known_topic_id(plan, plans)
        severity = confidence = None
        if is_empty:
            evidence["is_empty"] = True
            severity = Severity.WARNING
        if level is not None and level < _FIRST_TO_REFUSE:
            if is_empty:
                continue
            evidence["harmless_if"] = _BEFORE_3_7
            severity, confidence = Severity.WARNING, Confidence.SUSPECTED
        elif level is not None and level >= _FIRST_TO_SET_ASIDE:
            evidence["sets_aside"] = True
        place = replica.context.place(METADATA, offset_start=replica.log_start_offset, offset_end=replica.log_end_offset)
        findings.append(finding("TOPIC_ID_MISSING", place, evidence, severity=severity, confidence=confidence))
    return findings


def left_out_topic_ids(log_dir: LogDir) -> list[Finding]:
    """The same, once, of a log directory that was copied without such files: a broker that starts on the copy serves none of it."""
    lacking = [
        directory.name
        for directory in log_dir.found.partitions
        if _lacks_id(log_dir, directory) and _is_of_logs_alone(log_dir, directory) and _holds_something(directory)
    ]
    if not lacking or is_alone(log_dir.found):
        return []
    evidence: TopicIdMissingEvidence = {
        "partitions": len(lacking),
        "examples": lacking[:EXAMPLES],
        "harmless_if": _NOT_COPIED,
    }
    place = Place(broker=log_dir.broker, log_dir=log_dir.name)
    return [finding("TOPIC_ID_MISSING", place, evidence, severity=Severity.INFO, confidence=Confidence.SUSPECTED)]


def _lacks_id(log_dir: LogDir, directory: PartitionDirectory) -> bool:
    """Whether a live partition's directory in a log directory of KRaft has no `partition.metadata`."""
    under_kraft = log_dir.meta is not None and log_dir.meta.version == _UNDER_KRAFT
    is_replica = directory.legal and directory.suffix is None and directory.topic != CLUSTER_METADATA_TOPIC
    return under_kraft and is_replica and METADATA not in directory.entries


def _was_emptied(replica: Replica, directory: PartitionDirectory) -> bool:
    """Whether a log without batches once had some, and none are lost that were there, or unread."""
    damage = {kind for kind, sample in replica.state.framing.damage.items() if sample}
    is_whole = (
        replica.read is Read.WHOLE and damage <= kinds_with(Trait.IS_TAIL) and all(segment.log for segment in directory.segments)
    )
    return is_whole and replica.log_end_offset > 0


def _is_of_logs_alone(log_dir: LogDir, directory: PartitionDirectory) -> bool:
    """Whether a partition was copied without its small files, as all others beside it."""
    return not log_dir.has_topic_ids and EPOCHS_FILE not in directory.entries and not directory.snapshots


def _holds_something(directory: PartitionDirectory) -> bool:
    return any(segment.log is not None and segment.log.size_in_bytes for segment in directory.segments)


def known_topic_id(plan: ReplicaPlan, plans: list[ReplicaPlan]) -> "TopicIdMissingEvidence":
    """The topic's id, as the controllers have it, or all copies of one cluster that tell one; empty where nobody does."""
    control = plan.context.control
    if control is not None and control.topic_id is not None:
        return {"topic_id": control.topic_id, "told_by": [CLUSTER_METADATA_TOPIC]}
    meta = plan.log_dir.meta
    cluster = None if meta is None else meta.cluster_id
    copies = {
        other.context.broker: other.context.topic_id
        for other in plans
        if other.context.topic_id is not None and other.log_dir.meta is not None and other.log_dir.meta.cluster_id == cluster
    }
    if len(set(copies.values())) != 1:
        return {}
    return {"topic_id": next(iter(copies.values())), "told_by": [f"broker {broker}" for broker in copies]}
