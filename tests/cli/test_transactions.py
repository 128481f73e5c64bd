"""What `transactions` prints in every format, which rows it leaves out, and how it ends."""

import json
from collections import Counter
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from kafka_forensics.analysis.transactions import pairing
from kafka_forensics.cli.commands import transactions as command
from kafka_forensics.cli.main import outcome
from kafka_forensics.model.coordinators import Decision, TransactionLog
from kafka_forensics.questions import transactions as transactions_listing
from kafka_forensics.questions.transactions import TransactionRow
from tests.support import transaction_logs
from tests.support.plan_runs import Run
from tests.support.transaction_logs import APP, APP_ID, OTHER, OTHER_ID, CoordinatorLog, DataLog, ms, write_cluster

FORMATS = ("table", "tsv", "json", "jsonl", "markdown")
LATER = 21 * 60.0
EVIL = "app\x1b]0;own\x07\n\u202e"
pytestmark = pytest.mark.usefixtures("wide")


@pytest.fixture
def run(run: Run) -> Run:
    """`transactions` with these arguments: exit status, stdout, stderr."""
    return partial(run, "transactions")


def made(folder: Path, name: str = APP) -> Path:
    """t-0: committed, aborted, empty, hanging, and others' traffic; t-1: torn, and open."""
    first, second, state = DataLog(), DataLog(), CoordinatorLog()
    first.data(1)
    first.data(1.01)
    first.marker(1.07, commit=True, coordinator_epoch=4)
    second.data(1)
    second.marker(1.07, commit=False, coordinator_epoch=4)
    state.transaction(1, (0, 1), commit=True, name=name)
    first.data(3)
    first.marker(3.07, commit=False, coordinator_epoch=4)
    first.marker(3.08, commit=False, coordinator_epoch=4)
    state.transaction(3, (0,), commit=False, name=name)
    first.data(5)
    first.traffic(LATER)
    second.traffic(LATER)
    state.transaction(LATER, (0, 1), commit=True, name=OTHER)
    second.data(LATER + 1, OTHER_ID)
    state.state(LATER + 1, "Ongoing", (1,), name=OTHER)
    write_cluster(folder, {"t-0": first, "t-1": second, "__transaction_state-0": state})
    return folder


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    return made(tmp_path / "copies")


def rows(run: Run, *arguments: object) -> list[dict[str, Any]]:
    _, out, _ = run(*arguments, "--format", "json")
    found: list[dict[str, Any]] = json.loads(out)
    return found


def test_nothing_found_is_said_with_what_was_asked_for(run: Run, copies: Path) -> None:
    nothing = "nothing to show: no transaction{} is in these copies"
    assert nothing.format(" of producer 999") in run(copies, "--producer-id", 999)[2].splitlines()
    assert nothing.format(" of producer 999 that is torn") in run(copies, "--producer-id", 999, "--state", "torn", "-q")[2]
    assert "nothing" not in run(copies, "--producer-id", APP_ID)[2]
    assert run(copies, "--topic", "__*", "--state", "torn")[2] == nothing.format("") + "\n"


def test_a_coordinators_log_that_is_not_there_is_told(run: Run, copies: Path) -> None:
    absent = "no copy of __transaction_state is among the inputs; give the log directories of every broker, whole"
    assert absent not in run(copies)[2]
    for path in copies.glob("*/__transaction_state-0"):
        path.rename(copies.parent / f"{path.parent.name}-state")
    assert run(copies)[2].splitlines()[-1] == absent
    assert absent not in run(copies, "-q")[2]


def test_every_transaction_is_a_row(run: Run, copies: Path) -> None:
    found = rows(run, copies)
    told = [(row["partition"], row["state"], row["transactional_id"], row["first_offset"], row["marker_offset"]) for row in found]
    assert told == [
        (0, "committed", APP, 0, 4),
        (0, "aborted", APP, 5, 7),
        (0, "empty", APP, None, 8),
        (0, "committed", OTHER, 11, 13),
        (0, "hanging", APP, 9, None),
        (1, "torn", APP, 0, 2),
        (1, "committed", OTHER, 3, 5),
        (1, "open", OTHER, 6, None),
    ]


def test_every_number_of_an_ended_transaction(run: Run, copies: Path) -> None:
    one = rows(run, copies)[0]
    expected = {
        "topic": "t",
        "producer_id": APP_ID,
        "producer_id_string": str(APP_ID),
        "producer_epoch": 0,
        "last_offset": 3,
        "first_timestamp_ms": ms(1) - 2,
        "first_timestamp": "2023-11-14T22:13:20.998Z",
        "last_timestamp_ms": ms(1.01),
        "batches": 2,
        "records": 4,
        "marker": "COMMIT",
        "marker_timestamp_ms": ms(1.07),
        "marker_epoch": 0,
        "coordinator_epoch": 4,
        "coordinator_state": "CompleteCommit",
        "partitions": ["t-0", "t-1"],
        "holds_last_stable_offset": False,
        "safe_to_abort": None,
        "command": None,
    }
    assert {name: one[name] for name in expected} == expected
    assert tuple(one) == tuple(command.COLUMNS)


