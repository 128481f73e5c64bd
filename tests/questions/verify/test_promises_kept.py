"""Promises of a plan held against copies: each is kept by what a real start makes of the copies, and broken by what is not that."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.cli.main import outcome
from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.verify import Asked, Outcome, Verified, read_lost_records, read_promises, verify
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from lab.fault_base import read_log
from tests.support.bundles import bundle_of
from tests.support.plan_runs import put_audit

LISTED_ONE = '{"schema_version": "1.1", "partitions_planned": 1, "partitions": [1]}'
LOG = "audit-0/00000000000000000000.log"


@pytest.fixture(name="plan")
def plan_of_the_sample(tmp_path: Path) -> Path:
    """What is planned on the sample: broker 2 leads, brokers 1 and 3 cut at 300."""
    copies, file = put_audit(tmp_path / "before"), tmp_path / "plan.json"
    assert outcome(["plan", str(copies), "--topic", "audit", "--output", str(file), "--quiet"]) == 0
    return file


def mended(folder: Path) -> Path:
    """The copies as they would be once broker 2 leads: the others have its log."""
    copies = put_audit(folder)
    for broker in (1, 3):
        shutil.rmtree(copies / f"broker-{broker}" / "audit-0")
        shutil.copytree(copies / "broker-2" / "audit-0", copies / f"broker-{broker}" / "audit-0")
    return copies


def of_earlier_plan(plan: Path, **changes: Any) -> Path:
    """The plan as if it had been made while the partition was in another leader epoch."""
    document = json.loads(plan.read_text())
    document["partitions"][0]["controller"] |= changes
    plan.write_text(json.dumps(document))
    return plan


def said(copies: Path, plan: Path, elected: str | None = None) -> dict[tuple[str, int | str], Verified]:
    checked = verify([str(copies)], read_promises(str(plan)), ScanOptions(), Asked(elected))
    return {(promise.promise, promise.broker): promise for promise in checked.promises}


def reasons(copies: Path, plan: Path, elected: str | None = None) -> dict[tuple[str, int | str], str]:
    return {key: promise.reason for key, promise in said(copies, plan, elected).items()}


AS_PLANNED = {
    ("leader", 2): "not_elected",
    ("start", 2): "as_planned",
    ("end", 2): "as_planned",
    ("cut", 1): "follows",
    ("cut", 3): "follows",
    ("intact", 2): "nothing_found",
}
"""The controller's log of the sample ends before anybody made broker 2 the leader."""


LOST_END = {
    ("end", 2): "cut_short",
    ("cut", 1): "goes_beyond",
    ("cut", 3): "goes_beyond",
    ("intact", 2): "found",
}
NO_LEADER = {
    **dict.fromkeys([("start", 2), ("end", 2), ("cut", 1), ("cut", 3)], "no_copy"),
    ("intact", 2): "not_all_given",
}


def test_all_is_kept_that_the_copies_bear_out(tmp_path: Path, plan: Path) -> None:
    assert reasons(mended(tmp_path / "after"), plan) == AS_PLANNED


def cut_last_batch(copies: Path, broker: int) -> None:
    log = copies / f"broker-{broker}" / LOG
    log.write_bytes(log.read_bytes()[: read_log(log.parent).batches[-1].position])


def keep_old_log(copies: Path, broker: int) -> None:
    shutil.rmtree(copies / f"broker-{broker}" / "audit-0")
    shutil.copytree(copies.parent / "before" / f"broker-{broker}" / "audit-0", copies / f"broker-{broker}" / "audit-0")


def move_start(copies: Path, broker: int) -> None:
    (copies / f"broker-{broker}" / "log-start-offset-checkpoint").write_text("0\n1\naudit 0 120\n")


def flip(copies: Path, broker: int) -> None:
    log = copies / f"broker-{broker}" / LOG
    data = bytearray(log.read_bytes())
    data[500] ^= 1
    log.write_bytes(data)


def leave_out(copies: Path, broker: int) -> None:
    shutil.rmtree(copies / f"broker-{broker}")


