"""Arrow record batches of bounded size from rows with any text and numbers, and the queries that select facts."""

import json
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Any, Final, SupportsIndex, TypeVar

import pyarrow as pa
from msgspec import Struct

from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.ledger import CopyExtent
from kafka_forensics.model.arrow import DICTIONARY, TIME, plain, repeated_dictionary, repeated_string, time_or_none
from kafka_forensics.model.json_objects import Columns
from kafka_forensics.model.schemas import FACTS, Fact, ReplicaKeys

if TYPE_CHECKING:
    from kafka_forensics.model.schemas import ArrowArray


MAX_ROWS: Final = 64 << 10
"""Of one record batch."""
MAX_BYTES: Final = 16 << 20
"""Of one record batch, unless a single row is larger."""
_NUMBER_BYTES: Final = 8


def record_batches(schema: pa.Schema, rows: Iterable[tuple[object, ...]]) -> Iterator[pa.RecordBatch]:
    """`rows`, tuples in the order of the columns, as record batches within `MAX_ROWS` and `MAX_BYTES`."""
    types = [field.type for field in schema]
    texts = [index for index, arrow_type in enumerate(types) if arrow_type in (pa.string(), pa.binary())]
    nested = [index for index, arrow_type in enumerate(types) if pa.types.is_nested(arrow_type)]
    fixed = _NUMBER_BYTES * len(types)
    pending: list[tuple[object, ...]] = []
    size = 0
    for row in rows:
        added = fixed
        for index in texts:
            value = row[index]
            added += len(value) if isinstance(value, str | bytes | memoryview) else 0
        for index in nested:
            added += _size_of(row[index]) if row[index] else 0
        if pending and (len(pending) >= MAX_ROWS or size + added > MAX_BYTES):
            yield record_batch(schema, pending)
            pending, size = [], 0
        pending.append(row)
        size += added
    if pending:
        yield record_batch(schema, pending)


