"""Clusters of many equal partitions to which one thing happened: what a scan should tell as one incident."""

import shutil
from pathlib import Path
from typing import Final

from kafka_forensics.writers.files import write_meta_properties, write_offset_checkpoint, write_partition_metadata
from tests.support.controller_log import CONTROLLER, ControllerLog, change, partition, topic
from tests.support.faults import CLUSTER_ID, TOPIC_ID

SAMPLE: Final = Path(__file__).resolve().parents[2] / "sample_logs" / "unclean-election"
AUDIT: Final = "audit"
STARTED_MS: Final = 1_795_240_000_000
"""Of the first record in the controllers' log: after the last of the sample."""
HIGH_WATERMARKS: Final = {1: 345, 2: 370, 3: 300}
"""By broker, as in the sample."""


def unclean_election(root: Path, count: int, *, controller: bool = True) -> list[Path]:
    """`count` times the sample's partition that lost data, by an unclean election that a controllers' log has, or nobody tells;
    the log directories."""
    log_dirs = [
        _log_dir(root, broker, SAMPLE / f"broker-{broker}" / "audit-0", count, high_watermark)
        for broker, high_watermark in HIGH_WATERMARKS.items()
    ]
    if controller:
        log = ControllerLog(start_ms=STARTED_MS).lead([CONTROLLER])
        log.append(topic(AUDIT), *(partition([2], 2, partition_id=number, replicas=[1, 2, 3]) for number in range(count)))
        log.append(*(change(partition_id=number, leader=-1, isr=[2]) for number in range(count)))
        log.append(*(change(partition_id=number, leader=1, isr=[1], leader_recovery_state=1) for number in range(count)))
        log.put(root / f"controller-{CONTROLLER}")
        log_dirs.append(root / f"controller-{CONTROLLER}")
    return log_dirs


def old_directory(root: Path, count: int) -> list[Path]:
    """`count` partitions on three brokers in sync, of which broker 3's log directory was put back from an older copy."""
    newest, older = SAMPLE / "broker-2" / "audit-0", SAMPLE / "broker-3" / "audit-0"
    log_dirs = [_log_dir(root, broker, newest, count, HIGH_WATERMARKS[2]) for broker in (1, 2)]
    log_dirs.append(_log_dir(root, 3, older, count, HIGH_WATERMARKS[3]))
    log = ControllerLog(start_ms=STARTED_MS).lead([CONTROLLER])
    log.append(topic(AUDIT), *(partition([1, 2, 3], 1, partition_id=number) for number in range(count)))
    log.put(root / f"controller-{CONTROLLER}")
    return [*log_dirs, root / f"controller-{CONTROLLER}"]


def _log_dir(root: Path, broker: int, replica: Path, count: int, high_watermark: int) -> Path:
    log_dir = root / f"broker-{broker}"
    log_dir.mkdir(parents=True)
    (log_dir / "meta.properties").write_bytes(write_meta_properties(node_id=broker, cluster_id=CLUSTER_ID))
    for number in range(count):
        shutil.copytree(replica, log_dir / f"{AUDIT}-{number}")
        (log_dir / f"{AUDIT}-{number}" / "partition.metadata").write_bytes(write_partition_metadata(TOPIC_ID))
    checkpoint = write_offset_checkpoint({(AUDIT, number): high_watermark for number in range(count)})
    (log_dir / "replication-offset-checkpoint").write_bytes(checkpoint)
    return log_dir
