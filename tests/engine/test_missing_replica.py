"""A partition that a checkpoint lists and of which no directory is there."""

import shutil
from pathlib import Path

from kafka_forensics.engine.local import scan
from kafka_forensics.engine.options import ScanOptions
from tests.support.faults import healthy


def test_a_replica_whose_directory_is_gone_is_told(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    shutil.rmtree(brokers.log_dir(2) / "t-0")
    result = scan([str(brokers.log_dir(broker)) for broker in (1, 2, 3)], ScanOptions())
    [gone] = [one for one in result.findings if one.kind == "REPLICA_MISSING"]
    assert (gone.place.topic, gone.place.partition, gone.place.broker) == ("t", 0, 2)
    assert gone.place.offset_end == gone.evidence["high_watermark"] > 0
    assert [one.kind for one in result.findings if one.severity.rank > 0] == ["REPLICA_MISSING"]


def test_every_partition_that_is_gone_everywhere_is_told(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    for broker in (1, 2, 3):
        checkpoint = brokers.log_dir(broker) / "replication-offset-checkpoint"
        lines = [*(f"gone {number} {number + 1}" for number in range(40)), "t 0 " + checkpoint.read_text().split()[-1]]
        checkpoint.write_text(f"0\n{len(lines)}\n" + "".join(f"{line}\n" for line in lines))
    result = scan([str(brokers.log_dir(broker)) for broker in (1, 2, 3)], ScanOptions())
    lost = [one for one in result.findings if one.kind == "COMMITTED_LOST_EVERYWHERE"]
    assert [(one.place.topic, one.place.partition, one.place.offset_end) for one in lost] == [
        ("gone", number, number + 1) for number in range(40)
    ]


def test_an_offset_of_zero_is_no_proof(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    checkpoint = brokers.log_dir(2) / "replication-offset-checkpoint"
    checkpoint.write_text("0\n2\nnever-written 0 0\nt 0 " + checkpoint.read_text().split()[-1] + "\n")
    result = scan([str(brokers.log_dir(broker)) for broker in (1, 2, 3)], ScanOptions())
    assert "REPLICA_MISSING" not in {one.kind for one in result.findings}
