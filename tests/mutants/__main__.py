"""Draws small changes of the package with a fixed seed and runs, for each, the tests that run the changed line.

`make nightly PART=mutants`, or `python -m tests.mutants`. cosmic-ray's operators make the changes, in copies of the project in a
temporary folder. Tests that run the fewest lines come first; after `SECONDS_A_MUTANT` seconds of tests the others are left out.
Exits with 1 if less than `LEAST_PERCENT` % of the mutants are killed, or if a test fails without a mutant.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Final

import coverage
import parso
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator, operator_names

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = "kafka_forensics"
PACKAGES: Final = ("replication", "analysis", "evidence", "parsers", "scanning/judging")
OPERATORS: Final = (
    *("Binary", "Unary", "Comparison", "True", "False", "And"),
    *("Or", "Break", "Continue", "Number", "Not", "Iteration"),
)
"""Parts of the names of the operators that are used; the others remove decorators or change exception types."""
SECONDS_A_MUTANT: Final = 40.0
LEAST_PERCENT: Final = 70
KILLED, SURVIVED, TIME_OUT = "killed", "SURVIVED", "time out"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change: an occurrence of an operator in a file of the project; lines count from 1."""

    file: str
    line: int
    operator: str
    occurrence: int

    def mutated(self) -> str:
        """The text of the file with the change."""
        changed = mutate_code((ROOT / self.file).read_text(), _operator(self.operator), self.occurrence)
        assert isinstance(changed, str), self
        return changed

    def shown(self) -> str:
        """The place of the change, and the line before and after it."""
        before, after = (ROOT / self.file).read_text().splitlines(), self.mutated().splitlines()
        at = next(n for n, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1])
        return f"{self.file}:{at + 1}\n- {before[at].strip()}\n+ {after[at].strip()}"


class Covered:
    """The tests that run each line of each file, as the plugin `covering` recorded them in a folder."""

    def __init__(self, folder: Path) -> None:
        self.data = coverage.CoverageData(str(folder / "coverage"))
        if not (folder / "coverage").exists():
            combined = coverage.Coverage(data_file=folder / "coverage", config_file=False)
            combined.combine([str(folder)], keep=True)
            combined.save()
        self.data.read()
        self.seconds: dict[str, float] = {}
        self.users: defaultdict[str, list[str]] = defaultdict(list)
        for path in sorted(folder.glob("tests-*.json")):
            for test, (seconds, fixtures) in json.loads(path.read_text()).items():
                self.seconds[test] = seconds
                for fixture in fixtures:
                    self.users[fixture].append(test)
        self.files = {PACKAGE + name.rpartition(f"/{PACKAGE}")[2]: name for name in self.data.measured_files()}
        self.lines: Counter[str] = Counter()
        for file in self.files:
            for tests in self.by_line(file).values():
                self.lines.update(tests)

    @cache  # noqa: B019  # there is only one instance
    def by_line(self, file: str) -> dict[int, frozenset[str]]:
        """Line → tests that run it, without lines that run only at import."""
        lines = {}
        for line, contexts in self.data.contexts_by_lineno(self.files[file]).items():
            if tests := frozenset(
                test for context in contexts for test in self.users.get(context, [context]) if test in self.seconds
            ):
                lines[line] = tests
        return lines

    def tests_of(self, mutant: Mutant, most_seconds: float) -> list[str]:
        """The tests to run for a mutant, grouped by module: those that run its line, fewest lines first, within the time limit.

        If time is left, other tests of the same modules follow, because they may check what those tests produced.
        """
        covering = self.by_line(mutant.file)[mutant.line]
        modules: defaultdict[str, list[str]] = defaultdict(list)
        left = most_seconds
        for test in sorted(covering, key=lambda test: (self.lines[test], test)):
            if left > 0:
                left -= self.seconds[test]
                modules[_module(test)].append(test)
        others = sorted(test for test in self.seconds if _module(test) in modules and test not in covering)
        for test in sorted(others, key=self.seconds.__getitem__):
            if left > 0:
                left -= self.seconds[test] + 0.01
                modules[_module(test)].append(test)
        return [test for tests in modules.values() for test in tests]


