"""What became of replicas between two snapshots, and the whole answer about several snapshots."""

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import ClassVar, Final

from kafka_forensics.model.findings import Answer, Finding, Views
from kafka_forensics.model.incidents import Incident
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.results import Incomplete, ScanResult, verdict_of, worst

UNREADABLE: Final = "unreadable"
"""Reason of a change that cannot be told because a log could not be read."""


class ChangeKind(StrEnum):
    """What became of a range of offsets of one replica."""

    APPENDED = "appended"
    """Offsets that the newer log has behind the older one's end, or behind where that was cut, from its log start on."""
    TRUNCATED = "truncated"
    """Offsets cut off at the end of the older log; the newer one ends before them, or goes on with other records."""
    CLEANED = "cleaned"
    """Compaction took records."""
    DELETED = "deleted"
    """Offsets that are gone from the front, or with the whole replica; `reason` says by what."""
    MISSING = "missing"
    """Offsets that are gone from the middle, where nothing takes any in good order."""
    DAMAGED = "damaged"
    """Batches that were sound and are not any more."""
    REWRITTEN = "rewritten"
    """Batches with other bytes and equal records, with other headers, or that were damaged and are sound; or other records."""
    RESTORED = "restored"
    """Offsets the older log did not have any more, or lacked in its middle, and the newer one has."""
    CREATED = "created"
    """A replica that was not there; `reason` says why, where it is known."""
    MOVED = "moved"
    """The replica lies in another log directory of its broker."""
    UNCHANGED = "unchanged"
    """All batches are there, and no others."""
    NOT_COMPARED = "not_compared"
    """Nothing can be said; `reason` says why."""


@dataclass(frozen=True, slots=True)
class ReplicaAt:
    """A replica as a snapshot has it; offsets are exclusive ends, None is "not known"."""

    log_dir: str
    topic_id: str | None
    log_start_offset: int | None
    log_end_offset: int | None
    high_watermark: int | None
    leader_epoch: int | None
    """Of its last batch, or the last that began at its end."""
    segments: int


@dataclass(frozen=True, slots=True)
class Change:
    """What became of the offsets `[offset_start, offset_end)` of one replica between two snapshots.

    Numbers of batches, records and bytes are None where they are not known; `before` and `after` where there is no replica.
    """

    topic: str
    partition: int
    broker: int | str
    from_snapshot: str
    to_snapshot: str
    kind: ChangeKind
    offset_start: int
    offset_end: int
    """As `offset_start` of a log of which nothing could be read."""
    before: ReplicaAt | None
    after: ReplicaAt | None
    reason: str | None = None
    leader_epochs: tuple[int, ...] = ()
    """Of the range: in the newer log for what came, in the older one for what went."""
    replaced_by: int | None = None
    """Leader epoch of what took the place of truncated records; None: nothing did."""
    batches: int | None = None
    records: int | None = None
    bytes: int | None = None
    committed_end: int | None = None
    """Of offsets that went: up to where the older snapshot proves them committed."""
    held_by: tuple[int | str, ...] = ()
    """Of committed offsets that went: brokers that have them all in the newer snapshot; those that have parts are in `evidence`."""
    evidence: Json = field(default_factory=dict)
    """More numbers, as JSON knows them, by stable names."""

    @property
    def has_offsets(self) -> bool:
        """Whether it is known which offsets are concerned."""
        return self.reason != UNREADABLE or self.offset_end > self.offset_start

    def sort_key(self) -> tuple[object, ...]:
        """Order in every output, beside that of the snapshots: topic, partition, broker, offsets; what went before what came."""
        broker = (0, self.broker, "") if isinstance(self.broker, int) else (1, 0, self.broker)
        came = self.kind in (ChangeKind.APPENDED, ChangeKind.CREATED)
        return self.topic, self.partition, broker, self.offset_start, came, self.offset_end, self.kind.value


@dataclass(slots=True, repr=False)
class SnapshotsResult(Answer):
    """The answer about several snapshots: each one's scan, and what changed from each to the next.

    `changes` by topic, partition, broker, snapshot and offset; `findings` are those that only show between snapshots.
    """

    _table_fact: ClassVar[str] = "changes"
    _made_by: ClassVar[str] = "scan_snapshots"
    snapshots: dict[str, ScanResult]
    changes: list[Change]
    findings: list[Finding] = field(default_factory=list)
    incomplete: list[Incomplete] = field(default_factory=list)
    """What could not be read again to compare snapshots; the scans have their own."""
    notes: list[str] = field(default_factory=list)
    """What makes the comparison doubtful, a sentence each."""
    views: Views | None = field(default=None, repr=False, compare=False)
    """Set by `kafka_forensics.scan_snapshots`; None: this answer only has its rows."""
    incidents: list[Incident] = field(default_factory=list)
    """What the findings above `info` between two snapshots are, the worst first, of equals the longest loss."""

    def __repr__(self) -> str:
        totals = f"{len(self.snapshots)} snapshots, {len(self.changes)} changes, {len(self.findings)} findings between them"
        return f"<SnapshotsResult {self.verdict}: {totals}{', incomplete' if self.is_incomplete else ''}>"

    @property
    def verdict(self) -> str:
        """The worst of the newest snapshot's own verdict and of the findings between snapshots; at least `unknown` where a
        log could not be compared because it was not read."""
        newest = [scan.verdict for scan in self.snapshots.values()][-1:]
        unread = any(change.reason == UNREADABLE for change in self.changes)
        return worst("unknown" if unread else "clean", verdict_of(self.findings), *newest)

    @property
    def judged(self) -> list[Finding]:
        """What the verdict and the exit status are of: what was found between snapshots, and in the newest one by itself."""
        newest = list(self.snapshots.values())[-1:]
        return [*self.findings, *(finding for scan in newest for finding in scan.findings)]

    @property
    def is_incomplete(self) -> bool:
        """Whether anything could not be read, in a scan or afterwards."""
        return bool(self.incomplete) or any(scan_result.incomplete for scan_result in self.snapshots.values())


_AT: Final = tuple(field.name for field in fields(ReplicaAt))
_OWN: Final = (
    *("topic", "partition", "broker", "from_snapshot", "to_snapshot", "kind", "reason", "offset_start", "offset_end"),
    *("leader_epochs", "replaced_by", "batches", "records", "bytes", "committed_end", "held_by"),
)
CHANGE_COLUMNS: Final = (*_OWN, *(f"from_{name}" for name in _AT), *(f"to_{name}" for name in _AT), "evidence")
"""Columns of the fact `changes`, in their order."""


def change_values(change: Change) -> Json:
    """The values of a row by column, as JSON knows them."""
    values: Json = {name: getattr(change, name) for name in _OWN}
    values |= {"kind": change.kind.value, "leader_epochs": list(change.leader_epochs), "held_by": list(change.held_by)}
    values |= {} if change.has_offsets else {"offset_start": None, "offset_end": None}
    for prefix, at in (("from", change.before), ("to", change.after)):
        values |= {f"{prefix}_{name}": None if at is None else getattr(at, name) for name in _AT}
    return values | {"evidence": change.evidence}
