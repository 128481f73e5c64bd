"""What any Spark must do with the data source, as one run that gives plain answers: in this process, or as a program in another.

`python -m tests.spark.battery MASTER|remote=URL SAMPLE` prints the answers as JSON. Nothing here is newer than Spark 4.0.
"""

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import kafka_forensics.spark

FACTS = ("records", "spans", "epoch_entries", "transactions", "findings")
"""One for each way in which facts are read."""
ELSEWHERE = ("records", "findings")
"""Those that another Spark is asked for: what it may do otherwise is how it loads, plans and moves rows, whatever rows they are."""
OF_SNAPSHOTS = ("batches", "changes")


def snapshots_of(sample: Path) -> dict[str, str]:
    """Two snapshots by their names, of which the sample is the newer one."""
    return {"before": str(sample.parent / "healthy"), "after": str(sample)}


def digest(table: pa.Table) -> str:
    """Of the rows, whatever their order and the chunks they come in."""
    return hashlib.sha256("\n".join(sorted(map(repr, table.to_pylist()))).encode()).hexdigest()


def wrong(action: Callable[[], object]) -> str:
    """What Spark says about a mistake, without the class of the error."""
    from pyspark.errors import PySparkException

    try:
        action()
    except PySparkException as error:
        return str(error)
    return "nothing"


def answers(spark: Any, sample: Path, facts: tuple[str, ...] = FACTS) -> dict[str, Any]:
    """Rows of facts, of a DataFrame that is used again, of a subset of columns, of small tasks; and words about mistakes."""
    kafka_forensics.spark.register(spark)
    kafka_forensics.spark.register(spark)
    times = [f"{name}={path}" for name, path in snapshots_of(sample).items()]

    def load(schema: str | None = None, path: str | list[str] = str(sample), **options: object) -> Any:
        reader = spark.read.format("kafka_log").options(**{name: str(value) for name, value in options.items()})
        return (reader if schema is None else reader.schema(schema)).load(path)

    again = load(FACT="batches", topics="orders,payments")
    orders, payments = again.filter("topic = 'orders'"), again.filter("topic = 'payments'")
    some = load("last_offset bigint, topic string", [str(sample / f"broker-{n}") for n in (1, 2)])
    of_times = load("last_offset bigint, snapshot string", times, snapshots=True, order="after")
    possible = {"missing_path": lambda: load(path=f"{sample}-x").count(), "unknown_column": lambda: load("ofset bigint").count()}
    return {
        "version": spark.version,
        "digests": {fact: digest(load(fact=fact, includePayloads=True).toArrow()) for fact in facts},
        "snapshots": {fact: digest(load(path=times, snapshots=True, fact=fact).toArrow()) for fact in OF_SNAPSHOTS},
        "snapshots_subset": [of_times.columns, sorted(map(tuple, of_times.groupBy("snapshot").count().collect()))],
        "batches": digest(load().toArrow()),
        "union": sorted(map(tuple, orders.union(payments).groupBy("topic").count().collect())),
        "union_once_more": sorted(map(tuple, orders.union(payments).groupBy("topic").count().collect())),
        "whole_after_filter": again.count(),
        "tasks": load(split_bytes=1 << 20).selectExpr("spark_partition_id() AS task").distinct().count(),
        "subset": [some.columns, *map(list, some.selectExpr("count(*)", "max(last_offset)").collect())],
        "mistakes": {name: wrong(made) for name, made in possible.items()},
    }


def main(where: str, sample: str) -> None:
    if where.startswith("remote="):
        spark = kafka_forensics.spark.session(remote=where.removeprefix("remote="))
    else:
        spark = kafka_forensics.spark.default_builder(where).getOrCreate()
    try:
        told = answers(spark, Path(sample).resolve(), ELSEWHERE)
    finally:
        spark.stop()
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
