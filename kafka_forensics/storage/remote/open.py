"""From a URI to a source: what it names, what its pattern matches, and the nearest name where there is nothing."""

from fnmatch import fnmatchcase
from itertools import islice
from typing import Final

from kafka_forensics.errors import PathMissingError, SourceError, UsageError, nearest
from kafka_forensics.storage.remote.filesystems import open_filesystem
from kafka_forensics.storage.remote.options import StorageOptions
from kafka_forensics.storage.remote.source import LISTED_AHEAD, RemoteSource
from kafka_forensics.storage.remote.uris import RemotePlace, remote_place
from kafka_forensics.storage.source import EntryKind

MOST_MATCHES: Final = 10_000
"""Directories that a pattern may match."""
_PATTERN: Final = frozenset("*?[")
_MOST_SIBLINGS: Final = 10_000
"""Names looked at for a hint."""


def open_remote(uri: str, options: StorageOptions) -> RemoteSource:
    """The evidence at `uri`. Raises PathMissingError if nothing is there, UsageError, SourceError."""
    place = remote_place(uri)
    source = _source(place, options.with_options(place.options), LISTED_AHEAD)
    if source.is_missing:
        raise _missing(place, source)
    return source


def expand(uri: str, options: StorageOptions) -> list[tuple[str, StorageOptions]]:
    """The URIs that a pattern matches, sorted: `*`, `?` and `[...]` in any part behind the bucket; one without a pattern, itself.

    They hold no credentials: what the URI said about how to reach it is among the options beside them. Raises UsageError,
    PathMissingError if nothing matches, SourceError.
    """
    place = remote_place(uri)
    options = options.with_options(place.options)
    parts = place.name.split("/")
    first = next((number for number, part in enumerate(parts) if number > 2 and _PATTERN & set(part)), None)
    if first is None:
        return [(place.name, options)]
    base = remote_place("/".join(parts[:first]))
    source = _source(base, options, 0)
    if source.is_missing:
        raise _missing(base, source)
    paths = [""]
    for number, pattern in enumerate(parts[first:], first):
        paths = [path for above in paths for path in _matching(source, above, pattern, last=number == len(parts) - 1)]
        if len(paths) > MOST_MATCHES:
            raise UsageError(f"{place.name}: matches more than {MOST_MATCHES:,} paths", hint="give a narrower pattern")
    if not paths:
        raise PathMissingError(f"{place.name}: matches nothing", hint=f"there is {_some(source)}")
    return [(f"{base.name}/{path}", options) for path in sorted(paths)]


def _source(place: RemotePlace, options: StorageOptions, ahead: int) -> RemoteSource:
    filesystem, root = open_filesystem(place, options)
    try:
        return RemoteSource(place.name, filesystem, root, options, ahead)
    except SourceError as error:
        raise SourceError(place.name, error.reason) from None


def _matching(source: RemoteSource, above: str, pattern: str, *, last: bool) -> list[str]:
    """What matches one part of a pattern directly below `above`; directories only, unless it is the last part."""
    try:
        entries = source.list(above)
    except SourceError as error:
        raise SourceError(f"{source.name}/{above}".rstrip("/"), error.reason) from None
    matches = [entry for entry in entries if fnmatchcase(entry.name, pattern)]
    return [entry.path for entry in matches if last or entry.kind is EntryKind.DIRECTORY]


def _missing(place: RemotePlace, source: RemoteSource) -> PathMissingError:
    """The error for a URI at which nothing is, with the nearest name that is there."""
    above, slash, name = place.name.rpartition("/")
    if place.scheme in {"s3", "gs", "abfs"} and above.endswith("/"):
        return PathMissingError(f"{place.name}: no such bucket, or no right to see it")
    bucket = place.root.partition("/")[0]
    try:
        if place.scheme in {"s3", "gs"} and source.at(bucket).is_missing:
            return PathMissingError(f"{place.name}: no such bucket: {bucket}")
    except SourceError:
        pass  # who may read a path need not see its bucket
    hint = None
    if slash and not above.endswith("/") and place.scheme != "gs":  # there, one level is not listed without all below it
        try:
            beside = source.beside()
            names = [entry.name for entry in islice(beside.list(), _MOST_SIBLINGS)] if not beside.is_missing else []
        except SourceError:
            names = []
        near = nearest(name, names)
        hint = f"did you mean {above}/{near}?" if near else None if names else f"nothing is at {above} either"
    return PathMissingError(f"{place.name}: no such object or directory", hint=hint)


def _some(source: RemoteSource) -> str:
    names = [entry.name for entry in source.list()]
    more = ", ..." if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more} in {source.name}" if names else f"nothing in {source.name}"
