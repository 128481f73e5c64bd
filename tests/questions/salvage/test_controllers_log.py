"""The controllers' log is copied whole from one voter if a majority of the voters' copies is whole, and refused otherwise."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.questions.salvage import MANIFEST, Refused, Salvaged, SalvagedPartition
from kafka_forensics.writers.files import write_meta_properties, write_quorum_state
from tests.questions.salvage.salvaged import batches_of, check_output, of_first, salvaged_of
from tests.support.brokers import put_epochs, put_meta_properties, put_replica, put_topic_id
from tests.support.controllers import ControllerLog, control, put_snapshot, raw_id, snapshot, snapshot_file, topic
from tests.support.segments import flip_bit, segment_file

METADATA = "__cluster_metadata-0"
VOTERS = [1, 2, 3]
ZERO_ID = "A" * 22
DIRECTORIES = {node: f"AAAAAAAAAAAAAAAAAAAA{node}A" for node in range(1, 6)}


def written(*epochs: tuple[int, int], voters: Sequence[int] = VOTERS) -> ControllerLog:
    """A log of these (leader epoch, batches after the leader's own record)."""
    log = ControllerLog()
    for leader_epoch, count in epochs:
        log.lead(list(voters), leader_epoch)
        for number in range(count):
            log.append(topic(f"t{leader_epoch}-{number}"))
    return log


def put(folder: Path, node: int, log: ControllerLog, epoch: int | None = 1, *, start: int = 0, **state: Any) -> Path:
    """A controller's copy as written by Kafka 4.3.0, with the `quorum-state` of a follower in `epoch`; the partition directory."""
    directory = log.put(folder / f"broker-{node}", node, start=start)
    put_topic_id(directory, "AAAAAAAAAAAAAAAAAAAAAQ")
    if epoch is not None:
        voters = state.pop("voters", VOTERS)
        (directory / "quorum-state").write_bytes(write_quorum_state(epoch, state.pop("version", 0), voters, **state))
    return directory


def put_all(folder: Path, logs: dict[int, ControllerLog], epoch: int = 1) -> None:
    for node, log in logs.items():
        put(folder, node, log, epoch)


def damage(folder: Path, node: int, position: int = 200) -> None:
    """Flip a bit of a copy."""
    path = folder / f"broker-{node}" / METADATA / segment_file(0)
    path.write_bytes(flip_bit(path.read_bytes(), position))


def taken(tmp_path: Path, **options: Any) -> SalvagedPartition:
    """The only partition of a salvage, which is whole."""
    salvaged = salvaged_of(tmp_path / "in", tmp_path / "out", **options)
    assert not salvaged.refused, salvaged.refused
    (partition,) = salvaged.partitions
    assert (partition.chosen_by, partition.topic_id) == ("quorum", "AAAAAAAAAAAAAAAAAAAAAQ")
    check_output(tmp_path / "in", tmp_path / "out")
    return partition


def refused(tmp_path: Path, **options: Any) -> Refused:
    """The reason for which the log was refused."""
    salvaged: Salvaged = salvaged_of(tmp_path / "in", tmp_path / "out", **options)
    assert not salvaged.partitions
    (refusal,) = salvaged.refused
    assert (refusal.topic, refusal.kind) == ("__cluster_metadata", "controllers_log")
    assert not of_first(tmp_path / "out", METADATA).exists()
    shutil.rmtree(tmp_path / "out")
    return refusal


def state_of(tmp_path: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((of_first(tmp_path / "out", METADATA) / "quorum-state").read_text())
    return state


def test_the_output_has_the_files_of_a_controller(tmp_path: Path) -> None:
    put_all(tmp_path / "in", {1: written((1, 4)), 2: written((1, 4)), 3: written((1, 4))}, epoch=7)
    taken(tmp_path)
    names = {path.name for path in of_first(tmp_path / "out", METADATA).iterdir()}
    segment = {segment_file(0, suffix) for suffix in ("index", "log", "timeindex")}
    assert names == {*segment, segment_file(5, "snapshot"), "leader-epoch-checkpoint", "partition.metadata", "quorum-state"}
    for path in (tmp_path / "out").glob("*-checkpoint"):
        assert "__cluster_metadata" not in path.read_text()
    assert state_of(tmp_path) == {
        "clusterId": "",
        "leaderId": -1,
        "leaderEpoch": 8,
        "votedId": -1,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": 1}, {"voterId": 2}, {"voterId": 3}],
        "data_version": 0,
    }


def test_the_epoch_is_higher_than_in_any_copy(tmp_path: Path) -> None:
    """The epochs of damaged copies, and of nodes without a vote, also count."""
    put_all(tmp_path / "in", {1: written((1, 4)), 2: written((1, 4))})
    put(tmp_path / "in", 3, written((1, 4)), 5)
    put(tmp_path / "in", 9, written((1, 4), (6, 1)), None)
    damage(tmp_path / "in", 3)
    partition = taken(tmp_path)
    assert partition.base_broker in (1, 2)
    assert state_of(tmp_path)["leaderEpoch"] == 7
    assert [(left.broker, left.start, left.end) for left in partition.left_behind] == [(9, 5, 7)]


def test_copies_of_several_times_or_clusters_or_too_few_are_refused(tmp_path: Path) -> None:
    put_all(tmp_path / "in", dict.fromkeys(VOTERS, written((1, 4))))
    assert "running" in refused(tmp_path, live=True).reason
    meta = tmp_path / "in" / "broker-2" / "meta.properties"
    right = meta.read_bytes()
    meta.write_bytes(write_meta_properties(node_id=2, cluster_id="B" * 22))
    assert "several clusters" in refused(tmp_path).reason
    meta.write_bytes(right)
    damage(tmp_path / "in", 1)
    damage(tmp_path / "in", 3)
    refusal = refused(tmp_path)
    assert refusal.reason == "2 of 3 voters are needed, and 2 was given whole: 1 is damaged; 3 is damaged"
    assert "more controllers" in str(refusal.hint)


def test_a_torn_tail_is_cut_and_the_copy_counts(tmp_path: Path) -> None:
    put_all(tmp_path / "in", {1: written((1, 4)), 2: written((1, 6))})
    torn = tmp_path / "in" / "broker-2" / METADATA / segment_file(0)
    torn.write_bytes(torn.read_bytes()[:-9])
    partition = taken(tmp_path)
    assert (partition.base_broker, partition.log_end_offset) == (2, 6)


def test_unknown_voters_are_refused(tmp_path: Path) -> None:
    for node in VOTERS:
        log = ControllerLog()
        for name in ("a", "b", "c"):
            log.append(topic(name))
        put(tmp_path / "in", node, log, None)
    assert refused(tmp_path).reason == "no file names its voters"


def test_every_set_of_voters_that_is_named_must_have_its_majority(tmp_path: Path) -> None:
    """Configured voters: nothing shows which configuration is the last."""
    put_all(tmp_path / "in", {1: written((1, 4)), 2: written((1, 4))})
    put(tmp_path / "in", 3, written((1, 4)), voters=[3, 4, 5])
    assert "4 was not given; 5 was not given" in refused(tmp_path).reason


def test_a_copy_given_twice_does_not_count(tmp_path: Path) -> None:
    put_all(tmp_path / "in" / "new", {1: written((1, 4)), 2: written((1, 4))})
    put_all(tmp_path / "in" / "old", {2: written((1, 4))})
    assert "2 was given several times" in refused(tmp_path).reason


def test_two_leaders_of_one_epoch_are_refused(tmp_path: Path) -> None:
    other = written((1, 2))
    other.append(topic("another")).append(topic("t1-3"))
    put_all(tmp_path / "in", {1: written((1, 4)), 2: written((1, 4)), 3: other})
    refusal = refused(tmp_path)
    assert "different records of the same leader epoch" in refusal.reason
    assert refusal.offsets == ((3, 5),)


def test_an_epoch_without_a_leaders_record_is_refused(tmp_path: Path) -> None:
    """No CRC covers the epoch of a batch: this one would win every election."""
    log = written((1, 4))
    log.leader_epoch = 77
    log.append(topic("last"))
    put_all(tmp_path / "in", {1: written((1, 4)), 2: log})
    assert "2 has a batch with a leader epoch that no leader began there" in refused(tmp_path).reason


def test_a_copy_that_has_lost_its_end_does_not_count(tmp_path: Path) -> None:
    put_all(tmp_path / "in", {1: written((1, 4)), 2: written((1, 4))}, epoch=3)
    put_epochs(tmp_path / "in" / "broker-2" / METADATA, (1, 0), (3, 9))
    assert "2 has lost its end" in refused(tmp_path).reason


# If the log starts above 0, a snapshot has the records before it.


def put_cut(folder: Path, node: int, start: int = 3, snapshots: Sequence[tuple[int, bytes]] = ()) -> None:
    """A copy without its first records."""
    directory = put(folder, node, written((1, 6)), start=start)
    for offset, data in snapshots:
        put_snapshot(directory, offset, data)


def test_snapshots_are_copied_with_the_log(tmp_path: Path) -> None:
    snapshots = [(3, snapshot(topic("t"))), (5, snapshot(topic("t"), topic("u")))]
    for node in (1, 2):
        put_cut(tmp_path / "in", node, snapshots=snapshots)
    partition = taken(tmp_path)
    assert (partition.log_start_offset, partition.log_end_offset) == (3, 7)
    for offset, data in snapshots:
        assert (of_first(tmp_path / "out", METADATA) / snapshot_file(offset)).read_bytes() == data
    files = json.loads((tmp_path / "out" / MANIFEST).read_text())["partitions"][0]["files"]
    assert [Path(row["file"]).name for row in files] == [snapshot_file(offset) for offset, _ in snapshots]


@pytest.mark.parametrize(
    ("snapshots", "defect"),
    [
        ([], "begins at offset 3, without a snapshot"),
        ([(2, snapshot(topic("t")))], "begins at offset 3, without a snapshot"),
        ([(5, snapshot(topic("t"), footer=False))], "has a snapshot that is not whole"),
        ([(5, flip_bit(snapshot(topic("t")), 160))], "has a snapshot that is not whole"),
        ([(9, snapshot(topic("t")))], "ends before its snapshot"),
    ],
)
def test_without_the_snapshot_a_copy_does_not_count(tmp_path: Path, snapshots: list[tuple[int, bytes]], defect: str) -> None:
    put_cut(tmp_path / "in", 1, snapshots=[(3, snapshot(topic("t")))])
    put_cut(tmp_path / "in", 2, snapshots=snapshots)
    assert f"2 {defect}" in refused(tmp_path).reason


def test_a_snapshot_after_the_end_of_all_logs_proves_later_commits(tmp_path: Path) -> None:
    put_all(tmp_path / "in", {1: written((1, 4)), 2: written((1, 4))})
    put_snapshot(put(tmp_path / "in", 9, written((1, 9))), 8, snapshot(topic("t")))
    assert "a snapshot of committed records up to offset 8" in refused(tmp_path).reason


# All votes must be known, or no election is possible since.


def test_a_quorum_state_may_be_missing_if_others_suffice(tmp_path: Path) -> None:
    put(tmp_path / "in", 1, written((1, 4)), 3)
    put(tmp_path / "in", 2, written((1, 4)), None)
    put(tmp_path / "in", 3, written((1, 4)), 2)
    damage(tmp_path / "in", 3)
    assert taken(tmp_path).unseen == ["voter:3", "quorum_state:2"]
    assert state_of(tmp_path)["leaderEpoch"] == 4


def test_a_possible_unknown_leader_is_refused(tmp_path: Path) -> None:
    """2 may have voted for 3, which may be a later leader."""
    put(tmp_path / "in", 1, written((1, 4)), 3)
    put(tmp_path / "in", 2, written((1, 4)), None)
    assert "the quorum-state of voters 2, 3 is unknown, and 3 may have led" in refused(tmp_path).reason


def test_without_any_quorum_state_all_logs_suffice(tmp_path: Path) -> None:
    for node in VOTERS:
        put(tmp_path / "in", node, written((1, 4), (5, 1)), None)
    assert taken(tmp_path).unseen == [f"quorum_state:{node}" for node in VOTERS]
    assert (state_of(tmp_path)["leaderEpoch"], state_of(tmp_path)["data_version"]) == (6, 0)
    assert [row["voterId"] for row in state_of(tmp_path)["currentVoters"]] == VOTERS


@pytest.mark.parametrize("garbled", [b"", b"\0" * 90, b"{", b"[]", b'{"leaderEpoch":true,"data_version":0}', b"[" * 99_999])
def test_a_malformed_quorum_state_is_ignored(tmp_path: Path, garbled: bytes) -> None:
    put_all(tmp_path / "in", dict.fromkeys(VOTERS, written((1, 4))))
    (tmp_path / "in" / "broker-2" / METADATA / "quorum-state").write_bytes(garbled)
    assert taken(tmp_path).unseen == ["quorum_state:2"]


# Voters in the log (KIP-853).


def voters_record(nodes: Sequence[int]) -> Any:
    feature = {"min_supported_version": 0, "max_supported_version": 1}
    voters = [
        {"voter_id": node, "voter_directory_id": raw_id(DIRECTORIES[node]), "endpoints": [], "kraft_version_feature": feature}
        for node in nodes
    ]
    return control(6, voters=voters)


def dynamic(*sets: Sequence[int], count: int = 3) -> ControllerLog:
    """A log that sets the voters to each of these sets."""
    log = ControllerLog()
    log._append([control(2, leader_id=1, voters=[], granting_voters=[])], is_control_batch=True)
    log._append([control(5, kraft_version=1), voters_record(sets[0])], is_control_batch=True)
    for voters in sets[1:]:
        log.append(topic("between"))
        log._append([voters_record(voters)], is_control_batch=True)
    for number in range(count):
        log.append(topic(f"t{number}"))
    return log


def put_dynamic(folder: Path, node: int, log: ControllerLog, directory_id: str | None = None) -> Path:
    directory = put(folder, node, log, 4, version=1)
    put_meta_properties(folder / f"broker-{node}", node, directory_id=directory_id or DIRECTORIES[node])
    return directory


def test_voters_are_those_of_the_log(tmp_path: Path) -> None:
    log = dynamic([1, 2, 3], [1, 2, 3])
    for node in (2, 3):
        put_dynamic(tmp_path / "in", node, log)
    partition = taken(tmp_path)
    assert partition.quorum is not None
    assert partition.quorum.voters == [1, 2, 3]
    assert state_of(tmp_path) == {"leaderId": -1, "leaderEpoch": 5, "votedId": -1, "votedDirectoryId": ZERO_ID, "data_version": 1}


def test_voters_that_may_not_be_committed_need_both_majorities(tmp_path: Path) -> None:
    log = dynamic([1, 2, 3], [1, 2, 3, 4])
    for node in (3, 4):
        put_dynamic(tmp_path / "in", node, log)
    assert "2 of 3 voters are needed, and 3 was given whole" in refused(tmp_path).reason
    put_dynamic(tmp_path / "in", 2, log)
    assert taken(tmp_path).base_broker in (2, 3, 4)


def test_a_later_snapshot_proves_voters_committed(tmp_path: Path) -> None:
    directory = put_dynamic(tmp_path / "in", 1, dynamic([1, 2], [1]))
    assert "2 of 2 voters are needed" in refused(tmp_path).reason
    put_snapshot(directory, 5, snapshot(topic("between")))
    quorum = taken(tmp_path).quorum
    assert quorum is not None
    assert [*quorum.voters] == [1]


def test_another_directory_of_a_voter_has_no_vote(tmp_path: Path) -> None:
    log = dynamic([1, 2, 3], [1, 2, 3])
    put_dynamic(tmp_path / "in", 2, log)
    put_dynamic(tmp_path / "in", 3, log, DIRECTORIES[5])
    assert "3 votes in another log directory" in refused(tmp_path).reason


def test_a_log_that_has_lost_its_voters_does_not_count(tmp_path: Path) -> None:
    for node in VOTERS:
        put(tmp_path / "in", node, written((1, 4)), version=1)
    assert "1 has lost the record of its voters" in refused(tmp_path).reason


def test_topics_in_the_log_do_not_affect_other_partitions(tmp_path: Path) -> None:
    """Their copies are salvaged as without the log, also if the log does not list the topic."""
    put_all(tmp_path / "in", dict.fromkeys(VOTERS, written((1, 4))))
    for node in VOTERS:
        put_replica(tmp_path / "in", node + 10, batches_of(4), high_watermark=8, epochs=[(0, 0)])
    salvaged = salvaged_of(tmp_path / "in", tmp_path / "out")
    assert salvaged.is_whole
    assert [partition.topic for partition in salvaged.partitions] == ["__cluster_metadata", "orders"]
    placed = {path.parent.parent.name: path.name for path in (tmp_path / "out").glob("broker-*/*/*-0")}
    assert placed == {f"broker-{node}": METADATA for node in VOTERS} | {f"broker-{node + 10}": "orders-0" for node in VOTERS}


def test_a_log_with_only_a_snapshot(tmp_path: Path) -> None:
    """The log is that of a follower that has just fetched a snapshot."""
    for node in (1, 3):
        put_cut(tmp_path / "in", node, start=7, snapshots=[(7, snapshot(topic("t")))])
    partition = taken(tmp_path)
    assert (partition.log_start_offset, partition.log_end_offset, partition.segments) == (7, 7, 1)
    assert state_of(tmp_path)["leaderEpoch"] == 2
