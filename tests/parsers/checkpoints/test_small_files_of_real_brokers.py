"""Small text files and directory names that real brokers wrote; golden dumps compare indexes and snapshots with Kafka's tool."""

import pytest

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.parsers import checkpoints
from kafka_forensics.parsers.log_dir import discover
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.writers import files
from tests.support.memory import MemoryFile
from tests.support.places import SAMPLES


@pytest.mark.parametrize("sample", ["healthy", "silent-divergence", "unclean-election"])
def test_files_are_read_without_damage_and_written_back_unchanged(sample: str) -> None:
    for path in (SAMPLES / sample).glob("broker-*/*offset-checkpoint"):
        checkpoint = checkpoints.parse_offset_checkpoint(MemoryFile(path.read_bytes()))
        assert checkpoint.damage == []
        assert files.write_offset_checkpoint(checkpoint.offsets) == path.read_bytes() or not checkpoint.offsets
    for path in (SAMPLES / sample).glob("broker-*/.kafka_cleanshutdown"):
        shutdown = checkpoints.parse_clean_shutdown(MemoryFile(path.read_bytes()))
        assert (shutdown.damage, files.write_clean_shutdown(shutdown.broker_epoch)) == ([], path.read_bytes())
    for path in (SAMPLES / sample).glob("broker-*/*/leader-epoch-checkpoint"):
        epochs = checkpoints.parse_leader_epochs(MemoryFile(path.read_bytes()))
        assert (epochs.damage, files.write_leader_epochs(epochs.entries)) == ([], path.read_bytes())
    for path in (SAMPLES / sample).glob("broker-*/*/partition.metadata"):
        metadata = checkpoints.parse_partition_metadata(MemoryFile(path.read_bytes()))
        assert (metadata.damage, files.write_partition_metadata(metadata.topic_id or "")) == ([], path.read_bytes())


def test_checkpoints_of_an_unclean_election() -> None:
    watermarks = {}
    for broker in (1, 2, 3):
        source = LocalSource(str(SAMPLES / "unclean-election" / f"broker-{broker}"))
        with source.open("replication-offset-checkpoint") as file:
            watermarks[broker] = checkpoints.parse_offset_checkpoint(file).offsets["audit", 0]
        with source.open("audit-0/leader-epoch-checkpoint") as file:
            entries = checkpoints.parse_leader_epochs(file).entries
        assert entries == [EpochEntry(0, 0), *([EpochEntry(2, 300)] if broker == 1 else [])]
    assert watermarks == {1: 345, 2: 370, 3: 300}


@pytest.mark.parametrize(("sample", "version", "partitions"), [("healthy", 1, 13), ("silent-divergence", 0, 1)])
def test_identities_and_directory_names(sample: str, version: int, partitions: int) -> None:
    """Version 0 has no cluster id and no directory id."""
    source = LocalSource(str(SAMPLES / sample))
    directories = discover(source).log_directories
    assert [directory.path for directory in directories] == [f"broker-{broker}" for broker in (1, 2, 3)]
    clusters = set()
    for broker, directory in enumerate(directories, 1):
        with source.open(f"{directory.path}/meta.properties") as file:
            meta = checkpoints.parse_meta_properties(file)
        assert (meta.version, meta.node_id, meta.damage) == (version, broker, [])
        assert (meta.directory_id is None) == (meta.cluster_id is None) == (version == 0)
        clusters.add(meta.cluster_id)
        assert (len(directory.partitions), directory.unknown) == (partitions, [])
        assert all(partition.legal and not partition.unknown and partition.segments for partition in directory.partitions)
    assert len(clusters) == 1
