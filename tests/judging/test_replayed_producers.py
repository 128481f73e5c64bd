"""Logs whose producers a start could not replay: a scan foretells that the broker does not start."""

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_forensics.engine import local
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.judging import recovery_files
from kafka_forensics.model.results import RecoveryOutlook
from kafka_forensics.replication.recovery import INDEX_FILE_MISSING
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support.replicas import put_replica
from tests.support.segments import BASE_TIMESTAMP, by_producer, flipped, marker

P, Q = 7000, 7001


def data(offset: int, producer: int = P, *, is_transactional: bool = True) -> bytes:
    return by_producer(offset, "x" * 40, sequence=offset, producer=producer, key=None, is_transactional=is_transactional)


def control(offset: int, key: bytes, value: bytes) -> bytes:
    return write_batch(
        [RecordToWrite(key, value)],
        base_offset=offset,
        base_timestamp=BASE_TIMESTAMP,
        producer_id=P,
        producer_epoch=0,
        is_transactional=True,
        is_control_batch=True,
    )


def abort(offset: int, producer: int = P) -> bytes:
    return marker(offset, commit=False, producer=producer)


def outlook(root: Path, *batches: bytes) -> RecoveryOutlook:
    put_replica(root / "copies", 1, b"".join(batches))
    [partition] = local.scan([str(root / "copies" / "broker-1")], ScanOptions(jobs=1)).partitions
    recovery_outlook = partition.replicas[0].recovery
    assert recovery_outlook is not None
    return replace(recovery_outlook, checks=[check for check in recovery_outlook.checks if check != INDEX_FILE_MISSING])


SOUND = (data(0), data(1, Q), abort(2), data(3), abort(4, Q), data(5, 9, is_transactional=False), abort(6))
FAULTS = {
    "outside": (data(0), data(1, is_transactional=False)),
    "key": (data(0), control(1, b"\0\0", bytes(6))),
    "value": (data(0), control(1, bytes(4), b"\0\0")),
    "type": (data(0), control(1, b"\0\0\0\2", bytes(6))),
}


def test_ordinary_transactions_hinder_no_start(tmp_path: Path) -> None:
    recovery_outlook = outlook(tmp_path, *SOUND)
    assert (recovery_outlook.starts, recovery_outlook.log_end_offset, recovery_outlook.checks) == (True, 7, [17])


@pytest.mark.parametrize("case", sorted(FAULTS))
def test_what_cannot_be_replayed_ends_the_start(tmp_path: Path, case: str) -> None:
    recovery_outlook = outlook(tmp_path, *FAULTS[case])
    assert (recovery_outlook.starts, recovery_outlook.log_end_offset, recovery_outlook.checks) == (False, None, [17, 26])
    assert recovery_outlook.steps[-1] == f"refuse {0:020d}.log"


def test_markers_of_aborts_that_go_back_end_the_start(tmp_path: Path) -> None:
    recovery_outlook = outlook(tmp_path, data(0), data(1, Q), abort(2), abort(2, Q))
    assert (recovery_outlook.starts, recovery_outlook.checks) == (False, [17, 27])


def test_behind_damage_nothing_is_replayed(tmp_path: Path) -> None:
    recovery_outlook = outlook(tmp_path, data(0), flipped(data(1, Q), 70), data(2, is_transactional=False))
    assert (recovery_outlook.starts, recovery_outlook.log_end_offset) == (True, 1)


def test_a_long_log_is_read_again_only_where_something_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery_files, "MAX_REPLAYED_BYTES", 10)
    assert not outlook(tmp_path / "loud", *FAULTS["outside"]).starts
    monkeypatch.setattr(recovery_files, "_SUSPECT", ("NOTHING",))
    assert outlook(tmp_path / "quiet", *FAULTS["outside"]).starts
