import struct

import google_crc32c
import pytest
from hypothesis import given, strategies as st
from msgspec.structs import asdict

from kafka_forensics.model.files import ProducerEntry, ProducerSnapshot
from kafka_forensics.parsers import indexes
from kafka_forensics.parsers.indexes import parse_producer_snapshot
from kafka_forensics.parsers.spec.indexes import PRODUCER_ENTRY, SNAPSHOT_HEADER
from kafka_forensics.writers.files import write_producer_snapshot
from tests.parsers.exact_readers import parse_entries
from tests.support.memory import MemoryFile

ENTRIES = [
    ProducerEntry(1, 0, 9, 99, 9, 1_700_000_000_000, -1, -1),
    ProducerEntry(2**40, 3, -1, -1, 0, 1_700_000_000_001, 5, -1),
    ProducerEntry(3, 32_767, 2**31 - 1, 120, 0, -1, 0, 101),
]
DATA = write_producer_snapshot(ENTRIES)


def parse(data: bytes) -> ProducerSnapshot:
    return parse_producer_snapshot(MemoryFile(data), 121)


def reasons(snapshot: ProducerSnapshot) -> list[object]:
    assert {row.kind for row in snapshot.damage} <= {"PRODUCER_SNAPSHOT_CORRUPT"}
    return [row.detail["reason"] for row in snapshot.damage]


def with_count(count: int, data: bytes = DATA) -> bytes:
    """`data` with another count of entries and the right CRC."""
    body = struct.pack(">i", count) + data[10:]
    return data[:2] + struct.pack(">I", google_crc32c.value(body)) + body


def test_a_whole_snapshot_has_no_damage() -> None:
    snapshot = parse(DATA)
    assert (snapshot.entries, snapshot.offset, snapshot.version, snapshot.damage) == (ENTRIES, 121, 1, [])
    empty = write_producer_snapshot([])
    assert (len(empty), parse(empty).entries, parse(empty).damage) == (10, [], [])


def test_any_flipped_byte_is_damage() -> None:
    for position in range(len(DATA)):
        data = bytearray(DATA)
        data[position] ^= 0x10
        snapshot = parse(bytes(data))
        assert reasons(snapshot)[0] == ("version" if position < 2 else "crc")
        assert len(snapshot.entries) == 3


def test_any_cut_is_damage_and_whole_entries_are_read() -> None:
    for size in range(len(DATA)):
        snapshot = parse(DATA[:size])
        assert "short" in reasons(snapshot)
        assert snapshot.entries == ENTRIES[: max(0, size - 10) // 46]


def test_the_numbers_of_a_cut_header_are_not_read() -> None:
    snapshot = parse(DATA[:9])
    assert (snapshot.version, snapshot.crc, snapshot.crc_computed) == (-1, -1, -1)
    assert [(row.position, row.size_in_bytes) for row in snapshot.damage] == [(0, 9)]


@pytest.mark.parametrize(
    ("count", "tail", "reason"),
    [(2**31 - 1, b"", "short"), (4, b"", "short"), (2, b"", "count"), (0, b"", "count"), (-1, b"", "count"), (3, b"tail", "count")],
)
def test_a_wrong_count_is_damage_and_all_entries_are_read(count: int, tail: bytes, reason: str) -> None:
    snapshot = parse(with_count(count, DATA + tail))
    assert (snapshot.entries, reasons(snapshot)) == (ENTRIES, [reason])
    detail = snapshot.damage[0].detail
    assert (detail["declared"], detail["present"], detail.get("trailing_bytes", 0)) == (count, 3, len(tail))


def test_entries_past_the_limit_are_reported_as_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "_WINDOW", 46)
    monkeypatch.setattr(indexes, "MAX_DECODED_BYTES", 46)
    snapshot = parse(DATA)
    assert snapshot.entries == ENTRIES[:1]
    assert snapshot.crc == snapshot.crc_computed
    assert [(row.kind, row.position, row.size_in_bytes, row.detail["crc_checked"]) for row in snapshot.damage] == [
        ("BUDGET_EXCEEDED", 56, 92, True)
    ]
    monkeypatch.setattr(indexes, "MAX_CHECKED_BYTES", 100)
    unchecked = parse(DATA)
    assert (unchecked.entries, unchecked.crc_computed) == (ENTRIES[:1], -1)
    assert [row.detail["crc_checked"] for row in unchecked.damage] == [False]


@given(data=st.one_of(st.binary(max_size=200), st.binary(max_size=150).map(lambda tail: DATA[:10] + tail)))
def test_parser_agrees_with_spec_on_any_bytes(data: bytes) -> None:
    snapshot = parse(data)
    if len(data) < 10:
        assert (snapshot.entries, reasons(snapshot)) == ([], ["short"])
        return
    header = SNAPSHOT_HEADER.parse(data)
    entries = parse_entries(PRODUCER_ENTRY, data[10:])
    assert (snapshot.version, snapshot.crc) == (header.version, header.crc)
    assert snapshot.crc_computed == google_crc32c.value(data[6:])
    assert [asdict(entry) for entry in snapshot.entries] == entries
    good = header.version == 1 and header.crc == snapshot.crc_computed and header.count * 46 + 10 == len(data)
    assert good == (snapshot.damage == [])
