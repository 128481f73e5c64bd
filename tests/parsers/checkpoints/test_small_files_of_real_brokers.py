"""Bytes from real brokers, held against what their clients wrote down and against the segments beside them."""

from pathlib import Path

import pytest

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.parsers.checkpoints import (
    parse_clean_shutdown,
    parse_leader_epochs,
    parse_meta_properties,
    parse_offset_checkpoint,
    parse_partition_metadata,
)
from kafka_forensics.parsers.indexes import (
    parse_offset_index,
    parse_producer_snapshot,
    parse_time_index,
    parse_transaction_index,
)
from kafka_forensics.parsers.log_dir import discover, parse_file_name
from kafka_forensics.writers.files import (
    write_clean_shutdown,
    write_leader_epochs,
    write_partition_metadata,
    write_producer_snapshot,
    write_transaction_index,
)
from tests.support.archives import members
from tests.support.memory import MemoryFile, MemorySource
from tests.support.segments import write_offset_index, write_time_index

UNCLEAN = "kafka-4.3.0-unclean.tar.xz"
CLEAN = "kafka-4.3.0-clean-end.tar.xz"


def base_of(name: str) -> int:
    parsed = parse_file_name(name.rpartition("/")[2])
    assert parsed is not None
    assert parsed.offset is not None
    return parsed.offset


@pytest.mark.parametrize(
    ("archive", "directory", "index_entries", "preallocated"),
    [
        pytest.param(CLEAN, "clean-end/broker-1/[^/]+", 23, 0, marks=pytest.mark.corpora),
        (UNCLEAN, "unclean/broker-2/payments-0", 3, 10_485_752),
    ],
)
def test_indexes_point_at_batches(archives: Path, archive: str, directory: str, index_entries: int, preallocated: int) -> None:
    """Every entry's position starts a batch that begins at or below the entry's offset; written again, the bytes are the same."""
    contents = dict(members(archives / archive, rf"{directory}/\d+\.(log|index)"))
    entries = zero_tail_bytes = 0
    for name, data in contents.items():
        if name.endswith(".index"):
            base = base_of(name)
            index = parse_offset_index(MemoryFile(data), base)
            log = contents[name.replace(".index", ".log")]
            rows = list(zip(index.offsets.tolist(), index.positions.tolist(), strict=True))
            assert all(base <= int.from_bytes(log[position : position + 8]) <= offset for offset, position in rows)
            assert all(log[position + 16] == 2 for _, position in rows)
            assert write_offset_index(rows, base) == data[: len(data) - index.zero_tail_bytes]
            assert index.damage == []
            entries += len(rows)
            zero_tail_bytes += index.zero_tail_bytes
    assert (entries, zero_tail_bytes) == (index_entries, preallocated)


@pytest.mark.corpora
def test_time_indexes_rise(corpora: Path) -> None:
    entries = 0
    for name, data in members(corpora / CLEAN, r"clean-end/broker-1/.*\.timeindex"):
        base = base_of(name)
        index = parse_time_index(MemoryFile(data), base)
        rows = list(zip(index.timestamps.tolist(), index.offsets.tolist(), strict=True))
        assert rows == sorted(rows)
        assert all(offset >= base for _, offset in rows)
        assert write_time_index(rows, base) == data
        assert (index.damage, index.zero_tail_bytes) == ([], 0)
        entries += len(rows)
    assert entries > 30


def test_aborted_transactions_are_as_many_as_the_client_counted(archives: Path) -> None:
    archive = archives / "kafka-4.3.0-healthy.tar.xz"
    counts: dict[str, int] = {}
    for name, data in members(archive, r"healthy/broker-\d/(payments|ledger)-0/\d+\.txnindex"):
        index = parse_transaction_index(MemoryFile(data))
        assert index.damage == []
        assert write_transaction_index(index.entries) == data
        assert all(entry.first_offset < entry.last_offset for entry in index.entries)
        partition = name.rpartition("/")[0]
        counts[partition] = counts.get(partition, 0) + len(index.entries)
    assert counts == {
        f"healthy/broker-{broker}/{topic}-0": aborted
        for broker in (1, 2, 3)
        for topic, aborted in [("payments", 17), ("ledger", 5)]
    }


