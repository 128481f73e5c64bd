"""What an export holds at once does not grow with what it writes."""

import os
from pathlib import Path

import pytest

from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support.nightly import daily_subset
from tests.support.peak_memory import peak_kib
from tests.support.segments import segment_file

SMALL_ROW_GROUPS = "from kafka_forensics.export.facts import rows; rows.MAX_BYTES = 2 << 20\n"
"""Little data makes many row groups."""
RECORDS, VALUE_BYTES = 256, 4 << 10
MIB_MORE = 32


def write_log(folder: Path, batches: int) -> None:
    """One segment of batches of 1 MiB that compress badly; a base offset is not under the CRC, so one batch makes them all."""
    records = [RecordToWrite(b"key", os.urandom(VALUE_BYTES)) for _ in range(RECORDS)]
    batch = write_batch(records, base_offset=0, base_timestamp=1_700_000_000_000)
    (folder / "t-0").mkdir(parents=True)
    with (folder / "t-0" / segment_file(0)).open("wb") as log:
        for number in range(batches):
            log.write((number * RECORDS).to_bytes(8, "big") + batch[8:])


def peak_mib(folder: Path, batches: int, *more: str) -> float:
    write_log(folder / "copies", batches)
    facts = ("--show-payloads", "--no-deep", "--fact", "records", "--fact", "batches")
    command = ["export", folder / "copies", "--output", folder / "out", *more, "-q", *facts]
    peak, out = peak_kib(*command, before=SMALL_ROW_GROUPS)
    assert f"records\t{batches * RECORDS}\t" in out
    return peak / 1024


@pytest.mark.parametrize("form", daily_subset([""], ["", "parquet", "delta", "iceberg"]))
def test_memory_holds_row_groups_and_not_the_log(tmp_path: Path, form: str) -> None:
    more = ["--append", "--cluster", "a", "--snapshot", "n1", "--table-format", form] if form else []
    small, large = peak_mib(tmp_path / "small", 4, *more), peak_mib(tmp_path / "large", 4 + MIB_MORE, *more)
    assert large - small < MIB_MORE / 2
