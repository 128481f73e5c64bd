"""Tiered topics of real brokers: sound copies give no alarms, salvages keep the remote log, and elections lose what `plan` says."""

import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from kafka_forensics.evidence.ledger import CopyExtent
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.constants import REMOTE_LOG_METADATA_TOPIC
from kafka_forensics.model.findings import Severity
from kafka_forensics.questions.plan import PlanOptions, make_plans
from kafka_forensics.questions.recover import recover
from kafka_forensics.questions.salvage import SalvageOptions, salvage
from kafka_forensics.scanning.engine import local
from lab.jvm import wait_until
from lab.salvage_states import Acknowledged, go_on, values
from lab.salvaged_start import put_in_place, put_on
from lab.tiered import (
    ALONE,
    BEHIND,
    COMMON,
    EXPIRING,
    FAR_BEHIND,
    LEADER,
    REMOTE_TOPICS,
    STAYING_SECONDS,
    STORE,
    UNCLEAN_TOPICS,
    WITHOUT_ONE,
    WRITTEN_ON,
    State,
    TieredCluster,
    TieredHistory,
    Truth,
    tiered_jars,
    without_controllers_log,
    without_topics,
)
from lab.unclean_election import fully_replicated
from lab.version_workload import Contents, Place, lost, read_everything, spans
from lab.versions import SinceKafka4
from lab.workload import Writer

if TYPE_CHECKING:
    from kafka_forensics.model.recovered import RecoveredRecord

pytestmark = [pytest.mark.broker, pytest.mark.nightly, pytest.mark.timeout(1200)]

SILENT = ("running", "live-0", "live-1", "live-2", "killed", "stopped", "rebuilt")
LOST = {
    BEHIND: range(COMMON + WITHOUT_ONE, COMMON + WITHOUT_ONE + ALONE),
    FAR_BEHIND: range(COMMON, COMMON + WITHOUT_ONE + ALONE),
}
"""Leader elected uncleanly → acknowledged offsets of each topic that its log lacks."""


class Started(NamedTuple):
    """What brokers have and serve a while after a start."""

    left: set[str]
    missing: Contents
    earliest: dict[Place, int]


