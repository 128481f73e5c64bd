"""What `plan` advises where the way is not the usual one: nobody need be forced, a file is to be mended first, a broker is dead,
evidence is damaged, missing or unnamed."""

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
    put_partition,
    put_replica,
    put_segment,
)
from tests.support.controllers import CONTROLLER, ControllerLog, partition as partition_record, setting, topic
from tests.support.logs import ms
from tests.support.places import SAMPLES
from tests.support.segments import batch, flip_bit

Words = Callable[..., str]
Document = Callable[..., Any]
AUDIT = ("--topic", "audit")
HEALTHY = (SAMPLES / "healthy", "--topic", "orders", "--partition", "0")
OF_TOPIC, OF_ANOTHER = "C" * 21 + "Q", "B" * 21 + "Q"


@pytest.fixture
def copies(audit: Path, tmp_path: Path) -> Path:
    """Copies of `audit-0` that a test may damage."""
    return shutil.copytree(audit, tmp_path / "copies")


# Who leads does not matter, or cannot be told.


def test_without_a_controllers_log_nobody_is_stopped_where_all_logs_agree(run_plan: Run, plan_words: Words, tmp_path: Path) -> None:
    put_copies(tmp_path, (1, 2, 3), batch(0, 3), high_watermark=3)
    for options in ((), ("--elect", "2")):
        words = plan_words(tmp_path, *options)
        assert "Nothing that the copies hold would be lost, whoever leads: any order will do." in words
        assert "1. Make sure that no other broker has a replica: no controller's log here says so, and it may hold more." in words
        assert "2. Start the brokers in any order: whoever of them is elected, nothing is lost." in words
        assert ("Stop" in words, "kafka-leader-election.sh" in words) == (False, False)
    assert "Broker 2 can be made the leader without force once it is in the ISR." in words
    said, hint = run_plan(tmp_path)[2].splitlines()
    assert said == "1 partition: no election would lose anything that the copies here hold"
    assert hint == "no clean-shutdown marker on brokers 1, 2, 3: plan a copy of running brokers with --live"
    assert "--live" not in run_plan(tmp_path, "--live")[2]
    words = plan_words(*HEALTHY, "--elect", "3")
    assert (words.count("any order"), "stay" in words) == (2, False)
    assert "1. Plan without --topic and --partition first: brokers start for" in words


def test_what_followers_delete_below_the_leaders_log_start_is_a_cost_unless_it_was_deleted_for_a_reason(
    plan_words: Words, tmp_path: Path
) -> None:
    """Broker 1 lacks the first three records: by its log-start checkpoint, for no reason, or because retention may be short."""
    reasons = (("checkpoint", 0), ("none", 0), ("unknown", 3_600_000))
    for reason, step_ms in reasons:
        first, second = batch(0, 3), batch(3, 3, base_timestamp=ms(0) + step_ms)
        for broker in (1, 2, 3):
            segments = {3: second} if broker == 1 else {0: first, 3: second}
            log_start = 3 if (broker, reason) == (1, "checkpoint") else None
            put_replica(tmp_path / reason, broker, segments, partition="t-0", high_watermark=6, log_start=log_start)
        words = plan_words(tmp_path / reason)
        assert "it deletes 3 offsets below the leader's log start" in words
        assert ("1 not known none from 3 on" in words, "1 not known 0 to 2 2, 3 3" in words) == (
            reason == "checkpoint",
            reason != "checkpoint",
        )
        assert ("any order will do" in words) is (reason == "checkpoint")
        assert ("Have it elected for t-0" in words) is (reason != "checkpoint")
    words = plan_words(tmp_path / "checkpoint")
    assert "but for what was deleted already from the leader's log (3 offsets if broker 1 leads): any order" in words
    assert "nothing is lost but what was deleted already from the leader's log." in words


