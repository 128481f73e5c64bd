"""Findings about the copies themselves: names, odd entries, identities, missing and malformed small files, changed files."""

import os
from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.kinds import Trait, finding, kinds_with
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import brokers_epochs, lacks_remote_epochs
from kafka_forensics.evidence.inputs import CHECKPOINTS, METADATA, Inputs, LogDir, ReplicaPlan, contradicting_names
from kafka_forensics.evidence.ledger import lost_directory_ids
from kafka_forensics.evidence.paths import is_without_log_dir
from kafka_forensics.model.batches import Damage
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity
from kafka_forensics.model.results import ReadExtent
from kafka_forensics.parsers.checkpoints import parse_partition_metadata
from kafka_forensics.parsers.log_dir import PartitionDirectory
from kafka_forensics.parsers.quorum_state import quorum_state_damage
from kafka_forensics.replication.recovery import (
    EPOCHS_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    loads_as_partition,
)
from kafka_forensics.replication.small_files import (
    ABSENT,
    BOOTSTRAP,
    CLEAN_SHUTDOWN,
    EMPTY,
    META_PROPERTIES,
    NOT_ALL_SERVED,
    outcome_of,
)
from kafka_forensics.storage.source import Entry

if TYPE_CHECKING:
    from kafka_forensics.analysis.kinds.evidence_classes import (
        ChangedEvidence,
        EpochCacheEvidence,
        IndexMissingEvidence,
        TopicIdMissingEvidence,
    )
    from kafka_forensics.model.json_objects import Json

NAMES_LISTED: Final = 16
EXAMPLES: Final = 6
_EPOCHS_LISTED: Final = 64
SPARSE_BYTES: Final = 1 << 20
"""Bytes in holes from which a `.log` is called sparse."""
_KRAFT: Final = 1
"""Version of `meta.properties` under KRaft."""
_FIRST_TO_REFUSE: Final = 15
"""`metadata.version` 3.7-IV0, from which brokers do not serve a log without topic id."""
_FIRST_TO_SET_ASIDE: Final = 20
"""`metadata.version` 3.8-IV0, from which brokers rename its directory to `-stray`."""
_BEFORE_3_7: Final = "the broker runs Kafka before 3.7, which gives the log the id that the controllers have for the topic"
_NOT_COPIED: Final = "only the copy lacks these files, and no broker starts with it"


def environment_findings(inputs: Inputs) -> list[Finding]:
    """Findings about log directories."""
    findings: list[Finding] = []
    for log_dir in inputs.log_dirs:
        findings += _log_dir_findings(log_dir, inputs)
        findings += _missing_indexes(log_dir)
        findings += left_out_topic_ids(log_dir)
    for name, discovery in inputs.discoveries:
        findings += [_irregular(entry, None, name) for entry in discovery.irregular]
        findings += _unknown(discovery.unsearched, None, name)
    ids: dict[str, str] = {}
    for log_dir in inputs.log_dirs:
        if log_dir.meta is not None and log_dir.meta.cluster_id is not None:
            cluster_id = ids.setdefault(str(log_dir.broker), log_dir.meta.cluster_id)
            ids |= {} if cluster_id == log_dir.meta.cluster_id else {log_dir.name: log_dir.meta.cluster_id}
    if len(set(ids.values())) > 1:
        findings.append(finding("CLUSTER_ID_MISMATCH", Place(), {"cluster_ids": ids}))
    for broker, names in inputs.clashes:
        findings.append(finding("NODE_ID_CLASH", Place(broker=broker), {"node_id": broker, "log_dirs": names}))
    for node, node_ids, names in contradicting_names(inputs.log_dirs):
        evidence = {"node_ids": node_ids, "named": node, "log_dirs": names}
        findings.append(finding("NODE_ID_MISMATCH", Place(broker=node, log_dir=names[0], file="meta.properties"), evidence))
    return findings


