"""Columns of the data source `kafka_log`, made from the model's Arrow schemas.

They have the same names and order and are nullable. With the names of Spark's source `kafka`, its columns come first, with its
types.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
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
from kafka_forensics.model.arrow import TIME
from kafka_forensics.model.batches import TIMESTAMP_TYPES
from kafka_forensics.model.schemas import RECORDS_FACT, SNAPSHOT, SNAPSHOT_FACTS, about, fact_named

if TYPE_CHECKING:
    from kafka_forensics.model.schemas import ArrowArray, ArrowField

FACT_NAMES: Final = "facts"
"""Columns have the names in docs/facts.md."""
KAFKA_NAMES: Final = "kafka"
"""Columns of records that Spark's source `kafka` also has have its names."""
NAMES: Final = (FACT_NAMES, KAFKA_NAMES)

_TIMESTAMP: Final = pa.timestamp("us", "UTC")
"""Of times on their way to Spark."""
_HEADERS: Final = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
_OF_KAFKA: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestamp_type", "headers")
"""Columns of Spark's source `kafka` in its order, by their names here."""

_PLAIN: Final[dict[pa.DataType, DataType]] = {
    pa.int16(): ShortType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.bool_(): BooleanType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    _TIMESTAMP: TimestampType(),
}


class SourceColumn(Struct, frozen=True):
    """A column of the data source with the type `kind`, which `convert` makes of the fact's column called `source`."""

    name: str
    source: str
    kind: pa.DataType
    about: str
    convert: "Callable[[ArrowArray], ArrowArray] | None" = None
    """None: a cast."""

    def values(self, batch: pa.RecordBatch) -> "ArrowArray":
        """The values of a batch of the fact."""
        array = batch.column(self.source)
        values: ArrowArray = array.cast(self.kind) if self.convert is None else self.convert(array)
        return values


def fact_schema(fact: str, *, snapshots: bool = False) -> pa.Schema:
    """The declared schema of a fact, with `snapshots` after the snapshot's name. Raises UsageError for an unknown fact."""
    if not snapshots and fact in SNAPSHOT_FACTS:
        hint = "set snapshots=true, and load the folder with the snapshots"
        raise UsageError(f"the fact {fact} needs several snapshots", hint=hint)
    declared = fact_named(fact, SNAPSHOT_FACTS if snapshots else None)
    return declared.schema.insert(0, SNAPSHOT) if snapshots and fact not in SNAPSHOT_FACTS else declared.schema


def declared_columns(schema: pa.Schema) -> list[SourceColumn]:
    """The declared columns of a fact, in types that Spark has."""
    return [SourceColumn(field.name, field.name, _arrow_type(field.type), about(field)) for field in schema]


def source_columns(fact: str, *, snapshots: bool = False, names: str = FACT_NAMES) -> list[SourceColumn]:
    """All columns of a fact in the data source. Raises UsageError for an unknown fact, and for `names` that it does not have."""
    plain = {column.name: column for column in declared_columns(fact_schema(fact, snapshots=snapshots))}
    if names == FACT_NAMES:
        return list(plain.values())
    if fact != RECORDS_FACT.name:
        raise UsageError(f"names={names} does not apply to the fact {fact}", hint=f"it applies to {RECORDS_FACT.name}")
    comment = "0: CreateTime, 1: LogAppendTime, -1: NoTimestampType"
    plain["timestamp_type"] = SourceColumn("timestampType", "timestamp_type", pa.int32(), comment, as_type_numbers)
    comment = f"{plain['headers'].about}; bytes in a key that are not UTF-8 become U+FFFD"
    plain["headers"] = SourceColumn("headers", "headers", _HEADERS, comment, with_text_keys)
    first = [name for name in (SNAPSHOT.name,) if name in plain]
    return [plain[name] for name in dict.fromkeys((*first, *_OF_KAFKA, *plain))]


