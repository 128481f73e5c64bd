"""Flips bits of base offsets in copies of real logs, and runs commands on them."""

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from kafka_forensics import scan_snapshots
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.offset_ranges import normalised
from kafka_forensics.questions.compare import compare
from kafka_forensics.questions.plan import PlanOptions, make_plans
from kafka_forensics.questions.search import Conditions, search
from kafka_forensics.replication.planner.plans import Loss
from kafka_forensics.scanning.engine.local import scan


@dataclass(frozen=True)
class Batch:
    log: Path
    position: int
    base_offset: int


def batches_of(directory: Path) -> list[Batch]:
    batches = []
    for log in sorted(directory.glob("*.log")):
        data, at = log.read_bytes(), 0
        while at + 17 <= len(data):
            base_offset, length = struct.unpack_from(">qi", data, at)
            if length < 14:
                break
            batches.append(Batch(log, at, base_offset))
            at += 12 + length
    return batches


@contextmanager
def flipped(batch: Batch, byte: int, bit: int) -> Iterator[None]:
    """Flips one bit of the batch while the context lasts."""
    before = batch.log.read_bytes()
    changed = bytearray(before)
    changed[batch.position + byte] ^= 1 << bit
    batch.log.write_bytes(changed)
    try:
        yield
    finally:
        batch.log.write_bytes(before)


def scanned(paths: list[str], topic: str, partition: int) -> dict[str, Any]:
    """A scan's summary of one partition, and its findings, without those about recovery."""
    result = scan(paths, ScanOptions(topic, partition))
    (summary,) = result.partitions
    return {
        "replicas": [replace(replica, recovery=None) for replica in summary.replicas],
        "high_watermark": summary.high_watermark_at_least,
        "findings": sorted(
            (finding.kind, str(finding.place.broker), finding.place.offset_start, finding.place.offset_end)
            for finding in result.findings
            if finding.place.topic == topic and finding.kind != "RECOVERY_WOULD_TRUNCATE"
        ),
    }


def planned(paths: list[str], topic: str, partition: int, without: str) -> list[object]:
    """The losses of elections, without those of candidate `without`, whose broker may not start."""
    return [
        (
            [
                (candidate.broker, candidate.election, _offsets(candidate.losses))
                for candidate in partition_plan.plan.candidates
                if str(candidate.broker) != without
            ],
            _offsets(partition_plan.plan.at_stake),
        )
        for partition_plan in make_plans(paths, ScanOptions(topic, partition), PlanOptions()).planned
    ]


def _offsets(losses: Sequence[Loss]) -> dict[str, object]:
    """Lost offsets by the brokers that hold them."""
    ranges_by_holders: dict[str, list[tuple[int, int]]] = {}
    for loss in losses:
        ranges_by_holders.setdefault(repr(loss.held_by), []).append((loss.start, loss.end))
    return {holders: normalised(ranges) for holders, ranges in ranges_by_holders.items()}


def compared(paths: list[str], topic: str, partition: int) -> object:
    side = compare(paths, ScanOptions(topic, partition))
    return side.first_difference, side.rows


def found_offsets(paths: list[str], topic: str, partition: int, end: int) -> list[tuple[object, int]]:
    """(broker, offset) of the records that a search for the last offsets finds."""
    conditions = Conditions(offset_start=max(end - 20, 0), offset_end=end + 5)
    return [(row[2], row[3]) for row in search(paths, ScanOptions(topic, partition), conditions).rows()]


def changed(older: list[str], newer: list[str], topic: str, partition: int) -> list[object]:
    """The changes between two copies, except bytes that differ at equal offsets."""
    result = scan_snapshots({"older": older, "newer": newer}, topic=topic, partition=partition)
    changes = [
        (change.broker, change.kind, change.offset_start, change.offset_end)
        for change in result.changes
        if change.kind != "rewritten"
    ]
    return [*(change for change in changes if change[1] != "unchanged"), *(finding.kind for finding in result.findings)]
