"""Benchmarks of listing, exporting and reading records, against Kafka's tool and against the limits.

The limit of an export is to decompress the same batches and to write the same columns, prepared before.
"""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow.parquet as pq

import kafka_forensics
from bench.limit import limit_seconds
from bench.running import Run, best, run
from bench.workloads import Workload, logs, make, make_index, make_transactions
from kafka_forensics.export.parquet import COMPRESSION_LEVEL
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import COMPRESSION_MASK, RECORD_BATCH_OVERHEAD
from kafka_forensics.parsers.kernels.compiling import use_compiled
from kafka_forensics.parsers.log import SegmentReader, decompress
from kafka_forensics.storage.open import open_source
from lab.jvm import DUMP_LOG_SEGMENTS, java_command
from lab.kafka_jars import kafka_jars


def listing(workload: Workload, work: Path, *, against_kafka: bool) -> Iterator[list[str]]:
    """Rows of a table: the command, CPU and wall seconds and peak MiB of this tool, those of Kafka's tool with the option that
    lists the same, and the ratio.

    Without payloads both list offsets, times and sizes; with payloads also keys and values.
    """
    largest = max(logs(make(workload, work)), key=lambda name: Path(name).stat().st_size)
    theirs = {}
    for flag in ("--deep-iteration", "--print-data-log") if against_kafka else ():
        arguments = [flag, "--files", largest]
        theirs[flag] = run(java_command(DUMP_LOG_SEGMENTS, arguments, jars=kafka_jars(), options=["-Xmx256m"]))
    for how, flag in (
        ("--records --format tsv", "--deep-iteration"),
        ("--records --format jsonl", "--deep-iteration"),
        ("--records --show-payloads --format tsv", "--print-data-log"),
        ("--records --show-payloads --format jsonl", "--print-data-log"),
    ):
        ours = best([sys.executable, "-m", "kafka_forensics", "dump", largest, *how.split()])
        kafkas = theirs.get(flag)
        row = [f"`dump {how}`", f"{ours.cpu_seconds:.2f}", f"{ours.seconds:.2f}", f"{ours.peak_mib:.0f}"]
        if kafkas is None:
            yield [*row, "-", "-", "-", "-"]
        else:
            yield [*row, f"`{flag}`", f"{kafkas.cpu_seconds:.2f}", f"{kafkas.seconds:.2f}", f"{kafkas.seconds / ours.seconds:.1f}"]


def searching(workload: Workload, work: Path) -> Iterator[list[str]]:
    """Rows of a table: the command, number of matching records, CPU and wall seconds, CPU seconds on an almost empty file, CPU
    seconds of decompressing every batch, and the ratio of the search without start-up to decompressing."""
    log_dir = make(workload, work)
    files = logs(log_dir)
    inflating = min(inflating_seconds(files) for _ in range(2))
    key, timestamp = _some_record(files[0])
    empty = work / "empty" / "t-0"
    empty.mkdir(parents=True, exist_ok=True)
    (empty / f"{0:020d}.log").touch()
    start = best(_find(empty.parent, "--key", "none"))
    for how in (
        ("--key", "not-there"),
        ("--key", key),
        ("--value-contains", "not there"),
        ("--header", "not-there=1"),
        ("--timestamp", timestamp),
    ):
        fitting = len(subprocess.run(_find(log_dir, *how), capture_output=True, check=True).stdout.splitlines()) - 1
        ours = best(_find(log_dir, *how))
        ratio = (ours.cpu_seconds - start.cpu_seconds) / inflating
        row = [f"`find {' '.join(how)}`", f"{fitting:,}", f"{ours.cpu_seconds:.2f}", f"{ours.seconds:.2f}"]
        yield [*row, f"{start.cpu_seconds:.2f}", f"{inflating:.2f}", f"{ratio:.1f}"]


def _find(log_dir: Path | str, *how: str) -> list[str]:
    return [sys.executable, "-m", "kafka_forensics", "find", str(log_dir), *how, "--format", "tsv", "-q"]


