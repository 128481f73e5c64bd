"""What is said beside an answer fits the terminal it is said on, and is a line each in a pipe."""

import logging
import os
import pty
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest

from kafka_forensics.cli.main import outcome
from kafka_forensics.cli.streams import Destination, say, wrapped
from tests.support.faults import healthy

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


_OF_A_BAR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""How a terminal is told to move, to clear and to hide its cursor."""


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
    lines = _OF_A_BAR.sub("", said).splitlines()  # a slow machine sees how far the work has come
    assert lines
    assert [line for line in lines if len(line) > 80] == []


def _beyond_the_end(root: Path, *, stopped: bool) -> list[str]:
    """Log directories of three brokers, of which broker 2's high watermark lies behind its log's end."""
    brokers = healthy(root)
    write = b"0\n1\nt 0 1000\n"
    (brokers.log_dir(2) / "replication-offset-checkpoint").write_bytes(write)
    for log_dir in brokers.log_dirs if not stopped else ():
        (log_dir / ".kafka_cleanshutdown").unlink()
    return [str(path) for path in brokers.log_dirs]


LIVE_HINT = "no clean-shutdown marker on brokers 1, 2, 3: scan a copy of running brokers with --live\n"


def test_a_copy_without_clean_shutdown_markers_is_said_to_want_live(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Once, where something is found that files of different moments look like; and it changes no verdict."""
    paths = _beyond_the_end(tmp_path, stopped=False)
    assert outcome(["scan", *paths, "--format", "json"]) == 1
    assert capsys.readouterr().err.count(LIVE_HINT) == 1
    assert outcome(["scan", *paths, "--format", "json", "--live"]) == 0
    assert outcome(["scan", *paths, "--format", "json", "--quiet"]) == 1
    assert "--live" not in capsys.readouterr().err


def test_live_is_not_advised_where_it_explains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Stopped brokers, a healthy copy of running ones, and damage that no moment of copying makes."""
    assert outcome(["scan", *_beyond_the_end(tmp_path / "stopped", stopped=True)]) == 1
    brokers = healthy(tmp_path / "running")
    for log_dir in brokers.log_dirs:
        (log_dir / ".kafka_cleanshutdown").unlink()
    assert outcome(["scan", *map(str, brokers.log_dirs)]) == 0
    log = brokers.log_dir(2) / "t-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[200] ^= 1
    log.write_bytes(data)
    assert outcome(["scan", *map(str, brokers.log_dirs)]) == 1
    assert "--live" not in capsys.readouterr().err


def test_what_is_said_after_a_command_goes_nowhere_it_went(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("kafka_forensics")
    handlers, level = list(logger.handlers), logger.level
    closed = StringIO()
    monkeypatch.setattr(sys, "stderr", closed)
    for arguments in (["scan", SAMPLE, "-v", "--format", "tsv"], ["scan", "nowhere"]):
        outcome(arguments)
    closed.close()
    assert logger.handlers == handlers
    assert logger.level == level
