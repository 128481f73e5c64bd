"""The `transactions` command: output in every format, filters, and exit statuses."""

import json
import re
import shutil
from functools import partial
from pathlib import Path

import pytest

from kafka_forensics.cli.commands import transactions as command
from kafka_forensics.simulation.materialise import materialise
from kafka_forensics.simulation.scenarios import play
from tests.cli.runs import Run, assert_golden, rows
from tests.gallery import transactions as histories
from tests.gallery.injections import change
from tests.support.brokers import put_brokers
from tests.support.logs import APP, APP_ID, OTHER, OTHER_ID, CoordinatorLog, DataLog, WrittenBatch, ms
from tests.support.places import SAMPLES
from tests.support.segments import segment_file

LATER = 21 * 60.0
pytestmark = pytest.mark.usefixtures("wide")


@pytest.fixture
def run(run: Run) -> Run:
    """`transactions` with these arguments: exit status, stdout, stderr."""
    return partial(run, "transactions")


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """t-0: committed, aborted, empty and hanging transactions, and traffic of others; t-1: a torn and an open one."""
    folder = tmp_path_factory.mktemp("transactions") / "copies"
    first, second, state = DataLog(), DataLog(), CoordinatorLog()
    first.data(1)
    first.data(1.01)
    first.marker(1.07, commit=True, coordinator_epoch=4)
    second.data(1)
    second.marker(1.07, commit=False, coordinator_epoch=4)
    state.transaction(1, (0, 1), commit=True)
    first.data(3)
    first.marker(3.07, commit=False, coordinator_epoch=4)
    first.marker(3.08, commit=False, coordinator_epoch=4)
    state.transaction(3, (0,), commit=False)
    first.data(5)
    first.traffic(LATER)
    second.traffic(LATER)
    state.transaction(LATER, (0, 1), commit=True, name=OTHER)
    second.data(LATER + 1, OTHER_ID)
    state.state(LATER + 1, "Ongoing", (1,), name=OTHER)
    put_brokers(folder, {"t-0": first, "t-1": second, "__transaction_state-0": state})
    return folder


def test_missing_logs_are_reported(run: Run, copies: Path, tmp_path: Path) -> None:
    message = "nothing to show: no transaction{} is in these copies"
    assert message.format(" of producer 999") in run(copies, "--producer-id", 999)[2].splitlines()
    assert message.format(" of producer 999 that is torn") in run(copies, "--producer-id", 999, "--state", "torn", "-q")[2]
    assert "nothing" not in run(copies, "--producer-id", APP_ID)[2]
    assert run(copies, "--topic", "__*", "--state", "torn")[2] == message.format("") + "\n"
    absent = "no copy of __transaction_state is among the inputs; give the log directories of every broker, whole"
    assert absent not in run(copies)[2]
    without = shutil.copytree(copies, tmp_path / "without", ignore=shutil.ignore_patterns("__transaction_state-0"))
    assert run(without)[2].splitlines()[-1] == absent
    assert absent not in run(without, "-q")[2]


def test_rows_equal_the_golden_ones(run: Run, copies: Path) -> None:
    transactions = rows(run, copies)
    assert_golden("transactions", transactions)
    assert tuple(transactions[0]) == tuple(command.COLUMNS)


@pytest.mark.parametrize(
    ("arguments", "states"),
    [
        (["--partition", 1], ["torn", "committed", "open"]),
        (["--producer-id", OTHER_ID], ["committed", "committed", "open"]),
        (["--state", "committed"], ["committed"] * 3),
        (["--state", "hanging"], ["hanging"]),
        (["--state", "open", "--partition", 0], []),
        (["--partition", 0, "--as-of", ms(60)], ["committed", "aborted", "empty", "committed", "open"]),
    ],
)
def test_options_filter_the_rows(run: Run, copies: Path, arguments: list[object], states: list[str]) -> None:
    assert [row["state"] for row in rows(run, copies, *arguments)] == states


