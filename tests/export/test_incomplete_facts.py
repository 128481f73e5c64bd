"""Facts read after a scan: missing rows are an error, unless they are allowed or the scan itself lists what is missing."""

import os
from pathlib import Path

import pytest

import kafka_forensics as kf
from kafka_forensics.errors import IncompleteError
from kafka_forensics.export.facts.facts import LOG_FACTS
from kafka_forensics.model.schemas import FACTS
from tests.support.brokers import healthy
from tests.support.logs import HEALTHY
from tests.support.snapshot_trees import NEW, OLD, Snapshots
from tests.support.unread import REASON, refuse_logs

NOT_OF_LOGS = [fact for fact in FACTS if fact not in LOG_FACTS]


def test_a_log_that_is_gone_since_the_scan_is_an_error(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    result = kf.scan([str(path) for path in brokers.log_dirs])
    whole = result.facts("batches").num_rows
    gone = brokers.file(2, 0)
    gone.unlink()
    for fact in LOG_FACTS:
        with pytest.raises(IncompleteError, match=f"^{gone}: .*; allow_incomplete=True reads the rest$"):
            result.facts(fact)
    for fact in NOT_OF_LOGS:
        result.facts(fact)
    assert result.incomplete == []
    assert result.facts("batches", allow_incomplete=True).num_rows < whole
    assert {unread.path for unread in result.incomplete} == {str(gone)}
    with pytest.raises(IncompleteError):  # the scan itself had read it
        result.facts("batches")
    assert {row["path"] for row in result.facts("incomplete").to_pylist()} == {str(gone)}
    assert result.to_pandas("batches", allow_incomplete=True)["base_offset"].notna().all()


def test_the_error_counts_what_else_is_missing(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    result = kf.scan([str(path) for path in brokers.log_dirs])
    for broker in (1, 2):
        brokers.file(broker, 0).unlink()
    with pytest.raises(IncompleteError, match=r", and 1 more path; "):
        result.facts("records")
    brokers.file(3, 0).unlink()
    with pytest.raises(IncompleteError, match=r", and 2 more paths; "):
        result.facts("records")


def test_a_log_that_changed_since_the_scan_is_an_error(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    result = kf.scan([str(path) for path in brokers.log_dirs])
    changed = brokers.file(1, 0)
    changed.write_bytes(changed.read_bytes()[:-1])
    with pytest.raises(IncompleteError, match=f"^{changed}: changed since the scan; allow_incomplete=True"):
        result.facts("batches")
    assert result.facts("batches", allow_incomplete=True).num_rows > 0
    assert [unread.reason for unread in result.incomplete] == ["changed since the scan"]


FILES = {
    "t-0/leader-epoch-checkpoint": ["epoch_entries"],
    "t-0/00000000000000000000.timeindex": ["index_entries", "spans"],
    "t-0/00000000000000000005.snapshot": ["producer_states", "spans"],
    "replication-offset-checkpoint": [],
}
"""File of a log directory → the facts that are read from it after the scan."""


@pytest.mark.parametrize("name", FILES)
def test_only_facts_of_a_changed_file_are_refused(tmp_path: Path, name: str) -> None:
    """A running broker writes its checkpoints every few seconds."""
    brokers = healthy(tmp_path)
    file = brokers.log_dirs[0] / name
    file.touch()
    result = kf.scan([str(path) for path in brokers.log_dirs], live=True)
    os.utime(file, (1, 1))
    for fact in FACTS:
        if fact in FILES[name]:
            with pytest.raises(IncompleteError, match=f"^{file}: changed since the scan;"):
                result.facts(fact)
        else:
            result.facts(fact)


def test_what_the_scan_could_not_read_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = healthy(tmp_path)
    refuse_logs(monkeypatch, brokers, (2,))
    result = kf.scan([str(path) for path in brokers.log_dirs])
    listed = list(result.incomplete)
    assert {unread.reason for unread in listed} == {REASON}
    for fact in FACTS:
        result.facts(fact)
    assert result.incomplete == listed


def test_snapshots_refuse_missing_rows_too(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path)
    snapshots.put(OLD, HEALTHY)
    gone = next(snapshots.put(NEW, HEALTHY).rglob("*.log"))
    result = kf.scan_snapshots(str(tmp_path))
    gone.unlink()
    with pytest.raises(IncompleteError, match=f"^{gone}: "):
        result.facts("batches")
    assert result.facts("changes").num_rows > 0
    assert result.facts("batches", allow_incomplete=True).num_rows > 0
    assert [unread.path for unread in result.snapshots[NEW].incomplete] == [str(gone)]
    assert result.snapshots[OLD].incomplete == []
