"""Copies of partition `audit-0` of the sample `unclean-election`: one, or any number of them."""

import shutil
from pathlib import Path
from typing import Final

from tests.support.brokers import put_meta_properties, put_topic_id, write_checkpoint
from tests.support.controllers import CONTROLLER, ControllerLog, partition, partition_change, topic
from tests.support.places import SAMPLES

SAMPLE: Final = SAMPLES / "unclean-election"
AUDIT: Final = "audit"
STARTED_MS: Final = 1_795_240_000_000
"""Time of the first record in the controllers' log, after the last record of the sample."""
HIGH_WATERMARKS: Final = {1: 345, 2: 370, 3: 300}
"""High watermark by broker, as in the sample."""


def put_audit(folder: Path) -> Path:
    """Copy only `audit-0`, the controller's log and the files of the log directories."""
    for broker in SAMPLE.iterdir():
        for name in ("audit-0", "__cluster_metadata-0"):
            shutil.copytree(broker / name, folder / broker.name / name)
        for file in broker.iterdir():
            if file.is_file():
                shutil.copy(file, folder / broker.name)
    return folder


def put_unclean_election(root: Path, count: int, *, controller: bool = True) -> list[Path]:
    """Write `count` copies of the sample's partition, which lost records in an unclean election; return the log directories.

    With `controller`, a controllers' log records the election.
    """
    log_dirs = [
        _put_many(root, broker, SAMPLE / f"broker-{broker}" / "audit-0", count, high_watermark)
        for broker, high_watermark in HIGH_WATERMARKS.items()
    ]
    if controller:
        log = ControllerLog(start_ms=STARTED_MS).lead([CONTROLLER])
        log.append(topic(AUDIT), *(partition([2], 2, partition_id=number, replicas=[1, 2, 3]) for number in range(count)))
        log.append(*(partition_change(partition_id=number, leader=-1, isr=[2]) for number in range(count)))
        log.append(*(partition_change(partition_id=number, leader=1, isr=[1], leader_recovery_state=1) for number in range(count)))
        log.put(root / f"controller-{CONTROLLER}")
        log_dirs.append(root / f"controller-{CONTROLLER}")
    return log_dirs


def put_restored_copy(root: Path, count: int) -> list[Path]:
    """Write `count` partitions of three in-sync brokers, where broker 3's log directory was restored from an older copy."""
    newest, older = SAMPLE / "broker-2" / "audit-0", SAMPLE / "broker-3" / "audit-0"
    log_dirs = [_put_many(root, broker, newest, count, HIGH_WATERMARKS[2]) for broker in (1, 2)]
    log_dirs.append(_put_many(root, 3, older, count, HIGH_WATERMARKS[3]))
    log = ControllerLog(start_ms=STARTED_MS).lead([CONTROLLER])
    log.append(topic(AUDIT), *(partition([1, 2, 3], 1, partition_id=number) for number in range(count)))
    log.put(root / f"controller-{CONTROLLER}")
    return [*log_dirs, root / f"controller-{CONTROLLER}"]


def _put_many(root: Path, broker: int, replica: Path, count: int, high_watermark: int) -> Path:
    for number in range(count):
        directory = root / f"broker-{broker}" / f"{AUDIT}-{number}"
        shutil.copytree(replica, directory)
        put_topic_id(directory)
        write_checkpoint(directory.parent, "replication", high_watermark, directory.name)
    put_meta_properties(root / f"broker-{broker}", broker)
    return root / f"broker-{broker}"
