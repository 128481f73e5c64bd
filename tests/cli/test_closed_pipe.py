"""Whatever command writes, in whatever format: a reader that went away ends it with 141 and in silence."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = "sample_logs/unclean-election"


@pytest.mark.parametrize(
    "arguments",
    [
        ["scan", SAMPLE, "--format", "table"],
        ["scan", SAMPLE, "--format", "json"],
        ["compare", SAMPLE, "--topic", "audit", "--format", "table"],
        ["metadata", SAMPLE, "--format", "table"],
        ["groups", SAMPLE, "--all-partitions", "--format", "table"],
        ["transactions", SAMPLE, "--format", "tsv"],
        ["find", SAMPLE, "--offset", "0:", "--format", "table"],
        ["epochs", SAMPLE, "--format", "table"],
        ["dump", SAMPLE, "--format", "table"],
        ["explain", "UNCLEAN_LOSS"],
    ],
    ids=lambda arguments: f"{arguments[0]}-{arguments[-1]}",
)
def test_a_reader_that_went_away_is_141_and_silence(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "kafka_forensics", *arguments],
            cwd=ROOT,
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")
