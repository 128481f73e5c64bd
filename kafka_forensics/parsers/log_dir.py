"""Discovery: which log directories, partitions and segments a tree of evidence holds, by names and listings alone.

Content decides before names do: a folder `broker-1` reads like partition 1 of topic `broker`. No file is opened. A link that the
source follows is what it leads to. One that it does not, a pipe, a socket and a device take the place that their name promises, as
files and directories that cannot be read.
"""

import os
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter
from typing import Final, NamedTuple

from kafka_forensics.errors import SourceError
from kafka_forensics.model.constants import INT64_MAX, MAX_INT32, MAX_RELATIVE_OFFSET
from kafka_forensics.model.results import Incomplete
from kafka_forensics.storage.local import holding
from kafka_forensics.storage.source import ByteSource, Entry, EntryKind

# What the names of files and directories in a log directory say (LogFileUtils, LocalLog, Snapshots).


class FileKind(StrEnum):
    """What a file holds, as its name says."""

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
"""Kinds of files that hold batches."""
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
REMOTE_STORE: Final = "kafka-tiered-storage"
"""In which LocalTieredStorage, the plugin of Kafka's own tests, keeps remote segments."""
"""A log directory's directory of the indexes of remote segments that were read last."""
_REMOTE_INDEX: Final = re.compile(r"(0|[1-9][0-9]{0,18})_([A-Za-z0-9_-]{21}[AQgw])\.(?:index|timeindex|txnindex)(?:\.deleted)?")


@dataclass(frozen=True, slots=True)
class FileName:
    """A name taken apart. `offset` and `leader_epoch` are None where such names hold none, `suffix` where nothing is appended."""

    kind: FileKind
    offset: int | None = None
    leader_epoch: int | None = None
    suffix: str | None = None
    """The outermost of `deleted`, `swap`, `cleaned`, `tmp`, `part`."""


@dataclass(frozen=True, slots=True)
class PartitionName:
    """A partition directory's name taken apart.

    Of one that waits to be deleted, or is stray, Kafka cuts the topic short where the name would pass 255 characters.
    """

    topic: str
    partition: int
    suffix: str | None = None
    """`delete`, `future` or `stray`, None for an ordinary replica."""


@lru_cache(maxsize=1 << 12)
def parse_file_name(name: str) -> FileName | None:
    """What `name` says, None if it is none of Kafka's names. Offsets are 20 digits up to 2^63 - 1, epochs 10 up to 2^31 - 1."""
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
    """Start offset and id of the remote segment of which a file in `remote-log-index-cache` is an index; None for other names."""
    match = _REMOTE_INDEX.fullmatch(name)
    return None if match is None or int(match[1]) > INT64_MAX else (int(match[1]), match[2])


def classify_file(name: str) -> FileKind | None:
    """The kind of file that `name` promises, whatever suffix is appended to it; None if it is none of Kafka's names."""
    parsed = parse_file_name(name)
    return None if parsed is None else parsed.kind


def parse_partition_name(name: str) -> PartitionName | None:
    """Topic and partition of a directory, split at the last `-`; None if no broker would have made a directory of that name."""
    match = _PARTITION.fullmatch(name)
    if match is None or int(match["partition"]) > MAX_INT32:
        return None
    return PartitionName(match["topic"], int(match["partition"]), match["suffix"])


__all__ = [
    "LOG_KINDS",
    "Discovery",
    "FileKind",
    "LeftoverFile",
    "LogDirectory",
    "PartitionDirectory",
    "SegmentFiles",
    "SegmentLog",
    "classify_file",
    "discover",
    "max_plausible_offset",
    "parse_file_name",
    "parse_partition_name",
    "parse_remote_index_name",
]

