"""Systems other than Linux, as far as they can be played here: what they lack is taken away before the package is loaded."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LACKS = {
    "darwin": "O_NOATIME O_PATH O_TMPFILE SEEK_DATA SEEK_HOLE copy_file_range eventfd fdatasync fork forkpty memfd_create"
    " pidfd_open posix_fadvise posix_fallocate preadv pwritev sched_getaffinity sched_setaffinity sendfile setns splice unshare",
    "win32": "O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK fork geteuid getppid pread preadv pwrite sched_getaffinity",
    "linux": "",
}
"""`sys.platform` → names of `os` that are not there; macOS has `fork` and `SEEK_DATA`, but the one is not used there, and not every
Python knows the other."""
PRELUDE = """
import os, sys
import multiprocessing, numpy, pyarrow.compute, {library}  # the libraries' own business, here as elsewhere
for name in {names!r}:
    if hasattr(os, name):
        delattr(os, name)
sys.platform = {platform!r}
"""
OUTCOME = PRELUDE + "from kafka_forensics.cli.main import outcome\nsys.exit(outcome(sys.argv[1:]))\n"
RUN = PRELUDE + "from kafka_forensics.__main__ import run\nrun()\n"


def run(script: str, platform: str, *arguments: str, library: str = "llvmlite.binding") -> subprocess.CompletedProcess[str]:
    code = script.format(names=LACKS[platform].split(), platform=platform, library=library)
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["scan", "--format", "json", "sample_logs/unclean-election"], 1),
        (["scan", "--format", "json", "--deep", "sample_logs/healthy"], 0),
        (["dump", "--format", "jsonl", "sample_logs/silent-divergence"], 0),
        (["plan", "--format", "json", "sample_logs/unclean-election"], 0),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_the_answer_is_the_same_without_what_only_linux_has(arguments: list[str], status: int) -> None:
    elsewhere, here = run(OUTCOME, "darwin", *arguments), run(OUTCOME, "linux", *arguments)
    assert (elsewhere.returncode, elsewhere.stderr) == (status, here.stderr)
    assert elsewhere.stdout == here.stdout
    assert here.stdout


def test_doctor_and_demo_do_without_it(tmp_path: Path) -> None:
    rows = run(OUTCOME, "darwin", "doctor", "--format", "json", library="numba").stdout
    assert re.search(r", \d+ cores", json.dumps(json.loads(rows)))
    assert run(OUTCOME, "darwin", "demo", str(tmp_path)).returncode == 0


def test_windows_is_told_what_to_do_instead() -> None:
    done = run(RUN, "win32", "scan", "sample_logs/healthy")
    assert (done.returncode, done.stdout) == (3, "")
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: kafka-forensics runs on Linux and macOS")
    assert "WSL 2" in hint
    assert "docs/platforms.md" in hint


def test_what_is_taken_away_is_there_on_linux() -> None:
    """Else a test would show nothing."""
    import os

    taken = {"O_NOATIME", "SEEK_DATA", "preadv", "posix_fadvise", "sched_getaffinity", "fork", "pread", "O_NOFOLLOW"}
    assert {name for name in taken if not hasattr(os, name)} == set()
    assert taken <= {name for names in LACKS.values() for name in names.split()}
