"""A bundle of a running broker that writes meanwhile has no findings of damage or loss."""

from pathlib import Path

import pytest

import kafka_forensics as kf
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.pseudonyms import NameKind
from kafka_forensics.questions.collect import CollectOptions, PseudonymMap, collect
from lab.cluster import Cluster
from lab.collect_beside import ALONE
from lab.workload import SMALL_SEGMENTS, Message, Writer, event
from tests.support.bundles import decompressed_members

pytestmark = pytest.mark.broker
TOPIC = "busy"
BEFORE, MEANWHILE = 2000, 500


def write(writer: Writer, first: int, end: int) -> None:
    for start in range(first, end, 50):
        writer.batch(TOPIC, [Message(event("row", number), b"key-%d" % (number % 9)) for number in range(start, start + 50)])


@pytest.mark.parametrize(
    "names", [pytest.param(None, id="names"), pytest.param(PseudonymMap("00" * 32, {}), marks=pytest.mark.slice, id="pseudonyms")]
)
def test_a_running_broker_is_collected(names: PseudonymMap | None, tmp_path: Path) -> None:
    bundle = tmp_path / "broker-1.kfb"
    topic = TOPIC if names is None else names.pseudonym(NameKind.TOPIC, TOPIC)
    with Cluster(tmp_path / "nodes", brokers=1, broker_settings=ALONE) as cluster:
        cluster.create_topic(TOPIC, assignment=[[1]], settings=SMALL_SEGMENTS)
        writer = Writer(cluster, enable_idempotence=True)
        write(writer, 0, BEFORE)
        waiting = [MEANWHILE]

        def progress(_done: int, _total: int) -> None:
            """Write once, after some of the logs are read."""
            if waiting:
                write(writer, BEFORE, BEFORE + waiting.pop())

        with bundle.open("w+b") as file:
            wanted = CollectOptions(ScanOptions(live=True), pseudonyms=names)
            done = collect([str(cluster.log_dir(1))], wanted, file, progress)
        write(writer, BEFORE + MEANWHILE, BEFORE + 2 * MEANWHILE)  # the broker still works
    assert done.incomplete == []
    assert any(TOPIC.encode() in data for data in decompressed_members(bundle).values()) is (names is None)
    assert waiting == []
    scanned = kf.scan([str(bundle)])
    assert [finding for finding in scanned.findings if finding.severity.value != "info"] == []
    [partition] = [partition for partition in scanned.partitions if partition.topic == topic]
    [replica] = partition.replicas
    assert replica.log_end_offset is not None
    assert BEFORE <= replica.log_end_offset <= BEFORE + MEANWHILE
