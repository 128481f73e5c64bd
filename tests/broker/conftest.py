"""The brokers whose logs faults are put into: one cluster for all tests of the folder that need it."""

from collections.abc import Iterator

import pytest

from lab.cluster import Cluster
from lab.fault_base import make_fault_base
from tests.support.faults import Brokers


@pytest.fixture(scope="session", name="real_cluster")
def three_real_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers and a controller of Kafka 4.3.0 on loopback."""
    with Cluster(tmp_path_factory.mktemp("cluster") / "nodes") as cluster:
        yield cluster


@pytest.fixture(scope="session", name="real_base")
def base_by_real_brokers(real_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Brokers:
    """The base of the fault gallery as they wrote it; not to be changed. They are stopped."""
    root = tmp_path_factory.mktemp("real") / "base"
    return Brokers(root, make_fault_base(real_cluster, root))