def changed_findings(inputs: Inputs) -> list[Finding]:
    """`EVIDENCE_CHANGED` for each file that changed since it was first seen; call it at the end of a scan."""
    findings = []
    for path, before, after in inputs.manifest.changes():
        evidence: ChangedEvidence = {
            "before": {"size": before.size_in_bytes, "mtime_ns": before.mtime_ns},
            "after": None if after is None else {"size": after.size_in_bytes, "mtime_ns": after.mtime_ns},
        }
        findings.append(finding("EVIDENCE_CHANGED", _place_of(path, inputs), evidence))
    return findings


def _place_of(path: str, inputs: Inputs) -> Place:
    """The place of a file by its whole path; only the path for an archive."""
    for log_dir in inputs.log_dirs:
        if path.startswith(log_dir.name + os.sep):
            return Place(broker=log_dir.broker, log_dir=log_dir.name, file=os.path.relpath(path, log_dir.name))
    return Place(file=path)


def _log_dir_findings(log_dir: LogDir, inputs: Inputs) -> list[Finding]:
    broker, name = log_dir.broker, log_dir.name
    findings = [_irregular(entry, broker, name) for entry in log_dir.found.irregular]
    findings += _unknown(log_dir.found.unknown, broker, name)
    for file, damage in log_dir_damage(log_dir).items():
        if file != META_PROPERTIES:
            findings += _malformed(damage, broker, name, file, log_dir.found.entries.get(file), {})
    findings += _identity_findings(log_dir, inputs)
    live = [partition for partition in log_dir.found.partitions if partition.is_replica]
    data = [partition for partition in live if partition.topic != CLUSTER_METADATA_TOPIC]
    has_files = bool(log_dir.found.entries)
    if data and has_files and "replication-offset-checkpoint" not in log_dir.checkpoints:
        place = Place(broker=broker, log_dir=name, file="replication-offset-checkpoint")
        findings.append(finding("HW_UNKNOWN", place, {"reason": "missing", "partitions": len(data)}))
    linked = [(part.name, part.entry.link) for part in log_dir.found.partitions if part.entry is not None]
    links = {partition: f"/{link}" for partition, link in linked if link is not None}
    for directory in log_dir.found.partitions:
        findings += _directory_findings(directory, broker, name, links)
    return findings


def _identity_findings(log_dir: LogDir, inputs: Inputs) -> list[Finding]:
    """Damage in `meta.properties`. A missing one, though there are checkpoints or a `quorum-state`, or one without the directory id
    that the controllers have, counts as damage."""
    meta, entries = log_dir.meta, log_dir.found.entries
    damage: list[Damage] = [] if meta is None else meta.damage
    if meta is None and META_PROPERTIES not in entries:
        is_voter = any("quorum-state" in directory.entries for directory in log_dir.found.partitions)
        if is_voter or any(file in entries for file in CHECKPOINTS):
            damage = [Damage("CHECKPOINT_MALFORMED", 0, 0, detail={"reason": ABSENT})]
    proven = _identity(log_dir, inputs) if damage or (meta is not None and meta.directory_id is None) else {}
    if not damage and "directory_id" in proven:
        damage = [Damage("CHECKPOINT_MALFORMED", 0, 0, detail={"reason": "missing", "key": "directory.id"})]
    return _malformed(damage, log_dir.broker, log_dir.name, META_PROPERTIES, entries.get(META_PROPERTIES), proven)


def log_dir_damage(log_dir: LogDir) -> dict[str, list[Damage]]:
    """The damage of each small file of a log directory. Checkpoints of high watermarks and log starts are empty after a broker's
    first start, which counts as damage only if that of recovery points is not empty."""
    checkpoints = {file: log_dir.checkpoints[file].damage for file in CHECKPOINTS if file in log_dir.checkpoints}
    written = log_dir.checkpoints.get(RECOVERY_POINT_FILE)
    for file in (HIGH_WATERMARK_FILE, LOG_START_FILE) if written is not None and written.offsets else ():
        entry = log_dir.found.entries.get(file)
        if entry is not None and not entry.size_in_bytes:
            checkpoints[file] = [Damage("CHECKPOINT_MALFORMED", 0, 0, detail={"reason": EMPTY})]
    return {
        **checkpoints,
        META_PROPERTIES: [] if log_dir.meta is None else log_dir.meta.damage,
        CLEAN_SHUTDOWN: [] if log_dir.clean_shutdown is None else log_dir.clean_shutdown.damage,
        BOOTSTRAP: log_dir.bootstrap_damage,
    }


