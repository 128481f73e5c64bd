"""The header walk: both forms and the declared layout agree on any bytes."""

import struct
import zlib
from typing import Any

import google_crc32c
import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from kafka_forensics.model.batches import BATCH_COLUMNS, BatchColumn
from kafka_forensics.parsers.kernels.walk import DONE, FULL, MORE, NOT_A_BATCH, plausible_size, search, walk
from kafka_forensics.writers.batches import RecordToWrite, fix_crc, write_batch, write_marker
from tests.support.segments import BASE_TIMESTAMP, batch, flip_bit, legacy_entry, log, replace_bytes
from tests.support.strategies import any_segments

KEYS = np.array([[0x1234567890ABCDEF, -77]], np.int64)


def walk_all(data: bytes, *, length: int | None = None, rows: int = 64, start: int = 0, end: int | None = None) -> tuple[Any, Any]:
    """((stop, rows, reason, bytes needed), the rows) of a walk over `data[:length]` of the file `data`; both forms agree."""
    buffer = np.frombuffer(bytearray(data) + bytes(64), np.uint8)
    end_of_window = len(data) if length is None else length
    answers = []
    for form in (walk.interpreted, walk.compiled):
        columns = np.full((BATCH_COLUMNS, rows), -(2**62), np.int64)
        numbers = tuple(
            map(int, form(buffer, start, end_of_window, 0, len(data) if end is None else end, len(data), KEYS, columns, 0))
        )
        answers.append((numbers, columns[:, : numbers[1]]))
    assert answers[0][0] == answers[1][0]
    assert np.array_equal(answers[0][1], answers[1][1])
    return answers[0]


def crcs_of(data: bytes, position: int, size: int, magic: int) -> tuple[int, int]:
    """(stored, computed) CRC of the batch at `position`, computed with libraries."""
    if magic < 2:
        return struct.unpack_from(">I", data, position + 12)[0], zlib.crc32(data[position + 16 : position + size])
    return struct.unpack_from(">I", data, position + 17)[0], google_crc32c.value(data[position + 21 : position + size])


def naive_frame(data: bytes, position: int) -> tuple[int, int] | None:
    """(size, magic) of the batch at `position`; None if its header is invalid or the file ends in it."""
    if position + 17 > len(data):
        return None
    size, magic = struct.unpack_from(">i", data, position + 8)[0] + 12, data[position + 16]
    if magic > 2 or size < (26, 34, 61)[magic] or position + size > len(data):
        return None
    return size, magic


def naive_walk(data: bytes) -> tuple[list[tuple[int, int]], int]:
    """([(position, size)] of the batches that the walk must accept, where it must stop)."""
    accepted = []
    position = 0
    while (frame := naive_frame(data, position)) is not None:
        size, magic = frame
        stored, computed = crcs_of(data, position, size, magic)
        if stored != computed:
            following = naive_frame(data, position + size)
            is_followed = following is not None and following[1] == 2 and _has_right_crc(data, position + size, following[0])
            if magic < 2 or (position + size < len(data) and not is_followed):
                break
        accepted.append((position, size))
        position += size
    return accepted, position


def _has_right_crc(data: bytes, position: int, size: int) -> bool:
    stored, computed = crcs_of(data, position, size, 2)
    return stored == computed


@given(any_segments())
@example(b"".join(log(3)))
@example(flip_bit(b"".join(log(3)), 70))
@example(flip_bit(batch(0), 70))
def test_the_walk_agrees_with_the_naive_walk(data: bytes) -> None:
    accepted, stopped = naive_walk(data)
    (stop, count, reason, _), columns = walk_all(data)
    assert (stop, count) == (stopped, len(accepted))
    assert reason == (DONE if stopped == len(data) else NOT_A_BATCH)
    assert list(zip(*columns[[BatchColumn.POSITION, BatchColumn.SIZE_IN_BYTES]].tolist(), strict=True)) == accepted


@pytest.mark.parametrize("following", [b"", batch(4)], ids=["last", "followed"])
def test_an_empty_batch_confirms_the_size_of_a_corrupt_batch_before_it(following: bytes) -> None:
    """The cleaner keeps the header of an emptied batch: 61 bytes, the smallest batch."""
    corrupt, emptied = flip_bit(batch(0), 70), write_batch([], base_offset=1, base_timestamp=BASE_TIMESTAMP, last_offset_delta=2)
    assert len(emptied) == 61
    for data in (emptied + following, corrupt + emptied + following):
        (stop, count, reason, _), _ = walk_all(data)
        assert (stop, count, reason) == (len(data), len(naive_walk(data)[0]), DONE)
    for size in range(61):
        cut = corrupt + emptied[:size]
        (stop, count, reason, _), _ = walk_all(cut)
        assert (stop, count, reason) == ((0, 0, NOT_A_BATCH) if size else (len(corrupt), 1, DONE))


@pytest.mark.parametrize("magic", [0, 1])
def test_an_entry_too_small_for_its_magic_is_not_accepted(magic: int) -> None:
    """Its CRC is right; a magic 1 entry has a timestamp of eight bytes."""
    for size in range(18, 40):
        body = bytes([magic]) + bytes(size - 17)
        entry = struct.pack(">qiI", 3, size - 12, zlib.crc32(body)) + body
        (stop, count, _, _), _ = walk_all(entry + batch(4))
        assert (count > 0) is (size >= 26 + 8 * magic)
        assert (stop == 0) is (size < 26 + 8 * magic)


