"""Comparing the keys of large compacted logs by Spark, and what all tasks on its workers share: tables, attempts, caching.

Many tasks read keys, Spark's shuffle sorts them, and as many tasks compare them. This is a sort-merge join of all replicas by key:
a task of the second stage gets every row of its keys in order.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.analysis.compaction import KeyColumn
from kafka_forensics.scanning.engine.key_tasks import KeyQuestionRun, KeyRows, compare_sorted_keys, read_keys
from kafka_forensics.scanning.engine.serialization import pack, unpack
from kafka_forensics.spark.sessions import warn_once
from kafka_forensics.spark.watching import collected

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from kafka_forensics.evidence.inputs import ReplicaPlan
    from kafka_forensics.scanning.folding.keys import KeyAnswer, KeyQuestion

Batches = Iterator["pa.RecordBatch"]


@cache
def arrow_schema(schema: str) -> "pa.Schema":
    """The Arrow schema of a Spark schema, such as `number bigint, path string`."""
    import pyarrow as pa

    types: dict[str, pa.DataType] = {
        "bigint": pa.int64(),
        "int": pa.int32(),
        "binary": pa.binary(),
        "string": pa.string(),
        "boolean": pa.bool_(),
    }
    return pa.schema([(name, types[kind]) for name, kind in (column.split() for column in schema.split(", "))])


def batch_of(schema: str, columns: "Mapping[str, Sequence[object]]") -> "pa.RecordBatch":
    """A record batch with a Spark schema, from the values of its columns."""
    import pyarrow as pa

    declared = arrow_schema(schema)
    return pa.RecordBatch.from_arrays([pa.array(columns[field.name], field.type) for field in declared], schema=declared)


def small_table(spark: "SparkSession", columns: "Mapping[str, Sequence[object]]", schema: str) -> "DataFrame":
    """A DataFrame of a small table of the driver."""
    import pyarrow as pa

    return spark.createDataFrame(pa.Table.from_batches([batch_of(schema, columns)]))


def works_table(spark: "SparkSession", works: list[bytes]) -> "DataFrame":
    """A DataFrame of packed works, each in a separate task."""
    listed = small_table(spark, {"work": list(range(len(works))), "packed": works}, "work bigint, packed binary")
    return listed.repartitionByRange(max(len(works), 1), "work")


def works_of(batches: Batches) -> Iterator[bytes]:
    """On a worker: the packed works of a task."""
    for batch in batches:
        yield from (work.as_py() for work in batch.column("packed"))


def has_attempts_left(attempts: int) -> bool:
    """On a worker: whether a file that cannot be read fails the task, to be retried; the last attempt reports the file instead."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() + 1 < attempts


def max_attempts(spark: "SparkSession") -> int:
    """How often Spark tries a task; 1 if the session does not say."""
    from pyspark.errors import PySparkException

    try:
        master = str(spark.conf.get("spark.master", ""))
        if re.match(r"local(?:\[|$)", master):
            retries = re.fullmatch(r"local\[[^,]*,\s*(\d+)\s*\]", master)
            return 1 if retries is None else int(retries[1])
        return int(str(spark.conf.get("spark.task.maxFailures", "4")))
    except (PySparkException, ValueError):
        return 1


@contextmanager
def cached(rows: "DataFrame") -> "Iterator[DataFrame]":
    """The rows, computed once while the block lasts; on serverless compute, which caches none, at each use."""
    from pyspark.errors import PySparkException

    try:
        persisted = rows.persist()
    except PySparkException as error:
        if "PERSIST" not in str(error):
            raise
        warn_once(rows.sparkSession, "note: Spark cannot cache rows here, so large compacted logs are read twice")
        yield rows
        return
    try:
        yield persisted
    finally:
        persisted.unpersist()