def test_the_table_shows_what_to_do(run: Run, copies: Path) -> None:
    _, out, err = run(copies, "--format", "text", "--state", "hanging")
    header, line, *steps = out.splitlines()
    assert header.split()[:3] == ["partition", "state", "transactional"]
    assert "holds the last stable offset at 9; coordinator: CompleteAbort; partition not listed; hangs by these copies;" in line
    assert "; confirm, then abort; `" in line
    find, abort = re.findall(r"`kafka-transactions.sh --bootstrap-server HOST:PORT ([a-z-]+) --topic t --partition 0 [^`]+`", line)
    assert (find, abort) == ("find-hanging", "abort")
    assert [step.split(",")[0] for step in steps] == [
        "",
        "Steps. Do this on the running cluster for each transaction with commands above. HOST:PORT is one of its brokers.",
        "1. Run find-hanging (Kafka 3.0 or later). If it does not list the transaction",
        "2. Run abort",
        "3. Run find-hanging again: it prints only its heading",
    ]
    assert "Steps." not in run(copies, "--format", "text", "--state", "open")[1]
    assert "t-0: 2 committed, 1 aborted, 1 open (1 of them hanging); the last stable offset 9 is held by an open transaction" in err
    assert "critical: t-1 on broker 1: the coordinator decided to commit" in err
    assert run(copies, "-q")[2] == ""
    _, _, err = run(SAMPLES / "healthy", "--topic", "payments")
    assert "payments-1: 8 committed, 4 aborted, 0 open; no transaction holds back the last stable offset, 72 (log end 72)" in err


def test_exit_statuses_and_messages(run: Run, copies: Path, tmp_path: Path) -> None:
    assert run(copies)[0] == 0
    assert run(copies, "--fail-on", "critical")[0] == 1
    status, _, err = run(copies, "--state", "comitted")
    assert (status, "did you mean committed?" in err) == (2, True)
    assert run(tmp_path / "nowhere")[0] == 2
    assert run(copies, "--state", "open", "--partition", "0", "--format", "json")[:2] == (0, "[]\n")
    status, out, err = run(copies, "--topic", "none", "--format", "json")
    assert (status, out, "nothing matches --topic none" in err) == (2, "", True)


def test_an_overdue_transaction_has_its_age_and_timeout(run: Run, tmp_path: Path) -> None:
    log, state = DataLog(), CoordinatorLog()
    log.data(5)
    state.state(5, "Ongoing", (0,))
    copies = tmp_path / "known"
    put_brokers(copies, {"t-0": log, "__transaction_state-0": state})
    _, out, _ = run(copies, "--as-of", "2023-11-15T22:13:25Z", "--format", "text")
    out = " ".join(out.split())
    assert "24 h old, timeout 1 min; the coordinator should have ended it" in out
    assert "unknown whether it is safe to abort: check whether it is still open on the running cluster" in out
    [row] = rows(run, copies, "--as-of", "2023-11-15T22:13:25Z")
    assert (row["age_ms"], row["transaction_timeout_ms"], row["safe_to_abort"]) == (24 * 3_600_000, 60_000, None)
    alone = tmp_path / "alone"
    put_brokers(alone, {"t-0": log})
    _, out, _ = run(alone, "--format", "text")
    assert "unknown whether it is safe to abort: add __transaction_state of every broker" in " ".join(out.split())
    assert "do not abort" not in out


