"""Reading facts of a Parquet dataset with Spark: every snapshot whole, or an error that says what is missing."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql.functions import lit
from pyspark.sql.types import StringType, StructField, StructType

from kafka_forensics.errors import IncompleteError, UsageError
from kafka_forensics.export.labels import CLUSTER_DIRECTORY, LABELS, SNAPSHOT_DIRECTORY, SnapshotLabel
from kafka_forensics.export.snapshots import REPLACED, WRITTEN
from kafka_forensics.export.target import MANIFEST
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.schemas import INCOMPLETE_FACT, Fact
from kafka_forensics.spark.columns import declared_columns, spark_struct
from kafka_forensics.spark.sessions import warn_once
from kafka_forensics.spark.watching import collected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FINISHED: Final = f"{CLUSTER_DIRECTORY}*/{SNAPSHOT_DIRECTORY}*"
_LEFT: Final = f"{CLUSTER_DIRECTORY}*/{{{SNAPSHOT_DIRECTORY},{WRITTEN}}}*"
"""Directories of snapshots, and those that killed runs left unfinished."""
_NAMED: Final = f"{CLUSTER_DIRECTORY}*/{{{SNAPSHOT_DIRECTORY},{REPLACED}}}*"
"""Directories of snapshots, and earlier ones of the same name that a rerun had renamed when it was killed."""


def read_fact(spark: "SparkSession", output: str, fact: Fact, *, allow_incomplete: bool) -> "DataFrame":
    """The rows of a fact in all snapshots of the dataset at `output`: `cluster`, `snapshot`, and the declared columns.

    Raises UsageError if no snapshot has the fact, and IncompleteError as `spark.read_export` says; with `allow_incomplete` what is
    missing is a warning.
    """
    escaped = re.sub(r"([\[\]{}*?\\])", r"\\\1", output)
    manifests = _manifests(spark, escaped)
    finished = [manifest for folder, manifest in manifests if not folder.startswith(REPLACED)]
    frame, found = _read(spark, output, escaped, fact, finished)
    replaced = [manifest for folder, manifest in manifests if folder.startswith(REPLACED)]
    for problem in _problems(finished, replaced, fact, found):
        if not allow_incomplete:
            raise IncompleteError(output, problem)
        warn_once(spark, f"{output}: {problem}")
    return frame.select([*(label.name for label in LABELS), *fact.schema.names])


@contextmanager
def _may_be_missing() -> Iterator[None]:
    """A block that ends where Spark finds nothing at a path."""
    try:
        yield
    except AnalysisException as error:
        if "PATH_NOT_FOUND" not in str(error):
            raise


def _manifests(spark: "SparkSession", escaped: str) -> list[tuple[str, Json]]:
    """The names of the directories of all snapshots, with the manifests in them."""
    with _may_be_missing():
        texts = spark.read.text(f"{escaped}/{_NAMED}/{MANIFEST}", wholetext=True).select("_metadata.file_path", "value")
        texts.inputFiles()
        rows = collected(texts, "read manifests").columns
        return [(str(path).split("/")[-2], json.loads(str(text))) for path, text in zip(*rows, strict=True)]
    return []


def _read(spark: "SparkSession", output: str, escaped: str, fact: Fact, finished: list[Json]) -> "tuple[DataFrame, set[str]]":
    """The rows of a fact in the finished snapshots, or if there is none, in what killed runs left, and the names of the files.

    Where topics are directories, Spark takes no columns from the names above FACT, so snapshots are read one by one. Raises
    UsageError if no snapshot has the fact.
    """
    columns = spark_struct(declared_columns(fact.schema))
    labels = [StructField(label.name, StringType()) for label in LABELS]
    rows: list[DataFrame] = []
    with _may_be_missing():
        if fact.by_replica and any(manifest["partition_by"] for manifest in finished):
            for manifest in finished:
                if any(file["path"].startswith(f"{fact.name}/") for file in manifest["files"]):
                    label = SnapshotLabel(manifest["cluster"], manifest["snapshot"], "", in_rows=False)
                    of_snapshot = spark.read.schema(columns).parquet(f"{escaped}/{label.directory}/{fact.name}")
                    rows.append(of_snapshot.withColumns({name: lit(value) for name, value in label.keys.items()}))
            if not rows and any(fact.name in manifest["datasets"] for manifest in finished):
                return spark.createDataFrame([], StructType([*labels, *columns])), set()
        else:
            reader = spark.read.schema(StructType([*labels, *columns])).option("basePath", output)
            rows.append(reader.parquet(f"{escaped}/{_FINISHED if finished else _LEFT}/{fact.name}"))
        files = {uri.rpartition("/")[2] for frame in rows for uri in frame.inputFiles()}
        if rows:
            return reduce(lambda left, right: left.unionByName(right), rows), files
    hint = f"a dataset is a directory with {_FINISHED}/{fact.name}; `export --fact` chooses facts"
    raise UsageError(f"no snapshot in {output} has the fact {fact.name}", hint=hint)


def _problems(finished: list[Json], replaced: list[Json], fact: Fact, found: set[str]) -> Iterator[str]:
    """What is not whole about the fact's files with the names `found`."""
    if not finished:
        yield f"no snapshot is finished: there is no {_FINISHED}/{MANIFEST}"
        return
    keys = {(manifest["cluster"], manifest["snapshot"]) for manifest in finished}
    for manifest in replaced:
        if (manifest["cluster"], manifest["snapshot"]) not in keys:
            yield f"{_name(manifest)} was being replaced when the run was killed: run `export --append` again"
    listed: set[str] = set()
    for manifest in finished:
        unread: list[Any] = manifest["incomplete"]
        if unread and not manifest["allows_incomplete"] and fact.name != INCOMPLETE_FACT.name:
            more = f" (and {len(unread) - 1} more)" if len(unread) > 1 else ""
            yield f"{_name(manifest)} lacks unreadable parts: {unread[0]['path']}: {unread[0]['reason']}{more}"
        if fact.name not in manifest["datasets"]:
            yield f"{_name(manifest)} has no {fact.name}: it was exported with other facts"
        names = (file["path"].split("/") for file in manifest["files"])
        listed |= {name for folder, *_, name in names if folder == fact.name}
    if missing := sorted(listed - found):
        yield f"{len(missing):,} files of {fact.name} are missing, such as {missing[0]}"
    if others := sorted(found - listed):
        yield f"{len(others):,} files of {fact.name} are in no manifest, such as {others[0]}: a run has not finished"


def _name(manifest: Json) -> str:
    return f"snapshot {manifest['snapshot']} of cluster {manifest['cluster']}"
