"""Each exit status of the contract, provoked; and what stderr says then."""

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_forensics.analysis.catalogue import finding
from kafka_forensics.cli.main import outcome
from kafka_forensics.errors import FormatError, PathMissingError, SourceError, UsageError
from kafka_forensics.model.findings import Place
from kafka_forensics.model.results import Incomplete, ScanResult
from tests.support.results import clean_result, result_of, unclean_result
from tests.support.segments import batch

Scan = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).resolve().parents[2]
IN_PROCESS = [sys.executable, "-m", "tests.support.fake_engine"]


def with_severity(kind: str) -> ScanResult:
    return result_of(finding(kind, Place("orders", 0, 1)))


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
def test_findings_count_from_the_given_severity_on(scan: Scan, kind: str, fail_on: str | None, status: int) -> None:
    options = [] if fail_on is None else ["--fail-on", fail_on]
    assert scan(lambda: with_severity(kind), *options)[0] == status


def test_clean_is_0(scan: Scan) -> None:
    status, _, err = scan(clean_result)
    assert status == 0
    assert err.startswith("clean: nothing found in 2 partitions, 4 replicas on 2 brokers\n")


@pytest.mark.parametrize(
    "command_line",
    [
        "scan x --topic orders --topic payments",
        "scan x --engine spark --broker 1 --broker=2",
        "changes x y --topic orders --topic payments",
        "transactions x --state open --state hanging",
        "find x --offset 1:2 --offset 5:6",
        "groups x --group a --group b",
        "dump x --partition 1 --partition 2",
        "simulate run hw-lag-loss --svg a.svg --svg b.svg",
    ],
)
def test_an_option_of_one_value_given_twice_is_2(command_line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(command_line.split()) == 2
    option = re.findall("--[a-z]+", command_line)[-1]
    assert capsys.readouterr().err.splitlines()[0] == f"error: {option} was given twice"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("scan x --output {0}/new/", "it names a directory"),
        ("scan x --output -", "- is no file"),
        ("simulate run slow-follower --svg {0}/new/", "it names a directory"),
        ("simulate run slow-follower --svg -", "- is no file"),
        ("simulate run slow-follower --svg {0}/new.png", "new.png would be no png file: --svg draws SVG"),
        ("simulate run slow-follower --output -", "--output - names no directory"),
    ],
)
def test_what_is_no_file_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str], given: str, words: str) -> None:
    assert outcome(given.format(tmp_path).split()) == 2
    captured = capsys.readouterr()
    assert (captured.out, words in captured.err.splitlines()[0]) == ("", True)
    assert list(tmp_path.iterdir()) == []
    assert not Path("-").exists()


@pytest.mark.parametrize(
    ("option", "hint"),
    [("--formt", "did you mean --format?"), ("--nonsense", "`kafka-forensics scan --help` shows how it is used")],
)
def test_a_mistyped_option_gets_the_hint_that_other_names_get(capsys: pytest.CaptureFixture[str], option: str, hint: str) -> None:
    assert outcome(["scan", "x", option, "y"]) == 2
    assert capsys.readouterr().err.splitlines() == [f"error: no such option: {option}", f"hint: {hint}"]


def test_flags_and_options_of_several_values_may_be_given_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["find", str(tmp_path / "none"), "-q", "-q", "--header", "a", "--header", "b"]
    assert outcome(given) == 2
    assert "no such file" in capsys.readouterr().err


