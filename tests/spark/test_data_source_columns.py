"""Columns of records in the data source: times, payloads, the names of Spark's Kafka source, and subsets."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

import kafka_forensics as kf
from kafka_forensics.errors import UsageError
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.spark.columns import as_type_numbers, source_columns, with_text_keys
from kafka_forensics.spark.data_source import KafkaLogReader, RefusedStream
from kafka_forensics.writers.batches import RecordToWrite, fix_crc, write_batch
from tests.spark.source_facts import read, source
from tests.support.places import SAMPLES

pytestmark = pytest.mark.spark

SAMPLE = SAMPLES / "unclean-election"
KAFKA_SOURCE_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


HEADER: Any = st.fixed_dictionaries({"key": st.binary(max_size=8), "value": st.none() | st.binary(max_size=8)})


@given(st.lists(st.none() | st.lists(HEADER)), st.integers(0, 3))
def test_header_keys_of_any_bytes_are_text(headers: list[Any], first: int) -> None:
    made = with_text_keys(pa.array(headers, FACTS["records"].schema.field("headers").type)[first:])
    wanted = [
        None if record is None else [{**header, "key": header["key"].decode("utf-8", "replace")} for header in record]
        for record in headers[first:]
    ]
    assert made.to_pylist() == wanted


def test_payloads_are_null_unless_requested() -> None:
    with_payloads, _ = read(SAMPLE, "records")
    without, _ = read(SAMPLE, "records", includePayloads=False)
    made = source(SAMPLE, fact="records")
    reader = made.reader(made.schema())
    plain = pa.Table.from_batches([batch for task in reader.partitions() for batch in reader.read(task)])
    payloads = ["key", "value", "headers"]
    assert with_payloads["value"].null_count < with_payloads.num_rows
    for table in (without, plain):
        assert table.drop_columns(payloads).equals(with_payloads.drop_columns(payloads))
        assert all(table[name].null_count == table.num_rows > 0 for name in payloads)


def test_columns_of_sparks_kafka_source_come_first_with_its_types() -> None:
    columns = {column.name: column for column in source_columns("records", names="kafka")}
    assert tuple(columns)[: len(KAFKA_SOURCE_COLUMNS)] == KAFKA_SOURCE_COLUMNS
    of_snapshots = [column.name for column in source_columns("records", snapshots=True, names="kafka")]
    assert of_snapshots[: 1 + len(KAFKA_SOURCE_COLUMNS)] == ["snapshot", *KAFKA_SOURCE_COLUMNS]
    facts = {column.name for column in source_columns("records")}
    assert set(columns) == facts - {"timestamp_type"} | {"timestampType"}
    made = source(SAMPLE, fact="records", names="KAFKA", includePayloads=True)
    types = [made.schema()[name].dataType.simpleString() for name in KAFKA_SOURCE_COLUMNS]
    headers = "array<struct<key:string,value:binary>>"
    assert types == ["binary", "binary", "string", "int", "bigint", "timestamp", "int", headers]
    reader = made.reader(made.schema())
    table = pa.Table.from_batches([batch for task in reader.partitions() for batch in reader.read(task)])
    plain = kf.scan(str(SAMPLE)).facts("records", payloads=True)
    same = ["topic", "partition", "broker", "offset", "key", "value"]
    assert sorted(map(repr, table.select(same).to_pylist())) == sorted(map(repr, plain.select(same).to_pylist()))
    numbers = {"CreateTime": 0, "LogAppendTime": 1, "NoTimestampType": -1}
    assert as_type_numbers(pa.array(list(numbers))).to_pylist() == list(numbers.values())
    assert Counter(table["timestampType"].to_pylist()) == Counter(
        numbers[str(name)] for name in plain["timestamp_type"].to_pylist()
    )


def test_readers_get_only_the_requested_columns() -> None:
    made = source(SAMPLE, fact="records", columns="timestamp, topic")
    assert made.schema().names == ["timestamp", "topic"]
    reader = made.reader(made.schema())
    assert isinstance(reader, KafkaLogReader)
    assert reader._query.columns == ("timestamp", "topic")
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    assert {tuple(batch.schema.names) for batch in batches} == {("timestamp", "topic")}
    of_schema = StructType([StructField("topic", StringType()), StructField("timestamp", TimestampType())])
    by_schema = source(SAMPLE, fact="records").reader(of_schema)
    assert isinstance(by_schema, KafkaLogReader)
    assert by_schema._query.columns == ("topic", "timestamp")
    with pytest.raises(UsageError, match="the option columns and the schema name different columns"):
        source(SAMPLE, fact="records", columns="timestamp").reader(of_schema)
    with pytest.raises(UsageError, match=r"timestamp of the fact records is timestamp, not bigint$"):
        source(SAMPLE, fact="records").reader(StructType([StructField("timestamp", LongType())]))


def test_streams_and_writes_are_refused() -> None:
    made = source(SAMPLE)
    stream = made.streamReader(made.schema())
    assert isinstance(stream, RefusedStream)
    for method in (stream.initialOffset, stream.latestOffset, lambda: stream.partitions({}, {}), lambda: stream.read(None)):  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=r"^kafka_log has no readStream, because copies .*: use spark\.read$"):
            method()
    for write in (made.writer, made.streamWriter):
        with pytest.raises(UsageError, match=r"^kafka_log cannot write, because evidence is only read: "):
            write(made.schema(), overwrite=True)


def test_spark_reads_any_time(spark: SparkSession, tmp_path: Path) -> None:
    """A time that no TIMESTAMP can have, a missing one and the last possible one; and a header key that is not UTF-8."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    times = [(1 << 63) - 1, -1, 253_402_214_399_999, 1_795_233_325_689]
    with_header = [RecordToWrite(None, b"v", [("kXY", None)])]
    made = b"".join(
        fix_crc(write_batch(with_header, base_offset=offset, base_timestamp=time).replace(b"kXY", b"k\xff\xfe"))
        for offset, time in enumerate(times)
    )
    (directory / "00000000000000000000.log").write_bytes(made)
    frame = spark.read.format("kafka_log").options(fact="records", names="kafka", includePayloads="true").load(str(directory))
    assert frame.dtypes[5:7] == [("timestamp", "timestamp"), ("timestampType", "int")]
    rows = frame.select(frame.timestamp.cast("string").alias("text"), "timestamp", "headers").sort("offset").collect()
    assert [row["text"] for row in rows] == [None, None, "9999-12-30 23:59:59.999", "2026-11-21 03:55:25.689"]
    assert [row["timestamp"] is None for row in rows] == [True, True, False, False]
    assert [header["key"] for row in rows for header in row["headers"]] == ["k\ufffd\ufffd"] * len(times)


def test_spark_shows_the_refusal_of_a_stream(spark: SparkSession) -> None:
    query = spark.readStream.format("kafka_log").load(str(SAMPLE)).writeStream.format("memory").queryName("refused").start()
    with pytest.raises(StreamingQueryException, match="kafka_log has no readStream, because copies of log directories"):
        query.processAllAvailable()
