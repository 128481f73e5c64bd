"""Makes the files of the workloads: large plain batches, compressed batches, very small batches, and others."""

import os
import shutil
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from kafka_forensics.model.constants import CRC_START
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.parsers.kernels.compiling import use_compiled
from kafka_forensics.parsers.kernels.crc import crc32c
from kafka_forensics.parsers.spec.indexes import OFFSET_INDEX_ENTRY, build_entries
from kafka_forensics.writers.batches import RecordToWrite, write_batch, write_marker
from kafka_forensics.writers.files import (
    write_leader_epochs,
    write_meta_properties,
    write_offset_checkpoint,
    write_partition_metadata,
)

GIB: Final = 1 << 30
SEGMENT_BYTES: Final = GIB - (1 << 20)
INDEX_INTERVAL_BYTES: Final = 4096
BLOCK_BATCHES: Final = 4096


@dataclass(frozen=True, slots=True)
class Workload:
    """A set of files: template batches repeated with increasing base offsets, which are outside the CRC."""

    name: str
    title: str
    total_bytes: int
    templates: tuple[bytes, ...]
    records_a_batch: int
    with_indexes: bool = True


def workloads(scale: float) -> list[Workload]:
    """All workloads, their sizes multiplied by `scale`."""
    rng = np.random.default_rng(7)

    def records(count: int, size: int) -> list[RecordToWrite]:
        tokens = [rng.bytes(5).hex().encode() for _ in range(200)]
        values = [b" ".join(tokens[i] for i in rng.integers(0, 200, size // 11))[:size] for _ in range(count)]
        return [RecordToWrite(f"key-{i:06d}".encode(), value, timestamp_delta=i) for i, value in enumerate(values)]

    large = write_batch(records(64, 1000), base_offset=0, base_timestamp=1_700_000_000_000)
    packed = tuple(
        write_batch(records(500, 130), base_offset=0, base_timestamp=1_700_000_000_000, compression_type=codec)
        for codec in ("lz4", "zstd")
    )
    small = write_batch(
        [RecordToWrite(b"k", rng.bytes(23).hex().encode())],
        base_offset=0,
        base_timestamp=1_700_000_000_000,
        producer_id=-1,
    )
    sizes = [int(size * scale) for size in (8 * GIB, GIB, 2 * GIB)]
    return [
        Workload("large", "64 KiB batches", sizes[0], (large,), 64),
        Workload("packed", "64 KiB of records, lz4 and zstd, decoded", sizes[1], packed, 500),
        Workload("small", f"single-record batches of {len(small)} bytes", sizes[2], (small,), 1),
        Workload("large-bare", "64 KiB batches, no indexes", sizes[0], (large,), 64, with_indexes=False),
        Workload(
            "small-bare", f"single-record batches of {len(small)} bytes, no indexes", sizes[2], (small,), 1, with_indexes=False
        ),
    ]


def make(workload: Workload, root: Path) -> Path:
    """Write the workload below `root` unless it exists; return the log directory."""
    log_dir = _log_dir(workload, root)
    if (log_dir / "meta.properties").exists():
        return log_dir
    shutil.rmtree(log_dir, ignore_errors=True)
    ends = {}
    for partition, template in enumerate(workload.templates):
        directory = log_dir / f"bench-{partition}"
        directory.mkdir(parents=True)
        if workload.with_indexes:
            ends[("bench", partition)] = _write_partition(workload, template, directory)
        else:
            ends[("bench", partition)] = _link_logs(workload, root, partition, directory, template)
        (directory / "leader-epoch-checkpoint").write_bytes(write_leader_epochs([EpochEntry(0, 0)]))
    return with_checkpoints(log_dir, ends)


def _log_dir(workload: Workload, root: Path) -> Path:
    return root / f"{workload.name}-{workload.total_bytes}" / "broker-1"


def _link_logs(workload: Workload, root: Path, partition: int, directory: Path, template: bytes) -> int:
    """Hard-link the `.log` files of the workload with indexes; return the end offset."""
    twin = replace(workload, name=workload.name.removesuffix("-bare"), with_indexes=True)
    for log in (make(twin, root) / f"bench-{partition}").glob("*.log"):
        os.link(log, directory / log.name)
    return workload.total_bytes // len(workload.templates) // len(template) * workload.records_a_batch


def _write_partition(workload: Workload, template: bytes, directory: Path) -> int:
    """Write segments of about 1 GiB; return the end offset."""
    size = len(template)
    batches = workload.total_bytes // len(workload.templates) // size
    batches_per_segment = SEGMENT_BYTES // size
    for first in range(0, batches, batches_per_segment):
        count = min(batches_per_segment, batches - first)
        base = first * workload.records_a_batch
        with open(directory / f"{base:020d}.log", "wb", buffering=0) as file:
            file.writelines(_blocks(template, first, count, workload.records_a_batch))
        step = max(INDEX_INTERVAL_BYTES // size + 1, 1)
        entries = (
            {"relative_offset": (n + 1) * workload.records_a_batch - 1, "position": n * size} for n in range(step, count, step)
        )
        (directory / f"{base:020d}.index").write_bytes(build_entries(OFFSET_INDEX_ENTRY, entries))
        (directory / f"{base:020d}.timeindex").write_bytes(b"")
    return batches * workload.records_a_batch


def _blocks(template: bytes, first: int, count: int, records: int) -> Iterator[memoryview]:
    """The bytes of a segment, up to `BLOCK_BATCHES` batches at a time."""
    block = np.tile(np.frombuffer(template, np.uint8), (min(BLOCK_BATCHES, count), 1))
    for start in range(first, first + count, BLOCK_BATCHES):
        part = block[: min(BLOCK_BATCHES, first + count - start)]
        part[:, :8] = _big_endian(np.arange(start, start + len(part), dtype=np.int64) * records)
        yield part.data


def make_many(partitions: int, root: Path) -> list[Path]:
    """Make three brokers with the same `partitions` partitions of ten batches and preallocated indexes; return their log
    directories."""
    brokers = [root / f"many-{partitions}" / f"broker-{number}" for number in (1, 2, 3)]
    record = [RecordToWrite(b"key", b"v" * 100)]
    log = b"".join(write_batch(record, base_offset=offset, base_timestamp=1_700_000_000_000 + offset) for offset in range(10))
    for number, broker in enumerate(brokers, 1):
        if (broker / "meta.properties").exists():
            continue
        ends = {(f"topic-{index % 50}", index // 50): 10 for index in range(partitions)}
        for topic, partition in ends:
            directory = broker / f"{topic}-{partition}"
            directory.mkdir(parents=True, exist_ok=True)
            (directory / f"{0:020d}.log").write_bytes(log)
            for suffix, entry in ((".index", 8), (".timeindex", 12)):
                with open(directory / f"{0:020d}{suffix}", "wb") as file:
                    file.truncate((10 << 20) // entry * entry)
            (directory / "leader-epoch-checkpoint").write_bytes(write_leader_epochs([EpochEntry(0, 0)]))
            (directory / "partition.metadata").write_bytes(write_partition_metadata(_topic_id(topic)))
        with_checkpoints(broker, ends, number)
    return brokers


def _topic_id(topic: str) -> str:
    """An id for a topic of this name."""
    return urlsafe_b64encode(topic.encode().ljust(16, b".")).decode().rstrip("=")


def make_producers(producers: int, root: Path) -> Path:
    """Make a log of one small batch from each of `producers` idempotent producers, with correct CRCs; return its log directory."""
    log_dir = root / f"producers-{producers}" / "broker-1"
    directory = _one_partition(log_dir)
    if directory is None:
        return log_dir
    use_compiled(True)
    template = write_batch(
        [RecordToWrite(b"k", b"v")],
        base_offset=0,
        base_timestamp=1_700_000_000_000,
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
    )
    batches_per_segment = SEGMENT_BYTES // len(template)
    for first in range(0, producers, batches_per_segment):
        with open(directory / f"{first:020d}.log", "wb", buffering=0) as file:
            file.writelines(
                _producer_batches(template, start, min(BLOCK_BATCHES, first + batches_per_segment - start, producers - start)).data
                for start in range(first, min(first + batches_per_segment, producers), BLOCK_BATCHES)
            )
    return with_checkpoints(log_dir, {("bench", 0): producers})


def _producer_batches(template: bytes, start: int, count: int) -> "np.ndarray":
    """`count` batches from offset `start` on, each with its offset as producer id."""
    block = np.tile(np.frombuffer(template, np.uint8), (count, 1))
    numbers = _big_endian(np.arange(start, start + count, dtype=np.int64))
    block[:, :8] = numbers
    block[:, 43:51] = numbers
    for row in block:
        row[17:21] = np.frombuffer(int(crc32c(row, CRC_START, row.size, 0)).to_bytes(4, "big"), np.uint8)
    return block


def logs(log_dir: Path) -> list[str]:
    """All `.log` files of a log directory, in order."""
    return sorted(os.fspath(path) for path in log_dir.rglob("*.log"))


def make_transactions(count: int, root: Path) -> Path:
    """Make a log of `count` transactions, each of one record and its marker; return its log directory."""
    log_dir = root / f"transactions-{count}" / "broker-1"
    directory = _one_partition(log_dir)
    if directory is None:
        return log_dir
    data = write_batch(
        [RecordToWrite(b"k", b"v")],
        base_offset=0,
        base_timestamp=1_700_000_000_000,
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    marker = write_marker(
        commit=True, base_offset=0, timestamp=1_700_000_000_000, producer_id=1, producer_epoch=0, coordinator_epoch=0
    )
    both = np.frombuffer(data + marker, np.uint8)
    with open(directory / f"{0:020d}.log", "wb", buffering=0) as file:
        for start in range(0, count, BLOCK_BATCHES):
            block = np.tile(both, (min(BLOCK_BATCHES, count - start), 1))
            for at, first in ((0, 0), (len(data), 1)):
                block[:, at : at + 8] = _big_endian(np.arange(start, start + len(block), dtype=np.int64) * 2 + first)
            file.write(block.data)
    return with_checkpoints(log_dir, {("bench", 0): 2 * count})


def make_index(entries: int, root: Path) -> Path:
    """Make a segment of one batch with an offset index and a time index of `entries` entries; return its log directory."""
    log_dir = root / f"index-{entries}" / "broker-1"
    directory = _one_partition(log_dir)
    if directory is None:
        return log_dir
    batch = write_batch([RecordToWrite(b"k", b"v")], base_offset=0, base_timestamp=1_700_000_000_000)
    (directory / f"{0:020d}.log").write_bytes(batch)
    numbers = np.arange(1, entries + 1)
    index = np.stack([numbers, 7 * numbers], axis=1).astype(">i4")
    (directory / f"{0:020d}.index").write_bytes(index.tobytes())
    times = np.empty(entries, [("timestamp", ">i8"), ("offset", ">i4")])
    times["timestamp"], times["offset"] = 1_700_000_000_000 + numbers, numbers
    (directory / f"{0:020d}.timeindex").write_bytes(times.tobytes())
    return with_checkpoints(log_dir, {("bench", 0): 1})


def _one_partition(log_dir: Path) -> Path | None:
    """Create the only partition directory of a log directory; None if the log directory is complete."""
    if (log_dir / "meta.properties").exists():
        return None
    directory = log_dir / "bench-0"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "leader-epoch-checkpoint").write_bytes(write_leader_epochs([EpochEntry(0, 0)]))
    return directory


def with_checkpoints(log_dir: Path, ends: dict[tuple[str, int], int], node_id: int = 1) -> Path:
    """Write the checkpoints and, last, `meta.properties`, which marks the log directory as complete; return it."""
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (log_dir / name).write_bytes(write_offset_checkpoint(ends))
    (log_dir / "meta.properties").write_bytes(write_meta_properties(version=1, node_id=node_id, cluster_id="bench"))
    return log_dir


def _big_endian(numbers: "np.ndarray") -> "np.ndarray":
    """Eight big-endian bytes per number."""
    return numbers.astype(">i8").view(np.uint8).reshape(-1, 8)
