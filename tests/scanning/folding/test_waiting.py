"""Work that waits for a storage service runs concurrently and answers in order."""

import threading
from contextlib import closing
from pathlib import Path

import pytest

from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.scanning.engine import local
from kafka_forensics.scanning.engine.work_plan import mostly_waits
from kafka_forensics.scanning.folding.waiting import CONCURRENT_PARTITIONS, map_concurrently
from kafka_forensics.storage.local import LocalSource
from tests.support.brokers import put_replica
from tests.support.segments import log


def test_answers_come_in_order_although_the_first_are_the_slowest() -> None:
    last_begun = threading.Event()

    def work(number: int) -> int:
        if number == CONCURRENT_PARTITIONS - 1:
            last_begun.set()
        assert last_begun.wait(20), "fewer partitions are processed concurrently"
        return number * number

    assert list(map_concurrently(work, range(100))) == [number * number for number in range(100)]
    assert list(map_concurrently(work, [])) == []


def test_read_ahead_is_bounded_and_stops_on_close() -> None:
    begun: list[int] = []
    with closing(map_concurrently(lambda number: begun.append(number), range(10_000))) as answers:
        for _ in range(10):
            next(answers)
    assert 10 <= len(begun) <= 10 + 2 * CONCURRENT_PARTITIONS + 1
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("waiting")]


def test_an_error_is_raised_in_order() -> None:
    def work(number: int) -> int:
        if number == 7:
            raise ZeroDivisionError(f"as work {number} does")
        return number

    answers = map_concurrently(work, range(50))
    assert [next(answers) for _ in range(7)] == list(range(7))
    with pytest.raises(ZeroDivisionError, match="as work 7 does"):
        next(answers)


class SlowSource(LocalSource):
    """A directory in which opening a file takes as long as a request to a storage service."""

    request_seconds = 0.05


@pytest.fixture
def brokers(tmp_path: Path) -> list[str]:
    """Three brokers with forty small partitions; one replica is shorter, and one has other records."""
    for partition in range(40):
        for broker in (1, 2, 3):
            put_replica(tmp_path, broker, log(3 if (partition, broker) != (7, 2) else 2), partition=f"orders-{partition}")
    different_log = next((tmp_path / "broker-3").glob("*-11/*.log"))
    different_log.write_bytes(different_log.read_bytes()[:-3] + b"xyz")
    return [str(tmp_path / f"broker-{broker}") for broker in (1, 2, 3)]


def test_a_scan_of_a_storage_service_gives_the_same_answer(brokers: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = local.scan(brokers, ScanOptions(jobs=2))
    progress: list[tuple[int, int]] = []
    inputs = gather(brokers, ScanOptions())
    for plan in inputs.replicas:
        plan.log_dir.source = SlowSource(plan.log_dir.source.name)
    assert mostly_waits(inputs.replicas[:3])
    result = local.scan_inputs(inputs, ScanOptions(jobs=2), lambda *bytes_done: progress.append(bytes_done))
    assert result.findings == expected.findings
    assert result.partitions == expected.partitions
    assert result.totals == expected.totals
    assert {finding.place.partition for finding in expected.findings} >= {7, 11}
    assert progress[-1] == (expected.totals.bytes_total, expected.totals.bytes_total)
