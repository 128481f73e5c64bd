"""`dump --format kafka-dump-log`: a file as Kafka's own tool reads it.

A segment as Kafka's own reader sees it: batch behind batch, no search, no doubt, and an end at the first length that lies.

For `dump --format kafka-dump-log` (org.apache.kafka.tools.DumpLogSegments) alone: everything else in this package reads on behind
damage. What makes Kafka's tool end with an exception is a `PeerGivesUpError` here, raised at the same record.
"""

import json
import re
import struct
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import google_crc32c
import numpy as np

from kafka_forensics.model.batches import NO_TIMESTAMP_TYPE, RECORD_COLUMNS, TIMESTAMP_TYPES, RecordColumn
from kafka_forensics.model.constants import (
    COMPRESSION_MASK,
    COMPRESSION_TYPES,
    CONTROL_MASK,
    CRC_START,
    LEGACY_V0_OVERHEAD,
    LOG_OVERHEAD,
    MAX_SEQUENCE,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
)
from kafka_forensics.model.coordinators import GROUP_METADATA_TYPE, MEMBER_TYPES, OFFSET_COMMIT_TYPES
from kafka_forensics.model.json_objects import Json
from kafka_forensics.parsers.internal_topics import (
    MAX_VALUE_BYTES,
    SHARE_RECORDS,
    decode_metadata_record,
    parse_transaction_log_key,
    parse_transaction_log_value,
    read_key,
    read_offset_commit,
    read_share_key,
)
from kafka_forensics.parsers.kernels.records import OK, check_message, read_varint, readable, scan_records
from kafka_forensics.parsers.log import MAX_BATCH_BYTES, decompress
from kafka_forensics.parsers.spec.consumer_offsets import (
    ASSIGNMENT,
    GROUP_METADATA_VALUES,
    GROUP_VALUES,
    NEWEST,
    SHARE_STATE_VALUES,
    SUBSCRIPTIONS,
    read_value,
)
from kafka_forensics.parsers.spec.flexible import Flexible, parsed, without_defaults
from kafka_forensics.parsers.spec.indexes import ABORTED_TXN, OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from kafka_forensics.parsers.spec.metadata_records import MESSAGES
from kafka_forensics.parsers.spec.record_batch import LEGACY_ENTRY_HEADER, LEGACY_MESSAGE_V1, RECORD_BATCH_HEADER
from kafka_forensics.parsers.spec.transaction_state import TRANSACTION_LOG_VALUES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.parsers.kernels.records import Buffer
    from kafka_forensics.storage.source import ByteFile


MAX_PAYLOAD_BYTES: Final = 256 << 20
"""Nor those of one that decompresses to more."""
HEADER_UP_TO_MAGIC: Final = 17
_WINDOW_BYTES: Final = 1 << 20
_ROWS: Final = 256
_MANY: Final = 64
"""Records of a batch that are worth being read as columns."""
MOST_HELD_BYTES: Final = 16 << 20
"""Of records that are columns at once: their lines stay within what one string of Arrow may hold."""
_FAR: Final = 1 << 61
"""Offsets and times from which on sums might not fit 64 bits."""
_LEAST_RECORD_BYTES: Final = 7


class _Integer(Protocol):
    fmtstr: str


class FixedField(Protocol):
    """A named integer of a fixed size, as `parsers.spec` declares it."""

    name: str
    subcon: _Integer

    def sizeof(self) -> int:
        """Bytes it takes."""


class FixedLayout(Protocol):
    """Such fields one behind the other."""

    subcons: Sequence[FixedField]


def struct_of(fields: Iterable[FixedField]) -> struct.Struct:
    """Declared integer fields of a fixed size as a `struct.Struct`, for reading many."""
    return struct.Struct(">" + "".join(part.subcon.fmtstr[1:] for part in fields))


_HEADER: Final = struct_of(RECORD_BATCH_HEADER.subcons)
_START: Final = struct_of(LEGACY_ENTRY_HEADER.subcons)
"""What all formats begin with: offset and length."""
_ENTRY: Final = struct_of([*LEGACY_ENTRY_HEADER.subcons, *LEGACY_MESSAGE_V1.subcons[:4]])
"""A legacy entry up to the timestamp, which magic 0 has not."""


class PeerGivesUpError(Exception):
    """Kafka's tool ends here with an exception that says about this."""


class PeerLimitError(PeerGivesUpError):
    """We end here, at a limit of our own; Kafka's tool would go on."""


