"""Discovery of log directories, partitions and segments in a tree of files, by names and listings; no file is opened.

The content of a directory counts more than its name: a directory `broker-1` has the name of partition 1 of topic `broker`. A link
that the source follows counts as its target. Other links, pipes, sockets and devices count as unreadable files and directories.
"""

import os
import re
from bisect import bisect_left
from collections.abc import Iterator
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter
from typing import Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from kafka_forensics.errors import SourceError
from kafka_forensics.model.constants import INT64_MAX, MAX_INT32, MAX_RELATIVE_OFFSET
from kafka_forensics.model.results import Incomplete
from kafka_forensics.storage.local import directory_kept_open
from kafka_forensics.storage.source import ByteSource, Entry, EntryKind, directory_key, root_path
from kafka_forensics.storage.tiered import belongs_to_store, is_store

# Names of files and directories in a log directory (LogFileUtils, LocalLog, Snapshots).


class FileKind(StrEnum):
    """Kind of file, by its name."""

    LOG = "log"
    INDEX = "index"
    TIME_INDEX = "timeindex"
    TRANSACTION_INDEX = "txnindex"
    PRODUCER_SNAPSHOT = "snapshot"
    LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
    REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"
    RECOVERY_POINT_OFFSET_CHECKPOINT = "recovery-point-offset-checkpoint"
    LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
    CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
    META_PROPERTIES = "meta.properties"
    PARTITION_METADATA = "partition.metadata"
    CLEAN_SHUTDOWN = "clean_shutdown"
    QUORUM_STATE = "quorum-state"
    METADATA_CHECKPOINT = "metadata_checkpoint"
    """A KRaft snapshot: `bootstrap.checkpoint` or `<offset>-<epoch>.checkpoint`."""


SEGMENT_KINDS: Final = (FileKind.LOG, FileKind.INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)
LOG_KINDS: Final = (FileKind.LOG, FileKind.METADATA_CHECKPOINT)
"""Kinds of files with batches."""
OFFSET_CHECKPOINTS: Final = (
    FileKind.REPLICATION_OFFSET_CHECKPOINT,
    FileKind.RECOVERY_POINT_OFFSET_CHECKPOINT,
    FileKind.LOG_START_OFFSET_CHECKPOINT,
    FileKind.CLEANER_OFFSET_CHECKPOINT,
)
LOG_DIRECTORY_KINDS: Final = (*OFFSET_CHECKPOINTS, FileKind.META_PROPERTIES, FileKind.CLEAN_SHUTDOWN)
PARTITION_KINDS: Final = (FileKind.LEADER_EPOCH_CHECKPOINT, FileKind.PARTITION_METADATA, FileKind.QUORUM_STATE)

_FIXED_NAMES: Final = {
    **{kind.value: kind for kind in (*OFFSET_CHECKPOINTS, FileKind.META_PROPERTIES, *PARTITION_KINDS)},
    ".kafka_cleanshutdown": FileKind.CLEAN_SHUTDOWN,
    "bootstrap.checkpoint": FileKind.METADATA_CHECKPOINT,
}
_SUFFIXES: Final = frozenset({"deleted", "swap", "cleaned", "tmp", "part"})
_OFFSET_NAME: Final = re.compile(r"([0-9]{20})\.(log|index|timeindex|txnindex|snapshot)")
_METADATA_CHECKPOINT: Final = re.compile(r"([0-9]{20})-([0-9]{10})(-[0-9]{1,20})?\.checkpoint")
_PARTITION: Final = re.compile(
    r"(?P<topic>(?!\.{1,2}-[0-9]+(?:\.[0-9a-f]{32}-[a-z]+)?\Z)[a-zA-Z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})"
    r"(?:\.[0-9a-f]{32}-(?P<suffix>delete|future|stray))?"
)
REMOTE_INDEX_CACHE: Final = "remote-log-index-cache"
"""Directory in a log directory with cached indexes of remote segments."""
_REMOTE_INDEX: Final = re.compile(r"(0|[1-9][0-9]{0,18})_([A-Za-z0-9_-]{21}[AQgw])\.(?:index|timeindex|txnindex)(?:\.deleted)?")


class FileName(Struct, frozen=True):
    """The parts of a file name. `offset` and `leader_epoch` are None for kinds without them, `suffix` without a suffix."""

    kind: FileKind
    offset: int | None = None
    leader_epoch: int | None = None
    suffix: str | None = None
    """The outermost of `deleted`, `swap`, `cleaned`, `tmp`, `part`."""


