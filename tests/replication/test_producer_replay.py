"""Faults in the replay of producers that stop a start, by Kafka's rules."""

import pytest
from msgspec.structs import replace

from kafka_forensics.model.constants import MAX_SEQUENCE
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.replication import recovery
from kafka_forensics.replication.acks import NumberedBatch, SequenceVerdict, sequence_verdict
from kafka_forensics.replication.epochs import assign_epoch

P, Q = 1, 2


def batch(
    offset: int, producer_id: int = P, marker: recovery.MarkerContent | None = None, *, txn: bool = True
) -> recovery.ReplayedBatch:
    return recovery.ReplayedBatch(offset * 100, offset, producer_id, txn, marker)


def first_fault(*batches: recovery.ReplayedBatch, opened: tuple[int, ...] = ()) -> recovery.ReplayFault | None:
    replay = recovery.ProducerReplay(set(opened))
    replay.begin(0)
    return next((fault for fault in map(replay.step, batches) if fault is not None), None)


def test_ordinary_histories_have_no_fault() -> None:
    assert (
        first_fault(
            batch(0),
            batch(1),
            batch(2, marker=recovery.MarkerContent.COMMIT),
            batch(3),
            batch(4, marker=recovery.MarkerContent.ABORT),
        )
        is None
    )
    assert first_fault(batch(0, txn=False), batch(1, Q), batch(2, txn=False)) is None
    assert first_fault(batch(0, marker=recovery.MarkerContent.ABORT), batch(1, marker=recovery.MarkerContent.EMPTY)) is None
    assert first_fault(batch(0), batch(1, marker=recovery.MarkerContent.COMMIT), batch(2, txn=False)) is None


@pytest.mark.parametrize("opened", [False, True])
def test_data_outside_an_open_transaction_stops_the_start(opened: bool) -> None:
    replay_fault = first_fault(*([] if opened else [batch(0)]), batch(5, txn=False), opened=(P,) if opened else ())
    assert replay_fault == recovery.ReplayFault(0, 500, 5, 26)


def test_unreadable_markers_stop_the_start() -> None:
    assert first_fault(batch(3, marker=recovery.MarkerContent.INVALID)) == recovery.ReplayFault(0, 300, 3, 26)


def test_aborts_out_of_order_stop_the_start_within_one_segment() -> None:
    batches_before = (batch(1), batch(2, Q), batch(9, marker=recovery.MarkerContent.ABORT))
    again = batch(9, Q, recovery.MarkerContent.ABORT)
    assert first_fault(*batches_before, again) == recovery.ReplayFault(0, 900, 9, 27)
    assert first_fault(*batches_before, replace(again, marker=recovery.MarkerContent.COMMIT)) is None
    assert first_fault(*batches_before, batch(9, 3, recovery.MarkerContent.ABORT)) is None
    replay = recovery.ProducerReplay(set())
    for segment, batches in ((0, batches_before), (20, (again,))):
        replay.begin(segment)
        assert [replay.step(replayed_batch) for replayed_batch in batches] == [None] * len(batches)


def log(*faults: recovery.ReplayFault, **fields: object) -> recovery.LogFacts:
    segments = tuple(recovery.SegmentFacts(base, 1000, base + 10, base + 10) for base in (0, 10, 20))
    names = tuple(
        recovery.segment_file(segment_facts.base_offset, suffix)
        for segment_facts in segments
        for suffix in ("log", "index", "timeindex")
    )
    facts = recovery.LogFacts(segments, 30, clean_shutdown=False, recovery_point=10, files=names, faults=faults)
    return replace(facts, **fields)