def test_what_holds_the_last_stable_offset_and_whether_it_may_be_ended(run: Run, copies: Path) -> None:
    hanging, opened = (row for row in rows(run, copies) if row["holds_last_stable_offset"])
    assert (hanging["last_stable_offset"], hanging["safe_to_abort"], hanging["reason"]) == (9, True, "partition_not_listed")
    assert hanging["command"].endswith(" abort --topic t --partition 0 --start-offset 9")
    assert (opened["last_stable_offset"], opened["safe_to_abort"], opened["command"]) == (6, False, None)
    assert (opened["coordinator_state"], opened["reason"]) == ("Ongoing", "the coordinator will end it")


@pytest.mark.parametrize(
    ("arguments", "states"),
    [
        (["--partition", 1], ["torn", "committed", "open"]),
        (["--producer-id", OTHER_ID], ["committed", "committed", "open"]),
        (["--state", "committed"], ["committed"] * 3),
        (["--state", "hanging"], ["hanging"]),
        (["--state", "open", "--partition", 0], []),
    ],
)
def test_filters(run: Run, copies: Path, arguments: list[object], states: list[str]) -> None:
    assert [row["state"] for row in rows(run, copies, *arguments)] == states


@pytest.mark.parametrize("name", FORMATS)
def test_formats_hold_every_row_and_nothing_raw(run: Run, tmp_path: Path, name: str) -> None:
    copies = made(tmp_path / "copies", EVIL)
    status, out, err = run(copies, "--format", name)
    assert status == 0
    assert not [each for each in out + err if not each.isprintable() and each not in "\n\t"]
    assert "own" in out
    heads = {"table": 1, "tsv": 1, "json": 0, "jsonl": 0, "markdown": 2}[name]
    assert len(out.splitlines()) == 8 + heads
    if name == "jsonl":
        assert Counter(json.loads(line)["state"] for line in out.splitlines())["committed"] == 3


def test_the_table_tells_what_to_do(run: Run, copies: Path) -> None:
    _, out, err = run(copies, "--format", "table", "--state", "hanging")
    head, line = out.splitlines()
    assert head.split()[:3] == ["partition", "state", "transactional"]
    assert "holds the last stable offset at 9; coordinator: CompleteAbort; partition not listed; safe to abort; kafka-tran" in line
    assert "t-0: 2 committed, 1 aborted, 1 open (1 of them hanging); the last stable offset 9 is held by an open transaction" in err
    assert "critical: t-1 on broker 1: the coordinator decided to commit" in err
    _, _, quiet = run(copies, "-q")
    assert quiet == ""


def test_exit_codes(run: Run, copies: Path, tmp_path: Path) -> None:
    assert run(copies)[0] == 0
    assert run(copies, "--fail-on", "critical")[0] == 1
    status, _, err = run(copies, "--state", "comitted")
    assert (status, "did you mean committed?" in err) == (2, True)
    assert run(tmp_path / "nowhere")[0] == 2
    status, out, err = run(copies, "--state", "open", "--partition", "0", "--format", "json")
    assert (status, out) == (0, "[]\n")
    status, out, err = run(copies, "--topic", "none", "--format", "json")
    assert (status, out, "nothing fits --topic none" in err) == (2, "", True)


def test_as_of_decides_what_is_overdue(run: Run, copies: Path) -> None:
    told = rows(run, copies, "--as-of", ms(60), "--partition", 0)
    assert [row["state"] for row in told if row["first_offset"] == 9] == ["open"]


def test_states_are_those_of_the_listing() -> None:
    assert command.STATES == transactions_listing.STATES


def test_transactions_of_real_brokers(run: Run, archives: Path) -> None:
    found = rows(run, archives / "kafka-4.3.0-healthy.tar.xz")
    states = Counter((row["topic"], row["state"]) for row in found)
    assert states == {
        ("payments", "committed"): 23,
        ("payments", "aborted"): 17,
        ("ledger", "committed"): 5,
        ("ledger", "aborted"): 5,
        ("ledger", "open"): 1,
    }
    assert {row["transactional_id"] for row in found if row["topic"] == "payments"} == {f"pay-{number}" for number in range(4)}
    assert {row["coordinator_state"] for row in found} == {"CompleteCommit", "CompleteAbort", "Ongoing"}
    [opened] = [row for row in found if row["state"] == "open"]
    expected = {"transactional_id": "hung", "producer_id": 2002, "holds_last_stable_offset": True, "last_stable_offset": 0}
    assert {name: opened[name] for name in expected} == expected
    assert (opened["first_offset"], opened["last_offset"], opened["safe_to_abort"]) == (0, 4, False)


