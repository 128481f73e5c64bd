"""docs/simulate.md: its list of scenarios is complete. Its examples run with those of all pages (tests/docs)."""

import re
from pathlib import Path

from kafka_forensics.simulation.scenarios import SCENARIOS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "simulate.md").read_text()


def test_every_scenario_is_listed() -> None:
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| ((?:`[a-z0-9-]+`(?:, )?)+) \| (.*) \|$", PAGE, re.MULTILINE)
    told = {name: (protocols.replace("`", "").split(", "), sentence) for name, protocols, sentence in rows}
    assert told == {scenario.name: (list(scenario.protocols), scenario.sentence) for scenario in SCENARIOS.values()}
