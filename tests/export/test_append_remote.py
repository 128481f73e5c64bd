"""Snapshots added to Delta tables on a storage service; Iceberg's files go there the same way, its catalogue lies elsewhere."""

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

import kafka_forensics as kf
from kafka_forensics.cli.main import outcome
from kafka_forensics.export.labels import SnapshotLabel, dataset_schema
from kafka_forensics.model.schemas import FACTS
from tests.export.datasets import FEW, ONE, OTHER, keys, of_snapshot
from tests.export.exports import rows
from tests.support.object_stores import ACCESS_KEY, SECRET_KEY, S3Server

LABEL = SnapshotLabel("a", "n1", "f" * 32, in_rows=True)


def test_tables_on_a_service(s3: S3Server, bucket: str) -> None:
    uri = f"s3://{bucket}/out"
    reached = {"endpoint": s3.endpoint, "region": "us-east-1", "access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
    options = [part for name, value in reached.items() for part in ("--storage-option", f"{name}={value}")]
    given = ["--append", "--output", uri, "--cluster", "a", "--table-format", "delta", *FEW, *options, "-q"]
    for snapshot, path in (("n1", OTHER), ("n2", OTHER), ("n1", ONE)):
        assert outcome(["export", str(path), "--snapshot", snapshot, *given]) == 0
    service = {"ENDPOINT_URL": s3.endpoint, "REGION": "us-east-1", "ACCESS_KEY_ID": ACCESS_KEY, "SECRET_ACCESS_KEY": SECRET_KEY}
    reader = {"AWS_ALLOW_HTTP": "true"} | {f"AWS_{name}": value for name, value in service.items()}
    held = DeltaTable(f"{uri}/batches", storage_options=reader)
    table = pa.table(QueryBuilder().register("t", held).execute("SELECT * FROM t"))
    every = pa.Table.from_pylist(table.to_pylist(), schema=dataset_schema(FACTS["batches"], LABEL))
    assert rows(of_snapshot(every, "n1")) == rows(kf.scan(str(ONE)).facts("batches"))
    assert keys(table) == {("a", "n1"), ("a", "n2")}
    objects = [item["Key"] for item in s3.client().list_objects_v2(Bucket=bucket)["Contents"]]
    assert not [key for key in objects if "_temporary" in key and not key.endswith("/")]
