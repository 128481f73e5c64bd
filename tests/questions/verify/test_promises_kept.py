"""Promises of a plan compared with copies: kept by copies after a real start, and broken by any other."""

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
from kafka_forensics.questions.collect import CollectOptions, PseudonymMap
from kafka_forensics.questions.verify import ExecutedPlan, Outcome, Verified, read_lost_records, read_promises, verify
from lab.fault_base import read_log
from tests.questions.verify.verifications import LOG, append, of_earlier_plan, put_back, repaired_copies, rows_of, with_records
from tests.support.audit import put_audit
from tests.support.brokers import put_clean_shutdown, write_checkpoint
from tests.support.bundles import make_bundle
from tests.support.places import SAMPLES
from tests.support.segments import batch

LISTED_ONE = '{"schema_version": "1.0", "partitions_planned": 1, "partitions": [1]}'


def promises_of(copies: Path, plan: Path, elected: str | None = None) -> dict[tuple[str, int | str], Verified]:
    checked = verify([str(copies)], read_promises(str(plan)), ScanOptions(), ExecutedPlan(elected))
    return {(promise.promise, promise.broker): promise for promise in checked.promises}


def reasons(copies: Path, plan: Path, elected: str | None = None) -> dict[tuple[str, int | str], str]:
    return {key: promise.reason for key, promise in promises_of(copies, plan, elected).items()}


AS_PLANNED = {
    ("leader", 2): "not_elected",
    ("start", 2): "as_planned",
    ("end", 2): "as_planned",
    ("cut", 1): "follows",
    ("cut", 3): "follows",
    ("intact", 2): "nothing_found",
}
"""The controllers' log of the sample ends before broker 2 is elected."""


LOST_END = {("end", 2): "cut_short", ("intact", 2): "found"}
NO_LEADER = {**dict.fromkeys([("start", 2), ("end", 2), ("cut", 1), ("cut", 3)], "no_copy"), ("intact", 2): "not_all_given"}


def cut_last_batch(copies: Path, broker: int) -> None:
    log = copies / f"broker-{broker}" / LOG
    log.write_bytes(log.read_bytes()[: read_log(log.parent).batches[-1].position])


def keep_old_log(copies: Path, broker: int) -> None:
    shutil.rmtree(copies / f"broker-{broker}" / "audit-0")
    shutil.copytree(SAMPLES / "unclean-election" / f"broker-{broker}" / "audit-0", copies / f"broker-{broker}" / "audit-0")


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
        (lambda *_: None, 2, {}),
        (cut_last_batch, 2, LOST_END),
        (flip, 2, {("end", 2): "damaged", ("intact", 2): "found"}),
        (keep_old_log, 1, {("cut", 1): "differs", ("intact", 2): "found"}),
        (keep_old_log, 3, {}),
        (lambda copies, _: write_checkpoint(copies / "broker-2", "log-start", 120, "audit-0"), 2, {("start", 2): "moved_on"}),
        (flip, 3, {("intact", 2): "found"}),
        (leave_out, 3, {("cut", 3): "no_copy", ("intact", 2): "not_all_given"}),
        (leave_out, 2, NO_LEADER),
    ],
)
def test_promises_that_the_copies_break_are_broken(
    change: Callable[[Path, int], None], broker: int, changed: dict[Any, str], tmp_path: Path, plan: Path
) -> None:
    copies = repaired_copies(tmp_path / "after")
    change(copies, broker)
    assert reasons(copies, plan) == {**AS_PLANNED, **changed}


def test_a_follower_that_ends_before_its_truncation_lost_more(tmp_path: Path, plan: Path) -> None:
    copies = repaired_copies(tmp_path / "after")
    log = copies / "broker-3" / LOG
    log.write_bytes(log.read_bytes()[: read_log(log.parent).batches[2].position])
    cut = promises_of(copies, plan)["cut", 3]
    assert (cut.reason, cut.planned, cut.outcome) == ("ends_before", 300, Outcome.BROKEN)
    assert isinstance(cut.found, int)
    assert cut.found < 300


