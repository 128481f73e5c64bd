"""The stored incidents: scan, plan, recover and salvage find exactly what the clients know."""

import tarfile
from collections import Counter
from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.recovered import RecoveredRecord
from kafka_forensics.model.results import ScanResult
from kafka_forensics.questions.groups import groups
from kafka_forensics.questions.plan import PlanOptions, make_plans
from kafka_forensics.questions.recover import recover
from kafka_forensics.questions.salvage import SalvageOptions, salvage
from kafka_forensics.questions.transactions import transactions
from kafka_forensics.scanning.engine.local import scan
from lab.incidents import INCIDENTS, STORED, archive_of, truth_of, unpack

MOST_BYTES = 300_000


def offsets(result: ScanResult, kind: str) -> dict[tuple[str | None, int | None], tuple[int | None, int | None]]:
    """(topic, partition) → offsets of the findings of a kind."""
    places = [finding.place for finding in result.findings if finding.kind == kind]
    return {(place.topic, place.partition): (place.offset_start, place.offset_end) for place in places}


@pytest.fixture(name="wiped_disk")
def copies_with_a_wiped_disk(tmp_path: Path) -> list[str]:
    """The archive, and an empty directory for its broker with the new disk."""
    (tmp_path / "new-disk").mkdir()
    return [str(archive_of("wiped-disk")), f"{truth_of('wiped-disk')['wiped']}={tmp_path / 'new-disk'}"]


def test_every_incident_is_stored_and_small() -> None:
    assert {path.name for path in STORED.glob("*.xz")} == {f"{name}.tar.xz" for name in INCIDENTS}
    readme = (STORED / "README.md").read_text()
    for name in INCIDENTS:
        assert f"\n## {name}\n" in readme
        assert archive_of(name).stat().st_size <= MOST_BYTES


@pytest.mark.parametrize("name", INCIDENTS)
def test_log_directories_are_whole_and_have_the_names_of_their_nodes(name: str) -> None:
    with tarfile.open(archive_of(name)) as tar:
        names = {member.name for member in tar.getmembers()}
    nodes = {"broker-1", "broker-2", "broker-3", "controller-100"}
    assert {path.split("/")[1] for path in names if "/" in path} == nodes
    has_disk = {node for node in nodes if f"{name}/{node}/meta.properties" in names}
    assert nodes - has_disk == ({"broker-3"} if name == "wiped-disk" else set())
    assert {f"{name}/{node}/__cluster_metadata-0/00000000000000000000.log" for node in has_disk} <= names


def test_scan_and_recover_find_every_record_that_the_unclean_election_lost() -> None:
    truth, records = truth_of("unclean-127"), list[RecoveredRecord]()
    recovery = recover([str(archive_of("unclean-127"))], ScanOptions(), "1", records.append)
    assert recovery.result is not None
    assert sorted(str(summary.broker) for summary in recovery.result.brokers) == ["1", "100", "2", "3"]
    internal = truth["internal_partitions"]
    losing = [row for row in truth["partitions"] if row["lost_records"]] + internal
    ranges = {(row["topic"], row["partition"]): (row["common_end"], row["lost_end"]) for row in losing}
    assert offsets(recovery.result, "UNCLEAN_LOSS") == ranges
    assert {tuple(finding.evidence["held_by"]) for finding in recovery.result.findings if finding.kind == "UNCLEAN_LOSS"} == {
        tuple(truth["lost_are_on"])
    }
    planned = {(lost.topic, lost.partition): lost.planned.records for lost in recovery.partitions}
    assert planned == {(row["topic"], row["partition"]): row["lost_records"] for row in truth["partitions"] if row["lost_records"]}
    assert recovery.left_out == Counter(row["topic"] for row in internal)
    assert len(records) == recovery.count.committed.recovered == truth["totals"]["recoverable_records"]
    assert recovery.count.all.superseded == truth["totals"]["lost_records"] - truth["totals"]["recoverable_records"]


