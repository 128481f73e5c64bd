"""Replicas without a directory: losses that their checkpoints prove, except of records deleted before."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.scanning.engine.local import scan
from kafka_forensics.scanning.judging.absence import _has_prefix
from kafka_forensics.wording import advice
from tests.support.brokers import BROKERS, Brokers, healthy, write_checkpoint
from tests.support.controllers import setting, topic_with_isr, with_controller
from tests.support.logs import HIGH_WATERMARK, LOG_END

Rows = list[tuple[str, object, int | None, int | None, object]]
"""Kind, broker, first offset, end, number of missing offsets."""


def absence_findings(brokers: Brokers, topic: str) -> Rows:
    return [
        (finding.kind, finding.place.broker, finding.place.offset_start, finding.place.offset_end, finding.evidence.get("missing"))
        for finding in scan([str(path) for path in brokers.log_dirs], ScanOptions(jobs=1)).findings
        if finding.place.topic == topic and finding.kind in ("COMMITTED_LOST_EVERYWHERE", "REPLICA_MISSING")
    ]


@pytest.mark.parametrize("log_start", [0, 20])
def test_records_deleted_before_a_partition_went_missing_are_not_lost(tmp_path: Path, log_start: int) -> None:
    brokers = healthy(tmp_path)
    for broker in BROKERS:
        write_checkpoint(brokers.log_dir(broker), "replication", 50, "u-0")
    write_checkpoint(brokers.log_dir(2), "log-start", log_start, "u-0")
    assert absence_findings(brokers, "u") == [
        ("COMMITTED_LOST_EVERYWHERE", None, log_start, 50, 50 - log_start),
        *(("REPLICA_MISSING", broker, log_start if broker == 2 else 0, 50, None) for broker in BROKERS),
    ]


def test_nothing_is_lost_if_all_records_were_deleted(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    for broker in BROKERS:
        for checkpoint in ("replication", "log-start"):
            write_checkpoint(brokers.log_dir(broker), checkpoint, 50, "u-0")
    assert absence_findings(brokers, "u") == [("REPLICA_MISSING", broker, 50, 50, None) for broker in BROKERS]


@pytest.mark.parametrize(
    ("log_start", "start"), [(0, LOG_END), (HIGH_WATERMARK, LOG_END), (LOG_END + 10, LOG_END + 10), (100, None)]
)
def test_deleted_records_after_the_end_of_all_logs_are_not_lost(tmp_path: Path, log_start: int, start: int | None) -> None:
    brokers = healthy(tmp_path)
    shutil.rmtree(brokers.log_dir(2) / "t-0")
    brokers.checkpoint("replication", 100, 2)
    brokers.checkpoint("log-start", log_start, 2)
    lost = [] if start is None else [("COMMITTED_LOST_EVERYWHERE", None, start, 100, 100 - start)]
    assert absence_findings(brokers, "t") == [*lost, ("REPLICA_MISSING", 2, log_start, 100, None)]


@pytest.mark.parametrize(
    ("settings", "premise", "harmless_if"),
    [
        ([("retention.ms", "-1")], "retention from the controller's log", "retention was set lower for a while"),
        ([("cleanup.policy", "compact")], "in the controller's log the topic is only compacted", "cleanup.policy was delete"),
    ],
)
def test_a_missing_first_segment_has_its_premises(
    tmp_path: Path, settings: list[tuple[str, str]], premise: str, harmless_if: str
) -> None:
    """The premise of unlimited retention differs from that of compaction."""
    brokers = healthy(tmp_path)
    brokers.remove(2, 0, "*")
    with_controller(brokers, *topic_with_isr([1, 2]), *(setting(*named) for named in settings))
    findings = scan([str(path) for path in sorted(tmp_path.iterdir())], ScanOptions(jobs=1)).findings
    [evidence] = [finding.evidence for finding in findings if finding.kind == "LOG_HEAD_MISSING"]
    assert evidence["premises"][0].startswith(premise)
    assert evidence["harmless_if"].startswith(harmless_if)


@pytest.mark.parametrize(("policy", "severity"), [("delete", "info"), ("compact,delete", "info"), ("compact", "critical")])
def test_a_log_start_that_the_broker_moved_shortly_before_a_crash_is_info(tmp_path: Path, policy: str, severity: str) -> None:
    """It cuts the epochs before it deletes segments. Nothing but a restart moves the start of a log that is only compacted."""
    brokers = healthy(tmp_path)
    start = brokers.log.segments[1]
    brokers.remove(2, 0, "*")
    brokers.put_epochs(2, (0, start), *brokers.log.epochs[1:])
    with_controller(brokers, *topic_with_isr([1, 2]), setting("retention.ms", "-1"), setting("cleanup.policy", policy))
    findings = scan([str(path) for path in sorted(tmp_path.iterdir())], ScanOptions(jobs=1)).findings
    [missing] = [finding for finding in findings if finding.kind == "LOG_HEAD_MISSING"]
    assert (missing.severity, missing.place.offset_start, missing.place.offset_end) == (severity, 0, start)
    assert (advice(missing) is None) == (severity == "info")


@given(st.lists(st.text("ab/", max_size=8), max_size=6), st.text("ab/", max_size=6))
def test_unread_paths_in_order_are_found_as_by_a_look_at_all(paths: list[str], directory: str) -> None:
    assert _has_prefix(sorted(paths), f"{directory}/") == any(path.startswith(f"{directory}/") for path in paths)


@pytest.mark.parametrize("running", [0, 1, 2])
def test_a_running_broker_with_a_copy_may_hold_later_records(tmp_path: Path, running: int) -> None:
    """Whichever it is; the broker without a copy does not matter."""
    brokers = healthy(tmp_path)
    shutil.rmtree(brokers.log_dir(2) / "t-0")
    brokers.checkpoint("replication", 100, 2)
    for broker in BROKERS:
        (brokers.log_dir(broker) / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":1}')
    (brokers.log_dir(BROKERS[running]) / ".kafka_cleanshutdown").unlink()
    [lost] = [
        finding
        for finding in scan([str(path) for path in brokers.log_dirs], ScanOptions(jobs=1)).findings
        if finding.kind == "COMMITTED_LOST_EVERYWHERE"
    ]
    assert ("harmless_if" in lost.evidence) == (BROKERS[running] != 2)
