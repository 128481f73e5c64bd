"""The Python examples of docs/spark.md work, with other paths."""

import shutil
from typing import Any

import pytest
from pyspark.sql import SparkSession

import kafka_forensics as kf
from kafka_forensics.cli.main import outcome
from lab.doc_blocks import blocks_of
from tests.support.places import SAMPLES

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

CODE = [block.body for block in blocks_of("docs/spark.md") if block.language == "python"]
SAMPLE = SAMPLES / "silent-divergence"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A place on the page → its path here."""
    folder = tmp_path_factory.mktemp("page")
    for copies in ("copies", "copies/old", "copies/new", "snapshots/2026-11-20", "snapshots/2026-11-27"):
        shutil.copytree(SAMPLE, folder / copies)
    datasets = folder / "datasets"
    assert outcome(["export", str(SAMPLE), "--output", str(datasets), "--fact", "records", "-q", "--fail-on", "none"]) == 0
    folders = {"s3://bucket/snapshots": "snapshots", "/shared/datasets": "datasets", "/copies/": "copies/"}
    return {name: f"{folder}/{place}" for name, place in folders.items()}


def test_the_examples_work(spark: SparkSession, places: dict[str, str]) -> None:
    assert len(CODE) == 4
    names: dict[str, Any] = {"spark": spark}
    for code in CODE:
        for name, place in places.items():
            assert any(name in other for other in CODE)
            code = code.replace(name, place)
        exec(code, names)  # noqa: S102 - the page's own examples
    local = kf.scan(str(SAMPLE))
    assert names["result"].verdict == local.verdict == "critical"
    assert names["batches"].count() == local.facts("batches").num_rows
    assert names["records"].count() == local.facts("records").num_rows
    assert dict(names["records"].dtypes)["broker"] == "string"
