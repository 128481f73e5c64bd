"""From paths to replicas: which brokers, which log directories, which partitions, and what their small files say."""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from kafka_forensics.errors import SourceError, UsageError
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.evidence.ledger import Extent
from kafka_forensics.evidence.options import ScanOptions, fits, listed, raise_unless_hidden, require_match, without_secrets
from kafka_forensics.evidence.paths import members_left_out, not_listed, note_strangers, open_paths, typed_path
from kafka_forensics.model.batches import Damage
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS, WITNESS_TOPICS
from kafka_forensics.model.controller import ControllerHistory
from kafka_forensics.model.files import CleanShutdown, MetaProperties, OffsetCheckpoint
from kafka_forensics.model.remote_log import RemoteLogHistory
from kafka_forensics.model.results import Incomplete
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
    SegmentFiles,
    parse_file_name,
    parse_partition_name,
)
from kafka_forensics.parsers.quorum_state import bootstrap_damage
from kafka_forensics.storage.bundles import BundleSource
from kafka_forensics.storage.code_cache import keep_out_of
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.storage.open import Manifest
from kafka_forensics.storage.source import ByteFile, ByteSource, DistantSource, Entry, EntryKind

__all__ = [
    "CHECKPOINTS",
    "METADATA",
    "Inputs",
    "LogDir",
    "NotRead",
    "ReplicaPlan",
    "as_collected",
    "broker_order",
    "gather",
    "gather_log_dirs",
    "misnamed",
    "not_looked_into",
    "read_leader_epochs",
    "require_asked",
    "require_or_note",
    "typed_path",
]

Parsed = TypeVar("Parsed")
_SmallFile = TypeVar("_SmallFile", MetaProperties, CleanShutdown, OffsetCheckpoint)

