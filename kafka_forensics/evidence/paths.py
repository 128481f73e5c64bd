"""From paths as they were typed to opened sources, each read once, each with something of Kafka's in it."""

import os
import re
import shlex
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from kafka_forensics.errors import SourceError, UsageError
from kafka_forensics.model.amounts import first_few
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
from kafka_forensics.storage.open import ARCHIVES, located, open_source, share_roots, spelled_out
from kafka_forensics.storage.source import ByteSource, Entry, EntryKind, LostSource

if TYPE_CHECKING:
    from kafka_forensics.storage.remote import StorageOptions

Name = int | str
"""What a broker is called: a number where the name is one."""
Identity = tuple[int, int]
"""(device, inode)."""

_LAYOUT: Final = (
    "a broker's log directory holds meta.properties and directories like orders-0 with files like 00000000000000000000.log"
)
_NAMES_LISTED: Final = 3
_BY_SUFFIX: Final = {
    kind.value: kind
    for kind in (FileKind.LOG, FileKind.INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX, FileKind.PRODUCER_SNAPSHOT)
}


class StrangerError(UsageError):
    """A path that holds nothing of Kafka's."""


@dataclass(slots=True)
class OpenedPath:
    """One path that was given: `given` is the broker's name in `NAME=PATH`, None without one."""

    given: Name | None
    source: ByteSource
    discovery: Discovery


def open_paths(paths: list[str], *, logs_only: bool = True, storage_options: tuple[tuple[str, str], ...] = ()) -> list[OpenedPath]:
    """Open every path, what is reached by several of them once only, and note that. Patterns in URIs are matched here.

    Of several paths, those that hold nothing of Kafka's are left out with a note, and one that cannot be opened is incomplete.
    Raises UsageError for a path that is missing or empty, and where none holds a log (`logs_only`) or a file of Kafka's.
    """
    opened: list[OpenedPath] = []
    by_place: dict[str, OpenedPath] = {}
    every = [(given, *place) for given, path in map(split_name, paths) for place in located(path, storage_options)]
    for given, path, options in every:
        place = os.path.realpath(path) if os.path.lexists(path) else path
        if place in by_place:
            _name(by_place[place], given)
            _note(f"{path}: the same as {by_place[place].source.name}, read once")
            continue
        by_place[place] = opened_path = OpenedPath(given, _source(path, options, alone=len(every) == 1), Discovery())
        opened.append(opened_path)
    share_roots([opened_path.source for opened_path in opened])
    for opened_path in opened:
        opened_path.discovery = _discovered(opened_path.source)
        _take_empty_log_directory(opened_path)
    opened = [each for opened_path in opened for each in _with_bundles(opened_path, storage_options, by_place)]
    opened = _without_strangers(opened, logs_only=logs_only)
    if may_repeat(opened):
        return _read_once(opened)
    return opened


def _take_empty_log_directory(opened_path: OpenedPath) -> None:
    """Take an empty directory that was given as a broker's: it is the broker's log directory on a replaced disk."""
    discovery = opened_path.discovery
    root = next((entry for entry in discovery.empty if not entry.path), None)
    if opened_path.given is not None and root is not None and isinstance(opened_path.source, (LocalSource, BundleSource)):
        discovery.empty.remove(root)
        discovery.log_directories.append(LogDirectory("", entry=root))


def _with_bundles(
    opened_path: OpenedPath, storage_options: tuple[tuple[str, str], ...], by_place: dict[str, OpenedPath]
) -> list[OpenedPath]:
    """A path that was given, if it is a folder with each of the bundles in it, unless they were given, too; without the folder if
    it holds nothing else."""
    source, discovery = opened_path.source, opened_path.discovery
    if not isinstance(source, LocalSource) and "://" not in source.name:
        return [opened_path]
    found = [entry for entry in discovery.unknown if entry.name.endswith(SUFFIX)]
    discovery.unknown[:] = [entry for entry in discovery.unknown if not entry.name.endswith(SUFFIX)]
    bundles = []
    for path in sorted(typed_path(source, entry.path) for entry in found):
        place = os.path.realpath(path) if os.path.lexists(path) else path
        if place in by_place:
            continue
        options = next(options for _, options in located(path, storage_options))
        by_place[place] = bundle = OpenedPath(opened_path.given, _source(path, options, alone=False), Discovery())
        bundle.discovery = _discovered(bundle.source)
        bundles.append(bundle)
    return bundles if found and discovery == Discovery() else [opened_path, *bundles]


