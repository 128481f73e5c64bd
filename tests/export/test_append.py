"""A snapshot added to a dataset of Parquet files is there once and complete, whatever earlier runs left of it."""

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
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import kafka_forensics as kf
from kafka_forensics.cli.main import outcome
from kafka_forensics.export.datasets import MIN_FULL_FILE_BYTES
from kafka_forensics.export.facts import rows as facts_rows
from kafka_forensics.export.labels import (
    LABELS,
    MAX_ENCODED_BYTES,
    NO_VALUE,
    SnapshotLabel,
    dataset_schema,
    encoded_value,
    percent_encode,
)
from kafka_forensics.export.opening import TABLE_FORMATS
from kafka_forensics.export.snapshots import open_snapshot
from kafka_forensics.export.target import LOCK
from kafka_forensics.model.schemas import FACTS
from tests.export.datasets import (
    LABEL_NAMES,
    SILENT_DIVERGENCE,
    TWO_FACTS,
    UNCLEAN_ELECTION,
    append,
    files,
    leftover_paths,
    read,
    rows_without_labels,
    snapshot_rows,
    snapshots_in,
)
from tests.export.exports import export, manifest, record_fsyncs, rows

LABEL = SnapshotLabel("a", "n1", "f" * 32, in_rows=False)


def test_every_snapshot_has_the_rows_of_its_scan(tmp_path: Path, copies: Path) -> None:
    target = tmp_path / "out"
    assert append(target, "payments", "2026-03-01", "--show-payloads") == 0
    assert append(target, "payments", "2026-03-02", "--show-payloads", path=copies) == 0
    first, second = kf.scan(str(SILENT_DIVERGENCE)), kf.scan(str(copies))
    for fact in FACTS:
        table = read(target, fact)
        assert table.schema.names[:2] == LABEL_NAMES
        for snapshot, result in (("2026-03-01", first), ("2026-03-02", second)):
            assert rows(snapshot_rows(table, snapshot)) == rows(result.facts(fact, payloads=True)), fact
        assert set(table["cluster"].to_pylist()) <= {"payments"}
    assert leftover_paths(target) == []
    assert sorted(path.name for path in target.iterdir()) == ["_LOCK", "cluster=payments"]


