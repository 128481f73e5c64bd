"""Ctrl-C at any time: one line, status 130, no process left; JSON Lines contain each partition that was judged before."""

import io
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import IO, Any, cast
from unittest.mock import Mock

import pytest

from kafka_forensics import scan
from kafka_forensics.cli import spark_session
from kafka_forensics.cli.main import outcome
from kafka_forensics.cli.outputs.scan import PartitionLinesWriter
from kafka_forensics.cli.spark_session import Children
from kafka_forensics.cli.streams import delayed_interruptions
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.scanning.engine import local
from kafka_forensics.scanning.judging.whole_scan import ScanInterruptedError
from tests.cli.runs import Run
from tests.support.json_schemas import validate
from tests.support.places import ROOT, SAMPLES

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


SAMPLE = SAMPLES / "unclean-election"


@pytest.fixture(autouse=True)
def _python_handler() -> Iterator[None]:
    """Restore Python's handler: a Spark session of an earlier test may have installed another one."""
    previous_handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous_handler)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def process(code: str) -> tuple[int, str, str]:
    completed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    return completed.returncode, completed.stdout, completed.stderr


def test_an_interruption_while_modules_are_loaded() -> None:
    assert process(WHILE_LOADING) == (130, "", "interrupted\n")


def test_ignored_interruptions_stay_ignored() -> None:
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + WHILE_LOADING.replace("run()", "")
    status, out, err = process(code + "sys.argv = ['kafka-forensics', '--version']; run()")
    assert (status, out.startswith("kafka-forensics "), err) == (0, True, "")


