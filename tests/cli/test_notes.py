"""What is said beside an answer fits the terminal it is said on, and is a line each in a pipe."""

import os
import pty
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest

from kafka_forensics.cli.notes import say, wrapped
from kafka_forensics.cli.streams import Destination

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = "sample_logs/unclean-election"
LONG = "note: offsets 300 to 369 are on broker 2 alone; `kafka-forensics compare PATH...` shows 352 kB of them, side by side"


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_are_broken_for_a_terminal_alone() -> None:
    for stream, lines in ((StringIO(), 1), (Terminal(), 3)):
        say(Destination(stream, 48, colour=False), [LONG])
        told = stream.getvalue().splitlines()
        assert len(told) == lines
        assert " ".join(line.strip() for line in told) == LONG


def test_commands_and_amounts_are_not_broken() -> None:
    for width in range(40, 120):
        lines = wrapped([LONG], width)
        assert sum("`kafka-forensics compare PATH...`" in line for line in lines) == 1
        assert sum("352 kB" in line for line in lines) == 1
        assert max(map(len, lines)) <= width
        assert all(line.startswith("  ") for line in lines[1:])


def test_words_wider_than_the_terminal_stay_whole() -> None:
    assert wrapped(["incomplete: " + "p" * 90], 80) == ["incomplete:", "  " + "p" * 90]
    assert wrapped([""], 80) == [""]


@pytest.mark.parametrize(
    "arguments",
    [
        ("transactions", SAMPLE, "--format", "tsv"),
        ("metadata", SAMPLE, "--format", "tsv"),
        ("groups", SAMPLE, "--format", "tsv", "--group", "nosuch"),
        ("find", SAMPLE, "--offset", "0", "--limit", "1", "--format", "tsv"),
        ("plan", SAMPLE, "--format", "tsv"),
        ("compare", SAMPLE, "--topic", "audit", "--partition", "0", "--format", "tsv"),
        ("scan", SAMPLE, "--topic", "nosuch"),
        ("scan", "sample_logs/no-such-directory-with-a-name-that-is-long"),
    ],
    ids=" ".join,
)
def test_nothing_said_is_wider_than_80_columns(arguments: tuple[str, ...]) -> None:
    primary, secondary = pty.openpty()
    command = [sys.executable, "-m", "kafka_forensics", *arguments]
    environment = os.environ | {"COLUMNS": "80", "NO_COLOR": "1"}
    subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=secondary, timeout=60, check=False)
    os.close(secondary)
    said = os.read(primary, 1 << 16).decode()
    os.close(primary)
    lines = said.splitlines()
    assert lines
    assert max(map(len, lines)) <= 80