def test_the_manifest_of_a_snapshot_lists_its_files(tmp_path: Path) -> None:
    assert append(tmp_path / "out", "a", "n1", "--topic", "l*") == 0
    folder = tmp_path / "out" / "cluster=a" / "snapshot=n1"
    content = manifest(tmp_path / "out")
    assert {file["path"] for file in content["files"]} == {
        path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")
    }
    for file in content["files"]:
        data = (folder / file["path"]).read_bytes()
        assert (file["bytes"], file["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
        parquet = pq.ParquetFile(folder / file["path"])
        assert parquet.metadata.num_rows == file["rows"]
        assert parquet.schema_arrow.equals(dataset_schema(FACTS[file["path"].partition("/")[0]], LABEL))
        assert (parquet.schema_arrow.metadata or {})[b"kf.snapshot"] == b"n1"
    assert (content["cluster"], content["snapshot"], content["partition_by"]) == ("a", "n1", [])
    assert list(content["datasets"]) == list(FACTS)
    assert (content["options"]["topic"], content["tool"]["name"], content["incomplete"]) == ("l*", "kafka-forensics", [])
    assert {path.name for path in folder.iterdir()} == {*FACTS, "manifest.json", "_SUCCESS"}


def test_a_rerun_replaces_only_its_snapshot(tmp_path: Path) -> None:
    target = tmp_path / "out"
    for cluster, snapshot in (("a", "n1"), ("b", "n1"), ("a", "n2")):
        assert append(target, cluster, snapshot, *TWO_FACTS) == 0
    before = files(target, "batches")
    assert append(target, "a", "n1", *TWO_FACTS, path=UNCLEAN_ELECTION) == 0
    after = files(target, "batches")
    assert len(before) == len(after) == 3
    new = {*after} - {*before}
    assert not {path.name for path in new} & {path.name for path in before}, "a reader could mix files of two runs"
    assert {path.parts[-4:-2] for path in new} == {("cluster=a", "snapshot=n1")}
    table = read(target, "batches")
    assert snapshots_in(table) == {("a", "n1"), ("b", "n1"), ("a", "n2")}
    replaced = snapshot_rows(table.filter(pa.compute.field("cluster") == "a"), "n1")
    assert rows(replaced) == rows(kf.scan(str(UNCLEAN_ELECTION)).facts("batches"))
    assert leftover_paths(target) == []


def test_replicas_share_files_for_any_number_of_jobs(tmp_path: Path, copies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_FORENSICS_KERNELS", "compiled")
    monkeypatch.setattr("kafka_forensics.export.datasets.SPLIT_BYTES", 20_000)
    monkeypatch.setattr(facts_rows, "MAX_ROWS", 100)
    assert append(tmp_path / "one", "a", "n1", "--jobs", 1, path=copies) == 0
    assert append(tmp_path / "two", "a", "n1", "--jobs", 3, path=copies) == 0
    for fact in FACTS:
        one, two = files(tmp_path / "one", fact), files(tmp_path / "two", fact)
        assert [path.name[:15] for path in one] == [path.name[:15] for path in two]
    assert 1 < len(files(tmp_path / "one", "records")) < kf.scan(str(copies)).totals.replicas
    assert MIN_FULL_FILE_BYTES > 20_000
    for fact in FACTS:
        assert rows_without_labels(read(tmp_path / "one", fact), fact) == rows_without_labels(read(tmp_path / "two", fact), fact)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--append", "--cluster", "a"), "a snapshot that is appended needs a name"),
        (("--partition-by", "topic", "--table-format", "delta"), "--partition-by does not apply to delta tables"),
        (("--partition-by", "broker"), "there is no partitioning 'broker'"),
        (("--append", "--cluster", "a", "--snapshot", "n", "--table-format", "orc"), "there is no table format 'orc'"),
        (("--append", "--cluster", "a", "--snapshot", "n", "--iceberg-catalog", "c"), "requires --table-format iceberg"),
        (("--append", "--cluster", " ", "--snapshot", "n"), "invalid name for --cluster"),
        (("--append", "--cluster", "a", "--snapshot", "n\u202e"), "invalid name for --snapshot"),
        (("--append", "--cluster", "a", "--snapshot", NO_VALUE), "invalid name for --snapshot"),
        (("--append", "--cluster", "a", "--snapshot", "=" * 81), "invalid name for --snapshot"),
    ],
)
def test_invalid_options_are_refused_before_writing(
    tmp_path: Path, arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome(["export", str(SILENT_DIVERGENCE), "--output", str(tmp_path / "out"), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_dataset_keeps_its_table_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert append(tmp_path / "out", "a", "n1", *TWO_FACTS) == 0
    before = sorted(tmp_path.rglob("*"))
    assert export(tmp_path / "out", SILENT_DIVERGENCE, *TWO_FACTS) == 2
    assert "holds a dataset" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
    for other in TABLE_FORMATS[1:]:
        assert append(tmp_path / "out", "a", "n2", *TWO_FACTS, "--table-format", other) == 2
        assert "holds snapshots as Parquet files" in capsys.readouterr().err
    assert append(tmp_path / "out", "a", "n2", *TWO_FACTS) == 0


UNUSUAL_NAMES = ["é ' \" \\", "a/b=c%20", "2026-03-01", "n" * MAX_ENCODED_BYTES, "..", "*?[x]", "日本"]


@pytest.mark.parametrize("name", UNUSUAL_NAMES)
def test_any_cluster_and_snapshot_name_is_read_back(tmp_path: Path, name: str) -> None:
    for snapshot in (name, name, "other"):
        assert append(tmp_path, name, snapshot, *TWO_FACTS) == 0
    table = read(tmp_path, "batches")
    assert snapshots_in(table) == {(name, name), (name, "other")}
    assert table["snapshot"].to_pylist().count(name) * 2 == table.num_rows
    assert leftover_paths(tmp_path) == []
    assert {path.parts[-4:-2] for path in files(tmp_path, "batches")} == {
        (f"cluster={percent_encode(name)}", f"snapshot={percent_encode(snapshot)}") for snapshot in (name, "other")
    }


def test_only_one_run_adds_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out"
    assert append(target, "a", "n1", *TWO_FACTS) == 0
    with open_snapshot(str(target), LABEL, append=True) as running:
        assert append(target, "a", "n2", *TWO_FACTS) == 2
        err = capsys.readouterr().err
        assert f"another run is adding a snapshot to {target}" in err
        assert "hint: add this one when that run has ended" in err
        running.target.remove()
        assert append(target, "b", "n2", *TWO_FACTS) == 2
    assert append(target, "a", "n2", *TWO_FACTS) == 0
    assert snapshots_in(read(target, "batches")) == {("a", "n1"), ("a", "n2")}


def test_a_directory_removed_before_it_is_locked_is_created_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that fails removes the directory after another run opened the lock file and before that run locks it."""
    lock = fcntl.flock
    locked: list[int] = []

    def remove_then_lock(descriptor: int, operation: int) -> None:
        if not locked:
            shutil.rmtree(tmp_path / "out")
        locked.append(descriptor)
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_then_lock)
    assert append(tmp_path / "out", "a", "n1", *TWO_FACTS) == 0
    assert (tmp_path / "out" / LOCK).exists()
    assert snapshots_in(read(tmp_path / "out", "batches")) == {("a", "n1")}


@pytest.mark.parametrize("code", [errno.ENOTSUP, errno.ENOLCK])
def test_nothing_is_written_without_a_lock(
    tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(code, os.strerror(code))))
    assert append(tmp_path / "new" / "out", "a", "n1", *TWO_FACTS) == 2
    err = capsys.readouterr().err
    assert f"cannot lock {tmp_path / 'new' / 'out'}: {os.strerror(code)}" in err
    assert "hint: choose a directory on a file system that has locks, or --table-format delta or iceberg" in err
    left = [path.name for path in tmp_path.rglob("*")]
    assert left == ([] if code == errno.ENOTSUP else ["new", "out", LOCK])  # another run may hold the lock


def test_a_killed_run_releases_its_lock(tmp_path: Path) -> None:
    """The run is killed while its threads and forked processes work."""
    code = (
        "import os, signal, sys\n"
        "from kafka_forensics.cli.main import outcome\n"
        "from kafka_forensics.export import datasets\n"
        "datasets.Dataset.add = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "outcome(sys.argv[1:])\n"
    )
    arguments = [
        "export",
        str(SILENT_DIVERGENCE),
        "--append",
        "--output",
        str(tmp_path / "out"),
        "--cluster",
        "a",
        "--snapshot",
        "n1",
        "--jobs",
        "3",
    ]
    assert subprocess.run([sys.executable, "-c", code, *arguments], check=False, timeout=60).returncode == -signal.SIGKILL
    assert files(tmp_path / "out", "batches") == []
    assert len(list((tmp_path / "out").glob("cluster=a/_unfinished-*"))) == 1
    assert append(tmp_path / "out", "a", "n2", *TWO_FACTS) == 0
    assert snapshots_in(read(tmp_path / "out", "batches")) == {("a", "n2")}
    assert leftover_paths(tmp_path / "out") == []


def test_a_replaced_snapshot_is_restored_by_a_run_for_any_cluster(tmp_path: Path) -> None:
    """A rerun was killed between its two renames. Directories of unfinished runs are removed, and users' directories stay."""
    target = tmp_path / "out"
    for cluster in ("a", "b"):
        assert append(target, cluster, "n=1", *TWO_FACTS) == 0
    (target / "cluster=a" / "snapshot=n%3D1").rename(target / "cluster=a" / "_replaced-n%3D1")
    (target / "cluster=a" / f"_unfinished-{'d' * 32}" / "_temporary").mkdir(parents=True)
    (target / "cluster=a" / "_unfinished-mine").mkdir()
    assert snapshots_in(read(target, "batches")) == {("b", "n=1")}
    assert append(target, "b", "n=2", *TWO_FACTS) == 0
    assert snapshots_in(read(target, "batches")) == {("a", "n=1"), ("b", "n=1"), ("b", "n=2")}
    assert leftover_paths(target) == ["cluster=a/_unfinished-mine"]


def test_a_failed_rename_restores_the_old_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out"
    assert append(target, "a", "n1", *TWO_FACTS) == 0
    before, rename = files(target, "batches"), os.rename

    def disk_is_full(source: str, to: str) -> None:
        if to.endswith("snapshot=n1") and "_unfinished-" in source:
            raise OSError(errno.ENOSPC, "No space left on device")
        rename(source, to)

    monkeypatch.setattr(os, "rename", disk_is_full)
    assert append(target, "a", "n1", *TWO_FACTS, path=UNCLEAN_ELECTION) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert files(target, "batches") == before
    assert leftover_paths(target) == []


def test_files_are_on_disk_before_the_directory_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On disk is what was passed to fsync, and a directory only if that was after the last rename into it."""
    rename = os.rename
    synced = record_fsyncs(monkeypatch)
    named: set[str] = set()
    published: list[str] = []

    def recorded_rename(source: str, to: str) -> None:
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

    monkeypatch.setattr(os, "rename", recorded_rename)
    for count in (1, 2):
        assert append(tmp_path / "new" / "out", "a", "n1", *TWO_FACTS) == 0
        assert len(published) == count
        assert len(named) >= 5
        named.clear()
        assert (str(tmp_path / "new" / "out" / "cluster=a") in synced) is (
            count == 1
        )  # a replacement ends with the rename of the old one


def test_the_cluster_is_called_by_its_id_if_that_is_a_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An id comes from evidence: one that cannot be a name is no error unless the snapshot is appended."""
    copies = Path(shutil.copytree(SILENT_DIVERGENCE, tmp_path / "copies"))
    for cluster_id, directory in (
        ("../x/a b", "cluster=..%2Fx%2Fa%20b"),
        (NO_VALUE, "cluster=unknown"),
        ("x" * 241, "cluster=unknown"),
    ):
        for path in copies.rglob("meta.properties"):
            path.write_text(f"version=1\nbroker.id={path.parent.name[-1]}\ncluster.id={cluster_id}\n")
        target = tmp_path / f"out-{len(cluster_id)}"
        assert export(target, copies, *TWO_FACTS) == 0
        assert [path.name for path in target.iterdir() if path.name != LOCK] == [directory]
    capsys.readouterr()
    command = ["export", str(copies), "--append", "--output", str(tmp_path / "new"), "--snapshot", "n1", *TWO_FACTS]
    assert outcome(command) == 2
    assert "the copies do not have one cluster id\nhint: name it, for example --cluster payments" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_snapshots_of_a_dataset_are_partitioned_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert append(tmp_path / "plain", "a", "n1", *TWO_FACTS) == 0
    assert append(tmp_path / "plain", "a", "n2", *TWO_FACTS, "--partition-by", "topic") == 2
    assert "are not partitioned by topic\nhint: leave --partition-by out" in capsys.readouterr().err
    assert append(tmp_path / "topics", "a", "n1", *TWO_FACTS, "--partition-by", "topic") == 0
    assert append(tmp_path / "topics", "a", "n2", *TWO_FACTS) == 2
    assert "are partitioned by topic\nhint: add --partition-by topic" in capsys.readouterr().err


def test_topics_are_directories_on_request(tmp_path: Path) -> None:
    """The column is in the names alone, as readers of Hive-partitioned files expect; findings are about no topic alone."""
    target = tmp_path / "out"
    assert append(target, "a", "n1", *TWO_FACTS, "--partition-by", "topic", path=UNCLEAN_ELECTION) == 0
    found = sorted(target.glob("cluster=*/snapshot=*/batches/topic=*/*.parquet"))
    names = [*LABELS, pa.field("topic", pa.string())]
    table = ds.dataset(list(map(str, found)), partitioning=ds.partitioning(pa.schema(names), flavor="hive")).to_table()
    expected = kf.scan(str(UNCLEAN_ELECTION)).facts("batches")
    assert rows(table.select(expected.schema.names)) == rows(expected)
    assert "topic" not in pq.read_schema(found[0]).names
    assert files(target, "findings")
    assert encoded_value(NO_VALUE) == "%5F_HIVE_DEFAULT_PARTITION__", "readers take the unencoded name for null"
