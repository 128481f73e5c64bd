"""Facts of the samples agree with the result of the scan, the commands and the files."""

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

import kafka_forensics as kf
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import worst_first
from kafka_forensics.model.results import ScanResult
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.parsers.checkpoints import parse_leader_epochs, parse_offset_checkpoint
from kafka_forensics.questions.groups import groups
from kafka_forensics.questions.metadata import controller_events
from kafka_forensics.questions.transactions import transactions
from tests.support.memory import MemoryFile
from tests.support.places import SAMPLES
from tests.support.times import time_of

Row = dict[str, Any]


@pytest.fixture(scope="module", params=["healthy", "silent-divergence", "unclean-election"])
def sample(request: pytest.FixtureRequest) -> Path:
    return SAMPLES / str(request.param)


@pytest.fixture(scope="module")
def result(sample: Path) -> ScanResult:
    return kf.scan(str(sample))


def rows_of(result: ScanResult, fact: str) -> list[Row]:
    return result.facts(fact).to_pylist()


def by_replica(rows: list[Row]) -> dict[tuple[str, int, str], list[Row]]:
    grouped: dict[tuple[str, int, str], list[Row]] = defaultdict(list)
    for row in rows:
        grouped[row["topic"], row["partition"], row["broker"]].append(row)
    return grouped


def test_batches_and_records_add_up_to_the_replicas(result: ScanResult) -> None:
    batches, records = by_replica(rows_of(result, "batches")), by_replica(rows_of(result, "records"))
    assert sum(map(len, batches.values())) == result.totals.batches
    for partition in result.partitions:
        for replica in partition.replicas:
            key = partition.topic, partition.partition, str(replica.broker)
            rows = batches[key]
            assert (len(rows), sum(row["size_in_bytes"] for row in rows)) == (replica.batches, replica.bytes)
            assert len(records[key]) == replica.records
            assert max((row["last_offset"] + 1 for row in rows), default=replica.log_end_offset) == replica.log_end_offset
            assert {row["offset"] for row in records[key]} <= set(range(replica.log_end_offset or 0))


def test_records_equal_those_read_from_each_file(result: ScanResult) -> None:
    by_file: dict[str, list[Row]] = defaultdict(list)
    for row in rows_of(result, "records"):
        by_file[str(Path(row["log_dir"], row["file"]))].append(row)
    assert by_file
    for path, rows in by_file.items():
        plain = [row for batch in kf.read_records(path) for row in batch.to_pylist()]
        assert [{name: row[name] for name in plain[0]} for row in rows] == plain


def test_checkpoints_and_epochs_equal_the_lines_of_their_files(sample: Path, result: ScanResult) -> None:
    lines = Counter(
        (row["log_dir"], row["file"], row["topic"], row["partition"], row["offset"]) for row in rows_of(result, "checkpoints")
    )
    expected: Counter[tuple[Any, ...]] = Counter()
    for path in sample.glob("*/*-offset-checkpoint"):
        for (topic, partition), offset in parse_offset_checkpoint(MemoryFile(path.read_bytes())).offsets.items():
            expected[str(path.parent), path.name, topic, partition, offset] += 1
    assert lines == expected
    epochs = [(row["log_dir"], row["file"], row["leader_epoch"], row["start_offset"]) for row in rows_of(result, "epoch_entries")]
    files = sorted(sample.glob("*/*/leader-epoch-checkpoint"))
    entries = [
        (str(path.parents[1]), path.relative_to(path.parents[1]).as_posix(), entry.leader_epoch, entry.start_offset)
        for path in files
        for entry in parse_leader_epochs(MemoryFile(path.read_bytes())).entries
    ]
    assert sorted(epochs) == sorted(entries)


def test_control_records_agree_with_the_control_batches(result: ScanResult) -> None:
    controls = rows_of(result, "control_records")
    batches = [row for row in rows_of(result, "batches") if row["control_record_type"] >= 0]
    types_of_batches = {(row["log_dir"], row["file"], row["position"]): row["control_record_type"] for row in batches}
    first_types = {(row["log_dir"], row["file"], row["batch_position"]): row["type"] for row in reversed(controls)}
    assert first_types == types_of_batches
    assert [row for row in controls if row["problem"]] == []
    assert {row["type_name"] for row in controls} <= {"ABORT", "COMMIT", "LEADER_CHANGE", "KRAFT_VERSION", "KRAFT_VOTERS"}


def test_transactions_of_the_best_copy_equal_the_output_of_the_command(sample: Path, result: ScanResult) -> None:
    listed = list(transactions([str(sample)], ScanOptions()).rows)
    rows = by_replica(rows_of(result, "transactions"))
    names = [name for name in FACTS["transactions"].file_schema.names if name != "log_dir"]
    expected: dict[tuple[str, int, str], list[list[Any]]] = defaultdict(list)
    for transaction in listed:
        key = transaction.topic, transaction.partition, str(transaction.broker)
        values = {name: getattr(transaction, name) for name in names}
        times = {name: time_of(value) for name, value in values.items() if name.endswith("_timestamp")}
        expected[key].append([*(values | times).values()])
    assert {key: [[row[name] for name in names] for row in rows[key]] for key in expected} == expected


def test_metadata_history_equals_the_output_of_the_command(sample: Path, result: ScanResult) -> None:
    events = controller_events([str(sample)], ScanOptions()).rows
    expected = [
        (event_row.topic, event_row.partition, event_row.event.offset, event_row.event.kind, event_row.leader_epoch)
        for event_row in events
    ]
    rows = rows_of(result, "metadata_history")
    assert [(row["topic"], row["partition"], row["offset"], row["event"], row["leader_epoch"]) for row in rows] == expected


def test_group_offsets_equal_the_output_of_the_command(sample: Path, result: ScanResult) -> None:
    rows = rows_of(result, "group_offsets")
    if sample.name == "silent-divergence":
        assert rows == []
        return
    listed = groups([str(sample)], ScanOptions()).rows
    expected = [(row.group, row.topic, row.partition, row.commit.offset) for row in listed if row.commit is not None]
    assert sorted((row["group"], row["topic"], row["partition"], row["committed_offset"]) for row in rows) == sorted(expected)


def test_replicas_and_findings_equal_those_of_the_result(result: ScanResult) -> None:
    rows = rows_of(result, "replicas")
    assert [(row["broker"], row["log_dir"], row["log_end_offset"]) for row in rows] == [
        (str(replica.broker), replica.log_dir, replica.log_end_offset) for replica in result.replicas
    ]
    findings = result.to_arrow().to_pylist()
    assert [(row["kind"], row["severity"]) for row in findings] == [
        (finding.kind, finding.severity.value) for finding in worst_first(result.findings)
    ]
    assert all(row["message"] for row in findings)
