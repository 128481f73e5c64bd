"""The `export` command: its output, exit statuses and progress."""

import json
from pathlib import Path

import pytest

from kafka_forensics.cli import progress
from tests.cli.runs import Run
from tests.export.exports import snapshot_of
from tests.support.places import SAMPLES

SAMPLE = str(SAMPLES / "unclean-election")
AUDIT = f"{SAMPLE}/broker-1/audit-0"


def test_datasets_are_listed_and_findings_affect_the_status_only_on_request(tmp_path: Path, run: Run) -> None:
    arguments = (SAMPLE, "--fact", "batches", "--fact", "findings", "--format")
    status, out, err = run("export", *arguments, "json", "--output", tmp_path / "json")
    assert (status, err) == (0, "")
    assert {load.pop("dataset"): load for load in json.loads(out)} == json.loads(
        (snapshot_of(tmp_path / "json") / "manifest.json").read_text()
    )["datasets"]
    status, out, _ = run("export", *arguments, "text", "--output", tmp_path / "text", "--fail-on", "critical")
    assert (status, [line.split()[0] for line in out.splitlines()]) == (1, ["dataset", "batches", "findings", "incomplete"])
    assert (snapshot_of(tmp_path / "text") / "_SUCCESS").exists()


def test_omitted_payloads_are_mentioned_once(tmp_path: Path, run: Run) -> None:
    message = "keys, values, headers and metadata of clients with offsets are left out; --show-payloads exports them\n"
    arguments = (AUDIT, "--fact", "records", "--output")
    assert run("export", *arguments, tmp_path / "a")[2] == message
    assert run("export", *arguments, tmp_path / "b", "-q")[2] == ""
    assert run("export", *arguments, tmp_path / "c", "--show-payloads")[2] == ""


def test_spark_addresses_require_the_spark_engine(tmp_path: Path, run: Run) -> None:
    status, _, err = run("export", SAMPLE, "--output", tmp_path / "out", "--spark-master", "local[1]")
    assert (status, "hint: add --engine spark" in err) == (2, True)
    assert not (tmp_path / "out").exists()


def test_progress_rises_to_the_total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(progress.Progress, "__call__", lambda _, done, total: calls.append((done, total)))
    assert run("export", AUDIT, "--output", tmp_path / "out")[0] == 0
    assert calls == sorted(calls)
    assert len({total for _, total in calls}) == 1
    assert calls[-1][0] == calls[-1][1] > calls[0][0]
