"""The transaction state of records: by the next marker, with damage, across segments, and beyond limits."""

from pathlib import Path

import pyarrow as pa
from hypothesis import given, strategies as st

import kafka_forensics as kf
from kafka_forensics.parsers.log.segment import SegmentReader
from kafka_forensics.scanning.rereading.record_states import RecordStates
from tests.support.brokers import put_segment
from tests.support.logs import APP_ID, OTHER_ID, DataLog
from tests.support.memory import MemoryFile
from tests.support.segments import batch, flip_bit, segment_file

TXN = 0x10


def busy() -> DataLog:
    """Offsets by producer: app [0, 2) committed at 4, other [2, 4) aborted at 7, app [5, 7) aborted at 8, app [9, 11) open."""
    log = DataLog()
    log.data(0)
    log.data(0, OTHER_ID)
    log.marker(1, commit=True)
    log.data(2)
    log.marker(3, commit=False, producer_id=OTHER_ID)
    log.marker(3, commit=False)
    log.data(4)
    log.plain(1)
    return log


def states(data: bytes, *, log_continues: bool = False, limit: int = 100) -> list[str]:
    states_of = RecordStates(MemoryFile(data), log_continues=log_continues, limit=limit)
    lookups = [(APP_ID, 0), (OTHER_ID, 2), (APP_ID, 5), (APP_ID, 9)]
    return [states_of.state(TXN, producer_id, position_of(offset)) for producer_id, offset in lookups]


def position_of(offset: int) -> int:
    """Position of the batch with this base offset."""
    return next(batch.position for batch in busy().batches if batch.base_offset == offset)


def bytes_of(log: DataLog) -> bytes:
    return b"".join(batch.data for batch in log.batches)


def test_the_next_marker_of_the_producer_decides() -> None:
    assert states(bytes_of(busy())) == ["committed", "aborted", "aborted", "open"]
    assert states(bytes_of(busy()), log_continues=True) == ["committed", "aborted", "aborted", "unknown"]
    states_of = RecordStates(MemoryFile(bytes_of(busy())), log_continues=False)
    marker = position_of(4)
    assert [states_of.state(*lookup) for lookup in ((0, APP_ID, 0), (TXN | 0x20, APP_ID, marker), (TXN, -1, 0))] == ["none"] * 3
    assert [states_of.state(TXN, 77, 0), states_of.state(TXN, APP_ID, marker)] == ["open", "aborted"]


def test_a_part_reads_only_what_its_records_need() -> None:
    data = bytes_of(busy())
    whole = RecordStates(MemoryFile(data), log_continues=False)
    lookups = [(APP_ID, 0), (OTHER_ID, 2), (APP_ID, 5), (APP_ID, 9)]
    for start, end in ((0, position_of(4)), (position_of(2), position_of(7)), (position_of(4), len(data))):
        part = RecordStates(MemoryFile(data), log_continues=False, part=(start, end))
        inside = [(producer_id, place) for producer_id, offset in lookups if start <= (place := position_of(offset)) < end]
        assert inside
        assert [part.state(TXN, *lookup) for lookup in inside] == [whole.state(TXN, *lookup) for lookup in inside]
    more = data + b"".join(batch(100 + number, value=bytes(1 << 20)) for number in range(8))
    complete_part, open_part = MemoryFile(more), MemoryFile(more)
    RecordStates(complete_part, log_continues=False, part=(0, position_of(7)))
    RecordStates(open_part, log_continues=False, part=(0, len(data)))
    assert complete_part.furthest_byte < 4 << 20
    assert open_part.furthest_byte == len(more)


def test_a_marker_in_lost_bytes_is_unknown() -> None:
    log = busy()
    parts = [batch.data for batch in log.batches]
    parts[2] = flip_bit(parts[2], 70)
    assert states(b"".join(parts)) == ["unknown", "unknown", "aborted", "open"]
    parts = [batch.data for batch in log.batches]
    parts[4] = bytes(len(parts[4]))
    assert states(b"".join(parts)) == ["committed", "unknown", "unknown", "open"]


def test_states_beyond_the_limit_are_unknown() -> None:
    assert states(bytes_of(busy()), limit=1) == ["committed", "unknown", "unknown", "unknown"]


@given(st.binary(max_size=300), st.integers(0, 500))
def test_any_bytes_give_an_answer(noise: bytes, at: int) -> None:
    data = bytes_of(busy())
    assert set(states(data[:at] + noise + data[at:])) <= {"committed", "aborted", "open", "unknown"}


def test_arrow_records_have_their_state(tmp_path: Path) -> None:
    log, directory = busy(), tmp_path / "t-0"
    directory.mkdir()
    path = directory / segment_file(0)
    path.write_bytes(bytes_of(log))
    table = pa.Table.from_batches(kf.read_records(str(path)))
    by_offset = dict(zip(table["offset"].to_pylist(), table["txn_state"].to_pylist(), strict=True))
    expected = ["committed"] * 2 + ["aborted"] * 2 + ["none"] + ["aborted"] * 2 + ["none"] * 2 + ["open"] * 2 + ["none"]
    assert [by_offset[offset] for offset in range(12)] == expected
    put_segment(directory, 12, batch(12))
    later = pa.Table.from_batches(kf.read_records(str(path)))["txn_state"].to_pylist()
    assert later == [{"open": "unknown"}.get(state, state) for state in expected]
    assert sum(chunk.rows for chunk in SegmentReader(MemoryFile(path.read_bytes())).chunks()) == len(log.batches)
