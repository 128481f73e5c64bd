"""Columns of the data source `kafka_log`: from the model's Arrow schemas to Spark's, in one place.

Same names, same order, all nullable, unsigned numbers made wider. `records` have their time as Spark has times, and as they have it
themselves in `timestamp_ms`; with the names of Spark's own source `kafka`, its columns come first, by its names and types.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafka_forensics.errors import UsageError, did_you_mean_prefix
from kafka_forensics.model.batches import TIMESTAMP_TYPES
from kafka_forensics.model.schemas import RECORDS_FACT, SNAPSHOT, SNAPSHOT_FACTS, about, fact_named

if TYPE_CHECKING:
    from kafka_forensics.model.schemas import ArrowArray, ArrowField

FACT_NAMES: Final = "facts"
"""Columns are called as in docs/facts.md."""
KAFKA_NAMES: Final = "kafka"
"""Columns of records are called as Spark's own source `kafka` calls them, where they are the same."""
NAMES: Final = (FACT_NAMES, KAFKA_NAMES)

_TIMESTAMP: Final = pa.timestamp("us", "UTC")
_NO_TIMESTAMP: Final = -1
_DAY_MS: Final = 86_400_000
_FIRST_MS: Final = -62_135_596_800_000 + 2 * _DAY_MS
_LAST_MS: Final = 253_402_300_799_999 - _DAY_MS
"""Spark's and Python's years are 1 to 9999; a day or two less, so that a time has one in every time zone."""
_HEADERS: Final = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
_OF_KAFKA: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestamp_type", "headers")
"""What Spark's source `kafka` has, by our names, in its order."""

_PLAIN: Final[dict[pa.DataType, DataType]] = {
    pa.int16(): ShortType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.uint32(): LongType(),
    pa.bool_(): BooleanType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    _TIMESTAMP: TimestampType(),
}


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column of the data source: `kind` is the Arrow type in which Spark takes what `of` the fact's column called `source`."""

    name: str
    source: str
    kind: pa.DataType
    about: str
    of: "Callable[[ArrowArray], ArrowArray] | None" = None
    """None: a cast gives it."""

    def values(self, batch: pa.RecordBatch) -> "ArrowArray":
        """The column of a batch of the fact."""
        array = batch.column(self.source)
        values: ArrowArray = array.cast(self.kind) if self.of is None else self.of(array)
        return values


def fact_schema(fact: str, *, snapshots: bool = False) -> pa.Schema:
    """The declared schema of a fact, of several snapshots with their name before all else. Raises UsageError if there is none."""
    if not snapshots and fact in SNAPSHOT_FACTS:
        hint = "say snapshots=true, and load the folder that holds them"
        raise UsageError(f"the fact {fact} is what several snapshots differ in", hint=hint)
    declared = fact_named(fact, SNAPSHOT_FACTS if snapshots else None)
    return declared.schema.insert(0, SNAPSHOT) if snapshots and fact not in SNAPSHOT_FACTS else declared.schema


def declared_columns(schema: pa.Schema) -> list[SourceColumn]:
    """The columns of a fact as they are declared, in types that Spark has."""
    return [SourceColumn(field.name, field.name, _arrow_type(field.type), about(field)) for field in schema]


def source_columns(fact: str, *, snapshots: bool = False, names: str = FACT_NAMES) -> list[SourceColumn]:
    """All columns of a fact as the data source has them. Raises UsageError if there is no such fact, or it has no such names."""
    plain = {column.name: column for column in declared_columns(fact_schema(fact, snapshots=snapshots))}
    if fact != RECORDS_FACT.name:
        if names != FACT_NAMES:
            raise UsageError(f"names={names} does not apply to the fact {fact}", hint=f"it applies to {RECORDS_FACT.name}")
        return list(plain.values())
    as_stored = plain["timestamp"]
    said = "of the record; null: it has none (-1), or one that no TIMESTAMP can be"
    plain["timestamp"] = SourceColumn("timestamp", "timestamp", _TIMESTAMP, said, as_timestamps)
    plain["timestamp_ms"] = SourceColumn("timestamp_ms", "timestamp", as_stored.kind, as_stored.about)
    if names == FACT_NAMES:
        return list(plain.values())
    said = "0: CreateTime, 1: LogAppendTime, -1: NoTimestampType"
    plain["timestamp_type"] = SourceColumn("timestampType", "timestamp_type", pa.int32(), said, as_type_numbers)
    said = f"{plain['headers'].about}; what is no UTF-8 in a key is U+FFFD"
    plain["headers"] = SourceColumn("headers", "headers", _HEADERS, said, with_text_keys)
    first = [name for name in (SNAPSHOT.name,) if name in plain]
    return [plain[name] for name in dict.fromkeys((*first, *_OF_KAFKA, *plain))]


