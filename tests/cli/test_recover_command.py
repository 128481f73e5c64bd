"""`recover`: written files, output in every format, and exit statuses."""

import hashlib
import json
import os
import shlex
import shutil
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow.parquet as pq
import pytest

from kafka_forensics.cli.outputs.recover import _MAY_HOLD_MORE, more_lines
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export import recovered as files
from kafka_forensics.model.recovered import OUTCOMES_COUNTED, RECOVERED_FACT
from kafka_forensics.questions.collect import CollectOptions
from kafka_forensics.questions.recover import Recovery
from kafka_forensics.replication.planner import WITHOUT_UPPER_BOUND
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.cli.runs import Run, printed_commands
from tests.support.brokers import put_replica
from tests.support.bundles import make_bundle
from tests.support.json_schemas import validate
from tests.support.places import SAMPLES
from tests.support.segments import BASE_TIMESTAMP, flip_bit, producer_batch, values
from tests.support.times import time_of
from tests.support.unread import refuse

UNCLEAN = SAMPLES / "unclean-election"
HEALTHY = UNCLEAN.with_name("healthy")
NAMES = ["produce_back.py", "records.jsonl", "records.parquet", "report.json"]


@pytest.fixture
def diverged(tmp_path: Path) -> Path:
    """Only broker 2 has three records with special bytes; a fourth one has the producer and sequence of one on broker 1."""
    common = values(0, "a", "b")
    records = [
        RecordToWrite(b"\x00\xff", None, [("h", b"\x1b[31m"), ("h", None)]),
        RecordToWrite(None, b""),
        RecordToWrite("schlüssel".encode(), b"line\n\x7f\xc2\x9b"),
    ]
    lost = write_batch(records, base_offset=2, base_timestamp=BASE_TIMESTAMP)
    lost += producer_batch(5, "again", sequence=4)
    put_replica(tmp_path / "odd", 1, common + values(2, "x", epoch=1) + producer_batch(3, "again", sequence=4, epoch=1))
    put_replica(tmp_path / "odd", 2, common + lost, high_watermark=3)
    return tmp_path / "odd"


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "records.jsonl").read_text(encoding="ascii").splitlines()]


def test_lost_records_of_the_sample_are_written_with_a_report(run: Run, tmp_path: Path) -> None:
    output = tmp_path / "lost"
    status, out, err = run("recover", UNCLEAN, "--topic", "audit", "--partition", 0, "--output", output, "--format", "text")
    assert status == 1
    assert err == f"70 records of 1 partition recovered to {output}, 70 of them proven committed\n"
    flat = " ".join(out.split())
    assert flat.startswith("CRITICAL 70 records of 1 partition recovered to ")
    assert (
        "audit-0: broker 1 is kept, the leader in the controller's log. By the plan it loses 70 offsets, 70 of them"
        " proven committed: at least 70 (on no copy that stays), at most 70. lost offsets held by committed recovered"
        " 300 to 369 2 70 70"
    ) in flat
    assert sorted(path.name for path in output.iterdir()) == NAMES
    report = json.loads((output / "report.json").read_text())
    validate("recover", report)
    for file in report["files"]:
        data = (output / file["name"]).read_bytes()
        assert (file["records"], file["bytes"], file["sha256"]) == (70, len(data), hashlib.sha256(data).hexdigest())
    first = lines_of(output)[0]
    assert (first["key"], first["value"]) == ("user-11", '{"event":"login","number":300,"user":"user-11"}')
    assert first["witness"] == {"kind": "high_watermark", "broker": 2, "name": None, "end_offset": 370}
    assert (first["proof"], first["held_by"], first["offset"], first["timestamp_ms"]) == ("committed", [2], 300, 1795233359057)


