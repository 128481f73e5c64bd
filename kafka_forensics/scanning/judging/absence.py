"""Replicas without a copy: the ledger of expected replicas in a scan, and the findings about it."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.kinds import finding, with_premises
from kafka_forensics.analysis.replicas import electable, has_log
from kafka_forensics.evidence.inputs import Inputs, LogDir, read_leader_epochs
from kafka_forensics.evidence.ledger import (
    CONTROLLER,
    HIGH_WATERMARKS,
    UNSEEN,
    CopyExtent,
    DirectoryReading,
    ExpectedReplica,
    GivenDirectory,
    Ledger,
    Presence,
)
from kafka_forensics.evidence.options import ScanOptions, may_match
from kafka_forensics.evidence.paths import is_without_log_dir
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS, REMOTE_LOG_METADATA_TOPIC, WITNESS_TOPICS
from kafka_forensics.model.controller import ControllerHistory, unknown_records_premises
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity, TopicPartition
from kafka_forensics.model.offset_ranges import normalised, without
from kafka_forensics.model.results import Incomplete, PartitionSummary, ReadExtent
from kafka_forensics.parsers.log_dir import PartitionDirectory, parse_partition_name
from kafka_forensics.replication.recovery import LOG_START_FILE
from kafka_forensics.scanning.judging.quorum import Quorum, voters_end
from kafka_forensics.scanning.witnesses.remote_stores import RemoteStores, list_remote_stores
from kafka_forensics.storage.bundles import BundleSource
from kafka_forensics.storage.source import EntryKind

if TYPE_CHECKING:
    from kafka_forensics.analysis.kinds.evidence_classes import (
        PartialCopyEvidence,
        ReplicaMissingEvidence,
        ReplicaNotGivenEvidence,
        TopicUnknownEvidence,
        WipedEvidence,
    )
    from kafka_forensics.model.json_objects import Json

_FIRST_TO_SET_ASIDE: Final = 15
"""`metadata.version` 3.7-IV0, from which brokers rename stray directories to `-stray`."""
EXAMPLES: Final = 6
"""Partitions named for each broker, internal topics last."""
NAMES_LISTED: Final = 16
_TOPIC_DELETED: Final = "the controller's log shows that the topic was deleted"
_MOVED: Final = "the controller's log shows that the replica was moved away"
_NOT_RUN_SINCE: Final = (
    "the broker has not run since the replica was assigned to it; when it starts, it copies the replica from the leader"
)
_DELETED_LONG_AGO: Final = "the topic was deleted before the controller's oldest snapshot, while this broker was down"
_MADE_EARLIER: Final = "the other copies were made before that checkpoint was written, while their brokers ran"


def ledger_of(inputs: Inputs, controller: ControllerHistory | None, copied: CopyExtent | None = None) -> Ledger:
    """The ledger of the inputs; `copied`: what the user says was copied of every log directory."""
    clusters = controllers_clusters(inputs)
    return Ledger([_given_directory(log_dir, clusters) for log_dir in inputs.log_dirs], controller, copied)


def controllers_clusters(inputs: Inputs) -> frozenset[str | None]:
    """Cluster ids of the copies of the controllers' log; None for a copy without one."""
    return frozenset(_cluster(plan.log_dir) for plan in inputs.internal if plan.context.topic == CLUSTER_METADATA_TOPIC)


def _cluster(log_dir: LogDir) -> str | None:
    return None if log_dir.meta is None else log_dir.meta.cluster_id


def nodes_with_copies(inputs: Inputs) -> frozenset[int] | None:
    """Ids of the nodes whose log directories are among the inputs; None if a directory has no node id."""
    nodes = {log_dir.node_id for log_dir in inputs.log_dirs}
    known = frozenset(node for node in nodes if node is not None)
    return known if len(known) == len(nodes) else None


