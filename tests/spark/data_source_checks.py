"""Exercises the data source on any supported Spark and returns JSON values, in this process or as a program in another.

`python -m tests.spark.data_source_checks MASTER|remote=URL SAMPLE` prints the values. The module uses nothing newer than Spark 4.0.
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
"""One fact per reader of facts."""
FACTS_OF_OTHER_SPARKS = ("records", "findings")
"""Facts that other Sparks read. They may differ in how they load, plan and transfer rows, which does not depend on the fact."""
OF_SNAPSHOTS = ("batches", "changes")


def snapshots_of(sample: Path) -> dict[str, str]:
    """Name → path of two snapshots; the sample is the newer one."""
    return {"before": str(sample.parent / "healthy"), "after": str(sample)}


def digest(table: pa.Table) -> str:
    """A hash of the rows in any order and any chunks."""
    return hashlib.sha256("\n".join(sorted(map(repr, table.to_pylist()))).encode()).hexdigest()


def error_text(action: Callable[[], object]) -> str:
    """The text of the Spark error that an action raises."""
    from pyspark.errors import PySparkException

    try:
        action()
    except PySparkException as error:
        return str(error)
    return "nothing"


def answers(spark: Any, sample: Path, facts: tuple[str, ...] = FACTS) -> dict[str, Any]:
    """Digests and counts of facts, of a reused DataFrame, of a subset of columns and of small tasks; texts of errors."""
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
    mistakes = {"missing_path": lambda: load(path=f"{sample}-x").count(), "unknown_column": lambda: load("ofset bigint").count()}
    spark.sql(f"CREATE TABLE checked USING kafka_log OPTIONS (path '{sample}/broker-*', fact 'batches')")
    table = digest(spark.sql("SELECT * FROM checked").toArrow())
    spark.sql("DROP TABLE checked")
    return {
        "version": spark.version,
        "table": table,
        "digests": {fact: digest(load(fact=fact, includePayloads=True).toArrow()) for fact in facts},
        "snapshots": {fact: digest(load(path=times, snapshots=True, fact=fact).toArrow()) for fact in OF_SNAPSHOTS},
        "snapshots_subset": [of_times.columns, sorted(map(tuple, of_times.groupBy("snapshot").count().collect()))],
        "batches": digest(load().toArrow()),
        "union": sorted(map(tuple, orders.union(payments).groupBy("topic").count().collect())),
        "union_once_more": sorted(map(tuple, orders.union(payments).groupBy("topic").count().collect())),
        "whole_after_filter": again.count(),
        "tasks": load(split_bytes=1 << 20).selectExpr("spark_partition_id() AS task").distinct().count(),
        "subset": [some.columns, *map(list, some.selectExpr("count(*)", "max(last_offset)").collect())],
        "mistakes": {name: error_text(action) for name, action in mistakes.items()},
    }


def main(where: str, sample: str) -> None:
    if where.startswith("remote="):
        spark = kafka_forensics.spark.session(remote=where.removeprefix("remote="))
    else:
        spark = kafka_forensics.spark.default_builder(where).getOrCreate()
    try:
        results = answers(spark, Path(sample).resolve(), FACTS_OF_OTHER_SPARKS)
    finally:
        spark.stop()
    sys.stdout.write(json.dumps(results) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
