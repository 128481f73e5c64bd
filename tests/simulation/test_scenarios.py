"""Every scenario, written as log directories: scan finds what the simulator knows and nothing else, plan names the same losses."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Finding
from kafka_forensics.questions.plan import PlanOptions, Plans, make_plans
from kafka_forensics.simulation.actions import checkpoint_high_watermarks
from kafka_forensics.simulation.cluster import Cluster, Truncating
from kafka_forensics.simulation.history import Expected, History
from kafka_forensics.simulation.materialise import materialise
from kafka_forensics.simulation.scenarios import SCENARIOS, play
from kafka_forensics.simulation.truth import acknowledged, elections, forks, lost, not_read, truth

PLAYED = [(scenario.name, protocol) for scenario in SCENARIOS.values() for protocol in scenario.protocols]
T = ("t", 0)


def plans_of(history: History, folder: Path) -> Plans:
    """A scan and a plan of the end of a history."""
    paths = materialise(history.cluster, folder, history.coordinator)
    return make_plans([str(path) for path in paths], ScanOptions(jobs=1), PlanOptions())


def told(finding: Finding) -> Expected:
    """A finding in the simulator's words."""
    place, held = finding.place, finding.evidence.get("held_by")
    holders = None if held is None else tuple(held)
    assert place.broker is None or isinstance(place.broker, int)
    return Expected(
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
def test_scan_and_plan_find_what_the_simulator_knows(name: str, protocol: Truncating, tmp_path: Path) -> None:
    history = play(name, protocol)
    plans = plans_of(history, tmp_path)
    assert plans.result is not None
    assert not plans.result.incomplete
    findings = [told(finding) for finding in plans.result.findings if finding.kind != "INCIDENT_SIGNATURE"]
    assert sorted(findings, key=repr) == sorted(history.expected, key=repr)
    for planned in plans.planned:
        ours = {
            outcome.leader: {truncation.broker: (truncation.truncation_offset, truncation.lost) for truncation in outcome.followers}
            for outcome in elections(history.cluster, (planned.plan.topic, planned.plan.partition))
        }
        theirs = {
            candidate.broker: {
                follower_plan.broker: (follower_plan.truncation_offset, follower_plan.lost) for follower_plan in candidate.followers
            }
            for candidate in planned.plan.candidates
        }
        assert theirs == ours
    costly = {where for where in history.cluster.partitions if any(each.lost for each in of_all(history, where))}
    assert costly <= {(one.plan.topic, one.plan.partition) for one in plans.planned}


def of_all(history: History, where: tuple[str, int]) -> list[Any]:
    """What every follower does in every election."""
    return [truncation for outcome in elections(history.cluster, where) for truncation in outcome.followers]


@pytest.mark.parametrize(("name", "protocol"), PLAYED)
def test_an_expected_loss_is_where_the_records_are(name: str, protocol: Truncating) -> None:
    """What a scenario says a scan must find is held to the records themselves."""
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
            gone = partition.replicas[holder].ids[expected.offset_start : expected.offset_end]
            assert gone
            assert set(gone) <= not_read(history)


@pytest.mark.parametrize(("name", "protocol"), PLAYED)
def test_a_history_is_the_same_every_time(name: str, protocol: Truncating, tmp_path: Path) -> None:
    documents = []
    for number in range(2):
        history, folder = play(name, protocol), tmp_path / str(number)
        folder.mkdir()
        materialise(history.cluster, folder, history.coordinator)
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        documents.append((json.dumps(truth(history, name)), files))
    assert documents[0] == documents[1]


@pytest.mark.parametrize("name", ["hw-lag-loss", "hw-lag-divergence"])
def test_the_classic_cases_part_under_watermarks_and_not_under_epochs(name: str) -> None:
    assert forks(play(name, "truncate-to-hw").cluster.partitions[T]) == {(1, 2): 1}
    for protocol in SCENARIOS[name].protocols[1:]:
        assert forks(play(name, protocol).cluster.partitions[T]) == {}


def test_watermarks_lose_an_acknowledged_record_and_epochs_keep_it() -> None:
    assert not_read(play("hw-lag-loss", "truncate-to-hw")) == {1}
    assert not_read(play("hw-lag-loss", "kip-320")) == lost(play("hw-lag-loss", "kip-320").cluster) == set()


def test_fast_leader_changes_part_logs_under_kip_101_only() -> None:
    parted = {protocol: forks(play("fast-leader-changes", protocol).cluster.partitions[T]) for protocol in PROTOCOLS_OF_FAST}
    assert parted == {"kip-101": {(1, 2): 1}, "kip-279": {}, "kip-320": {}}


PROTOCOLS_OF_FAST = SCENARIOS["fast-leader-changes"].protocols

READ = {
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
"""What read_uncommitted and read_committed read of each partition at the end."""


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_is_read_at_the_end(name: str) -> None:
    found = [(list(reading.read_uncommitted or ()), list(reading.read_committed or ())) for reading in play(name).readings]
    assert found == READ[name]


def test_what_is_lost_everywhere() -> None:
    gone = {name: lost(play(name).cluster) for name in SCENARIOS}
    assert {name: ids for name, ids in gone.items() if ids} == {"txn-partly-lost": {3}}
    assert lost(play("hw-lag-divergence", "kip-320").cluster) == {1}


def test_acks_0_is_no_acknowledgement() -> None:
    history = play("slow-follower")
    partition = history.cluster.partitions[T]
    before = acknowledged(history.cluster)
    assert history.produce(partition, acks=0).answer == "acknowledged"
    assert acknowledged(history.cluster) == before


def test_a_protocol_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError, match="txn-torn is not played under kip-101"):
        play("txn-torn", "kip-101")


def test_scenarios_are_told_with_a_sentence_and_teach_something() -> None:
    for name, scenario in SCENARIOS.items():
        assert scenario.sentence.endswith(".")
        history = play(name)
        assert history.remarks
        assert [event.step for event in history.events] == list(range(1, len(history.events) + 1))


def test_the_election_is_one_after_the_last_epoch_of_those_who_hold_what_was_lost(tmp_path: Path) -> None:
    """Broker 2 takes over uncleanly from broker 1, and broker 1 from broker 2, whose committed record then is lost."""
    cluster = Cluster((1, 2))
    history = History(cluster)
    partition = history.create("t")
    history.shrink(partition, [2])
    history.produce(partition, acks=1)
    history.kill(1)
    history.elect(partition, unclean=True)
    history.produce(partition)
    checkpoint_high_watermarks(cluster, 2)
    history.kill(2)
    history.start(1)
    history.elect(partition, unclean=True)
    history.shut_down()
    assert [(change.leader_epoch, change.leader) for change in cluster.changes if change.elected] == [
        (0, 1),
        (1, -1),
        (2, 2),
        (3, -1),
        (4, 1),
    ]
    scan_result = make_plans([str(path) for path in materialise(cluster, tmp_path)], ScanOptions(jobs=1), PlanOptions()).result
    assert scan_result is not None
    (loss,) = [finding for finding in scan_result.findings if finding.kind == "UNCLEAN_LOSS"]
    assert (loss.place.offset_start, loss.place.offset_end, loss.evidence["held_by"]) == (0, 1, [2])
    told = {name: loss.evidence["election"][name] for name in ("old_leader", "new_leader", "leader_epoch", "unclean")}
    assert told == {"old_leader": 2, "new_leader": 1, "leader_epoch": 4, "unclean": True}


PAGE = (Path(__file__).resolve().parents[2] / "docs" / "simulate.md").read_text()


def test_every_scenario_is_listed() -> None:
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| ((?:`[a-z0-9-]+`(?:, )?)+) \| (.*) \|$", PAGE, re.MULTILINE)
    told = {name: (protocols.replace("`", "").split(", "), sentence) for name, protocols, sentence in rows}
    assert told == {scenario.name: (list(scenario.protocols), scenario.sentence) for scenario in SCENARIOS.values()}
