"""What `export` prints, how it ends, and that it says how far it is."""

import json
from pathlib import Path

import pytest

from kafka_forensics.cli import progress
from kafka_forensics.cli.main import outcome

SAMPLES = Path(__file__).resolve().parents[2] / "sample_logs"
ONE = str(SAMPLES / "unclean-election")


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = outcome(["export", *map(str, arguments)])
    capture_result = capsys.readouterr()
    return status, capture_result.out, capture_result.err


@pytest.mark.parametrize("format_name", ["table", "tsv", "json", "jsonl", "markdown"])
def test_the_datasets_are_listed_in_every_format(tmp_path: Path, format_name: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--fact", "batches", "--fact", "findings", "--format", format_name)
    status, out, err = run(capsys, ONE, "--output", tmp_path / "out", *asked)
    assert status == 0
    assert err == ""
    sums = json.loads((tmp_path / "out" / "_manifest.json").read_text())["datasets"]
    if format_name == "json":
        assert {load.pop("dataset"): load for load in json.loads(out)} == sums
    elif format_name == "jsonl":
        assert [json.loads(line)["dataset"] for line in out.splitlines()] == ["batches", "findings", "incomplete"]
    elif format_name == "tsv":
        expected = [[name, *map(str, one.values())] for name, one in sums.items()]
        assert [line.split("\t") for line in out.splitlines()] == [["dataset", "rows", "files", "bytes"], *expected]
    else:
        assert "batches" in out
        assert "findings" in out


def test_left_out_payloads_are_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = "keys, values, headers and what clients keep with offsets are left out; --show-payloads exports them\n"
    assert run(capsys, ONE, "--output", tmp_path / "a", "--fact", "records")[2] == told
    assert run(capsys, ONE, "--output", tmp_path / "b", "--fact", "records", "-q")[2] == ""
    assert run(capsys, ONE, "--output", tmp_path / "c", "--fact", "records", "--show-payloads")[2] == ""


def test_findings_count_only_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, ONE, "--output", tmp_path / "a", "--fact", "findings")[0] == 0
    assert run(capsys, ONE, "--output", tmp_path / "b", "--fact", "findings", "--fail-on", "critical")[0] == 1
    assert (tmp_path / "b" / "_SUCCESS").exists()


def test_an_empty_input_is_said_to_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "nothing").mkdir()
    (tmp_path / "nothing" / "meta.properties").write_text("version=1\nnode.id=1\n")
    status, out, err = run(capsys, tmp_path / "nothing", "--output", tmp_path / "out", "--format", "tsv")
    assert status == 0
    assert "no partition was found" in err
    rows = dict(line.split("\t")[:2] for line in out.splitlines()[1:])
    assert {name: count for name, count in rows.items() if count != "0"} == {"findings": "2"}


def test_where_spark_is_goes_with_spark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, ONE, "--output", tmp_path / "out", "--spark-master", "local[1]")
    assert status == 2
    assert "hint: add --engine spark" in err
    assert not (tmp_path / "out").exists()


def test_progress_rises_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(progress.Progress, "__call__", lambda _, done, total: seen.append((done, total)))
    assert run(capsys, ONE, "--output", tmp_path / "out")[0] == 0
    assert seen == sorted(seen)
    assert len({total for _, total in seen}) == 1
    assert seen[-1][0] == seen[-1][1] > seen[0][0]
