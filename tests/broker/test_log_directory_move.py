"""A broker slowly moves a replica to another log directory: the `-future` copy is not reported as a second replica or as a loss."""

from pathlib import Path

import pytest

from lab.log_directory_move import RECORDS, TOPIC, copy_while_moving
from tests.support.faults_verdict import finding_rows, scan

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def moving(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Both log directories of a broker that moves a replica from one to the other."""
    return copy_while_moving(tmp_path_factory.mktemp("move"))


def test_a_future_copy_is_not_a_replica(moving: list[Path]) -> None:
    [future] = [path for directory in moving for path in directory.glob(f"{TOPIC}-0.*-future")]
    assert not (future.parent / f"{TOPIC}-0").exists()
    result = scan(moving)
    assert {row[0] for row in finding_rows(result)} <= {"RISKY_CONFIG", "HW_UNKNOWN"}
    assert {row[1] for row in finding_rows(result)} <= {"info"}
    [moved] = [partition for partition in result.partitions if partition.topic == TOPIC]
    assert [replica.log_end_offset for replica in moved.replicas] == [RECORDS]


def test_a_future_copy_alone_is_a_leftover_with_data(moving: list[Path]) -> None:
    [target] = [directory for directory in moving if any(directory.glob(f"{TOPIC}-0.*-future"))]
    [leftover] = [
        finding for finding in scan([target]).findings if finding.severity.value == "info" and finding.kind == "LEFTOVER_HOLDS_DATA"
    ]
    assert (leftover.place.offset_start, leftover.evidence["suffix"]) == (0, "future")
    assert 0 < (leftover.place.offset_end or 0) < RECORDS
