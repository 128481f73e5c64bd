"""Collecting: of log directories all that is needed to judge them elsewhere, and no payload."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, Final

import numpy as np

from kafka_forensics.errors import SourceError, UsageError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.evidence.paths import OpenedPath, open_paths, typed_path
from kafka_forensics.judging.scanning import DEEP_BELOW_BYTES
from kafka_forensics.model.batches import BatchColumn, Damage
from kafka_forensics.model.constants import CONTROL_COMMIT, CONTROL_MASK, WITNESS_TOPICS
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.checkpoints import parse_meta_properties
from kafka_forensics.parsers.log import MAX_BATCH_BYTES, ContentDigests, SegmentReader, believed_to, check_batch_in_file, inspector
from kafka_forensics.parsers.log_dir import FileKind, FileName, parse_file_name, parse_partition_name
from kafka_forensics.storage.bundles import SectionKind, write_held
from kafka_forensics.storage.source import ByteFile, ByteSource, Entry, EntryKind
from kafka_forensics.version import __version__
from kafka_forensics.writers.bundle_columns import write_batches
from kafka_forensics.writers.bundle_file import BundleWriter
from kafka_forensics.writers.witness_batches import witness_batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_DEPTH: Final = 5
"""Levels of directories below a path that are collected: a folder of log directories, and what is in them."""
_VERBATIM_BYTES: Final = 1 << 20
_CONTROL_BYTES: Final = 4096
_LOGS: Final = (FileKind.LOG, FileKind.METADATA_CHECKPOINT)
_NOT_KAFKAS: Final = "no file of Kafka's: its bytes are not collected"
_KIND_NAMES: Final = {EntryKind.FILE: "f", EntryKind.SYMLINK: "l", EntryKind.OTHER: "o"}
Progress = Callable[[int], None]


@dataclass(slots=True)
class Collected:
    """What came of it: bytes of logs and other files that were read, of the bundle, and what could not be read."""

    files: int = 0
    logs: int = 0
    batches: int = 0
    bytes_read: int = 0
    bundle_bytes: int = 0
    is_deep: bool = False
    incomplete: list[Incomplete] = field(default_factory=list)


@dataclass(slots=True)
class _Found:
    """A file to be collected: `path` is its name in the bundle, `behind` the base offset of the segment behind it."""

    source: ByteSource
    entry: Entry
    path: str
    name: FileName | None
    behind: int | None = None


def collect(paths: list[str], file: BinaryIO, options: ScanOptions, progress: Progress = lambda _: None) -> Collected:
    """Write a bundle of the log directories at `paths` to `file`. Raises UsageError for paths that hold none."""
    opened = open_paths(paths, storage_options=options.storage_options)
    for opened_path in opened:
        if opened_path.discovery.files:
            hint = "give the broker's log directory, or the partition's directory in it"
            raise UsageError(f"{opened_path.source.name} is a file, and a bundle is of log directories", hint=hint)
    collected = Collected()
    directories: list[tuple[str, int]] = []
    found: list[_Found] = []
    for prefix, opened_path in zip(_prefixes(opened), opened, strict=True):
        _walk(opened_path.source, "", prefix, 0, directories, found, collected)
    _name_followers(found)
    total = sum(each.entry.size_in_bytes for each in found if each.name is not None)
    collected.is_deep = total <= DEEP_BELOW_BYTES if options.deep is None else options.deep
    writer = BundleWriter(file, _about(opened, options, deep=collected.is_deep))
    rows = [_take(each, writer, collected, progress) for each in found]
    writer.finish(directories, rows, {"ended_ms": int(time.time() * 1000)})
    collected.bundle_bytes = writer.size_in_bytes
    return collected


def _prefixes(opened: list[OpenedPath]) -> list[str]:
    """Under which directory of the bundle each path is put: its own name, but for one that is or holds log directories alone."""
    only = opened[0] if len(opened) == 1 else None
    if only is not None and not any(
        not directory.path and directory.partitions and directory.partitions[0].path == ""
        for directory in only.discovery.log_directories
    ):
        return [""]
    names: list[str] = []
    for opened_path in opened:
        name = os.path.basename(os.path.abspath(opened_path.source.name)) or "logs"
        number = 1
        while (unused := name if number == 1 else f"{name}.{number}") in names:
            number += 1
        names.append(unused)
    return names


def _walk(
    source: ByteSource,
    path: str,
    prefix: str,
    depth: int,
    directories: list[tuple[str, int]],
    found: list[_Found],
    collected: Collected,
) -> None:
    """Take every entry below `path`."""
    try:
        entries = source.list(path)
    except SourceError as error:
        collected.incomplete.append(Incomplete(typed_path(source, path), error.reason))
        return
    for entry in entries:
        name = "/".join(filter(None, (prefix, entry.path)))
        if entry.kind is EntryKind.DIRECTORY:
            directories.append((name, entry.mtime_ns))
            if depth < MAX_DEPTH:
                _walk(source, entry.path, prefix, depth + 1, directories, found, collected)
        else:
            found.append(_Found(source, entry, name, parse_file_name(entry.name)))


def _name_followers(found: list[_Found]) -> None:
    """Tell every log of a directory where the next one begins."""
    following: dict[str, tuple[_Found, int]] = {}
    for each in found:
        if each.name is not None and each.name.kind is FileKind.LOG and each.name.suffix is None and each.name.offset is not None:
            directory = each.path.rpartition("/")[0]
            if directory in following:
                following[directory][0].behind = each.name.offset
            following[directory] = each, each.name.offset


def _about(opened: list[OpenedPath], options: ScanOptions, *, deep: bool) -> Json:
    return {
        "tool_version": __version__,
        "host": socket.gethostname(),
        "started_ms": int(time.time() * 1000),
        "broker": next(filter(None, map(_broker, opened)), None),
        "paths": [os.path.abspath(opened_path.source.name) for opened_path in opened],
        "live": options.live,
        "deep": deep,
    }


def _broker(opened_path: OpenedPath) -> int | str | None:
    """What the broker is called, by what was given or by its first `meta.properties`."""
    if opened_path.given is not None:
        return opened_path.given
    for directory in opened_path.discovery.log_directories:
        entry = directory.entries.get(FileKind.META_PROPERTIES)
        if entry is not None:
            try:
                with opened_path.source.open(entry.path) as file:
                    return parse_meta_properties(file).node_id
            except SourceError:
                continue
    return None


def _take(each: _Found, writer: BundleWriter, collected: Collected, progress: Progress) -> list[object]:
    """Add the sections of a file; its row in the listing."""
    entry, left_out = each.entry, entry_reason(each)
    is_log = each.name is not None and each.name.kind in _LOGS
    if left_out is None and entry.kind is EntryKind.FILE:
        try:
            with each.source.open(entry.path) as file:
                if is_log:
                    _take_log(each, file, writer, collected, progress)
                else:
                    _take_bytes(each, file, writer, progress)
            collected.files += 1
            collected.bytes_read += entry.size_in_bytes
        except SourceError as error:
            collected.incomplete.append(Incomplete(typed_path(each.source, entry.path), error.reason))
            left_out = f"could not be read when it was collected: {error.reason}"
    kind = _KIND_NAMES[entry.kind]
    return [each.path, kind, entry.size_in_bytes, entry.mtime_ns, entry.allocated_bytes, entry.refused, left_out, is_log]


def entry_reason(each: _Found) -> str | None:
    """Why the bytes of a file are not looked at; None if they are."""
    return _NOT_KAFKAS if each.name is None and each.entry.kind is EntryKind.FILE else None


def _take_bytes(each: _Found, file: ByteFile, writer: BundleWriter, progress: Progress) -> None:
    """Add a small file as it is, but for the zeros at its end."""
    for start, end in _stored_ranges(file):
        for position in range(start, end, _VERBATIM_BYTES):
            data = file.read_at(position, min(_VERBATIM_BYTES, end - position))
            progress(len(data))
            kept = data.rstrip(b"\0") if position + len(data) >= end else data
            if kept:
                writer.add(each.path, SectionKind.BYTES, position, position + len(kept), kept)


def _stored_ranges(file: ByteFile) -> Iterator[tuple[int, int]]:
    for start, end in file.data_ranges():
        yield start, min(end, file.size_in_bytes)


def _take_log(each: _Found, file: ByteFile, writer: BundleWriter, collected: Collected, progress: Progress) -> None:
    """Add the facts of a log, section by section."""
    collected.logs += 1
    checks = _Checks(ContentDigests(None), deep=collected.is_deep)
    base_offset = 0 if each.name is None or each.name.offset is None else each.name.offset
    topic = _topic(each)
    reader = SegmentReader(
        file,
        next_base_offset=believed_to(base_offset, each.behind),
        inspect=checks,
        inspect_alone=checks.alone,
    )
    start = 0
    for chunk in reader.chunks():
        end = start + chunk.bytes_decoded + chunk.bytes_damaged + chunk.bytes_skipped
        if end == start:
            continue
        inside = {id(damage) for damage in checks.damage}
        damage = [(found, id(found) in inside) for found in chunk.damage]
        written = checks.written(chunk.columns)
        checks.damage.clear()
        digests = checks.digests.take(chunk.columns)
        section = write_batches(chunk.columns, damage, written=written, digests=digests)
        writer.add(each.path, SectionKind.BATCHES, start, end, section)
        kept = [(position, file.read_at(position, size)) for position, size in _untold_control(chunk.columns)]
        if kept:
            writer.add(each.path, SectionKind.KEPT, start, end, write_held(kept))
        if topic in WITNESS_TOPICS:
            _take_witness(each, topic, file, writer, chunk.columns, start, end)
        collected.batches += chunk.rows
        progress(end - start)
        start = end


def _topic(each: _Found) -> str | None:
    """The topic by the name of the file's directory."""
    name = parse_partition_name(each.path.rpartition("/")[0].rpartition("/")[2])
    return None if name is None else name.topic


