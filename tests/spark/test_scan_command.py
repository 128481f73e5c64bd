"""`scan --engine spark`: the local engine's bytes on stdout, and no word of Java's on stderr."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

SAMPLE = Path(__file__).resolve().parents[2] / "sample_logs" / "silent-divergence"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kafka_forensics", "scan", *arguments]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def answer() -> "subprocess.CompletedProcess[str]":
    """One scan by a Spark of its own."""
    return run("--engine", "spark", "--jobs", "2", "--format", "json", str(SAMPLE))


def test_it_prints_what_the_local_engine_does(answer: "subprocess.CompletedProcess[str]") -> None:
    here = run("--format", "json", str(SAMPLE))
    assert answer.stdout.replace('"engine": "spark"', '"engine": "local"') == here.stdout
    assert (answer.returncode, here.returncode) == (1, 1)


def test_what_java_says_is_kept_from_the_user(answer: "subprocess.CompletedProcess[str]") -> None:
    assert answer.stderr.startswith("critical: 1 critical")
    assert "WARN" not in answer.stderr


def test_a_path_that_is_not_there_is_told_before_spark_starts() -> None:
    done = run("--engine", "spark", "there-is-no-such-path")
    assert (done.returncode, done.stderr) == (2, "error: there-is-no-such-path: no such file or directory\n")
