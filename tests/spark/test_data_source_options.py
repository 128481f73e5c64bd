"""Options of the data source, and the errors for invalid ones. No JVM runs here."""

import json
import pkgutil
from pathlib import Path
from types import FunctionType

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

import kafka_forensics as kf
from kafka_forensics import spark
from kafka_forensics.errors import PathMissingError, UsageError
from kafka_forensics.export.facts.splits import decode
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.spark.columns import requested_columns, spark_schema
from kafka_forensics.spark.data_source import FactTask, KafkaLogReader, parse_options
from tests.spark.source_facts import arrow_schema, read, rows, source
from tests.support.places import SAMPLES

HEALTHY = SAMPLES / "healthy"


def test_option_names_have_any_case_and_values_any_usual_form() -> None:
    options = {
        "PATH": str(HEALTHY),
        "Topics": "orders, pay*",
        "partitions": "0,2-4",
        "brokers": "1,b",
        "OFFSET_FROM": "10",
        "timestamp_from": "2026-11-20T08:30:00Z",
        "timestamp_to": "1800000000000",
        "on_corrupt": "STRICT",
        "split_bytes": "64m",
        "payloads": "False",
        "storage.Endpoint": "localhost:9",
        "storage.secret_key": "hidden",
    }
    parsed = parse_options(options)
    query = parsed.query
    assert (query.fact, query.topics) == ("batches", ("orders", "pay*"))
    assert (query.partitions, query.brokers) == (((0, 0), (2, 4)), ("1", "b"))
    assert (query.offset_from, query.offset_to) == (10, None)
    assert (query.timestamp_from, query.timestamp_to) == (1795163400000, 1800000000000)
    assert (query.strict, query.split_bytes, query.payloads) == (True, 64 << 20, False)
    assert parsed.storage == (("endpoint", "localhost:9"), ("secret_key", "hidden"))
    assert "hidden" not in repr(parsed)


def test_facts_of_a_scan_take_the_options_of_a_scan() -> None:
    path = SAMPLES / "unclean-election"
    options = {"live": "TRUE", "deep": "false", "as_of": "2030-03-17T17:46:40Z"}
    query = parse_options({"path": str(path), **options}).query
    assert (query.live, query.deep, query.as_of_ms) == (True, False, 1_900_000_000_000)
    assert parse_options({"path": str(path), "as_of": "019000000"}).query.as_of_ms == 19_000_000
    result = kf.scan(str(path), deep=query.deep, live=query.live, as_of_ms=query.as_of_ms)
    for fact in ("transactions", "findings"):
        assert rows(read(path, fact, **options)[0]) == rows(result.facts(fact))
    assert rows(result.facts("findings")) != rows(kf.scan(str(path)).facts("findings"))


@pytest.mark.parametrize(("options", "deep"), [({}, True), ({"deep": "true"}, True), ({"deep": "false"}, False)])
def test_spans_decode_records_unless_deep_is_false(options: dict[str, str], deep: bool) -> None:
    made = source(HEALTHY, fact="spans", **options)
    tasks = made.reader(made.schema()).partitions()
    assert {decode(task.task)[1] for task in tasks if isinstance(task, FactTask)} == {deep}


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"deep": "perhaps"}, "deep is 'perhaps', which is not one of its values", "choose from true, false"),
        ({"topic": "x"}, "there is no option 'topic' of kafka_log", "did you mean topics?"),
        ({"fact": "record"}, "there is no fact 'record'", "did you mean records?"),
        ({"topics": "a,,b"}, "a name is missing", None),
        ({"partitions": "one"}, "'one' is not a number", None),
        ({"offset_from": "ten"}, "which is not an offset", None),
        ({"timestamp_from": "yesterday"}, "which is not a time", None),
        ({"payloads": "true", "includePayloads": "false"}, "payloads and includePayloads contradict each other", "give one of"),
        ({"includePayload": "true"}, "there is no option 'includepayload'", "did you mean includePayloads?"),
        ({"names": "kafka"}, "names=kafka does not apply to the fact batches", "it applies to records"),
        ({"fact": "records", "columns": "timestampType"}, "the fact records has no column 'timestampType'", None),
        ({"columns": "topic,topic"}, "the column topic is requested twice", None),
        ({"split_bytes": "12"}, "split_bytes is '12'", None),
        ({"paths": "[1]"}, "not a JSON list of texts", None),
        ({"path": "  "}, "an empty path", None),
        ({"fact": "spans", "offset_from": "1"}, "offset_from does not apply to the fact spans", None),
        ({"snapshots": "yes"}, "snapshots is 'yes', which is not one of its values", "choose from true, false"),
        ({"order": "day-9"}, "order requires snapshots, but none are read", "also set snapshots=true"),
        ({"snapshots": "true", "order": "day-9,"}, "a name is missing", "like order=a,b, or leave it out for all"),
        ({"fact": "changes"}, "the fact changes needs several snapshots", "set snapshots=true, and load the folder"),
        ({"snapshots": "true", "fact": "changes", "offset_from": "3"}, "offset_from does not apply to the fact changes", None),
        ({"fact": "findings", "on_corrupt": "strict"}, "on_corrupt=strict does not apply to the fact findings", None),
    ],
)
def test_invalid_options_are_refused(options: dict[str, str], message: str, hint: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        parse_options({"path": str(HEALTHY)} | options)
    assert message in str(caught.value)
    assert hint is None or str(caught.value.hint).startswith(hint)


def test_paths_can_be_patterns_and_have_broker_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pattern = str(HEALTHY / "broker-*")
    every = [str(HEALTHY / f"broker-{number}") for number in (1, 2, 3)]
    assert parse_options({"path": pattern}).paths == every
    assert parse_options({"paths": json.dumps([every[0], f"b={every[1]}"])}).paths == [every[0], f"b={every[1]}"]
    assert parse_options({"path": "s3://bucket/snap*/broker-1"}).paths == ["s3://bucket/snap*/broker-1"]
    with pytest.raises(PathMissingError, match="nothing matches"):
        parse_options({"path": str(HEALTHY / "nobody-*")})
    with pytest.raises(UsageError, match="no path was given"):
        parse_options({})
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PathMissingError, match=f"relative paths start at {tmp_path}"):
        source(Path("nowhere"))


