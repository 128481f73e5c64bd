"""Brokers whose log cleaner stopped, and ordinary states that look like it."""

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Finding
from kafka_forensics.scanning.engine.local import scan
from kafka_forensics.wording import message
from tests.gallery.of_compaction import HOUR_MS, ROLLED, put_cleaners, rolled_log
from tests.support.brokers import Brokers, write_checkpoint
from tests.support.controllers import METADATA, partition, setting, topic, with_controller
from tests.support.segments import BASE_TIMESTAMP, segment_file

KIND = "CLEANER_STOPPED"
LOG = rolled_log()


def cleaner_findings(root: Path) -> list[Finding]:
    paths = [str(path) for path in sorted(root.iterdir())]
    return [finding for finding in scan(paths, ScanOptions(jobs=1)).findings if finding.kind == KIND]


def test_a_stopped_cleaner_is_reported_with_its_logs(tmp_path: Path) -> None:
    put_cleaners(tmp_path)
    (finding,) = cleaner_findings(tmp_path)
    evidence = finding.evidence
    assert (finding.severity.value, finding.confidence.value, finding.place.broker) == ("warning", "suspected", 2)
    assert finding.place.file == "cleaner-offset-checkpoint"
    due = 2 * (ROLLED - 1) - 12  # hours: other brokers cleaned up to 12 hours after the segment at which cleaning was due
    assert evidence["due_since_ms"] == BASE_TIMESTAMP + due * HOUR_MS
    assert evidence["last_cleaned_ms"] == BASE_TIMESTAMP
    assert evidence["last_written_ms"] == BASE_TIMESTAMP + 2 * ROLLED * HOUR_MS
    sizes = [(tmp_path / "b2" / "t-0" / segment_file(segment)).stat().st_size for segment in LOG.segments]
    assert (evidence["dirty_bytes"], evidence["clean_bytes"]) == (2 * sum(sizes[1 : due // 2]), 2 * sizes[0])
    assert evidence["partitions"] == 2
    assert [log["partition"] for log in evidence["logs"]] == ["t-0", "t-1"]
    assert [log["cleaned_end_offset"] for log in evidence["logs"]] == [LOG.segments[1]] * 2
    assert [log["others_cleaned_end_offset"] for log in evidence["logs"]] == [LOG.segments[ROLLED]] * 2
    assert message(finding).startswith(
        "broker 2: the log cleaner of this broker seems to have stopped; 2 compacted partitions that"
    )


def broker_1_is_younger(root: Path) -> None:
    """Broker 1 runs for two more days than broker 2, in which it may clean."""
    put_cleaners(root)
    shutil.rmtree(root / "b3")
    for path in (root / "b1").glob("t-*/*.log"):
        times = path.stat().st_mtime + 48 * HOUR_MS / 1000
        os.utime(path, (times, times))


def others_did_not_clean(root: Path) -> None:
    put_cleaners(root)
    for broker in (1, 3):
        for name in ("t-0", "t-1"):
            write_checkpoint(root / f"b{broker}", "cleaner", LOG.segments[1], name)


def one_copy(root: Path) -> None:
    put_cleaners(root)
    for broker in (1, 3):
        shutil.rmtree(root / f"b{broker}")


def one_partition_moves(root: Path) -> None:
    """One of the two partitions is being copied to another log directory of broker 2, and is not cleaned meanwhile."""
    put_cleaners(root)
    shutil.copytree(root / "b2" / "t-0", root / "b2" / f"t-0.{'0' * 32}-future")


ORDINARY: dict[str, Callable[[Path], object]] = {
    "all brokers cleaned to the same offset": partial(put_cleaners, behind={}),
    "others have not cleaned either": others_did_not_clean,
    "one broker": one_copy,
    "one of two partitions moves to another log directory": one_partition_moves,
    "a younger copy was cleaned further": broker_1_is_younger,
    "only one partition is behind, as after an error of the cleaner": partial(put_cleaners, behind={"t-0": 1}),
    "new replicas, without entries": partial(put_cleaners, behind={"t-0": -1, "t-1": -1}),
    "entries at the log start: logs that were never cleaned": partial(put_cleaners, behind={"t-0": 0, "t-1": 0}),
    "behind by a few segments, with a dirty ratio below the limit": partial(put_cleaners, behind={"t-0": 5, "t-1": 5}),
    "behind by the last segments, which were rolled some hours ago": partial(
        put_cleaners, behind={"t-0": 1, "t-1": 1}, hours=lambda segment: 0.6 * segment
    ),
    "down, and all segments copied in the last hour": partial(
        put_cleaners, hours=lambda segment: segment and 39 + segment / ROLLED
    ),
    "down for most of the time in which cleaning was due": partial(
        put_cleaners, hours=lambda segment: 0.5 * segment if segment < 15 else 36 + 0.2 * segment
    ),
    "file times of the copy": partial(put_cleaners, hours=lambda _: 40),
    "one file time that is impossible": partial(put_cleaners, hours=lambda segment: 40 if segment == 3 else 2.0 * segment),
    "another log was cleaned later: the cleaner runs, and is overloaded": partial(
        put_cleaners, behind={"t-0": 1, "t-1": 1, "t-2": ROLLED}, partitions=("t-0", "t-1", "t-2")
    ),
}


@pytest.mark.parametrize("case", ORDINARY)
def test_ordinary_states_are_not_reported(tmp_path: Path, case: str) -> None:
    ORDINARY[case](tmp_path)
    assert cleaner_findings(tmp_path) == []


def under_settings(root: Path, cleaned: int, *settings: bytes) -> Brokers:
    behind = {"t-0": cleaned, "t-1": cleaned}
    partitions = [partition([1, 2, 3], 1, partition_id=number) for number in (0, 1)]
    brokers = with_controller(put_cleaners(root, behind), topic(), *settings, *partitions)
    for path in root.glob(f"*/{METADATA}/*.log"):
        os.utime(path, (0, BASE_TIMESTAMP / 1000 + 40 * 3600))
    return brokers


@pytest.mark.parametrize(
    ("cleaned", "ratio", "is_found"), [(5, None, False), (5, "0.5", True), (1, "0.5", True), (1, "0.95", False), (1, "1", False)]
)
def test_the_dirty_ratio_is_that_of_the_topic_in_the_controllers_log(
    tmp_path: Path, cleaned: int, ratio: str | None, is_found: bool
) -> None:
    settings = [] if ratio is None else [setting("min.cleanable.dirty.ratio", ratio)]
    under_settings(tmp_path, cleaned, setting("cleanup.policy", "compact"), *settings)
    assert bool(cleaner_findings(tmp_path)) is is_found


@pytest.mark.parametrize(("policy", "is_found"), [("compact", True), ("compact,delete", True), ("delete", False)])
def test_a_topic_that_is_no_longer_compacted_is_skipped(tmp_path: Path, policy: str, is_found: bool) -> None:
    under_settings(tmp_path, 1, setting("cleanup.policy", policy))
    assert bool(cleaner_findings(tmp_path)) is is_found