def test_a_committed_transaction_in_no_copy_is_lost(run: Run, tmp_path: Path) -> None:
    """No copy of t-1 exists."""
    paths = [*histories.without_transaction(tmp_path / "copies"), histories.controller_since(tmp_path / "controller", -100)]
    [lost] = rows(run, *paths, "--state", "lost")
    assert (lost["topic"], lost["partition"], lost["transactional_id"], lost["producer_id"]) == ("t", 1, APP, APP_ID)
    assert (lost["coordinator_state"], lost["partitions"]) == ("CompleteCommit", ["t-0", "t-1"])
    assert (lost["first_offset"], lost["marker_offset"], lost["safe_to_abort"]) == (None, None, None)
    transactions = [(row["partition"], row["state"]) for row in rows(run, *paths, "--producer-id", APP_ID)]
    assert transactions == [(0, "committed"), (1, "lost")]
    _, out, _ = run(*paths, "--state", "lost", "--format", "text")
    assert "abort" not in out


def test_a_transaction_unknown_to_coordinators_shows_since_when_it_hangs_and_how_to_abort_it(run: Run, tmp_path: Path) -> None:
    """Its timeout of a minute is over, but the rule for hanging transactions waits longer. The data log was copied first."""
    histories.put_unlisted(tmp_path)
    [row] = rows(run, tmp_path, "--as-of", ms(77), "--state", "open")
    assert (row["age_ms"], row["transaction_timeout_ms"], row["safe_to_abort"]) == (72_000, 60_000, False)
    hangs_from = "2023-11-14T22:33:25.000Z"
    assert row["reason"] == f"the coordinator does not list it: if it is still open at {hangs_from}, it hangs; check again then"
    live = (tmp_path, "--live", "--as-of", ms(1_206), "--state", "open")
    [row] = rows(run, *live)
    find = "kafka-transactions.sh --bootstrap-server HOST:PORT find-hanging --topic t --partition 0 --max-transaction-timeout 15"
    abort = "kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic t --partition 0 --start-offset 3"
    assert (row["find_hanging"], row["command"], row["safe_to_abort"]) == (find, abort, None)
    text = run(*live, "--format", "text")[1].replace("\n", " ")
    assert f"safe to abort only if find-hanging lists it; `{find}`; `{abort}`" in text


def test_both_parts_of_a_partly_lost_transaction_have_the_same_epoch_and_time(run: Run, tmp_path: Path) -> None:
    """The coordinator raised the producer's epoch for the markers (transaction version 2)."""
    history = play("txn-partly-lost", "kip-320")
    materialise(history.cluster, tmp_path, history.coordinator)
    by_state = {(row["topic"], row["state"]): row for row in rows(run, tmp_path) if row["producer_epoch"] == 1}
    kept, lost = by_state["orders", "committed"], by_state["payments", "lost"]
    for column in ("producer_id", "producer_epoch", "marker_epoch", "decided_timestamp_ms", "partitions"):
        assert kept[column] == lost[column] is not None
    assert (lost["marker_epoch"], lost["decided_timestamp"]) == (2, "2023-11-14T22:13:58.000Z")
    assert (kept["marker_timestamp"], lost["marker_timestamp"]) == ("2023-11-14T22:13:58.000Z", None)


# Damaged logs: unknown transactions, and those that a producer snapshot still shows.


def logs_with_open_transaction() -> tuple[DataLog, CoordinatorLog, WrittenBatch]:
    """(log, coordinator's log, batch of an open transaction): APP is open with [0, 2), OTHER ended [2, 5)."""
    log, state = DataLog(), CoordinatorLog()
    opened = log.data(1)
    log.traffic(2)
    state.state(1, "Ongoing", (0,))
    return log, state, opened


def put_damaged(folder: Path, log: DataLog, state: CoordinatorLog, damaged: WrittenBatch, at: int = 90) -> Path:
    """Write three copies in which the same batch is damaged."""
    put_brokers(folder, {"t-0": log, "__transaction_state-0": state})
    for path in folder.glob(f"*/t-0/{segment_file(damaged.segment)}"):
        change(path, damaged.position + at)
    return folder


def rows_and_messages(run: Run, copies: Path, *arguments: object) -> tuple[list[tuple[object, ...]], str]:
    """(state, producer and offsets of every row, standard error)."""
    status, out, err = run(copies, "--format", "json", *arguments)
    assert status == 0
    return [tuple(row[name] for name in ("state", "producer_id", "first_offset", "last_offset")) for row in json.loads(out)], err


