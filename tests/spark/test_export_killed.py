"""An export on Spark whose driver is killed in the middle: it says that it is unfinished, and the evidence is what it was."""

import os
from pathlib import Path

import pytest

from kafka_forensics.cli.main import outcome
from tests.support.replicas import RepeatedLogs, noisy_batch
from tests.support.spark_cluster import kill_while_writing

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


def listed(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file below a folder."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def test_a_killed_export_says_that_it_is_unfinished(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = RepeatedLogs(tmp_path / "evidence", "orders", partitions=8, batches=300, batch=noisy_batch(50, 100, "zstd"), records=50)
    before = listed(logs.folder)
    target = tmp_path / "out"
    asked = ["export", *map(str, logs.log_dirs), "--engine", "spark", "--spark-master", "local[2]", "--output", str(target), "-q"]
    kill_while_writing(asked, target, tmp_path / "said")
    assert listed(logs.folder) == before
    left = set(os.listdir(target))
    assert {"_UNFINISHED", "_temporary"} <= left
    assert not {"_SUCCESS", "_manifest.json"} & left
    assert outcome(asked) == 2
    assert "did not finish, or one that is running" in capsys.readouterr().err
    assert set(os.listdir(target)) == left
