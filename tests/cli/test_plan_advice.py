"""Advice of `plan` in special cases: no election needs force, a file needs repair first, a broker is dead, or evidence is damaged,
missing or without a broker's name."""

import json
import shlex
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.cli.runs import Run
from tests.gallery.transactions import put_unlisted
from tests.support.brokers import (
    TOPIC_ID,
    put_checkpoint,
    put_clean_shutdown,
    put_copies,
    put_epochs,
    put_meta_properties,
    put_partition,
    put_replica,
    put_segment,
)
from tests.support.controllers import CONTROLLER, ControllerLog, partition as partition_record, setting, topic
from tests.support.logs import ms
from tests.support.places import SAMPLES
from tests.support.segments import batch, flip_bit

PlanText = Callable[..., str]
PlanDocument = Callable[..., Any]
AUDIT = ("--topic", "audit")
HEALTHY = (SAMPLES / "healthy", "--topic", "orders", "--partition", "0")
TOPIC_UUID, OTHER_TOPIC_UUID = "C" * 21 + "Q", "B" * 21 + "Q"


@pytest.fixture
def copies(audit: Path, tmp_path: Path) -> Path:
    """Copies of `audit-0` that a test may damage."""
    return shutil.copytree(audit, tmp_path / "copies")


# The leader does not matter, or is unknown.


def test_without_a_controllers_log_equal_logs_need_no_order(run_plan: Run, plan_text: PlanText, tmp_path: Path) -> None:
    put_copies(tmp_path, (1, 2, 3), batch(0, 3), high_watermark=3)
    for options in ((), ("--elect", "2")):
        text = plan_text(tmp_path, *options)
        assert "Nothing that the copies hold would be lost, whichever broker leads: any order of starts is safe." in text
        assert (
            "1. Check that no other broker has a replica: no given controllers' log shows it, and another replica may hold more."
            in text
        )
        assert "2. Start the brokers in any order: whichever of them is elected, nothing is lost." in text
        assert ("Stop" in text, "kafka-leader-election.sh" in text) == (False, False)
    assert "Broker 2 can be made the leader without force once it is in the ISR." in text
    summary, hint = run_plan(tmp_path)[2].splitlines()
    assert summary == "1 partition: no election would lose anything that the copies here hold"
    assert hint == "no clean-shutdown marker on brokers 1, 2, 3: if they ran while they were copied, use --live"
    assert "--live" not in run_plan(tmp_path, "--live")[2]
    text = plan_text(*HEALTHY, "--elect", "3")
    assert (text.count("any order"), "stay" in text) == (2, False)
    assert "1. Plan without --topic and --partition first: brokers start for" in text


def test_records_below_the_leaders_log_start_are_a_cost_unless_its_checkpoint_explains_them(
    plan_text: PlanText, tmp_path: Path
) -> None:
    """Broker 1 lacks the first three records: by its log-start checkpoint, for no reason, or perhaps because of retention."""
    reasons = (("checkpoint", 0), ("none", 0), ("unknown", 3_600_000))
    for reason, step_ms in reasons:
        first, second = batch(0, 3), batch(3, 3, base_timestamp=ms(0) + step_ms)
        for broker in (1, 2, 3):
            segments = {3: second} if broker == 1 else {0: first, 3: second}
            log_start = 3 if (broker, reason) == (1, "checkpoint") else None
            put_replica(tmp_path / reason, broker, segments, partition="t-0", high_watermark=6, log_start=log_start)
        text = plan_text(tmp_path / reason)
        assert "it deletes 3 offsets below the leader's log start" in text
        assert ("1 not known none from 3 on" in text, "1 not known 0 to 2 2, 3 3" in text) == (
            reason == "checkpoint",
            reason != "checkpoint",
        )
        assert ("any order of starts is safe" in text) is (reason == "checkpoint")
        assert ("elect it for t-0" in text) is (reason != "checkpoint")
    text = plan_text(tmp_path / "checkpoint")
    assert "except offsets that the leader's log has already deleted (3 offsets if broker 1 leads): any order" in text
    assert "nothing is lost except what the leader's log has already deleted." in text


