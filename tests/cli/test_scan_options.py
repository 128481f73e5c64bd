"""Options that say how an answer is shown and how a command ends: --format report, --fail-on, --color, -v."""

import inspect
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_forensics.cli.main import COMMANDS
from kafka_forensics.cli.options import COLOURS
from kafka_forensics.cli.outputs.words import summary_lines
from kafka_forensics.engine.local import scan
from kafka_forensics.evidence.options import ScanOptions
from tests.support.archives import SHIPPED
from tests.support.plan_runs import Run

ROOT = Path(__file__).resolve().parents[2]
LOST = ROOT / "sample_logs" / "unclean-election"
HEALTHY = ROOT / "sample_logs" / "healthy"
ESCAPE = "\x1b["


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)


# A report is the table for a pipe: the same words, no colours, the verdict on its last lines.


@pytest.mark.parametrize("by", ["incident", "partition"])
def test_a_report_is_the_table_and_the_summary_in_one(by: str, run: Run) -> None:
    _, table, said = run("scan", LOST, "--format", "table", "--by", by)
    status, report, err = run("scan", LOST, "--format", "report", "--by", by)
    assert status == 1
    assert report.startswith(table + "\n")
    assert report.removeprefix(table + "\n").replace("\n  ", " ") == said
    assert err == ""


def test_a_report_has_no_colours_whatever_is_asked(run: Run) -> None:
    assert ESCAPE not in run("scan", LOST, "--format", "report", "--color", "always")[1]


@pytest.mark.parametrize("width", [50, 80, 120])
def test_a_report_keeps_to_the_columns(width: int, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    _, report, _ = run("scan", "--format", "report", LOST)
    prose = re.sub(r"^ *\$ (?:.*\\\n)*.*\n", "", report, flags=re.MULTILINE)
    assert max(map(len, prose.splitlines())) <= width


def test_a_report_in_a_file_leaves_the_summary_on_the_screen_too(run: Run, tmp_path: Path) -> None:
    status, out, err = run("scan", LOST, "--format", "report", "--output", tmp_path / "report.txt")
    verdict = summary_lines(scan([str(LOST)], ScanOptions()))[0]
    assert (status, out, err.splitlines()[0]) == (1, "", verdict)
    assert verdict in (tmp_path / "report.txt").read_text().splitlines()


def test_a_report_tells_what_could_not_be_read(run: Run, tmp_path: Path) -> None:
    (tmp_path / "broker-1" / "t-0").mkdir(parents=True)
    (tmp_path / "broker-1" / "t-0" / f"{0:020d}.log").symlink_to("/nowhere/at/all")
    status, report, _ = run("scan", tmp_path / "broker-1", LOST / "broker-2", "--format", "report")
    assert status == 3
    assert "\nincomplete:" in report


def test_report_is_a_format_of_scan_alone(run: Run) -> None:
    status, _, err = run("metadata", LOST, "--format", "report")
    assert (status, err.splitlines()[0]) == (2, "error: there is no format 'report'")


def test_a_pipe_gets_rows_unless_a_report_is_asked_for() -> None:
    def out(*options: str) -> str:
        command = [sys.executable, "-m", "kafka_forensics", "scan", str(LOST), *options]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60).stdout

    assert out().startswith("kind\tseverity\t")
    assert out("--format", "report").startswith("CRITICAL  audit-0  ")


# --fail-on none hides nothing but findings.


def test_fail_on_none_ends_with_0_whatever_is_found(run: Run) -> None:
    assert run("scan", LOST, "-q")[0] == 1
    status, out, _ = run("scan", LOST, "--fail-on", "none", "--format", "json", "-q")
    assert status == 0
    assert json.loads(out)["summary"]["verdict"] == "critical"
    pair = ["compare", LOST, "--topic", "audit", "--partition", "0", "-q"]
    assert [run(*pair)[0], run(*pair, "--fail-on", "none")[0]] == [1, 0]


def test_fail_on_none_hides_neither_what_was_not_read_nor_a_wrong_command_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020d}.log").symlink_to("/nowhere/at/all")
    assert run("scan", tmp_path, LOST / "broker-1", "--fail-on", "none", "-q")[0] == 3
    assert run("scan", tmp_path / "missing", "--fail-on", "none")[0] == 2


# --color decides where a terminal does not.


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_color_but_one_that_prints_plain_text(name: str) -> None:
    command, _ = COMMANDS[name]
    assert ("color" in inspect.signature(command).parameters) == (name != "demo")


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb"), ("TERM", "xterm")])
def test_color_always_wins_over_the_environment_and_a_pipe(
    variable: str, value: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    plain = run("scan", LOST, "--format", "table")[1]
    assert ESCAPE not in plain
    coloured = run("scan", LOST, "--format", "table", "--color", "always")[1]
    assert f"{ESCAPE}1;37;41mCRITICAL" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain
    assert run("scan", LOST, "--format", "table")[1] == plain


def on_a_terminal(*options: str, **environment: str) -> str:
    """What a scan prints on a terminal."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "kafka_forensics", "scan", str(LOST), "-q", *options]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=follower, stderr=subprocess.DEVNULL, env={**os.environ, "TERM": "xterm", **environment}
    ) as process:
        os.close(follower)
        read = b""
        while True:
            try:
                piece = os.read(leader, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            read += piece
        process.wait(60)
    os.close(leader)
    return read.decode()


@pytest.mark.parametrize(
    ("options", "environment", "coloured"),
    [
        ([], {}, True),
        (["--color", "auto"], {"NO_COLOR": "1"}, False),
        ([], {"TERM": "dumb"}, False),
        (["--color", "never"], {}, False),
        (["--color", "always"], {"TERM": "dumb", "NO_COLOR": "1"}, True),
    ],
)
def test_colours_on_a_terminal(options: list[str], environment: dict[str, str], coloured: bool) -> None:
    text = on_a_terminal(*options, **environment)
    assert "CRITICAL" in text
    assert (ESCAPE in text) == coloured


def test_a_colour_that_is_none(run: Run) -> None:
    status, _, err = run("explain", "--color", "allways")
    assert (status, err) == (2, "error: there is no colour 'allways'\nhint: did you mean always?\n")
    assert COLOURS == ("auto", "always", "never")


# -v says what did the work.


def test_verbose_names_the_engine_the_storage_and_the_kernels(run: Run) -> None:
    archive = next(SHIPPED.glob("*unclean.tar.xz"))
    _, _, err = run("scan", HEALTHY / "broker-1", HEALTHY / "broker-2", archive, "-v", "--jobs", "1")
    assert "engine local; storage: local files (2), tar.xz archives (1)\n" in err
    assert "codecs: gzip by zlib, snappy by cramjam, lz4 by cramjam, zstd by cramjam and pyarrow\n" in err
    assert re.search(r"^kernels here: (compiled|interpreted)$", err, re.MULTILINE)
    assert "engine local" not in run("scan", HEALTHY, "--jobs", "1")[2]
