"""Unread inputs in the output of every command."""

import json
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.cli.every_command import evidence_commands
from tests.cli.runs import Run
from tests.support.brokers import Brokers, healthy
from tests.support.json_schemas import json_schema, validate
from tests.support.logs import HEALTHY
from tests.support.places import SAMPLES
from tests.support.snapshot_trees import NEW, OLD, Snapshots
from tests.support.unread import NULLS, refuse, refuse_logs

Answer = Callable[..., tuple[int, str]]
LOSS_WORDS = ("lost", "lags", "behind", "identical", "missing")


@pytest.fixture
def brokers(tmp_path: Path) -> Brokers:
    return healthy(tmp_path)


@pytest.fixture
def answer(brokers: Brokers, run: Run, monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Run a command where the logs of these brokers cannot be read: exit status and stdout."""

    def command(unread: Collection[int], name: str, *options: str, form: str = "json") -> tuple[int, str]:
        refuse_logs(monkeypatch, brokers, unread)
        return run(name, *brokers.log_dirs, *options, "--format", form)[:2]

    return command


@pytest.mark.parametrize("command", ["scan", "plan", "compare", "changes", "recover", "salvage"])
def test_shipped_schemas_are_valid(command: str) -> None:
    schema = json_schema(command)
    Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:kafka-forensics:{command}-1.0"
    assert schema["properties"]["schema_version"] == {"const": "1.0"}


@pytest.mark.parametrize("unread", [(), (1, 2, 3), (2,)])
@pytest.mark.parametrize("command", ["scan", "plan", "compare"])
def test_json_obeys_its_schema(answer: Answer, command: str, unread: tuple[int, ...]) -> None:
    status, out = answer(unread, command)
    document = json.loads(out)
    assert (status, document["schema_version"]) == (3 if unread else 0, "1.0")
    validate(command, document)
    status, out = answer((), command, form="jsonl")
    lines = [json.loads(line) for line in out.splitlines()]
    assert (status, lines[-1]["schema_version"]) == (3 if unread else 0, "1.0")
    if command != "compare":
        validate(command, *lines, definition="line")


def test_scan_writes_null_for_unread_values(answer: Answer) -> None:
    document = json.loads(answer((1, 2, 3), "scan")[1])
    [partition] = document["partitions"]
    assert (document["summary"]["verdict"], partition["verdict"], partition["read"]) == ("unknown", "unknown", "none")
    assert (partition["high_watermark_at_least"], partition["not_read"]) == (None, [1, 2, 3])
    for replica in partition["replicas"]:
        assert {replica[name] for name in NULLS} == {None}
        assert set(replica["transactions"].values()) == {None}
        assert (replica["read"], replica["high_watermark"]) == ("none", 72)
    gap = document["incomplete"][0]
    assert (gap["topic"], gap["partition"], gap["broker"]) == ("t", 0, 1)


@pytest.mark.parametrize(
    ("unread", "expected", "forbidden"),
    [
        ((1, 2, 3), ("unknown", "nothing of any replica's log could be read"), ("clean", "offset 0")),
        ((2,), ("clean of what could be read",), ()),
    ],
)
def test_text_states_what_the_verdict_covers(
    answer: Answer, unread: tuple[int, ...], expected: tuple[str, ...], forbidden: tuple[str, ...]
) -> None:
    status, out = answer(unread, "scan", "--by", "partition", form="text")
    text = " ".join(out.lower().split())
    assert status == 3
    assert [phrase for phrase in expected if phrase not in text] == []
    assert text.count("its log could not be read") == len(unread)
    assert [phrase for phrase in (*LOSS_WORDS, *forbidden) if phrase in text] == []


@pytest.mark.parametrize("unread", [(1, 2, 3), (2,)])
def test_no_command_reports_unread_records_as_lost(answer: Answer, unread: tuple[int, ...]) -> None:
    for command, arguments in evidence_commands("t").items():
        status, out = answer(unread, command, *arguments)
        assert (command, status) == (command, 0 if command in ("groups", "metadata") else 3)
        assert not [kind for kind in ("REPLICA_LAGS", "COMMITTED_LOST") if kind in out], command


@pytest.mark.parametrize("unread", [(OLD,), (NEW,), (OLD, NEW)])
def test_changes_do_not_compare_unread_logs(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, unread: tuple[str, ...]
) -> None:
    snapshots = Snapshots(tmp_path / "snapshots")
    snapshots.put(OLD, HEALTHY)
    snapshots.put(NEW, HEALTHY)
    refuse(monkeypatch, lambda path: path.suffix == ".log" and any(snapshot in path.parts for snapshot in unread))
    status, out, _ = run("changes", tmp_path / "snapshots", "--format", "json")
    document = json.loads(out)
    assert status == 3
    validate("changes", document)
    assert {(change["kind"], change["reason"]) for change in document["changes"]} <= {("not_compared", "unreadable")}
    assert (document["summary"]["verdict"], len(document["changes"])) == ("unknown", 3)
    log_end = None if len(unread) == 2 else 75
    assert {change["offset_end"] for change in document["changes"]} == {log_end}


def test_a_plan_names_brokers_with_unread_logs(answer: Answer) -> None:
    document = json.loads(answer((2,), "plan")[1])
    [partition] = document["partitions"]
    assert [candidate["broker"] for candidate in partition["candidates"]] == [1, 3]
    assert {"kind": "copy_not_read", "broker": 2} in partition["missing_witnesses"]
    assert document["copies_not_read"] == [{"broker": 2, "partitions": 1}]
    replica = partition["replicas"][-1]
    assert (replica["broker"], replica["log_end_offset"], replica["read"], replica["starts"]) == (2, None, "none", None)
    assert all(candidate["committed"] == 0 for candidate in partition["candidates"])


def test_compare_marks_unread_replicas(answer: Answer, brokers: Brokers) -> None:
    last_segment = brokers.file(1, 55)
    last_segment.write_bytes(last_segment.read_bytes()[:100])
    document = json.loads(answer((2,), "compare")[1])
    states = {(replica["broker"], replica["state"]) for row in document["offsets"] for replica in row["replicas"]}
    assert {state for broker, state in states if broker == 2} == {"not_read"}


def test_epochs_write_null_for_unread_batches(answer: Answer) -> None:
    rows = json.loads(answer((2,), "epochs")[1])
    unread_rows = [row for row in rows if row["broker"] == 2]
    assert {(row["status"], row["batches"], row["start_offset"]) for row in unread_rows} == {("not_read", None, None)}
    assert {row["status"] for row in rows if row["broker"] != 2} == {"agrees"}


@pytest.mark.parametrize("segment", [0, 29, 55])
def test_epochs_of_a_partly_read_log_agree(answer: Answer, brokers: Brokers, monkeypatch: pytest.MonkeyPatch, segment: int) -> None:
    refused = brokers.file(2, segment)
    refuse(monkeypatch, lambda path: path == refused)
    rows = json.loads(answer((), "epochs")[1])
    assert {row["status"] for row in rows if row["broker"] == 2} <= {"agrees", "not_read"}
    assert {row["truncation_offset_by_batches"] for row in rows} == {None}


@pytest.mark.parametrize(
    ("sample", "log", "command"),
    [
        ("silent-divergence", "broker-2/ledger-0", ["compare", *evidence_commands("ledger")["compare"]]),
        ("healthy", "broker-1/__consumer_offsets-0", ["groups"]),
        ("healthy", "broker-2/orders-0", ["find", *evidence_commands("orders")["find"]]),
        ("healthy", "broker-2/orders-0", ["compare", *evidence_commands("orders")["compare"]]),
    ],
)
def test_commands_accept_a_replica_without_log_files(run: Run, tmp_path: Path, sample: str, log: str, command: list[str]) -> None:
    copy = shutil.copytree(SAMPLES / sample, tmp_path / "copy")
    for path in (copy / log).glob("*.log"):
        path.unlink()
    status, out, err = run(command[0], *sorted(copy.glob("broker-*")), *command[1:])
    only_partition = sample == "silent-divergence"  # its only partition: the copy of this broker has no log at all
    assert (status, bool(out), "bug:" in err) == (3 if only_partition else int(command[0] == "compare"), True, False)
    assert ("3 replicas: first difference" in err) == (sample == "silent-divergence")