CHECKPOINTS = (
    "replication-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
MANY_PARTITIONS: Final = 512
"""Of a log directory whose topic ids are worth a task of their own."""
METADATA: Final = "partition.metadata"
"""The file with the topic's id."""
_NO_LOGS: Final = "holds no .log files: if they were excluded from the copy, copy the logs of broker {} again"
_READ_AS: Final = "read as partition 0 of a topic of that name, as no partition has it"


@dataclass(slots=True)
class LogDir:
    """One log directory with its small files read; `checkpoints` by file name, absent where there is no such file."""

    source: ByteSource
    name: str
    found: LogDirectory
    broker: int | str
    meta: MetaProperties | None = None
    clean_shutdown: CleanShutdown | None = None
    checkpoints: dict[str, OffsetCheckpoint] = field(default_factory=dict)
    bootstrap_damage: list[Damage] = field(default_factory=list)
    """What is wrong with its `bootstrap.checkpoint`, if it has one."""
    identified: bool = False
    """Whether `broker` is an id or a name that was given; else it is only what the folder is called."""
    has_snapshots: bool = False
    """Whether any of its partitions has `.snapshot` files."""
    has_leader_epochs: bool = False
    """Whether any of its partitions has a `leader-epoch-checkpoint`; not the controller's log, which is copied by itself."""
    has_topic_ids: bool = False
    """Whether any of these has a `partition.metadata`."""
    logs_left_out: bool = False
    """Whether it was copied without `.log` files, see `_lacks_logs`: nothing is known of its logs."""
    node_id: int | None = None
    """By `meta.properties`; of an empty directory, which has none, by the name that was given."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in it: a replaced disk."""
        found = self.found
        return not (found.entries or found.partitions or found.unknown or found.irregular or found.unlisted or found.repeated)

    def offset(self, checkpoint: str, topic: str, partition: int) -> int | None:
        """The partition's offset in a checkpoint file; None if it is not there."""
        file = self.checkpoints.get(checkpoint)
        return None if file is None else file.offsets.get((topic, partition))


@dataclass(slots=True)
class ReplicaPlan:
    """One replica to be folded."""

    log_dir: LogDir
    directory: PartitionDirectory
    context: ReplicaContext
    bytes: int
    samples_keys: bool = False
    """Whether a deep reading shall look at the keys of some records."""


@dataclass(frozen=True, slots=True)
class NotRead:
    """A link that is not followed, or a pipe, socket or device, in the place of a log directory, a partition or a file of Kafka's.

    `broker` and `log_dir` are None outside of log directories, where it may be a log directory itself, or a partition, if
    `directory` is named like one. `directory` is the partition's name, None for a file of the log directory; `file` is the file's
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


@dataclass(slots=True)
class Inputs:
    """All that a scan reads. `discoveries` pairs each source's name with what was found in it."""

    log_dirs: list[LogDir] = field(default_factory=list)
    replicas: list[ReplicaPlan] = field(default_factory=list)
    internal: list[ReplicaPlan] = field(default_factory=list)
    """Replicas of the topics whose records are evidence themselves, whatever else was asked for; in the same order."""
    discoveries: list[tuple[str, Discovery]] = field(default_factory=list)
    incomplete: list[Incomplete] = field(default_factory=list)
    clashes: list[tuple[int | str, list[str]]] = field(default_factory=list)
    """(node id, log directories) of brokers that claim one id and hold the same partitions."""
    relatives: dict[tuple[int | str, str | None, int | None], set[str]] = field(default_factory=dict)
    """(broker, topic, partition) → suffixes (`delete`, `future`, `stray`) of the directories beside the live one."""
    features: dict[str, int] = field(default_factory=dict)
    """Levels of the cluster's features, where a controller's log was among the copies and has been read."""
    controller: ControllerHistory | None = None
    """The controllers' log, once it has been read and if one was among the copies."""
    remote_log: RemoteLogHistory | None = None
    """`__remote_log_metadata`, in the same way."""
    aside: dict[tuple[str, int], list[tuple[LogDir, PartitionDirectory]]] = field(default_factory=dict)
    """(topic, partition) → directories among those asked for with log files that no broker reads: on their way in or out."""
    manifest: Manifest = field(default_factory=Manifest)
    sources: list[ByteSource] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    """Names of sources that the scan reads elsewhere."""
    not_read: list[NotRead] = field(default_factory=list)
    """Links that are not followed, and what else is no file or directory where one of Kafka's should be, whatever was asked for."""
    without_ids: list[ReplicaPlan] = field(default_factory=list)
    """Replicas whose topic ids are yet to be read, each from a file of its own (`gather`)."""
    reached: tuple[tuple[str, str], ...] = ()
    """Storage options that were given, those in URIs among them."""
    given: tuple[str, ...] = ()
    """The paths, as the user typed them but for credentials in URIs."""
    is_unchecked: bool = False
    """Whether it is for the scan to say that nothing is there that was asked for (`gather`)."""
    around: dict[str, LogDir] = field(default_factory=dict)
    """Path → small files of a log directory around partition directories that were given by themselves."""

    @property
    def evidence(self) -> list[str]:
        """Names of all that is read."""
        return [*(source.name for source in self.sources), *self.elsewhere]

    def read(self, source: ByteSource, entry: Entry, parse: Callable[[ByteFile], Parsed]) -> Parsed | None:
        """Parse one small file; a file that cannot be read is listed as incomplete and gives None."""
        self.manifest.record(source, entry)
        try:
            with source.open(entry.path) as file:
                return parse(file)
        except SourceError as error:
            self.incomplete.append(Incomplete(typed_path(source, entry.path), error.reason))
            return None


def gather(
    paths: list[str], options: ScanOptions, *, elsewhere: bool = False, ids_later: bool = False, scanned: bool = False
) -> Inputs:
    """Open every path and read the small files of all log directories; with `ids_later` no topic ids where they cost much: of very
    many replicas, and where each is a request.

    Raises UsageError for paths that make no sense (`open_paths`), for a name given to several brokers, and unless the answer may
    lie `elsewhere` (in the log of an internal topic), where no partition is what `options` ask for. Of what is `scanned` the scan
    says so: it knows which partitions should be here, too.
    """
    inputs = gather_log_dirs(paths, options.storage_options)
    inputs.given = tuple(paths)
    options = as_collected(inputs.sources, options)
    inputs.incomplete += not_looked_into(inputs.sources) if options.deep else []
    if any("://" in path for path in paths):
        bare, reached = without_secrets(paths, options)
        inputs.given, inputs.reached = tuple(bare), reached.storage_options
    inputs.is_unchecked = scanned
    if not (elsewhere or scanned):
        require_or_note(inputs, options)
    compacted = {key for log_dir in inputs.log_dirs for key in _compacted(log_dir)}
    for log_dir in inputs.log_dirs if options.copied is not Extent.WHOLE else ():
        if _lacks_logs(log_dir):
            log_dir.logs_left_out = True
            inputs.incomplete.append(Incomplete(log_dir.name, _NO_LOGS.format(log_dir.broker), broker=log_dir.broker))
    for log_dir in inputs.log_dirs:
        for directory in log_dir.found.partitions:
            if directory.legal:
                _take_partition(inputs, log_dir, directory, compacted, options, ids_later=ids_later)
        for directory in _unlisted(log_dir):
            if _wanted(log_dir, directory, options):
                context = _context(log_dir, directory, compacted, options)
                context.log_unknown = True
                inputs.replicas.append(ReplicaPlan(log_dir, directory, context, 0))
    inputs.replicas.sort(key=_plan_order)
    inputs.internal.sort(key=_plan_order)
    return inputs


def as_collected(sources: Iterable[ByteSource], options: ScanOptions) -> ScanOptions:
    """The options as they hold for these sources: where a bundle is of a running broker, copies are live."""
    live = options.live or any(source.about.live for source in sources if isinstance(source, BundleSource))
    return replace(options, live=live)


def not_looked_into(sources: Iterable[ByteSource]) -> list[Incomplete]:
    """The bundles that were collected without a look into batches: what is wrong inside of them nobody knows."""
    reason = "collected without a look into batches: collect it with --deep"
    return [Incomplete(source.name, reason) for source in sources if isinstance(source, BundleSource) and not source.about.is_deep]


def require_or_note(inputs: Inputs, options: ScanOptions, also: Iterable[tuple[str, int]] = ()) -> None:
    """`require_asked`, with a note alone where what is asked for may be in what could not be read."""
    try:
        require_asked(inputs, options, also)
    except UsageError as error:
        raise_unless_hidden(error, hidden=bool(inputs.incomplete))


def gather_log_dirs(paths: list[str], storage_options: tuple[tuple[str, str], ...] = ()) -> Inputs:
    """Open every path and read the small files of all log directories, but nothing of any partition: `replicas` is empty.

    Raises UsageError for paths that make no sense (`open_paths`), and for a name given to several brokers.
    """
    inputs = Inputs()
    named: dict[int | str, list[LogDir]] = {}
    every = open_paths(paths, storage_options=storage_options)
    note_strangers(every)
    for opened in every:
        given, source, discovery = opened.given, opened.source, opened.discovery
        before = len(inputs.log_dirs)
        inputs.discoveries.append((source.name, discovery))
        inputs.sources.append(source)
        inputs.incomplete += not_listed(source, discovery) + members_left_out(source)
        for log_directory in discovery.log_directories:
            inputs.log_dirs.append(_read_log_dir(inputs, source, _named_by_folder(source, log_directory), given))
        for entry in discovery.files:
            inputs.log_dirs.append(_lone_file(inputs, source, entry, given))
        inputs.not_read += _not_read(source, discovery, inputs.log_dirs[before:])
        if given is not None:
            named.setdefault(given, []).extend(inputs.log_dirs[before:])
    _note_pseudonyms(inputs.sources)
    _require_one_broker_a_name(named)
    for log_dirs in named.values():
        node_id = next((log_dir.node_id for log_dir in log_dirs if log_dir.node_id is not None), None)
        for log_dir in log_dirs:
            log_dir.node_id = node_id if log_dir.is_empty else log_dir.node_id
    _separate_clashes(inputs)
    for broker, node_ids, names in misnamed(inputs.log_dirs):
        contradiction = (
            f"{listed(names)} was given as broker {broker} and is node {listed(map(str, node_ids))}'s by meta.properties"
        )
        logging.getLogger(__name__).warning("note: %s: findings call it %s", contradiction, broker)
    return inputs


def _note_pseudonyms(sources: Sequence[ByteSource]) -> None:
    """Tell that one topic has several names, where pseudonyms of several keys stand for it, or of one and its own."""
    keys = {source.about.redaction if isinstance(source, BundleSource) else None for source in sources}
    if len(keys) > 1:
        made = (
            "some of these copies hold pseudonyms and others names"
            if None in keys
            else "these bundles were redacted by several maps"
        )
        logging.getLogger(__name__).warning("note: %s: their topics are not compared with each other", made)


def _take_partition(
    inputs: Inputs,
    log_dir: LogDir,
    directory: PartitionDirectory,
    compacted: set[tuple[str, int]],
    options: ScanOptions,
    *,
    ids_later: bool,
) -> None:
    """Take a partition's directory: as a replica, as evidence, or for what was set aside in it."""
    wanted, internal = _wanted(log_dir, directory, options), directory.topic in WITNESS_TOPICS
    if directory.suffix is not None:
        inputs.relatives.setdefault((log_dir.broker, directory.topic, directory.partition), set()).add(directory.suffix)
    if wanted and (directory.suffix is not None or any(file.kind is FileKind.LOG for file in directory.leftovers)):
        inputs.aside.setdefault((directory.topic or "", directory.partition or 0), []).append((log_dir, directory))
    if directory.suffix is None and (wanted or internal):
        plan = _plan(inputs, log_dir, directory, compacted, options)
        _take_topic_id(inputs, plan, later=ids_later and not internal and _costs_much(log_dir))
        inputs.replicas += [plan] if wanted else []
        inputs.internal += [plan] if internal else []


def _not_read(source: ByteSource, discovery: Discovery, log_dirs: list[LogDir]) -> Iterator[NotRead]:
    """What of a source's links, pipes, sockets and devices stands where Kafka would have a file or directory."""
    not_listed = {incomplete.path for incomplete in discovery.incomplete}

    def not_read(entry: Entry, *place: Any) -> NotRead:
        return NotRead(typed_path(source, entry.path), entry.kind, entry.unreadable or "", *place)

    for entry in discovery.irregular:
        if entry.path in not_listed:
            yield not_read(entry, None, None, entry.name if parse_partition_name(entry.name) is not None else None)
    for log_dir in log_dirs:
        place = log_dir.broker, log_dir.name
        for entry in log_dir.found.irregular:
            if entry.path in not_listed:
                yield not_read(entry, *place, entry.name)
            elif entry.name in log_dir.found.entries:
                yield not_read(entry, *place, None, entry.name)
        for directory in log_dir.found.partitions:
            for entry in directory.irregular:
                if parse_file_name(entry.name) is not None:
                    yield not_read(entry, *place, directory.name, entry.name)


def misnamed(log_dirs: Iterable[LogDir]) -> list[tuple[int, list[int], list[str]]]:
    """(number given as the broker's name, node ids by meta.properties, log directories) where the two differ."""
    names_by_broker: dict[int, list[tuple[int, str]]] = {}
    for log_dir in log_dirs:
        node_id = None if log_dir.meta is None else log_dir.meta.node_id
        if isinstance(log_dir.broker, int) and node_id not in (None, log_dir.broker):
            names_by_broker.setdefault(log_dir.broker, []).append((node_id, log_dir.name))
    return [
        (broker, sorted({node_id for node_id, _ in nodes}), [name for _, name in nodes])
        for broker, nodes in sorted(names_by_broker.items())
    ]


def require_asked(inputs: Inputs, options: ScanOptions, also: Iterable[tuple[str, int]] = ()) -> None:
    """Raise UsageError if `options` ask for what neither a directory is, on its way in or out or not, nor one of `also`."""
    there = [
        (log_dir.broker, (directory.topic or "", directory.partition or 0))
        for log_dir in inputs.log_dirs
        for directory in log_dir.found.partitions
        if directory.legal
    ]
    brokers = sorted({log_dir.broker for log_dir in inputs.log_dirs}, key=broker_order)
    elsewhere = [(broker, directory) for broker in brokers for directory in also]
    require_match([*there, *elsewhere], brokers, options)


def _plan_order(plan: ReplicaPlan) -> tuple[object, ...]:
    return plan.context.topic, plan.context.partition, broker_order(plan.context.broker), plan.log_dir.name


def broker_order(broker: int | str) -> tuple[int, int, str]:
    """Sort key of broker ids: numbers first, then names."""
    return (0, broker, "") if isinstance(broker, int) else (1, 0, broker)


def _read_log_dir(inputs: Inputs, source: ByteSource, log_directory: LogDirectory, given: int | str | None) -> LogDir:
    name = typed_path(source, log_directory.path)
    folder = os.path.basename((log_directory.path or source.name).rstrip("/")) or name
    if folder in {".", ".."}:
        folder = os.path.basename(os.path.abspath(name)) or name
    alone = (
        any(directory.path == log_directory.path for directory in log_directory.partitions)
        and parse_partition_name(folder) is not None
    )
    around = None
    if alone:
        folder, around = _folder_around(source, name) or folder, _log_dir_around(inputs, source, name)
    log_dir = LogDir(source, name, log_directory, given if given is not None else folder, identified=given is not None)
    log_dir.has_snapshots = any(directory.snapshots for directory in log_directory.partitions)
    data = [directory for directory in log_directory.partitions if directory.topic != CLUSTER_METADATA_TOPIC]
    log_dir.has_leader_epochs = any("leader-epoch-checkpoint" in directory.entries for directory in data)
    log_dir.has_topic_ids = any(METADATA in directory.entries for directory in data)
    entry = log_directory.entries.get("meta.properties")
    if entry is not None:
        log_dir.meta = inputs.read(source, entry, parse_meta_properties)
    elif around is not None:
        _take_small_files(log_dir, around)
    _identify(log_dir, given)
    _read_what_it_wrote_down(inputs, log_dir)
    return log_dir


def _read_what_it_wrote_down(inputs: Inputs, log_dir: LogDir) -> None:
    """Whether the broker was stopped cleanly, and its checkpoints."""
    entries = log_dir.found.entries
    if (entry := entries.get(".kafka_cleanshutdown")) is not None:
        log_dir.clean_shutdown = inputs.read(log_dir.source, entry, parse_clean_shutdown)
    for checkpoint in CHECKPOINTS:
        entry = entries.get(checkpoint)
        parsed = None if entry is None else inputs.read(log_dir.source, entry, parse_offset_checkpoint)
        if parsed is not None:
            log_dir.checkpoints[checkpoint] = parsed
    if (entry := entries.get("bootstrap.checkpoint")) is not None:
        log_dir.bootstrap_damage = inputs.read(log_dir.source, entry, bootstrap_damage) or []


def _named_by_folder(source: ByteSource, log_directory: LogDirectory) -> LogDirectory:
    """A directory of segments that was found by itself and is called like no partition, as partition 0 of a topic of that name."""
    if not any(
        directory.path == log_directory.path and not directory.legal and directory.segments
        for directory in log_directory.partitions
    ):
        return log_directory
    (directory,) = log_directory.partitions
    logging.getLogger(__name__).warning("note: %s: %s", typed_path(source, log_directory.path), _READ_AS)
    return replace(log_directory, partitions=[replace(directory, topic=directory.name, partition=0, legal=True)])


def _identify(log_dir: LogDir, given: int | str | None) -> None:
    """Say whose node's a log directory is, and call one that was given no name so."""
    log_dir.node_id = None if log_dir.meta is None else log_dir.meta.node_id
    if given is None and log_dir.node_id is not None:
        log_dir.broker = log_dir.node_id
        log_dir.identified = True
    elif log_dir.is_empty and isinstance(given, int):
        log_dir.node_id = given


def _folder_around(source: ByteSource, path: str) -> str:
    """What the folder around `path` is called; nothing of what is no folder of a file system or storage service."""
    if "://" in path:
        return path.rstrip("/").rpartition("/")[0].rpartition("://")[2].rpartition("/")[2]
    return os.path.basename(os.path.dirname(os.path.abspath(path))) if isinstance(source, LocalSource) else ""


def _log_dir_around(inputs: Inputs, source: ByteSource, path: str) -> LogDir | None:
    """The small files of the log directory around a partition directory given by itself; each is read once."""
    if not isinstance(source, LocalSource):
        return None
    parent = os.path.dirname(os.path.realpath(path))
    if parent not in inputs.around:
        read = LogDir(LocalSource(parent), parent, LogDirectory(""), parent)
        read.meta = _file_around(inputs, read.source, "meta.properties", parse_meta_properties)
        read.clean_shutdown = _file_around(inputs, read.source, ".kafka_cleanshutdown", parse_clean_shutdown)
        checkpoints = ((name, _file_around(inputs, read.source, name, parse_offset_checkpoint)) for name in CHECKPOINTS)
        read.checkpoints = {name: file for name, file in checkpoints if file is not None}
        if read.meta is not None or read.checkpoints:
            keep_out_of(parent)
        inputs.around[parent] = read
    return inputs.around[parent]


def _file_around(inputs: Inputs, around: ByteSource, name: str, parse: Callable[[ByteFile], _SmallFile]) -> _SmallFile | None:
    """A small file beside what was given; None if it cannot be read, or not all of it."""
    try:
        entry = around.stat(name)
        with around.open(entry.path) as file:
            parsed = parse(file)
    except SourceError:
        return None
    inputs.manifest.record(around, entry)
    return None if parsed.damage else parsed


def _take_small_files(log_dir: LogDir, around: LogDir) -> None:
    """Let a directory that is one partition's have what the files around it say of that partition."""
    log_dir.meta, log_dir.clean_shutdown = around.meta, around.clean_shutdown
    keys = {(directory.topic or "", directory.partition or 0) for directory in log_dir.found.partitions}
    for name, file in around.checkpoints.items():
        log_dir.checkpoints[name] = replace(file, offsets={key: file.offsets[key] for key in keys & file.offsets.keys()})


def _lone_file(inputs: Inputs, source: ByteSource, entry: Entry, given: int | str | None) -> LogDir:
    """A single `.log` file given by itself, as a partition directory that holds nothing else."""
    absolute = os.path.abspath(source.name)
    base, folder = os.path.basename(absolute), os.path.basename(os.path.dirname(absolute))
    parsed = parse_partition_name(folder)
    digits = base.split(".", 1)[0]
    segments = []
    if base.endswith(".log"):
        segments = [SegmentFiles(int(digits) if digits.isascii() and digits.isdigit() and len(digits) == 20 else 0, log=entry)]
    topic, partition = (parsed.topic, parsed.partition) if parsed is not None else (folder or base, 0)
    if parsed is None and segments:
        logging.getLogger(__name__).warning("note: %s: lies in %s: %s", source.name, folder or base, _READ_AS)
    directory = PartitionDirectory("", folder, topic, partition, segments=segments, legal=bool(segments))
    log_directory = LogDirectory("", partitions=[directory])
    name = given if given is not None else os.path.basename(os.path.dirname(os.path.dirname(absolute)))
    log_dir = LogDir(source, source.name, log_directory, name, identified=given is not None)
    if parsed is not None:
        around = _log_dir_around(inputs, source, os.path.dirname(os.path.realpath(source.name)))
        log_dir.meta = None if around is None else around.meta
    _identify(log_dir, given)
    return log_dir


def _require_one_broker_a_name(named: dict[int | str, list[LogDir]]) -> None:
    """Raise UsageError for a name given to log directories that are no one broker's: by their node ids, or by what they hold."""
    for given, log_dirs in named.items():
        node_ids = {log_dir.meta.node_id for log_dir in log_dirs if log_dir.meta is not None and log_dir.meta.node_id is not None}
        held = [
            (directory.topic, directory.partition)
            for log_dir in log_dirs
            for directory in log_dir.found.partitions
            if directory.legal and not directory.suffix
        ]
        if len(node_ids) > 1 or (not node_ids and len(held) > len(set(held))):
            places = [log_dir.name for log_dir in log_dirs]
            raise UsageError(
                f"the name {given} was given twice: to {listed(places)}, which are not one broker's",
                hint="give each broker its own name; without one, meta.properties or the folder names it",
            )


def _separate_clashes(inputs: Inputs) -> None:
    """Log directories of one node id that hold the same partition are two brokers under one name: call them by their paths.

    Folders that are merely called alike claim nothing, so only ids and given names clash.
    """
    by_broker: dict[int | str, list[LogDir]] = {}
    for log_dir in inputs.log_dirs:
        by_broker.setdefault(log_dir.broker, []).append(log_dir)
    for broker, log_dirs in by_broker.items():
        held = [(d.topic, d.partition) for log_dir in log_dirs for d in log_dir.found.partitions if d.legal and d.suffix is None]
        names = [log_dir.name for log_dir in log_dirs]
        if len(held) > len(set(held)) and len(set(names)) == len(names):
            claimed = sorted(log_dir.name for log_dir in log_dirs if log_dir.identified)
            if len(claimed) > 1:
                inputs.clashes.append((broker, claimed))
            for log_dir in log_dirs:
                log_dir.broker = log_dir.name


def _lacks_logs(log_dir: LogDir) -> bool:
    """Whether a log directory was copied without `.log` files: none is in any of its partitions, and what brokers write beside
    logs is.

    An empty partition has an empty `.log`, and so has one whose records are in remote storage; a directory without any file was
    emptied. Logs that are being replaced or deleted stand under other names for a moment (`.swap`, `.deleted`), and a node's first
    snapshot stands without any.
    """
    partitions = [directory for directory in log_dir.found.partitions if directory.legal]
    if any(segment.log is not None for directory in partitions for segment in directory.segments):
        return False
    return any(directory.suffix is None and _had_log(directory) for directory in partitions)


def _had_log(directory: PartitionDirectory) -> bool:
    if any(file.kind is FileKind.LOG for file in directory.leftovers):
        return False
    return bool(directory.segments or directory.snapshots) or "leader-epoch-checkpoint" in directory.entries


def _compacted(log_dir: LogDir) -> set[tuple[str, int]]:
    checkpoint = log_dir.checkpoints.get("cleaner-offset-checkpoint")
    return set() if checkpoint is None else set(checkpoint.offsets)


def _wanted(log_dir: LogDir, directory: PartitionDirectory, options: ScanOptions) -> bool:
    if options.broker is not None and str(log_dir.broker) != options.broker:
        return False
    return fits((directory.topic or "", directory.partition), options)


def _unlisted(log_dir: LogDir) -> Iterator[PartitionDirectory]:
    """The ordinary partition directories of which nothing but the name is known."""
    for partition_name in log_dir.found.unlisted:
        if partition_name.suffix is None:
            name = f"{partition_name.topic}-{partition_name.partition}"
            path = f"{log_dir.found.path}/{name}".lstrip("/")
            yield PartitionDirectory(path, name, partition_name.topic, partition_name.partition, legal=True)


def _note_files(inputs: Inputs, log_dir: LogDir, directory: PartitionDirectory) -> None:
    """Note the files of segments as they are now, and what cannot be read."""
    for entry in directory.irregular:
        if entry.unreadable is not None and parse_file_name(entry.name) is not None:
            inputs.incomplete.append(Incomplete(typed_path(log_dir.source, entry.path), entry.unreadable))
    files = [file for segment in directory.segments for file in (segment.log, segment.index, segment.time_index)]
    inputs.manifest.record(log_dir.source, *(file for file in files if file is not None))


def _plan(
    inputs: Inputs, log_dir: LogDir, directory: PartitionDirectory, compacted: set[tuple[str, int]], options: ScanOptions
) -> ReplicaPlan:
    context = _context(log_dir, directory, compacted, options)
    _note_files(inputs, log_dir, directory)
    context.segments_being_deleted = [
        leftover_file.base_offset
        for leftover_file in directory.leftovers
        if leftover_file.suffix == "deleted" and leftover_file.kind is FileKind.LOG and leftover_file.base_offset is not None
    ]
    logs = directory.logs()
    context.segment_base_offsets = [log.base_offset for log in logs]
    context.not_followed = [log.base_offset for log in logs if log.entry.unreadable]
    plan = ReplicaPlan(log_dir, directory, context, sum([log.entry.size_in_bytes for log in logs]))
    if directory.topic in WITNESS_TOPICS:
        read_leader_epochs(inputs, plan)
    return plan


def _costs_much(log_dir: LogDir) -> bool:
    """Whether reading a file of every partition is work for many."""
    return isinstance(log_dir.source, DistantSource) or len(log_dir.found.partitions) >= MANY_PARTITIONS


def _take_topic_id(inputs: Inputs, plan: ReplicaPlan, *, later: bool) -> None:
    """Read the topic's id from the replica's `partition.metadata`, or leave that for `later`."""
    entry = plan.directory.entries.get(METADATA)
    if entry is not None and later:
        inputs.manifest.record(plan.log_dir.source, entry)
        inputs.without_ids.append(plan)
    elif entry is not None:
        metadata = inputs.read(plan.log_dir.source, entry, parse_partition_metadata)
        if metadata is not None:
            plan.context.topic_id, plan.context.topic_id_damaged = metadata.topic_id, bool(metadata.damage)


def read_leader_epochs(inputs: Inputs, plan: ReplicaPlan) -> None:
    """Read the `leader-epoch-checkpoint` of a replica unless it has been: where it is folded, for nobody asks about it before; of
    witnesses' logs when they are gathered."""
    entry = plan.directory.entries.get("leader-epoch-checkpoint")
    if entry is not None and plan.context.leader_epochs is None:
        plan.context.leader_epochs = inputs.read(plan.log_dir.source, entry, parse_leader_epochs)


def _context(
    log_dir: LogDir, directory: PartitionDirectory, compacted: set[tuple[str, int]], options: ScanOptions
) -> ReplicaContext:
    """What is known of a replica without reading anything of its directory."""
    topic, partition = directory.topic or "", directory.partition or 0
    context = ReplicaContext(topic, partition, log_dir.broker, log_dir.name, directory.name)
    context.compacted = topic in INTERNAL_TOPICS or (topic, partition) in compacted
    context.high_watermark = log_dir.offset("replication-offset-checkpoint", topic, partition)
    context.recovery_point = log_dir.offset("recovery-point-offset-checkpoint", topic, partition)
    context.log_start_checkpoint = log_dir.offset("log-start-offset-checkpoint", topic, partition)
    context.cleaner_checkpoint = log_dir.offset("cleaner-offset-checkpoint", topic, partition)
    context.clean_shutdown = log_dir.clean_shutdown is not None
    context.live = options.live
    context.log_unknown = log_dir.logs_left_out
    return context


# Whose it is what could not be read: broker, topic and partition by the place of a file.


def attributed(gaps: Iterable[Incomplete], log_dirs: Sequence[LogDir]) -> list[Incomplete]:
    """`gaps` with the broker in whose log directory each lies, and the partition whose directory it is in or is.

    A gap that is a log directory itself, or holds some, is of nobody: what lies in it is not known.
    """
    by_name = {log_dir.name.rstrip(os.sep): log_dir for log_dir in log_dirs}
    return [_attributed(gap, by_name) for gap in gaps]


def may_hide_log_directory(inputs: Inputs) -> bool:
    """Whether something that was given may be or hold a log directory, and could not be read: a cut archive, a link not followed.

    What a copy in it holds is not known, so that nothing is lost everywhere.
    """
    cut = any(source.problems for source in inputs.sources)
    return cut or any(gap.broker is None for gap in attributed(inputs.incomplete, inputs.log_dirs))


def _attributed(gap: Incomplete, by_name: dict[str, LogDir]) -> Incomplete:
    if gap.broker is not None:
        return gap
    log_dir, inside = _around(gap.path, by_name)
    if log_dir is None:
        return gap
    lone = {
        (directory.topic, directory.partition) for directory in log_dir.found.partitions if directory.path == log_dir.found.path
    }
    if lone:  # the log directory is one partition's, or one file
        topic, partition = next(iter(lone))
        return replace(gap, topic=topic, partition=partition, broker=log_dir.broker)
    if not inside:
        return gap
    name = parse_partition_name(inside.split(os.sep, 1)[0])
    if name is None:
        return replace(gap, broker=log_dir.broker)
    return replace(gap, topic=name.topic, partition=name.partition, broker=log_dir.broker)


def _around(path: str, by_name: dict[str, LogDir]) -> tuple[LogDir | None, str]:
    """The innermost log directory that `path` is or lies in, and the path within it."""
    end = len(path)
    while end > 0:
        if (log_dir := by_name.get(path[:end].rstrip(os.sep))) is not None:
            return log_dir, path[end:].lstrip(os.sep)
        end = path.rfind(os.sep, 0, end)
    return None, ""
