"""An export to a storage service: whole files under their names, a seal, and refusals as in a directory."""

import contextlib
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pytest

import kafka_forensics as kf
from kafka_forensics.cli.main import outcome
from kafka_forensics.errors import TransientError, UsageError
from kafka_forensics.export.places import ExportPlace, join_place, open_place
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.storage.remote import errors as remote_errors
from tests.export.exports import HIVE, rows
from tests.support.object_stores import ACCESS_KEY, SECRET_KEY, S3Proxy, S3Server
from tests.support.places import SAMPLES

ONE = SAMPLES / "unclean-election"


@pytest.fixture(autouse=True)
def _brief_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_errors, "PAUSES", (0.01, 0.01, 0.01))


def storage(s3: S3Server) -> tuple[tuple[str, str], ...]:
    told = {"endpoint": s3.endpoint, "region": "us-east-1", "access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
    return tuple(told.items())


def export(s3: S3Server, uri: str, *arguments: object) -> int:
    given = [part for name, value in storage(s3) for part in ("--storage-option", f"{name}={value}")]
    return outcome(["export", *map(str, arguments), "--output", uri, "-q", "--format", "tsv", *given])


def keys(s3: S3Server, bucket: str) -> set[str]:
    return {one["Key"] for one in s3.client().list_objects_v2(Bucket=bucket).get("Contents", ())}


def opened(s3: S3Server, uri: str) -> ExportPlace:
    return open_place(uri, storage(s3))


def test_an_export_is_read_back_from_there(s3: S3Server, bucket: str, copies: Path) -> None:
    assert export(s3, f"s3://{bucket}/a/out", copies, "--show-payloads") == 0
    left = {key for key in keys(s3, bucket) if not key.endswith(".parquet")}
    assert {key for key in left if not key.endswith("/")} == {"a/out/_SUCCESS", "a/out/_manifest.json"}
    told: dict[str, Any] = dict(storage(s3))
    filesystem = pafs.S3FileSystem(
        access_key=ACCESS_KEY, secret_key=SECRET_KEY, endpoint_override=told["endpoint"], region="us-east-1"
    )
    result = kf.scan(str(copies))
    for fact in ("batches", "records", "findings", "transactions"):
        table = ds.dataset(f"{bucket}/a/out/{fact}", filesystem=filesystem, partitioning=HIVE, format="parquet").to_table()
        assert rows(table.select(FACTS[fact].schema.names)) == rows(result.facts(fact)), fact


def test_what_holds_something_is_refused(s3: S3Server, bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    uri = f"s3://{bucket}/out"
    assert export(s3, uri, ONE, "--fact", "findings") == 0
    before = keys(s3, bucket)
    assert export(s3, uri, ONE, "--fact", "findings") == 2
    assert "holds a finished export" in capsys.readouterr().err
    assert keys(s3, bucket) == before
    s3.client().put_object(Bucket=bucket, Key="other/file", Body=b"x")
    assert export(s3, f"s3://{bucket}/other", ONE) == 2
    assert "it holds file" in capsys.readouterr().err


def test_an_export_that_did_not_finish_is_told_from_others(s3: S3Server, bucket: str) -> None:
    uri = f"s3://{bucket}/out"
    target = opened(s3, uri)
    with target.file("batches/one.parquet") as file:
        file.write(b"whole")
    assert {"out/_UNFINISHED", "out/batches/one.parquet"} <= keys(s3, bucket)
    with pytest.raises(UsageError, match="did not finish"):
        opened(s3, uri)
    target.release()
    assert "out/batches/one.parquet" in keys(s3, bucket)


def test_a_file_that_failed_is_not_there(s3: S3Server, bucket: str) -> None:
    target = opened(s3, f"s3://{bucket}/out")
    with contextlib.suppress(KeyboardInterrupt), target.file("batches/one.parquet") as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert not [key for key in keys(s3, bucket) if key.endswith(".parquet")]
    target.release()
    assert not [key for key in keys(s3, bucket) if not key.endswith("/")]


def test_others_take_part_by_the_token_alone(s3: S3Server, bucket: str) -> None:
    uri = f"s3://{bucket}/out"
    target = opened(s3, uri)
    target.share()
    with join_place(uri, target.token, storage(s3)).temporary_file("lost") as file:
        file.write(b"lost")
    with join_place(uri, target.token, storage(s3)).temporary_file("kept") as file:
        file.write(b"kept")
    with pytest.raises(UsageError, match="another export is there"):
        join_place(uri, "0" * 32, storage(s3))
    target.adopt("kept", "batches/part-00000.parquet")
    target.clear()
    target.finish()
    assert {key for key in keys(s3, bucket) if not key.endswith("/")} == {"out/_SUCCESS", "out/batches/part-00000.parquet"}
    with pytest.raises(UsageError):
        join_place(uri, target.token, storage(s3))


def test_secrets_stay_out_of_errors(s3: S3Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(s3, "s3://no-such-bucket-here/out", ONE) == 2
    said = capsys.readouterr().err
    assert "cannot write to s3://no-such-bucket-here/out" in said
    assert SECRET_KEY not in said


@pytest.mark.parametrize("size", [pytest.param(100, marks=pytest.mark.nightly), 11 << 20], ids=["one request", "several parts"])
def test_an_upload_that_fails_for_a_moment_is_repeated(s3: S3Server, bucket: str, proxy: S3Proxy, size: int) -> None:
    """Each request fails when it is asked for the first time."""
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
    assert {key for key in keys(s3, bucket) if not key.endswith("/")} == {"out/_SUCCESS", "out/batches/one.parquet"}


@pytest.mark.parametrize(("status", "size"), [pytest.param(503, 100, marks=pytest.mark.nightly), (503, 11 << 20), (403, 100)])
def test_an_upload_that_fails_for_good_leaves_no_file(s3: S3Server, bucket: str, proxy: S3Proxy, size: int, status: int) -> None:
    target = open_place(f"s3://{bucket}/out", storage(S3Server(proxy.endpoint)))
    proxy.fault = lambda method, path, _: status if method in ("PUT", "POST") and "delete" not in path else None
    wrong = UsageError if status == 403 else TransientError
    with pytest.raises(wrong, match=f"^cannot write to s3://{bucket}/out: ") as told, target.file("one.parquet") as file:
        file.write(bytes(size))
    assert SECRET_KEY not in str(told.value)
    requests = [request for request in proxy.of("PUT") + proxy.of("POST") if request.status == status]
    assert 1 <= len(requests) <= (1 if status == 403 else 4)
    proxy.fault = None
    assert not [key for key in keys(s3, bucket) if "one.parquet" in key]


def test_any_back_end_of_fsspec(tmp_path: Path) -> None:
    assert outcome(["export", str(ONE), "--output", "memory://exports/one", "-q", "--fact", "batches"]) == 0
    import fsspec

    found = fsspec.filesystem("memory").find("/exports/one")
    assert {path.rpartition("/")[2] for path in found} >= {"_SUCCESS", "_manifest.json", "part-00000.parquet"}
    assert not [path for path in found if "_temporary" in path or "_UNFINISHED" in path]
    assert not list(tmp_path.iterdir())
