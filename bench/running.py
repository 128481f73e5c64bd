"""Processes that are measured."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Run:
    """One process: seconds from start to end, seconds of all cores, and the most memory it held, in MiB."""

    seconds: float
    cpu_seconds: float
    peak_mib: float


def run(command: list[str], *, allowed: tuple[int, ...] = (0,)) -> Run:
    """Run `command` with its output discarded."""
    clock = [sys.executable, "-I", "-S", str(Path(__file__).with_name("clock.py"))]
    words = subprocess.run([*clock, *command], stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout.split()
    if int(words[0]) not in allowed:
        raise SystemExit(f"{command[0]} ended with status {int(words[0])}")
    return Run(float(words[1]), float(words[2]), int(words[3]) / 1024)


def best(command: list[str], before: Callable[[], object] = lambda: None) -> Run:
    """The quickest of three runs, after one that is not counted; `before` each of them is called, and is not measured."""
    runs = []
    for _ in range(4):
        before()
        runs.append(run(command))
    return min(runs[1:], key=lambda measured: measured.seconds)
