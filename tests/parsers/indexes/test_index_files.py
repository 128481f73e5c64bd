import struct
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, strategies as st

from kafka_forensics.model.batches import Damage
from kafka_forensics.model.files import AbortedTxn, OffsetIndex, TimeIndex
from kafka_forensics.parsers import bounded
from kafka_forensics.parsers.indexes import parse_offset_index, parse_time_index, parse_transaction_index
from kafka_forensics.parsers.spec.indexes import ABORTED_TXN, OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from kafka_forensics.writers.files import write_transaction_index
from tests.parsers.exact_readers import parse_entries
from tests.support.memory import MemoryFile
from tests.support.segments import write_offset_index, write_time_index

BASE = 20_000
MAX_OFFSET = 2**63 - 1
ENTRIES = [(20_030, 4_131), (20_061, 8_260), (20_092, 12_389)]

bytes_with_zeros = st.lists(st.one_of(st.binary(max_size=20), st.integers(0, 40).map(bytes)), max_size=12).map(b"".join)


def accounts_for_every_byte(index: OffsetIndex | TimeIndex, width: int, size: int) -> bool:
    """Whether entries, zero tail and damage account for every byte of a file."""
    return len(index.offsets) * width + index.zero_tail_bytes + sum(row.size_in_bytes for row in index.damage) == size


def test_holes_of_a_sparse_file_are_not_read() -> None:
    file = MemoryFile(write_time_index([(1_700_000_000_000, 20_001)], BASE), ranges=[(0, 4096)], size_in_bytes=8 << 40)
    index = parse_time_index(file, BASE)
    assert index.timestamps.tolist() == [1_700_000_000_000]
    assert index.offsets.tolist() == [20_001]
    assert index.zero_tail_bytes == (8 << 40) - (8 << 40) % 12 - 12
    assert [row.detail["reason"] for row in index.damage] == ["partial_entry"]
    assert file.bytes_read <= 4096


def test_a_hole_between_entries_is_zero_entries() -> None:
    data = write_offset_index(ENTRIES[:1], BASE) + bytes(4088) + write_offset_index(ENTRIES[1:2], BASE)
    dense = parse_offset_index(MemoryFile(data), BASE)
    sparse = parse_offset_index(MemoryFile(data, ranges=[(0, 8), (4096, 4104)]), BASE)
    assert dense.offsets.tolist() == sparse.offsets.tolist() == [20_030, *[BASE] * 511, 20_061]
    assert dense.positions.tolist() == sparse.positions.tolist() == [4_131, *[0] * 511, 8_260]


@pytest.mark.parametrize(("parse", "width"), [(parse_offset_index, 8), (parse_time_index, 12)])
def test_a_partial_entry_is_damage(parse: Callable[[MemoryFile, int], OffsetIndex | TimeIndex], width: int) -> None:
    index = parse(MemoryFile(b"\1" * (width + 3)), BASE)
    assert len(index.offsets) == 1
    detail = {"reason": "partial_entry", "entry_size": width, "file_size": width + 3}
    assert index.damage == [Damage("INDEX_MISMATCH", width, 3, detail=detail)]  # type: ignore[arg-type]


def test_offsets_do_not_wrap() -> None:
    data = struct.pack(">4i", 2**31 - 1, 1, -(2**31), 2)
    assert parse_offset_index(MemoryFile(data), MAX_OFFSET - 5).offsets.tolist() == [MAX_OFFSET, MAX_OFFSET - 5 - 2**31]
    assert parse_offset_index(MemoryFile(data), 0).offsets.tolist() == [2**31 - 1, -(2**31)]


