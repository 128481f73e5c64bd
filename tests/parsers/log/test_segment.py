"""Reading segments: every byte of any file is accounted for, with windows of any size and in any ranges."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from kafka_forensics.model.batches import BatchColumn, Damage
from kafka_forensics.parsers.log import damage, segment
from kafka_forensics.parsers.log.segment import find_batch
from tests.support.kernels import kernels
from tests.support.memory import MemoryFile
from tests.support.segments import batch, batch_positions, flip_bit, legacy_entry, log, read, small_windows
from tests.support.strategies import any_segments


def test_a_sound_segment_gives_its_batches_without_damage() -> None:
    batches = [legacy_entry(0, 0), legacy_entry(1, 1), *log(5, start=2)]
    reading = read(b"".join(batches))
    assert (reading.damage, reading.base_offsets) == ([], [0, 1, 2, 4, 6, 8, 10])
    assert reading.column(BatchColumn.POSITION) == batch_positions(batches)[:-1]
    assert reading.column(BatchColumn.SIZE_IN_BYTES) == [len(batch) for batch in batches]
    assert reading.decoded == reading.end_position == sum(map(len, batches))


def test_an_empty_segment_is_one_empty_chunk() -> None:
    reading = read(b"")
    assert [chunk.rows for chunk in reading.chunks] == [0]
    assert (reading.damage, reading.total, reading.end_position) == ([], 0, 0)


@given(any_segments(), st.integers(64, 300), st.sampled_from([96, 160, 256, 1 << 24]), st.integers(4, 7))
def test_kernels_windows_and_chunks_do_not_change_what_is_read(data: bytes, ordinary: int, largest: int, rows: int) -> None:
    with kernels(compiled=False):
        whole = read(data)
    assert whole.end_position == whole.total == len(data)
    spans_are_within(data, whole.columns)
    with kernels(compiled=True):
        compiled = read(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(damage, "WINDOW_BYTES", ordinary)
        narrow = read(data)
        small_windows(patch, ordinary, max(largest, ordinary))
        streamed = read(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment, "CHUNK_ROWS", rows)
        patch.setattr(segment, "MAX_CHAIN", 3)
        patch.setattr(damage, "MAX_CHAIN", 3)
        small = read(data)
    for other in (compiled, narrow):
        assert np.array_equal(other.columns, whole.columns)
        assert other.damage == whole.damage
    assert (streamed.end_position, streamed.total, streamed.good) == (len(data), len(data), whole.good)
    assert (small.end_position, small.total) == (len(data), len(data))
    if whole.good == sorted(whole.good):  # after a wrong offset, only a chain of batches is accepted, and `small` cuts chains
        assert small.good == whole.good
    assert max(chunk.rows for chunk in small.chunks) <= rows


def spans_are_within(data: bytes, columns: "np.ndarray[tuple[int, int], np.dtype[np.int64]]") -> None:
    """Rows follow each other without overlap, inside the file."""
    position, size = columns[BatchColumn.POSITION], columns[BatchColumn.SIZE_IN_BYTES]
    assert np.all(position[1:] >= (position + size)[:-1])
    assert not size.size or (position[0] >= 0 and position[-1] + size[-1] <= len(data))


@pytest.mark.parametrize("count", [3, 4, 5, 8, 9])
def test_a_chunk_has_at_most_its_limit_of_rows(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(segment, "CHUNK_ROWS", 4)
    monkeypatch.setattr(segment, "MAX_CHAIN", 2)
    reading = read(b"".join(log(count)))
    assert reading.base_offsets == list(range(0, 2 * count, 2))
    assert all(chunk.rows == 4 for chunk in reading.chunks[: count // 4])


@given(any_segments(), st.data())
def test_adjacent_ranges_give_the_batches_of_the_whole_segment(data: bytes, draw: st.DataObject) -> None:
    """Ranges end where good batches begin; if a walk ends after its range, the next range begins there."""
    whole = read(data)
    right = whole.columns[BatchColumn.CRC] == whole.columns[BatchColumn.CRC_COMPUTED]
    right &= whole.columns[BatchColumn.MAGIC] == 2
    points = whole.columns[BatchColumn.POSITION, right].tolist()
    cuts = sorted(draw.draw(st.sets(st.sampled_from(points)))) if points else []
    position, parts = 0, []
    for end in [*cuts, len(data)]:
        parts.append(read(data, position, max(end, position)))
        position = parts[-1].end_position
    assert position == len(data)
    assert np.array_equal(np.concatenate([part.columns for part in parts], axis=1), whole.columns)
    assert [found for part in parts for found in part.damage] == whole.damage


@given(st.integers(0, 4), st.data())
def test_find_batch_finds_the_next_batch(count: int, draw: st.DataObject) -> None:
    """It may find a batch inside a record's value; no value here contains one."""
    batches = log(count, records=1)
    data, at = b"".join(batches), batch_positions(batches)
    start = draw.draw(st.integers(0, len(data)))
    end = draw.draw(st.integers(start, len(data)))
    assert find_batch(MemoryFile(data), start, end, 0) == next((p for p in at[:-1] if start <= p < end), None)


