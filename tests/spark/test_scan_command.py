"""`scan --engine spark`: the local engine's bytes on stdout, and no word of Java's on stderr."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
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
    said = [line for line in answer.stderr.splitlines() if "tasks are done" not in line]  # said every 30 s, if it takes so long
    assert said[0].startswith("critical: 1 critical")
    assert "WARN" not in answer.stderr


def test_a_path_that_is_not_there_is_told_before_spark_starts() -> None:
    done = run("--engine", "spark", "there-is-no-such-path")
    assert (done.returncode, done.stderr) == (2, "error: there-is-no-such-path: no such file or directory\n")


@pytest.mark.parametrize("to_all", [False, True], ids=["process", "group"])
def test_ctrl_c_while_spark_starts_leaves_nothing(to_all: bool) -> None:
    command = [sys.executable, "-m", "kafka_forensics", "scan", "--engine", "spark", "--jobs", "2", str(SAMPLE)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        while not (java := of_session(process.pid, "java")):
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(0.5)
        (os.killpg if to_all else os.kill)(process.pid, signal.SIGINT)
        assert process.stderr is not None
        assert process.stderr.read() == "interrupted\n"
        assert process.wait(60) == 130
        assert not of_session(process.pid, "java") & java


def of_session(session: int, name: str) -> set[int]:
    """Ids of running programs of this name that were started below a process with a session of its own."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            head, _, tail = path.read_text(errors="replace").rpartition(")")
            pid, _, program = head.partition(" (")
            state, _, _, its_session = tail.split()[:4]
            if program == name and int(its_session) == session and state not in "ZX":
                found.add(int(pid))
    return found