def test_json_lines_and_parquet_hold_the_same_special_bytes(run: Run, diverged: Path, tmp_path: Path) -> None:
    output = tmp_path / "lost"
    assert run("recover", diverged, "--keep", 1, "--output", output, "-q")[0] == 1
    lines, table = lines_of(output), pq.read_table(output / "records.parquet")
    assert table.schema.equals(RECOVERED_FACT.schema, check_metadata=False)
    rows = table.to_pylist()
    assert [(row["key"], row["value"], row["headers"]) for row in rows] == [
        (b"\x00\xff", None, [{"key": b"h", "value": b"\x1b[31m"}, {"key": b"h", "value": None}]),
        (None, b"", []),
        ("schlüssel".encode(), b"line\n\x7f\xc2\x9b", []),
    ]
    assert [(line["key"], line["value"], line["headers"]) for line in lines] == [
        ({"base64": "AP8="}, None, [["h", "\x1b[31m"], ["h", None]]),
        (None, "", []),
        ("schlüssel", "line\n\x7f\x9b", []),
    ]
    raw = (output / "records.jsonl").read_bytes()
    assert all(0x20 <= byte < 0x7F or byte == 0x0A for byte in raw), "nothing reaches a terminal raw"
    producer = ("producer_id", "producer_epoch", "sequence")
    same = ("topic", "partition", "offset", "partition_leader_epoch", *producer, "txn_state", "proof")
    assert [[line[name] for name in same] for line in lines] == [[row[name] for name in same] for row in rows]
    assert [row["proof"] for row in rows] == ["committed", "maybe", "maybe"]
    assert [time_of(line["timestamp_ms"]) for line in lines] == [row["timestamp"] for row in rows]


def test_every_format_agrees_with_the_report(run: Run, diverged: Path, tmp_path: Path) -> None:
    outputs = {
        form: run("recover", diverged, "--keep", 1, "--output", tmp_path / form, "--format", form)[1]
        for form in ("json", "jsonl", "tsv", "text")
    }
    report = json.loads(outputs["json"])
    assert report == json.loads((tmp_path / "json" / "report.json").read_text())
    validate("recover", report)
    lines = [json.loads(line) for line in outputs["jsonl"].splitlines()]
    assert [line.pop("type") for line in lines] == ["partition", "summary"]
    assert lines[0] == report["partitions"][0]
    row = dict(zip(*(line.split("\t") for line in outputs["tsv"].splitlines()), strict=True))
    (offset_range,) = report["partitions"][0]["ranges"]
    assert {reason: int(row[reason]) for reason in OUTCOMES_COUNTED} == offset_range["offsets"]
    assert offset_range["offsets"] == dict.fromkeys(OUTCOMES_COUNTED, 0) | {"recovered": 3, "surviving": 1}
    left_out = "Left out: 1 record that the surviving side has (same producer, epoch and sequence, same content)."
    assert left_out in " ".join(outputs["text"].split())


def test_without_loss_the_status_is_0_and_files_have_no_records(run: Run, tmp_path: Path) -> None:
    output = tmp_path / "none"
    status, out, err = run("recover", HEALTHY, "--output", output, "--format", "text")
    assert (status, err) == (0, "12 partitions: nothing is lost\n")
    assert lines_of(output) == []
    assert sorted(os.listdir(output)) == NAMES[1:], "there is nothing to produce"
    assert pq.read_table(output / "records.parquet").num_rows == 0
    assert out.startswith("clean     12 partitions: nothing is lost\n")
    validate("recover", json.loads((output / "report.json").read_text()))


def test_all_partitions_go_into_one_file_and_need_a_kept_broker(run: Run, diverged: Path, tmp_path: Path) -> None:
    for broker in (1, 2):
        shutil.copytree(diverged / f"broker-{broker}" / "orders-0", diverged / f"broker-{broker}" / "other-3")
    output = tmp_path / "lost"
    assert run("recover", diverged, "--keep", 1, "--output", output, "-q")[0] == 1
    places = [(line["topic"], line["partition"], line["offset"]) for line in lines_of(output)]
    assert places == [*(("orders", 0, offset) for offset in (2, 3, 4)), *(("other", 3, offset) for offset in (2, 3, 4))]
    status, out, _ = run("recover", diverged, "--output", tmp_path / "unchosen", "--format", "json")
    assert (status, [partition["kept"] for partition in json.loads(out)["partitions"]]) == (3, [None, None])
    validate("recover", json.loads(out))
    out = run("recover", diverged, "--output", tmp_path / "unchosen again")[1]
    assert "undecided orders-0 and other-3 (2 partitions): no given controller's log" in " ".join(out.split())
    run("plan", diverged, "--output", tmp_path / "plan.json")
    assert run("recover", diverged, "--plan", tmp_path / "plan.json", "--output", tmp_path / "planned")[0] == 1