def interrupted_scan(format_name: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """The outcome of a scan that is interrupted in its fourth partition."""
    original_judge, calls = vars(local)["judge_logs"], list[int]()

    def interrupting_judge(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return original_judge(*arguments)

    command_line = ["scan", str(SAMPLE), "--topic", "[!_]*", "--jobs", "1", "--format", format_name, *options]
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        patch.setattr(local, "judge_logs", interrupting_judge)
        status = outcome(command_line)
    return subprocess.CompletedProcess(command_line, status, out.getvalue(), err.getvalue())


def test_an_interrupted_scan_prints_judged_partitions_and_is_incomplete() -> None:
    completed = interrupted_scan("json")
    assert completed.returncode == 130
    document = json.loads(completed.stdout)
    validate("scan", document)
    assert [partition["topic"] for partition in document["partitions"]] == ["append-time", "audit", "codec-gzip"]
    assert [(gap["path"], gap["reason"]) for gap in document["incomplete"]] == [
        (str(SAMPLE), "interrupted after 3 of 11 partitions")
    ]
    assert [incident["cause"] for incident in document["incidents"]] == ["unclean_election"]
    assert {finding["topic"] for finding in document["findings"]} == {"audit"}
    assert completed.stderr.splitlines()[-2:] == [f"incomplete: {SAMPLE}: interrupted after 3 of 11 partitions", "interrupted"]


def test_a_caller_of_the_package_gets_keyboard_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "judge_logs", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt) as raised:
        scan(str(SAMPLE))
    assert isinstance(raised.value, ScanInterruptedError)
    assert (raised.value.result.partitions, raised.value.result.verdict) == ([], "unknown")


def test_new_child_processes_and_their_descendants_are_ended_but_older_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell exits on SIGTERM, its child does not."""
    monkeypatch.setattr(spark_session, "_SECONDS_TO_END", 0.2)
    started: list[subprocess.Popen[str]] = []

    def start_and_interrupt() -> None:
        script = "(trap '' TERM; sleep 600) & echo $!; wait"
        started.append(subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True))
        select.select([cast("IO[str]", started[0].stdout)], [], [], 10)
        os.kill(os.getpid(), signal.SIGINT)

    with subprocess.Popen(["sleep", "600"]) as older:
        with pytest.raises(KeyboardInterrupt), Children():
            start_and_interrupt()
        assert is_alive(older.pid)
        older.kill()
    (shell,) = started
    assert shell.stdout is not None
    with shell.stdout as output:
        assert not is_alive(int(output.readline()))
    assert shell.wait(1) == -signal.SIGTERM


def swallow_an_interruption() -> None:
    with suppress(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)


def test_a_swallowed_interruption_is_raised_and_nothing_changes_without_one() -> None:
    with pytest.raises(KeyboardInterrupt), Children():
        swallow_an_interruption()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with Children() as children, subprocess.Popen(["true"]) as child:
        assert child.wait(10) == 0
    assert not children.interrupted
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class Server:
    """A session of a Spark Connect server that records calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def interruptAll(self) -> None:  # noqa: N802 - Spark's name
        self.calls.append("interruptAll")

    def stop(self) -> None:
        self.calls.append("stop")


@pytest.mark.parametrize(("is_remote", "calls"), [(True, ["interruptAll", "stop"]), (False, [])])
def test_jobs_on_a_remote_server_are_cancelled(is_remote: bool, calls: list[str]) -> None:
    server = Server()
    with pytest.raises(KeyboardInterrupt):
        interrupt_session(server, is_remote=is_remote)
    assert server.calls == calls


def interrupt_session(server: Any, *, is_remote: bool) -> None:
    with Children() as children, spark_session._stopped_at_end(server, children, is_remote=is_remote):
        os.kill(os.getpid(), signal.SIGINT)


def line_types(text: str) -> list[str]:
    return [json.loads(line)["type"] for line in text.splitlines()]


def test_a_partition_is_written_while_others_are_read(tmp_path: Path) -> None:
    states: list[tuple[int, int, str]] = []
    output = tmp_path / "scan.jsonl"

    def progress(done: int, total: int) -> None:
        states.append((done, total, output.read_text()))

    options = ScanOptions(topic_glob="codec-*", deep=False)
    with PartitionLinesWriter(output, show_payloads=False) as lines:
        result = local.scan([str(SAMPLE)], options, progress, lines)
        lines.end(result)
    assert line_types(states[0][2]) == ["broker"] * 3  # before any partition is judged
    partial_texts = [text for done, total, text in states if done < total]
    counts = [line_types(text).count("partition") for text in partial_texts]
    assert counts == sorted(counts)
    assert {*counts} >= {0, 1, 2, 3}
    assert len(result.partitions) == 4
    assert all(output.read_text().startswith(text) for text in partial_texts)
    assert line_types(output.read_text())[-1] == "summary"


def test_the_command_writes_the_same_lines_as_the_writer(run: Run, tmp_path: Path) -> None:
    status, out, err = run("scan", SAMPLE, "--format", "jsonl")
    assert status == 1, err
    result = local.scan([str(SAMPLE)], ScanOptions())
    with PartitionLinesWriter(tmp_path / "scan.jsonl", show_payloads=False) as lines:
        lines.end(result)
    assert out == (tmp_path / "scan.jsonl").read_text()
    assert run("scan", SAMPLE, "--output", tmp_path / "other.jsonl")[0] == 1
    assert out == (tmp_path / "other.jsonl").read_text()


def test_an_interrupted_scan_writes_whole_lines_and_an_incomplete_summary() -> None:
    completed = interrupted_scan("jsonl")
    assert completed.returncode == 130
    rows = [json.loads(line) for line in completed.stdout.splitlines()]
    assert [row["topic"] for row in rows if row["type"] == "partition"] == ["append-time", "audit", "codec-gzip"]
    assert [row["type"] for row in rows][-2:] == ["incomplete", "summary"]
    assert (rows[-2]["reason"], rows[-1]["partitions"]) == ("interrupted after 3 of 11 partitions", 3)


def test_a_wrong_path_does_not_change_the_output(run: Run, tmp_path: Path) -> None:
    output = tmp_path / "scan.jsonl"
    output.write_text("of last night\n")
    status, _, err = run("scan", tmp_path / "none", "--output", output)
    assert (status, output.read_text()) == (2, "of last night\n"), err


def test_an_interruption_waits_for_the_end_of_a_line_but_a_second_one_does_not() -> None:
    written = io.StringIO()

    def write(interruptions: int, text: str) -> None:
        with delayed_interruptions():
            for _ in range(interruptions):
                os.kill(os.getpid(), signal.SIGINT)
            written.write(text)

    with pytest.raises(KeyboardInterrupt):
        write(1, "whole")
    assert written.getvalue() == "whole"
    with pytest.raises(KeyboardInterrupt):
        write(2, " never")
    assert written.getvalue() == "whole"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
