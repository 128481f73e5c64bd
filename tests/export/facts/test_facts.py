"""`read_batches` and `read_records` give Arrow facts of one file."""

from pathlib import Path

import pyarrow as pa

import kafka_forensics as kf
from kafka_forensics.model.schemas import BATCHES, RECORDS
from tests.support.brokers import put_segment
from tests.support.places import SAMPLES
from tests.support.segments import batch, log, segment_file, with_length

PAYMENTS = SAMPLES / "unclean-election" / "broker-1" / "payments-0" / "00000000000000000000.log"
NULLS_AND_HEADERS = SAMPLES / "unclean-election" / "broker-1" / "orders-1" / "00000000000000000000.log"


def test_batches_are_arrow_with_the_declared_schema() -> None:
    table = pa.Table.from_batches(kf.read_batches(str(PAYMENTS)))
    assert table.schema == BATCHES
    assert sum(size for size in table["size_in_bytes"].to_pylist() if size is not None) == PAYMENTS.stat().st_size
    assert table["crc"].to_pylist() == table["crc_computed"].to_pylist()
    assert {0, 1} <= set(table["control_record_type"].to_pylist())


def test_records_distinguish_null_from_empty() -> None:
    table = pa.Table.from_batches(kf.read_records(str(NULLS_AND_HEADERS), payloads=True))
    assert table.schema == RECORDS
    counts = pa.Table.from_batches(kf.read_batches(str(NULLS_AND_HEADERS)))["records_count"].to_pylist()
    assert table.num_rows == sum(count for count in counts if count is not None)
    assert {None, b""} <= set(table["key"].to_pylist())
    assert {None, b""} <= set(table["value"].to_pylist())
    assert any(headers for headers in table["headers"].to_pylist())


def test_offsets_of_a_single_file_are_bounded_by_the_next_segment(tmp_path: Path) -> None:
    """After damage, a batch above the base offset of the next segment does not belong to the log."""
    beyond = [batch(500, 2), batch(502, 2)]
    data = b"".join([*log(2), with_length(batch(4, 2), 0, -1), *beyond])
    directory = tmp_path / "orders-0"
    directory.mkdir()
    put_segment(directory, 10, batch(10))
    for name, last_offsets in ((segment_file(0), [1, 3]), ("copied.log", [1, 3, 501, 503])):
        (directory / name).write_bytes(data)
        assert pa.Table.from_batches(kf.read_batches(str(directory / name)))["last_offset"].to_pylist() == last_offsets
        records = pa.Table.from_batches(kf.read_records(str(directory / name)))
        assert records["offset"].to_pylist() == [offset for last in last_offsets for offset in (last - 1, last)]
