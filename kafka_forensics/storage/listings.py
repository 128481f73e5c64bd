"""Many directories listed at once, by copies of this process: a broker has one for every partition, and telling of a file what the
system knows costs one core more time than the disk.
"""

import json
from collections.abc import Generator, Sequence
from typing import Final

from kafka_forensics.errors import SourceError
from kafka_forensics.processes import can_fork, forked
from kafka_forensics.storage.local import LocalSource, holding
from kafka_forensics.storage.source import ByteSource, Entry, EntryKind

MANY: Final = 2048
"""Directories that are worth copies of this process."""
TOGETHER: Final = 256
"""Directories that one of them is given at once."""
_KINDS: Final = {kind.value: kind for kind in EntryKind}

_Rows = list[tuple[str, str, int, int, tuple[int, int] | None, int | None]]
"""What is sent of entries: name, kind, size, time, identity, allocated bytes."""


def listings(source: ByteSource, directory: str, paths: Sequence[str], jobs: int) -> Generator[list[Entry] | None, None, None]:
    """What `source.list` gives for each of `paths`, which lie directly below a directory; None where it is to be asked for that:
    of few directories, where there is but one job, and of a directory that cannot be listed or has links in it."""
    if jobs < 2 or len(paths) < MANY or not isinstance(source, LocalSource) or not can_fork():
        yield from (None for _ in paths)
        return

    def listed(number: int) -> bytes:
        with holding(source, directory):
            return json.dumps([_rows(source, path) for path in paths[number * TOGETHER : (number + 1) * TOGETHER]]).encode()

    packed = forked(listed, -(-len(paths) // TOGETHER), jobs)
    every = (rows for some in packed for rows in json.loads(some))
    for path, rows in zip(paths, every, strict=True):
        yield None if rows is None else [_entry(path, *row) for row in rows]


def _rows(source: LocalSource, path: str) -> _Rows | None:
    """The entries of a directory, None where it has links or cannot be listed."""
    try:
        entries = source.list(path)
    except SourceError:
        return None
    if any(entry.link is not None or entry.kind is EntryKind.SYMLINK for entry in entries):
        return None
    start = len(path) + 1
    return [
        (entry.path[start:], entry.kind.value, entry.size_in_bytes, entry.mtime_ns, entry.identity, entry.allocated_bytes)
        for entry in entries
    ]


def _entry(directory: str, name: str, kind: str, size: int, mtime_ns: int, identity: list[int], allocated: int | None) -> Entry:
    device, inode = identity
    return Entry(f"{directory}/{name}", _KINDS[kind], size, mtime_ns, (device, inode), allocated)
