"""How replicas agree, beside forks: a hole on one of them, rot on one of them."""

from pathlib import Path

import pytest

from kafka_forensics.engine.local import scan
from kafka_forensics.engine.options import ScanOptions
from tests.support.faults import healthy

pytestmark = pytest.mark.faults


def test_a_hole_on_one_replica_is_missing(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    middle = brokers.file(1, brokers.log.segments[1])
    for path in middle.parent.glob(f"{middle.stem}.*"):
        path.unlink()
    result = scan([str(brokers.log_dir(broker)) for broker in (1, 2, 3)], ScanOptions())
    assert [one.agreement.kind for one in result.partitions] == ["missing"]


def test_rot_on_one_replica_is_content_from_where_it_begins(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    batch = brokers.log.batches[3]
    brokers.flip(2, batch, 70)
    result = scan([str(brokers.log_dir(broker)) for broker in (1, 2, 3)], ScanOptions())
    [partition] = result.partitions
    assert (partition.agreement.kind, partition.agreement.common_end_offset) == ("content", batch.base_offset)
