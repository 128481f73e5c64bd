"""Rows as Arrow record batches of bounded size, whatever text and numbers hostile bytes put into them."""

import json
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, SupportsIndex

import pyarrow as pa

from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.ledger import CopyExtent
from kafka_forensics.model.arrow import plain, repeated_dictionary, repeated_string
from kafka_forensics.model.json_objects import Columns
from kafka_forensics.model.schemas import PARTITION_KEYS, Fact

if TYPE_CHECKING:
    from kafka_forensics.model.schemas import ArrowArray


MAX_ROWS: Final = 64 << 10
"""Rows of one record batch at most."""
MAX_BYTES: Final = 16 << 20
"""Bytes of one record batch at most, unless a single row has more."""
_NUMBER_BYTES: Final = 8


def record_batches(schema: pa.Schema, rows: Iterable[tuple[object, ...]]) -> Iterator[pa.RecordBatch]:
    """`rows`, tuples in the order of the columns, as record batches."""
    kinds = [field.type for field in schema]
    words = [index for index, kind in enumerate(kinds) if kind in (pa.string(), pa.binary())]
    lists = [index for index, kind in enumerate(kinds) if pa.types.is_nested(kind)]
    fixed = _NUMBER_BYTES * len(kinds)
    pending: list[tuple[object, ...]] = []
    size = 0
    for row in rows:
        added = fixed
        for index in words:
            value = row[index]
            added += len(value) if isinstance(value, str | bytes | memoryview) else 0
        for index in lists:
            added += size_of(row[index]) if row[index] else 0
        if pending and (len(pending) >= MAX_ROWS or size + added > MAX_BYTES):
            yield record_batch(schema, pending)
            pending, size = [], 0
        pending.append(row)
        size += added
    if pending:
        yield record_batch(schema, pending)


