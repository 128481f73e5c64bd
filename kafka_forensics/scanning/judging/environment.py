"""Findings about the copies themselves: names, odd entries, identities, missing files, files that changed meanwhile."""

import os
from typing import TYPE_CHECKING

from kafka_forensics.analysis.kinds import finding
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import brokers_epochs, lacks_remote_epochs
from kafka_forensics.evidence.inputs import CHECKPOINTS, METADATA, Inputs, LogDir, ReplicaPlan, misnamed
from kafka_forensics.evidence.ledger import lost_directory_ids
from kafka_forensics.model.batches import Damage
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity
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
from kafka_forensics.replication.small_files import ABSENT, BOOTSTRAP, CLEAN_SHUTDOWN, EMPTY, META_PROPERTIES, STOPPING, outcome_of
from kafka_forensics.scanning.judging.topic_ids import known_topic_id, left_out_topic_ids
from kafka_forensics.storage.source import Entry

if TYPE_CHECKING:
    from kafka_forensics.analysis.kinds.evidence_classes import ChangedEvidence, EpochCacheEvidence, IndexMissingEvidence
    from kafka_forensics.model.json_objects import Json

NAMES_LISTED = 16
_EPOCHS_TOLD = 64
SPARSE_BYTES = 1 << 20
"""A `.log` with at least this many bytes in holes is called sparse."""


def environment_findings(inputs: Inputs) -> list[Finding]:
    """Everything that is said of log directories rather than of replicas."""
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
            known = ids.setdefault(str(log_dir.broker), log_dir.meta.cluster_id)
            ids |= {} if known == log_dir.meta.cluster_id else {log_dir.name: log_dir.meta.cluster_id}
    if len(set(ids.values())) > 1:
        findings.append(finding("CLUSTER_ID_MISMATCH", Place(), {"cluster_ids": ids}))
    for broker, names in inputs.clashes:
        findings.append(finding("NODE_ID_CLASH", Place(broker=broker), {"node_id": broker, "log_dirs": names}))
    for node, node_ids, names in misnamed(inputs.log_dirs):
        evidence = {"node_ids": node_ids, "named": node, "log_dirs": names}
        findings.append(finding("NODE_ID_MISMATCH", Place(broker=node, log_dir=names[0], file="meta.properties"), evidence))
    return findings


def changed_findings(inputs: Inputs) -> list[Finding]:
    """`EVIDENCE_CHANGED` for each file that is not what it was when first seen; asked for at the end."""
    findings = []
    for path, before, after in inputs.manifest.changes():
        evidence: ChangedEvidence = {
            "before": {"size": before.size_in_bytes, "mtime_ns": before.mtime_ns},
            "after": None if after is None else {"size": after.size_in_bytes, "mtime_ns": after.mtime_ns},
        }
        findings.append(finding("EVIDENCE_CHANGED", _place_of(path, inputs), evidence))
    return findings


def _place_of(path: str, inputs: Inputs) -> Place:
    """The place of a file that the manifest names by its whole path; of an archive, only that path."""
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
    live = [partition for partition in log_dir.found.partitions if partition.legal and partition.suffix is None]
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
    """What is wrong with `meta.properties`. It is not there, though checkpoints or a `quorum-state` are: the copy may lack it, or
    the disk. Or the controllers know the log directory by an id that it does not have."""
    meta, entries = log_dir.meta, log_dir.found.entries
    if meta is None:
        voted = any("quorum-state" in directory.entries for directory in log_dir.found.partitions)
        is_absent = META_PROPERTIES not in entries and (voted or any(file in entries for file in CHECKPOINTS))
        damage = [Damage("CHECKPOINT_MALFORMED", 0, 0, detail={"reason": ABSENT})] if is_absent else []
    else:
        damage = meta.damage
    known = _identity(log_dir, inputs) if damage or (meta is not None and meta.directory_id is None) else {}
    if not damage and "directory_id" in known:
        damage = [Damage("CHECKPOINT_MALFORMED", 0, 0, detail={"reason": "missing", "key": "directory.id"})]
    return _malformed(damage, log_dir.broker, log_dir.name, META_PROPERTIES, entries.get(META_PROPERTIES), known)


def log_dir_damage(log_dir: LogDir) -> dict[str, list[Damage]]:
    """What is wrong with each small file of a log directory itself. A broker makes offset checkpoints without bytes when it first
    starts; those of high watermarks and log starts are noted where that of recovery points is filled.
    """
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
    """`links`: directory of a partition that is a link → where it leads, behind a slash."""
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
    """One finding a log directory: how many segments lack `.index` or `.timeindex`."""
    lacking: list[str] = []
    for directory in log_dir.found.partitions:
        if not directory.legal or directory.suffix is not None:
            continue
        lacking += [
            f"{directory.name}/{segment.log.name}"
            for segment in directory.segments
            if segment.log is not None
            and (segment.index is None or segment.time_index is None)
            and segment.log.path
            and segment.log.unreadable is None
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
    known: "Json",
    place: Place | None = None,
) -> list[Finding]:
    """One `CHECKPOINT_MALFORMED` a file, named as in its log directory, with its first damage, how many there are, and what a start
    does with it: an error where it does not serve all logs. `known` is what others say that it should say."""
    if not damage:
        return []
    first = damage[0]
    outcome = outcome_of(file, damage, None if entry is None else entry.size_in_bytes)
    evidence: Json = dict(first.detail) | {"places": len(damage), "on_start": outcome.value}
    if entry is not None and not entry.size_in_bytes:
        evidence["empty"] = True
    if outcome in STOPPING:
        evidence |= {"starts": False, **known}
    where = place or Place(
        broker=broker, log_dir=name, file=file, byte_start=first.position, byte_end=first.position + first.size_in_bytes
    )
    if first.detail.get("reason") in (ABSENT, EMPTY) and file != HIGH_WATERMARK_FILE:
        return [finding(first.kind, where, evidence, severity=Severity.INFO, confidence=Confidence.SUSPECTED)]
    return [finding(first.kind, where, evidence, severity=None if outcome in STOPPING else Severity.WARNING)]


