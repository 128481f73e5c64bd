"""Opens the paths that a user typed: each source is read once, and has files of Kafka's."""

import glob
import logging
import os
import re
import shlex
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from kafka_forensics.errors import PathMissingError, SourceError, UsageError
from kafka_forensics.model.amounts import first_few
from kafka_forensics.model.remote_log import REMOTE
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.log_dir import (
    LOG_DIRECTORY_KINDS,
    Discovery,
    FileKind,
    FileName,
    LogDirectory,
    PartitionDirectory,
    SegmentFiles,
    classify_file,
    directory_key,
    discover,
    parse_file_name,
    parse_partition_name,
)
from kafka_forensics.storage.archives import container_of
from kafka_forensics.storage.bundles import SUFFIX, BundleSource
from kafka_forensics.storage.local import OUTSIDE, LocalSource
from kafka_forensics.storage.open import ARCHIVES, expand_patterns, follow_links_between, local_path, local_spelling, open_source
from kafka_forensics.storage.source import ByteSource, Entry, EntryKind, Identity, UnopenedSource, path_in

if TYPE_CHECKING:
    from kafka_forensics.storage.remote import StorageOptions

Name = int | str
"""A broker's name in `NAME=PATH`; an int if it is a number."""

_LAYOUT: Final = (
    "a broker's log directory holds meta.properties and directories like orders-0 with files like 00000000000000000000.log"
)
_NAMES_LISTED: Final = 3
_BY_SUFFIX: Final = {
    kind.value: kind
    for kind in (FileKind.LOG, FileKind.INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX, FileKind.PRODUCER_SNAPSHOT)
}


class NoKafkaFilesError(UsageError):
    """A path without any file of Kafka's."""


class OpenedPath(Struct):
    """One path that was given: `broker_name` is the broker's name in `NAME=PATH`, None without one."""

    broker_name: Name | None
    source: ByteSource
    discovery: Discovery

    def typed(self, path: str) -> str:
        """A path in the source as the user would type it."""
        return typed_path(self.source, path)

    def key(self, entry: Entry | None) -> object:
        """A key that is equal for all names of a directory or file: its identity, in an archive its name; None for None."""
        if entry is None:
            return None
        return entry.identity or (id(self.source), directory_key(entry))


def open_paths(paths: list[str], *, logs_only: bool = True, storage_options: tuple[tuple[str, str], ...] = ()) -> list[OpenedPath]:
    """Open every path, after expanding patterns in URIs; what several paths lead to is read once, which is logged.

    Of several paths, those without any file of Kafka's are skipped and logged, and one that cannot be opened is incomplete. Empty
    directories that need a broker's name are logged.
    Raises UsageError for a path that is missing or empty, and if none has a log (`logs_only`) or any file of Kafka's.
    """
    opened: list[OpenedPath] = []
    by_place: dict[str, OpenedPath] = {}
    expanded = [
        (broker_name, *place) for broker_name, path in map(split_name, paths) for place in expand_patterns(path, storage_options)
    ]
    for broker_name, path, options in expanded:
        place = _real_path(path)
        if place in by_place:
            _set_name(by_place[place], broker_name)
            _note(f"{path}: the same as {by_place[place].source.name}, read once")
            continue
        by_place[place] = OpenedPath(broker_name, _source(path, options, is_only=len(expanded) == 1), Discovery())
        opened.append(by_place[place])
    follow_links_between([opened_path.source for opened_path in opened])
    for opened_path in opened:
        opened_path.discovery = _discovered(opened_path.source)
        _take_empty_log_directory(opened_path)
    opened = [path_or_bundle for opened_path in opened for path_or_bundle in _with_bundles(opened_path, storage_options, by_place)]
    empty = _empty_directories(opened)
    opened = _without_other_files(opened, logs_only=logs_only)
    if empty:
        _note(f"empty: {first_few(empty, _NAMES_LISTED)}; if it is the new disk of broker N, give it as N={empty[0]}")
    return _read_once(opened) if may_have_duplicates(opened) else opened


def matching_paths(patterns: Iterable[str]) -> list[str]:
    """The paths that local patterns match, each with the pattern's `NAME=`; existing paths, paths without wildcards and URIs stay.

    Raises UsageError for an empty path, and PathMissingError for a pattern that matches nothing.
    """
    return [path for pattern in patterns for path in _matches(pattern)]


