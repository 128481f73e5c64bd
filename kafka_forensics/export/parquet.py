"""Facts as Parquet: every file declares the types of the model, whatever the types and encodings of its columns in memory.

Parquet writers choose encodings by trying them, which takes most of the time, so the type of a column decides here. Integers of 32
and 64 bits mostly rise from row to row or stay the same (offsets, positions, times): their differences take a tenth of the time and
a hundredth of the bytes of a dictionary. Text that rows share comes as Arrow dictionaries, whose indices are written unchanged; as
plain text it would be hashed again in every row.
"""

import base64
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from kafka_forensics.export.facts import rows
from kafka_forensics.export.facts.rows import text
from kafka_forensics.export.labels import SnapshotLabel, dataset_schema
from kafka_forensics.model.arrow import TIME, numbers, plain, repeated_dictionary
from kafka_forensics.model.schemas import Fact, ReplicaKeys

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from kafka_forensics.model.schemas import ArrowArray, ArrowField

COMPRESSION_LEVEL: Final = 3
_ROWS_AT_ONCE: Final = 8 << 10
"""Rows of a column after which the writer checks whether the page is full."""
_DELTA_CODED: Final = frozenset({pa.int32(), pa.int64(), TIME})
_PLAIN: Final = frozenset({pa.bool_()})
"""Truth values are single bits."""
_DECLARED: Final = b"ARROW:schema"
"""The metadata in which Arrow's readers find the declared schema, in base64."""


@contextmanager
def parquet_writer(sink: Any, schema: pa.Schema) -> Iterator[Callable[[pa.Table], None]]:
    """Writes row groups to an open file that declares `schema`; text columns may be dictionaries, the same in all row groups."""
    writers: list[pq.ParquetWriter] = []

    def write(group: pa.Table) -> None:
        fields: list[ArrowField] = [field.with_type(column.type) for field, column in zip(schema, group.columns, strict=True)]
        in_memory = pa.schema(fields)
        if not writers:
            writers.append(_writer(sink, schema, in_memory))
        table = pa.Table.from_arrays(group.columns, schema=in_memory).unify_dictionaries()
        writers[0].write_table(table, row_group_size=max(group.num_rows, 1))

    try:
        yield write
        if not writers:
            writers.append(_writer(sink, schema, schema))
    finally:
        for writer in writers:
            writer.close()


def _writer(sink: Any, schema: pa.Schema, in_memory: pa.Schema) -> "pq.ParquetWriter":
    """Writes tables of the schema `in_memory` to a file that declares `schema`."""
    import pyarrow.parquet as pq

    others = [field for field in schema if field.type not in _DELTA_CODED | _PLAIN]
    options: dict[str, Any] = {
        "compression": "zstd",
        "compression_level": COMPRESSION_LEVEL,
        "use_dictionary": [leaf for field in others for leaf in _leaves(field)],
        "column_encoding": {field.name: "DELTA_BINARY_PACKED" for field in schema if field.type in _DELTA_CODED},
        "write_batch_size": _ROWS_AT_ONCE,
        "store_schema": False,
    }
    writer = pq.ParquetWriter(sink, in_memory, **options)
    declared: Any = {_DECLARED: base64.b64encode(schema.serialize().to_pybytes()), **(schema.metadata or {})}
    writer.add_key_value_metadata(declared)
    return writer


def _leaves(field: "ArrowField", prefix: str = "") -> Iterator[str]:
    """The Parquet names of a column's leaves."""
    name = f"{prefix}{field.name}"
    if pa.types.is_list(field.type):
        yield from _leaves(field.type.value_field.with_name("element"), f"{name}.list.")
    elif pa.types.is_struct(field.type):
        for member in field.type:
            yield from _leaves(member, f"{name}.")
    else:
        yield name


ReplicaRows = tuple[ReplicaKeys | None, Iterable[pa.RecordBatch]]
"""The keys of a replica, and its rows with the columns `Fact.file_schema`; None for facts that are not about replicas."""


def replica_tables(fact: Fact, label: SnapshotLabel, replicas: Iterable[ReplicaRows]) -> Iterator[pa.Table]:
    """The rows of replicas as tables in the columns of `dataset_schema`, as large as `MAX_ROWS` and `MAX_BYTES` allow.

    Every column has the same type in all tables: text is plain or a dictionary as in the first rows.
    """
    first: pa.Schema | None = None
    for group in rows.row_groups((keys, batch) for keys, batches in replicas for batch in batches):
        first = first or group[0][1].schema
        yield _table(fact, label, [keys for keys, _ in group], [_with_schema(batch, first) for _, batch in group])


def _table(fact: Fact, label: SnapshotLabel, keys_of: "list[ReplicaKeys | None]", batches: list[pa.RecordBatch]) -> pa.Table:
    """One table of the batches; the keys of each are repeated in its rows."""
    of_files = pa.Table.from_batches(batches)
    replica_of_row = numbers(np.repeat(np.arange(len(batches)), [batch.num_rows for batch in batches]))
    schema = dataset_schema(fact, label)
    columns: list[Any] = []
    for name, declared in zip(schema.names, schema.types, strict=True):
        if name in label.keys:
            columns.append(repeated_dictionary(label.keys[name], len(replica_of_row)))
        elif name in of_files.schema.names:
            column: Any = of_files.column(name)
            columns.append(column if pa.types.is_dictionary(column.type) or column.type == declared else column.cast(declared))
        else:
            values = [getattr(keys, name) for keys in keys_of]
            of_replicas = (
                pa.array([text(value) for value in values]).dictionary_encode()
                if declared == pa.string()
                else pa.array(values, declared)
            )
            columns.append(of_replicas.take(replica_of_row))
    return pa.Table.from_arrays(columns, names=schema.names)


def _with_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with text plain or as dictionaries as in `schema`."""
    if batch.schema.equals(schema):
        return batch
    arrays = [_as_type(column, arrow_type) for column, arrow_type in zip(batch.columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _as_type(array: "ArrowArray", arrow_type: pa.DataType) -> "ArrowArray":
    if array.type == arrow_type:
        return array
    return array.dictionary_encode() if pa.types.is_dictionary(arrow_type) else plain(array)