def test_committed_records_on_no_copy_are_searched_before_brokers_start(run_plan: Run, plan_text: PlanText, tmp_path: Path) -> None:
    """By the checkpoints six records were committed, but every log ends at three."""
    put_copies(tmp_path, (1, 2), batch(0, 3), high_watermark=6, clean=True)
    text = plan_text(tmp_path)
    assert (
        "Nothing that the copies hold would be lost, whichever broker leads. Committed, but in no given copy: offsets 3 to 5."
        in text
    )
    assert "Start no broker yet. Committed offsets of orders-0 are in no given copy. Look for more copies" in text
    assert "whichever of them is elected, nothing that the copies hold is lost." in text
    assert run_plan(tmp_path)[2] == "1 partition: committed offsets are in no given copy\n"


def test_an_unknown_current_topic_id_must_be_found_out_first(plan_text: PlanText, tmp_path: Path) -> None:
    for broker, topic_id in ((1, TOPIC_UUID), (2, TOPIC_UUID), (3, OTHER_TOPIC_UUID)):
        put_replica(tmp_path, broker, batch(0, 3), high_watermark=3, topic_id=topic_id)
    text = plan_text(tmp_path, "--elect", "2")
    assert "1. Find in the controllers' log which topic id exists now, and plan again." in text
    assert "any order" not in text


def test_without_partitions_the_plan_names_what_the_scan_found(run_plan: Run, tmp_path: Path) -> None:
    for broker in (1, 2):
        put_meta_properties(tmp_path / f"broker-{broker}", broker)
    found = "nothing to plan: no partition was found or selected; a scan of the same paths finds LOG_DIR_WIPED (2)"
    _, out, err = run_plan(tmp_path / "broker-1", tmp_path / "broker-2")
    assert err.startswith(found)
    assert found in " ".join(out.split())


def test_cluster_metadata_needs_no_plan(run_plan: Run) -> None:
    status, _, err = run_plan(SAMPLES / "healthy", "--topic", "__cluster_metadata")
    assert status == 0
    assert err == "nothing to plan: the leader of __cluster_metadata is elected by the controllers among themselves\n"


# Brokers that are dead, or would not start.


def test_a_dead_broker_is_not_copied_or_stopped(
    run_plan: Run, plan_text: PlanText, plan_document: PlanDocument, audit: Path
) -> None:
    text = plan_text(audit, *AUDIT, "--dead", "1")
    assert "2. Stop clients and brokers 2 and 3. If one ran since it was copied, plan again." in text
    assert "3. Keep the given copy of broker 1: no other copy holds the lost records." in text
    others = (audit / "broker-2", audit / "broker-3", *AUDIT, "--dead")
    text = plan_text(*others, "1")
    assert "Missing: broker 1 will not return, and no copy of it was given: records that only it held are lost" in text
    assert "copy their log directories" not in text
    (partition,) = plan_document(*others, "1")["partitions"]
    assert partition["missing_witnesses"] == [{"kind": "dead_copy_absent", "broker": 1}]
    status, _, err = run_plan(*others, "x")
    assert status == 2
    assert "no copy belongs to broker x, and no controller's log assigns it a replica" in err
    assert "brokers known here: 1, 2, 3" in err


def test_without_a_living_isr_member_a_lossless_election_is_forced(
    run_plan: Run, plan_document: PlanDocument, tmp_path: Path
) -> None:
    log = ControllerLog().lead([CONTROLLER]).append(topic(), partition_record([3], 3, replicas=[1, 2, 3]))
    log.put(tmp_path / f"controller-{CONTROLLER}")
    for partition, broker in product(("t-0", "other-0"), (1, 2, 3)):
        put_replica(tmp_path, broker, batch(0, 3), partition=partition, high_watermark=3, topic_id=TOPIC_ID)
    document = plan_document(tmp_path, "--topic", "[t]*", "--dead", "3")
    assert [step["kind"] for step in document["steps"]][-5:] == ["start", "elect", "leads", "start", "verify"]
    err = run_plan(tmp_path, "--topic", "[t]*", "--dead", "3")[2]
    assert err.splitlines()[0] == "1 partition: no election would lose anything; no replica leads until you force an election"


def test_combined_nodes_form_a_controller_majority_first(plan_document: PlanDocument, tmp_path: Path) -> None:
    """The plan also states what unclean.leader.election.enable of the topic allows."""
    log = ControllerLog().lead([1, 2]).append(topic(), partition_record([1], 1, replicas=[1, 2]))
    log.append(setting("unclean.leader.election.enable", "true")).put(tmp_path / "broker-1")
    for broker, count in ((1, 3), (2, 5)):
        put_replica(tmp_path, broker, batch(0, count), partition="t-0", high_watermark=count, topic_id=TOPIC_ID)
    steps = {step["kind"]: step for step in plan_document(tmp_path)["steps"]}
    assert "Brokers 1 and 2 are controllers, too: start as many as a majority needs with" in steps["controllers"]["text"]
    assert steps["controllers"]["brokers"] == [1, 2]
    assert "the controllers' log allows them for t. If they are, the broker that" in steps["check_unclean"]["text"]