def _matches(pattern: str) -> list[str]:
    if not pattern.strip():
        raise UsageError("an empty path", hint="give log directories of brokers, or partition directories")
    name, path = split_name(pattern)
    local = path if os.path.lexists(path) else local_path(path)
    if local is None or os.path.lexists(local) or not glob.has_magic(local):
        return [pattern]
    paths = sorted(glob.glob(local))
    if not paths:
        raise PathMissingError(f"nothing matches {path}", hint="give another pattern, or the directories themselves")
    return paths if name is None else [f"{name}={path}" for path in paths]


def _real_path(path: str) -> str:
    return os.path.realpath(path) if os.path.lexists(path) else path


def _take_empty_log_directory(opened_path: OpenedPath) -> None:
    """Take an empty directory, given with a broker's name, as the broker's log directory on a replaced disk."""
    discovery = opened_path.discovery
    root = next((entry for entry in _nameable(opened_path) if not entry.path), None)
    if opened_path.broker_name is not None and root is not None:
        discovery.empty.remove(root)
        discovery.log_directories.append(LogDirectory("", entry=root))


def _with_bundles(
    opened_path: OpenedPath, storage_options: tuple[tuple[str, str], ...], by_place: dict[str, OpenedPath]
) -> list[OpenedPath]:
    """A folder and the bundles in it that were not given themselves; without the folder if it contains nothing else."""
    source, discovery = opened_path.source, opened_path.discovery
    if not isinstance(source, LocalSource) and "://" not in source.name:
        return [opened_path]
    found = [entry for entry in discovery.unknown if entry.name.endswith(SUFFIX)]
    discovery.unknown[:] = [entry for entry in discovery.unknown if not entry.name.endswith(SUFFIX)]
    bundles = []
    for path in sorted(opened_path.typed(entry.path) for entry in found):
        place = _real_path(path)
        if place not in by_place:
            options = next(options for _, options in expand_patterns(path, storage_options))
            bundle_source = _source(path, options, is_only=False)
            by_place[place] = OpenedPath(opened_path.broker_name, bundle_source, _discovered(bundle_source))
            bundles.append(by_place[place])
    return bundles if found and discovery == Discovery() else [opened_path, *bundles]


def log_skipped_files(opened: Iterable[OpenedPath]) -> None:
    """Log the files and archives beside log directories that are not read."""
    names: list[str] = []
    archives: list[str] = []
    for opened_path in opened:
        discovery = opened_path.discovery
        above = {""}
        for directory in discovery.log_directories:
            parts = directory.path.split("/")
            above.update("/".join(parts[:count]) for count in range(1, len(parts)))
        special = [entry for entry in discovery.irregular if entry.kind is EntryKind.OTHER]
        skipped = {entry.path: entry.name for entry in [*discovery.unknown, *special]}
        packed = {path for path, name in skipped.items() if name.lower().endswith(tuple(ARCHIVES))}
        archives += map(opened_path.typed, sorted(packed))
        names += map(opened_path.typed, sorted({_topmost(path, above) for path in skipped.keys() - packed}))
    if archives:
        _note(f"not opened: {first_few(archives, _NAMES_LISTED)}; if they hold copies, too, give the archives as separate paths")
    if names:
        _note(f"skipped next to the log directories, without Kafka files: {first_few(names, _NAMES_LISTED)}")


def _topmost(path: str, above: set[str]) -> str:
    """The first directory of `path` that is not `above` a log directory, or the path itself."""
    parts = path.split("/")
    return next((name for count in range(1, len(parts)) if (name := "/".join(parts[:count])) not in above), path)


def _source(path: str, options: "StorageOptions | None", *, is_only: bool) -> ByteSource:
    """The source at `path`, a LostSource if it cannot be opened. Raises UsageError, and SourceError if it is the only path."""
    try:
        return open_source(path, options)
    except SourceError as error:
        if is_only:
            raise
        return UnopenedSource(path, error)


def _without_other_files(opened: list[OpenedPath], *, logs_only: bool) -> list[OpenedPath]:
    """The paths with files of Kafka's. Raises UsageError for a path with a name that has none, and if no path has any."""
    kept: list[OpenedPath] = []
    without_kafka_files: list[tuple[OpenedPath, UsageError]] = []
    for opened_path in opened:
        try:
            _require_content(opened_path, logs_only=logs_only)
            kept.append(opened_path)
        except NoKafkaFilesError as error:
            if opened_path.broker_name is not None:
                raise
            without_kafka_files.append((opened_path, error))
    if without_kafka_files and not kept:
        raise without_kafka_files[0][1]
    skipped = [opened_path for opened_path, _ in without_kafka_files]
    if any(opened_path.discovery.log_directories or opened_path.discovery.files for opened_path in kept):
        links = [opened_path for opened_path in kept if opened_path.broker_name is None and _has_only_links(opened_path.discovery)]
        kept = [opened_path for opened_path in kept if opened_path not in links]
        skipped += links
    names = [path.source.name for path in skipped if not path.discovery.empty]
    names += [path.typed(entry.path) for path in opened for entry in path.discovery.empty if entry not in _nameable(path)]
    if names:
        _note(f"skipped, without Kafka files: {first_few(names, _NAMES_LISTED)}")
    return kept


