"""The commands over object storage: the same answers as for local copies, and no credentials in anything they say."""

import json
from pathlib import Path
from typing import Any

import pytest

import kafka_forensics as kf
from kafka_forensics.cli.main import outcome
from kafka_forensics.engine import local
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from tests.support.object_stores import ACCESS_KEY, SECRET_KEY, S3Proxy, S3Server

SAMPLES = Path(__file__).resolve().parents[3] / "sample_logs"
DAY = "snapshots/2026-11-20"
TOKEN = "session-token-of-nobody"  # noqa: S105 - a name for tests


pytestmark = pytest.mark.usefixtures("credentials")


@pytest.fixture(scope="module")
def divergence(s3: S3Server) -> str:
    s3.upload(SAMPLES / "silent-divergence", "divergence", DAY)
    return f"s3://divergence/{DAY}"


def test_a_scan_says_what_a_scan_of_the_local_copies_says(s3: S3Server, capsys: pytest.CaptureFixture[str]) -> None:
    s3.upload(SAMPLES / "unclean-election", "bucket", DAY)
    folder = str(SAMPLES / "unclean-election")
    answers = []
    for place, jobs in ((folder, "2"), (f"s3://bucket/{DAY}", "2")):
        status = outcome(["scan", place, "--format", "json", "--jobs", jobs])
        out, err = capsys.readouterr()
        answers.append((status, json.loads(out.replace(place, "PLACE")), err))
    assert answers[0] == answers[1]
    assert answers[0][0] == 1
    assert len(answers[0][1]["findings"]) > 5


def test_patterns_names_and_aliases(divergence: str) -> None:
    scan_result = kf.scan(["one=s3a://divergence/snapshots/*/broker-1", f"{divergence}/broker-[23]", f"{divergence}/broker-2/"])
    assert sorted(str(broker_summary.broker) for broker_summary in scan_result.brokers) == ["2", "3", "one"]
    plain = kf.scan(str(SAMPLES / "silent-divergence"))
    assert sorted(finding.kind for finding in scan_result.findings) == sorted(finding.kind for finding in plain.findings)


def test_a_folder_and_what_lies_in_it_are_read_once(divergence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(["scan", divergence, f"{divergence}/broker-1", "--format", "json"]) == 1
    out, err = capsys.readouterr()
    assert f"{divergence}/broker-1 is in {divergence} as well: read once" in err
    assert [len(one["log_dirs"]) for one in json.loads(out)["input"]["brokers"]] == [1, 1, 1]


def test_facts_and_dumps_of_one_object(divergence: str, capsys: pytest.CaptureFixture[str]) -> None:
    log = next(path for path in sorted((SAMPLES / "silent-divergence").glob("broker-1/*/*.log")) if path.stat().st_size)
    uri = f"{divergence}/{log.relative_to(SAMPLES / 'silent-divergence')}"
    for read in (kf.read_batches, kf.read_records):
        assert list(read(uri)) == list(read(str(log)))
    texts = []
    for place in (str(log), uri):
        assert outcome(["dump", place, "--records", "--show-payloads", "--format", "jsonl"]) == 0
        texts.append(capsys.readouterr().out.replace(place, "PLACE"))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("asked", [True, False], ids=["told-when-asked", "never-told"])
def test_an_object_listed_without_its_size_is_not_empty(asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    root = SAMPLES / "unclean-election" / "broker-1"
    memory.put(str(root), "/sizeless", recursive=True)
    listed, told = type(memory).find, type(memory).info

    def find(self: Any, path: str, **more: Any) -> Any:
        return {name: one | {"size": None} for name, one in listed(self, path, **more).items()}

    def info(self: Any, path: str, **more: Any) -> Any:
        return told(self, path, **more) if asked else told(self, path, **more) | {"size": None}

    monkeypatch.setattr(type(memory), "find", find)
    monkeypatch.setattr(type(memory), "info", info)
    scan_result, plain = kf.scan("memory://sizeless"), kf.scan(str(root))
    if asked:
        assert scan_result.totals.records == plain.totals.records > 0
    else:
        assert {incomplete.reason for incomplete in scan_result.incomplete} == {
            "the service does not tell how large this object is, so its end cannot be known"
        }


def test_fsspec_opens_other_schemes() -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    root = SAMPLES / "silent-divergence"
    for file in root.rglob("*"):
        if file.is_file():
            memory.pipe(f"/evidence/{file.relative_to(root).as_posix()}", file.read_bytes())
    scan_result, plain = kf.scan("memory://evidence"), kf.scan(str(root))
    assert [(finding.kind, finding.place.file, finding.evidence) for finding in scan_result.findings] == [
        (finding.kind, finding.place.file, finding.evidence) for finding in plain.findings
    ]
    assert scan_result.incomplete == []


def test_an_object_that_cannot_be_read_makes_the_scan_incomplete(divergence: str, proxy: S3Proxy) -> None:
    log = next(path for path in sorted((SAMPLES / "silent-divergence").glob("broker-1/*/*.log")) if path.stat().st_size)
    part = f"broker-1/{log.parent.name}/{log.name}"
    proxy.fault = lambda *request: 403 if request[1].endswith(part) else None
    scan_result = kf.scan(divergence, storage_options={"endpoint": proxy.endpoint})
    assert {incomplete.path for incomplete in scan_result.incomplete} == {f"{divergence}/{part}"}
    assert all("access denied" in incomplete.reason for incomplete in scan_result.incomplete)


def test_an_object_deleted_during_the_scan(s3: S3Server) -> None:
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


@pytest.mark.parametrize("status", [None, 403, 500])
def test_credentials_are_in_nothing_that_is_said(
    divergence: str, proxy: S3Proxy, status: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    proxy.fault = lambda *_: status
    with_key = divergence.replace("s3://", f"s3://{ACCESS_KEY}:{SECRET_KEY}@")
    given = ["--storage-option", f"endpoint={proxy.endpoint}", "--storage-option", f"session_token={TOKEN}"]
    said = ""
    for place in (with_key, f"name={with_key}/broker-1", f"={with_key}", f"{with_key}/no*", f"{with_key}?region={SECRET_KEY}x"):
        for format_name in ("json", "table") if place == with_key else ("tsv",):
            output = tmp_path / f"out.{format_name}"
            outcome(["scan", place, *given, "--format", format_name, "--output", str(output), "--debug", "-v"])
            said += output.read_text() if output.exists() else ""
        said += "".join(capsys.readouterr())
    outcome(["export", with_key, *given, "--output", str(tmp_path / "facts"), "--debug"])
    said += "".join(path.read_text() for path in (tmp_path / "facts").rglob("*.json"))
    said += "".join(capsys.readouterr())
    assert "divergence" in said
    for secret in (SECRET_KEY, ACCESS_KEY, TOKEN):
        assert secret not in said


def test_nothing_of_storage_is_loaded_for_a_local_scan() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from kafka_forensics.cli.main import outcome\n"
        f"outcome(['scan', '-q', '--format', 'json', '--fail-on', 'none', {str(SAMPLES / 'silent-divergence')!r}])\n"
        "loaded = [one for one in ('pyarrow', 'fsspec', 'kafka_forensics.storage.remote.source') if one in sys.modules]\n"
        "print(loaded, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stderr == "[]\n"
