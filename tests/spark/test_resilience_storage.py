"""Object storage that fails during a scan on Spark: tasks are retried, and only objects that stay unreadable are reported."""

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from tests.spark.cluster import Driver, driver
from tests.spark.driver import local_document
from tests.support.object_stores import ACCESS_KEY, INTERNAL_ERROR, SECRET_KEY, SLOW_DOWN, S3Proxy, s3_proxy, s3_server
from tests.support.places import SAMPLES

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

SAMPLE = SAMPLES / "unclean-election"
EVIDENCE = "s3://evidence/snapshots/2026-11-20"
LOG = max((SAMPLE / "broker-1").rglob("*.log"), key=lambda path: path.stat().st_size)
SNAPSHOT = max((SAMPLE / "broker-1" / "orders-0").glob("*.snapshot"))
TOPIC_ID = SAMPLE / "broker-1" / "orders-0" / "partition.metadata"
REFUSED_ONE_IN = 5
FAILED = "ERROR Executor: Exception in task"
FORBIDDEN = 403


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Proxy]:
    """A proxy of a server with two topics of the sample."""
    folder = tmp_path_factory.mktemp("evidence")
    for log_dir in SAMPLE.iterdir():
        left_out = [path.name for path in log_dir.iterdir() if path.is_dir() and path.name not in {"audit-0", "orders-0"}]
        shutil.copytree(log_dir, folder / log_dir.name, ignore=shutil.ignore_patterns(*left_out))
    with s3_server() as server, s3_proxy(server) as proxy:
        server.upload(folder, "evidence", "snapshots/2026-11-20")
        yield proxy


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver that tries a task four times and logs each failure."""
    with driver(tmp_path_factory.mktemp("driver")) as made:
        made.session("local[2,4]", spark_log_level="WARN")
        yield made


def options(storage: S3Proxy) -> tuple[tuple[str, str], ...]:
    names = {"endpoint": storage.endpoint, "access_key": ACCESS_KEY, "secret_key": SECRET_KEY, "region": "us-east-1"}
    return tuple(names.items())


@pytest.fixture(scope="module")
def local_scan(storage: S3Proxy) -> str:
    """The document of the local engine without failures."""
    storage.fault = None
    answer = local_document([EVIDENCE], ScanOptions(storage_options=options(storage)))
    assert json.loads(answer)["incomplete"] == []
    return answer


def refuse(storage: S3Proxy, file: Path, times: int) -> None:
    """Answer the first `times` GET requests for a file with 403; all requests if `times` is negative."""
    name = "/".join(file.parts[-3:])
    lock = threading.Lock()
    left = times

    def fault(method: str, path: str, _: int) -> int | None:
        nonlocal left
        with lock:
            if method != "GET" or name not in path or left == 0:
                return None
            left -= 1
            return FORBIDDEN

    storage.fault = fault


@pytest.mark.parametrize("file", [LOG, SNAPSHOT, TOPIC_ID], ids=["log", "snapshot", "topic-id"])
def test_only_objects_that_stay_unreadable_are_reported(storage: S3Proxy, scans: Driver, local_scan: str, file: Path) -> None:
    place = f"{EVIDENCE}/{'/'.join(file.parts[-3:])}"
    for times in (2, -1):
        before = len(scans.log.read_text())
        refuse(storage, file, times)
        answer = scans.scan(EVIDENCE, storage_options=options(storage)).document
        log = scans.log.read_text()[before:]
        assert f"{place}: " in log
        if times > 0:
            assert FAILED in log
            assert answer == local_scan
        else:
            assert log.count(FAILED) == 3
            assert [gap["path"] for gap in json.loads(answer)["incomplete"]] == [place]
            assert answer == local_document([EVIDENCE], ScanOptions(storage_options=options(storage)))
    assert SECRET_KEY not in scans.log.read_text()


@pytest.mark.parametrize("small_bytes", [-1, 16 << 20])
def test_a_store_that_refuses_some_requests_changes_nothing(
    storage: S3Proxy, scans: Driver, local_scan: str, small_bytes: int
) -> None:
    """Logs are folded by other tasks than those that judge, or by the same. No request is refused twice in a row."""
    just_refused: set[tuple[str, str]] = set()

    def fault(method: str, path: str, number: int) -> tuple[int, bytes] | None:
        if number % REFUSED_ONE_IN or (method, path) in just_refused:
            just_refused.discard((method, path))
            return None
        just_refused.add((method, path))
        return (SLOW_DOWN, INTERNAL_ERROR)[number % 2]

    before = len(storage.requests)
    storage.fault = fault
    assert scans.scan(EVIDENCE, storage_options=options(storage), small_bytes=small_bytes).document == local_scan
    assert sum(request.status >= 500 for request in storage.requests[before:]) >= 10


def test_an_object_shorter_than_listed_is_reported_as_unread(storage: S3Proxy, scans: Driver) -> None:
    name = "/".join(LOG.parts[-3:])

    def fault(method: str, path: str, _: int) -> bytes | None:
        return LOG.read_bytes()[:1000] if method == "GET" and name in path else None

    storage.fault = fault
    answer = scans.scan(EVIDENCE, storage_options=options(storage)).document
    assert [gap["path"] for gap in json.loads(answer)["incomplete"]] == [f"{EVIDENCE}/{name}"]
    assert answer == local_document([EVIDENCE], ScanOptions(storage_options=options(storage)))


def test_options_in_a_uri_reach_the_workers(storage: S3Proxy, scans: Driver, local_scan: str) -> None:
    storage.fault = None
    before = len(scans.log.read_text())
    uri = EVIDENCE.replace("s3://", f"s3://{ACCESS_KEY}:{SECRET_KEY}@")
    assert scans.scan(f"{uri}?endpoint={storage.endpoint}&region=us-east-1").document == local_scan
    assert SECRET_KEY not in scans.log.read_text()[before:]