def as_timestamps(milliseconds: "ArrowArray") -> "ArrowArray":
    """Milliseconds since 1970 as times in UTC; null for -1, and for what lies outside of the years that Spark knows."""
    first, last, none = (pa.scalar(bound, pa.int64()) for bound in (_FIRST_MS, _LAST_MS, _NO_TIMESTAMP))
    inside = pc.and_(pc.greater_equal(milliseconds, first), pc.less_equal(milliseconds, last))
    is_time = pc.and_(inside, pc.not_equal(milliseconds, none))
    times: ArrowArray = (
        pc.if_else(is_time, milliseconds, pa.scalar(None, pa.int64())).cast(pa.timestamp("ms", "UTC")).cast(_TIMESTAMP)
    )
    return times


def as_type_numbers(names: "ArrowArray") -> "ArrowArray":
    """Names of timestamp types as Kafka's clients number them."""
    numbers: ArrowArray = pc.index_in(names.cast(pa.string()), pa.array(TIMESTAMP_TYPES)).fill_null(-1)
    return numbers


def with_text_keys(headers: "ArrowArray") -> "ArrowArray":
    """Headers with their keys as text, U+FFFD for what is no UTF-8 in one."""
    try:
        return headers.cast(_HEADERS)
    except pa.ArrowInvalid:  # somewhere among them, which is rare
        texts = [
            None if some is None else [{"key": header["key"].decode(errors="replace"), "value": header["value"]} for header in some]
            for some in headers.to_pylist()
        ]
        return pa.array(texts, _HEADERS)


def spark_schema(fact: str, *, snapshots: bool = False, names: str = FACT_NAMES) -> StructType:
    """Spark's schema of a fact; the meaning of each column is its comment. Raises UsageError if there is no such fact."""
    return struct_of(source_columns(fact, snapshots=snapshots, names=names))


def struct_of(columns: Sequence[SourceColumn]) -> StructType:
    """Spark's schema of these columns."""
    return StructType(
        [StructField(column.name, spark_type(column.kind), nullable=True, metadata={"comment": column.about}) for column in columns]
    )


def spark_type(kind: pa.DataType) -> DataType:
    """Spark's type for a type of the model: lists and structs of nullable parts, all numbers signed."""
    plain = _PLAIN.get(kind)
    if plain is not None:
        return plain
    if pa.types.is_list(kind):
        return ArrayType(spark_type(kind.value_type), containsNull=True)
    assert pa.types.is_struct(kind)
    return StructType([StructField(member.name, spark_type(member.type), nullable=True) for member in kind])


def arrow_of(columns: Sequence[SourceColumn]) -> pa.Schema:
    """The Arrow schema in which Spark takes these columns."""
    fields: list[ArrowField] = [pa.field(column.name, column.kind) for column in columns]
    return pa.schema(fields)


def _arrow_type(kind: pa.DataType) -> pa.DataType:
    if kind == pa.uint32():
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _arrow_type(kind.value_type)))
    if pa.types.is_struct(kind):
        parts: list[ArrowField] = [pa.field(member.name, _arrow_type(member.type)) for member in kind]
        return pa.struct(parts)
    return kind


def chosen_columns(
    fact: str, schema: StructType | pa.Schema, *, snapshots: bool = False, names: str = FACT_NAMES
) -> tuple[str, ...]:
    """The names in a schema that was asked for: a StructType, or the `pyarrow.Schema` that servers without a JVM hand over.

    Raises UsageError for a name that the fact does not have, a name that comes twice, and another type or nullability.
    """
    known = spark_schema(fact, snapshots=snapshots, names=names)
    chosen = require_known(fact, list(schema.names), known.names)
    for column in schema.fields if isinstance(schema, StructType) else ():
        declared = known[column.name].dataType
        if column.dataType != declared:
            types = f"{declared.simpleString()}, not {column.dataType.simpleString()}"
            hint = "timestamp_ms are the milliseconds" if isinstance(declared, TimestampType) else None
            raise UsageError(f"the column {column.name} of the fact {fact} is {types}", hint=hint)
        if not column.nullable:
            raise UsageError(f"the column {column.name} of the fact {fact} is nullable", hint="leave NOT NULL away")
    return chosen


def require_known(fact: str, names: list[str], known: list[str]) -> tuple[str, ...]:
    """The names, all of which are known and none of which comes twice. Raises UsageError."""
    for name in names:
        if name not in known:
            meant = did_you_mean_prefix(name, known)
            if name == SNAPSHOT.name:
                meant = "say snapshots=true to read several snapshots: "
            raise UsageError(f"the fact {fact} has no column {name!r}", hint=f"{meant}it has {', '.join(known)}")
        if names.count(name) > 1:
            raise UsageError(f"the column {name} is asked for twice")
    return tuple(names)
