"""Listing a store on S3: in requests that run at the same time, each repeated when it fails, or in one of everything."""

from pathlib import Path

import pytest

from kafka_forensics.errors import SourceError
from kafka_forensics.parsers.log_dir import discover
from kafka_forensics.storage.open import open_source
from kafka_forensics.storage.remote import source as remote_source, storage_options
from kafka_forensics.storage.tiered import RemoteStore, list_store
from tests.support.object_stores import ACCESS_DENIED, SLOW_DOWN, S3Proxy, S3Server, gcs_server
from tests.support.remote_stores import TieredSegment, kafka_id, put_aiven

PARTITIONS = 30


@pytest.fixture(scope="module")
def bucket(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URI of a store of Aiven's plugin with topics of two partitions, and an object with a name that is not a safe path."""
    folder = tmp_path_factory.mktemp("store")
    for number in range(PARTITIONS):
        put_aiven(folder, TieredSegment("t", kafka_id(number // 2), number % 2, kafka_id(number), number, b"1" * number))
    s3.upload(folder, "walked", "store")
    s3.client().put_object(Bucket="walked", Key=f"store/t-{kafka_id(0)}//0/{0:020d}-{kafka_id(99)}.log", Body=b"")
    return "s3://walked/store"


def sizes(store: RemoteStore) -> list[tuple[str, int, int, int]]:
    return sorted(
        (log.topic_id, log.partition, segment.start_offset, segment.objects["log"])
        for log in store.logs.values()
        for segment in log.segments.values()
    )


EXPECTED = sorted((kafka_id(number // 2), number % 2, number, number) for number in range(PARTITIONS))


@pytest.mark.usefixtures("credentials")
@pytest.mark.parametrize(("most_walked", "most_together"), [(30_000, 250_000), (30_000, 0), (3, 250_000)])
def test_every_object_is_listed(bucket: str, most_walked: int, most_together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_source, "MAX_WALKED_DIRECTORIES", most_walked)
    monkeypatch.setattr(remote_source, "LISTED_TOGETHER", most_together)
    store = list_store(open_source(bucket), "")
    assert sizes(store) == EXPECTED
    topic = f"t-{kafka_id(7)}"
    assert sizes(list_store(open_source(bucket), topic)) == [row for row in EXPECTED if row[0] == kafka_id(7)]
    assert len(sizes(list_store(open_source(f"{bucket}/{topic}"), "1"))) == 1


@pytest.mark.usefixtures("credentials")
def test_a_listing_that_fails_is_repeated_by_itself(bucket: str, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
    source = open_source(bucket)
    failed: set[str] = set()

    def fail_once(_method: str, path: str, _number: int) -> tuple[int, bytes] | None:
        if "list-type=2" not in path or path in failed:
            return None
        failed.add(path)
        return SLOW_DOWN

    proxy.requests.clear()
    proxy.fault = fail_once
    assert sizes(list_store(source, "")) == EXPECTED
    assert len(proxy.of("GET", "list-type=2")) == 2 * len(failed)


@pytest.mark.usefixtures("credentials")
def test_a_directory_that_cannot_be_listed_is_an_error(bucket: str, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
    source, refused = open_source(bucket), kafka_id(3)
    proxy.fault = lambda _method, path, _number: ACCESS_DENIED if refused in path else None
    with pytest.raises(SourceError, match="access denied") as caught:
        list_store(source, "")
    assert caught.value.path == f"t-{refused}"


def test_a_store_on_google_s_storage_is_found_and_listed(tmp_path: Path) -> None:
    for number in range(PARTITIONS):
        put_aiven(tmp_path, TieredSegment("t", kafka_id(number // 2), number % 2, kafka_id(number), number, b"1" * number))
    with gcs_server() as server:
        server.upload(tmp_path, "remote/store")
        source = open_source("gs://logs/remote", storage_options({"endpoint": server.endpoint, "anonymous": "true"}, {}))
        (directory,) = discover(source).remote_stores
        assert sizes(list_store(source, directory.path)) == EXPECTED
