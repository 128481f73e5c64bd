"""Checks that outputs do not overlap with anything that the run reads, or with each other.

Files and directories are compared by device and inode, objects by bucket and key.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import combinations, product
from typing import Final, Literal

from msgspec import Struct

from kafka_forensics.errors import UsageError
from kafka_forensics.parsers.log_dir import LOG_DIRECTORY_KINDS, PARTITION_KINDS, classify_file, parse_partition_name
from kafka_forensics.storage.open import ARCHIVES, local_path
from kafka_forensics.storage.remote import RemotePlace, remote_place

OutputKind = Literal["file", "new directory", "any"]
"""A file, which may exist; a directory, which must be empty or missing; or anything, which the code that writes it checks."""

_URI: Final = re.compile(r"([a-z][a-z0-9+.-]+):/+(.*)", re.IGNORECASE)
"""A URI, also as a path object writes it, with one slash."""
_LOCAL: Final = re.compile(r"local(?=://)", re.IGNORECASE)
"""fsspec's alias of `file:`."""


class Output(Struct, frozen=True):
    """A path or URI to write to, and the option that names it."""

    place: str
    option: str = "--output"
    kind: OutputKind = "file"


class _Evidence(Struct, frozen=True):
    """A path that is read, links resolved."""

    path: str
    name: str
    """Its description in errors."""
    only_kafka_names: bool = False
    """Whether it is a folder of which only files with Kafka's names are read."""


def check_outputs(outputs: Iterable[Output], inputs: Iterable[str]) -> None:
    """Raise UsageError unless all outputs can be written without changing anything that is read with `inputs`.

    `inputs` are paths and URIs as they were typed, including `NAME=PATH`. With a partition directory or a file, the files beside it
    are read, too, and those of the log directory above it.
    """
    outputs, spellings = list(outputs), [(spelling, argument) for argument in inputs for spelling in _spellings(argument)]
    evidence = _all_read(spellings)
    for output in outputs:
        path = _local_path(output.place)
        if path is None:
            _check_object(output, [spelling for spelling, _ in spellings])
        else:
            for target, read in product(_targets(path, output.kind), evidence):
                if (overlap := _overlap(target, read)) is not None:
                    raise _refused(output, overlap, read.name)
        if output.kind != "any":
            check_kind(output)
    for output, other in combinations(outputs, 2):
        paths = [os.path.realpath(_local_path(place) or place) for place in (output.place, other.place)]
        if _is_same(*paths):
            raise UsageError(
                f"{output.option} and {other.option} name the same file: {output.place}", hint="give each a different file"
            )


def check_kind(output: Output) -> None:
    """Raise UsageError unless the file or new directory can be created."""
    place, parent = output.place, os.path.dirname(output.place.rstrip("/")) or "."
    uri = _URI.match(place)
    if output.kind == "new directory":
        _check_empty(place, output.option)
    elif uri is not None and not os.path.isdir(parent):
        hint = "write a local file and copy it there; only datasets of `export` can be written to a URI"
        raise UsageError(f"cannot write to {uri[1]}://{uri[2]}: {output.option} must be a local file", hint=hint)
    elif os.path.isdir(place):
        raise UsageError(f"cannot write to {place}: it is a directory", hint="name a file in it")
    if not os.path.isdir(parent) and not os.path.isdir(place):
        hint = "create that directory first, or choose another path"
        raise UsageError(f"cannot write to {place}: its directory does not exist", hint=hint)


def _check_empty(place: str, option: str) -> None:
    hint = "choose a directory that is empty or does not exist yet"
    if place == "-":
        raise UsageError(f"{option} - is not a directory", hint=f"{hint}; for a directory with that name give ./-")
    if os.path.exists(place) and not os.path.isdir(place):
        raise UsageError(f"{place} is a file, and {option} names a directory", hint=hint)
    try:
        names = sorted(os.listdir(place))
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"cannot write to {place}: {error.strerror}", hint=hint) from error
    if names:
        raise UsageError(f"{place} is not empty: it holds {names[0]}", hint=hint)


def _local_path(place: str) -> str | None:
    """The path on this machine of a path or URI; None for a URI of a storage service."""
    return local_path(_LOCAL.sub("file", place, count=1) if _LOCAL.match(place) else place)


def _spellings(argument: str) -> Iterator[str]:
    """The argument, and the text after each `=` in it if that exists: `NAME=PATH` may be a path or a pair."""
    yield argument
    while argument := argument.partition("=")[2]:
        if _URI.match(argument) or os.path.lexists(_local_path(argument) or argument):
            yield argument


def _targets(path: str, kind: OutputKind) -> Iterator[str]:
    """The paths that writing to `path` may change: its target, the path itself, which a new file may get, and targets of links in a
    dataset."""
    absolute = os.path.abspath(path)
    named = os.path.join(os.path.realpath(os.path.dirname(absolute)), os.path.basename(absolute))
    yield from dict.fromkeys((os.path.realpath(path), os.path.realpath(absolute), named))
    if kind == "any" and os.path.isdir(path):
        with os.scandir(path) as entries:
            yield from [os.path.realpath(entry.path) for entry in entries if entry.is_symlink()]


