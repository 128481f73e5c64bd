"""A partition that a checkpoint lists and of which no directory is there."""

import shutil
from pathlib import Path
from typing import Any

from kafka_forensics.engine.local import scan
from kafka_forensics.engine.options import ScanOptions
from kafka_forensics.writers.checkpoints import write_offset_checkpoint
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


def test_what_was_not_asked_for_is_not_told(tmp_path: Path) -> None:
    """Of a topic, a partition, a broker nothing was asked for of the others, whose directories are gone everywhere."""
    brokers = healthy(tmp_path)
    for broker in (1, 2, 3):
        path = brokers.log_dir(broker) / "replication-offset-checkpoint"
        path.write_bytes(write_offset_checkpoint({("t", 0): 72, ("t", 1): 8, ("other", 0): 9}))
    gone = {"COMMITTED_LOST_EVERYWHERE", "REPLICA_MISSING"}

    def told(**asked: Any) -> set[tuple[str, str | None, int | None, int | str | None]]:
        result = scan([str(path) for path in brokers.log_dirs], ScanOptions(**asked))
        places = [(one.kind, one.place) for one in result.findings if one.kind in gone]
        return {(kind, place.topic, place.partition, place.broker) for kind, place in places}

    missing = {("REPLICA_MISSING", "t", 1, broker) for broker in (1, 2, 3)}
    assert told(topic_glob="t") == {*missing, ("COMMITTED_LOST_EVERYWHERE", "t", 1, None)}
    assert told(topic_glob="t", partition=0) == set()
    assert told(topic_glob="t", broker="2") == {("REPLICA_MISSING", "t", 1, 2)}
    assert len(told()) == 8
