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
from tests.scanning.engine.task_engine import with_keys_apart
from tests.support.brokers import Brokers, put_compacted, put_replica
from tests.support.faults_verdict import finding_rows, only_finding
from tests.support.logs import History
from tests.support.simulated_cleaners import KnownHistory, Replica, clusters, written

CLEANED = 600


def many(tmp_path: Path) -> Brokers:
    """One record missing and one superseded among some hundreds of keys."""
    story = History()
    for number in range(CLEANED + 5):
        story.put((f"key-{number % 250}", str(number)))
    return put_compacted(
        tmp_path, {1: story.left(roll=CLEANED), 2: story.left(set(range(350)) | {400}, roll=CLEANED)}, {1: 0, 2: CLEANED}
    )


def told_of(brokers: Brokers) -> ScanResult:
    """The scan of all brokers."""
    return with_keys_apart([str(path) for path in brokers.log_dirs], ScanOptions())


def test_spilled_or_not_the_answer_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = many(tmp_path / "brokers")
    whole = told_of(brokers)
    assert finding_rows(whole) == [("COMPACTED_VALUE_DIFFERS", "critical", None), ("COMPACTION_SKEW", "info", None)]
    differs = only_finding(whole, "COMPACTED_VALUE_DIFFERS").evidence
    assert (differs["keys"], differs["vanished"], [record["offset"] for record in differs["records"]]) == (1, 1, [400])
    (tmp_path / "room").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "room"))
    runs = []

    def small(evidence: list[str]) -> KeyRuns:
        runs.append(KeyRuns(evidence, capacity=64))
        return runs[-1]

    for reader in (compaction, key_tasks):
        monkeypatch.setattr(reader, "KeyRuns", small)
    assert told_of(brokers).findings == whole.findings
    assert len(runs[0]._runs) > 3
    assert list((tmp_path / "room").iterdir()) == []


def test_nothing_is_spilled_into_the_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[Path] = []
    temporary_file = tempfile.TemporaryFile

    def noted(*, dir: str) -> IO[bytes]:  # noqa: A002 - tempfile's own name
        used.append(Path(dir))
        return temporary_file(dir=dir)

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "TemporaryFile", noted)
    rows = np.arange(8 * ROW_WIDTH).reshape(8, ROW_WIDTH)
    with KeyRuns([str(tmp_path)], capacity=4) as runs:
        runs.add(rows)
        assert np.array_equal(np.concatenate(list(runs.blocks())), rows)
    assert [path.is_relative_to(tmp_path) for path in used] == [False]
    with KeyRuns(["/"], capacity=4) as runs, pytest.raises(SourceError, match="part of the input"):
        runs.add(rows)


def test_no_room_for_runs_makes_the_scan_incomplete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = many(tmp_path)
    for reader in (compaction, key_tasks):
        monkeypatch.setattr(reader, "KeyRuns", lambda _: KeyRuns(["/"], capacity=64))
    result = with_keys_apart([str(path) for path in brokers.log_dirs], ScanOptions())
    assert [incomplete.reason for incomplete in result.incomplete] == [
        "no room for a temporary file: every directory for temporary files is part of the input"
    ]
    assert finding_rows(result) == []


def lifted(offset: int, key: str, value: str) -> bytes:
    """An entry of magic 1 as a cleaner of Kafka 4 writes it anew."""
    records = [RecordToWrite(key.encode(), value.encode())]
    return write_batch(records, base_offset=offset, base_timestamp=7, partition_leader_epoch=-1)


