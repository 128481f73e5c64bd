"""Logs that exist and cannot be read are unknown: not clean, lost, lagging or identical."""

import os
import shutil
from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.json_document import document
from kafka_forensics.model.results import Incomplete, ReadExtent, ScanResult
from kafka_forensics.scanning.engine.local import scan
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.storage.source import ByteFile
from tests.scanning.engine import task_engine
from tests.support.brokers import Brokers, healthy
from tests.support.places import SAMPLES
from tests.support.segments import segment_file
from tests.support.unread import REASON, check_unknown, check_unread, refuse, refuse_listing, refuse_logs


def scanned(brokers: Brokers, **options: object) -> ScanResult:
    return scan([str(path) for path in brokers.log_dirs], ScanOptions(jobs=1, **options))  # type: ignore[arg-type]


def worse_than_info(result: ScanResult) -> list[str]:
    return [finding.kind for finding in result.findings if finding.severity.rank > 0]


def test_a_partition_without_a_readable_copy_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = healthy(tmp_path)
    refuse_logs(monkeypatch, brokers, (1, 2, 3))
    result = scanned(brokers)
    [partition] = result.partitions
    check_unknown(partition)
    assert [replica.high_watermark for replica in partition.replicas] == [72, 72, 72]
    assert [replica.segments for replica in partition.replicas] == [3, 3, 3]
    assert result.verdict == "unknown"
    assert worse_than_info(result) == []
    assert {(incomplete.topic, incomplete.partition, incomplete.reason) for incomplete in result.incomplete} == {("t", 0, REASON)}
    assert [incomplete.broker for incomplete in result.incomplete] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert (result.totals.batches, result.totals.records) == (0, 0)
    assert result.totals.bytes_skipped == result.totals.bytes_total


@pytest.mark.parametrize("unread", [(1,), (3,), (2, 3)])
def test_readable_copies_are_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unread: tuple[int, ...]) -> None:
    brokers = healthy(tmp_path)
    whole = scanned(brokers)
    refuse_logs(monkeypatch, brokers, unread)
    result = scanned(brokers)
    [partition] = result.partitions
    assert (partition.verdict, partition.read, partition.not_read) == (whole.verdict, ReadExtent.PART, list(unread))
    assert partition.agreement.kind == "not_compared"
    assert worse_than_info(result) == []
    for before, replica in zip(whole.partitions[0].replicas, partition.replicas, strict=True):
        if replica.broker in unread:
            check_unread(replica)
        else:
            assert (replica.log_start_offset, replica.log_end_offset) == (before.log_start_offset, before.log_end_offset)
            assert (replica.records, replica.read) == (before.records, ReadExtent.WHOLE)


@pytest.mark.parametrize(("segment", "end"), [(0, 75), (29, 75), (55, None)])
def test_a_partly_read_log_has_the_facts_of_the_read_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segment: int, end: int | None
) -> None:
    brokers = healthy(tmp_path)
    refused = brokers.file(2, segment)
    refuse(monkeypatch, lambda path: path == refused)
    result = scanned(brokers)
    [partition] = result.partitions
    replica = partition.replicas[1]
    assert (replica.read, replica.log_end_offset, replica.last_stable_offset) == (ReadExtent.PART, end, None)
    assert replica.read_end_offset == (55 if end is None else end)
    assert replica.records is not None
    assert replica.records > 0
    assert (partition.verdict, partition.read, partition.not_read) == ("clean", ReadExtent.PART, [2])
    assert partition.agreement.kind == "not_compared"
    assert worse_than_info(result) == []


@pytest.mark.parametrize("segment", [0, 29, 55])
def test_a_single_partly_read_copy_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segment: int) -> None:
    brokers = healthy(tmp_path)
    refused = brokers.file(2, segment)
    refuse(monkeypatch, lambda path: path == refused)
    result = scan([str(brokers.log_dir(2))], ScanOptions(jobs=1))
    assert (result.partitions[0].verdict, result.verdict) == ("unknown", "unknown")
    assert worse_than_info(result) == []


def test_damage_in_one_copy_is_worse_than_unread_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = healthy(tmp_path)
    data = bytearray(brokers.file(1, 29).read_bytes())
    data[400] ^= 1
    brokers.file(1, 29).write_bytes(data)
    refuse_logs(monkeypatch, brokers, (2, 3))
    result = scanned(brokers)
    assert (result.partitions[0].verdict, result.verdict) == ("error", "error")


def test_a_log_is_read_without_its_unreadable_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = healthy(tmp_path)
    index = brokers.file(2, 29, "index")
    refuse(monkeypatch, lambda path: path == index)
    result = scanned(brokers)
    [partition] = result.partitions
    assert (partition.verdict, partition.read, partition.not_read) == ("clean", ReadExtent.WHOLE, [])
    assert result.incomplete == [Incomplete(str(index), REASON, "t", 0, 2)]
    assert result.verdict == "clean"