@pytest.mark.parametrize("fact", FACTS)
def test_schemas_agree_with_the_model(fact: str) -> None:
    declared, made = FACTS[fact].schema, spark_schema(fact)
    assert made.names == declared.names
    assert spark_schema(fact, snapshots=True).names == ["snapshot", *made.names]
    assert all(field.nullable and field.metadata["comment"] for field in made)
    arrow = arrow_schema(fact, tuple(made.names))
    for field in declared:
        wider = str(arrow.field(field.name).type).replace("element:", "item:")
        assert str(field.type).replace(" not null", "").replace("timestamp[ms", "timestamp[us") in wider


def test_a_schema_selects_columns_in_any_order() -> None:
    schema = StructType([StructField("last_offset", LongType()), spark_schema("batches")["topic"]])
    made = source(HEALTHY).reader(schema)
    (task,) = made.partitions()
    batches = list(made.read(task))
    assert {tuple(zip(batch.schema.names, map(str, batch.schema.types), strict=True)) for batch in batches} == {
        (("last_offset", "int64"), ("topic", "string"))
    }
    assert requested_columns("batches", pa.schema([("topic", pa.string())])) == ("topic",)
    for empty in (StructType([]), pa.schema([])):
        with pytest.raises(UsageError, match="the schema has no column of the fact batches"):
            requested_columns("batches", empty)
    with pytest.raises(UsageError) as caught:
        requested_columns("batches", pa.schema([("snapshot", pa.string())]))
    assert str(caught.value.hint).startswith("set snapshots=true")
    for invalid_schema, message in (
        (StructType([StructField("offset", LongType())]), "the fact batches has no column 'offset'"),
        (StructType([StructField("last_offset", IntegerType())]), "last_offset of the fact batches is bigint, not int"),
        (StructType([StructField("last_offset", LongType(), nullable=False)]), "is nullable"),
        (StructType([StructField("topic", spark_schema("batches")["topic"].dataType)] * 2), "requested twice"),
    ):
        with pytest.raises(UsageError, match=message):
            source(HEALTHY).reader(invalid_schema)


def test_the_reader_takes_no_filters() -> None:
    """Spark 4.3 and older apply a pushed filter to later uses of a DataFrame too, which then lack rows."""
    assert "pushFilters" not in vars(KafkaLogReader)


def test_no_module_of_the_package_takes_the_name_of_a_function() -> None:
    assert {module.name for module in pkgutil.iter_modules(spark.__path__)}.isdisjoint(spark.__all__)
    assert all(isinstance(getattr(spark, name), FunctionType) for name in spark.__all__)


def test_tasks_have_only_text() -> None:
    tasks = source(HEALTHY, fact="records", split_bytes=4096).reader(spark_schema("records")).partitions()
    assert len(tasks) > 5
    assert all(list(map(type, vars(task).values())) == [str] for task in tasks if vars(task))