def _present(log_dir: LogDir) -> dict[TopicPartition, Presence]:
    """The presence of every partition that has a directory, or something in its place."""
    listed = log_dir.found
    present = {
        _key(directory): Presence.UNREADABLE if log_dir.logs_left_out else _presence(directory)
        for directory in listed.partitions
        if directory.is_replica
    }
    links = [name for entry in listed.irregular if (name := parse_partition_name(entry.name)) is not None]
    for names, case in ((listed.unlisted, Presence.UNREADABLE), (listed.repeated, Presence.WHOLE), (links, Presence.LINK)):
        present |= {(name.topic, name.partition): case for name in names if name.suffix is None}
    return present


def _key(directory: PartitionDirectory) -> TopicPartition:
    return directory.topic or "", directory.partition or 0


def _given_directory(log_dir: LogDir, controllers: frozenset[str | None]) -> GivenDirectory:
    watermarks, log_starts = (log_dir.checkpoints.get(name) for name in (HIGH_WATERMARKS, LOG_START_FILE))
    meta, partitions = log_dir.meta, log_dir.found.partitions
    return GivenDirectory(
        log_dir.broker,
        log_dir.name,
        log_dir.node_id,
        None if meta is None else meta.directory_id,
        _present(log_dir),
        frozenset(_key(directory) for directory in partitions if directory.suffix in ("delete", "stray")),
        {} if watermarks is None else watermarks.offsets,
        meta is not None,
        bool(log_dir.checkpoints) or any(name.endswith("-checkpoint") for name in log_dir.found.entries),
        is_without_log_dir(log_dir.found),
        log_dir.clean_shutdown is not None,
        controllers != {_cluster(log_dir)} or meta is None,
        CopyExtent.PARTIAL if isinstance(log_dir.source, BundleSource) and log_dir.source.about.is_selected else None,
        log_dir.is_empty,
        {} if log_starts is None else log_starts.offsets,
    )


def _presence(directory: PartitionDirectory) -> Presence:
    if any(entry.kind is not EntryKind.FILE and entry.name.endswith(".log") for entry in directory.irregular):
        return Presence.LINK
    has_bytes = any(log.entry.size_in_bytes for log in directory.logs())
    return Presence.WHOLE if has_bytes or any(segment.base_offset for segment in directory.segments) else Presence.EMPTY


def take_expectations(inputs: Inputs, ledger: Ledger) -> None:
    """Set `without_copy` of all replicas: the replicas of their partitions without a copy."""
    without: dict[TopicPartition, list[ExpectedReplica]] = {}
    for plan in inputs.replicas:
        key = plan.context.topic_partition
        if key not in without:
            without[key] = ledger.rows_without_copy(*key)
        plan.context.without_copy = without[key]


def lost_partitions(inputs: Inputs, ledger: Ledger) -> dict[TopicPartition, list[ExpectedReplica]]:
    """Partitions without any directory that should be in the given log directories → absent replicas that may have held records."""
    found = (part for log_dir in inputs.log_dirs for part in log_dir.found.partitions if part.suffix is None)
    served = {(part.topic, part.partition) for part in found}
    absent: dict[TopicPartition, list[ExpectedReplica]] = {}
    for row in ledger.without_copy():
        has_directory = row.key in served if _is_in_remote_storage(row, inputs) else ledger.has_directory(row.key)
        if row.presence is Presence.ABSENT and not has_directory and _may_have_held_records(row, inputs):
            absent.setdefault(row.key, []).append(row)
    for row in _known_by_remote_log(inputs, ledger):
        if row.key not in served:
            absent.setdefault(row.key, []).append(row)
    return absent


def _known_by_remote_log(inputs: Inputs, ledger: Ledger) -> Iterable[ExpectedReplica]:
    """Replicas that copied a partition's last remote segment, on brokers whose log directories were given whole; none if the
    controllers' log names the replicas."""
    if inputs.controller is not None or inputs.remote_log is None:
        return
    directories = (reading.directory for reading in ledger.readings if reading.extent is not CopyExtent.PARTIAL)
    given = {directory.node_id: directory.broker for directory in directories}
    for log in inputs.remote_log.logs.values():
        last = max(log.finished, key=lambda segment: segment.event_timestamp_ms, default=None)
        if last is not None and last.broker_id in given:
            broker, expected_by = given[last.broker_id], (REMOTE_LOG_METADATA_TOPIC,)
            yield ExpectedReplica(log.topic, log.partition, broker, Presence.ABSENT, expected_by, node=last.broker_id)


