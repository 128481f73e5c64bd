"""Snapshots added to a dataset: each once, whatever was there of it before, and nothing half-written counts."""

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import kafka_forensics as kf
from kafka_forensics.cli.commands import export as export_command
from kafka_forensics.cli.main import outcome
from kafka_forensics.errors import UsageError
from kafka_forensics.export.dataset_manifest import TABLE_FORMATS, DatasetManifest, labelled_schema
from kafka_forensics.export.dataset_places import LocalDataset
from kafka_forensics.export.datasets import MAX_FILE_BYTES
from kafka_forensics.export.target import DATASET, UNFINISHED, Target
from kafka_forensics.facts import rows as facts_rows
from kafka_forensics.model.schemas import FACTS
from tests.support.datasets import FEW, NAMES, ONE, OTHER, append, left_over, manifest_of, read, runs, unlabelled
from tests.support.exports import SAMPLES, export, rows


def test_the_command_offers_every_form() -> None:
    assert export_command.TABLE_FORMATS == TABLE_FORMATS


def test_every_fact_of_each_night_is_there_once(tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert append(target, "payments", "2026-03-01", "--show-payloads") == 0
    assert append(target, "payments", "2026-03-02", "--show-payloads", path=OTHER) == 0
    first, second = kf.scan(str(ONE)), kf.scan(str(OTHER))
    for fact in FACTS:
        dataset = kf.open_dataset(str(target), fact)
        assert dataset.schema.equals(labelled_schema(FACTS[fact]))
        for snapshot, result in (("2026-03-01", first), ("2026-03-02", second)):
            table = dataset.to_table(filter=ds.field("snapshot") == snapshot)
            assert rows(table.drop_columns(NAMES)) == rows(result.facts(fact)), fact
            assert set(table["cluster"].to_pylist()) <= {"payments"}
    assert left_over(target) == []
    assert not (target / UNFINISHED).exists()


def test_the_manifest_is_true(tmp_path: Path) -> None:
    assert append(tmp_path / "out", "a", "n1", "--topic", "l*") == 0
    manifest = manifest_of(tmp_path / "out")
    for file in manifest.files:
        data = (tmp_path / "out" / file.path).read_bytes()
        assert (file.bytes, file.sha256) == (len(data), hashlib.sha256(data).hexdigest())
        held = pq.ParquetFile(tmp_path / "out" / file.path)
        assert held.metadata.num_rows == file.rows
        assert held.schema_arrow.equals(labelled_schema(FACTS[file.fact]))
        assert (held.schema_arrow.metadata or {})[b"kf.run"] == file.run.encode()
    (entry,) = manifest.snapshots
    assert (entry.cluster, entry.snapshot, entry.whole, entry.incomplete) == ("a", "n1", True, [])
    assert entry.tool["name"] == "kafka-forensics"
    assert entry.options["topic"] == "l*"
    sums = {fact: sum(file.rows for file in manifest.files_of(fact)) for fact in FACTS}
    assert {fact: made["rows"] for fact, made in entry.datasets.items()} == sums
    assert manifest.version == 1


def test_a_rerun_replaces_its_snapshot_and_no_other(tmp_path: Path) -> None:
    target = tmp_path / "out"
    for cluster, snapshot in (("a", "n1"), ("b", "n1"), ("a", "n2")):
        assert append(target, cluster, snapshot, *FEW) == 0
    before = read(target, "batches")
    assert append(target, "a", "n1", *FEW, path=OTHER) == 0
    after = read(target, "batches")
    assert runs(before).keys() == runs(after).keys() == {("a", "n1"), ("b", "n1"), ("a", "n2")}
    assert all(len(found) == 1 for found in runs(after).values())
    changed = {key for key in runs(before) if runs(before)[key] != runs(after)[key]}
    assert changed == {("a", "n1")}
    mine = after.filter((pa.compute.field("cluster") == "a") & (pa.compute.field("snapshot") == "n1"))
    assert rows(mine.drop_columns(NAMES)) == rows(kf.scan(str(OTHER)).facts("batches"))
    assert left_over(target) == []
    assert manifest_of(target).version == 4


def test_a_rerun_of_other_facts_leaves_nothing_of_the_first(tmp_path: Path) -> None:
    assert append(tmp_path / "out", "a", "n1", *FEW) == 0
    assert append(tmp_path / "out", "a", "n1", "--fact", "replicas") == 0
    assert read(tmp_path / "out", "batches").num_rows == 0
    assert read(tmp_path / "out", "replicas").num_rows > 0
    assert left_over(tmp_path / "out") == []


def test_many_replicas_share_a_file_whatever_the_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_FORENSICS_KERNELS", "compiled")
    monkeypatch.setattr("kafka_forensics.export.append.SPLIT_BYTES", 20_000)
    monkeypatch.setattr(facts_rows, "MAX_ROWS", 100)
    assert append(tmp_path / "one", "a", "n1", "--jobs", 1, path=OTHER) == 0
    assert append(tmp_path / "two", "a", "n1", "--jobs", 3, path=OTHER) == 0
    one, two = manifest_of(tmp_path / "one"), manifest_of(tmp_path / "two")
    assert [file.path.rpartition("/")[2] for file in one.files] == [file.path.rpartition("/")[2] for file in two.files]
    assert 1 < len(one.files_of("records")) < kf.scan(str(OTHER)).totals.replicas
    assert MAX_FILE_BYTES > 20_000
    for fact in FACTS:
        assert unlabelled(read(tmp_path / "one", fact), fact) == unlabelled(read(tmp_path / "two", fact), fact)


def test_a_filter_leaves_other_nights_closed(tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert append(target, "a", "n1", *FEW) == 0
    assert append(target, "a", "n2", *FEW) == 0
    for file in manifest_of(target).files_of("batches"):
        if file.snapshot == "n1":
            (target / file.path).write_bytes(b"not read")
    dataset = kf.open_dataset(str(target), "batches")
    assert dataset.to_table(filter=ds.field("snapshot") == "n2").num_rows > 0
    with pytest.raises(pa.ArrowInvalid):
        dataset.to_table()


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
    ],
)
def test_options_that_make_no_sense_leave_nothing(
    tmp_path: Path, arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome(["export", str(ONE), "--output", str(tmp_path / "out"), *arguments]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_dataset_is_refused_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "notes.txt").write_text("kept")
    assert append(notes, "a", "n1") == 2
    assert "is not empty: it holds notes.txt" in capsys.readouterr().err
    assert [path.name for path in notes.iterdir()] == ["notes.txt"]
    whole = tmp_path / "whole"
    assert export(whole, ONE, *FEW) == 0
    assert append(whole, "a", "n1") == 2
    assert "holds an export that was made without --append" in capsys.readouterr().err
    Target.open(str(tmp_path / "begun"), [])
    assert append(tmp_path / "begun", "a", "n1") == 2
    assert "did not finish, or one that is running" in capsys.readouterr().err


def test_an_export_does_not_take_a_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert append(tmp_path / "out", "a", "n1", *FEW) == 0
    before = sorted(tmp_path.rglob("*"))
    assert export(tmp_path / "out", ONE, *FEW) == 2
    assert "holds a dataset to which snapshots are added" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_the_form_of_a_dataset_does_not_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert append(tmp_path / "out", "a", "n1", *FEW) == 0
    assert append(tmp_path / "out", "a", "n2", *FEW, "--table-format", "delta") == 2
    assert "hint: give --table-format parquet, or choose another directory" in capsys.readouterr().err
    assert append(tmp_path / "out", "a", "n2", *FEW) == 0


def test_evidence_is_never_written_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copies = tmp_path / "copies"
    (copies / "t-0").mkdir(parents=True)
    for target in (copies, copies / "out", copies / "t-0"):
        assert append(target, "a", "n1", path=copies) == 2
        assert "evidence is never written to" in capsys.readouterr().err
    assert sorted(path.name for path in copies.rglob("*")) == ["t-0"]
    assert append(tmp_path / "out", "a", "n1", *FEW) == 0
    (tmp_path / "out" / "replicas").symlink_to(copies)
    assert append(tmp_path / "out", "a", "n2", path=copies) == 2
    assert "evidence is never written to" in capsys.readouterr().err
    assert sorted(path.name for path in copies.rglob("*")) == ["t-0"]


def test_a_question_that_cannot_be_asked_leaves_all_as_it_was(tmp_path: Path) -> None:
    assert append(tmp_path / "out" / "deep", "a", "n1", path=tmp_path / "nothing") == 2
    assert list(tmp_path.iterdir()) == []
    assert append(tmp_path / "out", "a", "n1", *FEW) == 0
    before = sorted(tmp_path.rglob("*"))
    assert append(tmp_path / "out", "a", "n2", path=tmp_path / "nothing") == 2
    assert sorted(tmp_path.rglob("*")) == before


def test_an_empty_directory_is_taken_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert append(tmp_path / "out", "a", "n1", path=tmp_path / "nothing") == 2
    assert list((tmp_path / "out").iterdir()) == []
    assert append(tmp_path / "out", "a", "n1", *FEW) == 0


def flipped(data: bytes) -> bytes:
    """The number of rows of the last file is another."""
    place = data.rindex(b'"rows": ') + 8
    return data[:place] + (b"1" if data[place : place + 1] != b"1" else b"2") + data[place + 1 :]


def always(data: bytes) -> object:
    """The same damage, whatever was there."""
    return lambda _: data


def resealed(change: Callable[[Any], object]) -> object:
    """A change of whoever can compute a digest."""

    def changed(data: bytes) -> bytes:
        fields = json.loads(data)
        del fields["sha256"]
        change(fields)
        fields["sha256"] = hashlib.sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
        return json.dumps(fields).encode()

    return changed


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (always(b""), "it is not the JSON of one"),
        (lambda data: data[: len(data) // 2], "it is not the JSON of one"),
        (always(b"[1, 2]"), "it is not the JSON of one"),
        (always(b'{"sha256": 1}'), "it is not the JSON of one"),
        (lambda data: data.replace(b"kafka-forensics dataset", b"something else"), "it is no manifest of a dataset"),
        (lambda data: data.replace(b'"format_version": 1', b'"format_version": 2'), "is of version 2"),
        (flipped, "it does not have the SHA-256 that it names"),
        (always(b"\xff\x00" * 100), "it is not the JSON of one"),
        (always(b'{"a":' * 100_000), "it is not the JSON of one"),
        (resealed(lambda fields: fields.update(version="1")), "it is not the JSON of one"),
        (resealed(lambda fields: fields["files"][0].update(fact=["batches"])), "it is not the JSON of one"),
        (resealed(lambda fields: fields["files"][0].update(more=1)), "it is not the JSON of one"),
        (resealed(lambda fields: fields["files"][0].update(path="../elsewhere.parquet")), "it names files that are no run's"),
        (resealed(lambda fields: fields.update(table_format="other")), "it names files that are no run's"),
    ],
)  # fmt: skip
def test_a_damaged_manifest_is_a_sentence_and_stays(
    tmp_path: Path, damage: object, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(damage)
    target = tmp_path / "out"
    assert append(target, "a", "n1", *FEW) == 0
    damaged = damage((target / DATASET).read_bytes())
    (target / DATASET).write_bytes(damaged)
    before = {path: path.read_bytes() for path in target.rglob("*.parquet")}
    assert append(target, "a", "n1", *FEW) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "hint: " in err
    assert "Traceback" not in err
    assert (target / DATASET).read_bytes() == damaged
    assert {path: path.read_bytes() for path in target.rglob("*.parquet")} == before
    with pytest.raises(UsageError, match=said):
        kf.open_dataset(str(target), "batches")


def test_what_cannot_be_opened_says_why(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no dataset to which snapshots were added"):
        kf.open_dataset(str(tmp_path), "batches")
    assert append(tmp_path / "out", "a", "n1", *FEW) == 0
    with pytest.raises(UsageError, match="there is no fact 'batch'"):
        kf.open_dataset(str(tmp_path / "out"), "batch")
    with pytest.raises(UsageError, match="has no fact records") as told:
        kf.open_dataset(str(tmp_path / "out"), "records")
    assert told.value.hint == "it has batches, findings, incomplete"
    assert append(tmp_path / "delta", "a", "n1", *FEW, "--table-format", "delta") == 0
    with pytest.raises(UsageError, match="of the table format delta"):
        kf.open_dataset(str(tmp_path / "delta"), "batches")


def rewritten(target: Path, fact: str, change: object) -> None:
    """As if an earlier version, whose columns `change` makes of those of now, had written the fact."""
    assert callable(change)
    manifest = manifest_of(target)
    for file in manifest.files_of(fact):
        table = change(pq.read_table(target / file.path))
        pq.write_table(table, target / file.path)
        schema = table.schema
    schemas = manifest.schemas | {fact: schema}
    (target / DATASET).write_bytes(replace(manifest, schemas=schemas).data())


def test_a_column_that_is_newer_is_null_in_older_rows(tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert append(target, "a", "n1", *FEW) == 0
    rewritten(target, "findings", lambda table: table.drop_columns(["advice", "message"]))
    assert "message" not in kf.open_dataset(str(target), "findings").schema.names
    assert append(target, "a", "n2", *FEW) == 0
    table = read(target, "findings")
    assert table.schema.names[-2:] == ["message", "advice"]
    older = table.filter(pa.compute.field("snapshot") == "n1")
    newer = table.filter(pa.compute.field("snapshot") == "n2")
    assert older["message"].null_count == older.num_rows == newer.num_rows > 0
    assert newer["message"].null_count == 0


def test_a_column_of_another_type_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out"
    assert append(target, "a", "n1", *FEW) == 0
    rewritten(
        target, "batches", lambda table: table.set_column(table.schema.names.index("crc"), "crc", table["crc"].cast("string"))
    )
    before = (target / DATASET).read_bytes()
    assert append(target, "a", "n2", *FEW) == 2
    assert "column crc of batches is string in the dataset, and int64 in this version of the tool" in capsys.readouterr().err
    assert (target / DATASET).read_bytes() == before
    assert left_over(target) == []


def test_one_run_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out"
    assert append(target, "a", "n1", *FEW) == 0
    held = LocalDataset.begin(str(target), [])
    assert append(target, "a", "n2", *FEW) == 2
    err = capsys.readouterr().err
    assert f"another run is adding a snapshot to {target}" in err
    assert f"process {os.getpid()} on " in err
    assert "hint: add this one when that has ended" in err
    held.withdraw()
    assert append(target, "a", "n2", *FEW) == 0
    assert set(runs(read(target, "batches"))) == {("a", "n1"), ("a", "n2")}


def test_processes_that_add_at_once_each_add_once_or_say_so(tmp_path: Path) -> None:
    asked = [
        sys.executable,
        "-m",
        "kafka_forensics",
        "export",
        str(ONE),
        "--append",
        "--output",
        str(tmp_path / "out"),
        "--cluster",
    ]
    names = ["a", "b", "c", "a"]
    running = [
        subprocess.Popen([*asked, name, "--snapshot", "n1", *FEW, "-q"], stderr=subprocess.PIPE, text=True) for name in names
    ]
    said = [process.communicate(timeout=120)[1] for process in running]
    statuses = [process.returncode for process in running]
    assert 0 in statuses
    assert all(status == 0 or (status == 2 and ("another run" in told)) for status, told in zip(statuses, said, strict=True))
    added = {(name, "n1") for name, status in zip(names, statuses, strict=True) if status == 0}
    assert set(runs(read(tmp_path / "out", "batches"))) == added
    assert manifest_of(tmp_path / "out").version == statuses.count(0)
    assert left_over(tmp_path / "out") == []


def test_two_that_begin_a_dataset_at_once_do_not_share_it(tmp_path: Path) -> None:
    first = LocalDataset.begin(str(tmp_path / "new" / "out"), [])
    with pytest.raises(UsageError, match="another run is adding"):
        LocalDataset.begin(str(tmp_path / "new" / "out"), [])
    first.withdraw()
    assert list(tmp_path.iterdir()) == []


def test_where_there_are_no_locks_a_mark_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    assert append(tmp_path / "out", "a", "n1", *FEW) == 0
    held = LocalDataset.begin(str(tmp_path / "out"), [])
    assert append(tmp_path / "out", "a", "n2", *FEW) == 2
    assert f"hint: if none is running, remove {tmp_path / 'out' / UNFINISHED}" in capsys.readouterr().err
    held.withdraw()
    assert append(tmp_path / "out", "a", "n2", *FEW) == 0


@pytest.mark.parametrize("what", ["manifest", "mark"])
def test_a_run_that_was_overtaken_adds_nothing(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out"
    assert append(target, "a", "n1", *FEW) == 0
    swap = LocalDataset.swap

    def overtaken(self: LocalDataset, data: bytes, before: bytes | None) -> None:
        if what == "mark":
            (target / UNFINISHED).write_text("of another\n")
        else:
            manifest = DatasetManifest.read((target / DATASET).read_bytes(), DATASET)
            (target / DATASET).write_bytes(replace(manifest, version=99).data())
        swap(self, data, before)

    monkeypatch.setattr(LocalDataset, "swap", overtaken)
    assert append(target, "a", "n2", *FEW) == 2
    said = "another run has taken" if what == "mark" else "was changed while this run was adding to it"
    assert said in capsys.readouterr().err
    assert set(runs(read(target, "batches"))) == {("a", "n1")}
    assert left_over(target) == ([UNFINISHED] if what == "mark" else [])


def test_who_reads_meanwhile_sees_one_run_whole(tmp_path: Path) -> None:
    """By the manifest; a file that was replaced between it and the reading is asked for again."""
    target = tmp_path / "out"
    assert append(target, "a", "n1", *FEW) == 0
    count = read(target, "batches").num_rows
    seen: list[tuple[int, int]] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            try:
                table = read(target, "batches")
            except FileNotFoundError:
                continue
            seen.append((table.num_rows, len(set(table["run"].to_pylist()))))

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for _ in range(6):
            assert append(target, "a", "n1", *FEW) == 0
    finally:
        ended.set()
        reader.join()
    assert set(seen) == {(count, 1)}
    assert seen


def test_files_are_on_disk_before_the_manifest_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync, rename = os.fsync, os.rename
    synced: set[str] = set()
    named: set[str] = set()

    def noted_sync(descriptor: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    def noted_rename(source: str, to: str) -> None:
        assert source in synced
        if to.endswith(DATASET):
            parents = {str(parent) for path in named for parent in Path(path).parents if tmp_path in (parent, *parent.parents)}
            assert parents <= synced
        named.add(to)
        synced.difference_update({os.path.dirname(to)})
        rename(source, to)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "rename", noted_rename)
    assert append(tmp_path / "new" / "out", "a", "n1", *FEW) == 0
    assert str(tmp_path / "new" / "out") in synced
    assert len(named) >= 4


def test_what_could_not_be_read_is_said_in_the_manifest(tmp_path: Path) -> None:
    import shutil

    copies = Path(shutil.copytree(SAMPLES / "silent-divergence", tmp_path / "copies"))
    (copies / "broker-1" / "outside").symlink_to("/etc/passwd")
    log = max(copies.glob("broker-1/*/*.log"), key=lambda path: path.stat().st_size)
    log.unlink()
    log.symlink_to("/etc/passwd")
    assert append(tmp_path / "out", "a", "n1", *FEW, path=copies) == 3
    (entry,) = manifest_of(tmp_path / "out").snapshots
    assert not entry.whole
    assert entry.incomplete != []
    assert read(tmp_path / "out", "incomplete").num_rows == len(entry.incomplete)
    assert append(tmp_path / "out", "a", "n1", *FEW, "--allow-incomplete", path=copies) == 3
    assert manifest_of(tmp_path / "out").snapshots[0].whole
