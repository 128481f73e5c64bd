"""Reading facts of a Parquet dataset with Spark: every snapshot whole, or an error that says what is missing."""

import json
from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql.functions import lit
from pyspark.sql.types import StringType, StructField, StructType

from kafka_forensics.errors import IncompleteError, UsageError
from kafka_forensics.export.labels import LABELS, SnapshotLabel
from kafka_forensics.export.target import MANIFEST
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.schemas import Fact
from kafka_forensics.spark.columns import declared_columns, spark_struct
from kafka_forensics.spark.watching import collected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FINISHED: Final = "cluster=*/snapshot=*"
_ANY: Final = "cluster=*/{snapshot=,_unfinished-}*"
"""Directories of snapshots, and those that killed runs left."""


def read_fact(spark: "SparkSession", output: str, fact: Fact, *, allow_incomplete: bool) -> "DataFrame":
    """The rows of a fact in all snapshots of the dataset at `output`: `cluster`, `snapshot`, and the declared columns.

    Raises UsageError if no snapshot has the fact, and IncompleteError as `spark.read_export` says.
    """
    manifests = _manifests(spark, output)
    if not manifests and not allow_incomplete:
        reason = (
            f"no finished snapshot: there is no {_FINISHED}/{MANIFEST}; an export was killed, is running, or has another layout"
        )
        raise IncompleteError(output, reason)
    columns = declared_columns(fact.schema)
    try:
        frame = _frame(spark, output, spark_struct(columns), fact, manifests)
        found = {uri.rpartition("/")[2] for uri in frame.inputFiles()}
    except AnalysisException as error:
        if "PATH_NOT_FOUND" not in str(error):
            raise
        raise UsageError(f"no snapshot in {output} has the fact {fact.name}", hint="`export --fact` chooses facts") from None
    if not allow_incomplete:
        for problem in _problems(manifests, fact, found):
            raise IncompleteError(output, problem)
    return frame.select([*(label.name for label in LABELS), *(column.name for column in columns)])


def _frame(spark: "SparkSession", output: str, columns: StructType, fact: Fact, manifests: list[Json]) -> "DataFrame":
    """The rows of all snapshots; where topics are directories, one by one: Spark then takes no columns from names above FACT."""
    by_topic = f"{fact.name}/topic="
    if any(file["path"].startswith(by_topic) for manifest in manifests for file in manifest["files"]):
        frames = []
        for manifest in manifests:
            label = SnapshotLabel(manifest["cluster"], manifest["snapshot"], "", in_rows=False)
            rows = spark.read.schema(columns).parquet(f"{output}/{label.directory}/{fact.name}")
            frames.append(rows.withColumns({name: lit(value) for name, value in label.keys.items()}))
        return reduce(lambda left, right: left.unionByName(right), frames)
    labels = [StructField(label.name, StringType()) for label in LABELS]
    reader = spark.read.schema(StructType([*labels, *columns])).option("basePath", output)
    return reader.parquet(f"{output}/{_FINISHED if manifests else _ANY}/{fact.name}")


def _manifests(spark: "SparkSession", output: str) -> list[Json]:
    """The manifests of all finished snapshots."""
    try:
        texts = spark.read.text(f"{output}/{_FINISHED}/{MANIFEST}", wholetext=True)
        texts.inputFiles()
    except AnalysisException as error:
        if "PATH_NOT_FOUND" not in str(error):
            raise
        return []
    return [json.loads(str(text)) for text in collected(texts, "read manifests").column(0).to_pylist()]


def _problems(manifests: list[Json], fact: Fact, found: set[str]) -> Iterator[str]:
    """What is not whole about the fact's files with the names `found`."""
    listed: set[str] = set()
    for manifest in manifests:
        name = f"snapshot {manifest['snapshot']} of {manifest['cluster']}"
        unread: list[Any] = manifest["incomplete"]
        if not manifest["is_complete"]:
            more = f" (and {len(unread) - 1} more)" if len(unread) > 1 else ""
            yield f"{name} lacks what could not be read: {unread[0]['path']}: {unread[0]['reason']}{more}"
        names = (file["path"].split("/") for file in manifest["files"])
        listed |= {name for folder, *_, name in names if folder == fact.name}
    if missing := sorted(listed - found):
        yield f"{len(missing):,} files of {fact.name} are missing, such as {missing[0]}"
    if others := sorted(found - listed):
        yield f"{len(others):,} files of {fact.name} are in no manifest, such as {others[0]}: a run has not finished"
