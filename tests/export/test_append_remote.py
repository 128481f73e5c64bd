"""Snapshots are added to Delta tables on object storage; the data files of Iceberg tables are written by the same code."""

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

import kafka_forensics as kf
from kafka_forensics.cli.main import outcome
from kafka_forensics.export.labels import SnapshotLabel, dataset_schema
from kafka_forensics.model.schemas import FACTS
from tests.export.datasets import SILENT_DIVERGENCE, TWO_FACTS, UNCLEAN_ELECTION, snapshot_rows, snapshots_in
from tests.export.exports import rows
from tests.support.object_stores import ACCESS_KEY, SECRET_KEY, S3Server

LABEL = SnapshotLabel("a", "n1", "f" * 32, in_rows=True)


def test_delta_tables_on_object_storage(s3: S3Server, bucket: str) -> None:
    uri = f"s3://{bucket}/out"
    storage = {"endpoint": s3.endpoint, "region": "us-east-1", "access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
    options = [part for name, value in storage.items() for part in ("--storage-option", f"{name}={value}")]
    arguments = ["--append", "--output", uri, "--cluster", "a", "--table-format", "delta", *TWO_FACTS, *options, "-q"]
    for snapshot, path in (("n1", UNCLEAN_ELECTION), ("n2", UNCLEAN_ELECTION), ("n1", SILENT_DIVERGENCE)):
        assert outcome(["export", str(path), "--snapshot", snapshot, *arguments]) == 0
    settings = {"ENDPOINT_URL": s3.endpoint, "REGION": "us-east-1", "ACCESS_KEY_ID": ACCESS_KEY, "SECRET_ACCESS_KEY": SECRET_KEY}
    reader = {"AWS_ALLOW_HTTP": "true"} | {f"AWS_{name}": value for name, value in settings.items()}
    delta = DeltaTable(f"{uri}/batches", storage_options=reader)
    table = pa.table(QueryBuilder().register("t", delta).execute("SELECT * FROM t"))
    typed = pa.Table.from_pylist(table.to_pylist(), schema=dataset_schema(FACTS["batches"], LABEL))
    assert rows(snapshot_rows(typed, "n1")) == rows(kf.scan(str(SILENT_DIVERGENCE)).facts("batches"))
    assert snapshots_in(table) == {("a", "n1"), ("a", "n2")}
    objects = [item["Key"] for item in s3.client().list_objects_v2(Bucket=bucket)["Contents"]]
    assert not [key for key in objects if "_temporary" in key and not key.endswith("/")]
