"""The `dump` command in every format: kinds of files, ranges, payloads, damage, annotated hex."""

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.cli.runs import Run
from tests.support.places import DUMP_INPUTS, SAMPLES
from tests.support.segments import batch, legacy_entry, log

BROKER = SAMPLES / "unclean-election" / "broker-1"
IDEMPOTENT = DUMP_INPUTS / "idempotent" / "00000000000000000160.log"
TRANSACTIONS = DUMP_INPUTS / "transactions" / "00000000000000000000.log"
FORMATS = ("text", "tsv", "json", "jsonl")

Dump = Callable[..., str]


@pytest.fixture
def rows(dump: Dump) -> Callable[..., list[dict[str, Any]]]:
    """The rows of a dump, parsed from JSON Lines."""
    return lambda *arguments: [json.loads(line) for line in dump(*arguments, "--format", "jsonl").splitlines()]


Rows = Callable[..., list[dict[str, Any]]]


def write_log(path: Path, *parts: bytes) -> Path:
    path.write_bytes(b"".join(parts))
    return path


def test_a_batch_row_shows_the_fields_of_its_header(rows: Rows) -> None:
    first, marker = rows(TRANSACTIONS)[:2]
    assert first["file"] == str(TRANSACTIONS)
    assert (first["span"], first["base_offset"], first["last_offset"], first["records_count"]) == ("batch", 0, 4, 5)
    assert (first["max_timestamp_ms"], first["max_timestamp"]) == (1795233329040, "2026-11-21T03:55:29.040Z")
    assert (first["producer_id"], first["producer_id_string"], first["last_sequence"]) == (1, "1", 4)
    assert first["is_valid"] is True
    assert (marker["control_record_type"], marker["coordinator_epoch"]) == ("ABORT", 0)


def test_records_of_both_formats_are_shown_without_payloads(rows: Rows) -> None:
    records = rows(DUMP_INPUTS / "codec-zstd" / "00000000000000000000.log", "--records")
    assert [row["offset"] for row in records] == list(range(120))
    assert all(row["span"] == "record" and row["value_size"] > 0 for row in records)
    assert not {"key", "value", "headers"} & records[0].keys()
    old_records = rows(DUMP_INPUTS / "crafted-format-0" / "00000000000000000000.log", "--records", "--show-payloads")
    contents = [(row["offset"], row["key"], row["value"]) for row in old_records[:3]]
    assert contents == [(0, "key", "value"), (1, None, "no key"), (2, "no value", None)]
    assert [row["offset"] for row in old_records] == list(range(7))


@pytest.mark.parametrize("format_name", FORMATS)
def test_payloads_are_hidden_by_default(dump: Dump, tmp_path: Path, format_name: str) -> None:
    secret = b"the secret of the house"
    record = RecordToWrite(secret, secret, headers=((secret.decode(), secret),))
    parts = [write_batch([record], base_offset=0, base_timestamp=1), legacy_entry(1, value=secret)]
    path = write_log(tmp_path / "00000000000000000000.log", *parts)
    for options in ([], ["--records"], ["--explain"], ["--explain", "--records"]):
        output = dump(path, "--format", format_name, "--offset", "0..8", *options)
        assert ("secret" in output, secret.hex(" ")[:20] in output) == (False, False)
    assert "secret" in dump(path, "--format", format_name, "--records", "--show-payloads")


def test_damage_is_a_row_and_the_dump_continues_after_it(rows: Rows) -> None:
    found_rows = rows(DUMP_INPUTS / "zero-page" / IDEMPOTENT.name)
    spans = [(row["span"], row["position"], row["size_in_bytes"]) for row in found_rows]
    assert spans[2:5] == [("batch", 2802, 1401), ("FRAMING_LOST", 4203, 1401), ("batch", 5604, 1401)]
    records = rows(DUMP_INPUTS / "crc-mismatch" / IDEMPOTENT.name, "--records")
    wrong = [row for row in records if row["span"] == "BATCH_CRC_MISMATCH"]
    assert [(row["position"], row["detail"]["base_offset"]) for row in wrong] == [(4203, 220)]
    assert {row["offset"] for row in records if row.get("is_valid") is False} == set(range(220, 240))
    found_rows = rows(DUMP_INPUTS / "count-short" / IDEMPOTENT.name, "--records")
    assert [row["position"] for row in found_rows if row["span"] == "BATCH_COUNT_LIE"] == [4203]
    assert found_rows[-1]["offset"] == 319
    jumped = rows(DUMP_INPUTS / "offset-jump" / IDEMPOTENT.name, "--offset", "240..259")
    assert [row["base_offset"] for row in jumped] == [240]


