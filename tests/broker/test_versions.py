"""Disks of three versions of Kafka in twelve states: scans, also of bundles, agree with what clients and brokers report (`make
lab-versions` plays all versions and states)."""

from pathlib import Path

import pytest

from lab.version_healthy import LIVE
from lab.version_table import Cell, cells
from lab.versions import VERSIONS

pytestmark = pytest.mark.broker

LIVE_COPIES = 3
PLAYED = {
    "1.1.1": ("killed under traffic", "bit flipped"),
    "3.6.2": ("follower cut",),
    "4.1.1": ("killed under traffic", "middle segment deleted", "follower cut"),
}
"""Version → its states, in addition to those of all versions: stopped one by one, and copied live."""
LOSSY = {"bit flipped", "middle segment deleted"}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("version", PLAYED)
def test_scans_agree_with_brokers_and_clients(tmp_path: Path, version: str) -> None:
    judged: dict[str, list[Cell]] = {}
    for cell in cells(VERSIONS[version], tmp_path, PLAYED[version].__contains__, LIVE_COPIES, kills=1):
        judged.setdefault(cell.state.name, []).append(cell)
    assert {state: len(played) for state, played in judged.items()} == {
        "stopped one by one": 1,
        LIVE: LIVE_COPIES,
        **dict.fromkeys(PLAYED[version], 1),
    }
    assert {state: [cell.wrong for cell in played] for state, played in judged.items()} == {
        state: [[] for _ in played] for state, played in judged.items()
    }
    assert {state for state, played in judged.items() if any(cell.state.lost for cell in played)} == LOSSY & set(PLAYED[version])
