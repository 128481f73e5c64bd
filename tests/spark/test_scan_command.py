"""`scan --engine spark`: the local engine's bytes on stdout, and no word of Java's on stderr."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import jsonschema
import pytest

from tests.support.json_schemas import json_schema

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

SAMPLE = Path(__file__).resolve().parents[2] / "sample_logs" / "silent-divergence"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kafka_forensics", "scan", *arguments]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("page") / "page.html"


@pytest.fixture(scope="module")
def answer(page: Path) -> "subprocess.CompletedProcess[str]":
    """One scan by a Spark of its own."""
    return run("--engine", "spark", "--jobs", "2", "--format", "json", "--report", str(page), str(SAMPLE))


def test_its_page_has_lanes_and_says_what_it_lacks(answer: "subprocess.CompletedProcess[str]", page: Path) -> None:
    assert answer.stderr.splitlines()[-1] == f"wrote {page}"
    text = page.read_text()
    assert "engine spark" in text
    assert f"kafka-forensics scan {SAMPLE} --engine spark" in text
    assert "Replicas of ledger-0 over offsets" in text
    assert "What each election would cut" not in text
    assert "elections, transactions, bytes and the range of times are not on this page" in text


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
    command = [sys.executable, "-m", "kafka_forensics", "scan", "--engine", "spark", "--jobs", "2", "--format", "json", str(SAMPLE)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        while not (java := of_session(process.pid, "java")):
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(0.5)
        (os.killpg if to_all else os.kill)(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 130
        assert_nothing_was_judged(out, err, SAMPLE, 1)
        assert not of_session(process.pid, "java") & java


def assert_nothing_was_judged(out: str, err: str, path: Path, partitions: int) -> None:
    document = json.loads(out)
    jsonschema.Draft202012Validator(json_schema()).validate(document)
    assert (document["summary"]["verdict"], document["partitions"], document["findings"]) == ("unknown", [], [])
    reason = f"interrupted after 0 of {partitions} partitions: Spark gives all answers together, when its job ends"
    assert [(gap["path"], gap["reason"]) for gap in document["incomplete"]] == [(str(path), reason)]
    assert err.splitlines() == ["unknown: nothing was judged", f"incomplete: {path}: {reason}", "interrupted"]


WHILE_SPARK_WORKS = """
import os, signal
from kafka_forensics.__main__ import run
from kafka_forensics.spark import job

answers = job._answers

def interrupted(*arguments):
    for answer in answers(*arguments):
        {body}

job._answers = interrupted
run()
"""


@pytest.mark.parametrize("taken", [0, 2])
def test_ctrl_c_while_spark_works_prints_what_is_known(taken: int, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    interrupting = f"""if not hasattr(job, "taken"): job.taken = 0
        if job.taken == {taken}: os.kill(os.getpid(), signal.SIGINT)
        job.taken += 1
        yield answer"""
    script = WHILE_SPARK_WORKS.format(body=interrupting)
    sample = SAMPLE.with_name("unclean-election")
    arguments = ["--engine", "spark", "--jobs", "2", "--topic", "[!_]*", "--format", "json", "--report", str(page), str(sample)]
    command = [sys.executable, "-c", script, "scan", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 130, done.stderr
    text = page.read_text()
    if taken:
        assert len(json.loads(done.stdout)["partitions"]) == taken
        assert "interrupted after 2 of 11 partitions" in text
        assert "Leadership and ISR over time" in text
    else:
        assert_nothing_was_judged(done.stdout, done.stderr.replace(f"wrote {page}\n", ""), sample, 11)
        assert "Spark gives all answers together" in text


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