def note_strangers(opened: Iterable[OpenedPath]) -> None:
    """Tell in one line what lies beside log directories and is nothing of Kafka's, and in another which archives do: they are not
    opened, whatever they hold."""
    names: list[str] = []
    archives: list[str] = []
    for opened_path in opened:
        above = {""}
        for directory in opened_path.discovery.log_directories:
            parts = directory.path.split("/")
            above.update("/".join(parts[:count]) for count in range(1, len(parts)))
        skipped = [
            *opened_path.discovery.unknown,
            *(entry for entry in opened_path.discovery.irregular if entry.kind is EntryKind.OTHER),
        ]
        packed = {entry.path for entry in skipped if entry.name.lower().endswith(tuple(ARCHIVES))}
        archives += [typed_path(opened_path.source, path) for path in sorted(packed)]
        others = {_topmost(entry.path, above) for entry in skipped if entry.path not in packed}
        names += [typed_path(opened_path.source, path) for path in sorted(others)]
    if archives:
        _note(f"not opened: {first_few(archives, _NAMES_LISTED)}; give archives as paths themselves if they hold copies, too")
    if names:
        _note(f"skipped beside the log directories, as nothing of Kafka's is in them: {first_few(names, _NAMES_LISTED)}")


def _topmost(path: str, above: set[str]) -> str:
    """The highest directory on the way to `path` that is not `above` a log directory, or the path itself."""
    parts = path.split("/")
    return next((name for count in range(1, len(parts)) if (name := "/".join(parts[:count])) not in above), path)


def _source(path: str, options: "StorageOptions | None", *, alone: bool) -> ByteSource:
    """What is at `path`; one of several that cannot be opened stands for itself. Raises UsageError, and SourceError if `alone`."""
    try:
        return open_source(path, options)
    except SourceError as error:
        if alone:
            raise
        return LostSource(path, error)


def _without_strangers(opened: list[OpenedPath], *, logs_only: bool) -> list[OpenedPath]:
    """The paths with something of Kafka's. Raises UsageError for one that was named and has nothing, and if none has."""
    kept: list[OpenedPath] = []
    strangers: list[tuple[OpenedPath, UsageError]] = []
    for opened_path in opened:
        try:
            _require_content(opened_path, logs_only=logs_only)
            kept.append(opened_path)
        except StrangerError as error:
            if opened_path.given is not None:
                raise
            strangers.append((opened_path, error))
    if strangers and not kept:
        raise strangers[0][1]
    if any(opened_path.discovery.log_directories or opened_path.discovery.files for opened_path in kept):
        links = [opened_path for opened_path in kept if opened_path.given is None and _holds_links_alone(opened_path.discovery)]
        kept = [opened_path for opened_path in kept if opened_path not in links]
        strangers += [
            (opened_path, StrangerError(f"there is no Kafka log in {opened_path.source.name}", hint=_hint(opened_path)))
            for opened_path in links
        ]
    stores = [typed_path(one.source, entry.path) for one in opened for entry in one.discovery.remote_stores]
    if stores:
        _note(f"remote segments are not read: {first_few(stores, _NAMES_LISTED)}")
    names = [one.source.name for one, _ in strangers if not (one.discovery.empty or one.discovery.remote_stores)]
    if names:
        _note(f"skipped, as nothing of Kafka's is in them: {first_few(names, _NAMES_LISTED)}")
    empty = [typed_path(one.source, entry.path) for one in opened for entry in one.discovery.empty]
    if empty:
        _note(f"empty directory: a replaced disk? name its broker, like N={empty[0]}: {first_few(empty, _NAMES_LISTED)}")
    return kept


