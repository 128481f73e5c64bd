"""Segments that real brokers delete by retention are not reported as missing, even if they are killed meanwhile; others are."""

import time
from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.scanning.engine.local import scan
from lab.cluster import Cluster
from lab.files import copy_tree
from lab.jvm import wait_until
from lab.story import messages
from lab.workload import SMALL_SEGMENTS, Writer
from tests.support.segments import segment_file

pytestmark = pytest.mark.broker

TOPIC = "kept-short"
RETENTION = {"log.retention.check.interval.ms": "1000", "log.initial.task.delay.ms": "1000"}
WITHIN_SECONDS = 60
SETTLED_SECONDS = 3
"""Brokers write epochs shortly after they delete segments."""


def bases(log_dir: Path) -> list[int]:
    return sorted(int(path.stem) for path in (log_dir / f"{TOPIC}-0").glob("*.log"))


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies of three brokers that were killed after retention deleted their first segments, with the controller's log."""
    root = tmp_path_factory.mktemp("retention")
    with Cluster(root / "cluster", 3, broker_settings=RETENTION) as cluster:
        cluster.create_topic(TOPIC, settings={**SMALL_SEGMENTS, "retention.bytes": "30000", "file.delete.delay.ms": "100"})
        writer = Writer(cluster)
        for number in range(60):
            writer.batch(TOPIC, messages(TOPIC, 40 * number, 40))
        wait_until(
            "retention has taken first segments",
            lambda: all(bases(cluster.log_dir(broker))[0] > 0 for broker in cluster.brokers),
            timeout_seconds=WITHIN_SECONDS,
            step_seconds=0.5,
        )
        time.sleep(SETTLED_SECONDS)
        cluster.kill(*cluster.brokers)
        for broker in cluster.brokers:
            copy_tree(cluster.log_dir(broker), root / "copies" / f"broker-{broker}")
    return root / "copies"


def missing_log_starts(copies: Path) -> list[object]:
    result = scan([str(copies)], ScanOptions(topic_glob=TOPIC))
    return [finding.place.broker for finding in result.findings if finding.kind == "LOG_HEAD_MISSING"]


def test_retention_is_not_a_missing_log_start(copies: Path) -> None:
    starts = [bases(copies / f"broker-{broker}")[0] for broker in (1, 2, 3)]
    assert min(starts) > 0
    assert missing_log_starts(copies) == []


def test_one_more_segment_missing_everywhere_is_reported(copies: Path, tmp_path: Path) -> None:
    copy_tree(copies, tmp_path / "copies")
    log_dirs = [tmp_path / "copies" / f"broker-{broker}" for broker in (1, 2, 3)]
    furthest = max(bases(log_dir)[0] for log_dir in log_dirs)  # each broker deletes when it comes to it
    start = min(base for log_dir in log_dirs for base in bases(log_dir) if base > furthest)
    assert all(start in bases(log_dir) for log_dir in log_dirs)
    for log_dir in log_dirs:
        for base in bases(log_dir):
            for path in (log_dir / f"{TOPIC}-0").glob(segment_file(base, "*")) if base < start else ():
                path.unlink()
    assert missing_log_starts(tmp_path / "copies") == [1, 2, 3]
