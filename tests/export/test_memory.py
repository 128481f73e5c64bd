"""What an export holds at once does not grow with what it writes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support.nightly import daily_subset

MEASURED = """
import sys
from pathlib import Path
from kafka_forensics.cli.main import outcome
from kafka_forensics.facts import rows as facts_rows
facts_rows.MAX_BYTES = 2 << 20
status = outcome(["export", *sys.argv[1:], "-q", "--show-payloads", "--no-deep", "--fact", "records", "--fact", "batches"])
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0], file=sys.stderr)
sys.exit(status)
"""
"""Prints its peak in KiB last; row groups are smaller than ever else, so that little data makes many of them."""
RECORDS, VALUE_BYTES = 256, 4 << 10
MIB_MORE = 32


def write_log(folder: Path, batches: int) -> None:
    """One segment of batches of 1 MiB that compress badly; a base offset is not under the CRC, so one batch makes them all."""
    records = [RecordToWrite(b"key", os.urandom(VALUE_BYTES)) for _ in range(RECORDS)]
    batch = write_batch(records, base_offset=0, base_timestamp=1_700_000_000_000)
    (folder / "t-0").mkdir(parents=True)
    with (folder / "t-0" / f"{0:020d}.log").open("wb") as log:
        for number in range(batches):
            log.write((number * RECORDS).to_bytes(8, "big") + batch[8:])


def peak_mib(folder: Path, batches: int, *more: str) -> float:
    write_log(folder / "copies", batches)
    environment = os.environ | {"KAFKA_FORENSICS_KERNELS": "compiled"}
    command = [sys.executable, "-c", MEASURED, str(folder / "copies"), "--output", str(folder / "out"), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, env=environment)
    assert f"records\t{batches * RECORDS}\t" in done.stdout
    return int(done.stderr.split()[-1]) / 1024


@pytest.mark.parametrize("form", daily_subset([""], ["", "parquet", "delta", "iceberg"]))
def test_memory_holds_row_groups_and_not_the_log(tmp_path: Path, form: str) -> None:
    more = ["--append", "--cluster", "a", "--snapshot", "n1", "--table-format", form] if form else []
    small, large = peak_mib(tmp_path / "small", 4, *more), peak_mib(tmp_path / "large", 4 + MIB_MORE, *more)
    assert large - small < MIB_MORE / 2