def _holds_links_alone(discovery: Discovery) -> bool:
    """Whether there is nothing but links that are not followed, none with a partition's name."""
    links = {
        entry.path for entry in discovery.irregular if entry.kind is EntryKind.SYMLINK and parse_partition_name(entry.name) is None
    }
    gaps = {gap.path for gap in discovery.incomplete}
    return bool(gaps) and gaps <= links and not (discovery.log_directories or discovery.files)


def split_name(path: str) -> tuple[Name | None, str]:
    """Split `NAME=PATH`, and spell the path out; one that exists is no such pair. Raises UsageError for an empty name."""
    name, equals, rest = path.partition("=")
    if not equals or os.path.lexists(path) or not rest or "/" in name:
        return None, spelled_out(path)
    if not name:
        shown = re.sub("://[^/]*@", "://", rest)  # without the credentials of a URI
        raise UsageError(f"there is no name in ={shown}", hint=f"write NAME={shown}, or {shown} without a name")
    return (int(name) if name.isascii() and name.isdigit() and len(name) < 10 else name), spelled_out(rest)


def typed_path(source: ByteSource, path: str) -> str:
    """A path inside a source as the user would type it."""
    name = source.name
    return name + path if not path or name.endswith("/") else f"{name}/{path}"


def not_read(source: ByteSource, error: SourceError) -> Incomplete:
    """What to note of a file of a source that could not be read (further)."""
    return Incomplete(typed_path(source, error.path), error.reason)


def members_left_out(source: ByteSource) -> list[Incomplete]:
    """Members of an archive that are not read: those without a safe name, and all but the last of those that have one name."""
    refused = [Incomplete(source.name, f"refused member: {name}") for name in source.rejected]
    return refused + [Incomplete(source.name, f"several members are called {name}: the last is read") for name in source.replaced]


def not_listed(source: ByteSource, discovery: Discovery) -> list[Incomplete]:
    """Directories of a source that could not be listed, the root among them, as the user would type them."""
    return [Incomplete(typed_path(source, incomplete.path), incomplete.reason) for incomplete in discovery.incomplete]


def lone_file_name(source: ByteSource) -> FileName | None:
    """What the name of a source that is one file says; of a renamed copy its end does. None if it is no file of Kafka's."""
    name = os.path.basename(source.name.rstrip("/"))
    parsed = parse_file_name(name)
    if parsed is None and (suffix := name.rpartition(".")[2]) in _BY_SUFFIX:
        return FileName(_BY_SUFFIX[suffix])  # its offsets count from 0
    return parsed


def _discovered(source: ByteSource) -> Discovery:
    """What the source holds; if its root cannot even be listed, that."""
    try:
        return discover(source)
    except SourceError as error:
        return Discovery(incomplete=[Incomplete(error.path, error.reason)])


def _require_content(opened_path: OpenedPath, *, logs_only: bool) -> None:
    """Raise StrangerError for a path with nothing of Kafka's, UsageError for an archive whose name does not say so."""
    source, discovery = opened_path.source, opened_path.discovery
    if isinstance(source, LostSource):
        name = os.path.basename(source.name.rstrip("/"))
        if source.is_special and parse_file_name(name) is None and parse_partition_name(name) is None:
            raise StrangerError(f"{source.name}: {source.reason}")
    elif discovery.files:
        _require_kafka_file(source, logs_only=logs_only)
    elif not (discovery.log_directories or discovery.incomplete or source.rejected or source.problems):
        raise StrangerError(f"there is no Kafka log in {source.name}", hint=_hint(opened_path))


def _require_kafka_file(source: ByteSource, *, logs_only: bool) -> None:
    parsed = lone_file_name(source)
    if parsed is None:
        container = container_of(source)
        if container is not None:
            ends = [end for end in container.ends if end in ARCHIVES]
            rename = f"let its name end in {ends[0]}" if ends else f"archives that can be read are {', '.join(ARCHIVES)}"
            raise UsageError(f"{source.name}: holds {container.words}, and its name does not say so", hint=rename)
        hint = "a renamed copy is read if its name ends in .log, .index, ..."
        raise StrangerError(f"{source.name}: no file of Kafka's has such a name", hint=hint)
    if logs_only and not source.name.endswith(".log"):
        hint = f"`kafka-forensics dump {shlex.quote(source.name)}` shows what is in it"
        raise StrangerError(f"there is no Kafka log in {source.name}, a file of kind {parsed.kind.value}", hint=hint)