def _is_in_remote_storage(row: ExpectedReplica, inputs: Inputs) -> bool:
    """Whether the partition has remote segments; a broker that starts without its directory deletes them, set aside or not."""
    log = None if inputs.remote_log is None else inputs.remote_log.log_of(*row.key)
    return log is not None and bool(log.finished)


def _may_have_held_records(row: ExpectedReplica, inputs: Inputs) -> bool:
    """By the high watermark checkpoint, which names every replica with committed records; without one, by the controllers."""
    should_exist = not row.is_deleted and row.is_assigned is not False
    if HIGH_WATERMARKS in row.expected_by:
        return should_exist
    if should_exist and _is_in_remote_storage(row, inputs):
        return True
    of_row = [log_dir for log_dir in inputs.log_dirs if (log_dir.broker, log_dir.name) == (row.broker, row.log_dir)]
    if any(HIGH_WATERMARKS in log_dir.checkpoints for log_dir in of_row):
        return False
    control = None if inputs.controller is None else inputs.controller.partitions.get(row.key)
    return control is not None and (control.isr is None or row.node in electable(control))


def _by_partition(rows: Iterable[ExpectedReplica]) -> dict[TopicPartition, list[ExpectedReplica]]:
    by_partition: dict[TopicPartition, list[ExpectedReplica]] = {}
    for row in rows:
        by_partition.setdefault(row.key, []).append(row)
    return by_partition


def may_be_lost(inputs: Inputs, ledger: Ledger) -> frozenset[TopicPartition]:
    """The partitions whose verdicts `absence_findings` may change, as far as that is known before any log is read."""
    absent = {key for key, rows in _by_partition(ledger.without_copy()).items() if _proving(rows, inputs)}
    return frozenset(absent | {(topic, partition) for topic, partition, _ in unknown_to_controller(inputs)})


def absence_findings(
    inputs: Inputs,
    ledger: Ledger,
    partitions: Sequence[PartitionSummary],
    options: ScanOptions,
    incomplete: Sequence[Incomplete],
    *,
    quorum: Quorum | None,
    hidden: bool,
) -> list[Finding]:
    """Findings about replicas without a copy; sets the verdict and high watermark of `partitions` whose records are in no copy.

    Absence alone proves no loss. A checkpoint must prove what the replica held, and no copy may be on a broker that was not given,
    or `hidden` in something unreadable that may be a log directory.
    """
    rows = list(ledger.without_copy())
    findings = [_missing(row, inputs, ledger) for row in rows if _has_finding(row, inputs.controller)]
    findings = [finding for finding in findings if may_match(finding.place, options)]
    by_key = _by_partition(rows)
    if options.broker is None and not hidden:
        findings += [finding for finding in _lost_everywhere(inputs, ledger, by_key) if may_match(finding.place, options)]
    if options.broker is None and not hidden and not options.live:
        findings += _lost_beyond_copies(inputs, by_key, partitions, incomplete)
    findings += _incomplete_copy_findings(ledger, rows, options) + _not_given(inputs, rows, ledger, quorum)
    findings += [finding for finding in _without_logs(inputs) if may_match(finding.place, options)]
    if (options.topic_glob, options.partition, options.broker) == (None, None, None):
        findings += _all_empty(inputs, partitions)
    return findings + _unknown_to_controller(inputs, partitions)


def _has_finding(row: ExpectedReplica, controller: ControllerHistory | None) -> bool:
    """Whether `REPLICA_MISSING` is reported for an absent replica.

    Replicas of a wiped log directory are counted with it. If only the controllers expect a replica and may elect it, a finding
    about what its log lacks replaces this one.
    """
    if row.presence is not Presence.ABSENT or row.is_wiped:
        return False
    if HIGH_WATERMARKS in row.expected_by:
        return True
    if row.is_set_aside:
        return False
    control = None if controller is None else controller.partitions.get(row.key)
    return CONTROLLER in row.expected_by and control is not None and control.isr is not None and row.node not in electable(control)