def fault(offset: int, check: int = 26) -> recovery.ReplayFault:
    return recovery.ReplayFault(offset // 10 * 10, 300, offset, check)


def test_batches_after_a_truncation_are_not_replayed() -> None:
    facts = log(fault(13))
    cut = replace(facts.segments[1], stop=recovery.RecoveryStop(200, 12, 22))
    assert not recovery.load_forecast(replace(facts, segments=(facts.segments[0], cut, facts.segments[2]))).refused


def test_batches_below_the_recovery_point_are_replayed_unless_a_snapshot_covers_them() -> None:
    assert recovery.replayed_from(log()) == 0
    assert recovery.load_forecast(log(fault(5))).refused
    assert not recovery.load_forecast(log(fault(5, 27))).refused
    covered = log(fault(5), snapshots=(recovery.SnapshotFacts(10),))
    assert (recovery.replayed_from(covered), recovery.load_forecast(covered).refused) == (10, False)
    assert recovery.load_forecast(replace(covered, snapshots=(recovery.SnapshotFacts(10, sound=False),))).refused


SIX = [NumberedBatch(0, 2 * number, 2) for number in range(6)]


@pytest.mark.parametrize(
    ("batch", "epoch", "previous", "verdict"),
    [
        (NumberedBatch(0, 7, 1), None, [], SequenceVerdict.APPEND),
        (NumberedBatch(0, 12, 2), 0, SIX, SequenceVerdict.APPEND),
        (NumberedBatch(0, 10, 2), 0, SIX, SequenceVerdict.DUPLICATE),
        (NumberedBatch(0, 2, 2), 0, SIX, SequenceVerdict.DUPLICATE),
        (NumberedBatch(0, 0, 2), 0, SIX, SequenceVerdict.OUT_OF_ORDER),
        (NumberedBatch(0, 10, 1), 0, SIX, SequenceVerdict.OUT_OF_ORDER),
        (NumberedBatch(0, 13, 1), 0, SIX, SequenceVerdict.OUT_OF_ORDER),
        (NumberedBatch(1, 0, 1), 0, SIX, SequenceVerdict.APPEND),
        (NumberedBatch(1, 12, 1), 0, SIX, SequenceVerdict.OUT_OF_ORDER),
        (NumberedBatch(0, 12, 2), 1, SIX, SequenceVerdict.FENCED),
        (NumberedBatch(0, 10, 2), 1, SIX, SequenceVerdict.FENCED),
        (NumberedBatch(1, 0, 1), 1, SIX, SequenceVerdict.APPEND),
        (NumberedBatch(0, 0, 1), 0, [NumberedBatch(0, MAX_SEQUENCE - 1, 2)], SequenceVerdict.APPEND),
        (NumberedBatch(0, 1, 1), 0, [NumberedBatch(0, MAX_SEQUENCE, 2)], SequenceVerdict.APPEND),
    ],
)
def test_a_batch_is_appended_or_refused_by_its_sequence_and_epoch(
    batch: NumberedBatch, epoch: int | None, previous: list[NumberedBatch], verdict: SequenceVerdict
) -> None:
    assert sequence_verdict(batch, epoch, previous) is verdict


def test_sequence_numbers_wrap() -> None:
    assert NumberedBatch(0, MAX_SEQUENCE, 3).last_sequence == 1
    assert NumberedBatch(0, 5, 1).last_sequence == 5


@pytest.mark.parametrize(
    ("assigned", "expected"),
    [
        ((3, 30), [(0, 0), (1, 10), (2, 20), (3, 30)]),
        ((3, 20), [(0, 0), (1, 10), (3, 20)]),
        ((3, 15), [(0, 0), (1, 10), (3, 15)]),
        ((1, 25), [(0, 0), (1, 25)]),
        ((3, 0), [(3, 0)]),
    ],
)
def test_a_new_epoch_removes_entries_that_contradict_it(assigned: tuple[int, int], expected: list[tuple[int, int]]) -> None:
    cache = [EpochEntry(0, 0), EpochEntry(1, 10), EpochEntry(2, 20)]
    assign_epoch(cache, EpochEntry(*assigned))
    assert cache == [EpochEntry(*entry) for entry in expected]