def _hint(opened_path: OpenedPath) -> str:
    """What to do about a path that holds nothing of Kafka's."""
    discovery, name = opened_path.discovery, opened_path.source.name
    if discovery.empty:
        empty = typed_path(opened_path.source, discovery.empty[0].path)
        return f"it is empty: if it is the replaced disk of a broker, give it as N={empty}"
    archives = [entry.path for entry in discovery.unknown if entry.name.lower().endswith(tuple(ARCHIVES))]
    if archives:
        others = "" if len(archives) == 1 else f", and {len(archives) - 1} more"
        return f"give the archives in it as paths themselves, like {os.path.join(name, min(archives))}{others}"
    if any(entry.kind is EntryKind.SYMLINK and (entry.unreadable or "").endswith(OUTSIDE) for entry in discovery.irregular):
        return f"{_LAYOUT}; links in it lead out of it: give what they lead to as paths, too"
    return _LAYOUT


def _name(opened_path: OpenedPath, given: Name | None) -> None:
    """Call what was opened `given` as well."""
    if opened_path.given is not None and given is not None and opened_path.given != given:
        raise _two_names(opened_path.source.name, opened_path.given, given)
    opened_path.given = given if opened_path.given is None else opened_path.given


def _two_names(place: str, name: Name, other: Name) -> UsageError:
    return UsageError(f"{place} was given two names, {name} and {other}", hint="give each log directory one name")


def may_repeat(opened: Collection[OpenedPath]) -> bool:
    """Whether any directory may be reached by two names."""
    return len(opened) > 1 or any(opened_path.discovery.repeated or _has_links(opened_path.discovery) for opened_path in opened)


def _has_links(discovery: Discovery) -> bool:
    """Whether a link was followed, or leads to what is read already."""
    return any(
        entry.link is not None
        for directory in discovery.log_directories
        for part in directory.partitions
        for entry in (*_entries(directory.entry, part.entry), *_logs(part))
    )


def _read_once(opened: list[OpenedPath]) -> list[OpenedPath]:
    """The sources without the directories and files that another holds too; of equals the named one is kept, or the first."""
    repeated = _log_directories_once(opened)
    held, alone = _partition_places(opened)
    logs = _log_places(opened, held)
    for opened_path in opened:
        directories = []
        for directory in opened_path.discovery.log_directories:
            within = held.get(_key(opened_path, directory.entry)) if is_alone(directory) else None
            if within is not None:
                repeated.append(_again(opened_path, directory.path, within.place))
                continue
            rest, repeated_here = _partitions_once(opened_path, directory, held, logs)
            repeated += repeated_here
            directories += [] if rest is None else [rest]
        files = opened_path.discovery.files
        if files:
            parent = _parent(opened_path.source)
            around = held.get(parent) or alone.get(parent) or logs.get(files[0].identity)
            if around is not None:
                repeated.append(_again(opened_path, "", around.place))
                files = []
        opened_path.discovery = replace(opened_path.discovery, log_directories=directories, files=files)
    for words in repeated[:_NAMES_LISTED]:
        _note(words)
    if len(repeated) > _NAMES_LISTED:
        _note(f"and {len(repeated) - _NAMES_LISTED} more are read once")
    empty = Discovery()
    return [
        opened_path
        for opened_path in opened
        if replace(opened_path.discovery, repeated=[]) != empty or opened_path.source.problems or opened_path.source.rejected
    ]


def _again(opened_path: OpenedPath, path: str, place: str) -> str:
    return f"{typed_path(opened_path.source, path)} is in {place} as well: read once"


