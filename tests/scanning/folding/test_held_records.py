"""Compacted logs give the same rows, counts, damage and findings from hashes as from bytes."""

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings

from kafka_forensics.analysis.compaction import KeyColumn
from kafka_forensics.analysis.segments import MisplacedBatch
from kafka_forensics.evidence.inputs import ReplicaPlan, gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Finding
from kafka_forensics.parsers.log import HashedRecords, HashingReader, RecordHasher, StrongHasher, damage, segment
from kafka_forensics.parsers.record_hashes import parse_record_hashes
from kafka_forensics.scanning.engine import local
from kafka_forensics.scanning.folding.keys import KeyReader, KeyReadOptions, KeyRuns, TransactionOutcomes
from kafka_forensics.scanning.judging import compaction
from kafka_forensics.storage.source import ByteFile
from kafka_forensics.writers.batches import RecordToWrite, fix_crc, write_batch, write_legacy_entry
from kafka_forensics.writers.record_hashes import write_record_hashes
from tests.gallery.of_compaction import beyond_reach, cut_between_batches, hidden_by_damage, offset_rotted_upwards
from tests.scanning.folding.held_records import Checked, HeldReader, hashed, holding, opens_nothing
from tests.support.brokers import Brokers, put_compacted, put_differently_cleaned, put_replica
from tests.support.logs import CLEANED, History, keyed_history
from tests.support.segments import write_legacy_wrapper
from tests.support.simulated_cleaners import KnownHistory, Replica, clusters, written

if TYPE_CHECKING:
    from numpy.typing import NDArray

STATES = np.array([[7, 0, 3], [7, 5, 9]], np.int64)
"""Aborted transactions of a producer."""


def in_transactions(root: Path) -> Brokers:
    history = History().put(("a", "0")).transaction(7, ("a", "1"), ("b", "1"), commit=False)
    history.transaction(8, ("a", "2"), ("b", "2"), commit=True).put((None, "keyless")).transaction(7, ("c", "1"), commit=None)
    history.fill(16 - history.end)
    logs = {1: history.left(roll=CLEANED), 2: history.left({0, 4}, roll=CLEANED, horizon=1_700_000_000_000)}
    return put_compacted(root, logs, {1: 0, 2: CLEANED})


def differing(root: Path) -> Brokers:
    return put_differently_cleaned(root, keyed_history(), {1: {0}, 2: {2}})


