"""Parquet files say the declared types, however their columns were held; names of their directories are safe and different."""

import io
from typing import Any
from urllib.parse import unquote_to_bytes

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from kafka_forensics.export.datasets import directory_of
from kafka_forensics.export.facts.rows import batch_without_keys, place_columns, record_batch
from kafka_forensics.export.parquet import parquet_writer, with_equal_types
from kafka_forensics.model.arrow import dictionary_array, numbers, plain, repeated_dictionary
from kafka_forensics.model.schemas import FACTS

INDEX = FACTS["index_entries"]
_FIELDS: list[Any] = [
    pa.field("word", pa.string(), nullable=False),
    pa.field("rises", pa.int64(), nullable=False),
    pa.field("crc", pa.uint32()),
    pa.field("lists", pa.list_(pa.struct([pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary())]))),
]
SCHEMA = pa.schema(_FIELDS, metadata={"kf.fact": "some"})


def written(schema: pa.Schema, *groups: pa.Table) -> pq.ParquetFile:
    sink = io.BytesIO()
    with parquet_writer(pa.PythonFile(sink, mode="w"), schema) as write:
        for group in groups:
            write(group)
    return pq.ParquetFile(io.BytesIO(sink.getvalue()))


def as_usual() -> pa.Schema:
    """What is read back where pyarrow writes text and declares it by itself."""
    sink = io.BytesIO()
    pq.ParquetWriter(sink, SCHEMA).close()
    return pq.ParquetFile(io.BytesIO(sink.getvalue())).schema_arrow


def group(words: Any, first: int) -> pa.Table:
    count = len(words)
    lists = pa.array([[{"key": b"k", "value": None}]] * count, SCHEMA.field("lists").type)
    crcs = numbers(np.arange(count, dtype=np.uint32))
    return pa.table([words, numbers(np.arange(first, first + count)), crcs, lists], names=SCHEMA.names)


def test_words_held_as_dictionaries_are_declared_as_text() -> None:
    groups = [group(repeated_dictionary("a", 3), 0), group(dictionary_array(np.array([1, 0], np.int8), ("b", "c")), 3)]
    file = written(SCHEMA, *groups)
    assert file.schema_arrow.equals(as_usual(), check_metadata=True)
    table = file.read()
    table.validate(full=True)
    assert table["word"].to_pylist() == ["a", "a", "a", "c", "b"]
    assert table["rises"].to_pylist() == [0, 1, 2, 3, 4]
    assert table["crc"].to_pylist() == [0, 1, 2, 0, 1]
    assert table["lists"].to_pylist() == [[{"key": b"k", "value": None}]] * 5


def test_a_row_group_may_hold_words_of_several_dictionaries() -> None:
    file = written(SCHEMA, pa.concat_tables([group(repeated_dictionary("a", 3), 0), group(repeated_dictionary("b", 2), 3)]))
    assert file.num_row_groups == 1
    assert file.read()["word"].to_pylist() == ["a", "a", "a", "b", "b"]
    statistics = file.metadata.row_group(0).column(0).statistics
    assert statistics is not None
    assert (statistics.min, statistics.max) == ("a", "b")


def test_numbers_that_rise_are_written_as_differences_and_others_are_not() -> None:
    columns = [written(SCHEMA, group(repeated_dictionary("a", 3), 0)).metadata.row_group(0).column(index) for index in range(5)]
    used = {column.path_in_schema: column.encodings for column in columns}
    assert "DELTA_BINARY_PACKED" in used["rises"]
    assert not {"DELTA_BINARY_PACKED", "RLE_DICTIONARY"} & set(used["crc"])
    assert all("RLE_DICTIONARY" in used[name] for name in ("word", "lists.list.element.key", "lists.list.element.value"))


def test_a_file_without_rows_declares_its_types() -> None:
    file = written(SCHEMA)
    assert file.metadata.num_rows == 0
    assert file.schema_arrow.equals(as_usual(), check_metadata=True)


@pytest.mark.parametrize("dictionary_first", [True, False])
def test_rows_held_in_two_ways_become_alike(*, dictionary_first: bool) -> None:
    place, nulls = ("dir", "file", "transaction"), [None] * 6
    plain_batch = record_batch(INDEX.own, [(*place, 0, *nulls, 7)])
    held = batch_without_keys(INDEX, [*place_columns(place, 1), *plain_batch.columns[3:]])
    assert held.schema.types != plain_batch.schema.types
    made = list(with_equal_types([held, plain_batch] if dictionary_first else [plain_batch, held]))
    assert made[0].schema == made[1].schema == (held if dictionary_first else plain_batch).schema
    assert [list(map(plain, batch.columns)) for batch in made] == [plain_batch.columns] * 2


SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-~%=")


def parts(topic: str, broker: str) -> list[str]:
    return directory_of(topic, 0, broker).split("/")


def test_ordinary_names_stand_as_they_are() -> None:
    assert directory_of("orders.v1_x-y", 12, "3") == "topic=orders.v1_x-y/partition=12/broker=3"
    assert parts("t" * 249, "1")[0] == "topic=" + "t" * 249
    assert parts("__HIVE_DEFAULT_PARTITION__", "1")[0] == "topic=%5F_HIVE_DEFAULT_PARTITION__", "not taken for null"


@pytest.mark.parametrize("name", ["../../etc", "a/b", "\x1b]0;x\x07", "=", "é" * 300, "\udcff", "", ".", "..", "%2F", "x" * 5000])
def test_hostile_names_are_one_safe_name_each(name: str) -> None:
    names = parts(name, name)
    assert len(names) == 3
    for one in names:
        assert set(one) <= SAFE
        assert len(one) <= 255


def test_long_names_that_differ_only_at_the_end_stay_apart() -> None:
    assert parts("x", "b" * 400 + "1")[2] != parts("x", "b" * 400 + "2")[2]


@given(st.text(st.characters(codec="utf-8"), max_size=20), st.text(st.characters(codec="utf-8"), max_size=20))
def test_names_decode_to_what_they_were(one: str, other: str) -> None:
    for name in (one, other):
        assert unquote_to_bytes(parts("t", name)[2].removeprefix("broker=")) == name.encode()
    assert (parts("t", one) == parts("t", other)) == (one == other)
