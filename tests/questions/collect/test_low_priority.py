"""`collect` lowers its priority by system calls, and restores it."""

import logging
import os
import platform
import subprocess
import sys

import pytest

from kafka_forensics.questions.collect import low_priority
from kafka_forensics.questions.collect.low_priority import IDLE, NICE, at_low_priority
from tests.support.places import ROOT

MAY_LOWER = os.geteuid() == 0
ON_LINUX = low_priority._system_calls() is not None


PROGRAM = f"""
import contextlib
import os
from kafka_forensics.questions.collect import low_priority

def priorities():
    return os.getpriority(os.PRIO_PROCESS, 0), low_priority._disk_priority()

before = priorities()
with low_priority.{at_low_priority.__name__}():
    inside = priorities()
after = priorities()
with contextlib.suppress(ZeroDivisionError), low_priority.{at_low_priority.__name__}():
    1 / 0
print(*before, *inside, *after, *priorities())
"""


def test_priorities_are_lowered_and_restored() -> None:
    """Also after an error; in a separate process, because the change affects the whole process."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True)
    nice, disk, nice_inside, disk_inside, *after = done.stdout.split()
    assert int(nice_inside) == min(int(nice) + NICE, 19)
    assert disk_inside == (str(IDLE) if ON_LINUX else "None")
    if MAY_LOWER:
        assert after == [nice, disk] * 2
    else:
        assert after == [nice_inside, disk, str(min(int(nice) + 2 * NICE, 19)), disk]


def test_other_machines_set_only_the_nice_value(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The system calls of such a machine are unknown; `nice` is replaced, because this process continues."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    monkeypatch.setattr(os, "nice", lambda _: 0)
    with at_low_priority():
        assert low_priority._disk_priority() is None
    [message] = caplog.messages
    assert message.endswith("normal disk priority, because this system has no idle priority")
