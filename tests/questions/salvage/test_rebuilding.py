"""Files that a broker derives from a log, against a naive implementation of its rules, for any chunks."""

import struct

import numpy as np
import pytest
from hypothesis import given, strategies as st

from kafka_forensics.model.files import AbortedTxn, EpochEntry, ProducerEntry
from kafka_forensics.parsers.log import BatchChecks
from kafka_forensics.questions.salvage.rebuilding import IndexBuilder, LeaderEpochBuilder, ProducerStateBuilder, index_interval
from tests.support.segments import BASE_TIMESTAMP, batch, marker, read

BASE_OFFSET = 100
batches = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 9), st.sampled_from((0, 10, 400, 3000, 5000)), st.integers(0, 3)), max_size=25
)


def log_of(shapes: list[tuple[int, int, int, int]]) -> bytes:
    """Batches of (records, timestamp, bytes, increment of the leader epoch), from BASE_OFFSET on."""
    offset, epoch, log = BASE_OFFSET, 0, b""
    for count, moment, size, epoch_step in shapes:
        epoch += epoch_step
        log += batch(offset, count, epoch=epoch, value=bytes(size // count), base_timestamp=BASE_TIMESTAMP + 100 * moment)
        offset += count
    return log


def recovered(log: bytes, interval: int) -> tuple[bytes, bytes]:
    """`.index` and `.timeindex` as LogSegment.recover writes them, from the bytes of the headers alone."""
    index = times = b""
    position = indexed_at = 0
    largest, largest_at, timed = -1, BASE_OFFSET, -1
    while position < len(log):
        base, length = struct.unpack_from(">qi", log, position)
        last = base + struct.unpack_from(">i", log, position + 23)[0]
        (moment,) = struct.unpack_from(">q", log, position + 35)
        if moment > largest:
            largest, largest_at = moment, last
        if position - indexed_at > interval:
            index += struct.pack(">ii", last - BASE_OFFSET, position)
            if largest > timed:
                times, timed = times + struct.pack(">qi", largest, largest_at - BASE_OFFSET), largest
            indexed_at = position
        position += length + 12
    if largest > timed:
        times += struct.pack(">qi", largest, largest_at - BASE_OFFSET)
    return index, times


@given(batches, st.integers(1, 7), st.sampled_from((0, 100, 1024, 4096)))
def test_indexes_are_those_of_recovery_for_any_cuts(shapes: list[tuple[int, int, int, int]], step: int, interval: int) -> None:
    log = log_of(shapes)
    columns = read(log).columns
    indexes, epochs = IndexBuilder(BASE_OFFSET, interval), LeaderEpochBuilder()
    for start in range(0, columns.shape[1], step):
        indexes.step(columns[:, start : start + step])
        epochs.step(columns[:, start : start + step])
    assert indexes.finish() == recovered(log, interval)
    expected: list[EpochEntry] = []
    epoch, offset = 0, BASE_OFFSET
    for count, _, _, epoch_step in shapes:
        epoch += epoch_step
        if not expected or expected[-1].leader_epoch < epoch:
            expected.append(EpochEntry(epoch, offset))
        offset += count
    assert (epochs.entries, epochs.falls) == (expected, False)


def test_falling_epochs_are_noticed_across_chunks() -> None:
    columns = read(batch(0, epoch=3) + batch(1, epoch=2)).columns
    for parts in ([columns], [columns[:, :1], columns[:, 1:]]):
        epochs = LeaderEpochBuilder()
        for part in parts:
            epochs.step(part)
        assert epochs.falls


def of_producer(offset: int, count: int, producer_id: int, sequence: int, *, is_transactional: bool = False) -> bytes:
    """A batch of a producer in its epoch 0."""
    return batch(
        offset, count, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=is_transactional
    )


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(1, 4)), max_size=40), st.integers(2, 50))
def test_the_last_batch_of_each_producer_counts(runs: list[tuple[int, int]], step: int) -> None:
    ids = [producer_id for producer_id, count in runs for _ in range(count)]
    log = b"".join(batch(i, 1) if id_ < 0 else of_producer(i, 1, id_, ids[:i].count(id_)) for i, id_ in enumerate(ids))
    columns = read(log).columns
    replays = ProducerStateBuilder(), ProducerStateBuilder()
    for replay, rows in zip(replays, (1, step), strict=True):
        for start in range(0, columns.shape[1], rows):
            assert replay.step(columns[:, start : start + rows]) == []
    assert sorted(map(str, replays[0].entries())) == sorted(map(str, replays[1].entries()))
    assert {entry.producer_id: entry.last_offset for entry in replays[0].entries()} == {
        id_: i for i, id_ in enumerate(ids) if id_ >= 0
    }


@pytest.mark.parametrize("step", [1, 2, 3, 50])
def test_snapshots_and_transaction_indexes_are_rebuilt(step: int) -> None:
    log = b"".join(
        (
            of_producer(0, 2, 1, 0),
            of_producer(2, 3, 2, 0, is_transactional=True),
            of_producer(5, 1, 1, 2),
            of_producer(6, 2, 3, 7, is_transactional=True),
            of_producer(8, 1, 2, 3, is_transactional=True),
            marker(9, commit=False, producer=2, coordinator_epoch=6),
            marker(10, commit=False, producer=4, coordinator_epoch=6),
            marker(11, commit=True, producer=3, coordinator_epoch=6),
            batch(12, 1),
            of_producer(13, 2, 2, 4, is_transactional=True),
        )
    )
    columns = read(log, inspect=BatchChecks(deep=False)).columns
    replay, aborted = ProducerStateBuilder(), list[AbortedTxn]()
    for start in range(0, columns.shape[1], step):
        aborted += replay.step(np.ascontiguousarray(columns[:, start : start + step]))
    assert aborted == [AbortedTxn(2, 2, 9, 6)]
    by_id = {entry.producer_id: entry for entry in replay.entries()}
    facts = {
        number: (entry.last_sequence, entry.last_offset, entry.offset_delta, entry.current_txn_first_offset)
        for number, entry in by_id.items()
    }
    assert facts == {1: (2, 5, 0, -1), 2: (5, 14, 1, 13), 3: (8, 7, 1, -1), 4: (-1, -1, 0, -1)}
    assert isinstance(by_id[4], ProducerEntry)
    assert by_id[4].coordinator_epoch == 6


def test_the_index_interval_is_that_of_the_topic() -> None:
    assert [index_interval(text) for text in (None, "1024", "", "-1", "4096 ")] == [4096, 1024, 4096, 4096, 4096]
