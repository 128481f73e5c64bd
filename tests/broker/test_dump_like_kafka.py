"""`dump --format kafka-dump-log` of everything the laboratory made, against the lines that Kafka's own tool prints of it."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from lab.elections import Held
from lab.make_samples import SAMPLE_LOGS
from lab.watermark_truncation import History
from tests.support.faults import Brokers
from tests.support.peer_comparison import hold_to_kafka_s_tool
from tests.support.peer_dumps import DECODERS, PLAIN, PRINT, SUFFIXES, VERIFY, Laid, lay_out

GOLDEN_INPUTS = Path(__file__).resolve().parents[1] / "golden" / "dump" / "inputs"
OF_GROUPS = {
    "group-kinds": "__consumer_offsets-0",
    "group-records": "__consumer_offsets-1",
    "share-state": "__share_group_state-0",
    "share-records": "__share_group_state-1",
}
pytestmark = [pytest.mark.broker, pytest.mark.timeout(1200)]
"""The first of these tests waits for all that the laboratory makes."""


@pytest.fixture(scope="module", name="layout")
def empty_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("layout")


@pytest.fixture(scope="module")
def groups_of_every_kind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a broker wrote with consumer, share and streams groups, and what Kafka's serializers did, under their topics' names."""
    root = tmp_path_factory.mktemp("groups")
    for name, directory in OF_GROUPS.items():
        shutil.copytree(GOLDEN_INPUTS / name, root / directory)
    return root


@pytest.fixture(scope="module", name="laid")
def files_of_all_copies(
    layout: Path,
    real_base: Brokers,
    broker_copies: Path,
    elections: Held,
    old_history: History,
    new_history: History,
    moving: list[Path],
    groups_of_every_kind: Path,
) -> list[Laid]:
    rounds = [tree for one in elections.rounds for tree in (one.before, one.after)]
    histories = [tree for history in (old_history, new_history) for tree in (history.between, history.after)]
    return lay_out([SAMPLE_LOGS, real_base.root, broker_copies, *rounds, *histories, *moving, groups_of_every_kind], layout)


def test_files_of_every_kind_are_there(laid: list[Laid]) -> None:
    counted = Counter(Path(one.path).suffix for one in laid)
    assert set(counted) >= set(SUFFIXES) - {".checkpoint"}
    assert len(laid) >= 400
    assert {one.options[0] for one in laid} == {PLAIN, PRINT, *DECODERS.values()}


@pytest.mark.parametrize("option", [PRINT, PLAIN, VERIFY, *DECODERS.values()])
def test_lines_equal_those_of_kafka_s_tool(
    laid: list[Laid], layout: Path, option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hold_to_kafka_s_tool(laid, layout, option, monkeypatch, capsys)