def _directory_findings(directory: PartitionDirectory, broker: int | str, name: str, links: dict[str, str]) -> list[Finding]:
    """`links`: partition directory that is a link → its target after a slash."""
    findings = [_irregular(entry, broker, name) for entry in directory.irregular]
    if not directory.legal:
        evidence: Json = {"name": directory.name, "refused": not loads_as_partition(directory.name)}
        holds = [partition for partition, link in links.items() if f"/{directory.name}/" in link]
        evidence |= {"holds": holds} if holds else {}
        findings.append(finding("DIR_NAME_ILLEGAL", Place(None, None, broker, name, directory.name), evidence))
    findings += _unknown(directory.unknown, broker, name)
    for segment in directory.segments:
        log = segment.log
        if log is None or log.allocated_bytes is None or log.size_in_bytes - log.allocated_bytes < SPARSE_BYTES:
            continue
        evidence = {"allocated_bytes": log.allocated_bytes, "size_in_bytes": log.size_in_bytes}
        where = Place(directory.topic, directory.partition, broker, name, f"{directory.name}/{log.name}")
        findings.append(finding("SPARSE_FILE", where, evidence))
    return findings


def _missing_indexes(log_dir: LogDir) -> list[Finding]:
    """`INDEX_MISSING`: how many segments of a log directory lack `.index` or `.timeindex`."""
    live = (directory for directory in log_dir.found.partitions if directory.is_replica)
    lacking = [
        f"{directory.name}/{log.name}"
        for directory in live
        for segment, log, _ in directory.logs()
        if (segment.index is None or segment.time_index is None) and log.path and log.unreadable is None
    ]
    if not lacking:
        return []
    evidence: IndexMissingEvidence = {"segments": len(lacking), "files": lacking[:NAMES_LISTED]}
    return [finding("INDEX_MISSING", Place(broker=log_dir.broker, log_dir=log_dir.name), evidence)]


def _irregular(entry: Entry, broker: int | str | None, name: str) -> Finding:
    return finding("NON_REGULAR_SKIPPED", Place(broker=broker, log_dir=name, file=entry.path), {"entry_kind": entry.kind.value})


def _unknown(entries: list[Entry], broker: int | str | None, name: str) -> list[Finding]:
    if not entries:
        return []
    names = sorted(entry.path for entry in entries)
    return [finding("FILE_UNKNOWN", Place(broker=broker, log_dir=name), {"names": names[:NAMES_LISTED], "count": len(names)})]


def _malformed(
    damage: list[Damage],
    broker: int | str,
    name: str,
    file: str,
    entry: Entry | None,
    proven: "Json",
    place: Place | None = None,
) -> list[Finding]:
    """`CHECKPOINT_MALFORMED` for a damaged file, with its first damage and what a start does with the file: an error if the broker
    then does not serve all logs. `proven` is content that other files prove."""
    if not damage:
        return []
    first = damage[0]
    outcome = outcome_of(file, damage, None if entry is None else entry.size_in_bytes)
    evidence: Json = dict(first.detail) | {"places": len(damage), "on_start": outcome.value}
    if entry is not None and not entry.size_in_bytes:
        evidence["empty"] = True
    if outcome in NOT_ALL_SERVED:
        evidence |= {"starts": False, **proven}
    where = place or Place(
        broker=broker, log_dir=name, file=file, byte_start=first.position, byte_end=first.position + first.size_in_bytes
    )
    if first.detail.get("reason") in (ABSENT, EMPTY) and file != HIGH_WATERMARK_FILE:
        return [finding(first.kind, where, evidence, severity=Severity.INFO, confidence=Confidence.SUSPECTED)]
    return [finding(first.kind, where, evidence, severity=None if outcome in NOT_ALL_SERVED else Severity.WARNING)]


