"""Makes each mutant in a copy of the project and runs the tests that must notice: `make mutants`, or `python -m tests.mutants`.

The copy lies in a temporary folder; the project itself is left alone. First all tests run once unchanged, as they must pass. A
mutant is killed if a test of its fails or runs out of time. Ends with 1 if fewer than 92 of 100 were killed, or time ran out.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from tests.mutants.catalogue import AREAS
from tests.mutants.mutant import ROOT, Mutant

COPIED: Final = (
    "kafka_forensics",
    "tests",
    "lab",
    "sample_logs",
    "docs",
    "examples",
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
)
LEAST_PERCENT: Final = 92
MOST_MINUTES: Final = 50
MOST_SECONDS: Final = 60
"""Of one mutant's tests: they take at most 15 s on an idle machine."""
KILLED, SURVIVED, TIMED_OUT, NOT_RUN = "killed", "SURVIVED", "killed (time)", "not run"


def copy_project(folder: Path) -> Path:
    """A copy of what tests need, without what Python kept of it."""
    folder.mkdir(parents=True)
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".*_cache"))
        else:
            shutil.copyfile(source, folder / name)
    return folder


class Copy:
    """A copy of the project, and the process that runs tests in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = copy_project(folder)
        environment = os.environ | {
            "PYTHONPATH": str(folder),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "KAFKA_FORENSICS_KERNELS": "interpreted",
        }
        command = [sys.executable, str(folder / "tests" / "mutants" / "warm.py")]
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.changes = 0

    def run_tests(self, tests: Sequence[str], most_seconds: float) -> int | None:
        """pytest's exit status, up to the first failure; None if it ran out of time."""
        already = "ignore::pytest.PytestAssertRewriteWarning"  # of what is loaded already
        asked = ["-q", "-x", "-W", already, "-p", "no:cacheprovider", "-p", "tests.mutants.interpreted", *tests]
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([most_seconds, asked]) + "\n")
        self.process.stdin.flush()
        status: int | None = json.loads(self.process.stdout.readline())
        return status

    def outcome(self, mutant: Mutant, most_seconds: float = MOST_SECONDS) -> str:
        """What became of a mutant, which is taken back afterwards. Raises RuntimeError where no test ran."""
        place = self.folder / mutant.file
        before, status_before = place.read_text(), place.stat()
        self.changes += 1
        try:
            place.write_text(mutant.mutated(self.folder))
            os.utime(place, (self.changes, self.changes))  # what Python kept of another is not this
            status = self.run_tests(mutant.tests, most_seconds)
        finally:
            place.write_text(before)
            os.utime(place, ns=(status_before.st_atime_ns, status_before.st_mtime_ns))
        if status not in (None, 0, 1, 2):
            raise RuntimeError(f"pytest ended with {status}: {mutant}\n{(self.folder / 'output').read_text()[-2000:]}")
        return TIMED_OUT if status is None else KILLED if status else SURVIVED


def each_in_a_copy(copies: Sequence[Copy], work: Sequence[Callable[[Copy], str]]) -> Iterator[str]:
    """The answers to pieces of work, in their order, as many at a time as there are copies."""
    free: SimpleQueue[Copy] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def done(one: Callable[[Copy], str]) -> str:
        copy = free.get()
        try:
            return one(copy)
        finally:
            free.put(copy)

    with ThreadPoolExecutor(len(copies)) as pool:
        yield from pool.map(done, work)


def unchanged(module: str, copy: Copy) -> str:
    """How the tests of a module end without any mutant."""
    return str(copy.run_tests([module], 5 * MOST_SECONDS))


def failing_unchanged(copies: Sequence[Copy], mutants: Sequence[Mutant]) -> list[str]:
    """Tests that fail without any mutant: nothing would be learned from them."""
    modules = sorted({module for mutant in mutants for module in mutant.tests})
    work = [partial(unchanged, module) for module in modules]
    return [module for module, status in zip(modules, each_in_a_copy(copies, work), strict=True) if status != "0"]


def chosen(area: str | None, which: str) -> list[Mutant]:
    """The mutants of an area, or of all, from the first to before the second number of `which`."""
    mutants = [mutant for name, some in AREAS.items() if area in (None, name) for mutant in some]
    start, _, end = which.partition(":")
    return mutants[int(start or 0) : int(end) if end else None]


def judged(copies: Sequence[Copy], mutants: Sequence[Mutant], minutes: float) -> Iterator[tuple[Mutant, str, float]]:
    """Each mutant with what became of it and the seconds that took; `not run` when time is over."""
    over = time.monotonic() + 60 * minutes

    def work(mutant: Mutant) -> Callable[[Copy], str]:
        def run(copy: Copy) -> str:
            began = time.monotonic()
            if began >= over:
                return f"{NOT_RUN}|0"
            return f"{copy.outcome(mutant)}|{time.monotonic() - began}"

        return run

    for mutant, answer in zip(mutants, each_in_a_copy(copies, [work(mutant) for mutant in mutants]), strict=True):
        told, _, seconds = answer.partition("|")
        yield mutant, told, float(seconds)


def main() -> int:
    """Run the mutants asked for, print a line for each and what survived."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--area", choices=AREAS, help="only those of one area")
    parser.add_argument("--which", default=":", metavar="A:B", help="only those from number A to before B")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=MOST_MINUTES)
    parser.add_argument("--no-baseline", action="store_true", help="do not run the tests unchanged first")
    asked = parser.parse_args()
    mutants = chosen(asked.area, asked.which)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies = [Copy(Path(folder) / str(number) / "project") for number in range(asked.jobs)]
        if not asked.no_baseline and (failing := failing_unchanged(copies, mutants)):
            print(f"these fail without any mutant: {', '.join(failing)}", file=sys.stderr)
            return 1
        results = []
        for number, (mutant, told, seconds) in enumerate(judged(copies, mutants, asked.minutes)):
            results.append((mutant, told))
            change = " ".join(f"{mutant.old} -> {mutant.new}".split())
            print(
                f"{number:>3}  {told:<13}  {seconds:5.1f} s  {mutant.file.removeprefix('kafka_forensics/')}  {change}", flush=True
            )
        for copy in copies:
            copy.process.communicate()
    survivors = [mutant for mutant, told in results if told == SURVIVED]
    killed = sum(told in (KILLED, TIMED_OUT) for _, told in results)
    for mutant in survivors:
        print(f"\n{mutant.file}, held to {' '.join(mutant.tests)}\n- {mutant.old}\n+ {mutant.new}\n  {mutant.survives or 'WHY?'}")
    percent = 100 * killed / max(len(results), 1)
    print(f"\n{killed} of {len(results)} killed ({percent:.1f} %), {len(survivors)} survived")
    return int(percent < LEAST_PERCENT)


if __name__ == "__main__":
    sys.exit(main())