def test_plan_weighs_both_sides_of_the_unclean_election() -> None:
    truth = truth_of("unclean-127")
    plans = make_plans([str(archive_of("unclean-127"))], ScanOptions(topic_glob="[!_]*"), PlanOptions())
    losses = {
        (planned.plan.topic, planned.plan.partition, candidate.broker): planned.total(candidate.losses).records
        for planned in plans.planned
        for candidate in planned.plan.candidates
    }
    for row in truth["partitions"]:
        if row["lost_records"] or row["new_records"]:
            place = row["topic"], row["partition"]
            assert (losses[*place, 1], losses[*place, 2]) == (row["lost_records"], row["new_records"]), place


def test_scan_finds_what_no_copy_has_after_the_power_failure(wiped_disk: list[str]) -> None:
    truth = truth_of("wiped-disk")
    result = scan(wiped_disk, ScanOptions(topic_glob="[!_]*"))
    torn = {(row["topic"], row["partition"]) for row in truth["partitions"] if row["torn_records"]}
    assert set(offsets(result, "SEG_TORN_TAIL")) == torn
    rows = [row for row in truth["partitions"] if row["proven_lost_records"]]
    proven = {(row["topic"], row["partition"]): (row["end"] - row["proven_lost_records"], row["end"]) for row in rows}
    assert offsets(result, "GROUP_OFFSET_BEYOND_LOG") == proven


def test_salvage_takes_committed_records_from_the_torn_copy(wiped_disk: list[str], tmp_path: Path) -> None:
    truth = truth_of("wiped-disk")
    salvaged = salvage(wiped_disk, tmp_path / "out", ScanOptions(topic_glob="[!_]*"), SalvageOptions(allow_gaps=True))
    by_place = {(partition.topic, partition.partition): partition for partition in salvaged.partitions}
    for row in truth["partitions"]:
        partition = by_place.pop((row["topic"], row["partition"]))
        gaps = [(gap.start, gap.end) for gap in partition.gaps]
        assert gaps == ([(row["end"] - row["lost_records"], row["end"])] if row["proven_lost_records"] else [])
        assert partition.log_end_offset == row["end"] - row["lost_records"] + row["proven_lost_records"]
        if row["only_on_torn_copy"]:
            assert truth["torn"] in {part.broker for part in partition.ranges}
    assert (by_place, salvaged.refused) == ({}, [])


def test_transactions_and_groups_show_which_readers_wait() -> None:
    truth, paths = truth_of("stuck-readers"), [str(archive_of("stuck-readers"))]
    answer = transactions(paths, ScanOptions(topic_glob="[!_]*"))
    states = [(row.topic, row.partition, row.state) for row in answer.rows]
    for row in truth["partitions"]:
        topic, partition = row["topic"], row["partition"]
        counts = {state: states.count((topic, partition, state)) for state in ("committed", "aborted", "open", "hanging")}
        assert counts == {
            "committed": row["committed_transactions"],
            "aborted": row["aborted_transactions"],
            "open": row["open_transactions"],
            "hanging": int(row["hanging"]),
        }, row
    stable = {(topic, partition): counts.last_stable_offset for (topic, partition), counts in answer.partitions.items()}
    assert stable == {
        place: row["last_stable_offset"]
        for row in truth["partitions"]
        if (place := (row["topic"], row["partition"])) in answer.partitions
    }
    lags = {(row.group, row.topic, row.partition): row.lag for row in groups(paths, ScanOptions()).rows if row.group}
    wanted = {(row["group"], row["topic"], row["partition"]): row["lag"] for row in truth["groups"]}
    assert {place: lag for place, lag in lags.items() if place in wanted} == wanted


def test_an_incident_is_unpacked_with_settings_of_every_node(tmp_path: Path) -> None:
    cluster = unpack("wiped-disk", tmp_path / "again")
    assert cluster.running() == []
    for node in (*cluster.controllers, *cluster.brokers):
        settings = (tmp_path / "again" / "kafka" / f"node-{node}.properties").read_text().splitlines()
        assert f"log.dirs={cluster.log_dir(node)}" in settings
        assert f"node.id={node}" in settings
        assert cluster.log_dir(node).is_dir()
    assert list(cluster.log_dir(3).iterdir()) == []