def _identity(log_dir: LogDir, inputs: Inputs) -> "Json":
    """What `meta.properties` should contain, as far as others prove it: the cluster id by all other log directories, the node id by
    the broker's name, the directory id by the controllers' log."""
    others = [other for other in inputs.log_dirs if other is not log_dir and other.meta is not None and not other.meta.damage]
    clusters = {other.meta.cluster_id for other in others if other.meta is not None}
    proven: Json = {"cluster_id": clusters.pop()} if len(clusters) == 1 else {}
    node = log_dir.broker if isinstance(log_dir.broker, int) or log_dir.broker.isdecimal() else None
    if node is None:
        return proven
    present = {(directory.topic, directory.partition) for directory in log_dir.found.partitions if directory.suffix is None}
    lost = lost_directory_ids(inputs.controller, int(node), {other.meta.directory_id for other in others if other.meta is not None})
    directories = {directory for place, directory in lost.items() if place in present}
    return proven | {"node_id": int(node)} | ({"directory_id": directories.pop()} if len(directories) == 1 else {})


def replica_file_findings(plan: ReplicaPlan, plans: list[ReplicaPlan], inputs: Inputs) -> list[Finding]:
    """Findings about the small files of one replica's directory; `plans` has all replicas of the partition."""
    context, entries = plan.context, plan.directory.entries
    findings = []
    for file, damage in partition_damage(plan, inputs).items():
        proven: Json = {**known_topic_id(plan, plans)} if file == METADATA and damage else {}
        place = context.place(file)
        findings += _malformed(
            damage, context.broker, context.log_dir, f"{context.directory}/{file}", entries.get(file), proven, place
        )
    return findings


def partition_damage(plan: ReplicaPlan, inputs: Inputs) -> dict[str, list[Damage]]:
    """The damage of each small file of one replica's directory; reads those that were not read before."""
    context, entries = plan.context, plan.directory.entries
    damage: dict[str, list[Damage]] = {}
    if context.leader_epochs is not None:
        damage[EPOCHS_FILE] = context.leader_epochs.damage
    if context.has_damaged_topic_id:
        metadata = inputs.read(plan.log_dir.source, entries[METADATA], parse_partition_metadata)
        damage[METADATA] = [] if metadata is None else metadata.damage
    if context.topic == CLUSTER_METADATA_TOPIC and (entry := entries.get("quorum-state")) is not None:
        damage["quorum-state"] = inputs.read(plan.log_dir.source, entry, quorum_state_damage) or []
    return damage


def missing_epochs(plan: ReplicaPlan, replica: Replica) -> list[Finding]:
    """`EPOCH_CACHE_MISMATCH` for a log with leader epochs but no `leader-epoch-checkpoint`, which other logs beside it have.

    A broker starts with an empty checkpoint then (CheckpointFile). After a clean shutdown it knows no epochs of this log, and
    truncates a follower to its high watermark; otherwise recovery restores those of the batches that it walks
    (`epochs_after_start`). It is an error of a tiered log: a leader deletes remote segments whose epochs it does not know. None for
    a directory without any small file, which is a copy of the logs alone.
    """
    context, epochs, entries = replica.context, replica.state.epochs, plan.directory.entries
    if replica.remote and not context.live and lacks_remote_epochs(replica):
        remote: EpochCacheEvidence = {
            "reason": "entry_missing",
            "in_remote_storage": True,
            "checkpoint": [[entry.leader_epoch, entry.start_offset] for entry in (context.epoch_checkpoint or ())[:_EPOCHS_LISTED]],
            "batches": [],
        }
        place = context.place()
        return [finding("EPOCH_CACHE_MISMATCH", place, remote, severity=Severity.ERROR, confidence=Confidence.INFERRED)]
    if EPOCHS_FILE in entries or not plan.log_dir.has_leader_epochs or context.live:
        return []
    if "partition.metadata" not in entries and not plan.directory.snapshots:
        return []
    if context.topic == CLUSTER_METADATA_TOPIC or epochs.batches_without_epoch or not replica.epochs:
        return []
    evidence: EpochCacheEvidence = {
        "reason": "entry_missing",
        "file_missing": True,
        "checkpoint": [],
        "batches": [[entry.leader_epoch, entry.start_offset] for entry in replica.epochs[:_EPOCHS_LISTED]],
        "epochs_after_start": [[entry.leader_epoch, entry.start_offset] for entry in brokers_epochs(replica)[:_EPOCHS_LISTED]],
    }
    place = context.place()
    return [finding("EPOCH_CACHE_MISMATCH", place, evidence, severity=Severity.WARNING, confidence=Confidence.INFERRED)]


