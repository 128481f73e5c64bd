"""What tests of exports share: some partitions of a sample, and an S3 server."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.exports import SAMPLES
from tests.support.object_stores import S3Proxy, S3Server, s3_proxy, s3_server

PARTITIONS = ("audit-0", "payments-0", "__consumer_offsets-0", "__transaction_state-0")


@pytest.fixture(scope="session")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Partitions of two brokers of a sample that have rows of every fact that tasks write; no test changes them."""
    root: Path = tmp_path_factory.mktemp("copies")
    for broker in ("broker-1", "broker-2"):
        sample = SAMPLES / "unclean-election" / broker
        others = {path.name for path in sample.iterdir() if path.is_dir()} - set(PARTITIONS)
        shutil.copytree(sample, root / broker, ignore=lambda _, names, others=others: others & set(names))
    return root


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """One S3 server for all tests; each has a bucket of its own."""
    with s3_server() as server:
        yield server


@pytest.fixture
def bucket(s3: S3Server, request: pytest.FixtureRequest) -> str:
    """An empty bucket."""
    name = f"b{abs(hash(request.node.nodeid)):x}"
    s3.client().create_bucket(Bucket=name)
    return name


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[S3Proxy]:
    """A proxy before the server, to break some requests."""
    with s3_proxy(s3) as before:
        yield before
