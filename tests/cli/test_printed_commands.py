"""Every command that a scan prints runs as printed: real, quoted paths, and no line break between an option and its value."""

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_forensics.cli.options import FORMATS
from kafka_forensics.evidence.inputs import Inputs
from kafka_forensics.evidence.ledger import CopyExtent
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Place
from kafka_forensics.scanning.judging.whole_scan import PATHS_SHOWN, ArgumentsByPlace
from kafka_forensics.wording import rerun_command
from tests.cli.runs import COMMAND, Run, printed_commands
from tests.gallery.case import Case
from tests.gallery.cases import one_of_each_fault
from tests.gallery.incidents import TREES, Tree
from tests.gallery.transactions import put_unlisted
from tests.support.audit import put_restored_copy, put_unclean_election
from tests.support.brokers import put_brokers, put_meta_properties
from tests.support.bundles import make_bundle
from tests.support.logs import CoordinatorLog, DataLog
from tests.support.places import SAMPLES


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
    assert ("kafka-forensics", "plan", *map(str, sorted((tmp_path / "copies").iterdir()))) in commands
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


@pytest.mark.parametrize("options", [(), ("--live",)], ids=" ".join)
def test_the_next_command_lists_transactions_that_may_hang(options: tuple[str, ...], run: Run, tmp_path: Path) -> None:
    """Now its coordinator had time to end it. In copies of running brokers it counts as open."""
    put_unlisted(tmp_path)
    (listing,) = {command for command in commands_of_scan(run, tmp_path, *options, "--as-of", "now") if "transactions" in command}
    assert listing[-2:] == ("--state", "open" if options else "hanging")
    assert "HOST:PORT find-hanging" in run(*listing[1:], "--format", "text")[1]


def test_commands_about_a_topic_with_a_long_name_are_whole(run: Run, tmp_path: Path) -> None:
    topic, log, state = "t" * 200, DataLog(), CoordinatorLog()
    log.data(5)
    log.traffic(21 * 60)
    state.transaction(21 * 60, (1,), commit=True)
    put_brokers(tmp_path, {f"{topic}-0": log, "__transaction_state-0": state})
    text = run("scan", tmp_path, "--by", "partition", "--format", "text")[1].replace(" \\\n", " ")
    commands = [" ".join(line.split()) for line in text.splitlines() if "kafka-transactions.sh --boot" in line]
    where = f"--topic {topic} --partition 0"
    assert [command.partition("HOST:PORT ")[2] for command in commands] == [
        f"find-hanging {where} --max-transaction-timeout 15",
        f"abort {where} --start-offset 0",
    ]


def test_commands_contain_no_secrets() -> None:
    options_as_typed = (("endpoint", "http://127.0.0.1:9000"), ("secret_key", "hush"), ("endpoint", "http://me:hush@host"))
    options = ScanOptions(storage_options=options_as_typed, live=True, copied=CopyExtent.WHOLE)
    arguments = ArgumentsByPlace(Inputs(typed_paths=("s3://bucket/b1",), reached=options_as_typed), options).of(Place())
    assert rerun_command("plan", arguments, "--topic", "t") == (
        "kafka-forensics plan s3://bucket/b1 --storage-option endpoint=http://127.0.0.1:9000 --whole --live --topic t"
    )
    assert "hush" not in repr(arguments)


def test_commands_over_two_lines_are_parsed() -> None:
    """The pattern of this module matches a command that continues on the next line."""
    text = "  $ kafka-forensics plan a \\\n        b --topic t\n  See `kafka-forensics explain d6`.\n"
    commands = [shlex.split(command) for command in printed_commands(text)]
    assert commands == [["kafka-forensics", "plan", "a", "b", "--topic", "t"], ["kafka-forensics", "explain", "d6"]]


