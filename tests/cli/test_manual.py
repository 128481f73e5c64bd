"""The end of each command's help: examples that run as they stand, and exit statuses."""

import shlex
import shutil
from pathlib import Path

import pytest

from kafka_forensics.cli.main import COMMANDS, GROUPS, outcome
from kafka_forensics.cli.manual import MANUAL, PROGRAM
from tests.support.plan_runs import Run

ROOT = Path(__file__).resolve().parents[2]
IN_GROUPS = [f"{group} {name}" for group, (commands, _) in GROUPS.items() for name in commands]
NAMES = ["", *COMMANDS, *GROUPS, *IN_GROUPS]
LOSS = 1
"""The status of a command that judges a sample with lost data."""
JUDGES = {"scan sample_logs/unclean", "scan --topic", "compare", "changes", "recover", "verify"}


def shown(text: str) -> list[str]:
    """The lines of a help below `Examples`."""
    section = text.partition("\nExamples")[2].partition("\n\n")[0]
    return [line.strip() for line in section.splitlines()[1:]]


def help_of(name: str, run: Run) -> str:
    status, out, err = run(*name.split(), "--help")
    assert (status, err) == (0, "")
    return out


@pytest.fixture
def samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of one's own with the samples in it."""
    shutil.copytree(ROOT / "sample_logs", tmp_path / "sample_logs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_has_its_end_of_the_help() -> None:
    assert sorted(MANUAL) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_help_ends_with_examples_and_exit_statuses(name: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = help_of(name, run)
    manual = MANUAL[name]
    assert shown(text) == [f"{PROGRAM} {example}" for example in manual.examples]
    assert len(manual.examples) > 0
    statuses = text.partition("\nExit status:\n")[2]
    assert [int(line.split()[0]) for line in statuses.splitlines() if line[2] != " "] == list(manual.exit_statuses)
    assert max(map(len, text.splitlines())) <= 80
    assert manual.exit_statuses.keys() >= {0, 2}


@pytest.mark.parametrize("name", [name for name in NAMES if name])
def test_an_example_is_one_of_its_command(name: str) -> None:
    assert all(f"{example} ".startswith(f"{name} ") for example in MANUAL[name].examples)


@pytest.mark.parametrize("example", sorted({example for manual in MANUAL.values() for example in manual.examples}))
def test_an_example_runs_as_it_stands(example: str, samples: Path, run: Run) -> None:
    assert "--engine" not in example
    if example.startswith("demo "):
        shutil.rmtree(samples / "sample_logs")
    if "--against plan.json" in example:
        assert run(*shlex.split(next(made for made in MANUAL["plan"].examples if "plan.json" in made)))[0] == 0
    before = {path.name for path in samples.iterdir()}
    status, out, err = run(*shlex.split(example))
    assert status == (LOSS if example.startswith(tuple(JUDGES)) else 0), err
    assert "error" not in err
    assert out or {path.name for path in samples.iterdir()} > before


def test_the_samples_of_the_examples_are_what_demo_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert outcome(shlex.split(MANUAL["demo"].examples[0])) == 0
    words = {word for manual in MANUAL.values() for example in manual.examples for word in example.split()}
    named = {word for word in words if word.startswith("sample_logs")}
    assert [word for word in sorted(named) if not (tmp_path / word).exists()] == []
