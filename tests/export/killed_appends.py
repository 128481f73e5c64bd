"""Kills a rerun of a snapshot at each of its steps in turn, and checks what a reader finds then and after the next run.

`python -m tests.export.killed_appends DIR` prints a line for each step. Every run is a fork of this process, which loads the
libraries but uses none of them, because they do not support a fork while they work.
"""

import importlib
import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

FACTS = ("batches", "findings")
PACKAGE_MODULES = (
    *("cli.commands.export", "export.opening", "export.views", "export.facts.facts"),
    *("scanning.engine.local", "cli.progress"),
)
PRELOADED = [
    *(f"kafka_forensics.{name}" for name in PACKAGE_MODULES),
    *("pyarrow.dataset", "pyarrow.parquet", "tests.export.datasets"),
]


def run_in_fork(action: Callable[[], int]) -> int:
    """The exit status of `action` in a fork of this process, negative for a signal."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 70
        try:
            status = action()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_before_step(number: int) -> None:
    """Make this process kill itself before its step `number`; each change to files is a step."""
    steps = [0]

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **options: Any) -> Any:
            if steps[0] == number:
                sys.stdout.write(f"step {number}: {name}\n")
                sys.stdout.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            steps[0] += 1
            return function(*arguments, **options)

        return step

    functions = [(os, name) for name in ("rename", "unlink", "fsync", "rmdir", "makedirs")]
    for module, name in [*functions, (shutil, "rmtree")]:
        setattr(module, name, counted(name, getattr(module, name)))


def describe_snapshots(target: Path) -> str:
    """Lines `SNAPSHOT FACT ROWS`, and `SNAPSHOT run ID` for the runs that wrote its files."""
    from tests.export.datasets import files, read

    lines = []
    for fact in FACTS:
        snapshots = list(map(str, read(target, fact)["snapshot"].to_pylist()))
        lines += [f"{name} {fact} {snapshots.count(name)}" for name in sorted(set(snapshots))]
        lines += [f"{path.parts[-3].partition('=')[2]} run {path.stem[-32:]}" for path in files(target, fact)]
    return "\n".join(sorted(set(lines)))


def main(folder: str) -> int:
    """Kill a rerun at every step; the exit status is 0 if all checks hold."""
    for name in PRELOADED:
        importlib.import_module(name)
    target, description = Path(folder) / "out", Path(folder) / "snapshots"

    def add(snapshot: str) -> int:
        from tests.export.datasets import TWO_FACTS, append

        return append(target, "a", snapshot, *TWO_FACTS)

    def describe() -> int:
        description.write_text(describe_snapshots(target))
        return 0

    def rerun_until(number: int) -> int:
        kill_before_step(number)
        return add("n1")

    def read_snapshot(snapshot: str) -> tuple[list[str], list[str]]:
        """(rows in each fact, runs)"""
        assert run_in_fork(describe) == 0
        words = [line.split() for line in description.read_text().splitlines() if line.startswith(f"{snapshot} ")]
        return [" ".join(rest) for _, *rest in words if rest[0] != "run"], [run for _, kind, run in words if kind == "run"]

    for name in ("n1", "n2"):
        assert run_in_fork(partial(add, name)) == 0
    rows, runs_before = read_snapshot("n1")
    assert len(rows) == len(FACTS)
    other_snapshot = read_snapshot("n2")
    number, without_snapshot = 0, 0
    statuses: list[int] = []
    while True:
        status = run_in_fork(partial(rerun_until, number))
        rows_after_kill, runs_after_kill = read_snapshot("n1")
        assert rows_after_kill in (rows, []), f"after step {number}: {rows_after_kill}"
        assert read_snapshot("n2") == other_snapshot, f"after step {number}"
        if not rows_after_kill:
            without_snapshot += 1
            assert list((target / "cluster=a").glob("_replaced-n1"))
        assert len(runs_after_kill) == bool(rows_after_kill)
        assert run_in_fork(partial(add, "n3")) == 0
        repaired_rows, repaired_runs = read_snapshot("n1")
        assert repaired_rows == rows
        assert repaired_runs == (runs_after_kill or runs_before)
        runs_before = repaired_runs
        names = {path.name for path in target.glob("cluster=a/*")}
        assert names == {"snapshot=n1", "snapshot=n2", "snapshot=n3"}, names
        if status == 0 and number > 0 and statuses[-1] == 0:
            break
        statuses.append(status)
        assert status in (-9, 0), (number, status)
        number += 1
    assert run_in_fork(partial(add, "n1")) == 0
    assert read_snapshot("n1")[0] == rows
    kills = len(statuses) - statuses.count(0)
    sys.stdout.write(f"killed at {kills} steps; {without_snapshot} of them left no snapshot\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
