"""Spark: the scan, the data source `kafka_log`, and a session that suits this machine. The one room that knows pyspark.

``scan(spark, paths)`` gives the answer of `kafka_forensics.scan`, worked out by Spark's workers, and
``scan_snapshots(spark, root)`` that of `kafka_forensics.scan_snapshots`. For facts as DataFrames,
``register(spark)`` once, then ``spark.read.format("kafka_log").option("fact", "batches").load(path)``; docs/spark.md tells the
options. Importing this package does not import pyspark.
"""

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Unpack

    from pyspark.sql import DataFrame, SparkSession

    from kafka_forensics.evidence.options import SharedOptions
    from kafka_forensics.model.changes import SnapshotsResult
    from kafka_forensics.spark.export_job import Exported
    from kafka_forensics.spark.job import SparkScanResult

__all__ = ["default_builder", "export", "read_export", "register", "scan", "scan_snapshots", "session"]


def register(spark: "SparkSession") -> None:
    """Make the data source `kafka_log` known to a session, Classic or Connect; doing so again changes nothing.

    A client that is newer than its Connect server is warned: rows may be read, and scans fail. Raises UsageError if pyspark is not
    installed or too old.
    """
    from kafka_forensics.spark.sessions import newer_than_server, require_pyspark

    require_pyspark()
    if (sentence := newer_than_server(spark)) is not None:
        logging.getLogger(__name__).warning("%s", sentence)
    from kafka_forensics.spark.data_source import KafkaLogDataSource

    spark.dataSource.register(KafkaLogDataSource)


def scan(
    spark: "SparkSession",
    paths: str | list[str],
    *,
    deep: bool | None = None,
    as_of_ms: int | None = None,
    **shared: "Unpack[SharedOptions]",
) -> "SparkScanResult":
    """Scan log directories by Spark's workers, which must be able to read the paths, as `kafka_forensics.scan` does here,
    whose other options it takes, all but `jobs`.

    The findings and summaries are the same, row for row; `dataframe(fact)` gives DataFrames. Raises UsageError for paths that make
    no sense, and where the workers cannot do the work.
    """
    register(spark)
    from kafka_forensics.evidence.options import scan_options
    from kafka_forensics.spark.job import scanned

    options = scan_options(jobs=1, deep=deep, as_of_ms=as_of_ms, **shared)
    return scanned(spark, [paths] if isinstance(paths, str) else paths, options)


def scan_snapshots(
    spark: "SparkSession",
    snapshots: "str | Sequence[str] | Mapping[str, str | Sequence[str]]",
    *,
    order: "Sequence[str]" = (),
    deep: bool | None = None,
    as_of_ms: int | None = None,
    **shared: "Unpack[SharedOptions]",
) -> "SnapshotsResult":
    """Scan several snapshots in one job, and compare each replica with itself over time, as `kafka_forensics.scan_snapshots` does.

    The changes, findings and summaries are the same, row for row; facts are read by the driver. Raises UsageError for paths that
    make no sense, and where the workers cannot do the work.
    """
    from kafka_forensics import changes_document, json_document
    from kafka_forensics.evidence.options import scan_options
    from kafka_forensics.export.views import with_views
    from kafka_forensics.questions.changes import gather_snapshots, snapshot_paths, split_storage_options
    from kafka_forensics.spark.sessions import require_pyspark

    require_pyspark()
    from kafka_forensics.spark.job import compare_inputs

    options = scan_options(jobs=1, deep=deep, as_of_ms=as_of_ms, **shared)
    given, options = split_storage_options(snapshots, options)
    notes: list[str] = []
    gathered = gather_snapshots(snapshot_paths(given, options, order, notes), options)
    compared = compare_inputs(spark, gathered, options)
    compared.result.notes[:0] = notes
    return with_views(compared, options, json_document, changes_document)


def export(
    spark: "SparkSession",
    paths: str | list[str],
    output: str,
    facts: "Sequence[str] | None" = None,
    *,
    payloads: bool = False,
    allow_incomplete: bool = False,
    deep: bool | None = None,
    as_of_ms: int | None = None,
    **shared: "Unpack[SharedOptions]",
) -> "Exported":
    """Write facts (all of them unless `facts` are named) as Parquet datasets to `output`, by Spark's workers.

    `output` is an empty or new directory that every worker sees, or a URI such as `s3://bucket/export`; docs/facts.md tells what is
    there then. Keys and values of records stay out without `payloads`. Raises UsageError for paths that make no sense, for a target
    that holds something, and where the workers cannot do the work. What cannot be read is in `result.incomplete` of the answer and
    in the dataset `incomplete`; `_INCOMPLETE` stands instead of `_SUCCESS` then, unless `allow_incomplete`.
    """
    register(spark)
    from kafka_forensics.evidence.options import scan_options
    from kafka_forensics.spark.export_job import export_paths

    options = scan_options(jobs=1, deep=deep, as_of_ms=as_of_ms, **shared)
    given = [paths] if isinstance(paths, str) else paths
    return export_paths(spark, given, output, facts, options, payloads=payloads, allow_incomplete=allow_incomplete)


def read_export(spark: "SparkSession", output: str, fact: str) -> "DataFrame":
    """A fact of an export at `output`, a path or URI as Spark has them, with the columns and types that are declared for it.

    Spark itself guesses the types of `topic` and `broker` from the names of directories: broker 1 is a number then, and a topic
    called 2024-01-01 a date. Raises UsageError if there is no such fact.
    """
    from kafka_forensics.model.schemas import fact_named
    from kafka_forensics.spark.sessions import require_pyspark

    require_pyspark()
    from kafka_forensics.spark.columns import declared_columns, struct_of

    columns = declared_columns(fact_named(fact).schema)
    frame = spark.read.schema(struct_of(columns)).parquet(f"{output.rstrip('/')}/{fact}")
    return frame.select([column.name for column in columns])


def default_builder(master: str = "local[*]") -> "SparkSession.Builder":
    """A builder of a session that logs errors alone, on this machine's loopback address, whose workers run this very Python.

    The environment variables `PYSPARK_PYTHON` and `PYSPARK_DRIVER_PYTHON` are set unless they are already; whatever is configured
    on the builder afterwards wins. Raises UsageError if pyspark or Java is not there.
    """
    from kafka_forensics.spark.sessions import builder

    return builder(master)


def session(master: str = "local[*]", *, remote: str | None = None) -> "SparkSession":
    """The running session if there is one, else one of `default_builder`, or of the Connect server `remote` (`sc://host:port`).

    The data source is registered. Raises UsageError if pyspark or Java is not there.
    """
    from kafka_forensics.spark.sessions import connected, started

    spark = started(master) if remote is None else connected(remote)
    register(spark)
    return spark
