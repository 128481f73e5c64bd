"""From paths to replicas: brokers, log directories, partitions, and the content of their small files."""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from msgspec import Struct, field, structs

from kafka_forensics.errors import SourceError, UsageError
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.evidence.ledger import CopyExtent
from kafka_forensics.evidence.options import ScanOptions, fits, listed, raise_or_warn, require_match, without_secrets
from kafka_forensics.evidence.paths import (
    is_without_log_dir,
    log_skipped_files,
    open_paths,
    skipped_members,
    typed_path,
    unlisted_directories,
)
from kafka_forensics.model.batches import Damage
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS, WITNESS_TOPICS
from kafka_forensics.model.controller import ControllerHistory
from kafka_forensics.model.files import CleanShutdown, MetaProperties, OffsetCheckpoint
from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.model.remote_log import REMOTE, RemoteLogHistory
from kafka_forensics.model.results import Incomplete
from kafka_forensics.model.schemas import ReplicaKeys
from kafka_forensics.parsers.checkpoints import (
    parse_clean_shutdown,
    parse_leader_epochs,
    parse_meta_properties,
    parse_offset_checkpoint,
    parse_partition_metadata,
)
from kafka_forensics.parsers.log_dir import (
    Discovery,
    FileKind,
    LogDirectory,
    PartitionDirectory,
    PartitionName,
    SegmentFiles,
    parse_file_name,
    parse_partition_name,
)
from kafka_forensics.parsers.quorum_state import bootstrap_damage
from kafka_forensics.replication.recovery import (
    CLEANER_FILE,
    EPOCHS_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
)
from kafka_forensics.replication.small_files import BOOTSTRAP, CLEAN_SHUTDOWN, META_PROPERTIES, PARTITION_METADATA
from kafka_forensics.storage.bundles import BundleSource
from kafka_forensics.storage.code_cache import exclude_input
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.storage.open import Manifest, place_of_log
from kafka_forensics.storage.source import ByteFile, ByteSource, Entry, EntryKind
from kafka_forensics.storage.tiered import RemoteStore, stored_object

_LOGGER: Final = logging.getLogger(__name__)
Parsed = TypeVar("Parsed")
_SmallFile = TypeVar("_SmallFile", MetaProperties, CleanShutdown, OffsetCheckpoint)

CHECKPOINTS = (HIGH_WATERMARK_FILE, RECOVERY_POINT_FILE, LOG_START_FILE, CLEANER_FILE)
METADATA: Final = PARTITION_METADATA
_NO_LOGS: Final = "holds no .log files: if they were excluded from the copy, copy the logs of broker {} again"
_SEVERAL_MAPS: Final = "these bundles were redacted with different maps"
_READ_AS: Final = "read as partition 0 of a topic with that name, since no partition directory contains it"


class LogDir(Struct):
    """One log directory with the content of its small files; `checkpoints` by file name, without missing files."""

    source: ByteSource
    name: str
    found: LogDirectory
    broker: int | str
    meta: MetaProperties | None = None
    clean_shutdown: CleanShutdown | None = None
    checkpoints: dict[str, OffsetCheckpoint] = field(default_factory=dict)
    bootstrap_damage: list[Damage] = field(default_factory=list)
    """Damage of its `bootstrap.checkpoint`, if it has one."""
    identified: bool = False
    """Whether `broker` is a node id or a name that was given, and not only the name of the folder."""
    has_snapshots: bool = False
    """Whether any of its partitions has `.snapshot` files."""
    has_leader_epochs: bool = False
    """Whether any of its partitions has a `leader-epoch-checkpoint`, other than the controllers' log."""
    has_topic_ids: bool = False
    """Whether any of its partitions has a `partition.metadata`, other than the controllers' log."""
    logs_left_out: bool = False
    """Whether it was copied without `.log` files (`_lacks_logs`): nothing is known of its logs."""
    node_id: int | None = None
    """By `meta.properties`; for an empty directory, which has none, the broker id that was given."""
    object_name: str | None = None
    """Of an object of a remote store that was given by itself."""

    @property
    def is_empty(self) -> bool:
        """Whether it contains nothing: a replaced disk."""
        found = self.found
        return not (found.entries or found.partitions or found.unknown or found.irregular or found.unlisted or found.repeated)

    def offset(self, checkpoint: str, topic: str, partition: int) -> int | None:
        """The partition's offset in a checkpoint file; None if it has none."""
        file = self.checkpoints.get(checkpoint)
        return None if file is None else file.offsets.get((topic, partition))