def test_a_plan_and_its_recovery_keep_the_same_leader(run: Run, tmp_path: Path) -> None:
    """Alone broker 1 and 2 are equally good for a-0; the order of starts decides, for the sake of b-0."""
    copies, plan = tmp_path / "copies", tmp_path / "plan.json"
    for broker, (text, more) in enumerate((("one", 0), ("two", 5)), 1):
        put_replica(copies, broker, values(0, "same") + values(1, text, epoch=broker), partition="a-0", high_watermark=2)
        log = values(0, "same", *("more",) * more)
        put_replica(copies, broker, log, partition="b-0", high_watermark=1 + more)
    run("plan", copies, "--output", plan)
    planned = {row["topic"]: row["recommended"] for row in json.loads(plan.read_text())["partitions"]}
    assert planned["a"] == 2
    out = run("recover", copies, "--plan", plan, "--output", tmp_path / "lost", "--format", "json")[1]
    kept = {row["topic"]: row["kept"]["broker"] for row in json.loads(out)["partitions"]}
    assert kept["a"] == 2
    assert [line["value"] for line in lines_of(tmp_path / "lost")] == ["one"]


def test_keep_and_plan_exclude_each_other(run: Run, diverged: Path, tmp_path: Path) -> None:
    status, _, err = run("recover", diverged, "--keep", 1, "--plan", "plan.json", "--output", tmp_path / "lost")
    assert (status, "--keep and --plan exclude each other" in err) == (2, True)


def test_unreadable_records_give_status_3_and_the_others_are_written(run: Run, tmp_path: Path) -> None:
    common = values(0, "a", "b")
    put_replica(tmp_path / "copies", 1, common)
    put_replica(tmp_path / "copies", 2, common + flip_bit(values(2, "c"), 70) + values(3, "d"))
    output = tmp_path / "lost"
    status, out, err = run("recover", tmp_path / "copies", "--keep", 1, "--output", output, "--format", "text")
    summary = f"1 record of 1 partition recovered to {output}, 0 of them proven committed; 1 unreadable"
    assert (status, err.splitlines()[0]) == (3, summary)
    assert "No given copy has the records of 1 offset: damaged." in " ".join(out.split())
    assert [line["value"] for line in lines_of(output)] == ["d"]


def may_hold_more(output: Path) -> list[dict[str, Any]]:
    report = json.loads((output / "report.json").read_text())
    validate("recover", report)
    found: list[dict[str, Any]] = report["may_hold_more"]
    return found


def test_absent_copies_may_hold_more_records(run: Run, tmp_path: Path) -> None:
    output = tmp_path / "one"
    copies = [UNCLEAN / "broker-1", UNCLEAN / "broker-3"]
    status, out, err = run("recover", *copies, "--topic", "audit", "--output", output, "--format", "text")
    note = "note: no copy of broker 2 was given; it may hold more"
    assert (status, err) == (0, f"1 partition: nothing that these copies hold is lost\n{note}\n")
    assert "nothing that these copies hold; copies that were not given or not read may hold more." in " ".join(out.split())
    assert may_hold_more(output) == [{"kind": "copy_absent", "broker": 2, "partitions": 1}]
    run("recover", HEALTHY, "--output", tmp_path / "whole", "-q")
    assert may_hold_more(tmp_path / "whole") == []


