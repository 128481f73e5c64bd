"""Comparing compacted replicas in a scan: temporary files, archives, old formats, large batches."""

import tempfile
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
import pytest
from hypothesis import given, strategies as st

from kafka_forensics.analysis.compaction import ROW_WIDTH
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.results import ScanResult
from kafka_forensics.parsers.log import hashed_records
from kafka_forensics.scanning.engine import key_tasks, local
from kafka_forensics.scanning.folding.keys import reader as key_reader
from kafka_forensics.scanning.folding.keys.question import KeyRuns
from kafka_forensics.scanning.judging import compaction
from kafka_forensics.writers.batches import RecordToWrite, write_batch, write_legacy_entry
from tests.scanning.engine.task_engine import scan_with_key_tasks
from tests.support.brokers import Brokers, put_compacted, put_replica
from tests.support.faults_verdict import finding_rows, only_finding
from tests.support.logs import History
from tests.support.simulated_cleaners import KnownHistory, Replica, clusters, written

CLEANED = 600


def many(tmp_path: Path) -> Brokers:
    """One record missing and one superseded among some hundreds of keys."""
    history = History()
    for number in range(CLEANED + 5):
        history.put((f"key-{number % 250}", str(number)))
    return put_compacted(
        tmp_path, {1: history.left(roll=CLEANED), 2: history.left(set(range(350)) | {400}, roll=CLEANED)}, {1: 0, 2: CLEANED}
    )


def scan_brokers(brokers: Brokers) -> ScanResult:
    """Scan all brokers, with the local engine and with key tasks."""
    return scan_with_key_tasks([str(path) for path in brokers.log_dirs], ScanOptions())


def test_spilling_keys_to_disk_does_not_change_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = many(tmp_path / "brokers")
    whole = scan_brokers(brokers)
    assert finding_rows(whole) == [("COMPACTED_VALUE_DIFFERS", "critical", None), ("COMPACTION_SKEW", "info", None)]
    differs = only_finding(whole, "COMPACTED_VALUE_DIFFERS").evidence
    assert (differs["keys"], differs["vanished"], [record["offset"] for record in differs["records"]]) == (1, 1, [400])
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    runs = []

    def small(evidence: list[str]) -> KeyRuns:
        runs.append(KeyRuns(evidence, capacity=64))
        return runs[-1]

    for reader in (compaction, key_tasks):
        monkeypatch.setattr(reader, "KeyRuns", small)
    assert scan_brokers(brokers).findings == whole.findings
    assert len(runs[0]._runs) > 3
    assert list((tmp_path / "tmp").iterdir()) == []


def test_nothing_is_spilled_into_the_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[Path] = []
    temporary_file = tempfile.TemporaryFile

    def recording_file(*, dir: str) -> IO[bytes]:  # noqa: A002 - tempfile's own name
        used.append(Path(dir))
        return temporary_file(dir=dir)

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "TemporaryFile", recording_file)
    rows = np.arange(8 * ROW_WIDTH).reshape(8, ROW_WIDTH)
    with KeyRuns([str(tmp_path)], capacity=4) as runs:
        runs.add(rows)
        assert np.array_equal(np.concatenate(list(runs.blocks())), rows)
    assert [path.is_relative_to(tmp_path) for path in used] == [False]
    with KeyRuns(["/"], capacity=4) as runs, pytest.raises(SourceError, match="part of the input"):
        runs.add(rows)


def test_a_scan_without_a_directory_for_temporary_files_is_incomplete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = many(tmp_path)
    for reader in (compaction, key_tasks):
        monkeypatch.setattr(reader, "KeyRuns", lambda _: KeyRuns(["/"], capacity=64))
    result = scan_with_key_tasks([str(path) for path in brokers.log_dirs], ScanOptions())
    assert [incomplete.reason for incomplete in result.incomplete] == [
        "no room for a temporary file: every directory for temporary files is part of the input"
    ]
    assert finding_rows(result) == []


def converted(offset: int, key: str, value: str) -> bytes:
    """An entry of magic 1 as the cleaner of Kafka 4 converts it."""
    records = [RecordToWrite(key.encode(), value.encode())]
    return write_batch(records, base_offset=offset, base_timestamp=7, partition_leader_epoch=-1)


