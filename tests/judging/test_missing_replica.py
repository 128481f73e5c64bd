"""A partition that a checkpoint lists and of which no directory is there."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.engine.local import scan
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.ledger import Extent
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.wording import message
from kafka_forensics.writers.files import write_offset_checkpoint
from tests.support.controller_log import change, controlled_by, in_sync
from tests.support.faults import LOG_END, healthy, write_checkpoint


def test_a_replica_whose_directory_is_gone_is_told(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    shutil.rmtree(brokers.log_dir(2) / "t-0")
    result = scan([str(brokers.log_dir(broker)) for broker in (1, 2, 3)], ScanOptions())
    [gone] = [finding for finding in result.findings if finding.kind == "REPLICA_MISSING"]
    assert (gone.place.topic, gone.place.partition, gone.place.broker) == ("t", 0, 2)
    assert gone.place.offset_end == gone.evidence["high_watermark"] > 0
    assert [finding.kind for finding in result.findings if finding.severity.rank > 0] == [
        "EMPTY_REPLICA_MAY_LEAD",
        "REPLICA_MISSING",
    ]


def test_every_partition_that_is_gone_everywhere_is_told(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    for broker in (1, 2, 3):
        checkpoint = brokers.log_dir(broker) / "replication-offset-checkpoint"
        lines = [*(f"gone {number} {number + 1}" for number in range(40)), "t 0 " + checkpoint.read_text().split()[-1]]
        checkpoint.write_text(f"0\n{len(lines)}\n" + "".join(f"{line}\n" for line in lines))
    result = scan([str(brokers.log_dir(broker)) for broker in (1, 2, 3)], ScanOptions(copied=Extent.WHOLE))
    lost = [finding for finding in result.findings if finding.kind == "COMMITTED_LOST_EVERYWHERE"]
    assert [(finding.place.topic, finding.place.partition, finding.place.offset_end) for finding in lost] == [
        ("gone", number, number + 1) for number in range(40)
    ]


def test_an_offset_of_zero_is_no_proof(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    checkpoint = brokers.log_dir(2) / "replication-offset-checkpoint"
    checkpoint.write_text("0\n2\nnever-written 0 0\nt 0 " + checkpoint.read_text().split()[-1] + "\n")
    result = scan([str(brokers.log_dir(broker)) for broker in (1, 2, 3)], ScanOptions())
    assert "REPLICA_MISSING" not in {finding.kind for finding in result.findings}


def test_what_was_not_asked_for_is_not_told(tmp_path: Path) -> None:
    """Of a topic, a partition, a broker nothing was asked for of the others, whose directories are gone everywhere."""
    brokers = healthy(tmp_path)
    for broker in (1, 2, 3):
        path = brokers.log_dir(broker) / "replication-offset-checkpoint"
        path.write_bytes(write_offset_checkpoint({("t", 0): 72, ("t", 1): 8, ("other", 0): 9}))
    gone = {"COMMITTED_LOST_EVERYWHERE", "REPLICA_MISSING"}

    def told(**asked: Any) -> set[tuple[str, str | None, int | None, int | str | None]]:
        result = scan([str(path) for path in brokers.log_dirs], ScanOptions(copied=Extent.WHOLE, **asked))
        places = [(finding.kind, finding.place) for finding in result.findings if finding.kind in gone]
        return {(kind, place.topic, place.partition, place.broker) for kind, place in places}

    missing = {("REPLICA_MISSING", "t", 1, broker) for broker in (1, 2, 3)}
    assert told(topic_glob="t") == {*missing, ("COMMITTED_LOST_EVERYWHERE", "t", 1, None)}
    assert told(topic_glob="t", partition=0) == set()
    assert told(topic_glob="t", broker="2") == {("REPLICA_MISSING", "t", 1, 2)}
    assert len(told()) == 8


def test_a_checkpoint_of_a_replica_that_is_gone_proves_what_no_copy_holds(tmp_path: Path) -> None:
    """Broker 2's directory is gone, its checkpoint says 100; the copies left end at 75."""
    brokers = healthy(tmp_path)
    shutil.rmtree(brokers.log_dir(2) / "t-0")
    write_checkpoint(brokers.log_dir(2), "replication", 100)
    paths = [str(path) for path in brokers.log_dirs]
    result = scan(paths, ScanOptions())
    [lost] = [finding for finding in result.findings if finding.kind == "COMMITTED_LOST_EVERYWHERE"]
    assert (lost.place.offset_start, lost.place.offset_end, lost.confidence.value) == (LOG_END, 100, "inferred")
    assert lost.evidence["witness"] == "replication-offset-checkpoint of broker 2"
    assert (lost.evidence["directories_missing_on"], lost.evidence["held_by"]) == ([2], [])
    assert "its directory is gone on broker 2." in message(lost)
    [partition] = result.partitions
    assert (partition.verdict, partition.high_watermark_at_least) == ("critical", 100)
    brokers.crash(1)
    [lost] = [finding for finding in scan(paths, ScanOptions()).findings if finding.kind == "COMMITTED_LOST_EVERYWHERE"]
    assert (lost.confidence.value, "while their brokers ran" in lost.evidence["harmless_if"]) == ("suspected", True)
    for asked in ({"live": True}, {"broker": "2"}, {"broker": "1"}):
        assert "COMMITTED_LOST_EVERYWHERE" not in {finding.kind for finding in scan(paths, ScanOptions(**asked)).findings}