def _log_directories_once(opened: list[OpenedPath]) -> list[str]:
    """Leave each log directory in one source, by one name; what is to be told of the others."""
    kept = _keepers(opened)
    notes = []
    for opened_path in opened:
        for entry in opened_path.discovery.repeated:
            what = "leads to what is read by another name" if entry.link else "is read by the name of a link to it"
            notes.append(f"{typed_path(opened_path.source, entry.path)} {what}")
        directories = []
        for directory in opened_path.discovery.log_directories:
            keeper, chosen = kept.get(_key(opened_path, directory.entry), (opened_path, directory))
            if chosen is directory:
                directories.append(directory)
            else:
                notes.append(
                    _again(
                        opened_path,
                        directory.path,
                        keeper.source.name if keeper is not opened_path else typed_path(opened_path.source, chosen.path),
                    )
                )
        opened_path.discovery = replace(opened_path.discovery, log_directories=directories)
    linked = {
        _key(opened_path, entry)
        for opened_path in opened
        for log_dir in opened_path.discovery.log_directories
        for entry in log_dir.entries.values()
        if _is_link(entry)
    }
    for opened_path in opened if linked else ():
        directories = [
            log_dir for log_dir in opened_path.discovery.log_directories if not _only_linked(opened_path, log_dir, linked)
        ]
        opened_path.discovery = replace(opened_path.discovery, log_directories=directories)
    return notes


def _only_linked(opened_path: OpenedPath, directory: LogDirectory, linked: set[object]) -> bool:
    """Whether a folder is none but for small files to which links of another log directory lead."""
    files = [entry for entry in directory.entries.values() if classify_file(entry.name) in LOG_DIRECTORY_KINDS]
    return (
        bool(files) and not directory.partitions and all(not _is_link(file) and _key(opened_path, file) in linked for file in files)
    )


def _partitions_once(
    opened_path: OpenedPath, directory: LogDirectory, held: "dict[object, _Reading]", logs: "dict[object, _Reading]"
) -> tuple[LogDirectory | None, list[str]]:
    """A log directory without the partitions and segments that are read by another name, and what is to be told of them.

    None for a folder without small files of its own of which nothing is left.
    """
    partitions, repeated_here = [], list[str]()
    for part in directory.partitions:
        place = typed_path(opened_path.source, part.path)
        reading = held.get(_key(opened_path, part.entry))
        if reading is not None and reading.place != place:
            repeated_here.append(f"{place} is in {reading.place} as well: read once")
            if (name := parse_partition_name(part.name)) is not None:
                directory.repeated.append(name)
            continue
        elsewhere = {
            entry.path: logs[key].place
            for entry in _logs(part)
            if (key := _key(opened_path, entry)) in logs and logs[key].place != typed_path(opened_path.source, entry.path)
        }
        if elsewhere:
            part, words = _logs_once(opened_path, part, elsewhere, keep=bool(directory.entries))
            repeated_here += words
        if not elsewhere or part.segments:
            partitions.append(part)
    if len(partitions) == len(directory.partitions) and not repeated_here:
        return directory, repeated_here
    if not partitions and not directory.entries and not directory.unlisted:
        return None, repeated_here
    return replace(directory, partitions=partitions), repeated_here


def _logs_once(
    opened_path: OpenedPath, part: PartitionDirectory, elsewhere: dict[str, str], *, keep: bool
) -> tuple[PartitionDirectory, list[str]]:
    """The partition without the logs that are read `elsewhere` (place by path); with `keep` they stay, and cannot be read here."""
    sentences = [
        f"{typed_path(opened_path.source, path)} is {place} as well: read once" for path, place in sorted(elsewhere.items())
    ]
    segments: list[SegmentFiles] = []
    irregular = list(part.irregular)
    for segment in part.segments:
        log = segment.log
        if log is None or log.path not in elsewhere:
            segments.append(segment)
        elif keep:
            reason = f"a link to {elsewhere[log.path]}, which is read there"
            opened_path.source.refused[log.path] = reason
            refused = log._replace(kind=EntryKind.SYMLINK, size_in_bytes=0, allocated_bytes=None, link=None, refused=reason)
            segments.append(replace(segment, log=refused))
            irregular.append(refused)
    return replace(part, segments=segments, irregular=irregular), sentences