@given(any_segments(), st.data())
def test_both_forms_agree_on_windows_of_any_size(data: bytes, draw: st.DataObject) -> None:
    length = draw.draw(st.integers(0, len(data)))
    end = draw.draw(st.integers(0, len(data)))
    walk_all(data, length=length, rows=draw.draw(st.integers(0, 4)), start=draw.draw(st.integers(0, length)), end=end)


@given(any_segments(), st.data())
def test_a_walk_over_a_short_window_returns_the_bytes_that_it_needs(data: bytes, draw: st.DataObject) -> None:
    length = draw.draw(st.integers(0, len(data)))
    whole, all_rows = walk_all(data)
    (stop, count, reason, needed), rows = walk_all(data, length=length)
    assert np.array_equal(rows, all_rows[:, :count])
    if reason == MORE:
        assert stop + needed > length
        assert stop + needed <= len(data)
        again, _ = walk_all(data, length=stop + needed)
        assert again != (stop, count, MORE, needed), "the walk would request the same window forever"
    else:
        assert (stop, count, reason) == whole[:3]


@given(any_segments(), st.integers(-1, 40), st.integers(0, 60), st.booleans(), st.integers(0, 400))
def test_both_forms_of_the_search_agree(data: bytes, low: int, high: int, legacy: bool, budget: int) -> None:
    buffer = np.frombuffer(bytearray(data) + bytes(64), np.uint8)
    arguments = (buffer, 0, len(data), 0, len(data), low, high, legacy, budget)
    assert [int(x) for x in search.interpreted(*arguments)] == [int(x) for x in search.compiled(*arguments)]
    if len(data) >= 61:
        bounds = (buffer, 0, 0, len(data), low, high, legacy)
        assert int(plausible_size.interpreted(*bounds)) == int(plausible_size.compiled(*bounds))


def test_the_walk_stops_when_the_matrix_is_full() -> None:
    batches = log(3)
    (stop, count, reason, _), _ = walk_all(b"".join(batches), rows=2)
    assert (stop, count, reason) == (len(batches[0] + batches[1]), 2, FULL)


@pytest.mark.parametrize(("commit", "control_type"), [(True, 1), (False, 0)])
def test_markers_have_their_type_and_coordinator_epoch(commit: bool, control_type: int) -> None:
    marker = write_marker(
        commit, base_offset=9, producer_id=7, producer_epoch=3, coordinator_epoch=2**31 - 1, timestamp=BASE_TIMESTAMP
    )
    _, columns = walk_all(batch(8) + marker)
    assert columns[BatchColumn.CONTROL_RECORD_TYPE].tolist() == [-1, control_type]
    assert columns[BatchColumn.COORDINATOR_EPOCH].tolist() == [-1, 2**31 - 1]


def test_a_marker_with_additional_fields_is_read() -> None:
    """Later versions may add fields; from 64 bytes on, the length takes two bytes."""
    for additional_bytes in (0, 57, 58, 500):
        record = RecordToWrite(b"\0\0\0\1", b"\0\0" + (2**31 - 5).to_bytes(4, "big") + bytes(additional_bytes))
        _, columns = walk_all(write_batch([record], base_offset=3, base_timestamp=BASE_TIMESTAMP, is_control_batch=True))
        assert columns[[BatchColumn.CONTROL_RECORD_TYPE, BatchColumn.COORDINATOR_EPOCH]].tolist() == [[1], [2**31 - 5]]


@given(st.binary(max_size=30))
def test_a_control_record_is_read_within_its_batch(payload: bytes) -> None:
    empty = write_batch([RecordToWrite(None, None)], base_offset=0, base_timestamp=0, is_control_batch=True)[:61]
    control = fix_crc(replace_bytes(empty + payload, 8, struct.pack(">i", 49 + len(payload))))
    next_batch = batch(1, value=b"\x00\x01\x00\x01" * 8)
    columns = walk_all(control)[1]
    assert np.array_equal(walk_all(control + next_batch)[1][:, :1], columns)
    assert -(2**15) <= int(columns[BatchColumn.CONTROL_RECORD_TYPE, 0]) < 2**15


@pytest.mark.parametrize(
    ("base_offset", "delta", "last_offset"),
    [
        (2**63 - 1, 0, 2**63 - 1),
        (2**63 - 1, 2**31 - 1, 2**63 - 1),
        (-(2**63), -1, -(2**63)),
        (-(2**63), 1, -(2**63) + 1),
        (-5, 3, -2),
        (10, -3, 7),
        (2**63 - 2**31, 2**31 - 1, 2**63 - 1),
    ],
)
def test_hostile_offsets_do_not_overflow(base_offset: int, delta: int, last_offset: int) -> None:
    hostile = fix_crc(replace_bytes(replace_bytes(batch(0), 0, struct.pack(">q", base_offset)), 23, struct.pack(">i", delta)))
    _, columns = walk_all(hostile)
    assert columns[BatchColumn.BASE_OFFSET].tolist() == [base_offset]
    assert columns[BatchColumn.LAST_OFFSET].tolist() == [last_offset]


@given(st.integers(0, 7), st.data())
def test_the_identity_changes_with_every_bit_that_it_covers(bit: int, draw: st.DataObject) -> None:
    """It does not depend on the position; any flipped bit of offset, epoch, CRC or records changes it."""
    data = batch(5, 2, epoch=1)
    position = draw.draw(st.one_of(st.integers(0, 7), st.integers(12, 15), st.integers(17, len(data) - 1)))
    before, after = (walk_all(version)[1][BatchColumn.HASH_HIGH :, 0] for version in (data, flip_bit(data, position, bit)))
    assert np.all(before != after)
    assert np.array_equal(walk_all(legacy_entry(4) + data)[1][BatchColumn.HASH_HIGH :, 1], before)
