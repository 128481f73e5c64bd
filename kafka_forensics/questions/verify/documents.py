"""The documents with promises: the JSON of a plan, and the manifest of a salvage; every field has its declared type."""

import json
from typing import Annotated, Final

import msgspec
from msgspec import Struct, field

from kafka_forensics.errors import UsageError
from kafka_forensics.replication.planner import TruncateBy
from kafka_forensics.storage.documents import document_bytes

Offset = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]
"""An offset, an epoch or a broker; -1: none."""
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""A number of offsets or bytes, or a partition's number."""
Broker = Offset | str


class PlannedReplica(Struct, frozen=True):
    """A replica when the plan was made; None was unknown."""

    broker: Broker
    log_start_offset: Offset | None
    log_end_offset: Offset | None
    leader_epochs: list[tuple[Offset, Offset]] | None
    high_watermark: Offset | None


class PlannedFollower(Struct, frozen=True):
    """A follower of an election; no offset if its broker was absent, or would not start."""

    broker: Broker
    truncation_offset: Offset | None
    lost: list[tuple[Offset, Offset]]


class PlannedLoss(Struct, frozen=True):
    """Offsets that an election loses."""

    offset_start: Offset
    offset_end: Offset


class PlannedElection(Struct, frozen=True):
    """The election of one replica."""

    broker: Broker
    election: str
    recovery_cut: Count
    losses: list[PlannedLoss]
    followers: list[PlannedFollower]


class PlannedControl(Struct, frozen=True):
    """The controllers' log when the plan was made."""

    leader_epoch: Offset | None


class PlannedDamage(Struct, frozen=True):
    """Offsets of a copy that were damaged when the plan was made."""

    broker: Broker
    offsets: list[tuple[Offset, Offset]]


class PlannedPartition(Struct, frozen=True):
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


class PlanDocument(Struct, frozen=True):
    """The JSON of a plan."""

    schema_version: str
    partitions_planned: Count
    partitions: list[PlannedPartition]
    cluster_ids: list[str]


class SalvagedRange(Struct, frozen=True):
    """Bytes written to a segment, and their offsets."""

    file: str
    byte_start: Count
    byte_end: Count
    offset_start: Offset
    offset_end: Offset
    sha256: str


class SalvagedReplica(Struct, frozen=True):
    """A broker for which the partition was written."""

    broker: Broker


class SalvagedGap(Struct, frozen=True):
    """Offsets that no copy had; `offset_end` is None for those after the log end, which brokers write again."""

    offset_start: Offset
    offset_end: Offset | None

    def holds(self, start: int, end: int) -> bool:
        """Whether offsets `[start, end)` lie in the gap."""
        return self.offset_end is not None and self.offset_start <= start and end <= self.offset_end


class OutputFinding(Struct, frozen=True):
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


class TakenSegment(Struct, frozen=True):
    """A remote segment with events in the `__remote_log_metadata` that was built."""

    segment_id: str
    offset_start: Offset
    offset_end: Offset


class ManifestPartition(Struct, frozen=True):
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


class RefusedPartition(Struct, frozen=True):
    """A partition that was not written, and without promises."""

    topic: str
    partition: Count


class SalvageManifest(Struct, frozen=True):
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
