"""A real cluster whose storage refuses every fifth request, or whose disk is full: the same answer, or which disk it is."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from tests.support.object_stores import ACCESS_KEY, INTERNAL_ERROR, SECRET_KEY, SLOW_DOWN, S3Proxy, s3_proxy, s3_server
from tests.support.replicas import RepeatedLogs, noisy_batch
from tests.support.spark_cluster import QUICK_JAVA, Cluster, Driver, cluster, driver
from tests.support.spark_driver import local_document

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

SAMPLE = Path(__file__).resolve().parents[2] / "sample_logs" / "unclean-election"
EVIDENCE = "s3://evidence/tonight"
EVERY = 5
"""One request of so many is refused."""
PARTITIONS = 24


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Proxy]:
    """A proxy before a server with two topics of the sample."""
    folder = tmp_path_factory.mktemp("evidence")
    for log_dir in SAMPLE.iterdir():
        left_out = [path.name for path in log_dir.iterdir() if path.is_dir() and path.name not in {"audit-0", "orders-0"}]
        shutil.copytree(log_dir, folder / log_dir.name, ignore=shutil.ignore_patterns(*left_out))
    with s3_server() as server, s3_proxy(server) as before:
        server.upload(folder, "evidence", "tonight")
        yield before


@pytest.mark.parametrize("small_bytes", [-1, pytest.param(16 << 20, marks=pytest.mark.nightly)])
def test_a_store_that_refuses_every_fifth_request_changes_nothing(drives: Driver, storage: S3Proxy, small_bytes: int) -> None:
    """Folded apart from where it is judged, or there."""
    given = {"endpoint": storage.endpoint, "access_key": ACCESS_KEY, "secret_key": SECRET_KEY, "region": "us-east-1"}
    options = ScanOptions(storage_options=tuple(given.items()))
    storage.fault = None
    judged = local_document([EVIDENCE], options)
    assert json.loads(judged)["incomplete"] == []
    before = len(storage.requests)

    def fault(method: str, path: str, number: int) -> tuple[int, bytes] | None:
        return (SLOW_DOWN, INTERNAL_ERROR)[number % 2] if number % EVERY == 0 else None

    storage.fault = fault
    assert drives.scan(EVIDENCE, storage_options=options.storage_options, small_bytes=small_bytes).document == judged
    statuses = [request.status for request in storage.requests[before:]]
    refused = sum(status >= 500 for status in statuses)
    assert refused >= 10
    assert refused * EVERY == pytest.approx(len(statuses), abs=2 * EVERY)


@contextmanager
def small_disk(where: Path, size_in_bytes: int) -> Iterator[None]:
    """A file system of a few bytes at a directory, unmounted with the block."""
    where.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_in_bytes}", "none", str(where)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(where)], check=True)


@pytest.mark.two_users  # only root may mount a disk
def test_a_full_disk_of_workers_is_named_and_one_with_room_is_enough(running: Cluster, tmp_path: Path) -> None:
    """What is shuffled is put on the disks of Spark's local directories."""
    logs = RepeatedLogs(
        tmp_path / "evidence", "orders", partitions=PARTITIONS, batches=20, batch=noisy_batch(50, 100, "zstd"), records=50
    )
    paths = [str(path) for path in logs.log_dirs]
    here = tmp_path / "cluster" / "local"
    quick = {"spark_executor_memory": "512m", "spark_executor_extraJavaOptions": QUICK_JAVA, "spark_log_level": "WARN"}
    with (
        small_disk(here, 64 << 10),
        cluster(tmp_path / "cluster", running.python) as full,
        driver(tmp_path / "driver", running.python) as asked,
    ):
        asked.session(full.url, **quick)
        name, text, _ = asked.scan(*paths, small_bytes=-1, work_bytes=1, as_the_command=True).error
        assert name == "ForensicsError"
        assert "the disk of Spark's local directories is full on the worker 127.0.0." in text
        assert full.said().count("Exception in task") >= 4, "each of four attempts met it"
        subprocess.run(["mount", "-o", f"remount,size={64 << 20}", str(here)], check=True)
        assert asked.scan(*paths, small_bytes=-1, work_bytes=1).document == local_document(paths, ScanOptions())