def _empty_directories(opened: list[OpenedPath]) -> list[str]:
    """The empty directories without a broker's name that can be given with one."""
    named = {os.path.normpath(opened_path.source.name) for opened_path in opened if opened_path.broker_name is not None}
    typed = [opened_path.typed(entry.path) for opened_path in opened for entry in _nameable(opened_path)]
    return [path for path in typed if os.path.normpath(path) not in named]


def _nameable(opened_path: OpenedPath) -> list[Entry]:
    """The empty directories that `NAME=PATH` can name: local ones, and the only directory of a bundle."""
    empty = opened_path.discovery.empty
    if isinstance(opened_path.source, BundleSource):
        return [entry for entry in empty if not entry.path]
    return empty if isinstance(opened_path.source, LocalSource) else []


def _has_only_links(discovery: Discovery) -> bool:
    """Whether it has nothing but links that are not followed, none with a partition's name."""
    links = {
        entry.path for entry in discovery.irregular if entry.kind is EntryKind.SYMLINK and parse_partition_name(entry.name) is None
    }
    gaps = {unread.path for unread in discovery.incomplete}
    return bool(gaps) and gaps <= links and not (discovery.log_directories or discovery.files)


def split_name(path: str) -> tuple[Name | None, str]:
    """Split `NAME=PATH`, unless a file of that name exists, and resolve `file:/path`. Raises UsageError for an empty name, and for
    `remote`."""
    name, equals, rest = path.partition("=")
    if not equals or os.path.lexists(path) or not rest or "/" in name:
        return None, local_spelling(path)
    if not name:
        shown = re.sub("://[^/]*@", "://", rest)  # without the credentials of a URI
        raise UsageError(f"there is no name in ={shown}", hint=f"write NAME={shown}, or {shown} without a name")
    if name == REMOTE:
        raise UsageError(f"no broker can have the name {name}", hint=f"{name} stands for the remote store: choose another name")
    return (int(name) if name.isascii() and name.isdigit() and len(name) < 10 else name), local_spelling(rest)


def typed_path(source: ByteSource, path: str) -> str:
    """A path in a source as the user would type it."""
    return path_in(source.name, path)


def not_read(source: ByteSource, error: SourceError) -> Incomplete:
    """An unread row for a file of a source that could not be read, or not completely."""
    return Incomplete(typed_path(source, error.path), error.reason)


def skipped_members(source: ByteSource) -> list[Incomplete]:
    """Members of an archive that are not read: those without a safe name, and all but the last with the same name."""
    rejected = [Incomplete(source.name, f"refused member: {name}") for name in source.rejected]
    return rejected + [Incomplete(source.name, f"several members are called {name}: the last is read") for name in source.replaced]


def unlisted_directories(source: ByteSource, discovery: Discovery) -> list[Incomplete]:
    """Directories of a source that could not be listed, possibly its root, with paths as the user would type them."""
    return [Incomplete(typed_path(source, incomplete.path), incomplete.reason) for incomplete in discovery.incomplete]


def single_file_name(source: ByteSource) -> FileName | None:
    """The file name of a source that is one file, parsed; of a renamed copy only its suffix counts. None if it is not Kafka's."""
    name = os.path.basename(source.name.rstrip("/"))
    parsed = parse_file_name(name)
    if parsed is None and (suffix := name.rpartition(".")[2]) in _BY_SUFFIX:
        return FileName(_BY_SUFFIX[suffix])  # its offsets count from 0
    return parsed


def _discovered(source: ByteSource) -> Discovery:
    """The content of the source; if its root cannot be listed, that is its only unread row."""
    try:
        return discover(source)
    except SourceError as error:
        return Discovery(incomplete=[Incomplete(error.path, error.reason)])