@pytest.mark.parametrize(
    ("epoch", "elected", "reason"),
    [(1, 1, "elected"), (1, 2, "other_elected"), (2, 1, "leads"), (2, 2, "not_elected"), (9, 1, "election_not_known")],
)
def test_the_first_election_after_the_plan_counts(epoch: int, elected: int, reason: str, tmp_path: Path, plan: Path) -> None:
    """In the controllers' log broker 1 is elected uncleanly in epoch 2. Brokers are recognised by id and by name."""
    copies = put_audit(tmp_path / "copies")
    assert promises_of(copies, of_earlier_plan(plan, leader_epoch=epoch), str(elected))["leader", elected].reason == reason
    paths = [f"b{broker}={copies}/broker-{broker}" for broker in (1, 2, 3)]
    plan.unlink()
    assert outcome(["plan", *paths, "--topic", "audit", "--output", str(plan), "--quiet"]) == 0
    document = read_promises(str(of_earlier_plan(plan, leader_epoch=epoch)))

    def leads() -> Verified:
        promises = verify(paths, document, ScanOptions(), ExecutedPlan(f"b{elected}")).promises
        return next(promise for promise in promises if promise.promise == "leader")

    assert (leads().reason, leads().found) == (reason, "b1")
    shutil.rmtree(copies / f"broker-{elected}" / "audit-0")
    assert leads().reason == reason
    (copies / f"broker-{elected}" / "meta.properties").unlink()
    assert (leads().reason, leads().outcome) == ("node_not_known", Outcome.UNKNOWN)


@pytest.mark.parametrize("epoch", [0, 5])
def test_a_follower_that_was_copied_later_holds_more(epoch: int, tmp_path: Path, plan: Path) -> None:
    copies = repaired_copies(tmp_path / "after")
    for broker in (1, 3):
        append(copies, broker, lambda offset: batch(offset, epoch=epoch))
    promises = promises_of(copies, plan)
    assert [(promises["cut", broker].reason, promises["cut", broker].found) for broker in (1, 3)] == [("follows", 371)] * 2


def test_a_follower_that_did_not_truncate_holds_more(tmp_path: Path, plan: Path) -> None:
    """Broker 3 ends at 300, where the others should truncate."""
    copies = put_audit(tmp_path / "after")
    promises = promises_of(copies, plan, "3")
    assert {(promises["cut", broker].reason, promises["cut", broker].found) for broker in (1, 2)} == {("goes_beyond", 300)}
    checked = verify([str(copies)], read_promises(str(plan)), ScanOptions(live=True), ExecutedPlan("3"))
    cuts = [promise for promise in checked.promises if promise.promise == "cut"]
    assert [(cut.reason, cut.outcome) for cut in cuts] == [("copied_later", Outcome.UNKNOWN)] * 2


@pytest.mark.parametrize("say", ["as before", "moved on", "stopped"])
def test_a_high_watermark_from_before_the_truncation_is_no_finding(say: str, tmp_path: Path, plan: Path) -> None:
    """Brokers 1 and 2 had 345 and 370, and truncated at 300; they write their high watermarks only every five seconds."""
    copies = put_audit(tmp_path / "after")
    for broker in (1, 2):
        shutil.rmtree(copies / f"broker-{broker}" / "audit-0")
        shutil.copytree(copies / "broker-3" / "audit-0", copies / f"broker-{broker}" / "audit-0")
    if say == "moved on":
        checkpoint = copies / "broker-2" / "replication-offset-checkpoint"
        checkpoint.write_text(checkpoint.read_text().replace("audit 0 370", "audit 0 360"))
    elif say == "stopped":
        put_clean_shutdown(copies / "broker-2")
    promises = promises_of(copies, plan, "3")
    assert [promises["cut", broker].reason for broker in (1, 2)] == ["follows"] * 2
    intact = promises["intact", 3]
    assert (intact.reason, intact.kinds) == (("nothing_found", ()) if say == "as before" else ("found", ("HW_BEYOND_LEO",)))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema_version": 1}', "[" * 100_000, LISTED_ONE])
def test_an_invalid_plan_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text)
    with pytest.raises(UsageError, match="is not a plan"):
        read_promises(str(file))
    with pytest.raises(UsageError, match="cannot read"):
        read_promises(str(tmp_path / "none.json"))


@pytest.mark.parametrize(("place", "value"), [(("candidates", "recovery_cut"), -1), (("replicas", "log_start_offset"), 2**63)])
def test_impossible_numbers_are_refused(place: tuple[str, str], value: int, plan: Path) -> None:
    document = json.loads(plan.read_text())
    for row in document["partitions"][0][place[0]]:
        row[place[1]] = value
    plan.write_text(json.dumps(document))
    with pytest.raises(UsageError, match="is not a plan"):
        read_promises(str(plan))