def test_a_log_with_unknown_bytes_or_unread_may_hold_more(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_replica(tmp_path / "copies", 1, values(0, "a", "b"))
    put_replica(tmp_path / "copies", 2, values(0, "a", "b") + b"\x55" * 300)
    status, _, err = run("recover", tmp_path / "copies", "--output", tmp_path / "hidden")
    assert "1 partition: nothing that these copies hold is lost" in err
    assert "note: after the last batch of broker 2 there are bytes that may hold more records" in err
    assert "note: no given controllers' log shows whether there are more replicas, which may hold more" in err
    assert {"kind": "unknown_bytes", "broker": 2, "partitions": 1} in may_hold_more(tmp_path / "hidden")
    assert status == 0
    refuse(monkeypatch, lambda path: path.suffix == ".log" and "broker-2" in path.parts)
    status, _, err = run("recover", tmp_path / "copies", "--output", tmp_path / "unread")
    assert (status, "note: the log of broker 2 could not be read; it may hold more" in err) == (3, True), err
    assert {"kind": "copy_not_read", "broker": 2, "partitions": 1} in may_hold_more(tmp_path / "unread")


def test_every_cause_of_an_open_upper_bound_has_a_note() -> None:
    assert _MAY_HOLD_MORE.keys() == WITHOUT_UPPER_BOUND
    answer = Recovery(looked_at=3, may_hold_more=Counter({(kind, 7): 2 for kind in WITHOUT_UPPER_BOUND}))
    lines = [*more_lines(answer)]
    assert len(lines) == len(WITHOUT_UPPER_BOUND)
    assert all("2 partitions" in line and "{" not in line for line in lines)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ((), "hint: choose the copy to keep with --keep N (1, 2), or the leaders of a plan with --plan FILE\n"),
        (("--keep", 7), "error: no copy belongs to broker 7\nhint: --keep needs a broker with a given copy: 1, 2\n"),
        (("--keep", 1, "--dead", 1), "error: --keep 1 and --dead 1 contradict each other\nhint: a broker that will not come back "),
    ],
)
def test_an_invalid_kept_broker_is_refused(
    options: tuple[object, ...], error: str, run: Run, diverged: Path, tmp_path: Path
) -> None:
    status, out, err = run("recover", diverged, *options, "--output", tmp_path / "lost")
    assert (status, out, error in err) == (2, "", True)
    assert [*tmp_path.iterdir()] == [diverged], "nothing is left behind"