def _require_content(opened_path: OpenedPath, *, logs_only: bool) -> None:
    """Raise NoKafkaFilesError for a path without files of Kafka's, UsageError for an archive without an archive's name."""
    source, discovery = opened_path.source, opened_path.discovery
    if isinstance(source, UnopenedSource):
        name = os.path.basename(source.name.rstrip("/"))
        if source.is_special and parse_file_name(name) is None and parse_partition_name(name) is None:
            raise NoKafkaFilesError(f"{source.name}: {source.reason}")
    elif discovery.files:
        _require_kafka_file(source, logs_only=logs_only)
    elif not (discovery.log_directories or discovery.remote_stores or discovery.incomplete or source.rejected or source.problems):
        raise NoKafkaFilesError(f"there is no Kafka log in {source.name}", hint=_hint(opened_path))


def _require_kafka_file(source: ByteSource, *, logs_only: bool) -> None:
    parsed = single_file_name(source)
    if parsed is None:
        container = container_of(source)
        if container is not None:
            ends = [end for end in container.ends if end in ARCHIVES]
            rename = f"rename it to end in {ends[0]}" if ends else f"archives that can be read are {', '.join(ARCHIVES)}"
            raise UsageError(f"{source.name}: holds {container.words}, but its name has another ending", hint=rename)
        hint = "a renamed copy is read if its name ends in .log, .index, ..."
        raise NoKafkaFilesError(f"{source.name}: no Kafka file has such a name", hint=hint)
    if logs_only and not source.name.endswith(".log"):
        hint = f"this shows what is in it: `kafka-forensics dump {shlex.quote(source.name)}`"
        raise NoKafkaFilesError(f"there is no Kafka log in {source.name}, a file of kind {parsed.kind.value}", hint=hint)


def _hint(opened_path: OpenedPath) -> str:
    """What to do about a path without files of Kafka's."""
    discovery, name = opened_path.discovery, opened_path.source.name
    if nameable := _nameable(opened_path):
        empty = opened_path.typed(nameable[0].path)
        return f"it is empty: if it is the replaced disk of a broker, give it as N={empty}"
    archives = [entry.path for entry in discovery.unknown if entry.name.lower().endswith(tuple(ARCHIVES))]
    if archives:
        others = "" if len(archives) == 1 else f", and {len(archives) - 1} more"
        return f"give the archives in it as separate paths, like {os.path.join(name, min(archives))}{others}"
    if any(entry.kind is EntryKind.SYMLINK and (entry.unreadable or "").endswith(OUTSIDE) for entry in discovery.irregular):
        return f"{_LAYOUT}; it has links that lead outside it: give their targets as paths, too"
    return _LAYOUT


def _set_name(opened_path: OpenedPath, broker_name: Name | None) -> None:
    """Add the name of another path to the same source. Raises UsageError if it has another name."""
    if opened_path.broker_name is not None and broker_name is not None and opened_path.broker_name != broker_name:
        raise _two_names(opened_path.source.name, opened_path.broker_name, broker_name)
    opened_path.broker_name = broker_name if opened_path.broker_name is None else opened_path.broker_name


def _two_names(place: str, name: Name, other: Name) -> UsageError:
    return UsageError(f"{place} was given two names, {name} and {other}", hint="give each log directory one name")


def may_have_duplicates(opened: Collection[OpenedPath]) -> bool:
    """Whether a directory may be reached by two names."""
    return len(opened) > 1 or any(opened_path.discovery.repeated or _has_links(opened_path.discovery) for opened_path in opened)


def _has_links(discovery: Discovery) -> bool:
    """Whether links were followed."""
    return any(
        _is_link(entry)
        for directory in discovery.log_directories
        for partition in directory.partitions
        for entry in (directory.entry, partition.entry, *_logs(partition))
    )


def _read_once(opened: list[OpenedPath]) -> list[OpenedPath]:
    """Remove directories and files that are read by another name; the one with a broker's name is kept, or else the first."""
    notes = _log_directories_once(opened)
    in_log_dirs, alone = _partition_places(opened)
    logs = _log_places(opened, in_log_dirs)
    for opened_path in opened:
        directories = []
        for directory in opened_path.discovery.log_directories:
            elsewhere = in_log_dirs.get(opened_path.key(directory.entry)) if is_without_log_dir(directory) else None
            if elsewhere is not None:
                notes.append(_read_once_note(opened_path, directory.path, elsewhere.place))
                continue
            rest, notes_of_directory = _partitions_once(opened_path, directory, in_log_dirs, logs)
            notes += notes_of_directory
            directories += [] if rest is None else [rest]
        files = opened_path.discovery.files
        if files:
            parent = _parent(opened_path.source)
            around = in_log_dirs.get(parent) or alone.get(parent) or logs.get(files[0].identity)
            if around is not None:
                notes.append(_read_once_note(opened_path, "", around.place))
                files = []
        opened_path.discovery = replace(opened_path.discovery, log_directories=directories, files=files)
    for text in notes[:_NAMES_LISTED]:
        _note(text)
    if len(notes) > _NAMES_LISTED:
        _note(f"and {len(notes) - _NAMES_LISTED} more are read once")
    empty = Discovery()
    return [
        opened_path
        for opened_path in opened
        if replace(opened_path.discovery, repeated=[]) != empty or opened_path.source.problems or opened_path.source.rejected
    ]


