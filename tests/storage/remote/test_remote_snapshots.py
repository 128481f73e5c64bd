"""A folder of snapshots on object storage gives what its local copy gives."""

import os
from pathlib import Path

import pytest

import kafka_forensics as kf
from kafka_forensics.cli.main import outcome
from tests.support.faults import HEALTHY
from tests.support.object_stores import ACCESS_KEY, SECRET_KEY, S3Server
from tests.support.snapshot_trees import NEW, OLD, Snapshots, cut, findings, rows


@pytest.fixture(autouse=True)
def credentials(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an operator's environment holds."""
    for name in [one for one in os.environ if one.startswith("AWS_")]:
        monkeypatch.delenv(name)
    values = {"ACCESS_KEY_ID": ACCESS_KEY, "SECRET_ACCESS_KEY": SECRET_KEY, "ENDPOINT_URL": s3.endpoint}
    for name, value in (values | {"EC2_METADATA_DISABLED": "true"}).items():
        monkeypatch.setenv(f"AWS_{name}", value)


@pytest.fixture
def days(s3: S3Server, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A bucket of two snapshots, of which the newer lost something."""
    trees = Snapshots(tmp_path)
    trees.put(OLD, HEALTHY)
    trees.put(NEW, {1: HEALTHY, 2: cut(HEALTHY, 55), 3: HEALTHY})
    bucket = f"d{abs(hash(request.node.name)):x}"
    s3.upload(tmp_path, bucket, "snapshots")
    return bucket


@pytest.mark.parametrize("form", ["{0}snapshots{1}", "{0}snapshots/2*{1}"], ids=["folder", "pattern"])
def test_what_the_uri_says_reaches_every_snapshot_and_is_shown_nowhere(
    s3: S3Server, days: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], form: str
) -> None:
    for name in [one for one in os.environ if one.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    said = f"?endpoint={s3.endpoint}&access_key={ACCESS_KEY}&secret_key={SECRET_KEY}"
    uri = form.format(f"s3://{days}/", said)
    here = kf.scan_snapshots(str(tmp_path))
    assert rows(kf.scan_snapshots(uri)) == rows(here)
    assert outcome(["changes", uri, "--format", "json", "--fail-on", "none"]) == 0
    each = [f"s3://{ACCESS_KEY}:{SECRET_KEY}@{days}/snapshots/{name}?endpoint={s3.endpoint}" for name in (OLD, NEW)]
    assert outcome(["changes", *each, "--format", "json", "--fail-on", "none"]) == 0
    assert outcome(["changes", f"a={each[0]}", f"b={each[0]}"]) == 2
    assert outcome(["changes", each[0], each[0]]) == 2
    printed = capfd.readouterr()
    assert SECRET_KEY not in printed.out + printed.err
    assert ACCESS_KEY not in printed.out + printed.err


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
