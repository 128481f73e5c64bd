"""A rerun killed at any step leaves a complete snapshot or none, and the next run repairs the dataset."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.export.datasets import leftover_paths
from tests.support.places import ROOT

MIN_STEPS = 35


@pytest.mark.nightly
def test_a_reader_finds_a_complete_snapshot_or_none_after_any_step(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.export.killed_appends", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    stops = [line.rpartition(": ")[2] for line in done.stdout.splitlines() if line.startswith("step ")]
    assert len(stops) >= MIN_STEPS
    assert "rename" in stops
    assert done.stdout.splitlines()[-1].endswith(
        "; 2 of them left no snapshot"
    )  # between the two renames, before and after the fsync
    assert leftover_paths(tmp_path / "out") == []
