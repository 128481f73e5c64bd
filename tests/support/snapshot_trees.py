"""Snapshots of three brokers with one partition, written at two times, and what is told of the time between."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.changes import Change, SnapshotsResult
from tests.engine.task_changes import with_keys_apart
from tests.support.faults import HEALTHY, HIGH_WATERMARK, Log, histories, write_checkpoint

OLD, NEW = "2026-11-20", "2026-11-21"
EVERY = (1, 2, 3)
Row = tuple[int | str, str, str | None, int, int]
"""Broker, kind, reason, first offset, end."""


def grown(log: Log = HEALTHY, batches: int = 2, *, roll: bool = False, epoch: int | None = None, tag: str = "") -> Log:
    """The log with more batches of three records each behind it."""
    longer = copy.deepcopy(log)
    longer.tag = tag
    if roll:
        longer.roll()
    longer.lead(longer.leader_epoch if epoch is None else epoch)
    for _ in range(batches):
        longer.plain()
    return longer


def cut(log: Log, end: int) -> Log:
    shorter = copy.deepcopy(log)
    shorter.batches = [batch for batch in shorter.batches if batch.base_offset < end]
    shorter.segments = [one for one in shorter.segments if one < end]
    shorter.epochs = [entry for entry in shorter.epochs if entry.start_offset < end]
    shorter.snapshots = {offset: entries for offset, entries in shorter.snapshots.items() if offset < end}
    shorter.aborted = {
        segment: [txn for txn in entries if txn.last_offset < end] for segment, entries in shorter.aborted.items() if segment < end
    }
    shorter.producers = {}
    shorter.next_offset = end
    shorter.leader_epoch = shorter.epochs[-1].leader_epoch
    return shorter


def expired(log: Log, segment: int) -> Log:
    later = copy.deepcopy(log)
    later.batches = [batch for batch in later.batches if batch.segment >= segment]
    later.segments = [one for one in later.segments if one >= segment]
    later.aborted = {base: entries for base, entries in later.aborted.items() if base >= segment}
    later.snapshots = {offset: entries for offset, entries in later.snapshots.items() if offset >= segment}
    later.epochs = [entry for entry in later.epochs if entry.start_offset >= segment] or later.epochs[-1:]
    return later


@dataclass(frozen=True)
class Snapshots:
    root: Path

    def put(self, name: str, logs: dict[int, Log] | Log, high_watermark: int = HIGH_WATERMARK, *, log_start: int = 0) -> Path:
        """A snapshot in which brokers (all three, if one log is given) have these logs and this high watermark."""
        folder = self.root / name
        given = dict.fromkeys(EVERY, logs) if isinstance(logs, Log) else logs
        histories(folder, given, {broker: min(high_watermark, log.next_offset) for broker, log in given.items()})
        for broker in given:
            write_checkpoint(folder / f"b{broker}", "log-start", log_start)
        return folder

    def between(self, old: dict[int, Log] | Log, new: dict[int, Log] | Log, *newer: int, log_start: int = 0) -> SnapshotsResult:
        """What is told of two snapshots with these logs; `newer` is the high watermark of the newer one."""
        self.put(OLD, old)
        self.put(NEW, new, *newer, log_start=log_start)
        return self.told()

    def told(self, **options: Any) -> SnapshotsResult:
        """What a comparison of all of them says; the same, whichever way it is asked."""
        return with_keys_apart(str(self.root), ScanOptions(**options))


def rows(result: SnapshotsResult, **wanted: Any) -> list[Row]:
    """Every change in short; those alone whose fields are as `wanted`."""
    return [short(change) for change in result.changes if all(getattr(change, name) == value for name, value in wanted.items())]


def short(change: Change) -> Row:
    return change.broker, change.kind.value, change.reason, change.offset_start, change.offset_end


def on_each(*told: tuple[str, str | None, int, int], brokers: tuple[int, ...] = EVERY) -> list[Row]:
    """The same rows on every broker."""
    return [(broker, *row) for broker in brokers for row in told]


def findings(result: SnapshotsResult) -> list[tuple[str, str, int | None, int | None]]:
    return [
        (finding.kind, finding.severity.value, finding.place.offset_start, finding.place.offset_end) for finding in result.findings
    ]
