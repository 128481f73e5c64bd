"""Snapshots added to a dataset of Parquet files: each once and whole, whatever was there of it before."""

import errno
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kafka_forensics as kf
from kafka_forensics.cli.main import outcome
from kafka_forensics.export.append import TABLE_FORMATS
from kafka_forensics.export.datasets import MAX_FILE_BYTES
from kafka_forensics.export.facts import rows as facts_rows
from kafka_forensics.export.labels import MAX_ENCODED_BYTES, NO_VALUE, SnapshotLabel, dataset_schema, percent_encode
from kafka_forensics.export.snapshots import open_snapshot
from kafka_forensics.export.target import LOCK
from kafka_forensics.model.schemas import FACTS
from tests.export.datasets import FEW, NAMES, ONE, OTHER, append, files, keys, left_over, of_snapshot, read, unlabelled
from tests.export.exports import export, manifest, note_synced, rows

LABEL = SnapshotLabel("a", "n1", "f" * 32, in_rows=False)


def test_every_fact_of_each_night_is_there_once(tmp_path: Path, copies: Path) -> None:
    target = tmp_path / "out"
    assert append(target, "payments", "2026-03-01", "--show-payloads") == 0
    assert append(target, "payments", "2026-03-02", "--show-payloads", path=copies) == 0
    first, second = kf.scan(str(ONE)), kf.scan(str(copies))
    for fact in FACTS:
        table = read(target, fact)
        assert table.schema.names[:2] == NAMES
        for snapshot, result in (("2026-03-01", first), ("2026-03-02", second)):
            assert rows(of_snapshot(table, snapshot)) == rows(result.facts(fact)), fact
        assert set(table["cluster"].to_pylist()) <= {"payments"}
    assert left_over(target) == []
    assert sorted(path.name for path in target.iterdir()) == ["_LOCK", "cluster=payments"]


