"""Whether an output may be written: it is, contains and lies inside nothing that the run reads, and is no other output of the run.

Files and directories are compared by device and inode, objects by bucket and key.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations, product
from typing import Final, Literal

from kafka_forensics.errors import UsageError
from kafka_forensics.parsers.log_dir import LOG_DIRECTORY_KINDS, PARTITION_KINDS, classify_file, parse_partition_name
from kafka_forensics.storage.open import ARCHIVES, local_path
from kafka_forensics.storage.remote import RemotePlace, remote_place

OutputKind = Literal["file", "new directory", "any"]
"""A file, perhaps to be replaced; a directory that is empty or does not exist; or what the code that writes it checks further."""

_URI: Final = re.compile(r"([a-z][a-z0-9+.-]+):/+(.*)", re.IGNORECASE)
"""As a path has it, in which two slashes are one."""
_LOCAL: Final = re.compile(r"local(?=://)", re.IGNORECASE)
"""The other name of `file:` in fsspec."""


@dataclass(frozen=True, slots=True)
class Output:
    """A place to be written to, and what the user calls the option that names it."""

    place: str
    option: str = "--output"
    kind: OutputKind = "file"


@dataclass(frozen=True, slots=True)
class _Evidence:
    """A path without links that is read."""

    path: str
    name: str
    """What the user calls it."""
    only_kafka_names: bool = False
    """Whether it is a folder in which only files with names of Kafka's are read."""


def check_outputs(outputs: Iterable[Output], inputs: Iterable[str]) -> None:
    """Raise UsageError unless all the outputs can be written without a change of anything that is read with `inputs`.

    `inputs` are paths and URIs as they were typed, `NAME=PATH` among them. With a partition directory or a file, the files beside
    it are read, too, and those of the log directory above it.
    """
    outputs, spellings = list(outputs), [(spelling, given) for given in inputs for spelling in _spellings(given)]
    evidence = _all_read(spellings)
    for output in outputs:
        here = _here(output.place)
        if here is None:
            _check_object(output, [spelling for spelling, _ in spellings])
        else:
            for target, read in product(_targets(here, output.kind), evidence):
                if (found := _overlap(target, read)) is not None:
                    raise _refused(output, found, read.name)
        if output.kind != "any":
            _check_kind(output)
    for output, other in combinations(outputs, 2):
        one, two = (os.path.realpath(_here(each.place) or each.place) for each in (output, other))
        if _is_same(one, two):
            raise UsageError(f"{output.option} and {other.option} name one file: {output.place}", hint="give each its own")


def _check_kind(output: Output) -> None:
    """Raise UsageError unless a file, or a new directory, can be made there."""
    place, above = output.place, os.path.dirname(output.place.rstrip("/")) or "."
    uri = _URI.match(place)
    if output.kind == "new directory":
        _check_empty(place, output.option)
    elif uri is not None and not os.path.isdir(above):
        hint = "write a file here and copy it there; only datasets of `kafka-forensics export` can go to a URI at once"
        raise UsageError(f"cannot write to {uri[1]}://{uri[2]}: {output.option} is a file of this machine", hint=hint)
    elif os.path.isdir(place):
        raise UsageError(f"cannot write to {place}: it is a directory", hint="name a file in it")
    if not os.path.isdir(above) and not os.path.isdir(place):
        hint = "make that directory first, or choose another place"
        raise UsageError(f"cannot write to {place}: its directory does not exist", hint=hint)


def _check_empty(place: str, option: str) -> None:
    hint = "choose a directory that is empty or does not exist yet"
    if place == "-":
        raise UsageError(f"{option} - names no directory", hint=f"{hint}; one of that name is ./-")
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


# Paths of this machine.


def _here(place: str) -> str | None:
    """The path on this machine that a place means; None for one of a storage service."""
    return local_path(_LOCAL.sub("file", place, count=1) if _LOCAL.match(place) else place)


def _spellings(given: str) -> Iterator[str]:
    """What was typed, and what stands after each `=` in it, if that is there: `NAME=PATH` may be either."""
    yield given
    while given := given.partition("=")[2]:
        if _URI.match(given) or os.path.lexists(_here(given) or given):
            yield given


def _targets(here: str, kind: OutputKind) -> Iterator[str]:
    """What is written to at a path, without links: what it leads to, its own name, which may be given to a new file, and what links
    in a dataset lead to."""
    absolute = os.path.abspath(here)
    named = os.path.join(os.path.realpath(os.path.dirname(absolute)), os.path.basename(absolute))
    yield from dict.fromkeys((os.path.realpath(here), os.path.realpath(absolute), named))
    if kind == "any" and os.path.isdir(here):
        with os.scandir(here) as entries:
            yield from [os.path.realpath(entry.path) for entry in entries if entry.is_symlink()]


