"""What `scan` asks of the engine, and where its words go."""

import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_forensics.analysis.catalogue import finding
from kafka_forensics.cli.main import outcome
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Place
from tests.cli.conftest import Engine
from tests.support.results import clean_result, result_of, unclean_result

Scan = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).resolve().parents[2]


def on_terminal(*arguments: str, environment: dict[str, str] | None = None) -> str:
    """What a terminal of 100 columns receives from a scan of the unclean cluster."""
    ours, theirs = pty.openpty()
    plain = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "TERM", "COLUMNS", "LINES"}}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.fake_engine", "unclean", "scan", "copies", *arguments],
        cwd=ROOT,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env=plain | {"TERM": "xterm", "COLUMNS": "100"} | (environment or {}),
    )
    os.close(theirs)
    received = b""
    while select.select([ours], [], [], 60)[0]:
        try:
            part = os.read(ours, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        received += part
    os.close(ours)
    assert process.wait(60) == 1
    return received.decode().replace("\r\n", "\n")


def test_options_reach_the_engine(scan: Scan, fake_engine: Engine) -> None:
    options = "--topic ord* --partition 3 --broker 2 --jobs 4 --live --no-deep --as-of 2026-01-01T00:00:00+01:00"
    assert scan(clean_result, "east=other", *options.split())[0] == 0
    assert fake_engine.paths == ["copies", "east=other"]
    assert fake_engine.options == ScanOptions("ord*", 3, "2", 4, live=True, deep=False, as_of_ms=1767222000000)


def test_defaults_of_the_engine_s_options(scan: Scan, fake_engine: Engine) -> None:
    scan(clean_result)
    assert fake_engine.options == ScanOptions(jobs=len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1767225600123", 1767225600123),
        ("1710123100000", 1710123100000),
        ("20260101", 1767225600000),
        ("2026-01-01", 1767225600000),
        ("2026-01-01T00:00:00.123Z", 1767225600123),
        ("2026-01-01T05:30:00+05:30", 1767225600000),
    ],
)
def test_as_of_in_many_spellings(scan: Scan, fake_engine: Engine, text: str, expected: int) -> None:
    scan(clean_result, "--as-of", text)
    assert fake_engine.options.as_of_ms == expected


def test_pipe_gets_tsv_and_the_summary_goes_to_stderr(scan: Scan) -> None:
    _, out, err = scan(unclean_result)
    assert out.startswith("kind\tseverity\t")
    assert err.startswith("critical: 1 critical, 5 error, 1 warning, 2 info in 5 partitions, 14 replicas on 3 brokers\n")
    assert "432 kB decoded, 500 B damaged, 0 B skipped" in err


def test_quiet_leaves_only_the_data(scan: Scan) -> None:
    assert scan(unclean_result, "-q")[2] == ""


@pytest.mark.parametrize("options", [[], ["-q"]])
def test_nothing_read_is_said_and_never_called_clean(scan: Scan, options: list[str]) -> None:
    said = scan(result_of, *options)[2]
    assert said.startswith("nothing was judged in 0 partitions, ")
    assert "no partition was found" in said


@pytest.mark.parametrize(
    ("name", "start"), [("a.json", "{"), ("a.jsonl", '{"type"'), ("a.md", "# "), ("a.txt", "CRITICAL"), ("a", "kind\t")]
)
def test_output_file_chooses_the_format(scan: Scan, tmp_path: Path, name: str, start: str) -> None:
    status, out, _ = scan(unclean_result, "--output", str(tmp_path / name))
    assert (status, out) == (1, "")
    assert (tmp_path / name).read_text().startswith(start)


def test_an_unknown_ending_is_refused_with_those_known(scan: Scan, tmp_path: Path) -> None:
    status, _, err = scan(unclean_result, "--output", str(tmp_path / "r.xyz"))
    assert (status, err.splitlines()) == (
        2,
        [
            f"error: no format goes with the ending .xyz of {tmp_path / 'r.xyz'}",
            (
                "hint: give --format, or one of .json (json), .jsonl (jsonl), .md (markdown), .tsv (tsv), .txt (table),"
                " .prom (prometheus)"
            ),
        ],
    )
    assert scan(unclean_result, "--output", str(tmp_path / "r.xyz"), "--format", "tsv")[0] == 1


def test_format_wins_over_the_ending(scan: Scan, tmp_path: Path) -> None:
    scan(unclean_result, "--output", str(tmp_path / "a.tsv"), "--format", "json")
    assert json.loads((tmp_path / "a.tsv").read_text())["summary"]["verdict"] == "critical"


@pytest.mark.parametrize("given", ["{dir}", "east={dir}", "{dir}/inner/..", "{dir}/link"])
def test_output_inside_an_input_is_refused_before_anything_is_read(
    fake_engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str], given: str
) -> None:
    (tmp_path / "copies" / "inner").mkdir(parents=True)
    (tmp_path / "copies" / "link").symlink_to(tmp_path / "copies")
    path = given.format(dir=tmp_path / "copies")
    assert outcome(["scan", path, "--output", str(tmp_path / "copies" / "inner" / "x.json")]) == 2
    assert "evidence is never written to" in capsys.readouterr().err
    assert fake_engine.paths == []


def test_output_over_an_input_file_is_refused(fake_engine: Engine, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.tar"
    bundle.write_bytes(b"evidence")
    (tmp_path / "same.tar").hardlink_to(bundle)
    for target in ("bundle.tar", "same.tar"):
        assert outcome(["scan", str(bundle), "--output", str(tmp_path / target)]) == 2
    assert bundle.read_bytes() == b"evidence"
    assert fake_engine.paths == []


def test_output_that_cannot_be_written_is_told_early(
    fake_engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome(["scan", "copies", "--output", str(tmp_path / "absent" / "x.json")]) == 2
    assert outcome(["scan", "copies", "--output", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("error: cannot write to ") == 2
    assert fake_engine.paths == []


def test_payloads_are_hidden_unless_asked_for(scan: Scan) -> None:
    evidence = {"key": "c2VjcmV0", "offset": 3, "versions": [{"value": "secret", "epoch": 1}], "headers": None}
    result = result_of(finding("COMPACTED_VALUE_DIFFERS", Place("orders", 0), evidence))
    assert "secret" not in scan(lambda: result, "--format", "json")[1]
    shown = scan(lambda: result_of(finding("COMPACTED_VALUE_DIFFERS", Place("orders", 0), evidence)), "--show-payloads")[1]
    assert "secret" in shown
    assert "c2VjcmV0" in shown


def test_numbers_of_checkpoints_are_no_payloads(scan: Scan) -> None:
    evidence = {"what": "recovery_point", "value": 79, "limit_name": "log_end", "limit": 71}
    result = result_of(finding("CHECKPOINT_OUT_OF_ORDER", Place("orders", 0, 1), evidence))
    assert "recovery point 79 contradicts log end 71" in scan(lambda: result)[1]


def test_terminal_gets_a_coloured_table() -> None:
    text = on_terminal()
    assert "CRITICAL\x1b[0m  \x1b[1maudit-0\x1b[0m  the replicas diverge" in text
    assert "kind\tseverity" not in text


@pytest.mark.parametrize(
    ("arguments", "environment"), [(["--color", "never"], {}), ([], {"NO_COLOR": "1"}), ([], {"TERM": "dumb"})], ids=str
)
def test_colours_can_be_refused(arguments: list[str], environment: dict[str, str]) -> None:
    text = on_terminal(*arguments, environment=environment)
    assert "\x1b" not in text
    assert text.startswith("CRITICAL  audit-0")
