"""`scan`: options that reach the engine, streams, output files, formats, colours, and exit statuses."""

import json
import os
import re
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

from kafka_forensics.analysis.kinds import finding
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Place
from tests.cli.conftest import Engine
from tests.cli.every_command import Terminal
from tests.cli.runs import Run
from tests.support.archives import SHIPPED
from tests.support.places import SAMPLES
from tests.support.results import clean_result, result_of, unclean_result
from tests.support.segments import segment_file

Scan = Callable[..., tuple[int, str, str]]
ESCAPE = "\x1b["
UNCLEAN = SAMPLES / "unclean-election"
HEALTHY = SAMPLES / "healthy"


# Options of the engine.


def test_options_reach_the_engine(scan: Scan, fake_engine: Engine) -> None:
    options = "--topic ord* --partition 3 --broker 2 --jobs 4 --live --no-deep --as-of 2026-01-01T00:00:00+01:00"
    assert scan(clean_result, "east=other", *options.split())[0] == 0
    assert fake_engine.paths == ["copies", "east=other"]
    assert fake_engine.options == ScanOptions("ord*", 3, "2", 4, live=True, deep=False, as_of_ms=1767222000000)
    scan(clean_result)
    assert fake_engine.options == ScanOptions(jobs=len(os.sched_getaffinity(0)))


# Streams and output files.


def test_a_pipe_gets_text_and_stderr_gets_the_summary(scan: Scan) -> None:
    _, out, err = scan(unclean_result)
    assert out.startswith("CRITICAL  audit-0: replicas diverge; and 2 more incidents\n")
    assert err.startswith("critical: 1 critical, 5 error, 1 warning, 2 info in 5 partitions, 14 replicas on 3 brokers\n")
    assert "432 kB decoded, 500 B damaged, 0 B skipped" in err
    assert scan(unclean_result, "-q")[2] == ""


@pytest.mark.parametrize("options", [[], ["-q"]])
def test_a_scan_without_partitions_is_not_called_clean(scan: Scan, options: list[str]) -> None:
    err = scan(result_of, *options)[2]
    assert err.startswith("nothing was judged in 0 partitions, ")
    assert "no partition was found" in err


@pytest.mark.parametrize(
    ("name", "options", "start"),
    [
        ("a.json", [], "{"),
        ("a.jsonl", [], '{"type"'),
        ("a.txt", [], "CRITICAL"),
        ("a", [], "CRITICAL"),
        ("r.xyz", ["--format", "tsv"], "kind\t"),
        ("a.tsv", ["--format", "json"], "{"),
    ],
)
def test_the_format_follows_the_option_or_else_the_file_extension(
    scan: Scan, tmp_path: Path, name: str, options: list[str], start: str
) -> None:
    status, out, _ = scan(unclean_result, "--output", str(tmp_path / name), *options)
    assert (status, out) == (1, "")
    assert (tmp_path / name).read_text().startswith(start)


def test_an_unknown_file_extension_is_refused_with_a_list_of_known_ones(scan: Scan, tmp_path: Path) -> None:
    status, _, err = scan(unclean_result, "--output", str(tmp_path / "r.xyz"))
    endings = ".json (json), .jsonl (jsonl), .tsv (tsv), .txt (text), .prom (prometheus)"
    assert (status, err.splitlines()) == (
        2,
        [f"error: no format has the ending .xyz of {tmp_path / 'r.xyz'}", f"hint: give --format, or one of {endings}"],
    )


def test_an_unwritable_output_is_refused_before_the_scan(fake_engine: Engine, tmp_path: Path, run: Run) -> None:
    for output in (tmp_path / "absent" / "x.json", tmp_path):
        status, _, err = run("scan", "copies", "--output", output)
        assert (status, err.startswith("error: cannot write to ")) == (2, True)
    assert fake_engine.paths == []


def test_payloads_are_hidden_by_default(scan: Scan) -> None:
    evidence = {"key": "c2VjcmV0", "offset": 3, "versions": [{"value": "secret", "epoch": 1}], "headers": None}
    result = result_of(finding("COMPACTED_VALUE_DIFFERS", Place("orders", 0), evidence))
    assert "secret" not in scan(lambda: result, "--format", "json")[1]
    output = scan(
        lambda: result_of(finding("COMPACTED_VALUE_DIFFERS", Place("orders", 0), evidence)), "--show-payloads", "--format", "tsv"
    )[1]
    assert "secret" in output
    assert "c2VjcmV0" in output


@pytest.mark.parametrize(
    ("options", "environment", "terminal", "coloured"),
    [
        ([], {}, True, True),
        ([], {}, False, False),
        (["--color", "auto"], {"NO_COLOR": "1"}, True, False),
        ([], {"TERM": "dumb"}, True, False),
        (["--color", "never"], {}, True, False),
        (["--color", "always"], {"TERM": "dumb", "NO_COLOR": "1"}, True, True),
        (["--color", "always"], {"NO_COLOR": "1"}, False, True),
    ],
    ids=str,
)
def test_colours_depend_on_option_environment_and_terminal(
    options: list[str], environment: dict[str, str], terminal: bool, coloured: bool, scan: Scan, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = scan(unclean_result, "--format", "text")[1]
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in ({"TERM": "xterm"} | environment).items():
        monkeypatch.setenv(name, value)
    screen = Terminal() if terminal else StringIO()
    monkeypatch.setattr(sys, "stdout", screen)
    scan(unclean_result, *options)
    text = screen.getvalue()
    assert (f"{ESCAPE}1;37;41mCRITICAL\x1b[0m  \x1b[1maudit-0: replicas diverge; " in text) == coloured
    assert (ESCAPE in text) == coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", text) == plain


# Scans of the samples.


def test_text_counts_unread_inputs_and_fail_on_none_keeps_status_3(run: Run, tmp_path: Path) -> None:
    (tmp_path / "broker-1" / "t-0").mkdir(parents=True)
    (tmp_path / "broker-1" / "t-0" / segment_file(0)).symlink_to("/nowhere/at/all")
    status, out, err = run("scan", tmp_path / "broker-1", UNCLEAN / "broker-2", "--fail-on", "none")
    assert (status, "\n  not read  1 input could not be read" in out, "\nincomplete:" in err) == (3, True, True)
    assert run("scan", tmp_path / "missing", "--fail-on", "none")[0] == 2


def test_fail_on_none_gives_status_0_for_any_finding(run: Run) -> None:
    status, out, _ = run("scan", UNCLEAN, "--fail-on", "none", "--format", "json", "-q")
    assert status == 0
    assert json.loads(out)["summary"]["verdict"] == "critical"
    pair = ["compare", UNCLEAN, "--topic", "audit", "--partition", "0", "-q"]
    assert [run(*pair)[0], run(*pair, "--fail-on", "none")[0]] == [1, 0]


def test_verbose_names_the_engine_the_storage_and_the_kernels(run: Run) -> None:
    archive = next(SHIPPED.glob("*unclean.tar.xz"))
    _, _, err = run("scan", HEALTHY / "broker-1", HEALTHY / "broker-2", archive, "-v", "--jobs", "1")
    assert "engine local; storage: local files (2), tar.xz archives (1)\n" in err
    assert "codecs: gzip by zlib, snappy by cramjam, lz4 by cramjam, zstd by cramjam and pyarrow\n" in err
    assert re.search(r"^kernels here: (compiled|interpreted)$", err, re.MULTILINE)
    assert "engine local" not in run("scan", HEALTHY, "--jobs", "1")[2]
