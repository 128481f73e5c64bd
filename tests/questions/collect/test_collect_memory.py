"""The memory of a collect does not grow with the number of files."""

import gc
import tracemalloc
from pathlib import Path

import pytest

from kafka_forensics.questions.collect import CollectOptions, collect
from kafka_forensics.storage.bundles import BundleSource
from kafka_forensics.writers import bundle_file
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support.brokers import TOPIC_ID, put_meta_properties, put_partition, put_segment

FEW, MANY = 100, 900
BYTES_A_FILE = 250
"""At most; half of them are for its directory in listings."""


def broker_of(partitions: int, log_dir: Path) -> Path:
    """A log directory with this number of partitions of three files."""
    batch = write_batch([RecordToWrite(b"key", b"value")], base_offset=0, base_timestamp=1_700_000_000_000)
    for number in range(partitions):
        put_segment(put_partition(log_dir / f"orders-{number}", batch, topic_id=TOPIC_ID), 0, bytes(8), "index")
    put_meta_properties(log_dir, 1)
    return log_dir


def memory_at_the_end(log_dir: Path, bundle: Path) -> int:
    """Bytes in use when the last file has been read."""
    used = 0

    def progress(done: int, total: int) -> None:
        nonlocal used
        if done == total:
            gc.collect()
            used = tracemalloc.get_traced_memory()[0]

    with bundle.open("w+b") as file:
        tracemalloc.start()
        collect([str(log_dir)], CollectOptions(), file, progress)
        tracemalloc.stop()
    return used


@pytest.mark.nightly
def test_memory_does_not_grow_with_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_file, "PART_BYTES", 1 << 16)
    monkeypatch.setattr(bundle_file, "_ROWS_OF_FRAME", 64)
    few, many = broker_of(FEW, tmp_path / "few"), broker_of(MANY, tmp_path / "many")
    memory_at_the_end(few, tmp_path / "first.kfb")  # fills the caches
    least = memory_at_the_end(few, tmp_path / "few.kfb")
    most = memory_at_the_end(many, tmp_path / "many.kfb")
    assert least > 0
    assert most - least < BYTES_A_FILE * 3 * (MANY - FEW)
    assert len(BundleSource(str(tmp_path / "many.kfb")).list("")) == MANY + 1
