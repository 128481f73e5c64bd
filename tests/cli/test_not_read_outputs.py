"""What could not be read in every output of every command."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

import kafka_forensics as kf
from kafka_forensics.cli.main import outcome
from tests.support.faults import HEALTHY, Brokers, healthy
from tests.support.json_schemas import json_schema
from tests.support.snapshot_trees import NEW, OLD, Snapshots
from tests.support.unread import NULLS, refuse, refuse_logs

Run = Callable[..., tuple[int, str]]
FORMATS = ("table", "tsv", "json", "jsonl", "markdown")
LOSS_WORDS = ("lost", "lags", "behind", "identical", "missing")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run_command(*arguments: object) -> tuple[int, str]:
        status = outcome([*map(str, arguments)])
        return status, capsys.readouterr().out

    return run_command


@pytest.fixture
def brokers(tmp_path: Path) -> Brokers:
    return healthy(tmp_path)


def validated(command: str, instances: list[Any], definition: str | None = None) -> None:
    schemas = [json_schema(name) for name in ("scan", "plan", "compare", "changes")]
    registry: Registry[Any] = Registry().with_resources([(one["$id"], Resource.from_contents(one)) for one in schemas])
    schema = json_schema(command)
    if definition is not None:
        schema = {"$ref": f"urn:kafka-forensics:{command}-1.0#/$defs/{definition}"}
    for instance in instances:
        Draft202012Validator(schema, registry=registry).validate(instance)


@pytest.mark.parametrize("command", ["scan", "plan", "compare", "changes", "recover", "salvage"])
def test_the_schemas_that_are_shipped_are_schemas(command: str) -> None:
    schema = json_schema(command)
    Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:kafka-forensics:{command}-1.0"
    assert schema["properties"]["schema_version"] == {"const": "1.0"}


@pytest.mark.parametrize("unread", [(1, 2, 3), (2,), (2, 3)])
@pytest.mark.parametrize("command", ["scan", "plan", "compare"])
def test_json_obeys_its_schema(
    brokers: Brokers, run: Run, monkeypatch: pytest.MonkeyPatch, command: str, unread: tuple[int, ...]
) -> None:
    refuse_logs(monkeypatch, brokers, unread)
    status, out = run(command, *brokers.log_dirs, "--format", "json")
    assert status == 3
    document = json.loads(out)
    assert document["schema_version"] == "1.0"
    validated(command, [document])
    status, out = run(command, *brokers.log_dirs, "--format", "jsonl")
    assert status == 3
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines[-1]["schema_version"] == "1.0"
    if command != "compare":
        validated(command, lines, "line")


@pytest.mark.parametrize("command", ["scan", "plan", "compare"])
def test_json_of_what_was_read_whole_obeys_its_schema(brokers: Brokers, run: Run, command: str) -> None:
    status, out = run(command, *brokers.log_dirs, "--format", "json")
    assert status == 0
    validated(command, [json.loads(out)])


def test_scan_says_null_of_what_was_not_read(brokers: Brokers, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_logs(monkeypatch, brokers, (1, 2, 3))
    document = json.loads(run("scan", *brokers.log_dirs, "--format", "json")[1])
    [partition] = document["partitions"]
    assert (document["summary"]["verdict"], partition["verdict"], partition["read"]) == ("unknown", "unknown", "none")
    assert (partition["high_watermark_at_least"], partition["not_read"]) == (None, [1, 2, 3])
    for replica in partition["replicas"]:
        assert {replica[name] for name in NULLS} == {None}
        assert set(replica["transactions"].values()) == {None}
        assert (replica["read"], replica["high_watermark"]) == ("none", 72)
    gap = document["incomplete"][0]
    assert (gap["topic"], gap["partition"], gap["broker"]) == ("t", 0, 1)


@pytest.mark.parametrize("format_name", ["table", "markdown"])
def test_people_read_that_nothing_is_known(brokers: Brokers, run: Run, monkeypatch: pytest.MonkeyPatch, format_name: str) -> None:
    refuse_logs(monkeypatch, brokers, (1, 2, 3))
    status, out = run("scan", *brokers.log_dirs, "--format", format_name)
    told = out.replace("\\", "")
    assert status == 3
    assert "unknown" in told.lower()
    assert "nothing of any replica's log could be read" in told
    assert told.count("its log could not be read") == 3
    assert not any(word in told.lower() for word in (*LOSS_WORDS, "clean", "offset 0"))


@pytest.mark.parametrize("format_name", ["table", "markdown"])
def test_people_read_of_what_the_verdict_is(brokers: Brokers, run: Run, monkeypatch: pytest.MonkeyPatch, format_name: str) -> None:
    refuse_logs(monkeypatch, brokers, (2,))
    told = run("scan", *brokers.log_dirs, "--format", format_name)[1].replace("\\", "")
    assert "clean of what could be read" in " ".join(told.split())
    assert told.count("its log could not be read") == 1
    assert not any(word in told.lower() for word in LOSS_WORDS)


def test_notebooks_show_it(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_logs(monkeypatch, brokers, (1, 2, 3))
    result = kf.scan([str(path) for path in brokers.log_dirs])
    page = result._repr_html_()
    assert page is not None
    assert "unknown" in page
    assert "1: not read, 2: not read, 3: not read" in page
    assert repr(result).startswith("<ScanResult unknown: ")
    [row, *_] = result.facts("replicas").to_pylist()
    assert {row[name] for name in ("log_start_offset", "log_end_offset", "records", "batches", "leader_epochs")} == {None}
    assert (row["verdict"], row["read"], row["high_watermark"]) == ("unknown", "none", 72)
    told = result.facts("incomplete").to_pylist()
    assert {(one["topic"], one["partition"]) for one in told} == {("t", 0)}
    assert sorted({one["broker"] for one in told}) == ["1", "2", "3"]
    assert json.loads(result.to_json())["summary"]["verdict"] == "unknown"


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize(
    "command", ["scan", "plan", "compare", "epochs", "transactions", "groups", "metadata", "find --offset 3"], ids=str
)
@pytest.mark.parametrize("unread", [(1, 2, 3), (2,)])
def test_no_command_calls_it_lost(
    brokers: Brokers, run: Run, monkeypatch: pytest.MonkeyPatch, command: str, format_name: str, unread: tuple[int, ...]
) -> None:
    refuse_logs(monkeypatch, brokers, unread)
    name, *asked = command.split()
    status, out = run(name, *brokers.log_dirs, *asked, "--format", format_name)
    assert status == 0 if name in ("groups", "metadata") else 3, out
    assert "REPLICA_LAGS" not in out
    assert "COMMITTED_LOST" not in out


@pytest.mark.parametrize("unread", [(OLD,), (NEW,), (OLD, NEW)])
def test_changes_compare_nothing_that_was_not_read(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, unread: tuple[str, ...]
) -> None:
    made = Snapshots(tmp_path / "snapshots")
    made.put(OLD, HEALTHY)
    made.put(NEW, HEALTHY)
    refuse(monkeypatch, lambda path: path.suffix == ".log" and any(one in path.parts for one in unread))
    status, out = run("changes", tmp_path / "snapshots", "--format", "json")
    document = json.loads(out)
    assert status == 3
    validated("changes", [document])
    assert {(one["kind"], one["reason"]) for one in document["changes"]} <= {("not_compared", "unreadable")}
    assert document["summary"]["verdict"] == "unknown"
    assert len(document["changes"]) == 3
    known = None if len(unread) == 2 else 75
    assert {one["offset_end"] for one in document["changes"]} == {known}
    for format_name in FORMATS:
        assert run("changes", tmp_path / "snapshots", "--format", format_name)[0] == 3


def test_a_plan_tells_whose_log_could_not_be_read(brokers: Brokers, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_logs(monkeypatch, brokers, (2,))
    document = json.loads(run("plan", *brokers.log_dirs, "--format", "json")[1])
    [planned] = document["partitions"]
    assert [one["broker"] for one in planned["candidates"]] == [1, 3]
    assert {"kind": "copy_not_read", "broker": 2} in planned["missing_witnesses"]
    assert document["copies_not_read"] == [{"broker": 2, "partitions": 1}]
    unread = planned["replicas"][-1]
    assert (unread["broker"], unread["log_end_offset"], unread["read"], unread["starts"]) == (2, None, "none", None)
    assert all(one["committed"] == 0 for one in planned["candidates"])


def test_compare_shows_what_it_could_not_read(brokers: Brokers, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    last = brokers.file(1, 55)
    last.write_bytes(last.read_bytes()[:100])
    refuse_logs(monkeypatch, brokers, (2,))
    document = json.loads(run("compare", *brokers.log_dirs, "--format", "json")[1])
    held = {(one["broker"], one["state"]) for row in document["offsets"] for one in row["replicas"]}
    assert (2, "not_read") in held
    assert {state for broker, state in held if broker == 2} == {"not_read"}


def test_epochs_say_nothing_of_batches_that_were_not_read(brokers: Brokers, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_logs(monkeypatch, brokers, (2,))
    rows = json.loads(run("epochs", *brokers.log_dirs, "--format", "json")[1])
    of_unread = [row for row in rows if row["broker"] == 2]
    assert {(row["status"], row["batches"], row["start_offset"]) for row in of_unread} == {("not_read", None, None)}
    assert {row["status"] for row in rows if row["broker"] != 2} == {"agrees"}


@pytest.mark.parametrize("segment", [0, 29, 55])
def test_epochs_of_a_log_that_was_read_in_part_do_not_disagree(
    brokers: Brokers, run: Run, monkeypatch: pytest.MonkeyPatch, segment: int
) -> None:
    refused = brokers.file(2, segment)
    refuse(monkeypatch, lambda path: path == refused)
    rows = json.loads(run("epochs", *brokers.log_dirs, "--format", "json")[1])
    assert {row["status"] for row in rows if row["broker"] == 2} <= {"agrees", "not_read"}
    assert {row["truncation_offset_by_batches"] for row in rows} == {None}
