"""`python -m bench.collect`: the cost of `collect` compared with a scan of the same files, and the size of bundles.

Because other processes may share the machine, CPU seconds count, and the least of three runs. Logs are in the page cache. Every
batch has different records, as in real logs; otherwise digests would compress to nothing.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from bench.running import Run, run
from bench.workloads import SEGMENT_BYTES, with_checkpoints
from kafka_forensics.model.constants import CRC_START
from kafka_forensics.parsers.kernels.compiling import use_compiled
from kafka_forensics.parsers.kernels.crc import crc32c
from kafka_forensics.writers.batches import RecordToWrite, write_batch

WORK: Final = Path(__file__).parent / "work"
STARTED_MS: Final = 1_700_000_000_000
TEMPLATES: Final = 64
"""Number of batches with random records; all other batches repeat these with a few different bytes."""
RUNS: Final = 3
_MARK_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Logs:
    """A kind of log: batches of `records` records with values of `value_bytes` bytes."""

    name: str
    title: str
    records: int
    value_bytes: int
    producers: int
    compression_type: str = "none"


LOGS: Final = (
    Logs("64k", "64 KiB batches", 64, 1000, 20),
    Logs("64k-zstd", "64 KiB of records, zstd", 64, 1000, 20, "zstd"),
    Logs("8k", "8 KiB batches", 16, 480, 20),
    Logs("8k-zstd", "8 KiB of records, zstd", 16, 480, 20, "zstd"),
    Logs("120", "120-byte batches", 1, 50, 1),
    Logs("120-zstd", "120-byte batches, zstd", 1, 50, 1, "zstd"),
)


def make(logs: Logs, total_bytes: int, root: Path) -> Path:
    """Write the logs below `root` unless they exist; return the log directory."""
    log_dir = root / f"collect-{logs.name}-{total_bytes}" / "broker-1"
    if (log_dir / "meta.properties").exists():
        return log_dir
    directory = log_dir / "bench-0"
    directory.mkdir(parents=True, exist_ok=True)
    use_compiled(True)
    size, base = 0, 0
    batches = _batches(logs)
    while size < total_bytes:
        with open(directory / f"{base:020d}.log", "wb") as file:
            while size < total_bytes and file.tell() < SEGMENT_BYTES:
                batch = next(batches)
                file.write(batch)
                size += len(batch)
                base += logs.records
    return with_checkpoints(log_dir, {("bench", 0): base})


def _batches(logs: Logs) -> Iterator[bytearray]:
    """An endless sequence of batches with consecutive offsets, increasing times, consecutive sequences per producer, and correct
    CRCs.

    Uncompressed batches differ in the last bytes of a value; compressed ones repeat the templates, because compressing is slow.
    """
    rng = np.random.default_rng(7)
    templates = [_template(logs, rng) for _ in range(TEMPLATES)]
    number = 0
    while True:
        batch = bytearray(templates[number % TEMPLATES])
        batch[:8] = (number * logs.records).to_bytes(8, "big")
        time_ms = STARTED_MS + number * 7 + int(rng.integers(0, 7))
        batch[27:35] = batch[35:43] = time_ms.to_bytes(8, "big")
        batch[43:51] = (1000 + number % logs.producers).to_bytes(8, "big")
        batch[53:57] = (number // logs.producers * logs.records & 0x7FFFFFFF).to_bytes(4, "big")
        if logs.compression_type == "none":
            batch[-_MARK_BYTES - 1 : -1] = rng.bytes(_MARK_BYTES)
        crc = int(crc32c(np.frombuffer(batch, np.uint8), CRC_START, len(batch), 0))
        batch[17:21] = crc.to_bytes(4, "big")
        yield batch
        number += 1


def _template(logs: Logs, rng: np.random.Generator) -> bytes:
    tokens = [rng.bytes(5).hex().encode() for _ in range(200)]
    values = [b" ".join(tokens[i] for i in rng.integers(0, 200, logs.value_bytes // 11 + 1)) for _ in range(logs.records)]
    records = [RecordToWrite(b"key-%06d" % number, value[: logs.value_bytes]) for number, value in enumerate(values)]
    return write_batch(
        records,
        base_offset=0,
        base_timestamp=STARTED_MS,
        producer_id=0,
        producer_epoch=0,
        base_sequence=0,
        compression_type=logs.compression_type,
    )


def measure(logs: Logs, log_dir: Path, total_bytes: int) -> Iterator[list[str]]:
    """A row per variant of `collect`: its seconds, those of the scan, their ratio, the bundle in % of the logs."""
    program = [sys.executable, "-m", "kafka_forensics"]
    scan = least([*program, "scan", str(log_dir), "--no-deep", "--jobs", "1", "--format", "json", "-q", "--fail-on", "none"])
    bundle = log_dir.with_name("bundle.kfb")
    for title, options in (("plain", []), ("--hash", ["--hash"])):
        command = [*program, "collect", str(log_dir), "--no-deep", "-q", "--output", str(bundle), *options]
        collected = least(command)
        share = 100 * bundle.stat().st_size / total_bytes
        bundle.unlink()
        figures = (f"{collected.cpu_seconds:.2f}", f"{scan.cpu_seconds:.2f}", f"{scan.cpu_seconds / collected.cpu_seconds:.2f}")
        yield [logs.title, title, *figures, f"{collected.peak_mib:.0f}", f"{share:.3g}"]


def least(command: list[str]) -> Run:
    """The run with the fewest CPU seconds, after a warm-up run."""
    run(command)
    return min((run(command) for _ in range(RUNS)), key=lambda measured: measured.cpu_seconds)


def main() -> None:
    """Measure as the options say, and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m bench.collect", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help=f"of {', '.join(logs.name for logs in LOGS)}")
    parser.add_argument("--size", type=float, default=500.0, metavar="MB", help="of each log")
    arguments = parser.parse_args()
    print(
        "| logs | collect | CPU s | scan --jobs 1 CPU s | times as fast | peak MiB | bundle % |\n|---|---|---:|---:|---:|---:|---:|"
    )
    for logs in LOGS:
        if not arguments.only or logs.name in arguments.only:
            total_bytes = int(arguments.size * 1e6)
            for row in measure(logs, make(logs, total_bytes, WORK), total_bytes):
                print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