MAX_DEPTH: Final = 3
"""Log directories are looked for down to this many levels below the root."""
SYSTEM_FILES: Final = frozenset({".lock", ".DS_Store"})
"""Files beside those of Kafka that say nothing;"""
SYSTEM_DIRECTORIES: Final = frozenset({REMOTE_INDEX_CACHE, "lost+found"})
"""and directories."""
_PARTITION_SHAPE: Final = re.compile(r".*-(?:[0-9]+|delete|future|stray)", re.DOTALL)
_ARCHIVE_SUFFIX: Final = re.compile(r"\.(?:tar|tar\.gz|tgz|tar\.xz|txz|tar\.zst|zip|kfb)\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The files of one segment; None for each that is absent."""

    base_offset: int
    log: Entry | None = None
    index: Entry | None = None
    time_index: Entry | None = None
    transaction_index: Entry | None = None


def max_plausible_offset(base_offset: int, next_base_offset: int | None = None) -> int:
    """The offset before which all batches of a segment must begin, or they are not believed where damage is searched through.

    Offsets of a segment have 32 bits beside its own (`LogSegment.canConvertToRelativeOffset`), and lie before the next one's.
    """
    reach = min(base_offset + MAX_RELATIVE_OFFSET + 1, INT64_MAX)
    return reach if next_base_offset is None else min(reach, next_base_offset)


class SegmentLog(NamedTuple):
    """A segment that has a `.log`, that file, and the base offset of the next such segment; None for the last."""

    segment: SegmentFiles
    entry: Entry
    next_base_offset: int | None

    @property
    def base_offset(self) -> int:
        """Of the segment."""
        return self.segment.base_offset

    @property
    def max_plausible_offset(self) -> int:
        """The offset before which all its batches must begin."""
        return max_plausible_offset(self.base_offset, self.next_base_offset)

    def reaches(self, start: int) -> bool:
        """Whether it may hold an offset from `start` on."""
        return self.next_base_offset is None or self.next_base_offset > start


@dataclass(frozen=True, slots=True)
class LeftoverFile:
    """A file on its way in or out: one of Kafka's names with `.deleted`, `.swap`, `.cleaned`, `.tmp` or `.part` behind it."""

    entry: Entry
    base_offset: int | None
    """None where such names hold no offset."""
    kind: FileKind
    suffix: str


@dataclass(frozen=True, slots=True)
class PartitionDirectory:
    """One replica's directory. `topic` and `partition` are None where the name does not say (`legal` False).

    An illegal name inside a log directory is kept with everything below it in `unknown` and nothing in the other lists. A
    partition directory that stands alone is read whatever its name is.
    """

    path: str
    name: str
    """Raw, for a directory that is the source itself the last part of the source's name."""
    topic: str | None
    partition: int | None
    suffix: str | None = None
    """`delete`, `future`, `stray`, None for an ordinary replica."""
    segments: list[SegmentFiles] = field(default_factory=list)
    """By base offset."""
    leftovers: list[LeftoverFile] = field(default_factory=list)
    entries: dict[str, Entry] = field(default_factory=dict)
    """By name: `leader-epoch-checkpoint`, `partition.metadata`, `quorum-state`, and what systems leave (`.DS_Store`)."""
    snapshots: list[tuple[int, Entry]] = field(default_factory=list)
    """(offset, file), by offset."""
    metadata_snapshots: list[tuple[int, int, Entry]] = field(default_factory=list)
    """(offset, leader epoch, file) of KRaft snapshots, in order."""
    unknown: list[Entry] = field(default_factory=list)
    irregular: list[Entry] = field(default_factory=list)
    """Links that are not followed, FIFOs, sockets, devices; those with a name of Kafka's stand in the other lists too."""
    legal: bool = False
    entry: Entry | None = None
    """The directory as it was listed; None for what is no directory."""

    def segment(self, base_offset: int) -> SegmentFiles | None:
        """The segment of this base offset."""
        at = bisect_left(self.segments, base_offset, key=attrgetter("base_offset"))
        return self.segments[at] if at < len(self.segments) and self.segments[at].base_offset == base_offset else None

    def logs(self, next_base_offset: int | None = None) -> list[SegmentLog]:
        """The segments that have a `.log`, by base offset; `next_base_offset` is what follows the last of them."""
        logs = [(segment, segment.log) for segment in self.segments if segment.log is not None]
        following = [*(segment.base_offset for segment, _ in logs[1:]), next_base_offset]
        return [SegmentLog(*log, behind) for log, behind in zip(logs, following, strict=False)]

    def segment_of(self, offset: int) -> SegmentFiles | None:
        """The one segment with a log that may hold an offset: the last that begins at or before it."""
        return next((files for files in reversed(self.segments) if files.log is not None and files.base_offset <= offset), None)

    def files(self) -> Iterator[Entry]:
        """Its files that may be opened."""
        for segment in self.segments:
            yield from filter(None, (segment.log, segment.index, segment.time_index, segment.transaction_index))
        yield from self.entries.values()
        yield from (entry for _, entry in self.snapshots)
        yield from (entry for _, _, entry in self.metadata_snapshots)
        yield from (file.entry for file in self.leftovers)


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """One entry of a broker's `log.dirs`; `path` is relative to the source ("" is the source itself)."""

    path: str
    entries: dict[str, Entry] = field(default_factory=dict)
    """By name: what is known at this level, unfinished `.tmp` twins and recognised directories included."""
    partitions: list[PartitionDirectory] = field(default_factory=list)
    unknown: list[Entry] = field(default_factory=list)
    irregular: list[Entry] = field(default_factory=list)
    unlisted: list[PartitionName] = field(default_factory=list)
    """Partitions by the names of directories, links and pipes that are there and could not be listed."""
    repeated: list[PartitionName] = field(default_factory=list)
    """Partitions by the names of links to directories that are read by another name."""
    entry: Entry | None = None
    """The directory as it was listed."""


@dataclass(frozen=True, slots=True)
class Discovery:
    """All that was found, in the order of paths. `files` is the source itself where that is a file, as `stat("")` gives it."""

    log_directories: list[LogDirectory] = field(default_factory=list)
    files: list[Entry] = field(default_factory=list)
    unknown: list[Entry] = field(default_factory=list)
    """Files outside log directories."""
    unsearched: list[Entry] = field(default_factory=list)
    """What lies too deep to be searched."""
    irregular: list[Entry] = field(default_factory=list)
    """Links that are not followed, FIFOs, sockets, devices outside log directories."""
    incomplete: list[Incomplete] = field(default_factory=list)
    """Directories that could not be listed, and what may be one: links that are not followed, pipes with a partition's name."""
    repeated: list[Entry] = field(default_factory=list)
    """Links to directories that are read by another name."""
    empty: list[Entry] = field(default_factory=list)
    """Directories outside log directories that hold nothing, as a new disk does."""
    remote_stores: list[Entry] = field(default_factory=list)
    """Directories of remote segments, which are not looked into."""

    def take(self, other: "Discovery") -> None:
        """Append what was found elsewhere."""
        self.log_directories.extend(other.log_directories)
        self.unknown.extend(other.unknown)
        self.unsearched.extend(other.unsearched)
        self.irregular.extend(other.irregular)
        self.incomplete.extend(other.incomplete)
        self.repeated.extend(other.repeated)
        self.empty.extend(other.empty)
        self.remote_stores.extend(other.remote_stores)


def discover(source: ByteSource) -> Discovery:
    """Find what `source` holds: a log directory, folders of them to depth 3, a partition directory, or one file.

    A log directory holds `meta.properties`, an offset checkpoint or `.kafka_cleanshutdown`, or directories that are partitions by
    name and content. Raises SourceError if the root cannot be listed; what cannot be listed below it is `incomplete`.
    """
    root = source.stat("")
    if root.kind is EntryKind.FILE:
        return Discovery(files=[root])
    if root.kind is not EntryKind.DIRECTORY:
        return Discovery(irregular=[root])
    last = source.name.rstrip("/").rpartition("/")[2]
    name = os.path.basename(os.path.abspath(source.name)) if last in {".", ".."} else _ARCHIVE_SUFFIX.sub("", last)
    return _search(source, _folder(root, name, source.list("")), 0, {directory_key(root): False})


def directory_key(entry: Entry) -> object:
    """What two names of one directory have in common: device and inode, in an archive its own name."""
    return entry.identity or (entry.path if entry.link is None else entry.link)


@dataclass(frozen=True, slots=True)
class _Folder:
    """A directory with its listing, what its files' names say, and what it is by them."""

    entry: Entry
    name: str
    files: list[tuple[Entry, FileName | None]]
    """Links that are not followed and pipes among them, where they have a name of Kafka's."""
    directories: list[Entry]
    irregular: list[Entry]
    is_log_directory: bool
    is_partition: bool

    @property
    def path(self) -> str:
        """In its source."""
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
    """What `folder`, `depth` levels below the root, is or holds; a link to one of the directories `seen` is not searched
    again, nor is what a link of a log directory above led to."""
    if folder.is_partition:
        return _alone(folder)
    discovery = Discovery()
    if depth > MAX_DEPTH:
        discovery.unsearched.extend([entry for entry, _ in folder.files if entry.unreadable is None] + folder.directories)
        discovery.irregular.extend(folder.irregular)
        return discovery
    children = _children(source, folder, depth, seen, discovery)
    holds_partitions = any(child.is_partition and parse_partition_name(child.name) for child, _ in children)
    if folder.is_log_directory or holds_partitions:
        _take_log_directory(discovery, folder, children)
    else:
        _take_folder(discovery, folder, children, is_root=depth == 0)
    return discovery


def _children(
    source: ByteSource, folder: _Folder, depth: int, seen: dict[object, bool], discovery: Discovery
) -> list[tuple[_Folder, Discovery]]:
    """The directories of a folder that can be listed, each with what is below it, if it is no partition's.

    A partition that is a link to a place below the folder belongs to it: such links come first, and their places are not searched.
    """
    children = []
    nothing = Discovery()  # one for all partitions, of which a broker has very many
    with holding(source, folder.path):
        below = {entry.path for entry in folder.directories if folder.is_log_directory and _leads_below(source, folder, entry)}
        for entry in sorted(folder.directories, key=lambda entry: entry.path not in below):
            key = directory_key(entry)
            if seen.get(key, False) or (entry.link is not None and key in seen):
                discovery.repeated.append(entry)
                continue
            seen[key] = entry.path in below
            if entry.name == REMOTE_STORE:
                discovery.remote_stores.append(entry)
                continue
            child = None if entry.name in SYSTEM_DIRECTORIES else _listed(source, entry, discovery)
            if child is not None:
                children.append((child, nothing if child.is_partition else _search(source, child, depth + 1, seen)))
    return children


def _leads_below(source: ByteSource, folder: _Folder, entry: Entry) -> bool:
    """Whether a partition's directory is a link to a place below the folder in which it stands."""
    if entry.link is None or parse_partition_name(entry.name) is None:
        return False
    root = os.path.realpath(source.name) if entry.link.startswith("/") else ""  # in an archive links lead to its own names
    place = os.path.join(root, folder.path) if folder.entry.link is None else folder.entry.link
    below = f"{place.rstrip('/')}/" if place else ""
    return entry.link.startswith(below) and entry.link != f"{below}{entry.name}"  # else a link stands above the folder


def _take_folder(discovery: Discovery, folder: _Folder, children: list[tuple[_Folder, Discovery]], *, is_root: bool) -> None:
    """Take a folder that is no log directory, with all that is below it."""
    names = [entry.name for entry in (*(entry for entry, _ in folder.files), *folder.directories, *folder.irregular)]
    if SYSTEM_FILES.union(SYSTEM_DIRECTORIES).issuperset(names):
        discovery.empty.append(folder.entry)
        return
    discovery.unknown.extend(entry for entry, _ in folder.files if entry.unreadable is None)
    discovery.irregular.extend(folder.irregular)
    for child, below in children:
        discovery.take(_alone(child) if child.is_partition else below)
    only_links = is_root and not folder.directories and all(entry.kind is EntryKind.SYMLINK for entry, _ in folder.files)
    discovery.incomplete.extend(_perhaps_directories(folder, beside=only_links or bool(discovery.log_directories)))


def _take_log_directory(discovery: Discovery, folder: _Folder, children: list[tuple[_Folder, Discovery]]) -> None:
    """Take a log directory, and such as are below it."""
    discovery.incomplete.extend(_perhaps_directories(folder, beside=True))
    partitions = [child for child, below in children if not below.log_directories]
    log_directory = _log_directory(folder, partitions, [incomplete.path for incomplete in discovery.incomplete])
    log_directory.repeated.extend(
        name for directory in discovery.repeated if (name := parse_partition_name(directory.name)) is not None
    )
    discovery.log_directories.append(log_directory)
    for _, below in children:
        if below.log_directories:
            discovery.take(below)
        else:
            discovery.incomplete.extend(below.incomplete)
            discovery.repeated.extend(below.repeated)


def _perhaps_directories(folder: _Folder, *, beside: bool) -> list[Incomplete]:
    """Where a directory may be hidden in `folder`: behind a link that is not followed, or where a pipe has a partition's name.

    Where that is no log directory, nor `beside` any, nor a given folder of nothing but links, only where a partition's name stands.
    """
    incompletes = []
    for entry in folder.irregular:
        is_known = parse_file_name(entry.name) is not None or entry.name in SYSTEM_FILES | SYSTEM_DIRECTORIES
        if not is_known and ((beside and entry.kind is EntryKind.SYMLINK) or parse_partition_name(entry.name) is not None):
            incompletes.append(Incomplete(entry.path, entry.unreadable or ""))
    return incompletes


def _listed(source: ByteSource, entry: Entry, discovery: Discovery) -> _Folder | None:
    """The directory `entry` with its listing; None, and a row in `incomplete`, if it has none to give."""
    try:
        return _folder(entry, entry.name, source.list(entry.path))
    except SourceError as error:
        discovery.incomplete.append(Incomplete(entry.path, error.reason))
        return None


def _alone(folder: _Folder) -> Discovery:
    """A partition directory without the log directory around it."""
    parsed = parse_partition_name(folder.name)
    return Discovery([LogDirectory(folder.path, {}, [_partition_directory(folder, parsed)], [], [], entry=folder.entry)])


def _is_of_log_dir(parsed: FileName) -> bool:
    return parsed.offset is None and parsed.kind not in PARTITION_KINDS


def _may_be_partition(folder: _Folder, child: _Folder) -> bool:
    return folder.is_log_directory or child.is_partition or _PARTITION_SHAPE.fullmatch(child.name) is not None


def _log_directory(folder: _Folder, children: list[_Folder], refused: list[str]) -> LogDirectory:
    """`folder` as a log directory; a child named like no partition is an illegal one, or `unknown` if nothing points to Kafka.

    `refused`: paths of directories in it that could not be listed.
    """
    entries: dict[str, Entry] = {}
    unknown: list[Entry] = []
    for entry, parsed in folder.files:
        if entry.name in SYSTEM_FILES or (parsed is not None and _is_of_log_dir(parsed)):
            entries[entry.name] = entry
        elif entry.unreadable is None:
            unknown.append(entry)
    partitions = []
    unlisted = [name for path in refused if (name := parse_partition_name(path.rpartition("/")[2])) is not None]
    by_path = {child.path: child for child in children}
    for entry in folder.directories:
        child = by_path.get(entry.path)
        if entry.name in SYSTEM_DIRECTORIES:
            entries[entry.name] = entry
        elif child is None:
            continue
        elif (name := parse_partition_name(child.name)) is not None:
            partitions.append(_partition_directory(child, name))
        elif _may_be_partition(folder, child):
            unread = replace(child, files=[(file, None) for file, _ in child.files])
            partitions.append(_partition_directory(unread, None))
        else:
            unknown.append(entry)
    return LogDirectory(folder.path, entries, partitions, unknown, folder.irregular, unlisted, entry=folder.entry)


def _partition_directory(folder: _Folder, name: PartitionName | None) -> PartitionDirectory:
    """`folder` sorted by what its files' names say."""
    segments: dict[int, dict[FileKind, Entry]] = {}
    leftovers: list[LeftoverFile] = []
    entries: dict[str, Entry] = {}
    snapshots: list[tuple[int, Entry]] = []
    metadata_snapshots: list[tuple[int, int, Entry]] = []
    unknown = list(folder.directories)
    for entry, parsed in folder.files:
        if parsed is None or _is_of_log_dir(parsed):
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
