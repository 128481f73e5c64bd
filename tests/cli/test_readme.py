"""README.md is what a newcomer needs: three screens, with commands that run and print what it says."""

from pathlib import Path

from kafka_forensics.cli.main import COMMANDS, GROUPS
from lab.doc_blocks import blocks_of

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_has_three_screens() -> None:
    assert len(TEXT.splitlines()) <= 130


def test_it_names_every_command() -> None:
    names = [*COMMANDS, *(f"{group} {name}" for group, (commands, _) in GROUPS.items() for name in commands if name != "list")]
    assert [name for name in names if f"| `{name}" not in TEXT] == []


def test_it_shows_a_verdict_and_runs_what_it_shows() -> None:
    run = [block for block in blocks_of("README.md") if block.is_run]
    assert [block.language for block in run] == ["console", "sh", "python"]
    assert "critical:" in run[0].body
