"""Progress: silent when short, a line every half minute without a terminal, a bar on one."""

import io

import pytest

from kafka_forensics.cli.progress import Progress, duration
from kafka_forensics.cli.streams import Destination
from kafka_forensics.model.amounts import size


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _capable_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")


def shown(stream: io.StringIO, steps: list[tuple[float, int]], *, quiet: bool = False) -> str:
    """What stands on `stream` after (second, bytes done of 4 GB) steps."""
    now = [0.0]
    with Progress(Destination(stream, 80, colour=False), quiet=quiet, clock=lambda: now[0]) as progress:
        for second, done in steps:
            now[0] = second
            progress(done, 4_000_000_000)
        return stream.getvalue()


def test_short_work_shows_nothing() -> None:
    steps = [(0.1 * n, n * 10**8) for n in range(19)]
    assert shown(Terminal(), steps) == ""
    assert shown(io.StringIO(), steps) == ""


def test_a_line_every_half_minute_without_a_terminal() -> None:
    text = shown(io.StringIO(), [(second, second * 10_000_000) for second in range(100)])
    assert text.splitlines() == [
        "read 300 MB of 4 GB (7 %), 10 MB/s, about 6 min 10 s left",
        "read 600 MB of 4 GB (15 %), 10 MB/s, about 5 min 40 s left",
        "read 900 MB of 4 GB (22 %), 10 MB/s, about 5 min 10 s left",
    ]


def test_quiet_says_nothing() -> None:
    steps = [(float(second), second) for second in range(100)]
    assert shown(io.StringIO(), steps, quiet=True) == ""
    assert shown(Terminal(), steps, quiet=True) == ""


def test_a_bar_with_rate_and_time_left_on_a_terminal() -> None:
    text = shown(Terminal(), [(float(second), second * 100_000_000) for second in range(20)])
    assert "GB" in text
    assert "/s" in text
    assert "0:00:2" in text


def test_terminal_that_cannot_move_back_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert shown(Terminal(), [(3.0, 1), (31.0, 10**9)]).count("\n") == 1


def test_nothing_done_yet_is_no_division_by_zero() -> None:
    assert shown(io.StringIO(), [(31.0, 0)]) == "read 0 B of 4 GB (0 %), 0 B/s\n"
    assert shown(Terminal(), [(3.0, 0), (4.0, 0)]) != ""


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (20774, "20.8 kB"), (999_999, "1 MB"), (5 * 10**15, "5 PB")]
)
def test_sizes(number: int, text: str) -> None:
    assert size(number) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (59.6, "1 min 0 s"), (75, "1 min 15 s"), (7265, "2 h 1 min")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
