"""What a Python worker of Spark holds stays small, however large the logs are."""

from pathlib import Path

import pytest

from tests.support.replicas import RepeatedLogs, moved, noisy_batch
from tests.support.spark_cluster import SECONDS_OF_A_SCAN, driver, peak_memory, python_workers, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

MOST_BYTES = 512 << 20
REPLICA_BYTES = 350 << 20


@pytest.mark.parametrize("deep", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_python_workers_stay_below_512_mib_on_a_gib_of_small_batches(tmp_path: Path, *, deep: bool) -> None:
    one = noisy_batch(5, 50, "none")
    count = REPLICA_BYTES // len(one)
    logs = RepeatedLogs(tmp_path / "evidence", "orders", partitions=1, batches=count, batch=one, records=5)
    logs.change(2, 0, count // 2, moved(noisy_batch(5, 50, "none", seed=2), count // 2 * 5))
    peaks: dict[int, int] = {}

    def seen() -> bool:
        for pid in python_workers(asked.process.pid):
            peaks[pid] = max(peaks.get(pid, 0), peak_memory(pid))
        return asked.ready()

    with driver(tmp_path / "driver") as asked:
        asked.session("local[2]")
        asked.send_scan(*logs.log_dirs, deep=deep)
        wait_until(seen, "the answer", SECONDS_OF_A_SCAN)
        seen()
        assert '"kind": "SAME_EPOCH_DIVERGENCE"' in asked.take().document
    print(f"peak memory of Python workers: {[size >> 20 for size in sorted(peaks.values())]} MiB")  # noqa: T201 - the figure
    assert peaks
    assert max(peaks.values()) <= MOST_BYTES
