"""What could not be read in every output of every command, and in both versions of the schemas."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

import kafka_forensics as kf
from kafka_forensics.cli.main import outcome
from kafka_forensics.export.json_document import json_schema
from tests.support.faults import HEALTHY, Brokers, healthy
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


def validated(command: str, version: str, instances: list[Any], definition: str | None = None) -> None:
    schemas = [json_schema(name, version) for name in ("scan", "plan", "compare", "changes")]
    registry: Registry[Any] = Registry().with_resources([(one["$id"], Resource.from_contents(one)) for one in schemas])
    schema = json_schema(command, version)
    if definition is not None:
        schema = {"$ref": f"urn:kafka-forensics:{command}-{version}#/$defs/{definition}"}
    for instance in instances:
        Draft202012Validator(schema, registry=registry).validate(instance)


@pytest.mark.parametrize("command", ["scan", "plan", "compare", "changes"])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_the_schemas_that_are_shipped_are_schemas(command: str, version: str) -> None:
    schema = json_schema(command, version)
    Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:kafka-forensics:{command}-{version}"
    assert schema["properties"]["schema_version"] == {"const": version}


@pytest.mark.parametrize("unread", [(1, 2, 3), (2,), (2, 3)])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("command", ["scan", "plan", "compare"])
def test_json_obeys_its_schema(
    brokers: Brokers, run: Run, monkeypatch: pytest.MonkeyPatch, command: str, version: str, unread: tuple[int, ...]
) -> None:
    refuse_logs(monkeypatch, brokers, unread)
    status, out = run(command, *brokers.log_dirs, "--format", "json", "--schema", version)
    assert status == 3
    document = json.loads(out)
    assert document["schema_version"] == version
    validated(command, version, [document])
    status, out = run(command, *brokers.log_dirs, "--format", "jsonl", "--schema", version)
    assert status == 3
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines[-1]["schema_version"] == version
    if command != "compare":
        validated(command, version, lines, "line")


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("command", ["scan", "plan", "compare"])
def test_what_was_read_whole_is_said_in_both_versions(brokers: Brokers, run: Run, command: str, version: str) -> None:
    status, out = run(command, *brokers.log_dirs, "--format", "json", "--schema", version)
    assert status == 0
    validated(command, version, [json.loads(out)])
    validated(command, version, [json.loads(run(command, *brokers.log_dirs, "--format", "json", "--schema", version)[1])])


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


def test_schema_1_0_leaves_out_what_it_cannot_say(brokers: Brokers, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = json.loads(run("scan", *brokers.log_dirs, "--format", "json", "--schema", "1.0")[1])
    assert [replica["broker"] for replica in whole["partitions"][0]["replicas"]] == [1, 2, 3]
    refuse_logs(monkeypatch, brokers, (2,))
    part = json.loads(run("scan", *brokers.log_dirs, "--format", "json", "--schema", "1.0")[1])
    assert [replica["broker"] for replica in part["partitions"][0]["replicas"]] == [1, 3]
    refuse_logs(monkeypatch, brokers, (1, 3))
    assert json.loads(run("scan", *brokers.log_dirs, "--format", "json", "--schema", "1.0")[1])["partitions"] == []


def test_schema_1_0_says_what_it_leaves_out_of_a_plan_that_was_read_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """What an ordinary start loses is no matter of reading: nothing is said of what could not be read."""
    sample = Path(__file__).resolve().parents[2] / "sample_logs" / "unclean-election"
    assert outcome(["plan", str(sample), "--format", "json", "--schema", "1.0"]) == 3
    told = " ".join(capsys.readouterr().err.split())
    assert "schema 1.0 has no words for this, which is left out: " in told
    assert "whom an ordinary start may elect and what that loses" in told
    assert "could not be read" not in told
    assert outcome(["plan", str(sample), "--format", "json"]) == 0
    assert "left out" not in capsys.readouterr().err


def test_schema_1_0_says_of_a_scan_that_something_was_not_read(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refuse_logs(monkeypatch, brokers, (2,))
    assert outcome(["scan", *map(str, brokers.log_dirs), "--format", "json", "--schema", "1.0"]) == 3
    told = " ".join(capsys.readouterr().err.split())
    assert "schema 1.0 has no words for this, which is left out: what could not be read" in told


@pytest.mark.parametrize("wrong", [("--schema", "1.0"), ("--format", "json", "--schema", "2.0")])
def test_a_schema_that_is_none(brokers: Brokers, run: Run, wrong: tuple[str, ...]) -> None:
    assert run("scan", *brokers.log_dirs, *wrong) == (2, "")


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


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("unread", [(OLD,), (NEW,), (OLD, NEW)])
def test_changes_compare_nothing_that_was_not_read(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, version: str, unread: tuple[str, ...]
) -> None:
    made = Snapshots(tmp_path / "snapshots")
    made.put(OLD, HEALTHY)
    made.put(NEW, HEALTHY)
    refuse(monkeypatch, lambda path: path.suffix == ".log" and any(one in path.parts for one in unread))
    status, out = run("changes", tmp_path / "snapshots", "--format", "json", "--schema", version)
    document = json.loads(out)
    assert status == 3
    validated("changes", version, [document])
    assert {(one["kind"], one["reason"]) for one in document["changes"]} <= {("not_compared", "unreadable")}
    if version == "1.1":
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
