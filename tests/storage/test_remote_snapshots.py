"""A folder of snapshots on object storage gives what its local copy gives."""

import os
from pathlib import Path

import pytest

import kafka_forensics as kf
from tests.support.faults import HEALTHY
from tests.support.s3_server import ACCESS_KEY, SECRET_KEY, S3Server
from tests.support.snapshot_trees import NEW, OLD, Snapshots, cut, findings, rows


@pytest.fixture(autouse=True)
def credentials(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an operator's environment holds."""
    for name in [one for one in os.environ if one.startswith("AWS_")]:
        monkeypatch.delenv(name)
    values = {"ACCESS_KEY_ID": ACCESS_KEY, "SECRET_ACCESS_KEY": SECRET_KEY, "ENDPOINT_URL": s3.endpoint}
    for name, value in (values | {"EC2_METADATA_DISABLED": "true"}).items():
        monkeypatch.setenv(f"AWS_{name}", value)


def test_a_bucket_of_snapshots(s3: S3Server, tmp_path: Path) -> None:
    trees = Snapshots(tmp_path)
    trees.put(OLD, HEALTHY)
    trees.put(NEW, {1: HEALTHY, 2: cut(HEALTHY, 55), 3: HEALTHY})
    s3.upload(tmp_path, "days", "snapshots")
    there, here = kf.scan_snapshots("s3://days/snapshots/"), kf.scan_snapshots(str(tmp_path))
    assert list(there.snapshots) == [OLD, NEW]
    assert rows(there) == rows(here)
    assert findings(there) == findings(here)
    assert there.changes[0].before is not None
    assert there.changes[0].before.log_dir == f"s3://days/snapshots/{OLD}/b1"
