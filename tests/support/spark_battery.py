"""What any Spark must do with the data source, as one run that gives plain answers: in this process, or as a program in another.

`python -m tests.support.spark_battery MASTER|remote=URL SAMPLE` prints the answers as JSON. Nothing here is newer than Spark 4.0.
"""

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import kafka_forensics.spark

FACTS = ("batches", "records", "spans", "epoch_entries", "transactions", "findings")
"""One for each way in which facts are read."""
OF_SNAPSHOTS = ("batches", "replicas", "findings", "changes")
"""The same of several snapshots."""
MISTAKES = ("unknown_option", "unknown_fact", "missing_path", "unknown_snapshot", "unknown_column")
ELSEWHERE, OF_SNAPSHOTS_ELSEWHERE, MISTAKES_ELSEWHERE = (
    ("records", "findings"),
    ("batches", "changes"),
    ("missing_path", "unknown_column"),
)
"""Those that another Spark is asked for: what it may do otherwise is how it loads, plans and moves rows, whatever rows they are."""


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


def answers(
    spark: Any,
    sample: Path,
    facts: tuple[str, ...] = FACTS,
    of_snapshots: tuple[str, ...] = OF_SNAPSHOTS,
    mistakes: tuple[str, ...] = MISTAKES,
) -> dict[str, Any]:
    """Rows of facts, of a DataFrame that is used again, of a subset of columns, of small tasks; and words about mistakes."""
    kafka_forensics.spark.register(spark)
    kafka_forensics.spark.register(spark)

    def load(**options: object) -> Any:
        reader = spark.read.format("kafka_log")
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return reader.load(str(sample))

    tables = {fact: load(fact=fact, includePayloads=True).toArrow() for fact in facts}
    again = load(FACT="batches", topics="orders,payments")
    orders, payments = again.filter("topic = 'orders'"), again.filter("topic = 'payments'")
    parts = load(split_bytes=1 << 20).selectExpr("spark_partition_id() AS task").distinct().count()
    times = [f"{name}={path}" for name, path in snapshots_of(sample).items()]

    def load_times(**options: object) -> Any:
        reader = spark.read.format("kafka_log").options(snapshots=True)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return reader.load(times)

    of_times = (
        spark.read.format("kafka_log")
        .options(snapshots=True, order="after")
        .schema("last_offset bigint, snapshot string")
        .load(times)
    )
    some = (
        spark.read.format("kafka_log")
        .schema("last_offset bigint, topic string")
        .load([str(sample / f"broker-{n}") for n in (1, 2)])
    )
    possible = {
        "unknown_option": lambda: load(topic="orders").count(),
        "unknown_fact": lambda: load(fact="batchs").count(),
        "missing_path": lambda: spark.read.format("kafka_log").load(f"{sample}-x").count(),
        "unknown_snapshot": lambda: load_times(order="befor").count(),
        "unknown_column": lambda: spark.read.format("kafka_log").schema("ofset bigint").load(str(sample)).count(),
    }
    return {
        "version": spark.version,
        "digests": {fact: digest(table) for fact, table in tables.items()},
        "snapshots": {fact: digest(load_times(fact=fact).toArrow()) for fact in of_snapshots},
        "snapshots_in_parts": digest(load_times(split_bytes=4096).toArrow()),
        "snapshots_subset": [of_times.columns, sorted(map(tuple, of_times.groupBy("snapshot").count().collect()))],
        "again": digest(load().toArrow()),
        "union": sorted(map(tuple, orders.union(payments).groupBy("topic").count().collect())),
        "union_once_more": sorted(map(tuple, orders.union(payments).groupBy("topic").count().collect())),
        "whole_after_filter": again.count(),
        "filtered": orders.count(),
        "tasks": parts,
        "subset": [some.columns, some.count(), some.selectExpr("max(last_offset)").collect()[0][0]],
        "mistakes": {name: wrong(made) for name, made in possible.items() if name in mistakes},
    }


def main(where: str, sample: str) -> None:
    """Run as a program."""
    if where.startswith("remote="):
        spark = kafka_forensics.spark.session(remote=where.removeprefix("remote="))
    else:
        spark = kafka_forensics.spark.default_builder(where).getOrCreate()
    try:
        told = answers(spark, Path(sample).resolve(), ELSEWHERE, OF_SNAPSHOTS_ELSEWHERE, MISTAKES_ELSEWHERE)
    finally:
        spark.stop()
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