@dataclass(frozen=True)
class Lab:
    """A cluster whose nodes are all stopped, and the states of its disks."""

    history: TieredHistory
    states: dict[str, State]
    gone: dict[int, Contents]
    """Leader elected uncleanly → acknowledged records that readers no longer get."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    root = tmp_path_factory.mktemp("tiered")
    with TieredCluster(root / "nodes") as cluster:
        history = TieredHistory(cluster, root)
        states = history.silent_states()
        history.start()
        isolated = history.isolate()
        far_behind = history.elect(FAR_BEHIND, isolated)
        cluster.stop()
        history.restore(isolated)
        unclean = history.lose(isolated)
        states += [isolated, unclean]
        yield Lab(history, {state.name: state for state in states}, {BEHIND: unclean.lost, FAR_BEHIND: far_behind})


def test_the_states_are_as_intended(lab: Lab) -> None:
    stopped = lab.states["stopped"].truth.offsets
    earliest, local_starts, latest = (stopped[wanted] for wanted in ("earliest", "earliest-local", "latest"))
    assert (earliest["drained", 0], local_starts["drained", 0]) == (0, latest["drained", 0])
    assert 0 == earliest["partly", 0] < local_starts["partly", 0] < latest["partly", 0]
    assert 0 < earliest["trimmed", 0] < local_starts["trimmed", 0]
    assert earliest["late", 0] == 0 < local_starts["late", 0]
    assert earliest[EXPIRING, 0] > 0
    assert local_starts["flat", 0] == 0
    assert ("deleted", 0) not in latest
    assert {name.partition("/")[0][:-23] for name in lab.states["stopped"].truth.objects}.isdisjoint(
        {"off-0", "deleted-0", "flat-0"}
    )
    tiered = lab.states["isolated"].truth.offsets["latest-tiered"]
    assert COMMON + WITHOUT_ONE < tiered["lag", 0] + 1 < tiered["aud", 0] + 1 == COMMON + WITHOUT_ONE + ALONE
    for leader, gone in lab.gone.items():
        assert {place: list(records) for place, records in gone.items()} == {
            (topic, 0): list(LOST[leader]) for topic in UNCLEAN_TOPICS
        }


@pytest.mark.parametrize("with_store", [False, True], ids=["no store", "store"])
@pytest.mark.parametrize("name", SILENT)
def test_a_sound_copy_has_only_info(lab: Lab, name: str, with_store: bool) -> None:
    """Deep, with the store: every object is read."""
    state = lab.states[name]
    paths = [*state.log_dirs, *([state.folder / STORE] if with_store else [])]
    result = local.scan(list(map(str, paths)), ScanOptions(jobs=1, live=state.live, deep=with_store or None))
    said = [
        (finding.kind, finding.place.topic, finding.place.broker, finding.evidence)
        for finding in result.findings
        if finding.severity is not Severity.INFO
    ]
    assert said == []
    assert result.incomplete == []


@pytest.mark.parametrize("with_controllers_log", [True, False], ids=["controllers' log", "no controllers' log"])
@pytest.mark.parametrize("name", ["stopped", "killed"])
def test_the_remote_log_survives_a_start_on_a_salvage(lab: Lab, name: str, tmp_path: Path, with_controllers_log: bool) -> None:
    history, state = lab.history, lab.states[name]
    paths = state.log_dirs if with_controllers_log else without_controllers_log(state, tmp_path / "copies")
    salvaged = salvage(list(map(str, paths)), tmp_path / "out", ScanOptions(), SalvageOptions())
    assert {refused.topic for refused in salvaged.refused} <= {"__cluster_metadata"}
    left, missing, offsets = started_on(history, state, tmp_path / "out")
    assert not_expired(state.truth.objects) - left == set()
    assert {place: spans(records) for place, records in missing.items()} == {}
    starts = dict(lab.states["running"].truth.offsets["earliest"])
    for before in (starts, offsets):
        del before[EXPIRING, 0]
    assert offsets == starts


def started_on(history: TieredHistory, state: State, salvaged: Path, *, writing: bool = False) -> Started:
    """Start all nodes of a state on a salvage, let them run, and read everything; with `writing` after further records."""
    history.restore(state)
    put_in_place(history.cluster, salvaged)
    try:
        history.start()
        time.sleep(STAYING_SECONDS)
        left = set(history.cluster.objects())
        missing = history.missing(state.truth)
        offsets = history.cluster.offsets("earliest")
        if writing:
            further = {(topic, 0): Acknowledged() for topic in WRITTEN_ON}
            for (topic, _), written in further.items():
                go_on(history.cluster, topic, written, 5000, 5060)
            history.cluster.await_quiet()
            left &= set(history.cluster.objects())
            acknowledged = {place: {offset: value for offset, (value, _) in row.records.items()} for place, row in further.items()}
            assert history.missing(Truth(acknowledged, {}, ())) == {}
            assert history.missing(state.truth) == missing
    finally:
        history.cluster.stop()
        shutil.rmtree(salvaged)
    return Started(left, missing, offsets)


def not_expired(objects: Iterable[str]) -> set[str]:
    """The objects but those of the topic whose retention may delete any of them."""
    return {name for name in objects if not name.startswith(f"{EXPIRING}-")}


GONE = {
    "one local log": ("drained",),
    "all local logs": REMOTE_TOPICS,
    "metadata": (REMOTE_LOG_METADATA_TOPIC,),
    "local logs and metadata": (*REMOTE_TOPICS, REMOTE_LOG_METADATA_TOPIC),
}
"""What is gone on all brokers."""


@pytest.mark.parametrize("gone", GONE.values(), ids=GONE)
def test_a_salvage_restores_what_only_the_store_has(lab: Lab, gone: tuple[str, ...], tmp_path: Path) -> None:
    state = lab.states["stopped"]
    paths = without_topics(state, tmp_path / "copies", gone)
    allow_gaps = "partly" in gone
    salvaged = salvage(
        list(map(str, paths)), tmp_path / "out", ScanOptions(copied=CopyExtent.WHOLE), SalvageOptions(allow_gaps=allow_gaps)
    )
    assert salvaged.refused == salvaged.started_empty == []
    assert files_of(tmp_path / "copies" / STORE) == files_of(state.folder / STORE)
    gaps = {partition.key: [(gap.start, gap.end) for gap in partition.gaps] for partition in salvaged.partitions}
    tiered_ends = {place: end + 1 for place, end in state.truth.offsets["latest-tiered"].items()}
    latest = state.truth.offsets["latest"]
    assert {place: rows for place, rows in gaps.items() if rows and place in tiered_ends} == {
        place: [(end, latest[place])] for place, end in tiered_ends.items() if allow_gaps and end < latest[place]
    }
    left, missing, _ = started_on(lab.history, state, tmp_path / "out", writing=True)
    assert not_expired(state.truth.objects) - left == set()
    assert {place: [offset for offset in records if not within(gaps[place], offset)] for place, records in missing.items()} == {
        place: [] for place in missing
    }


def files_of(folder: Path) -> dict[str, bytes]:
    """The files below a folder by their paths in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def within(ranges: Iterable[tuple[int, int | None]], offset: int) -> bool:
    """Whether an offset is in one of the ranges."""
    return any(start <= offset and (end is None or offset < end) for start, end in ranges)