def test_entries_past_the_limit_are_reported_as_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_offset_index([(BASE + number, number) for number in range(1, 101)], BASE)
    detail: dict[str, int | str | bool | list[int]] = {"reason": "index_too_large", "limit": 80}
    for window in (1 << 20, 100, 16):
        monkeypatch.setattr(bounded, "_WINDOW", window)
        entries = bounded.read_index_entries(MemoryFile(data), np.dtype([("a", ">i4"), ("b", ">i4")]), limit=83)
        assert entries.entries["b"].tolist() == list(range(1, 11))
        assert entries.zero_tail_bytes == 0
        assert entries.damage == [Damage("BUDGET_EXCEEDED", 80, 720, detail=detail)]
    monkeypatch.setattr(bounded, "MAX_SCANNED_BYTES", 1000)
    beyond = MemoryFile(data, ranges=[(0, 800), (4096, 8192)], size_in_bytes=8192)
    index = parse_offset_index(beyond, BASE)
    assert (len(index.offsets), index.zero_tail_bytes) == (100, 200)
    assert [(row.kind, row.position, row.size_in_bytes) for row in index.damage] == [("BUDGET_EXCEEDED", 1000, 7192)]
    assert beyond.furthest_byte <= 1000


class FetchedFile(MemoryFile):
    """A file that is fetched range by range."""

    def will_read(self, start: int, end: int) -> None:
        raise AssertionError(f"an index was announced from {start} to {end}")


FETCHED_BYTES = bounded.FETCHED_BYTES


