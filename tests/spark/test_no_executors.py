"""A cluster that cannot start an executor: the scan ends with one sentence."""

import pytest

from tests.spark.cluster import Cluster, Driver
from tests.support.places import SAMPLES

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


def test_a_scan_without_an_executor_ends(running: Cluster, driven: Driver) -> None:
    settings = {"spark.executor.memory": "30g", "spark.kafka_forensics.executorTimeout": "5"}
    driven.session(running.url, **settings)
    name, text, _ = driven.scan(SAMPLES / "healthy").error
    assert name == "ForensicsError"
    assert text.startswith("no executor has worked on the job (check the workers) for ")
    assert "(spark.executor.memory 30g)" in text
    assert driven.scan(SAMPLES / "healthy").error[1] == text, "the session still works"