def _keepers(opened: list[OpenedPath]) -> dict[object, tuple[OpenedPath, LogDirectory]]:
    """From which source each log directory is read. Raises UsageError for one that was given two names."""
    kept: dict[object, tuple[OpenedPath, LogDirectory]] = {}
    for opened_path in opened:
        for directory in opened_path.discovery.log_directories:
            key = _key(opened_path, directory.entry)
            if key is None:
                continue
            rival, of_rival = kept.setdefault(key, (opened_path, directory))
            if rival is opened_path:
                if _is_link(of_rival.entry) and not _is_link(directory.entry):
                    kept[key] = opened_path, directory
                continue
            if opened_path.given is None or rival.given == opened_path.given:
                continue
            if rival.given is not None:
                raise _two_names(typed_path(opened_path.source, directory.path), rival.given, opened_path.given)
            kept[key] = opened_path, directory
    return kept


@dataclass(frozen=True, slots=True)
class _Reading:
    """By what name something is read, and how good that name is: the lower the `rank` the better."""

    place: str
    rank: int


def _rank(directory: LogDirectory) -> int:
    """A log directory's own before a link in one (whose rank is one more), and both before folders without small files and
    directories given alone."""
    return 4 if is_alone(directory) else 0 if directory.entries else 2


def _partition_places(opened: list[OpenedPath]) -> tuple[dict[object, _Reading], dict[object, _Reading]]:
    """Partition directories within log directories, and those that were given by themselves."""
    held: dict[object, _Reading] = {}
    alone: dict[object, _Reading] = {}
    for opened_path in opened:
        for directory in opened_path.discovery.log_directories:
            places, rank = alone if is_alone(directory) else held, _rank(directory)
            for part in directory.partitions:
                reading = _Reading(typed_path(opened_path.source, part.path), rank + _is_link(part.entry))
                _take(places, _key(opened_path, part.entry), reading)
    return held, alone


def _log_places(opened: list[OpenedPath], held: dict[object, _Reading]) -> dict[object, _Reading]:
    """By what name each `.log` file is read to which a link leads; those in directories that are not read here left out."""
    every: list[tuple[OpenedPath, int, Entry]] = []
    for opened_path in opened:
        for directory in opened_path.discovery.log_directories:
            rank = _rank(directory)
            for part in directory.partitions:
                reading = held.get(_key(opened_path, part.entry))
                if reading is None or reading.place == typed_path(opened_path.source, part.path):
                    every += [(opened_path, rank, entry) for entry in _logs(part)]
    linked = {_key(opened_path, entry) for opened_path, _, entry in every if _is_link(entry)}
    readings: dict[object, _Reading] = {}
    for opened_path, rank, entry in every if linked else ():
        if (key := _key(opened_path, entry)) in linked:
            _take(readings, key, _Reading(typed_path(opened_path.source, entry.path), rank + _is_link(entry)))
    return readings


def _take(places: dict[object, _Reading], key: object, reading: _Reading) -> None:
    if key is not None and (key not in places or reading.rank < places[key].rank):
        places[key] = reading


def is_alone(directory: LogDirectory) -> bool:
    """Whether it is a partition directory that was found without the log directory around it."""
    return any(partition.path == directory.path for partition in directory.partitions)


def _is_link(entry: Entry | None) -> bool:
    return entry is not None and entry.link is not None


def _logs(part: PartitionDirectory) -> list[Entry]:
    return [segment.log for segment in part.segments if segment.log is not None and segment.log.unreadable is None]


def _entries(*entries: Entry | None) -> list[Entry]:
    return [entry for entry in entries if entry is not None]


def _key(opened_path: OpenedPath, entry: Entry | None) -> object:
    """What all names of a directory or file have in common: device and inode, in an archive its own name; None of nothing."""
    if entry is None:
        return None
    return entry.identity or (id(opened_path.source), directory_key(entry))


def _parent(source: ByteSource) -> Identity | None:
    """Identity of the directory that holds the source, a file."""
    try:
        info = os.stat(os.path.dirname(os.path.realpath(source.name)))
    except OSError:
        return None
    return info.st_dev, info.st_ino


def _note(words: str) -> None:
    """Tell the user something that is no error."""
    import logging

    logging.getLogger(__name__).warning("%s", words)
