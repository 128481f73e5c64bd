"""What a command prints is data: the same bytes whatever stands beside it, a terminal for its progress, a job of some service."""

import os
import pty
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import pytest

from kafka_forensics.cli.manual import MANUAL
from kafka_forensics.cli.options import SCAN_FORMATS

ROOT: Final = Path(__file__).resolve().parents[2]
SECONDS: Final = 60
WRITING: Final = ("demo", "export", "simulate run", "doctor")
"""Commands that write files, and the one that tells how fast it is."""
EXAMPLES: Final = sorted(
    {
        manual.examples[0]
        for name, manual in MANUAL.items()
        if name and not manual.examples[0].startswith(WRITING) and "--output" not in manual.examples[0]
    }
)
ESCAPE: Final = b"\x1b"


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of one's own with the samples in it."""
    folder = tmp_path_factory.mktemp("alike")
    shutil.copytree(ROOT / "sample_logs", folder / "sample_logs")
    plan = "plan sample_logs/unclean-election --output plan.json"  # what `verify` is held against
    assert printed(folder, plan, terminal=False)[0] == 0
    return folder


def printed(folder: Path, example: str, *more: str, terminal: bool, **environment: str) -> tuple[int, bytes]:
    """Status and stdout of a command in a process of its own, whose stderr is a terminal or nowhere."""
    told = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLUMNS", "TERM", "FORCE_COLOR"}}
    command = [sys.executable, "-m", "kafka_forensics", *shlex.split(example), *more]
    outer, inner = pty.openpty() if terminal else (-1, subprocess.DEVNULL)
    reading = threading.Thread(target=_read_all, args=(outer,), daemon=True)
    if terminal:
        reading.start()
    done = subprocess.run(
        command,
        cwd=folder,
        env=told | {"TERM": "xterm-256color"} | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=inner,
        timeout=SECONDS,
        check=False,
    )
    if terminal:
        os.close(inner)
        reading.join(SECONDS)
        os.close(outer)
    return done.returncode, done.stdout


def _read_all(terminal: int) -> None:
    """Take what a terminal is given until nobody writes to it any more."""
    try:
        while os.read(terminal, 1 << 16):
            pass
    except OSError:
        return


def test_most_commands_are_looked_at() -> None:
    assert len(EXAMPLES) >= 12
    assert {example.split()[0] for example in EXAMPLES} >= {"scan", "plan", "dump", "find", "groups", "explain", "metadata"}


@pytest.mark.parametrize("example", EXAMPLES)
def test_data_is_the_same_beside_a_terminal(samples: Path, example: str) -> None:
    beside = printed(samples, example, terminal=True)
    assert beside == printed(samples, example, terminal=False, COLUMNS="41", GITHUB_ACTIONS="true", CI="true")
    assert beside[0] in {0, 1}
    assert beside[1]
    assert ESCAPE not in beside[1]


@pytest.mark.parametrize(("name", "service"), [("table", "GITHUB_ACTIONS"), ("markdown", "GITLAB_CI"), ("tsv", "TF_BUILD")])
def test_a_job_of_a_service_is_no_terminal(samples: Path, name: str, service: str) -> None:
    """Rich takes some services' jobs for terminals with colours."""
    example = f"scan sample_logs/unclean-election --format {name}"
    _, out = printed(samples, example, terminal=False, **{service: "true"})
    assert out
    assert ESCAPE not in out


@pytest.mark.parametrize("name", SCAN_FORMATS)
def test_the_same_bytes_at_one_job_and_at_eight(samples: Path, name: str) -> None:
    example = f"scan sample_logs/silent-divergence --format {name} --jobs"
    assert printed(samples, example, "1", terminal=False) == printed(samples, example, "8", terminal=False)
