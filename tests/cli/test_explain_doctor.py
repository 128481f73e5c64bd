"""`explain` and `doctor`."""

import csv
import json
import os
from pathlib import Path

import pytest

from kafka_forensics.analysis.catalogue import CATALOGUE
from kafka_forensics.cli import doctor_checks
from kafka_forensics.cli.explain import wrapped
from kafka_forensics.cli.main import outcome
from kafka_forensics.cli.options import FORMATS


def answered(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert outcome(list(arguments)) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_list_has_every_kind_worst_first(capsys: pytest.CaptureFixture[str]) -> None:
    header, *rows = csv.reader(answered(capsys, "explain").splitlines(), delimiter="\t")
    assert header == ["kind", "severity", "confidence", "title"]
    assert {row[0] for row in rows} == set(CATALOGUE)
    ranks = [["critical", "error", "warning", "info"].index(row[1]) for row in rows]
    assert ranks == sorted(ranks)
    assert all(row[3] for row in rows)


@pytest.mark.parametrize("format_name", FORMATS)
def test_list_in_every_format(capsys: pytest.CaptureFixture[str], format_name: str) -> None:
    text = answered(capsys, "explain", "--format", format_name)
    assert "OSS" in text
    if format_name == "table":
        assert max(map(len, text.splitlines())) <= 80
    if format_name == "json":
        assert len(json.loads(text)) == len(CATALOGUE)
    if format_name == "jsonl":
        assert len([json.loads(line) for line in text.splitlines()]) == len(CATALOGUE)


@pytest.mark.parametrize("spelling", ["UNCLEAN_LOSS", "unclean-loss"])
def test_page_of_a_kind(capsys: pytest.CaptureFixture[str], spelling: str) -> None:
    assert "UNCLEAN_LOSS" in answered(capsys, "explain", spelling)
    [row] = json.loads(answered(capsys, "explain", spelling, "--format", "json"))
    assert (row["kind"], row["severity"]) == ("UNCLEAN_LOSS", "critical")
    assert "UNCLEAN_LOSS" in row["page"]


def test_page_is_folded_to_a_terminal() -> None:
    page = "# KIND\n\n" + "word " * 40 + "\n\n```sh\n" + "kafka-forensics " * 6 + "\n```\n"
    title, text, code = wrapped(page, 60).split("\n\n")
    assert title == "# KIND"
    assert max(map(len, text.splitlines())) <= 60
    assert text.split() == ["word"] * 40
    assert len(code.splitlines()) == 3


def test_doctor_finds_this_machine_well(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["check"]: row for row in json.loads(answered(capsys, "doctor", "--format", "json"))}
    for check in ("python", "numba", "codec gzip", "codec snappy", "codec lz4", "codec zstd", "crc-32c, compiled kernel"):
        assert rows[check]["status"] == "ok", rows[check]
    assert rows["crc-32c, library"]["detail"].endswith("B/s on one core")
    assert {row["status"] for row in rows.values()} <= {"ok", "absent", "broken"}


def test_doctor_ends_with_1_if_the_local_engine_lacks_something(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor_checks, "run_checks", lambda: [doctor_checks.Check("codec lz4", "broken", "gives other bytes back")])
    assert outcome(["doctor"]) == 1
    assert "codec lz4\tbroken\tgives other bytes back\n" in capsys.readouterr().out
    monkeypatch.setattr(doctor_checks, "run_checks", lambda: [doctor_checks.Check("spark", "absent", "", needed=False)])
    assert outcome(["doctor"]) == 0


def test_codec_that_changes_bytes_is_broken() -> None:
    assert doctor_checks.round_trip("codec x", bytes, lambda data: data[1:]).status == "broken"

    def fail(_: bytes) -> bytes:
        raise ValueError("no such codec")

    assert doctor_checks.round_trip("codec x", bytes, fail) == doctor_checks.Check("codec x", "broken", "no such codec")


def test_java_is_asked_with_a_time_bound(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\nexec sleep 60\n")
    java.chmod(0o755)
    monkeypatch.setattr(doctor_checks, "JAVA_SECONDS", 0.2)
    assert doctor_checks.java().status == "broken"
    java.write_text("#!/bin/sh\necho 'openjdk version \"21\"' >&2\n")
    monkeypatch.setattr(doctor_checks, "JAVA_SECONDS", 10.0)
    assert doctor_checks.java().detail == 'openjdk version "21"'
    monkeypatch.setenv("PATH", "")
    assert doctor_checks.java().status == "absent"
