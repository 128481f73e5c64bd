"""`dump --explain`: the bytes of each field with its value and meaning, from the layouts declared in `parsers.spec`."""

import io
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from kafka_forensics.model.batches import TIMESTAMP_TYPES, BatchColumn
from kafka_forensics.model.constants import (
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    LOG_OVERHEAD,
    MAGIC_AT,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    compression_name,
)
from kafka_forensics.model.json_objects import JsonRow, rfc3339
from kafka_forensics.parsers.bounded import DamageList, read_text
from kafka_forensics.parsers.log import decode_batch
from kafka_forensics.parsers.log_dir import LOG_KINDS, FileKind
from kafka_forensics.parsers.spec.indexes import ABORTED_TXN, OFFSET_INDEX_ENTRY, PRODUCER_ENTRY, SNAPSHOT_HEADER, TIME_INDEX_ENTRY
from kafka_forensics.parsers.spec.record_batch import (
    LEGACY_ENTRY_HEADER,
    LEGACY_MESSAGES,
    RECORD_BATCH_HEADER,
    RECORD_BODY,
    VARINT,
    Layout,
)
from kafka_forensics.questions.dump.inputs import BytesOf, DumpFile, DumpOptions
from kafka_forensics.questions.dump.log import chunks_of
from kafka_forensics.questions.dump.small_files import small_rows

if TYPE_CHECKING:
    from kafka_forensics.storage.source import ByteFile


_MEANINGS: Final = {
    "base_offset": "offset of the first record; kept by compaction",
    "batch_length": "bytes after this field; the whole batch has 12 more",
    "partition_leader_epoch": "epoch of the leader that appended the batch; outside the CRC",
    "magic": "format of the batch; 2 since Kafka 0.11",
    "crc": "CRC-32C of everything after this field; CRC-32 before magic 2",
    "last_offset_delta": "last offset = base offset + this",
    "base_timestamp": "base of the record timestamps, or the delete horizon",
    "max_timestamp": "largest timestamp of the records, or when the broker appended them",
    "producer_id": "idempotent producer",
    "producer_epoch": "raised to fence older instances of the producer",
    "base_sequence": "sequence of the first record; wraps from 2147483647 to 0",
    "records_count": "records present; fewer after compaction",
    "offset": "of the message; for a compressed one, of its last record",
    "size": "bytes of the message after this field",
    "timestamp": "",
    "key_length": "bytes of the key that follows",
    "value_length": "bytes of the value that follows",
    "relative_offset": "offset = base offset of the segment + this",
    "position": "byte in the .log at which a search begins",
    "version": "of the layout",
    "first_offset": "of the aborted transaction's data, possibly in an earlier segment",
    "last_offset": "of the ABORT marker, or of the producer's last data",
    "last_stable_offset": "last stable offset immediately after the abort",
    "count": "entries that follow",
    "last_sequence": "of the producer's last batch",
    "offset_delta": "last sequence - first sequence of that batch",
    "coordinator_epoch": "of the transaction coordinator that wrote the last marker",
    "current_txn_first_offset": "where the open transaction begins",
    "record.length": "bytes of the record after this field",
    "record.attributes": "unused",
    "record.timestamp_delta": "timestamp = base timestamp + this",
    "record.offset_delta": "offset = base offset + this",
}
_TIMES: Final = frozenset({"base_timestamp", "max_timestamp", "timestamp"})
_MINUS_ONE_IS_NONE: Final = _TIMES | {
    *("partition_leader_epoch", "producer_id", "producer_epoch", "base_sequence", "last_sequence", "last_offset"),
    *("coordinator_epoch", "current_txn_first_offset", "key_length", "value_length"),
}


def meaning(field: str, value: int) -> str:
    """The meaning of a field (a name of `parsers.spec`) with this value, in words."""
    if field == "attributes":
        words = [f"compression {compression_name(value)}", TIMESTAMP_TYPES[bool(value & TIMESTAMP_TYPE_MASK)]]
        flags = {TRANSACTIONAL_MASK: "transactional", CONTROL_MASK: "control batch", DELETE_HORIZON_MASK: "delete horizon set"}
        return ", ".join([*words, *(word for mask, word in flags.items() if value & mask)])
    words = [_MEANINGS[field]] if _MEANINGS.get(field) else []
    if value == -1 and field in _MINUS_ONE_IS_NONE:
        words.append("here: none")
    elif field in _TIMES and (moment := rfc3339(value)) is not None:
        words.append(moment)
    return "; ".join(words)


