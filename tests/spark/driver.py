"""The driver of Spark jobs as a separate process: it reads requests as lines of JSON and writes answers the same way."""

import inspect
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from msgspec import structs
from pyspark.errors import PySparkException

from kafka_forensics.errors import ForensicsError
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions, without_secrets
from kafka_forensics.export.facts.facts import FactReader
from kafka_forensics.export.json_document import document
from kafka_forensics.export.opening import SnapshotOptions
from kafka_forensics.export.tasks import Task, tasks as tasks_of_export
from kafka_forensics.model.results import ScanResult
from kafka_forensics.scanning.engine.local import scan_inputs as scan_here
from kafka_forensics.spark import export_job, job
from kafka_forensics.spark.sessions import builder, readable_spark_errors
from tests.spark.cluster import QUICK_JAVA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def local_document(paths: list[str], options: ScanOptions, meanwhile: Callable[[], None] | None = None) -> str:
    """The JSON document of the local engine; `meanwhile` runs after the files are listed and before they are read."""
    inputs = gather(paths, options)
    if meanwhile is not None:
        meanwhile()
    return document_text(scan_here(inputs, options))


def document_text(result: ScanResult) -> str:
    """The JSON document without the name of the engine, the only difference between engines."""
    return "".join(document(replace(result, engine="any")))


def _chosen(request: dict[str, Any], kind: type) -> dict[str, Any]:
    names = inspect.signature(kind).parameters
    return {name: value for name, value in request.items() if name in names}


def _options(request: dict[str, Any]) -> ScanOptions:
    options = ScanOptions(**_chosen(request, ScanOptions))
    return replace(options, storage_options=tuple((name, value) for name, value in options.storage_options))


def _scanned(spark: "SparkSession", request: dict[str, Any]) -> dict[str, Any]:
    paths, options = without_secrets(request["paths"], _options(request))
    sizes = structs.replace(job.DEFAULT_SIZES, **_chosen(request, job.TaskSizes))
    result, _ = job.scan_inputs(spark, gather(paths, options, ids_later=True), options, sizes)
    return {"document": document_text(result)}


def _exported(spark: "SparkSession", request: dict[str, Any]) -> dict[str, Any]:
    counted: Counter[str] = Counter()

    def tasks(reader: FactReader, names: Sequence[str], split_bytes: int, _cores: int) -> list[Task]:
        """As many as the size gives, however many cores there are."""
        found = tasks_of_export(reader, names, split_bytes)
        counted.update(task.fact for task in found)
        return found

    vars(export_job)["tasks"] = tasks
    sizes = _chosen(request, job.TaskSizes)
    options, snapshot = _options(request), SnapshotOptions()
    export_job.export_paths(spark, request["paths"], request["output"], request["facts"], options, snapshot, payloads=True, **sizes)
    return {"tasks": counted}


def _started(before: "SparkSession | None", request: dict[str, Any]) -> "SparkSession":
    if before is not None:
        before.stop()
    os.environ["PYSPARK_PYTHON"] = request["python"]
    made = builder(request["master"]).config("spark.driver.memory", "512m").config("spark.driver.extraJavaOptions", QUICK_JAVA)
    for name, value in request["settings"].items():
        made = made.config(name if "." in name else name.replace("_", "."), value)
    return made.getOrCreate()


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spark: SparkSession | None = None
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {}
        try:
            if request["do"] == "session":
                spark = _started(spark, request)
            elif spark is not None:
                with readable_spark_errors() if request.get("as_the_command") else nullcontext():
                    answer = (_exported if request["do"] == "export" else _scanned)(spark, request)
        except (ForensicsError, PySparkException) as error:
            answer = {"error": type(error).__name__, "text": str(error), "hint": getattr(error, "hint", None)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    if spark is not None:
        spark.stop()
