"""The brokers whose logs faults are put into: one cluster for all tests of the folder that need it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from lab.broker_faults import BROKER_SETTINGS, make_broker_faults
from lab.cluster import Cluster
from lab.fault_base import make_fault_base
from tests.support.faults import Brokers

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session", name="real_cluster")
def three_real_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers and a controller of Kafka 4.3.0 on loopback."""
    with Cluster(tmp_path_factory.mktemp("cluster") / "nodes", broker_settings=BROKER_SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="session", name="real_base")
def base_by_real_brokers(real_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Brokers:
    """The base of the fault gallery as they wrote it; not to be changed. They are stopped."""
    root = tmp_path_factory.mktemp("real") / "base"
    return Brokers(root, make_fault_base(real_cluster, root))


@pytest.fixture(scope="session", name="broker_copies")
def copies_of_what_brokers_did(real_cluster: Cluster, real_base: Brokers, tmp_path_factory: pytest.TempPathFactory) -> "Path":
    """The folder of the copies, made once the base is; the brokers are stopped again."""
    assert real_base.root.is_dir()
    root = tmp_path_factory.mktemp("copies")
    make_broker_faults(real_cluster, root)
    return root