def test_running_brokers_that_lead_need_no_start(plan_document: PlanDocument, tmp_path: Path) -> None:
    log = ControllerLog().lead([CONTROLLER]).append(topic(), partition_record([1, 2], 1, replicas=[1, 2]))
    log.put(tmp_path / f"controller-{CONTROLLER}")
    for broker, data in ((1, batch(0, 3) + batch(3, 2)), (2, batch(0, 3))):
        put_replica(tmp_path, broker, data, partition="t-0", high_watermark=3, topic_id=TOPIC_ID)
    assert [step["kind"] for step in plan_document(tmp_path, "--live")["steps"]] == ["leads"]
    starts = [step["brokers"] for step in plan_document(tmp_path)["steps"] if step["kind"] == "start"]
    assert starts == [[1], [2]]


def test_running_brokers_keep_leaders_that_lose_no_more_than_others(plan_document: PlanDocument, tmp_path: Path) -> None:
    """Other leaders would start in fewer rounds, or have longer logs."""
    states, ids = (
        {"a-0": ([3, 1], 3), "b-0": ([1], 1), "c-0": ([1, 3], 3)},
        ("AAECAwQFBgcICQoLDA0ODw", TOPIC_ID, "BBECAwQFBgcICQoLDA0ODw"),
    )
    log = ControllerLog().lead([CONTROLLER])
    for (name, (isr, leader)), topic_id in zip(states.items(), ids, strict=True):
        log.append(topic(name[0], topic_id), partition_record(isr, leader, topic_id=topic_id, replicas=[3, 1, 2]))
        for broker in (1, 2, 3):
            data = batch(0, 3) + (batch(3, 2) if broker in isr else b"")
            start = 2 if (name, broker) == ("c-0", 3) else 0
            put_replica(tmp_path, broker, data, partition=name, high_watermark=3, topic_id=topic_id, log_start=start)
    log.put(tmp_path / f"controller-{CONTROLLER}")
    document = plan_document(tmp_path, "--live")
    assert [(row["topic"], row["recommended"]) for row in document["partitions"]] == [("a", 3), ("b", 1), ("c", 3)]
    assert [step["kind"] for step in document["steps"]] == ["leads"]


def test_a_dead_broker_among_unnamed_copies_is_refused(run_plan: Run, copies: Path) -> None:
    for broker in (2, 3):
        (copies / f"broker-{broker}" / "meta.properties").unlink()
    status, out, err = run_plan(copies, *AUDIT, "--dead", "2")
    assert (status, out) == (2, "")
    assert "cannot tell which of the copies broker-2, broker-3 belongs to broker 2" in err
    assert "name their brokers, as in 2=PATH" in err


def test_a_malformed_checkpoint_is_repaired_before_a_new_plan(
    plan_text: PlanText, plan_document: PlanDocument, copies: Path
) -> None:
    """The costs of elections assume that the file is repaired."""
    (copies / "broker-2" / "audit-0" / "leader-epoch-checkpoint").write_text("junk\n")
    text = plan_text(copies, *AUDIT)
    assert "1. Before broker 2 starts, repair its audit-0/leader-epoch-checkpoint, which cannot be read: Kafka" in text
    assert "Recommended: broker 2, which loses least: 45 records" in text
    assert text.endswith("Copy again and plan again.")
    assert [step["kind"] for step in plan_document(copies)["steps"]] == ["repair"]