@dataclass(slots=True)
class PeerBatch:
    """One batch, or legacy entry: the fields Kafka's tool shows. Before magic 2 `base_offset` and `last_offset` are the entry's."""

    position: int
    size_in_bytes: int
    magic: int
    base_offset: int
    last_offset: int
    partition_leader_epoch: int
    crc: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    records_count: int
    is_valid: bool

    @property
    def timestamp_type(self) -> str:
        """CreateTime, LogAppendTime, or NoTimestampType for magic 0."""
        if self.magic == 0:
            return NO_TIMESTAMP_TYPE
        return TIMESTAMP_TYPES[bool(self.attributes & TIMESTAMP_TYPE_MASK)]

    @property
    def compression_type(self) -> str | None:
        """Name of the codec; None for the three illegal values."""
        codec = self.attributes & COMPRESSION_MASK
        return COMPRESSION_TYPES[codec] if codec < len(COMPRESSION_TYPES) else None

    @property
    def is_control_batch(self) -> bool:
        """Whether it holds control records."""
        return self.magic >= 2 and bool(self.attributes & CONTROL_MASK)


class PeerRecord(NamedTuple):
    """One record; `crc` and `is_valid` are those of a legacy message, None since magic 2."""

    offset: int
    timestamp: int
    sequence: int
    key: bytes | None
    value: bytes | None
    header_keys: tuple[bytes, ...]
    crc: int | None
    is_valid: bool | None


class PeerRecords(NamedTuple):
    """Records of batches as columns, one entry each; `columns` is (RECORD_COLUMNS, n), whose positions count in `payload`.

    `batches` is the number of each one's batch.
    """

    payload: "Buffer"
    batches: "NDArray[np.int64]"
    columns: "NDArray[np.int64]"
    offsets: "NDArray[np.int64]"
    timestamps: "NDArray[np.int64]"
    sequences: "NDArray[np.int64]"


_POSITIONS: Final = [
    RecordColumn.POSITION,
    RecordColumn.KEY_POSITION,
    RecordColumn.VALUE_POSITION,
    RecordColumn.HEADERS_POSITION,
]


def together(several: Sequence[PeerRecords]) -> PeerRecords:
    """The records of several batches, each given by itself, one behind the other."""
    starts = np.cumsum([0, *(len(records.payload) for records in several)])
    payloads: list[Any] = [records.payload for records in several]
    shifted = []
    for records, start in zip(several, starts.tolist(), strict=False):
        records.columns[_POSITIONS] += start
        shifted.append(records.columns)
    return PeerRecords(
        readable(b"".join(payloads)),
        np.repeat(np.arange(len(several)), [len(records.offsets) for records in several]),
        np.concatenate(shifted, axis=1),
        np.concatenate([records.offsets for records in several]),
        np.concatenate([records.timestamps for records in several]),
        np.concatenate([records.sequences for records in several]),
    )