def test_a_printed_command_collects_missing_records(
    run: Run, diverged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = CollectOptions(ScanOptions(topic_glob="orders", partition=0), hashes=True)
    bundles = [make_bundle(diverged / f"broker-{broker}", tmp_path / f"{broker}.kfb", options) for broker in (1, 2)]
    status, out, err = run("recover", *bundles, "--keep", 1, "--output", tmp_path / "lost", "--format", "text")
    assert status == 3
    assert "No given copy has the records of 4 offsets: not collected." in " ".join(out.split())
    commands = [shlex.split(command) for command in printed_commands(err)]
    for broker, offsets, command in zip((1, 2), ("2..5", "2..5"), commands, strict=True):
        repeated = ("--deep", "--hash", "--topic", "orders", "--partition", "0")
        arguments = (*repeated, "--with-records", f"orders:0:{offsets}", "--output", f"broker-{broker}-again.kfb")
        assert command == ["kafka-forensics", "collect", f"{broker}={diverged / f'broker-{broker}'}", *arguments]
    monkeypatch.chdir(tmp_path)
    assert [run(*command[1:])[0] for command in commands] == [0, 0]
    status, _, err = run("recover", bundles[0], "broker-2-again.kfb", "--keep", 1, "--output", tmp_path / "lost")
    assert (status, len(lines_of(tmp_path / "lost"))) == (3, 4), "the earlier answer without records is replaced"
    assert "not checked: orders-0: could not check whether broker 1 already has some of these records" in err
    whole = run("recover", "broker-1-again.kfb", "broker-2-again.kfb", "--keep", 1, "--output", tmp_path / "whole")
    assert (whole[0], len(lines_of(tmp_path / "whole"))) == (1, 3)


def test_a_bundle_without_records_has_one_command_with_a_file_for_many_ranges(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        for broker in (1, 2):
            lost = values(2, "x", epoch=1) if broker == 1 else values(2, "c", "d")
            put_replica(tmp_path / "copies", broker, values(0, "a", "b") + lost, partition=f"orders-{number}")
    bundles = [make_bundle(tmp_path / "copies" / f"broker-{broker}", tmp_path / f"{broker}.kfb") for broker in (1, 2)]
    monkeypatch.chdir(tmp_path)
    status, _, err = run("recover", *bundles, "--keep", 1, "--output", "lost")
    commands = [shlex.split(command) for command in printed_commands(err)]
    assert status == 3
    assert [command[2] for command in commands] == [f"{broker}={tmp_path}/copies/broker-{broker}" for broker in (1, 2)]
    assert all(len(line) <= 80 for line in err.splitlines() if line.startswith("    ") and str(tmp_path) not in line)
    assert (tmp_path / "lost" / "collect-2.txt").read_text() == "".join(f"orders:{number}:2..3\n" for number in range(6))
    for command in commands:
        assert run(*command[1:])[0] == 0
    status, _, err = run("recover", "broker-1-again.kfb", "broker-2-again.kfb", "--keep", 1, "--output", "lost")
    assert (status, len(lines_of(tmp_path / "lost"))) == (1, 12), err
    assert sorted(os.listdir("lost")) == NAMES
    assert run("recover", *bundles, "--keep", 1, "--output", "lost")[0] == 2, "an answer with records is never replaced"


def test_an_undecided_answer_without_records_does_not_block_the_next_one(run: Run, diverged: Path, tmp_path: Path) -> None:
    for broker in (1, 2):
        shutil.copytree(diverged / f"broker-{broker}" / "orders-0", diverged / f"broker-{broker}" / "other-3")
    assert run("recover", diverged, "--output", tmp_path / "lost")[0] == 3
    assert run("recover", diverged, "--keep", 1, "--output", tmp_path / "lost")[0] == 1
    assert len(lines_of(tmp_path / "lost")) == 6


def test_internal_topics_are_recovered_only_if_they_are_named(run: Run, diverged: Path, tmp_path: Path) -> None:
    for broker in (1, 2):
        shutil.copytree(diverged / f"broker-{broker}" / "orders-0", diverged / f"broker-{broker}" / "__consumer_offsets-3")
    status, out, _ = run("recover", diverged, "--keep", 1, "--output", tmp_path / "lost", "--format", "json")
    assert (status, {line["topic"] for line in lines_of(tmp_path / "lost")}) == (1, {"orders"})
    validate("recover", json.loads(out))
    assert json.loads(out)["left_out"] == [{"topic": "__consumer_offsets", "partitions": 1}]
    out = run("recover", diverged, "--keep", 1, "--output", tmp_path / "again")[1]
    assert "left out __consumer_offsets (1 partition), which only brokers write" in " ".join(out.split())
    run("recover", diverged, "--keep", 1, "--topic", "__*", "--output", tmp_path / "internal")
    assert {line["topic"] for line in lines_of(tmp_path / "internal")} == {"__consumer_offsets"}


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ("", "--output is empty, and is not a directory"),
        ("full", "full is not empty: it holds file"),
        ("full/file", "full/file is a file, and --output names a directory"),
        ("missing/new", "its directory does not exist"),
    ],
)
def test_only_a_new_or_empty_output_directory_is_accepted(
    place: str, error: str, run: Run, diverged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "there").mkdir()
    before = sorted(diverged.rglob("*"))
    status, _, err = run("recover", diverged, "--keep", 1, "--output", place)
    assert (status, error in err, "hint: " in err) == (2, True, True), err
    assert sorted(diverged.rglob("*")) == before
    assert run("recover", diverged, "--keep", 1, "--output", "there", "-q")[0] == 1
    assert sorted(os.listdir(tmp_path / "there")) == NAMES


def test_a_full_disk_is_reported_and_leaves_no_files(
    run: Run, diverged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "write_report", Mock(side_effect=OSError(28, "No space left on device")))
    status, out, err = run("recover", diverged, "--keep", 1, "--output", tmp_path / "lost")
    assert (status, out, "cannot write to" in err) == (2, "", True)
    assert [*tmp_path.iterdir()] == [diverged]


def test_the_same_copies_give_the_same_bytes(run: Run, diverged: Path, tmp_path: Path) -> None:
    for jobs in (1, 2):
        assert run("recover", diverged, "--keep", 1, "--jobs", jobs, "--output", tmp_path / str(jobs), "-q")[0] == 1
    assert all((tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes() for name in NAMES)