@pytest.mark.parametrize(
    ("file", "advice"),
    [
        ("log-start-offset-checkpoint", "records that DeleteRecords deleted there come back"),
        ("recovery-point-offset-checkpoint", "recovers every log from its start"),
        ("cleaner-offset-checkpoint", "nothing is lost"),
        ("__cluster_metadata-0/quorum-state", "start such a controller only when the other controllers have a leader"),
        ("bootstrap.checkpoint", "move this file (never delete it)"),
        ("meta.properties", "write this file again with the lines `version=1`, `node.id=3`, `cluster.id="),
        ("audit-0/partition.metadata", "write this file again with the lines `version: 0` and `topic_id: "),
    ],
)
@pytest.mark.parametrize("data", [b"", b"garbage\n"])
def test_a_file_that_stops_a_broker_is_repaired_before_the_broker_starts(
    plan_document: PlanDocument, copies: Path, file: str, advice: str, data: bytes
) -> None:
    (copies / "broker-3" / file).write_bytes(data)
    steps = plan_document(f"3={copies / 'broker-3'}", copies / "broker-1", copies / "broker-2")["steps"]
    repairs = [number for number, step in enumerate(steps) if step["kind"] == "repair"]
    if not data and file.endswith("offset-checkpoint"):
        assert repairs == []
        return
    assert (repairs, steps[0]["brokers"]) == ([0], [3])
    assert file in steps[0]["text"]
    assert advice in steps[0]["text"]
    assert [step for step in steps[1:] if step["kind"] == "start" and 3 in step["brokers"][:1]] == []


def test_an_empty_high_watermark_checkpoint_is_a_warning_and_leaves_no_recommendation(
    run: Run, plan_text: PlanText, plan_document: PlanDocument, copies: Path, tmp_path: Path
) -> None:
    (copies / "broker-2" / "replication-offset-checkpoint").write_bytes(b"")
    (step,) = plan_document(copies)["steps"]
    assert (step["kind"], step["brokers"]) == ("find_watermark", [2])
    assert "make a second copy of the log directory, add only the lines that are missing to that file there" in step["text"]
    (partition,) = plan_document(copies, *AUDIT)["partitions"]
    assert (partition["contested_by"], partition["recommended"]) == (2, None)
    assert [row["broker"] for row in partition["candidates"] if row["is_recommended"]] == []
    text = plan_text(copies, *AUDIT)
    assert "The best leader is unknown; by these high watermarks: broker 1, which loses least" in text
    assert "No high watermark shows what broker 2 committed: if it committed everything, electing broker 2 would lose less." in text
    assert "Start" not in text
    assert "1 *" not in text
    put_partition(copies / "broker-1" / "other-0", batch(0, 3), topic_id=TOPIC_UUID)
    (row,) = [line for line in run("plan", copies, "--format", "text")[1].splitlines() if line.startswith("audit-0 ")]
    assert row.split() == ["audit-0", "not", "known", "?", "?", "115"]
    assert "Start broker 2, and no other yet." in plan_text(copies, *AUDIT, "--elect", "2")
    out = run("salvage", copies, "--output", tmp_path / "out", "--format", "text")[1]
    refused = "refused audit-0: it is unknown which of its copies has the committed records: one has no high watermark"
    assert refused in " ".join(out.split())
    findings = json.loads(run("scan", copies, "--format", "json")[1])["findings"]
    malformed = [row for row in findings if row["kind"] == "CHECKPOINT_MALFORMED"]
    assert [(row["broker"], row["severity"], row["evidence"]["reason"]) for row in malformed] == [(2, "warning", "empty")]


def test_a_broker_that_would_not_start_is_named_with_the_reason(
    plan_text: PlanText, plan_document: PlanDocument, copies: Path
) -> None:
    """An entry of a transaction index has an unknown version."""
    put_segment(copies / "broker-3" / "audit-0", 0, b"\1" * 34, "txnindex")
    text = plan_text(copies, *AUDIT, "--elect", "2")
    reason = f"would not start{{}}, because its start fails at {0:020d}.txnindex"
    assert f"If broker 2 leads, broker 3 does nothing: it {reason.format('')}." in text
    assert f"Missing: broker 3 {reason.format(' on this copy')}; it cannot lead." in text
    assert f"Broker 3 {reason.format(' with this copy')}: copy its log directories, and scan them to see more." in text
    assert "Recommended of those that would start: broker 2" in plan_text(copies, *AUDIT)
    starts = [step["brokers"] for step in plan_document(copies, *AUDIT)["steps"] if step["kind"] == "start"]
    assert starts == [[2], [1]]


