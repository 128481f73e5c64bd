"""The first scan on a machine, which has no compiled kernels, against later ones, which have them all, and the compiler's time."""

import os
import shutil
import sys
from pathlib import Path

from bench.running import Run, run
from bench.workloads import Workload, make


def first_scan(workload: Workload, work: Path, jobs: int) -> list[str]:
    """A row: wall and CPU seconds of the first scan, of a later one, and of compiling all kernels before anything is read; how many
    times the first is a later one, and the share that it is of compiling and a later one together, by CPU."""
    log_dir = make(workload, work)
    cache = work / "kernels"
    command = [sys.executable, "-m", "kafka_forensics", "scan", str(log_dir), "--no-deep", "--jobs", str(jobs)]
    command += ["--format", "json", "-q", "--fail-on", "none", "--cache-dir", str(cache.absolute())]
    compiled = ["env", "KAFKA_FORENSICS_KERNELS=compiled", *command]
    run(command)
    first = _best([_anew(command, cache) for _ in range(3)])
    compiling = _best([_anew(compiled, cache) for _ in range(2)])
    later = _best([run(compiled) for _ in range(3)])
    shutil.rmtree(cache)
    seconds, cpu_seconds = compiling.seconds - later.seconds, compiling.cpu_seconds - later.cpu_seconds
    figures = (first.seconds, first.cpu_seconds, later.seconds, later.cpu_seconds, seconds, cpu_seconds)
    ratios = (first.seconds / later.seconds, first.cpu_seconds / later.cpu_seconds, first.cpu_seconds / compiling.cpu_seconds)
    return [workload.title, *(f"{figure:.2f}" for figure in (*figures, *ratios))]


def _anew(command: list[str], cache: Path) -> Run:
    shutil.rmtree(cache, ignore_errors=True)
    os.makedirs(cache, mode=0o700)
    return run(command)


def _best(runs: list[Run]) -> Run:
    return min(runs, key=lambda measured: measured.cpu_seconds)
