"""Snapshots of three brokers with one partition, taken at two times, and the changes between them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.changes import Change, SnapshotsResult
from tests.scanning.engine.task_changes import changes_with_key_tasks
from tests.support.brokers import BROKERS, put_replicas, write_checkpoint
from tests.support.logs import HIGH_WATERMARK, Log

OLD, NEW = "2026-11-20", "2026-11-21"
Row = tuple[int | str, str, str | None, int, int]
"""Broker, kind, reason, first offset, end."""


@dataclass(frozen=True)
class Snapshots:
    root: Path

    def put(self, name: str, logs: dict[int, Log] | Log, high_watermark: int = HIGH_WATERMARK, *, log_start: int = 0) -> Path:
        """Write a snapshot of brokers with these logs (one log: on all three brokers) and this high watermark."""
        folder = self.root / name
        put_replicas(folder, logs, high_watermark)
        for log_dir in folder.iterdir():
            write_checkpoint(log_dir, "log-start", log_start)
        return folder

    def compare_logs(
        self, old: dict[int, Log] | Log, new: dict[int, Log] | Log, *newer: int, log_start: int = 0
    ) -> SnapshotsResult:
        """Write and compare two snapshots with these logs; `newer` is the high watermark of the newer snapshot."""
        self.put(OLD, old)
        self.put(NEW, new, *newer, log_start=log_start)
        return self.compare()

    def compare(self, **options: Any) -> SnapshotsResult:
        """Compare all snapshots, with and without deferred keys, which must give the same result."""
        return changes_with_key_tasks(str(self.root), ScanOptions(**options))


def change_rows(result: SnapshotsResult, **wanted: Any) -> list[Row]:
    """The row of every change whose fields have the values in `wanted`."""
    return [
        change_row(change) for change in result.changes if all(getattr(change, name) == value for name, value in wanted.items())
    ]


def change_row(change: Change) -> Row:
    return change.broker, change.kind.value, change.reason, change.offset_start, change.offset_end


def on_every_broker(*rows: tuple[str, str | None, int, int], brokers: tuple[int, ...] = BROKERS) -> list[Row]:
    """The same rows on every broker."""
    return [(broker, *row) for broker in brokers for row in rows]


def findings(result: SnapshotsResult) -> list[tuple[str, str, int | None, int | None]]:
    return [
        (finding.kind, finding.severity.value, finding.place.offset_start, finding.place.offset_end) for finding in result.findings
    ]