def test_a_split_point_has_an_offset_of_its_segment() -> None:
    data = batch(100) + batch(101)
    inside = len(batch(100)) // 2
    assert find_batch(MemoryFile(data), inside, len(data), 100) == len(batch(100))
    assert find_batch(MemoryFile(data), inside, len(data), 200) is None


def test_a_split_point_is_searched_in_small_windows() -> None:
    batches = log(40, value=b"v" * 8000)
    file = MemoryFile(b"".join(batches))
    assert find_batch(file, 300_000, file.size_in_bytes, 0) in batch_positions(batches)
    assert file.bytes_read <= 4 * segment.SEARCH_WINDOW_BYTES


@pytest.mark.parametrize("size", [5 << 19, (16 << 20) + 100])
def test_batches_larger_than_a_window_are_read(size: int) -> None:
    batches = [batch(0), batch(1, 1, value=b"x" * size), batch(2)]
    at, data = batch_positions(batches), b"".join(batches)
    with kernels(compiled=True):
        reading, torn, damaged = read(data), read(data[:-1]), read(flip_bit(data, at[1] + (1 << 20)))
    assert (reading.damage, reading.good) == ([], [0, 1, 2])
    assert reading.column(BatchColumn.SIZE_IN_BYTES) == [len(batch) for batch in batches]
    assert (torn.kinds, torn.good) == (["SEG_TORN_TAIL"], [0, 1])
    assert (damaged.kinds, damaged.base_offsets, damaged.good) == (["BATCH_CRC_MISMATCH"], [0, 1, 2], [0, 2])


def test_a_file_that_shrinks_is_read_to_its_end() -> None:
    class Shrinking(MemoryFile):
        """Has a larger size than it has bytes."""

        def read_into(self, position: int, buffer: memoryview) -> int:
            got = self.content[position : position + len(buffer)]
            buffer[: len(got)] = got
            return len(got)

    batches = log(4)
    data = b"".join(batches)
    for cut in (len(data), batch_positions(batches)[2], batch_positions(batches)[2] + 10, batch_positions(batches)[2] + 70, 0):
        reading = read(Shrinking(data[:cut], size_in_bytes=len(data) + 1000))
        assert reading.end_position == cut
        assert reading.good == [
            offset for offset, end in zip((0, 2, 4, 6), batch_positions(batches)[1:], strict=True) if end <= cut
        ]


def test_batches_larger_than_any_window_are_inspected_in_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sound batches are inspected; damaged ones and those with the magic byte of an old format are not."""
    small_windows(monkeypatch, 128, 256)
    batches = [batch(0), batch(1, value=b"x" * 400), batch(2), batch(3, value=b"y" * 400), batch(4)]
    at = batch_positions(batches)
    data = flip_bit(flip_bit(flip_bit(b"".join(batches), at[2] + 16, 0), at[3] + 70), at[4] + 16, 1)
    inspected: list[tuple[int, int]] = []

    def alone(file: object, position: int, size: int) -> list[Damage]:
        assert isinstance(file, MemoryFile)
        inspected.append((position, size))
        return [Damage("RECORD_MALFORMED", position, size)]

    reading = read(data, inspect_batch=alone)
    assert inspected == [(at[1], len(batches[1])), (at[2], len(batches[2]))]
    assert [found.kind for found in reading.damage if found.position == at[1]] == ["RECORD_MALFORMED"]
    assert [found.kind for found in reading.damage if found.position == at[2]] == ["BATCH_MAGIC_UNKNOWN", "RECORD_MALFORMED"]
    assert [found.kind for found in reading.damage if found.position > at[2]] == ["BATCH_CRC_MISMATCH", "BATCH_MAGIC_REGRESSION"]
