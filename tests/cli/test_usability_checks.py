"""What every command owes its users, held over all of them: inputs stay as they are, rows are rows, memory stays flat."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_forensics.cli.main import COMMANDS
from tests.cli.test_commands_on_redacted_bundles import COMMAND_LINES, WITHOUT_EVIDENCE
from tests.support.plan_runs import Run

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "sample_logs" / "unclean-election"
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


def against(command: str, evidence: Path, folder: Path, run: Run) -> list[str]:
    """The option that names what was promised, for the one command that needs it."""
    if command != "verify":
        return []
    plan = folder / "plan.json"
    assert run("plan", evidence, "--output", plan, "-q")[0] == 0
    return ["--against", str(plan)]


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in WITHOUT_EVIDENCE])
def test_no_command_leaves_a_trace_in_its_inputs(command: str, evidence: Path, tmp_path: Path, run: Run) -> None:
    before = tree(evidence)
    for number, arguments in enumerate(COMMAND_LINES.get(command) or [[]]):
        filled = [argument.format(topic="audit") for argument in arguments]
        paths: list[object] = [evidence]
        if command == "changes":
            paths = [ROOT / "sample_logs" / "healthy", evidence]
        if command in WITH_OUTPUT:
            filled += ["--output", str(tmp_path / f"out-{number}{'.html' if command == 'report' else ''}")]
        filled += against(command, evidence, tmp_path, run)
        status, _, err = run(command, *paths, *filled, "-q")
        assert status in ((3,) if command == "salvage" else (0, 1)), err  # both sides of the fork were committed
    assert tree(evidence) == before


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in {*WITHOUT_EVIDENCE}])
def test_no_command_writes_into_its_inputs(command: str, evidence: Path, tmp_path: Path, run: Run) -> None:
    before = tree(evidence)
    arguments = next(iter(COMMAND_LINES.get(command, [])), [])
    filled = [argument.format(topic="audit") for argument in arguments]
    paths: list[object] = [ROOT / "sample_logs" / "healthy", evidence] if command == "changes" else [evidence]
    filled += against(command, evidence, tmp_path, run)
    inside = evidence / "broker-1" / {"export": "facts", "report": "page.html"}.get(command, "answer.json")
    status, out, err = run(command, *paths, *filled, "--output", inside)
    assert (status, out) == (2, "")
    assert "inside" in err
    assert tree(evidence) == before


@pytest.mark.parametrize("columns", ["1", "20", "80", "2000"])
def test_rows_for_programs_know_no_width(columns: str, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    _, out, _ = run("scan", SAMPLE, "--format", "tsv")
    monkeypatch.delenv("COLUMNS")
    assert out == run("scan", SAMPLE, "--format", "tsv")[1]
    head, *rows = out.splitlines()
    assert head.startswith("kind\tseverity\t")
    assert {row.count("\t") for row in rows} == {head.count("\t")}
    assert not {*out} & {*"…│┃─━┌┐└┘|"} - {"|"}


def test_memory_does_not_grow_with_a_sparse_log(tmp_path: Path) -> None:
    """JSON Lines of a log with a hole of 2 GiB need what those of one of 64 MiB do."""
    peaks = []
    for size in (64 << 20, 2 << 30):
        copy = tmp_path / str(size) / "broker-1"
        shutil.copytree(SAMPLE / "broker-1" / "audit-0", copy / "zeros-0")
        with next((copy / "zeros-0").glob("*.log")).open("r+b") as log:
            log.truncate(size)
        code = (
            "import resource, sys; from kafka_forensics.cli.main import outcome\n"
            f"outcome(['scan', {str(copy)!r}, '--format', 'jsonl', '--jobs', '1', '-q'])\n"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
        assert '"type": "summary"' in done.stdout
        peaks.append(int(done.stderr.splitlines()[-1]))
    assert peaks[1] - peaks[0] < 48 << 10, peaks  # KiB
