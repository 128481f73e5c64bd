"""Every scenario as log directories: a scan gives exactly the expected findings, and a plan the same losses."""

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Finding
from kafka_forensics.questions.plan import PlanOptions, Plans, make_plans
from kafka_forensics.simulation.cluster import TruncationProtocol
from kafka_forensics.simulation.history import ExpectedFinding, History
from kafka_forensics.simulation.materialise import materialise
from kafka_forensics.simulation.scenarios import SCENARIOS, play
from kafka_forensics.simulation.truth import acknowledged, elections, forks, lost, not_read, truth

PLAYED = [(scenario.name, protocol) for scenario in SCENARIOS.values() for protocol in scenario.protocols]
T = ("t", 0)


def plans_of(history: History, folder: Path) -> Plans:
    """Scan and plan of the final state of a history."""
    paths = materialise(history.cluster, folder, history.coordinator)
    return make_plans([str(path) for path in paths], ScanOptions(jobs=1), PlanOptions())


def expected_of(finding: Finding) -> ExpectedFinding:
    """A finding as an ExpectedFinding."""
    place, held_by = finding.place, finding.evidence.get("held_by")
    holders = None if held_by is None else tuple(held_by)
    assert place.broker is None or isinstance(place.broker, int)
    return ExpectedFinding(
        finding.kind,
        finding.severity.value,
        str(place.topic),
        place.partition,
        place.broker,
        place.offset_start,
        place.offset_end,
        holders,
    )


@pytest.mark.parametrize(("name", "protocol"), PLAYED)
def test_scan_and_plan_agree_with_the_simulator(name: str, protocol: TruncationProtocol, tmp_path: Path) -> None:
    history = play(name, protocol)
    plans = plans_of(history, tmp_path)
    assert plans.result is not None
    assert not plans.result.incomplete
    findings = [expected_of(finding) for finding in plans.result.findings if finding.kind != "INCIDENT_SIGNATURE"]
    assert sorted(findings, key=repr) == sorted(history.expected, key=repr)
    for planned in plans.planned:
        simulated = {
            outcome.leader: {truncation.broker: (truncation.truncation_offset, truncation.lost) for truncation in outcome.followers}
            for outcome in elections(history.cluster, (planned.plan.topic, planned.plan.partition))
        }
        planned_cuts = {
            candidate.broker: {
                follower_plan.broker: (follower_plan.truncation_offset, follower_plan.lost) for follower_plan in candidate.followers
            }
            for candidate in planned.plan.candidates
        }
        assert planned_cuts == simulated
    costly = {
        topic_partition
        for topic_partition in history.cluster.partitions
        if any(truncation.lost for truncation in all_truncations(history, topic_partition))
    }
    assert costly <= {(planned.plan.topic, planned.plan.partition) for planned in plans.planned}


def all_truncations(history: History, topic_partition: tuple[str, int]) -> list[Any]:
    """The truncation of every follower in every election."""
    return [truncation for outcome in elections(history.cluster, topic_partition) for truncation in outcome.followers]


@pytest.mark.parametrize(("name", "protocol"), PLAYED)
def test_expected_losses_agree_with_record_ids(name: str, protocol: TruncationProtocol) -> None:
    history = play(name, protocol)
    for expected in history.expected:
        if expected.kind in ("UNCLEAN_LOSS", "LRS_LOSS", "FORK_BELOW_HW", "FORK_ABOVE_HW"):
            assert expected.partition is not None
            partition = history.cluster.partitions[expected.topic, expected.partition]
            assert min(forks(partition).values()) == expected.offset_start
        if expected.kind in ("UNCLEAN_LOSS", "LRS_LOSS"):
            assert expected.held_by is not None
            (holder,) = expected.held_by
            assert expected.offset_start is not None
            lost_ids = partition.replicas[holder].ids[expected.offset_start : expected.offset_end]
            assert lost_ids
            assert set(lost_ids) <= not_read(history)