class PartitionName(Struct, frozen=True):
    """The parts of a partition directory's name; Kafka shortens the topic of a deleted or stray one to 255 characters in all."""

    topic: str
    partition: int
    suffix: str | None = None
    """`delete`, `future` or `stray`, None for an ordinary replica."""


@lru_cache(maxsize=1 << 12)
def parse_file_name(name: str) -> FileName | None:
    """The parts of `name`, None if it is not a name of Kafka's. Offsets have 20 digits up to 2^63 - 1, epochs 10 up to 2^31 - 1."""
    inner, suffix = name, None
    for _ in _SUFFIXES:
        stem, _, last = inner.rpartition(".")
        if last not in _SUFFIXES or not stem:
            break
        inner, suffix = stem, suffix or last
    if inner in _FIXED_NAMES:
        return FileName(_FIXED_NAMES[inner], suffix=suffix)
    if match := _OFFSET_NAME.fullmatch(inner):
        offset = int(match[1])
        return FileName(FileKind(match[2]), offset, suffix=suffix) if offset <= INT64_MAX else None
    if match := _METADATA_CHECKPOINT.fullmatch(inner):
        offset, leader_epoch = int(match[1]), int(match[2])
        in_bounds = offset <= INT64_MAX and leader_epoch <= MAX_INT32
        finished = match[3] is None or suffix is not None
        return FileName(FileKind.METADATA_CHECKPOINT, offset, leader_epoch, suffix) if in_bounds and finished else None
    return None


def parse_remote_index_name(name: str) -> tuple[int, str] | None:
    """Start offset and id of the remote segment of an index in `remote-log-index-cache`; None for other names."""
    match = _REMOTE_INDEX.fullmatch(name)
    return None if match is None or int(match[1]) > INT64_MAX else (int(match[1]), match[2])


def classify_file(name: str) -> FileKind | None:
    """The kind of file by `name`, with any suffix; None if it is not a name of Kafka's."""
    parsed = parse_file_name(name)
    return None if parsed is None else parsed.kind


def parse_partition_name(name: str) -> PartitionName | None:
    """Topic and partition of a directory, split at the last `-`; None if no broker creates a directory with that name."""
    match = _PARTITION.fullmatch(name)
    if match is None or int(match["partition"]) > MAX_INT32:
        return None
    return PartitionName(match["topic"], int(match["partition"]), match["suffix"])


MAX_DEPTH: Final = 3
"""Log directories are searched this many levels below the root."""
SYSTEM_FILES: Final = frozenset({".lock", ".DS_Store"})
"""Files that are ignored,"""
SYSTEM_DIRECTORIES: Final = frozenset({REMOTE_INDEX_CACHE, "lost+found"})
"""and directories."""
_PARTITION_SHAPE: Final = re.compile(r".*-(?:[0-9]+|delete|future|stray)", re.DOTALL)


class SegmentFiles(Struct, frozen=True):
    """The files of one segment; None for absent ones."""

    base_offset: int
    log: Entry | None = None
    index: Entry | None = None
    time_index: Entry | None = None
    transaction_index: Entry | None = None


def max_plausible_offset(base_offset: int, next_base_offset: int | None = None) -> int:
    """The exclusive limit of base offsets in a segment, for a search for batches after damage.

    Relative offsets have 32 bits (`LogSegment.canConvertToRelativeOffset`), and all are below the next segment's base offset.
    """
    reach = min(base_offset + MAX_RELATIVE_OFFSET + 1, INT64_MAX)
    return reach if next_base_offset is None else min(reach, next_base_offset)


class SegmentLog(NamedTuple):
    """A segment with a `.log`, that file, and the base offset of the next such segment, None for the last."""

    segment: SegmentFiles
    entry: Entry
    next_base_offset: int | None

    @property
    def base_offset(self) -> int:
        """Base offset of the segment."""
        return self.segment.base_offset

    @property
    def max_plausible_offset(self) -> int:
        """The exclusive limit of base offsets of its batches."""
        return max_plausible_offset(self.base_offset, self.next_base_offset)

    def reaches(self, start: int) -> bool:
        """Whether it may contain an offset from `start` on."""
        return self.next_base_offset is None or self.next_base_offset > start


