"""Salvages copies of real brokers in many states: three brokers start on each, recovery truncates nothing, and every record on
some copy is served once, in order, at either isolation level.

The expected records are those acknowledged to clients, without batches that no copy has byte for byte.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.recovered import RecoveredRecord
from kafka_forensics.questions.recover import recover
from kafka_forensics.questions.salvage import Refused, Salvaged, SalvagedPartition, SalvageOptions, salvage
from lab import salvage_states
from lab.salvaged_start import put_on, read, start, wait_for_watermarks, watermarks
from lab.unclean_election import AFTERWARDS, ALONE, COMMON_END, lose_audit
from lab.versions import VERSIONS, version_cluster
from tests.oracles.decoder import batches
from tests.support.places import SAMPLES
from tests.support.segments import segment_file

pytestmark = [pytest.mark.broker, pytest.mark.timeout(1500)]

OF_SAMPLES = {"audit": "unclean-election", "ledger": "silent-divergence"}
"""Topic → the sample whose copies of it are salvaged from broker 2, and put into another cluster."""
COMPACTED = {"audit-compacted": {"cleanup.policy": "compact", "min.compaction.lag.ms": "86400000"}}
"""A compacted topic with the same history as `audit`."""
DAILY = ("4.3.0", "3.9.1")
WITH_FORKS = DAILY
EVERY_RUN = 6


def states_of(version: str) -> tuple[salvage_states.State, ...]:
    return salvage_states.STATES + salvage_states.in_every_codec(VERSIONS[version].codecs)


PAIRS = [
    pytest.param(
        version, state, marks=[] if version in DAILY and number < EVERY_RUN else [pytest.mark.nightly], id=f"{version}-{state.name}"
    )
    for version in (*DAILY, "1.1.1")
    for number, state in enumerate(states_of(version))
]
FORKED = [pytest.param(version, marks=pytest.mark.nightly, id=version) for version in WITH_FORKS]


@dataclass(frozen=True)
class Results:
    """The results of all states of a version."""

    written: dict[str, salvage_states.Acknowledged]
    left: dict[str, salvage_states.LeftBatches]
    strict: Salvaged
    """Without --allow-gaps."""
    salvaged: Salvaged
    forks: dict[str, Salvaged]
    """Topics whose sides conflict, by their name in this cluster, salvaged with broker 2 preferred."""
    recovered: list[RecoveredRecord]
    """Records of `audit` and the like that broker 2 lacks."""
    outputs: dict[str, Path]
    """Topic → directory of its salvage."""
    said: dict[int, bytes]
    served: dict[str, dict[str, list[tuple[int, bytes | None]]]]
    """Isolation level → topic → (offset, value) of each record, in the order of delivery."""
    watermarks: dict[str, tuple[int, int]]
    log_dirs: dict[int, Path]


class ResultsByVersion:
    """Plays each version's states once, on the first request."""

    def __init__(self, factory: pytest.TempPathFactory, *, is_nightly: bool) -> None:
        self._factory, self._is_nightly = factory, is_nightly
        self._started: set[str] = set()
        self._results: dict[str, Results] = {}

    def of(self, version: str) -> Results:
        if version not in self._started:
            self._started.add(version)
            states = states_of(version) if self._is_nightly else states_of(version)[:EVERY_RUN]
            with_forks = self._is_nightly and version in WITH_FORKS
            self._results[version] = play_states(version, states, self._factory.mktemp(f"states-{version}"), with_forks=with_forks)
        assert version in self._results, "its states could not be played, as an earlier test says"
        return self._results[version]


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ResultsByVersion:
    return ResultsByVersion(tmp_path_factory, is_nightly=bool(request.config.getoption("--nightly")))


def first_of(output: Path, topic: str) -> Path:
    """The directory of a partition in a salvage, of the first broker that has it."""
    return min(output.glob(f"broker-*/*/{topic}-0"))


