"""Runs and measures processes."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Run:
    """A process: wall seconds, CPU seconds of all cores, peak memory in MiB."""

    seconds: float
    cpu_seconds: float
    peak_mib: float


def run(command: list[str], *, allowed: tuple[int, ...] = (0,)) -> Run:
    """Run `command` with its output discarded. Raises SystemExit for an exit status that is not allowed."""
    clock = [sys.executable, "-I", "-S", str(Path(__file__).with_name("clock.py"))]
    fields = subprocess.run([*clock, *command], stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout.split()
    if int(fields[0]) not in allowed:
        raise SystemExit(f"{command[0]} ended with status {int(fields[0])}")
    return Run(float(fields[1]), float(fields[2]), int(fields[3]) / 1024)


def best(command: list[str], before: Callable[[], object] = lambda: None) -> Run:
    """The fastest of three runs after a warm-up run; `before` is called before each, and not measured."""
    runs = []
    for _ in range(4):
        before()
        runs.append(run(command))
    return min(runs[1:], key=lambda measured: measured.seconds)