def test_a_snapshot_shows_an_open_transaction_with_a_damaged_batch(run: Run, tmp_path: Path) -> None:
    log, state, opened = logs_with_open_transaction()
    copies = put_damaged(tmp_path, log, state, opened)
    ended, damaged = ("committed", OTHER_ID, 2, 3), ("damaged", None, 0, 1)
    transactions, err = rows_and_messages(run, copies)
    assert transactions == [ended, ("open", APP_ID, 0, 1), damaged]
    opened_row = rows(run, copies)[1]
    assert (opened_row["holds_last_stable_offset"], opened_row["last_stable_offset"]) == (True, 0)
    assert opened_row["coordinator_state"] == "Ongoing"
    assert "known from a producer snapshot" in opened_row["reason"]
    assert "1 committed, 0 aborted, 1 open; the last stable offset 0 is held by an open transaction, as in a snapshot" in err
    assert rows_and_messages(run, copies, "--state", "damaged")[0] == [damaged]
    for path in copies.glob("*/t-0/*.snapshot"):
        path.unlink()
    transactions, err = rows_and_messages(run, copies)
    assert transactions == [ended, damaged]
    assert "last stable offset may be as low as this" in rows(run, copies)[1]["reason"]
    assert (
        f"t-0: 1 committed, 0 aborted, 0 open; {len(opened.data)} bytes of the log (offsets 0 to 1) are damaged; transactions in"
        " them are not shown, and the last stable offset is unknown beyond 0 (log end 5)"
    ) in err
    assert "no transaction holds back" not in err


def test_a_marker_outweighs_an_earlier_snapshot(run: Run, tmp_path: Path) -> None:
    """In the snapshot at the start of the segment APP's transaction is open; its data are damaged, and its marker follows."""
    log, state = DataLog(), CoordinatorLog()
    opened = log.data(1)
    log.traffic(2)
    log.roll()
    log.marker(3, commit=True)
    state.transaction(1, (0,), commit=True)
    copies = put_damaged(tmp_path, log, state, opened)
    for path in copies.glob(f"*/t-0/{segment_file(log.next_offset, 'snapshot')}"):
        path.unlink()
    transactions, err = rows_and_messages(run, copies)
    assert [row[0] for row in transactions] == ["committed", "empty", "damaged"]
    assert "0 open" in err


def test_a_damaged_marker_makes_the_end_of_a_transaction_uncertain(run: Run, tmp_path: Path) -> None:
    log, state = DataLog(), CoordinatorLog()
    log.data(1)
    marker = log.marker(2, commit=True)
    log.traffic(3)
    state.transaction(1, (0,), commit=True)
    _, err = rows_and_messages(run, put_damaged(tmp_path, log, state, marker, at=65))
    assert "is held by an open transaction, unless that ended in them or an earlier one began there; " in err
    assert "(offset 2) are damaged" in err


def test_an_undamaged_copy_or_a_torn_tail_shows_no_damage(run: Run, tmp_path: Path) -> None:
    log, state, opened = logs_with_open_transaction()
    put_brokers(tmp_path, {"t-0": log, "__transaction_state-0": state})
    change(tmp_path / "b1" / "t-0" / segment_file(0), opened.position + 90)
    transactions, err = rows_and_messages(run, tmp_path)
    assert ("damaged" in {row[0] for row in transactions}, "damaged" in err) == (False, False)
    for path in tmp_path.glob(f"*/t-0/{segment_file(0)}"):
        path.write_bytes(b"".join(batch.data for batch in log.batches) + opened.data[:40])
    transactions, err = rows_and_messages(run, tmp_path)
    assert "damaged" not in {row[0] for row in transactions}
    assert "the last stable offset 0 is held by an open transaction (log end 5)" in err