def test_a_broker_that_the_plan_does_not_elect_is_refused(tmp_path: Path, plan: Path) -> None:
    with pytest.raises(UsageError, match="no election of broker 7"):
        promises_of(repaired_copies(tmp_path / "after"), plan, "7")


# Records that were produced again.


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
def test_records_are_back_if_each_is_found_once(
    by_header: bool, sent: Callable[[list[Any]], list[Any]], reason: str, found: int, plan: Path, lost: Path, tmp_path: Path
) -> None:
    copies = put_audit(tmp_path / "after")
    made = [put_back(row, header=by_header) for row in sent(rows_of(lost))]
    with_records(copies, [(b"user-11", b"another", 5, ()), *made])
    executed_plan = ExecutedPlan("1", read_lost_records(str(lost)))
    promises = verify([str(copies)], read_promises(str(plan)), ScanOptions(), executed_plan).promises
    records = next(promise for promise in promises if promise.promise == "records")
    assert (records.broker, records.reason, records.planned, records.found) == (1, reason, 70, found)


def test_an_invalid_recovery_is_refused(lost: Path) -> None:
    whole = (lost / "records.jsonl").read_text()
    for text in ("[]\n", "{\n", '{"topic": "t"}\n', "[" * 100_000):
        (lost / "records.jsonl").write_text(text)
        with pytest.raises(UsageError, match="has no records of `recover`"):
            read_lost_records(str(lost))
    (lost / "records.jsonl").write_text(whole[: whole.index("\n") + 1])
    with pytest.raises(UsageError, match=r"is not the one in report.json there"):
        read_lost_records(str(lost))
    (lost / "report.json").unlink()
    with pytest.raises(UsageError, match=r"cannot read .*report.json"):
        read_lost_records(str(lost))


def test_records_recovered_for_another_leader_are_refused(incident: Path, plan: Path, lost: Path) -> None:
    executed_plan = ExecutedPlan("2", read_lost_records(str(lost)))
    with pytest.raises(UsageError, match="recovered to keep broker 1, but broker 2 should lead"):
        verify([str(incident / "before")], read_promises(str(plan)), ScanOptions(), executed_plan)
    (lost / "report.json").write_text((lost / "report.json").read_text().replace('"audit"', '"other"'))
    with pytest.raises(UsageError, match="does not name the broker"):
        read_lost_records(str(lost))


def test_copies_of_another_cluster_are_refused(tmp_path: Path, plan: Path) -> None:
    copies = put_audit(tmp_path / "other")
    for file in copies.rglob("meta.properties"):
        file.write_text(re.sub("cluster.id=.*", "cluster.id=AAAAAAAAAAAAAAAAAAAAAQ", file.read_text()))
    with pytest.raises(UsageError, match=r"the plan is for cluster .*, but these copies are from AAAAAAAAAAAAAAAAAAAAAQ"):
        promises_of(copies, plan)


def test_a_pseudonym_of_a_cluster_is_not_compared(tmp_path: Path, plan: Path) -> None:
    copies = repaired_copies(tmp_path / "after")
    (cluster_id,) = json.loads(plan.read_text())["cluster_ids"]
    plan.write_text(plan.read_text().replace(cluster_id, "cluster-0123456789ab"))
    assert reasons(copies, plan) == AS_PLANNED
    plan.write_text(plan.read_text().replace("cluster-0123456789ab", cluster_id))
    pseudonyms, folder = PseudonymMap.at(tmp_path / "names.json"), tmp_path / "bundles"
    folder.mkdir()
    for broker in sorted(copies.iterdir()):
        make_bundle(broker, folder / f"{broker.name}.kfb", CollectOptions(pseudonyms=pseudonyms))
    assert set(reasons(folder, plan).values()) == {"no_copy"}


def test_a_broker_is_known_without_selected_partitions(tmp_path: Path, plan: Path) -> None:
    options = ScanOptions(topic_glob="__cluster*")
    assert verify([str(put_audit(tmp_path / "a"))], read_promises(str(plan)), options, ExecutedPlan("1")).promises == []
