"""Small files of real brokers: each is read without damage and written again byte for byte, and says what its clients noted."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_forensics.model.batches import Damage
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.parsers import checkpoints, indexes
from kafka_forensics.parsers.log_dir import FileKind, discover, parse_file_name
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.writers import files
from tests.support.archives import members
from tests.support.memory import MemoryFile
from tests.support.plan_runs import SAMPLES
from tests.support.segments import write_offset_index, write_time_index

Again = tuple[list[Damage], bytes]


def offset_index(file: MemoryFile, base: int) -> Again:
    index = indexes.parse_offset_index(file, base)
    entries = zip(index.offsets.tolist(), index.positions.tolist(), strict=True)
    return index.damage, write_offset_index(entries, base) + bytes(index.zero_tail_bytes)


def time_index(file: MemoryFile, base: int) -> Again:
    index = indexes.parse_time_index(file, base)
    entries = zip(index.timestamps.tolist(), index.offsets.tolist(), strict=True)
    return index.damage, write_time_index(entries, base) + bytes(index.zero_tail_bytes)


def transaction_index(file: MemoryFile, _: int) -> Again:
    index = indexes.parse_transaction_index(file)
    return index.damage, files.write_transaction_index(index.entries)


def producer_snapshot(file: MemoryFile, offset: int) -> Again:
    snapshot = indexes.parse_producer_snapshot(file, offset)
    return snapshot.damage, files.write_producer_snapshot(snapshot.entries)


def leader_epochs(file: MemoryFile, _: int) -> Again:
    epochs = checkpoints.parse_leader_epochs(file)
    return epochs.damage, files.write_leader_epochs(epochs.entries)


def offsets(file: MemoryFile, _: int) -> Again:
    checkpoint = checkpoints.parse_offset_checkpoint(file)
    return checkpoint.damage, files.write_offset_checkpoint(checkpoint.offsets)


def clean_shutdown(file: MemoryFile, _: int) -> Again:
    shutdown = checkpoints.parse_clean_shutdown(file)
    return shutdown.damage, files.write_clean_shutdown(shutdown.broker_epoch)


def partition_metadata(file: MemoryFile, _: int) -> Again:
    metadata = checkpoints.parse_partition_metadata(file)
    return metadata.damage, files.write_partition_metadata(metadata.topic_id or "")


READ: dict[FileKind, Callable[[MemoryFile, int], Again]] = {
    FileKind.INDEX: offset_index,
    FileKind.TIME_INDEX: time_index,
    FileKind.TRANSACTION_INDEX: transaction_index,
    FileKind.PRODUCER_SNAPSHOT: producer_snapshot,
    FileKind.LEADER_EPOCH_CHECKPOINT: leader_epochs,
    FileKind.REPLICATION_OFFSET_CHECKPOINT: offsets,
    FileKind.RECOVERY_POINT_OFFSET_CHECKPOINT: offsets,
    FileKind.LOG_START_OFFSET_CHECKPOINT: offsets,
    FileKind.CLEANER_OFFSET_CHECKPOINT: offsets,
    FileKind.CLEAN_SHUTDOWN: clean_shutdown,
    FileKind.PARTITION_METADATA: partition_metadata,
}


@pytest.mark.parametrize("sample", ["healthy", "silent-divergence", "unclean-election"])
def test_every_file_is_read_without_damage_and_written_again(sample: str) -> None:
    seen: Counter[FileKind] = Counter()
    for path in (SAMPLES / sample).rglob("*"):
        name = parse_file_name(path.name)
        data = path.read_bytes() if path.is_file() else b""
        if data and name is not None and name.kind in READ:
            assert READ[name.kind](MemoryFile(data), name.offset or 0) == ([], data), path
            seen[name.kind] += 1
    assert sample == "silent-divergence" or set(seen) >= set(READ) - {FileKind.CLEAN_SHUTDOWN}


def test_indexes_point_at_batches_also_where_they_are_preallocated(archives: Path) -> None:
    """Every entry's position starts a batch that begins at or below the entry's offset."""
    contents = dict(members(archives / "kafka-4.3.0-unclean.tar.xz", r"unclean/broker-2/payments-0/\d+\.(log|index)"))
    entries, zeros = 0, []
    for name in [name for name in contents if name.endswith(".index")]:
        base, log = int(Path(name).stem), contents[name.replace(".index", ".log")]
        index = indexes.parse_offset_index(MemoryFile(contents[name]), base)
        rows = list(zip(index.offsets.tolist(), index.positions.tolist(), strict=True))
        assert all(base <= int.from_bytes(log[position : position + 8]) <= offset for offset, position in rows)
        assert all(log[position + 16] == 2 for _, position in rows)
        entries += len(rows)
        zeros.append(index.zero_tail_bytes)
    assert (entries, zeros) == (3, [0, 0, 10_485_752])


def test_aborted_transactions_are_as_many_as_the_client_counted(archives: Path) -> None:
    counts: Counter[str] = Counter()
    for name, data in members(archives / "kafka-4.3.0-healthy.tar.xz", r"healthy/broker-\d/(payments|ledger)-0/\d+\.txnindex"):
        entries = indexes.parse_transaction_index(MemoryFile(data)).entries
        assert all(entry.first_offset < entry.last_offset for entry in entries)
        counts[name.split("/")[2]] += len(entries)
    assert counts == {"payments-0": 3 * 17, "ledger-0": 3 * 5}


def test_checkpoints_of_an_unclean_election() -> None:
    watermarks = {}
    for broker in (1, 2, 3):
        log_dir = SAMPLES / "unclean-election" / f"broker-{broker}"
        with LocalSource(str(log_dir)).open("replication-offset-checkpoint") as file:
            watermarks[broker] = checkpoints.parse_offset_checkpoint(file).offsets["audit", 0]
    assert watermarks == {1: 345, 2: 370, 3: 300}
    with LocalSource(str(SAMPLES / "unclean-election" / "broker-1")).open("audit-0/leader-epoch-checkpoint") as file:
        assert checkpoints.parse_leader_epochs(file).entries == [EpochEntry(0, 0), EpochEntry(2, 300)]


@pytest.mark.parametrize(("sample", "version", "partitions"), [("healthy", 1, 13), ("silent-divergence", 0, 1)])
def test_identities_and_names(sample: str, version: int, partitions: int) -> None:
    """The older brokers knew neither a cluster's id nor the directory's."""
    source = LocalSource(str(SAMPLES / sample))
    directories = discover(source).log_directories
    assert [(directory.path, len(directory.partitions)) for directory in directories] == [
        (f"broker-{broker}", partitions) for broker in (1, 2, 3)
    ]
    clusters = set()
    for broker, directory in enumerate(directories, 1):
        with source.open(f"{directory.path}/meta.properties") as file:
            meta = checkpoints.parse_meta_properties(file)
        assert (meta.version, meta.node_id, meta.damage) == (version, broker, [])
        assert (meta.directory_id is None) == (meta.cluster_id is None) == (version == 0)
        clusters.add(meta.cluster_id)
        assert directory.unknown == []
        assert all(partition.legal and not partition.unknown and partition.segments for partition in directory.partitions)
    assert len(clusters) == 1
