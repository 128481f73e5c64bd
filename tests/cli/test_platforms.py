"""Systems other than Linux, simulated: names that they lack are removed before the package is loaded."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.runs import Run
from tests.support.places import ROOT

MISSING_NAMES = {
    "darwin": "O_NOATIME O_PATH O_TMPFILE SEEK_DATA SEEK_HOLE copy_file_range eventfd fdatasync fork forkpty memfd_create"
    " pidfd_open posix_fadvise posix_fallocate preadv pwritev sched_getaffinity sched_setaffinity sendfile setns splice unshare",
    "win32": "O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK fork geteuid getppid pread preadv pwrite sched_getaffinity",
}
"""`sys.platform` → names that `os` lacks there. macOS has `fork` and `SEEK_DATA`, but the package does not use `fork` there, and
not every Python has `SEEK_DATA`."""
PRELUDE = """
import contextlib, io, json, os, sys
import multiprocessing, numpy, pyarrow.compute, numba  # loaded before: libraries may use these names
for name in {names!r}:
    if hasattr(os, name):
        delattr(os, name)
sys.platform = {platform!r}
"""
RUN_ALL = """
from kafka_forensics.cli.main import outcome
answers = []
for line in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        status = outcome(line.split())
    answers.append([status, out.getvalue(), err.getvalue()])
print(json.dumps(answers))
"""
RUN = "from kafka_forensics.__main__ import run\nrun()\n"


def process(platform: str, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = PRELUDE.format(names=MISSING_NAMES[platform].split(), platform=platform) + script
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def test_answers_are_the_same_without_features_of_linux(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    statuses = {
        "scan -q --format json sample_logs/unclean-election": 1,
        "scan -q --format json --deep sample_logs/healthy": 0,
        "dump -q --format jsonl sample_logs/silent-divergence": 0,
        "plan -q --format json sample_logs/unclean-election": 0,
    }
    completed = process("darwin", RUN_ALL, json.dumps([*statuses, f"demo {tmp_path}", "doctor --format json"]))
    assert completed.returncode == 0, completed.stderr
    *answers, demo, doctor = json.loads(completed.stdout)
    for (line, status), answer in zip(statuses.items(), answers, strict=True):
        assert answer[0] == status, answer
        assert tuple(answer) == run(*line.split()), line
    assert demo[0] == 0
    assert re.search(r", \d+ cores", json.dumps(json.loads(doctor[1])))


def test_windows_gets_a_hint_to_use_wsl() -> None:
    completed = process("win32", RUN, "scan", "sample_logs/healthy")
    assert (completed.returncode, completed.stdout) == (3, "")
    error, hint = completed.stderr.splitlines()
    assert error.startswith("error: kafka-forensics runs on Linux and macOS")
    assert "WSL 2" in hint
    assert "docs/platforms.md" in hint


def test_linux_has_the_removed_names() -> None:
    """Otherwise the tests above would show nothing."""
    removed = {"O_NOATIME", "SEEK_DATA", "preadv", "posix_fadvise", "sched_getaffinity", "fork", "pread", "O_NOFOLLOW"}
    assert {name for name in removed if not hasattr(os, name)} == set()
    assert removed <= {name for names in MISSING_NAMES.values() for name in names.split()}