def test_incomplete_is_3_outranks_1_and_prints_what_was_found(scan: Scan) -> None:
    result = unclean_result()
    result.incomplete.append(Incomplete("copies/broker-9\x1b[2J", "permission denied"))
    status, out, err = scan(lambda: result)
    assert status == 3
    assert "UNCLEAN_LOSS" in out
    assert "incomplete: copies/broker-9\\x1b[2J: permission denied\n" in err
    assert scan(lambda: result, "-q")[2].startswith("incomplete: ")


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (UsageError("output inside an input", hint="move it"), 2, "error: output inside an input\nhint: move it\n"),
        (PathMissingError("no such path: copies"), 2, "error: no such path: copies\n"),
        (
            SourceError("broker-1", "permission denied"),
            3,
            "error: broker-1: permission denied\nhint: read it as a user who may, or have such a user copy it and give the copy\n",
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
def test_errors_of_the_engine(scan: Scan, error: BaseException, status: int, said: str | None) -> None:
    seen, out, err = scan(error)
    assert (seen, out) == (status, "")
    assert said is None or err == said
    assert "Traceback" not in err


def test_debug_shows_the_traceback_of_a_bug_without_its_escapes(scan: Scan) -> None:
    status, _, err = scan(ZeroDivisionError("a \x1b[31mslip"), "--debug")
    assert status == 70
    assert "Traceback" in err
    assert "conftest.py" in err
    assert "\x1b" not in err
    assert err.endswith("bug: ZeroDivisionError: a \\x1b[31mslip\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["scam", "x"], "error: there is no command 'scam'\nhint: did you mean scan?\n"),
        (["mend", "x"], "error: there is no command 'mend'\nhint: choose from scan, "),
        (["scan", "x", "--format", "jsno"], "error: there is no format 'jsno'\nhint: did you mean json?\n"),
        (["scan", "x", "--format", "xml"], "error: there is no format 'xml'\nhint: choose from table, tsv, json, "),
        (["scan", "x", "--fail-on", "eror"], "error: there is no severity 'eror'\nhint: did you mean error?\n"),
        (["scan", "x", "--spark-remote", "sc://h"], "error: --spark-remote and --spark-master go with --engine spark\n"),
        (["scan", "x", "--engine", "sprak"], "error: there is no engine 'sprak'\nhint: did you mean spark?\n"),
        (["scan", "x", "--as-of", "noon"], "error: 'noon' is not a time\nhint: write it like 2026-03-01T12:00:00Z"),
        (["scan", "x", "--topik", "y"], "error: no such option: --topik"),
        (["scan", "x", "--jobs", "0"], "error: invalid value for '--jobs'"),
        (["scan", "x", "--partition", "p"], "error: invalid value for '--partition'"),
        (["scan", "--topic"], "error: option '--topic' requires an argument\nhint: `kafka-forensics scan --help` shows how"),
        (["scan"], "error: missing argument 'PATH"),
        (
            ["explain", "unclean-los"],
            "error: there is no finding kind and no known incident 'unclean-los'\nhint: did you mean UNCLEAN_LOSS?\n",
        ),
        ([], "Usage: kafka-forensics"),
    ],
)
def test_wrong_command_lines_are_2_with_a_hint(
    arguments: list[str], said: str, fake_engine: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(said)


def test_closed_pipe_is_141_and_silent() -> None:
    command = f"'{sys.executable}' -m tests.support.fake_engine long scan copies --format tsv -q | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    header, status = done.stdout.splitlines()
    assert header.startswith("kind\tseverity")
    assert (status, done.stderr) == ("141", "")


def test_broken_pipe_of_something_else_is_a_bug() -> None:
    done = subprocess.run(
        [*IN_PROCESS, "broken-worker", "scan", "x"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 70
    assert done.stderr.startswith("bug: BrokenPipeError: ")


def test_ctrl_c_is_130_in_one_line() -> None:
    with subprocess.Popen([*IN_PROCESS, "slow", "scan", "x"], cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == "interrupted\n"
        assert process.wait(60) == 130


def test_full_disk_is_told_in_a_line(scan: Scan) -> None:
    status, _, err = scan(unclean_result, "--output", "/dev/full")
    assert status == 2
    assert re.fullmatch(r"error: cannot write to /dev/full: .*\nhint: give --output another place\n", err)


@pytest.mark.parametrize("both", [("--whole", "--partial"), ("--partial", "--whole"), ("--deep", "--no-deep")])
def test_an_option_given_both_ways_is_a_wrong_command_line(both: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    sample = Path(__file__).resolve().parents[2] / "sample_logs" / "healthy"
    assert outcome(["scan", str(sample), *both]) == 2
    assert "contradict each other" in capsys.readouterr().err
    assert outcome(["scan", str(sample), both[0]]) == 0


@pytest.mark.parametrize("command", ["scan", "plan", "dump"])
def test_a_mistyped_topic_is_told_though_an_input_could_not_be_read(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copies = tmp_path / "copies"
    shutil.copytree(Path(__file__).resolve().parents[2] / "sample_logs" / "healthy", copies)
    (copies / "link").symlink_to("/nowhere")
    assert outcome([command, str(copies), "--topic", "ordres"]) == 3
    assert "note: in what could be read nothing fits --topic ordres" in capsys.readouterr().err
    assert outcome([command, str(copies), "--topic", "orders"]) == 3
    assert "nothing fits" not in capsys.readouterr().err


@pytest.mark.parametrize("packed", [False, True], ids=["directory", "archive"])
def test_segments_in_a_directory_of_any_name_are_read(packed: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a segment given by itself is; a directory without segments still has no name that Kafka gives."""
    made = tmp_path / "saved events"
    made.mkdir()
    (made / f"{0:020d}.log").write_bytes(batch(0, 3))
    given = Path(shutil.make_archive(str(made), "tar", made)) if packed else made
    assert outcome(["scan", str(given), "--format", "json"]) == 0
    captured = capsys.readouterr()
    (partition,) = json.loads(captured.out)["partitions"]
    assert (partition["topic"], partition["partition"], partition["replicas"][0]["log_end_offset"]) == ("saved events", 0, 3)
    assert f"note: {given}: read as partition 0 of a topic of that name, as no partition has it" in captured.err
    (made / f"{0:020d}.log").rename(made / "leader-epoch-checkpoint")
    assert outcome(["scan", str(made), "--format", "json"]) == 0
    assert [one["kind"] for one in json.loads(capsys.readouterr().out)["findings"]] == ["DIR_NAME_ILLEGAL"]


def test_bytes_that_are_no_log_are_not_planned_as_losing_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x").mkdir()
    log = tmp_path / "x" / f"{0:020d}.log"
    log.write_bytes(b"no log at all " * 100)
    assert outcome(["plan", str(log), "--format", "table"]) == 0
    captured = capsys.readouterr()
    assert "Nothing that could be read of the copies would be lost" in " ".join(captured.out.split())
    assert f"note: {log}: lies in x: read as partition 0 of a topic of that name, as no partition has it" in captured.err
    assert "no election would lose anything that could be read of the copies here" in " ".join(captured.err.split())
