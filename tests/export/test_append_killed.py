"""A rerun that is killed at any of its steps: readers find a whole snapshot or none, and the next run mends it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.export.datasets import left_over
from tests.support.places import ROOT

STEPS = 35
"""That are stopped at, at least."""


@pytest.mark.nightly
def test_a_reader_finds_a_whole_snapshot_or_none_whatever_step_was_the_last(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.export.killed_appends", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    stops = [line.rpartition(": ")[2] for line in done.stdout.splitlines() if line.startswith("step ")]
    assert len(stops) >= STEPS
    assert "rename" in stops
    assert int(done.stdout.splitlines()[-1].split()[4]) == 2  # between two renames, before and after the fsync
    assert left_over(tmp_path / "out") == []