@pytest.mark.parametrize(
    ("text", "offsets"), [("200..229", range(200, 230)), ("310..", range(310, 320)), ("..164", range(160, 165)), ("171", [171])]
)
def test_offset_selects_records_and_the_batches_that_contain_them(rows: Rows, text: str, offsets: range) -> None:
    assert [row["offset"] for row in rows(IDEMPOTENT, "--records", "--offset", text)] == list(offsets)
    batches = rows(IDEMPOTENT, "--offset", text)
    assert batches[0]["base_offset"] <= offsets[0] <= batches[0]["last_offset"]
    assert batches[-1]["base_offset"] <= offsets[-1] <= batches[-1]["last_offset"]


def test_offset_starts_to_read_at_the_position_in_the_index(rows: Rows, tmp_path: Path) -> None:
    data = IDEMPOTENT.read_bytes()
    path = write_log(tmp_path / IDEMPOTENT.name, bytes(1401), data[1401:])
    assert rows(path, "--offset", "290..299")[0]["span"] == "FRAMING_LOST"
    shutil.copy(IDEMPOTENT.with_suffix(".index"), tmp_path)
    assert [row["base_offset"] for row in rows(path, "--offset", "290..299")] == [280]


def test_every_kind_of_broker_file_is_dumped(rows: Rows) -> None:
    by_name: dict[str, list[dict[str, Any]]] = {}
    for row in rows(BROKER):
        by_name.setdefault(Path(row["file"]).name, []).append(row)
    assert {row["span"] for file_rows in by_name.values() for row in file_rows} <= {
        "batch",
        "entry",
        "property",
        "header",
        "zero_tail",
    }
    assert {row["name"]: row["value"] for row in by_name["meta.properties"]}["node_id"] == 1
    assert {"topic_id"} <= {row["name"] for row in by_name["partition.metadata"]}
    assert by_name["leader-epoch-checkpoint"][0]["start_offset"] == 0
    assert {"topic", "partition", "offset"} <= by_name["replication-offset-checkpoint"][0].keys()
    kinds = {name.rpartition(".")[2] for name in by_name}
    assert {"log", "index", "timeindex", "txnindex", "snapshot", "checkpoint"} <= kinds
    assert "leaderId" in {row["name"] for row in by_name["quorum-state"]}


def test_topic_and_partition_of_a_single_file_come_from_its_directory(dump: Dump, run: Run) -> None:
    file = BROKER / "audit-0" / "00000000000000000000.log"
    assert dump(file, "--topic", "aud*", "--partition", 0) == dump(file)
    error = "error: nothing matches --topic zz: there is no topic 'zz'\nhint: there is audit-0\n"
    assert run("dump", file, "--topic", "zz") == (2, "", error)
    for path in (TRANSACTIONS, BROKER / "meta.properties"):
        status, _, err = run("dump", path, "--topic", "zz")
        assert (status, "its path does not show its topic and partition" in err) == (2, True)


def test_explained_bytes_are_those_of_the_file(rows: Rows) -> None:
    data = IDEMPOTENT.read_bytes()
    explained = rows(IDEMPOTENT, "--explain", "--records", "--show-payloads")
    header = [row for row in explained if row["structure"] == "batch header"]
    assert [row["field"] for row in header][:3] == ["base_offset", "batch_length", "partition_leader_epoch"]
    assert sum(row["size_in_bytes"] for row in header) == 61
    for row in [row for row in explained if row["structure"] in {"batch header", "record"} and not row["hex"].endswith("..")]:
        start = row["position"]
        assert data[start : start + row["size_in_bytes"]].hex(" ") == row["hex"], row
    ends = [row["position"] + row["size_in_bytes"] for row in explained if row["structure"] == "record"]
    assert [row["position"] for row in explained if row["structure"] == "record"][1:] == ends[:-1]
    assert [row["field"] for row in explained if row["structure"] == "more"] == ["records", "batches"]