def test_what_is_on_no_copy_is_looked_for_before_anything_starts(run_plan: Run, plan_words: Words, tmp_path: Path) -> None:
    """The checkpoints say that six records were committed, and every log ends at three."""
    put_copies(tmp_path, (1, 2), batch(0, 3), high_watermark=6, clean=True)
    words = plan_words(tmp_path)
    assert "Nothing that the copies hold would be lost, whoever leads. Committed and on no copy here: offsets 3 to 5." in words
    assert "Start no broker yet: committed offsets of orders-0 are on no copy here. Look for further copies" in words
    assert "whoever of them is elected, nothing that the copies hold is lost." in words
    assert run_plan(tmp_path)[2] == "1 partition: committed offsets are on no copy here\n"


def test_where_nothing_tells_the_present_topic_it_is_to_be_found_out(plan_words: Words, tmp_path: Path) -> None:
    for broker, topic_id in ((1, OF_TOPIC), (2, OF_TOPIC), (3, OF_ANOTHER)):
        put_replica(tmp_path, broker, batch(0, 3), high_watermark=3, topic_id=topic_id)
    words = plan_words(tmp_path, "--elect", "2")
    assert "1. Find out by the controller's log which topic id is the present one, and plan again." in words
    assert "any order" not in words


def test_controllers_elect_among_themselves(run_plan: Run) -> None:
    status, _, err = run_plan(SAMPLES / "healthy", "--topic", "__cluster_metadata")
    assert status == 0
    assert err == "nothing to plan: the leader of __cluster_metadata is elected by the controllers among themselves\n"


# Brokers that are dead, or would not start.


def test_a_dead_broker_is_not_copied_or_stopped(run_plan: Run, plan_words: Words, plan_document: Document, audit: Path) -> None:
    words = plan_words(audit, *AUDIT, "--dead", "1")
    assert "1. Stop brokers 2 and 3, if running. If a broker ran since it was copied, plan again." in words
    assert "2. Keep the copy of broker 1 given here: of what is lost, no more is left." in words
    others = (audit / "broker-2", audit / "broker-3", *AUDIT, "--dead")
    words = plan_words(*others, "1")
    assert "Missing: broker 1 will not come back, and no copy of it is here: what only it held is lost unseen." in words
    assert "Copy the log directories" not in words
    (partition,) = plan_document(*others, "1")["partitions"]
    assert partition["missing_witnesses"] == [{"kind": "dead_copy_absent", "broker": 1}]
    status, _, err = run_plan(*others, "x")
    assert status == 2
    assert "no copy here is of broker x, and no controller's log here gives it a replica" in err
    assert "brokers known here: 1, 2, 3" in err


def test_without_anyone_in_sync_a_lossless_election_is_forced(run_plan: Run, plan_document: Document, tmp_path: Path) -> None:
    log = ControllerLog().lead([CONTROLLER]).append(topic(), partition_record([3], 3, replicas=[1, 2, 3]))
    log.put(tmp_path / f"controller-{CONTROLLER}")
    for number, broker in product(("t-0", "other-0"), (1, 2, 3)):
        put_replica(tmp_path, broker, batch(0, 3), partition=number, high_watermark=3, topic_id=TOPIC_ID)
    document = plan_document(tmp_path, "--topic", "[t]*", "--dead", "3")
    assert [step["kind"] for step in document["steps"]][-4:] == ["start", "elect", "leads", "start"]
    err = run_plan(tmp_path, "--topic", "[t]*", "--dead", "3")[2]
    assert err.splitlines()[0] == "1 partition: no election would lose anything; nobody leads until an election is forced"


def test_nodes_that_are_brokers_and_controllers_vote_before_their_brokers_run(plan_document: Document, tmp_path: Path) -> None:
    """And what the topic's own setting allows is said."""
    log = ControllerLog().lead([1, 2]).append(topic(), partition_record([1], 1, replicas=[1, 2]))
    log.append(setting("unclean.leader.election.enable", "true")).put(tmp_path / "broker-1")
    for broker, count in ((1, 3), (2, 5)):
        put_replica(tmp_path, broker, batch(0, count), partition="t-0", high_watermark=count, topic_id=TOPIC_ID)
    steps = {step["kind"]: step for step in plan_document(tmp_path)["steps"]}
    assert "Brokers 1 and 2 are controllers, too: start as many as a majority needs with" in steps["controllers"]["text"]
    assert steps["controllers"]["brokers"] == [1, 2]
    assert "the controllers' log allows them for t. If so, whoever starts first is elected" in steps["check_unclean"]["text"]


