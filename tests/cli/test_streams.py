"""Output streams: terminals and CI services do not change stdout; an unwritable stdout gives an error, a closed pipe silence."""

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

NOT_COMPARED: Final = ("demo", "export", "simulate run", "doctor")
"""Commands that write files, and `doctor`, which measures speed."""
EXAMPLES: Final = sorted(
    {
        manual.examples[0]
        for name, manual in MANUAL.items()
        if name and not manual.examples[0].startswith(NOT_COMPARED) and "--output" not in manual.examples[0]
    }
)
CI_VARIABLES: Final = {"GITHUB_ACTIONS": "true", "GITLAB_CI": "true", "TF_BUILD": "true", "CI": "true"}
"""Variables of CI services. Rich takes some of them for terminals with colours."""


@pytest.fixture
def _samples(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current directory is a new one with the samples and the plan that `verify` reads."""
    shutil.copytree(SAMPLES, tmp_path / "sample_logs")
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "COLUMNS", "TERM", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    assert run("plan", "sample_logs/unclean-election", "--output", "plan.json")[0] == 0


@pytest.mark.usefixtures("_samples")
def test_stdout_is_the_same_on_a_terminal_and_in_ci(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(EXAMPLES) >= 12
    assert {example.split()[0] for example in EXAMPLES} >= {"scan", "plan", "dump", "find", "groups", "explain", "metadata"}
    for example in (*EXAMPLES, "scan sample_logs/unclean-election --format tsv"):
        with monkeypatch.context() as patch:
            patch.setenv("TERM", "xterm-256color")
            patch.setattr(sys, "stderr", Terminal())
            on_terminal = run(*shlex.split(example))[:2]
        with monkeypatch.context() as patch:
            for name, value in (CI_VARIABLES | {"COLUMNS": "80"}).items():
                patch.setenv(name, value)
            in_ci = run(*shlex.split(example))[:2]
        assert (on_terminal == in_ci, on_terminal[0] in {0, 1}, bool(on_terminal[1]), "\x1b" in on_terminal[1]) == (
            True,
            True,
            True,
            False,
        ), example


@pytest.mark.parametrize("name", daily_subset({"json"}, SCAN_FORMATS))
def test_stdout_is_the_same_with_one_job_and_with_eight(run: Run, name: str) -> None:
    example = ["scan", SAMPLES / "silent-divergence", "--format", name, "--jobs"]
    assert run(*example, 1) == run(*example, 8)


SAMPLE = "sample_logs/unclean-election"
COMMAND_LINES = [
    f"scan {SAMPLE} --format json",
    f"scan {SAMPLE} --format text",
    f"compare {SAMPLE} --topic audit --format text",
    f"groups {SAMPLE} --all-partitions --format text",
    f"transactions {SAMPLE} --format tsv",
    f"dump {SAMPLE} --format text",
    "explain UNCLEAN_LOSS",
    "--help",
]


def run_with_stdout(command_line: str, stdout: int) -> tuple[int, str]:
    """Exit status and stderr of a command in a new process."""
    command = [sys.executable, "-m", "kafka_forensics", *command_line.split()]
    completed = subprocess.run(
        command, cwd=SAMPLES.parent, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    return completed.returncode, completed.stderr


@pytest.mark.parametrize("command_line", daily_subset({COMMAND_LINES[0], COMMAND_LINES[5]}, COMMAND_LINES))
def test_a_full_disk_gives_status_2_and_an_error_and_a_closed_pipe_141_and_none(command_line: str) -> None:
    with Path("/dev/full").open("wb") as full:
        status, err = run_with_stdout(command_line, full.fileno())
    assert (status, err.splitlines()[-1]) == (2, "error: cannot write to standard output: no space left on device")
    assert "bug:" not in err
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert run_with_stdout(command_line, writer) == (141, "")
    finally:
        os.close(writer)
