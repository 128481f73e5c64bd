"""`export` and `scan` with `--spark-remote`: a Spark Connect server does the work, for the local engine's answer."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import exports
from tests.support.exports import SAMPLES, manifest
from tests.support.spark_connect import connect_server

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

SAMPLE = str(SAMPLES / "unclean-election")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the one server of these tests."""
    with connect_server(tmp_path_factory.mktemp("connect")) as url:
        yield url


def run(server: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """A command in a process of its own, for no process can be a client and have a Spark of its own as well."""
    command = [sys.executable, "-m", "kafka_forensics", *arguments, "--engine", "spark", "--spark-remote", server]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)


def files(target: Path) -> dict[str, bytes]:
    """Path below the target → bytes of everything that lies there but the manifest, which names the engine."""
    found = {path.relative_to(target).as_posix(): path.read_bytes() for path in target.rglob("*") if path.is_file()}
    assert found.pop("_manifest.json")
    return found


def test_an_export_is_what_the_local_engine_writes(server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = run(server, "export", SAMPLE, "--output", str(tmp_path / "there"), "--show-payloads", "--format", "tsv")
    assert (done.returncode, done.stderr) == (0, "")
    assert exports.export(tmp_path / "here", SAMPLE, "--show-payloads") == 0
    assert done.stdout == capsys.readouterr().out
    assert files(tmp_path / "there") == files(tmp_path / "here")
    told, expected = manifest(tmp_path / "there"), manifest(tmp_path / "here")
    assert told.pop("tool") == expected.pop("tool") | {"engine": "spark"}
    assert told == expected


def test_a_scan_is_what_the_local_engine_says(server: str) -> None:
    done = run(server, "scan", SAMPLE, "--format", "json")
    here = subprocess.run(
        [sys.executable, "-m", "kafka_forensics", "scan", SAMPLE, "--format", "json"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.stdout.replace('"engine": "spark"', '"engine": "local"') == here.stdout
    assert (done.returncode, done.stderr) == (here.returncode, here.stderr)
    assert json.loads(done.stdout)["tool"]["engine"] == "spark"


def test_what_cannot_be_is_refused_without_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nobody = ("--engine", "spark", "--spark-remote", "sc://127.0.0.1:1")
    assert exports.export(tmp_path / "out", "there-is-no-such-path", *nobody) == 2
    assert capsys.readouterr().err == "error: there-is-no-such-path: no such file or directory\n"
    assert exports.export(tmp_path / "out", SAMPLE, *nobody) == 2
    assert "error: no Spark answers at sc://127.0.0.1:1 (127.0.0.1:1: connection refused)" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
