"""Remote stores of tiered topics: recognised by the names of what they hold, and listed without reading an object."""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from kafka_forensics.model.constants import INT64_MAX, MAX_INT32
from kafka_forensics.model.remote_log import StoredLog, StoredSegment
from kafka_forensics.storage.source import ByteFile, ByteSource, Entry, EntryKind, path_in, root_path
from kafka_forensics.storage.tiered.aiven import AIVEN
from kafka_forensics.storage.tiered.decoded import DecodedStore
from kafka_forensics.storage.tiered.layout import RemoteLayout, RemotePart
from kafka_forensics.storage.tiered.local_tiered_storage import LOCAL_TIERED_STORAGE

LAYOUTS: Final = (LOCAL_TIERED_STORAGE, AIVEN)
_DEPTH: Final = 2
"""Most directories in an object's name, by which it is recognised."""


def is_store(source: ByteSource, name: str, entries: Sequence[Entry]) -> bool:
    """Whether a directory called `name`, with these entries, is a remote store, or a directory inside of one. Raises SourceError.

    Names of directories alone prove nothing: one must hold an object. Only the first that does is listed, however many there are.
    Directories of LocalTieredStorage stay when their topics are deleted: if nothing else is there, they may all be empty.
    """
    root = root_path(source)
    if _holds_object(root, entries):
        return True
    empty_count = 0
    for partition in _partitions(source, name, entries):
        listed = source.list(partition.path)
        if _holds_object(root, listed):
            return True
        empty_count += not listed
    return 0 < empty_count == len(entries) and all(LOCAL_TIERED_STORAGE.directories.fullmatch(entry.name) for entry in entries)


def belongs_to_store(name: str, directory: str) -> bool:
    """Whether a directory in a store, or in a topic's directory of one, called `name` belongs to it by its name."""
    return any(layout.directories.fullmatch(directory) or layout.is_partition(name, directory) for layout in LAYOUTS)


def _partitions(source: ByteSource, name: str, entries: Iterable[Entry]) -> Iterator[Entry]:
    """The directories that are by their names those of partitions, in a directory called `name` or in its topics' directories."""
    for entry in entries:
        for layout in LAYOUTS if entry.kind is EntryKind.DIRECTORY else ():
            if layout.is_partition(name, entry.name):
                yield entry
            elif layout.partitions is not None and layout.directories.fullmatch(entry.name):
                below = source.list(entry.path)
                yield from (
                    inner for inner in below if inner.kind is EntryKind.DIRECTORY and layout.is_partition(entry.name, inner.name)
                )


def _holds_object(root: str, entries: Iterable[Entry]) -> bool:
    return any(entry.kind is EntryKind.FILE and _parsed(_whole_path(root, entry.path)) is not None for entry in entries)


def stored_object(path: str) -> StoredLog | None:
    """The partition and the segment of an object by its whole path, as a log with one segment; None for other names."""
    parsed = _parsed(path)
    if parsed is None:
        return None
    listing = _Listing(parsed[0])
    listing.add(parsed[1], "", 0)
    return next(iter(listing.logs().values()), None)


def layout_of(path: str) -> RemoteLayout | None:
    """The layout that has an object at this whole path; None for other names."""
    parsed = _parsed(path)
    return None if parsed is None else parsed[0]


@dataclass(slots=True)
class RemoteStore:
    """The objects of a remote store, as listed."""

    source: ByteSource
    path: str
    """Of the store's directory in the source."""
    layout: RemoteLayout
    logs: dict[tuple[str, int], StoredLog] = field(default_factory=dict)
    """By topic id and partition."""
    parts: ByteSource = field(init=False)
    """The source of the parts of segments with the bytes that the broker copied: `stem_of` a segment, a dot, a `RemotePart`."""

    lacks_logs: bool = field(init=False)
    """Whether it has segments, and of none the log: Aiven's plugin can write the records to Iceberg tables instead."""

    def __post_init__(self) -> None:
        self.parts = self.source if self.layout.is_plain else DecodedStore(self.source, self.layout)
        objects = [segment.objects for log in self.logs.values() for segment in log.segments.values()]
        self.lacks_logs = bool(objects) and not (self.layout.is_plain or any(self.layout.needed[0] in names for names in objects))

    @property
    def name(self) -> str:
        """As a person would type it."""
        return path_in(self.source.name, self.path)

    def open(self, log: StoredLog, segment: StoredSegment, part: RemotePart) -> ByteFile:
        """A part of a segment with the bytes that the broker copied. Raises SourceError."""
        return self.parts.open(f"{stem_of(log, segment)}.{part.value}")


