"""Messages beside an answer: progress only of long work; notes are wrapped on a terminal, and one line each in a pipe."""

import logging
import sys
from io import StringIO
from pathlib import Path

import pytest

from kafka_forensics.cli.main import outcome
from kafka_forensics.cli.progress import Progress
from kafka_forensics.cli.streams import Destination, Screen, broken, say
from kafka_forensics.model.amounts import size
from kafka_forensics.parsers.kernels.compiling import kernel
from tests.cli.every_command import Terminal
from tests.support.brokers import healthy
from tests.support.places import SAMPLES


@pytest.fixture(autouse=True)
def _capable_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")


def progress_output(stream: StringIO, steps: list[tuple[float, int]], *, quiet: bool = False) -> str:
    """The content of `stream` after steps of (second, bytes done), of 4 GB in all."""
    now = [0.0]
    with Progress(Screen(stream, 80, colour=False, quiet=quiet), clock=lambda: now[0]) as progress:
        for second, done in steps:
            now[0] = second
            progress(done, 4_000_000_000)
        return stream.getvalue()


def test_short_work_shows_no_progress() -> None:
    steps = [(0.1 * n, n * 10**8) for n in range(19)]
    assert progress_output(Terminal(), steps) == ""
    assert progress_output(StringIO(), steps) == ""


def test_a_line_every_half_minute_without_a_terminal() -> None:
    text = progress_output(StringIO(), [(second, second * 10_000_000) for second in range(100)])
    assert text.splitlines() == [
        "read 300 MB of 4 GB (7 %), 10 MB/s, about 6 min 10 s left",
        "read 600 MB of 4 GB (15 %), 10 MB/s, about 5 min 40 s left",
        "read 900 MB of 4 GB (22 %), 10 MB/s, about 5 min 10 s left",
    ]


def test_progress_without_any_bytes_has_no_estimate() -> None:
    assert progress_output(StringIO(), [(31.0, 0)]) == "read 0 B of 4 GB (0 %), 0 B/s\n"
    assert progress_output(Terminal(), [(3.0, 0), (4.0, 0)]) != ""


@pytest.mark.parametrize(("stream", "quiet", "lines"), [(Terminal(), False, 1), (Terminal(), True, 0), (StringIO(), False, 0)])
def test_a_terminal_shows_why_the_first_large_scan_takes_longer(
    stream: StringIO, quiet: bool, lines: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_forensics.storage.code_cache._requested", [str(tmp_path)])

    def at_least_seven(number: int) -> int:
        return max(number, 7)

    with Progress(Screen(stream, 80, colour=False, quiet=quiet)):
        assert kernel(at_least_seven).compiled(1) == 7
    assert stream.getvalue() == "compiling kernels: the first large scan takes up to half a minute longer\n" * lines


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (20774, "20.8 kB"), (999_999, "1 MB"), (5 * 10**15, "5 PB")]
)
def test_sizes_have_decimal_units(number: int, text: str) -> None:
    assert size(number) == text


SAMPLE = SAMPLES / "unclean-election"
LONG_NOTE = "note: offsets 300 to 369 are on broker 2 alone; `kafka-forensics compare PATH...` shows 352 kB of them, side by side"


def test_lines_are_wrapped_only_on_a_terminal() -> None:
    for stream, lines in ((StringIO(), 1), (Terminal(), 3)):
        say(Destination(stream, 48, colour=False), [LONG_NOTE])
        printed = stream.getvalue().splitlines()
        assert len(printed) == lines
        assert " ".join(line.strip() for line in printed) == LONG_NOTE


def test_commands_and_amounts_stay_on_one_line() -> None:
    for width in range(40, 120):
        lines = broken(LONG_NOTE, width, "", "  ")
        assert sum("`kafka-forensics compare PATH...`" in line for line in lines) == 1
        assert sum("352 kB" in line for line in lines) == 1
        assert max(map(len, lines)) <= width
        assert all(line.startswith("  ") for line in lines[1:])


def _put_high_watermark_beyond_log_end(root: Path, *, stopped: bool) -> list[str]:
    """Log directories of three brokers; the high watermark of broker 2 is above its log end."""
    brokers = healthy(root)
    (brokers.log_dir(2) / "replication-offset-checkpoint").write_bytes(b"0\n1\nt 0 1000\n")
    for log_dir in brokers.log_dirs if not stopped else ():
        (log_dir / ".kafka_cleanshutdown").unlink()
    return [str(path) for path in brokers.log_dirs]


LIVE_HINT = "no clean-shutdown marker on brokers 1, 2, 3: if they ran while they were copied, use --live\n"


def test_live_is_advised_for_a_copy_without_clean_shutdown_markers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Once, for a finding that copying running brokers may cause; --quiet omits it."""
    paths = _put_high_watermark_beyond_log_end(tmp_path, stopped=False)
    assert outcome(["scan", *paths, "--format", "json"]) == 1
    assert capsys.readouterr().err.count(LIVE_HINT) == 1
    assert outcome(["scan", *paths, "--format", "json", "--live"]) == 0
    assert outcome(["scan", *paths, "--format", "json", "--quiet"]) == 1
    assert "--live" not in capsys.readouterr().err


def test_live_is_not_advised_if_it_explains_no_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Stopped brokers, a healthy copy of running ones, and damage that copying cannot cause."""
    assert outcome(["scan", *_put_high_watermark_beyond_log_end(tmp_path / "stopped", stopped=True)]) == 1
    brokers = healthy(tmp_path / "running")
    for log_dir in brokers.log_dirs:
        (log_dir / ".kafka_cleanshutdown").unlink()
    assert outcome(["scan", *map(str, brokers.log_dirs)]) == 0
    log = brokers.file(2, 0)
    data = bytearray(log.read_bytes())
    data[200] ^= 1
    log.write_bytes(data)
    assert outcome(["scan", *map(str, brokers.log_dirs)]) == 1
    assert "--live" not in capsys.readouterr().err


def test_logging_handlers_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("kafka_forensics")
    handlers, level = list(logger.handlers), logger.level
    closed = StringIO()
    monkeypatch.setattr(sys, "stderr", closed)
    for arguments in (["scan", str(SAMPLE), "-v", "--format", "tsv"], ["scan", "nowhere"]):
        outcome(arguments)
    closed.close()
    assert logger.handlers == handlers
    assert logger.level == level
