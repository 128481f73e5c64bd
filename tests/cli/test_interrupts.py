"""Ctrl-C at any moment: a line, status 130, and no process left that was started for a command."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kafka_forensics import scan
from kafka_forensics.cli import spark_session
from kafka_forensics.cli.spark_session import Children
from kafka_forensics.engine import local
from kafka_forensics.judging.scanning import ScanInterruptedError
from tests.support.json_schemas import json_schema

ROOT = Path(__file__).resolve().parents[2]
WHILE_LOADING = """
import os, signal, sys
from kafka_forensics.__main__ import run

class Interrupting:
    def find_spec(self, name, *_):
        if name == "kafka_forensics.cli.commands.transactions":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
run()
"""


WHILE_JUDGING = """
import os, signal, sys
from kafka_forensics.engine import local
from kafka_forensics.__main__ import run

judged, taken = local.judged, []

def interrupting(*arguments):
    taken.append(1)
    if len(taken) == 4:
        os.kill(os.getpid(), signal.SIGINT)
    return judged(*arguments)

local.judged = interrupting
run()
"""
SAMPLE = ROOT / "sample_logs" / "unclean-election"


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def test_while_the_program_is_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", WHILE_LOADING], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def judged_so_far(format_name: str, *more: str) -> "subprocess.CompletedProcess[str]":
    """A scan that is interrupted in its fourth partition."""
    arguments = ["scan", str(SAMPLE), "--topic", "[!_]*", "--jobs", "1", "--format", format_name, *more]
    return subprocess.run(
        [sys.executable, "-c", WHILE_JUDGING, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_scan_prints_what_was_judged_so_far_marked_incomplete() -> None:
    done = judged_so_far("json")
    assert done.returncode == 130
    document = json.loads(done.stdout)
    jsonschema.Draft202012Validator(json_schema()).validate(document)
    assert [partition["topic"] for partition in document["partitions"]] == ["append-time", "audit", "codec-gzip"]
    assert document["incomplete"] == [
        {"path": str(SAMPLE), "reason": "interrupted after 3 of 11 partitions", "topic": None, "partition": None, "broker": None}
    ]
    assert [incident["cause"] for incident in document["incidents"]] == ["unclean_election"]
    assert {finding["topic"] for finding in document["findings"]} == {"audit"}
    assert done.stderr.splitlines()[-2:] == [f"incomplete: {SAMPLE}: interrupted after 3 of 11 partitions", "interrupted"]


def test_an_interrupted_table_says_so_too() -> None:
    done = judged_so_far("report")
    assert done.returncode == 130
    assert done.stdout.startswith("CRITICAL  audit-0  ")
    assert "interrupted after 3 of 11" in " ".join(done.stdout.split())
    assert "2 partitions, 6 replicas: nothing found where readable" in done.stdout


def test_a_caller_of_the_package_is_interrupted_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(local, "judged", interrupted)
    with pytest.raises(KeyboardInterrupt) as raised:
        scan(str(SAMPLE))
    assert isinstance(raised.value, ScanInterruptedError)
    assert (raised.value.result.partitions, raised.value.result.verdict) == ([], "unknown")


def test_ignored_interruptions_stay_ignored() -> None:
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + WHILE_LOADING.replace("run()", "")
    code += "sys.argv = ['kafka-forensics', '--version']; run()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("kafka-forensics ")


def test_children_and_theirs_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "_SECONDS_TO_END", 0.2)
    started: list[subprocess.Popen[str]] = []
    with pytest.raises(KeyboardInterrupt), Children():
        interrupt_after(lambda: started.append(shell_with_a_child()))
    (shell,) = started
    assert shell.stdout is not None
    with shell.stdout as told:
        assert not alive(int(told.readline()))
    assert shell.wait(1) == -signal.SIGTERM


def shell_with_a_child() -> "subprocess.Popen[str]":
    """A shell that ends when it is asked to, and whose child does not."""
    shell = subprocess.Popen(["sh", "-c", "(trap '' TERM; sleep 600) & echo $!; wait"], stdout=subprocess.PIPE, text=True)
    assert shell.stdout is not None
    select.select([shell.stdout], [], [], 10)
    return shell


def interrupt_after(what: Callable[[], object]) -> None:
    what()
    os.kill(os.getpid(), signal.SIGINT)


def swallow_an_interruption() -> None:
    with suppress(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)


def test_older_children_live_on() -> None:
    with subprocess.Popen(["sleep", "600"]) as older:
        with pytest.raises(KeyboardInterrupt), Children():
            os.kill(os.getpid(), signal.SIGINT)
        assert alive(older.pid)
        older.kill()


def test_a_swallowed_interruption_is_raised_all_the_same() -> None:
    with pytest.raises(KeyboardInterrupt), Children():
        swallow_an_interruption()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_nothing_changes_without_an_interruption() -> None:
    with Children() as children, subprocess.Popen(["true"]) as child:
        assert child.wait(10) == 0
    assert not children.interrupted
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class Server:
    """A session of a Spark Connect server that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def interruptAll(self) -> None:  # noqa: N802 - Spark's name
        self.told.append("interruptAll")

    def stop(self) -> None:
        self.told.append("stop")


@pytest.mark.parametrize(("is_remote", "told"), [(True, ["interruptAll", "stop"]), (False, [])])
def test_what_a_server_does_for_us_is_cancelled(is_remote: bool, told: list[str]) -> None:
    server = Server()
    with pytest.raises(KeyboardInterrupt):
        interrupt_session(server, is_remote=is_remote)
    assert server.told == told


def interrupt_session(server: Any, *, is_remote: bool) -> None:
    with Children() as children, spark_session._used(server, children, is_remote=is_remote):
        os.kill(os.getpid(), signal.SIGINT)