_NUMBERS: Final = tuple(column.name.lower() for column in KeyColumn)
_SORTED_BY: Final = ("question", "key_high", "key_low", "place", "offset")
KEY_SCHEMA: Final = ", ".join(["question bigint", *(f"{name} bigint" for name in _NUMBERS), "packed binary"])
"""The numbers (`KeyColumn`) of a key of a question; or only a packed `KeyWorkResult`, at the end of each work."""
TALLY_SCHEMA: Final = "question bigint, packed binary"


def answer_key_questions(
    spark: "SparkSession", common: bytes, questions: "Sequence[tuple[Sequence[ReplicaPlan], KeyQuestion]]", work_bytes: int
) -> "list[KeyAnswer]":
    """The answers to questions, in their order, each with the plans of all replicas; `common`: packed `TaskArguments`."""
    from pyspark.sql.functions import broadcast

    under_way = KeyQuestionRun(questions)
    works = list(under_way.works(work_bytes))
    numbers = {"work": list(range(len(works))), "log": [work.log for work in works]}
    listed = small_table(spark, numbers | {"packed": [pack(work) for work in works]}, "work bigint, log bigint, packed binary")
    logs = [pack(log) for log in under_way.decided()]
    decided = small_table(spark, {"log": list(range(len(logs))), "decided": logs}, "log bigint, decided binary")
    key_rows = (
        listed.repartitionByRange(len(works), "work")
        .join(broadcast(decided), "log")
        .select("packed", "decided")
        .mapInArrow(partial(_read, common, max_attempts(spark)), KEY_SCHEMA)
    )
    with cached(key_rows) as rows:
        readings = collected(rows.filter("packed is not null").select("packed"), "read keys of compacted logs")
        under_way.take_readings(unpack(reading.as_py()) for reading in readings.column("packed"))
        comparisons = (
            rows.filter("packed is null")
            .drop("packed")
            .repartitionByRange(len(works), *_SORTED_BY[:3])
            .sortWithinPartitions(*_SORTED_BY)
            .mapInArrow(partial(_compare_keys, under_way.comparisons()), TALLY_SCHEMA)
        )
        tallies = collected(comparisons, "compare keys of compacted logs")
    for number, tally in zip(tallies.column("question"), tallies.column("packed"), strict=True):
        under_way.take_tally(number.as_py(), unpack(tally.as_py()))
    return under_way.answers()


def _read(common: bytes, attempts: int, batches: Batches) -> Batches:
    """On a worker: read keys."""
    strict = has_attempts_left(attempts)
    for batch in batches:
        for work, decided in zip(batch.column("packed"), batch.column("decided"), strict=True):
            for rows in read_keys(common, work.as_py(), decided.as_py(), strict=strict):
                yield _as_batch(rows)


def _as_batch(rows: KeyRows) -> "pa.RecordBatch":
    """Rows of keys, or the row of a `KeyWorkResult`."""
    import pyarrow as pa

    count = len(rows.rows) if rows.packed is None else 1
    numbers = rows.rows if rows.packed is None else np.zeros((1, len(_NUMBERS)), np.int64)
    columns = {name: pa.array(np.ascontiguousarray(numbers[:, column])) for column, name in enumerate(_NUMBERS)}
    return pa.record_batch(
        {"question": pa.array(np.full(count, rows.question)), **columns, "packed": pa.array([rows.packed] * count, pa.binary())}
    )


def _compare_keys(comparisons: bytes, batches: Batches) -> Batches:
    """On a worker: compare rows that are sorted by key."""
    for number, tally in compare_sorted_keys(comparisons, _key_rows(batches)):
        yield batch_of(TALLY_SCHEMA, {"question": [number], "packed": [tally]})


def _key_rows(batches: Batches) -> Iterator[KeyRows]:
    """The rows of these batches, question by question."""
    for batch in batches:
        numbers = batch.column("question").to_numpy()
        rows = np.stack([batch.column(name).to_numpy() for name in _NUMBERS], axis=1)
        bounds = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(numbers)]
        for start, end in pairwise(bounds):
            if start < end:
                yield KeyRows(int(numbers[start]), rows[start:end])
