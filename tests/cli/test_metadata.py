"""The `metadata` command: output in every format, and exit statuses."""

import json
from functools import partial
from pathlib import Path

import pytest

from kafka_forensics.cli.commands.metadata import COLUMNS
from tests.cli.runs import Run
from tests.support.brokers import TOPIC_ID
from tests.support.controllers import ControllerLog, partition, partition_change, record, topic
from tests.support.places import SAMPLES

OTHER_ID = "AAECAwQFBgcICQoLDA0ODw"
pytestmark = pytest.mark.usefixtures("wide")


@pytest.fixture
def run(run: Run) -> Run:
    """`metadata` with these arguments: exit status, stdout, stderr."""
    return partial(run, "metadata")


def put_controller(root: Path, *values: bytes) -> Path:
    log = ControllerLog().lead([100])
    for value in values:
        log.append(value)
    log.put(root / "c100")
    return root / "c100"


def test_a_gap_after_a_missing_segment_is_reported(run: Run, tmp_path: Path) -> None:
    log = ControllerLog().lead([100])
    for value in (topic(), partition([1, 2], 1), partition_change(isr=[1]), partition_change(isr=[1, 2])):
        log.append(value)
    log.put(tmp_path / "c100", without=(3,))
    status, _, err = run(tmp_path / "c100")
    assert status == 0
    assert "warning: 1 offset of __cluster_metadata (3) missing in every copy: changes there are not shown" in err
    log.put(tmp_path / "c100")
    assert "missing in every copy" not in run(tmp_path / "c100")[2]


def test_the_sample_shows_the_unclean_election_with_its_time_and_cost(run: Run) -> None:
    brokers = sorted((SAMPLES / "unclean-election").glob("broker-*"))
    status, out, err = run(*brokers, "--topic", "audit", "--format", "json")
    assert status == 0
    [election] = [row for row in json.loads(out) if row["is_unclean"]]
    assert (election["loss"], election["lost_start_offset"], election["lost_end_offset"]) == ("lost", 300, 370)
    assert (election["previous_leader"], election["leader"], election["isr"]) == (2, 1, [1])
    assert election["timestamp"].startswith("20")
    assert "1 unclean election" in err
    assert "in these copies no majority of the voters has it" in err
    _, table, _ = run(*brokers, "--topic", "audit", "--format", "text")
    assert "UNCLEAN election: cost offsets 300 to 369" in table


def test_rows_have_all_columns(run: Run, tmp_path: Path) -> None:
    path = put_controller(
        tmp_path, topic(), partition([1, 2], 1), partition_change(leader=2, isr=[2]), record(9, topic_id=TOPIC_ID)
    )
    created, changed, deleted = json.loads(run(path, "--format", "json")[1])
    assert tuple(created) == tuple(COLUMNS)
    assert [row["event"] for row in (created, changed, deleted)] == ["created", "changed", "deleted"]
    assert (created["timestamp_ms"], created["timestamp"]) == (1_700_001_002_000, "2023-11-14T22:30:02.000Z")
    assert (changed["leader"], changed["leader_epoch"], changed["partition_epoch"], changed["isr"]) == (2, 1, 1, [2])
    assert (changed["is_committed"], changed["is_unclean"], changed["unknown_after"], changed["loss"]) == (True, False, None, None)


def test_topic_and_partition_select_rows(run: Run, tmp_path: Path) -> None:
    others = (topic("u", OTHER_ID), partition([1], 1, topic_id=OTHER_ID), partition([1], 1, topic_id=OTHER_ID, partition_id=7))
    path = put_controller(tmp_path, topic(), partition([1], 1), *others)
    _, out, _ = run(path, "--topic", "u*", "--partition", 7, "--format", "tsv")
    assert [line.split("\t")[:2] for line in out.splitlines()[1:]] == [["u", "7"]]


def test_epochs_after_a_malformed_record_are_unknown(run: Run, tmp_path: Path) -> None:
    path = put_controller(tmp_path, topic(), partition([1, 2], 1), b"\1\5\x63", partition_change(leader=2, isr=[2]))
    status, out, err = run(path, "--format", "jsonl")
    last = json.loads(out.splitlines()[-1])
    assert (status, last["leader_epoch"], last["unknown_after"]) == (0, None, 3)
    assert "error: " in err
    _, table, _ = run(path, "--format", "text")
    assert "unknown what changed after offset 2" in table