class ReplicaPlan(Struct):
    """One replica to scan."""

    log_dir: LogDir
    directory: PartitionDirectory
    context: ReplicaContext
    bytes: int
    samples_keys: bool = False
    """Whether a deep scan reads the keys of some records."""


class NodeIds(Struct, frozen=True):
    """The node ids of brokers, by what they are called here."""

    by_name: dict[str, int]

    @classmethod
    def of(cls, log_dirs: Iterable[LogDir]) -> "NodeIds":
        """By their `meta.properties`, or for an empty directory by its name."""
        return cls({str(log_dir.broker): log_dir.node_id for log_dir in log_dirs if log_dir.node_id is not None})

    def __getitem__(self, broker: int | str | None) -> int | None:
        """The node id; of a broker without a `meta.properties` that is called by a number, that number; else None."""
        return self.by_name.get(str(broker), broker if isinstance(broker, int) else None)

    def replica(self, topic: str, partition: int, broker: int | str) -> ReplicaKeys:
        """The keys of a replica."""
        return ReplicaKeys(topic, partition, str(broker), self[broker])


class NotRead(Struct, frozen=True):
    """A link that is not followed, or a pipe, socket or device, in place of a log directory, a partition or one of Kafka's files.

    `broker` and `log_dir` are None outside of log directories: then it may be a log directory, or a partition if `directory` is the
    name of one. `directory` is the name of the partition's directory, None for a file of the log directory; `file` is the file's
    name in it, None for the whole directory.
    """

    path: str
    """As the user would type it."""
    kind: EntryKind
    reason: str
    broker: int | str | None = None
    log_dir: str | None = None
    directory: str | None = None
    file: str | None = None


class Inputs(Struct):
    """Everything that a scan reads."""

    log_dirs: list[LogDir] = field(default_factory=list)
    replicas: list[ReplicaPlan] = field(default_factory=list)
    internal: list[ReplicaPlan] = field(default_factory=list)
    """Replicas of the internal topics that other partitions are judged by, whatever was requested; in the order of `replicas`."""
    discoveries: list[tuple[str, Discovery]] = field(default_factory=list)
    """(name of the source, its content)."""
    incomplete: list[Incomplete] = field(default_factory=list)
    clashes: list[tuple[int | str, list[str]]] = field(default_factory=list)
    """(node id, log directories) of brokers with the same node id and the same partitions."""
    relatives: dict[tuple[int | str, str | None, int | None], set[str]] = field(default_factory=dict)
    """(broker, topic, partition) → suffixes (`delete`, `future`, `stray`) of its other directories."""
    features: dict[str, int] = field(default_factory=dict)
    """Feature → level, once a controllers' log was read; empty without one."""
    controller: ControllerHistory | None = None
    """The controllers' log, once it was read; None without one."""
    remote_log: RemoteLogHistory | None = None
    """`__remote_log_metadata`, once it was read; None without it."""
    renamed_directories: dict[tuple[str, int], list[tuple[LogDir, PartitionDirectory]]] = field(default_factory=dict)
    """(topic, partition) → requested directories with log files that no broker reads: renamed, or not yet in use."""
    manifest: Manifest = field(default_factory=Manifest)
    sources: list[ByteSource] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    """Names of sources that the scan reads in other processes."""
    not_read: list[NotRead] = field(default_factory=list)
    """Links that are not followed, and other special files in place of Kafka's, whatever was requested."""
    without_ids: list[ReplicaPlan] = field(default_factory=list)
    """Replicas whose topic ids are not read yet (`gather`)."""
    reached: tuple[tuple[str, str], ...] = ()
    """Storage options, including those in URIs."""
    typed_paths: tuple[str, ...] = ()
    """The paths as the user typed them, without credentials in URIs."""
    is_unchecked: bool = False
    """Whether the scan, and not `gather`, checks that the requested partitions exist."""
    store_places: list[tuple[ByteSource, str]] = field(default_factory=list)
    """(source, path in it) of the remote stores of tiered topics."""
    stores: list[RemoteStore] | None = None
    """Those of them that can be listed, once they were."""
    remote_by_partition: dict[TopicPartition, list[ReplicaPlan]] | None = None
    """Requested logs in remote stores, by topic and partition, once they were taken. Nothing judges them as copies on a broker."""
    folds_remote: bool = False
    """Whether a scan folds the logs in remote stores, too."""
    stored: set[TopicPartition] = field(default_factory=set)
    """All partitions with objects in remote stores, requested or not, once these were listed."""
    around: dict[str, LogDir] = field(default_factory=dict)
    """Path → small files of a log directory of which only partition directories were given."""

    @property
    def remote(self) -> list[ReplicaPlan]:
        """Requested logs in remote stores, once they were taken; in the order of `replicas`."""
        return [plan for plans in (self.remote_by_partition or {}).values() for plan in plans]

    @property
    def logs(self) -> list[ReplicaPlan]:
        """All requested logs: the replicas, and those in remote storage after the replicas of the same partition."""
        return sorted((*self.replicas, *self.remote), key=_plan_order) if self.remote else self.replicas

    @property
    def folded(self) -> list[ReplicaPlan]:
        """The logs that a scan folds: the replicas, and the logs in remote stores if it reads them."""
        return self.logs if self.folds_remote else self.replicas

    @property
    def evidence(self) -> list[str]:
        """Names of all sources."""
        return [*(source.name for source in self.sources), *self.elsewhere]

    def read(self, source: ByteSource, entry: Entry, parse: Callable[[ByteFile], Parsed]) -> Parsed | None:
        """Parse one small file; None for an unreadable file, which is added to `incomplete`."""
        self.manifest.record(source, entry)
        try:
            with source.open(entry.path) as file:
                return parse(file)
        except SourceError as error:
            self.incomplete.append(Incomplete(typed_path(source, entry.path), error.reason))
            return None