@pytest.mark.parametrize("gone", [(), REMOTE_TOPICS], ids=["all copies", "no local logs"])
def test_brokers_without_remote_storage_serve_the_records_of_the_store(lab: Lab, gone: tuple[str, ...], tmp_path: Path) -> None:
    state = lab.states["stopped"]
    paths = without_topics(state, tmp_path / "copies", gone)
    options = SalvageOptions(allow_gaps=bool(gone), from_store=True)
    salvaged = salvage(list(map(str, paths)), tmp_path / "out", ScanOptions(copied=CopyExtent.WHOLE), options)
    assert salvaged.refused == []
    gaps = {partition.key: [(gap.start, gap.end) for gap in partition.gaps] for partition in salvaged.partitions}
    topics = [topic for topic, _ in state.truth.acknowledged]
    for path in [*(tmp_path / "out").glob("broker-*/*/*-[0-9]*")]:
        if path.name.rpartition("-")[0] not in topics:
            shutil.rmtree(path)
    with SinceKafka4(tmp_path / "plain", 3, version_jars=tiered_jars()) as cluster:
        for topic in topics:
            cluster.create_topic(topic)
        cluster.stop(*cluster.brokers)
        put_on(cluster, {tmp_path / "out": {topic: topic for topic in topics}})
        cluster.start(*cluster.brokers)
        wait_until("all replicas are in sync", lambda: fully_replicated(cluster), timeout_seconds=90, step_seconds=1.0)
        writer = Writer(cluster)  # an idempotent one may get the id of a producer of the other cluster
        for topic in topics:  # consumers wait at a gap until a record follows it
            written = Acknowledged()
            written.batch(writer, topic, values(topic, 5000, 10))
            assert min(written.records) >= state.truth.offsets["latest"][topic, 0]
        missing = lost(state.truth.acknowledged, read_everything(cluster, state.truth.acknowledged))
    assert {place: [offset for offset in offsets if not within(gaps[place], offset)] for place, offsets in missing.items()} == {
        place: [] for place in missing
    }


def copied(state: State, *, all_copies: bool) -> list[str]:
    """Log directories of all nodes, or of all but the old leader."""
    return [str(path) for path in state.log_dirs if all_copies or path.name != f"broker-{LEADER}"]


def provably_lost(lab: Lab, topic: str, leader: int, *, all_copies: bool) -> list[tuple[int, int]]:
    """Ranges that an election of this leader lost, as far as the copies prove that they were committed: without the old leader's
    copy only by `__remote_log_metadata`."""
    tiered_end = lab.states["isolated"].truth.offsets["latest-tiered"][topic, 0] + 1
    return spans(offset for offset in lab.gone[leader][topic, 0] if all_copies or offset < tiered_end)


def promised(paths: list[str], topic: str, leader: int, options: PlanOptions) -> set[int]:
    """The offsets that the plan says are lost if this broker leads."""
    (planned,) = make_plans(paths, ScanOptions(topic), options).planned
    candidate = planned.candidate(leader)
    assert candidate is not None
    return {offset for loss in candidate.losses for offset in range(loss.start, loss.end)}


ALL_COPIES = pytest.mark.parametrize("all_copies", [True, False], ids=["all copies", "no copy of the old leader"])


@pytest.mark.parametrize("leader", [BEHIND, FAR_BEHIND])
@pytest.mark.parametrize("topic", UNCLEAN_TOPICS)
@ALL_COPIES
def test_an_election_loses_what_the_plan_forecasts(lab: Lab, all_copies: bool, topic: str, leader: int) -> None:
    paths = copied(lab.states["isolated"], all_copies=all_copies)
    lost = promised(paths, topic, leader, PlanOptions(dead=frozenset({str(LEADER)})))
    assert spans(lost) == provably_lost(lab, topic, leader, all_copies=all_copies)


@pytest.mark.parametrize("topic", UNCLEAN_TOPICS)
@ALL_COPIES
def test_a_scan_after_the_unclean_election_reports_the_loss(lab: Lab, all_copies: bool, topic: str) -> None:
    result = local.scan(copied(lab.states["unclean"], all_copies=all_copies), ScanOptions(topic, jobs=1))
    losses = [finding.place for finding in result.findings if finding.kind == "UNCLEAN_LOSS"]
    ranges = [(place.offset_start, place.offset_end) for place in losses]
    assert ranges == provably_lost(lab, topic, BEHIND, all_copies=all_copies)


def test_lost_records_come_back_from_the_store(lab: Lab) -> None:
    """Those of `aud` are only in the store; they are produced again to brokers with the disks after the unclean election."""
    history, state = lab.history, lab.states["unclean"]
    recovered: dict[Place, dict[int, bytes]] = {}
    for all_copies, topics in ((False, ["aud"]), (True, list(UNCLEAN_TOPICS))):
        for topic, keep in product(topics, (BEHIND, FAR_BEHIND)):
            rows: list[RecoveredRecord] = []
            recover([*copied(state, all_copies=all_copies), str(state.folder / STORE)], ScanOptions(topic), str(keep), rows.append)
            recovered[topic, 0] = {row.record.offset: row.record.value or b"" for row in rows}
            assert recovered[topic, 0] == state.lost[topic, 0]
    history.restore(state)
    try:
        history.start()
        produced = Acknowledged()
        writer, lost_values = Writer(history.cluster, enable_idempotence=True), list(recovered["aud", 0].values())
        for first in range(0, len(lost_values), 10):
            produced.batch(writer, "aud", lost_values[first : first + 10])
        history.cluster.await_quiet()
        acknowledged = {("aud", 0): {offset: value for offset, (value, _) in produced.records.items()}}
        assert history.missing(Truth(acknowledged, {}, ())) == {}
    finally:
        history.cluster.stop()
