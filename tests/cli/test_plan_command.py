"""`plan`: output in every format, and exit statuses."""

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.cli.outputs import steps
from kafka_forensics.cli.outputs.plan import COLUMNS
from tests.cli.runs import Run
from tests.gallery.of_replicas import OTHER_TOPIC_ID
from tests.support.brokers import healthy, put_replica
from tests.support.controllers import partition as partition_record, record, topic, with_controller
from tests.support.json_schemas import validate
from tests.support.places import SAMPLES
from tests.support.segments import batch, legacy_entry

PlanText = Callable[..., str]
PlanDocument = Callable[..., Any]
AUDIT = ("--topic", "audit")


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Logs from before Kafka 0.11: broker 2 has other records than broker 1, and fewer."""
    put_replica(tmp_path, 1, [legacy_entry(number) for number in range(10)], partition="ledger-0", high_watermark=10)
    log = b"".join(legacy_entry(number, value=b"other") for number in range(3))
    put_replica(tmp_path, 2, log, partition="ledger-0", high_watermark=3)
    return tmp_path


def test_the_table_shows_candidates_and_the_steps_to_the_recommended_one(run_plan: Run, audit: Path) -> None:
    status, out, err = run_plan(audit, "--topic", "audit", "--partition", "0", "--format", "text")
    assert (status, err.splitlines()[0]) == (0, "1 partition: an election could lose records")
    lines = out.splitlines()
    assert lines[0] == "CRITICAL  1 partition: an election could lose records"
    assert "audit-0: followers truncate by leader epochs (Kafka 0.11 and later); leader 1 in" in lines
    at = next(number for number, line in enumerate(lines) if line.startswith("leader "))
    assert [" ".join(line.split()) for line in lines[at : at + 5]] == [
        "leader election cuts lost offsets held by records bytes committed",
        "1 clean 2 at 300 300 to 369 2 70 4697 70",
        "2 * UNCLEAN 1 at 300 300 to 344 1 45 3243 45",
        "3 UNCLEAN 1 at 300 300 to 344 1 45 3243 45",
        "2 at 300 300 to 369 2 70 4697 70",
    ]
    text = " ".join(out.split())
    assert "Recommended: broker 2, which loses least: 45 records at offsets 300 to 344, on broker 1 alone, all proven" in text
    assert "at least 45 records (proven committed, and on no copy that stays), at most 45." in text
    assert "2. Stop clients and brokers 1, 2 and 3; keep copies of the log directories of broker 1: only they" in text
    assert "5. Start broker 2, and no other yet. 6. If needed, elect it for audit-0, until it leads:" in text
    election = "kafka-leader-election.sh --bootstrap-server HOST:PORT --election-type unclean --topic audit --partition 0"
    assert f"   $ {election}\n" in out.replace(" \\\n        ", "")
    assert "7. Check that broker 2 leads audit-0:" in text
    assert "8. Start broker 1, then broker 3. 9. Produce the records again at the ends of the logs (docs/recover.md):" in text
    assert "grep -H unclean.leader.election.enable server.properties" in text
    assert max(map(len, lines)) <= 80


def test_time_limits_of_commands_cover_the_recovery_of_a_crashed_broker(
    plan_document: PlanDocument, audit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "_BYTES_A_MINUTE", 1000)
    limits = {step["limit_seconds"] for step in plan_document(audit, *AUDIT)["steps"]}
    assert limits == {None, 60 * (2 + (audit / "broker-2" / "audit-0" / f"{0:020d}.log").stat().st_size // 1000)}


def test_a_requested_election_is_shown_with_every_follower(plan_text: PlanText, audit: Path) -> None:
    text = plan_text(audit, *AUDIT, "--elect", "1")
    assert "Requested: broker 1 (recommended: 2): 70 records at offsets 300 to 369, on broker 2 alone" in text
    assert "If broker 1 leads, broker 3 keeps its log and copies the leader from 300 on." in text
    assert "If broker 1 leads, broker 2 cuts its log from 370 to 300 and copies the leader from 300 on." in text
    assert "kafka-leader-election.sh" not in text, "who is in sync need not be forced"


def test_brokers_before_0_11_halt_or_keep_diverging_records(plan_text: PlanText, ledger: Path) -> None:
    text = plan_text(ledger)
    assert "followers truncate to their high watermarks (before Kafka 0.11: the logs have no leader epochs)" in text
    assert (
        "Already happened: broker 2 has lost offsets 0 to 9, which were committed (high watermark 10 of broker 1), when it"
        " truncated to its high watermark or was elected without them: it holds other records at 0 to 2 and nothing at 3 to 9."
        " Broker 1 holds these records."
    ) in text
    assert (
        "If broker 2 leads, broker 1 halts if unclean elections are off, because its log ends at 10, beyond the leader's 3"
        ' ("log truncation is not allowed"); if they are on, it cuts its log from 10 to 3, keeps its different records at 0 to 2'
        " permanently, and copies the leader from 3 on."
    ) in text
    assert "Missing: no given controllers' log shows who is in sync" in text
    assert "Move the directory ledger-0 of broker 2 out of its log directory (never delete it)" in text
    assert "at least 0 records" in text
    assert "at most 3 in the given copies." in text
    by_epochs = "followers truncate by leader epochs (Kafka 0.11 and later, as requested)"
    assert by_epochs in plan_text(ledger, "--truncate-by", "epochs")


def test_json_obeys_its_schema_and_agrees_with_json_lines(
    run_plan: Run, plan_document: PlanDocument, audit: Path, ledger: Path
) -> None:
    for arguments in ((audit, *AUDIT, "--elect", "3"), (ledger, "--dead", "1")):
        document = plan_document(*arguments)
        lines = [json.loads(line) for line in run_plan(*arguments, "--format", "jsonl", "-q")[1].splitlines()]
        validate("plan", *lines, definition="line")
        assert [line["type"] for line in lines] == ["partition", "summary"]
        assert {"type": "partition"} | document["partitions"][0] == lines[0]
    (partition,) = plan_document(audit, *AUDIT)["partitions"]
    assert (partition["recommended"], partition["controller"]["isr"]) == (2, [1])
    assert [row["at_least"] for row in partition["candidates"]] == [70, 45, 115]
    (loss,) = partition["candidates"][0]["losses"]
    assert (loss["offset_start"], loss["offset_end"], loss["held_by"], loss["records"]) == (300, 370, [2], 70)
    assert loss["witness"] == {"kind": "high_watermark", "broker": 2, "name": None, "end_offset": 370, "claimed_end_offset": None}
    follower = partition["candidates"][0]["followers"][0]
    assert (follower["truncation_offset_by_checkpoint"], follower["truncation_offset_by_batches"]) == (300, 300)
    assert (partition["findings"], partition["missing_witnesses"]) == (["UNCLEAN_LOSS"], [])


def test_tsv_and_markdown_have_the_columns_of_candidates(run_plan: Run, audit: Path) -> None:
    rows = [line.split("\t") for line in run_plan(audit, *AUDIT, "--format", "tsv")[1].splitlines()]
    assert rows[0] == list(COLUMNS)
    assert [row[3:10] for row in rows[1:]] == [
        ["1", "clean", "false", "70", "70", "true", "70"],
        ["2", "unclean", "true", "45", "45", "true", "45"],
        ["3", "unclean", "false", "115", "115", "true", "115"],
    ]
    assert rows[1][12:] == ["[[300, 370, [2]]]", '{"2": 300, "3": 300}', "false"]
    markdown = run_plan(audit, *AUDIT, "--format", "markdown")[1]
    assert "| 1 | clean | 2 at 300 | 300 to 369 | 2 | 70 | 4697 | 70 |" in markdown
    command = "kafka-forensics verify PATH... --live --against plan.json --recovered lost"
    text = "10. When all replicas are in sync, copy their logs, check, and start clients:"
    assert f"\n{text}\n\n    ```sh\n    {command}\n    ```\n" in markdown
    assert "```sh\nkafka-forensics plan " in markdown.partition("## Steps")[0]


# The overview of several partitions.


def put_partitions(folder: Path, ends: dict[str, tuple[int, ...]], high_watermark: int = 0) -> list[Path]:
    """Write replicas on brokers 1, 2, … with these log ends, and return the folder of each partition."""
    for partition, ends_of_brokers in ends.items():
        for broker, end in enumerate(ends_of_brokers, 1):
            log = batch(0, 3) + (batch(3, end - 3) if end > 3 else b"")
            put_replica(folder / partition, broker, log, partition=partition, high_watermark=high_watermark)
    return [folder / partition for partition in ends]


def test_the_overview_lists_partitions_that_could_lose_records(run_plan: Run, plan_document: PlanDocument, tmp_path: Path) -> None:
    roots = put_partitions(tmp_path, {"a-0": (3, 3), "b-0": (3, 5), "b-1": (4, 4)})
    status, out, err = run_plan(*roots, "--format", "text")
    assert status == 0
    summary = "3 partitions: an election could lose records of 1"
    assert err.splitlines()[0] == summary
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == "ERROR 3 partitions: an election could lose records of 1"
    first = lines.index("partition elect election offsets at worst")
    assert lines[first + 1 : first + 4] == [
        "b-0 2 not known 2",
        "No given controllers' log shows for 3 partitions whether there are further",
        "replicas, which may hold more.",
    ]
    document = plan_document(*roots)
    kinds = ["check_replicas", "stop", "check_unclean", "controllers", "start", "elect", "leads", "start", "verify"]
    assert (document["partitions_planned"], [step["kind"] for step in document["steps"]]) == (3, kinds)
    assert [step["brokers"] for step in document["steps"] if step["kind"] == "start"] == [[2], [1]]
    assert "; settings that only a controllers' log shows may allow them, too" in document["steps"][2]["text"]
    assert document["assignment_unknown"] == [{"kind": "no_controller_log", "partitions": 3}]
    status, _, err = run_plan(*roots, "--elect", "1")
    assert (status, "--elect needs one partition, 3 are left" in err) == (2, True)
    assert run_plan(*roots, "--topic", "a", "-q")[2] == ""


def test_different_leaders_of_partitions_are_elected_one_after_another(
    plan_text: PlanText, plan_document: PlanDocument, tmp_path: Path
) -> None:
    roots = put_partitions(tmp_path, {"a-0": (3, 5), "b-0": (9, 3)})
    steps = [(step["kind"], step["brokers"]) for step in plan_document(*roots)["steps"]]
    steps_of_first = [("start", [1]), ("elect", [1]), ("leads", [1]), ("stop", [1])]
    steps_of_second = [("start", [2]), ("elect", [2]), ("leads", [2]), ("start", [1])]
    assert steps[-9:] == [*steps_of_first, *steps_of_second, ("verify", [])]
    text = plan_text(*roots)
    assert "Set unclean.leader.election.enable=false in server.properties of every node before it starts:" in text
    assert "Check that broker 1 leads b-0, with only 1 in ISR, and an empty ELR:" in text


def test_equal_partitions_share_a_line_and_a_command(run_plan: Run, plan_text: PlanText, tmp_path: Path) -> None:
    roots = put_partitions(tmp_path, {f"a-{number}": (3, 5) for number in range(12)})
    assert "a-0 to a-11 2 not known 24" in plan_text(*roots)
    document = json.loads(run_plan(*roots, "--files", tmp_path / "files", "--format", "json")[1])
    (step,) = [step for step in document["steps"] if step["kind"] == "elect"]
    assert step["partitions"] == [{"topic": "a", "partition_start": 0, "partition_end": 12}]
    assert step["command"].endswith(f" --path-to-json-file {tmp_path / 'files' / 'election-1.json'}")
    listed = json.loads((tmp_path / "files" / "election-1.json").read_text())
    assert listed == {"partitions": [{"topic": "a", "partition": number} for number in range(12)]}
    assert "--output plan.json --files steps" in plan_text(*roots)


def test_the_overview_names_absent_copies(run_plan: Run, plan_text: PlanText, plan_document: PlanDocument) -> None:
    copy = SAMPLES / "unclean-election" / "broker-1"
    document = plan_document(copy)
    count = document["partitions_planned"]
    assert document["copies_absent"] == [{"broker": 2, "partitions": count}, {"broker": 3, "partitions": count}]
    note = f"No copy of brokers 2 and 3 was given for {count} partitions: this plan does not count records that only they hold."
    assert note in plan_text(copy)
    err = run_plan(copy, "--format", "tsv")[2]
    assert err.startswith(f"{count} partitions: no election would lose anything that the copies here hold")
    assert note in err


def test_without_a_possible_leader_all_records_are_at_stake(
    run_plan: Run, plan_text: PlanText, plan_document: PlanDocument, tmp_path: Path
) -> None:
    roots = put_partitions(tmp_path, {"a-0": (3, 3), "b-0": (3,)}, high_watermark=2)
    _, out, err = run_plan(*roots, "--dead", "1", "--format", "text")
    summary = "no replica can lead 1: all that it holds is at stake"
    assert err.splitlines()[0] == f"2 partitions: {summary}"
    assert "b-0 impossible 3 2 3" in [" ".join(line.split()) for line in out.splitlines()]
    (partition,) = plan_document(*roots, "--dead", "1")["partitions"]
    assert [(row["offset_start"], row["offset_end"], row["committed_end_offset"]) for row in partition["at_stake"]] == [(0, 3, 2)]
    assert partition["recommended"] is None
    assert partition["advice"] == [
        "No replica can lead with these copies.",
        "All their records are at stake: 3 records, 2 of them proven committed.",
    ]
    assert partition["advice"][0] in plan_text(roots[1], "--dead", "1")
    rows = [line.split("\t") for line in run_plan(*roots, "--dead", "1", "--format", "tsv")[1].splitlines()]
    assert rows[1][3:10] == ["", "no_replica", "false", "2", "3", "false", "2"]


@pytest.mark.parametrize(
    ("level", "consequence"), [(14, "delete unknown topics within a minute"), (15, "-stray and stop serving them")]
)
def test_a_topic_unknown_to_the_controllers_is_at_stake(
    run_plan: Run, plan_text: PlanText, plan_document: PlanDocument, tmp_path: Path, level: int, consequence: str
) -> None:
    other_topic = topic("other", OTHER_TOPIC_ID), partition_record([1, 2, 3], 1, topic_id=OTHER_TOPIC_ID)
    brokers = with_controller(healthy(tmp_path), record(12, name="metadata.version", feature_level=level), *other_topic)
    paths = sorted(brokers.root.iterdir())
    status, out, err = run_plan(*paths, "--format", "tsv")
    assert (status, out.splitlines()[1].split("\t")[3:5]) == (0, ["", "no_replica"])
    assert err == "1 partition: the controllers' log does not have it: all that it holds is at stake\n"
    document = plan_document(*paths)
    (partition,) = document["partitions"]
    assert (partition["candidates"], partition["ordinary_leaders"]) == ([], [])
    proven = [row for row in partition["at_stake"] if row["witness"] is not None]
    assert partition["ordinary_loss"] == sum(row["committed_end_offset"] - row["offset_start"] for row in proven) > 0
    for text in (document["steps"][0]["text"], plan_text(*paths)):
        assert (consequence in text, "Do not start a broker" in text) == (True, True)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--elect", "9"), "broker 9 cannot lead with these copies\nhint: brokers that can lead here: 1, 2, 3"),
        (("--truncate-by", "epoch"), "epochs"),
        (("--dead", "7"), "no copy belongs to broker 7"),
    ],
)
def test_invalid_options_are_refused(run_plan: Run, audit: Path, arguments: tuple[str, ...], error: str) -> None:
    status, out, err = run_plan(audit, *AUDIT, *arguments)
    assert (status, out, error in err) == (2, "", True)


def test_an_unreadable_input_gives_status_3(run_plan: Run, tmp_path: Path) -> None:
    folder = put_replica(tmp_path / "copies", 1, batch(0, 3)).parent
    archive = tmp_path / "copies.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, "copies")
    archive.write_bytes(archive.read_bytes()[:-40])
    status, _, err = run_plan(archive, "-q", "--format", "tsv")
    assert (status, err.startswith("incomplete: ")) == (3, True)