def test_the_manifest_of_a_snapshot_is_true(tmp_path: Path) -> None:
    assert append(tmp_path / "out", "a", "n1", "--topic", "l*") == 0
    folder = tmp_path / "out" / "cluster=a" / "snapshot=n1"
    told = manifest(folder)
    assert {file["path"] for file in told["files"]} == {path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")}
    for file in told["files"]:
        data = (folder / file["path"]).read_bytes()
        assert (file["bytes"], file["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
        held = pq.ParquetFile(folder / file["path"])
        assert held.metadata.num_rows == file["rows"]
        assert held.schema_arrow.equals(dataset_schema(FACTS[file["path"].partition("/")[0]], LABEL))
        assert (held.schema_arrow.metadata or {})[b"kf.snapshot"] == b"n1"
        assert (file["cluster"], file["snapshot"]) == ("a", "n1")
    assert list(told["datasets"]) == list(FACTS)
    assert (told["options"]["topic"], told["tool"]["name"], told["incomplete"]) == ("l*", "kafka-forensics", [])
    assert {path.name for path in folder.iterdir()} == {*FACTS, "_manifest.json", "_SUCCESS"}


def test_a_rerun_replaces_its_snapshot_and_no_other(tmp_path: Path) -> None:
    target = tmp_path / "out"
    for cluster, snapshot in (("a", "n1"), ("b", "n1"), ("a", "n2")):
        assert append(target, cluster, snapshot, *FEW) == 0
    before = files(target, "batches")
    assert append(target, "a", "n1", *FEW, path=OTHER) == 0
    after = files(target, "batches")
    assert len(before) == len(after) == 3
    assert not {path.name for path in {*after} - {*before}} & {path.name for path in before}, "no reader mixes files of two runs"
    assert {path.parts[-4:-2] for path in {*after} - {*before}} == {("cluster=a", "snapshot=n1")}
    table = read(target, "batches")
    assert keys(table) == {("a", "n1"), ("b", "n1"), ("a", "n2")}
    mine = of_snapshot(table.filter(pa.compute.field("cluster") == "a"), "n1")
    assert rows(mine) == rows(kf.scan(str(OTHER)).facts("batches"))
    assert left_over(target) == []


def test_many_replicas_share_a_file_whatever_the_jobs(tmp_path: Path, copies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_FORENSICS_KERNELS", "compiled")
    monkeypatch.setattr("kafka_forensics.export.datasets.SPLIT_BYTES", 20_000)
    monkeypatch.setattr(facts_rows, "MAX_ROWS", 100)
    assert append(tmp_path / "one", "a", "n1", "--jobs", 1, path=copies) == 0
    assert append(tmp_path / "two", "a", "n1", "--jobs", 3, path=copies) == 0
    for fact in FACTS:
        one, two = files(tmp_path / "one", fact), files(tmp_path / "two", fact)
        assert [path.name[:15] for path in one] == [path.name[:15] for path in two]
    assert 1 < len(files(tmp_path / "one", "records")) < kf.scan(str(copies)).totals.replicas
    assert MAX_FILE_BYTES > 20_000
    for fact in FACTS:
        assert unlabelled(read(tmp_path / "one", fact), fact) == unlabelled(read(tmp_path / "two", fact), fact)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--cluster", "a"), "--cluster goes with --append"),
        (("--table-format", "delta"), "--table-format goes with --append"),
        (("--append", "--snapshot", "n"), "--append needs --cluster"),
        (("--append", "--cluster", "a"), "--append needs --snapshot"),
        (("--append", "--cluster", "a", "--snapshot", "n", "--table-format", "orc"), "there is no table format 'orc'"),
        (("--append", "--cluster", "a", "--snapshot", "n", "--iceberg-catalog", "c"), "goes with --table-format iceberg"),
        (("--append", "--cluster", "", "--snapshot", "n"), "--cluster is no name"),
        (("--append", "--cluster", "a", "--snapshot", "n\u202e"), "--snapshot is no name"),
        (("--append", "--cluster", "a", "--snapshot", NO_VALUE), "--snapshot is no name"),
        (("--append", "--cluster", "a", "--snapshot", "=" * 81), "--snapshot is no name"),
    ],
)
def test_refusals_leave_nothing(tmp_path: Path, arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(["export", str(ONE), "--output", str(tmp_path / "out"), *arguments]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_form_of_a_dataset_does_not_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert append(tmp_path / "out", "a", "n1", *FEW) == 0
    before = sorted(tmp_path.rglob("*"))
    assert export(tmp_path / "out", ONE, *FEW) == 2
    assert "holds a dataset to which snapshots are added" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
    for other in TABLE_FORMATS[1:]:
        assert append(tmp_path / "out", "a", "n2", *FEW, "--table-format", other) == 2
        assert "holds snapshots as Parquet files" in capsys.readouterr().err
    assert append(tmp_path / "out", "a", "n2", *FEW) == 0


NAMED = ["é ' \" \\", "a/b=c%20", "2026-03-01", "n" * MAX_ENCODED_BYTES, "..", "*?[x]", "日本"]


@pytest.mark.parametrize("name", NAMED)
def test_names_come_back_as_they_were(tmp_path: Path, name: str) -> None:
    for snapshot in (name, name, "other"):
        assert append(tmp_path, name, snapshot, *FEW) == 0
    table = read(tmp_path, "batches")
    assert keys(table) == {(name, name), (name, "other")}
    assert table["snapshot"].to_pylist().count(name) * 2 == table.num_rows
    assert left_over(tmp_path) == []
    assert {path.parts[-4:-2] for path in files(tmp_path, "batches")} == {
        (f"cluster={percent_encode(name)}", f"snapshot={percent_encode(snapshot)}") for snapshot in (name, "other")
    }


def test_one_run_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out"
    assert append(target, "a", "n1", *FEW) == 0
    with open_snapshot(str(target), LABEL) as held:
        assert append(target, "a", "n2", *FEW) == 2
        err = capsys.readouterr().err
        assert f"another run is adding a snapshot to {target}" in err
        assert "hint: add this one when that has ended" in err
        held.target.remove()
        assert append(target, "b", "n2", *FEW) == 2
    assert append(target, "a", "n2", *FEW) == 0
    assert keys(read(target, "batches")) == {("a", "n1"), ("a", "n2")}


def test_who_waits_at_a_directory_that_was_taken_away_makes_it_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its opening the lock file and locking it the run before has given up."""
    lock = fcntl.flock
    taken: list[int] = []

    def late(descriptor: int, what: int) -> None:
        if not taken:
            taken.append(descriptor)
            shutil.rmtree(tmp_path / "out")
        lock(descriptor, what)

    monkeypatch.setattr(fcntl, "flock", late)
    assert append(tmp_path / "out", "a", "n1", *FEW) == 0
    assert (tmp_path / "out" / LOCK).exists()
    assert keys(read(tmp_path / "out", "batches")) == {("a", "n1")}


@pytest.mark.parametrize("code", [errno.ENOTSUP, errno.ENOLCK])
def test_no_lock_no_write(tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(code, os.strerror(code))))
    assert append(tmp_path / "new" / "out", "a", "n1", *FEW) == 2
    said = capsys.readouterr().err
    assert f"no lock can be had in {tmp_path / 'new' / 'out'}: {os.strerror(code)}" in said
    assert "hint: choose a directory on a file system that has locks, or --table-format delta or iceberg" in said
    left = [path.name for path in tmp_path.rglob("*")]
    assert left == ([] if code == errno.ENOTSUP else ["new", "out", LOCK])  # another run may hold that


def test_the_lock_of_a_killed_run_is_nobodys(tmp_path: Path) -> None:
    """Whose threads and copies were at work."""
    code = (
        "import os, signal, sys\n"
        "from kafka_forensics.cli.main import outcome\n"
        "from kafka_forensics.export import datasets\n"
        "datasets.Dataset.add = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "outcome(sys.argv[1:])\n"
    )
    asked = ["export", str(ONE), "--append", "--output", str(tmp_path / "out"), "--cluster", "a", "--snapshot", "n1", "--jobs", "3"]
    assert subprocess.run([sys.executable, "-c", code, *asked], check=False, timeout=60).returncode == -signal.SIGKILL
    assert files(tmp_path / "out", "batches") == []
    assert len(list((tmp_path / "out").glob("cluster=a/_unfinished-*"))) == 1
    assert append(tmp_path / "out", "a", "n2", *FEW) == 0
    assert keys(read(tmp_path / "out", "batches")) == {("a", "n2")}
    assert left_over(tmp_path / "out") == []


def test_what_is_set_aside_comes_back_to_whichever_cluster(tmp_path: Path) -> None:
    """Killed between two renames; its name begins as those of a reader's own may, and one half removed is never put back."""
    target = tmp_path / "out"
    for cluster in ("a", "b"):
        assert append(target, cluster, "n=1", *FEW) == 0
    here, there = target / "cluster=a" / "snapshot=n%3D1", target / "cluster=a" / "_replaced-n%3D1"
    here.rename(there)
    (target / "cluster=a" / f"_unfinished-{'d' * 32}" / "_temporary").mkdir(parents=True)
    (target / "cluster=a" / "_unfinished-mine").mkdir()
    assert keys(read(target, "batches")) == {("b", "n=1")}
    assert append(target, "b", "n=2", *FEW) == 0
    assert keys(read(target, "batches")) == {("a", "n=1"), ("b", "n=1"), ("b", "n=2")}
    assert left_over(target) == ["cluster=a/_unfinished-mine"]


def test_an_error_in_between_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out"
    assert append(target, "a", "n1", *FEW) == 0
    before, rename = files(target, "batches"), os.rename

    def full(source: str, to: str) -> None:
        if to.endswith("snapshot=n1") and "_unfinished-" in source:
            raise OSError(errno.ENOSPC, "No space left on device")
        rename(source, to)

    monkeypatch.setattr(os, "rename", full)
    assert append(target, "a", "n1", *FEW, path=OTHER) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert files(target, "batches") == before
    assert left_over(target) == []


def test_files_are_on_disk_before_the_directory_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On disk is what was given to fsync; a directory counts from the last name that came into it."""
    rename = os.rename
    synced = note_synced(monkeypatch)
    named: set[str] = set()
    published: list[str] = []

    def noted_rename(source: str, to: str) -> None:
        if os.path.basename(to) == "snapshot=n1":
            parents = {str(parent) for path in named for parent in Path(path).parents if tmp_path in parent.parents}
            assert parents | {str(tmp_path)} <= synced
            published.append(source)
        elif "_replaced-" in source:
            assert os.path.dirname(source) in synced  # the new one is on disk before the old one is removed
        elif "_replaced-" not in to:
            assert source in synced
            named.add(to)
        synced.discard(os.path.dirname(to))
        rename(source, to)

    monkeypatch.setattr(os, "rename", noted_rename)
    for count in (1, 2):
        assert append(tmp_path / "new" / "out", "a", "n1", *FEW) == 0
        assert len(published) == count
        assert len(named) >= 5
        named.clear()
        assert (str(tmp_path / "new" / "out" / "cluster=a") in synced) is (count == 1)  # then the removal's rename came after