def gather(
    paths: list[str],
    options: ScanOptions,
    inputs: Inputs | None = None,
    *,
    elsewhere: bool = False,
    ids_later: bool = False,
    scanned: bool = False,
) -> Inputs:
    """Open every path, and read the small files of all log directories, unless these are in `inputs`, and of the requested
    partitions.

    With `ids_later` topic ids are not read from a storage service, where each takes a request. Raises UsageError for invalid paths
    (`open_paths`), for a name given to several brokers, and if no partition matches `options`; the last is not checked if the
    partition may exist `elsewhere` (in the log of an internal topic), or if the inputs are `scanned` or have a remote store,
    because the scan checks it, with the partitions that should exist.
    """
    inputs = gather_log_dirs(paths, options.storage_options) if inputs is None else inputs
    inputs.typed_paths = tuple(paths)
    options = with_bundle_options(inputs.sources, options)
    inputs.incomplete += undecoded_bundles(inputs.sources) if options.deep else []
    if any("://" in path for path in paths):
        bare, reached = without_secrets(paths, options)
        inputs.typed_paths, inputs.reached = tuple(bare), reached.storage_options
    inputs.is_unchecked = scanned or (bool(inputs.store_places) and not elsewhere)
    if not (elsewhere or inputs.is_unchecked):
        require_requested_or_warn(inputs, options)
    for log_dir in inputs.log_dirs if options.copied is not CopyExtent.WHOLE else ():
        if _lacks_logs(log_dir):
            log_dir.logs_left_out = True
            inputs.incomplete.append(Incomplete(log_dir.name, _NO_LOGS.format(log_dir.broker), broker=log_dir.broker))
    planner = _ReplicaPlanner(inputs, options, ids_later=ids_later)
    for log_dir in inputs.log_dirs:
        for directory in log_dir.found.partitions:
            if directory.legal:
                planner.add(log_dir, directory)
        planner.add_unlisted(log_dir)
    inputs.replicas.sort(key=_plan_order)
    inputs.internal.sort(key=_plan_order)
    return inputs


