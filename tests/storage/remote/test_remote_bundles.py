"""Bundles on a storage service: judged where they lie, by few requests."""

import json
from pathlib import Path

import pytest

import kafka_forensics as kf
from kafka_forensics.model.json_objects import Json
from kafka_forensics.questions.collect import CollectOptions, collect
from tests.support.object_stores import S3Proxy, S3Server
from tests.support.replicas import unclean_election

pytestmark = pytest.mark.usefixtures("credentials")
PARTITIONS = 60


def findings(path: str, endpoint: str | None = None) -> list[Json]:
    options = None if endpoint is None else {"endpoint": endpoint}
    document: Json = json.loads(kf.scan(path, storage_options=options).to_json())
    assert document["incomplete"] == []
    told = [finding for finding in document["findings"] if finding["kind"] != "KEY_PLACEMENT"]
    return [{**finding, "log_dir": None, "advice": None} for finding in told]


def test_bundles_take_a_twentieth_of_the_requests(s3: S3Server, proxy: S3Proxy, tmp_path: Path) -> None:
    directories, bundles = tmp_path / "directories", tmp_path / "bundles" / "2026-11-20"
    bundles.mkdir(parents=True)
    for log_dir in unclean_election(directories, PARTITIONS):
        with (bundles / f"{log_dir.name}.kfb").open("w+b") as file:
            collect([str(log_dir)], CollectOptions(), file)
    s3.upload(directories, "of-directories", "all")
    s3.upload(bundles.parent, "of-bundles", "all")
    expected = findings("s3://of-directories/all", proxy.endpoint)
    of_directories = len(proxy.requests)
    proxy.requests.clear()
    assert findings("s3://of-bundles/all", proxy.endpoint) == expected == findings(str(directories))
    assert findings("s3://of-bundles/all/2026-*/*.kfb", proxy.endpoint) == expected
    assert 0 < len(proxy.requests) // 2 <= of_directories // 20
