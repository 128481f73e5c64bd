"""docs/simulate.md: its examples run, its page of a history is the one that is printed, its list of scenarios is complete."""

import re
from pathlib import Path

import pytest

from kafka_forensics.cli.main import outcome
from kafka_forensics.simulation.scenarios import SCENARIOS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "simulate.md").read_text()


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    commands = [line.removeprefix("kafka-forensics ").split() for line in block.splitlines()]
    assert len(commands) == 7
    for command in commands:
        assert outcome(command) == 0, command
        assert capsys.readouterr().out
    assert (tmp_path / "unclean.svg").stat().st_size > 0
    assert (tmp_path / "unclean" / "truth.json").stat().st_size > 0


def test_the_history_that_is_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ((command, shown),) = re.findall(r"```text\n\$ kafka-forensics (.*?)\n(.*?)```", PAGE, re.DOTALL)
    assert outcome(command.split()) == 0
    assert capsys.readouterr().out == shown


def test_every_scenario_is_listed() -> None:
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| ((?:`[a-z0-9-]+`(?:, )?)+) \| (.*) \|$", PAGE, re.MULTILINE)
    told = {name: (protocols.replace("`", "").split(", "), sentence) for name, protocols, sentence in rows}
    assert told == {scenario.name: (list(scenario.protocols), scenario.sentence) for scenario in SCENARIOS.values()}
