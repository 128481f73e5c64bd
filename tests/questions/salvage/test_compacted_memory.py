"""What a merge of compacted copies keeps in memory: runs of batches and what is damaged, never each batch."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafka_forensics.questions.salvage import choosing
from kafka_forensics.questions.salvage.compacted import Merged, merge
from tests.questions.salvage.test_compacted_copies import keyed
from tests.support.salvaged import put_copy, salvaged_of

FEW, MANY = 20_000, 200_000
DAMAGED = 1000
"""Each copy has lost one batch: its broker's number times this."""


def put_large(folder: Path, broker: int, count: int) -> None:
    """A cleaned segment, in which every second offset is gone, with a batch of zeros; and an active one."""
    data = keyed(0, ("k", "v"))
    batches = np.tile(np.frombuffer(data, np.uint8), (count, 1))
    batches[:, :8] = (2 * np.arange(count)).astype(">i8").view(np.uint8).reshape(count, 8)  # the CRC does not cover it
    batches[DAMAGED * broker] = 0
    end = 2 * count
    log_dir = put_copy(
        folder, broker, {0: batches.tobytes(), end: keyed(end, ("k", "last"))}, high_watermark=end + 1, epochs=[(0, 0)]
    )
    (log_dir / "cleaner-offset-checkpoint").write_text(f"0\n1\norders 0 {end}\n")


def test_memory_does_not_grow_with_the_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = []

    def measured(*given: Any, **options: Any) -> Any:
        tracemalloc.start()
        try:
            answer = merge(*given, **options)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert isinstance(answer, Merged)
        return answer

    monkeypatch.setattr(choosing, "merge", measured)
    for count in (FEW, MANY):
        folder = tmp_path / str(count)
        for broker in (1, 2, 3):
            put_large(folder / "in", broker, count)
        (partition,) = salvaged_of(folder / "in", folder / "out").partitions
        assert (partition.chosen_by, partition.gaps) == ("merged", [])
        sizes = [len(keyed(0, ("k", "v"))) * count, len(keyed(0, ("k", "last")))]
        assert partition.size_in_bytes == sum(sizes)
    few, many = peaks
    assert many < 1.5 * few, peaks