class _ReplicaPlanner:
    """Adds the replicas of partition directories to `inputs`."""

    def __init__(self, inputs: Inputs, options: ScanOptions, *, ids_later: bool) -> None:
        self._inputs = inputs
        self._options = options
        self._ids_later = ids_later
        checkpoints = [log_dir.checkpoints.get(CLEANER_FILE) for log_dir in inputs.log_dirs]
        self._compacted = {partition for file in checkpoints if file is not None for partition in file.offsets}

    def add(self, log_dir: LogDir, directory: PartitionDirectory) -> None:
        """Add a partition directory: as a replica, as evidence for others, or as one that no broker reads."""
        inputs, suffix = self._inputs, directory.suffix
        topic, partition = directory.topic or "", directory.partition or 0
        is_requested, is_internal = self._is_requested(log_dir, directory), topic in WITNESS_TOPICS
        if suffix is not None:
            inputs.relatives.setdefault((log_dir.broker, directory.topic, directory.partition), set()).add(suffix)
        if is_requested and (suffix is not None or any(file.kind is FileKind.LOG for file in directory.leftovers)):
            inputs.renamed_directories.setdefault((topic, partition), []).append((log_dir, directory))
        if suffix is None and (is_requested or is_internal):
            plan = self._plan(log_dir, directory)
            if is_internal:
                read_leader_epochs(inputs, plan)
            later = self._ids_later and not is_internal and log_dir.source.request_seconds is not None
            self._read_topic_id(plan, later=later)
            inputs.replicas += [plan] if is_requested else []
            inputs.internal += [plan] if is_internal else []

    def add_unlisted(self, log_dir: LogDir) -> None:
        """Add the replicas of directories that could not be listed."""
        for name in log_dir.found.unlisted:
            if name.suffix is None:
                directory_name = f"{name.topic}-{name.partition}"
                path = f"{log_dir.found.path}/{directory_name}".lstrip("/")
                directory = PartitionDirectory(path, directory_name, name.topic, name.partition, legal=True)
                if self._is_requested(log_dir, directory):
                    context = self._context(log_dir, directory)
                    context.log_unknown = True
                    self._inputs.replicas.append(ReplicaPlan(log_dir, directory, context, 0))

    def _is_requested(self, log_dir: LogDir, directory: PartitionDirectory) -> bool:
        if self._options.broker is not None and str(log_dir.broker) != self._options.broker:
            return False
        return fits((directory.topic or "", directory.partition), self._options)

    def _context(self, log_dir: LogDir, directory: PartitionDirectory) -> ReplicaContext:
        """The facts of a replica that come from the log directory's files."""
        topic, partition = directory.topic or "", directory.partition or 0
        context = ReplicaContext(topic, partition, log_dir.broker, log_dir.name, directory.name)
        context.compacted = topic in INTERNAL_TOPICS or (topic, partition) in self._compacted
        context.high_watermark = log_dir.offset(HIGH_WATERMARK_FILE, topic, partition)
        context.recovery_point = log_dir.offset(RECOVERY_POINT_FILE, topic, partition)
        context.log_start_checkpoint = log_dir.offset(LOG_START_FILE, topic, partition)
        context.cleaner_checkpoint = log_dir.offset(CLEANER_FILE, topic, partition)
        context.clean_shutdown = log_dir.clean_shutdown is not None
        context.live = self._options.live
        context.log_unknown = log_dir.logs_left_out
        return context

    def _plan(self, log_dir: LogDir, directory: PartitionDirectory) -> ReplicaPlan:
        """The plan of a replica; records its files in the manifest, and those that cannot be read as incomplete."""
        context = self._context(log_dir, directory)
        for entry in directory.irregular:
            if entry.unreadable is not None and parse_file_name(entry.name) is not None:
                self._inputs.incomplete.append(Incomplete(typed_path(log_dir.source, entry.path), entry.unreadable))
        files = [file for segment in directory.segments for file in (segment.log, segment.index, segment.time_index)]
        self._inputs.manifest.record(log_dir.source, *(file for file in files if file is not None))
        deleted = [file for file in directory.leftovers if file.suffix == "deleted" and file.kind is FileKind.LOG]
        context.segments_being_deleted = [file.base_offset for file in deleted if file.base_offset is not None]
        logs = directory.logs()
        context.segment_base_offsets = [log.base_offset for log in logs]
        if log_dir.object_name is not None:
            context.object_names = dict.fromkeys(context.segment_base_offsets, log_dir.object_name)
        context.not_followed = [log.base_offset for log in logs if log.entry.unreadable]
        return ReplicaPlan(log_dir, directory, context, sum(log.entry.size_in_bytes for log in logs))

    def _read_topic_id(self, plan: ReplicaPlan, *, later: bool) -> None:
        """Read the topic's id from the replica's `partition.metadata`, unless that is done `later`."""
        entry = plan.directory.entries.get(PARTITION_METADATA)
        if entry is not None and later:
            self._inputs.manifest.record(plan.log_dir.source, entry)
            self._inputs.without_ids.append(plan)
        elif entry is not None:
            metadata = self._inputs.read(plan.log_dir.source, entry, parse_partition_metadata)
            if metadata is not None:
                plan.context.topic_id, plan.context.has_damaged_topic_id = metadata.topic_id, bool(metadata.damage)


def read_leader_epochs(inputs: Inputs, plan: ReplicaPlan) -> None:
    """Read the `leader-epoch-checkpoint` of a replica unless it was read before: when the replica is scanned, because nothing needs
    it earlier, or of an internal topic in `gather`."""
    entry = plan.directory.entries.get(EPOCHS_FILE)
    if entry is not None and plan.context.leader_epochs is None:
        plan.context.leader_epochs = inputs.read(plan.log_dir.source, entry, parse_leader_epochs)