def _all_read(spellings: list[tuple[str, str]]) -> list[_Evidence]:
    """All paths of this machine that are read because of (what may be a path, what was typed)."""
    evidence, folders = [], dict[str, str]()
    for spelling, given in spellings:
        here = _here(spelling)
        for path in dict.fromkeys((os.path.realpath(here), os.path.abspath(here))) if here is not None else ():
            evidence.append(_Evidence(os.path.realpath(path), f"the input {given}"))
            if not os.path.isdir(path) and not path.lower().endswith(tuple(ARCHIVES)):
                path = os.path.dirname(path)
                folders.setdefault(os.path.realpath(path), given)
            if parse_partition_name(os.path.basename(path)) is not None:
                folders.setdefault(os.path.realpath(os.path.dirname(path)), given)
    return evidence + [read for folder, given in folders.items() for read in _read_beside(folder, given)]


def _read_beside(folder: str, given: str) -> list[_Evidence]:
    """What is read in the folder of a file or partition directory: all of a log or partition directory, else files with Kafka's
    names."""
    try:
        kinds = {file: kind for file in os.listdir(folder) if (kind := classify_file(file)) is not None}
    except OSError:
        kinds = {"": LOG_DIRECTORY_KINDS[0]}  # nobody knows
    is_any = {*LOG_DIRECTORY_KINDS, *PARTITION_KINDS}.isdisjoint(kinds.values())
    files = [_Evidence(os.path.join(folder, file), f"{file}, which is read with the input {given}") for file in kinds]
    name = f"{folder}, in which files are read with the input {given}"
    return [_Evidence(folder, name, only_kafka_names=is_any), *(files if is_any else ())]


def _overlap(target: str, read: _Evidence) -> str | None:
    """How the file or directory `target` overlaps with evidence; None if it does not."""
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


def _refused(output: Output, found: str, name: str) -> UsageError:
    hint = f"choose another place for the output: give {output.option} one outside of all that is read"
    return UsageError(f"output {output.place} {found} {name}: evidence is never written to", hint=hint)


def _is_same(path: str, other: str) -> bool:
    here = _identity(path)
    return path == other or (here is not None and here == _identity(other))


def _is_below(path: str, folder: str) -> bool:
    """Whether `path`, which need not exist, lies in a folder, by whatever name."""
    return any(_is_same(above, folder) for above in _above(path))


def _above(path: str) -> Iterator[str]:
    while (above := os.path.dirname(path)) != path:
        yield above
        path = above


def _is_within(target: str, root: str) -> bool:
    """Whether anything below `root` is `target`, or a directory above it, by another name: a hard link, or a bind mount."""
    identities = set(map(_identity, (target, *_above(target)))) - {None}
    has_links = os.path.isfile(target) and os.stat(target).st_nlink > 1
    return any(
        _identity(path) in identities
        for folder, _, names in os.walk(root)
        for path in (folder, *(os.path.join(folder, name) for name in names if has_links))
    )


def _identity(path: str) -> tuple[int, int] | None:
    """Device and inode; None of what is not there."""
    with suppress(OSError):
        info = os.lstat(path)
        return info.st_dev, info.st_ino
    return None


# Objects of storage services.


def _check_object(output: Output, spellings: list[str]) -> None:
    """Raise UsageError if an input is at the prefix, above it or below it; patterns count up to where they begin."""
    place = _bucket_and_key(remote_place(output.place))
    for spelling in spellings:
        if "://" not in spelling or _here(spelling) is not None:
            continue
        read = remote_place(spelling)
        above, *pattern = re.split(r"[*?[]", _bucket_and_key(read), maxsplit=1)
        if pattern or classify_file(above.rpartition("/")[2]) is not None:  # what lies beside a file is read, too
            above = above.rpartition("/")[0]
        if f"{place}/".startswith(f"{above}/"):
            raise _refused(output, "lies inside", f"the input {read.name}")
        if f"{above}/".startswith(f"{place}/"):
            raise _refused(output, "contains", f"the input {read.name}")


def _bucket_and_key(place: RemotePlace) -> str:
    """`SCHEME://BUCKET/KEY`; of Azure without the account, which may stand in the options as well, and of HDFS without the name
    node: its host, its service and, for the default file system, nothing name the same one."""
    bucket, slash, key = place.root.partition("/")
    if place.scheme == "hdfs":
        return f"hdfs://{re.sub('/+', '/', slash + key)}"
    return f"{place.scheme}://{bucket.partition('@')[0] if place.scheme == 'abfs' else bucket}{slash}{key}"
