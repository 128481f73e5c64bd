"""What is written is Kafka's layout, byte for byte, and is read back; what does not fit is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_forensics.errors import FormatError
from kafka_forensics.model.files import AbortedTxn, EpochEntry, ProducerEntry
from kafka_forensics.parsers.checkpoints import parse_leader_epochs
from kafka_forensics.parsers.indexes import (
    parse_offset_index,
    parse_producer_snapshot,
    parse_time_index,
    parse_transaction_index,
)
from kafka_forensics.writers.files import (
    write_leader_epochs,
    write_meta_properties,
    write_offset_checkpoint,
    write_partition_metadata,
    write_producer_snapshot,
    write_transaction_index,
)
from tests.support.memory import MemoryFile
from tests.support.segments import write_offset_index, write_time_index

INT16, INT32, INT64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (16, 32, 64))
PRODUCERS = st.builds(ProducerEntry, INT64, INT16, INT32, INT64, INT32, INT64, INT32, INT64)


def test_bytes_of_an_offset_index() -> None:
    assert write_offset_index([(0x0102, 0x0A0B0C0D)], 1).hex() == "000001010a0b0c0d"


def test_bytes_of_a_time_index() -> None:
    assert write_time_index([(0x0102030405060708, 12)], 2).hex() == "01020304050607080000000a"


def test_bytes_of_a_transaction_index() -> None:
    data = write_transaction_index([AbortedTxn(producer_id=1, first_offset=2, last_offset=3, last_stable_offset=-1)])
    assert data.hex() == "0000000000000000000100000000000000020000000000000003ffffffffffffffff"


def test_bytes_of_a_producer_snapshot() -> None:
    data = write_producer_snapshot([ProducerEntry(1, 2, 3, 4, 5, 6, 7, -1)])
    assert (
        data[:2].hex() + data[6:].hex()
        == ("0001000000010000000000000001000200000003000000000000000400000005000000000000000600000007") + "ff" * 8
    )


def test_text_of_checkpoints_and_identities() -> None:
    assert write_leader_epochs([EpochEntry(0, 0), EpochEntry(2, 300)]) == b"0\n2\n0 0\n2 300\n"
    assert write_offset_checkpoint({("t", 0): 5}) == b"0\n1\nt 0 5\n"
    assert write_partition_metadata("dMwERMehRq6SQBEYsfIf9A") == b"version: 0\ntopic_id: dMwERMehRq6SQBEYsfIf9A"
    assert write_meta_properties(node_id=1, cluster_id="c=d") == b"#\nversion=1\nnode.id=1\ncluster.id=c\\=d\n"
    assert write_meta_properties(version=0, node_id=1) == b"#\nversion=0\nbroker.id=1\n"


def test_numbers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(FormatError):
        write_offset_index([(2**31, 0)], 0)
    with pytest.raises(FormatError):
        write_time_index([(2**63, 0)], 0)
    with pytest.raises(FormatError):
        write_transaction_index([AbortedTxn(2**63, 0, 0, 0)])
    with pytest.raises(FormatError):
        write_producer_snapshot([ProducerEntry(0, 2**15, 0, 0, 0, 0, 0, 0)])


@pytest.mark.properties
@given(st.lists(st.tuples(st.integers(1, 2**31 - 1), st.integers(0, 2**31 - 1)), max_size=20), st.integers(0, 2**62))
def test_indexes_are_read_back(entries: list[tuple[int, int]], base: int) -> None:
    absolute = [(base + relative, position) for relative, position in entries]
    index = parse_offset_index(MemoryFile(write_offset_index(absolute, base)), base)
    assert list(zip(index.offsets.tolist(), index.positions.tolist(), strict=True)) == absolute
    swapped = [(position, offset) for offset, position in absolute]
    times = parse_time_index(MemoryFile(write_time_index(swapped, base)), base)
    assert list(zip(times.timestamps.tolist(), times.offsets.tolist(), strict=True)) == swapped
    assert index.damage == times.damage == []


@pytest.mark.properties
@given(st.lists(st.tuples(INT64, INT64, INT64, st.integers(1, 2**63 - 1)), max_size=10))
def test_transaction_indexes_are_read_back(rows: list[tuple[int, int, int, int]]) -> None:
    entries = [AbortedTxn(*row, position=number * 34) for number, row in enumerate(rows)]
    index = parse_transaction_index(MemoryFile(write_transaction_index(entries)))
    assert (index.entries, index.damage) == (entries, [])


@pytest.mark.properties
@given(st.lists(PRODUCERS, max_size=10))
def test_producer_snapshots_are_read_back(entries: list[ProducerEntry]) -> None:
    snapshot = parse_producer_snapshot(MemoryFile(write_producer_snapshot(entries)), 0)
    assert (snapshot.entries, snapshot.damage) == (entries, [])


@pytest.mark.properties
@given(st.lists(st.builds(EpochEntry, st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)), max_size=10))
def test_leader_epochs_are_read_back(entries: list[EpochEntry]) -> None:
    epochs = parse_leader_epochs(MemoryFile(write_leader_epochs(entries)))
    assert (epochs.entries, epochs.damage) == (entries, [])
