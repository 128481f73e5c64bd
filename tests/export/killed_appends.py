"""A rerun of a snapshot that is killed at each of its steps in turn; what a reader finds then, and after the next run.

`python -m tests.export.killed_appends DIR` writes a line for each step. Every run is a copy of this process, which
itself loads the libraries and uses none of them: they mind being copied at work.
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
OURS = ("cli.commands.export", "export.append", "export.views", "export.facts.facts", "scanning.engine.local", "cli.progress")
LOADED = [*(f"kafka_forensics.{name}" for name in OURS), "pyarrow.dataset", "pyarrow.parquet", "tests.export.datasets"]


def in_copy(act: Callable[[], int]) -> int:
    """The exit status of `act` in a copy of this process, negative for a signal."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 70
        try:
            status = act()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def stopping(number: int) -> None:
    """Let this process end before its step `number`: each thing it does to files."""
    steps = [0]

    def counted(what: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any, **more: Any) -> Any:
            if steps[0] == number:
                sys.stdout.write(f"step {number}: {what}\n")
                sys.stdout.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            steps[0] += 1
            return act(*given, **more)

        return step

    places = [(os, name) for name in ("rename", "unlink", "fsync", "rmdir", "makedirs")]
    for place, name in [*places, (shutil, "rmtree")]:
        setattr(place, name, counted(name, getattr(place, name)))


def rows_of(target: Path) -> str:
    """The rows of each snapshot in each fact, and of which run's files they are, as text."""
    from tests.export.datasets import files, read

    told = []
    for fact in FACTS:
        snapshots = list(map(str, read(target, fact)["snapshot"].to_pylist()))
        told += [f"{name} {fact} {snapshots.count(name)}" for name in sorted(set(snapshots))]
        told += [f"{path.parts[-3].partition('=')[2]} run {path.stem[-32:]}" for path in files(target, fact)]
    return "\n".join(sorted(set(told)))


def main(folder: str) -> int:
    """Stop at every step there is; the exit status is 0 if all was as it must be."""
    for name in LOADED:
        importlib.import_module(name)
    target, said = Path(folder) / "out", Path(folder) / "said"

    def add(snapshot: str) -> int:
        from tests.export.datasets import FEW, append

        return append(target, "a", snapshot, *FEW)

    def look() -> int:
        said.write_text(rows_of(target))
        return 0

    def stopped(number: int) -> int:
        stopping(number)
        return add("n1")

    def of(snapshot: str) -> tuple[list[str], list[str]]:
        """(rows in each fact, runs)"""
        assert in_copy(look) == 0
        words = [line.split() for line in said.read_text().splitlines() if line.startswith(f"{snapshot} ")]
        return [" ".join(rest) for _, *rest in words if rest[0] != "run"], [run for _, kind, run in words if kind == "run"]

    for name in ("n1", "n2"):
        assert in_copy(partial(add, name)) == 0
    rows, before = of("n1")
    assert len(rows) == len(FACTS)
    other = of("n2")
    number, unseen = 0, 0
    ended: list[int] = []
    while True:
        status = in_copy(partial(stopped, number))
        found, found_runs = of("n1")
        assert found in (rows, []), f"after step {number}: {found}"
        assert of("n2") == other, f"after step {number}"
        if not found:
            unseen += 1
            assert list((target / "cluster=a").glob("_replaced-n1"))
        assert len(found_runs) == bool(found)
        assert in_copy(partial(add, "n3")) == 0
        mended, mended_runs = of("n1")
        assert mended == rows
        assert mended_runs == (found_runs or before)
        before = mended_runs
        left = {path.name for path in target.glob("cluster=a/*")}
        assert left == {"snapshot=n1", "snapshot=n2", "snapshot=n3"}, left
        if status == 0 and number > 0 and ended[-1] == 0:
            break
        ended.append(status)
        assert status in (-9, 0), (number, status)
        number += 1
    assert in_copy(partial(add, "n1")) == 0
    assert of("n1")[0] == rows
    sys.stdout.write(f"{len(ended) - ended.count(0)} steps stopped at, {unseen} of them between two directories\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
