"""What every command owes its users: inputs stay as they are, memory stays flat."""

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from kafka_forensics.cli.main import COMMANDS
from tests.cli.every_command import OF_THEIR_OWN, WITHOUT_EVIDENCE, reading
from tests.cli.runs import Run
from tests.support.peak_memory import peak_kib
from tests.support.places import SAMPLES

SAMPLE = SAMPLES / "unclean-election"
LONG_AGO_NS = 10**18
WITH_OUTPUT = frozenset({"export", "recover", "report", "salvage"})
"""Commands that write to a place that is always named."""


def tree(root: Path) -> dict[str, tuple[object, ...]]:
    """Content, rights and times of everything below a directory."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        times = (status.st_mtime_ns, status.st_ctime_ns, status.st_atime_ns if path.is_file() else 0)
        content = hashlib.sha256(_read(path)).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(root))] = (content, status.st_mode, status.st_size, *times)
    return found


def _read(path: Path) -> bytes:
    """The content, without a trace of having been read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOATIME)
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sample that was last read long ago, and of which atimes would be changed by reading."""
    root = tmp_path_factory.mktemp("evidence") / "copies"
    shutil.copytree(SAMPLE, root)
    for path in root.rglob("*"):
        os.utime(path, ns=(LONG_AGO_NS, path.stat().st_mtime_ns))
    return root


def test_that_a_changed_input_would_be_noticed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    before = tree(tmp_path)
    os.utime(tmp_path / "a", ns=(LONG_AGO_NS, LONG_AGO_NS))
    assert tree(tmp_path) != before


def test_every_command_is_looked_at() -> None:
    assert reading("").keys() | OF_THEIR_OWN | WITHOUT_EVIDENCE == COMMANDS.keys()


@pytest.mark.parametrize("command", [*reading("audit"), *sorted(OF_THEIR_OWN)])
def test_no_command_leaves_a_trace_in_its_inputs_or_writes_into_them(
    command: str, evidence: Path, tmp_path: Path, run: Run
) -> None:
    before = tree(evidence)
    given = [evidence, *reading("audit").get(command, [])]
    if command == "changes":
        given.insert(0, SAMPLES / "healthy")
    if command == "verify":
        assert run("plan", evidence, "--output", tmp_path / "plan.json", "-q")[0] == 0
        given += ["--against", tmp_path / "plan.json"]
    inside = evidence / "broker-1" / {"export": "facts", "report": "page.html"}.get(command, "answer.json")
    status, out, err = run(command, *given, "--output", inside)
    assert (status, out) == (2, "")
    assert "inside" in err
    output = ["--output", tmp_path / ("page.html" if command == "report" else "out")] if command in WITH_OUTPUT else []
    status, _, err = run(command, *given, *output, "-q")
    assert status in ((3,) if command == "salvage" else (0, 1)), err  # both sides of the fork were committed
    assert tree(evidence) == before


def test_memory_does_not_grow_with_a_sparse_log(tmp_path: Path) -> None:
    """JSON Lines of a log with a hole of 2 GiB need what those of one of 64 MiB do."""
    peaks = []
    for size in (64 << 20, 2 << 30):
        copy = tmp_path / str(size) / "broker-1"
        shutil.copytree(SAMPLE / "broker-1" / "audit-0", copy / "zeros-0")
        with next((copy / "zeros-0").glob("*.log")).open("r+b") as log:
            log.truncate(size)
        peak, out = peak_kib("scan", copy, "--format", "jsonl", "--jobs", "1", "-q")
        assert '"type": "summary"' in out
        peaks.append(peak)
    assert peaks[1] - peaks[0] < 48 << 10
