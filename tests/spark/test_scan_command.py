"""`scan --engine spark` prints the bytes of the local engine, and no output of Java."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest

from tests.spark.cluster import processes
from tests.support.json_schemas import json_schema
from tests.support.places import SAMPLES

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

JAVA = re.compile(r"(\S*/)?java ")
SAMPLE = SAMPLES / "silent-divergence"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kafka_forensics", "scan", *arguments]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)


def test_the_output_equals_that_of_the_local_engine(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    by_spark = run("--engine", "spark", "--jobs", "2", "--format", "json", "--report", str(page), str(SAMPLE))
    local = run("--format", "json", str(SAMPLE))
    assert by_spark.stdout.replace('"engine": "spark"', '"engine": "local"') == local.stdout
    assert (by_spark.returncode, local.returncode) == (1, 1)
    lines = [line for line in by_spark.stderr.splitlines() if "tasks are done" not in line]  # printed every 30 s
    assert lines[0].startswith("critical: 1 critical")
    assert lines[-1] == f"wrote {page}"
    assert "WARN" not in by_spark.stderr
    text = page.read_text()
    assert "engine spark" in text
    assert f"kafka-forensics scan {SAMPLE} --engine spark" in text
    assert "Replicas of ledger-0 over offsets" in text
    assert "What each election loses" not in text
    assert "workers make no plans" in text


@pytest.mark.parametrize("to_all", [False, True], ids=["process", "group"])
def test_ctrl_c_while_spark_starts_leaves_no_process(to_all: bool) -> None:
    command = [sys.executable, "-m", "kafka_forensics", "scan", "--engine", "spark", "--jobs", "2", "--format", "json", str(SAMPLE)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        while not (java := javas_of(process.pid)):
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(0.5)
        (os.killpg if to_all else os.kill)(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 130
        assert_nothing_was_judged(out, err, SAMPLE, 1)
        assert not javas_of(process.pid) & java


def javas_of(session: int) -> set[int]:
    """Ids of the running Java processes of a session."""
    return {running.pid for running in processes() if running.session == session and JAVA.match(running.command)}


def assert_nothing_was_judged(out: str, err: str, path: Path, partitions: int) -> None:
    document = json.loads(out)
    jsonschema.Draft202012Validator(json_schema()).validate(document)
    assert (document["summary"]["verdict"], document["partitions"], document["findings"]) == ("unknown", [], [])
    reason = f"interrupted after 0 of {partitions} partitions: Spark returns all results when its job ends"
    assert [(gap["path"], gap["reason"]) for gap in document["incomplete"]] == [(str(path), reason)]
    assert err.splitlines() == ["unknown: nothing was judged", f"incomplete: {path}: {reason}", "interrupted"]


INTERRUPTED = """
import os, signal, sys
from kafka_forensics.__main__ import run
from kafka_forensics.spark import job

answers, taken = job._answers, int(sys.argv.pop(1))

def interrupted(*arguments):
    for number, answer in enumerate(answers(*arguments)):
        if number == taken:
            os.kill(os.getpid(), signal.SIGINT)
        yield answer

job._answers = interrupted
run()
"""


@pytest.mark.parametrize("taken", [0, 2])
def test_ctrl_c_while_spark_works_prints_finished_partitions(taken: int, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    sample = SAMPLE.with_name("unclean-election")
    arguments = ["--engine", "spark", "--jobs", "2", "--topic", "[!_]*", "--format", "json", "--report", str(page), str(sample)]
    command = [sys.executable, "-c", INTERRUPTED, str(taken), "scan", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 130, done.stderr
    text = page.read_text()
    if taken:
        assert len(json.loads(done.stdout)["partitions"]) == taken
        assert "interrupted after 2 of 11 partitions" in text
        assert "Unclean election: broker 1, from outside the ISR, becomes leader of audit-0." in text
    else:
        assert_nothing_was_judged(done.stdout, done.stderr.replace(f"wrote {page}\n", ""), sample, 11)
        assert "Spark returns all results" in text
