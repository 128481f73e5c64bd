"""A rerun that is killed at any of its steps, or fails there: the dataset is what it was or what it is to be, and goes on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.datasets import left_over

ROOT = Path(__file__).resolve().parents[2]
STEPS = {("parquet", "kill"): 25, ("parquet", "fail"): 20, ("delta", "kill"): 4, ("iceberg", "kill"): 7}
"""That are stopped at, at least."""


@pytest.mark.parametrize(("form", "how"), STEPS)
def test_a_snapshot_is_there_once_whatever_step_was_the_last(tmp_path: Path, form: str, how: str) -> None:
    command = [sys.executable, "-m", "tests.support.killed_appends", form, how, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    stops = [line.rpartition(": ")[2] for line in done.stdout.splitlines() if line.startswith("step ")]
    assert len(stops) >= STEPS[form, how]
    commits = {"parquet": {"rename"}, "delta": {"create_write_transaction", "swap"}, "iceberg": {"commit_table", "swap"}}
    assert commits[form] <= set(stops)
    if form == "parquet":
        assert left_over(tmp_path / "out") == []
    assert not list((tmp_path / "out").glob("_left-*"))
    assert not (tmp_path / "out" / "_UNFINISHED").exists()
