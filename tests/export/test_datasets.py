"""What lands in datasets: the same bytes each time, bounded row groups, hostile names, payloads if asked for, what is missing."""

import json
import threading
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kafka_forensics as kf
from kafka_forensics.cli.main import outcome
from kafka_forensics.errors import UsageError
from kafka_forensics.export import datasets
from kafka_forensics.export.facts import log as facts_log, rows as facts_rows
from kafka_forensics.export.target import Target
from kafka_forensics.model.schemas import FACTS
from tests.export.exports import export, manifest, parquet_files, read_back, rows
from tests.gallery.of_replicas import HOSTILE, hostile
from tests.support.brokers import Brokers, healthy
from tests.support.places import SAMPLES
from tests.support.segments import segment_file
from tests.support.unread import REASON, refuse_logs

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from kafka_forensics.export.target import HashedFile

ONE = SAMPLES / "unclean-election"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kernels", ["interpreted", "compiled"])
def test_equal_questions_give_equal_bytes(tmp_path: Path, copies: Path, monkeypatch: pytest.MonkeyPatch, kernels: str) -> None:
    monkeypatch.setenv("KAFKA_FORENSICS_KERNELS", kernels)  # compiled ones are worth several threads
    assert export(tmp_path / "one", copies, "--jobs", 1) == 0
    assert export(tmp_path / "two", copies, "--jobs", 3) == 0
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_a_file_that_cannot_be_written_ends_all_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_FORENSICS_KERNELS", "compiled")
    before, written = threading.active_count(), count()
    whole = Target.file

    def full(self: Target, name: str) -> "AbstractContextManager[HashedFile]":
        if next(written) == 5:
            raise UsageError("cannot write: the disk is full")
        return whole(self, name)

    monkeypatch.setattr(Target, "file", full)
    assert export(tmp_path / "out", ONE, "--jobs", 3) == 2
    assert threading.active_count() == before
    assert not [
        path for path in (tmp_path / "out").rglob("*") if path.name in {"_SUCCESS", "_manifest.json"} or ".tmp" in path.name
    ]


def test_only_the_facts_asked_for_in_their_own_order(tmp_path: Path) -> None:
    assert export(tmp_path / "out", ONE, "--fact", "findings", "--fact", "batches", "--topic", "audit", "--broker", "2") == 0
    told = manifest(tmp_path / "out")
    assert list(told["datasets"]) == ["batches", "findings", "incomplete"]
    assert {(one.get("topic"), one.get("broker")) for one in told["files"]} == {("audit", "2"), (None, None)}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"_SUCCESS", "_manifest.json", *told["datasets"]}


def test_facts_of_others_heed_the_filters_too(tmp_path: Path) -> None:
    assert export(tmp_path / "out", ONE, "--topic", "audit", "--partition", 0) == 0
    for fact in ("checkpoints", "metadata_history", "group_offsets"):
        table = read_back(tmp_path / "out", fact)
        assert set(table["topic"].to_pylist()) <= {"audit"}
        assert set(table["partition"].to_pylist()) <= {0}
    assert read_back(tmp_path / "out", "checkpoints").num_rows > 0
    assert read_back(tmp_path / "out", "metadata_history").num_rows > 0


def test_payloads_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    assert export(tmp_path / "without", ONE, "--fact", "records", "--fact", "group_offsets", "--fact", "findings") == 0
    without = read_back(tmp_path / "without", "records")
    told = kf.scan(str(ONE)).facts("records")
    for name in ("key", "value", "headers"):
        assert without[name].null_count == without.num_rows
        assert told[name].null_count < told.num_rows
    rest = [name for name in told.schema.names if name not in ("key", "value", "headers")]
    assert rows(without.select(rest)) == rows(told.select(rest))
    lengths = [-1 if key is None else len(key) for key in told["key"].to_pylist()]
    assert told["key_length"].to_pylist() == lengths
    groups = read_back(tmp_path / "without", "group_offsets")
    assert groups["metadata"].null_count == groups.num_rows > 0


def test_hostile_names_and_bytes_come_back_as_they_were(tmp_path: Path) -> None:
    brokers = hostile(tmp_path / "copies")
    named = [f"\u202e{HOSTILE.replace('/', '')}{number}={path}" for number, path in enumerate(brokers.log_dirs)]
    target = tmp_path / "out"
    assert export(target, *named, "--show-payloads") == 0
    result = kf.scan(named)
    for fact in FACTS:
        assert rows(read_back(target, fact)) == rows(result.facts(fact)), fact
    for path in target.rglob("*"):
        assert path.name.isascii()
        assert path.name.isprintable()
    keys = {one["broker"] for one in manifest(target)["files"] if "broker" in one}
    assert keys == {name.split("=")[0] for name in named}


def test_a_fact_without_rows_is_an_empty_file_with_all_columns(tmp_path: Path) -> None:
    assert export(tmp_path / "out", SAMPLES / "silent-divergence") == 0
    table = pq.read_table(tmp_path / "out" / "transactions")
    assert table.num_rows == 0
    assert table.schema.equals(FACTS["transactions"].schema)