class PeerLog:
    """Batches of one file in order; `end` is the first byte behind the last batch."""

    def __init__(self, file: "ByteFile", name: str, position: int = 0) -> None:
        self.name = name
        self.size_in_bytes = file.size_in_bytes
        self.most: int | None = None
        """Batches after which it ends, None for no bound."""
        self._file = file
        self._window = b""
        self._window_position = 0
        self.end = position

    def batches(self) -> Iterator[PeerBatch]:
        """Every batch up to the file's end or a cut one (FileLogInputStream). Raises PeerGivesUpError, SourceError."""
        while self.end < self.size_in_bytes - HEADER_UP_TO_MAGIC:
            start = self._bytes(self.end, HEADER_UP_TO_MAGIC)
            if len(start) < HEADER_UP_TO_MAGIC:
                return
            _, length = _START.unpack_from(start)
            if length < LEGACY_V0_OVERHEAD:
                raise PeerGivesUpError(
                    f"Found record size {length} smaller than minimum record overhead ({LEGACY_V0_OVERHEAD}) in file {self.name}."
                )
            if self.end > self.size_in_bytes - LOG_OVERHEAD - length:
                return
            size = length + LOG_OVERHEAD
            magic = start[16] - ((start[16] & 0x80) << 1)
            batch = self._batch(size) if magic >= 2 else self._entry(size, magic)
            self.end += size
            yield batch
            if self.most is not None:
                self.most -= 1
                if not self.most:
                    return

    def records(self, batch: PeerBatch) -> Iterator[PeerRecord]:
        """The records of `batch` as Kafka's iterators give them. Raises PeerGivesUpError where they throw, SourceError."""
        if batch.size_in_bytes > MAX_BATCH_BYTES:
            raise PeerLimitError(f"a batch of more than {MAX_BATCH_BYTES} bytes is not opened")
        data = self._file.read_at(batch.position, batch.size_in_bytes)
        if batch.magic >= 2:
            yield from _records(batch, data)
        else:
            yield from _messages(batch, data)

    def many_records(self, batch: PeerBatch) -> "PeerRecords | None":
        """All records of `batch` as columns; None if they are few or too many, old, control records, or wrong in anything.

        Raises PeerLimitError and SourceError as `records` does.
        """
        few = batch.magic < 2 or batch.is_control_batch or batch.records_count < _MANY or batch.size_in_bytes > MAX_BATCH_BYTES
        if few or max(map(abs, (batch.base_offset, batch.base_timestamp, batch.max_timestamp))) > _FAR:
            return None
        payload, problem = _payload(batch, self._file.read_at(batch.position, batch.size_in_bytes)[RECORD_BATCH_OVERHEAD:])
        if len(payload) > MOST_HELD_BYTES:
            return None
        room = min(batch.records_count, len(payload) // _LEAST_RECORD_BYTES) + 1
        columns, buffer = np.empty((RECORD_COLUMNS, room), np.int64), readable(payload)
        records, code, _ = scan_records(buffer, 0, len(payload), True, columns, 1)  # noqa: FBT003 - kernels take no names
        columns = columns[:, :records]
        deltas = columns[RecordColumn.TIMESTAMP_DELTA]
        if problem or code != OK or records != batch.records_count or int(np.abs(deltas).max()) > _FAR:
            return None
        offset_deltas = columns[RecordColumn.OFFSET_DELTA]
        by_broker = bool(batch.attributes & TIMESTAMP_TYPE_MASK)
        sequence, room = batch.base_sequence, MAX_SEQUENCE - batch.base_sequence
        sequences = np.where(offset_deltas > room, offset_deltas - room - 1, sequence + offset_deltas)
        return PeerRecords(
            buffer,
            np.zeros(records, np.int64),
            columns,
            batch.base_offset + offset_deltas,
            np.full(records, batch.max_timestamp) if by_broker else batch.base_timestamp + deltas,
            sequences if sequence >= 0 else np.full(records, NO_SEQUENCE),
        )

    def _bytes(self, position: int, size: int) -> bytes:
        """Up to `size` bytes, small ones from a window that moves forward."""
        start = position - self._window_position
        if start < 0 or start + size > len(self._window):
            if size > _WINDOW_BYTES:
                return self._file.read_at(position, size)
            self._window = self._file.read_at(position, _WINDOW_BYTES)
            self._window_position, start = position, 0
        return self._window[start : start + size]

    def _batch(self, size: int) -> PeerBatch:
        header = self._bytes(self.end, RECORD_BATCH_OVERHEAD)
        if len(header) < RECORD_BATCH_OVERHEAD:
            raise PeerGivesUpError(f"Failed to read record batch header at position {self.end}")
        fields = _HEADER.unpack(header)
        base_offset, _, epoch, magic, crc, attributes, delta, base_timestamp, max_timestamp = fields[:9]
        producer_id, producer_epoch, base_sequence, records_count = fields[9:]
        return PeerBatch(
            position=self.end,
            size_in_bytes=size,
            magic=magic,
            base_offset=base_offset,
            last_offset=_wrapped(base_offset + delta),
            partition_leader_epoch=epoch,
            crc=crc,
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            last_sequence=NO_SEQUENCE if base_sequence == NO_SEQUENCE else _increment(base_sequence, delta),
            records_count=records_count,
            is_valid=size >= RECORD_BATCH_OVERHEAD and self._crc(google_crc32c.extend, CRC_START, size) == crc,
        )

    def _entry(self, size: int, magic: int) -> PeerBatch:
        if size < _ENTRY.size:
            raise PeerGivesUpError(f"an entry of magic {magic} at position {self.end} is too small for its fields")
        offset, _, crc, _, attributes, timestamp = _ENTRY.unpack(self._bytes(self.end, _ENTRY.size))
        timestamp = timestamp if magic == 1 else NO_TIMESTAMP
        valid = self._crc(_crc32, 16, size) == crc
        nothing = (-1, -1, NO_SEQUENCE, NO_SEQUENCE, 1)
        return PeerBatch(self.end, size, magic, offset, offset, -1, crc, attributes, timestamp, timestamp, *nothing, valid)

    def _crc(self, extend: Callable[[int, bytes], int], start: int, size: int) -> int:
        """CRC of bytes `[start, size)` of the batch at `end`, in windows."""
        crc = 0
        position, end = self.end + start, self.end + size
        while position < end:
            data = self._bytes(position, min(end - position, _WINDOW_BYTES))
            if not data:
                break
            crc = extend(crc, data)
            position += len(data)
        return int(crc)


def _crc32(crc: int, data: bytes) -> int:
    return zlib.crc32(data, crc)


def _wrapped(offset: int) -> int:
    """`offset` as Java's long holds it."""
    return (offset + 2**63) % 2**64 - 2**63


def _increment(sequence: int, delta: int) -> int:
    """DefaultRecordBatch.incrementSequence: the ring of 31 bits."""
    return delta - (MAX_SEQUENCE - sequence) - 1 if sequence > MAX_SEQUENCE - delta else sequence + delta


def _payload(batch: PeerBatch, data: bytes) -> tuple[bytes, str | None]:
    """`data` decompressed, and what was wrong with it."""
    if batch.attributes & COMPRESSION_MASK == 0:
        return data, None
    opened = decompress(batch.attributes & COMPRESSION_MASK, data, magic=batch.magic, limit=MAX_PAYLOAD_BYTES)
    if opened.problem == "DECOMP_LIMIT_EXCEEDED":
        raise PeerLimitError(f"a batch of more than {MAX_PAYLOAD_BYTES} bytes decompressed is not opened")
    return opened.data, opened.problem


def _records(batch: PeerBatch, data: bytes) -> Iterator[PeerRecord]:
    """Records of a magic 2 batch. The last one that the header counts is given only if nothing stands behind it."""
    if batch.records_count < 0 or batch.size_in_bytes < RECORD_BATCH_OVERHEAD:
        raise PeerGivesUpError(f"Found invalid record count {batch.records_count} in magic v{batch.magic} batch")
    if batch.records_count == 0:
        return
    payload, problem = _payload(batch, data[RECORD_BATCH_OVERHEAD:])
    append_time = bool(batch.attributes & TIMESTAMP_TYPE_MASK)
    buffer, given = readable(payload), 0
    for row in _rows(payload):
        given += 1
        if given == batch.records_count and (
            problem or row[RecordColumn.POSITION] + row[RecordColumn.SIZE_IN_BYTES] < len(payload)
        ):
            raise PeerGivesUpError("Incorrect declared batch size, records still remaining in file")
        delta = row[RecordColumn.OFFSET_DELTA]
        yield PeerRecord(
            batch.base_offset + delta,
            batch.max_timestamp if append_time else batch.base_timestamp + row[RecordColumn.TIMESTAMP_DELTA],
            _increment(batch.base_sequence, delta) if batch.base_sequence >= 0 else NO_SEQUENCE,
            _part(payload, row, RecordColumn.KEY_POSITION),
            _part(payload, row, RecordColumn.VALUE_POSITION),
            tuple(_header_keys(buffer, payload, row)) if row[RecordColumn.HEADERS_COUNT] else (),
            None,
            None,
        )
    if given < batch.records_count:
        raise PeerGivesUpError(problem or "Incorrect declared batch size, premature EOF reached")


def _rows(payload: bytes) -> Iterator[list[int]]:
    """Columns of each record of `payload` that can be read, one by one."""
    buffer = readable(payload)
    out = np.empty((RECORD_COLUMNS, _ROWS), np.int64)
    position, before, final = 0, -1, True
    while before != position:
        before = position
        passed, _, position = scan_records(buffer, position, len(payload), final, out, 1)
        yield from out[:, :passed].T.tolist()


def _part(payload: bytes, row: list[int], column: int) -> bytes | None:
    """The bytes whose position is in `column` and whose length in the next; None where that is negative."""
    length = row[column + 1]
    return None if length < 0 else payload[row[column] : row[column] + length]


def _header_keys(buffer: "Buffer", payload: bytes, row: list[int]) -> Iterator[bytes]:
    position = row[RecordColumn.HEADERS_POSITION]
    for _ in range(row[RecordColumn.HEADERS_COUNT]):
        length, position = read_varint(buffer, position, len(payload))
        yield payload[position : position + length]
        length, position = read_varint(buffer, position + length, len(payload))
        position += max(length, 0)


def _messages(batch: PeerBatch, data: bytes) -> Iterator[PeerRecord]:
    """The message that a legacy entry is, or those in its wrapper (AbstractLegacyRecordBatch)."""
    row = _message(data, 0, batch.size_in_bytes)
    if batch.attributes & COMPRESSION_MASK == 0:
        yield _legacy_record(batch, data, row, batch.base_offset, batch.base_timestamp)
        return
    value = _part(data, row, RecordColumn.VALUE_POSITION)
    if value is None:
        raise PeerGivesUpError("Found invalid compressed record set with null value")
    payload, problem = _payload(batch, value)
    inner = []
    position = 0
    while len(payload) - position >= LOG_OVERHEAD:
        _, length = _START.unpack_from(payload, position)
        if length < LEGACY_V0_OVERHEAD:
            raise PeerGivesUpError(f"Record size {length} is less than the minimum record overhead ({LEGACY_V0_OVERHEAD})")
        if position + LOG_OVERHEAD + length > len(payload):
            break
        inner.append(_message(payload, position, length + LOG_OVERHEAD))
        position += length + LOG_OVERHEAD
    if problem or not inner:
        raise PeerGivesUpError(problem or "Found invalid compressed record set with no inner records")
    first = 0
    if batch.magic == 1 and batch.base_offset != 0:
        first = batch.base_offset - inner[-1][RecordColumn.OFFSET_DELTA]
    append_time = batch.magic == 1 and bool(batch.attributes & TIMESTAMP_TYPE_MASK)
    for row in inner:
        timestamp = batch.max_timestamp if append_time else row[RecordColumn.TIMESTAMP_DELTA]
        yield _legacy_record(batch, payload, row, first + row[RecordColumn.OFFSET_DELTA], timestamp)


def _message(data: bytes, start: int, size: int) -> list[int]:
    """Columns of the legacy entry of `size` bytes at `start`."""
    out = np.empty((RECORD_COLUMNS, 1), np.int64)
    magic = data[start + 16]
    sound = magic <= 1 and size >= LOG_OVERHEAD + LEGACY_V0_OVERHEAD + 8 * magic
    if not sound or check_message(readable(data), start, size, out, 0) != OK:
        raise PeerGivesUpError("a message is not what its lengths say")
    return [int(value) for value in out[:, 0]]


def _legacy_record(batch: PeerBatch, data: bytes, row: list[int], offset: int, timestamp: int) -> PeerRecord:
    start, size = row[RecordColumn.POSITION], row[RecordColumn.SIZE_IN_BYTES]
    crc = int.from_bytes(data[start + 12 : start + 16], "big")
    valid = zlib.crc32(data[start + 16 : start + size]) == crc
    key, value = (_part(data, row, column) for column in (RecordColumn.KEY_POSITION, RecordColumn.VALUE_POSITION))
    return PeerRecord(offset, timestamp if batch.magic else NO_TIMESTAMP, NO_SEQUENCE, key, value, (), crc, valid)


# Keys and values as the decoders of Kafka's own tool print them: `--cluster-metadata-decoder` and its like (DumpLogSegments).
#
# A decoder gives the texts of key and payload, None for one that is not printed. What it cannot read it says in place of them; in
# the words of the reader here, where the tool prints the message of a Java exception.


Decoder = Callable[[PeerRecord], tuple[str | None, str | None]]

_NOT_TAKEN_APART: Final = "not taken apart here"
_CREDENTIAL: Final = "USER_SCRAM_CREDENTIAL_RECORD"
"""What is in it stays secret."""
_LAST: Final = ("directories", "eligible_leader_replicas", "last_known_elr")
"""Fields of partitions that Kafka's schema has at the end."""
_GROUP_TYPES: Final = frozenset({*OFFSET_COMMIT_TYPES, GROUP_METADATA_TYPE, *GROUP_VALUES})
"""Of Kafka 4.3.0; its tool knows no others."""
_LEGACY_COMMIT: Final = 0
_REGULAR_EXPRESSION: Final = 16
_CONSUMER: Final = "consumer"
_DELETED: Final = "<DELETE>"
_CONTROL: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u(00[0-9a-f]{2})")
"""A control character as JSON spells it, and not what looks so behind a backslash that is spelled itself."""


def camel(value: object) -> object:
    """`value` with the keys of its mappings as Kafka's JSON spells them, and bytes in base64."""
    if isinstance(value, dict):
        return {_camel_word(key): camel(item) for key, item in value.items() if key != "tagged_fields"}
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return [camel(item) for item in value] if isinstance(value, list | tuple) else value


def _camel_word(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def json_line(value: object) -> str:
    """`value` as Kafka's JSON in one line, in which control characters are spelled with large letters."""
    line = json.dumps(camel(value), separators=(",", ":"), ensure_ascii=False)
    return _CONTROL.sub(lambda match: f"{match[1]}\\u{match[2].upper()}", line)


def cluster_metadata(record: PeerRecord) -> tuple[None, str]:
    """`--cluster-metadata-decoder`."""
    read = decode_metadata_record(record.value)
    if read.problem == "kind":
        return None, f"Error at {record.offset}, skipping. Unknown metadata id {read.api_key}"
    if read.problem is not None:
        return None, f"Error at {record.offset}, skipping. {read.name} of {read.size_in_bytes} bytes: {read.problem}"
    if read.fields is None or read.name == _CREDENTIAL:
        return None, f"Error at {record.offset}, skipping. {read.name} of {read.size_in_bytes} bytes is {_NOT_TAKEN_APART}"
    fields = dict(read.fields)
    for tag in MESSAGES[read.api_key][read.version].tags:
        if fields[tag.name] == tag.default:
            del fields[tag.name]
    ordered = {name: item for name, item in fields.items() if name not in _LAST}
    if "leader_recovery_state" in ordered and "leader_epoch" in ordered:
        ordered = _behind(ordered, "leader_recovery_state", "leader")
    ordered |= {name: fields[name] for name in _LAST if name in fields}
    return None, json_line({"type": read.name, "version": read.version, "data": ordered})


def _behind(fields: Json, name: str, other: str) -> Json:
    """`fields` with one of them moved behind another."""
    moved = {}
    for field, value in fields.items():
        if field != name:
            moved[field] = value
        if field == other:
            moved[name] = fields[name]
    return moved


def transaction_log(record: PeerRecord) -> tuple[str, str | None]:
    """`--transaction-log-decoder`. Raises PeerGivesUpError for a record without key."""
    name, problem = parse_transaction_log_key(_key(record))
    if problem == "key_version":
        return _unknown_type(record)
    if problem is not None:
        return _error(record, problem)
    key = json_line({"type": "0", "data": {"transactional_id": name}})
    if record.value is None:
        return key, _DELETED
    metadata, problem = parse_transaction_log_value(record.value)
    if metadata is None:
        return _error(record, str(problem))
    version = int.from_bytes(record.value[:2], "big")
    fields = parsed(TRANSACTION_LOG_VALUES[version], record.value)
    if isinstance(fields, str):
        return _error(record, fields)
    document: Json = {"producer_id": fields.pop("producer_id")}
    document |= {"previous_producer_id": metadata.previous_producer_id} if metadata.previous_producer_id != -1 else {}
    document |= {"next_producer_id": metadata.next_producer_id} if metadata.next_producer_id != -1 else {}
    document["producer_epoch"] = fields.pop("producer_epoch")
    document |= {"next_producer_epoch": metadata.next_producer_epoch} if metadata.next_producer_epoch != -1 else {}
    document |= {field: item for field, item in fields.items() if field != "version"}
    if metadata.client_transaction_version:
        document["client_transaction_version"] = metadata.client_transaction_version
    return key, json_line({"version": str(version), "data": document})


def consumer_offsets(record: PeerRecord) -> tuple[str, str | None]:
    """`--offsets-decoder`. Raises PeerGivesUpError for a record without key, and for a value too large to take apart."""
    read = read_key(_key(record))
    if isinstance(read, str):
        return _unreadable_key(record)
    if read.record_type not in _GROUP_TYPES:
        return _unknown_type(record)
    if read.record_type in OFFSET_COMMIT_TYPES:
        data: Json = {"group": read.group, "topic": read.topic, "partition": read.partition}
    elif read.record_type == GROUP_METADATA_TYPE:
        data = {"group": read.group}
    else:
        data = {"group_id": read.group}
        if read.record_type in MEMBER_TYPES:
            data["regular_expression" if read.record_type == _REGULAR_EXPRESSION else "member_id"] = read.member_id
    key = json_line({"type": str(read.record_type), "data": data})
    if record.value is None:
        return key, _DELETED
    if read.record_type in GROUP_VALUES:
        return _with_value(record, key, read.record_type, _flexible(record, GROUP_VALUES[read.record_type]))
    newest = 0 if read.record_type == _LEGACY_COMMIT else len(GROUP_METADATA_VALUES) - 1
    commit_or_group = _commit if read.record_type in OFFSET_COMMIT_TYPES else _group
    version = _version(record)
    value = "version" if version is None or not 0 <= version <= newest else commit_or_group(record.value, version)
    return _with_value(record, key, read.record_type, value)


def share_group_state(record: PeerRecord) -> tuple[str, str | None]:
    """`--share-group-state-decoder`. Raises as `consumer_offsets` does."""
    read = read_share_key(_key(record))
    if isinstance(read, str):
        return _unreadable_key(record)
    if read.record_type not in SHARE_RECORDS:
        return _unknown_type(record)
    data = {"group_id": read.group, "topic_id": read.topic_id, "partition": read.partition}
    key = json_line({"type": str(read.record_type), "data": data})
    if record.value is None:
        return key, _DELETED
    return _with_value(record, key, read.record_type, _flexible(record, SHARE_STATE_VALUES[read.record_type]))


def _flexible(record: PeerRecord, layout: Flexible) -> Json | str:
    """The value's fields as Kafka 4.3.0 shows them, by its own layout alone."""
    value = record.value or b""
    if len(value) > MAX_VALUE_BYTES:
        raise PeerLimitError(f"the value at offset {record.offset} has {len(value)} bytes, more than {MAX_VALUE_BYTES}")
    if _version(record) != 0:
        return "version"
    read = read_value(layout, value)
    return "fields" if read is None else dict(without_defaults(layout, read[0]))


def _with_value(record: PeerRecord, key: str, record_type: int, value: Json | str) -> tuple[str, str | None]:
    """The key, and the value's fields behind their version; or what is wrong with it."""
    version = _version(record)
    if version is None:
        return _error(record, "Could not read version from value's buffer.")
    if value == "version":
        return _error(record, f"Found an unknown record version {version} for {record_type} type")
    if isinstance(value, str):
        return _error(record, f"Could not read record with version {version} from value's buffer due to: {value}.")
    return key, json_line({"version": str(version), "data": value})


def _version(record: PeerRecord) -> int | None:
    """The version a value begins with, None if it is too short for one."""
    value = record.value or b""
    return int.from_bytes(value[:2], "big", signed=True) if len(value) >= 2 else None


def _unreadable_key(record: PeerRecord) -> tuple[str, None]:
    key = record.key or b""
    if len(key) < 2:
        return _error(record, "Could not read version from key's buffer.")
    record_type = int.from_bytes(key[:2], "big", signed=True)
    return _error(record, f"Could not read record with version {record_type} from key's buffer due to: key.")


def _commit(value: bytes, version: int) -> Json | str:
    read = read_offset_commit(value)
    if isinstance(read, str):
        return read
    fields = read._asdict()
    wanted = {"leader_epoch": version >= 3, "expire_timestamp": version == 1, "topic_id": read.topic_id is not None}
    return {name: item for name, item in fields.items() if wanted.get(name, True)}


def _group(value: bytes, version: int) -> Json | str:
    fields = parsed(GROUP_METADATA_VALUES[version], value)
    if isinstance(fields, str):
        return fields
    del fields["version"]
    if fields["protocol_type"] == _CONSUMER:
        for member in fields["members"]:
            member["subscription"] = _protocol(member["subscription"], SUBSCRIPTIONS)
            member["assignment"] = _protocol(member["assignment"], (ASSIGNMENT,) * (NEWEST + 1))
    return fields


def _protocol(data: bytes, layouts: tuple[Flexible, ...]) -> Json | bytes:
    """The fields of bytes that begin with their version; the bytes themselves where they are not laid out so."""
    version = int.from_bytes(data[:2], "big", signed=True)
    if not 0 <= version < len(layouts):
        return data
    fields = parsed(layouts[version], data)
    if isinstance(fields, str):
        return data
    return {name: item for name, item in fields.items() if name != "version"}


def _key(record: PeerRecord) -> bytes:
    if record.key is None:
        raise PeerGivesUpError(
            f"Failed to decode message at offset {record.offset} using the specified decoder (message had a missing key)"
        )
    return record.key


def _unknown_type(record: PeerRecord) -> tuple[str, None]:
    kind = int.from_bytes((record.key or b"")[:2], "big", signed=True)
    return f"Unknown record type {kind} at offset {record.offset}, skipping.", None


def _error(record: PeerRecord, reason: str) -> tuple[str, None]:
    return f"Error at offset {record.offset}, skipping. {reason}", None


# Indexes and producer snapshots as Kafka's tool reads them: every entry that fills its place, up to the first zero one.
#
# For `dump --format kafka-dump-log`. An index is held against its segment; what the tool would say of a difference is noted, what
# ends it with an exception is a `PeerGivesUpError`.


SLICE_BYTES: Final = 5 << 20
"""What the tool reads of a segment to look an index entry up: its default of --max-message-size."""
_OFFSET_ENTRY: Final = struct_of(OFFSET_INDEX_ENTRY.subcons)
_TIME_ENTRY: Final = struct_of(TIME_INDEX_ENTRY.subcons)
_ABORTED_TXN: Final = struct_of(ABORTED_TXN.subcons)
_WINDOW_ENTRIES: Final = 4096

Note = Callable[[str, str], None]
"""Called with a heading and a line for standard error."""


@dataclass(frozen=True, slots=True)
class PeerSegment:
    """The index at hand, by its `name`, with the segment's `base_offset`, its log and, for a time index, its offset index."""

    name: str
    base_offset: int
    log: "ByteFile | None"
    log_name: str
    index: "ByteFile | None" = None

    def slice(self, position: int) -> PeerLog:
        """The log from byte `position` on. Raises PeerGivesUpError."""
        if self.log is None:
            raise PeerGivesUpError(f"{self.log_name} (No such file or directory)")
        if not 0 <= position <= self.log.size_in_bytes:
            raise PeerGivesUpError(f"Slice from position {position} exceeds end position of {self.log_name}")
        return PeerLog(self.log, self.log_name, position)


def entries_of(file: "ByteFile", entry: struct.Struct) -> Iterator[tuple[int, ...]]:
    """Every whole `entry` of `file`, in windows."""
    position = 0
    while window := file.read_at(position, entry.size * _WINDOW_ENTRIES):
        whole = len(window) - len(window) % entry.size
        yield from entry.iter_unpack(window[:whole])
        position += whole
        if whole < entry.size * _WINDOW_ENTRIES:
            return


def offset_entries(file: "ByteFile", segment: PeerSegment, note: Note) -> Iterator[tuple[int, int]]:
    """(offset, position) of each entry of a `.index`, its batch looked up first (DumpLogSegments.dumpIndex)."""
    for row, (relative_offset, position) in enumerate(entries_of(file, _OFFSET_ENTRY)):
        offset = segment.base_offset + relative_offset
        if relative_offset == 0 and row:
            return
        first = next(segment.slice(position).batches(), None)
        if first is None or first.size_in_bytes > SLICE_BYTES:
            raise PeerGivesUpError("java.util.NoSuchElementException")
        if first.last_offset != offset:
            note(f"Mismatches in :{segment.name}", f"  Index offset: {offset}, log offset: {first.last_offset}")
        yield offset, position


def _read_to_end(log: PeerLog, offset: int, looked_up: set[int], readable_from: set[int]) -> PeerBatch | None:
    """The batch with an offset, all behind it read, but where it was before: from the positions `readable_from` on."""
    peer_batch: PeerBatch | None = None
    for batch in log.batches():
        if peer_batch is None and batch.last_offset >= offset:
            peer_batch = batch
        if peer_batch is not None and batch.position in readable_from:
            break
        if batch.position in looked_up:
            readable_from.add(batch.position)
    return peer_batch


def time_entries(file: "ByteFile", segment: PeerSegment, note: Note) -> Iterator[tuple[int, int]]:
    """(timestamp, offset) of each entry of a `.timeindex`, looked up in the segment (DumpLogSegments.dumpTimeIndex).

    For every entry the tool reads all batches to the segment's end, and ends at what it cannot read there.
    """
    looked_up = {0} if segment.index is None else {0, *(position for _, position in entries_of(segment.index, _OFFSET_ENTRY))}
    readable_from: set[int] = set()
    previous = -1
    for row, (timestamp, relative_offset) in enumerate(entries_of(file, _TIME_ENTRY)):
        offset = segment.base_offset + relative_offset
        if relative_offset == 0 and row:
            return
        log = segment.slice(_lookup(segment, offset))
        peer_batch = _read_to_end(log, offset, looked_up, readable_from)
        if peer_batch is None or peer_batch.last_offset != offset:
            words = f"Indexed offset: {offset}, found log offset: {-1 if peer_batch is None else peer_batch.last_offset}"
            note(f"The following indexed offsets are not found in :{segment.name}", words)
        else:
            _check_time(
                timestamp, max((record.timestamp for record in log.records(peer_batch)), default=-1), previous, segment, note
            )
        previous = timestamp
        yield timestamp, offset


def _check_time(timestamp: int, largest: int, previous: int, segment: PeerSegment, note: Note) -> None:
    """Hold an entry's time against the largest of its batch's records and against the entry before."""
    if largest != timestamp:
        words = f"  Index timestamp: {timestamp}, log timestamp: {largest}"
        note(f"Found timestamp mismatch in :{segment.name}", words)
    if timestamp <= previous:
        words = f"  Index timestamp: {timestamp}, Previously indexed timestamp: {previous}"
        note(f"Found out of order timestamp in :{segment.name}", words)


def _lookup(segment: PeerSegment, offset: int) -> int:
    """Position of the last entry of the offset index that is not above `offset`; 0 without one."""
    position_before = 0
    if segment.index is not None:
        for relative_offset, position in entries_of(segment.index, _OFFSET_ENTRY):
            if segment.base_offset + relative_offset > offset or (relative_offset == 0 and position_before):
                break
            position_before = position
    return position_before


def check_offset_index(file: "ByteFile", segment: PeerSegment) -> None:
    """OffsetIndex.sanityCheck. Raises PeerGivesUpError."""
    last = _last(file, _OFFSET_ENTRY)
    if last is not None and last[0] < 0:
        raise PeerGivesUpError(f"Corrupt index found, index file ({segment.name}) has a last offset below its base offset")
    _check_size(file, segment, _OFFSET_ENTRY.size, "Index file")


def check_time_index(file: "ByteFile", segment: PeerSegment) -> None:
    """TimeIndex.sanityCheck. Raises PeerGivesUpError."""
    last = _last(file, _TIME_ENTRY)
    if last is not None:
        first = next(entries_of(file, _TIME_ENTRY))[0]
        corrupt = f"Corrupt time index found, time index file ({segment.name})"
        if last[0] < first:
            raise PeerGivesUpError(f"{corrupt} has last timestamp {last[0]} which is less than the first timestamp {first}")
        if last[1] < 0:
            raise PeerGivesUpError(f"{corrupt} has a last offset below its base offset")
    _check_size(file, segment, _TIME_ENTRY.size, "Time index file")


def _check_size(file: "ByteFile", segment: PeerSegment, width: int, noun: str) -> None:
    size = file.size_in_bytes
    if size % width:
        raise PeerGivesUpError(f"{noun} {segment.name} is corrupt, found {size} bytes which is no multiple of {width}")


def is_empty_index(file: "ByteFile") -> bool:
    """Whether a `.index` holds no whole entry."""
    return file.size_in_bytes < _OFFSET_ENTRY.size


def _last(file: "ByteFile", entry: struct.Struct) -> tuple[int, ...] | None:
    """The last whole entry; None if there is none."""
    whole = file.size_in_bytes // entry.size
    if not whole:
        return None
    data = file.read_at((whole - 1) * entry.size, entry.size)
    return tuple(entry.unpack(data)) if len(data) == entry.size else None


def aborted_txns(file: "ByteFile") -> Iterator[tuple[int, ...]]:
    """(version, producer id, first, last, last stable offset) of each entry; Kafka 4.3 sees the version's high byte alone."""
    for version, *fields in entries_of(file, _ABORTED_TXN):
        if version >> 8 > 0:
            raise PeerGivesUpError(f"Unexpected aborted transaction version {version >> 8}")
        yield version >> 8, *fields
