"""Exported datasets: reproducible bytes, bounded row groups, safe names, payloads on request, and a list of unread files."""

import threading
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import kafka_forensics as kf
from kafka_forensics.errors import UsageError
from kafka_forensics.export import datasets
from kafka_forensics.export.facts import log as facts_log, rows as facts_rows
from kafka_forensics.export.target import Target
from kafka_forensics.model.schemas import FACTS
from tests.export.exports import contents, export, manifest, parquet_files, read_back, rows, snapshot_of
from tests.gallery.of_replicas import HOSTILE, hostile
from tests.support.brokers import healthy
from tests.support.places import SAMPLES
from tests.support.segments import segment_file
from tests.support.unread import REASON, refuse_logs

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from kafka_forensics.export.target import HashedFile

UNCLEAN_ELECTION = SAMPLES / "unclean-election"


@pytest.mark.parametrize("kernels", ["interpreted", "compiled"])
def test_jobs_do_not_change_the_bytes(tmp_path: Path, copies: Path, monkeypatch: pytest.MonkeyPatch, kernels: str) -> None:
    monkeypatch.setenv("KAFKA_FORENSICS_KERNELS", kernels)  # only compiled kernels use threads
    assert export(tmp_path / "one", copies, "--jobs", 1) == 0
    assert export(tmp_path / "two", copies, "--jobs", 3) == 0
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_a_file_that_cannot_be_written_ends_all_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_FORENSICS_KERNELS", "compiled")
    before, written = threading.active_count(), count()
    open_file = Target.file

    def disk_is_full(self: Target, name: str) -> "AbstractContextManager[HashedFile]":
        if next(written) == 5:
            raise UsageError("cannot write: the disk is full")
        return open_file(self, name)

    monkeypatch.setattr(Target, "file", disk_is_full)
    assert export(tmp_path / "out", UNCLEAN_ELECTION, "--jobs", 3) == 2
    assert threading.active_count() == before
    assert not (tmp_path / "out").exists()


def test_requested_facts_are_written_in_the_order_of_the_model(tmp_path: Path) -> None:
    assert (
        export(tmp_path / "out", UNCLEAN_ELECTION, "--fact", "findings", "--fact", "batches", "--topic", "audit", "--broker", "2")
        == 0
    )
    content = manifest(tmp_path / "out")
    assert list(content["datasets"]) == ["batches", "findings", "incomplete"]
    assert {*zip(*(read_back(tmp_path / "out", "batches")[name].to_pylist() for name in ("topic", "broker")), strict=True)} == {
        ("audit", "2")
    }
    assert {path.name for path in snapshot_of(tmp_path / "out").iterdir()} == {"_SUCCESS", "manifest.json", *content["datasets"]}


def test_filters_apply_to_facts_that_are_not_of_one_replica(tmp_path: Path) -> None:
    assert export(tmp_path / "out", UNCLEAN_ELECTION, "--topic", "audit", "--partition", 0) == 0
    for fact in ("checkpoints", "metadata_history", "group_offsets"):
        table = read_back(tmp_path / "out", fact)
        assert set(table["topic"].to_pylist()) <= {"audit"}
        assert set(table["partition"].to_pylist()) <= {0}
    assert read_back(tmp_path / "out", "checkpoints").num_rows > 0
    assert read_back(tmp_path / "out", "metadata_history").num_rows > 0


def test_payloads_are_null_unless_requested(tmp_path: Path) -> None:
    assert export(tmp_path / "without", UNCLEAN_ELECTION, "--fact", "records", "--fact", "group_offsets", "--fact", "findings") == 0
    without = read_back(tmp_path / "without", "records")
    scanned = kf.scan(str(UNCLEAN_ELECTION)).facts("records", payloads=True)
    for name in ("key", "value", "headers"):
        assert without[name].null_count == without.num_rows
        assert scanned[name].null_count < scanned.num_rows
    rest = [name for name in scanned.schema.names if name not in ("key", "value", "headers")]
    assert rows(without.select(rest)) == rows(scanned.select(rest))
    lengths = [-1 if key is None else len(key) for key in scanned["key"].to_pylist()]
    assert scanned["key_length"].to_pylist() == lengths
    groups = read_back(tmp_path / "without", "group_offsets")
    assert groups["metadata"].null_count == groups.num_rows > 0


def test_hostile_names_and_bytes_are_read_back_unchanged(tmp_path: Path) -> None:
    brokers = hostile(tmp_path / "copies")
    paths = [f"\u202e{HOSTILE.replace('/', '')}{number}={path}" for number, path in enumerate(brokers.log_dirs)]
    target = tmp_path / "out"
    assert export(target, *paths, "--show-payloads") == 0
    result = kf.scan(paths)
    for fact in FACTS:
        assert rows(read_back(target, fact)) == rows(result.facts(fact, payloads=True)), fact
    for path in target.rglob("*"):
        assert path.name.isascii()
        assert path.name.isprintable()
    assert set(read_back(target, "batches")["broker"].to_pylist()) == {path.split("=")[0] for path in paths}


def test_a_fact_without_rows_is_an_empty_file_with_all_columns(tmp_path: Path) -> None:
    assert export(tmp_path / "out", SAMPLES / "silent-divergence") == 0
    table = read_back(tmp_path / "out", "transactions")
    assert (table.num_rows, table.schema.names) == (0, FACTS["transactions"].schema.names)