@pytest.mark.corpora
def test_producer_snapshots_have_good_crcs(corpora: Path) -> None:
    producers = set()
    snapshots = dict(members(corpora / CLEAN, r"clean-end/broker-1/.*\.snapshot"))
    for name, data in snapshots.items():
        snapshot = parse_producer_snapshot(MemoryFile(data), base_of(name))
        assert (snapshot.damage, snapshot.version) == ([], 1)
        assert all(entry.last_offset < snapshot.offset for entry in snapshot.entries)
        assert write_producer_snapshot(snapshot.entries) == data
        producers |= {entry.producer_id for entry in snapshot.entries if "/payments-0/" in name}
    assert len(snapshots) > 10
    assert len(producers) == 4


def test_checkpoints_of_an_unclean_election(archives: Path) -> None:
    contents = dict(members(archives / UNCLEAN, r"unclean/broker-[123]/(audit-0/leader-epoch|[a-z-]*offset)-checkpoint"))
    epochs = parse_leader_epochs(MemoryFile(contents["unclean/broker-1/audit-0/leader-epoch-checkpoint"]))
    assert (epochs.entries, epochs.damage) == ([EpochEntry(0, 0), EpochEntry(2, 300)], [])
    assert write_leader_epochs(epochs.entries) == contents["unclean/broker-1/audit-0/leader-epoch-checkpoint"]
    watermarks = {}
    for name, data in contents.items():
        if name.endswith("offset-checkpoint"):
            checkpoint = parse_offset_checkpoint(MemoryFile(data))
            assert checkpoint.damage == []
            if "replication" in name:
                watermarks[name.split("/")[1]] = checkpoint.offsets["audit", 0]
    assert watermarks == {"broker-1": 345, "broker-2": 370, "broker-3": 300}


@pytest.mark.corpora
def test_identities(corpora: Path) -> None:
    wanted = r"clean-end/[a-z]+-\d+/(meta\.properties|\.kafka_cleanshutdown|[^/]+/partition\.metadata)"
    nodes, clusters, directories = set(), set(), set()
    for name, data in members(corpora / CLEAN, wanted):
        file = MemoryFile(data)
        if name.endswith("meta.properties"):
            meta = parse_meta_properties(file)
            assert (meta.version, meta.damage) == (1, [])
            nodes.add(meta.node_id)
            clusters.add(meta.cluster_id)
            directories.add(meta.directory_id)
        elif name.endswith("partition.metadata"):
            partition = parse_partition_metadata(file)
            assert partition.damage == []
            assert partition.topic_id is not None
            assert write_partition_metadata(partition.topic_id) == data
            assert ("__cluster_metadata" in name) == (partition.topic_id == "AAAAAAAAAAAAAAAAAAAAAQ")
        else:
            shutdown = parse_clean_shutdown(file)
            assert shutdown.damage == []
            assert write_clean_shutdown(shutdown.broker_epoch) == data
    assert (nodes, clusters, len(directories)) == ({1, 2, 3, 100}, {"BKfjTOGySGi0sBpnDkcBQQ"}, 4)


def test_a_broker_before_kraft(archives: Path) -> None:
    archive = archives / "kafka-0.10.2.2-hw-truncation.tar.xz"
    contents = dict(members(archive, r".*"))
    nodes = [parse_meta_properties(MemoryFile(contents[f"hwloss/broker-{broker}/meta.properties"])) for broker in (1, 2, 3)]
    assert [(meta.version, meta.node_id, meta.cluster_id, meta.damage) for meta in nodes] == [
        (0, 1, None, []),
        (0, 2, None, []),
        (0, 3, None, []),
    ]
    discovery = discover(MemorySource(contents))
    assert [directory.path for directory in discovery.log_directories] == [f"hwloss/broker-{broker}" for broker in (1, 2, 3)]
    for directory in discovery.log_directories:
        assert [(found.topic, found.partition, len(found.segments)) for found in directory.partitions] == [("ledger", 0, 1)]
        assert directory.unknown == []


@pytest.mark.corpora
def test_every_name_in_a_cluster_is_known(corpora: Path) -> None:
    names = {name: b"" for name, _ in members(corpora / CLEAN, r"(?!.*index$).*")}
    discovery = discover(MemorySource(names))
    assert [directory.path for directory in discovery.log_directories] == [
        *(f"clean-end/broker-{broker}" for broker in (1, 2, 3)),
        "clean-end/controller-100",
    ]
    assert [len(directory.partitions) for directory in discovery.log_directories] == [19, 19, 19, 1]
    for directory in discovery.log_directories:
        assert directory.unknown == []
        assert all(partition.legal and not partition.unknown and partition.segments for partition in directory.partitions)