def stem_of(_log: StoredLog, segment: StoredSegment) -> str:
    """The path of a segment's objects in their source, without the suffix."""
    name = f"{segment.start_offset:020d}-{segment.segment_id}"
    return f"{segment.directory}/{name}" if segment.directory else name


def merged_log(logs: Sequence[StoredLog]) -> StoredLog:
    """Several logs of a partition, in the same layout, as one with the topic of that with the most segments.

    A segment that several of them have is taken from the one with more of its objects, or a larger object of the log.
    """
    if len(logs) == 1:
        return logs[0]
    logs = sorted(logs, key=lambda log: -len(log.segments))
    log, segments = logs[0], dict[str, StoredSegment]()

    def completeness(segment: StoredSegment) -> tuple[int, int]:
        return len(segment.objects), segment.objects.get(log.needed[0], -1)

    for segment in (segment for log in logs for segment in log.segments.values()):
        known = segments.setdefault(segment.segment_id, segment)
        if completeness(segment) > completeness(known):
            segments[segment.segment_id] = segment
    return replace(log, segments=segments)


def list_store(source: ByteSource, path: str) -> RemoteStore:
    """List a store, or a directory inside of one: every object by its name and size. Raises SourceError.

    Directories that do not belong to it by their names are left out: they are found separately. A store without objects counts as
    LocalTieredStorage, whose directories stay.
    """
    root = root_path(source)
    name, start = path_in(root, path).rpartition("/")[2], len(path) + 1 if path else 0
    listings = {layout.name: _Listing(layout) for layout in LAYOUTS}
    belongs: dict[str, bool] = {"": True}
    for object_path, size_in_bytes in source.walk(path):
        directory = object_path[start : object_path.find("/", start) + 1][:-1]
        if directory not in belongs:
            belongs[directory] = belongs_to_store(name, directory)
        if not belongs[directory]:
            continue
        parsed = _parsed(_whole_path(root, object_path))
        if parsed is not None:
            listings[parsed[0].name].add(parsed[1], object_path.rpartition("/")[0], size_in_bytes)
    layout = max(LAYOUTS, key=lambda layout: listings[layout.name].objects_count)
    return RemoteStore(source, path, layout, listings[layout.name].logs())


class _Listing:
    """The objects of one layout, by partition and segment."""

    def __init__(self, layout: RemoteLayout) -> None:
        self._layout = layout
        self.objects_count = 0
        self._segments: dict[tuple[str, str, str, str], dict[str, StoredSegment]] = {}
        """(topic id, partition, topic, directory) → segments by id."""

    def add(self, match: re.Match[str], directory: str, size_in_bytes: int) -> None:
        """Add an object, unless its name has a number that is too large for Kafka, or its segment's id another start offset."""
        topic, topic_id, partition, start, segment_id, suffix = match.group(
            "topic", "topic_id", "partition", "start_offset", "segment_id", "suffix"
        )
        if int(start) > INT64_MAX or int(partition) > MAX_INT32:
            return
        segments = self._segments.setdefault((topic_id, partition, topic, directory), {})
        segment = segments.get(segment_id)
        if segment is None:
            segment = segments[segment_id] = StoredSegment(int(start), segment_id, {}, sys.intern(directory))
        if segment.start_offset == int(start):
            segment.objects[sys.intern(suffix)] = size_in_bytes
            self.objects_count += 1

    def logs(self) -> dict[tuple[str, int], StoredLog]:
        """The partitions, by topic id and number; several directories have one if the prefix of names was changed."""
        logs: dict[tuple[str, int], list[StoredLog]] = {}
        for (topic_id, partition, topic, _), segments in sorted(self._segments.items()):
            log = StoredLog(topic, topic_id, int(partition), segments, self._layout.needed, self._layout.is_plain)
            logs.setdefault((topic_id, log.partition), []).append(log)
        return {key: merged_log(logs[key]) for key in sorted(logs)}


def _whole_path(root: str, path: str) -> str:
    """A path that has the names by which an object is recognised, those of the source's root included."""
    return path if path.count("/") >= _DEPTH else path_in(root, path)


def _parsed(path: str) -> tuple[RemoteLayout, re.Match[str]] | None:
    """The layout that has an object at this path, and the parts of the path; None if no layout has one."""
    for layout in LAYOUTS:
        if (match := layout.objects.search(path)) is not None:
            return layout, match
    return None
