"""A command line for each documented exit status, and its messages on standard error."""

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_forensics.analysis.kinds import finding
from kafka_forensics.errors import FormatError, PathMissingError, SourceError, UsageError
from kafka_forensics.model.findings import Place
from kafka_forensics.model.results import Incomplete
from tests.cli.runs import Run
from tests.support.brokers import put_segment
from tests.support.places import ROOT, SAMPLES
from tests.support.results import clean_result, result_of, unclean_result
from tests.support.segments import batch, segment_file

Scan = Callable[..., tuple[int, str, str]]
SAMPLE = "sample_logs/healthy"


@pytest.mark.parametrize(
    ("kind", "fail_on", "status"),
    [
        ("INDEX_MISSING", None, 0),
        ("INDEX_MISMATCH", None, 0),
        ("BATCH_CRC_MISMATCH", None, 1),
        ("UNCLEAN_LOSS", None, 1),
        ("UNCLEAN_LOSS", "none", 0),
        ("INDEX_MISSING", "info", 1),
        ("INDEX_MISSING", "warning", 0),
        ("INDEX_MISMATCH", "warning", 1),
        ("BATCH_CRC_MISMATCH", "critical", 0),
        ("UNCLEAN_LOSS", "critical", 1),
    ],
)
def test_findings_of_the_fail_on_severity_or_above_give_status_1(scan: Scan, kind: str, fail_on: str | None, status: int) -> None:
    options = [] if fail_on is None else ["--fail-on", fail_on]
    assert scan(lambda: result_of(finding(kind, Place("orders", 0, 1))), *options)[0] == status


@pytest.mark.parametrize(
    "command_line",
    [
        "scan x --topic orders --topic payments",
        "scan x --engine spark --broker 1 --broker=2",
        "find x --offset 1..1 --offset 5..5",
        "dump x --partition 1 --partition 2",
        "simulate run hw-lag-loss --svg a.svg --svg b.svg",
    ],
)
def test_a_repeated_option_of_one_value_gives_status_2(command_line: str, run: Run) -> None:
    status, _, err = run(*command_line.split())
    option = re.findall("--[a-z]+", command_line)[-1]
    assert (status, err.splitlines()[0]) == (2, f"error: {option} was given twice")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("scan x --output {0}/new/", "it is a directory"),
        ("scan x --output -", "- is not a file"),
        ("simulate run slow-follower --svg {0}/new/", "it is a directory"),
        ("simulate run slow-follower --svg -", "- is not a file"),
        ("simulate run slow-follower --svg {0}/new.png", "new.png would not be a png file: --svg draws SVG"),
        ("simulate run slow-follower --output -", "--output - is not a directory"),
    ],
)
def test_outputs_that_are_not_files_are_refused(tmp_path: Path, run: Run, arguments: str, error: str) -> None:
    status, out, err = run(*arguments.format(tmp_path).split())
    assert (status, out, error in err.splitlines()[0]) == (2, "", True)
    assert list(tmp_path.iterdir()) == []
    assert not Path("-").exists()


def test_an_incomplete_scan_gives_status_3_and_prints_its_findings(scan: Scan) -> None:
    result = unclean_result()
    result.incomplete.append(Incomplete("copies/broker-9\x1b[2J", "permission denied"))
    status, out, err = scan(lambda: result)
    assert (status, "replicas diverge" in out) == (3, True)
    assert "incomplete: copies/broker-9\\x1b[2J: permission denied\n" in err
    assert scan(lambda: result, "-q")[2].startswith("incomplete: ")


@pytest.mark.parametrize(
    ("error", "status", "expected"),
    [
        (UsageError("output inside an input", hint="move it"), 2, "error: output inside an input\nhint: move it\n"),
        (PathMissingError("no such path: copies"), 2, "error: no such path: copies\n"),
        (
            SourceError("broker-1", "permission denied"),
            3,
            "error: broker-1: permission denied\nhint: run as a user who may read it, or give a copy that such a user made\n",
        ),
        (FormatError("no tar", path="a.tar", position=0), 3, "error: a.tar: no tar at byte 0\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (
            ZeroDivisionError("a \x1b[31mslip"),
            70,
            "bug: ZeroDivisionError: a \\x1b[31mslip; run again with --debug for the traceback\n",
        ),
        (BrokenPipeError(32, "a worker went away"), 70, None),
        (MemoryError(), 70, None),
    ],
)
def test_errors_of_the_engine_have_a_status_and_a_message(
    scan: Scan, error: BaseException, status: int, expected: str | None
) -> None:
    actual_status, out, err = scan(error)
    assert (actual_status, out) == (status, "")
    assert expected is None or err == expected
    assert "Traceback" not in err