@pytest.mark.parametrize(("lost", "kinds"), [([], set()), ([0], {"COMPACTION_SKEW"}), ([1], {"COMPACTED_VALUE_DIFFERS"})])
def test_records_of_old_formats_equal_those_that_a_cleaner_converted(tmp_path: Path, lost: list[int], kinds: set[str]) -> None:
    entries = [(0, "a", "1"), (1, "b", "1"), (2, "a", "2"), (3, "c", "1")]
    old = b"".join(write_legacy_entry(key.encode(), value.encode(), offset=at, magic=1, timestamp=7) for at, key, value in entries)
    new = b"".join(converted(*entry) for entry in entries if entry[0] not in lost)
    log_dirs = [put_replica(tmp_path, broker, log, high_watermark=4, cleaned=4) for broker, log in ((1, old), (2, new))]
    result = scan_with_key_tasks([str(path) for path in log_dirs], ScanOptions())
    assert {finding.kind for finding in result.findings} & {"COMPACTION_SKEW", "COMPACTED_VALUE_DIFFERS"} == kinds


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_the_keys_of_a_batch_beyond_the_memory_limit_are_compared(
    codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read record by record, it gives the same findings as read by columns."""
    log_dirs = []
    for broker, lost in ((1, None), (2, 5)):
        records = [RecordToWrite(b"%d" % n, b"v", offset_delta=n) for n in range(20) if n != lost]
        data = write_batch(records, base_offset=0, base_timestamp=9, compression_type=codec, last_offset_delta=19)
        log_dirs.append(put_replica(tmp_path, broker, data, high_watermark=20, cleaned=0))
    scan = partial(scan_with_key_tasks, [str(path) for path in log_dirs], ScanOptions())
    result_by_columns = scan()
    monkeypatch.setattr(hashed_records, "HELD_BYTES", 1)
    assert scan().findings == result_by_columns.findings
    assert only_finding(result_by_columns, "COMPACTED_VALUE_DIFFERS").evidence["missing"] == 1


def test_a_batch_larger_than_the_window_is_decoded_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = write_batch([RecordToWrite(b"large", bytes(17 << 20))], base_offset=0, base_timestamp=9)
    small = write_batch([RecordToWrite(b"small", b"v")], base_offset=1, base_timestamp=9)
    logs = {1: large + small, 2: small}
    log_dirs = [put_replica(tmp_path, broker, log, high_watermark=2, cleaned=0) for broker, log in logs.items()]
    scan = partial(scan_with_key_tasks, [str(path) for path in log_dirs], ScanOptions(deep=False))
    assert only_finding(scan(), "COMPACTED_VALUE_DIFFERS").evidence["records"][0]["offset"] == 0
    monkeypatch.setattr(key_reader, "MAX_BATCH_BYTES", 16 << 20)
    result = scan()
    assert [incomplete.reason for incomplete in result.incomplete] == [
        f"batch of {len(large)} bytes at byte 0 is too large to compare its records"
    ]
    assert not [finding for finding in result.findings if finding.kind == "COMPACTED_VALUE_DIFFERS"]


EXPECTED = frozenset({"COMPACTION_SKEW", "REPLICA_LAGS", "TXN_OPEN", "HW_UNKNOWN"})


def scanned(history: KnownHistory, replicas: list[Replica]) -> ScanResult:
    with tempfile.TemporaryDirectory() as folder:
        return local.scan(written(history, replicas, Path(folder)), ScanOptions())


@given(clusters())
def test_cleaning_by_the_rules_is_no_difference(cluster: tuple[KnownHistory, list[Replica]]) -> None:
    result = scanned(*cluster)
    assert {finding.severity.value for finding in result.findings} <= {"info"}, result.findings
    assert {finding.kind for finding in result.findings} <= EXPECTED


@given(clusters(), st.data())
def test_a_latest_value_that_one_replica_lost_is_reported(cluster: tuple[KnownHistory, list[Replica]], draw: st.DataObject) -> None:
    history, replicas = cluster
    replicas = replicas[:2]
    table: dict[str, int] = {}
    for offset, fact in enumerate(history.facts):
        if fact.key is not None and fact.commits:
            table[fact.key] = offset
    alive = sorted(offset for offset in table.values() if history.facts[offset].value is not None)
    victim = draw.draw(st.sampled_from(alive[:-1] or alive))
    remaining_values = [
        history.facts[offset].value
        for offset in replicas[1].kept - {victim}
        if history.facts[offset].key == history.facts[victim].key
    ]
    replicas[1].kept.discard(victim)
    findings = [finding for finding in scanned(history, replicas).findings if finding.kind == "COMPACTED_VALUE_DIFFERS"]
    if history.facts[victim].value in remaining_values:
        return  # an older record of the key has the same value
    assert [(finding.severity.value, finding.place.offset_start, finding.evidence["keys"]) for finding in findings] == [
        ("critical", victim, 1)
    ]
    assert findings[0].evidence.get("held_by", [1]) == [1]