@pytest.mark.parametrize(("lost", "kinds"), [([], set()), ([0], {"COMPACTION_SKEW"}), ([1], {"COMPACTED_VALUE_DIFFERS"})])
def test_old_formats_compare_with_what_the_cleaner_made_of_them(tmp_path: Path, lost: list[int], kinds: set[str]) -> None:
    entries = [(0, "a", "1"), (1, "b", "1"), (2, "a", "2"), (3, "c", "1")]
    old = b"".join(write_legacy_entry(key.encode(), value.encode(), offset=at, magic=1, timestamp=7) for at, key, value in entries)
    new = b"".join(lifted(*entry) for entry in entries if entry[0] not in lost)
    log_dirs = [put_replica(tmp_path, broker, log, high_watermark=4, cleaned=4) for broker, log in ((1, old), (2, new))]
    result = with_keys_apart([str(path) for path in log_dirs], ScanOptions())
    assert {finding.kind for finding in result.findings} & {"COMPACTION_SKEW", "COMPACTED_VALUE_DIFFERS"} == kinds


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_batch_too_large_to_be_held_gives_its_keys(codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read record by record, it gives the same as when it is read in matrices."""
    log_dirs = []
    for broker, lost in ((1, None), (2, 5)):
        records = [RecordToWrite(b"%d" % n, b"v", offset_delta=n) for n in range(20) if n != lost]
        data = write_batch(records, base_offset=0, base_timestamp=9, compression_type=codec, last_offset_delta=19)
        log_dirs.append(put_replica(tmp_path, broker, data, high_watermark=20, cleaned=0))
    scan = partial(with_keys_apart, [str(path) for path in log_dirs], ScanOptions())
    in_matrices = scan()
    monkeypatch.setattr(hashed_records, "HELD_BYTES", 1)
    assert scan().findings == in_matrices.findings
    assert only_finding(in_matrices, "COMPACTED_VALUE_DIFFERS").evidence["missing"] == 1


def test_a_batch_larger_than_the_window_is_decoded_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = write_batch([RecordToWrite(b"large", bytes(17 << 20))], base_offset=0, base_timestamp=9)
    small = write_batch([RecordToWrite(b"small", b"v")], base_offset=1, base_timestamp=9)
    logs = {1: large + small, 2: small}
    log_dirs = [put_replica(tmp_path, broker, log, high_watermark=2, cleaned=0) for broker, log in logs.items()]
    scan = partial(with_keys_apart, [str(path) for path in log_dirs], ScanOptions(deep=False))
    assert only_finding(scan(), "COMPACTED_VALUE_DIFFERS").evidence["records"][0]["offset"] == 0
    monkeypatch.setattr(key_reader, "MAX_BATCH_BYTES", 16 << 20)
    result = scan()
    assert [incomplete.reason for incomplete in result.incomplete] == [
        f"batch of {len(large)} bytes at byte 0 is too large to compare its records"
    ]
    assert not [finding for finding in result.findings if finding.kind == "COMPACTED_VALUE_DIFFERS"]


EXPECTED = frozenset({"COMPACTION_SKEW", "REPLICA_LAGS", "TXN_OPEN", "HW_UNKNOWN"})


def scanned(told: KnownHistory, replicas: list[Replica]) -> ScanResult:
    with tempfile.TemporaryDirectory() as folder:
        return local.scan(written(told, replicas, Path(folder)), ScanOptions())


@given(clusters())
def test_cleaning_by_the_rules_is_no_difference(cluster: tuple[KnownHistory, list[Replica]]) -> None:
    result = scanned(*cluster)
    assert {finding.severity.value for finding in result.findings} <= {"info"}, result.findings
    assert {finding.kind for finding in result.findings} <= EXPECTED


@given(clusters(), st.data())
def test_a_latest_value_that_one_replica_lost_is_reported(cluster: tuple[KnownHistory, list[Replica]], draw: st.DataObject) -> None:
    told, replicas = cluster
    replicas = replicas[:2]
    table: dict[str, int] = {}
    for offset, fact in enumerate(told.facts):
        if fact.key is not None and fact.commits:
            table[fact.key] = offset
    alive = sorted(offset for offset in table.values() if told.facts[offset].value is not None)
    victim = draw.draw(st.sampled_from(alive[:-1] or alive))
    others = [
        told.facts[offset].value for offset in replicas[1].kept - {victim} if told.facts[offset].key == told.facts[victim].key
    ]
    replicas[1].kept.discard(victim)
    findings = [finding for finding in scanned(told, replicas).findings if finding.kind == "COMPACTED_VALUE_DIFFERS"]
    if told.facts[victim].value in others:
        return  # the same value stood there before
    assert [(finding.severity.value, finding.place.offset_start, finding.evidence["keys"]) for finding in findings] == [
        ("critical", victim, 1)
    ]
    assert findings[0].evidence.get("held_by", [1]) == [1]
