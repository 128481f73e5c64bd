"""From paths as they were typed to opened sources, each read once, each with something of Kafka's in it."""

import os
import re
from dataclasses import dataclass, replace
from typing import Final

from kafka_forensics.errors import SourceError, UsageError
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.file_names import FileKind, FileName, parse_file_name
from kafka_forensics.parsers.log_dir import Discovery, LogDirectory, discover
from kafka_forensics.storage.containers import container_of
from kafka_forensics.storage.open import ARCHIVES, located, open_source
from kafka_forensics.storage.source import ByteSource, EntryKind

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


@dataclass(slots=True)
class OpenedPath:
    """One path that was given: `given` is the broker's name in `NAME=PATH`, None without one."""

    given: Name | None
    source: ByteSource
    found: Discovery


def open_paths(paths: list[str], *, logs_only: bool = True, storage_options: tuple[tuple[str, str], ...] = ()) -> list[OpenedPath]:
    """Open every path, what is reached by several of them once only, and note that. Patterns in URIs are matched here.

    Raises UsageError for a path that is missing, empty or holds nothing of Kafka's, and for a file that is no log (`logs_only`) or
    no file of Kafka's.
    """
    opened: list[OpenedPath] = []
    by_place: dict[str, OpenedPath] = {}
    every = [(given, *one) for given, path in map(split_name, paths) for one in located(path, storage_options)]
    for given, path, options in every:
        place = os.path.realpath(path) if os.path.lexists(path) else path
        if place in by_place:
            _name(by_place[place], given)
            _note(f"{path}: the same as {by_place[place].source.name}, read once")
            continue
        source = open_source(path, options)
        one = by_place[place] = OpenedPath(given, source, _discovered(source))
        _require_content(one, logs_only=logs_only)
        opened.append(one)
    return _read_once(opened) if len(opened) > 1 else opened


def split_name(path: str) -> tuple[Name | None, str]:
    """Split `NAME=PATH`; a path that exists as it stands is no such pair. Raises UsageError for an empty name."""
    name, equals, rest = path.partition("=")
    if not equals or os.path.lexists(path) or not rest or "/" in name:
        return None, path
    if not name:
        shown = re.sub("://[^/]*@", "://", rest)  # without the credentials of a URI
        raise UsageError(f"there is no name in ={shown}", hint=f"write NAME={shown}, or {shown} without a name")
    return (int(name) if name.isascii() and name.isdigit() and len(name) < 10 else name), rest


def typed_path(source: ByteSource, path: str) -> str:
    """A path inside a source as the user would type it."""
    return os.path.join(source.name, path) if path else source.name


def members_left_out(source: ByteSource) -> list[Incomplete]:
    """Members of an archive that are not read: those without a safe name, and all but the last of those that have one name."""
    refused = [Incomplete(source.name, f"refused member: {name}") for name in source.rejected]
    return refused + [Incomplete(source.name, f"several members are called {name}: the last is read") for name in source.replaced]


def not_listed(source: ByteSource, found: Discovery) -> list[Incomplete]:
    """Directories of a source that could not be listed, the root among them, as the user would type them."""
    return [Incomplete(typed_path(source, one.path), one.reason) for one in found.incomplete]


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


def _require_content(one: OpenedPath, *, logs_only: bool) -> None:
    source, found = one.source, one.found
    if found.files:
        _require_kafka_file(source, logs_only=logs_only)
    elif not (found.log_directories or found.incomplete or source.rejected or source.problems):
        raise UsageError(f"there is no Kafka log in {source.name}", hint=_hint(one))


def _require_kafka_file(source: ByteSource, *, logs_only: bool) -> None:
    parsed = lone_file_name(source)
    if parsed is None:
        container = container_of(source)
        if container is not None:
            ends = [end for end in container.ends if end in ARCHIVES]
            rename = f"let its name end in {ends[0]}" if ends else f"archives that can be read are {', '.join(ARCHIVES)}"
            raise UsageError(f"{source.name}: holds {container.words}, and its name does not say so", hint=rename)
        hint = "a renamed copy is read if its name ends in .log, .index, ..."
        raise UsageError(f"{source.name}: no file of Kafka's has such a name", hint=hint)
    if logs_only and not source.name.endswith(".log"):
        hint = f"`kafka-forensics dump {source.name}` shows what is in it"
        raise UsageError(f"there is no Kafka log in {source.name}, a file of kind {parsed.kind.value}", hint=hint)


