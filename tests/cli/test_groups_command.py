"""The `groups` command: output in every format, filters, and exit statuses."""

from functools import partial
from pathlib import Path

import pytest

from kafka_forensics.model.safe_text import unquoted
from tests.cli.runs import Run, assert_golden, rows
from tests.support.brokers import put_consumer_offsets, put_replica, put_share_state, write_checkpoint
from tests.support.controllers import CONTROLLER, ControllerLog, partition, topic
from tests.support.groups import (
    TOPIC_ID_TEXT,
    commit_key,
    commit_value,
    coordinator_batches,
    group_key,
    group_value,
    member,
    new_group_value,
    share_key,
    share_value,
    transaction_batches,
)
from tests.support.results import HOSTILE_TEXT
from tests.support.segments import log

EVIL_TEXT = HOSTILE_TEXT.encode("utf-8", "replace").decode()
pytestmark = pytest.mark.usefixtures("wide")


@pytest.fixture
def run(run: Run) -> Run:
    """`groups` with these arguments: exit status, stdout, stderr."""
    return partial(run, "groups")


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    """Two brokers with ten records of orders-0: one group lags, one is beyond the log end, one commit is pending."""
    folder = tmp_path / "copies"
    records = coordinator_batches(
        (group_key("billing"), group_value(member())),
        (commit_key("billing", "orders"), commit_value(7, metadata="secret-metadata", leader_epoch=3)),
        (commit_key(EVIL_TEXT, "orders"), commit_value(15)),
        (commit_key("billing", EVIL_TEXT, 2), commit_value(1)),
        (group_key("idle"), group_value()),
        (commit_key("billing", "orders"), b"\0\x63"),
    )
    records += transaction_batches((commit_key("streams", "orders"), commit_value(9)), start=6, producer_id=77)
    for broker in (1, 2):
        put_consumer_offsets(put_replica(folder, broker, log(5), high_watermark=10), records)
    return folder


@pytest.mark.parametrize(("name", "tree"), [("groups", "copies"), ("share and streams groups", "shared")])
def test_rows_equal_the_golden_ones(run: Run, request: pytest.FixtureRequest, name: str, tree: str) -> None:
    assert_golden(name, rows(run, request.getfixturevalue(tree)))


def test_metadata_is_shown_only_on_request(run: Run, copies: Path) -> None:
    for options, has_metadata in ((("-v",), False), (("--show-payloads",), True)):
        for format_name in ("text", "json"):
            status, out, err = run(copies, "--format", format_name, *options)
            assert (status, "secret-metadata" in out, "secret-metadata" in err) == (0, has_metadata, False)


def test_the_table_has_notes(run: Run, copies: Path) -> None:
    _, out, err = run(copies, "--format", "text", "--topic", "orders")
    assert "BEYOND EVERY LOG by 5" in out
    assert "pending: transaction of producer 77 has no marker" in out
    assert "unknown after offset 4 of __consumer_offsets-0" in out
    assert "readable" in out
    assert "critical: orders-0: group " in err
    assert "3 groups, 2 committed offsets, 1 beyond every log's end" in err


@pytest.mark.parametrize(
    ("tree", "arguments", "groups"),
    [
        ("copies", ["--group", "bill*"], ["billing", "billing"]),
        ("copies", ["--topic", "ord*", "--group", "billing"], ["billing"]),
        ("copies", ["--partition", "2"], ["billing"]),
        ("copies", ["--group", "nobody"], []),
        ("shared", ["--topic", "orders"], ["totals", "workers"]),
        ("shared", ["--group", "w*"], ["workers"]),
        ("shared", ["--partition", "7"], [EVIL_TEXT]),
        ("shared", ["--topic", "AAAA*"], [EVIL_TEXT]),
    ],
)
def test_options_filter_the_rows(
    run: Run, request: pytest.FixtureRequest, tree: str, arguments: list[str], groups: list[str]
) -> None:
    assert [row["group"] for row in rows(run, request.getfixturevalue(tree), *arguments)] == groups


def test_partitions_without_groups_are_shown_on_request(run: Run, copies: Path) -> None:
    put_replica(copies / "more", 3, log(2), partition="quiet-0")
    put_replica(copies / "more", 4, log(4), partition="quiet-0")
    without_group = [row for row in rows(run, copies / "more", copies, "--all-partitions") if row["group"] is None]
    held_back = {(row["topic"], row["held_back_by"]) for row in without_group}
    assert held_back == {("__consumer_offsets", "last_stable_offset"), ("quiet", "unknown")}
    _, out, err = run(copies / "more", "--all-partitions", "--format", "text")
    assert "no copy of __consumer_offsets is among the inputs; give the log directories of every broker, whole\n" in err
    assert "held at 4 if broker 3 is in the ISR" in out
    assert "(no group)" in run(copies / "more", copies, "--all-partitions", "--format", "text")[1]
    assert "(no group)" not in run(copies / "more", copies, "--format", "text")[1]


