"""Real brokers start on a salvaged log directory: recovery runs and truncates nothing, and every record is served once, in
order."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

import kafka_forensics as kf
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.constants import CONTROL_MASK
from kafka_forensics.questions.salvage import Salvaged, SalvageOptions, salvage
from lab.broker_faults import BROKER_SETTINGS
from lab.cluster import Cluster
from lab.salvage_states import flip
from lab.salvaged_start import Served, Started, commit, committed, start_on, write_and_lose, write_compacted
from tests.support.segments import segment_file

pytestmark = [pytest.mark.broker, pytest.mark.slice]

TOPICS = ("append-time", "audit", "orders", "payments")
COMPACTED, OFFSETS = "latest", "__consumer_offsets"
GROUP, COMMITS = "shipping", (10, 40, 70, 90)
DERIVED = ("index", "snapshot", "timeindex", "txnindex")


@dataclass(frozen=True)
class Restarted:
    """A salvage, the brokers started on it, and the end offsets acknowledged before."""

    output: Path
    salvaged: Salvaged
    started: Started
    ends: dict[str, int]
    latest: dict[bytes, bytes]
    """Key → its last value in the compacted topic."""
    committed: int
    """The group's committed offset, as the restarted brokers report it."""
    log_dirs: dict[int, Path]


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Restarted:
    """Three brokers lost records of `audit`; their copies of `orders` are damaged at different places, and one lacks a segment; of
    the compacted topics one copy is whole."""
    root = tmp_path_factory.mktemp("salvage")
    with Cluster(root / "nodes", broker_settings=BROKER_SETTINGS) as cluster:
        latest = write_compacted(cluster, COMPACTED)
        commit(cluster, GROUP, (COMPACTED, 0), COMMITS)
        acknowledged_ends = write_and_lose(cluster, root / "copies")
        damage(root / "copies")
        output = root / "out"
        salvaged = salvage([str(root / "copies")], output, ScanOptions(), SalvageOptions("2"))
        ends = {
            (partition.topic, partition.partition): (partition.log_start_offset, partition.log_end_offset)
            for partition in salvaged.partitions
            if partition.topic in (*TOPICS, COMPACTED)
        }
        started = start_on(cluster, output, ends)
        kept = committed(cluster, GROUP, (COMPACTED, 0))
        cluster.stop()
        log_dirs = {broker: cluster.log_dir(broker) for broker in cluster.brokers}
        return Restarted(output, salvaged, started, acknowledged_ends, latest, kept, log_dirs)


def damage(copies: Path) -> None:
    """Flip bits in two copies of `orders-0`, delete a middle segment of the third, tear the end of another log; flip bits in two
    copies of each compacted topic, that of the preferred broker included."""
    segments = [sorted((copies / f"broker-{broker}" / "orders-0").glob("*.log")) for broker in (1, 2, 3)]
    assert min(map(len, segments)) >= 3
    for paths, position in ((segments[0], 700), (segments[1], 4000)):
        data = bytearray(paths[0].read_bytes())
        data[position] ^= 0x10
        paths[0].write_bytes(data)
    segments[2][1].unlink()
    torn = copies / "broker-1" / "append-time-0" / segment_file(0)
    torn.write_bytes(torn.read_bytes()[:-9])
    for broker in (1, 2):
        flip(copies / f"broker-{broker}" / f"{COMPACTED}-0", 0, broker)
        flip(copies / f"broker-{broker}" / f"{OFFSETS}-0", 0, broker)


def in_logs(output: Path, name: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """The records of a salvaged log as the package reads them, without transaction markers."""
    records = []
    for path in sorted((output / "broker-1" / "broker-1" / name).glob("*.log")):
        batches = pa.Table.from_batches(list(kf.read_batches(str(path)))).to_pylist()
        markers = {row["base_offset"] for row in batches if row["attributes"] & CONTROL_MASK}
        rows = pa.Table.from_batches(list(kf.read_records(str(path), payloads=True))).to_pylist()
        records += [(row["offset"], row["key"], row["value"]) for row in rows if row["offset"] not in markers]
    return records


def test_all_topics_are_salvaged(restarted: Restarted) -> None:
    refused = {refused.topic for refused in restarted.salvaged.refused}
    assert refused <= {"__cluster_metadata"}
    assert {partition.topic for partition in restarted.salvaged.partitions} >= set(TOPICS)
    (audit,) = [partition for partition in restarted.salvaged.partitions if partition.topic == "audit"]
    assert audit.log_end_offset == restarted.ends["old_end"]
    (orders, _) = [partition for partition in restarted.salvaged.partitions if partition.topic == "orders"]
    assert len(orders.brokers) > 1


def test_the_whole_copy_of_compacted_topics_serves_the_last_values(restarted: Restarted) -> None:
    for topic in (COMPACTED, OFFSETS):
        (partition,) = [partition for partition in restarted.salvaged.partitions if partition.topic == topic]
        assert (partition.base_broker, partition.brokers, partition.gaps) == (3, [3], [])
    served: dict[bytes | None, bytes | None] = {key: value for _, key, value in restarted.started.served[COMPACTED, 0]}
    assert {key: value for key, value in served.items() if value is not None} == restarted.latest
    assert restarted.committed == COMMITS[-1]


def test_every_record_is_served_once_in_order(restarted: Restarted) -> None:
    served: Served = restarted.started.served
    for (topic, partition), records in served.items():
        offsets = [offset for offset, _, _ in records]
        assert offsets == sorted(set(offsets))
        assert records == in_logs(restarted.output, f"{topic}-{partition}")
    assert [offset for offset, _, _ in served["audit", 0]] == list(range(restarted.ends["old_end"]))
    assert len(served["orders", 0]) == 500


def test_recovery_ran_and_truncated_nothing(restarted: Restarted) -> None:
    for broker, output in restarted.started.output.items():
        lines = output.splitlines()
        assert any(b"Recovering" in line for line in lines), broker
        for words in (b"Truncating to", b"] ERROR ", b"Corrupt", b"invalid messages"):
            assert [line for line in lines if words in line and b"has no effect" not in line] == [], broker
    for broker, log_dir in restarted.log_dirs.items():
        for path in restarted.output.glob(f"broker-{broker}/*/*/*.log"):
            ours, theirs = path.read_bytes(), (log_dir / path.parent.name / path.name).read_bytes()
            assert theirs.startswith(ours), (broker, path.name)


def test_recovery_rebuilds_the_files_of_the_salvage(restarted: Restarted) -> None:
    compared = 0
    for broker, log_dir in restarted.log_dirs.items():
        for name in ("orders-0", "payments-0", "payments-1", "audit-0"):
            for path in (restarted.output / f"broker-{broker}" / f"broker-{broker}" / name).iterdir():
                if path.suffix[1:] in DERIVED:
                    compared += 1
                    assert (log_dir / name / path.name).read_bytes() == path.read_bytes(), (log_dir, path)
    assert compared > 40


def test_a_salvage_of_the_restarted_brokers_is_whole(restarted: Restarted, tmp_path: Path) -> None:
    paths = [str(log_dir) for log_dir in restarted.log_dirs.values()]
    again = salvage(paths, tmp_path / "again", ScanOptions(topic_glob="[aop]*"), SalvageOptions())
    assert again.is_whole
    assert {partition.topic for partition in again.partitions} == set(TOPICS)
    shutil.rmtree(tmp_path / "again")