def test_an_unreadable_checkpoint_hides_no_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = healthy(tmp_path)
    refused = brokers.log_dir(2) / "replication-offset-checkpoint"
    refuse(monkeypatch, lambda path: path == refused)
    [gap] = scanned(brokers).incomplete
    assert gap == Incomplete(str(refused), REASON, None, None, 2)
    assert not gap.hides_partitions


def test_a_log_directory_that_cannot_be_listed_may_hide_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = healthy(tmp_path)
    refuse_listing(monkeypatch, lambda name, path: (name, path) == (str(brokers.log_dir(2)), ""))
    result = scanned(brokers)
    assert result.incomplete == [Incomplete(str(brokers.log_dir(2)), REASON)]
    assert (result.partitions[0].verdict, result.verdict) == ("clean", "unknown")
    assert [replica.broker for replica in result.partitions[0].replicas] == [1, 3]


@pytest.mark.parametrize("on_every_broker", [False, True])
def test_a_partition_that_cannot_be_listed_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, on_every_broker: bool
) -> None:
    brokers = healthy(tmp_path)
    refuse_listing(monkeypatch, lambda name, path: path == "t-0" and (on_every_broker or name == str(brokers.log_dir(2))))
    result = scanned(brokers)
    [partition] = result.partitions
    assert [replica.broker for replica in partition.replicas] == [1, 2, 3]
    check_unread(partition.replicas[1])
    assert (partition.replicas[1].segments, partition.replicas[1].high_watermark) == (None, 72)
    assert worse_than_info(result) == []
    if on_every_broker:
        check_unknown(partition)
    else:
        assert (partition.verdict, partition.not_read) == ("clean", [2])
        assert [incomplete.path for incomplete in result.incomplete] == [f"{brokers.log_dir(2)}/t-0"]


@pytest.mark.two_users
def test_a_log_without_read_permission_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = healthy(tmp_path)
    unpatched_open = LocalSource.open

    def as_nobody(self: LocalSource, path: str) -> ByteFile:
        os.seteuid(65_534)
        try:
            return unpatched_open(self, path)
        finally:
            os.seteuid(0)

    for broker in (1, 2, 3):
        for segment in (0, 29, 55):
            brokers.file(broker, segment).chmod(0)
    for log_dir in brokers.log_dirs:
        log_dir.chmod(0o755)
    monkeypatch.setattr(LocalSource, "open", as_nobody)
    result = scanned(brokers)
    check_unknown(result.partitions[0])
    assert {incomplete.reason for incomplete in result.incomplete} == {"permission denied"}


@pytest.mark.parametrize("unread", [(1, 2, 3), (2,)])
def test_tasks_give_the_answer_of_the_local_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unread: tuple[int, ...]
) -> None:
    brokers = healthy(tmp_path)
    refuse_listing(monkeypatch, lambda name, path: (name, path) == (str(brokers.log_dir(3)), "t-0"))
    refuse_logs(monkeypatch, brokers, unread)
    paths = [str(path) for path in brokers.log_dirs]
    task_result, local_result = task_engine.scan(paths, ScanOptions(), work_bytes=1000), scan(paths, ScanOptions(jobs=1))
    assert "".join(document(task_result)) == "".join(document(local_result))
    assert local_result.partitions[0].not_read == sorted({*unread, 3})


@pytest.mark.parametrize("sample", sorted(path.name for path in SAMPLES.iterdir() if path.is_dir()))
def test_an_unread_copy_adds_no_finding(sample: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = SAMPLES / sample
    whole = {
        (finding.kind, finding.place.topic, finding.place.partition)
        for finding in scan([str(folder)], ScanOptions(jobs=1)).findings
    }
    for unread in (1, 2, 3):
        with monkeypatch.context() as patch:
            log_dir = folder / f"broker-{unread}"
            refuse(patch, lambda path, log_dir=log_dir: path.suffix == ".log" and path.is_relative_to(log_dir))  # type: ignore[misc]
            part = scan([str(folder)], ScanOptions(jobs=1))
        worse = {
            (finding.kind, finding.place.topic, finding.place.partition) for finding in part.findings if finding.severity.rank > 0
        }
        assert worse <= whole
        for summary in part.partitions:
            assert summary.read is not ReadExtent.WHOLE or all(replica.broker != unread for replica in summary.replicas)
            assert summary.verdict != "unknown" or len(summary.not_read) == len(summary.replicas)


@pytest.mark.parametrize("refused", ["t-0", f"t-0/{segment_file(55)}"])
def test_records_that_an_unreadable_copy_may_hold_are_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    brokers = healthy(tmp_path)
    shutil.rmtree(brokers.log_dir(2) / "t-0")
    brokers.checkpoint("replication", 100, 2)
    hidden = brokers.log_dir(3) / refused
    refuse(monkeypatch, lambda path: path == hidden)
    refuse_listing(monkeypatch, lambda name, path: Path(name) / path == hidden)
    result = scan([str(path) for path in brokers.log_dirs], ScanOptions())
    assert {incomplete.reason for incomplete in result.incomplete} == {REASON}
    assert "COMMITTED_LOST_EVERYWHERE" not in {finding.kind for finding in result.findings}
