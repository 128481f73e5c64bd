"""What `plan` says of evidence that is damaged, missing or unnamed, and of choices that make no difference."""

import json
import shutil
from pathlib import Path

from kafka_forensics.cli.outputs.plan_words import election
from kafka_forensics.questions.plan import Planned
from kafka_forensics.replication.planner.planner import plan_partition
from kafka_forensics.replication.planner.plans import PlanControl, PlanPartition, PlanReplica
from tests.support.plan_runs import SAMPLES, Run, validated
from tests.support.replicas import put_replica
from tests.support.segments import batch


def test_damage_is_told_with_what_becomes_of_it(run_plan: Run, audit: Path, tmp_path: Path) -> None:
    """The last byte of broker 2's log is flipped; it stopped cleanly, so that nothing cuts there."""
    copies = shutil.copytree(audit, tmp_path / "copies")
    log = next((copies / "broker-2" / "audit-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-1] + bytes([log.read_bytes()[-1] ^ 1]))
    (copies / "broker-2" / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":5}')
    flat = " ".join(run_plan(copies, "--topic", "audit", "--elect", "2", "--format", "table")[1].split())
    assert "Damaged: broker 2 holds offsets 360 to 369 in batches whose bytes are not what was written." in flat
    assert "on broker 2 alone, damaged there, all proven committed" in flat
    assert "Its own copy is damaged at offsets 360 to 369: it serves those bytes as they are, so consumers stop there" in flat
    document = json.loads(run_plan(copies, "--topic", "audit", "--format", "json")[1])
    validated(None, [document])
    (partition,) = document["partitions"]
    assert partition["damaged"] == [{"broker": 2, "offsets": [[360, 370]]}]
    assert partition["candidates"][0]["at_most"] == 70
    (copies / "broker-2" / ".kafka_cleanshutdown").unlink()
    flat = " ".join(run_plan(copies, "--topic", "audit", "--elect", "2", "--format", "table")[1].split())
    assert "Its own copy is damaged at offsets 360 to 369: as it starts, recovery cuts its log at" in flat


def test_a_damaged_leader_is_not_said_to_be_the_better_copy(run_plan: Run, tmp_path: Path) -> None:
    log = batch(0, 3) + batch(3, 3) + batch(6, 3)
    rotten = bytearray(log)
    rotten[len(batch(0, 3)) + 70] ^= 1
    for broker, held in ((1, bytes(rotten)), (2, log)):
        log_dir = put_replica(tmp_path, broker, held, high_watermark=9)
        (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":5}')
        for kind in ("index", "timeindex"):
            (log_dir / "orders-0" / f"{0:020d}.{kind}").write_bytes(b"")
    flat = " ".join(run_plan(tmp_path, "--format", "table")[1].split())
    assert "If broker 1 leads, broker 2 keeps its log, with its records at 3 to 5 in it, which are damaged in the leader's," in flat
    assert "Recommended: broker 2. Nothing that the copies hold would be lost." in flat
    assert "Move the directory orders-0 of broker 1 out of its log directory" in flat


def test_epochs_that_recovery_rebuilds_are_no_contradiction(run_plan: Run, tmp_path: Path) -> None:
    """Broker 2 lacks the file of its epochs beside another partition's: after an orderly stop it would know none."""
    log = batch(0, 3) + batch(3, 3, epoch=1)
    for broker in (1, 2):
        log_dir = put_replica(tmp_path, broker, log, high_watermark=3, topic_id="AAAAAAAAAAAAAAAAAAAAAQ")
        (log_dir / "other-0").mkdir()
        for directory in ("orders-0", "other-0"):
            (log_dir / directory / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 3\n")
    (log_dir / "orders-0" / "leader-epoch-checkpoint").unlink()
    told = " ".join(run_plan(tmp_path, "--topic", "orders", "--format", "table")[1].split())
    assert "its recovery takes epochs from the batches" in told
    assert "Contradiction" not in told
    (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":5}')
    told = " ".join(run_plan(tmp_path, "--topic", "orders", "--format", "table")[1].split())
    assert "Contradiction: EPOCH_CACHE_MISMATCH: orders-0 on broker 2: leader-epoch-checkpoint is missing" in told


def test_a_copy_that_does_not_say_whose_it_is(run_plan: Run, audit: Path, tmp_path: Path) -> None:
    copies = shutil.copytree(audit, tmp_path / "copies")
    (copies / "broker-2" / "meta.properties").unlink()
    flat = " ".join(run_plan(copies, "--topic", "audit", "--format", "table")[1].split())
    assert "the copy broker-2 does not say whose it is (no node.id in a meta.properties); it is taken for that of broker 2" in flat
    assert "if so, give it as 2=PATH." in flat
    assert "Stop broker 3; brokers 3 and 1 stay down until broker-2 leads." in flat
    document = json.loads(run_plan(copies, "--topic", "audit", "--format", "json")[1])
    validated(None, [document])
    assert document["partitions"][0]["missing_witnesses"] == [{"kind": "copy_unnamed", "broker": "broker-2"}]
    assert not document["partitions"][0]["candidates"][0]["at_most_is_bound"]
    named = run_plan(copies / "broker-1", f"2={copies / 'broker-2'}", copies / "broker-3", "--topic", "audit", "--format", "json")[
        1
    ]
    assert json.loads(named)["partitions"][0]["missing_witnesses"] == []


def test_a_controllers_log_that_is_damaged_is_not_called_missing(run_plan: Run, audit: Path, tmp_path: Path) -> None:
    copies = shutil.copytree(audit, tmp_path / "copies")
    for log in copies.glob("*/__cluster_metadata-0/*.log"):
        log.write_bytes(bytes(each ^ 0x55 if at > 60 else each for at, each in enumerate(log.read_bytes())))
    document = json.loads(run_plan(copies, "--topic", "audit", "--format", "json")[1])
    validated(None, [document])
    assert {"kind": "controller_log_damaged", "broker": None} in document["partitions"][0]["missing_witnesses"]
    flat = " ".join(run_plan(copies, "--topic", "audit", "--format", "table")[1].split())
    assert "Missing: a controller's log is here, but too damaged to say who is in sync" in flat
    for log in copies.glob("*/__cluster_metadata-0/*.log"):
        whole = (audit / log.relative_to(copies)).read_bytes()
        log.write_bytes(bytes(each ^ 0x55 if at > 200 and at % 97 == 0 else each for at, each in enumerate(whole)))
    document = json.loads(run_plan(copies, "--topic", "audit", "--format", "json")[1])
    assert {"kind": "controller_log_damaged", "broker": None} in document["partitions"][0]["missing_witnesses"], "in part"
    for broker in (1, 2, 3):
        put_replica(tmp_path / "other", broker, batch(0, 3), partition="t-0")
        (tmp_path / "other" / f"broker-{broker}" / "meta.properties").unlink()
        (tmp_path / "other" / f"broker-{broker}" / "meta.properties").write_text(
            (audit / f"broker-{broker}" / "meta.properties").read_text()
        )
    shutil.copytree(audit / "broker-1" / "__cluster_metadata-0", tmp_path / "other" / "broker-1" / "__cluster_metadata-0")
    flat = " ".join(run_plan(tmp_path / "other", "--topic", "t", "--format", "table")[1].split())
    assert "Missing: the controller's log here does not say of this partition who is in sync" in flat


def test_an_order_is_given_only_where_it_matters(run_plan: Run) -> None:
    copies = SAMPLES / "healthy"
    out = run_plan(copies, "--topic", "orders", "--partition", "0", "--format", "table")[1]
    flat = " ".join(out.split())
    assert "Nothing that the copies hold would be lost, whoever leads: any order will do." in flat
    assert "stay" not in flat


def test_the_table_tells_the_steps_that_the_other_formats_tell(run_plan: Run, audit: Path) -> None:
    """The leader that leads now loses nothing of the copies given, but broker 2's is not among them."""
    copies = audit / "broker-1", audit / "broker-3", "--topic", "audit"
    (partition,) = json.loads(run_plan(*copies, "--format", "json")[1])["partitions"]
    flat = " ".join(run_plan(*copies, "--format", "table")[1].split())
    assert "Missing: the copy of broker 2 is not here, and may hold more." in flat
    assert "1. Copy the log directories of broker 2 as well and plan again before anything below is done" in flat
    steps = [f"{number}. {line}" for number, line in enumerate(partition["advice"][1:], 1)]
    assert " ".join([partition["advice"][0], *steps, *partition["commands"]]) in flat
    healthy = SAMPLES / "healthy", "--topic", "orders", "--partition", "0", "--format"
    told = run_plan(*healthy, "table")[1]
    assert "1. Plan without --topic and --partition first: brokers start for" in told
    assert "2. Start the brokers in any order" in told


def test_those_that_lose_alike_are_told(run_plan: Run, tmp_path: Path) -> None:
    common = batch(0, 2)
    for broker in (1, 2):
        put_replica(tmp_path, broker, common + batch(2, epoch=broker, value=b"of %d" % broker), high_watermark=3)
    flat = " ".join(run_plan(tmp_path, "--format", "table")[1].split())
    told = (
        "Recommended: broker 1, though every election loses as much (nothing else tells it apart but the order of the brokers): 1"
    )
    told = f"{told} record"
    assert told in flat
    alone = " ".join(run_plan(tmp_path, "--dead", "1", "--format", "table")[1].split())
    assert "Recommended: broker 2, the only one that can lead: 1 record" in alone


def test_copies_that_are_not_here_are_told_in_the_list(run_plan: Run, audit: Path) -> None:
    line = "The copies of brokers 2 and 3 are not here for 12 partitions: what only they hold would be lost unseen."
    only = SAMPLES / "unclean-election" / "broker-1"
    _, out, err = run_plan(only, "--format", "table")
    found = json.loads(run_plan(only, "--format", "json")[1])
    validated(None, [found])
    validated("line", [json.loads(each) for each in run_plan(only, "--format", "jsonl")[1].splitlines()])
    count = found["partitions_planned"]
    assert found["copies_absent"] == [{"broker": 2, "partitions": count}, {"broker": 3, "partitions": count}]
    assert " ".join(out.split()).endswith(line.replace("12 partitions", f"{count} partitions"))
    assert err.startswith(f"{count} partitions: no election would lose anything that the copies here hold")
    assert line.replace("12 partitions", f"{count} partitions") in run_plan(only, "--format", "markdown")[1]
    assert line.replace("12 partitions", f"{count} partitions") in run_plan(only, "--format", "tsv")[2]
    one = run_plan(SAMPLES / "unclean-election" / "broker-1", SAMPLES / "unclean-election" / "broker-3", "--format", "table")[1]
    assert "The copy of broker 2 is not here for" in one


def test_of_many_brokers_that_are_known_the_first_are_listed(run_plan: Run, tmp_path: Path) -> None:
    for broker in range(1, 15):
        put_replica(tmp_path, broker, batch(0, 3))
    status, _, err = run_plan(tmp_path, "--dead", "99")
    assert (status, "brokers known here: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 2 more" in err) == (2, True)


def test_partitions_that_nobody_can_lead_are_listed_with_all_at_stake(run_plan: Run, tmp_path: Path) -> None:
    for partition, brokers in (("a-0", (1, 2)), ("b-0", (1,))):
        for broker in brokers:
            put_replica(tmp_path / partition, broker, batch(0, 3), partition=partition, high_watermark=2)
    roots = [tmp_path / name for name in ("a-0", "b-0")]
    _, out, err = run_plan(*roots, "--dead", "1", "--format", "table")
    assert err == (
        "2 partitions: nobody can lead 1, so that all it holds is at stake; with --topic and --partition, one is shown in full\n"
    )
    assert [" ".join(line.split()) for line in out.splitlines()][1:2] == ["b-0 nobody can 3 2 3 2"]
    document = json.loads(run_plan(*roots, "--dead", "1", "--format", "json")[1])
    validated(None, [document])
    (only,) = document["partitions"]
    assert [(one["offset_start"], one["offset_end"], one["committed_end_offset"]) for one in only["at_stake"]] == [(0, 3, 2)]
    assert only["advice"] == [
        "No replica can lead on these copies.",
        "At stake is all that they hold: 3 records, 2 of them proven committed.",
    ]
    rows = [line.split("\t") for line in run_plan(*roots, "--dead", "1", "--format", "tsv")[1].splitlines()]
    assert rows[1][3:10] == ["", "nobody", "false", "2", "3", "false", "2"]
    alone = run_plan(tmp_path / "b-0", "--dead", "1", "--format", "table")
    assert alone[2] == "1 partition: nobody can lead it, so that all it holds is at stake\n"


def test_a_member_of_the_elr_that_crashed_is_unclean_for_that_reason() -> None:
    control = PlanControl(-1, 3, 0, (), (1, 2), (1, 2, 3))
    replicas = [PlanReplica(broker, 0, 8, 8, crashed=broker != 2) for broker in (1, 2, 3)]
    given = PlanPartition("t", 0, replicas, control=control)
    planned = Planned(given, plan_partition(given))
    told = [election(planned, candidate) for candidate in planned.plan.candidates]
    assert told == ["UNCLEAN (not stopped cleanly)", "clean (ELR)", "UNCLEAN"]
