"""Facts as Parquet: every file declares the types of the model, however its columns were held and are encoded.

What costs the time is choosing encodings by trying them, so they are chosen here by what a column is. Whole numbers of 32 and 64
bits mostly rise from row to row (offsets, positions, times) or stay as they are: differences take a tenth of the time of a
dictionary of numbers that are all different, and a hundredth of its bytes. Words that the rows share come as Arrow dictionaries,
whose numbers are written as they are; as text each of them would be hashed again in every row.
"""

import base64
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kafka_forensics.model.arrow import plain

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from kafka_forensics.model.schemas import ArrowArray, ArrowField

COMPRESSION_LEVEL: Final = 3
_ROWS_AT_ONCE: Final = 8 << 10
"""Rows of a column between two looks whether its page is full."""
_DIFFERENCES: Final = frozenset({pa.int32(), pa.int64()})
_AS_THEY_ARE: Final = frozenset({pa.uint32(), pa.bool_()})
"""Checksums, which have no order and come once each; truths are bits anyway."""
_DECLARED: Final = b"ARROW:schema"
"""Where readers of Arrow look for the types a file was written of, in base64."""


@contextmanager
def parquet_writer(sink: Any, schema: pa.Schema) -> Iterator[Callable[[pa.Table], None]]:
    """Writes row groups to an open file that declares `schema`; their text may be held as dictionaries, alike in all of them."""
    writers: list[pq.ParquetWriter] = []

    def write(group: pa.Table) -> None:
        fields: list[ArrowField] = [field.with_type(column.type) for field, column in zip(schema, group.columns, strict=True)]
        held = pa.schema(fields)
        if not writers:
            writers.append(_writer(sink, schema, held))
        table = pa.Table.from_arrays(group.columns, schema=held).unify_dictionaries()
        writers[0].write_table(table, row_group_size=max(group.num_rows, 1))

    try:
        yield write
        if not writers:
            writers.append(_writer(sink, schema, schema))
    finally:
        for writer in writers:
            writer.close()


def _writer(sink: Any, schema: pa.Schema, held: pa.Schema) -> "pq.ParquetWriter":
    """Writes tables of the schema `held`, and says that they are of `schema`."""
    import pyarrow.parquet as pq

    others = [field for field in schema if field.type not in _DIFFERENCES | _AS_THEY_ARE]
    options: dict[str, Any] = {
        "compression": "zstd",
        "compression_level": COMPRESSION_LEVEL,
        "use_dictionary": [leaf for field in others for leaf in _leaves(field)],
        "column_encoding": {field.name: "DELTA_BINARY_PACKED" for field in schema if field.type in _DIFFERENCES},
        "write_batch_size": _ROWS_AT_ONCE,
        "store_schema": False,
    }
    writer = pq.ParquetWriter(sink, held, **options)
    declared: Any = {_DECLARED: base64.b64encode(schema.serialize().to_pybytes()), **(schema.metadata or {})}
    writer.add_key_value_metadata(declared)
    return writer


def _leaves(field: "ArrowField", above: str = "") -> Iterator[str]:
    """The names of a column's leaves, as Parquet spells them."""
    name = f"{above}{field.name}"
    if pa.types.is_list(field.type):
        yield from _leaves(field.type.value_field.with_name("element"), f"{name}.list.")
    elif pa.types.is_struct(field.type):
        for member in field.type:
            yield from _leaves(member, f"{name}.")
    else:
        yield name


def alike(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches with their text held as in the first of them."""
    first: pa.Schema | None = None
    for batch in batches:
        first = batch.schema if first is None else first
        if batch.schema.types == first.types:
            yield batch
        else:
            arrays = [_held(column, kind) for column, kind in zip(batch.columns, first.types, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=first)


def _held(array: "ArrowArray", kind: pa.DataType) -> "ArrowArray":
    if array.type == kind:
        return array
    return array.dictionary_encode() if pa.types.is_dictionary(kind) else plain(array)