def test_running_brokers_that_lead_need_no_start(plan_document: Document, tmp_path: Path) -> None:
    log = ControllerLog().lead([CONTROLLER]).append(topic(), partition_record([1, 2], 1, replicas=[1, 2]))
    log.put(tmp_path / f"controller-{CONTROLLER}")
    for broker, held in ((1, batch(0, 3) + batch(3, 2)), (2, batch(0, 3))):
        put_replica(tmp_path, broker, held, partition="t-0", high_watermark=3, topic_id=TOPIC_ID)
    assert [step["kind"] for step in plan_document(tmp_path, "--live")["steps"]] == ["leads"]
    starts = [step["brokers"] for step in plan_document(tmp_path)["steps"] if step["kind"] == "start"]
    assert starts == [[1], [2]]


def test_running_brokers_keep_leaders_under_whom_as_little_is_lost(plan_document: Document, tmp_path: Path) -> None:
    """Though other leaders would start in fewer rounds, or have longer logs."""
    led, ids = (
        {"a-0": ([3, 1], 3), "b-0": ([1], 1), "c-0": ([1, 3], 3)},
        ("AAECAwQFBgcICQoLDA0ODw", TOPIC_ID, "BBECAwQFBgcICQoLDA0ODw"),
    )
    log = ControllerLog().lead([CONTROLLER])
    for (name, (isr, leader)), topic_id in zip(led.items(), ids, strict=True):
        log.append(topic(name[0], topic_id), partition_record(isr, leader, topic_id=topic_id, replicas=[3, 1, 2]))
        for broker in (1, 2, 3):
            held = batch(0, 3) + (batch(3, 2) if broker in isr else b"")
            start = 2 if (name, broker) == ("c-0", 3) else 0
            put_replica(tmp_path, broker, held, partition=name, high_watermark=3, topic_id=topic_id, log_start=start)
    log.put(tmp_path / f"controller-{CONTROLLER}")
    document = plan_document(tmp_path, "--live")
    assert [(row["topic"], row["recommended"]) for row in document["partitions"]] == [("a", 3), ("b", 1), ("c", 3)]
    assert [step["kind"] for step in document["steps"]] == ["leads"]


def test_a_dead_broker_among_copies_without_names_is_asked_for(run_plan: Run, copies: Path) -> None:
    for broker in (2, 3):
        (copies / f"broker-{broker}" / "meta.properties").unlink()
    status, out, err = run_plan(copies, *AUDIT, "--dead", "2")
    assert (status, out) == (2, "")
    assert "which of the copies called broker-2, broker-3 is of broker 2 cannot be told" in err
    assert "say whose they are, as in 2=PATH" in err


def test_a_broken_checkpoint_is_mended_and_the_plan_made_again_before_anything_else(
    plan_words: Words, plan_document: Document, copies: Path
) -> None:
    """What each election costs is that of brokers with the file mended."""
    (copies / "broker-2" / "audit-0" / "leader-epoch-checkpoint").write_text("junk\n")
    words = plan_words(copies, *AUDIT)
    assert "1. Before broker 2 starts, mend its audit-0/leader-epoch-checkpoint, which cannot be read: Kafka takes the log" in words
    assert "Recommended: broker 2, which loses least: 45 records" in words
    assert words.endswith("Copy again and plan again.")
    assert [step["kind"] for step in plan_document(copies)["steps"]] == ["mend"]


