"""Snapshots added to Delta and Iceberg tables on a storage service."""

from pathlib import Path

import pyarrow as pa
import pytest

import kafka_forensics as kf
from kafka_forensics.cli.main import outcome
from kafka_forensics.export.labels import Label, labelled_schema
from kafka_forensics.model.schemas import FACTS
from tests.support.datasets import FEW, ONE, OTHER, keys, of_snapshot
from tests.support.exports import rows
from tests.support.nightly import nightly_but
from tests.support.object_stores import ACCESS_KEY, SECRET_KEY, S3Proxy, S3Server

LABEL = Label("a", "n1", "f" * 32, in_rows=True)


def storage(s3: S3Server | S3Proxy) -> dict[str, str]:
    return {"endpoint": s3.endpoint, "region": "us-east-1", "access_key": ACCESS_KEY, "secret_key": SECRET_KEY}


def command(s3: S3Server | S3Proxy, uri: str, snapshot: str, *arguments: object, path: object = ONE) -> list[str]:
    given = [part for name, value in storage(s3).items() for part in ("--storage-option", f"{name}={value}")]
    asked = ["export", path, "--append", "--output", uri, "--cluster", "a", "--snapshot", snapshot, *arguments, *given]
    return [*map(str, asked), "-q", "--format", "tsv"]


def append(s3: S3Server, uri: str, snapshot: str, *arguments: object, path: object = ONE) -> int:
    return outcome(command(s3, uri, snapshot, *arguments, path=path))


def objects(s3: S3Server, bucket: str) -> set[str]:
    listed = {item["Key"] for item in s3.client().list_objects_v2(Bucket=bucket).get("Contents", ())}
    return {key for key in listed if not key.endswith("/")}


def read(s3: S3Server, uri: str, fact: str) -> pa.Table:
    """A fact of Delta tables."""
    from deltalake import DeltaTable, QueryBuilder

    service = {
        "AWS_ENDPOINT_URL": s3.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    }
    held = DeltaTable(f"{uri}/{fact}", storage_options=service)
    return pa.table(QueryBuilder().register("t", held).execute("SELECT * FROM t"))


@pytest.mark.parametrize("form", nightly_but(["delta"], ["delta", "iceberg"]))
def test_tables_on_a_service(s3: S3Server, bucket: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        table = read(s3, uri, "batches")
    else:
        reached = {"s3.endpoint": s3.endpoint, "s3.access-key-id": ACCESS_KEY, "s3.secret-access-key": SECRET_KEY}
        catalog = load_catalog("house", **reached, **{"s3.region": "us-east-1"})
        table = catalog.load_table(("kafka_forensics", "batches")).scan().to_arrow()
        catalog.close()
    every = pa.Table.from_pylist(table.to_pylist(), schema=labelled_schema(FACTS["batches"], LABEL))
    assert rows(of_snapshot(every, "n1")) == rows(kf.scan(str(ONE)).facts("batches"))
    assert keys(table) == {("a", "n1"), ("a", "n2")}
    assert not [key for key in objects(s3, bucket) if "_temporary" in key]