def _first_failed(output: str, tests: Sequence[str]) -> str | None:
    """The first of these tests that pytest reports as failed; of a module that cannot be imported, its first test."""
    for line in output.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            failed = line.split(" ", 1)[1]
            of_module = next((test for test in tests if failed.startswith(_module(test))), None)
            return max((test for test in tests if failed.startswith(test)), key=len, default=of_module)
    return None


def _module(test: str) -> str:
    return test.split("::", 1)[0]


@cache
def _operator(name: str) -> Operator:
    operator: Operator = get_operator(name)()
    return operator


def draw(covered: Covered, count: int, seed: int) -> list[Mutant]:
    """Draw mutants of lines that tests run: every place has the same probability, then every change of it."""
    names = [name for name in operator_names() if any(part in name for part in OPERATORS)]
    places: defaultdict[tuple[str, int, int], list[Mutant]] = defaultdict(list)
    for file in sorted(covered.files):
        nodes = list(_nodes(parso.parse((ROOT / file).read_text())))
        for name in names:
            positions = [position for node in nodes for position in _operator(name).mutation_positions(node)]
            for occurrence, ((line, column), _) in enumerate(positions):
                if line in covered.by_line(file):
                    places[file, line, column].append(Mutant(file, line, name, occurrence))
    rng = random.Random(seed)
    drawn: list[Mutant] = []
    for place in rng.sample(sorted(places), len(places)):
        mutant = rng.choice(places[place])
        if len(drawn) < count and _changes_what_runs(mutant):
            drawn.append(mutant)
    return drawn


def _nodes(node: parso.tree.NodeOrLeaf) -> Iterator[parso.tree.NodeOrLeaf]:
    yield node
    for child in getattr(node, "children", ()):
        yield from _nodes(child)


def _changes_what_runs(mutant: Mutant) -> bool:
    """Whether a mutant is valid Python and differs in more than annotations."""
    try:
        return _without_annotations(mutant.mutated()) != _without_annotations((ROOT / mutant.file).read_text())
    except SyntaxError:
        return False


def _without_annotations(text: str) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        for field in ("annotation", "returns"):
            if getattr(node, field, None) is not None:
                setattr(node, field, ast.Constant(None))
    return ast.dump(tree)


class Copy:
    """A copy of the project, whose tests run interpreted kernels, so that a mutated kernel need not be compiled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.folder.mkdir(parents=True)
        if (ROOT.parent / "shared").is_dir():
            (folder / "shared").symlink_to(ROOT.parent / "shared")
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
        for name in listed.rstrip("\0").split("\0"):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.folder / name)
        self.environment = os.environ | {"PYTHONPATH": str(self.folder), "XDG_CACHE_HOME": str(folder / "cache")}
        self.unchanged: dict[str, bool] = {}

    def run(self, tests: Sequence[str], most_seconds: float) -> tuple[int | None, str]:
        """Run tests up to the first failure; return pytest's exit status (None: timeout) and output."""
        (self.folder / "selected").write_text("\n".join(tests))
        options = ["-q", "-x", "--timeout=60", "-p", "no:cacheprovider", "-p", "tests.mutants.interpreted", "@selected"]
        command = [sys.executable, "-m", "pytest", *options]
        with subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=most_seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                return None, ""
        return process.returncode, output

    def outcome(self, mutant: Mutant, tests: list[str]) -> tuple[str, str]:
        """The outcome of a mutant, and the test that killed it, which must pass without the mutant."""
        place = self.folder / mutant.file
        tests = [test for test in tests if self.unchanged.get(test, True)]
        while tests:
            before = place.read_text()
            place.write_text(mutant.mutated())
            try:
                status, output = self.run(tests, 60 + 4 * SECONDS_A_MUTANT)
            finally:
                place.write_text(before)
            if status == 0:
                return SURVIVED, ""
            if status is None:
                return TIME_OUT, ""
            failed = _first_failed(output, tests)
            if failed is None and not self.passes_unchanged(tests[0]):
                raise RuntimeError(f"pytest ended with {status} and named no test that failed:\n{output[-2000:]}")
            if failed is None:  # the package cannot be imported
                return KILLED, output.splitlines()[-1]
            if self.passes_unchanged(failed):
                return KILLED, failed
            tests = [test for test in tests if test != failed]
        return SURVIVED, ""

    def passes_unchanged(self, test: str) -> bool:
        """Whether a test passes in this copy without a mutant."""
        if test not in self.unchanged:
            self.unchanged[test] = self.run([test], 120)[0] == 0
        return self.unchanged[test]


