"""Real brokers start on a salvage of compacted topics that their cleaners had cleaned to different points: of every key a reader
gets what was written last, and no deleted key is back, before the cleaner goes on and after.

What is expected is what clients were told when they wrote.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.salvage import Refused, Salvaged, SalvagedPartition, SalvageOptions, salvage
from lab.cleaned_copies import BROKER_SETTINGS, STATES, CleanedState, Written, await_cleaner, copy_and_harm, play, set_cleaner
from lab.fault_base import read_log
from lab.files import read_offset_checkpoint
from lab.salvaged_start import Served, put_on, read, start, watermarks
from lab.versions import VERSIONS, version_cluster
from tests.oracles.decoder import batches

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

VERSIONS_PLAYED = [pytest.param("4.3.0"), pytest.param("3.9.1", marks=pytest.mark.nightly)]


@dataclass(frozen=True)
class Played:
    """Copies before they were damaged and after, what was salvaged, and what brokers served that started on it."""

    written: dict[str, Written]
    sound: Path
    strict: Salvaged
    salvaged: Salvaged
    watermarks: dict[tuple[str, int], tuple[int, int]]
    served: tuple[Served, Served]
    """Before the cleaner went on, and after."""
    said: dict[int, bytes]


@pytest.fixture(scope="module", name="played", params=VERSIONS_PLAYED)
def brokers_on_a_salvage_of_cleaned_copies(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    root = tmp_path_factory.mktemp("cleaned")
    with version_cluster(root / "nodes", VERSIONS[request.param], settings=BROKER_SETTINGS) as cluster:
        written = play(cluster)
        copy_and_harm(cluster, root / "copies", root / "sound")
        strict = salvage([str(root / "copies")], root / "strict", ScanOptions(), SalvageOptions())
        salvaged = salvage([str(root / "copies")], root / "out", ScanOptions(), SalvageOptions(allow_gaps=True))
        put_on(cluster, {root / "out": {}})
        start(cluster)
        places = {(topic, 0): 0 for topic in written}
        marks = watermarks(cluster, places)
        before = read(cluster, places, "read_uncommitted")
        for broker in cluster.brokers:
            set_cleaner(cluster, broker, None)
        for topic in written:
            for broker in cluster.brokers:
                await_cleaner(cluster, broker, topic)
        after = read(cluster, places, "read_uncommitted")
        said = {broker: cluster.server(broker).output.read_bytes() for broker in cluster.brokers}
        return Played(written, root / "sound", strict, salvaged, marks, (before, after), said)


def latest(records: Iterable[tuple[int, bytes | None, bytes | None]]) -> dict[bytes | None, bytes]:
    """Key → value as a reader has it in the end."""
    state = {key: value for _, key, value in records}
    return {key: value for key, value in state.items() if value is not None}


def one_of(salvaged: Salvaged, topic: str) -> SalvagedPartition | Refused:
    rows: list[SalvagedPartition | Refused] = [*salvaged.partitions, *salvaged.refused]
    (found,) = [row for row in rows if row.topic == topic]
    return found


def tombstones(directory: Path) -> set[int]:
    """Offsets of all tombstones of a sound copy."""
    data = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
    return {record.offset for batch in batches(data) for record in batch.records if record.value is None}


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_cleaners_had_been_by(played: Played, state: CleanedState) -> None:
    directories = [played.sound / f"broker-{broker}" / f"{state.name}-0" for broker in (1, 2, 3)]
    dirty = [read_offset_checkpoint(path.parent / "cleaner-offset-checkpoint")[state.name, 0] for path in directories]
    held = [{written.base_offset for written in read_log(path).batches} for path in directories]
    told = [tombstones(path) for path in directories]
    assert min(dirty) > 0
    if state.is_apart:
        assert dirty[0] > dirty[1] > dirty[2]
        assert len(held[0]) < len(held[1]) < len(held[2])
        assert {offset for offset in told[2] if offset < dirty[2]} - told[0]
    else:
        assert dirty[0] == dirty[1] == dirty[2]


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_of_every_key_the_newest_value_is_served(played: Played, state: CleanedState) -> None:
    written = played.written[state.name]
    partition = one_of(played.salvaged, state.name)
    assert isinstance(partition, SalvagedPartition), partition
    assert played.watermarks[state.name, 0] == (0, written.end) == (partition.log_start_offset, partition.log_end_offset)
    for served in played.served:
        records = served[state.name, 0]
        offsets = [offset for offset, _, _ in records]
        assert offsets == sorted(set(offsets))
        if state.is_told:
            assert latest(records) == written.there
        assert all(value in written.ever[key or b""] for _, key, value in records)


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_what_no_copies_prove_together_is_refused_without_allow_gaps(played: Played, state: CleanedState) -> None:
    strict, salvaged = one_of(played.strict, state.name), one_of(played.salvaged, state.name)
    assert isinstance(salvaged, SalvagedPartition)
    if state.is_told:
        assert isinstance(strict, SalvagedPartition), strict
        assert (strict.chosen_by, strict.gaps) == ("merged", [])
        return
    assert isinstance(strict, Refused)
    assert "--allow-gaps" in (strict.hint or "")
    assert salvaged.gaps


def test_recovery_ran_and_cut_nothing(played: Played) -> None:
    for broker, said in played.said.items():
        lines = said.splitlines()
        assert any(b"Recovering" in line for line in lines), broker
        for words in (b"Truncating to", b"Corrupt", b"invalid messages", b"Non-monotonic"):
            assert [line for line in lines if words in line and b"has no effect" not in line] == [], broker