@pytest.mark.parametrize(
    ("change", "broker", "changed"),
    [
        (cut_last_batch, 2, LOST_END),
        (flip, 2, {("end", 2): "damaged", ("intact", 2): "found"}),
        (keep_old_log, 1, {("cut", 1): "differs", ("intact", 2): "found"}),
        (keep_old_log, 3, {}),
        (move_start, 2, {("start", 2): "moved_on"}),
        (flip, 3, {("intact", 2): "found"}),
        (leave_out, 3, {("cut", 3): "no_copy", ("intact", 2): "not_all_given"}),
        (leave_out, 2, NO_LEADER),
    ],
    ids=["end lost", "leader damaged", "still diverges", "not yet caught up", "retention", "damage", "no follower", "no leader"],
)
def test_what_is_otherwise_is_told(
    change: Callable[[Path, int], None], broker: int, changed: dict[Any, str], tmp_path: Path, plan: Path
) -> None:
    copies = mended(tmp_path / "after")
    change(copies, broker)
    assert reasons(copies, plan) == {**AS_PLANNED, **changed}


def test_a_follower_that_ends_before_its_cut_lost_more(tmp_path: Path, plan: Path) -> None:
    copies = mended(tmp_path / "after")
    log = copies / "broker-3" / LOG
    log.write_bytes(log.read_bytes()[: read_log(log.parent).batches[2].position])
    cut = said(copies, plan)["cut", 3]
    assert (cut.reason, cut.planned, cut.outcome) == ("ends_before", 300, Outcome.BROKEN)
    assert isinstance(cut.found, int)
    assert cut.found < 300


@pytest.mark.parametrize(
    ("epoch", "elected", "reason"),
    [(1, "1", "elected"), (1, "2", "other_elected"), (2, "1", "leads"), (2, "2", "not_elected"), (9, "1", "election_not_known")],
)
def test_who_was_elected_first_after_the_plan(epoch: int, elected: str, reason: str, tmp_path: Path, plan: Path) -> None:
    """The controller's log has broker 1 elected uncleanly in epoch 2."""
    earlier = of_earlier_plan(plan, leader_epoch=epoch)
    assert said(put_audit(tmp_path / "same"), earlier, elected)["leader", int(elected)].reason == reason


def test_partitions_without_any_copy_are_not_known(tmp_path: Path, plan: Path) -> None:
    copies = mended(tmp_path / "after")
    for broker in (1, 2, 3):
        shutil.rmtree(copies / f"broker-{broker}" / "audit-0")
    assert {promise.outcome for promise in said(copies, plan).values()} == {Outcome.UNKNOWN}


def test_bundles_tell_the_same(tmp_path: Path, plan: Path) -> None:
    copies = mended(tmp_path / "after")
    keep_old_log(copies, 1)
    folder = tmp_path / "bundles"
    folder.mkdir()
    for broker in sorted(copies.iterdir()):
        bundle_of(broker, folder / f"{broker.name}.kfb")
    assert said(folder, plan) == said(copies, plan)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema_version": 1}', "[" * 100_000, LISTED_ONE])
def test_what_is_no_plan_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text)
    with pytest.raises(UsageError, match="is no plan"):
        read_promises(str(file))
    with pytest.raises(UsageError, match="cannot be read"):
        read_promises(str(tmp_path / "none.json"))


def test_a_broker_that_the_plan_does_not_elect_is_refused(tmp_path: Path, plan: Path) -> None:
    with pytest.raises(UsageError, match="no election of broker 7"):
        said(mended(tmp_path / "after"), plan, "7")


# Records that were produced again.


def with_records(copies: Path, records: list[tuple[bytes | None, bytes, int, tuple[tuple[str, bytes], ...]]]) -> None:
    """Broker 1's log with further records behind its end: key, value, timestamp, headers."""
    log = copies / "broker-1" / LOG
    end = read_log(log.parent).batches[-1].last_offset + 1
    batches = [
        write_batch(
            [RecordToWrite(key, value, headers=headers)],
            base_offset=end + number,
            base_timestamp=timestamp,
            partition_leader_epoch=2,
        )
        for number, (key, value, timestamp, headers) in enumerate(records)
    ]
    log.write_bytes(log.read_bytes() + b"".join(batches))