def _missing(row: ExpectedReplica, inputs: Inputs, ledger: Ledger) -> Finding:
    """`REPLICA_MISSING`: a checkpoint or the controllers' log names a replica that has no directory."""
    evidence: ReplicaMissingEvidence = {"expected_by": list(row.expected_by)}
    evidence |= {"high_watermark": row.high_watermark} if row.high_watermark else {}
    evidence |= {"never_known": True} if row.never_known else {}
    renamed_directories = _renamed_directories(row, inputs)
    evidence |= {"also_in": renamed_directories[:NAMES_LISTED]} if renamed_directories else {}
    severity = None
    if HIGH_WATERMARKS not in row.expected_by:
        severity, evidence["harmless_if"] = Severity.INFO, _NOT_RUN_SINCE
    elif row.is_deleted and not ledger.has_directory(row.key):
        severity, evidence["harmless_if"] = Severity.INFO, _TOPIC_DELETED
    elif row.is_assigned is False:
        severity, evidence["harmless_if"] = Severity.INFO, _MOVED
    start = None if row.high_watermark is None else min(row.log_start_offset, row.high_watermark)
    place = Place(row.topic, row.partition, row.broker, row.log_dir, offset_start=start, offset_end=row.high_watermark)
    return finding("REPLICA_MISSING", place, evidence, severity=severity)


def _renamed_directories(row: ExpectedReplica, inputs: Inputs) -> list[str]:
    """The partition's `-delete`, `-stray` and `-future` directories on the same broker."""
    renamed_directories = inputs.renamed_directories.get(row.key, [])
    return [f"{log_dir.name}/{directory.name}" for log_dir, directory in renamed_directories if log_dir.broker == row.broker]


def _proving(rows: Iterable[ExpectedReplica], inputs: Inputs) -> list[ExpectedReplica]:
    """Absent replicas of a partition whose checkpoint proves what it held; none if its records may be in what was not read."""
    all_rows = list(rows)
    if any(row.presence in UNSEEN for row in all_rows):
        return []
    absent = [row for row in all_rows if row.presence is Presence.ABSENT and HIGH_WATERMARKS in row.expected_by]
    absent = [row for row in absent if row.is_assigned is not False]
    return [] if any(_renamed_directories(row, inputs) for row in absent) else absent


def _lost_everywhere(inputs: Inputs, ledger: Ledger, by_key: dict[TopicPartition, list[ExpectedReplica]]) -> list[Finding]:
    """`COMMITTED_LOST_EVERYWHERE` for partitions without any directory that checkpoints of several brokers name."""
    findings = []
    stores = list_remote_stores(inputs) if by_key else RemoteStores()
    for key, rows in by_key.items():
        if ledger.has_directory(key) or any(row.is_deleted for row in rows):
            continue
        absent = _proving(rows, inputs)
        if len({str(row.broker) for row in absent}) < 2:
            continue
        best = max(absent, key=lambda row: row.high_watermark or 0)
        start, end = max(row.log_start_offset for row in absent), best.high_watermark or 0
        if start >= end:
            continue
        evidence: Json = {
            "missing": end - start,
            "high_watermark": best.high_watermark,
            "witness": f"{HIGH_WATERMARKS} of broker {best.broker}",
            "directories_missing_on": [row.broker for row in absent],
            "held_by": [],
        }
        evidence |= _in_remote_storage(key, (start, end), inputs, stores)
        if any(row.never_known for row in absent):
            evidence["never_known"] = True
        elif inputs.controller is None:
            evidence["harmless_if"] = "the topic was deleted within seconds before the copies were made"
        place = Place(*key, offset_start=start, offset_end=end)
        findings.append(finding("COMMITTED_LOST_EVERYWHERE", place, evidence, confidence=Confidence.INFERRED))
    return findings