class LeftoverFile(Struct, frozen=True):
    """A file that Kafka was about to add or remove: its name ends with `.deleted`, `.swap`, `.cleaned`, `.tmp` or `.part`."""

    entry: Entry
    base_offset: int | None
    """None for kinds without an offset in the name."""
    kind: FileKind
    suffix: str


class PartitionDirectory(Struct, frozen=True):
    """One replica's directory. `topic` and `partition` are None if the name is not a partition's (`legal` False).

    A directory with such a name inside a log directory has all files in `unknown`. A partition directory without a log directory
    around it is read whatever its name is.
    """

    path: str
    name: str
    """As listed; for the root of the source the last part of the source's name."""
    topic: str | None
    partition: int | None
    suffix: str | None = None
    """`delete`, `future`, `stray`, None for an ordinary replica."""
    segments: list[SegmentFiles] = field(default_factory=list)
    """By base offset."""
    leftovers: list[LeftoverFile] = field(default_factory=list)
    entries: dict[str, Entry] = field(default_factory=dict)
    """By name: `leader-epoch-checkpoint`, `partition.metadata`, `quorum-state`, and `SYSTEM_FILES`."""
    snapshots: list[tuple[int, Entry]] = field(default_factory=list)
    """(offset, file), by offset."""
    metadata_snapshots: list[tuple[int, int, Entry]] = field(default_factory=list)
    """(offset, leader epoch, file) of KRaft snapshots, in order."""
    unknown: list[Entry] = field(default_factory=list)
    irregular: list[Entry] = field(default_factory=list)
    """Links that are not followed, pipes, sockets, devices; those with a name of Kafka's are in the other lists, too."""
    legal: bool = False
    entry: Entry | None = None
    """The directory as listed; None if it is not a directory."""

    @property
    def is_replica(self) -> bool:
        """Whether it is a partition's directory that a broker reads: not one that is moved, deleted or stray."""
        return self.legal and self.suffix is None

    def segment(self, base_offset: int) -> SegmentFiles | None:
        """The segment with this base offset, or None."""
        at = bisect_left(self.segments, base_offset, key=attrgetter("base_offset"))
        return self.segments[at] if at < len(self.segments) and self.segments[at].base_offset == base_offset else None

    def logs(self, next_base_offset: int | None = None) -> list[SegmentLog]:
        """The segments with a `.log`, by base offset; `next_base_offset` is that of the segment after the last of them."""
        logs = [(segment, segment.log) for segment in self.segments if segment.log is not None]
        next_offsets = [*(segment.base_offset for segment, _ in logs[1:]), next_base_offset]
        return [SegmentLog(*log, next_offset) for log, next_offset in zip(logs, next_offsets, strict=False)]

    def segment_of(self, offset: int) -> SegmentFiles | None:
        """The segment with a log that may contain an offset: the last with a base offset at or before it."""
        return next((files for files in reversed(self.segments) if files.log is not None and files.base_offset <= offset), None)

    def files(self) -> Iterator[Entry]:
        """The files of the lists and of `entries`, without `unknown` and `irregular`."""
        for segment in self.segments:
            yield from filter(None, (segment.log, segment.index, segment.time_index, segment.transaction_index))
        yield from self.entries.values()
        yield from (entry for _, entry in self.snapshots)
        yield from (entry for _, _, entry in self.metadata_snapshots)
        yield from (file.entry for file in self.leftovers)


class LogDirectory(Struct, frozen=True):
    """One entry of a broker's `log.dirs`; `path` is relative to the source ("" is its root)."""

    path: str
    entries: dict[str, Entry] = field(default_factory=dict)
    """By name: known files of this level, also with the suffix `.tmp`, `SYSTEM_FILES` and `SYSTEM_DIRECTORIES`."""
    partitions: list[PartitionDirectory] = field(default_factory=list)
    unknown: list[Entry] = field(default_factory=list)
    irregular: list[Entry] = field(default_factory=list)
    unlisted: list[PartitionName] = field(default_factory=list)
    """Partitions, by name, whose directory, link or pipe cannot be listed."""
    repeated: list[PartitionName] = field(default_factory=list)
    """Partitions, by name, that are links to a directory with another name in the source."""
    entry: Entry | None = None
    """The directory as listed."""


