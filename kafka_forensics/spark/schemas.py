"""From the model's Arrow schemas to Spark's, in one place: same names, same order, all nullable, unsigned numbers made wider."""

from typing import Any

import pyarrow as pa
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
)

from kafka_forensics.errors import UsageError, perhaps_meant
from kafka_forensics.model.schemas import SNAPSHOT, SNAPSHOT_FACTS, about, fact_named

_PLAIN: dict[Any, DataType] = {
    pa.int16(): ShortType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.uint32(): LongType(),
    pa.bool_(): BooleanType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
}


def fact_schema(fact: str, *, snapshots: bool = False) -> pa.Schema:
    """The declared schema of a fact, of several snapshots with their name before all else. Raises UsageError if there is none."""
    if not snapshots and fact in SNAPSHOT_FACTS:
        hint = "say snapshots=true, and load the folder that holds them"
        raise UsageError(f"the fact {fact} is what several snapshots differ in", hint=hint)
    found = fact_named(fact, SNAPSHOT_FACTS if snapshots else None)
    return found.schema.insert(0, SNAPSHOT) if snapshots and fact not in SNAPSHOT_FACTS else found.schema


def spark_schema(fact: str, *, snapshots: bool = False) -> StructType:
    """Spark's schema of a fact; the meaning of each column is its comment. Raises UsageError if there is no such fact."""
    fields = fact_schema(fact, snapshots=snapshots)
    return StructType(
        [StructField(field.name, spark_type(field.type), nullable=True, metadata={"comment": about(field)}) for field in fields]
    )


def spark_type(kind: pa.DataType) -> DataType:
    """Spark's type for a type of the model: lists and structs of nullable parts, all numbers signed."""
    plain = _PLAIN.get(kind)
    if plain is not None:
        return plain
    if pa.types.is_list(kind):
        return ArrayType(spark_type(kind.value_type), containsNull=True)
    assert pa.types.is_struct(kind)
    return StructType([StructField(one.name, spark_type(one.type), nullable=True) for one in kind])


def arrow_schema(fact: str, columns: tuple[str, ...], *, snapshots: bool = False) -> pa.Schema:
    """The Arrow schema in which Spark takes these columns of a fact."""
    schema = fact_schema(fact, snapshots=snapshots)
    fields: list[Any] = [pa.field(name, _arrow_type(schema.field(name).type)) for name in columns]
    return pa.schema(fields)


def _arrow_type(kind: pa.DataType) -> pa.DataType:
    if kind == pa.uint32():
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _arrow_type(kind.value_type)))
    if pa.types.is_struct(kind):
        parts: list[Any] = [pa.field(one.name, _arrow_type(one.type)) for one in kind]
        return pa.struct(parts)
    return kind


def chosen_columns(fact: str, schema: Any, *, snapshots: bool = False) -> tuple[str, ...]:
    """The names in a schema that was asked for: a StructType, or the `pyarrow.Schema` that servers without a JVM hand over.

    Raises UsageError for a name that the fact does not have, a name that comes twice, and another type or nullability.
    """
    names = _field_names(schema)
    known = spark_schema(fact, snapshots=snapshots)
    for name in names:
        if name not in known.names:
            raise _unknown(fact, name, known.names)
        if names.count(name) > 1:
            raise UsageError(f"the column {name} is asked for twice")
    for asked in schema.fields if isinstance(schema, StructType) else ():
        declared = known[asked.name].dataType
        if asked.dataType != declared:
            told = f"{declared.simpleString()}, not {asked.dataType.simpleString()}"
            raise UsageError(f"the column {asked.name} of the fact {fact} is {told}")
        if not asked.nullable:
            raise UsageError(f"the column {asked.name} of the fact {fact} is nullable", hint="leave NOT NULL away")
    return tuple(names)


def _field_names(schema: Any) -> list[str]:
    return list(schema.names)


def _unknown(fact: str, name: str, known: list[str]) -> UsageError:
    meant = perhaps_meant(name, known)
    if name == SNAPSHOT.name:
        meant = "say snapshots=true to read several snapshots: "
    return UsageError(f"the fact {fact} has no column {name!r}", hint=f"{meant}it has {', '.join(known)}")