@pytest.mark.parametrize("entries", [0, 1, 500, FETCHED_BYTES // 8, FETCHED_BYTES // 8 + 1, 3 * FETCHED_BYTES // 8 - 1])
@pytest.mark.parametrize(("write", "parse"), [(write_offset_index, parse_offset_index), (write_time_index, parse_time_index)])
def test_a_preallocated_index_is_fetched_up_to_its_zeros(
    entries: int, write: Callable[..., bytes], parse: Callable[[MemoryFile, int], OffsetIndex | TimeIndex]
) -> None:
    written = write([(BASE + number, number) for number in range(1, entries + 1)], BASE)
    width = 8 if write is write_offset_index else 12
    data = written + bytes((10 << 20) // width * width - len(written))
    fetched, whole = FetchedFile(data), MemoryFile(data)
    assert_equal(parse(fetched, BASE), parse(whole, BASE))
    assert fetched.bytes_read <= len(written) + 2 * FETCHED_BYTES + FETCHED_BYTES // 2
    assert whole.bytes_read == len(data)


def test_an_index_without_a_zero_tail_is_fetched_whole() -> None:
    for zeros in (1, FETCHED_BYTES, 5 * FETCHED_BYTES):
        data = b"\1" * 80 + bytes(zeros * 8) + b"\1" * 16
        assert_equal(parse_offset_index(FetchedFile(data), BASE), parse_offset_index(MemoryFile(data), BASE))


@given(data=bytes_with_zeros, window=st.integers(1, 30), enough_zeros=st.integers(1, 30))
def test_a_fetched_index_is_the_whole_index_or_ends_at_many_zeros(data: bytes, window: int, enough_zeros: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounded, "FETCHED_BYTES", window)
        patch.setattr(bounded, "ENOUGH_ZEROS", enough_zeros)
        fetched = parse_offset_index(FetchedFile(data), BASE)
    whole = parse_offset_index(MemoryFile(data), BASE)
    assert accounts_for_every_byte(fetched, 8, len(data))
    count = len(fetched.offsets)
    assert fetched.offsets.tolist() == whole.offsets[:count].tolist()
    if count < len(whole.offsets):
        scanned = data[: len(data) - len(data) % 8]
        tail = len(scanned) - window
        assert not any(scanned[tail:])
        ends = [min(at + window, tail) for at in range(0, tail, window)]
        assert any(end >= enough_zeros and not any(scanned[end - enough_zeros : end]) for end in ends)


def assert_equal(index: OffsetIndex | TimeIndex, other: OffsetIndex | TimeIndex) -> None:
    for name in index.__struct_fields__:
        assert np.array_equal(getattr(index, name), getattr(other, name)), name


def without_zero_tail(entries: list[dict[str, int]]) -> list[dict[str, int]]:
    while entries and not any(entries[-1].values()):
        entries.pop()
    return entries


@given(data=bytes_with_zeros, base_offset=st.integers(0, 2**62))
def test_offset_index_agrees_with_spec_on_any_bytes(data: bytes, base_offset: int) -> None:
    index = parse_offset_index(MemoryFile(data), base_offset)
    expected = without_zero_tail(parse_entries(OFFSET_INDEX_ENTRY, data))
    assert index.offsets.tolist() == [base_offset + entry["relative_offset"] for entry in expected]
    assert index.positions.tolist() == [entry["position"] for entry in expected]
    assert accounts_for_every_byte(index, 8, len(data))


@given(data=bytes_with_zeros, base_offset=st.integers(0, 2**62), window=st.integers(1, 30), cut=st.integers(0, 60))
def test_time_index_agrees_with_spec_with_windows_of_any_size(data: bytes, base_offset: int, window: int, cut: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounded, "_WINDOW", window)
        ranges = [(0, min(cut, len(data))), (min(cut, len(data)), len(data))]
        index = parse_time_index(MemoryFile(data, ranges), base_offset)
    expected = without_zero_tail(parse_entries(TIME_INDEX_ENTRY, data))
    assert index.timestamps.tolist() == [entry["timestamp"] for entry in expected]
    assert index.offsets.tolist() == [base_offset + entry["relative_offset"] for entry in expected]
    assert accounts_for_every_byte(index, 12, len(data))


# The index of aborted transactions.


ABORTED = [
    AbortedTxn(producer_id=7, first_offset=10, last_offset=14, last_stable_offset=12, position=0),
    AbortedTxn(producer_id=2**40, first_offset=3, last_offset=29, last_stable_offset=30, position=34),
    AbortedTxn(producer_id=8, first_offset=31, last_offset=33, last_stable_offset=34, position=68),
]
TXNINDEX = write_transaction_index(ABORTED)


def test_a_cut_transaction_is_damage_and_the_others_are_read() -> None:
    for cut in range(69, 102):
        index = parse_transaction_index(MemoryFile(TXNINDEX[:cut]))
        assert index.entries == ABORTED[:2]
        assert [(row.kind, row.position, row.size_in_bytes) for row in index.damage] == [("INDEX_MISMATCH", 68, cut - 68)]
        assert index.damage[0].detail["reason"] == "partial_entry"


def test_an_unknown_version_is_damage() -> None:
    for position, version in [(34, 256), (35, 1)]:
        data = bytearray(TXNINDEX)
        data[position] = 1
        index = parse_transaction_index(MemoryFile(bytes(data)))
        assert [entry.version for entry in index.entries] == [0, version, 0]
        assert [entry.producer_id for entry in index.entries] == [7, 2**40, 8]
        assert [(row.position, row.size_in_bytes, row.detail) for row in index.damage] == [
            (34, 34, {"reason": "version", "version": version})
        ]


def test_a_zero_tail_of_a_transaction_index_is_damage_without_entries() -> None:
    index = parse_transaction_index(MemoryFile(TXNINDEX + bytes(70)))
    assert index.entries == ABORTED
    reasons = [(row.position, row.size_in_bytes, row.detail["reason"]) for row in index.damage]
    assert reasons == [(102, 68, "zero_tail"), (170, 2, "partial_entry")]


def test_damage_rows_of_transactions_are_limited() -> None:
    index = parse_transaction_index(MemoryFile(b"\1" * 34 * 5000))
    assert (len(index.entries), len(index.damage)) == (5000, 33)
    assert index.damage[-1].detail == {"reason": "more", "count": 4968}
    assert (index.damage[-1].position, index.damage[-1].size_in_bytes) == (32 * 34, 4968 * 34)


@given(data=st.binary(max_size=200))
def test_transaction_index_agrees_with_spec_on_any_bytes(data: bytes) -> None:
    index = parse_transaction_index(MemoryFile(data))
    expected = parse_entries(ABORTED_TXN, data)
    while expected and not any(expected[-1].values()):
        expected.pop()
    assert [{name: getattr(entry, name) for name in row} for entry, row in zip(index.entries, expected, strict=True)] == expected
    accounted = len(index.entries) * 34 + sum(row.size_in_bytes for row in index.damage if row.detail["reason"] != "version")
    assert accounted == len(data)
