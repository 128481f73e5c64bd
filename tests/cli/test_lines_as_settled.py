"""`scan --format jsonl` writes each partition as soon as it is judged: while the scan runs, whole, and once."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_forensics.cli.outputs.scan import LinesAsSettled
from kafka_forensics.cli.streams import uninterrupted
from kafka_forensics.engine import local
from kafka_forensics.evidence.options import ScanOptions
from tests.cli.test_interrupts import SAMPLE, judged_so_far
from tests.support.plan_runs import Run

ROOT = Path(__file__).resolve().parents[2]


def types(text: str) -> list[str]:
    return [json.loads(line)["type"] for line in text.splitlines()]


def test_a_partition_is_written_while_others_are_read(tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    output = tmp_path / "scan.jsonl"

    def progress(done: int, total: int) -> None:
        seen.append((done, total, output.read_text()))

    options = ScanOptions(topic_glob="codec-*", deep=False)
    with LinesAsSettled(output, show_payloads=False) as lines:
        result = local.scan([str(SAMPLE)], options, progress, lines)
        lines.end(result)
    assert types(seen[0][2]) == ["broker"] * 3  # before any partition is judged
    partly = [text for done, total, text in seen if done < total]
    counts = [types(text).count("partition") for text in partly]
    assert counts == sorted(counts)
    assert {*counts} >= {0, 1, 2, 3}
    assert len(result.partitions) == 4
    assert all(output.read_text().startswith(text) for text in partly)
    assert types(output.read_text())[-1] == "summary"


def test_the_command_writes_the_same_at_once(run: Run, tmp_path: Path) -> None:
    status, out, err = run("scan", SAMPLE, "--format", "jsonl")
    assert status == 1, err
    result = local.scan([str(SAMPLE)], ScanOptions())
    with LinesAsSettled(tmp_path / "scan.jsonl", show_payloads=False) as lines:
        lines.end(result)
    assert out == (tmp_path / "scan.jsonl").read_text()
    assert run("scan", SAMPLE, "--output", tmp_path / "other.jsonl")[0] == 1
    assert out == (tmp_path / "other.jsonl").read_text()


def test_what_is_interrupted_is_whole_lines_that_end_with_an_incomplete_summary() -> None:
    done = judged_so_far("jsonl")
    assert done.returncode == 130
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    partitions = [row["topic"] for row in rows if row["type"] == "partition"]
    assert partitions == ["append-time", "audit", "codec-gzip"]
    assert [row["type"] for row in rows][-2:] == ["incomplete", "summary"]
    assert rows[-2]["reason"] == "interrupted after 3 of 11 partitions"
    assert rows[-1]["partitions"] == 3


def test_a_wrong_path_leaves_the_output_alone(run: Run, tmp_path: Path) -> None:
    output = tmp_path / "scan.jsonl"
    output.write_text("of last night\n")
    status, _, err = run("scan", tmp_path / "none", "--output", output)
    assert (status, output.read_text()) == (2, "of last night\n"), err


def test_a_reader_that_has_enough_ends_the_scan() -> None:
    command = [sys.executable, "-m", "kafka_forensics", "scan", str(SAMPLE), "--format", "jsonl"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["type"] == "broker"
        process.stdout.close()
        said = process.stderr.read()
    assert process.returncode in (1, 141)  # it may have been through
    assert process.returncode == 1 or said == ""


def test_an_interruption_waits_for_a_line_and_a_second_one_does_not() -> None:
    written = io.StringIO()

    def write(interruptions: int, text: str) -> None:
        with uninterrupted():
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
