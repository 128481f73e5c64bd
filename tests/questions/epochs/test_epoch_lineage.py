"""Leader epochs by checkpoint, batches and controllers' log, and the status of their agreement."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.batches import Damage
from kafka_forensics.model.controller import PartitionControl, PartitionEvent, PartitionHistory, PartitionState
from kafka_forensics.questions.epochs import DISAGREEMENTS, EpochRow, epoch_lineages, replica_rows
from tests.analysis.replica_logs import Batch, Logs, batches
from tests.support.segments import BASE_TIMESTAMP


def rows_of(
    *runs: tuple[int, str], checkpoint: Sequence[tuple[int, int]] | None = None, start: int = 0, compacted: bool = False
) -> list[EpochRow]:
    return replica_rows(Logs().add(1, batches(*runs, start=start), checkpoint=checkpoint, compacted=compacted))


def statuses(rows: list[EpochRow]) -> list[tuple[int, str]]:
    return [(row.leader_epoch, row.status) for row in rows]


def test_offsets_batches_and_times_of_each_epoch() -> None:
    first, second = rows_of((0, "abc"), (2, "de"), checkpoint=[(0, 0), (2, 3)])
    assert (first.topic, first.partition, first.broker, first.log_dir) == ("t", 0, 1, "broker-1")
    assert (first.checkpoint_start_offset, first.start_offset, first.end_offset, first.batches) == (0, 0, 3, 3)
    assert (second.checkpoint_start_offset, second.start_offset, second.end_offset, second.batches) == (3, 3, 5, 2)
    assert (second.first_timestamp_ms, second.last_timestamp_ms) == (BASE_TIMESTAMP + 1, BASE_TIMESTAMP + 1)
    assert (first.status, second.status, first.controller) == ("agrees", "agrees", None)
    assert (first.truncation_offset_by_checkpoint, first.truncation_offset_by_batches) == (None, None)


def test_first_and_last_timestamps_are_those_of_the_first_and_last_batch() -> None:
    rows = lineages_of_times([5, 9, 3])
    assert (rows[0].first_timestamp_ms, rows[0].last_timestamp_ms) == (5, 3)
    assert lineages_of_times([-1])[0].first_timestamp_ms is None


def lineages_of_times(times: list[int]) -> list[EpochRow]:
    replica = Logs().add(1, batches((0, "a")))
    (run,) = replica.state.epochs.runs
    replica.state.epochs.runs[:] = [replace(run, first_timestamp=times[0], last_timestamp=times[-1])]
    return replica_rows(replica)


@pytest.mark.parametrize(
    ("runs", "checkpoint", "expected"),
    [
        ([(0, "ab")], None, [(0, "no_checkpoint")]),
        ([(0, "ab")], [(0, 0), (1, 2)], [(0, "agrees"), (1, "at_log_end")]),
        ([(0, "ab"), (2, "c")], [(0, 0), (1, 2), (2, 2)], [(0, "agrees"), (1, "wrote_nothing"), (2, "agrees")]),
        ([(0, "ab"), (1, "cd")], [(0, 0), (1, 3)], [(0, "agrees"), (1, "starts_differ")]),
        ([(0, "ab"), (1, "cd")], [(0, 0), (1, 1)], [(0, "agrees"), (1, "starts_differ")]),
        ([(0, "ab"), (1, "cd")], [(0, 0)], [(0, "agrees"), (1, "not_in_checkpoint")]),
        ([(0, "abcd")], [(0, 0), (1, 2)], [(0, "agrees"), (1, "no_batches")]),
        ([(0, "ab"), (7, "c"), (0, "de")], [(0, 0)], [(0, "agrees"), (0, "continues"), (7, "stray")]),
        ([(3, "ab"), (1, "cd")], [(3, 0)], [(1, "regression"), (3, "agrees")]),
    ],
)
def test_status_of_checkpoint_and_batches(
    runs: list[tuple[int, str]], checkpoint: list[tuple[int, int]] | None, expected: list[tuple[int, str]]
) -> None:
    assert statuses(rows_of(*runs, checkpoint=checkpoint)) == expected


def test_removal_by_retention_and_compaction_is_no_disagreement() -> None:
    kept = [(0, 0), (1, 4), (2, 6), (3, 8)]
    seen = statuses(rows_of((2, "ab"), (3, "c"), checkpoint=kept, start=6))
    assert seen == [(0, "below_log_start"), (1, "below_log_start"), (2, "agrees"), (3, "agrees")]
    assert statuses(rows_of((2, "a"), (3, "c"), checkpoint=kept, start=7))[2:] == [(2, "start_removed"), (3, "agrees")]
    cleaned = Logs().add(1, [Batch(0, "a", 0), Batch(7, "b", 2), Batch(9, "c", 3)], checkpoint=kept, compacted=True)
    rows = replica_rows(cleaned)
    assert statuses(rows) == [(0, "agrees"), (1, "compacted_away"), (2, "start_removed"), (3, "start_removed")]
    assert {row.truncation_offset_by_checkpoint for row in rows} == {None}


@pytest.mark.parametrize(
    ("log_start", "checkpoint", "expected"),
    [
        (5, [(2, 5)], [(0, "below_log_start"), (1, "below_log_start"), (2, "start_removed")]),
        (4, [(2, 4)], [(0, "below_log_start"), (1, "below_log_start"), (2, "agrees")]),
        (6, [(2, 6)], [(0, "below_log_start"), (1, "below_log_start"), (2, "start_removed")]),
        (6, [(3, 6)], [(0, "below_log_start"), (1, "below_log_start"), (2, "below_log_start"), (3, "at_log_end")]),
        (3, [(2, 4)], [(0, "below_log_start"), (1, "not_in_checkpoint"), (2, "agrees")]),
    ],
)
def test_deleted_records_still_agree(log_start: int, checkpoint: list[tuple[int, int]], expected: list[tuple[int, str]]) -> None:
    replica = Logs().add(1, batches((0, "ab"), (1, "cd"), (2, "ef")), checkpoint=checkpoint)
    replica.log_start_offset = log_start
    rows = replica_rows(replica)
    assert statuses(rows) == expected
    agree = not any(row.status in DISAGREEMENTS for row in rows)
    assert agree == all(row.truncation_offset_by_checkpoint is None for row in rows)


def event(epoch: int, leader: int, *, kind: str = "changed", unclean: bool = False) -> PartitionEvent:
    state = PartitionState(leader, epoch, epoch, (1,), (), (), (1, 2), (), (), (), 0)
    return PartitionEvent(100 + epoch, 5000 + epoch, kind, state, is_unclean=unclean)


def controlled(replica: Replica, events: list[PartitionEvent], *, dropped: int = 0, unknown_after: int | None = None) -> Replica:
    history = PartitionHistory(events, dropped)
    replica.context.control = PartitionControl(1, 3, [1], [], [1, 2], unknown_after=unknown_after, history=history)
    return replica


def test_rows_have_the_leaders_of_the_controllers_log() -> None:
    replica = Logs().add(1, batches((0, "ab"), (2, "cd")), checkpoint=[(0, 0), (2, 2)])
    events = [event(0, 1, kind="created"), event(0, 1), event(1, -1), event(3, 2, unclean=True), event(9, -1, kind="deleted")]
    rows = replica_rows(controlled(replica, events))
    assert [(row.leader_epoch, row.status, row.leader, row.elected_ms, row.is_unclean, row.controller) for row in rows] == [
        (0, "agrees", 1, 5000, False, "known"),
        (1, "controller_only", -1, 5001, False, "known"),
        (2, "agrees", None, None, None, "unknown"),
        (3, "controller_only", 2, 5003, True, "known"),
    ]


def test_a_snapshot_does_not_tell_when_or_how_a_leader_was_elected() -> None:
    replica = Logs().add(1, batches((0, "ab"), (2, "cd")))
    begun = [event(2, 2, kind="snapshot"), event(2, 2), event(3, 1)]
    expected = [(row.leader_epoch, row.leader, row.elected_ms, row.is_unclean) for row in replica_rows(controlled(replica, begun))]
    assert expected == [(0, None, None, None), (2, 2, None, None), (3, 1, 5003, False)]


@pytest.mark.parametrize("arguments", [{"dropped": 1}, {"unknown_after": 7}])
def test_an_epoch_is_unknown_only_to_a_history_without_holes(arguments: dict[str, int]) -> None:
    replica = Logs().add(1, batches((0, "ab"), (2, "cd")))
    assert [row.controller for row in replica_rows(controlled(replica, [event(1, 1)]))] == [None, "known", "unknown"]
    assert [row.controller for row in replica_rows(controlled(replica, [event(1, 1)], **arguments))] == [None, "known", None]


@pytest.mark.parametrize(("archive", "unclean"), [("kafka-4.3.0-healthy", 0), ("kafka-4.3.0-unclean", 3)])
def test_real_brokers_agree_with_themselves_and_with_their_controller(archives: object, archive: str, unclean: int) -> None:
    found = epoch_lineages([f"{archives}/{archive}.tar.xz"], ScanOptions(deep=False))
    assert [row for row in found.rows if row.status in DISAGREEMENTS or row.controller == "unknown"] == []
    assert found.findings == []
    assert sum(bool(row.is_unclean) for row in found.rows if row.topic == "audit") == unclean


def test_a_malformed_checkpoint_does_not_count() -> None:
    """Kafka refuses the whole file, so that its readable entries neither agree nor disagree."""
    replica = Logs().add(1, batches((0, "ab"), (1, "cd")), checkpoint=[(0, 0)])
    assert replica.context.leader_epochs is not None
    replica.context.leader_epochs.damage.append(Damage("CHECKPOINT_MALFORMED", 0, 1, detail={"reason": "count"}))
    rows = replica_rows(replica)
    assert statuses(rows) == [(0, "malformed_checkpoint"), (1, "malformed_checkpoint")]
    assert {(row.checkpoint_start_offset, row.truncation_offset_by_checkpoint) for row in rows} == {(None, None)}