def _in_remote_storage(key: TopicPartition, offsets: tuple[int, int], inputs: Inputs, stores: RemoteStores) -> "Json":
    """Evidence: remote segments with these offsets, and the offsets that they lack; empty without any.

    They are finished by `__remote_log_metadata`, and in the store if one was given; without any event, those in the store.
    """
    log = None if inputs.remote_log is None else inputs.remote_log.log_of(*key)
    start, end = offsets
    if log is None:
        control = None if inputs.controller is None else inputs.controller.partitions.get(key)
        stored = None if control is None else stores.logs.get((control.topic_id or "", key[1]))
        return {"in_remote_storage": True, "remote_segments_count": len(stored.segments)} if stored else {}
    segments = [segment for segment in log.finished if segment.start_offset < end and segment.end_offset >= start]
    if stores and (objects := stores.log_of(log)) is not None:
        segments = [segment for segment in segments if has_log(segment, objects)]
    if not segments:
        return {}
    rest = without(((start, end),), normalised(segment.offsets for segment in segments))
    missing = {"not_in_remote_storage": [list(part) for part in rest]} if rest else {}
    return {"in_remote_storage": True, "remote_segments_count": len(segments)} | missing


def remote_metadata_is_lost(inputs: Inputs, ledger: Ledger) -> bool:
    """Whether a partition of `__remote_log_metadata` that a given log directory should have is in none of them."""
    return any(topic == REMOTE_LOG_METADATA_TOPIC for topic, _ in lost_partitions(inputs, ledger))


def _lost_beyond_copies(
    inputs: Inputs,
    by_key: dict[TopicPartition, list[ExpectedReplica]],
    partitions: Sequence[PartitionSummary],
    incomplete: Sequence[Incomplete],
) -> list[Finding]:
    """`COMMITTED_LOST_EVERYWHERE` for partitions with an absent replica whose checkpoint reaches beyond all their logs.

    None if a log could not be read to its end, or the copies are of several topics or clusters.
    """
    lost = []
    facts, unread_paths = _BrokerFacts(inputs.log_dirs), sorted(unread.path for unread in incomplete)
    ids: dict[TopicPartition, set[str]] = {}
    for context in (plan.context for plan in inputs.replicas if plan.context.topic_id is not None):
        ids.setdefault(context.topic_partition, set()).add(context.topic_id or "")
    for summary in partitions:
        key = (summary.topic, summary.partition)
        absent = _proving(by_key.get(key, ()), inputs)
        if not absent or len(ids.get(key, ())) > 1 or summary.read is not ReadExtent.WHOLE:
            continue
        if any(_has_prefix(unread_paths, f"{replica.log_dir}/{replica.directory}/") for replica in summary.replicas):
            continue
        if (beyond := _beyond_every_log(facts, summary, absent)) is not None:
            lost.append(beyond)
            summary.high_watermark_at_least = beyond.evidence["high_watermark"]
            summary.high_watermark_witness = beyond.evidence["witness"]
            summary.verdict = Severity.CRITICAL.value
    return lost


def _has_prefix(ordered: Sequence[str], prefix: str) -> bool:
    """Whether one of the paths, which are in order, begins with `prefix`."""
    following = bisect_left(ordered, prefix)
    return following < len(ordered) and ordered[following].startswith(prefix)


class _BrokerFacts:
    """The cluster ids of all log directories of each broker, and of each log directory; and the brokers that may run."""

    def __init__(self, log_dirs: Iterable[LogDir]) -> None:
        self.of_broker: dict[int | str, set[str | None]] = {}
        self.of_log_dir: dict[tuple[int | str, str | None], set[str | None]] = {}
        self.running: set[int | str] = set()
        for log_dir in log_dirs:
            self.of_broker.setdefault(log_dir.broker, set()).add(_cluster(log_dir))
            self.of_log_dir.setdefault((log_dir.broker, log_dir.name), set()).add(_cluster(log_dir))
            self.running |= {log_dir.broker} if log_dir.clean_shutdown is None else set()


