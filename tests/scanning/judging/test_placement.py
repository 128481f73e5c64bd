"""Placement of keys in a whole scan: at most one finding a topic."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_forensics.analysis.placement import CRC32, MURMUR2
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.results import KeyPlacement
from kafka_forensics.scanning.engine import local
from kafka_forensics.wording import message
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.analysis.placement.test_key_placement import java, librdkafka
from tests.support.archives import archive_params
from tests.support.brokers import put_replica
from tests.support.segments import BASE_TIMESTAMP

Partitioner = Callable[[bytes, int], int]


def put_topic(folder: Path, runs: list[tuple[Partitioner, int]], *, topic: str = "orders", codec: str = "none") -> None:
    """A topic on two brokers: 200 keys for each run (partitioner, number of partitions), each in a batch."""
    logs: dict[int, list[bytes]] = {number: [] for number in range(max(count for _, count in runs))}
    time = BASE_TIMESTAMP
    for partitioner, count in runs:
        for number in range(200):
            key = b"order-%d" % number
            log = logs[partitioner(key, count)]
            record = RecordToWrite(key, random.Random(time).randbytes(4200 if codec != "none" else 1100))
            log.append(write_batch([record], base_offset=len(log), base_timestamp=time, compression_type=codec))
            time += 1000
    for number, log in logs.items():
        for broker in (1, 2):
            put_replica(folder / f"{topic}-{number}-{broker}", broker, log, partition=f"{topic}-{number}")


def judged(path: Path, options: ScanOptions | None = None) -> tuple[list[Finding], list[KeyPlacement | None]]:
    """Scan a folder: (findings about placement, key placement of each partition)."""
    result = local.scan([str(path)], options or ScanOptions(deep=True))
    findings = [finding for finding in result.findings if finding.kind == "KEY_PLACEMENT"]
    return findings, [partition.key_placement for partition in result.partitions]


@pytest.mark.parametrize(("partitioner", "name"), [(java, MURMUR2), (librdkafka, CRC32)])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_default_partitioner_is_recognised_without_a_finding(
    tmp_path: Path, partitioner: Partitioner, name: str, codec: str
) -> None:
    put_topic(tmp_path, [(partitioner, 3)], codec=codec)
    assert judged(tmp_path) == ([], [KeyPlacement(name, 3, 100, None)] * 3)


def test_a_raised_number_of_partitions_has_a_message(tmp_path: Path) -> None:
    put_topic(tmp_path, [(java, 2), (java, 4)])
    ((finding,), placements) = judged(tmp_path)
    assert placements == [KeyPlacement(MURMUR2, 4, 100, None)] * 4
    assert (finding.severity, finding.place.topic, finding.place.partition) == (Severity.INFO, "orders", None)
    moved = finding.evidence["keys_in_several_partitions"]
    assert 60 < moved < 140
    assert message(finding) == (
        "Keys of topic orders were placed by murmur2 over 2 partitions until 2023-11-14T22:16:41Z, and since then by murmur2 over 4"
        f" partitions; {moved} of 200 sampled keys are in several partitions, so the order of their records is not kept."
    )
    assert finding.evidence["premises"][0].startswith("number of partitions: the partition directories")


def test_a_selected_partition_is_judged_by_the_number_of_all_partitions(tmp_path: Path) -> None:
    put_topic(tmp_path, [(librdkafka, 3)])
    assert judged(tmp_path, ScanOptions(deep=True, partition=1)) == ([], [KeyPlacement(CRC32, 3, 100, None)])


def test_topics_of_one_partition_internal_topics_and_shallow_scans_have_no_placement(tmp_path: Path) -> None:
    put_topic(tmp_path / "one", [(java, 1)])
    put_topic(tmp_path / "internal", [(java, 2), (librdkafka, 2)], topic="__internal")
    assert judged(tmp_path) == ([], [None] * 3)
    put_topic(tmp_path / "two", [(java, 2), (librdkafka, 2)])
    assert len(judged(tmp_path)[0]) == 1
    assert judged(tmp_path / "two", ScanOptions(deep=False)) == ([], [None] * 2)


@pytest.mark.parametrize("archive", archive_params("kafka-4.3.0-healthy"))
def test_programs_that_choose_partitions_are_recognised_in_real_logs(archives: Path, archive: str) -> None:
    ((finding,), _) = judged(archives / f"{archive}.tar.xz")
    assert (finding.place.topic, finding.severity) == ("orders", Severity.INFO)
    assert finding.evidence["partitioner"] == "no_known_hash"
    assert "orders are placed by no known hash over 2 partitions" in message(finding)
    assert finding.evidence["premises"][0] == "number of partitions: the controller's log"
    assert finding.evidence["keyless_percent"] == {"0": 0, "1": 100}