def _all_read(spellings: list[tuple[str, str]]) -> list[_Evidence]:
    """All local paths that are read because of (spelling, argument)."""
    evidence, folders = [], dict[str, str]()
    for spelling, argument in spellings:
        local = _local_path(spelling)
        for path in dict.fromkeys((os.path.realpath(local), os.path.abspath(local))) if local is not None else ():
            evidence.append(_Evidence(os.path.realpath(path), f"the input {argument}"))
            if not os.path.isdir(path) and not path.lower().endswith(tuple(ARCHIVES)):
                path = os.path.dirname(path)
                folders.setdefault(os.path.realpath(path), argument)
            if parse_partition_name(os.path.basename(path)) is not None:
                folders.setdefault(os.path.realpath(os.path.dirname(path)), argument)
    return evidence + [read for folder, argument in folders.items() for read in _read_beside(folder, argument)]


def _read_beside(folder: str, argument: str) -> list[_Evidence]:
    """Everything in the folder of a file or partition directory if it is a log or partition directory, else files with Kafka's
    names."""
    try:
        kinds = {file: kind for file in os.listdir(folder) if (kind := classify_file(file)) is not None}
    except OSError:
        kinds = {"": LOG_DIRECTORY_KINDS[0]}  # unreadable: it may be a log directory
    is_other_folder = {*LOG_DIRECTORY_KINDS, *PARTITION_KINDS}.isdisjoint(kinds.values())
    files = [_Evidence(os.path.join(folder, file), f"{file}, which is read with the input {argument}") for file in kinds]
    name = f"{folder}, in which files are read with the input {argument}"
    return [_Evidence(folder, name, only_kafka_names=is_other_folder), *(files if is_other_folder else ())]


def _overlap(target: str, read: _Evidence) -> str | None:
    """How path `target` overlaps with evidence; None if it does not."""
    if read.only_kafka_names:
        is_read = classify_file(os.path.basename(target)) is not None and _is_same(os.path.dirname(target), read.path)
        return "lies inside" if is_read else None
    if _is_same(target, read.path):
        return "is"
    if _is_below(target, read.path):
        return "lies inside"
    if _is_below(read.path, target):
        return "contains"
    return "has another name in" if _is_within(target, read.path) else None


def _refused(output: Output, overlap: str, name: str) -> UsageError:
    hint = f"choose another place for the output: give {output.option} a path outside all inputs"
    return UsageError(f"output {output.place} {overlap} {name}: evidence is never written to", hint=hint)


def _is_same(path: str, other: str) -> bool:
    identity = _identity(path)
    return path == other or (identity is not None and identity == _identity(other))


def _is_below(path: str, folder: str) -> bool:
    """Whether `path`, which need not exist, is below a folder, also by another name of that."""
    return any(_is_same(parent, folder) for parent in _parents(path))


def _parents(path: str) -> Iterator[str]:
    while (parent := os.path.dirname(path)) != path:
        yield parent
        path = parent


def _is_within(target: str, root: str) -> bool:
    """Whether `target`, or a directory above it, has another name below `root`: a hard link, or a bind mount."""
    identities = set(map(_identity, (target, *_parents(target)))) - {None}
    has_links = os.path.isfile(target) and os.stat(target).st_nlink > 1
    return any(
        _identity(path) in identities
        for folder, _, names in os.walk(root)
        for path in (folder, *(os.path.join(folder, name) for name in names if has_links))
    )


def _identity(path: str) -> tuple[int, int] | None:
    """(device, inode); None if the path does not exist."""
    with suppress(OSError):
        info = os.lstat(path)
        return info.st_dev, info.st_ino
    return None


def _check_object(output: Output, spellings: list[str]) -> None:
    """Raise UsageError if an input is at the output's prefix, above it or below it; a pattern counts as the path before it."""
    place = _bucket_and_key(remote_place(output.place))
    for spelling in spellings:
        if "://" not in spelling or _local_path(spelling) is not None:
            continue
        read = remote_place(spelling)
        parent, *pattern = re.split(r"[*?[]", _bucket_and_key(read), maxsplit=1)
        if pattern or classify_file(parent.rpartition("/")[2]) is not None:  # files beside a file are read, too
            parent = parent.rpartition("/")[0]
        if f"{place}/".startswith(f"{parent}/"):
            raise _refused(output, "lies inside", f"the input {read.name}")
        if f"{parent}/".startswith(f"{place}/"):
            raise _refused(output, "contains", f"the input {read.name}")


def _bucket_and_key(place: RemotePlace) -> str:
    """`SCHEME://BUCKET/KEY`; without Azure's account, which may be in the options instead, and without HDFS's name node, which has
    several names: its host, its service, or none for the default file system."""
    bucket, slash, key = place.root.partition("/")
    if place.scheme == "hdfs":
        return f"hdfs://{re.sub('/+', '/', slash + key)}"
    return f"{place.scheme}://{bucket.partition('@')[0] if place.scheme == 'abfs' else bucket}{slash}{key}"