class Discovery(Struct, frozen=True):
    """The result of a discovery, ordered by path. `files` is `stat("")` of a source that is a file."""

    log_directories: list[LogDirectory] = field(default_factory=list)
    files: list[Entry] = field(default_factory=list)
    unknown: list[Entry] = field(default_factory=list)
    """Files outside log directories."""
    unsearched: list[Entry] = field(default_factory=list)
    """Files and directories below `MAX_DEPTH`."""
    irregular: list[Entry] = field(default_factory=list)
    """Links that are not followed, pipes, sockets, devices outside log directories."""
    incomplete: list[Incomplete] = field(default_factory=list)
    """Directories that cannot be listed, and possible directories: links that are not followed, pipes with a partition's name."""
    repeated: list[Entry] = field(default_factory=list)
    """Links to directories with another name in the source."""
    empty: list[Entry] = field(default_factory=list)
    """Empty directories outside log directories, such as a new disk."""
    remote_stores: list[Entry] = field(default_factory=list)
    """Remote stores of tiered topics, or directories inside of these; objects are not listed here."""

    def take(self, other: "Discovery") -> None:
        """Append another discovery."""
        for part in self.__struct_fields__:
            getattr(self, part).extend(getattr(other, part))


def discover(source: ByteSource) -> Discovery:
    """The content of `source`: a log directory, directories of them to depth 3, a partition directory, or one file.

    A log directory has `meta.properties`, an offset checkpoint or `.kafka_cleanshutdown`, or directories that are partitions by
    name and content. Raises SourceError if the root cannot be listed; other directories that cannot be listed are `incomplete`.
    """
    root = source.stat("")
    if root.kind is EntryKind.FILE:
        return Discovery(files=[root])
    if root.kind is not EntryKind.DIRECTORY:
        return Discovery(irregular=[root])
    name = root_path(source).rpartition("/")[2]
    return _search(source, _folder(root, name, source.list("")), 0, {directory_key(root): False})


class _Folder(Struct, frozen=True):
    """A directory with its listing, its parsed file names, and what kind of directory it is."""

    entry: Entry
    name: str
    files: list[tuple[Entry, FileName | None]]
    """Also links that are not followed and pipes, if they have a name of Kafka's."""
    directories: list[Entry]
    irregular: list[Entry]
    is_log_directory: bool
    is_partition: bool

    @property
    def path(self) -> str:
        """Path in the source."""
        return self.entry.path


def _folder(of: Entry, name: str, entries: list[Entry]) -> _Folder:
    files = [
        (entry, parsed)
        for entry in entries
        if entry.kind is not EntryKind.DIRECTORY
        and ((parsed := parse_file_name(entry.name)) is not None or entry.kind is EntryKind.FILE)
    ]
    file_names = [parsed for _, parsed in files if parsed is not None]
    is_log_directory = any(parsed.kind in LOG_DIRECTORY_KINDS and parsed.suffix is None for parsed in file_names)
    is_partition = not is_log_directory and any(
        parsed.offset is not None or parsed.kind in PARTITION_KINDS for parsed in file_names
    )
    directories = [entry for entry in entries if entry.kind is EntryKind.DIRECTORY]
    irregular = [entry for entry in entries if entry.kind not in (EntryKind.FILE, EntryKind.DIRECTORY)]
    return _Folder(of, name, files, directories, irregular, is_log_directory, is_partition)


def _search(source: ByteSource, folder: _Folder, depth: int, seen: dict[object, bool]) -> Discovery:
    """The content of `folder`, `depth` levels below the root.

    Without links to directories in `seen`, and without targets of links that are partitions of a log directory above.
    """
    if folder.is_partition:
        return _single_partition(folder)
    discovery = Discovery()
    if not folder.is_log_directory and _is_remote_store(source, folder):
        discovery.remote_stores.append(folder.entry)
        folder = _without_store(folder)
        if not folder.directories:
            return discovery
    if depth > MAX_DEPTH:
        discovery.unsearched.extend([entry for entry, _ in folder.files if entry.unreadable is None] + folder.directories)
        discovery.irregular.extend(folder.irregular)
        return discovery
    children = _children(source, folder, depth, seen, discovery)
    holds_partitions = any(child.is_partition and parse_partition_name(child.name) for child, _ in children)
    if folder.is_log_directory or holds_partitions:
        _add_log_directory(discovery, folder, children)
    else:
        _add_folder(discovery, folder, children, is_root=depth == 0)
    return discovery


def _is_remote_store(source: ByteSource, folder: _Folder) -> bool:
    """Whether a folder is a remote store; no if it cannot be listed, which is found when it is searched."""
    try:
        return is_store(source, folder.name, [*folder.directories, *(entry for entry, parsed in folder.files if parsed is None)])
    except SourceError:
        return False