def with_bundle_options(sources: Iterable[ByteSource], options: ScanOptions) -> ScanOptions:
    """The options for these sources: copies are live if a bundle was made of a running broker."""
    live = options.live or any(source.about.live for source in sources if isinstance(source, BundleSource))
    return replace(options, live=live)


def undecoded_bundles(sources: Iterable[ByteSource]) -> list[Incomplete]:
    """The bundles that were collected without decoding batches: damage inside their batches is unknown."""
    reason = "collected without reading batches: collect it again with --deep"
    return [Incomplete(source.name, reason) for source in sources if isinstance(source, BundleSource) and not source.about.is_deep]


def require_requested_or_warn(inputs: Inputs, options: ScanOptions, also: Iterable[tuple[str, int]] = ()) -> None:
    """`require_requested`, but only a warning if the requested partitions may be in unreadable files."""
    try:
        require_requested(inputs, options, also)
    except UsageError as error:
        raise_or_warn(error, hidden=bool(inputs.incomplete))


def gather_log_dirs(paths: list[str], storage_options: tuple[tuple[str, str], ...] = ()) -> Inputs:
    """Open every path, and read the small files of all log directories, but none of partitions: `replicas` is empty.

    Raises UsageError for invalid paths (`open_paths`), and for a name given to several brokers.
    """
    inputs = Inputs()
    named: dict[int | str, list[LogDir]] = {}
    opened_paths = open_paths(paths, storage_options=storage_options)
    log_skipped_files(opened_paths)
    for opened in opened_paths:
        broker_name, source, discovery = opened.broker_name, opened.source, opened.discovery
        inputs.discoveries.append((source.name, discovery))
        inputs.sources.append(source)
        inputs.incomplete += unlisted_directories(source, discovery) + skipped_members(source)
        log_dirs = [_read_log_dir(inputs, source, found, broker_name) for found in discovery.log_directories]
        log_dirs += [_log_dir_of_file(inputs, source, entry, broker_name) for entry in discovery.files]
        inputs.log_dirs += log_dirs
        inputs.not_read += _not_read(source, discovery, log_dirs)
        inputs.store_places += [(source, entry.path) for entry in discovery.remote_stores]
        if broker_name is not None:
            named.setdefault(broker_name, []).extend(log_dirs)
    keys = {source.about.redaction if isinstance(source, BundleSource) else None for source in inputs.sources}
    if len(keys) > 1:
        mixed = "some of these copies hold pseudonyms and others names"
        _LOGGER.warning("note: %s: their topics are not compared with each other", mixed if None in keys else _SEVERAL_MAPS)
    _require_one_broker_a_name(named)
    for log_dirs in named.values():
        node_id = next((log_dir.node_id for log_dir in log_dirs if log_dir.node_id is not None), None)
        for log_dir in log_dirs:
            log_dir.node_id = node_id if log_dir.is_empty else log_dir.node_id
    _separate_clashes(inputs)
    for broker, node_ids, names in contradicting_names(inputs.log_dirs):
        name_text = f"{listed(names)} was given as broker {broker}"
        nodes = listed(map(str, node_ids))
        _LOGGER.warning("note: %s and is node %s's by meta.properties: findings call it %s", name_text, nodes, broker)
    return inputs


def _not_read(source: ByteSource, discovery: Discovery, log_dirs: list[LogDir]) -> Iterator[NotRead]:
    """The links, pipes, sockets and devices of a source in place of Kafka's files and directories."""
    unlisted = {incomplete.path for incomplete in discovery.incomplete}

    def not_read(entry: Entry, *place: Any) -> NotRead:
        return NotRead(typed_path(source, entry.path), entry.kind, entry.unreadable or "", *place)

    for entry in discovery.irregular:
        if entry.path in unlisted:
            yield not_read(entry, None, None, entry.name if parse_partition_name(entry.name) is not None else None)
    for log_dir in log_dirs:
        place = log_dir.broker, log_dir.name
        for entry in log_dir.found.irregular:
            if entry.path in unlisted:
                yield not_read(entry, *place, entry.name)
            elif entry.name in log_dir.found.entries:
                yield not_read(entry, *place, None, entry.name)
        for directory in log_dir.found.partitions:
            for entry in directory.irregular:
                if parse_file_name(entry.name) is not None:
                    yield not_read(entry, *place, directory.name, entry.name)


def contradicting_names(log_dirs: Iterable[LogDir]) -> list[tuple[int, list[int], list[str]]]:
    """(number given as the broker's name, node ids by meta.properties, log directories) where these contradict each other."""
    by_broker: dict[int, list[tuple[int, str]]] = {}
    for log_dir in log_dirs:
        node_id = None if log_dir.meta is None else log_dir.meta.node_id
        if isinstance(log_dir.broker, int) and node_id not in (None, log_dir.broker):
            by_broker.setdefault(log_dir.broker, []).append((node_id, log_dir.name))
    return [
        (broker, sorted({node_id for node_id, _ in nodes}), [name for _, name in nodes])
        for broker, nodes in sorted(by_broker.items())
    ]


