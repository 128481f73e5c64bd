"""The driver of Spark jobs in a process of its own: requests as lines of JSON on standard input, answers on standard output."""

import json
import os
import sys
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from kafka_forensics.cli.output_json import document
from kafka_forensics.engine.inputs import gather
from kafka_forensics.engine.local import scan_inputs as scan_here
from kafka_forensics.engine.options import ScanOptions
from kafka_forensics.errors import ForensicsError
from kafka_forensics.model.results import ScanResult
from kafka_forensics.spark.scan import USUAL, Sizes, scan_inputs
from kafka_forensics.spark.session import builder
from tests.support.spark_cluster import QUICK_JAVA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def local_document(paths: list[str], options: ScanOptions) -> str:
    """What the local engine says of the paths, as `scanned` writes it."""
    return written(scan_here(gather(paths, options), options))


def written(result: ScanResult) -> str:
    """The JSON document, with the engine's name taken out, the one thing in which engines differ."""
    return "".join(document(replace(result, engine="any")))


def _chosen(asked: dict[str, Any], kind: type) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in asked.items() if name in names}


def _options(asked: dict[str, Any]) -> ScanOptions:
    options = ScanOptions(**_chosen(asked, ScanOptions))
    return replace(options, storage_options=tuple((name, value) for name, value in options.storage_options))


def _scanned(spark: "SparkSession", asked: dict[str, Any]) -> dict[str, Any]:
    options = _options(asked)
    sizes: Sizes = replace(USUAL, **_chosen(asked, Sizes))
    result, _ = scan_inputs(spark, gather(asked["paths"], options), options, sizes)
    return {"document": written(result)}


def _started(before: "SparkSession | None", asked: dict[str, Any]) -> "SparkSession":
    if before is not None:
        before.stop()
    made = builder(asked["master"]).config("spark.driver.memory", "512m").config("spark.driver.extraJavaOptions", QUICK_JAVA)
    for name, value in asked["settings"].items():
        made = made.config(name.replace("_", "."), value)
    return made.getOrCreate()


def main() -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spark: SparkSession | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        answer: dict[str, Any] = {}
        try:
            if asked["do"] == "session":
                spark = _started(spark, asked)
            elif spark is not None:
                answer = _scanned(spark, asked)
        except (ForensicsError, PySparkException) as error:
            answer = {"error": type(error).__name__, "text": str(error), "hint": getattr(error, "hint", None)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    if spark is not None:
        spark.stop()


if __name__ == "__main__":
    main()
