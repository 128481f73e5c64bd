"""Fixtures of the export tests: partitions of a sample, and a bucket."""

import shutil
from pathlib import Path

import pytest

from tests.support.object_stores import S3Server
from tests.support.places import SAMPLES

PARTITIONS = ("audit-0", "payments-0", "__consumer_offsets-0", "__transaction_state-0")


@pytest.fixture(scope="session")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Partitions of two brokers of a sample, with rows of every fact that tasks write; no test changes them."""
    root: Path = tmp_path_factory.mktemp("copies")
    for broker in ("broker-1", "broker-2"):
        sample = SAMPLES / "unclean-election" / broker
        others = {path.name for path in sample.iterdir() if path.is_dir()} - set(PARTITIONS)
        shutil.copytree(sample, root / broker, ignore=lambda _, names, others=others: others & set(names))
    return root


@pytest.fixture
def bucket(s3: S3Server, request: pytest.FixtureRequest) -> str:
    """An empty bucket."""
    name = f"b{abs(hash(request.node.nodeid)):x}"
    s3.client().create_bucket(Bucket=name)
    return name