def record_batch(schema: pa.Schema, rows: list[tuple[object, ...]]) -> pa.RecordBatch:
    """One record batch of at least one row."""
    columns = zip(*rows, strict=True)
    arrays = [array(list(values), field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def array(values: list[Any], arrow_type: pa.DataType) -> "ArrowArray":
    """An array of `values`; text that is not valid Unicode is escaped (`text`), a number out of range becomes the nearest bound,
    and null among times."""
    if arrow_type == TIME:
        return pa.array(list(map(time_or_none, values)), pa.int64()).view(TIME)
    try:
        return pa.array(values, arrow_type)
    except UnicodeEncodeError:
        return pa.array([_escaped(value) for value in values], arrow_type)
    except (OverflowError, pa.ArrowInvalid):
        if not pa.types.is_signed_integer(arrow_type):
            raise
        greatest = (1 << (arrow_type.bit_width - 1)) - 1
        return pa.array([None if value is None else max(-greatest - 1, min(value, greatest)) for value in values], arrow_type)


def repeated(value: str, rows: int) -> "ArrowArray":
    """An array of `rows` times `value`."""
    return repeated_string(text(value), rows)


def place_columns(place: Iterable[str], rows: int) -> "list[ArrowArray]":
    """A dictionary array for each name of a place, which is the same in all `rows`."""
    return [repeated_dictionary(text(name), rows) for name in place]


def batch_without_keys(fact: Fact, arrays: "Iterable[ArrowArray]") -> pa.RecordBatch:
    """A record batch with the columns `Fact.file_schema`, which lack the replica's keys; dictionary columns stay dictionaries."""
    columns = list(arrays)
    schema = _file_schema(fact.name, *(isinstance(column, pa.DictionaryArray) for column in columns))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@cache
def _file_schema(fact: str, *has_dictionary: bool) -> pa.Schema:
    """`Fact.file_schema` with dictionaries in some columns; made once, because many small batches have the same."""
    fields = zip(FACTS[fact].file_schema, has_dictionary, strict=True)
    return pa.schema([field.with_type(DICTIONARY) if is_dictionary else field for field, is_dictionary in fields])


def rows_of(columns: Columns, items: Iterable[object]) -> Iterator[tuple[object, ...]]:
    """A tuple of the columns' values for each item."""
    values = list(columns.values())
    return (tuple([value(item) for value in values]) for item in items)


def add_keys(batch: pa.RecordBatch, fact: Fact, replica: ReplicaKeys, names: Sequence[str] | None = None) -> pa.RecordBatch:
    """The columns `names` of the fact (None: all) in their declared types, from a batch of one replica (`Fact.file_schema`)."""
    rows = batch.num_rows
    keys: dict[str, Callable[[], ArrowArray]] = {
        "topic": lambda: repeated(replica.topic, rows),
        "partition": lambda: pa.repeat(pa.scalar(replica.partition, pa.int32()), rows),
        "broker": lambda: repeated(replica.broker, rows),
        "node_id": lambda: pa.repeat(pa.scalar(replica.node_id, pa.int32()), rows),
    }
    schema = fact.schema if names is None else pa.schema([fact.schema.field(name) for name in names])
    arrays = [keys[name]() if name in keys else plain(batch.column(name)) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def text(value: str) -> str:
    r"""`value` with lone surrogates escaped, such as `\udcff` for a byte 0xff of a file name."""
    return value.encode("utf-8", "backslashreplace").decode()


def json_text(value: object) -> str:
    """`value` as JSON in one line of ASCII; bytes become hexadecimal text."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, default=_json_value)


def _json_value(value: bytes | memoryview | SupportsIndex) -> str | int:
    return value.hex() if isinstance(value, bytes | memoryview) else operator.index(value)


def _size_of(value: object) -> int:
    """About how many bytes `value` takes in a record batch."""
    if isinstance(value, str | bytes):
        return _NUMBER_BYTES + len(value)
    if isinstance(value, list | tuple):
        return _NUMBER_BYTES + sum(map(_size_of, value))
    return sum(map(_size_of, value.values())) if isinstance(value, dict) else _NUMBER_BYTES


_Key = TypeVar("_Key")


def row_groups(batches: Iterable[tuple[_Key, pa.RecordBatch]]) -> Iterator[list[tuple[_Key, pa.RecordBatch]]]:
    """Neighbouring batches, each with something that belongs to it, in groups as large as `MAX_ROWS` and `MAX_BYTES` allow."""
    pending: list[tuple[_Key, pa.RecordBatch]] = []
    rows = size = 0
    for key, batch in batches:
        for part, added in _bounded(batch):
            if pending and (rows + part.num_rows > MAX_ROWS or size + added > MAX_BYTES):
                yield pending
                pending, rows, size = [], 0, 0
            pending.append((key, part))
            rows += part.num_rows
            size += added
    if pending:
        yield pending


def _bounded(batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, int]]:
    """`batch` and its bytes, halved until its parts are within the limits; nothing if it has no rows."""
    size = batch.nbytes
    if batch.num_rows > 1 and (batch.num_rows > MAX_ROWS or size > MAX_BYTES):
        half = batch.num_rows // 2
        yield from _bounded(batch.slice(0, half))
        yield from _bounded(batch.slice(half))
    elif batch.num_rows:
        yield batch, size


def _escaped(value: object) -> object:
    if isinstance(value, str):
        return text(value)
    if isinstance(value, list | tuple):
        return [_escaped(item) for item in value]
    if isinstance(value, dict):
        return {name: _escaped(item) for name, item in value.items()}
    return value


SPLIT_BYTES: Final = 256 << 20
"""Bytes of logs of a task by default."""
RANGED: Final = {
    "batches": ("base_offset", "last_offset", "max_timestamp"),
    "records": ("offset", "offset", "timestamp"),
    "control_records": ("offset", "offset", "timestamp"),
}
"""Facts that offsets and times limit → the columns compared with them: first offset, last offset and time."""
FROM_LOGS: Final = ("batches", "records", "spans", "control_records")
"""Facts of `.log` files, which are read in parts if they are large."""
FROM_FILES: Final = ("index_entries", "epoch_entries", "producer_states")
"""Facts of the small files in a partition's directory."""
INCOMPLETE: Final = "incomplete"
"""The fact that lists what could not be read, so reading it does not fail because of that."""
FROM_INTERNAL_TOPICS: Final = ("metadata_history", "group_offsets", "remote_segments", "remote_events")
FROM_SCANS: Final = ("transactions", *FROM_INTERNAL_TOPICS, "replicas", "findings", INCOMPLETE)
"""Facts that come from more than one file: one task reads everything that they need."""
FROM_COMPARISONS: Final = ("changes",)
"""Facts that come from comparing snapshots."""


class FactQuery(Struct, frozen=True):
    """A fact, its columns in this order, and limits, of which an empty tuple and None are none; plain values for any engine.

    `partitions` are ranges, both ends inclusive; `offset_to` and `timestamp_to` (ms) are exclusive. With `strict`, the first bad
    byte is an error. Without `payloads`, keys, values and headers are null. `deep`, `live`, `copied` and `as_of_ms` are options of
    the scan (`ScanOptions`) for facts that need one; `deep` also applies to spans.
    """

    fact: str
    columns: tuple[str, ...]
    topics: tuple[str, ...] = ()
    partitions: tuple[tuple[int, int], ...] = ()
    brokers: tuple[str, ...] = ()
    offset_from: int | None = None
    offset_to: int | None = None
    timestamp_from: int | None = None
    timestamp_to: int | None = None
    strict: bool = False
    split_bytes: int = SPLIT_BYTES
    payloads: bool = True
    deep: bool | None = None
    live: bool = False
    copied: CopyExtent | None = None
    as_of_ms: int | None = None

    def __post_init__(self) -> None:
        """Raise UsageError for limits that do not apply to the fact."""
        for name in ("offset_from", "offset_to", "timestamp_from", "timestamp_to"):
            if getattr(self, name) is not None and self.fact not in RANGED:
                raise UsageError(f"{name} does not apply to the fact {self.fact}", hint=f"it applies to {', '.join(RANGED)}")
        for start, end, name in (
            (self.offset_from, self.offset_to, "offset"), (self.timestamp_from, self.timestamp_to, "timestamp"),
        ):  # fmt: skip
            if start is not None and end is not None and start >= end:
                raise UsageError(f"{name}_from is not before {name}_to", hint=f"{name}_to is exclusive")
        if self.strict and self.fact in (*FROM_SCANS, *FROM_COMPARISONS):
            hint = f"it applies to {', '.join((*FROM_LOGS, *FROM_FILES, 'checkpoints'))}"
            raise UsageError(f"on_corrupt=strict does not apply to the fact {self.fact}", hint=hint)

    @property
    def is_ranged(self) -> bool:
        """Whether offsets or times are limited."""
        return not (self.offset_from is self.offset_to is self.timestamp_from is self.timestamp_to is None)

    def includes(self, topic: str | None, partition: int | None) -> bool:
        """Whether the limits include a topic and partition; None stands for rows that name none."""
        if self.topics and not any(fnmatchcase(topic or "", glob) for glob in self.topics):
            return False
        return not self.partitions or any(
            first <= (-1 if partition is None else partition) <= last for first, last in self.partitions
        )

    def includes_broker(self, broker: int | str | None) -> bool:
        """Whether the limits include a broker."""
        return not self.brokers or str(broker) in self.brokers