def missing_topic_ids(plans: list[ReplicaPlan], replicas: list[Replica], inputs: Inputs) -> list[Finding]:
    """`TOPIC_ID_MISSING` for each replica under KRaft with, or once with, batches but no `partition.metadata`.

    A broker writes that file before it appends anything (UnifiedLog.maybeFlushMetadataFile), so a log that ends at offset 0 needs
    none. An empty log that ends above 0 has no records to lose, but its offsets start again: a warning. For a copy of the logs
    alone see `left_out_topic_ids`.
    """
    level = inputs.features.get("metadata.version")
    findings = []
    for plan, replica in zip(plans, replicas, strict=True):
        is_empty = not replica.state.framing.batches
        if (is_empty and not _was_emptied(replica, plan.directory)) or not _lacks_id(plan.log_dir, plan.directory):
            continue
        if _has_no_small_files(plan.log_dir, plan.directory):
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
    """`TOPIC_ID_MISSING`, once, for a log directory that was copied without small files."""
    directories = (part for part in log_dir.found.partitions if _lacks_id(log_dir, part) and _has_no_small_files(log_dir, part))
    lacking = [directory.name for directory in directories if any(log.entry.size_in_bytes for log in directory.logs())]
    if not lacking or is_without_log_dir(log_dir.found):
        return []
    evidence: TopicIdMissingEvidence = {"partitions": len(lacking), "examples": lacking[:EXAMPLES], "harmless_if": _NOT_COPIED}
    place = Place(broker=log_dir.broker, log_dir=log_dir.name)
    return [finding("TOPIC_ID_MISSING", place, evidence, severity=Severity.INFO, confidence=Confidence.SUSPECTED)]


def _lacks_id(log_dir: LogDir, directory: PartitionDirectory) -> bool:
    """Whether a live partition's directory has no `partition.metadata` under KRaft."""
    under_kraft = log_dir.meta is not None and log_dir.meta.version == _KRAFT
    is_replica = directory.is_replica and directory.topic != CLUSTER_METADATA_TOPIC
    return under_kraft and is_replica and METADATA not in directory.entries


def _was_emptied(replica: Replica, directory: PartitionDirectory) -> bool:
    """Whether a log without batches once had some, which were deleted rather than lost or not read."""
    damage = {kind for kind, sample in replica.state.framing.damage.items() if sample}
    has_only_tail = damage <= kinds_with(Trait.IS_TAIL) and all(segment.log for segment in directory.segments)
    return replica.read is ReadExtent.WHOLE and has_only_tail and replica.log_end_offset > 0


def _has_no_small_files(log_dir: LogDir, directory: PartitionDirectory) -> bool:
    """Whether a partition was copied without its small files, like all others beside it."""
    return not log_dir.has_topic_ids and EPOCHS_FILE not in directory.entries and not directory.snapshots


def known_topic_id(plan: ReplicaPlan, plans: list[ReplicaPlan]) -> "TopicIdMissingEvidence":
    """The topic id in the controllers' log, else in all copies of the same cluster that have one; empty if they disagree."""
    control = plan.context.control
    if control is not None and control.topic_id is not None:
        return {"topic_id": control.topic_id, "topic_id_sources": [CLUSTER_METADATA_TOPIC]}
    meta = plan.log_dir.meta
    cluster = None if meta is None else meta.cluster_id
    copies = {
        other.context.broker: other.context.topic_id
        for other in plans
        if other.context.topic_id is not None and other.log_dir.meta is not None and other.log_dir.meta.cluster_id == cluster
    }
    if len(set(copies.values())) != 1:
        return {}
    return {"topic_id": next(iter(copies.values())), "topic_id_sources": [f"broker {broker}" for broker in copies]}