def _untold_control(columns: "NDArray[np.int64]") -> list[list[int]]:
    """Position and size of the small control batches that are no marker of a transaction which the columns tell."""
    control = columns[BatchColumn.CONTROL_RECORD_TYPE]
    wanted = (columns[BatchColumn.MAGIC] >= 2) & (columns[BatchColumn.ATTRIBUTES] & CONTROL_MASK != 0)
    wanted &= columns[BatchColumn.CRC] == columns[BatchColumn.CRC_COMPUTED]
    wanted &= (control < 0) | (control > CONTROL_COMMIT) | (columns[BatchColumn.COORDINATOR_EPOCH] < 0)
    wanted &= columns[BatchColumn.SIZE_IN_BYTES] <= _CONTROL_BYTES
    kept: list[list[int]] = columns[[BatchColumn.POSITION, BatchColumn.SIZE_IN_BYTES]][:, wanted].T.tolist()
    return kept


def _take_witness(
    each: _Found, topic: str, file: ByteFile, writer: BundleWriter, columns: "NDArray[np.int64]", start: int, end: int
) -> None:
    """Add of the batches of an internal topic what the analysis uses of their records."""
    told: list[tuple[int, bytes]] = []
    size_told = 0
    good = (columns[BatchColumn.CRC] == columns[BatchColumn.CRC_COMPUTED]) & (columns[BatchColumn.SIZE_IN_BYTES] <= MAX_BATCH_BYTES)
    first = start
    block, at = b"", 0
    for position, size in columns[[BatchColumn.POSITION, BatchColumn.SIZE_IN_BYTES]][:, good].T.tolist():
        if not at <= position <= position + size <= at + len(block):
            block, at = file.read_at(position, max(size, _VERBATIM_BYTES)), position
        batch = witness_batch(topic, block[position - at : position - at + size])
        if batch is None:
            continue
        if told and size_told + len(batch) > _VERBATIM_BYTES:
            writer.add(each.path, SectionKind.TOLD, first, position, write_held(told))
            told, size_told, first = [], 0, position
        told.append((position, batch))
        size_told += len(batch)
    writer.add(each.path, SectionKind.TOLD, first, end, write_held(told))