@pytest.mark.parametrize("by_header", [True, False])
@pytest.mark.parametrize(
    ("sent", "reason", "found"),
    [
        (lambda rows: rows, "records_back", 70),
        (lambda rows: rows[:-1], "records_missing", 69),
        (lambda rows: [*rows, rows[3]], "records_twice", 71),
        (lambda rows: [*rows[1:], rows[3]], "records_missing", 69),
        (lambda _: [], "records_missing", 0),
    ],
    ids=["all", "one missing", "one twice", "one missing and one twice", "none"],
)
def test_records_are_back_if_each_is_there_once(
    by_header: bool, sent: Callable[[list[Any]], list[Any]], reason: str, found: int, tmp_path: Path, plan: Path, lost: Path
) -> None:
    rows = [json.loads(line) for line in (lost / "records.jsonl").read_text().splitlines()]
    copies = put_audit(tmp_path / "after")
    made = [
        (
            row["key"].encode(),
            row["value"].encode(),
            row["timestamp_ms"],
            (("kafka-forensics-original-offset", b"%d" % row["offset"]),) if by_header else (),
        )
        for row in sent(rows)
    ]
    with_records(copies, [(b"user-11", b"another", 5, ()), *made])
    asked = Asked("1", read_lost_records(str(lost)))
    promises = verify([str(copies)], read_promises(str(plan)), ScanOptions(), asked).promises
    told = next(promise for promise in promises if promise.promise == "records")
    assert (told.broker, told.reason, told.planned, told.found) == (1, reason, 70, found)


@pytest.fixture(name="lost")
def recovered_records(tmp_path: Path, plan: Path) -> Path:
    """What `recover` writes to keep broker 1."""
    assert plan.exists()
    assert outcome(["recover", str(tmp_path / "before"), "--output", str(tmp_path / "lost"), "--quiet"]) == 1
    return tmp_path / "lost"


def test_what_is_no_recovery_is_refused(lost: Path) -> None:
    whole = (lost / "records.jsonl").read_text()
    for text in ("[]\n", "{\n", '{"topic": "t"}\n', "[" * 100_000):
        (lost / "records.jsonl").write_text(text)
        with pytest.raises(UsageError, match="holds no records of `recover`"):
            read_lost_records(str(lost))
    (lost / "records.jsonl").write_text(whole[: whole.index("\n") + 1])
    with pytest.raises(UsageError, match=r"is not the one that report.json there speaks of"):
        read_lost_records(str(lost))
    (lost / "report.json").unlink()
    with pytest.raises(UsageError, match=r"report.json cannot be read"):
        read_lost_records(str(lost))


def test_what_was_recovered_for_another_leader_is_refused(tmp_path: Path, plan: Path, lost: Path) -> None:
    asked = Asked("2", read_lost_records(str(lost)))
    with pytest.raises(UsageError, match="recovered to keep broker 1, and broker 2 was to lead"):
        verify([str(tmp_path / "before")], read_promises(str(plan)), ScanOptions(), asked)


def test_copies_of_another_cluster_are_refused(tmp_path: Path, plan: Path) -> None:
    copies = put_audit(tmp_path / "other")
    for file in copies.rglob("meta.properties"):
        file.write_text(re.sub("cluster.id=.*", "cluster.id=AAAAAAAAAAAAAAAAAAAAAQ", file.read_text()))
    with pytest.raises(UsageError, match=r"the plan is of cluster .*, and these copies of AAAAAAAAAAAAAAAAAAAAAQ"):
        said(copies, plan)


def test_a_broker_is_known_though_no_partition_is_asked_for(tmp_path: Path, plan: Path) -> None:
    options = ScanOptions(topic_glob="__cluster*")
    assert verify([str(put_audit(tmp_path / "a"))], read_promises(str(plan)), options, Asked("1")).promises == []