@pytest.mark.parametrize(
    ("file", "mended"),
    [
        ("log-start-offset-checkpoint", "records come back that DeleteRecords deleted there"),
        ("recovery-point-offset-checkpoint", "recovers every log from its start"),
        ("cleaner-offset-checkpoint", "nothing is lost"),
        ("__cluster_metadata-0/quorum-state", "start it only when the others have a leader"),
        ("bootstrap.checkpoint", "move this file (never delete it)"),
        ("meta.properties", "write this file anew, of the lines `version=1`, `node.id=3`, `cluster.id="),
        ("audit-0/partition.metadata", "write this file anew, of the lines `version: 0` and `topic_id: "),
    ],
)
@pytest.mark.parametrize("data", [b"", b"garbage\n"])
def test_no_broker_is_started_before_the_file_is_mended_over_which_it_ends(
    plan_document: Document, copies: Path, file: str, mended: str, data: bytes
) -> None:
    (copies / "broker-3" / file).write_bytes(data)
    steps = plan_document(f"3={copies / 'broker-3'}", copies / "broker-1", copies / "broker-2")["steps"]
    mends = [number for number, step in enumerate(steps) if step["kind"] == "mend"]
    if not data and file.endswith("offset-checkpoint"):
        assert mends == []
        return
    assert (mends, steps[0]["brokers"]) == ([0], [3])
    assert file in steps[0]["text"]
    assert mended in steps[0]["text"]
    assert [step for step in steps[1:] if step["kind"] == "start" and 3 in step["brokers"][:1]] == []


def test_an_empty_checkpoint_of_high_watermarks_is_a_warning_and_makes_no_other_leader(
    run: Run, plan_words: Words, plan_document: Document, copies: Path, tmp_path: Path
) -> None:
    (copies / "broker-2" / "replication-offset-checkpoint").write_bytes(b"")
    (only,) = plan_document(copies)["steps"]
    assert (only["kind"], only["brokers"]) == ("find_watermark", [2])
    assert "make a second copy of the log directory, add only the lines that are missing to that file there" in only["text"]
    (planned,) = plan_document(copies, *AUDIT)["partitions"]
    assert (planned["contested_by"], planned["recommended"]) == (2, None)
    assert [row["broker"] for row in planned["candidates"] if row["is_recommended"]] == []
    words = plan_words(copies, *AUDIT)
    assert "Whom to elect is not known; by the high watermarks here: broker 1, which loses least" in words
    assert "None says what broker 2 committed: if that was all, electing broker 2 would lose less of it." in words
    assert "Start" not in words
    assert "1 *" not in words
    put_partition(copies / "broker-1" / "other-0", batch(0, 3), topic_id=OF_TOPIC)
    (row,) = [line for line in run("plan", copies, "--format", "table")[1].splitlines() if line.startswith("audit-0 ")]
    assert row.split() == ["audit-0", "not", "known", "?", "?", "3", "115", "45"]
    assert "Start broker 2, and no other yet." in plan_words(copies, *AUDIT, "--elect", "2")
    out = run("salvage", copies, "--output", tmp_path / "out", "--format", "table")[1]
    assert "refused audit-0: which of its copies holds what was committed is not known: one has no high watermark" in out
    found = json.loads(run("scan", copies, "--format", "json")[1])["findings"]
    told = [(row["broker"], row["severity"], row["evidence"]["reason"]) for row in found if row["kind"] == "CHECKPOINT_MALFORMED"]
    assert told == [(2, "warning", "empty")]


def test_who_would_not_start_is_told_with_the_reason_and_a_way(plan_words: Words, plan_document: Document, copies: Path) -> None:
    """The version of an entry in a transaction index is not Kafka's."""
    put_segment(copies / "broker-3" / "audit-0", 0, b"\1" * 34, "txnindex")
    words = plan_words(copies, *AUDIT, "--elect", "2")
    reason = f"would not start{{}}, for {0:020d}.txnindex there ends its start"
    assert f"If broker 2 leads, broker 3 does nothing: it {reason.format('')}." in words
    assert f"Missing: broker 3 {reason.format(' on this copy')}; it cannot lead." in words
    assert f"Broker 3 {reason.format(' as it is')}: copy its log directories; a scan of the same paths tells more." in words
    assert "Recommended of those that would start: broker 2" in plan_words(copies, *AUDIT)
    starts = [step["brokers"] for step in plan_document(copies, *AUDIT)["steps"] if step["kind"] == "start"]
    assert starts == [[2], [1]]


