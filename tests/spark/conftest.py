"""Spark clusters for the tests of a run; `tests/conftest.py` has the local session."""

from collections.abc import Iterator

import pytest

from tests.spark.cluster import NEWEST, OLDER, OLDER_VERSION, QUICK_JAVA, Cluster, Driver, cluster, driver


@pytest.fixture(scope="session", params=[pytest.param(NEWEST, id="4.3"), pytest.param(OLDER, id=OLDER_VERSION)])
def running(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of the newest or an older Spark; one session at a time uses all of it."""
    with cluster(tmp_path_factory.mktemp("cluster"), request.param) as made:
        yield made


@pytest.fixture(scope="module")
def driven(running: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """The driver of a module, which ends before the cluster."""
    assert running.workers
    with driver(tmp_path_factory.mktemp("driver"), running.python) as made:
        yield made


@pytest.fixture(scope="module", params=[pytest.param(False, id="once"), pytest.param(True, id="speculating")])
def drives(running: Cluster, driven: Driver, request: pytest.FixtureRequest) -> Driver:
    """The driver with a session on the cluster, with or without speculation; it logs lost tasks."""
    driven.session(
        running.url,
        spark_executor_memory="512m",
        spark_executor_extraJavaOptions=QUICK_JAVA,
        spark_log_level="WARN",
        spark_speculation=str(request.param).lower(),
        spark_speculation_interval="200ms",
        spark_speculation_quantile="0.5",
        spark_speculation_multiplier="1.5",
    )
    return driven
