"""`examples/nightly_audit.py` works with `spark-submit` on this machine and on a cluster, and in the session of the tests."""

import os
import re
import runpy
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import kafka_forensics as kf
from kafka_forensics.errors import IncompleteError
from kafka_forensics.spark import read_export
from tests.export.exports import snapshot_of
from tests.spark.cluster import Cluster, spark_environment, submitted
from tests.support.places import ROOT, SAMPLES

if TYPE_CHECKING:
    import subprocess

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

AUDIT = ROOT / "examples" / "nightly_audit.py"
Audited = Callable[..., int]


def submit(folder: Path, master: str, *arguments: Path | str, python: str = sys.executable) -> "subprocess.CompletedProcess[str]":
    """Run the audit with the `spark-submit` of the Spark that `python` has; Spark writes only below `folder`."""
    return submitted(AUDIT, arguments, master=master, folder=folder, environment=spark_environment(folder, python))


@pytest.fixture
def audited(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Audited:
    """A function that runs an audit in this process and its session, and returns the exit status."""
    main = runpy.run_path(str(AUDIT))["main"]

    def run(*arguments: Path | str) -> int:
        monkeypatch.setattr(sys, "argv", ["nightly_audit.py", *map(str, arguments)])
        return int(main())

    return run


def kinds(rows: list[dict[str, Any]]) -> list[tuple[str, str | None, int | None]]:
    return sorted((row["kind"], row["topic"] or "", -1 if row["partition"] is None else row["partition"]) for row in rows)


def damaged(folder: Path) -> Path:
    """A copy of the healthy sample with a changed byte in a batch, and a pipe in place of a log."""
    copied = Path(shutil.copytree(SAMPLES / "healthy", folder / "damaged"))
    log = copied / "broker-1" / "orders-0" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    unreadable = copied / "broker-2" / "payments-0" / "00000000000000000000.log"
    unreadable.unlink()
    os.mkfifo(unreadable)
    return copied


def test_an_audit_on_a_cluster_writes_findings_and_exits_with_1(running: Cluster, spark: SparkSession, tmp_path: Path) -> None:
    tonight, last_night, lake = SAMPLES / "unclean-election", SAMPLES / "healthy", tmp_path / "lake"
    arguments = (tonight, "--output", lake, "--snapshot", "2026-11-25", "--since", f"2026-11-24={last_night}")
    done = submit(tmp_path, running.url, *arguments, python=running.python)
    assert done.returncode == 1, done.stderr[-4000:]
    assert "2026-11-25: critical; 14 partitions, 351,864 bytes\nchanged: 36 unchanged, 3 appended, 3 created\n" in done.stdout
    assert "  critical  UNCLEAN_LOSS  audit-0\n" in done.stdout
    written = read_export(spark, str(lake), "findings").toArrow().to_pylist()
    assert {row["snapshot"] for row in written} == {"2026-11-25"}
    assert kinds(written) == kinds(kf.scan(str(tonight)).to_arrow().to_pylist())
    assert {path.name for path in snapshot_of(lake).iterdir()} >= {"_SUCCESS", "replicas", "transactions", "incomplete"}
    changes = pq.read_table(tmp_path / "lake-changes" / "2026-11-25" / "changes.parquet").to_pylist()
    assert {(row["topic"], row["from_snapshot"]) for row in changes if row["kind"] == "created"} == {("audit", "2026-11-24")}


def test_an_unreadable_log_makes_the_audit_exit_with_3(spark: SparkSession, tmp_path: Path) -> None:
    done = submit(tmp_path, "local[2,4]", damaged(tmp_path), "--output", "lake", "--snapshot", "today", "--fact", "spans")
    assert done.returncode == 3, done.stderr[-4000:]
    assert re.search(r"^Spark's job \(write facts\) took \d+\.\d s$", done.stdout, re.MULTILINE)
    assert "broker-2/payments-0/00000000000000000000.log: " in done.stdout
    assert "  error     BATCH_CRC_MISMATCH  orders-0\n" in done.stdout
    output = tmp_path / "lake"
    assert {path.name for path in snapshot_of(output).iterdir()} == {
        "_INCOMPLETE",
        "manifest.json",
        "spans",
        "findings",
        "incomplete",
    }
    with pytest.raises(IncompleteError, match=r"snapshot today of cluster .* lacks unreadable parts: .*payments-0"):
        read_export(spark, str(output), "spans")
    assert (
        read_export(spark, str(output), "spans", allow_incomplete=True).filter("topic = 'orders' and kind = 'damaged'").count() == 1
    )


def test_a_healthy_cluster_exits_with_0_and_is_audited_again(
    audited: Audited, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (SAMPLES / "healthy", "--output", tmp_path / "lake", "--snapshot", "today", "--whole")
    assert audited(*arguments) == 0
    assert "today: info; " in capsys.readouterr().out
    first = {path.name for path in snapshot_of(tmp_path / "lake").rglob("*.parquet")}
    assert audited(*arguments) == 0
    again = {path.name for path in snapshot_of(tmp_path / "lake").rglob("*.parquet")}
    assert len(again) == len(first)
    assert not again & first


@pytest.mark.parametrize("older", [True, False], ids=["older", "newer"])
def test_a_missing_path_writes_nothing(audited: Audited, tmp_path: Path, capsys: pytest.CaptureFixture[str], older: bool) -> None:
    absent, sample = str(tmp_path / "absent"), str(SAMPLES / "healthy")
    arguments = [sample, "--since", f"before={absent}"] if older else [absent]
    assert audited(*arguments, "--output", tmp_path / "lake") == 2
    assert f"error: {absent}: no such file or directory" in capsys.readouterr().err
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("arguments", ["--snapshot ../x", "--since x", "--since =x", "--since today=x", "--since a=x --since b=x"])
def test_invalid_snapshot_names_are_refused(audited: Audited, tmp_path: Path, arguments: str) -> None:
    with pytest.raises(SystemExit) as end:
        audited(SAMPLES / "healthy", "--output", tmp_path / "lake", "--snapshot", "today", *arguments.split())
    assert end.value.code == 2
    assert not (tmp_path / "lake").exists()
