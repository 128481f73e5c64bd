"""What `plan` prints in every format, and how it ends."""

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from kafka_forensics.cli.outputs.plan import COLUMNS
from tests.support.controller_log import controlled_by, record, topic
from tests.support.controller_log import partition as partition_record
from tests.support.faults import healthy
from tests.support.gallery_replicas import OTHER_TOPIC_ID
from tests.support.plan_runs import Run, validated
from tests.support.replicas import put_replica
from tests.support.segments import batch, legacy_entry

FORMATS = ("table", "tsv", "json", "jsonl", "markdown")


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Logs before Kafka 0.11: broker 2 holds other records than broker 1, and fewer."""
    put_replica(tmp_path, 1, b"".join(legacy_entry(number) for number in range(10)), partition="ledger-0", high_watermark=10)
    log = b"".join(legacy_entry(number, value=b"other") for number in range(3))
    put_replica(tmp_path, 2, log, partition="ledger-0", high_watermark=3)
    return tmp_path


def test_candidates_and_the_steps_to_the_best(run_plan: Run, audit: Path) -> None:
    status, out, err = run_plan(audit, "--topic", "audit", "--partition", "0", "--format", "table")
    assert status == 0
    assert err == "1 partition: an election could lose records\n"
    lines = out.splitlines()
    assert lines[0].startswith("audit-0: followers truncate by leader epochs (Kafka 0.11 and later); leader 1 in")
    at = next(number for number, line in enumerate(lines) if line.startswith("leader "))
    assert [" ".join(line.split()) for line in lines[at : at + 5]] == [
        "leader election cuts lost offsets held by records bytes committed",
        "1 clean 2 at 300 300 to 369 2 70 4697 70",
        "2 * UNCLEAN 1 at 300 300 to 344 1 45 3243 45",
        "3 UNCLEAN 1 at 300 300 to 344 1 45 3243 45",
        "2 at 300 300 to 369 2 70 4697 70",
    ]
    flat = " ".join(out.split())
    assert "Recommended: broker 2, which loses least: 45 records at offsets 300 to 344, on broker 1 alone, all proven" in flat
    assert "at least 45 records (proven committed, and on no copy that stays), at most 45." in flat
    assert "1. Stop broker 1 and copy the log directories there, whole," in flat
    assert "2. Stop broker 3; brokers 3 and 1 stay down until broker 2 leads." in flat
    assert "in this order: 3, 1." in flat
    assert '{"partitions": [{"topic": "audit", "partition": 0}]}' in out
    election = "kafka-leader-election.sh --bootstrap-server HOST:PORT --election-type unclean --path-to-json-file election.json"
    assert f"  {election}\n" in out.replace(" \\\n     ", "")
    assert max(map(len, lines)) <= 80


def test_the_election_asked_for_with_every_follower(run_plan: Run, audit: Path) -> None:
    status, out, _ = run_plan(audit, "--topic", "audit", "--elect", "1", "--format", "table")
    flat = " ".join(out.split())
    assert status == 0
    assert "Asked for: broker 1 (recommended is 2): 70 records at offsets 300 to 369, on broker 2 alone" in flat
    assert "If broker 1 leads, broker 3 keeps its log and copies the leader from 300 on." in flat
    assert "If broker 1 leads, broker 2 cuts its log from 370 to 300 and copies the leader from 300 on." in flat
    assert "election.json" not in out, "who leads already need not be elected"


def test_old_brokers_halt_or_keep_what_differs(run_plan: Run, ledger: Path) -> None:
    status, out, _ = run_plan(ledger, "--format", "table")
    flat = " ".join(out.split())
    assert status == 0
    assert "followers truncate to their high watermarks (before Kafka 0.11: the logs know no leader epochs)" in flat
    assert (
        "Already happened: broker 2 has lost offsets 0 to 9, which were committed (high watermark 10 of broker 1), by a cut to its"
        " own high watermark or by an election while it lacked them: it holds other records at 0 to 2 and nothing at 3 to 9."
        " Broker 1 holds what was there."
    ) in flat
    assert (
        "If broker 2 leads, broker 1 halts with unclean elections off, for its log ends at 10, beyond the leader's 3"
        ' ("log truncation is not allowed"); with them on it cuts its log from 10 to 3, with its own records at 0 to 2 in it for'
        " good, and copies the leader from 3 on."
    ) in flat
    assert "Missing: no controller's log is here to say who is in sync" in flat
    assert "Move the directory ledger-0 of broker 2 out of its log directory, once it is copied" in flat
    assert "at least 0 records" in flat
    assert "at most 3 of the copies that are here." in flat
    assert "--add-config unclean.leader.election.enable=true" in out
    assert "--delete-config unclean.leader.election.enable" in out
    assert "kafka-leader-election.sh" not in out, "0.10 has none"
    by_epochs = run_plan(ledger, "--truncate-by", "epochs", "--format", "table")[1]
    assert "followers truncate by leader epochs (Kafka 0.11 and later, as was asked for)" in " ".join(by_epochs.split())


def test_json_follows_its_schema(run_plan: Run, audit: Path, ledger: Path) -> None:
    for paths in ([audit, "--topic", "audit"], [ledger], [audit, "--topic", "audit", "--elect", "3"], [ledger, "--dead", "1"]):
        status, out, _ = run_plan(*paths, "--format", "json", "-q")
        assert status == 0
        validated(None, [json.loads(out)])
        lines = [json.loads(line) for line in run_plan(*paths, "--format", "jsonl", "-q")[1].splitlines()]
        validated("line", lines)
        assert [line["type"] for line in lines] == ["partition", "summary"]
        assert {"type": "partition"} | json.loads(out)["partitions"][0] == lines[0]


def test_what_json_says(run_plan: Run, audit: Path) -> None:
    (partition,) = json.loads(run_plan(audit, "--topic", "audit", "--format", "json")[1])["partitions"]
    assert partition["recommended"] == 2
    assert partition["controller"]["isr"] == [1]
    assert [one["at_least"] for one in partition["candidates"]] == [70, 45, 115]
    (loss,) = partition["candidates"][0]["losses"]
    assert (loss["offset_start"], loss["offset_end"], loss["held_by"], loss["records"]) == (300, 370, [2], 70)
    assert loss["witness"] == {"kind": "high_watermark", "broker": 2, "name": None, "end_offset": 370, "said_end_offset": None}
    follower = partition["candidates"][0]["followers"][0]
    assert (follower["truncation_offset_by_checkpoint"], follower["truncation_offset_by_batches"]) == (300, 300)
    assert partition["steps"]["start_order"] == [2, 3, 1]
    assert partition["findings"] == ["UNCLEAN_LOSS"]
    assert partition["missing_witnesses"] == []


def test_rows(run_plan: Run, audit: Path) -> None:
    out = run_plan(audit, "--topic", "audit", "--format", "tsv")[1]
    rows = [line.split("\t") for line in out.splitlines()]
    assert rows[0] == list(COLUMNS)
    assert [row[3:10] for row in rows[1:]] == [
        ["1", "clean", "false", "70", "70", "true", "70"],
        ["2", "unclean", "true", "45", "45", "true", "45"],
        ["3", "unclean", "false", "115", "115", "true", "115"],
    ]
    assert rows[1][12:] == ["[[300, 370, [2]]]", '{"2": 300, "3": 300}', "false"]
    markdown = run_plan(audit, "--topic", "audit", "--format", "markdown")[1]
    assert "| 1 | clean | 2 at 300 | 300 to 369 | 2 | 70 | 4697 | 70 |" in markdown
    assert "**Recommended: broker 2, which loses least" in markdown
    assert "\n```\nkafka-topics.sh --bootstrap-server HOST:PORT --describe --topic audit\n" in markdown


def test_of_several_partitions_those_that_could_lose(run_plan: Run, tmp_path: Path) -> None:
    for partition, ends in (("a-0", (3, 3)), ("b-0", (3, 5)), ("b-1", (4, 4))):
        for broker, end in enumerate(ends, 1):
            put_replica(tmp_path / partition, broker, batch(0, 3) + (batch(3, end - 3) if end > 3 else b""), partition=partition)
    roots = [tmp_path / name for name in ("a-0", "b-0", "b-1")]
    status, out, err = run_plan(*roots, "--format", "table")
    assert status == 0
    assert err == "3 partitions: an election could lose records of 1; with --topic and --partition, one is shown in full\n"
    assert [" ".join(line.split()) for line in out.splitlines()] == [
        "partition elect election lost committed worst worst lost worst committed",
        "b-0 2 not known 0 0 1 2 0",
        "A broker starts for all its partitions at once. Start broker 2, then broker 1,",
        "each when those before it lead what they can: so every partition comes to lose",
        "as little as it can.",
        "Copy what would be lost before any broker starts; who has to be kept down or",
        "forced is in the plan of each partition.",
        "No controller's log is here to say for 3 partitions whether there are further",
        "replicas, which may hold more.",
    ]
    document = json.loads(run_plan(*roots, "--format", "json")[1])
    assert (document["partitions_planned"], document["start_order"]) == (3, {"brokers": [2, 1], "against": []})
    assert (
        run_plan(*roots, "--topic", "a", "--format", "tsv")[2]
        == "1 partition: no election would lose anything that the copies here hold\n"
    )
    quiet = run_plan(*roots, "--topic", "a", "-q", "--format", "table")
    assert "Recommended: broker 1. Nothing that the copies hold would be lost, whoever\nleads: any order will do." in quiet[1]
    assert quiet[2] == ""


def test_partitions_that_want_different_orders_are_told(run_plan: Run, tmp_path: Path) -> None:
    for partition, ends in (("a-0", (3, 5)), ("b-0", (9, 3))):
        for broker, end in enumerate(ends, 1):
            put_replica(tmp_path / partition, broker, batch(0, 3) + (batch(3, end - 3) if end > 3 else b""), partition=partition)
    roots = tmp_path / "a-0", tmp_path / "b-0"
    flat = " ".join(run_plan(*roots, "--format", "table")[1].split())
    assert "no order serves all of these. Least is lost if you start broker 1, then broker 2, each when" in flat
    assert "1 partition would then lose 2 offsets more than in the best order for it, 0 of them proven committed: a-0 (2 is" in flat
    document = json.loads(run_plan(*roots, "--format", "json")[1])
    validated(None, [document])
    against = [{"topic": "a", "partition": 0, "recommended": 2, "leader": 1, "committed": 0, "at_most": 2}]
    assert document["start_order"] == {"brokers": [1, 2], "against": against}
    assert "Least is lost if you start broker 1" in run_plan(*roots, "--format", "markdown")[1]
    alone = json.loads(run_plan(*roots, "--topic", "a", "--format", "json")[1])
    assert alone["start_order"] is None
    assert alone["partitions"][0]["advice"][1].startswith("Plan without --topic and --partition first")


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize(
    ("level", "becomes"), [(14, "delete what it does not know within a minute"), (15, "-stray and serve it no more")]
)
def test_a_topic_that_the_controllers_do_not_know(
    run_plan: Run, tmp_path: Path, format_name: str, level: int, becomes: str
) -> None:
    known = topic("other", OTHER_TOPIC_ID), partition_record([1, 2, 3], 1, topic_id=OTHER_TOPIC_ID)
    brokers = controlled_by(healthy(tmp_path), record(12, name="metadata.version", feature_level=level), *known)
    status, out, err = run_plan(*sorted(brokers.root.iterdir()), "--format", format_name)
    assert status == 0
    assert err == "1 partition: the controller's log does not know it, so that all it holds is at stake\n"
    if format_name in ("json", "jsonl"):
        document = json.loads(out if format_name == "json" else out.splitlines()[0])
        validated(*((None, [document]) if format_name == "json" else ("line", [document])))
        told = document["partitions"][0] if format_name == "json" else document
        assert (told["candidates"], told["steps"], told["ordinary_leaders"]) == ([], None, [])
        proven = [one for one in told["at_stake"] if one["witness"] is not None]
        assert told["ordinary_loss"] == sum(one["committed_end_offset"] - one["offset_start"] for one in proven) > 0
        out = " ".join(told["advice"])
    if format_name == "tsv":
        assert out.splitlines()[1].split("\t")[3:5] == ["", "nobody"]
    else:
        assert becomes in " ".join(out.replace("\\", "").split())
        assert "Do not start a broker" in out


def test_two_ways_to_know_epochs_that_disagree_are_told(run_plan: Run, tmp_path: Path) -> None:
    log = batch(0, 4) + batch(4, 4, epoch=1)
    for broker, checkpoint in ((1, "0\n1\n0 0\n"), (2, "0\n2\n0 0\n1 4\n")):
        log_dir = put_replica(tmp_path, broker, log, topic_id="C" * 21 + "Q")
        (log_dir / "orders-0" / "leader-epoch-checkpoint").write_text(checkpoint)
        (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":5}')
    status, out, err = run_plan(tmp_path, "--format", "table")
    assert status == 0
    told = "no election would lose anything that the copies here hold; checkpoints and batches disagree where to cut"
    assert err == f"1 partition: {told}\n"
    flat = " ".join(out.split())
    assert "If broker 2 leads, broker 1 cuts its log from 8 to 4 and copies the leader from 4 on (by the checkpoints that" in flat
    assert "by the epochs in the batches it would cut at 8)." in flat


@pytest.mark.parametrize("format_name", FORMATS)
def test_nothing_raw_in_any_format(run_plan: Run, tmp_path: Path, format_name: str) -> None:
    put_replica(tmp_path, "\x1b[31mred", batch(0, 3))
    put_replica(tmp_path, "\x9b2J", batch(0, 3) + batch(3, 2))
    status, out, err = run_plan(tmp_path, "--format", format_name)
    assert status == 0
    assert all(each.isprintable() or each in "\n\t" for each in out + err)
    assert "red" in out


def test_questions_that_mean_nothing(run_plan: Run, audit: Path, tmp_path: Path) -> None:
    status, _, err = run_plan(audit, "--topic", "audit", "--elect", "9")
    assert status == 2
    assert "broker 9 cannot lead on these copies" in err
    assert "brokers that can lead here: 1, 2, 3" in err
    assert run_plan(audit, "--topic", "audit", "--truncate-by", "epoch")[0] == 2
    assert run_plan(audit, "--dead", "7")[0] == 2
    assert run_plan(audit, "--engine", "spark")[0] == 2
    assert run_plan(tmp_path / "none")[0] == 2
    for partition in ("a-0", "b-0"):
        put_replica(tmp_path / partition, 1, batch(0, 3), partition=partition)
    status, _, err = run_plan(tmp_path / "a-0", tmp_path / "b-0", "--elect", "1")
    assert status == 2
    assert "--elect needs one partition, 2 are left" in err


def test_nobody_can_lead(run_plan: Run, tmp_path: Path) -> None:
    put_replica(tmp_path, 1, batch(0, 3))
    status, out, _ = run_plan(tmp_path, "--dead", "1", "--format", "table")
    assert status == 0
    assert "No replica can lead on these copies." in out
    assert json.loads(run_plan(tmp_path, "--dead", "1", "--format", "json")[1])["partitions"][0]["recommended"] is None


def test_who_would_not_start_is_told_with_the_reason_and_a_way(run_plan: Run, audit: Path, tmp_path: Path) -> None:
    copies = shutil.copytree(audit, tmp_path / "copies")
    (copies / "broker-3" / "replication-offset-checkpoint").write_text("garbage\n")
    out = run_plan(copies, "--topic", "audit", "--elect", "2", "--format", "table")[1]
    flat = " ".join(out.split())
    reason = "would not start{}, for its replication-offset-checkpoint cannot be read"
    assert f"If broker 2 leads, broker 3 does nothing: it {reason.format('')}." in flat
    assert f"Missing: broker 3 {reason.format(' on this copy')}; it cannot lead." in flat
    assert f"Broker 3 {reason.format(' as it is')}: copy its log directories, move that file out of them (never delete it)" in flat
    assert "Start broker 1 when broker 2 is seen to lead." in flat
    assert "not there" not in flat
    document = json.loads(run_plan(copies, "--topic", "audit", "--format", "json")[1])
    validated(None, [document])
    steps = document["partitions"][0]["steps"]
    assert (steps["start_order"], steps["do_not_start"]) == ([2, 1], [3])


@pytest.mark.parametrize("format_name", ["table", "markdown", "json"])
def test_nobody_would_start(run_plan: Run, tmp_path: Path, format_name: str) -> None:
    log_dir = put_replica(tmp_path, 1, batch(0, 3))
    (log_dir / "orders-0" / "leader-epoch-checkpoint").write_text("9\n")
    flat = " ".join(run_plan(tmp_path, "--format", format_name)[1].replace("\\", "").split())
    assert "Broker 1 would not start as it is, for its leader-epoch-checkpoint cannot be read: copy its log" in flat
    (log_dir / "orders-0" / "leader-epoch-checkpoint").unlink()
    (log_dir / "orders-0" / f"{0:020d}.log").rename(log_dir / "orders-0" / "first.log")
    flat = " ".join(run_plan(tmp_path, "--format", format_name)[1].replace("\\", "").split())
    assert "for first.log there ends its start" in flat


def test_witnesses_that_contradict_each_other_are_told(run_plan: Run, audit: Path, tmp_path: Path) -> None:
    """Broker 2's high watermark lies beyond its log, and its checkpoint knows an epoch that no batch has."""
    shutil.copytree(audit, tmp_path / "copies")
    second = next(path for path in (tmp_path / "copies").iterdir() if path.name.endswith("2"))
    marks = second / "replication-offset-checkpoint"
    marks.write_text(marks.read_text().replace("audit 0 370", "audit 0 400"))
    (second / "audit-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 320\n")
    (second / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":5}')
    place = (tmp_path / "copies", "--topic", "audit", "--partition", "0")
    lines = " ".join(run_plan(*place, "--format", "table")[1].split())
    assert "Contradiction: HW_BEYOND_LEO: audit-0 on broker 2: " in lines
    assert "Contradiction: EPOCH_CACHE_MISMATCH: audit-0 on broker 2: " in lines
    (partition,) = json.loads(run_plan(*place, "--format", "json")[1])["partitions"]
    assert partition["findings"] == ["EPOCH_CACHE_MISMATCH", "HW_BEYOND_LEO", "UNCLEAN_LOSS"]
    assert "Contradiction" not in run_plan(audit, *place[1:], "--format", "table")[1]


def test_an_input_that_cannot_be_read_is_status_3(run_plan: Run, tmp_path: Path) -> None:
    folder = put_replica(tmp_path / "copies", 1, batch(0, 3)).parent
    archive = tmp_path / "copies.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, "copies")
    archive.write_bytes(archive.read_bytes()[:-40])
    status, _, err = run_plan(archive, "-q", "--format", "tsv")
    assert status == 3
    assert err.startswith("incomplete: ")