def require_requested(inputs: Inputs, options: ScanOptions, also: Iterable[tuple[str, int]] = ()) -> None:
    """Raise UsageError if neither a partition directory, renamed or not, nor a remote log, nor a partition of `also` matches
    `options`."""
    present = [
        (log_dir.broker, (directory.topic or "", directory.partition or 0))
        for log_dir in inputs.log_dirs
        for directory in log_dir.found.partitions
        if directory.legal
    ]
    present += [(REMOTE, partition) for partition in sorted(inputs.stored)]
    brokers = sorted({*(log_dir.broker for log_dir in inputs.log_dirs), *(broker for broker, _ in present)}, key=broker_order)
    elsewhere = [(broker, partition) for broker in brokers for partition in also]
    require_match([*present, *elsewhere], brokers, options)


def _plan_order(plan: ReplicaPlan) -> tuple[object, ...]:
    return plan.context.topic, plan.context.partition, broker_order(plan.context.broker), plan.log_dir.name


def broker_order(broker: int | str) -> tuple[int, int, str]:
    """Sort key of broker ids: numbers first, then names."""
    return (0, broker, "") if isinstance(broker, int) else (1, 0, broker)


def _read_log_dir(inputs: Inputs, source: ByteSource, found: LogDirectory, broker_name: int | str | None) -> LogDir:
    """A log directory with its small files; `broker_name` is the broker's name, if the user gave one."""
    found = _with_topic_by_folder(source, found)
    name = typed_path(source, found.path)
    folder = os.path.basename((found.path or source.name).rstrip("/")) or name
    if folder in {".", ".."}:
        folder = os.path.basename(os.path.abspath(name)) or name
    around = None
    if is_without_log_dir(found) and parse_partition_name(folder) is not None:
        folder, around = _parent_folder(source, name) or folder, _log_dir_around(inputs, source, name)
    log_dir = LogDir(source, name, found, broker_name if broker_name is not None else folder, identified=broker_name is not None)
    log_dir.has_snapshots = any(directory.snapshots for directory in found.partitions)
    data = [directory for directory in found.partitions if directory.topic != CLUSTER_METADATA_TOPIC]
    log_dir.has_leader_epochs = any(EPOCHS_FILE in directory.entries for directory in data)
    log_dir.has_topic_ids = any(PARTITION_METADATA in directory.entries for directory in data)
    if (entry := found.entries.get(META_PROPERTIES)) is not None:
        log_dir.meta = inputs.read(source, entry, parse_meta_properties)
    elif around is not None:
        log_dir.meta, log_dir.clean_shutdown = around.meta, around.clean_shutdown
        keys = {(directory.topic or "", directory.partition or 0) for directory in found.partitions}
        for file_name, file in around.checkpoints.items():
            offsets = {key: file.offsets[key] for key in keys & file.offsets.keys()}
            log_dir.checkpoints[file_name] = structs.replace(file, offsets=offsets)
    _identify(log_dir, broker_name)
    if (entry := found.entries.get(CLEAN_SHUTDOWN)) is not None:
        log_dir.clean_shutdown = inputs.read(source, entry, parse_clean_shutdown)
    for checkpoint in CHECKPOINTS:
        entry = found.entries.get(checkpoint)
        parsed = None if entry is None else inputs.read(source, entry, parse_offset_checkpoint)
        if parsed is not None:
            log_dir.checkpoints[checkpoint] = parsed
    if (entry := found.entries.get(BOOTSTRAP)) is not None:
        log_dir.bootstrap_damage = inputs.read(source, entry, bootstrap_damage) or []
    return log_dir


def _with_topic_by_folder(source: ByteSource, found: LogDirectory) -> LogDirectory:
    """Take a directory of segments whose name is not a partition's as partition 0 of a topic of that name."""
    if not any(directory.path == found.path and not directory.legal and directory.segments for directory in found.partitions):
        return found
    (directory,) = found.partitions
    _LOGGER.warning("note: %s: %s", typed_path(source, found.path), _READ_AS)
    return structs.replace(found, partitions=[structs.replace(directory, topic=directory.name, partition=0, legal=True)])


