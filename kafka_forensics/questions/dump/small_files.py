"""Rows of a dump for files without batches: indexes, snapshots, checkpoints, identity files."""

import json
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from msgspec.structs import astuple

from kafka_forensics.model.batches import Damage
from kafka_forensics.model.constants import (
    INDEX_ENTRY_SIZE,
    PRODUCER_SNAPSHOT_ENTRY_SIZE,
    PRODUCER_SNAPSHOT_HEADER_SIZE,
    TIME_INDEX_ENTRY_SIZE,
    TXN_INDEX_ENTRY_SIZE,
)
from kafka_forensics.model.files import ProducerEntry, TimeIndex
from kafka_forensics.model.json_objects import Json, JsonRow
from kafka_forensics.parsers.bounded import DamageList, read_text
from kafka_forensics.parsers.checkpoints import (
    parse_clean_shutdown,
    parse_leader_epochs,
    parse_meta_properties,
    parse_offset_checkpoint,
    parse_partition_metadata,
)
from kafka_forensics.parsers.indexes import parse_offset_index, parse_producer_snapshot, parse_time_index, parse_transaction_index
from kafka_forensics.parsers.log_dir import OFFSET_CHECKPOINTS, FileKind
from kafka_forensics.questions.dump.inputs import DumpFile, DumpOptions

if TYPE_CHECKING:
    from kafka_forensics.storage.source import ByteFile

_PROPERTY: Final = ("name", "value")
_COLUMNS: Final[dict[FileKind, tuple[str, ...]]] = {
    FileKind.INDEX: ("offset", "log_position"),
    FileKind.TIME_INDEX: ("timestamp", "offset"),
    FileKind.TRANSACTION_INDEX: ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset"),
    FileKind.PRODUCER_SNAPSHOT: ProducerEntry.__struct_fields__,
    FileKind.LEADER_EPOCH_CHECKPOINT: ("leader_epoch", "start_offset"),
    **dict.fromkeys(OFFSET_CHECKPOINTS, ("topic", "partition", "offset")),
}
"""Columns between `size_in_bytes` and `detail`; for other files `name` and `value`."""
_MAX_QUORUM_STATE_BYTES: Final = 1 << 20


def small_columns(kind: FileKind) -> tuple[str, ...]:
    """Columns of the rows that `small_rows` gives for a file of `kind`."""
    return ("span", "position", "size_in_bytes", *_COLUMNS.get(kind, _PROPERTY), "detail")


def small_rows(file: DumpFile, options: DumpOptions) -> Iterator[JsonRow]:
    """Rows of one file: its entries, then its damage. Raises SourceError."""
    kind = file.kind
    width = len(_COLUMNS.get(kind, _PROPERTY))
    with file.open() as data:
        if kind in _ENTRIES:
            entries, damage, zero_tail_bytes = _ENTRIES[kind](data, file, options)
        else:
            named, damage = _properties(kind, data)
            entries, zero_tail_bytes = (("property", None, None, *pair, None) for pair in named), 0
        yield from entries
        size = data.size_in_bytes
    if zero_tail_bytes:
        behind = size - size % _ENTRY_SIZES[kind]
        yield ("zero_tail", behind - zero_tail_bytes, zero_tail_bytes, *(None,) * width, None)
    for damaged in damage:
        yield (damaged.kind, damaged.position, damaged.size_in_bytes, *(None,) * width, damaged.detail)


Entries = tuple[Iterator[JsonRow], list[Damage], int]
_ENTRY_SIZES: Final = {FileKind.INDEX: INDEX_ENTRY_SIZE, FileKind.TIME_INDEX: TIME_INDEX_ENTRY_SIZE}


def _index(data: "ByteFile", file: DumpFile, options: DumpOptions) -> Entries:
    index = parse_offset_index(data, file.base_offset) if file.kind is FileKind.INDEX else parse_time_index(data, file.base_offset)
    by_time, size = isinstance(index, TimeIndex), _ENTRY_SIZES[file.kind]
    columns = (index.timestamps, index.offsets) if isinstance(index, TimeIndex) else (index.offsets, index.positions)
    rows = (
        ("entry", row * size, size, *entry, None)
        for row, entry in enumerate(zip(*(column.tolist() for column in columns), strict=True))
        if options.overlaps(entry[by_time], entry[by_time])
    )
    return rows, index.damage, index.zero_tail_bytes