def test_every_change_has_a_note(run: Run, tmp_path: Path) -> None:
    first, second, unassigned = b"1" * 16, b"2" * 16, bytes(16)
    notes = {
        "created": partition([1, 2, 3], 1),
        "ISR -2,3": partition_change(isr=[1]),
        "no leader; ISR -1; ELR +1": partition_change(leader=-1, isr=[], eligible_leader_replicas=[1]),
        "leader 1": partition_change(leader=1),
        "new epoch of the same leader": partition_change(leader=1),
        "replicas reassigned": partition_change(replicas=[1, 2]),
        "leader 2; ISR +2; UNCLEAN election: no copy of this partition was given": partition_change(
            leader=2, isr=[2], leader_recovery_state=1
        ),
        "leader recovered": partition_change(leader_recovery_state=0),
        "log directory of 1,2 assigned": partition_change(directories=[unassigned, first]),
        "log directory of 1 assigned": partition_change(directories=[second, first]),
        "log directory of 2 changed": partition_change(directories=[second, second]),
        "adding 3": partition_change(adding_replicas=[3]),
        "no longer adding 3": partition_change(adding_replicas=[]),
        "nothing but the partition epoch": partition_change(isr=[2]),
        "last known ELR +2": partition_change(last_known_elr=[2]),
    }
    _, out, _ = run(put_controller(tmp_path, topic(), *notes.values()), "--format", "text")
    for line, expected in zip(out.splitlines()[1:], notes, strict=True):
        assert line.endswith(f"  {expected}")


def test_a_missing_controllers_log_is_reported(run: Run, tmp_path: Path) -> None:
    message = (
        "nothing to show: no copy of __cluster_metadata is among the inputs; give the log directories of every broker, whole\n"
    )
    assert run(SAMPLES / "silent-divergence" / "broker-1", "--format", "text") == (0, "", message)
    assert run(tmp_path / "absent")[0] == 2


def test_text_of_many_partitions_begins_with_the_worst_and_is_short(run: Run, tmp_path: Path) -> None:
    sample = SAMPLES / "unclean-election"
    _, out, _ = run(sample)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines == [
        "partitions at the end of the log state leader ISR ELR",
        "12 partitions of 10 topics NO LEADER none - 2",
        "audit-0 replicas not in sync 1 1 -",
        "",
        "unclean elections first at leader cost",
        "audit-0 2026-11-21T03:56:10.014Z 2 → 1 70 offsets",
        "",
        "125 changes: -v lists all, --topic and --partition those of one partition",
    ]
    assert len(run(sample, "-v")[1].splitlines()) == 126
    # Every partition has another state and another election.
    changes = list[bytes]()
    for number in range(20):
        changes += [partition([1, 2, 3 + number], 1, partition_id=number)]
        leader = partition_change(partition_id=number, leader=3 + number, isr=[3 + number], leader_recovery_state=1)
        changes += [partition_change(partition_id=number, isr=[1]), leader]
    _, out, _ = run(put_controller(tmp_path, topic(), *changes))
    assert len(out.splitlines()) <= 40
    assert out.count("t-7 to t-19 more\n") == 2


def test_a_state_that_is_not_committed_is_no_fact(run: Run, tmp_path: Path) -> None:
    """The leader of three controllers wrote the last election of t-0 alone."""
    log = ControllerLog().lead([100, 101, 102]).append(topic())
    for number in range(20):
        log.append(partition([1, 2], 1, partition_id=number))
    elected = log.copy().append(partition_change(leader=2, isr=[2], leader_recovery_state=1))
    for node, copy in ((100, elected), (101, log), (102, log)):
        copy.put(tmp_path / f"c{node}", node)
    lines = [" ".join(line.split()) for line in run(tmp_path)[1].splitlines()]
    assert lines[1:3] == ["t-0 not committed ? ? ?", "t-1 to t-19 all in sync"]
    assert lines[5] == "t-0 2023-11-14T22:30:22.000Z 1 → 2 not committed: on no majority of the voters"
