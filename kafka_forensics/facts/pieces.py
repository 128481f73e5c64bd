"""Pieces: what of a replica one task reads, as plain text, so that any process anywhere can read it."""

import json
from dataclasses import dataclass, field
from typing import Any

from kafka_forensics.parsers.log_dir import SegmentFiles
from kafka_forensics.storage.source import Entry, EntryKind


@dataclass(slots=True)
class Piece:
    """Files of one replica, or a part of one large `.log`: batches that begin in bytes `[start, end)` (`end` None: to its end).

    `source` is what is opened, `log_dir` what its log directory is called; `next_base_offset` is that of the segment behind the
    last one here. `part_index` and `part_time_index` are the indexes of a part's segment, which are no facts of their own here.
    """

    source: str
    log_dir: str
    broker: int | str
    topic: str
    partition: int
    directory: str
    segments: list[SegmentFiles] = field(default_factory=list)
    snapshots: list[tuple[int, Entry]] = field(default_factory=list)
    entries: dict[str, Entry] = field(default_factory=dict)
    next_base_offset: int | None = None
    start: int = 0
    end: int | None = None
    part_index: Entry | None = None
    part_time_index: Entry | None = None

    @property
    def is_part(self) -> bool:
        """Whether it is a part of one `.log`."""
        return self.start > 0 or self.end is not None


def encode(pieces: list[Piece], *, deep: bool) -> str:
    """A task: pieces as one line of ASCII; `deep` is what `Reading.deep` is."""
    return json.dumps({"deep": deep, "pieces": [_packed(piece) for piece in pieces]}, separators=(",", ":"))


def decode(task: str) -> tuple[list[Piece], bool]:
    """The pieces of a task, and `deep`."""
    told = json.loads(task)
    return [_unpacked(one) for one in told["pieces"]], told["deep"]


def _packed(piece: Piece) -> list[Any]:
    return [
        piece.source,
        piece.log_dir,
        piece.broker,
        piece.topic,
        piece.partition,
        piece.directory,
        [
            [segment.base_offset, *map(_file, (segment.log, segment.index, segment.time_index, segment.transaction_index))]
            for segment in piece.segments
        ],
        [[offset, _file(entry)] for offset, entry in piece.snapshots],
        {name: _file(entry) for name, entry in piece.entries.items()},
        piece.next_base_offset,
        piece.start,
        piece.end,
        _file(piece.part_index),
        _file(piece.part_time_index),
    ]


def _unpacked(told: list[Any]) -> Piece:
    source, log_dir, broker, topic, partition, directory, segments, snapshots, entries, following, start, end, index, times = told
    return Piece(
        source,
        log_dir,
        broker,
        topic,
        partition,
        directory,
        [SegmentFiles(base_offset, *map(_entry, files)) for base_offset, *files in segments],
        [(offset, _known(entry)) for offset, entry in snapshots],
        {name: _known(entry) for name, entry in entries.items()},
        following,
        start,
        end,
        _entry(index),
        _entry(times),
    )


def _file(entry: Entry | None) -> list[Any] | None:
    return None if entry is None else [entry.path, entry.size_in_bytes]


def _entry(told: list[Any] | None) -> Entry | None:
    return None if told is None else _known(told)


def _known(told: list[Any]) -> Entry:
    path, size_in_bytes = told
    return Entry(path, EntryKind.FILE, size_in_bytes, 0, None)