def _read_once_note(opened_path: OpenedPath, path: str, place: str) -> str:
    return f"{opened_path.typed(path)} is in {place} as well: read once"


def _log_directories_once(opened: list[OpenedPath]) -> list[str]:
    """Remove log directories that are read by another name; returns notes about them."""
    kept = _kept_paths(opened)
    notes = []
    for opened_path in opened:
        for entry in opened_path.discovery.repeated:
            relation = "leads to a path that is read by another name" if entry.link else "is read through a link to it"
            notes.append(f"{opened_path.typed(entry.path)} {relation}")
        directories = []
        for directory in opened_path.discovery.log_directories:
            kept_path, chosen = kept.get(opened_path.key(directory.entry), (opened_path, directory))
            if chosen is directory:
                directories.append(directory)
            else:
                place = kept_path.source.name if kept_path is not opened_path else opened_path.typed(chosen.path)
                notes.append(_read_once_note(opened_path, directory.path, place))
        opened_path.discovery = replace(opened_path.discovery, log_directories=directories)
    linked = {
        opened_path.key(entry)
        for opened_path in opened
        for directory in opened_path.discovery.log_directories
        for entry in directory.entries.values()
        if _is_link(entry)
    }
    for opened_path in opened if linked else ():
        directories = opened_path.discovery.log_directories
        directories = [directory for directory in directories if not _is_only_linked(opened_path, directory, linked)]
        opened_path.discovery = replace(opened_path.discovery, log_directories=directories)
    return notes


def _is_only_linked(opened_path: OpenedPath, directory: LogDirectory, linked: set[object]) -> bool:
    """Whether a folder has only small files that are the targets of links in another log directory."""
    files = [entry for entry in directory.entries.values() if classify_file(entry.name) in LOG_DIRECTORY_KINDS]
    return (
        bool(files) and not directory.partitions and all(not _is_link(file) and opened_path.key(file) in linked for file in files)
    )


class _ReadPlace(Struct, frozen=True):
    """A path, as the user would type it, by which something is read; the path with the lowest `rank` is kept."""

    place: str
    rank: int


Places = dict[object, _ReadPlace]
"""`OpenedPath.key` → the place by which it is read."""


def _partitions_once(
    opened_path: OpenedPath, directory: LogDirectory, in_log_dirs: Places, logs: Places
) -> tuple[LogDirectory | None, list[str]]:
    """A log directory without the partitions and segments that are read by another name, and notes about these.

    None for a folder without small files of which nothing is left.
    """
    partitions, notes = [], list[str]()
    for partition in directory.partitions:
        typed_place = opened_path.typed(partition.path)
        place = in_log_dirs.get(opened_path.key(partition.entry))
        if place is not None and place.place != typed_place:
            notes.append(f"{typed_place} is in {place.place} as well: read once")
            if (name := parse_partition_name(partition.name)) is not None:
                directory.repeated.append(name)
            continue
        elsewhere = {
            entry.path: logs[key].place
            for entry in _logs(partition)
            if (key := opened_path.key(entry)) in logs and logs[key].place != opened_path.typed(entry.path)
        }
        if elsewhere:
            notes += [f"{opened_path.typed(path)} is {other} as well: read once" for path, other in sorted(elsewhere.items())]
            partition = _without_logs(opened_path, partition, elsewhere, keep=bool(directory.entries))
        if not elsewhere or partition.segments:
            partitions.append(partition)
    if len(partitions) == len(directory.partitions) and not notes:
        return directory, notes
    if not partitions and not directory.entries and not directory.unlisted:
        return None, notes
    return replace(directory, partitions=partitions), notes


