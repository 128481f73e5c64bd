"""Files of the Spark benchmark: one log as all partitions of three brokers, by hard links, and copies that differ."""

import os
import shutil
from pathlib import Path
from typing import Final

from bench.workloads import GIB, Workload, make, workloads
from kafka_forensics.model.constants import CRC_START
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.parsers.kernels.compiling import use_compiled
from kafka_forensics.parsers.kernels.crc import crc32c
from kafka_forensics.writers.files import write_leader_epochs, write_meta_properties, write_offset_checkpoint

BROKERS: Final = (1, 2, 3)
BLOCK_OFFSETS: Final = 1 << 16
_MAX_TIMESTAMP: Final = slice(35, 43)
_CRC: Final = slice(17, 21)


def one_log(name: str, size_in_bytes: int) -> Workload:
    """A workload of one partition: `small` batches of one record, or `zstd` with many records per batch."""
    kinds = {workload.name: workload for workload in workloads(1.0)}
    if name == "small":
        workload, template = kinds["small"], kinds["small"].templates[0]
    else:
        workload, template = kinds["packed"], kinds["packed"].templates[1]
    return Workload(name, workload.title, size_in_bytes, (template,), workload.records_a_batch)


def make_cluster(workload: Workload, partitions: int, root: Path, differing_blocks: int = 0) -> list[Path]:
    """Make log directories of three brokers that have the log as each of their partitions; return them.

    On the last broker, partition 0 differs in one batch of each of the first `differing_blocks` blocks of offsets.
    """
    log_dir = make(workload, root)
    cluster = root / f"cluster-{workload.name}-{workload.total_bytes}-{partitions}-{differing_blocks}"
    brokers = [cluster / f"broker-{number}" for number in BROKERS]
    end = workload.total_bytes // len(workload.templates[0]) * workload.records_a_batch
    for number, broker in zip(BROKERS, brokers, strict=True):
        if (broker / "meta.properties").exists():
            continue
        shutil.rmtree(broker, ignore_errors=True)
        for partition in range(partitions):
            directory = broker / f"bench-{partition}"
            directory.mkdir(parents=True)
            for file in (log_dir / "bench-0").iterdir():
                os.link(file, directory / file.name)
            (directory / "leader-epoch-checkpoint").unlink()
            (directory / "leader-epoch-checkpoint").write_bytes(write_leader_epochs([EpochEntry(0, 0)]))
        if differing_blocks and number == BROKERS[-1]:
            _change(broker / "bench-0", workload, differing_blocks)
        ends = {("bench", partition): end for partition in range(partitions)}
        for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
            (broker / name).write_bytes(write_offset_checkpoint(ends))
        (broker / "meta.properties").write_bytes(write_meta_properties(version=1, node_id=number, cluster_id="bench"))
    return brokers


def _change(directory: Path, workload: Workload, blocks: int) -> None:
    """Change the timestamp, and the CRC, of one batch in the middle of each of the first `blocks`."""
    use_compiled(True)
    size, records = len(workload.templates[0]), workload.records_a_batch
    for log in sorted(directory.glob("*.log")):
        first = int(log.stem)
        wanted = [BLOCK_OFFSETS * block + BLOCK_OFFSETS // 2 for block in range(blocks)]
        inside = [offset for offset in wanted if first <= offset < first + log.stat().st_size // size * records]
        if not inside:
            continue
        twin = log.with_suffix(".twin")
        shutil.copyfile(log, twin)
        os.replace(twin, log)
        with open(log, "r+b") as file:
            for offset in inside:
                position = (offset - first) // records * size
                file.seek(position)
                batch = bytearray(file.read(size))
                later = int.from_bytes(batch[_MAX_TIMESTAMP], "big") + 1
                batch[_MAX_TIMESTAMP] = later.to_bytes(8, "big")
                batch[_CRC] = _checksum(batch).to_bytes(4, "big")
                file.seek(position)
                file.write(batch)


def _checksum(batch: bytearray) -> int:
    import numpy as np

    return int(crc32c(np.frombuffer(bytes(batch), np.uint8), CRC_START, len(batch), 0))


def total_bytes(brokers: list[Path]) -> int:
    """The size of all logs in bytes; linked files count as often as they are read."""
    return sum(path.stat().st_size for broker in brokers for path in broker.rglob("*.log"))


def warm(brokers: list[Path]) -> None:
    """Read all files into the page cache, linked files once."""
    seen = set()
    for path in (path for broker in brokers for path in broker.rglob("*.log")):
        inode = path.stat().st_ino
        if inode in seen:
            continue
        seen.add(inode)
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 24):
                pass


__all__ = ["GIB", "make_cluster", "one_log", "total_bytes", "warm"]
