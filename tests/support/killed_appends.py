"""A rerun of a snapshot that is killed, or fails, at each of its steps in turn; and what a reader finds after each.

`python -m tests.support.killed_appends FORM kill|fail DIR` writes a line for each step. Every run is a copy of this process, which
itself loads the libraries and uses none of them: they mind being copied at work.
"""

import importlib
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

KEYS = ("n1", "n2")
FACTS = ("batches", "findings")
OURS = ("cli.commands.export", "export.append", "export.views", "facts.facts", "engine.local", "cli.progress")
LOADED = {
    "parquet": [*(f"kafka_forensics.{name}" for name in OURS), "pyarrow.dataset", "pyarrow.parquet", "tests.support.datasets"],
    "delta": ["deltalake", "tests.support.datasets"],
    "iceberg": ["pyiceberg.catalog.sql", "pyiceberg.table", "pyiceberg.io.pyarrow", "tests.support.datasets"],
}


class StoppedError(OSError):
    """What fails where it does not kill."""


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


def stopping(number: int, how: str, form: str) -> None:
    """Let this process end, or an error come, before its step `number`: each thing it does to files, or each commit of a table."""
    from kafka_forensics.export.dataset_places import LocalDataset

    steps = [0]

    def counted(what: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any, **more: Any) -> Any:
            if steps[0] == number:
                sys.stdout.write(f"step {number}: {what}\n")
                sys.stdout.flush()
                if how == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                steps[0] += 1
                raise StoppedError(28, "No space left on device")
            steps[0] += 1
            return act(*given, **more)

        return step

    places: list[tuple[Any, str]] = [(LocalDataset, name) for name in ("swap", "end", "remove_run") if how == "kill"]
    if form == "parquet":
        places += [(os, name) for name in ("rename", "unlink", "fsync", "rmdir", "makedirs")]
    if form == "delta":
        import deltalake
        import deltalake.transaction

        places += [(deltalake.transaction, "create_table_with_add_actions"), (deltalake.DeltaTable, "create_write_transaction")]
    if form == "iceberg":
        from pyiceberg.catalog.sql import SqlCatalog
        from pyiceberg.table import Transaction

        places += [(SqlCatalog, "commit_table"), (Transaction, "delete"), (Transaction, "add_files")]
    for place, name in places:
        setattr(place, name, counted(name, getattr(place, name)))


def read_runs(target: Path, form: str) -> str:
    """The run of each snapshot in each fact, as text; raises AssertionError where a snapshot is there of two runs, or in part."""
    from tests.support.datasets import read, runs

    told = []
    for fact in FACTS:
        table = read(target, fact, form)
        by_key = runs(table)
        assert sorted(by_key) == [("a", name) for name in KEYS], by_key
        assert all(len(found) == 1 for found in by_key.values()), by_key
        counts = {name: table["snapshot"].to_pylist().count(name) for name in KEYS}
        assert counts["n1"] == counts["n2"] > 0, counts
        told += [f"{fact} {key[1]} {found[0]}" for key, found in by_key.items()]
    return "\n".join(told)


def main(form: str, how: str, folder: str) -> int:
    """Stop at every step there is; the exit status is 0 if all was as it must be."""
    for name in LOADED[form]:
        importlib.import_module(name)
    target, said = Path(folder) / "out", Path(folder) / "said"

    def add(snapshot: str) -> int:
        from tests.support.datasets import FEW, append

        return append(target, "a", snapshot, *FEW, "--table-format", form)

    def look() -> int:
        said.write_text(read_runs(target, form))
        return 0

    def stopped(number: int) -> int:
        stopping(number, how, form)
        return add("n1")

    for name in KEYS:
        assert in_copy(partial(add, name)) == 0
    assert in_copy(look) == 0
    other = [line for line in said.read_text().splitlines() if " n2 " in line]
    number = 0
    ended: list[int] = []
    while True:
        status = in_copy(partial(stopped, number))
        assert in_copy(look) == 0, f"after step {number}"
        assert [line for line in said.read_text().splitlines() if " n2 " in line] == other
        if status == 0 and number > 0 and ended[-1] == 0:
            break
        ended.append(status)
        assert status in ((-9, 0) if how == "kill" else (2, 0)), (number, status)
        number += 1
    assert in_copy(lambda: add("n1")) == 0
    assert in_copy(look) == 0
    sys.stdout.write(f"{len(ended) - ended.count(0)} steps stopped at\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