def test_explain_shows_fields_of_indexes_snapshots_text_and_damage(rows: Rows) -> None:
    index = rows(IDEMPOTENT.with_suffix(".index"), "--explain")
    fields = [(row["field"], row["value"], row["hex"]) for row in index[:2]]
    assert fields == [("relative_offset", 39, "00 00 00 27"), ("position", 1401, "00 00 05 79")]
    torn = rows(DUMP_INPUTS / "snapshot-torn" / "00000000000000000079.snapshot", "--explain")
    assert [row["field"] for row in torn if row["structure"] == "damage"] == ["PRODUCER_SNAPSHOT_CORRUPT"] * 2
    text = rows(BROKER / "meta.properties", "--explain")
    assert any("node.id=1" in str(row["value"]) for row in text)
    torn_batch = rows(DUMP_INPUTS / "torn-header" / IDEMPOTENT.name, "--explain", "--offset", "300..")
    assert (torn_batch[0]["field"], torn_batch[-1]["meaning"]) == ("SEG_TORN_TAIL", "cut short: 4 bytes belong here")


@pytest.mark.parametrize("arguments", [["--format", "xml"], ["--offset", "7..6"], ["--offset", "x"], ["--offset", ".."]])
def test_wrong_arguments_are_refused(run: Run, arguments: list[str]) -> None:
    status, out, err = run("dump", IDEMPOTENT, *arguments)
    assert (status, out, err[:7]) == (2, "", "error: ")


def test_an_unknown_file_is_refused_and_a_renamed_log_is_read(rows: Rows, tmp_path: Path, run: Run) -> None:
    status, _, err = run("dump", write_log(tmp_path / "notes.txt", b"x"))
    assert (status, "no Kafka file" in err) == (2, True)
    assert len(rows(write_log(tmp_path / "copy.log", *log(3)))) == 3


def test_the_first_row_comes_before_the_whole_file_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from kafka_forensics.questions.dump.inputs import DumpOptions, find_files
    from kafka_forensics.questions.dump.log import log_rows
    from kafka_forensics.storage import local

    path = write_log(tmp_path / "00000000000000000000.log", *log(128, value=bytes(32768)))
    read = io.BytesIO()
    original_read = local._pread_into

    def counting_read(descriptor: int, buffer: memoryview, position: int) -> int:
        read.seek(read.tell() + len(buffer))
        return original_read(descriptor, buffer, position)

    monkeypatch.setattr(local, "_pread_into", counting_read)
    (file,) = find_files([str(path)], DumpOptions()).files
    rows = log_rows(file, DumpOptions())
    next(rows)
    assert 0 < read.tell() <= 2 << 20 < path.stat().st_size // 3
    assert sum(1 for _ in rows) == 127


NAMES = (
    *(f"00000000000000000000.{kind}" for kind in ("log", "index", "timeindex", "txnindex", "snapshot")),
    *("leader-epoch-checkpoint", "quorum-state", "meta.properties"),
)
DAMAGED = st.builds(
    lambda data, position, new: data[: position % len(data)] + new + data[position % len(data) + len(new) :],
    st.sampled_from([TRANSACTIONS.read_bytes()[:900], b"".join([legacy_entry(0, 0), legacy_entry(1), batch(2, 3)])]),
    st.integers(0, 2000),
    st.binary(min_size=1, max_size=8),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(NAMES),
    data=st.one_of(st.binary(max_size=200), DAMAGED),
    options=st.sampled_from(([], ["--records"], ["--explain", "--records", "--offset", "0..4"])),
)
def test_any_bytes_are_dumped(name: str, data: bytes, options: list[str], tmp_path: Path, dump: Dump) -> None:
    dump(write_log(tmp_path / name, data), *options)
