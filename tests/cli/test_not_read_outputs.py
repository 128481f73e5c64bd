"""What could not be read in the outputs of every command."""

import json
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.cli.every_command import reading
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
def test_the_schemas_that_are_shipped_are_schemas(command: str) -> None:
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


def test_scan_says_null_of_what_was_not_read(answer: Answer) -> None:
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


@pytest.mark.parametrize("form", ["table", "markdown"])
@pytest.mark.parametrize(
    ("unread", "said", "not_said"),
    [
        ((1, 2, 3), ("unknown", "nothing of any replica's log could be read"), ("clean", "offset 0")),
        ((2,), ("clean of what could be read",), ()),
    ],
)
def test_people_read_of_what_the_verdict_is(
    answer: Answer, form: str, unread: tuple[int, ...], said: tuple[str, ...], not_said: tuple[str, ...]
) -> None:
    status, out = answer(unread, "scan", form=form)
    told = " ".join(out.replace("\\", "").lower().split())
    assert status == 3
    assert [words for words in said if words not in told] == []
    assert told.count("its log could not be read") == len(unread)
    assert [word for word in (*LOSS_WORDS, *not_said) if word in told] == []


@pytest.mark.parametrize("unread", [(1, 2, 3), (2,)])
def test_no_command_calls_it_lost(answer: Answer, unread: tuple[int, ...]) -> None:
    for command, arguments in reading("t").items():
        status, out = answer(unread, command, *arguments)
        assert (command, status) == (command, 0 if command in ("groups", "metadata") else 3)
        assert not [word for word in ("REPLICA_LAGS", "COMMITTED_LOST") if word in out], command


@pytest.mark.parametrize("unread", [(OLD,), (NEW,), (OLD, NEW)])
def test_changes_compare_nothing_unread(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, unread: tuple[str, ...]) -> None:
    made = Snapshots(tmp_path / "snapshots")
    made.put(OLD, HEALTHY)
    made.put(NEW, HEALTHY)
    refuse(monkeypatch, lambda path: path.suffix == ".log" and any(one in path.parts for one in unread))
    status, out, _ = run("changes", tmp_path / "snapshots", "--format", "json")
    document = json.loads(out)
    assert status == 3
    validate("changes", document)
    assert {(one["kind"], one["reason"]) for one in document["changes"]} <= {("not_compared", "unreadable")}
    assert (document["summary"]["verdict"], len(document["changes"])) == ("unknown", 3)
    known = None if len(unread) == 2 else 75
    assert {one["offset_end"] for one in document["changes"]} == {known}


def test_a_plan_tells_whose_log_could_not_be_read(answer: Answer) -> None:
    document = json.loads(answer((2,), "plan")[1])
    [planned] = document["partitions"]
    assert [one["broker"] for one in planned["candidates"]] == [1, 3]
    assert {"kind": "copy_not_read", "broker": 2} in planned["missing_witnesses"]
    assert document["copies_not_read"] == [{"broker": 2, "partitions": 1}]
    unread = planned["replicas"][-1]
    assert (unread["broker"], unread["log_end_offset"], unread["read"], unread["starts"]) == (2, None, "none", None)
    assert all(one["committed"] == 0 for one in planned["candidates"])


def test_compare_shows_what_it_could_not_read(answer: Answer, brokers: Brokers) -> None:
    last = brokers.file(1, 55)
    last.write_bytes(last.read_bytes()[:100])
    document = json.loads(answer((2,), "compare")[1])
    held = {(one["broker"], one["state"]) for row in document["offsets"] for one in row["replicas"]}
    assert {state for broker, state in held if broker == 2} == {"not_read"}


def test_epochs_say_nothing_of_batches_that_were_not_read(answer: Answer) -> None:
    rows = json.loads(answer((2,), "epochs")[1])
    of_unread = [row for row in rows if row["broker"] == 2]
    assert {(row["status"], row["batches"], row["start_offset"]) for row in of_unread} == {("not_read", None, None)}
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
        ("silent-divergence", "broker-2/ledger-0", ["compare", *reading("ledger")["compare"]]),
        ("healthy", "broker-1/__consumer_offsets-0", ["groups"]),
        ("healthy", "broker-2/orders-0", ["find", *reading("orders")["find"]]),
        ("healthy", "broker-2/orders-0", ["compare", *reading("orders")["compare"]]),
    ],
)
def test_a_replica_without_any_log_is_answered(run: Run, tmp_path: Path, sample: str, log: str, command: list[str]) -> None:
    copy = shutil.copytree(SAMPLES / sample, tmp_path / "copy")
    for path in (copy / log).glob("*.log"):
        path.unlink()
    status, out, err = run(command[0], *sorted(copy.glob("broker-*")), *command[1:])
    alone = sample == "silent-divergence"  # the only partition: then the copy lacks all logs, not one replica its own
    assert (status, bool(out), "bug:" in err) == (3 if alone else int(command[0] == "compare"), True, False)
    assert ("3 replicas: first difference" in err) == (sample == "silent-divergence")
