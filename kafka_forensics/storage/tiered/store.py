"""Remote stores of tiered topics: recognised by the names of what they hold, and listed without reading an object."""

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from kafka_forensics.model.constants import INT64_MAX, MAX_INT32
from kafka_forensics.model.remote_log import StoredLog, StoredSegment
from kafka_forensics.storage.source import ByteFile, ByteSource, Entry, EntryKind, path_in
from kafka_forensics.storage.tiered.aiven import AIVEN
from kafka_forensics.storage.tiered.layout import RemoteLayout, RemotePart
from kafka_forensics.storage.tiered.local_tiered_storage import LOCAL_TIERED_STORAGE

LAYOUTS: Final = (LOCAL_TIERED_STORAGE, AIVEN)
_DEPTH: Final = 2
"""Most directories in an object's name, by which it is recognised."""
_OTHERS_LISTED: Final = 64


def is_store(source: ByteSource, directory: Entry, entries: Iterable[Entry]) -> bool:
    """Whether a directory, listed as `entries`, is a remote store, or a directory inside of one. Raises SourceError.

    A topic's directory in Aiven's layout looks like many others: it counts only if a directory in it holds objects.
    """
    for entry in entries:
        if entry.kind is EntryKind.FILE:
            if _parsed(_whole_path(source, entry.path)) is not None:
                return True
        elif entry.kind is EntryKind.DIRECTORY:
            if LOCAL_TIERED_STORAGE.directories.fullmatch(entry.name):
                return True
            below = [entry] if AIVEN.directories.fullmatch(directory.name) else []
            if AIVEN.directories.fullmatch(entry.name):
                below = source.list(entry.path)
            if any(_holds_objects(source, partition) for partition in below):
                return True
    return False


def _holds_objects(source: ByteSource, directory: Entry) -> bool:
    if directory.kind is not EntryKind.DIRECTORY or not directory.name.isdigit():
        return False
    return any(_parsed(_whole_path(source, entry.path)) is not None for entry in source.list(directory.path))


def stored_object(path: str) -> StoredLog | None:
    """The partition and the segment of an object by its whole path, as a log with one segment; None for other names."""
    parsed = _parsed(path)
    if parsed is None:
        return None
    listing = _Listing()
    listing.add(parsed[1], "", 0)
    return next(iter(listing.logs(parsed[0]).values()), None)


@dataclass(slots=True)
class RemoteStore:
    """The objects of a remote store, as listed."""

    source: ByteSource
    path: str
    """Of the store's directory in the source."""
    layout: RemoteLayout
    logs: dict[tuple[str, int], StoredLog] = field(default_factory=dict)
    """By topic id and partition."""
    others: list[str] = field(default_factory=list)
    """Some paths that are not objects of the layout."""
    others_count: int = 0

    @property
    def name(self) -> str:
        """As a person would type it."""
        return path_in(self.source.name, self.path)

    def open(self, log: StoredLog, segment: StoredSegment, part: RemotePart) -> ByteFile:
        """A part of a segment with the bytes that the broker copied. Raises SourceError."""
        return self.layout.open_part(self.source, stem_of(log, segment), part)


def stem_of(log: StoredLog, segment: StoredSegment) -> str:
    """The path of a segment's objects in their source, without the suffix."""
    name = f"{segment.start_offset:020d}-{segment.segment_id}"
    return f"{log.directory}/{name}" if log.directory else name


def list_store(source: ByteSource, path: str) -> RemoteStore:
    """List a store, or a directory inside of one: every object by its name and size. Raises SourceError.

    A store without objects counts as LocalTieredStorage, whose directories stay.
    """
    listings = {layout.name: _Listing() for layout in LAYOUTS}
    others: list[str] = []
    others_count = 0
    for object_path, size_in_bytes in source.walk(path):
        parsed = _parsed(_whole_path(source, object_path))
        if parsed is not None and listings[parsed[0].name].add(parsed[1], object_path.rpartition("/")[0], size_in_bytes):
            continue
        others_count += 1
        if len(others) < _OTHERS_LISTED:
            others.append(object_path)
    layout = max(LAYOUTS, key=lambda layout: listings[layout.name].objects_count)
    return RemoteStore(source, path, layout, listings[layout.name].logs(layout), others, others_count)


class _Listing:
    """The objects of one layout, by partition and segment."""

    def __init__(self) -> None:
        self.objects_count = 0
        self._segments: dict[tuple[str, str, str, str], dict[str, StoredSegment]] = {}
        """(topic id, partition, topic, directory) → segments by id."""

    def add(self, match: re.Match[str], directory: str, size_in_bytes: int) -> bool:
        """Add an object; False for a name with a number that is too large for Kafka."""
        topic, topic_id, partition, start, segment_id, suffix = match.group(
            "topic", "topic_id", "partition", "start_offset", "segment_id", "suffix"
        )
        if int(start) > INT64_MAX or int(partition) > MAX_INT32:
            return False
        segments = self._segments.setdefault((topic_id, partition, topic, directory), {})
        segment = segments.get(segment_id)
        if segment is None:
            segment = segments[segment_id] = StoredSegment(int(start), segment_id, {})
        segment.objects[sys.intern(suffix)] = size_in_bytes
        self.objects_count += 1
        return True

    def logs(self, layout: RemoteLayout) -> dict[tuple[str, int], StoredLog]:
        """The partitions, by topic id and number; of one that several directories have, the first."""
        logs: dict[tuple[str, int], StoredLog] = {}
        for (topic_id, partition, topic, directory), segments in self._segments.items():
            log = StoredLog(topic, topic_id, int(partition), directory, segments, layout.needed, layout.is_plain)
            logs.setdefault((topic_id, int(partition)), log)
        return logs


def _whole_path(source: ByteSource, path: str) -> str:
    """A path that has the names by which an object is recognised, those of the source's own path included."""
    return path if path.count("/") >= _DEPTH else path_in(source.name, path)


def _parsed(path: str) -> tuple[RemoteLayout, re.Match[str]] | None:
    """The layout that has an object at this path, and the parts of the path; None if no layout has one."""
    for layout in LAYOUTS:
        if (match := layout.objects.search(path)) is not None:
            return layout, match
    return None
