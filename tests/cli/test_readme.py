"""The commands that README.md shows run as they stand, and print what it says."""

import glob
import re
import shlex
from pathlib import Path

import pytest

from kafka_forensics.cli.main import outcome

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^(?:\$ )?kafka-forensics (?!.*--engine spark)(.*?)(?:\s+#.*)?$", TEXT, re.MULTILINE)


def words(command: str) -> list[str]:
    """The words of a command line as a shell gives them, quoted patterns left alone."""
    found: list[str] = []
    for word in re.findall(r"'[^']*'|\S+", command):
        found += shlex.split(word) if word.startswith("'") else sorted(glob.glob(word)) or [word]
    return found


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where somebody stands who has installed the package, and asked for the samples."""
    place = tmp_path_factory.mktemp("newcomer")
    assert outcome(["demo", str(place / "sample_logs")]) == 0
    return place


def test_commands_are_shown() -> None:
    assert len(COMMANDS) == 5


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_shown_runs(
    command: str, newcomer: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(newcomer)
    capsys.readouterr()
    status = outcome([*words(command), "--format", "table"])
    shown = f"$ kafka-forensics {command}\n" in TEXT
    assert status == (1 if shown else 0)
    if shown:  # with what it prints, at 80 columns
        printed = [" ".join(part.split()) for part in re.split(r"\n\n", capsys.readouterr().out) if part.strip()]
        block = TEXT.split(f"$ kafka-forensics {command}\n", 1)[1].split("```", 1)[0]
        assert all(part in " ".join(block.split()) for part in printed)