def _beyond_every_log(facts: _BrokerFacts, summary: PartitionSummary, absent: Sequence[ExpectedReplica]) -> Finding | None:
    """The finding if the checkpoint of an absent replica proves records committed that no log has."""
    best = max(absent, key=lambda row: row.high_watermark or 0)
    committed, end = best.high_watermark or 0, max(replica.log_end_offset or 0 for replica in summary.replicas)
    brokers = {replica.broker for replica in summary.replicas}
    of_witness = facts.of_log_dir.get((best.broker, best.log_dir), set())
    clusters = of_witness.union(*(facts.of_broker.get(broker, ()) for broker in brokers)) - {None}
    start = max(end, *(row.log_start_offset for row in absent))
    if committed <= start or len(clusters) > 1:
        return None
    running = not brokers.isdisjoint(facts.running)
    evidence = {
        "missing": committed - start,
        "high_watermark": committed,
        "witness": f"{HIGH_WATERMARKS} of broker {best.broker}",
        "log_end_offset": end,
        "directories_missing_on": [row.broker for row in absent],
        "held_by": [],
    } | ({"harmless_if": _MADE_EARLIER} if running else {})
    place = Place(summary.topic, summary.partition, offset_start=start, offset_end=committed)
    confidence = Confidence.SUSPECTED if running else Confidence.INFERRED
    return finding("COMMITTED_LOST_EVERYWHERE", place, evidence, confidence=confidence)


def _incomplete_copy_findings(ledger: Ledger, rows: Sequence[ExpectedReplica], options: ScanOptions) -> list[Finding]:
    """Findings about incomplete log directories: one `PARTIAL_COPY` a broker, one `LOG_DIR_WIPED` a log directory; counts only
    replicas that a limited scan includes."""
    replicas = [row for row in rows if may_match(Place(row.topic, row.partition, row.broker), options)]
    findings = []
    partial: dict[int | str, list[DirectoryReading]] = {}
    for reading in ledger.readings:
        directory = reading.directory
        if reading.extent is CopyExtent.PARTIAL and not directory.is_without_log_dir:
            partial.setdefault(directory.broker, []).append(reading)
        elif reading.extent is CopyExtent.WIPED:
            wiped_replicas = [
                row for row in replicas if row.is_wiped and (row.broker, row.log_dir) == (directory.broker, directory.name)
            ]
            nothing_expected = not rows and ledger.is_empty
            if wiped_replicas or nothing_expected or directory.is_empty:
                findings.append(_wiped(reading, Place(broker=directory.broker, log_dir=directory.name), wiped_replicas))
    for broker, readings in partial.items():
        absent = [row.key for row in replicas if row.presence is Presence.NOT_COPIED and row.broker == broker]
        if not absent:
            continue
        directories = [reading.directory for reading in readings]
        evidence: PartialCopyEvidence = {
            "partitions": len(absent),
            "there": sum(topic not in WITNESS_TOPICS for directory in directories for topic, _ in directory.partitions),
            "examples": _examples(absent),
            "log_dirs": [directory.name for directory in directories],
            "reasons": sorted({reading.reason for reading in readings}),
        }
        findings.append(finding("PARTIAL_COPY", Place(broker=broker), evidence))
    return findings


def _without_logs(inputs: Inputs) -> list[Finding]:
    """`PARTIAL_COPY` for each log directory that was copied without its `.log` files."""
    findings = []
    for log_dir in inputs.log_dirs:
        if log_dir.logs_left_out:
            keys = [_key(part) for part in log_dir.found.partitions if part.is_replica]
            evidence: PartialCopyEvidence = {
                "partitions": len(keys),
                "there": 0,
                "examples": _examples(keys),
                "log_dirs": [log_dir.name],
                "reasons": ["no_logs"],
                "without_logs": True,
            }
            place = Place(broker=log_dir.broker, log_dir=log_dir.name)
            findings.append(finding("PARTIAL_COPY", place, evidence, severity=Severity.WARNING))
    return findings


