"""Committed records that no copy holds: the plan names them and sets group offsets, and `verify` counts no broken promise."""

import json
from functools import partial
from pathlib import Path

import pytest

from tests.cli.runs import Run
from tests.support.brokers import put_consumer_offsets, put_replica
from tests.support.groups import commit_key, commit_value, coordinator_batches
from tests.support.segments import BASE_TIMESTAMP, batch


def put_copies(folder: Path, *commits: tuple[str, str, int], end: int = 10, epoch: int = 0, later_ms: int = 0) -> Path:
    """Two equal brokers with logs that end there, and groups that committed (group, topic, offset)."""
    value = partial(commit_value, timestamp=BASE_TIMESTAMP + later_ms)
    records = coordinator_batches(*((commit_key(group, topic), value(offset)) for group, topic, offset in commits))
    for broker in (1, 2):
        for topic in sorted({topic for _, topic, _ in commits}):
            log = batch(0, 10) + (batch(10, end - 10, epoch=epoch) if end > 10 else b"")
            log_dir = put_replica(folder, broker, log, partition=f"{topic}-0", high_watermark=10, clean=True)
        put_consumer_offsets(log_dir, records)
    return folder


@pytest.fixture
def text_of(run: Run, monkeypatch: pytest.MonkeyPatch) -> "partial[str]":
    monkeypatch.setenv("COLUMNS", "200")
    return partial(_text_of, run)


def _text_of(run: Run, *arguments: object) -> str:
    return " ".join(run(*arguments)[1].split())


def test_a_plan_sets_offsets_that_lie_beyond_the_log_end(text_of: "partial[str]", tmp_path: Path) -> None:
    copies = put_copies(tmp_path, ("billing", "orders", 15), ("audit", "orders", 9))
    text = text_of("plan", copies)
    assert "Committed offsets of orders-0 are in no given copy. Look for more copies" in text
    command = "kafka-consumer-groups.sh --bootstrap-server HOST:PORT --group billing --reset-offsets --execute"
    assert f"{command} --topic orders:0 --to-offset 10" in text
    assert "--group audit" not in text


def test_offsets_of_several_partitions_are_set_by_a_file(text_of: "partial[str]", tmp_path: Path) -> None:
    copies, files = put_copies(tmp_path / "copies", ("billing", "orders", 15), ("billing", "sales", 12)), tmp_path / "files"
    assert f"{files}/offsets.csv" in text_of("plan", copies, "--files", files)
    assert (files / "offsets.csv").read_text() == "orders,0,10\nsales,0,10\n"


@pytest.mark.parametrize(("groups", "options"), [(2, "--group g,0 --group g,1"), (4, "--all-groups")])
def test_offsets_of_several_groups_are_set_by_one_command(
    groups: int, options: str, text_of: "partial[str]", tmp_path: Path
) -> None:
    commits = [(f"g,{number}", "orders", 15) for number in range(groups)]
    copies, files = put_copies(tmp_path / "copies", *commits), tmp_path / "files"
    text = text_of("plan", copies, "--files", files).replace("\\ ", "")
    assert f"With {groups} groups stopped, set {groups} offsets to what they read of the elected logs:" in text
    assert f"{options} --reset-offsets --execute --from-file {files}/offsets.csv" in text
    assert (files / "offsets.csv").read_text() == "".join(f'"g,{number}",orders,0,10\n' for number in range(groups))


def test_a_group_that_was_set_back_is_a_warning_without_steps(run: Run, text_of: "partial[str]", tmp_path: Path) -> None:
    copies = put_copies(tmp_path, ("billing", "orders", 15), ("billing", "orders", 10))
    (found,) = [row for row in json.loads(run("scan", copies, "--format", "json")[1])["findings"] if row["severity"] != "info"]
    assert (found["kind"], found["severity"]) == ("GROUP_OFFSET_BEYOND_LOG", "warning")
    assert "the group went back to offset 10 at 20" in found["message"]
    assert "--reset-offsets" not in text_of("plan", copies)


def test_one_group_that_was_not_set_back_is_enough(run: Run, tmp_path: Path) -> None:
    commits = [("billing", "orders", 15), ("billing", "orders", 10), ("audit", "orders", 12)]
    findings = json.loads(run("scan", put_copies(tmp_path, *commits), "--format", "json")[1])["findings"]
    assert [row["severity"] for row in findings if row["kind"] == "GROUP_OFFSET_BEYOND_LOG"] == ["critical"]


def test_records_lost_again_are_a_new_loss(run: Run, tmp_path: Path) -> None:
    """The group was reset, read new records up to the same offset, and these are lost, too."""
    plan, after = tmp_path / "plan.json", tmp_path / "after"
    run("plan", put_copies(tmp_path / "before", ("billing", "orders", 15)), "--output", plan)
    put_copies(after, ("billing", "orders", 15), later_ms=1)
    promises = run("verify", after, "--against", plan, "--elected", "1", "--format", "jsonl")[1].splitlines()
    assert [row["reason"] for row in map(json.loads, promises) if row["promise"] == "intact"] == ["found"]


@pytest.mark.parametrize(("committed", "reason"), [(15, "offset_not_set"), (10, "nothing_found"), (16, "found")])
def test_a_known_loss_breaks_no_promise_once_the_offset_is_set(
    committed: int, reason: str, run: Run, text_of: "partial[str]", tmp_path: Path
) -> None:
    plan, after = tmp_path / "plan.json", put_copies(tmp_path / "after", ("billing", "orders", committed))
    run("plan", put_copies(tmp_path / "before", ("billing", "orders", 15)), "--output", plan)
    arguments = ("verify", after, "--against", plan, "--elected", "1")
    promises = [json.loads(line) for line in run(*arguments, "--format", "jsonl")[1].splitlines()]
    assert [promise["reason"] for promise in promises if promise["promise"] == "intact"] == [reason]
    assert "lost no copy held 5 offsets of orders-0 when the copies were made" in text_of(*arguments)


def test_new_records_at_lost_offsets_leave_nothing_to_report(run: Run, tmp_path: Path) -> None:
    plan, after = tmp_path / "plan.json", put_copies(tmp_path / "after", ("billing", "orders", 15), end=20, epoch=3)
    run("plan", put_copies(tmp_path / "before", ("billing", "orders", 15)), "--output", plan)
    promises = run("verify", after, "--against", plan, "--elected", "1", "--format", "jsonl")[1].splitlines()
    assert [row["reason"] for row in map(json.loads, promises) if row["promise"] == "intact"] == ["nothing_found"]
