"""Scans, exports and the data source `kafka_log` on Spark, and sessions for this machine; the only package that imports pyspark.

``scan(spark, paths)`` gives the result of `kafka_forensics.scan`, computed by Spark's workers, and
``scan_snapshots(spark, root)`` that of `kafka_forensics.scan_snapshots`. For facts as DataFrames,
``register(spark)`` once, then ``spark.read.format("kafka_log").option("fact", "batches").load(path)``; docs/spark.md has the
options. Importing this package does not import pyspark.
"""

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
    """Register the data source `kafka_log` with a session, Classic or Connect; a second call changes nothing.

    Logs a warning if the client is newer than its Connect server: it can read rows, but not scan. Raises UsageError if pyspark is
    not installed or too old.
    """
    from kafka_forensics.spark.sessions import newer_than_server, require_pyspark, warn_once

    require_pyspark()
    if (sentence := newer_than_server(spark)) is not None:
        warn_once(spark, sentence)
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
    """Scan log directories by Spark's workers, which must be able to read the paths; options are those of `kafka_forensics.scan`
    without `jobs`.

    Local paths may be patterns. The findings and summaries are the same, row for row; `dataframe(fact)` gives DataFrames. Raises
    UsageError for invalid paths, and if the workers cannot run tasks.
    """
    register(spark)
    from kafka_forensics.evidence.options import scan_options
    from kafka_forensics.evidence.paths import matching_paths
    from kafka_forensics.spark.job import scan_on_spark
    from kafka_forensics.spark.sessions import notes_once

    options = scan_options(jobs=1, deep=deep, as_of_ms=as_of_ms, **shared)
    with notes_once(spark):
        return scan_on_spark(spark, matching_paths([paths] if isinstance(paths, str) else paths), options)


def scan_snapshots(
    spark: "SparkSession",
    snapshots: "str | Sequence[str] | Mapping[str, str | Sequence[str]]",
    *,
    order: "Sequence[str]" = (),
    deep: bool | None = None,
    as_of_ms: int | None = None,
    **shared: "Unpack[SharedOptions]",
) -> "SnapshotsResult":
    """Scan several snapshots in one job, and compare each replica with itself over time, like `kafka_forensics.scan_snapshots`.

    The changes, findings and summaries are the same, row for row; the driver reads facts. Raises UsageError for invalid paths, and
    if the workers cannot run tasks.
    """
    from kafka_forensics import changes_document, json_document
    from kafka_forensics.evidence.options import scan_options
    from kafka_forensics.export.views import with_views
    from kafka_forensics.questions.changes import gather_snapshots, snapshot_paths, split_storage_options
    from kafka_forensics.spark.sessions import notes_once, require_pyspark

    require_pyspark()
    from kafka_forensics.spark.job import compare_inputs

    options = scan_options(jobs=1, deep=deep, as_of_ms=as_of_ms, **shared)
    inputs, options = split_storage_options(_matching_snapshots(snapshots), options)
    notes: list[str] = []
    with notes_once(spark):
        gathered = gather_snapshots(snapshot_paths(inputs, options, order, notes), options)
    compared = compare_inputs(spark, gathered, options)
    compared.result.notes[:0] = notes
    return with_views(compared, options, json_document, changes_document)


def _matching_snapshots(
    snapshots: "str | Sequence[str] | Mapping[str, str | Sequence[str]]",
) -> "list[str] | dict[str, list[str]]":
    """The snapshots with the paths that patterns match."""
    from collections.abc import Mapping

    from kafka_forensics.evidence.paths import matching_paths

    def listed(paths: "str | Sequence[str]") -> list[str]:
        return matching_paths([paths] if isinstance(paths, str) else paths)

    return {name: listed(paths) for name, paths in snapshots.items()} if isinstance(snapshots, Mapping) else listed(snapshots)


def export(
    spark: "SparkSession",
    paths: str | list[str],
    output: str,
    facts: "Sequence[str] | None" = None,
    *,
    cluster: str | None = None,
    snapshot: str | None = None,
    append: bool = False,
    payloads: bool = False,
    allow_incomplete: bool = False,
    deep: bool | None = None,
    as_of_ms: int | None = None,
    **shared: "Unpack[SharedOptions]",
) -> "Exported":
    """Write facts (None: all) as one snapshot of a Parquet dataset at `output`, by Spark's workers.

    `output` is a directory that every worker sees, or a URI such as `s3://bucket/export`, empty or new unless `append`;
    docs/datasets.md describes it. The snapshot is called `1`, and the cluster by its id, unless names are given. Without
    `payloads`, keys and values of records are null. What cannot be read is in `result.incomplete` and in the fact `incomplete`;
    `_INCOMPLETE` is written instead of `_SUCCESS` then, unless `allow_incomplete`. Raises UsageError for invalid paths, for a
    target that holds something else, and if the workers cannot run tasks.
    """
    register(spark)
    from kafka_forensics.evidence.options import scan_options
    from kafka_forensics.evidence.paths import matching_paths
    from kafka_forensics.export.opening import SnapshotOptions
    from kafka_forensics.spark.export_job import export_paths
    from kafka_forensics.spark.sessions import notes_once

    options = scan_options(jobs=1, deep=deep, as_of_ms=as_of_ms, **shared)
    listed = matching_paths([paths] if isinstance(paths, str) else paths)
    labelled = SnapshotOptions(cluster, snapshot, append)
    how = {"payloads": payloads, "allow_incomplete": allow_incomplete}
    with notes_once(spark):
        return export_paths(spark, listed, output, facts, options, labelled, **how)


def read_export(spark: "SparkSession", output: str, fact: str, *, allow_incomplete: bool = False) -> "DataFrame":
    """A fact of all snapshots of the Parquet dataset at `output`, a path or URI for Spark: `cluster`, `snapshot`, and its columns.

    Raises UsageError for an unknown fact and where there is no dataset. Raises IncompleteError if a snapshot is not finished, lacks
    input that could not be read, or has other files than its manifest says; with `allow_incomplete` the frame has what is there.
    """
    from kafka_forensics.model.schemas import fact_named
    from kafka_forensics.spark.sessions import require_pyspark

    require_pyspark()
    from kafka_forensics.spark.exports import read_fact

    return read_fact(spark, output.rstrip("/"), fact_named(fact), allow_incomplete=allow_incomplete)


def default_builder(master: str = "local[*]") -> "SparkSession.Builder":
    """A builder of a session that logs only errors, on this machine's loopback address, whose workers run this Python interpreter.

    Sets the environment variables `PYSPARK_PYTHON` and `PYSPARK_DRIVER_PYTHON` unless they are set; later configuration of the
    builder takes precedence. Raises UsageError if pyspark or Java is missing.
    """
    from kafka_forensics.spark.sessions import builder

    return builder(master)


def session(master: str = "local[*]", *, remote: str | None = None) -> "SparkSession":
    """The running session, or a new one of `default_builder` or of the Connect server `remote` (`sc://host:port`).

    The data source is registered. Raises UsageError if pyspark or Java is missing.
    """
    from kafka_forensics.spark.sessions import connected, started

    spark = started(master) if remote is None else connected(remote)
    register(spark)
    return spark
