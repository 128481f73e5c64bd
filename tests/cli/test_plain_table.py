"""Tables for a person: fitted to the terminal, nothing lost on the way."""

from pathlib import Path

import pytest

from kafka_forensics.cli.main import outcome
from kafka_forensics.cli.outputs.rows import SAMPLED_ROWS, table_lines

ROOT = Path(__file__).resolve().parents[2]
HEADS = ("partition", "offset", "time", "leader", "notes")
ROWS = [
    ["orders-0", "9", "2026-03-01T12:00:00.123Z", "1", "a note that is far too long to stand in the same line"],
    ["orders-0", "10", "2026-03-01T12:00:01.456Z", "1", ""],
]


def lines(rows: list[list[str]], width: int | None) -> list[str]:
    return [line.rstrip("\n") for line in table_lines(HEADS, ("offset", "leader"), rows, width)]


def test_a_table_that_fits_is_left_alone() -> None:
    assert lines(ROWS, 200) == lines(ROWS, None)
    assert lines(ROWS, None)[0] == "partition  offset  time                      leader  notes"
    assert lines([], 80) == []


def test_what_is_the_same_stands_above_and_what_is_wide_below() -> None:
    assert lines(ROWS, 50) == [
        "partition orders-0; leader 1; times of 2026-03-01,",
        "UTC",
        "",
        "offset  time",
        "     9  12:00:00",
        "    a note that is far too long to stand in the",
        "    same line",
        "    10  12:00:01",
    ]


def test_dates_stay_where_they_differ() -> None:
    other = [*ROWS, ["orders-0", "11", "2026-03-02T12:00:01.456Z", "2", ""]]
    told = lines(other, 60)
    assert told[0] == "partition orders-0; times UTC"
    assert told[-1] == "    11  2026-03-02 12:00:01       2"


def test_later_rows_are_never_covered_by_a_heading() -> None:
    many = [["orders-0", "1", "2026-03-01T12:00:00.123Z", "1", "x" * 60]] * SAMPLED_ROWS
    told = lines([*many, ["other-0", "1", "2026-03-09T12:00:00.123Z", "2", ""]], 80)
    assert told[0] == "times UTC"
    assert told[-1] == "other-0         1  2026-03-09 12:00:00       2"


def test_a_single_row_keeps_its_columns() -> None:
    assert lines(ROWS[:1], 60)[2] == "partition  offset  time      leader"


@pytest.mark.parametrize(
    "arguments",
    [
        ["metadata"],
        ["groups", "--all-partitions"],
        ["transactions"],
        ["epochs"],
        ["find", "--offset", "0:3", "--topic", "orders"],
        ["dump", "--topic", "payments", "--partition", "0"],
        ["dump", "--topic", "payments", "--partition", "0", "--records"],
        ["dump", "--topic", "payments", "--partition", "0", "--explain"],
        ["plan", "--topic", "payments", "--partition", "0"],
    ],
    ids=" ".join,
)
def test_tables_of_every_command_fit_80_columns(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    assert outcome([arguments[0], "sample_logs/healthy", *arguments[1:], "--format", "table", "-q"]) == 0
    out = capsys.readouterr().out
    assert out
    assert [line for line in out.splitlines() if len(line) > 80] == []


def test_records_of_a_dump_tell_their_epoch_in_a_column_and_no_name_twice(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    log = ROOT / "sample_logs" / "healthy" / "broker-1" / "orders-0" / f"{0:020d}.log"
    assert outcome(["dump", str(log), "--records", "--show-payloads", "--format", "table"]) == 0
    heads = capsys.readouterr().out.splitlines()[0].split()
    assert "epoch" in heads
    assert len(heads) == len(set(heads))


def test_different_records_at_one_offset_look_different(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert outcome(["find", "sample_logs/silent-divergence", "--offset", "0", "--format", "tsv", "-q"]) == 0
    head, *rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    digests = [row[head.index("value_digest")] for row in rows]
    assert len(digests) == 3
    assert len(set(digests)) == 2
    assert {len(digest) for digest in digests} == {64}
