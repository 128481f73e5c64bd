"""The help of each command: options in panels, examples, which run as printed, and exit statuses."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from kafka_forensics.cli.main import COMMANDS, GROUPS, SECTIONS, outcome, parser
from kafka_forensics.cli.manual import MANUAL
from kafka_forensics.cli.options import PANELS, PROGRAM
from tests.cli.runs import Run

IN_GROUPS = [f"{group} {name}" for group, (commands, _) in GROUPS.items() for name in commands]
NAMES = ["", *COMMANDS, *GROUPS, *IN_GROUPS]
EXAMPLES = sorted({example for manual in MANUAL.values() for example in manual.examples})
STATUS_1 = {"scan sample_logs/unclean", "scan --topic", "compare", "changes", "recover", "verify"}
"""Beginnings of examples that find lost data, and end with status 1."""
MOST_OPTIONS = 10
"""How many options the first panel of a help may list."""


def printed_examples(text: str) -> list[str]:
    """The lines of a help text below `Examples`."""
    section = text.partition("\nExamples")[2].partition("\n\n")[0]
    return [line.strip() for line in section.splitlines()[1:]]


def test_every_help_ends_with_its_examples_and_exit_statuses(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert sorted(MANUAL) == sorted(NAMES)
    for name in NAMES:
        status, text, err = run(*name.split(), "--help")
        assert (status, err) == (0, ""), name
        manual = MANUAL[name]
        assert printed_examples(text) == [f"{PROGRAM} {example}" for example in manual.examples], name
        assert manual.examples, name
        assert all(f"{example} ".startswith(f"{name} ".lstrip()) for example in manual.examples), name
        statuses = text.partition("\nExit status:\n")[2]
        assert [int(line.split()[0]) for line in statuses.splitlines() if line[2] != " "] == list(manual.exit_statuses), name
        assert manual.exit_statuses.keys() >= {0, 2}, name
        assert max(map(len, text.splitlines())) <= 80, name


def listed(text: str, heading: str) -> list[str]:
    """The first words of the rows below a heading of a help text."""
    return re.findall(r"^  (\S+)", text.partition(f"\n{heading}:\n")[2].partition("\n\n")[0], re.MULTILINE)


def test_the_list_of_commands_has_sections_and_cuts_no_description(run: Run) -> None:
    text = run("--help")[1]
    names = {section: listed(text, section) for section in SECTIONS}
    assert names == {section: list(commands) for section, commands in SECTIONS.items()} | {"Learn": [*SECTIONS["Learn"], *GROUPS]}
    assert all(description in text for _, description in [*COMMANDS.values(), *GROUPS.values()])


def test_every_help_begins_with_few_options_and_lists_all_in_panels(run: Run) -> None:
    for name in NAMES:
        command = parser()
        for part in name.split():
            command = vars(command)["commands"][part]
        text = run(*name.split(), "--help")[1]
        panels = {panel: listed(text, panel) for panel in ("Options", *PANELS)}
        declared = [option.opts[0] for option in command.params if option.param_type_name == "option"]
        assert sorted(option.rstrip(",") for options in panels.values() for option in options) == sorted([*declared, "-h"]), name
        assert len(panels["Options"]) <= MOST_OPTIONS, name


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the samples as `demo` writes them, and a plan to verify."""
    folder = tmp_path_factory.mktemp("examples")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        plan = next(example for example in MANUAL["plan"].examples if "--output plan.json" in example)
        for example in (MANUAL["demo"].examples[0], plan):
            assert outcome(shlex.split(example)) == 0
    return folder


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs_as_printed(example: str, samples: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--engine" not in example
    monkeypatch.chdir(tmp_path)
    if not example.startswith("demo "):
        (tmp_path / "sample_logs").symlink_to(samples / "sample_logs")
        shutil.copy(samples / "plan.json", tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    status, out, err = run(*shlex.split(example))
    assert status == example.startswith(tuple(STATUS_1)), err
    assert "error" not in err
    assert out or {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} != before