@pytest.mark.parametrize(("name", "protocol"), PLAYED)
def test_a_scenario_always_gives_the_same_files(name: str, protocol: TruncationProtocol, tmp_path: Path) -> None:
    documents = []
    for number in range(2):
        history, folder = play(name, protocol), tmp_path / str(number)
        folder.mkdir()
        materialise(history.cluster, folder, history.coordinator)
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        documents.append((json.dumps(truth(history, name)), files))
    assert documents[0] == documents[1]


@pytest.mark.parametrize("name", ["hw-lag-loss", "hw-lag-divergence"])
def test_the_classic_cases_fork_under_high_watermarks_and_not_under_epochs(name: str) -> None:
    assert forks(play(name, "truncate-to-hw").cluster.partitions[T]) == {(1, 2): 1}
    for protocol in SCENARIOS[name].protocols[1:]:
        assert forks(play(name, protocol).cluster.partitions[T]) == {}


def test_fast_leader_changes_fork_logs_under_kip_101_only() -> None:
    histories = {protocol: play("fast-leader-changes", protocol) for protocol in FAST_LEADER_CHANGE_PROTOCOLS}
    offsets_of_forks = {protocol: forks(history.cluster.partitions[T]) for protocol, history in histories.items()}
    assert offsets_of_forks == {"kip-101": {(1, 2): 1}, "kip-279": {}, "kip-320": {}}


FAST_LEADER_CHANGE_PROTOCOLS = SCENARIOS["fast-leader-changes"].protocols

READ_AT_THE_END = {
    "hw-lag-loss": [([0, 2], [0, 2])],
    "hw-lag-divergence": [([0, 2], [0, 2])],
    "fast-leader-changes": [([0, 1, 3], [0, 1, 3])],
    "unclean-election": [([0, 1, 4], [0, 1, 4])],
    "last-replica-standing": [([0, 2], [0, 2])],
    "acks1-leader-failure": [([0, 2], [0, 2])],
    "retry-without-idempotence": [([0, 1, 1], [0, 1, 1])],
    "retry-with-idempotence": [([0, 1, 2], [0, 1, 2])],
    "slow-follower": [([0, 1, 2], [0, 1, 2])],
    "txn-committed": [([0], [0]), ([1], [1])],
    "txn-aborted": [([0, 2], [2]), ([1], [])],
    "txn-hanging": [([0, 1, 2], []), ([], [])],
    "txn-torn": [([0, 1, 2, 4], [0, 1]), ([3], [])],
    "fenced-zombie": [([0], []), ([2], [2])],
    "txn-partly-lost": [([0, 2], [0, 2]), ([1], [1])],
    "txn-marker-lost": [([0, 2], [0, 2]), ([1, 3], [])],
}
"""Scenario → (ids for read_uncommitted, ids for read_committed) of each partition at the end."""


@pytest.mark.parametrize("name", SCENARIOS)
def test_consumers_read_the_expected_records_at_the_end(name: str) -> None:
    found = [(list(reading.read_uncommitted or ()), list(reading.read_committed or ())) for reading in play(name).consumed]
    assert found == READ_AT_THE_END[name]


def test_records_that_no_log_has_are_lost() -> None:
    lost_ids = {name: lost(play(name).cluster) for name in SCENARIOS}
    assert {name: ids for name, ids in lost_ids.items() if ids} == {"txn-partly-lost": {3}}
    assert lost(play("hw-lag-divergence", "kip-320").cluster) == {1}


def test_responses_with_acks_0_do_not_count_as_acknowledged() -> None:
    history = play("slow-follower")
    partition = history.cluster.partitions[T]
    before = acknowledged(history.cluster)
    assert history.produce(partition, acks=0).response == "acknowledged"
    assert acknowledged(history.cluster) == before


def test_a_protocol_that_a_scenario_does_not_support_is_refused() -> None:
    with pytest.raises(UsageError, match="txn-torn does not support kip-101"):
        play("txn-torn", "kip-101")
