"""The memory of an export does not grow with the logs."""

import os
from pathlib import Path

import pytest

from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support.nightly import daily_subset
from tests.support.peak_memory import peak_kib
from tests.support.segments import segment_file

SMALL_ROW_GROUPS = "from kafka_forensics.export.facts import rows; rows.MAX_BYTES = 2 << 20\n"
"""A small log then fills many row groups."""
RECORDS, VALUE_BYTES = 256, 4 << 10
ADDED_MIB = 32


def write_log(folder: Path, batches: int) -> None:
    """Write one segment of incompressible batches of 1 MiB: copies of one batch, because the CRC does not cover the base offset."""
    records = [RecordToWrite(b"key", os.urandom(VALUE_BYTES)) for _ in range(RECORDS)]
    batch = write_batch(records, base_offset=0, base_timestamp=1_700_000_000_000)
    (folder / "t-0").mkdir(parents=True)
    with (folder / "t-0" / segment_file(0)).open("wb") as log:
        for number in range(batches):
            log.write((number * RECORDS).to_bytes(8, "big") + batch[8:])


def peak_mib(folder: Path, batches: int, *options: str) -> float:
    write_log(folder / "copies", batches)
    facts = ("--show-payloads", "--no-deep", "--fact", "records", "--fact", "batches")
    command = ["export", folder / "copies", "--output", folder / "out", *options, "-q", *facts]
    peak, out = peak_kib(*command, before=SMALL_ROW_GROUPS)
    assert f"records {batches * RECORDS} " in " ".join(out.split())
    return peak / 1024


@pytest.mark.parametrize("table_format", daily_subset([""], ["", "parquet", "delta", "iceberg"]))
def test_memory_does_not_grow_with_the_log(tmp_path: Path, table_format: str) -> None:
    options = ["--append", "--cluster", "a", "--snapshot", "n1", "--table-format", table_format] if table_format else []
    small, large = peak_mib(tmp_path / "small", 4, *options), peak_mib(tmp_path / "large", 4 + ADDED_MIB, *options)
    assert large - small < ADDED_MIB / 2
