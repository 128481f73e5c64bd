"""Evidence on an S3 server: listings, reads, and objects that are deleted, replaced or unreadable."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.errors import PathMissingError, SourceError, UsageError
from kafka_forensics.storage.open import Manifest, expand_patterns, open_parent, open_source
from kafka_forensics.storage.remote import errors as remote_errors
from kafka_forensics.storage.remote.options import StorageOptions, storage_options
from kafka_forensics.storage.remote.source import RemoteSource
from kafka_forensics.storage.source import EntryKind
from tests.storage.trees import LOG, assert_same_tree, walk
from tests.support.object_stores import ACCESS_DENIED, ACCESS_KEY, SECRET_KEY, S3Proxy, S3Server
from tests.support.segments import segment_file

MIB = 1 << 20
Bucket = Callable[..., str]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_errors, "PAUSES", (0.01, 0.01, 0.01))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def options_for(endpoint: str, **more: str) -> StorageOptions:
    return storage_options({"endpoint": endpoint, "access_key": ACCESS_KEY, "secret_key": SECRET_KEY} | more, {})


@pytest.fixture
def bucket(s3: S3Server, request: pytest.FixtureRequest) -> Bucket:
    """objects → the name of a new bucket that has them."""

    def make(objects: dict[str, bytes]) -> str:
        name = f"bucket-{abs(hash(request.node.name))}"
        client = s3.client()
        client.create_bucket(Bucket=name)
        for key, body in objects.items():
            client.put_object(Bucket=name, Key=key, Body=body)
        return name

    return make


def opened(uri: str, proxy: S3Proxy, **more: str) -> RemoteSource:
    source = open_source(uri, options_for(proxy.endpoint, **more))
    assert isinstance(source, RemoteSource)
    return source


def test_a_tree_on_s3_is_read_as_the_local_tree(s3: S3Server, proxy: S3Proxy, tree: Path) -> None:
    s3.upload(tree, "trees", "snapshots/a")
    source = opened("s3://trees/snapshots/a/", proxy)
    assert source.name == "s3://trees/snapshots/a"
    assert_same_tree(source, tree, reads=1)
    assert source.stat("broker-1").kind is EntryKind.DIRECTORY
    assert (source.rejected, source.problems) == ([], [])
    single_file = opened(f"s3://trees/snapshots/a/{LOG}", proxy)
    assert (single_file.list(), single_file.stat("").size_in_bytes) == ([], (tree / LOG).stat().st_size)
    assert [entry.name for entry in open_parent(single_file).list()] == sorted(path.name for path in (tree / LOG).parent.iterdir())


@pytest.mark.parametrize("log_dir_files", [(), ("a/meta.properties",)], ids=["folder", "log-directory"])
def test_keys_that_are_no_safe_paths_are_rejected(bucket: Bucket, proxy: S3Proxy, log_dir_files: tuple[str, ...]) -> None:
    unusual = ["a/ x %41\x01?", "a/ü", "a/dir/"]
    unsafe = ["a//b", "a/../c", "a/./d", "../e"]
    objects = [*unusual, *unsafe, *log_dir_files, "a/both", "a/both/inner", "a/both//deep", "a/dir/../up"]
    name = bucket({key: b"" if key.endswith("/") else b"1" for key in objects})
    source = opened(f"s3://{name}", proxy)
    entries = {entry.path: entry.kind for entry in walk(source)}
    assert entries == {
        "a": EntryKind.DIRECTORY,
        "a/ x %41\x01?": EntryKind.FILE,
        "a/ü": EntryKind.FILE,
        "a/dir": EntryKind.DIRECTORY,
        "a/both": EntryKind.DIRECTORY,
        "a/both/inner": EntryKind.FILE,
    } | dict.fromkeys(log_dir_files, EntryKind.FILE)
    assert sorted(source.rejected) == ["..", "a/.", "a/..", "a//", "a/both", "a/both//", "a/dir/.."]
    with source.open("a/ x %41\x01?") as file:
        assert file.read_at(0, 9) == b"1"
    for path in ("a/../c", "../e", "a//b", "a/./d", "nothing", "a"):
        with pytest.raises(SourceError):
            source.open(path)


@pytest.fixture
def many(bucket: Bucket) -> str:
    """The URI of a log directory with forty partitions and a nested directory."""
    partitions = {f"broker/t-{number}/{segment_file(0)}": b"1" * number for number in range(40)}
    return f"s3://{bucket(partitions | {'broker/meta.properties': b'version=1', 'broker/other/deep/er': b'2'})}"


def test_directories_are_listed_one_by_one_if_a_recursive_listing_fails(many: str, proxy: S3Proxy) -> None:
    entries = {entry.path: entry for entry in walk(opened(many, proxy))}
    source = opened(many, proxy)

    def refuse_recursive_listings(method: str, path: str, _: int) -> tuple[int, bytes] | None:
        listed = "list-type=2" in path
        refused = (listed and "delimiter" not in path) or "prefix=broker%2Ft-7%2F" in path
        return ACCESS_DENIED if method == "GET" and refused else None

    proxy.fault = refuse_recursive_listings
    listed = source.list("broker")
    assert [entry.path for entry in listed] == sorted(path for path in entries if path.count("/") == 1)
    for entry in listed:
        if entry.path == "broker/t-7":
            with pytest.raises(SourceError, match="access denied"):
                source.list(entry.path)
        elif entry.kind is EntryKind.DIRECTORY:
            assert [below.path for below in source.list(entry.path)] == [
                path for path in sorted(entries) if path.startswith(f"{entry.path}/") and path.count("/") == 2
            ]


def test_a_missing_object_is_one_line_with_the_nearest_name(bucket: Bucket, proxy: S3Proxy) -> None:
    name = bucket({"snapshots/broker-1/x": b"1"})
    buckets = "check its name and the rights of the credentials (docs/storage.md)"
    for uri, reason, hint in (
        (f"s3://{name}/snapshots/broker-2", "no such object or directory", f"did you mean s3://{name}/snapshots/broker-1?"),
        (f"s3://{name}/other/broker-2", "no such object or directory", f"nothing is at s3://{name}/other either"),
        (f"s3://no-{name}/snapshots", f"no such bucket: no-{name}", buckets),
        (f"s3://no-{name}", "no such bucket, or no right to read it", buckets),
        (f"s3://{ACCESS_KEY}:{SECRET_KEY}@{name}/y", "no such object or directory", None),
    ):
        with pytest.raises(PathMissingError) as caught:
            opened(uri, proxy)
        assert str(caught.value) == f"{uri.replace(f'{ACCESS_KEY}:{SECRET_KEY}@', '')}: {reason}"
        assert caught.value.hint == hint


def test_an_archive_on_a_service_is_refused(bucket: Bucket, proxy: S3Proxy) -> None:
    name = bucket({"bundle.tar.gz": b"1", "broker.tar/meta.properties": b"version=1\n"})
    with pytest.raises(UsageError, match=r"bundle\.tar\.gz: archives are read only from local disks"):
        opened(f"s3://{name}/bundle.tar.gz", proxy)
    assert [entry.name for entry in opened(f"s3://{name}/broker.tar", proxy).list()] == ["meta.properties"]


def test_patterns_are_matched_level_by_level(bucket: Bucket, proxy: S3Proxy) -> None:
    name = bucket(
        {f"snapshots/2026-11-{day}/broker-{number}/x": b"1" for day in (19, 20) for number in (1, 2)} | {"snapshots/y": b""}
    )
    options = options_for(proxy.endpoint)
    found = expand_patterns(f"s3://{ACCESS_KEY}:{SECRET_KEY}@{name}/snapshots/*/broker-[1]", options)
    assert [path for path, _ in found] == [f"s3://{name}/snapshots/2026-11-{day}/broker-1" for day in (19, 20)]
    assert {given.secret_key for _, given in found if given is not None} == {SECRET_KEY}
    assert [path for path, _ in expand_patterns(f"s3://{name}/snapshots/?", options)] == [f"s3://{name}/snapshots/y"]
    with pytest.raises(PathMissingError, match="matches nothing") as caught:
        expand_patterns(f"s3://{name}/snapshots/*/broker-7*", options)
    assert caught.value.hint == f"there is 2026-11-19, 2026-11-20, y in s3://{name}/snapshots"
    assert expand_patterns("broker-*") == [("broker-*", None)]


def test_transient_errors_are_retried(bucket: Bucket, proxy: S3Proxy) -> None:
    name = bucket({"d/small": b"small", "d/large": bytes(2 * MIB)})
    failures: dict[str, int] = {}

    def twice(method: str, path: str, _number: int) -> int | None:
        key = f"{method} {path}"
        failures[key] = failures.get(key, 0) + 1
        return (500, 503)[failures[key] - 1] if failures[key] <= 2 else None

    source = opened(f"s3://{name}/d", proxy)
    proxy.fault = twice
    for entry in source.list():
        with source.open(entry.path) as file:
            assert len(file.read_at(0, 9 * MIB)) == entry.size_in_bytes
    assert min(failures.values()) == 3


@pytest.mark.parametrize(("status", "reason", "requests"), [(503, "still failing after 4 attempts", 4), (403, "access denied", 1)])
def test_permanent_errors_are_reported_with_the_next_step(
    bucket: Bucket, proxy: S3Proxy, status: int, reason: str, requests: int
) -> None:
    name = bucket({"d/file": b"1"})
    source = opened(f"s3://{name}/d", proxy)
    source.list()
    proxy.requests.clear()
    proxy.fault = lambda *_: status
    with pytest.raises(SourceError, match=f"file: {reason}") as caught:
        source.open("file")
    assert caught.value.path == "file"
    assert len(proxy.requests) == requests
    with pytest.raises(SourceError, match=f"s3://{name}/d: {reason}"):
        opened(f"s3://{name}/d", proxy)


def test_objects_deleted_or_shortened_after_they_were_listed_are_errors(s3: S3Server, bucket: Bucket, proxy: S3Proxy) -> None:
    name = bucket({f"d/{key}": bytes(2 * MIB) for key in ("gone", "shrunk", "goes", "shrinks")})
    source = opened(f"s3://{name}/d", proxy)
    source.list()
    goes, shrinks = source.open("goes"), source.open("shrinks")
    assert goes.read_at(0, 10) == shrinks.read_at(0, 10) == bytes(10)
    client: Any = s3.client()
    for key in ("gone", "goes"):
        client.delete_object(Bucket=name, Key=f"d/{key}")
    for key in ("shrunk", "shrinks"):
        client.put_object(Bucket=name, Key=f"d/{key}", Body=bytes(MIB + 5))
    with pytest.raises(SourceError, match="gone: no such object"):
        source.open("gone")
    with pytest.raises(SourceError, match="goes: no such object"):
        goes.read_at(MIB, 10)
    short = f"shorter than when it was listed: {MIB + 5} of {2 * MIB} bytes"
    with pytest.raises(SourceError, match=f"shrunk: {short}"):
        source.open("shrunk")
    for position, size in ((MIB + 100, 10), (MIB, MIB)):
        with pytest.raises(SourceError, match=f"shrinks: {short}"):
            shrinks.read_at(position, size)


def test_a_short_response_is_retried_and_then_an_error(bucket: Bucket, proxy: S3Proxy) -> None:
    name = bucket({"d/large": bytes(2 * MIB), "d/small": bytes(100)})
    source = opened(f"s3://{name}/d", proxy)
    source.list()
    proxy.fault = lambda *request: bytes(50) if request[0] == "GET" else None
    with source.open("large") as file, pytest.raises(SourceError, match="large: still failing after 4 attempts"):
        file.read_at(0, 2 * MIB)
    with pytest.raises(SourceError, match="small: still failing after 4 attempts"):
        source.open("small")


def test_the_manifest_reports_changed_objects(s3: S3Server, bucket: Bucket, proxy: S3Proxy) -> None:
    name = bucket({f"{key}/f": b"1234" for key in "abcd"})
    source = opened(f"s3://{name}", proxy)
    manifest = Manifest()
    for key in "abcd":
        source.open(f"{key}/f").close()
        manifest.record(source, source.stat(f"{key}/f"))
    assert manifest.changes() == []
    client: Any = s3.client()
    client.put_object(Bucket=name, Key="a/f", Body=b"12345")
    client.delete_object(Bucket=name, Key="b/f")
    time.sleep(1.1)  # S3 has modification times in seconds
    client.put_object(Bucket=name, Key="c/f", Body=b"4321")
    changes = {path: None if after is None else after.size_in_bytes for path, _, after in manifest.changes()}
    assert changes == {f"s3://{name}/a/f": 5, f"s3://{name}/b/f": None, f"s3://{name}/c/f": 4}
    with pytest.raises(SourceError, match="c/f: replaced since it was first read"):
        source.open("c/f")


def test_a_failed_check_is_not_reported_as_a_change(bucket: Bucket, proxy: S3Proxy, caplog: pytest.LogCaptureFixture) -> None:
    source = opened(f"s3://{bucket({'a/f': b'1234'})}", proxy)
    manifest = Manifest()
    manifest.record(source, source.stat("a/f"))
    proxy.fault = lambda *_: 500
    assert manifest.changes() == []
    assert "a: it is unknown whether it changed while it was read: still failing" in caplog.text
