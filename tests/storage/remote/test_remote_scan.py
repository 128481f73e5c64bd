"""Commands give the same results for object storage as for local copies, and no output contains credentials."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

import kafka_forensics as kf
from kafka_forensics.cli.main import outcome
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.json_objects import Json
from kafka_forensics.questions.collect import CollectOptions, collect
from kafka_forensics.scanning.engine import local
from tests.support.audit import put_unclean_election
from tests.support.logs import HEALTHY
from tests.support.object_stores import ACCESS_KEY, SECRET_KEY, S3Proxy, S3Server
from tests.support.places import SAMPLES
from tests.support.snapshot_trees import NEW, OLD, Snapshots, change_rows, findings

DAY = "snapshots/2026-11-20"
TOKEN = "session-token-for-tests"  # noqa: S105 - a name for tests


pytestmark = pytest.mark.usefixtures("credentials")


@pytest.fixture(scope="module")
def divergence(s3: S3Server) -> str:
    s3.upload(SAMPLES / "silent-divergence", "divergence", DAY)
    return f"s3://divergence/{DAY}"


def test_a_remote_scan_equals_a_local_scan(divergence: str, capsys: pytest.CaptureFixture[str]) -> None:
    answers = []
    for place in (str(SAMPLES / "silent-divergence"), divergence):
        status = outcome(["scan", place, "--format", "json", "--jobs", "2"])
        out, err = capsys.readouterr()
        answers.append((status, json.loads(out.replace(place, "PLACE")), err))
    assert answers[0] == answers[1]
    assert answers[0][0] == 1
    assert answers[0][1]["findings"]


@pytest.mark.parametrize("has_size", [True, False], ids=["size-in-metadata", "no-size"])
def test_an_object_listed_without_its_size_is_not_empty(has_size: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    root = SAMPLES / "unclean-election" / "broker-1"
    memory.put(str(root), "/sizeless", recursive=True)
    real_find, real_info = type(memory).find, type(memory).info

    def find(self: Any, path: str, **more: Any) -> Any:
        return {name: metadata | {"size": None} for name, metadata in real_find(self, path, **more).items()}

    def info(self: Any, path: str, **more: Any) -> Any:
        return real_info(self, path, **more) if has_size else real_info(self, path, **more) | {"size": None}

    monkeypatch.setattr(type(memory), "find", find)
    monkeypatch.setattr(type(memory), "info", info)
    scan_result, plain = kf.scan("memory://sizeless"), kf.scan(str(root))
    if has_size:
        assert scan_result.totals.records == plain.totals.records > 0
    else:
        assert {incomplete.reason for incomplete in scan_result.incomplete} == {
            "the service does not report the size of this object, so its end is unknown"
        }


def test_an_object_deleted_during_the_scan_is_incomplete(s3: S3Server) -> None:
    s3.upload(SAMPLES / "silent-divergence", "deleting", DAY)
    options = ScanOptions()
    inputs = gather([f"s3://deleting/{DAY}"], options)
    plan = next(replica_plan for replica_plan in inputs.replicas if replica_plan.bytes)
    log = next(segment.log for segment in plan.directory.segments if segment.log is not None)
    s3.client().delete_object(Bucket="deleting", Key=f"{DAY}/{log.path}")
    scan_result = local.scan_inputs(inputs, options)
    assert [(incomplete.path, incomplete.reason.partition(" (")[0]) for incomplete in scan_result.incomplete] == [
        (f"s3://deleting/{DAY}/{log.path}", "no such object")
    ]
    changed = [finding for finding in scan_result.findings if finding.kind == "EVIDENCE_CHANGED"]
    assert [finding.place.file for finding in changed] == [log.path.partition("/")[2]]
    assert changed[0].evidence["after"] is None


@pytest.mark.parametrize("status", [None, 403])
def test_no_output_contains_credentials(
    divergence: str, proxy: S3Proxy, status: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    proxy.fault = lambda *_: status
    with_key = divergence.replace("s3://", f"s3://{ACCESS_KEY}:{SECRET_KEY}@")
    options = ["--storage-option", f"endpoint={proxy.endpoint}", "--storage-option", f"session_token={TOKEN}"]
    output = ""
    for place in (with_key, f"name={with_key}/broker-1", f"={with_key}", f"{with_key}/no*", f"{with_key}?region={SECRET_KEY}x"):
        for format_name in ("json", "text") if place == with_key else ("tsv",):
            written = tmp_path / f"out.{format_name}"
            outcome(["scan", place, *options, "--format", format_name, "--output", str(written), "--debug", "-v"])
            output += written.read_text() if written.exists() else ""
        output += "".join(capsys.readouterr())
    outcome(["export", with_key, *options, "--output", str(tmp_path / "facts"), "--debug"])
    output += "".join(path.read_text() for path in (tmp_path / "facts").rglob("*.json"))
    output += "".join(capsys.readouterr())
    assert "divergence" in output
    for secret in (SECRET_KEY, ACCESS_KEY, TOKEN):
        assert secret not in output


def findings_at(path: str, endpoint: str | None = None) -> list[Json]:
    options = None if endpoint is None else {"endpoint": endpoint}
    document: Json = json.loads(kf.scan(path, storage_options=options).to_json())
    assert document["incomplete"] == []
    rows = [finding for finding in document["findings"] if finding["kind"] != "KEY_PLACEMENT"]
    return [{**finding, "log_dir": None, "advice": None} for finding in rows]


def test_remote_bundles_equal_their_directories(s3: S3Server, proxy: S3Proxy, tmp_path: Path) -> None:
    directories, bundles = tmp_path / "directories", tmp_path / "bundles" / "2026-11-20"
    bundles.mkdir(parents=True)
    for log_dir in put_unclean_election(directories, 3):
        with (bundles / f"{log_dir.name}.kfb").open("w+b") as file:
            collect([str(log_dir)], CollectOptions(), file)
    s3.upload(directories, "of-directories", "all")
    s3.upload(bundles.parent, "of-bundles", "all")
    expected = findings_at("s3://of-directories/all", proxy.endpoint)
    assert findings_at("s3://of-bundles/all", proxy.endpoint) == expected == findings_at(str(directories))
    assert findings_at("s3://of-bundles/all/2026-*/*.kfb", proxy.endpoint) == expected


def test_options_of_a_uri_reach_every_snapshot_and_are_not_shown(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    trees = Snapshots(tmp_path)
    trees.put(OLD, HEALTHY)
    trees.put(NEW, {1: HEALTHY, 2: HEALTHY.truncated_to(55), 3: HEALTHY})
    s3.upload(tmp_path, "days", "snapshots")
    for name in [variable for variable in os.environ if variable.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    query = f"?endpoint={s3.endpoint}&access_key={ACCESS_KEY}&secret_key={SECRET_KEY}"
    remote, from_disk = kf.scan_snapshots(f"s3://days/snapshots{query}"), kf.scan_snapshots(str(tmp_path))
    assert list(remote.snapshots) == [OLD, NEW]
    assert (change_rows(remote), findings(remote)) == (change_rows(from_disk), findings(from_disk))
    assert remote.changes[0].before is not None
    assert remote.changes[0].before.log_dir == f"s3://days/snapshots/{OLD}/b1"
    uris = [f"s3://{ACCESS_KEY}:{SECRET_KEY}@days/snapshots/{name}?endpoint={s3.endpoint}" for name in (OLD, NEW)]
    assert outcome(["changes", *uris, "--format", "json", "--fail-on", "none"]) == 0
    assert outcome(["changes", f"a={uris[0]}", f"b={uris[0]}"]) == 2
    assert outcome(["changes", uris[0], uris[0]]) == 2
    printed = capfd.readouterr()
    assert SECRET_KEY not in printed.out + printed.err
    assert ACCESS_KEY not in printed.out + printed.err