COMMANDS = {
    "scan": ("-v",),
    "plan": (),
    "transactions": (),
    "groups": ("--all-partitions",),
    "epochs": (),
    "metadata": (),
    "find": ("--offset", "0..3"),
    "dump": ("--records",),
    "collect": ("--output", "taken.kfb"),
    "recover": ("--output", "lost"),
    "salvage": ("--output", "salvaged"),
    "report": ("--output", "report.html"),
    "export": ("--output", "facts"),
}
WIDTH = 80
LONGEST_PATH = 40


def put_forked_bundles(folder: Path) -> list[str]:
    return [str(make_bundle(path, folder / f"{path.name}.kfb")) for path in put_unclean_election(folder / "copies", 5)]


EVIDENCE: dict[str, Callable[[Path], list[str]]] = {
    "unclean election": lambda _: [str(SAMPLES / "unclean-election")],
    "divergence": lambda _: [str(SAMPLES / "silent-divergence")],
    "tiered": lambda _: [str(SAMPLES / "tiered")],
    "bundles": put_forked_bundles,
    "hanging transaction": lambda folder: [str(TREES[0].make(folder / "tree").root)],
}


def assert_all_run(run: Run, paths: list[str], text: str) -> None:
    """Run every command of this program in a text; `PATH...` and `DIR` are for the user to fill in."""
    for number, command in enumerate(sorted(set(printed_commands(text)))):
        program, *arguments = shlex.split(command)
        filled = [word for argument in arguments for word in (paths if argument == "PATH..." else [argument])]
        filled = [f"filled-{number}-{len(text)}" if word == "DIR" else word for word in filled]
        status, _, err = run(*filled)
        assert program == "kafka-forensics"
        assert status in (0, 1, 3), f"{command}: {err}"


def assert_lines_fit(text: str) -> None:
    """No line of a command is longer than a terminal's, unless a long path is."""
    for printed in COMMAND.finditer(text):
        for line in printed[0].splitlines():
            assert len(line) <= WIDTH or max(map(len, line.split())) > LONGEST_PATH, line


@pytest.mark.parametrize("name", EVIDENCE)
def test_commands_of_every_command_run(
    name: str, run: Run, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("it")
    monkeypatch.chdir(folder)
    paths = EVIDENCE[name](folder)
    for command, options in COMMANDS.items():
        formats = ("--format", FORMATS[0]) if command not in ("collect", "report", "export", "epochs", "metadata") else ()
        status, out, err = run(command, *paths, *options, *formats)
        assert status in (0, 1, 3) or "hint: " in err, (command, err)
        assert_all_run(run, paths, out + err)
        assert_lines_fit(out + err)


def test_commands_of_a_recovery_and_its_check_run(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a plan of bundles to records that are back, with what is printed alone."""
    monkeypatch.chdir(tmp_path)
    bundles = put_forked_bundles(tmp_path)
    status, _, err = run("recover", *bundles, "--keep", 1, "--output", "lost")
    assert status == 3
    assert len([*printed_commands(err)]) == len({gap.split()[2] for gap in printed_commands(err)}), "one a broker"
    assert_all_run(run, bundles, err)
    again = [f"broker-{path.stem.removeprefix('broker-')}-again.kfb" for path in map(Path, bundles)]
    given = [new if Path(new).exists() else old for new, old in zip(again, bundles, strict=True)]
    status, _, err = run("recover", *given, "--keep", 1, "--output", "lost")
    assert (status, "it lacks records" in err) == (1, False), err
    assert run("plan", *bundles, "--format", "json", "--output", "plan.json")[0] == 0
    status, out, err = run("verify", *bundles, "--against", "plan.json", "--format", FORMATS[0])
    assert status in (1, 3)
    assert_all_run(run, bundles, out + err)
    status, out, err = run("changes", f"before={bundles[0]}", f"after={given[0]}", "--format", FORMATS[0])
    assert_all_run(run, bundles, out + err)
    status, out, err = run("compare", *bundles, "--topic", "audit", "--partition", 0, "--format", FORMATS[0])
    assert_all_run(run, bundles, out + err)