@pytest.mark.parametrize(
    ("case", "logs"),
    [
        (in_transactions, 2),
        (differing, 3),
        (lambda root: beyond_reach(root, None), 3),
        (hidden_by_damage, 3),
        (cut_between_batches, 3),
        (offset_rotted_upwards, 3),
    ],
)
def test_scans_of_bytes_and_hashes_find_the_same(
    case: Callable[[Path], Brokers], logs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert same_findings([str(path) for path in case(tmp_path).log_dirs], monkeypatch) == logs


def same_findings(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Number of logs that a scan read from bytes and from hashes, with the same findings."""
    from_bytes = local.scan(paths, ScanOptions(jobs=1))
    logs = []

    def recording_reader(*arguments: object) -> Checked:
        logs.append(Checked(*arguments))  # type: ignore[arg-type]
        return logs[-1]

    with monkeypatch.context() as patch:
        patch.setattr(compaction, "KeyReader", recording_reader)
        assert local.scan(paths, ScanOptions(jobs=1)).findings == from_bytes.findings
    return len(logs)


@given(clusters())
@settings(max_examples=25)
def test_logs_of_simulated_cleaners_give_the_same_findings(cluster: tuple[KnownHistory, list[Replica]]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        same_findings(written(*cluster, Path(folder)), patch)


def from_bytes(plan: ReplicaPlan) -> "NDArray[np.int64]":
    """The rows of a log, read from its bytes alone."""
    with KeyRuns() as runs:
        outcomes = TransactionOutcomes(np.asfortranarray(STATES), {8: 20}, ())
        KeyReader(plan, outcomes, 0, KeyReadOptions(np.array([0, 40, 2**40], np.int64), 99, 1000), runs).read()
        return np.concatenate(list(runs.blocks()))


def checked(plan: ReplicaPlan, runs: KeyRuns, cut: int = 0, misplaced: tuple[MisplacedBatch, ...] = ()) -> int:
    """Number of records of a log, after comparing its rows from bytes and from hashes."""
    outcomes = TransactionOutcomes(np.asfortranarray(STATES), {8: 20}, misplaced)
    reader = Checked(plan, outcomes, 0, KeyReadOptions(np.array([cut, 40, 2**40], np.int64), 99, 1000), runs)
    reader.read()
    return int(reader.part.counts.records.sum() + reader.part.counts.keyless.sum())


def both_ways(plan: ReplicaPlan, *, cut: int = 0, misplaced: tuple[MisplacedBatch, ...] = ()) -> "NDArray[np.int64]":
    """The rows of a log, which must be the same from bytes and from hashes."""
    with KeyRuns() as runs:
        checked(plan, runs, cut, misplaced)
        return np.concatenate(list(runs.blocks()))


def plans_of(*paths: Path) -> list[ReplicaPlan]:
    inputs = gather([str(path) for path in paths], ScanOptions())
    return [*inputs.replicas, *(plan for plan in inputs.internal if plan not in inputs.replicas)]


def one_log(root: Path, data: bytes) -> ReplicaPlan:
    (plan,) = plans_of(put_replica(root, 1, data))
    return plan


def wrapper(first: int, count: int, *, magic: int) -> bytes:
    """A compressed message of the old formats with `count` messages; those of magic 1 count their offsets from 0."""
    offsets = range(first, first + count) if magic == 0 else range(count)
    entries = [write_legacy_entry(b"k%d" % offset, b"v", offset=offset, magic=magic, timestamp=5) for offset in offsets]
    return write_legacy_wrapper(entries, offset=first + count - 1, magic=magic, compression_type="gzip")


def test_batches_of_every_format_give_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [RecordToWrite(b"k%d" % n, None if n % 3 == 0 else b"v", offset_delta=n) for n in range(7)]
    batches = [
        wrapper(0, 5, magic=0),
        wrapper(5, 4, magic=1),
        *(write_batch(records, base_offset=10 + 7 * n, base_timestamp=5, compression_type=codec) for n, codec in enumerate(CODECS)),
        write_batch(records, base_offset=45, base_timestamp=5, timestamp_type="LogAppendTime", max_timestamp=77),
        write_batch([], base_offset=52, base_timestamp=5, last_offset_delta=4),
    ]
    plan = one_log(tmp_path / "whole", b"".join(batches))
    rows = both_ways(plan)
    assert rows[:, KeyColumn.RECORDS].sum() == 9 + 7 * 6
    assert both_ways(plan, cut=12)[:, KeyColumn.RECORDS].sum() == 5 + 7 * 5
    damaged = bytearray(b"".join(batches))
    damaged[len(batches[0]) + len(batches[1]) + 9] ^= 4
    with_damage = one_log(tmp_path / "damaged", bytes(damaged))
    assert both_ways(with_damage)[:, KeyColumn.RECORDS].sum() == 9 + 7 * 5
    small_windows(monkeypatch)
    assert np.array_equal(from_bytes(plan), rows)
    assert from_bytes(with_damage)[:, KeyColumn.RECORDS].sum() == 9 + 7 * 5
    assert both_ways(one_log(tmp_path / "new", b"".join(batches[2:])))[:, KeyColumn.RECORDS].sum() == 7 * 6
    del damaged[: len(batches[0]) + len(batches[1])]
    assert both_ways(one_log(tmp_path / "new-damaged", bytes(damaged)))[:, KeyColumn.RECORDS].sum() == 7 * 5


CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def test_batches_with_a_wrong_base_offset_are_corrected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [RecordToWrite(b"k%d" % n, b"v", offset_delta=n) for n in range(3)]
    batches = [
        wrapper(0, 2, magic=0),
        write_legacy_entry(b"old", b"v", offset=2, magic=1),
        wrapper(3, 2, magic=1),
        write_batch(records, base_offset=5, base_timestamp=5, producer_id=7, is_transactional=True),
        write_batch(records, base_offset=8, base_timestamp=5, compression_type="lz4"),
    ]
    plan = one_log(tmp_path, b"".join(batches))
    in_place = both_ways(plan)
    both_ways(plan, misplaced=(MisplacedBatch(0, 0, 2, 0, 16, 16),))
    starts = [sum(map(len, batches[:number])) for number in range(5)]
    for start, offset in zip(starts[1:], (2, 3, 5, 8), strict=True):
        misplaced = (MisplacedBatch(0, start, 3, offset, offset + 16, offset + 16),)
        for _ in range(2):
            assert not np.array_equal(both_ways(plan, misplaced=misplaced), in_place)
            small_windows(monkeypatch)
        monkeypatch.undo()


def small_windows(patch: pytest.MonkeyPatch) -> None:
    """Batches of more than 96 bytes are decoded one by one."""
    patch.setattr(damage, "WINDOW_BYTES", 64)
    for module in (segment, damage):
        patch.setattr(module, "MAX_WINDOW_BYTES", 96)


def test_batches_that_cannot_be_decoded_are_damage(tmp_path: Path) -> None:
    good = [write_batch([RecordToWrite(b"k%d" % n, b"v")], base_offset=n, base_timestamp=5) for n in range(4)]
    for codec in CODECS[::2]:
        bad = bytearray(write_batch([RecordToWrite(b"k", b"v" * 20)], base_offset=4, base_timestamp=5, compression_type=codec))
        bad[61:66] = b"\xff" * 5
        assert len(both_ways(one_log(tmp_path / codec, b"".join([*good, fix_crc(bytes(bad))])))) == 4


@pytest.mark.parametrize("case", [in_transactions, differing, hidden_by_damage])
@pytest.mark.parametrize("hasher", [StrongHasher(bytes(32)), StrongHasher()])
def test_hashes_in_files_give_the_same_findings(
    case: Callable[[Path], Brokers], hasher: RecordHasher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Except key names, which are hashes; also if broker 1 has its bytes."""
    paths = [str(path) for path in case(tmp_path).log_dirs]
    from_bytes = without_key_names(local.scan(paths, ScanOptions(jobs=1)).findings)

    def written_down(file: ByteFile, hasher: RecordHasher) -> HashedRecords:
        blocks = write_record_hashes(hashed(file, hasher))
        return HashedRecords.together([parse_record_hashes(block) for block in blocks])

    def hashed_reader(plan: ReplicaPlan, *arguments: object) -> KeyReader:
        return HeldReader(holding(plan, hasher), *arguments)  # type: ignore[arg-type]

    class SameHasherReader(KeyReader):
        def __post_init__(self) -> None:
            super().__post_init__()
            self._reader = HashingReader(hasher)

    def hashed_except_broker_1(plan: ReplicaPlan, *arguments: object) -> KeyReader:
        if plan.log_dir.broker == 1:
            return SameHasherReader(plan, *arguments)  # type: ignore[arg-type]
        return hashed_reader(plan, *arguments)

    monkeypatch.setattr("tests.scanning.folding.held_records.hashed", written_down)
    for reader in (hashed_except_broker_1, hashed_reader):
        monkeypatch.setattr(compaction, "KeyReader", reader)
        if reader is hashed_reader:
            opens_nothing(monkeypatch)
        assert without_key_names(local.scan(paths, ScanOptions(jobs=1)).findings) == from_bytes
    assert from_bytes


def without_key_names(findings: list[Finding]) -> list[str]:
    """Findings with key hashes replaced by one text."""
    return [re.sub(r"\b[0-9a-f]{16}\b", "HASH", f"{finding.kind} {finding.place} {finding.evidence}") for finding in findings]