def _wiped(reading: DirectoryReading, place: Place, wiped_replicas: Sequence[ExpectedReplica]) -> Finding:
    evidence: WipedEvidence = {"node_id": reading.directory.node_id}
    evidence |= {"is_empty": True} if reading.directory.is_empty else {}
    evidence |= {"examples": _examples([row.key for row in wiped_replicas])} if wiped_replicas else {}
    if any(row.is_assigned for row in wiped_replicas):
        evidence |= {"replicas": len(wiped_replicas), "expected_by": [CONTROLLER]}
        return finding("LOG_DIR_WIPED", place, evidence)
    evidence |= {"may_have_held": len(wiped_replicas)} if wiped_replicas else {}
    evidence |= {"harmless_if": "the broker is new, or the disk was just added and is still empty"}
    severity = Severity.INFO if reading.directory.is_empty and not wiped_replicas else None
    return finding("LOG_DIR_WIPED", place, evidence, severity=severity, confidence=Confidence.SUSPECTED)


def _all_empty(inputs: Inputs, partitions: Sequence[PartitionSummary]) -> list[Finding]:
    """`ALL_LOGS_EMPTY`: no scanned log ever had a record, as far as files show, though leaders were elected."""
    scanned = [partition for partition in partitions if partition.topic != CLUSTER_METADATA_TOPIC]
    if any(replica.log_end_offset != 0 for partition in scanned for replica in partition.replicas):
        return []
    keys = {(partition.topic, partition.partition) for partition in scanned}
    epochs = [0]
    for plan in inputs.replicas:
        if plan.context.topic_partition in keys:
            read_leader_epochs(inputs, plan)  # a replica that another process folded lacks them here
            epochs += [entry.leader_epoch for entry in (plan.context.leader_epochs.entries if plan.context.leader_epochs else ())]
    if max(epochs) <= 0:
        return []
    internal_topics = sorted({partition.topic for partition in scanned} & INTERNAL_TOPICS) or None
    evidence: Json = {"partitions": len(keys), "leader_epoch": max(epochs), "internal_topics": internal_topics}
    return [finding("ALL_LOGS_EMPTY", Place(), evidence)]


def _examples(keys: Iterable[TopicPartition]) -> list[str]:
    ordered = sorted(keys, key=lambda key: (key[0] in INTERNAL_TOPICS, *key))
    return [f"{topic}-{partition}" for topic, partition in ordered[:EXAMPLES]]


def _not_given(inputs: Inputs, rows: Sequence[ExpectedReplica], ledger: Ledger, quorum: Quorum | None) -> list[Finding]:
    """`REPLICA_NOT_GIVEN` for each broker whose assigned replicas are in no given log directory, and for each such voter of the
    controllers' quorum if other voters were given. A limited scan counts only partitions that it reads."""
    controller = inputs.controller
    if controller is None or not ledger.all_nodes_known:
        return []
    requested = _partitions_of_limited_scan(inputs)
    by_node: dict[int, list[ExpectedReplica]] = {}
    for row in rows:
        if row.presence is Presence.NOT_GIVEN and row.node is not None and (requested is None or row.key in requested):
            by_node.setdefault(row.node, []).append(row)
    voters = quorum.not_given if quorum is not None and quorum.given_voters and requested is None else []
    for voter in voters:
        by_node.setdefault(voter, [])
    findings = []
    for node, of_node in sorted(by_node.items()):
        states = [controller.partitions[row.key] for row in of_node]
        evidence: ReplicaNotGivenEvidence = {"node_id": node, "as_of_ms": controller.last_ms}
        if of_node:
            evidence |= {
                "replicas": len(of_node),
                "examples": _examples([row.key for row in of_node]),
                "in_isr": sum(node in (state.isr or ()) for state in states),
                "led": sum(state.leader == node for state in states),
            }
        evidence |= {"other_log_dirs": True} if ledger.has_node(node) else {}
        evidence |= {"votes": True} if node in voters else {}
        place = Place(broker=of_node[0].broker if of_node else node)
        findings.append(
            with_premises(finding("REPLICA_NOT_GIVEN", place, evidence), unknown_records_premises(controller.unknown_records))
        )
    return findings


