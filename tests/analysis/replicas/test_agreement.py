"""How replicas agree, beside forks: a hole on one of them, rot on one of them, ranges that nobody read."""

from pathlib import Path

import pytest

from kafka_forensics.analysis.replicas import diff as differences
from kafka_forensics.analysis.replicas.comparison import compare
from kafka_forensics.engine.local import scan
from kafka_forensics.evidence.options import ScanOptions
from tests.support.faults import healthy
from tests.support.replica_logs import Batch, Logs

pytestmark = pytest.mark.faults


def test_a_hole_on_one_replica_is_missing(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    middle = brokers.file(1, brokers.log.segments[1])
    for path in middle.parent.glob(f"{middle.stem}.*"):
        path.unlink()
    result = scan([str(brokers.log_dir(broker)) for broker in (1, 2, 3)], ScanOptions())
    assert [partition.agreement.kind for partition in result.partitions] == ["missing"]


def test_rot_on_one_replica_is_content_from_where_it_begins(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    batch = brokers.log.batches[3]
    brokers.flip(2, batch, 70)
    result = scan([str(brokers.log_dir(broker)) for broker in (1, 2, 3)], ScanOptions())
    [partition] = result.partitions
    assert (partition.agreement.kind, partition.agreement.common_end_offset) == ("content", batch.base_offset)


@pytest.mark.parametrize(("blocks", "unread"), [(2, 0), (3, 1), (6, 4)])
@pytest.mark.parametrize("lags", [False, True])
def test_replicas_are_not_called_identical_where_ranges_were_left_unread(
    monkeypatch: pytest.MonkeyPatch, blocks: int, unread: int, lags: bool
) -> None:
    """Each second block holds other bytes; those read hold the same records, of the rest nobody knows."""
    monkeypatch.setattr(differences, "RUNS_READ", 1)
    plain = [Batch(number << 16, ["value" * 9]) for number in range(2 * blocks)]
    again = [Batch(batch.base_offset, batch.values, codec="gzip" if number % 2 else "none") for number, batch in enumerate(plain)]
    longer = [*plain, Batch(2 * blocks << 16, ["more"])] if lags else plain
    logs = Logs()
    result = compare([logs.add(1, longer), logs.add(2, again)], logs)
    kinds = {"BATCHES_REENCODED", "REPLICA_LAGS"} if lags else {"BATCHES_REENCODED"}
    assert {finding.kind for finding in result.findings} == kinds
    assert {finding.evidence.get("ranges_not_compared", 0) for finding in result.findings} == {unread}
    known = ("prefix" if lags else "identical", again[-1].base_offset + 1)
    assert (result.agreement.kind, result.agreement.common_end_offset) == (("not_compared", None) if unread else known)
