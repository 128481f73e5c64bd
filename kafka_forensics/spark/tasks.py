"""Tasks on Spark's workers: the small tables they are given, and how often one is tried."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Batches = Iterator["pa.RecordBatch"]


def small_table(spark: "SparkSession", columns: dict[str, Any], schema: str) -> "DataFrame":
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
