"""Snapshots added to a dataset on a storage service: one object is the swap, and a mark that grows old is the lock."""

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import kafka_forensics as kf
from kafka_forensics.cli.main import outcome
from kafka_forensics.errors import UsageError
from kafka_forensics.export import dataset_places
from kafka_forensics.export.dataset_manifest import labelled_schema
from kafka_forensics.export.dataset_places import RemoteDataset
from kafka_forensics.export.target import APPEND, DATASET, UNFINISHED, mark_of
from kafka_forensics.model.schemas import FACTS
from tests.support.datasets import FEW, NAMES, ONE, OTHER, runs
from tests.support.exports import rows
from tests.support.s3_server import ACCESS_KEY, SECRET_KEY, S3Proxy, S3Server, s3_proxy, s3_server

DEAD = "d" * 32


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def bucket(s3: S3Server, request: pytest.FixtureRequest) -> str:
    """An empty bucket."""
    name = f"a{abs(hash(request.node.name)):x}"
    s3.client().create_bucket(Bucket=name)
    return name


def storage(s3: S3Server | S3Proxy) -> dict[str, str]:
    return {"endpoint": s3.endpoint, "region": "us-east-1", "access_key": ACCESS_KEY, "secret_key": SECRET_KEY}


def append(s3: S3Server | S3Proxy, uri: str, snapshot: str, *arguments: object, path: object = ONE) -> int:
    given = [part for name, value in storage(s3).items() for part in ("--storage-option", f"{name}={value}")]
    asked = ["export", path, "--append", "--output", uri, "--cluster", "a", "--snapshot", snapshot, *arguments, *given]
    return outcome([*map(str, asked), "-q", "--format", "tsv"])


def read(s3: S3Server, uri: str, fact: str) -> pa.Table:
    return kf.open_dataset(uri, fact, storage(s3)).to_table()


def keys(s3: S3Server, bucket: str) -> set[str]:
    listed = {item["Key"] for item in s3.client().list_objects_v2(Bucket=bucket).get("Contents", ())}
    return {key for key in listed if not key.endswith("/")}


def put(s3: S3Server, bucket: str, key: str, data: bytes) -> None:
    s3.client().put_object(Bucket=bucket, Key=key, Body=data)


def test_each_night_is_there_once(s3: S3Server, bucket: str) -> None:
    uri = f"s3://{bucket}/deep/out"
    for snapshot, path in (("n1", OTHER), ("n2", OTHER), ("n1", ONE)):
        assert append(s3, uri, snapshot, "--show-payloads", path=path) == 0
    for fact in FACTS:
        table = read(s3, uri, fact)
        for snapshot, path in (("n1", ONE), ("n2", OTHER)):
            mine = table.filter(pa.compute.field("snapshot") == snapshot)
            assert rows(mine.drop_columns(NAMES)) == rows(kf.scan(str(path)).facts(fact)), fact
    left = {key for key in keys(s3, bucket) if not key.endswith(".parquet")}
    assert left == {f"deep/out/{DATASET}"}
    assert len({key.split("/")[3] for key in keys(s3, bucket) - left}) == 2


