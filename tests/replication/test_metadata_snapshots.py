"""How a start handles snapshots of the controller's log, by Kafka's rules."""

import pytest
from msgspec.structs import replace

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.replication.recovery import (
    METADATA_SNAPSHOT,
    LogFacts,
    SegmentFacts,
    load_forecast,
    segment_file,
    snapshot_outcome,
)


def snapshot_file(offset: int, epoch: int, suffix: str = "checkpoint") -> str:
    return f"{offset:020d}-{epoch:010d}.{suffix}"


def log(*files: str, start: int = 0, end: int = 30) -> LogFacts:
    segment = SegmentFacts(start, 1000, end, end)
    names = [segment_file(start, suffix) for suffix in ("log", "index", "timeindex")]
    epochs = (EpochEntry(1, 0), EpochEntry(2, 10))
    return LogFacts((segment,), end, clean_shutdown=False, files=(*names, *files), epochs=epochs, is_metadata=True)


def steps(facts: LogFacts) -> list[tuple[str, str]]:
    return [(step.action, step.file) for step in load_forecast(facts).steps if step.check == METADATA_SNAPSHOT]


def test_unfinished_deleted_and_old_snapshots_are_deleted() -> None:
    deleted = [snapshot_file(5, 1), snapshot_file(15, 2, "checkpoint.deleted"), f"{20:020d}-{2:010d}-8765.checkpoint.part"]
    facts = log(*deleted, snapshot_file(12, 2), snapshot_file(20, 2), start=12)
    assert steps(facts) == [("delete", name) for name in sorted(deleted)]
    forecast = load_forecast(facts)
    assert (forecast.refused, forecast.log_start_offset, forecast.log_end_offset) == (False, 12, 30)


@pytest.mark.parametrize(
    "files", [(), (snapshot_file(11, 2),), (f"{20:020d}-{2:010d}-8765.checkpoint.part",), ("bootstrap.checkpoint",)]
)
def test_a_log_that_starts_after_0_needs_a_snapshot(files: tuple[str, ...]) -> None:
    forecast = load_forecast(log(*files, start=12))
    assert (forecast.refused, forecast.log_end_offset, forecast.steps[-1].check) == (True, None, METADATA_SNAPSHOT)
    assert not load_forecast(replace(log(*files, start=12), is_metadata=False)).refused


@pytest.mark.parametrize(("snapshot", "start_at"), [((30, 2), None), ((31, 2), 31), ((31, 1), None), ((5, 3), 5), ((0, 0), None)])
def test_a_snapshot_beyond_the_log_end_replaces_the_log(snapshot: tuple[int, int], start_at: int | None) -> None:
    facts = log(snapshot_file(*snapshot))
    assert snapshot_outcome(facts, 0, 30).start_at == start_at
    forecast = load_forecast(facts)
    assert forecast.log_end_offset == (30 if start_at is None else start_at)
    assert forecast.cuts == ()


def test_older_snapshots_are_renamed_when_a_snapshot_replaces_the_log() -> None:
    facts = log(snapshot_file(10, 1), snapshot_file(40, 2))
    assert steps(facts) == [
        ("truncate", ""),
        ("rename", snapshot_file(10, 1)),
        ("delete", segment_file(0)),
        ("create", segment_file(40)),
    ]
    forecast = load_forecast(facts)
    assert (forecast.log_start_offset, forecast.log_end_offset, forecast.segments) == (40, 40, (40,))


def test_a_truncated_epoch_is_not_counted() -> None:
    assert snapshot_outcome(log(snapshot_file(12, 1)), 0, 10).start_at == 12
    assert snapshot_outcome(log(snapshot_file(12, 1)), 0, 11).start_at is None
