"""`simulate check`: its page, its rows in every format, its exit statuses, and the bound on its memory."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_forensics.cli.commands import simulate
from kafka_forensics.cli.main import GROUPS, outcome
from kafka_forensics.cli.streams import Destination
from kafka_forensics.simulation import checker
from kafka_forensics.simulation.model import INVARIANTS, PROTOCOLS

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--replicas", "2", "--log-size", "1", "--records", "1", "--max-epoch", "1"]
LOSES = ["simulate", "check", "truncate-to-hw", "--replicas", "3", "--log-size", "1", "--records", "1", "--max-epoch", "2"]


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = outcome(list(arguments))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_rows_say_the_same_in_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = ran(capsys, *LOSES, "--format", "json", "-q")
    assert (status, err) == (0, "")
    rows = json.loads(out)
    assert [row["invariant"] for row in rows] == list(INVARIANTS)
    strong = rows[0]
    assert (strong["protocol"], strong["replicas"], strong["complete"], strong["holds"]) == ("truncate-to-hw", 3, True, False)
    assert strong["steps"] == len(strong["counterexample"]) == 8
    assert strong["counterexample"][-1] == "C hears that A leads in epoch 1, and keeps []"
    lines = ran(capsys, *LOSES, "--format", "jsonl")[1].splitlines()
    assert [json.loads(line) for line in lines] == rows
    header, *cells = csv.reader(ran(capsys, *LOSES, "--format", "tsv")[1].splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    assert tuple(header) == simulate.COLUMNS
    assert json.loads(cells[0][-1]) == strong["counterexample"]
    assert ran(capsys, *LOSES, "--format", "markdown")[1].count("\n") == len(INVARIANTS) + 2


def test_a_page_tells_the_shortest_way_to_break_strong_isr(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = ran(capsys, *LOSES, "--format", "table")
    assert status == 0
    assert out.startswith("truncate-to-hw: ")
    assert "\n  StrongIsr           broken in 8 steps\n" in out
    assert "\n  SameEpochAgreement  holds\n" in out
    story = out.partition("The shortest way to break StrongIsr:\n\n")[2].splitlines()
    assert [line[:4].strip() for line in story[:8]] == [str(number) for number in range(1, 9)]
    assert "In the end the ISR is {A, C}:" in story
    assert max(map(len, out.splitlines())) <= 100


def test_what_holds_has_no_story(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = ran(capsys, "simulate", "check", "kip-320", *SMALL, "--format", "table")
    assert status == 0
    assert out.splitlines()[0] == "kip-320: 139 states, depth 11 (2 replicas, logs of size 1, 1 record, epochs 0 to 1)"
    assert "broken" not in out
    assert out.count("holds") == len(INVARIANTS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["simulate", "check", "kip-230"], "error: there is no protocol 'kip-230'\nhint: did you mean kip-320?\n"),
        (["simulate", "check", "raft"], f"error: there is no protocol 'raft'\nhint: choose from {', '.join(PROTOCOLS)}\n"),
        (["simulate", "chek"], "error: there is no command 'chek'\nhint: did you mean check?\n"),
        (["simulate"], "error: missing command\nhint: `kafka-forensics simulate --help` shows how it is used\n"),
        (["simulate", "check", "kip-320", "--replicas", "6"], "error: 6 replicas cannot be checked\nhint: choose 1 to 5\n"),
        (["simulate", "check", "kip-320", "--log-size", "0"], "error: a log size of 0 cannot be checked\nhint: choose 1 to 8\n"),
        (
            ["simulate", "check", "kip-320", "--max-epoch", "-1"],
            "error: a last epoch of -1 cannot be checked\nhint: choose 0 to 8\n",
        ),
    ],
)
def test_what_cannot_be_asked_ends_with_2(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    assert ran(capsys, *arguments) == (2, "", said)


def test_a_world_too_large_is_3_and_what_was_seen_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = checker.check
    monkeypatch.setattr(checker, "check", lambda *given, **named: whole(*given, **named, max_bytes=1 << 18))
    status, out, err = ran(capsys, "simulate", "check", "kip-320", "--format", "json", "-q")
    assert status == 3
    assert err.startswith("incomplete: ")
    rows = json.loads(out)
    assert {(row["complete"], row["holds"], row["steps"]) for row in rows} == {(False, None, None)}
    page = ran(capsys, "simulate", "check", "kip-320", "--format", "table")[1]
    assert page.count("not broken as far as was looked") == len(INVARIANTS)


def test_progress_is_a_line_now_and_then() -> None:
    now = [0.0]
    stream = io.StringIO()
    report = simulate._reporter(Destination(stream, 80, colour=False), lambda: now[0])
    for seconds in (1.0, 6.0, 7.0, 12.0):
        now[0] = seconds
        report(1000, 100, int(seconds))
    assert stream.getvalue().splitlines() == [
        "1000 states, 100 of them still to visit, 6 steps from the start",
        "1000 states, 100 of them still to visit, 12 steps from the start",
    ]


def test_help_lists_the_group_and_its_commands_without_anything_heavy() -> None:
    code = (
        "import sys; from kafka_forensics.cli.main import outcome\n"
        "outcome(['--help']); outcome(['simulate', '--help']); outcome(['simulate', 'check', '--help'])\n"
        "sys.exit(repr([name for name in ('numpy', 'rich', 'kafka_forensics.simulation') if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == "[]\n"
    for name in (*GROUPS, "check"):
        assert f"\n  {name}  " in done.stdout