def test_exit_statuses_and_messages(run: Run, copies: Path, tmp_path: Path) -> None:
    assert run(copies, "-q")[0] == 0
    assert run(copies, "-q", "--fail-on", "critical")[0] == 1
    assert run(tmp_path / "missing")[0] == 2
    status, _, err = run(copies, "--group", "nobody", "-q")
    assert status == 0
    assert err.splitlines() == [
        f"nothing to show: no group matches --group nobody; there is {unquoted(EVIL_TEXT)}, billing, idle, streams",
        "--all-partitions shows what holds back the readers of partitions without commits",
    ]
    assert "--all-partitions" not in run(copies, "--group", "nobody", "-q", "--all-partitions")[2]
    _, _, err = run(copies, "--group", "idle", "--topic", "orders", "-q")
    message = "nothing to show: no matching group committed an offset on the matching partitions"
    assert err.splitlines()[0] == message


def test_a_commit_below_the_log_start_is_out_of_range(run: Run, tmp_path: Path) -> None:
    """The note counts deleted unread records and remaining ones; commits at the log start and pending commits have no such note."""
    records = coordinator_batches(
        (commit_key("late", "orders"), commit_value(1)), (commit_key("in time", "orders"), commit_value(4))
    )
    records += transaction_batches((commit_key("streams", "orders"), commit_value(2)), start=2, producer_id=77)
    log_dir = put_replica(tmp_path, 1, log(5), high_watermark=10)
    write_checkpoint(log_dir, "log-start", 4, "orders-0")
    put_consumer_offsets(log_dir, records)
    lags = {(row["group"], row["lag"], row["readable"], row["deleted_unread"]) for row in rows(run, tmp_path)}
    assert lags == {("late", 9, 6, 3), ("in time", 6, 6, 0), ("streams", 8, 6, 2)}
    _, table, _ = run(tmp_path, "--format", "text")
    [line] = [line for line in table.splitlines() if "OUT OF RANGE" in line]
    assert line.startswith("late")
    assert line.endswith("OUT OF RANGE: 3 offsets deleted unread, 6 are left to read; auto.offset.reset decides")


def test_a_column_names_isr_members_without_a_log(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "copies"
    for broker in (1, 2):
        records = coordinator_batches((commit_key("g", "orders"), commit_value(7)))
        put_consumer_offsets(put_replica(folder, broker, log(5), high_watermark=8), records)
    ControllerLog().lead([CONTROLLER]).append(topic("orders")).append(partition([1, 2, 3], 1)).put(folder / f"c{CONTROLLER}")
    [row] = rows(run, folder)
    _, table, _ = run(folder, "--format", "text")
    assert row["missing_isr_members"] == [3]
    assert "no log of broker 3, a member of the ISR" in table


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """One broker with ten records of orders-0: a share group on them, one on a topic without a name, and a streams group."""
    log_dir = put_replica(tmp_path, 1, log(5), high_watermark=10)
    initialized_topic = {"topic_id": TOPIC_ID_TEXT, "topic_name": "orders", "partitions": [0]}
    records = coordinator_batches(
        (group_key("workers", 11), new_group_value(11, epoch=5)),
        (group_key("workers", 15), new_group_value(15, initialized_topics=[initialized_topic])),
        (group_key("totals", 17), new_group_value(17, epoch=3)),
        (group_key("totals", 19, "m"), new_group_value(19)),
        (group_key("totals", 20), new_group_value(20, assignment_epoch=2)),
        (group_key("totals", 23), new_group_value(23, epoch=1)),
        (commit_key("totals", "orders"), commit_value(6)),
    )
    put_consumer_offsets(log_dir, records)
    states = coordinator_batches(
        (share_key(), share_value(4, (4, 5, 2, 1), (6, 6, 0, 2), (7, 7, 4, 5), (8, 8, 9, 1), delivery_complete_count=3)),
        (share_key(EVIL_TEXT, "A" * 22, 7), share_value(-1)),
        (share_key(), b"\0\0"),
    )
    put_share_state(log_dir, states)
    return log_dir
