"""The first scan on a machine, without cached kernels, compared with later scans and with the time to compile all kernels."""

import os
import shutil
import sys
from pathlib import Path

from bench.running import Run, run
from bench.workloads import Workload, make


def first_scan(workload: Workload, work: Path, jobs: int) -> list[str]:
    """A row: wall and CPU seconds of the first scan, of a later scan, and of compiling all kernels; the ratio of first to later,
    and of the first to compiling and a later scan together, by CPU."""
    log_dir = make(workload, work)
    cache = work / "kernels"
    command = [sys.executable, "-m", "kafka_forensics", "scan", str(log_dir), "--no-deep", "--jobs", str(jobs)]
    command += ["--format", "json", "-q", "--fail-on", "none", "--cache-dir", str(cache.absolute())]
    compiled = ["env", "KAFKA_FORENSICS_KERNELS=compiled", *command]
    run(command)
    first = _best([_run_without_cache(command, cache) for _ in range(3)])
    compiling = _best([_run_without_cache(compiled, cache) for _ in range(2)])
    later = _best([run(compiled) for _ in range(3)])
    shutil.rmtree(cache)
    seconds, cpu_seconds = compiling.seconds - later.seconds, compiling.cpu_seconds - later.cpu_seconds
    figures = (first.seconds, first.cpu_seconds, later.seconds, later.cpu_seconds, seconds, cpu_seconds)
    ratios = (first.seconds / later.seconds, first.cpu_seconds / later.cpu_seconds, first.cpu_seconds / compiling.cpu_seconds)
    return [workload.title, *(f"{figure:.2f}" for figure in (*figures, *ratios))]


def _run_without_cache(command: list[str], cache: Path) -> Run:
    shutil.rmtree(cache, ignore_errors=True)
    os.makedirs(cache, mode=0o700)
    return run(command)


def _best(runs: list[Run]) -> Run:
    return min(runs, key=lambda measured: measured.cpu_seconds)