def play_states(version: str, states: Sequence[salvage_states.State], root: Path, *, with_forks: bool) -> Results:
    with version_cluster(root / "nodes", VERSIONS[version], settings=salvage_states.BROKER_SETTINGS) as cluster:
        written = salvage_states.play(cluster, states)
        if with_forks:
            for topic in OF_SAMPLES:
                cluster.create_topic(f"sample-{topic}", settings={"retention.ms": "-1"})  # the samples' records would expire
            lose_audit(cluster, COMPACTED)
        copies = root / "copies"
        salvage_states.copy_killed(cluster, copies)
        left = salvage_states.harm(copies, states)
        strict = salvage([str(copies)], root / "strict", ScanOptions(), SalvageOptions())
        salvaged = salvage([str(copies)], root / "out", ScanOptions(), SalvageOptions(allow_gaps=True))
        salvages: dict[Path, dict[str, str]] = {root / "out": {}}
        outputs = {state.name: first_of(root / "out", state.name) for state in states}
        forks: dict[str, Salvaged] = {}
        recovered: list[RecoveredRecord] = []
        if with_forks:
            given = {
                "audit": copies,
                **dict.fromkeys(COMPACTED, copies),
                **{f"sample-{topic}": SAMPLES / name for topic, name in OF_SAMPLES.items()},
            }
            for name, paths in given.items():
                topic, output = name.removeprefix("sample-"), root / f"out-{name}"
                forks[name] = salvage([str(paths)], output, ScanOptions(topic), SalvageOptions("2"))
                salvages[output] = {} if name == topic else {topic: name}
                outputs[name] = first_of(output, topic)
                for made in (root / "out").glob(f"broker-*/*/{name}-0"):
                    shutil.rmtree(made)  # this cluster's topics of samples are empty
            recover([str(copies)], ScanOptions("audit*"), "2", recovered.append)
        put_on(cluster, salvages)
        start(cluster)
        ends = {(row.topic, 0): (row.log_start_offset, row.log_end_offset) for row in salvaged.partitions if row.topic in written}
        ends |= {(topic, 0): (0, row.log_end_offset) for topic, fork in forks.items() for row in fork.partitions}
        wait_for_watermarks(cluster, ends)
        starts = {place: log_start for place, (log_start, _) in ends.items()}
        found = {
            isolation: {
                topic: [(offset, value) for offset, _, value in records]
                for (topic, _), records in read(cluster, starts, isolation).items()
            }
            for isolation in ("read_uncommitted", "read_committed")
        }
        marks = {topic: ends for (topic, _), ends in watermarks(cluster, starts).items()}
        said = {broker: cluster.server(broker).output.read_bytes() for broker in cluster.brokers}
        cluster.stop()
        log_dirs = {broker: cluster.log_dir(broker) for broker in cluster.brokers}
        return Results(written, left, strict, salvaged, forks, recovered, outputs, said, found, marks, log_dirs)


def partition_result(salvaged: Salvaged, topic: str) -> SalvagedPartition | Refused:
    rows: list[SalvagedPartition | Refused] = [*salvaged.partitions, *salvaged.refused]
    (found,) = [row for row in rows if row.topic == topic]
    return found


@pytest.mark.parametrize(("version", "state"), PAIRS)
def test_records_on_some_copy_are_served_once_in_order(
    results: ResultsByVersion, version: str, state: salvage_states.State
) -> None:
    played = results.of(version)
    written, left = played.written[state.name], played.left[state.name]
    on_some_copy = {
        offset: record for offset, record in sorted(written.records.items()) if offset >= written.start and left.has(offset)
    }
    expected = [(offset, value) for offset, (value, _) in on_some_copy.items()]
    assert played.served["read_uncommitted"][state.name] == expected
    stable = min((offset for offset, (_, fate) in written.records.items() if fate == salvage_states.OPEN), default=left.end)
    assert played.served["read_committed"][state.name] == [
        (offset, value)
        for offset, (value, fate) in on_some_copy.items()
        if fate not in (salvage_states.ABORTED, salvage_states.OPEN) and offset < stable
    ]
    assert played.watermarks[state.name] == (written.start, left.end)
    if state.outcome != salvage_states.GAPS:
        assert len(on_some_copy) == sum(offset >= written.start for offset in written.records)