def test_a_broker_that_would_not_start_fixes_the_order(
    run_plan: Run, plan_text: PlanText, plan_document: PlanDocument, tmp_path: Path
) -> None:
    """Brokers 2 and 3 agree; broker 1 lacks records that both have, and would lose them if it led."""
    complete_log = batch(0, 3) + batch(3, 3)
    for broker, log in ((1, batch(0, 3)), (2, complete_log), (3, complete_log)):
        put_replica(tmp_path, broker, log, high_watermark=3, topic_id=TOPIC_UUID)
    put_segment(tmp_path / "broker-1" / "orders-0", 0, b"\1" * 34, "txnindex")
    assert "any order" not in plan_text(tmp_path)
    summary = "no election of a broker that would start would lose anything that the copies here hold"
    assert run_plan(tmp_path)[2].splitlines()[0] == f"1 partition: {summary}"
    put_copies(tmp_path / "more", (1, 2), batch(0, 3), partition="b-0")
    assert plan_document(tmp_path, tmp_path / "more")["do_not_start"] == [{"broker": 1, "partitions": 1}]


# Damaged copies, and salvage.


def test_damage_is_reported_with_its_consequences(plan_text: PlanText, plan_document: PlanDocument, copies: Path) -> None:
    """The last byte of broker 2's log is flipped; the broker stopped cleanly, so recovery does not truncate its log."""
    log = next((copies / "broker-2" / "audit-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-1] + bytes([log.read_bytes()[-1] ^ 1]))
    put_clean_shutdown(copies / "broker-2")
    text = plan_text(copies, *AUDIT, "--elect", "2")
    assert "Damaged: broker 2 holds offsets 360 to 369 in batches with a wrong checksum." in text
    assert "on broker 2 alone, damaged there, all proven committed" in text
    assert "Its copy is damaged at offsets 360 to 369: it serves these bytes unchanged, consumers stop there" in text
    (partition,) = plan_document(copies, *AUDIT)["partitions"]
    assert partition["damaged"] == [{"broker": 2, "offsets": [[360, 370]]}]
    assert partition["candidates"][0]["at_most"] == 70
    (copies / "broker-2" / ".kafka_cleanshutdown").unlink()
    text = plan_text(copies, *AUDIT, "--elect", "2")
    assert "Its copy is damaged at offsets 360 to 369: when it starts, recovery cuts its log at" in text


def test_a_damaged_leader_is_not_recommended(plan_text: PlanText, tmp_path: Path) -> None:
    log = batch(0, 3) + batch(3, 3) + batch(6, 3)
    damaged_log = bytearray(log)
    damaged_log[len(batch(0, 3)) + 70] ^= 1
    for broker, data in ((1, bytes(damaged_log)), (2, log)):
        log_dir = put_replica(tmp_path, broker, data, high_watermark=9)
        put_clean_shutdown(log_dir)
        for kind in ("index", "timeindex"):
            put_segment(log_dir / "orders-0", 0, b"", kind)
    text = plan_text(tmp_path)
    sentence = "If broker 1 leads, broker 2 keeps its log, keeps its records at 3 to 5, which are damaged in the leader's log,"
    assert sentence in text
    assert "Recommended: broker 2. Nothing that the copies hold would be lost." in text
    assert "Move the directory orders-0 of broker 1 out of its log directory" in text


def test_a_salvage_is_recommended_for_copies_with_different_damage(
    run: Run, plan_text: PlanText, plan_document: PlanDocument, tmp_path: Path
) -> None:
    """The salvage loses what the plan predicts: nothing."""
    copies = tmp_path / "copies"
    log = batch(0, 3) + batch(3, 3) + batch(6, 3)
    for broker, at in ((1, 3), (2, 6)):
        damaged_log = bytearray(log)
        damaged_log[log.index(batch(at, 3)) + 70] ^= 1
        log_dir = put_replica(copies, broker, bytes(damaged_log), high_watermark=9, topic_id=TOPIC_UUID)
        put_clean_shutdown(log_dir)
        for kind in ("index", "timeindex"):
            put_segment(log_dir / "orders-0", 0, b"", kind)
    document = plan_document(copies)
    (partition,) = document["partitions"]
    assert [candidate["at_most"] for candidate in partition["candidates"]] == [3, 3]
    assert (partition["recommended"], partition["salvage"]) == (None, {"committed": 0, "at_most": 0, "options": []})
    assert not any(candidate["is_recommended"] for candidate in partition["candidates"])
    assert [step["kind"] for step in document["steps"]] == ["check_replicas", "stop", "salvage"]
    text = plan_text(copies)
    assert "Recommended: salvage, which joins what the copies hold and loses nothing. The best election loses 3 offsets." in text
    assert " * " not in text
    assert document["steps"][-1]["command"] == f"kafka-forensics salvage {copies} --output DIR"
    assert run("salvage", copies, "--output", tmp_path / "salvaged", "-q")[0] == 0
    salvaged = [path.read_bytes() for path in (tmp_path / "salvaged").rglob(f"{0:020d}.log")]
    assert salvaged
    assert set(salvaged) == {log}
    assert {candidate["election"] for candidate in plan_document(copies, "--elect", "2")["partitions"][0]["candidates"]} == {
        "unknown"
    }
    assert "Requested: broker 2 (recommended: salvage)" in plan_text(copies, "--elect", "2")


def test_the_printed_salvage_with_gaps_succeeds(run: Run, plan_document: PlanDocument, tmp_path: Path) -> None:
    for broker in (1, 2, 3):
        log = [flip_bit(batch(at, 3), 70) if at in (3, 3 + 3 * broker) else batch(at, 3) for at in range(0, 15, 3)]
        log_dir = put_replica(tmp_path / "in", broker, b"".join(log), high_watermark=15, topic_id=TOPIC_UUID)
        put_partition(log_dir / "other-0", batch(0, 3), topic_id="O" * 21 + "A")
    command = shlex.split(plan_document(tmp_path / "in")["steps"][-1]["command"])
    assert command[3:] == ["--allow-gaps", "--output", "DIR"]
    assert "1. Stop brokers 1, 2 and 3." in run(*command[1:-1], tmp_path / "out", "--format", "text")[1]


def test_a_salvage_is_recommended_only_with_options_that_suit_every_partition(
    run: Run, plan_document: PlanDocument, tmp_path: Path
) -> None:
    """Each copy of `orders-0` is damaged at another offset; of `other-0`, brokers 1 and 2 committed different records."""
    for broker in (1, 2):
        log = [flip_bit(batch(at, 3), 70) if at == 3 * broker else batch(at, 3) for at in (0, 3, 6)]
        log_dir = put_replica(tmp_path / "in", broker, b"".join(log), high_watermark=9, topic_id=TOPIC_UUID)
        rival = batch(3, 3 * broker, epoch=broker, value=b"%d" % broker)
        put_partition(log_dir / "other-0", batch(0, 3) + rival, topic_id=OTHER_TOPIC_UUID)
        put_checkpoint(log_dir, "replication", {"orders-0": 9, "other-0": 3 + 3 * broker})
    document = plan_document(tmp_path / "in")
    assert [row["recommended"] for row in document["partitions"]] == [None, 2]
    command = shlex.split(document["steps"][-1]["command"])
    assert command[3:] == ["--prefer-broker", "2", "--output", "DIR"]
    assert run(*command[1:-1], tmp_path / "out", "-q")[0] == 0
    salvaged = {path.parent.name: path.read_bytes() for path in (tmp_path / "out").rglob(f"{0:020d}.log")}
    assert salvaged == {"orders-0": batch(0, 3) + batch(3, 3) + batch(6, 3), "other-0": batch(0, 3) + rival}
    for broker in (1, 2):
        rival = batch(3, 9 - 3 * broker, epoch=broker, value=b"%d" % broker)
        log_dir = tmp_path / "in" / f"broker-{broker}"
        put_partition(log_dir / "third-0", batch(0, 3) + rival, topic_id="D" * 21 + "Q")
        put_checkpoint(log_dir, "replication", {"orders-0": 9, "other-0": 3 + 3 * broker, "third-0": 12 - 3 * broker})
    document = plan_document(tmp_path / "in")
    assert {row["topic"]: row["recommended"] for row in document["partitions"]} == {"orders": 2, "other": 2, "third": 1}
    assert "salvage" not in [step["kind"] for step in document["steps"]]


@pytest.mark.parametrize(
    "follower_batches", [[(0, 15, 0)], [(0, 10, 0), (10, 10, 1)]], ids=["ends below", "ends at the leader's start"]
)
def test_a_follower_that_restarts_its_log_loses_no_record(
    plan_text: PlanText, tmp_path: Path, follower_batches: list[tuple[int, int, int]]
) -> None:
    """Segments below 20 are in remote storage; in the second case the follower's log reaches 20, but is truncated to 10."""
    log = ControllerLog().lead([CONTROLLER]).append(topic(), partition_record([1, 2], 1, leader_epoch=2, replicas=[1, 2]))
    log.append(setting("remote.storage.enable", "true")).put(tmp_path / f"controller-{CONTROLLER}")
    follower_log = b"".join(batch(start, count, epoch=epoch) for start, count, epoch in follower_batches)
    logs = {
        1: (20, batch(20, 10, epoch=2), [(0, 0), (2, 20)]),
        2: (0, follower_log, [(epoch, start) for start, _, epoch in follower_batches]),
    }
    for broker, (base, data, epochs) in logs.items():
        options: dict[str, Any] = {"partition": "t-0", "topic_id": TOPIC_ID, "epochs": epochs, "log_start": 0}
        put_replica(tmp_path, broker, {base: data}, high_watermark=max(base, 10), **options)
    text = plan_text(tmp_path, "--topic", "t")
    assert "2 empty from" in text
    sentence = (
        "broker 2 starts with an empty log, because the part that it would keep ends below the leader's local log start, and copies"
    )
    assert f"If broker 1 leads, {sentence} the leader from 20 on." in text


# Witnesses that contradict each other, exceed the logs, or are missing.


def test_contradicting_witnesses_are_reported(plan_text: PlanText, plan_document: PlanDocument, audit: Path, copies: Path) -> None:
    """Broker 2's high watermark is beyond its log end, and its checkpoint has an epoch that no batch has."""
    marks = copies / "broker-2" / "replication-offset-checkpoint"
    marks.write_text(marks.read_text().replace("audit 0 370", "audit 0 400"))
    put_epochs(copies / "broker-2" / "audit-0", (0, 0), (1, 320))
    put_clean_shutdown(copies / "broker-2")
    text = plan_text(copies, *AUDIT)
    assert "Contradiction: HW_BEYOND_LEO: audit-0 on broker 2: " in text
    assert "Contradiction: EPOCH_CACHE_MISMATCH: audit-0 on broker 2: " in text
    (partition,) = plan_document(copies, *AUDIT)["partitions"]
    assert partition["findings"] == ["EPOCH_CACHE_MISMATCH", "HW_BEYOND_LEO", "UNCLEAN_LOSS"]
    assert "Contradiction" not in plan_text(audit, *AUDIT)


def test_a_high_watermark_beyond_the_log_end_is_a_witness_up_to_the_end(
    plan_text: PlanText, plan_document: PlanDocument, tmp_path: Path
) -> None:
    """Broker 2's high watermark is 300, and its log ends at 6: it proves only the records in the log."""
    put_replica(tmp_path, 1, batch(0, 3), high_watermark=3)
    put_replica(tmp_path, 2, batch(0, 3) + batch(3, 3), high_watermark=300)
    assert "high watermark 300 of broker 2, whose log ends at 6" in plan_text(tmp_path, "--elect", "1")
    (partition,) = plan_document(tmp_path)["partitions"]
    (loss,) = next(candidate["losses"] for candidate in partition["candidates"] if candidate["broker"] == 1)
    expected = {"kind": "high_watermark", "broker": 2, "name": None, "end_offset": 6, "claimed_end_offset": 300}
    assert loss["witness"] == expected


def test_two_copies_of_one_broker_are_named_below_the_table(run_plan: Run, plan_document: PlanDocument, copies: Path) -> None:
    shutil.copytree(copies / "broker-2", copies / "broker-2-old")
    table, _, below = run_plan(copies, *AUDIT, "--format", "text")[1].partition("Several")
    assert f"copiesofonebroker(NODE_ID_CLASH):{copies / 'broker-2'}and" in "".join(below.split()), "a long path is broken"
    assert str(copies) not in table.partition("\n\n")[2]
    (partition,) = plan_document(copies, *AUDIT)["partitions"]
    same_broker = [row["broker"] for row in partition["missing_witnesses"] if row["kind"] == "same_broker"]
    assert same_broker == [str(copies / "broker-2"), str(copies / "broker-2-old")]


def test_a_copy_without_a_node_id_is_reported(plan_text: PlanText, plan_document: PlanDocument, copies: Path) -> None:
    (copies / "broker-2" / "meta.properties").unlink()
    text = plan_text(copies, *AUDIT)
    assert "the copy broker-2 has no node.id in a meta.properties, so its broker is unknown; the plan assumes broker 2" in text
    assert "if that is right, give it as 2=PATH." in text
    assert "Start broker-2, and no other yet." in text
    (partition,) = plan_document(copies, *AUDIT)["partitions"]
    assert partition["missing_witnesses"] == [{"kind": "copy_unnamed", "broker": "broker-2"}]
    assert not partition["candidates"][0]["at_most_is_bound"]
    named = copies / "broker-1", f"2={copies / 'broker-2'}", copies / "broker-3"
    assert plan_document(*named, *AUDIT)["partitions"][0]["missing_witnesses"] == []
    (copies / "broker-2" / "replication-offset-checkpoint").unlink()
    (copies / "broker-2" / "meta.properties").write_text("garbage\n")
    text = plan_text(copies, *AUDIT)
    assert "Missing: broker-2 has no checkpointed high watermark" in text
    assert "(to get each ID filled in, give this copy as N=PATH together with the other copies and the controllers' log)" in text


def test_a_damaged_controllers_log_is_not_called_missing(
    plan_text: PlanText, plan_document: PlanDocument, audit: Path, copies: Path, tmp_path: Path
) -> None:
    damaged = {"kind": "controller_log_damaged", "broker": None}
    for start, share in ((60, 1), (200, 97)):
        for log in copies.glob("*/__cluster_metadata-0/*.log"):
            original = (audit / log.relative_to(copies)).read_bytes()
            log.write_bytes(bytes(byte ^ 0x55 if at > start and at % share == 0 else byte for at, byte in enumerate(original)))
        assert damaged in plan_document(copies, *AUDIT)["partitions"][0]["missing_witnesses"], share
        if share == 1:
            message = "Missing: the given controllers' log is too damaged to show who is in sync"
            assert message in plan_text(copies, *AUDIT)
    other = tmp_path / "other"
    for broker in (1, 2, 3):
        put_replica(other, broker, batch(0, 3), partition="t-0")
        shutil.copy(audit / f"broker-{broker}" / "meta.properties", other / f"broker-{broker}")
    shutil.copytree(audit / "broker-1" / "__cluster_metadata-0", other / "broker-1" / "__cluster_metadata-0")
    message = "Missing: the given controllers' log does not show who is in sync for this partition"
    assert message in plan_text(other, "--topic", "t")


def test_the_table_shows_the_same_steps_as_json(plan_text: PlanText, plan_document: PlanDocument, audit: Path) -> None:
    """The current leader loses nothing of the given copies, but the copy of broker 2 is missing."""
    arguments = audit / "broker-1", audit / "broker-3", *AUDIT
    steps = plan_document(*arguments)["steps"]
    text = plan_text(*arguments)
    assert "Missing: no copy of broker 2 was given; it may hold more." in text
    assert "Copy the log directories of broker 2 as well, and plan again: they may hold what no other copy holds." in text
    for number, step in enumerate(steps, 1):
        command = "" if step["command"] is None else f" {step['command']}"
        assert f"{number}. {step['text']}{command}" in text.replace(" \\ ", " ")


def test_a_step_names_the_command_that_shows_how_to_end_hanging_transactions(
    run: Run, plan_document: PlanDocument, plan_text: PlanText, tmp_path: Path
) -> None:
    """A transaction of a copy of stopped brokers hangs; one of running brokers may, since its coordinator's log may be older."""
    put_unlisted(tmp_path)
    later, earlier = "2023-11-14T22:33:26.000Z", ms(77)
    for options, state in ((("--as-of", later), "hanging"), (("--live", "--as-of", later, "--topic", "t"), "open")):
        steps = plan_document(tmp_path, *options)["steps"]
        assert [step["kind"] for step in steps].count("end_transactions") == 1
        assert "transactions in t-0 hang" in steps[-2]["text"]
        command = ("kafka-forensics", "transactions", str(tmp_path), *options, "--state", state)
        assert steps[-2]["command"] == shlex.join(command)
        assert steps[-1]["kind"] == "transactions_ended"
        assert ("stop all brokers" in plan_text(tmp_path, *options)) is any(step["kind"] == "start" for step in steps)
        status, out, _ = run(*command[1:], "--format", "text")
        assert (status, "find-hanging" in out, " abort " in out) == (0, True, True)
    assert "HOST:PORT" not in plan_text(tmp_path, "--as-of", later)
    (later_step,) = [
        step for step in plan_document(tmp_path, "--live", "--as-of", earlier)["steps"] if step["kind"] == "look_again"
    ]
    assert "2023-11-14T22:33:25.000Z" in later_step["text"]
    kinds = {step["kind"] for step in plan_document(tmp_path, "--as-of", earlier)["steps"]}
    assert kinds.isdisjoint({"look_again", "end_transactions"})