def _without_logs(
    opened_path: OpenedPath, partition: PartitionDirectory, elsewhere: dict[str, str], *, keep: bool
) -> PartitionDirectory:
    """The partition without the logs that are read `elsewhere` (place by path); with `keep` they stay, as unreadable links."""
    segments: list[SegmentFiles] = []
    irregular = list(partition.irregular)
    for segment in partition.segments:
        log = segment.log
        if log is None or log.path not in elsewhere:
            segments.append(segment)
        elif keep:
            reason = f"a link to {elsewhere[log.path]}, which is read there"
            opened_path.source.refused[log.path] = reason
            refused = log._replace(kind=EntryKind.SYMLINK, size_in_bytes=0, allocated_bytes=None, link=None, refused=reason)
            segments.append(replace(segment, log=refused))
            irregular.append(refused)
    return replace(partition, segments=segments, irregular=irregular)


def _kept_paths(opened: list[OpenedPath]) -> dict[object, tuple[OpenedPath, LogDirectory]]:
    """Key → the path from which a log directory is read. Raises UsageError for one that was given two names."""
    kept: dict[object, tuple[OpenedPath, LogDirectory]] = {}
    for opened_path in opened:
        for directory in opened_path.discovery.log_directories:
            key = opened_path.key(directory.entry)
            if key is None:
                continue
            other_path, other_directory = kept.setdefault(key, (opened_path, directory))
            if other_path is opened_path:
                if _is_link(other_directory.entry) and not _is_link(directory.entry):
                    kept[key] = opened_path, directory
                continue
            if opened_path.broker_name is None or other_path.broker_name == opened_path.broker_name:
                continue
            if other_path.broker_name is not None:
                raise _two_names(opened_path.typed(directory.path), other_path.broker_name, opened_path.broker_name)
            kept[key] = opened_path, directory
    return kept


def _rank(directory: LogDirectory) -> int:
    """0 for log directories, 2 for folders without small files, 4 for directories given alone; links in these rank one higher."""
    return 4 if is_without_log_dir(directory) else 0 if directory.entries else 2


def _partition_places(opened: list[OpenedPath]) -> tuple[Places, Places]:
    """Places of partition directories in log directories, and of those given by themselves."""
    in_log_dirs: Places = {}
    alone: Places = {}
    for opened_path in opened:
        for directory in opened_path.discovery.log_directories:
            places, rank = alone if is_without_log_dir(directory) else in_log_dirs, _rank(directory)
            for partition in directory.partitions:
                place = _ReadPlace(opened_path.typed(partition.path), rank + _is_link(partition.entry))
                _keep_best(places, opened_path.key(partition.entry), place)
    return in_log_dirs, alone


def _log_places(opened: list[OpenedPath], in_log_dirs: Places) -> Places:
    """Places of the `.log` files to which links lead, without those in directories that are read by another name."""
    logs: list[tuple[OpenedPath, int, Entry]] = []
    for opened_path in opened:
        for directory in opened_path.discovery.log_directories:
            rank = _rank(directory)
            for partition in directory.partitions:
                place = in_log_dirs.get(opened_path.key(partition.entry))
                if place is None or place.place == opened_path.typed(partition.path):
                    logs += [(opened_path, rank, entry) for entry in _logs(partition)]
    linked = {opened_path.key(entry) for opened_path, _, entry in logs if _is_link(entry)}
    places: Places = {}
    for opened_path, rank, entry in logs if linked else ():
        if (key := opened_path.key(entry)) in linked:
            _keep_best(places, key, _ReadPlace(opened_path.typed(entry.path), rank + _is_link(entry)))
    return places


def _keep_best(places: Places, key: object, place: _ReadPlace) -> None:
    if key is not None and (key not in places or place.rank < places[key].rank):
        places[key] = place


def is_without_log_dir(directory: LogDirectory) -> bool:
    """Whether it is a partition directory that was found without its log directory."""
    return any(partition.path == directory.path for partition in directory.partitions)


def _is_link(entry: Entry | None) -> bool:
    return entry is not None and entry.link is not None


def _logs(partition: PartitionDirectory) -> list[Entry]:
    return [segment.log for segment in partition.segments if segment.log is not None and segment.log.unreadable is None]


def _parent(source: ByteSource) -> Identity | None:
    """Identity of the directory of a source that is a file."""
    try:
        info = os.stat(os.path.dirname(os.path.realpath(source.name)))
    except OSError:
        return None
    return info.st_dev, info.st_ino


def _note(text: str) -> None:
    logging.getLogger(__name__).warning("%s", text)