def _identify(log_dir: LogDir, broker_name: int | str | None) -> None:
    """Set the node id of a log directory, and its broker if no name was given."""
    log_dir.node_id = None if log_dir.meta is None else log_dir.meta.node_id
    if broker_name is None and log_dir.node_id is not None:
        log_dir.broker = log_dir.node_id
        log_dir.identified = True
    elif log_dir.is_empty and isinstance(broker_name, int):
        log_dir.node_id = broker_name
    elif broker_name is None and log_dir.object_name is None:
        log_dir.broker = _broker_by_path(str(log_dir.broker))


def _broker_by_path(name: str) -> str:
    """A broker's name by its folder, which is never that of the remote store."""
    return f"{name}/" if name == REMOTE else name


def _parent_folder(source: ByteSource, path: str) -> str:
    """Name of the folder that contains `path`; "" if it is not on a file system or a storage service."""
    if "://" in path:
        return path.rstrip("/").rpartition("/")[0].rpartition("://")[2].rpartition("/")[2]
    return os.path.basename(os.path.dirname(os.path.abspath(path))) if isinstance(source, LocalSource) else ""


def _log_dir_around(inputs: Inputs, source: ByteSource, path: str) -> LogDir | None:
    """The small files of the log directory of a partition directory given by itself; each is read once."""
    if not isinstance(source, LocalSource):
        return None
    parent = os.path.dirname(os.path.realpath(path))
    if parent not in inputs.around:
        around = LogDir(LocalSource(parent), parent, LogDirectory(""), parent)
        around.meta = _file_around(inputs, around.source, META_PROPERTIES, parse_meta_properties)
        around.clean_shutdown = _file_around(inputs, around.source, CLEAN_SHUTDOWN, parse_clean_shutdown)
        checkpoints = ((name, _file_around(inputs, around.source, name, parse_offset_checkpoint)) for name in CHECKPOINTS)
        around.checkpoints = {name: file for name, file in checkpoints if file is not None}
        if around.meta is not None or around.checkpoints:
            exclude_input(parent)
        inputs.around[parent] = around
    return inputs.around[parent]


def _file_around(inputs: Inputs, around: ByteSource, name: str, parse: Callable[[ByteFile], _SmallFile]) -> _SmallFile | None:
    """A small file of a log directory that was not given; None if it is missing, unreadable or damaged."""
    try:
        entry = around.stat(name)
        with around.open(entry.path) as file:
            parsed = parse(file)
    except SourceError:
        return None
    inputs.manifest.record(around, entry)
    return None if parsed.damage else parsed


def _log_dir_of_file(inputs: Inputs, source: ByteSource, entry: Entry, broker_name: int | str | None) -> LogDir:
    """A single `.log` file given by itself, as a partition directory that contains nothing else."""
    absolute = os.path.abspath(source.name)
    base, folder = os.path.basename(absolute), os.path.basename(os.path.dirname(absolute))
    parsed, stored = parse_partition_name(folder), stored_object(absolute)
    digits = base.split(".", 1)[0]
    segments = []
    if base.endswith(".log"):
        base_offset = int(digits) if digits.isascii() and digits.isdigit() and len(digits) == 20 else 0
        segments = [SegmentFiles(base_offset, log=entry)]
    log_source = source
    if stored is not None:
        parsed = PartitionName(stored.topic, stored.partition)
        if folder == str(stored.partition):
            folder = "/".join(absolute.split("/")[-3:-1])
        log_source, path = place_of_log(source)
        log = log_source.stat_or_none(path) or entry._replace(path=path)
        segments = [SegmentFiles(segment.start_offset, log=log) for segment in stored.segments.values() if segments]
    topic, partition = (parsed.topic, parsed.partition) if parsed is not None else (folder or base, 0)
    if parsed is None and segments:
        _LOGGER.warning("note: %s: lies in %s: %s", source.name, folder or base, _READ_AS)
    directory = PartitionDirectory("", folder, topic, partition, segments=segments, legal=bool(segments))
    name = REMOTE if stored is not None else os.path.basename(os.path.dirname(os.path.dirname(absolute)))
    found = LogDirectory("", partitions=[directory])
    log_dir = LogDir(
        log_source, source.name, found, name if broker_name is None else broker_name, identified=broker_name is not None
    )
    log_dir.object_name = None if stored is None else base
    if parsed is not None and stored is None:
        around = _log_dir_around(inputs, source, os.path.dirname(os.path.realpath(source.name)))
        log_dir.meta = None if around is None else around.meta
    _identify(log_dir, broker_name)
    return log_dir


def _has_partition_twice(log_dirs: Iterable[LogDir]) -> bool:
    """Whether two of these log directories have a live directory of the same partition."""
    live = [
        (directory.topic, directory.partition)
        for log_dir in log_dirs
        for directory in log_dir.found.partitions
        if directory.is_replica
    ]
    return len(live) > len(set(live))


