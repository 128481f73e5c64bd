"""Copies of the brokers after the recovery from an incident, and changed outputs of `recover`."""

import json
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from kafka_forensics.writers.batches import RecordToWrite, write_batch
from lab.fault_base import read_log
from tests.support.audit import put_audit

LOG = "audit-0/00000000000000000000.log"
RecordFields = tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes], ...]]
"""Key, value, timestamp and headers of a record."""


def repaired_copies(folder: Path) -> Path:
    """The copies after broker 2 became the leader: all have its log."""
    copies = put_audit(folder)
    for broker in (1, 3):
        shutil.rmtree(copies / f"broker-{broker}" / "audit-0")
        shutil.copytree(copies / "broker-2" / "audit-0", copies / f"broker-{broker}" / "audit-0")
    return copies


def of_earlier_plan(plan: Path, **changes: Any) -> Path:
    """Change the plan to one that was made in another leader epoch of the partition."""
    document = json.loads(plan.read_text())
    document["partitions"][0]["controller"] |= changes
    plan.write_text(json.dumps(document))
    return plan


def with_records(copies: Path, records: list[RecordFields]) -> None:
    """Append records to broker 1's log: key, value, timestamp, headers."""
    log = copies / "broker-1" / LOG
    end = read_log(log.parent).batches[-1].last_offset + 1
    batches = [
        write_batch(
            [RecordToWrite(key, value, headers=headers)],
            base_offset=end + number,
            base_timestamp=timestamp,
            partition_leader_epoch=2,
        )
        for number, (key, value, timestamp, headers) in enumerate(records)
    ]
    log.write_bytes(log.read_bytes() + b"".join(batches))


def append(copies: Path, broker: int, *batches: Callable[[int], bytes]) -> None:
    log = copies / f"broker-{broker}" / LOG
    for make_batch in batches:
        log.write_bytes(log.read_bytes() + make_batch(read_log(log.parent).batches[-1].last_offset + 1))


def rows_of(lost: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (lost / "records.jsonl").read_text().splitlines()]


def put_rows(lost: Path, rows: list[dict[str, Any]]) -> Path:
    """Replace the records of a recovery, and update its report."""
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (lost / "records.jsonl").write_bytes(data)
    report = json.loads((lost / "report.json").read_text())
    for file in report["files"]:
        if file["name"] == "records.jsonl":
            file["sha256"] = sha256(data).hexdigest()
    reported = {(partition["topic"], partition["partition"]) for partition in report["partitions"]}
    unreported = {(row["topic"], row["partition"]) for row in rows} - reported
    report["partitions"] += [
        report["partitions"][0] | {"topic": topic, "partition": partition} for topic, partition in sorted(unreported)
    ]
    (lost / "report.json").write_text(json.dumps(report))
    return lost


def put_back(row: dict[str, Any], *, header: bool = True) -> RecordFields:
    headers = tuple((name, value.encode()) for name, value in row["headers"])
    added = (("kafka-forensics-original-offset", b"%d" % row["offset"]),) if header else ()
    key = None if row["key"] is None else row["key"].encode()
    return key, row["value"].encode(), row["timestamp_ms"], (*headers, *added)
