"""Logs of real brokers, made once for all tests of the folder: the base of fault injections, and faults made by brokers."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from lab.broker_faults import BROKER_SETTINGS, make_broker_faults
from lab.cluster import Cluster
from lab.fault_base import make_fault_base
from lab.processes import mentioning
from lab.story import Story
from tests.support.brokers import Brokers

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No process of the laboratory is left; the command line of each of its servers contains a path below the run's folder."""
    yield
    assert mentioning(str(tmp_path_factory.getbasetemp())) == {}


@pytest.fixture(scope="session")
def real_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers and a controller of Kafka 4.3.0 on loopback."""
    with Cluster(tmp_path_factory.mktemp("cluster") / "nodes", broker_settings=BROKER_SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def real_base(real_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Brokers:
    """The base of the fault gallery written by the stopped brokers; tests must not change it."""
    root = tmp_path_factory.mktemp("real") / "base"
    return Brokers(root, make_fault_base(real_cluster, root))


@pytest.fixture(scope="session")
def broker_story(real_cluster: Cluster, real_base: Brokers, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """The brokers' history after the base is made, with the folder of its copies; the brokers are stopped."""
    assert real_base.root.is_dir()
    return make_broker_faults(real_cluster, tmp_path_factory.mktemp("copies"))


@pytest.fixture(scope="session")
def broker_copies(broker_story: Story) -> "Path":
    """The folder of the copies."""
    return broker_story.root