def _without_store(folder: _Folder) -> _Folder:
    """What else is in a folder that is a remote store: the directories that do not belong to it by their names."""
    directories = [
        entry
        for entry in folder.directories
        if not belongs_to_store(folder.name, entry.name) and entry.name not in SYSTEM_DIRECTORIES
    ]
    return replace(folder, files=[], directories=directories)


def _children(
    source: ByteSource, folder: _Folder, depth: int, seen: dict[object, bool], discovery: Discovery
) -> list[tuple[_Folder, Discovery]]:
    """The directories of a folder that can be listed, each with the content below it unless it is a partition's.

    A partition that is a link to a directory below the folder belongs to the folder: such links come first, and their targets are
    not searched.
    """
    children = []
    nothing = Discovery()  # shared by all partitions, of which a broker has very many
    with directory_kept_open(source, folder.path):
        below = {entry.path for entry in folder.directories if folder.is_log_directory and _links_below(source, folder, entry)}
        for entry in sorted(folder.directories, key=lambda entry: entry.path not in below):
            key = directory_key(entry)
            if seen.get(key, False) or (entry.link is not None and key in seen):
                discovery.repeated.append(entry)
                continue
            seen[key] = entry.path in below
            child = None if entry.name in SYSTEM_DIRECTORIES else _listed(source, entry, discovery)
            if child is not None:
                children.append((child, nothing if child.is_partition else _search(source, child, depth + 1, seen)))
    return children


def _links_below(source: ByteSource, folder: _Folder, entry: Entry) -> bool:
    """Whether a partition's directory is a link to a directory below its folder."""
    if entry.link is None or parse_partition_name(entry.name) is None:
        return False
    root = os.path.realpath(source.name) if entry.link.startswith("/") else ""  # in an archive the targets of links are its paths
    target = os.path.join(root, folder.path) if folder.entry.link is None else folder.entry.link
    below = f"{target.rstrip('/')}/" if target else ""
    return entry.link.startswith(below) and entry.link != f"{below}{entry.name}"  # otherwise the folder is reached by a link


def _add_folder(discovery: Discovery, folder: _Folder, children: list[tuple[_Folder, Discovery]], *, is_root: bool) -> None:
    """Add a folder that is not a log directory, with everything below it."""
    names = [entry.name for entry in (*(entry for entry, _ in folder.files), *folder.directories, *folder.irregular)]
    if SYSTEM_FILES.union(SYSTEM_DIRECTORIES).issuperset(names):
        discovery.empty.append(folder.entry)
        return
    discovery.unknown.extend(entry for entry, _ in folder.files if entry.unreadable is None)
    discovery.irregular.extend(folder.irregular)
    for child, below in children:
        discovery.take(_single_partition(child) if child.is_partition else below)
    only_links = is_root and not folder.directories and all(entry.kind is EntryKind.SYMLINK for entry, _ in folder.files)
    discovery.incomplete.extend(_possible_directories(folder, near_log_dirs=only_links or bool(discovery.log_directories)))


def _add_log_directory(discovery: Discovery, folder: _Folder, children: list[tuple[_Folder, Discovery]]) -> None:
    """Add a log directory, and the log directories below it."""
    discovery.incomplete.extend(_possible_directories(folder, near_log_dirs=True))
    partitions = [child for child, below in children if not (below.log_directories or below.remote_stores)]
    log_directory = _log_directory(folder, partitions, [incomplete.path for incomplete in discovery.incomplete])
    log_directory.repeated.extend(
        name for directory in discovery.repeated if (name := parse_partition_name(directory.name)) is not None
    )
    discovery.log_directories.append(log_directory)
    for _, below in children:
        if below.log_directories or below.remote_stores:
            discovery.take(below)
        else:
            discovery.incomplete.extend(below.incomplete)
            discovery.repeated.extend(below.repeated)


def _possible_directories(folder: _Folder, *, near_log_dirs: bool) -> list[Incomplete]:
    """Entries of `folder` that may be directories: links that are not followed, pipes with a partition's name.

    Without `near_log_dirs`, in a folder that has nothing to do with log directories, only entries with a partition's name.
    """
    incompletes = []
    for entry in folder.irregular:
        is_known = parse_file_name(entry.name) is not None or entry.name in SYSTEM_FILES | SYSTEM_DIRECTORIES
        if not is_known and ((near_log_dirs and entry.kind is EntryKind.SYMLINK) or parse_partition_name(entry.name) is not None):
            incompletes.append(Incomplete(entry.path, entry.unreadable or ""))
    return incompletes


