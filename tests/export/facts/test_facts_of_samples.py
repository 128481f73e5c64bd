"""Every fact of the samples against what the scan, the commands and the bytes say of the same."""

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

import kafka_forensics as kf
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.results import ScanResult
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.parsers.checkpoints import parse_leader_epochs, parse_offset_checkpoint
from kafka_forensics.questions.groups import groups
from kafka_forensics.questions.metadata import controller_events
from kafka_forensics.questions.transactions import transactions
from tests.support.memory import MemoryFile
from tests.support.places import SAMPLES

Row = dict[str, Any]


@pytest.fixture(scope="module", params=["healthy", "silent-divergence", "unclean-election"])
def sample(request: pytest.FixtureRequest) -> Path:
    return SAMPLES / str(request.param)


@pytest.fixture(scope="module")
def result(sample: Path) -> ScanResult:
    return kf.scan(str(sample))


def told(result: ScanResult, fact: str) -> list[Row]:
    return result.facts(fact).to_pylist()


def by_replica(rows: list[Row]) -> dict[tuple[str, int, str], list[Row]]:
    found: dict[tuple[str, int, str], list[Row]] = defaultdict(list)
    for row in rows:
        found[row["topic"], row["partition"], row["broker"]].append(row)
    return found


def test_batches_and_records_are_those_of_the_replicas(result: ScanResult) -> None:
    batches, records = by_replica(told(result, "batches")), by_replica(told(result, "records"))
    assert sum(map(len, batches.values())) == result.totals.batches
    for partition in result.partitions:
        for replica in partition.replicas:
            where = partition.topic, partition.partition, str(replica.broker)
            own = batches[where]
            assert (len(own), sum(row["size_in_bytes"] for row in own)) == (replica.batches, replica.bytes)
            assert len(records[where]) == replica.records
            assert max((row["last_offset"] + 1 for row in own), default=replica.log_end_offset) == replica.log_end_offset
            assert {row["offset"] for row in records[where]} <= set(range(replica.log_end_offset or 0))


def test_records_are_those_of_their_files(result: ScanResult) -> None:
    own: dict[str, list[Row]] = defaultdict(list)
    for row in told(result, "records"):
        own[str(Path(row["log_dir"], row["file"]))].append(row)
    assert own
    for path, rows in own.items():
        plain = [row for batch in kf.read_records(path) for row in batch.to_pylist()]
        assert [{name: row[name] for name in plain[0]} for row in rows] == plain


def test_checkpoints_and_epochs_are_the_lines_of_their_files(sample: Path, result: ScanResult) -> None:
    lines = Counter(
        (row["log_dir"], row["file"], row["topic"], row["partition"], row["offset"]) for row in told(result, "checkpoints")
    )
    expected: Counter[tuple[Any, ...]] = Counter()
    for path in sample.glob("*/*-offset-checkpoint"):
        for (topic, partition), offset in parse_offset_checkpoint(MemoryFile(path.read_bytes())).offsets.items():
            expected[str(path.parent), path.name, topic, partition, offset] += 1
    assert lines == expected
    epochs = [(row["log_dir"], row["file"], row["leader_epoch"], row["start_offset"]) for row in told(result, "epoch_entries")]
    files = sorted(sample.glob("*/*/leader-epoch-checkpoint"))
    entries = [
        (str(path.parents[1]), path.relative_to(path.parents[1]).as_posix(), entry.leader_epoch, entry.start_offset)
        for path in files
        for entry in parse_leader_epochs(MemoryFile(path.read_bytes())).entries
    ]
    assert sorted(epochs) == sorted(entries)


def test_control_records_are_the_control_batches(result: ScanResult) -> None:
    controls = told(result, "control_records")
    batches = [row for row in told(result, "batches") if row["control_record_type"] >= 0]
    first = {(row["log_dir"], row["file"], row["position"]): row["control_record_type"] for row in batches}
    read = {(row["log_dir"], row["file"], row["batch_position"]): row["type"] for row in reversed(controls)}
    assert read == first
    assert [row for row in controls if row["problem"]] == []
    assert {row["type_name"] for row in controls} <= {"ABORT", "COMMIT", "LEADER_CHANGE", "KRAFT_VERSION", "KRAFT_VOTERS"}


def test_transactions_of_the_best_copy_are_those_of_the_command(sample: Path, result: ScanResult) -> None:
    listed = list(transactions([str(sample)], ScanOptions()).rows)
    rows = by_replica(told(result, "transactions"))
    names = [name for name in FACTS["transactions"].own.names if name != "log_dir"]
    for where in {(transaction_row.topic, transaction_row.partition, str(transaction_row.broker)) for transaction_row in listed}:
        expected = [
            transaction_row
            for transaction_row in listed
            if (transaction_row.topic, transaction_row.partition, str(transaction_row.broker)) == where
        ]
        assert [[row[name] for name in names] for row in rows[where]] == [
            [getattr(transaction_row, name) for name in names] for transaction_row in expected
        ]


def test_metadata_history_is_that_of_the_command(sample: Path, result: ScanResult) -> None:
    events = controller_events([str(sample)], ScanOptions()).rows
    expected = [
        (event_row.topic, event_row.partition, event_row.event.offset, event_row.event.kind, event_row.leader_epoch)
        for event_row in events
    ]
    rows = told(result, "metadata_history")
    assert [(row["topic"], row["partition"], row["offset"], row["event"], row["leader_epoch"]) for row in rows] == expected


def test_group_offsets_are_those_of_the_command(sample: Path, result: ScanResult) -> None:
    rows = told(result, "group_offsets")
    if sample.name == "silent-divergence":
        assert rows == []
        return
    listed = [group_row for group_row in groups([str(sample)], ScanOptions()).rows if group_row.commit is not None]
    expected = [
        (group_row.group, group_row.topic, group_row.partition, None if group_row.commit is None else group_row.commit.offset)
        for group_row in listed
    ]
    assert sorted((row["group"], row["topic"], row["partition"], row["committed_offset"]) for row in rows) == sorted(expected)


def test_replicas_and_findings_are_the_answer(result: ScanResult) -> None:
    rows = told(result, "replicas")
    assert [(row["broker"], row["log_dir"], row["log_end_offset"]) for row in rows] == [
        (str(replica.broker), replica.log_dir, replica.log_end_offset) for replica in result.replicas
    ]
    findings = result.to_arrow().to_pylist()
    assert [(row["kind"], row["severity"]) for row in findings] == [
        (finding.kind, finding.severity.value) for finding in result.findings
    ]
    assert all(row["message"] for row in findings)