def test_an_overdue_transaction_is_told_with_its_age_and_its_timeout(run: Run, tmp_path: Path) -> None:
    log, state = DataLog(), CoordinatorLog()
    log.data(5)
    state.state(5, "Ongoing", (0,))
    copies = tmp_path / "known"
    write_cluster(copies, {"t-0": log, "__transaction_state-0": state})
    _, out, _ = run(copies, "--as-of", "2023-11-15T22:13:25Z", "--format", "table")
    out = " ".join(out.split())
    assert "24 h old, timeout 1 min; the coordinator should have ended it" in out
    assert "cannot tell whether it is safe to abort: see whether it is still open on the running cluster" in out
    [row] = rows(run, copies, "--as-of", "2023-11-15T22:13:25Z")
    assert (row["age_ms"], row["transaction_timeout_ms"], row["safe_to_abort"]) == (24 * 3_600_000, 60_000, None)
    alone = tmp_path / "alone"
    write_cluster(alone, {"t-0": log})
    _, out, _ = run(alone, "--format", "table")
    assert "cannot tell whether it is safe to abort: add __transaction_state of every broker" in " ".join(out.split())
    assert "do not abort" not in out


def test_of_very_many_open_ones_those_are_told_that_hold_readers_back(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairing, "MAX_OPEN", 2)
    log = DataLog()
    for number in range(5):
        log.data(number, 3000 + number)
    rows = json.loads(run(*write_cluster(tmp_path, {"t-0": log}), "--format", "json")[1])
    assert [(row["producer_id"], row["state"], row["holds_last_stable_offset"]) for row in rows] == [
        (3000, "open", True),
        (3001, "open", False),
    ]


def test_markers_of_very_many_decisions_are_matched_each_at_once() -> None:
    def decided(number: int) -> Decision:
        return Decision(APP, APP_ID, 0, number % 3 > 0, (("t", 0),), 1000 * number, 1000 * number, 1000 * number + 50, 0, number)

    decisions = [decided(number) for number in range(10_000)]
    known = transactions_listing.KnownTransactions(TransactionLog(decisions=decisions), [])
    start = perf_counter()
    for decision in decisions:
        row = TransactionRow(
            "t", 0, 1, "", APP_ID, 0, marker="COMMIT" if decision.commit else "ABORT", marker_timestamp=decision.offset * 1000 + 20
        )
        assert known.ended(row).transactional_id == APP
    assert perf_counter() - start < 3


def test_a_committed_transaction_that_is_in_no_copy_has_a_row(run: Run, tmp_path: Path) -> None:
    """Of t-1 nothing at all is left."""
    paths = [
        *transaction_logs.without_transaction(tmp_path / "copies"),
        transaction_logs.controller_since(tmp_path / "controller", -100),
    ]
    [lost] = rows(run, *paths, "--state", "lost")
    assert (lost["topic"], lost["partition"], lost["transactional_id"], lost["producer_id"]) == ("t", 1, APP, APP_ID)
    assert (lost["coordinator_state"], lost["partitions"]) == ("CompleteCommit", ["t-0", "t-1"])
    assert (lost["first_offset"], lost["marker_offset"], lost["safe_to_abort"]) == (None, None, None)
    told = [(row["partition"], row["state"]) for row in rows(run, *paths, "--producer-id", APP_ID)]
    assert told == [(0, "committed"), (1, "lost")]
    _, out, _ = run(*paths, "--state", "lost", "--format", "table")
    assert "abort" not in out


def test_of_one_that_no_coordinator_lists_it_is_said_how_old_it_must_be_to_hang(run: Run, tmp_path: Path) -> None:
    """Its timeout of a minute is over, and the rule waits for more."""
    log, state = DataLog(), CoordinatorLog()
    log.data(1)
    log.marker(1.07, commit=False)
    state.transaction(1, (0,), commit=False)
    log.data(5)
    write_cluster(tmp_path, {"t-0": log, "__transaction_state-0": state})
    [row] = rows(run, tmp_path, "--as-of", ms(77), "--state", "open")
    assert (row["age_ms"], row["transaction_timeout_ms"], row["safe_to_abort"]) == (72_000, 60_000, False)
    assert row["reason"] == "the coordinator does not list it, and it is called hanging only once older than 20 min"


def test_where_nothing_is_open_no_transaction_holds_readers_back(run: Run) -> None:
    _, _, err = run(Path(__file__).resolve().parents[2] / "sample_logs/healthy", "--topic", "payments")
    assert "payments-1: 8 committed, 4 aborted, 0 open; no transaction holds back the last stable offset, 72 (log end 72)" in err


def test_both_halves_of_a_lost_transaction_have_one_epoch_and_one_time(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The coordinator raised the producer's epoch for the markers (transaction version 2)."""
    assert outcome(["simulate", "run", "txn-partly-lost", "--output", str(tmp_path / "played"), "-q"]) == 0
    capsys.readouterr()
    shown = {(row["topic"], row["state"]): row for row in rows(run, tmp_path / "played" / "log-dirs") if row["producer_epoch"] == 1}
    kept, lost = shown["orders", "committed"], shown["payments", "lost"]
    for column in ("producer_id", "producer_epoch", "marker_epoch", "decided_timestamp_ms", "partitions"):
        assert kept[column] == lost[column] is not None
    assert (lost["marker_epoch"], lost["decided_timestamp"]) == (2, "2023-11-14T22:13:58.000Z")
    assert (kept["marker_timestamp"], lost["marker_timestamp"]) == ("2023-11-14T22:13:58.000Z", None)