def test_row_groups_and_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_rows, "MAX_ROWS", 100)
    monkeypatch.setattr(datasets, "MIN_FULL_FILE_BYTES", 6000)
    assert export(tmp_path / "out", UNCLEAN_ELECTION, "--fact", "records", "--fact", "batches") == 0
    files = parquet_files(tmp_path / "out")
    groups = [file.metadata.row_group(group).num_rows for file in files.values() for group in range(file.num_row_groups)]
    assert max(groups) == 100
    assert any("part-00000-001-" in path for path in files)
    assert rows(read_back(tmp_path / "out", "batches")) == rows(kf.scan(str(UNCLEAN_ELECTION)).facts("batches"))


def test_a_batch_of_rows_is_bounded_by_bytes() -> None:
    schema = pa.schema([pa.field("value", pa.binary())])
    big = [(b"x" * (5 << 20),) for _ in range(7)]
    assert [batch.num_rows for batch in facts_rows.record_batches(schema, iter(big))] == [3, 3, 1]
    whole = pa.RecordBatch.from_pydict({"value": [value for (value,) in big]}, schema=schema)
    groups = list(facts_rows.row_groups([("a", whole)]))
    assert len(groups) > 1
    assert max(sum(batch.nbytes for _, batch in group) for group in groups) <= facts_rows.MAX_BYTES


def test_text_that_is_not_utf_8_is_escaped() -> None:
    schema = pa.schema([pa.field("name", pa.string()), pa.field("names", pa.list_(pa.string()))])
    (batch,) = facts_rows.record_batches(schema, iter([("a\udcff", ["\ud800", "é"]), (None, None)]))
    assert batch.to_pylist() == [{"name": "a\\udcff", "names": ["\\ud800", "é"]}, {"name": None, "names": None}]


def test_a_batch_too_large_to_open_is_reported_once_for_all_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = SAMPLES / "unclean-election" / "broker-1"
    control_records = kf.scan(str(path)).facts("control_records").num_rows
    monkeypatch.setattr(facts_log, "MAX_BATCH_BYTES", 60)
    assert export(tmp_path / "out", path, "--fact", "control_records", "--fact", "records") == 3
    gaps = [(gap["path"], gap["reason"]) for gap in manifest(tmp_path / "out")["incomplete"]]
    assert len(gaps) == len(set(gaps)) > control_records > 0
    assert all(reason.endswith("is too large to open") for _, reason in gaps)
    assert "is too large to open" in capsys.readouterr().err
    assert read_back(tmp_path / "out", "control_records").num_rows == 0
    assert export(tmp_path / "alone", path, "--fact", "control_records") == 3
    assert control_records <= len(manifest(tmp_path / "alone")["incomplete"]) < len(gaps)


@pytest.mark.parametrize(
    ("arguments", "deep"),
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
def test_records_are_decoded_if_an_output_needs_it(tmp_path: Path, arguments: tuple[str, ...], *, deep: bool) -> None:
    assert export(tmp_path / "out", SAMPLES / "healthy" / "broker-1", *arguments) == 0
    assert manifest(tmp_path / "out")["options"]["deep"] is deep


@pytest.mark.parametrize("allowed", [False, True])
def test_unread_logs_are_a_dataset_and_prevent_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, allowed: bool) -> None:
    brokers = healthy(tmp_path / "in")
    refuse_logs(monkeypatch, brokers, (2,))
    assert export(tmp_path / "out", *brokers.log_dirs, *(["--allow-incomplete"] if allowed else [])) == 3
    markers = {path.name for path in snapshot_of(tmp_path / "out").iterdir() if path.name.startswith("_")}
    assert markers == {"_SUCCESS" if allowed else "_INCOMPLETE"}
    assert manifest(tmp_path / "out")["allows_incomplete"] is allowed
    place: dict[str, Any] = {"reason": REASON, "topic": "t", "partition": 0, "broker": "2"}
    expected = [{"path": f"{brokers.log_dir(2)}/t-0/{segment_file(segment)}", **place} for segment in (0, 29, 55)]
    assert read_back(tmp_path / "out", "incomplete").to_pylist() == [row | {"node_id": 2} for row in expected]
    content = manifest(tmp_path / "out")
    assert content["incomplete"] == [
        {name: value for name, value in row.items() if name != "node_id"} | {"broker": 2} for row in expected
    ]
    assert (content["schema_version"], content["datasets"]["incomplete"]["rows"]) == ("1.0", 3)
    replicas = read_back(tmp_path / "out", "replicas").to_pylist()
    extents = [(replica["broker"], replica["log_end_offset"], replica["read"]) for replica in replicas]
    assert extents == [("1", 75, "whole"), ("2", None, "none"), ("3", 75, "whole")]


def test_many_replicas_share_few_small_files(tmp_path: Path) -> None:
    """A file for each fact, however many replicas there are, sorted by topic, partition, broker and offset."""
    assert export(tmp_path / "out", SAMPLES / "unclean-election") == 0
    files = parquet_files(tmp_path / "out")
    assert len(files) == len(FACTS)
    assert sum(path.stat().st_size for path in (tmp_path / "out").rglob("*.parquet")) < 400_000
    table = read_back(tmp_path / "out", "batches")
    keys = list(zip(*(table[name].to_pylist() for name in ("topic", "partition", "node_id", "base_offset")), strict=True))
    assert keys == sorted(keys)
    column = files[next(path for path in files if path.startswith("batches/"))].metadata.row_group(0).column(0)
    assert (column.path_in_schema, "RLE_DICTIONARY" in column.encodings) == ("topic", True)