def _require_one_broker_a_name(named: dict[int | str, list[LogDir]]) -> None:
    """Raise UsageError for a name given to log directories of several brokers, by their node ids or partitions."""
    for broker_name, log_dirs in named.items():
        node_ids = {log_dir.meta.node_id for log_dir in log_dirs if log_dir.meta is not None and log_dir.meta.node_id is not None}
        if len(node_ids) > 1 or (not node_ids and _has_partition_twice(log_dirs)):
            names = listed(log_dir.name for log_dir in log_dirs)
            raise UsageError(
                f"the name {broker_name} was given twice: to {names}, which do not belong to one broker",
                hint="give each broker a different name; without a name, it comes from meta.properties or the folder",
            )


def _separate_clashes(inputs: Inputs) -> None:
    """Name log directories with the same node id and the same partition by their paths, because they are of different brokers.

    Only node ids and given names conflict; equal names of folders do not.
    """
    by_broker: dict[int | str, list[LogDir]] = {}
    for log_dir in inputs.log_dirs:
        by_broker.setdefault(log_dir.broker, []).append(log_dir)
    for broker, log_dirs in by_broker.items():
        if _has_partition_twice(log_dirs) and len({log_dir.name for log_dir in log_dirs}) == len(log_dirs):
            identified = sorted(log_dir.name for log_dir in log_dirs if log_dir.identified)
            if len(identified) > 1:
                inputs.clashes.append((broker, identified))
            for log_dir in log_dirs:
                log_dir.broker = _broker_by_path(log_dir.name)


def _lacks_logs(log_dir: LogDir) -> bool:
    """Whether a log directory was copied without `.log` files: no partition has any, but some have other files of a log.

    An empty partition has an empty `.log`, and so has one whose records are in remote storage; a directory without any file was
    emptied. While logs are replaced or deleted they have other names for a moment (`.swap`, `.deleted`). A node's first snapshot
    exists without any log.
    """
    partitions = [directory for directory in log_dir.found.partitions if directory.legal]
    if any(segment.log is not None for directory in partitions for segment in directory.segments):
        return False
    return any(directory.suffix is None and _had_log(directory) for directory in partitions)


def _had_log(directory: PartitionDirectory) -> bool:
    if any(file.kind is FileKind.LOG for file in directory.leftovers):
        return False
    return bool(directory.segments or directory.snapshots) or EPOCHS_FILE in directory.entries


def with_replicas(gaps: Iterable[Incomplete], log_dirs: Sequence[LogDir]) -> list[Incomplete]:
    """`gaps` with the broker in whose log directory each is, and the partition in whose directory.

    An unread path that is a log directory, or contains some, gets no broker, because its content is unknown.
    """
    by_name = {log_dir.name.rstrip(os.sep): log_dir for log_dir in log_dirs}
    return [unread if unread.broker is not None else _attributed(unread, by_name) for unread in gaps]


def may_hide_log_directory(inputs: Inputs) -> bool:
    """Whether an unreadable input (a truncated archive, a link that is not followed) may be or contain a log directory.

    It may contain further copies, so no record can be called lost everywhere.
    """
    is_truncated = any(source.problems for source in inputs.sources)
    return is_truncated or any(unread.broker is None for unread in with_replicas(inputs.incomplete, inputs.log_dirs))


def _attributed(unread: Incomplete, by_name: dict[str, LogDir]) -> Incomplete:
    log_dir, inside = _innermost_log_dir(unread.path, by_name)
    if log_dir is None:
        return unread
    for directory in log_dir.found.partitions:
        if directory.path == log_dir.found.path:  # the log directory is one partition's, or one file
            return structs.replace(unread, topic=directory.topic, partition=directory.partition, broker=log_dir.broker)
    if not inside:
        return unread
    name = parse_partition_name(inside.split(os.sep, 1)[0])
    if name is None:
        return structs.replace(unread, broker=log_dir.broker)
    return structs.replace(unread, topic=name.topic, partition=name.partition, broker=log_dir.broker)


def _innermost_log_dir(path: str, by_name: dict[str, LogDir]) -> tuple[LogDir | None, str]:
    """The innermost log directory that is or contains `path`, and the path within it."""
    end = len(path)
    while end > 0:
        if (log_dir := by_name.get(path[:end].rstrip(os.sep))) is not None:
            return log_dir, path[end:].lstrip(os.sep)
        end = path.rfind(os.sep, 0, end)
    return None, ""