def _partitions_of_limited_scan(inputs: Inputs) -> set[TopicPartition] | None:
    """The partitions that a limited scan reads; None if it is not limited."""
    read = {plan.context.topic_partition for plan in inputs.replicas}
    directories = (part for log_dir in inputs.log_dirs for part in log_dir.found.partitions if part.is_replica)
    return None if {_key(part) for part in directories if part.topic not in WITNESS_TOPICS} <= read else read


def unknown_to_controller(inputs: Inputs) -> dict[tuple[str, int, str], list[int | str]]:
    """(topic, partition, topic id) → brokers, of copies whose topic the voters' log does not have.

    Empty without a controllers' log, or if it could not be read to its end.
    """
    controller = inputs.controller
    if controller is None or not controller.is_complete:
        return {}
    end, clusters = voters_end(controller), controllers_clusters(inputs)
    contexts = (plan.context for plan in inputs.replicas)
    known_partitions = {context.topic_partition for context in contexts if context.topic_id in controller.topics}
    brokers: dict[tuple[str, int, str], list[int | str]] = {}
    for plan in inputs.replicas:
        context, meta = plan.context, plan.log_dir.meta
        if end is None and context.topic_partition in known_partitions:
            continue  # copies of several topics are a TOPIC_ID_MISMATCH
        if context.topic == CLUSTER_METADATA_TOPIC or meta is None or meta.node_id is None or meta.cluster_id not in clusters:
            continue  # perhaps of another cluster
        if context.topic_id is not None and _is_unknown(controller, context.topic_id, end):
            brokers.setdefault((context.topic, context.partition, context.topic_id), []).append(context.broker)
    return brokers


def may_delete(controller: ControllerHistory) -> bool:
    """Whether brokers may delete replicas of topics that the controllers do not have, as brokers before 3.7 do; later ones rename.

    A cluster of later brokers may keep an earlier `metadata.version`, but no earlier broker runs with a later one.
    """
    return controller.features.get("metadata.version", _FIRST_TO_SET_ASIDE) < _FIRST_TO_SET_ASIDE


def _unknown_to_controller(inputs: Inputs, partitions: Sequence[PartitionSummary]) -> list[Finding]:
    """`TOPIC_UNKNOWN_TO_CONTROLLER` for partitions whose topic the voters' log does not have; updates verdicts of `partitions`."""
    controller = inputs.controller
    if controller is None:
        return []
    end = voters_end(controller)
    findings = []
    summaries = {(partition.topic, partition.partition): partition for partition in partitions}
    sure = end is not None or controller.log_start_offset == 0
    confidence = None if sure else Confidence.SUSPECTED
    severity = Severity.CRITICAL if sure and may_delete(controller) else Severity.ERROR
    for (topic, partition, topic_id), brokers in sorted(unknown_to_controller(inputs).items(), key=str):
        evidence: TopicUnknownEvidence = {"brokers": brokers, "topic_id": topic_id, "controller_end_ms": controller.last_ms}
        if "metadata.version" in controller.features:
            evidence["may_delete" if may_delete(controller) else "sets_aside"] = True
        if not sure:
            evidence["harmless_if"] = _DELETED_LONG_AGO
        place = Place(topic, partition)
        findings.append(finding("TOPIC_UNKNOWN_TO_CONTROLLER", place, evidence, severity=severity, confidence=confidence))
        summary = summaries.get((topic, partition))
        if summary is not None and summary.verdict != Severity.CRITICAL.value:
            summary.verdict = severity.value
    return findings


def _is_unknown(controller: ControllerHistory, topic_id: str, end: int | None) -> bool:
    """Whether the voters' log never had the topic; only records before `end` count, unless it is None."""
    topic = controller.topics.get(topic_id)
    return topic is None or (end is not None and topic.created_offset is not None and topic.created_offset >= end)