def test_a_broker_that_fails_fixes_the_order(run_plan: Run, plan_words: Words, plan_document: Document, tmp_path: Path) -> None:
    """Brokers 2 and 3 agree; broker 1 lacks records that both have, and would lose them if it led."""
    whole = batch(0, 3) + batch(3, 3)
    for broker, log in ((1, batch(0, 3)), (2, whole), (3, whole)):
        put_replica(tmp_path, broker, log, high_watermark=3, topic_id=OF_TOPIC)
    put_segment(tmp_path / "broker-1" / "orders-0", 0, b"\1" * 34, "txnindex")
    assert "any order" not in plan_words(tmp_path)
    told = "no election of a broker that would start would lose anything that the copies here hold"
    assert run_plan(tmp_path)[2].splitlines()[0] == f"1 partition: {told}"
    put_copies(tmp_path / "more", (1, 2), batch(0, 3), partition="b-0")
    assert plan_document(tmp_path, tmp_path / "more")["do_not_start"] == [{"broker": 1, "partitions": 1}]


# What is damaged, and who takes it from where.


def test_damage_is_told_with_what_becomes_of_it(plan_words: Words, plan_document: Document, copies: Path) -> None:
    """The last byte of broker 2's log is flipped; it stopped cleanly, so that nothing cuts there."""
    log = next((copies / "broker-2" / "audit-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-1] + bytes([log.read_bytes()[-1] ^ 1]))
    put_clean_shutdown(copies / "broker-2")
    words = plan_words(copies, *AUDIT, "--elect", "2")
    assert "Damaged: broker 2 holds offsets 360 to 369 in batches whose bytes are not what was written." in words
    assert "on broker 2 alone, damaged there, all proven committed" in words
    assert "Its own copy is damaged at offsets 360 to 369: it serves those bytes as they are, so consumers stop there" in words
    (partition,) = plan_document(copies, *AUDIT)["partitions"]
    assert partition["damaged"] == [{"broker": 2, "offsets": [[360, 370]]}]
    assert partition["candidates"][0]["at_most"] == 70
    (copies / "broker-2" / ".kafka_cleanshutdown").unlink()
    words = plan_words(copies, *AUDIT, "--elect", "2")
    assert "Its own copy is damaged at offsets 360 to 369: as it starts, recovery cuts its log at" in words


def test_a_damaged_leader_is_not_said_to_be_the_better_copy(plan_words: Words, tmp_path: Path) -> None:
    log = batch(0, 3) + batch(3, 3) + batch(6, 3)
    rotten = bytearray(log)
    rotten[len(batch(0, 3)) + 70] ^= 1
    for broker, held in ((1, bytes(rotten)), (2, log)):
        log_dir = put_replica(tmp_path, broker, held, high_watermark=9)
        put_clean_shutdown(log_dir)
        for kind in ("index", "timeindex"):
            put_segment(log_dir / "orders-0", 0, b"", kind)
    words = plan_words(tmp_path)
    keeps = "If broker 1 leads, broker 2 keeps its log, with its records at 3 to 5 in it, which are damaged in the leader's,"
    assert keeps in words
    assert "Recommended: broker 2. Nothing that the copies hold would be lost." in words
    assert "Move the directory orders-0 of broker 1 out of its log directory" in words


def test_a_salvage_joins_copies_damaged_elsewhere(run: Run, plan_words: Words, plan_document: Document, tmp_path: Path) -> None:
    """What the plan says that the salvage loses is what the salvage then loses: nothing."""
    copies = tmp_path / "copies"
    log = batch(0, 3) + batch(3, 3) + batch(6, 3)
    for broker, at in ((1, 3), (2, 6)):
        rotten = bytearray(log)
        rotten[log.index(batch(at, 3)) + 70] ^= 1
        log_dir = put_replica(copies, broker, bytes(rotten), high_watermark=9, topic_id=OF_TOPIC)
        put_clean_shutdown(log_dir)
        for kind in ("index", "timeindex"):
            put_segment(log_dir / "orders-0", 0, b"", kind)
    document = plan_document(copies)
    (partition,) = document["partitions"]
    assert [one["at_most"] for one in partition["candidates"]] == [3, 3]
    assert (partition["recommended"], partition["salvage"]) == (None, {"committed": 0, "at_most": 0, "options": []})
    assert not any(one["is_recommended"] for one in partition["candidates"])
    assert [step["kind"] for step in document["steps"]] == ["ask", "stop", "salvage"]
    words = plan_words(copies)
    assert "Recommended: salvage, which joins what the copies hold and loses nothing. The best election loses 3 offsets." in words
    assert " * " not in words
    assert document["steps"][-1]["command"] == f"kafka-forensics salvage {copies} --output DIR"
    assert run("salvage", copies, "--output", tmp_path / "salvaged", "-q")[0] == 0
    salvaged = [path.read_bytes() for path in (tmp_path / "salvaged").rglob(f"{0:020d}.log")]
    assert salvaged
    assert set(salvaged) == {log}
    assert {one["election"] for one in plan_document(copies, "--elect", "2")["partitions"][0]["candidates"]} == {"unknown"}
    assert "Asked for: broker 2 (recommended is salvage)" in plan_words(copies, "--elect", "2")


def test_the_command_of_a_salvage_with_gaps_ends_with_brokers_that_start(run: Run, plan_document: Document, tmp_path: Path) -> None:
    for broker in (1, 2, 3):
        log = [flip_bit(batch(at, 3), 70) if at in (3, 3 + 3 * broker) else batch(at, 3) for at in range(0, 15, 3)]
        log_dir = put_replica(tmp_path / "in", broker, b"".join(log), high_watermark=15, topic_id=OF_TOPIC)
        put_partition(log_dir / "other-0", batch(0, 3), topic_id="O" * 21 + "A")
    command = shlex.split(plan_document(tmp_path / "in")["steps"][-1]["command"])
    assert command[3:] == ["--allow-gaps", "--output", "DIR"]
    assert "1. Stop brokers 1, 2 and 3." in run(*command[1:-1], tmp_path / "out", "--format", "table")[1]


def test_a_salvage_is_recommended_with_what_every_partition_needs_or_for_none(
    run: Run, plan_document: Document, tmp_path: Path
) -> None:
    """Of `orders-0` each copy is damaged at another place; of `other-0` brokers 1 and 2 committed different records."""
    for broker in (1, 2):
        log = [flip_bit(batch(at, 3), 70) if at == 3 * broker else batch(at, 3) for at in (0, 3, 6)]
        log_dir = put_replica(tmp_path / "in", broker, b"".join(log), high_watermark=9, topic_id=OF_TOPIC)
        rival = batch(3, 3 * broker, epoch=broker, value=b"%d" % broker)
        put_partition(log_dir / "other-0", batch(0, 3) + rival, topic_id=OF_ANOTHER)
        put_checkpoint(log_dir, "replication", {"orders-0": 9, "other-0": 3 + 3 * broker})
    document = plan_document(tmp_path / "in")
    assert [one["recommended"] for one in document["partitions"]] == [None, 2]
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
    assert {one["topic"]: one["recommended"] for one in document["partitions"]} == {"orders": 2, "other": 2, "third": 1}
    assert "salvage" not in [step["kind"] for step in document["steps"]]


@pytest.mark.parametrize("held", [[(0, 15, 0)], [(0, 10, 0), (10, 10, 1)]], ids=["ends below", "ends at the leader's start"])
def test_a_follower_that_begins_anew_loses_no_record(plan_words: Words, tmp_path: Path, held: list[tuple[int, int, int]]) -> None:
    """Segments below 20 are in remote storage; the second follower would be cut at 10, and ends where the leader begins."""
    log = ControllerLog().lead([CONTROLLER]).append(topic(), partition_record([1, 2], 1, leader_epoch=2, replicas=[1, 2]))
    log.append(setting("remote.storage.enable", "true")).put(tmp_path / f"controller-{CONTROLLER}")
    ours = b"".join(batch(start, count, epoch=epoch) for start, count, epoch in held)
    logs = {1: (20, batch(20, 10, epoch=2), [(0, 0), (2, 20)]), 2: (0, ours, [(epoch, start) for start, _, epoch in held])}
    for broker, (base, data, epochs) in logs.items():
        known: dict[str, Any] = {"partition": "t-0", "topic_id": TOPIC_ID, "epochs": epochs, "log_start": 0}
        put_replica(tmp_path, broker, {base: data}, high_watermark=max(base, 10), **known)
    words = plan_words(tmp_path, "--topic", "t")
    assert "2 anew at 20" in words
    sentence = "broker 2 begins its log anew, for what it would keep of it ends below the leader's local log start, and copies"
    assert f"If broker 1 leads, {sentence} the leader from 20 on." in words


# Witnesses that contradict each other, say too much, or are not here.


def test_witnesses_that_contradict_are_told(plan_words: Words, plan_document: Document, audit: Path, copies: Path) -> None:
    """Broker 2's high watermark lies beyond its log, and its checkpoint knows an epoch that no batch has."""
    marks = copies / "broker-2" / "replication-offset-checkpoint"
    marks.write_text(marks.read_text().replace("audit 0 370", "audit 0 400"))
    put_epochs(copies / "broker-2" / "audit-0", (0, 0), (1, 320))
    put_clean_shutdown(copies / "broker-2")
    words = plan_words(copies, *AUDIT)
    assert "Contradiction: HW_BEYOND_LEO: audit-0 on broker 2: " in words
    assert "Contradiction: EPOCH_CACHE_MISMATCH: audit-0 on broker 2: " in words
    (partition,) = plan_document(copies, *AUDIT)["partitions"]
    assert partition["findings"] == ["EPOCH_CACHE_MISMATCH", "HW_BEYOND_LEO", "UNCLEAN_LOSS"]
    assert "Contradiction" not in plan_words(audit, *AUDIT)


def test_a_witness_that_says_more_than_its_log_is_told_whole(plan_words: Words, plan_document: Document, tmp_path: Path) -> None:
    """Broker 2's checkpoint says 300, and its log ends at 6: it proves what is there."""
    put_replica(tmp_path, 1, batch(0, 3), high_watermark=3)
    put_replica(tmp_path, 2, batch(0, 3) + batch(3, 3), high_watermark=300)
    assert "high watermark 300 of broker 2, whose log ends at 6" in plan_words(tmp_path, "--elect", "1")
    (partition,) = plan_document(tmp_path)["partitions"]
    (loss,) = next(one["losses"] for one in partition["candidates"] if one["broker"] == 1)
    expected = {"kind": "high_watermark", "broker": 2, "name": None, "end_offset": 6, "said_end_offset": 300}
    assert loss["witness"] == expected


def test_two_copies_of_one_broker_are_named_and_tables_stay_in_line(run_plan: Run, plan_document: Document, copies: Path) -> None:
    shutil.copytree(copies / "broker-2", copies / "broker-2-old")
    table, _, below = run_plan(copies, *AUDIT, "--format", "table")[1].partition("Several")
    assert f"copies of one broker (NODE_ID_CLASH): {copies / 'broker-2'} and" in " ".join(below.split())
    assert str(copies) not in table
    (partition,) = plan_document(copies, *AUDIT)["partitions"]
    told = [one["broker"] for one in partition["missing_witnesses"] if one["kind"] == "same_broker"]
    assert told == [str(copies / "broker-2"), str(copies / "broker-2-old")]


def test_a_copy_that_does_not_say_whose_it_is(plan_words: Words, plan_document: Document, copies: Path) -> None:
    (copies / "broker-2" / "meta.properties").unlink()
    words = plan_words(copies, *AUDIT)
    assert "the copy broker-2 does not say whose it is (no node.id in a meta.properties); it is taken for that of broker 2" in words
    assert "if so, give it as 2=PATH." in words
    assert "Start broker-2, and no other yet." in words
    (partition,) = plan_document(copies, *AUDIT)["partitions"]
    assert partition["missing_witnesses"] == [{"kind": "copy_unnamed", "broker": "broker-2"}]
    assert not partition["candidates"][0]["at_most_is_bound"]
    named = copies / "broker-1", f"2={copies / 'broker-2'}", copies / "broker-3"
    assert plan_document(*named, *AUDIT)["partitions"][0]["missing_witnesses"] == []
    (copies / "broker-2" / "replication-offset-checkpoint").unlink()
    (copies / "broker-2" / "meta.properties").write_text("garbage\n")
    words = plan_words(copies, *AUDIT)
    assert "Missing: broker-2 has no checkpointed high watermark" in words
    assert "(give the copy as N=PATH, beside the other copies and the controllers' log, to have each ID filled in)" in words


def test_a_damaged_controllers_log_is_not_missing(
    plan_words: Words, plan_document: Document, audit: Path, copies: Path, tmp_path: Path
) -> None:
    damaged = {"kind": "controller_log_damaged", "broker": None}
    for start, share in ((60, 1), (200, 97)):
        for log in copies.glob("*/__cluster_metadata-0/*.log"):
            whole = (audit / log.relative_to(copies)).read_bytes()
            log.write_bytes(bytes(each ^ 0x55 if at > start and at % share == 0 else each for at, each in enumerate(whole)))
        assert damaged in plan_document(copies, *AUDIT)["partitions"][0]["missing_witnesses"], share
        if share == 1:
            told = "Missing: a controller's log is here, but too damaged to say who is in sync"
            assert told in plan_words(copies, *AUDIT)
    other = tmp_path / "other"
    for broker in (1, 2, 3):
        put_replica(other, broker, batch(0, 3), partition="t-0")
        shutil.copy(audit / f"broker-{broker}" / "meta.properties", other / f"broker-{broker}")
    shutil.copytree(audit / "broker-1" / "__cluster_metadata-0", other / "broker-1" / "__cluster_metadata-0")
    unsaid = "Missing: the controller's log here does not say of this partition who is in sync"
    assert unsaid in plan_words(other, "--topic", "t")


def test_the_table_tells_the_steps_that_the_other_formats_tell(plan_words: Words, plan_document: Document, audit: Path) -> None:
    """The leader that leads now loses nothing of the copies given, but broker 2's is not among them."""
    given = audit / "broker-1", audit / "broker-3", *AUDIT
    steps = plan_document(*given)["steps"]
    words = plan_words(*given)
    assert "Missing: the copy of broker 2 is not here, and may hold more." in words
    assert "Copy the log directories of broker 2 as well, and plan again: they may hold what no other copy holds." in words
    for number, step in enumerate(steps, 1):
        command = "" if step["command"] is None else f" {step['command']}"
        assert f"{number}. {step['text']}{command}" in words.replace(" \\ ", " ")


def test_a_hanging_transaction_of_running_brokers_is_ended_by_steps(plan_document: Document, tmp_path: Path) -> None:
    put_unlisted(tmp_path)
    live = (tmp_path, "--live", "--as-of")
    told = [(step["kind"], step["command"]) for step in plan_document(*live, ms(1_206))["steps"]][-2:]
    tool, where = "kafka-transactions.sh --bootstrap-server HOST:PORT", "--topic t --partition 0"
    assert told == [
        ("find_hanging", f"{tool} find-hanging {where} --max-transaction-timeout 15"),
        ("abort", f"{tool} abort {where} --start-offset 3"),
    ]
    (younger,) = [step for step in plan_document(*live, ms(77))["steps"] if step["kind"] == "look_again"]
    assert "2023-11-14T22:33:25.000Z" in younger["text"]
    assert not [step for step in plan_document(tmp_path)["steps"] if step["kind"] == "find_hanging"]
