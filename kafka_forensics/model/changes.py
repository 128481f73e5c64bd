"""Changes of replicas between two snapshots, and the result of scanning several snapshots."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Final

import msgspec
from msgspec import Struct

from kafka_forensics.model.findings import Answer, Finding, Views
from kafka_forensics.model.incidents import Incident
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.results import Incomplete, ScanResult, verdict_of, worst

UNREADABLE: Final = "unreadable"
"""Reason of a change that is unknown because a log could not be read."""


class ChangeKind(StrEnum):
    """What happened to a range of offsets of one replica."""

    APPENDED = "appended"
    """Offsets of the newer log after the end of the older one, or after its truncation, from the log start on."""
    TRUNCATED = "truncated"
    """Offsets truncated at the end of the older log; the newer one ends before them, or has other records there."""
    CLEANED = "cleaned"
    """Compaction removed records."""
    DELETED = "deleted"
    """Offsets missing from the start, or with the whole replica; `reason` says why."""
    MISSING = "missing"
    """Offsets missing from the middle, where Kafka removes none."""
    DAMAGED = "damaged"
    """Batches that were sound and are damaged now."""
    REWRITTEN = "rewritten"
    """Batches with other bytes and equal records, with other headers, repaired batches, or other records."""
    RESTORED = "restored"
    """Offsets before the start or in a gap of the older log that the newer log has."""
    CREATED = "created"
    """A new replica; `reason` says why, if known."""
    MOVED = "moved"
    """The replica is in another log directory of its broker."""
    UNCHANGED = "unchanged"
    """The same batches."""
    NOT_COMPARED = "not_compared"
    """Unknown; `reason` says why."""


class ReplicaAt(Struct, frozen=True):
    """A replica in a snapshot; ends are exclusive, None: unknown."""

    log_dir: str
    topic_id: str | None
    log_start_offset: int | None
    log_end_offset: int | None
    high_watermark: int | None
    leader_epoch: int | None
    """Of its last batch, or of an epoch that starts at its end."""
    segments: int


class Change(Struct, frozen=True):
    """What happened to the offsets `[offset_start, offset_end)` of one replica between two snapshots.

    Numbers of batches, records and bytes are None if unknown; `before` and `after` are None where there is no replica.
    """

    topic: str
    partition: int
    broker: int | str
    from_snapshot: str
    to_snapshot: str
    kind: ChangeKind
    offset_start: int
    offset_end: int
    """Equal to `offset_start` if nothing of the log could be read."""
    before: ReplicaAt | None
    after: ReplicaAt | None
    reason: str | None = None
    leader_epochs: tuple[int, ...] = ()
    """Of the range: of the newer log for added offsets, of the older one for removed offsets."""
    replaced_by: int | None = None
    """Leader epoch of the records that replaced truncated ones; None: none did."""
    batches: int | None = None
    records: int | None = None
    bytes: int | None = None
    committed_end_offset: int | None = None
    """Of removed offsets: the end up to which the older snapshot proves them committed."""
    held_by: tuple[int | str, ...] = ()
    """Of removed committed offsets: brokers that have all of them in the newer snapshot; `evidence` lists those with parts."""
    evidence: Json = msgspec.field(default_factory=dict)
    """More JSON values with stable names."""

    @property
    def has_offsets(self) -> bool:
        """Whether the offsets concerned are known."""
        return self.reason != UNREADABLE or self.offset_end > self.offset_start

    def sort_key(self) -> tuple[object, ...]:
        """Order within a pair of snapshots: topic, partition, broker, offsets; removed before added."""
        broker = (0, self.broker, "") if isinstance(self.broker, int) else (1, 0, self.broker)
        is_added = self.kind in (ChangeKind.APPENDED, ChangeKind.CREATED)
        return self.topic, self.partition, broker, self.offset_start, is_added, self.offset_end, self.kind.value


@dataclass(slots=True, repr=False)
class SnapshotsResult(Answer):
    """The scan of each snapshot, and the changes from each to the next.

    `changes` are by topic, partition, broker, snapshot and offset; `findings` need two snapshots.
    """

    _table_fact: ClassVar[str] = "changes"
    _made_by: ClassVar[str] = "scan_snapshots"
    snapshots: dict[str, ScanResult]
    changes: list[Change]
    findings: list[Finding] = field(default_factory=list)
    incomplete: list[Incomplete] = field(default_factory=list)
    """What could not be read again to compare snapshots; each scan has another list."""
    notes: list[str] = field(default_factory=list)
    """Why the comparison may be wrong, a sentence each."""
    views: Views | None = field(default=None, repr=False, compare=False)
    """Set by `kafka_forensics.scan_snapshots`; None: the result cannot be shown or read again."""
    incidents: list[Incident] = field(default_factory=list)
    """Of the findings above `info` between two snapshots, the worst first, then the longest loss."""

    def __repr__(self) -> str:
        totals = f"{len(self.snapshots)} snapshots, {len(self.changes)} changes, {len(self.findings)} findings between them"
        return f"<SnapshotsResult {self.verdict}: {totals}{', incomplete' if self.is_incomplete else ''}>"

    @property
    def verdict(self) -> str:
        """The worst of the newest snapshot's verdict and the findings between snapshots; at least `unknown` if some log could not
        be read for comparison."""
        newest = [scan.verdict for scan in self.snapshots.values()][-1:]
        unread = any(change.reason == UNREADABLE for change in self.changes)
        return worst("unknown" if unread else "clean", verdict_of(self.findings), *newest)

    @property
    def judged(self) -> list[Finding]:
        """The findings that decide verdict and exit status: those between snapshots, and those of the newest snapshot."""
        newest = list(self.snapshots.values())[-1:]
        return [*self.findings, *(finding for scan in newest for finding in scan.findings)]

    @property
    def is_incomplete(self) -> bool:
        """Whether anything could not be read, in a scan or for comparison."""
        return bool(self.incomplete) or any(scan_result.incomplete for scan_result in self.snapshots.values())


_REPLICA_FIELDS: Final = ReplicaAt.__struct_fields__
_CHANGE_FIELDS: Final = (
    *("topic", "partition", "broker", "from_snapshot", "to_snapshot", "kind", "reason", "offset_start", "offset_end"),
    *("leader_epochs", "replaced_by", "batches", "records", "bytes", "committed_end_offset", "held_by"),
)
CHANGE_COLUMNS: Final = (
    *_CHANGE_FIELDS,
    *(f"from_{name}" for name in _REPLICA_FIELDS),
    *(f"to_{name}" for name in _REPLICA_FIELDS),
    "evidence",
)
"""Columns of the fact `changes` in order."""


def change_values(change: Change) -> Json:
    """The JSON values of a row by column."""
    values: Json = {name: getattr(change, name) for name in _CHANGE_FIELDS}
    values |= {"kind": change.kind.value, "leader_epochs": list(change.leader_epochs), "held_by": list(change.held_by)}
    values |= {} if change.has_offsets else {"offset_start": None, "offset_end": None}
    for prefix, replica in (("from", change.before), ("to", change.after)):
        values |= {f"{prefix}_{name}": None if replica is None else getattr(replica, name) for name in _REPLICA_FIELDS}
    return values | {"evidence": change.evidence}