@pytest.mark.parametrize("replicas", [[1, 2, 3], [1, 3]])
def test_a_broker_that_has_no_replica_proves_nothing_lost(tmp_path: Path, replicas: list[int]) -> None:
    """The same copies: broker 2's directory is gone, and its checkpoint reaches beyond the others."""
    brokers = controlled_by(healthy(tmp_path), *in_sync([3]), change(replicas=replicas, isr=[1, 3]))
    shutil.rmtree(brokers.log_dir(2) / "t-0")
    write_checkpoint(brokers.log_dir(2), "replication", 100)
    findings = scan([str(path) for path in sorted(tmp_path.iterdir())], ScanOptions()).findings
    told = {
        finding.kind: finding.severity.value
        for finding in findings
        if finding.severity.rank > 0 or finding.kind == "REPLICA_MISSING"
    }
    if 2 in replicas:
        assert told == {"COMMITTED_LOST_EVERYWHERE": "critical", "REPLICA_MISSING": "warning"}
    else:
        assert told == {"REPLICA_MISSING": "info"}
        [finding] = [each for each in findings if each.kind == "REPLICA_MISSING"]
        assert finding.evidence["harmless_if"] == "the replica was moved away, as the controller's log says"


@pytest.mark.parametrize("refused", ["t-0", f"t-0/{55:020d}.log"])
def test_a_copy_that_cannot_be_read_may_hold_what_the_others_lack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    brokers = healthy(tmp_path)
    shutil.rmtree(brokers.log_dir(2) / "t-0")
    write_checkpoint(brokers.log_dir(2), "replication", 100)
    opening, listing = LocalSource.open, LocalSource.list

    def unless_refused(self: LocalSource, path: str) -> str:
        if (self.name, path) == (str(brokers.log_dir(3)), refused):
            raise SourceError(path, "permission denied")
        return path

    monkeypatch.setattr(LocalSource, "open", lambda self, path: opening(self, unless_refused(self, path)))
    monkeypatch.setattr(LocalSource, "list", lambda self, path="": listing(self, unless_refused(self, path)))
    result = scan([str(path) for path in brokers.log_dirs], ScanOptions())
    assert {incomplete.reason for incomplete in result.incomplete} == {"permission denied"}
    assert "COMMITTED_LOST_EVERYWHERE" not in {finding.kind for finding in result.findings}