def as_type_numbers(names: "ArrowArray") -> "ArrowArray":
    """Names of timestamp types as the numbers of Kafka's clients."""
    numbers: ArrowArray = pc.index_in(names.cast(pa.string()), pa.array(TIMESTAMP_TYPES)).fill_null(-1)
    return numbers


def with_text_keys(headers: "ArrowArray") -> "ArrowArray":
    """Headers with their keys as text, U+FFFD for bytes that are not UTF-8."""
    try:
        return headers.cast(_HEADERS)
    except pa.ArrowInvalid:  # rare: a key that is not UTF-8
        with_text = [
            None if row is None else [{"key": header["key"].decode(errors="replace"), "value": header["value"]} for header in row]
            for row in headers.to_pylist()
        ]
        return pa.array(with_text, _HEADERS)


def spark_schema(fact: str, *, snapshots: bool = False, names: str = FACT_NAMES) -> StructType:
    """Spark's schema of a fact; the description of each column is its comment. Raises UsageError for an unknown fact."""
    return spark_struct(source_columns(fact, snapshots=snapshots, names=names))


def spark_struct(columns: Sequence[SourceColumn]) -> StructType:
    """Spark's schema of these columns."""
    return StructType(
        [StructField(column.name, spark_type(column.kind), nullable=True, metadata={"comment": column.about}) for column in columns]
    )


def spark_type(kind: pa.DataType) -> DataType:
    """Spark's type for an Arrow type of the model; elements of lists and structs are nullable."""
    if (plain := _PLAIN.get(kind)) is not None:
        return plain
    if pa.types.is_list(kind):
        return ArrayType(spark_type(kind.value_type), containsNull=True)
    assert pa.types.is_struct(kind)
    return StructType([StructField(member.name, spark_type(member.type), nullable=True) for member in kind])


def spark_arrow_schema(columns: Sequence[SourceColumn]) -> pa.Schema:
    """The Arrow schema of batches of these columns."""
    fields: list[ArrowField] = [pa.field(column.name, column.kind) for column in columns]
    return pa.schema(fields)


def _arrow_type(kind: pa.DataType) -> pa.DataType:
    if kind == TIME:
        return _TIMESTAMP
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _arrow_type(kind.value_type)))
    if pa.types.is_struct(kind):
        parts: list[ArrowField] = [pa.field(member.name, _arrow_type(member.type)) for member in kind]
        return pa.struct(parts)
    return kind


def requested_columns(
    fact: str, schema: StructType | pa.Schema, *, snapshots: bool = False, names: str = FACT_NAMES
) -> tuple[str, ...]:
    """The names in a requested schema: a StructType, or the `pyarrow.Schema` of servers without a JVM.

    Raises UsageError for unknown and repeated names, for none, and for another type or nullability than the declared one.
    """
    if not schema.names:
        raise UsageError(f"the schema has no column of the fact {fact}", hint="to count rows, name one column")
    known = spark_schema(fact, snapshots=snapshots, names=names)
    chosen = require_known(fact, list(schema.names), known.names)
    for column in schema.fields if isinstance(schema, StructType) else ():
        declared = known[column.name].dataType
        if column.dataType != declared:
            types = f"{declared.simpleString()}, not {column.dataType.simpleString()}"
            raise UsageError(f"the column {column.name} of the fact {fact} is {types}")
        if not column.nullable:
            raise UsageError(f"the column {column.name} of the fact {fact} is nullable", hint="leave NOT NULL out")
    return chosen


def require_known(fact: str, names: list[str], known: list[str]) -> tuple[str, ...]:
    """The names. Raises UsageError for one that is not known or is repeated."""
    for name in names:
        if name not in known:
            suggestion = did_you_mean_prefix(name, known)
            if name == SNAPSHOT.name:
                suggestion = "set snapshots=true to read several snapshots: "
            raise UsageError(f"the fact {fact} has no column {name!r}", hint=f"{suggestion}it has {', '.join(known)}")
        if names.count(name) > 1:
            raise UsageError(f"the column {name} is requested twice")
    return tuple(names)
