"""The priority that `collect` gives itself, as the system tells it, and gives back."""

import logging
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_forensics.questions.collect import politeness
from kafka_forensics.questions.collect.politeness import IDLE, NICE, behind_all_others

ROOT = Path(__file__).resolve().parents[3]
LOG_DIR = ROOT / "sample_logs" / "healthy" / "broker-1"
MAY_LOWER = os.geteuid() == 0
ON_LINUX = politeness._numbers() is not None


def in_a_process(program: str) -> list[str]:
    """What a program prints, in a process of its own, whose priority nobody else has."""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split()


INSIDE = """
import os
import platform
from kafka_forensics.questions.collect import politeness
before = os.getpriority(os.PRIO_PROCESS, 0), politeness._disk_priority()
with politeness.behind_all_others():
    inside = os.getpriority(os.PRIO_PROCESS, 0), politeness._disk_priority()
after = os.getpriority(os.PRIO_PROCESS, 0), politeness._disk_priority()
print(*before, *inside, *after)
"""


def test_priorities_are_given_up_and_back() -> None:
    nice, disk, nice_inside, disk_inside, nice_after, disk_after = in_a_process(INSIDE)
    assert int(nice_inside) == min(int(nice) + NICE, 19)
    assert disk_inside == (str(IDLE) if ON_LINUX else "None")
    assert disk_after == disk
    assert nice_after == (nice if MAY_LOWER else nice_inside)


def test_they_are_given_back_after_an_error() -> None:
    program = INSIDE.replace("after =", "    1 / 0\nafter =").replace(
        "with", "import contextlib\nwith contextlib.suppress(ZeroDivisionError), "
    )
    nice, disk, _, _, nice_after, disk_after = in_a_process(program)
    assert disk_after == disk
    assert nice_after == nice or not MAY_LOWER


def test_elsewhere_only_the_nice_value_is_set(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody knows the numbers of the calls on such a machine; `nice` is held back, for this process goes on."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    monkeypatch.setattr(os, "nice", lambda _: 0)
    with behind_all_others():
        assert politeness._disk_priority() is None
    [message] = caplog.messages
    assert message.endswith("the disk's time as any other, for no idle priority can be set here")


def test_collect_says_what_it_has_set(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kafka_forensics", "collect", str(LOG_DIR), "--output", str(tmp_path / "b.kfb"), "-v"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    nice = min(os.getpriority(os.PRIO_PROCESS, 0) + NICE, 19)
    disk = "the disk's idle time" if ON_LINUX else "the disk's time as any other, for no idle priority can be set here"
    assert f"priority: nice {nice}, {disk}\n" in done.stderr
    assert "the page cache: " in done.stderr