def _listed(source: ByteSource, entry: Entry, discovery: Discovery) -> _Folder | None:
    """The directory `entry` with its listing; None, and a row in `incomplete`, if it cannot be listed."""
    try:
        return _folder(entry, entry.name, source.list(entry.path))
    except SourceError as error:
        discovery.incomplete.append(Incomplete(entry.path, error.reason))
        return None


def _single_partition(folder: _Folder) -> Discovery:
    """A partition directory without a log directory around it."""
    parsed = parse_partition_name(folder.name)
    return Discovery([LogDirectory(folder.path, {}, [_partition_directory(folder, parsed)], [], [], entry=folder.entry)])


def _belongs_to_log_directory(parsed: FileName) -> bool:
    return parsed.offset is None and parsed.kind not in PARTITION_KINDS


def _log_directory(folder: _Folder, children: list[_Folder], unlisted_paths: list[str]) -> LogDirectory:
    """`folder` as a log directory; a child without a partition's name is an illegal partition, or `unknown` without signs of Kafka.

    `unlisted_paths` are directories in it that cannot be listed.
    """
    entries: dict[str, Entry] = {}
    unknown: list[Entry] = []
    for entry, parsed in folder.files:
        if entry.name in SYSTEM_FILES or (parsed is not None and _belongs_to_log_directory(parsed)):
            entries[entry.name] = entry
        elif entry.unreadable is None:
            unknown.append(entry)
    partitions = []
    unlisted = [name for path in unlisted_paths if (name := parse_partition_name(path.rpartition("/")[2])) is not None]
    by_path = {child.path: child for child in children}
    for entry in folder.directories:
        child = by_path.get(entry.path)
        if entry.name in SYSTEM_DIRECTORIES:
            entries[entry.name] = entry
        elif child is None:
            continue
        elif (name := parse_partition_name(child.name)) is not None:
            partitions.append(_partition_directory(child, name))
        elif folder.is_log_directory or child.is_partition or _PARTITION_SHAPE.fullmatch(child.name):
            unread = replace(child, files=[(file, None) for file, _ in child.files])
            partitions.append(_partition_directory(unread, None))
        else:
            unknown.append(entry)
    return LogDirectory(folder.path, entries, partitions, unknown, folder.irregular, unlisted, entry=folder.entry)


def _partition_directory(folder: _Folder, name: PartitionName | None) -> PartitionDirectory:
    """`folder` as a partition directory, its files sorted by their names."""
    segments: dict[int, dict[FileKind, Entry]] = {}
    leftovers: list[LeftoverFile] = []
    entries: dict[str, Entry] = {}
    snapshots: list[tuple[int, Entry]] = []
    metadata_snapshots: list[tuple[int, int, Entry]] = []
    unknown = list(folder.directories)
    for entry, parsed in folder.files:
        if parsed is None or _belongs_to_log_directory(parsed):
            if entry.name in SYSTEM_FILES:
                entries[entry.name] = entry
            elif entry.unreadable is None:
                unknown.append(entry)
        elif parsed.suffix is not None:
            leftovers.append(LeftoverFile(entry, parsed.offset, parsed.kind, parsed.suffix))
        elif parsed.offset is None:
            entries[entry.name] = entry
        elif parsed.leader_epoch is not None:
            metadata_snapshots.append((parsed.offset, parsed.leader_epoch, entry))
        elif parsed.kind is FileKind.PRODUCER_SNAPSHOT:
            snapshots.append((parsed.offset, entry))
        else:
            segments.setdefault(parsed.offset, {})[parsed.kind] = entry
    return PartitionDirectory(
        path=folder.path,
        name=folder.name,
        topic=None if name is None else name.topic,
        partition=None if name is None else name.partition,
        suffix=None if name is None else name.suffix,
        segments=[SegmentFiles(offset, *map(files.get, SEGMENT_KINDS)) for offset, files in sorted(segments.items())],
        leftovers=leftovers,
        entries=entries,
        snapshots=sorted(snapshots, key=lambda row: row[0]),
        metadata_snapshots=sorted(metadata_snapshots, key=lambda row: row[:2]),
        unknown=unknown,
        irregular=folder.irregular,
        legal=name is not None,
        entry=folder.entry,
    )