EXPLAIN_COLUMNS: Final = ("structure", "position", "size_in_bytes", "hex", "field", "value", "meaning")
"""`position` counts in the file, or, if `structure` says so, in the decompressed payload."""
MAX_STRUCTURES: Final = 16
"""Structures explained if offsets are selected; else only the first one is."""
MAX_RECORDS: Final = 16
MAX_LINES: Final = 64
MAX_HEX_BYTES: Final = 32
_TEXT_BYTES: Final = 1 << 20
_LAYOUTS: Final = {
    FileKind.INDEX: OFFSET_INDEX_ENTRY,
    FileKind.TIME_INDEX: TIME_INDEX_ENTRY,
    FileKind.TRANSACTION_INDEX: ABORTED_TXN,
    FileKind.PRODUCER_SNAPSHOT: PRODUCER_ENTRY,
}


def explained_rows(file: DumpFile, options: DumpOptions) -> Iterator[JsonRow]:
    """Rows of EXPLAIN_COLUMNS for the first structures of one file, the last one says if there are more. Raises SourceError."""
    limit = 1 if options.offset_start is None and options.offset_end is None else MAX_STRUCTURES
    with file.open() as data:
        if file.kind in LOG_KINDS:
            yield from _log(data, file, options, limit)
        elif file.kind in _LAYOUTS:
            yield from _entries(data, file, options, limit)
        else:
            yield from _lines(data)


def _more(noun: str, limit: int) -> JsonRow:
    first = "first is" if limit == 1 else f"first {limit} are"
    return ("more", None, None, "", noun, None, f"only the {first} shown in detail; --offset A..B chooses others")


def _log(data: "ByteFile", file: DumpFile, options: DumpOptions, limit: int) -> Iterator[JsonRow]:
    explained = 0
    for columns, damage, bytes_of in chunks_of(data, file, options):
        damage_at = {damaged.position: damaged for damaged in damage}
        sizes = {position: damaged.size_in_bytes for position, damaged in damage_at.items()}
        batch_sizes = {column[BatchColumn.POSITION]: column[BatchColumn.SIZE_IN_BYTES] for column in columns}
        for position, size in sorted((sizes | batch_sizes).items()):
            if explained == limit:
                yield _more("batches", limit)
                return
            explained += 1
            if (found := damage_at.get(position)) is not None:
                yield ("damage", position, found.size_in_bytes, "", found.kind, found.detail, "what is wrong with these bytes")
            yield from _batch(data, position, size, options, bytes_of if options.records and position in batch_sizes else None)


def _batch(data: "ByteFile", position: int, size: int, options: DumpOptions, bytes_of: BytesOf | None) -> Iterator[JsonRow]:
    """The batch header at `position`, and the records if `bytes_of` is not None."""
    head = data.read_at(position, min(size, RECORD_BATCH_OVERHEAD))
    if len(head) > MAGIC_AT and head[MAGIC_AT] < 2:
        yield from _legacy(data, position, size, options)
        return
    yield from _fixed(RECORD_BATCH_HEADER, head, position, "batch header")
    end = position + RECORD_BATCH_OVERHEAD
    rest = size - RECORD_BATCH_OVERHEAD
    if rest <= 0:
        return
    yield _hidden("batch", end, data.read_at(end, MAX_HEX_BYTES), rest, options)
    batch = None if bytes_of is None else bytes_of(position, size)
    if batch is not None:
        yield from _records(batch, position, options)


def _hidden(structure: str, position: int, start: bytes, size: int, options: DumpOptions, field: str = "records") -> JsonRow:
    """The row of bytes from records, which are shown only on request."""
    shown = _hex(start[:size], size) if options.show_payloads else ""
    return (structure, position, size, shown, field, None, f"{size} bytes" + ("" if shown else "; --show-payloads shows them"))


def _hex(raw: bytes, size: int) -> str:
    return raw[:MAX_HEX_BYTES].hex(" ") + (" .." if size > MAX_HEX_BYTES else "")


def _fixed(layout: Layout, data: bytes, position: int, structure: str) -> Iterator[JsonRow]:
    """The fields of a layout of fixed size, as far as `data` reaches."""
    at = 0
    for part in layout.subcons:
        size = part.sizeof()
        raw = data[at : at + size]
        if len(raw) < size:
            yield (structure, position + at, len(raw), raw.hex(" "), part.name, None, f"cut short: {size} bytes belong here")
            return
        value = part.parse(raw)
        yield (structure, position + at, size, raw.hex(" "), part.name, value, meaning(part.name, value))
        at += size