@pytest.mark.parametrize(("version", "state"), PAIRS)
def test_records_on_no_copy_are_refused_and_reported(results: ResultsByVersion, version: str, state: salvage_states.State) -> None:
    played = results.of(version)
    written, left = played.written[state.name], played.left[state.name]
    strict, salvaged = partition_result(played.strict, state.name), partition_result(played.salvaged, state.name)
    assert isinstance(salvaged, SalvagedPartition)
    lost = sorted(offset for offset in written.records if offset >= written.start and not left.has(offset))
    assert [offset for gap in salvaged.gaps for offset in range(gap.start, cast("int", gap.end))] == lost
    assert (salvaged.log_start_offset, salvaged.log_end_offset) == (written.start, left.end)
    # other versions show the policy only after the cleaner ran
    is_compacted = state.write is salvage_states.write_compacted and version in DAILY
    if state.outcome == salvage_states.GAPS:
        assert isinstance(strict, Refused)
        assert strict.kind == ("compacted" if is_compacted else "gaps")
        assert lost
    else:
        assert isinstance(strict, SalvagedPartition)
        assert not lost
    if is_compacted:
        assert len(salvaged.brokers) == 1


VERSIONS_PLAYED = [
    pytest.param(version, marks=[] if version in DAILY else [pytest.mark.nightly], id=version) for version in (*DAILY, "1.1.1")
]


@pytest.mark.parametrize("version", VERSIONS_PLAYED)
def test_recovery_ran_and_truncated_nothing(results: ResultsByVersion, version: str) -> None:
    played = results.of(version)
    for broker, said in played.said.items():
        lines = said.splitlines()
        assert any(b"Recovering" in line for line in lines), broker
        for words in (b"Truncating to", b"Corrupt", b"invalid messages", b"Non-monotonic"):
            assert [line for line in lines if words in line and b"has no effect" not in line] == [], broker
    compared = 0
    for topic, output in played.outputs.items():
        for broker, log_dir in played.log_dirs.items():
            for path in output.glob("*.log"):
                compared += 1
                assert (log_dir / f"{topic}-0" / path.name).read_bytes().startswith(path.read_bytes()), (broker, topic)
    assert compared >= 3 * EVERY_RUN


@pytest.mark.parametrize(("topic", "kind"), [("audit", "rivals"), *((topic, "compacted") for topic in COMPACTED)])
@pytest.mark.parametrize("version", FORKED)
def test_the_losing_side_of_a_fork_is_recovered(results: ResultsByVersion, version: str, topic: str, kind: str) -> None:
    """Served and recovered records together are the acknowledged ones, each once."""
    played = results.of(version)
    refused = partition_result(played.strict, topic)
    assert isinstance(refused, Refused)
    assert (refused.kind, "--prefer-broker" in str(refused.hint)) == (kind, True)
    salvaged = partition_result(played.forks[topic], topic)
    assert isinstance(salvaged, SalvagedPartition)
    assert (salvaged.base_broker, salvaged.chosen_by) == (2, "prefer_broker")
    on_kept = [offset for offset, _ in played.served["read_uncommitted"][topic]]
    assert on_kept == [*range(played.watermarks[topic][1])] == [*range(COMMON_END + ALONE)]
    lost = [row.record.offset for row in played.recovered if row.topic == topic]
    assert lost == [*range(COMMON_END, COMMON_END + AFTERWARDS)]
    assert {left.broker for left in salvaged.left_behind} == {1}


@pytest.mark.parametrize("version", FORKED)
def test_the_samples_are_served_by_another_cluster(results: ResultsByVersion, version: str) -> None:
    played = results.of(version)
    for topic, sample in OF_SAMPLES.items():
        log = SAMPLES / sample / "broker-2" / f"{topic}-0" / segment_file(0)
        expected = [(record.offset, record.value) for batch in batches(log.read_bytes()) for record in batch.records]
        assert played.served["read_committed"][f"sample-{topic}"] == expected
