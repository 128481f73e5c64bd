import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_forensics.model.files import AbortedTxn
from kafka_forensics.parsers.indexes import parse_transaction_index
from kafka_forensics.parsers.spec.indexes import ABORTED_TXN
from kafka_forensics.writers.files import write_transaction_index
from tests.support.exact_readers import parse_entries
from tests.support.memory import MemoryFile

ENTRIES = [
    AbortedTxn(producer_id=7, first_offset=10, last_offset=14, last_stable_offset=12, position=0),
    AbortedTxn(producer_id=2**40, first_offset=3, last_offset=29, last_stable_offset=30, position=34),
    AbortedTxn(producer_id=8, first_offset=31, last_offset=33, last_stable_offset=34, position=68),
]
DATA = write_transaction_index(ENTRIES)


def test_entries_come_in_file_order_with_their_places() -> None:
    index = parse_transaction_index(MemoryFile(DATA))
    assert index.entries == ENTRIES
    assert index.damage == []


def test_a_cut_entry_is_damage_and_the_others_stay() -> None:
    for cut in range(69, 102):
        index = parse_transaction_index(MemoryFile(DATA[:cut]))
        assert index.entries == ENTRIES[:2]
        assert [(row.kind, row.position, row.size_in_bytes) for row in index.damage] == [("INDEX_MISMATCH", 68, cut - 68)]
        assert index.damage[0].detail["reason"] == "partial_entry"


def test_either_byte_of_another_version_is_damage() -> None:
    for position, version in [(34, 256), (35, 1)]:
        data = bytearray(DATA)
        data[position] = 1
        index = parse_transaction_index(MemoryFile(bytes(data)))
        assert [entry.version for entry in index.entries] == [0, version, 0]
        assert [entry.producer_id for entry in index.entries] == [7, 2**40, 8]
        assert [(row.position, row.size_in_bytes, row.detail) for row in index.damage] == [
            (34, 34, {"reason": "version", "version": version})
        ]


def test_zeros_at_the_end_are_damage_and_no_entries() -> None:
    index = parse_transaction_index(MemoryFile(DATA + bytes(70)))
    assert index.entries == ENTRIES
    assert [(row.position, row.size_in_bytes, row.detail["reason"]) for row in index.damage] == [
        (102, 68, "zero_tail"),
        (170, 2, "partial_entry"),
    ]


def test_damage_rows_are_few_however_bad_the_file() -> None:
    index = parse_transaction_index(MemoryFile(b"\1" * 34 * 5000))
    assert len(index.entries) == 5000
    assert len(index.damage) == 33
    assert index.damage[-1].detail == {"reason": "more", "count": 4968}
    assert (index.damage[-1].position, index.damage[-1].size_in_bytes) == (32 * 34, 4968 * 34)


@pytest.mark.properties
@given(data=st.binary(max_size=200))
def test_parser_agrees_with_spec_on_any_bytes(data: bytes) -> None:
    index = parse_transaction_index(MemoryFile(data))
    expected = parse_entries(ABORTED_TXN, data)
    while expected and not any(expected[-1].values()):
        expected.pop()
    assert [{name: getattr(entry, name) for name in row} for entry, row in zip(index.entries, expected, strict=True)] == expected
    accounted = len(index.entries) * 34 + sum(row.size_in_bytes for row in index.damage if row.detail["reason"] != "version")
    assert accounted == len(data)
