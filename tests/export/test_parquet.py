"""Parquet files have the declared types for any representation in memory."""

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafka_forensics.export.facts.rows import batch_without_keys, place_columns, record_batch
from kafka_forensics.export.labels import SnapshotLabel
from kafka_forensics.export.parquet import parquet_writer, replica_tables
from kafka_forensics.model.arrow import TIME, dictionary_array, numbers, repeated_dictionary, times
from kafka_forensics.model.schemas import FACTS, ReplicaKeys

INDEX = FACTS["index_entries"]
_FIELDS: list[Any] = [
    pa.field("text", pa.string(), nullable=False),
    pa.field("number", pa.int64(), nullable=False),
    pa.field("flag", pa.bool_()),
    pa.field("time", TIME),
    pa.field("lists", pa.list_(pa.struct([pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary())]))),
]
SCHEMA = pa.schema(_FIELDS, metadata={"kf.fact": "some"})


def written_file(schema: pa.Schema, *groups: pa.Table) -> pq.ParquetFile:
    sink = io.BytesIO()
    with parquet_writer(pa.PythonFile(sink, mode="w"), schema) as write:
        for group in groups:
            write(group)
    return pq.ParquetFile(io.BytesIO(sink.getvalue()))


def default_schema() -> pa.Schema:
    """The schema read back from a file that pyarrow writes with its defaults."""
    sink = io.BytesIO()
    pq.ParquetWriter(sink, SCHEMA).close()
    return pq.ParquetFile(io.BytesIO(sink.getvalue())).schema_arrow


def row_group(texts: Any, first: int) -> pa.Table:
    count = len(texts)
    lists = pa.array([[{"key": b"k", "value": None}]] * count, SCHEMA.field("lists").type)
    flags, values = numbers(np.arange(count) > 0), np.arange(first, first + count)
    return pa.table([texts, numbers(values), flags, times(values), lists], names=SCHEMA.names)


def test_dictionary_arrays_are_declared_as_text() -> None:
    groups = [row_group(repeated_dictionary("a", 3), 0), row_group(dictionary_array(np.array([1, 0], np.int8), ("b", "c")), 3)]
    file = written_file(SCHEMA, *groups)
    assert file.schema_arrow.equals(default_schema(), check_metadata=True)
    table = file.read()
    table.validate(full=True)
    assert table["text"].to_pylist() == ["a", "a", "a", "c", "b"]
    assert table["number"].to_pylist() == [0, 1, 2, 3, 4]
    assert table["flag"].to_pylist() == [False, True, True, False, True]
    assert table["time"].cast(pa.int64()).to_pylist() == [0, 1, 2, 3, 4]
    assert table["lists"].to_pylist() == [[{"key": b"k", "value": None}]] * 5


def test_a_row_group_can_have_text_of_several_dictionaries() -> None:
    file = written_file(
        SCHEMA, pa.concat_tables([row_group(repeated_dictionary("a", 3), 0), row_group(repeated_dictionary("b", 2), 3)])
    )
    assert file.num_row_groups == 1
    assert file.read()["text"].to_pylist() == ["a", "a", "a", "b", "b"]
    statistics = file.metadata.row_group(0).column(0).statistics
    assert statistics is not None
    assert (statistics.min, statistics.max) == ("a", "b")


def test_only_increasing_numbers_are_delta_encoded() -> None:
    columns = [
        written_file(SCHEMA, row_group(repeated_dictionary("a", 3), 0)).metadata.row_group(0).column(index) for index in range(6)
    ]
    encodings = {column.path_in_schema: column.encodings for column in columns}
    assert all("DELTA_BINARY_PACKED" in encodings[name] for name in ("number", "time"))
    assert not {"DELTA_BINARY_PACKED", "RLE_DICTIONARY"} & set(encodings["flag"])
    assert all("RLE_DICTIONARY" in encodings[name] for name in ("text", "lists.list.element.key", "lists.list.element.value"))


def test_a_file_without_rows_declares_its_types() -> None:
    file = written_file(SCHEMA)
    assert file.metadata.num_rows == 0
    assert file.schema_arrow.equals(default_schema(), check_metadata=True)


@pytest.mark.parametrize("dictionary_first", [True, False])
def test_plain_and_dictionary_batches_get_the_types_of_the_first(*, dictionary_first: bool) -> None:
    place, nulls = ("dir", "file", "transaction"), [None] * 6
    plain_batch = record_batch(INDEX.file_schema, [(*place, 0, *nulls, 7)])
    dictionary_batch = batch_without_keys(INDEX, [*place_columns(place, 1), *plain_batch.columns[3:]])
    assert dictionary_batch.schema.types != plain_batch.schema.types
    batches = [dictionary_batch, plain_batch] if dictionary_first else [plain_batch, dictionary_batch]
    replicas = [(ReplicaKeys("t", 0, f"{broker}", broker or None), [batch]) for broker, batch in enumerate(batches)]
    (table,) = replica_tables(INDEX, SnapshotLabel("c", "s", "0" * 32, in_rows=True), replicas)
    assert pa.types.is_dictionary(table.schema.field("index_type").type) == dictionary_first
    row = {"cluster": "c", "snapshot": "s", "topic": "t", "partition": 0, "log_dir": "dir", "file": "file", "last_stable_offset": 7}
    assert table.num_rows == 2
    for number, found in enumerate(table.to_pylist()):
        assert found.items() >= (row | {"broker": f"{number}", "node_id": number or None}).items()