def test_debug_shows_the_traceback_of_a_bug_without_escape_sequences(scan: Scan) -> None:
    status, _, err = scan(ZeroDivisionError("a \x1b[31mslip"), "--debug")
    assert (status, "Traceback" in err, "conftest.py" in err) == (70, True, True)
    assert "\x1b" not in err
    assert err.endswith("bug: ZeroDivisionError: a \\x1b[31mslip\n")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["scam", "x"], "error: there is no command 'scam'\nhint: did you mean scan?\n"),
        (
            ["help"],
            "error: there is no command 'help'\nhint: `kafka-forensics --help` lists the commands, `kafka-forensics scan --help` ",
        ),
        (["scan", "x", "--format", "jsno"], "error: there is no format 'jsno'\nhint: did you mean json?\n"),
        (["scan", "x", "--fail-on", "eror"], "error: there is no severity 'eror'\nhint: did you mean error?\n"),
        (["scan", "x", "--spark-remote", "sc://h"], "error: --spark-remote and --spark-master require --engine spark\n"),
        (
            ["scan", "x", "--as-of", "noon"],
            "error: 'noon' is not a time\nhint: write it like 2026-03-01T12:00:00Z, as milliseconds since 1970, or now\n",
        ),
        (["scan", "x", "--topik", "y"], "error: no such option: --topik\nhint: did you mean --topic?\n"),
        (["scan", "x", "--jobs", "0"], "error: invalid value for '--jobs'"),
        (["scan", "--topic"], "error: option '--topic' requires an argument\nhint: `kafka-forensics scan --help` shows how"),
        (["scan"], "error: missing argument 'PATH"),
        (
            ["scan", ""],
            "error: an empty path\nhint: name a log directory, a folder of them, a partition directory, a file, an archive ",
        ),
        (
            ["scan", SAMPLE, "--output", "no/x"],
            "error: cannot write to no/x: its directory does not exist\nhint: create that directory first",
        ),
        (["scan", SAMPLE, "--output", "lab"], "error: cannot write to lab: it is a directory\nhint: name a file in it"),
        (["scan", "zzz/yyy"], "error: zzz/yyy: no such file or directory\nhint: zzz does not exist either"),
        ([], "Usage: kafka-forensics"),
    ],
)
def test_invalid_command_lines_give_status_2_and_a_hint(
    arguments: list[str], expected: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    status, out, err = run(*arguments)
    assert (status, out, err.startswith(expected)) == (2, "", True)


@pytest.mark.parametrize(
    ("name", "reason", "hint"),
    [
        ("bundle.7z", "an unsupported container; ", "unpack it, and give the directory"),
        (
            "bundle.tar.gz",
            "nothing in this archive can be read: ",
            "copy it again from its origin, and compare the checksums",
        ),
    ],
)
def test_an_unreadable_archive_is_named_with_the_next_step(name: str, reason: str, hint: str, run: Run, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"nothing of the kind" * 100)
    status, out, err = run("scan", path)
    assert (status, out) == (3, "")
    message, next_step = err.splitlines()
    assert message.startswith(f"error: {path}: {reason}")
    assert next_step.startswith(f"hint: {hint}")


def test_ctrl_c_gives_status_130_and_one_line() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.cli.fake_engine", "slow", "scan", "x"], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == "interrupted\n"
        assert process.wait(60) == 130


@pytest.mark.parametrize("flags", [("--whole", "--partial"), ("--partial", "--whole"), ("--deep", "--no-deep")])
def test_contradicting_flags_give_status_2(scan: Scan, flags: tuple[str, str]) -> None:
    status, _, err = scan(clean_result, *flags)
    assert (status, "contradict each other" in err) == (2, True)
    assert scan(clean_result, flags[0])[0] == 0


def test_a_mistyped_topic_is_reported_beside_an_unread_input(tmp_path: Path, run: Run) -> None:
    copies = Path(shutil.copytree(SAMPLES / "healthy", tmp_path / "copies"))
    (copies / "link").symlink_to("/nowhere")
    for command in ("scan", "plan", "dump"):
        for topic in ("ordres", "orders"):
            status, _, err = run(command, copies, "--topic", topic)
            assert (status, f"note: in the files that could be read nothing matches --topic {topic}" in err) == (
                3,
                topic == "ordres",
            )


@pytest.mark.parametrize("packed", [False, True], ids=["directory", "archive"])
def test_segments_in_a_directory_of_any_name_are_read(packed: bool, tmp_path: Path, run: Run) -> None:
    """A directory with such a name and without segments gives a finding."""
    directory = tmp_path / "saved events"
    directory.mkdir()
    put_segment(directory, 0, batch(0, 3))
    path = Path(shutil.make_archive(str(directory), "tar", directory)) if packed else directory
    status, out, err = run("scan", path, "--format", "json")
    (partition,) = json.loads(out)["partitions"]
    replica = partition["replicas"][0]
    assert (status, partition["topic"], partition["partition"], replica["log_end_offset"]) == (0, "saved events", 0, 3)
    assert f"note: {path}: read as partition 0 of a topic with that name, since no partition directory contains it" in err
    (directory / segment_file(0)).rename(directory / "leader-epoch-checkpoint")
    status, out, _ = run("scan", directory, "--format", "json")
    assert (status, [finding["kind"] for finding in json.loads(out)["findings"]]) == (0, ["DIR_NAME_ILLEGAL"])


def test_plan_does_not_call_an_unreadable_log_lossless(tmp_path: Path, run: Run) -> None:
    log = tmp_path / "x" / segment_file(0)
    log.parent.mkdir()
    log.write_bytes(b"no log at all " * 100)
    status, out, err = run("plan", log, "--format", "text")
    assert (status, "Nothing that could be read of the copies would be lost" in " ".join(out.split())) == (0, True)
    assert f"note: {log}: lies in x: read as partition 0 of a topic with that name, since no partition directory contains it" in err
    assert "no election would lose anything that could be read of the copies here" in " ".join(out.split())
