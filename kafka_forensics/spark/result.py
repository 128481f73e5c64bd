"""The answer of a scan on Spark: what the local engine gives, and every fact as a DataFrame as well."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafka_forensics import json_document
from kafka_forensics.evidence.inputs import Inputs, gather
from kafka_forensics.evidence.options import ScanOptions, without_secrets
from kafka_forensics.export.views import ScanViews, words
from kafka_forensics.facts.facts import FactReader
from kafka_forensics.model.results import ScanResult
from kafka_forensics.model.schemas import fact_named
from kafka_forensics.spark.job import scan_inputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_HELD = ("findings", "replicas")
"""Facts that the answer itself holds; all others are read anew."""


@dataclass(slots=True, repr=False)
class SparkScanResult(ScanResult):
    """A `ScanResult` that also gives DataFrames of the session it was made with."""

    spark: "SparkSession | None" = field(default=None, repr=False, compare=False)
    options: dict[str, str] = field(default_factory=dict, repr=False, compare=False)
    """Of the data source `kafka_log`, as the scan was told; may hold secrets."""
    paths: list[str] = field(default_factory=list)

    def dataframe(self, fact: str) -> "DataFrame":
        """A fact (docs/facts.md) of everything that was scanned: findings and replicas from this answer, others read by Spark.

        Raises UsageError if there is no such fact.
        """
        name = fact_named(fact).name
        assert self.spark is not None
        if name in _HELD:
            return self.spark.createDataFrame(self.facts(name))
        reader = self.spark.read.format("kafka_log").option("fact", name).options(**self.options)
        return reader.load(self.paths)


def scanned(spark: "SparkSession", paths: list[str], options: ScanOptions, inputs: Inputs | None = None) -> SparkScanResult:
    """The scan of these paths, gathered unless they have been already.

    Raises UsageError for paths that make no sense, and where the workers cannot do the work.
    """
    paths, options = without_secrets(paths, options)
    inputs = gather(paths, options) if inputs is None else inputs
    plain, witnesses = scan_inputs(spark, inputs, options)
    told = {
        "topics": options.topic_glob,
        "partitions": None if options.partition is None else str(options.partition),
        "brokers": options.broker,
    }
    known = {name: value for name, value in told.items() if value is not None}
    known["deep"] = str(plain.totals.records_decoded).lower()  # as it was, where the size of the input decided
    known |= {"live": "true"} if options.live else {}
    known |= {} if options.copied is None else {"copied": options.copied.value}
    known |= {} if options.as_of_ms is None else {"as_of": f"{options.as_of_ms:09d}"}  # eight digits would be a date
    known |= {f"storage.{name}": value for name, value in options.storage_options}
    result = SparkScanResult(plain.engine, plain.brokers, plain.partitions, plain.findings, plain.totals, plain.incomplete)
    result.spark, result.options, result.paths = spark, known, paths
    result.views = ScanViews(FactReader(inputs, options, result, witnesses, words), json_document)
    return result
