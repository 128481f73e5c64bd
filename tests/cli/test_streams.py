"""Streams: data is the same whatever stands beside it; stdout that takes nothing ends a command in a sentence or in silence."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from kafka_forensics.cli.manual import MANUAL
from kafka_forensics.cli.options import SCAN_FORMATS
from tests.cli.every_command import Terminal
from tests.cli.runs import Run
from tests.support.nightly import daily_subset
from tests.support.places import SAMPLES

WRITING: Final = ("demo", "export", "simulate run", "doctor")
"""Commands that write files, and the one that tells how fast it is."""
EXAMPLES: Final = sorted(
    {
        manual.examples[0]
        for name, manual in MANUAL.items()
        if name and not manual.examples[0].startswith(WRITING) and "--output" not in manual.examples[0]
    }
)
JOB: Final = {"GITHUB_ACTIONS": "true", "GITLAB_CI": "true", "TF_BUILD": "true", "CI": "true"}
"""Rich takes some services' jobs for terminals with colours."""


@pytest.fixture
def _samples(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of one's own with the samples in it, and what `verify` is held against."""
    shutil.copytree(SAMPLES, tmp_path / "sample_logs")
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "COLUMNS", "TERM", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    assert run("plan", "sample_logs/unclean-election", "--output", "plan.json")[0] == 0


@pytest.mark.usefixtures("_samples")
def test_data_is_the_same_beside_a_terminal_and_in_a_job(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(EXAMPLES) >= 12
    assert {example.split()[0] for example in EXAMPLES} >= {"scan", "plan", "dump", "find", "groups", "explain", "metadata"}
    formats = {f"scan sample_logs/unclean-election --format {name}": "80" for name in ("table", "markdown", "tsv")}
    for example, columns in (dict.fromkeys(EXAMPLES, "41") | formats).items():
        with monkeypatch.context() as patch:
            patch.setenv("TERM", "xterm-256color")
            patch.setattr(sys, "stderr", Terminal())
            beside = run(*shlex.split(example))[:2]
        with monkeypatch.context() as patch:
            for name, value in (JOB | {"COLUMNS": columns}).items():
                patch.setenv(name, value)
            in_a_job = run(*shlex.split(example))[:2]
        assert (beside == in_a_job, beside[0] in {0, 1}, bool(beside[1]), "\x1b" in beside[1]) == (True, True, True, False), example


@pytest.mark.parametrize("name", daily_subset({"json"}, SCAN_FORMATS))
def test_the_same_bytes_at_one_job_and_at_eight(run: Run, name: str) -> None:
    example = ["scan", SAMPLES / "silent-divergence", "--format", name, "--jobs"]
    assert run(*example, 1) == run(*example, 8)


SAMPLE = "sample_logs/unclean-election"
COMMAND_LINES = [
    f"scan {SAMPLE} --format json",
    f"scan {SAMPLE} --format table",
    f"compare {SAMPLE} --topic audit --format table",
    f"groups {SAMPLE} --all-partitions --format table",
    f"transactions {SAMPLE} --format tsv",
    f"dump {SAMPLE} --format table",
    "explain UNCLEAN_LOSS",
    "--help",
]


def end(command_line: str, stdout: int) -> tuple[int, str]:
    """Status and stderr of a command in a process of its own."""
    command = [sys.executable, "-m", "kafka_forensics", *command_line.split()]
    done = subprocess.run(command, cwd=SAMPLES.parent, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("command_line", daily_subset({COMMAND_LINES[0], COMMAND_LINES[5]}, COMMAND_LINES))
def test_a_full_disk_is_2_and_a_sentence_and_a_closed_pipe_141_and_silence(command_line: str) -> None:
    with Path("/dev/full").open("wb") as full:
        status, err = end(command_line, full.fileno())
    assert (status, err.splitlines()[-1]) == (2, "error: cannot write to standard output: no space left on device")
    assert "bug:" not in err
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert end(command_line, writer) == (141, "")
    finally:
        os.close(writer)
