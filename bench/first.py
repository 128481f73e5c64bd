"""The first scan on a machine, without cached kernels, compared with later scans; and the first line of an answer.

A first scan interprets the kernels, or compiles those that it needs. It should not take longer than a scan that only interprets,
nor than a later scan and one compilation together.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.running import run
from bench.workloads import GIB, Workload, logs, make

_MIB: Final = 1 << 20
SIZES: Final = (_MIB, 4 * _MIB, 16 * _MIB, 64 * _MIB, 256 * _MIB, GIB)
_BATCHES_INTERPRETED: Final = 1 << 18
"""A log with more batches is not scanned by interpreting, which takes minutes."""


def first_scans(workload: Workload, work: Path, jobs: int) -> Iterator[list[str]]:
    """Rows for all sizes: seconds of the first scan, of a later one, of one that only interprets, of a first one that compiles all
    that it needs; the ratio of the first scan to the better of the last two. Each time is the best of three."""
    cache = work / "kernels"
    for size in SIZES:
        log_dir = make(replace(workload, total_bytes=size), work)
        command = [sys.executable, "-m", "kafka_forensics", "scan", str(log_dir), "--no-deep", "--jobs", str(jobs)]
        command += ["--format", "json", "-q", "--fail-on", "none", "--cache-dir", str(cache.absolute())]

        def seconds(kernels: str, command: list[str] = command, *, with_cache: bool = False) -> float:
            form = [f"KAFKA_FORENSICS_KERNELS={kernels}"] if kernels else []
            if with_cache:
                run(["env", *form, *command])
            times = []
            for _ in range(3):
                if not with_cache:
                    shutil.rmtree(cache, ignore_errors=True)
                    os.makedirs(cache, mode=0o700)
                times.append(run(["env", *form, *command]).seconds)
            return min(times)

        run(command)
        first, compiled = seconds(""), seconds("compiled")
        seconds("compiled", with_cache=True)
        later = seconds("", with_cache=True)
        is_small = size // len(workload.templates[0]) <= _BATCHES_INTERPRETED
        interpreted = seconds("interpreted") if is_small else None
        figures = [f"{figure:.2f}" for figure in (first, later)]
        figures += ["–" if interpreted is None else f"{interpreted:.2f}", f"{compiled:.2f}"]
        best = compiled if interpreted is None else min(compiled, interpreted)
        yield [workload.title, str(size // _MIB), *figures, f"{first / best:.2f}"]
    shutil.rmtree(cache)


def first_lines(workload: Workload, work: Path) -> Iterator[list[str]]:
    """Rows: a command, and the seconds until the first line of its answer, the best of three after a warm-up."""
    largest = max(logs(make(workload, work)), key=lambda name: Path(name).stat().st_size)
    for how in (
        "dump",
        "dump --records",
        "dump --records --show-payloads --format jsonl",
        "find --timestamp 2000-01-01..2100-01-01",
    ):
        name, *options = how.split()
        command = [sys.executable, "-m", "kafka_forensics", name, largest, *options]
        yield [f"`{how}`", f"{min([_until_first_line(command) for _ in range(4)][1:]):.2f}"]


def _until_first_line(command: list[str]) -> float:
    begin = time.perf_counter()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.readline()
        seconds = time.perf_counter() - begin
        process.kill()
    return seconds
