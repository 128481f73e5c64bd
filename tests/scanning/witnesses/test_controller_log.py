"""The controllers' log read from directories: several copies, snapshots, damage, and logs of real controllers."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

import kafka_forensics as kf
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.controller import ControllerHistory, MetadataRecord, PartitionControl
from kafka_forensics.model.findings import Finding, Place
from kafka_forensics.scanning.engine.local import scan
from kafka_forensics.scanning.witnesses import malformed_records
from kafka_forensics.scanning.witnesses.controller import ControllerEvidence, read_controller
from kafka_forensics.scanning.witnesses.controller_copies import check_snapshot, open_batch
from kafka_forensics.scanning.witnesses.malformed_records import MAX_UNKNOWN_KINDS, UnknownKinds
from kafka_forensics.wording import message
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.gallery.of_controller import BAD, OTHER_ID, lost_member, malformed_twice
from tests.support.brokers import TOPIC, put_meta_properties, put_replica
from tests.support.controllers import (
    CONTROLLER,
    METADATA,
    START_MS,
    ControllerLog,
    partition,
    partition_change,
    put_snapshot,
    record,
    setting,
    snapshot,
    topic,
)
from tests.support.memory import MemoryFile
from tests.support.segments import BASE_TIMESTAMP

CREATED = (topic(), setting("cleanup.policy", "compact"), partition([1, 2], 1))


def evidence(*paths: Path) -> ControllerEvidence:
    found = read_controller(gather([str(path) for path in paths], ScanOptions()))
    assert found is not None
    return found


def history_of(*paths: Path) -> ControllerHistory:
    return evidence(*paths).history


def last(history: ControllerHistory) -> PartitionControl:
    return history.partitions[TOPIC, 0]


def log(*changes: bytes, voters: tuple[int, ...] = (100, 101, 102)) -> ControllerLog:
    written = ControllerLog().lead(list(voters)).append(*CREATED)
    for records in changes:
        written.append(records)
    return written


def put(root: Path, *logs: ControllerLog) -> list[Path]:
    for number, controller_log in enumerate(logs):
        controller_log.put(root / f"c{number}", 100 + number)
    return sorted(root.iterdir())


def problem_of(snapshot_data: bytes) -> str | None:
    return check_snapshot(MemoryFile(snapshot_data), 1).problem


def test_records_on_a_majority_of_the_voters_are_committed(tmp_path: Path) -> None:
    short = log(partition_change(isr=[1]))
    long = short.copy().append(partition_change(leader=2)).append(partition_change(leader=1))
    history = history_of(*put(tmp_path, short, long, long))
    assert (history.voters, history.log_end_offset, history.committed_end_offset) == ([100, 101, 102], 7, 7)
    assert (last(history).leader, last(history).leader_epoch) == (1, 2)
    assert last(history).unknown_after is None


def test_records_in_a_snapshot_are_committed(tmp_path: Path) -> None:
    short, long = log(), log(partition_change(isr=[1]), partition_change(leader=2))
    paths = put(tmp_path, short, short, long)
    assert history_of(*paths).committed_end_offset == 4
    put_snapshot(paths[2] / METADATA, 5, snapshot(*CREATED, partition_change(isr=[1])))
    history = history_of(*paths)
    partition_history = last(history).history
    assert partition_history is not None
    assert (history.committed_end_offset, [event.is_committed for event in partition_history.events]) == (5, [True, True, False])


def test_whether_a_tail_is_committed_is_unknown_without_the_copies_of_all_voters(tmp_path: Path) -> None:
    short = log(partition_change(isr=[1]))
    paths = put(tmp_path, short, short.copy().append(partition_change(leader=2)), short)
    for given_paths, expected in ((paths[:2], None), (paths, False)):
        history = history_of(*given_paths)
        partition_history = last(history).history
        assert partition_history is not None
        assert (partition_history.events[-1].is_committed, history.committed_end_offset) == (expected, 5)
        assert last(history).unknown_after == 5


def test_records_missing_in_one_copy_come_from_another(tmp_path: Path) -> None:
    written = log(partition_change(isr=[1]), partition_change(leader=2))
    written.put(tmp_path / "c0", 100, without=(4,))
    assert (last(history_of(tmp_path / "c0")).leader, last(history_of(tmp_path / "c0")).unknown_after) == (None, 4)
    written.put(tmp_path / "b1", 1, without=(5,))
    history = history_of(tmp_path / "c0", tmp_path / "b1")
    assert (last(history).leader, last(history).isr, last(history).unknown_after) == (2, [1], None)


def test_a_log_that_begins_later_continues_its_snapshot(tmp_path: Path) -> None:
    directory = log(partition_change(isr=[1]), partition_change(leader=2)).put(tmp_path / "c0", start=5)
    assert history_of(tmp_path / "c0").partitions == {}
    state = (topic(), partition([1], 1, leader_epoch=4), setting("cleanup.policy", "compact"))
    (directory / "00000000000000000005-0000000001.checkpoint").write_bytes(snapshot(*state))
    history = history_of(tmp_path / "c0")
    assert (last(history).leader, last(history).leader_epoch) == (2, 5)
    assert (last(history).cleanup_policy, history.unknown_after) == ("compact", None)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (snapshot(topic(), footer=False), "no_footer"),
        (snapshot(topic())[200:], "damaged"),
        (write_batch([RecordToWrite(None, topic())], base_offset=0, base_timestamp=1), "no_header"),
        (b"", "no_footer"),
    ],
)
def test_a_damaged_snapshot_is_reported_and_not_used(tmp_path: Path, data: bytes, reason: str) -> None:
    (log().put(tmp_path / "c0", start=1) / "00000000000000000001-0000000001.checkpoint").write_bytes(data)
    found = evidence(tmp_path / "c0")
    assert [(finding.kind, finding.evidence["reason"]) for finding in found.findings] == [("METADATA_RECORD_MALFORMED", reason)]
    assert found.history.partitions[TOPIC, 0].leader == 1
    assert problem_of(data) == reason


def test_every_damaged_copy_of_a_snapshot_is_reported_and_a_good_one_is_used(tmp_path: Path) -> None:
    state = snapshot(topic(), partition([1], 1, leader_epoch=4))
    for node in range(4):
        directory = log(partition_change(isr=[1]), partition_change(leader=2)).put(tmp_path / f"c{node}", 100 + node, start=5)
        put_snapshot(directory, 5, state if node == 2 else state[:-1])
    found = evidence(*sorted(tmp_path.iterdir()))
    assert [(finding.place.broker, finding.evidence["reason"]) for finding in found.findings] == [
        (100, "damaged"), (101, "damaged"), (103, "damaged")
    ]  # fmt: skip
    assert (last(found.history).leader, last(found.history).leader_epoch, found.history.unknown_after) == (2, 5, None)


@pytest.mark.parametrize(
    ("snapshots", "leader", "unknown_after"),
    [
        ({2: 7}, None, 2),
        ({2: 7, 5: 8}, 3, None),
        ({2: 7, 4: 8}, None, 4),
        ({2: 7, 7: 8}, 8, None),
        ({7: 8}, 8, None),
        ({9: 8}, 8, None),
    ],
)
def test_state_comes_from_the_newest_snapshot_and_the_records_after_it(
    tmp_path: Path, snapshots: dict[int, int], leader: int | None, unknown_after: int | None
) -> None:
    """A log of [5, 7) with snapshots (offset → leader); the record at 6 elects 3."""
    directory = log(partition_change(isr=[1]), partition_change(isr=[1]), partition_change(leader=3)).put(tmp_path / "c0", start=5)
    for offset, snapshot_leader in snapshots.items():
        put_snapshot(directory, offset, snapshot(topic(), partition([snapshot_leader], snapshot_leader)))
    history = history_of(tmp_path / "c0")
    assert (last(history).leader, last(history).unknown_after, history.unknown_after) == (leader, unknown_after, unknown_after)


def test_a_snapshot_before_a_gap_does_not_fill_it(tmp_path: Path) -> None:
    directory = log(partition_change(isr=[1]), partition_change(leader=2), partition_change(isr=[1])).put(
        tmp_path / "c0", without=(5,)
    )
    put_snapshot(directory, 4, snapshot(topic(), partition([1], 1)))
    assert last(history_of(tmp_path / "c0")).unknown_after == 5
    put_snapshot(directory, 6, snapshot(topic(), partition([2], 2, leader_epoch=1)))
    assert (last(history_of(tmp_path / "c0")).leader, last(history_of(tmp_path / "c0")).isr) == (2, [1])


def test_a_snapshot_of_another_history_is_not_used(tmp_path: Path) -> None:
    other_history = ControllerLog().lead([100], leader_epoch=3).append(*CREATED).append(partition_change(isr=[1]))
    directory = other_history.put(tmp_path / "c0", start=1)
    put_snapshot(directory, 1, snapshot(topic(), partition([1, 2], 1)))
    put_snapshot(directory, 4, snapshot(topic("other", OTHER_ID)))
    assert last(history_of(tmp_path / "c0")).isr == [1]


def test_each_unknown_record_type_has_one_finding_with_its_bytes(tmp_path: Path) -> None:
    unknown, other = b"\1\x63\0abc", b"\1\x64\1"
    directory = log(unknown, other, unknown).put(tmp_path / "c0", start=1)
    (directory / "00000000000000000001-0000000001.checkpoint").write_bytes(snapshot(topic(), unknown, partition([1], 1)))
    found = evidence(tmp_path / "c0")
    seen = [(finding.kind, finding.evidence["api_key"], finding.evidence["records"]) for finding in found.findings]
    assert seen == [("METADATA_RECORD_UNKNOWN", 99, 3), ("METADATA_RECORD_UNKNOWN", 100, 1)]
    assert [finding.evidence["record_bytes"] for finding in found.findings] == [18, 3]
    assert found.history.unknown_records == 4
    assert last(found.history).leader == 1


def test_the_last_of_too_many_findings_counts_all_other_unknown_record_types() -> None:
    unknown = UnknownKinds()
    for api_key in range(MAX_UNKNOWN_KINDS + 9):
        unknown.add(MetadataRecord(api_key, "UNKNOWN", 0, 5, None, "kind"), Place(), [1])
    findings = unknown.findings()
    assert (len(findings), findings[-1].evidence["records_of_other_kinds"]) == (MAX_UNKNOWN_KINDS, 9)
    assert all("records_of_other_kinds" not in finding.evidence for finding in findings[:-1])


def test_a_snapshot_alone_is_a_witness(tmp_path: Path) -> None:
    (ControllerLog().put(tmp_path / "c0") / "00000000000000000009-0000000001.checkpoint").write_bytes(snapshot(*CREATED))
    history = history_of(tmp_path / "c0")
    assert (last(history).leader, history.log_end_offset) == (1, 9)
    assert last(history).unknown_after is None


def test_logs_of_two_clusters_are_not_read(tmp_path: Path) -> None:
    paths = put(tmp_path, log(), log())
    put_meta_properties(paths[1], 101, cluster_id="AAAAAAAAAAAAAAAAAAAAAA")
    assert read_controller(gather([str(path) for path in paths], ScanOptions())) is None
    assert read_controller(gather([str(tmp_path)], ScanOptions(topic_glob="none"), elsewhere=True)) is None


def test_named_nodes_are_voters_by_their_ids(tmp_path: Path) -> None:
    paths = put(tmp_path, log(), log())
    found = read_controller(gather([f"first={paths[0]}", f"second={paths[1]}"], ScanOptions()))
    assert found is not None
    assert found.history.committed_end_offset == 4


def test_the_last_record_of_idle_controllers_gives_the_time_of_their_copy(tmp_path: Path) -> None:
    history = history_of(*put(tmp_path, log(*[record(20)] * 50, voters=(100,))))
    assert (history.last_ms, last(history).as_of_ms) == (START_MS + 51_000, START_MS + 51_000)
    assert history.log_end_offset == 54


def test_undecodable_batches_have_a_record_with_a_problem() -> None:
    assert [record.problem for _, record in open_batch(bytes(80)).records] == ["batch"]
    wrong_count = write_batch([RecordToWrite(None, topic())], base_offset=0, base_timestamp=1, records_count=9)
    assert [record.problem for _, record in open_batch(wrong_count).records] == [None, "batch"]


@given(data=st.binary(max_size=200), at=st.integers(0, 60))
def test_any_bytes_have_an_answer(data: bytes, at: int) -> None:
    batch = write_batch([RecordToWrite(None, data)], base_offset=0, base_timestamp=1)
    assert len(open_batch(batch).records) == 1
    assert open_batch(batch[:at] + data).records is not None
    whole = snapshot(topic())
    assert (problem_of(whole[:at] + data + whole[at:]) is not None) == (data != b"")


def test_logs_of_real_controllers_have_isr_and_policies(archives: Path) -> None:
    history = history_of(archives / "kafka-4.3.0-healthy.tar.xz")
    profiles = history.partitions["profiles", 0]
    assert (profiles.leader, profiles.isr, profiles.cleanup_policy, profiles.was_compacted) == (2, [2, 3, 1], "compact", True)
    assert Counter(control.leader_epoch for control in history.partitions.values()) == {0: 16}
    assert (len(history.topics), len(history.partitions)) == (11, 16)
    assert history.defaults == {"min.insync.replicas": "1"}


def test_a_missing_start_is_not_reported_without_a_controllers_log_of_one_cluster(tmp_path: Path) -> None:
    paths = [log(partition_change(isr=[1])).put(tmp_path / f"c{node}", node, start=4).parent for node in (100, 101)]

    def kinds() -> set[str]:
        return {finding.kind for finding in scan([str(path) for path in paths], ScanOptions(jobs=1)).findings}

    assert "LOG_HEAD_MISSING" in kinds()
    put_meta_properties(paths[1], 101, cluster_id="AAAAAAAAAAAAAAAAAAAAAA")
    assert "LOG_HEAD_MISSING" not in kinds()


def test_records_after_one_of_unknown_type_are_rejected_only_if_a_snapshot_has_the_state(tmp_path: Path) -> None:
    unknown = log(b"\1\x63\0", topic())
    directory = unknown.put(tmp_path / "c0")
    assert [finding.kind for finding in evidence(tmp_path / "c0").findings] == ["METADATA_RECORD_UNKNOWN"]
    put_snapshot(directory, 5, snapshot(*CREATED))
    kinds = [finding.kind for finding in evidence(tmp_path / "c0").findings]
    assert kinds == ["METADATA_RECORD_UNKNOWN", "METADATA_RECORD_REJECTED"]


def test_a_batch_that_ends_before_it_begins_is_left_out(tmp_path: Path) -> None:
    wrong_offsets = write_batch(
        [RecordToWrite(None, setting("retention.ms", "1"), offset_delta=-8)], base_offset=9, base_timestamp=1
    )
    written = log()
    written.batches.append((9, wrong_offsets))
    written.append(partition_change(leader=2)).append(partition_change(leader=1)).put(tmp_path / "c0")
    history = history_of(tmp_path / "c0")
    assert (history.log_end_offset, history.gaps, history.defaults) == (6, [], {})
    assert last(history).leader == 1


@pytest.mark.parametrize(("snapshot_offset", "starts"), [(None, False), (4, False), (5, True)])
def test_a_controller_starts_on_a_log_without_its_start_only_with_a_snapshot(
    tmp_path: Path, snapshot_offset: int | None, starts: bool
) -> None:
    directory = log(partition_change(isr=[1]), partition_change(leader=2)).put(tmp_path / "c0", start=5)
    if snapshot_offset is not None:
        put_snapshot(directory, snapshot_offset, snapshot(topic(), partition([1], 1)))
    [summary] = [row for row in scan([str(tmp_path / "c0")], ScanOptions(jobs=1)).partitions if row.topic == "__cluster_metadata"]
    outlook = summary.replicas[0].recovery
    assert outlook is not None
    assert (outlook.starts, 42 in outlook.checks) == (starts, not starts)


KIND = "METADATA_RECORD_MALFORMED"


def malformed(*paths: Path) -> list[Finding]:
    return [finding for finding in kf.scan([str(path) for path in paths]).findings if finding.kind == KIND]


@pytest.mark.parametrize(("kept", "more"), [(5, None), (4, 1), (3, 2)])
def test_of_the_coordinators_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int, more: int | None) -> None:
    monkeypatch.setattr(malformed_records, "MAX_FINDINGS", kept)
    records = [RecordToWrite(b"\0\x63", b"x", offset_delta=delta) for delta in range(3)]
    for number, several in ((0, records), (1, records[:2])):
        log = write_batch(several, base_offset=0, base_timestamp=BASE_TIMESTAMP)
        put_replica(tmp_path / str(number), 1, log, partition=f"__transaction_state-{number}")
    findings = malformed(*(tmp_path / str(partition) / "broker-1" for partition in (0, 1)))
    assert [finding.place.offset_start for finding in findings] == [0, 1, 2, 0, 1][:kept]
    assert [finding.evidence.get("records_more") for finding in findings] == [*[None] * (kept - 1), more]
    endings = {None: "", 1: "; 1 further record cannot be read either.", 2: "; 2 further records cannot be read either."}
    assert message(findings[-1]).endswith(endings[more])
    assert "further" not in message(findings[0])


def test_of_the_controllers_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = lost_member(tmp_path)
    log = ControllerLog().lead([CONTROLLER]).append(*malformed_twice(BAD["unknown version"][0]))
    log.put(brokers.root / f"c{CONTROLLER}")
    first, _ = malformed(*brokers.log_dirs)
    monkeypatch.setattr(malformed_records, "MAX_FINDINGS", 1)
    (finding,) = malformed(*brokers.log_dirs)
    assert finding.evidence == {**first.evidence, "records_more": 1}