def _transaction_index(data: "ByteFile", _file: DumpFile, options: DumpOptions) -> Entries:
    index, fields_of = parse_transaction_index(data), attrgetter(*_COLUMNS[FileKind.TRANSACTION_INDEX])
    rows = (
        ("entry", entry.position, TXN_INDEX_ENTRY_SIZE, *fields_of(entry), None)
        for entry in index.entries
        if options.overlaps(entry.first_offset, entry.last_offset)
    )
    return rows, index.damage, 0


def _producer_snapshot(data: "ByteFile", file: DumpFile, _options: DumpOptions) -> Entries:
    snapshot = parse_producer_snapshot(data, file.base_offset)

    def rows() -> Iterator[JsonRow]:
        if snapshot.version >= 0:
            detail = {"version": snapshot.version, "crc": snapshot.crc, "crc_computed": snapshot.crc_computed}
            yield ("header", 0, PRODUCER_SNAPSHOT_HEADER_SIZE, *(None,) * len(_COLUMNS[FileKind.PRODUCER_SNAPSHOT]), detail)
        for row, entry in enumerate(snapshot.entries):
            position = PRODUCER_SNAPSHOT_HEADER_SIZE + row * PRODUCER_SNAPSHOT_ENTRY_SIZE
            yield ("entry", position, PRODUCER_SNAPSHOT_ENTRY_SIZE, *astuple(entry), None)

    return rows(), snapshot.damage, 0


def _leader_epochs(data: "ByteFile", _file: DumpFile, _options: DumpOptions) -> Entries:
    epochs = parse_leader_epochs(data)
    rows = (("entry", None, None, entry.leader_epoch, entry.start_offset, None) for entry in epochs.entries)
    return rows, epochs.damage, 0


def _offset_checkpoint(data: "ByteFile", _file: DumpFile, _options: DumpOptions) -> Entries:
    checkpoint = parse_offset_checkpoint(data)
    rows = (("entry", None, None, topic, partition, offset, None) for (topic, partition), offset in checkpoint.offsets.items())
    return rows, checkpoint.damage, 0


_ENTRIES: Final[dict[FileKind, Callable[["ByteFile", DumpFile, DumpOptions], Entries]]] = {
    FileKind.INDEX: _index,
    FileKind.TIME_INDEX: _index,
    FileKind.TRANSACTION_INDEX: _transaction_index,
    FileKind.PRODUCER_SNAPSHOT: _producer_snapshot,
    FileKind.LEADER_EPOCH_CHECKPOINT: _leader_epochs,
    **dict.fromkeys(OFFSET_CHECKPOINTS, _offset_checkpoint),
}


def _properties(kind: FileKind, data: "ByteFile") -> tuple[list[tuple[str, object]], list[Damage]]:
    """(name, value) of the properties in a file, without absent ones, and its damage."""
    if kind is FileKind.META_PROPERTIES:
        meta = parse_meta_properties(data)
        named: Json = {name: getattr(meta, name) for name in ("version", "node_id", "cluster_id", "directory_id")}
        damage = meta.damage
    elif kind is FileKind.PARTITION_METADATA:
        metadata = parse_partition_metadata(data)
        named, damage = {"version": metadata.version, "topic_id": metadata.topic_id}, metadata.damage
    elif kind is FileKind.CLEAN_SHUTDOWN:
        shutdown = parse_clean_shutdown(data)
        named, damage = {"clean_shutdown": True, "broker_epoch": shutdown.broker_epoch}, shutdown.damage
    else:
        named, damage = _quorum_state(data)
    return [pair for pair in named.items() if pair[1] is not None], damage


def _quorum_state(data: "ByteFile") -> tuple[Json, list[Damage]]:
    """The fields of a `quorum-state` (FileQuorumStateStore): one JSON object."""
    damage = DamageList("CHECKPOINT_MALFORMED")
    text = read_text(data, damage, _MAX_QUORUM_STATE_BYTES).data
    try:
        content = json.loads(text) if text else {}
    except (ValueError, RecursionError):  # RecursionError: thousands of nested brackets
        content = None
    if not isinstance(content, dict):
        damage.add(0, len(text), "json")
        content = {}
    return content, damage.rows()