def test_row_groups_and_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_rows, "MAX_ROWS", 100)
    monkeypatch.setattr(datasets, "MAX_FILE_BYTES", 6000)
    assert export(tmp_path / "out", ONE, "--fact", "records", "--fact", "batches") == 0
    files = parquet_files(tmp_path / "out")
    groups = [file.metadata.row_group(group).num_rows for file in files.values() for group in range(file.num_row_groups)]
    assert max(groups) == 100
    assert any(path.endswith("part-00001.parquet") for path in files)
    assert rows(read_back(tmp_path / "out", "batches")) == rows(kf.scan(str(ONE)).facts("batches"))


def test_a_batch_of_rows_is_bounded_by_bytes() -> None:
    schema = pa.schema([pa.field("value", pa.binary())])
    big = [(b"x" * (5 << 20),) for _ in range(7)]
    assert [one.num_rows for one in facts_rows.record_batches(schema, iter(big))] == [3, 3, 1]
    (whole,) = (pa.RecordBatch.from_pydict({"value": [one[0] for one in big]}, schema=schema),)
    assert max(one.nbytes for one in facts_rows.row_groups([whole], schema)) <= facts_rows.MAX_BYTES


def test_text_that_is_no_utf_8_is_spelled_out() -> None:
    schema = pa.schema([pa.field("name", pa.string()), pa.field("names", pa.list_(pa.string()))])
    (made,) = facts_rows.record_batches(schema, iter([("a\udcff", ["\ud800", "é"]), (None, None)]))
    assert made.to_pylist() == [{"name": "a\\udcff", "names": ["\\ud800", "é"]}, {"name": None, "names": None}]


def test_batches_too_large_to_open_are_told_once_for_all_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = SAMPLES / "unclean-election" / "broker-1"
    there = kf.scan(str(path)).facts("control_records").num_rows
    monkeypatch.setattr(facts_log, "MAX_BATCH_BYTES", 60)
    assert export(tmp_path / "out", path, "--fact", "control_records", "--fact", "records") == 3
    told = [(one["path"], one["reason"]) for one in manifest(tmp_path / "out")["incomplete"]]
    assert len(told) == len(set(told)) > there > 0
    assert all(reason.endswith("is too large to open") for _, reason in told)
    assert "is too large to open" in capsys.readouterr().err
    assert read_back(tmp_path / "out", "control_records").num_rows == 0
    assert export(tmp_path / "alone", path, "--fact", "control_records") == 3
    assert there <= len(manifest(tmp_path / "alone")["incomplete"]) < len(told)


@pytest.mark.parametrize(
    ("more", "deep"),
    [
        ((), True),
        (("--fact", "records", "--fact", "batches", "--fact", "incomplete"), False),
        (("--fact", "records", "--fact", "spans"), True),
        (("--fact", "findings"), True),
        (("--fact", "records", "--fail-on", "critical"), True),
        (("--fact", "records", "--deep"), True),
        (("--no-deep",), False),
    ],
)
def test_records_are_decoded_for_the_scan_where_it_shows(tmp_path: Path, more: tuple[str, ...], *, deep: bool) -> None:
    assert export(tmp_path / "out", SAMPLES / "healthy" / "broker-1", *more) == 0
    assert manifest(tmp_path / "out")["options"]["deep"] is deep


ROWS = [
    {"path": f"{{broker-2}}/t-0/{segment_file(segment)}", "reason": REASON, "topic": "t", "partition": 0, "broker": "2"}
    for segment in (0, 29, 55)
]


def seals(output: Path) -> set[str]:
    return {path.name for path in output.iterdir() if path.name.startswith("_")}


def export_on_spark(brokers: Brokers, output: Path, *more: str) -> int:
    return outcome(["export", *map(str, brokers.log_dirs), "--output", str(output), "-q", *more])


@pytest.mark.parametrize("allowed", [False, True])
def test_unread_logs_are_a_dataset_and_withhold_the_seal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, allowed: bool) -> None:
    brokers = healthy(tmp_path / "in")
    refuse_logs(monkeypatch, brokers, (2,))
    assert export_on_spark(brokers, tmp_path / "out", *(["--allow-incomplete"] if allowed else [])) == 3
    assert seals(tmp_path / "out") == {"_manifest.json", "_SUCCESS" if allowed else "_INCOMPLETE"}
    expected = [row | {"path": str(row["path"]).replace("{broker-2}", str(brokers.log_dir(2)))} for row in ROWS]
    assert pq.read_table(tmp_path / "out" / "incomplete").to_pylist() == expected
    told = json.loads((tmp_path / "out" / "_manifest.json").read_text())
    assert told["incomplete"] == [row | {"broker": 2} for row in expected]
    assert (told["schema_version"], told["datasets"]["incomplete"]["rows"]) == ("1.0", 3)
    replicas = pq.ParquetDataset(tmp_path / "out" / "replicas", partitioning="hive").read().to_pylist()
    found = [(replica["broker"], replica["log_end_offset"], replica["read"]) for replica in replicas]
    assert found == [(1, 75, "whole"), (2, None, "none"), (3, 75, "whole")]
