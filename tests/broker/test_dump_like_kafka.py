"""`dump --format kafka-dump-log` of everything the laboratory made, against the lines that Kafka's own tool prints of it."""

from collections import Counter
from pathlib import Path

import pytest

from kafka_forensics.cli.main import outcome
from lab.elections import Held
from lab.watermark_truncation import History
from tests.support.faults import Brokers
from tests.support.peer_dumps import (
    DECODERS,
    PLAIN,
    PRINT,
    SUFFIXES,
    VERIFY,
    Laid,
    dumps,
    kafka_ends_at,
    kafka_prints,
    lay_out,
    one_line,
    said_to_end,
    shown,
)

pytestmark = pytest.mark.broker

FORMAT = ("--format", "kafka-dump-log")
ENDED_AT_MOST = 20
"""Files at which Kafka's tool ends, of one kind: each needs a run of its own."""


@pytest.fixture(scope="module", name="layout")
def empty_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("layout")


@pytest.fixture(scope="module", name="laid")
def files_of_all_copies(
    layout: Path, real_base: Brokers, broker_copies: Path, elections: Held, old_history: History, new_history: History
) -> list[Laid]:
    rounds = [tree for one in elections.rounds for tree in (one.before, one.after)]
    histories = [tree for one in (old_history, new_history) for tree in (one.between, one.after)]
    return lay_out([real_base.root, broker_copies, *rounds, *histories], layout)


def test_files_of_every_kind_are_there(laid: list[Laid]) -> None:
    counted = Counter(Path(one.path).suffix for one in laid)
    assert set(counted) >= set(SUFFIXES) - {".checkpoint"}
    assert len(laid) >= 400
    assert {one.options[0] for one in laid} == {PLAIN, PRINT, *DECODERS.values()}


@pytest.mark.parametrize("option", [PRINT, PLAIN, VERIFY, *DECODERS.values()])
def test_lines_equal_those_of_kafka_s_tool(
    laid: list[Laid], layout: Path, option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(layout)
    paths = [one.path for one in laid if option in one.options]
    options = [option] if option else []
    assert outcome(["dump", *paths, *FORMAT, *options]) == 0
    said = capsys.readouterr()
    ours = dumps(said.out)
    assert list(ours) == paths
    ended = said_to_end(said.err.splitlines())
    assert len(ended) <= ENDED_AT_MOST
    rest = [path for path in paths if path not in ended]
    theirs, complaints = kafka_prints(rest, layout, *options)
    theirs |= {path: kafka_ends_at(path, layout, *options) for path in ended}
    assert [path for path in paths if one_line(ours[path]) != shown(theirs[path])] == []
    assert outcome(["dump", *rest, *FORMAT, *options]) == 0
    assert Counter(capsys.readouterr().err.splitlines()) == complaints
