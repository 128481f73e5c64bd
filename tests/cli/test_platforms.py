"""Systems other than Linux, as far as they can be played here: what they lack is taken away before the package is loaded."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.runs import Run
from tests.support.places import ROOT

LACKS = {
    "darwin": "O_NOATIME O_PATH O_TMPFILE SEEK_DATA SEEK_HOLE copy_file_range eventfd fdatasync fork forkpty memfd_create"
    " pidfd_open posix_fadvise posix_fallocate preadv pwritev sched_getaffinity sched_setaffinity sendfile setns splice unshare",
    "win32": "O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK fork geteuid getppid pread preadv pwrite sched_getaffinity",
}
"""`sys.platform` → names of `os` that are not there; macOS has `fork` and `SEEK_DATA`, but the one is not used there, and not every
Python knows the other."""
PRELUDE = """
import contextlib, io, json, os, sys
import multiprocessing, numpy, pyarrow.compute, numba  # the libraries' own business, here as elsewhere
for name in {names!r}:
    if hasattr(os, name):
        delattr(os, name)
sys.platform = {platform!r}
"""
OUTCOMES = """
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
    code = PRELUDE.format(names=LACKS[platform].split(), platform=platform) + script
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def test_the_answer_is_the_same_without_what_only_linux_has(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    same = {
        "scan --format json sample_logs/unclean-election": 1,
        "scan --format json --deep sample_logs/healthy": 0,
        "dump --format jsonl sample_logs/silent-divergence": 0,
        "plan --format json sample_logs/unclean-election": 0,
    }
    done = process("darwin", OUTCOMES, json.dumps([*same, f"demo {tmp_path}", "doctor --format json"]))
    assert done.returncode == 0, done.stderr
    *answers, demo, doctor = json.loads(done.stdout)
    for (line, status), answer in zip(same.items(), answers, strict=True):
        assert answer[0] == status, answer
        assert tuple(answer) == run(*line.split()), line
    assert demo[0] == 0
    assert re.search(r", \d+ cores", json.dumps(json.loads(doctor[1])))


def test_windows_is_told_what_to_do_instead() -> None:
    done = process("win32", RUN, "scan", "sample_logs/healthy")
    assert (done.returncode, done.stdout) == (3, "")
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: kafka-forensics runs on Linux and macOS")
    assert "WSL 2" in hint
    assert "docs/platforms.md" in hint


def test_what_is_taken_away_is_there_on_linux() -> None:
    """Else a test would show nothing."""
    taken = {"O_NOATIME", "SEEK_DATA", "preadv", "posix_fadvise", "sched_getaffinity", "fork", "pread", "O_NOFOLLOW"}
    assert {name for name in taken if not hasattr(os, name)} == set()
    assert taken <= {name for names in LACKS.values() for name in names.split()}
