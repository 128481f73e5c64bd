"""`python -m bench`: measure this tool against `kafka-dump-log` 4.3.0 and against the limit, and print one table of ratios."""

import argparse
import os
import platform
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.deep import deep_scan
from bench.exports import exporting_many, reading_many
from bench.first import first_lines, first_scans
from bench.limit import limit_seconds
from bench.plans import many_plans
from bench.records import exporting, exporting_others, listing, reading, searching
from bench.running import Run, run
from bench.workloads import GIB, Workload, logs, make, make_many, make_producers, workloads
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.scanning.engine import local
from lab.jvm import DUMP_LOG_SEGMENTS, java_command
from lab.kafka_jars import kafka_jars

WORK: Final = Path(__file__).parent / "work"
_SECONDS_OF_ONE_RUN: Final = 30.0
"""`kafka-dump-log` runs three times if it takes less, and the fastest run counts, as for this tool."""


def dump_log(workload: Workload, files: list[str]) -> Run:
    """Run `kafka-dump-log` on the same files in one process."""
    deep = ["--deep-iteration", "--skip-record-metadata"] if workload.name == "packed" else []
    arguments = [*deep, "--files", ",".join(files)]
    return run(java_command(DUMP_LOG_SEGMENTS, arguments, jars=kafka_jars(), options=["-Xmx256m"]))


def scan_command(paths: list[Path], jobs: int, *, deep: bool) -> list[str]:
    """The command of a scan with JSON output."""
    flags = ["--deep" if deep else "--no-deep", "--jobs", str(jobs), "--format", "json", "-q", "--fail-on", "none"]
    return [sys.executable, "-m", "kafka_forensics", "scan", *map(str, paths), *flags]


def measure(workload: Workload, jobs: int, *, against_kafka: bool) -> list[str]:
    """A row of the table."""
    log_dir = make(workload, WORK)
    files = logs(log_dir)
    for name in files:
        with open(name, "rb", buffering=0) as file:
            while file.read(1 << 24):
                pass
    deep = workload.name == "packed"
    command = scan_command([log_dir], jobs, deep=deep)
    run(command)
    ours = min((run(command) for _ in range(3)), key=lambda measured: measured.seconds)
    options = ScanOptions(jobs=jobs, deep=deep)
    local.scan([str(log_dir)], options)
    inside = min(_timed(log_dir, options) for _ in range(3))
    limit = min(limit_seconds(str(log_dir), jobs) for _ in range(3))
    total = sum(os.path.getsize(name) for name in files)
    row = [
        workload.title,
        f"{total / 2**30:.2f}",
        f"{ours.seconds:.2f}",
        f"{total / ours.seconds / 1e9:.2f}",
        f"{ours.peak_mib:.0f}",
    ]
    row += [f"{inside:.2f}", f"{limit:.2f}", "-" if deep else f"{inside / limit:.2f}"]
    if against_kafka:
        theirs = dump_log(workload, files)
        if theirs.seconds < _SECONDS_OF_ONE_RUN:
            theirs = min([theirs, dump_log(workload, files), dump_log(workload, files)], key=lambda measured: measured.seconds)
        row += [f"{theirs.seconds:.2f}", f"{theirs.seconds / ours.seconds:.1f}"]
    else:
        row += ["-", "-"]
    return row


def memory(workload: Workload, jobs: int) -> None:
    """Print the peak memory of scans of 1 GiB and 8 GiB of the same batches."""
    peaks = []
    for size in (GIB, 8 * GIB):
        log_dir = make(replace(workload, total_bytes=size), WORK)
        command = scan_command([log_dir], jobs, deep=False)
        peaks.append(max(run(command).peak_mib for _ in range(3)))
    print(f"peak memory, {workload.title}: {peaks[0]:.0f} MiB at 1 GiB, {peaks[1]:.0f} MiB at 8 GiB", flush=True)