def record_batch(schema: pa.Schema, rows: list[tuple[object, ...]]) -> pa.RecordBatch:
    """One record batch of these rows."""
    columns = zip(*rows, strict=True)
    arrays = [array(list(values), field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def array(values: list[Any], kind: pa.DataType) -> "ArrowArray":
    """An array of `values`; text that UTF-8 cannot hold is spelled out, a number beyond its type is the type's nearest."""
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        return pa.array([_spelled(value) for value in values], kind)
    except (OverflowError, pa.ArrowInvalid):
        if not pa.types.is_signed_integer(kind):
            raise
        most = (1 << (kind.bit_width - 1)) - 1
        return pa.array([None if value is None else max(-most - 1, min(value, most)) for value in values], kind)


def repeated(value: str, rows: int) -> "ArrowArray":
    """`value` in every one of `rows`."""
    return repeated_string(text(value), rows)


def place_columns(place: Iterable[str], rows: int) -> "list[ArrowArray]":
    """Each name of a place in every one of `rows`, as dictionaries."""
    return [repeated_dictionary(text(name), rows) for name in place]


def own_batch(fact: Fact, arrays: "Iterable[ArrowArray]") -> pa.RecordBatch:
    """A record batch as `Fact.own` says; words that are a dictionary stay one, until `with_keys` or who writes them."""
    columns = list(arrays)
    fields = [
        field.with_type(column.type) if isinstance(column, pa.DictionaryArray) else field
        for field, column in zip(fact.own, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def rows_of(columns: Columns, items: Iterable[object]) -> Iterator[tuple[object, ...]]:
    """The columns of each item, as `record_batches` takes them."""
    values = list(columns.values())
    return (tuple([value(item) for value in values]) for item in items)


def with_keys(
    batch: pa.RecordBatch, fact: Fact, topic: str, partition: int | None, broker: str, names: Sequence[str] | None = None
) -> pa.RecordBatch:
    """Rows as `Fact.own` says, of one replica, with the columns `names` of the fact (None: all) in their declared types."""
    rows = batch.num_rows
    keys: dict[str, Callable[[], ArrowArray]] = {
        "topic": lambda: repeated(topic, rows),
        "partition": lambda: pa.repeat(pa.scalar(partition, pa.int32()), rows),
        "broker": lambda: repeated(broker, rows),
    }
    assert set(keys) == set(PARTITION_KEYS)
    schema = fact.schema if names is None else pa.schema([fact.schema.field(name) for name in names])
    arrays = [keys[name]() if name in keys else plain(batch.column(name)) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def text(value: str) -> str:
    r"""`value` if UTF-8 can hold it, else with what it cannot spelled out: `\udcff` for a byte 0xff of a file name."""
    return value.encode("utf-8", "backslashreplace").decode()


def json_text(value: object) -> str:
    """`value` as JSON in one line of ASCII."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, default=_plain)


def size_of(value: object) -> int:
    """About how many bytes `value` takes in a record batch."""
    if isinstance(value, str | bytes):
        return _NUMBER_BYTES + len(value)
    if isinstance(value, list | tuple):
        return _NUMBER_BYTES + sum(map(size_of, value))
    if isinstance(value, dict):
        return sum(map(size_of, value.values()))
    return _NUMBER_BYTES


def cut(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of `batches` in tables as large as they may be, with what came as their chunks: what a row group is made of."""
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in chain.from_iterable(map(_parts, batches)):
        if pending and (rows + batch.num_rows > MAX_ROWS or size + batch.nbytes > MAX_BYTES):
            yield pa.Table.from_batches(pending, schema)
            pending, rows, size = [], 0, 0
        if batch.num_rows:
            pending.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
    if pending:
        yield pa.Table.from_batches(pending, schema)


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """`batch` in pieces within the limits, halved as often as that takes."""
    if batch.num_rows > 1 and (batch.num_rows > MAX_ROWS or batch.nbytes > MAX_BYTES):
        half = batch.num_rows // 2
        yield from _parts(batch.slice(0, half))
        yield from _parts(batch.slice(half))
    else:
        yield batch


def _spelled(value: object) -> object:
    if isinstance(value, str):
        return text(value)
    if isinstance(value, list | tuple):
        return [_spelled(item) for item in value]
    if isinstance(value, dict):
        return {name: _spelled(item) for name, item in value.items()}
    return value


def _plain(value: bytes | memoryview | SupportsIndex) -> str | int:
    return value.hex() if isinstance(value, bytes | memoryview) else operator.index(value)


# What is asked of a fact that is read in tasks: plain values, so that any engine may carry it anywhere.


SPLIT_BYTES: Final = 256 << 20
"""Bytes of a task unless another number is asked for."""
RANGED: Final = {
    "batches": ("base_offset", "last_offset", "max_timestamp"),
    "records": ("offset", "offset", "timestamp"),
    "control_records": ("offset", "offset", "timestamp"),
}
"""Facts that can be limited to offsets and times → the columns of first offset, last offset and time that are compared."""
FROM_LOGS: Final = ("batches", "records", "spans", "control_records")
"""Facts for which `.log` files are read, in parts if they are large."""
FROM_FILES: Final = ("index_entries", "epoch_entries", "producer_states")
"""Facts of the small files in a partition's directory."""
INCOMPLETE: Final = "incomplete"
"""The fact that tells what could not be read, whose reading fails of nothing else."""
FROM_SCANS: Final = (
    *("transactions", "metadata_history", "group_offsets", "remote_segments", "remote_events"),
    *("replicas", "findings", INCOMPLETE),
)
"""Facts that no file tells by itself: one task reads all that is needed for them."""
FROM_COMPARISONS: Final = ("changes",)
"""Facts that only several snapshots yield, by being compared."""


@dataclass(frozen=True, slots=True)
class FactQuery:
    """A fact, its columns (in this order), and limits; an empty tuple and None are no limit.

    `partitions` are ranges, both ends inclusive; `offset_to` and `timestamp_to` (ms) are exclusive. `strict` is for an error at the
    first bad byte. Without `payloads`, keys, values and headers are null. `deep`, `live`, `copied` and `as_of_ms` are those of
    `ScanOptions`, for facts that take a scan, and `deep` for spans.
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
        """Raise UsageError for limits that mean nothing for the fact."""
        for name in ("offset_from", "offset_to", "timestamp_from", "timestamp_to"):
            if getattr(self, name) is not None and self.fact not in RANGED:
                raise UsageError(f"{name} does not apply to the fact {self.fact}", hint=f"it applies to {', '.join(RANGED)}")
        if self.strict and self.fact in (*FROM_SCANS, *FROM_COMPARISONS):
            hint = f"it applies to {', '.join((*FROM_LOGS, *FROM_FILES, 'checkpoints'))}"
            raise UsageError(f"on_corrupt=strict does not apply to the fact {self.fact}", hint=hint)

    @property
    def is_ranged(self) -> bool:
        """Whether only some offsets or times are asked for."""
        return not (self.offset_from is self.offset_to is self.timestamp_from is self.timestamp_to is None)

    def wants(self, topic: str | None, partition: int | None) -> bool:
        """Whether a topic and partition are asked for; None is neither."""
        if self.topics and not any(fnmatchcase(topic or "", glob) for glob in self.topics):
            return False
        return not self.partitions or any(
            first <= (-1 if partition is None else partition) <= last for first, last in self.partitions
        )

    def wants_broker(self, broker: int | str | None) -> bool:
        """Whether a broker is asked for; None is none."""
        return not self.brokers or str(broker) in self.brokers
