"""Every command that a scan prints runs as printed: real, quoted paths, and no line break between an option and its value."""

import json
import shlex
import shutil
from pathlib import Path

import pytest

from kafka_forensics.evidence.inputs import Inputs
from kafka_forensics.evidence.ledger import CopyExtent
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Place
from kafka_forensics.scanning.judging.whole_scan import PATHS_SHOWN, ArgumentsByPlace
from kafka_forensics.wording import rerun_command
from tests.cli.runs import Run, printed_commands
from tests.gallery.case import Case
from tests.gallery.cases import one_of_each_fault
from tests.gallery.incidents import TREES, Tree
from tests.support.audit import put_restored_copy, put_unclean_election
from tests.support.brokers import put_meta_properties


def commands_of_scan(run: Run, *arguments: object) -> set[tuple[str, ...]]:
    """The arguments of the commands in a scan's JSON document and table."""
    commands: set[tuple[str, ...]] = set()
    for format_name in ("json", "text"):
        status, out, err = run("scan", *arguments, "--format", format_name, "-v", "--jobs", "1")
        assert status in (0, 1, 3)
        assert "PATH..." not in out + err
        if format_name == "json":
            document = json.loads(out)
            out = "\n".join(row["advice"] or "" for row in document["findings"] + document["incidents"])
        commands |= {tuple(shlex.split(command)) for command in printed_commands(out)}
    return commands


def assert_commands_run(run: Run, commands: set[tuple[str, ...]]) -> None:
    for program, *arguments in sorted(commands):
        status, _, err = run(*arguments)
        assert program == "kafka-forensics"
        assert status in (0, 1, 3), f"{shlex.join(arguments)}: {err}"


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: tree.key)
def test_commands_for_known_incidents_run(tree: Tree, run: Run, tmp_path: Path) -> None:
    commands = commands_of_scan(run, *tree.make(tmp_path / "a folder").log_dirs)
    assert commands
    assert_commands_run(run, commands)


@pytest.mark.parametrize("case", one_of_each_fault())
def test_commands_for_faults_run(case: Case, run: Run, tmp_path: Path) -> None:
    assert_commands_run(run, commands_of_scan(run, case.make(tmp_path / "brokers").root))


@pytest.mark.parametrize(
    "options", [["--live"], ["--whole"], ["--partial"], ["--as-of=2030-01-01T00:00:00.000Z"], ["--by", "incident"]], ids=" ".join
)
def test_commands_repeat_names_and_options_of_the_scan(options: list[str], run: Run, tmp_path: Path) -> None:
    named = [f"{path.name.removeprefix('broker-')}={path}" for path in put_unclean_election(tmp_path / "it's a folder", 2)]
    commands = {command for command in commands_of_scan(run, *named[:3], *options) if command[1] in ("plan", "compare")}
    assert commands
    for command in commands:
        assert set(named[:3]) <= set(command)
        repeated = [word for word in options[0].split("=") if options[0] != "--by"]
        assert [word for word in command if word in ("--live", "--whole", "--partial", "--as-of")] == repeated[:1]
        assert set(repeated) <= set(command)
    assert_commands_run(run, commands if options[0] == "--live" else set())


def test_commands_for_many_partitions_run(run: Run, tmp_path: Path) -> None:
    commands = commands_of_scan(run, *put_restored_copy(tmp_path / "copies", 3))
    assert ("kafka-forensics", "plan", *map(str, sorted((tmp_path / "copies").iterdir())), "--topic", "audit") in commands
    assert_commands_run(run, commands)


def test_a_command_has_only_the_paths_that_its_partition_needs(run: Run, tmp_path: Path) -> None:
    log_dirs = put_unclean_election(tmp_path / "copies", 1)
    others = [tmp_path / ("long" * 40) / f"broker-{number}" for number in range(10, 22)]
    for number, other in enumerate(others):
        shutil.copytree(log_dirs[0] / "audit-0", other / f"other-{number}")
        put_meta_properties(other, 10 + number)
    assert sum(len(str(path)) for path in others) > PATHS_SHOWN
    commands = commands_of_scan(run, *others[:6], *log_dirs, *others[6:])
    plans = [command for command in commands if command[1] == "plan" and "audit" in command]
    assert plans == [("kafka-forensics", "plan", *map(str, log_dirs), "--topic", "audit", "--partition", "0")]
    assert_commands_run(run, set(plans))


def test_commands_contain_no_secrets() -> None:
    options_as_typed = (("endpoint", "http://127.0.0.1:9000"), ("secret_key", "hush"), ("endpoint", "http://me:hush@host"))
    options = ScanOptions(storage_options=options_as_typed, live=True, copied=CopyExtent.WHOLE)
    arguments = ArgumentsByPlace(Inputs(given=("s3://bucket/b1",), reached=options_as_typed), options).of(Place())
    assert rerun_command("plan", arguments, "--topic", "t") == (
        "kafka-forensics plan s3://bucket/b1 --storage-option endpoint=http://127.0.0.1:9000 --whole --live --topic t"
    )
    assert "hush" not in repr(arguments)


def test_commands_over_two_lines_are_parsed() -> None:
    """The pattern of this module matches a command that continues on the next line."""
    text = "  $ kafka-forensics plan a \\\n        b --topic t\n  See `kafka-forensics explain d6`.\n"
    commands = [shlex.split(command) for command in printed_commands(text)]
    assert commands == [["kafka-forensics", "plan", "a", "b", "--topic", "t"], ["kafka-forensics", "explain", "d6"]]
