"""Facts of everything the laboratory made, against what Kafka's own tool prints of it; and the tools of three versions."""

from collections import Counter
from pathlib import Path

import pytest

from lab.dump_facts import DECODERS
from lab.elections import Held
from lab.make_golden import INPUTS
from lab.make_samples import SAMPLE_LOGS
from lab.watermark_truncation import History
from tests.support.faults import Brokers
from tests.support.kafka_facts import SUFFIXES, Laid, differences_from_kafka_s_tool, lay_out

pytestmark = [pytest.mark.broker, pytest.mark.timeout(1200)]
"""The first of these tests waits for all that the laboratory makes."""


@pytest.fixture(scope="module", name="layout")
def empty_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("layout")


@pytest.fixture(scope="module", name="laid")
def files_of_all_copies(
    layout: Path,
    real_base: Brokers,
    broker_copies: Path,
    elections: Held,
    old_history: History,
    new_history: History,
    moving: list[Path],
) -> list[Laid]:
    rounds = [tree for one in elections.rounds for tree in (one.before, one.after)]
    histories = [tree for history in (old_history, new_history) for tree in (history.between, history.after)]
    of_groups = [INPUTS / name for name in ("group-kinds", "group-records", "share-state", "share-records")]
    return lay_out([SAMPLE_LOGS, real_base.root, broker_copies, *rounds, *histories, *moving, *of_groups], layout)


def test_files_of_every_kind_are_there(laid: list[Laid]) -> None:
    counted = Counter(Path(one.path).suffix for one in laid)
    assert set(counted) >= set(SUFFIXES) - {".checkpoint"}
    assert len(laid) >= 400
    assert {one.topic for one in laid} == {None, *DECODERS}


def test_facts_are_those_of_kafka_s_tool(laid: list[Laid], layout: Path, tmp_path: Path) -> None:
    assert differences_from_kafka_s_tool(laid, layout, tmp_path) == {}
