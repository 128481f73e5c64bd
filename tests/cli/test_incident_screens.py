"""What the five commands of an incident print, on copies of real clusters: golden screens at 80 and 120 columns."""

import os
import tarfile
from pathlib import Path
from typing import Final

import pytest

from tests.cli.runs import Run
from tests.support.audit import put_unclean_election
from tests.support.nightly import daily_subset
from tests.support.places import GOLDEN

INCIDENTS: Final = GOLDEN / "incidents"
SCREENS: Final = INCIDENTS / "screens"
LOG_DIRS: Final = {
    "unclean-127": "unclean-127",
    "wiped-disk": "wiped-disk/broker-1 wiped-disk/broker-2 3=wiped-disk/broker-3 wiped-disk/controller-100",
    "stuck-readers": "stuck-readers",
}
MORE_COMMANDS: Final = {"stuck-readers": {"transactions": "transactions stuck-readers --state hanging"}}
SALVAGE_OPTIONS: Final = {"unclean-127": " --prefer-broker 2", "wiped-disk": " --allow-gaps", "stuck-readers": ""}
FIRST_SCREEN: Final = 12
MOST_LINES: Final = {"unclean-127": 40, "wiped-disk": 60, "stuck-readers": 45}


def command_lines(name: str) -> dict[str, str]:
    """The five commands of an incident, in their order, and others that they print."""
    log_dirs = LOG_DIRS[name]
    return {
        "scan": f"scan {log_dirs}",
        "plan": f"plan {log_dirs}",
        "recover": f"recover {log_dirs} --plan plan.json --output lost",
        "salvage": f"salvage {log_dirs}{SALVAGE_OPTIONS[name]} --output salvaged",
        "verify": f"verify {log_dirs} --against plan.json",
        **MORE_COMMANDS.get(name, {}),
    }


@pytest.fixture
def _extracted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current directory holds the log directories of every incident."""
    for name in LOG_DIRS:
        with tarfile.open(INCIDENTS / f"{name}.tar.xz") as archive:
            archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("width", daily_subset({"80"}, [80, 120]))
@pytest.mark.parametrize("name", LOG_DIRS)
@pytest.mark.usefixtures("_extracted")
def test_the_commands_of_an_incident_print_the_golden_screens(
    name: str, width: int, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a change: set KEEP_SCREENS=1, and read the difference."""
    monkeypatch.setenv("COLUMNS", str(width))
    assert run(*f"plan {LOG_DIRS[name]} --output plan.json -q".split())[0] == 0
    for command, command_line in command_lines(name).items():
        _, out, _ = run(*command_line.split())
        golden = SCREENS / f"{name}-{command}-{width}.txt"
        if os.environ.get("KEEP_SCREENS"):
            golden.parent.mkdir(exist_ok=True)
            golden.write_text(out, encoding="utf-8")
        assert out == golden.read_text(encoding="utf-8"), command
        lines = out.splitlines()
        assert len(lines) <= MOST_LINES[name], command
        first = lines[: lines.index("")] if "" in lines else lines
        assert len(first) <= FIRST_SCREEN, command
        assert max(map(len, lines)) <= width, command


@pytest.mark.nightly
def test_a_thousand_partitions_take_at_most_60_lines(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    put_unclean_election(tmp_path / "copies", 1000)
    monkeypatch.chdir(tmp_path)
    assert run("plan", "copies", "--output", "plan.json", "-q")[0] == 0
    for command_line in (
        "scan copies",
        "plan copies",
        "recover copies --plan plan.json --output lost",
        "salvage copies --prefer-broker 2 --output salvaged",
        "verify copies --against plan.json",
    ):
        _, out, err = run(*command_line.split())
        assert 0 < len((out + err).splitlines()) <= 60, command_line