def _some_record(name: str) -> tuple[str, str]:
    """Key and timestamp of a record in the middle of the first batches of a file."""
    batch = next(iter(kafka_forensics.read_records(name, payloads=True)))
    row = batch.slice(batch.num_rows // 2, 1).to_pylist()[0]
    return row["key"].decode(), str(row["timestamp"])


def exporting(workload: Workload, work: Path, jobs: int) -> Iterator[list[str]]:
    """Rows of a table: an export without and with payloads, its CPU and wall seconds and peak MiB, CPU seconds of decompressing
    and of writing the same, and the ratio."""
    log_dir = make(workload, work)
    inflating = min(inflating_seconds(logs(log_dir)) for _ in range(2))
    for payloads in (False, True):
        ours, writing = _exported(log_dir, work, "records", jobs, *(["--show-payloads"] if payloads else []))
        row = [f"`export --fact records`{' with payloads' if payloads else ''}", f"{ours.cpu_seconds:.2f}", f"{ours.seconds:.2f}"]
        row += [f"{ours.peak_mib:.0f}", f"{inflating:.2f}", f"{writing:.2f}", f"{ours.cpu_seconds / (inflating + writing):.1f}"]
        yield row


def exporting_others(workload: Workload, work: Path, scale: float, jobs: int) -> Iterator[list[str]]:
    """Rows of a table: exports of the facts with very many rows, their CPU and wall seconds and peak MiB, CPU seconds of the scan
    before them (an export of `incomplete` only), of reading the logs again and of writing the same tables, and the ratio. No
    scan decodes records."""
    in_transactions, indexed = make_transactions(int(1_000_000 * scale), work), make_index(int(1_300_000 * scale), work)
    for fact, log_dir in (
        ("batches", make(workload, work)),
        ("index_entries", indexed),
        ("control_records", in_transactions),
        ("transactions", in_transactions),
    ):
        scan, _ = _exported(log_dir, work, "incomplete", jobs, "--no-deep")
        ours, writing = _exported(log_dir, work, fact, jobs, "--no-deep")
        reading_logs = min(limit_seconds(str(log_dir), 1) for _ in range(3))
        ratio = (ours.cpu_seconds - scan.cpu_seconds) / (reading_logs + writing)
        row = [f"`export --fact {fact}`", f"{ours.cpu_seconds:.2f}", f"{ours.seconds:.2f}", f"{ours.peak_mib:.0f}"]
        yield [*row, f"{scan.cpu_seconds:.2f}", f"{reading_logs:.2f}", f"{writing:.2f}", f"{ratio:.1f}"]


def _exported(log_dir: Path, work: Path, fact: str, jobs: int, *options: str) -> tuple[Run, float]:
    """The best of three exports of a fact, and the CPU seconds of writing its tables."""
    target = work / "exported"
    command = [sys.executable, "-m", "kafka_forensics", "export", str(log_dir), "--output", str(target), "--fact", fact]
    command += ["--jobs", str(jobs), "-q", *options]
    measured = []
    for _ in range(3):
        shutil.rmtree(target, ignore_errors=True)
        measured.append(run(command))
    writing = min(_writing(target, work / "written.parquet") for _ in range(2))
    shutil.rmtree(target, ignore_errors=True)
    return min(measured, key=lambda measured_run: measured_run.cpu_seconds), writing


def reading(workload: Workload, work: Path) -> str:
    """Millions of records per CPU second that `read_records` and aiokafka's reader read, for each file."""
    use_compiled(True)
    rates = []
    for name in logs(make(workload, work)):
        next(iter(kafka_forensics.read_records(name, payloads=True)))
        begin = time.process_time()
        records = sum(batch.num_rows for batch in kafka_forensics.read_records(name, payloads=True))
        ours = time.process_time() - begin
        begin = time.process_time()
        aiokafka_records = _read_by_aiokafka(name)
        theirs = time.process_time() - begin
        assert aiokafka_records == records, (name, aiokafka_records, records)
        rates.append(f"{records / ours / 1e6:.1f} ({records / theirs / 1e6:.1f})")
    return f"read_records (aiokafka's reader): {' and '.join(rates)} million records a second of CPU"


def _read_by_aiokafka(name: str) -> int:
    """The number of records that aiokafka's reader reads from a file."""
    from aiokafka.record import MemoryRecords  # type: ignore[import-untyped]

    batches = MemoryRecords(Path(name).read_bytes())
    records = 0
    while (batch := batches.next_batch()) is not None:
        for _ in batch:
            records += 1
    return records


def inflating_seconds(files: Iterable[str]) -> float:
    """CPU seconds to decompress every batch, without reading."""
    seconds = 0.0
    for name in files:
        source = open_source(name)
        with source.open("") as file:
            for chunk in SegmentReader(file).chunks():
                wanted = [BatchColumn.POSITION, BatchColumn.SIZE_IN_BYTES, BatchColumn.ATTRIBUTES]
                batches = [(file.read_at(at, size), attributes) for at, size, attributes in chunk.columns[wanted].T.tolist()]
                begin = time.process_time()
                for data, attributes in batches:
                    decompress(attributes & COMPRESSION_MASK, memoryview(data)[RECORD_BATCH_OVERHEAD:])
                seconds += time.process_time() - begin
    return seconds


def _writing(exported: Path, path: Path) -> float:
    """CPU seconds of `pyarrow.parquet` to write the tables of an export, with the same zstd level and row groups."""
    seconds = 0.0
    for name in sorted(exported.rglob("*.parquet")):
        file = pq.ParquetFile(name)
        begin = time.process_time()
        with pq.ParquetWriter(path, file.schema_arrow, compression="zstd", compression_level=COMPRESSION_LEVEL) as writer:
            seconds += time.process_time() - begin
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, use_threads=False)
                begin = time.process_time()
                writer.write_table(table, row_group_size=max(table.num_rows, 1))
                seconds += time.process_time() - begin
            begin = time.process_time()
        seconds += time.process_time() - begin
    path.unlink()
    return seconds
