"""An export to object storage: only complete files under their names, `_SUCCESS`, and the refusals of a directory."""

import contextlib
import os
from collections import Counter
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pytest

import kafka_forensics as kf
from kafka_forensics.cli.main import outcome
from kafka_forensics.errors import TransientError, UsageError
from kafka_forensics.export import places
from kafka_forensics.export.places import ExportPlace, join_place, open_place
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.storage.remote import errors as remote_errors
from tests.export.exports import rows
from tests.support.object_stores import ACCESS_KEY, SECRET_KEY, S3Proxy, S3Server
from tests.support.places import SAMPLES

UNCLEAN_ELECTION = SAMPLES / "unclean-election"


@pytest.fixture(autouse=True)
def _retry_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_errors, "PAUSES", (0.01, 0.01, 0.01))


def storage(s3: S3Server) -> tuple[tuple[str, str], ...]:
    options = {"endpoint": s3.endpoint, "region": "us-east-1", "access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
    return tuple(options.items())


def export(s3: S3Server, uri: str, *arguments: object) -> int:
    options = [part for name, value in storage(s3) for part in ("--storage-option", f"{name}={value}")]
    return outcome(["export", *map(str, arguments), "--output", uri, "-q", "--format", "tsv", *options])


def object_keys(s3: S3Server, bucket: str) -> set[str]:
    return {item["Key"] for item in s3.client().list_objects_v2(Bucket=bucket).get("Contents", ())}


def open_export(s3: S3Server, uri: str) -> ExportPlace:
    return open_place(uri, storage(s3))


def test_an_export_is_read_back_from_object_storage(s3: S3Server, bucket: str, copies: Path) -> None:
    assert export(s3, f"s3://{bucket}/a/out", copies, "--show-payloads") == 0
    (manifest,) = (key for key in object_keys(s3, bucket) if key.endswith("manifest.json"))
    folder = manifest.rpartition("/")[0]
    assert folder.startswith("a/out/cluster=")
    assert folder.endswith("/snapshot=1")
    assert {key for key in object_keys(s3, bucket) if not key.endswith((".parquet", "/"))} == {
        f"{folder}/_SUCCESS",
        f"{folder}/manifest.json",
    }
    filesystem = pafs.S3FileSystem(access_key=ACCESS_KEY, secret_key=SECRET_KEY, endpoint_override=s3.endpoint, region="us-east-1")
    result = kf.scan(str(copies))
    for fact in ("batches", "records", "findings", "transactions"):
        table = ds.dataset(f"{bucket}/{folder}/{fact}", filesystem=filesystem, format="parquet").to_table()
        names = [name for name in FACTS[fact].schema.names if name in table.schema.names]
        assert rows(table.select(names)) == rows(result.facts(fact, payloads=True).select(names)), fact


def test_a_place_with_objects_is_refused(s3: S3Server, bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    uri = f"s3://{bucket}/out"
    assert export(s3, uri, UNCLEAN_ELECTION, "--fact", "findings") == 0
    before = object_keys(s3, bucket)
    assert export(s3, uri, UNCLEAN_ELECTION, "--fact", "findings") == 2
    assert "holds a dataset" in capsys.readouterr().err
    assert object_keys(s3, bucket) == before
    s3.client().put_object(Bucket=bucket, Key="other/file", Body=b"x")
    assert export(s3, f"s3://{bucket}/other", UNCLEAN_ELECTION) == 2
    assert "it holds file" in capsys.readouterr().err


def test_an_unfinished_export_is_marked(s3: S3Server, bucket: str) -> None:
    uri = f"s3://{bucket}/out"
    target = open_export(s3, uri)
    with target.file("batches/one.parquet") as file:
        file.write(b"whole")
    assert {"out/_UNFINISHED", "out/batches/one.parquet"} <= object_keys(s3, bucket)
    with pytest.raises(UsageError, match="did not finish"):
        open_export(s3, uri)
    target.remove()
    assert not object_keys(s3, bucket)


def test_an_interrupted_file_is_not_written(s3: S3Server, bucket: str) -> None:
    target = open_export(s3, f"s3://{bucket}/out")
    with contextlib.suppress(KeyboardInterrupt), target.file("batches/one.parquet") as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert not [key for key in object_keys(s3, bucket) if key.endswith(".parquet")]


def test_workers_join_an_export_by_its_token(s3: S3Server, bucket: str) -> None:
    uri = f"s3://{bucket}/out"
    target = open_export(s3, uri)
    target.share()
    with join_place(uri, target.token, storage(s3)).temporary_file("lost") as file:
        file.write(b"lost")
    with join_place(uri, target.token, storage(s3)).temporary_file("kept") as file:
        file.write(b"kept")
    with pytest.raises(UsageError, match="another export"):
        join_place(uri, "0" * 32, storage(s3))
    target.adopt("kept", "batches/part-00000.parquet")
    target.clear()
    target.finish()
    assert {key for key in object_keys(s3, bucket) if not key.endswith("/")} == {"out/_SUCCESS", "out/batches/part-00000.parquet"}
    with pytest.raises(UsageError):
        join_place(uri, target.token, storage(s3))


def test_an_export_that_began_at_the_same_moment_is_left_alone(s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"s3://{bucket}/out"
    with monkeypatch.context() as patch:
        patch.setattr(places, "require_empty", lambda *_: None)
        first, second = open_export(s3, uri), open_export(s3, uri)
    with second.file("batches/second.parquet") as file:
        file.write(b"whole")
    with pytest.raises(UsageError, match="another export"):
        first.require_no_other_export()
    first.remove()
    assert "out/batches/second.parquet" in object_keys(s3, bucket)
    second.require_no_other_export()
    second.remove()
    assert not object_keys(s3, bucket)


def test_errors_contain_no_secrets(s3: S3Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(s3, "s3://no-such-bucket-here/out", UNCLEAN_ELECTION) == 2
    err = capsys.readouterr().err
    assert "cannot write to s3://no-such-bucket-here/out" in err
    assert SECRET_KEY not in err


@pytest.mark.parametrize("size", [pytest.param(100, marks=pytest.mark.nightly), 11 << 20], ids=["one request", "several parts"])
def test_a_transient_upload_failure_is_retried(s3: S3Server, bucket: str, proxy: S3Proxy, size: int) -> None:
    """Every request fails the first time."""
    target = open_place(f"s3://{bucket}/out", storage(S3Server(proxy.endpoint)))
    failed: Counter[tuple[str, str]] = Counter()

    def fault(method: str, path: str, _: int) -> int | None:
        request = method, path.partition("&")[0]
        if method not in ("PUT", "POST", "DELETE") or failed[request]:
            return None
        failed[request] += 1
        return 503

    proxy.fault = fault
    data = os.urandom(size)
    with target.file("batches/one.parquet") as file:
        for start in range(0, size, 1 << 20):
            file.write(data[start : start + (1 << 20)])
    target.finish()
    assert sum(failed.values()) >= 4
    assert s3.client().get_object(Bucket=bucket, Key="out/batches/one.parquet")["Body"].read() == data
    assert {key for key in object_keys(s3, bucket) if not key.endswith("/")} == {"out/_SUCCESS", "out/batches/one.parquet"}


@pytest.mark.parametrize(("status", "size"), [pytest.param(503, 100, marks=pytest.mark.nightly), (503, 11 << 20), (403, 100)])
def test_a_permanent_upload_failure_leaves_no_file(s3: S3Server, bucket: str, proxy: S3Proxy, size: int, status: int) -> None:
    target = open_place(f"s3://{bucket}/out", storage(S3Server(proxy.endpoint)))
    proxy.fault = lambda method, path, _: status if method in ("PUT", "POST") and "delete" not in path else None
    error = UsageError if status == 403 else TransientError
    with pytest.raises(error, match=f"^cannot write to s3://{bucket}/out: ") as caught, target.file("one.parquet") as file:
        file.write(bytes(size))
    assert SECRET_KEY not in str(caught.value)
    requests = [request for request in proxy.of("PUT") + proxy.of("POST") if request.status == status]
    assert 1 <= len(requests) <= (1 if status == 403 else 4)
    proxy.fault = None
    assert not [key for key in object_keys(s3, bucket) if "one.parquet" in key]


def test_any_fsspec_file_system_is_written(tmp_path: Path) -> None:
    assert outcome(["export", str(UNCLEAN_ELECTION), "--output", "memory://exports/one", "-q", "--fact", "batches"]) == 0
    import fsspec

    paths = fsspec.filesystem("memory").find("/exports/one")
    assert {path.rpartition("/")[2] for path in paths} >= {"_SUCCESS", "manifest.json"}
    assert not [path for path in paths if "_temporary" in path or "_UNFINISHED" in path]
    assert not list(tmp_path.iterdir())
