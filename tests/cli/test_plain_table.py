"""Tables on a terminal fit its width, and lose no content."""

import re
import sys

import pytest

from kafka_forensics.cli.outputs.rows import SAMPLED_ROWS, table_lines
from tests.cli.every_command import Terminal
from tests.cli.runs import Run
from tests.support.places import SAMPLES

COLUMNS = ("partition", "offset", "time", "leader", "notes")
ROWS = [
    ["orders-0", "9", "2026-03-01T12:00:00.123Z", "1", "a note that is far too long to stand in the same line"],
    ["orders-0", "10", "2026-03-01T12:00:01.456Z", "1", ""],
]


def lines(rows: list[list[str]], width: int | None) -> list[str]:
    return [line.rstrip("\n") for line in table_lines(COLUMNS, ("offset", "leader"), rows, width)]


def test_a_table_that_fits_is_unchanged() -> None:
    assert lines(ROWS, 200) == lines(ROWS, None)
    assert lines(ROWS, None)[0] == "partition  offset  time                      leader  notes"
    assert lines([], 80) == []


def test_shared_values_move_above_and_wide_columns_below() -> None:
    assert lines(ROWS, 50) == [
        "All rows: partition orders-0; leader 1; times of",
        "2026-03-01, UTC",
        "",
        "offset  time",
        "     9  12:00:00",
        "    a note that is far too long to stand in the",
        "    same line",
        "    10  12:00:01",
    ]


def test_dates_that_differ_stay_in_the_rows() -> None:
    printed = lines([*ROWS, ["orders-0", "11", "2026-03-02T12:00:01.456Z", "2", ""]], 60)
    assert (printed[0], printed[-1]) == ("All rows: partition orders-0; times UTC", "    11  2026-03-02 12:00:01       2")


def test_a_long_table_does_not_state_shared_values_above() -> None:
    many = [["orders-0", "1", "2026-03-01T12:00:00.123Z", "1", "x" * 60]] * SAMPLED_ROWS
    printed = lines([*many, ["other-0", "1", "2026-03-09T12:00:00.123Z", "2", ""]], 80)
    assert (printed[0], printed[-1]) == ("times UTC", "other-0         1  2026-03-09 12:00:00       2")


def test_tables_and_messages_of_every_command_fit_80_columns(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(SAMPLES)
    monkeypatch.setenv("COLUMNS", "80")
    tables = messages = 0
    for command_line, status in {
        "metadata healthy": 0,
        "groups healthy --all-partitions": 0,
        "groups unclean-election --group nosuch": 0,
        "transactions healthy": 0,
        "epochs healthy": 0,
        "find unclean-election --offset 0..2 --topic orders --limit 1": 0,
        "dump healthy --topic payments --partition 0": 0,
        "dump healthy --topic payments --partition 0 --records": 0,
        "dump healthy --topic payments --partition 0 --explain": 0,
        "plan healthy --topic payments --partition 0": 0,
        "compare unclean-election --topic audit --partition 0": 1,
        "scan unclean-election --topic nosuch": 2,
        "scan no-such-directory-with-a-name-that-is-long/and-another-one-in-it": 2,
    }.items():
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", screen := Terminal())
            actual_status, out, _ = run(*command_line.split(), "--format", "text")
            err = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())  # without progress, which a slow machine shows
        assert (command_line, actual_status) == (command_line, status)
        assert [too_long for too_long in (out + err).splitlines() if len(too_long) > 80] == []
        tables, messages = tables + bool(out), messages + bool(err)
    assert (tables, messages >= 8) == (10, True)
