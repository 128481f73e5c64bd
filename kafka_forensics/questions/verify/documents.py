"""The documents with promises: the JSON of a plan, and the manifest of a salvage; every field has its declared type."""

import json
from dataclasses import dataclass, field
from typing import Annotated, Final

import msgspec

from kafka_forensics.errors import UsageError
from kafka_forensics.replication.planner import TruncateBy
from kafka_forensics.storage.documents import document_bytes

Offset = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]
"""An offset, an epoch or a broker; -1: none."""
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""A number of offsets or bytes, or a partition's number."""
Broker = Offset | str


@dataclass(frozen=True, slots=True)
class PlannedReplica:
    """A replica when the plan was made; None was unknown."""

    broker: Broker
    log_start_offset: Offset | None
    log_end_offset: Offset | None
    leader_epochs: list[tuple[Offset, Offset]] | None
    high_watermark: Offset | None


@dataclass(frozen=True, slots=True)
class PlannedFollower:
    """A follower of an election; no offset if its broker was absent, or would not start."""

    broker: Broker
    truncation_offset: Offset | None
    lost: list[tuple[Offset, Offset]]


@dataclass(frozen=True, slots=True)
class PlannedLoss:
    """Offsets that an election loses."""

    offset_start: Offset
    offset_end: Offset


@dataclass(frozen=True, slots=True)
class PlannedElection:
    """The election of one replica."""

    broker: Broker
    election: str
    recovery_cut: Count
    losses: list[PlannedLoss]
    followers: list[PlannedFollower]


@dataclass(frozen=True, slots=True)
class PlannedControl:
    """The controllers' log when the plan was made."""

    leader_epoch: Offset | None


@dataclass(frozen=True, slots=True)
class PlannedDamage:
    """Offsets of a copy that were damaged when the plan was made."""

    broker: Broker
    offsets: list[tuple[Offset, Offset]]


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """The plan of one partition."""

    topic: str
    partition: Count
    truncate_by: TruncateBy
    controller: PlannedControl | None
    replicas: list[PlannedReplica]
    recommended: Broker | None
    candidates: list[PlannedElection]
    damaged: list[PlannedDamage]
    held_by_no_copy: list[tuple[Offset, Offset]]
    newest_commit_ms: int | None

    def replica(self, broker: Broker) -> PlannedReplica | None:
        """The replica of a broker, if there is one."""
        return next((replica for replica in self.replicas if replica.broker == broker), None)

    def election(self, elected: str | None) -> PlannedElection | None:
        """The election of the broker `elected`, else the recommended one, else the only one there is."""
        chosen = self.recommended if elected is None else elected
        found = next((candidate for candidate in self.candidates if str(candidate.broker) == str(chosen)), None)
        return self.candidates[0] if found is None and elected is None and len(self.candidates) == 1 else found


@dataclass(frozen=True, slots=True)
class PlanDocument:
    """The JSON of a plan."""

    schema_version: str
    partitions_planned: Count
    partitions: list[PlannedPartition]
    cluster_ids: list[str]


@dataclass(frozen=True, slots=True)
class SalvagedRange:
    """Bytes written to a segment, and their offsets."""

    file: str
    byte_start: Count
    byte_end: Count
    offset_start: Offset
    offset_end: Offset
    sha256: str


@dataclass(frozen=True, slots=True)
class SalvagedReplica:
    """A broker for which the partition was written."""

    broker: Broker


@dataclass(frozen=True, slots=True)
class SalvagedGap:
    """Offsets that no copy had; `offset_end` is None for those after the log end, which brokers write again."""

    offset_start: Offset
    offset_end: Offset | None

    def holds(self, start: int, end: int) -> bool:
        """Whether offsets `[start, end)` lie in the gap."""
        return self.offset_end is not None and self.offset_start <= start and end <= self.offset_end


@dataclass(frozen=True, slots=True)
class OutputFinding:
    """A finding of the scan of the output, with its offsets; None if it concerns the whole partition."""

    kind: str
    offset_start: Offset | None
    offset_end: Offset | None
    producer_id: int | None

    def is_of(self, start: int | None, end: int | None, producer_id: int | None) -> bool:
        """Whether a finding of this kind at `[start, end)` is this one, which may be longer in a longer log."""
        if producer_id != self.producer_id:
            return False
        if self.offset_start is None or start == self.offset_start:
            return True
        if start is None or end is None or self.offset_end is None:
            return False
        return self.offset_start <= start and end <= self.offset_end


@dataclass(frozen=True, slots=True)
class TakenSegment:
    """A remote segment with events in the `__remote_log_metadata` that was built."""

    segment_id: str
    offset_start: Offset
    offset_end: Offset


@dataclass(frozen=True, slots=True)
class ManifestPartition:
    """A partition that was written for all brokers with a replica of it."""

    topic: str
    partition: Count
    base_broker: Broker
    log_start_offset: Offset
    log_end_offset: Offset
    leader_epochs: list[tuple[Offset, Offset]]
    replicas: list[SalvagedReplica]
    ranges: list[SalvagedRange]
    gaps: list[SalvagedGap]
    inherited: list[OutputFinding]
    new: list[OutputFinding]
    remote_segments: list[TakenSegment] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RefusedPartition:
    """A partition that was not written, and without promises."""

    topic: str
    partition: Count


@dataclass(frozen=True, slots=True)
class SalvageManifest:
    """The manifest of a salvage."""

    schema_version: str
    partitions: list[ManifestPartition]
    refused: list[RefusedPartition]


def read_promises(path: str) -> PlanDocument | SalvageManifest:
    """Read a file of `plan --format json`, or the manifest of a salvage. Raises UsageError for anything else."""
    data = document_bytes(path, _HOW)
    if not data.strip():
        raise _not_a_document(path, "it is empty")
    try:
        document = json.loads(data)
        is_salvage = isinstance(document, dict) and "refused" in document
        return msgspec.convert(document, SalvageManifest) if is_salvage else msgspec.convert(document, PlanDocument)
    except (ValueError, RecursionError, MemoryError, msgspec.ValidationError) as error:
        raise _not_a_document(path, str(error)) from error


_HOW: Final = "give the file of `plan PATH... --format json --output plan.json`, or the manifest.json of a salvage"


def _not_a_document(path: str, reason: str) -> UsageError:
    return UsageError(f"{path} is not a plan or salvage manifest: {reason[:200]}", hint=_HOW)