def _identity(log_dir: LogDir, inputs: Inputs) -> "Json":
    """What a log directory's `meta.properties` should say, as far as others prove it: the cluster's id by all other directories,
    the node's by the name it was given, the directory's own by the controllers' log."""
    others = [other for other in inputs.log_dirs if other is not log_dir and other.meta is not None and not other.meta.damage]
    clusters = {other.meta.cluster_id for other in others if other.meta is not None}
    known: Json = {"cluster_id": clusters.pop()} if len(clusters) == 1 else {}
    node = log_dir.broker if isinstance(log_dir.broker, int) or log_dir.broker.isdecimal() else None
    if node is None:
        return known
    held = {(directory.topic, directory.partition) for directory in log_dir.found.partitions if directory.suffix is None}
    lost = lost_directory_ids(inputs.controller, int(node), {other.meta.directory_id for other in others if other.meta is not None})
    directories = {directory for place, directory in lost.items() if place in held}
    return known | {"node_id": int(node)} | ({"directory_id": directories.pop()} if len(directories) == 1 else {})


def replica_file_findings(plan: ReplicaPlan, plans: list[ReplicaPlan], inputs: Inputs) -> list[Finding]:
    """Damage in the small files of one replica's directory; `plans` are those of all replicas of the partition."""
    context, entries = plan.context, plan.directory.entries
    findings = []
    for file, damage in partition_damage(plan, inputs).items():
        known: Json = {**known_topic_id(plan, plans)} if file == METADATA and damage else {}
        place = context.place(file)
        findings += _malformed(
            damage, context.broker, context.log_dir, f"{context.directory}/{file}", entries.get(file), known, place
        )
    return findings


def partition_damage(plan: ReplicaPlan, inputs: Inputs) -> dict[str, list[Damage]]:
    """What is wrong with each small file of one replica's directory; those that nobody has read so far are read."""
    context, entries = plan.context, plan.directory.entries
    damage: dict[str, list[Damage]] = {}
    if context.leader_epochs is not None:
        damage[EPOCHS_FILE] = context.leader_epochs.damage
    if context.topic_id_damaged:
        metadata = inputs.read(plan.log_dir.source, entries[METADATA], parse_partition_metadata)
        damage[METADATA] = [] if metadata is None else metadata.damage
    if context.topic == CLUSTER_METADATA_TOPIC and (entry := entries.get("quorum-state")) is not None:
        damage["quorum-state"] = inputs.read(plan.log_dir.source, entry, quorum_state_damage) or []
    return damage


def missing_epochs(plan: ReplicaPlan, replica: Replica) -> list[Finding]:
    """`EPOCH_CACHE_MISMATCH`, a warning, where a log with leader epochs has no `leader-epoch-checkpoint` and others beside it have:
    Kafka begins with an empty one (CheckpointFile). After an orderly stop it knows no epochs of this log then, and cuts a follower
    at its high watermark; else its recovery takes them from the batches it walks. `epochs_after_start` has those it then knows.

    It is an error of a log in remote storage: as a leader the broker deletes the segments there, whose epochs it does not know.
    Nothing is said of a directory without any small file: such a copy is of the logs alone.
    """
    context, epochs, entries = replica.context, replica.state.epochs, plan.directory.entries
    if replica.remote and not context.live and lacks_remote_epochs(replica):
        forgotten: EpochCacheEvidence = {
            "reason": "entry_missing",
            "in_remote_storage": True,
            "checkpoint": [[entry.leader_epoch, entry.start_offset] for entry in (context.epoch_checkpoint or ())[:_EPOCHS_TOLD]],
            "batches": [],
        }
        return [
            finding("EPOCH_CACHE_MISMATCH", context.place(), forgotten, severity=Severity.ERROR, confidence=Confidence.INFERRED)
        ]
    if EPOCHS_FILE in entries or not plan.log_dir.has_leader_epochs or context.live:
        return []
    if "partition.metadata" not in entries and not plan.directory.snapshots:
        return []
    if context.topic == CLUSTER_METADATA_TOPIC or epochs.batches_without_epoch or not replica.epochs:
        return []
    batches = [[entry.leader_epoch, entry.start_offset] for entry in replica.epochs[:_EPOCHS_TOLD]]
    known = [[entry.leader_epoch, entry.start_offset] for entry in brokers_epochs(replica)[:_EPOCHS_TOLD]]
    evidence: EpochCacheEvidence = {
        "reason": "entry_missing",
        "file_missing": True,
        "checkpoint": [],
        "batches": batches,
        "epochs_after_start": known,
    }
    place = context.place()
    return [finding("EPOCH_CACHE_MISMATCH", place, evidence, severity=Severity.WARNING, confidence=Confidence.INFERRED)]