def test_one_run_at_a_time_and_a_dead_one_for_a_while(
    s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = f"s3://{bucket}/out"
    assert append(s3, uri, "n1", *FEW) == 0
    put(s3, bucket, f"out/{UNFINISHED}", mark_of(f"{APPEND}{DEAD}").encode())
    put(s3, bucket, f"out/batches/{DEAD}/part-00000-000.parquet", b"half")
    put(s3, bucket, "out/_temporary/half", b"half")
    before = keys(s3, bucket)
    assert append(s3, uri, "n2", *FEW) == 2
    err = capsys.readouterr().err
    assert f"another run is adding a snapshot to {uri}, or ended without a word" in err
    assert f"remove {uri}/{UNFINISHED} and add this one again" in err
    assert keys(s3, bucket) == before
    monkeypatch.setattr(dataset_places, "DEAD_SECONDS", 0)
    assert append(s3, uri, "n2", *FEW) == 0
    assert not [key for key in keys(s3, bucket) if DEAD in key or "_temporary" in key or UNFINISHED in key]
    assert set(runs(read(s3, uri, "batches"))) == {("a", "n1"), ("a", "n2")}


@pytest.mark.parametrize("overtaken", ["mark", "manifest"])
def test_a_run_that_was_overtaken_adds_nothing(
    s3: S3Server, bucket: str, overtaken: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = f"s3://{bucket}/out"
    assert append(s3, uri, "n1", *FEW) == 0
    swap = RemoteDataset.swap

    def late(self: RemoteDataset, data: bytes, before: bytes | None) -> None:
        if overtaken == "mark":
            put(s3, bucket, f"out/{UNFINISHED}", mark_of(f"{APPEND}{DEAD}").encode())
            put(s3, bucket, "out/_temporary/of-another", b"being written")
        else:
            put(s3, bucket, f"out/{DATASET}", b" " + (before or b""))
        swap(self, data, before)

    monkeypatch.setattr(RemoteDataset, "swap", late)
    assert append(s3, uri, "n2", *FEW) == 2
    said = "another run has taken" if overtaken == "mark" else "was changed while this run was adding to it"
    assert said in capsys.readouterr().err
    assert set(runs(read(s3, uri, "batches"))) == {("a", "n1")}
    others = {f"out/{UNFINISHED}", "out/_temporary/of-another"}
    assert keys(s3, bucket) & others == (others if overtaken == "mark" else set())


def test_a_run_whose_files_another_took_away_adds_nothing(
    s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Even if its mark is back: it was given up for dead, and wrote the mark anew at the same moment."""
    uri = f"s3://{bucket}/out"
    assert append(s3, uri, "n1", *FEW) == 0
    names = RemoteDataset.put_names_on_disk

    def gone(self: RemoteDataset) -> None:
        names(self)
        name = min(self.files("batches", self.run))
        self._remove(f"{self._root}/batches/{self.run}/{name}")

    monkeypatch.setattr(RemoteDataset, "put_names_on_disk", gone)
    assert append(s3, uri, "n2", *FEW) == 2
    assert "another run has taken" in capsys.readouterr().err
    assert set(runs(read(s3, uri, "batches"))) == {("a", "n1")}


def test_a_mark_is_written_anew_as_long_as_it_is_ones_own(s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_places, "RENEWED_SECONDS", 0.02)
    place = RemoteDataset.begin(f"s3://{bucket}/out", [], tuple(storage(s3).items()))

    def written() -> object:
        return s3.client().head_object(Bucket=bucket, Key=f"out/{UNFINISHED}")["ETag"], place._written(UNFINISHED)

    def wait_for_another(before: object) -> None:
        for _ in range(200):
            if written() != before:
                return
            place._ended.wait(0.05)
        raise AssertionError("it was not written anew")

    wait_for_another(written())
    assert place.mark == mark_of(place.token)
    assert place._renewing is not None
    for _ in range(50):  # one that is put between its look and its writing is written over
        put(s3, bucket, f"out/{UNFINISHED}", mark_of(f"{APPEND}{DEAD}").encode())
        place._renewing.join(0.5)
        if not place._renewing.is_alive():
            break
    assert not place._renewing.is_alive()
    place.withdraw()
    assert keys(s3, bucket) == {f"out/{UNFINISHED}"}


def test_copies_of_the_process_are_made_between_two_writings(s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy has only the thread that made it: what another held at that moment it would wait for for ever."""
    monkeypatch.setattr(dataset_places, "RENEWED_SECONDS", 0.0)
    place = RemoteDataset.begin(f"s3://{bucket}/out", [], tuple(storage(s3).items()))
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                held = dataset_places._AT_WORK.acquire(timeout=20)
                os._exit(0 if held else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        place.withdraw()


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[S3Proxy]:
    """A proxy before the server, to break some requests."""
    with s3_proxy(s3) as before:
        yield before


def test_whatever_request_fails_the_dataset_is_whole(s3: S3Server, bucket: str, proxy: S3Proxy) -> None:
    """A rerun whose k-th writing request and all after it are refused, for many k: what a reader finds is one run, whole."""
    uri = f"s3://{bucket}/out"
    assert append(s3, uri, "n1", *FEW) == 0
    count = read(s3, uri, "batches").num_rows
    failed = 0
    for kept in range(0, 60, 4):
        requests = [0]

        def refused(method: str, _: str, __: int, requests: list[int] = requests, kept: int = kept) -> int | None:
            if method in ("PUT", "POST", "DELETE"):
                requests[0] += 1
                return 403 if requests[0] > kept else None
            return None

        proxy.fault = refused
        status = append(proxy, uri, "n1", *FEW)
        proxy.fault = None
        failed += status == 2
        table = read(s3, uri, "batches")
        assert (status in (0, 2), table.num_rows, len(runs(table)["a", "n1"])) == (True, count, 1)
        s3.client().delete_object(Bucket=bucket, Key=f"out/{UNFINISHED}")
        if status == 0:
            break
    assert failed > 4
    assert append(s3, uri, "n1", *FEW) == 0
    named = {key for key in keys(s3, bucket) if key.endswith(".parquet")}
    assert len({key.split("/")[2] for key in named}) == 1


def test_evidence_is_never_written_to(s3: S3Server, bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    s3.upload(ONE, bucket, "copies")
    before = keys(s3, bucket)
    for target in ("copies/broker-1", "copies/broker-1/out"):
        assert append(s3, f"s3://{bucket}/{target}", "n1", path=f"s3://{bucket}/copies/broker-1") == 2
        assert "evidence is never written to" in capsys.readouterr().err
    assert append(s3, f"s3://{bucket}/copies", "n1") == 2
    assert "is not empty: it holds" in capsys.readouterr().err
    assert keys(s3, bucket) == before


def test_a_damaged_manifest_is_a_sentence(s3: S3Server, bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    uri = f"s3://{bucket}/out"
    assert append(s3, uri, "n1", *FEW) == 0
    put(s3, bucket, f"out/{DATASET}", b'{"format": "kafka-')
    assert append(s3, uri, "n1", *FEW) == 2
    assert f"{uri}/{DATASET} is damaged: it is not the JSON of one" in capsys.readouterr().err
    with pytest.raises(UsageError, match="is damaged"):
        kf.open_dataset(uri, "batches", storage(s3))
    with pytest.raises(UsageError, match="is no dataset"):
        kf.open_dataset(f"s3://{bucket}/other", "batches", storage(s3))


def test_any_back_end_of_fsspec(capsys: pytest.CaptureFixture[str]) -> None:
    """One that keeps no times cannot tell a dead run."""
    import fsspec

    asked = ["export", str(ONE), "--append", "--output", "memory://nights/out", "--cluster", "a", "-q", *FEW]
    for snapshot in ("n1", "n2", "n1"):
        assert outcome([*asked, "--snapshot", snapshot]) == 0
    assert set(runs(kf.open_dataset("memory://nights/out", "batches").to_table())) == {("a", "n1"), ("a", "n2")}
    memory = fsspec.filesystem("memory")
    memory.pipe_file(f"/nights/out/{UNFINISHED}", mark_of(f"{APPEND}{DEAD}").encode())
    assert outcome([*asked, "--snapshot", "n3"]) == 2
    assert f"hint: if none is running, remove memory://nights/out/{UNFINISHED}" in capsys.readouterr().err
    memory.rm_file(f"/nights/out/{UNFINISHED}")
    assert outcome([*asked, "--snapshot", "n3"]) == 0


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_tables_on_a_service(s3: S3Server, bucket: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from deltalake import DeltaTable, QueryBuilder
    from pyiceberg.catalog import load_catalog
    from pyiceberg.utils import config

    uri = f"s3://{bucket}/out"
    monkeypatch.setenv("PYICEBERG_CATALOG__HOUSE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__HOUSE__URI", f"sqlite:///{tmp_path / 'house.sqlite'}")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", config.Config())
    more = ["--table-format", form, *(["--iceberg-catalog", "house"] if form == "iceberg" else [])]
    for snapshot, path in (("n1", OTHER), ("n2", OTHER), ("n1", ONE)):
        assert append(s3, uri, snapshot, *FEW, *more, path=path) == 0
    if form == "delta":
        service = {
            "AWS_ENDPOINT_URL": s3.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        }
        held = DeltaTable(f"{uri}/batches", storage_options=service)
        table = pa.table(QueryBuilder().register("t", held).execute("SELECT * FROM t"))
    else:
        reached = {"s3.endpoint": s3.endpoint, "s3.access-key-id": ACCESS_KEY, "s3.secret-access-key": SECRET_KEY}
        catalog = load_catalog("house", **reached, **{"s3.region": "us-east-1"})
        table = catalog.load_table(("kafka_forensics", "batches")).scan().to_arrow()
        catalog.close()
    every = pa.Table.from_pylist(table.to_pylist(), schema=labelled_schema(FACTS["batches"]))
    mine = every.filter(pa.compute.field("snapshot") == "n1").drop_columns(NAMES)
    assert rows(mine) == rows(kf.scan(str(ONE)).facts("batches"))
    assert set(runs(table)) == {("a", "n1"), ("a", "n2")}