def records(workload: Workload, arguments: argparse.Namespace) -> None:
    """Print four tables and a line about records and other facts."""
    print("| records listed | CPU s | s | peak MiB | kafka-dump-log | CPU s | s | times faster |")
    print("|---|---:|---:|---:|---|---:|---:|---:|")
    for row in listing(workload, WORK, against_kafka=not arguments.no_kafka):
        print("| " + " | ".join(row) + " |", flush=True)
    print("\n| records searched for | fitting | CPU s | s | start CPU s | inflating CPU s | (CPU - start) / inflating |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for row in searching(workload, WORK):
        print(f"| {' | '.join(row)} |", flush=True)
    print("\n| records exported | CPU s | s | peak MiB | inflating CPU s | writing CPU s | CPU / both |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for row in exporting(workload, WORK, arguments.jobs):
        print("| " + " | ".join(row) + " |", flush=True)
    print("\n| other facts exported | CPU s | s | peak MiB | scan CPU s | reading, CRC s | writing CPU s | (CPU - scan) / both |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    small = next(workload for workload in workloads(arguments.scale / 4) if workload.name == "small")
    for row in exporting_others(small, WORK, arguments.scale, arguments.jobs):
        print(f"| {' | '.join(row)} |", flush=True)
    print(f"\n{reading(workload, WORK)}\n", flush=True)


def deep(workload: Workload) -> None:
    """Print the table of a scan that decodes records."""
    print("| every record decoded | CPU s | start CPU s | inflating CPU s | reading and CRC CPU s | ratio |")
    print("|---|---:|---:|---:|---:|---:|")
    print(f"| {' | '.join(deep_scan(workload, WORK))} |\n", flush=True)


def first(packed: Workload, jobs: int) -> None:
    """Print the tables of first scans, of the same sizes at any scale, and of first lines."""
    print("| first scan | MiB | s | later s | interpreting s | compiling s | first / best of both |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for workload in workloads(1.0):
        if workload.name in ("large", "small"):
            for row in first_scans(workload, WORK, jobs):
                print(f"| {' | '.join(row)} |", flush=True)
    print("\n| first line | s |\n|---|---:|")
    for row in first_lines(packed, WORK):
        print(f"| {' | '.join(row)} |", flush=True)
    print()


def many_small(partitions: int, jobs: int) -> None:
    """Print the cost of a replica of a few batches without the start-up: three brokers with `partitions` partitions each."""
    brokers, one_partition = make_many(partitions, WORK), make_many(1, WORK)
    run(scan_command(brokers, 1, deep=True))
    start = min((run(scan_command(one_partition, 1, deep=True)) for _ in range(3)), key=lambda measured: measured.seconds)
    one_job = run(scan_command(brokers, 1, deep=True))
    all_jobs = run(scan_command(brokers, jobs, deep=True))
    for name, ours in (("1 job", one_job), (f"{jobs} jobs", all_jobs)):
        replica_ms = 1000 * (ours.cpu_seconds - start.cpu_seconds) / (3 * partitions)
        print(
            f"{partitions} partitions x 3 replicas of small files, {name}: {ours.seconds - start.seconds:.2f} s, "
            f"{replica_ms:.2f} ms of CPU a replica (start-up of {start.seconds:.2f} s taken off), {ours.peak_mib:.0f} MiB",
            flush=True,
        )
    ratio = (all_jobs.seconds - start.seconds) / (one_job.seconds - start.seconds)
    print(f"{jobs} jobs / 1 job: {ratio:.2f}", flush=True)


def many_producers(producers: int, jobs: int) -> None:
    """Print the cost of a log in which every batch has another producer."""
    command = scan_command([make_producers(producers, WORK)], jobs, deep=False)
    run(command)
    ours = min((run(command) for _ in range(2)), key=lambda measured: measured.seconds)
    print(f"{producers} producers: {ours.seconds:.2f} s, {ours.peak_mib:.0f} MiB", flush=True)


def exports(scale: float, jobs: int) -> None:
    """Print the tables of exports of many small partitions."""
    print("| partitions of 3 small replicas, all facts exported | files | MB | s | CPU s |\n|---:|---:|---:|---:|---:|")
    print(f"| {' | '.join(exporting_many(int(2_000 * scale), WORK, jobs))} |\n", flush=True)
    print("| replicas, one fact read | files | pyarrow s | duckdb s |\n|---:|---:|---:|---:|")
    print(f"| {' | '.join(reading_many(int(10_000 * scale), WORK, jobs))} |", flush=True)


def _timed(log_dir: Path, options: ScanOptions) -> float:
    begin = time.perf_counter()
    local.scan([str(log_dir)], options)
    return time.perf_counter() - begin


def main() -> None:
    """Measure as the options say, and print Markdown tables."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="multiply the sizes (1.0 needs about 20 GiB of disk)")
    names = "large, packed, small, large-bare, small-bare, records, deep, first, memory, "
    names += "many-partitions, many-producers, many-plans, export"
    parser.add_argument("--only", action="append", metavar="NAME", help=f"of {names}")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--no-kafka", action="store_true", help="leave kafka-dump-log out (no Java, no Maven)")
    arguments = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {arguments.jobs} jobs\n")
    print("| workload | GiB | scan s | GB/s | peak MiB | inside s | limit s | inside / limit | kafka-dump-log s | times faster |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for workload in workloads(arguments.scale):
        if arguments.only and workload.name not in arguments.only:
            continue
        print("| " + " | ".join(measure(workload, arguments.jobs, against_kafka=not arguments.no_kafka)) + " |", flush=True)
    print()
    packed = next(workload for workload in workloads(arguments.scale / 4) if workload.name == "packed")
    if not arguments.only or "records" in arguments.only:
        records(packed, arguments)
    if not arguments.only or "deep" in arguments.only:
        deep(packed)
    if not arguments.only or "first" in arguments.only:
        first(packed, arguments.jobs)
    if not arguments.only or "memory" in arguments.only:
        for workload in workloads(arguments.scale):
            if workload.name in ("large", "small"):
                memory(workload, arguments.jobs)
    if not arguments.only or "many-partitions" in arguments.only:
        many_small(int(10_000 * arguments.scale), arguments.jobs)
    if not arguments.only or "many-producers" in arguments.only:
        many_producers(int(10_000_000 * arguments.scale), arguments.jobs)
    if not arguments.only or "many-plans" in arguments.only:
        many_plans(int(10_000 * arguments.scale))
    if not arguments.only or "export" in arguments.only:
        exports(arguments.scale, arguments.jobs)


main()
