"""A full disk behind stdout is told in one sentence, with the status of `--output` to such a disk."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = "sample_logs/unclean-election"


@pytest.mark.parametrize(
    "arguments",
    [
        ["scan", SAMPLE, "--format", "json"],
        ["scan", SAMPLE, "--format", "table"],
        ["dump", SAMPLE, "--format", "table"],
        ["explain", "UNCLEAN_LOSS"],
        ["--help"],
    ],
    ids=lambda arguments: f"{arguments[0]}-{arguments[-1]}",
)
def test_a_full_disk_behind_stdout_is_2_and_a_sentence(arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kafka_forensics", *arguments],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    last = done.stderr.splitlines()[-1]
    assert (done.returncode, last) == (2, "error: cannot write to standard output: no space left on device")
    assert "bug:" not in done.stderr