class _Checks:
    """The inspector of a log that is collected: it remembers digests, what only opening batches tells, and the offsets of old
    entries."""

    def __init__(self, digests: ContentDigests, *, deep: bool) -> None:
        self.digests = digests
        self._inner = inspector(deep=deep)
        self._deep = deep
        self.damage: list[Damage] = []
        self._offsets: dict[int, int] = {}

    def __call__(
        self, buffer: "NDArray[np.uint8]", position: int, columns: "NDArray[np.int64]", first: int, end: int
    ) -> list[Damage]:
        old = np.flatnonzero(columns[BatchColumn.MAGIC, first:end] < 2) + first
        self._offsets.update(
            zip(columns[BatchColumn.POSITION, old].tolist(), columns[BatchColumn.BASE_OFFSET, old].tolist(), strict=True)
        )
        self.digests.inspect(buffer, position, columns, first, end)
        found = self._inner(buffer, position, columns, first, end)
        self.damage += found
        return found

    def alone(self, file: ByteFile, position: int, size: int) -> list[Damage]:
        """A batch behind damage, or a large one."""
        self.digests.alone(file, position, size)
        found = check_batch_in_file(file, position, size) if self._deep else []
        self.damage += found
        return found

    def written(self, columns: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """The offset that each entry of magic 0 and 1 bears; of others the last one."""
        written: NDArray[np.int64] = columns[BatchColumn.LAST_OFFSET].copy()
        if self._offsets:
            for row in np.flatnonzero(columns[BatchColumn.MAGIC] < 2).tolist():
                written[row] = self._offsets.get(int(columns[BatchColumn.POSITION, row]), written[row])
            self._offsets.clear()
        return written
