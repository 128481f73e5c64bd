"""Keys of large compacted logs compared by Spark: read by many tasks, sorted by its shuffle, swept by as many tasks again.

That is a sort-merge join of all replicas by key: a task of the second stage gets every row of its keys, in their order.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.analysis.compaction import KeyColumn
from kafka_forensics.scanning.engine.key_tasks import KeyQuestionRun, KeyRows, read_keys, sweep_keys
from kafka_forensics.scanning.engine.serialization import pack, unpack

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from kafka_forensics.evidence.inputs import ReplicaPlan
    from kafka_forensics.scanning.folding.keys import KeyAnswer, KeyQuestion


# Tasks on Spark's workers: the small tables they are given, how often one is tried, and what is kept between them.


Batches = Iterator["pa.RecordBatch"]


def small_table(spark: "SparkSession", columns: "Mapping[str, Sequence[object]]", schema: str) -> "DataFrame":
    """A small table of the driver's as a DataFrame."""
    import pyarrow as pa

    types = {"bigint": pa.int64(), "int": pa.int32(), "binary": pa.binary(), "string": pa.string()}
    fields = [field.split() for field in schema.split(", ")]
    arrays = [pa.array(columns[name], types[kind]) for name, kind in fields]
    return spark.createDataFrame(pa.table(arrays, names=[name for name, _ in fields]))


def is_strict(attempts: int) -> bool:
    """On a worker: whether a log that cannot be read fails the task, to be tried again; the last attempt says so instead."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() + 1 < attempts


def attempts_of(spark: "SparkSession") -> int:
    """How often Spark tries a task, as far as the session tells; 1 if it does not."""
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
def kept(rows: "DataFrame") -> "Iterator[DataFrame]":
    """The rows, worked out once as long as the block lasts; on serverless compute, which keeps none, as often as they are used."""
    from pyspark.errors import PySparkException

    try:
        held = rows.persist()
    except PySparkException as error:
        if "PERSIST" not in str(error):
            raise
        logging.getLogger(__name__).warning("note: Spark keeps no rows here, so large compacted logs are read twice")
        yield rows
        return
    try:
        yield held
    finally:
        held.unpersist()


_FACTS: Final = tuple(column.name.lower() for column in KeyColumn)
_SORTED_BY: Final = ("question", "key_high", "key_low", "place", "offset")
KEY_SCHEMA: Final = ", ".join(["question bigint", *(f"{name} bigint" for name in _FACTS), "packed binary"])
"""A row of a key (`KeyColumn`) of the question; or at the end of each work, with no more, a packed `KeyWorkResult`."""


def answered_keys(
    spark: "SparkSession", common: bytes, questions: "Sequence[tuple[Sequence[ReplicaPlan], KeyQuestion]]", work_bytes: int
) -> "list[KeyAnswer]":
    """What came of the questions, in their order, each with the plans of all replicas; `common` is the packed `TaskArguments`."""
    from pyspark.sql.functions import broadcast

    under_way = KeyQuestionRun(questions)
    works = list(under_way.works(work_bytes))
    numbers = {"work": list(range(len(works))), "log": [work.log for work in works]}
    listed = small_table(spark, numbers | {"packed": [pack(work) for work in works]}, "work bigint, log bigint, packed binary")
    logs = [pack(log) for log in under_way.decided()]
    decided = small_table(spark, {"log": list(range(len(logs))), "decided": logs}, "log bigint, decided binary")
    given = (
        listed.repartitionByRange(len(works), "work")
        .join(broadcast(decided), "log")
        .select("packed", "decided")
        .mapInArrow(partial(_read, common, attempts_of(spark)), KEY_SCHEMA)
    )
    with kept(given) as rows:
        readings = rows.filter("packed is not null").select("packed").toArrow()
        under_way.take_readings(unpack(reading.as_py()) for reading in readings.column("packed"))
        tallies = (
            rows.filter("packed is null")
            .drop("packed")
            .repartitionByRange(len(works), *_SORTED_BY[:3])
            .sortWithinPartitions(*_SORTED_BY)
            .mapInArrow(partial(_sweep, under_way.comparisons()), "question bigint, packed binary")
            .toArrow()
        )
    for number, tally in zip(tallies.column("question"), tallies.column("packed"), strict=True):
        under_way.take_tally(number.as_py(), unpack(tally.as_py()))
    return under_way.answers()


def _read(common: bytes, attempts: int, batches: Batches) -> Batches:
    """On a worker: read keys."""
    strict = is_strict(attempts)
    for batch in batches:
        for work, decided in zip(batch.column("packed"), batch.column("decided"), strict=True):
            for rows in read_keys(common, work.as_py(), decided.as_py(), strict=strict):
                yield _as_batch(rows)


def _as_batch(rows: KeyRows) -> "pa.RecordBatch":
    """Rows of keys, or the one of a reading."""
    import pyarrow as pa

    count = len(rows.rows) if rows.packed is None else 1
    facts = rows.rows if rows.packed is None else np.zeros((1, len(_FACTS)), np.int64)
    columns = {name: pa.array(np.ascontiguousarray(facts[:, number])) for number, name in enumerate(_FACTS)}
    return pa.record_batch(
        {"question": pa.array(np.full(count, rows.question)), **columns, "packed": pa.array([rows.packed] * count, pa.binary())}
    )


def _sweep(comparisons: bytes, batches: Batches) -> Batches:
    """On a worker: sweep over rows in the order of their keys."""
    import pyarrow as pa

    for number, tally in sweep_keys(comparisons, _key_rows(batches)):
        yield pa.record_batch({"question": pa.array([number], pa.int64()), "packed": pa.array([tally], pa.binary())})


def _key_rows(batches: Batches) -> Iterator[KeyRows]:
    """The rows of these batches, those of a question at a time."""
    for batch in batches:
        numbers = batch.column("question").to_numpy()
        rows = np.stack([batch.column(name).to_numpy() for name in _FACTS], axis=1)
        bounds = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(numbers)]
        for start, end in pairwise(bounds):
            if start < end:
                yield KeyRows(int(numbers[start]), rows[start:end])