def _hint(one: OpenedPath) -> str:
    """What to do about a path that holds nothing of Kafka's."""
    found, name = one.found, one.source.name
    links = [entry.path for entry in found.irregular if entry.kind is EntryKind.SYMLINK]
    if links:
        return f"links inside are not followed ({_listed(links)}): give them as paths themselves, like {os.path.join(name, '*')}"
    archives = [entry.path for entry in found.unknown if entry.name.lower().endswith(tuple(ARCHIVES))]
    if archives:
        others = "" if len(archives) == 1 else f", and {len(archives) - 1} more"
        return f"give the archives in it as paths themselves, like {os.path.join(name, min(archives))}{others}"
    return _LAYOUT


def _listed(names: list[str]) -> str:
    more = ", ..." if len(names) > _NAMES_LISTED else ""
    return ", ".join(sorted(names)[:_NAMES_LISTED]) + more


def _name(one: OpenedPath, given: Name | None) -> None:
    """Call what was opened `given` as well."""
    if one.given is not None and given is not None and one.given != given:
        raise _two_names(one.source.name, one.given, given)
    one.given = given if one.given is None else one.given


def _two_names(place: str, name: Name, other: Name) -> UsageError:
    return UsageError(f"{place} was given two names, {name} and {other}", hint="give each log directory one name")


def _read_once(opened: list[OpenedPath]) -> list[OpenedPath]:
    """The sources without the directories and files that another holds too; of equals the named one is kept, or the first."""
    kept = _keepers(opened)
    held, alone = _partition_places(opened)
    repeated: list[str] = []
    for one in opened:
        directories = []
        for directory in one.found.log_directories:
            identity = _identity(one.source, directory.path)
            keeper = one if identity is None else kept[identity]
            again = held.get(identity) if _is_alone(directory) else None
            if again is None and keeper is not one:
                again = keeper.source.name
            if again is None:
                directories.append(directory)
            else:
                repeated.append(f"{typed_path(one.source, directory.path)} is in {again} as well: read once")
        files = one.found.files
        if files and (again := held.get(_parent(one.source)) or alone.get(_parent(one.source))):
            repeated.append(f"{one.source.name} is in {again} as well: read once")
            files = []
        one.found = replace(one.found, log_directories=directories, files=files)
    for words in repeated[:_NAMES_LISTED]:
        _note(words)
    if len(repeated) > _NAMES_LISTED:
        _note(f"and {len(repeated) - _NAMES_LISTED} more are read once")
    return [one for one in opened if one.found != Discovery() or one.source.problems or one.source.rejected]


def _keepers(opened: list[OpenedPath]) -> dict[Identity, OpenedPath]:
    """From which source each log directory is read. Raises UsageError for one that was given two names."""
    kept: dict[Identity, OpenedPath] = {}
    for one in opened:
        for directory in one.found.log_directories:
            identity = _identity(one.source, directory.path)
            if identity is None:
                continue
            rival = kept.setdefault(identity, one)
            if one.given is None or rival.given == one.given:
                continue
            if rival.given is not None:
                raise _two_names(typed_path(one.source, directory.path), rival.given, one.given)
            kept[identity] = one
    return kept


def _partition_places(opened: list[OpenedPath]) -> tuple[dict[Identity | None, str], dict[Identity | None, str]]:
    """Path by identity of the partition directories within log directories, and of those that were given by themselves."""
    held: dict[Identity | None, str] = {}
    alone: dict[Identity | None, str] = {}
    for one in opened:
        for directory in one.found.log_directories:
            for partition in directory.partitions:
                places = alone if _is_alone(directory) else held
                places.setdefault(_identity(one.source, partition.path), typed_path(one.source, partition.path))
    for places in (held, alone):
        places.pop(None, None)
    return held, alone


def _is_alone(directory: LogDirectory) -> bool:
    """Whether it is a partition directory that was found without the log directory around it."""
    return any(partition.path == directory.path for partition in directory.partitions)


def _identity(source: ByteSource, path: str) -> Identity | None:
    """(device, inode) of a directory; None in an archive, and of what is gone."""
    try:
        return source.stat(path).identity
    except SourceError:
        return None


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
