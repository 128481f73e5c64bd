"""Benchmarks of exports of many small partitions: their files and seconds, and the seconds to read one fact of many replicas."""

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench.running import run
from bench.workloads import make_many


def size_of(output: Path) -> list[str]:
    """Cells of a table: the number of files of an export, and their MB on disk."""
    files = [path for path in output.rglob("*") if path.is_file()]
    return [f"{len(files):,}", f"{sum(512 * path.stat().st_blocks for path in files) / 1e6:.1f}"]


def exporting_many(partitions: int, work: Path, jobs: int) -> list[str]:
    """A row of a table: an export of all facts of partitions of three small replicas, its files, MB, seconds and CPU seconds."""
    output = work / "exported"
    measured = []
    for _ in range(2):
        shutil.rmtree(output, ignore_errors=True)
        measured.append(run(_export(make_many(partitions, work), output, jobs)))
    ours = min(measured, key=lambda measured_run: measured_run.seconds)
    row = [f"{partitions:,}", *size_of(output), f"{ours.seconds:.1f}", f"{ours.cpu_seconds:.1f}"]
    shutil.rmtree(output)
    return row


def reading_many(partitions: int, work: Path, jobs: int) -> list[str]:
    """A row of a table: files of the fact `replicas` of partitions of three replicas, and the seconds to count its partitions."""
    output = work / "exported"
    shutil.rmtree(output, ignore_errors=True)
    run([*_export(make_many(partitions, work), output, jobs), "--fact", "replicas"])
    files = sorted(str(path) for path in output.rglob("*.parquet") if "replicas" in path.parts)
    row = [f"{3 * partitions:,}", f"{len(files):,}", f"{_seconds(_by_pyarrow, files):.2f}", f"{_seconds(_by_duckdb, files):.2f}"]
    shutil.rmtree(output)
    return row


def _export(brokers: list[Path], output: Path, jobs: int) -> list[str]:
    command = [sys.executable, "-m", "kafka_forensics", "export", *map(str, brokers), "--output", str(output), "-q"]
    return [*command, "--jobs", str(jobs)]


def _seconds(read: Callable[[list[str]], object], files: list[str]) -> float:
    begin = time.perf_counter()
    read(files)
    return time.perf_counter() - begin


def _by_pyarrow(files: list[str]) -> object:
    from pyarrow import dataset

    return dataset.dataset(files).to_table()


def _by_duckdb(files: list[str]) -> object:
    import duckdb

    return duckdb.read_parquet(files).fetchall()