def main() -> int:
    """Draw mutants and run their tests; print a line for each, and those that survived."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=38)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--drawn", type=Path, metavar="FILE", help="take the mutants of this file, or draw them and write it")
    parser.add_argument("--covered", type=Path, metavar="DIR", help="take what tests run from this folder, or record it there")
    parser.add_argument("--tests", nargs="*", default=["tests"], help="record what these tests run")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = arguments.covered or Path(name) / "covered"
        if not folder.is_dir():
            record(folder, arguments.tests, arguments.jobs)
        covered = Covered(folder)
        if arguments.drawn is not None and arguments.drawn.exists():
            mutants = [Mutant(**json.loads(line)) for line in arguments.drawn.read_text().splitlines()]
        else:
            mutants = draw(covered, arguments.count, arguments.seed)
            if arguments.drawn is not None:
                lines = [json.dumps({field: getattr(mutant, field) for field in mutant.__slots__}) for mutant in mutants]
                arguments.drawn.write_text("\n".join(lines) + "\n")
        return judge(mutants, covered, [Copy(Path(name) / str(number)) for number in range(arguments.jobs)])


def record(folder: Path, tests: Sequence[str], jobs: int) -> None:
    """Run tests, which must pass, and record in a new folder which lines each of them runs."""
    folder.mkdir(parents=True)
    sources = [str(ROOT / PACKAGE / package) for package in PACKAGES]
    assert all(map(os.path.isdir, sources)), sources  # coverage would record nothing
    environment = os.environ | {"COVERING_FOLDER": str(folder), "COVERING_SOURCES": json.dumps(sources)}
    options = ["-q", "-n", str(jobs), "--dist", "loadscope", "--no-loadscope-reorder"]
    options += ["-m", "not spark", "-p", "tests.mutants.covering"]
    subprocess.run([sys.executable, "-m", "pytest", *options, *tests], cwd=ROOT, env=environment, check=True)


def judge(mutants: Sequence[Mutant], covered: Covered, copies: Sequence[Copy]) -> int:
    """Run the tests of all mutants, one mutant per copy at a time; return the exit status."""
    free: SimpleQueue[Copy] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def outcome(mutant: Mutant) -> tuple[str, str, float]:
        copy, began = free.get(), time.monotonic()
        try:
            tests = covered.tests_of(mutant, SECONDS_A_MUTANT) if mutant.line in covered.by_line(mutant.file) else []
            return *copy.outcome(mutant, tests), time.monotonic() - began
        finally:
            free.put(copy)

    survivors = []
    with ThreadPoolExecutor(len(copies)) as pool:
        for number, (mutant, (result, test, seconds)) in enumerate(zip(mutants, pool.map(outcome, mutants), strict=True)):
            change = f"{mutant.file}:{mutant.line} {mutant.operator} {mutant.occurrence}"
            print(f"{number:>3}  {result:<8} {seconds:5.1f} s  {change}  {test}", flush=True)
            if result != KILLED:
                survivors.append(mutant)
    for mutant in survivors:
        print(f"\n{mutant.shown()}")
    killed = len(mutants) - len(survivors)
    percent = 100 * killed / max(len(mutants), 1)
    print(f"\n{killed} of {len(mutants)} killed ({percent:.1f} %)")
    return int(percent < LEAST_PERCENT)


if __name__ == "__main__":
    sys.exit(main())