def _records(batch: bytes, position: int, options: DumpOptions) -> Iterator[JsonRow]:
    decoded = decode_batch(batch, position=position)
    if decoded.header is None or decoded.problems:
        return
    structure, start = ("record", position + RECORD_BATCH_OVERHEAD) if decoded.header.codec == 0 else ("record, decompressed", 0)
    payload = bytes(decoded.payload)
    stream = io.BytesIO(payload)
    for index in range(decoded.header.records_count):
        if index == MAX_RECORDS:
            yield ("more", None, None, "", "records", None, f"only the first {MAX_RECORDS} of a batch are shown in detail")
            return
        before = stream.tell()
        if len(payload) < before + 5 and decoded.header.records_count > index + 1:
            return  # only the beginning of a large payload is held
        fields = [("length", VARINT), *((part.name, part) for part in RECORD_BODY.subcons)]
        for name, part in fields:
            value, place = part.parse_stream(stream), start + before
            end = stream.tell()
            raw = payload[before:end]
            if name == "length" and end + value > len(payload):
                return
            if name in {"key", "value", "headers"}:
                yield _hidden(structure, place, raw, len(raw), options, name)
            else:
                yield (structure, place, len(raw), raw.hex(" "), name, value, meaning(f"record.{name}", value))
            before = end


def _legacy(data: "ByteFile", position: int, size: int, options: DumpOptions) -> Iterator[JsonRow]:
    """The fields of a magic 0 or 1 entry; of key and value the sizes."""
    entry = data.read_at(position, min(size, LOG_OVERHEAD + 64))
    yield from _fixed(LEGACY_ENTRY_HEADER, entry[:LOG_OVERHEAD], position, "entry")
    at, length = LOG_OVERHEAD, 0
    for part in LEGACY_MESSAGES[entry[MAGIC_AT]].subcons:
        if not hasattr(part.subcon, "fmtstr"):
            length = min(max(length, 0), size - at)
            if length > 0:
                beginning = data.read_at(position + at, min(length, MAX_HEX_BYTES))
                yield _hidden("message", position + at, beginning, length, options, part.name)
            at += max(length, 0)
            continue
        width = part.sizeof()
        raw = data.read_at(position + at, min(width, size - at))
        if len(raw) < width:
            yield ("message", position + at, len(raw), raw.hex(" "), part.name, None, f"cut short: {width} bytes belong here")
            return
        length = part.parse(raw)
        yield ("message", position + at, width, raw.hex(" "), part.name, length, meaning(part.name, length))
        at += width


def _entries(data: "ByteFile", file: DumpFile, options: DumpOptions, limit: int) -> Iterator[JsonRow]:
    """The first entries of an index or snapshot, and all its damage."""
    explained = 0
    for span, position, size, *_, detail in small_rows(file, options):
        if span == "header":
            yield from _fixed(SNAPSHOT_HEADER, data.read_at(position, size), position, "snapshot header")
        elif span != "entry":
            raw = data.read_at(position, min(size, MAX_HEX_BYTES))
            yield ("damage" if detail else span, position, size, _hex(raw, size), span if detail else "", detail, "")
        elif explained < limit:
            yield from _fixed(_LAYOUTS[file.kind], data.read_at(position, size), position, "entry")
        elif explained == limit:
            yield _more("entries", limit)
        explained += span == "entry"


def _lines(data: "ByteFile") -> Iterator[JsonRow]:
    problems = DamageList("CHECKPOINT_MALFORMED")
    for line in islice(read_text(data, problems, _TEXT_BYTES).lines(problems), MAX_LINES + 1):
        if line.number > MAX_LINES:
            yield ("more", None, None, "", "lines", None, f"only the first {MAX_LINES} are shown")
            return
        content = line.content or b""
        shown = data.read_at(line.position, min(line.size_in_bytes, MAX_HEX_BYTES))
        yield ("line", line.position, line.size_in_bytes, _hex(shown, line.size_in_bytes), f"line {line.number}", content, "")
    for damage in problems.rows():
        yield ("damage", damage.position, damage.size_in_bytes, "", damage.kind, damage.detail, "")
