"""A scan's JSON document as a report takes it, whether it was just made or lies in a file: every field of its declared type."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from kafka_forensics.errors import UsageError
from kafka_forensics.export.json_document import document, finding_object, partition_object, replica_object
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.json_objects import json_text
from kafka_forensics.model.results import VERDICTS, PartitionSummary, ScanResult

Offset = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Also a number of bytes, of milliseconds, of partitions: all that Kafka can count."""
Broker = Offset | str
SEVERITIES: Final = ("critical", "error", "warning", "info")
"""Worst first."""


@dataclass(frozen=True, slots=True)
class Tool:
    """What made the document."""

    name: str
    version: str
    engine: str


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A broker that was given."""

    broker: Broker
    cluster_id: str | None
    log_dirs: list[str]
    clean_shutdown: bool


@dataclass(frozen=True, slots=True)
class Input:
    """What was scanned."""

    brokers: list[BrokerRow]


@dataclass(frozen=True, slots=True)
class Summary:
    """Sums of the whole scan."""

    verdict: str
    brokers: Offset
    partitions: Offset
    replicas: Offset
    segments: Offset
    batches: Offset
    records: Offset
    bytes_total: Offset
    bytes_decoded: Offset
    bytes_damaged: Offset
    bytes_skipped: Offset
    findings: dict[str, Offset]


@dataclass(frozen=True, slots=True)
class Transactions:
    """Counts of a replica's transactions."""

    committed: Offset | None
    aborted: Offset | None
    open: Offset | None
    hanging: Offset | None


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """A replica; offsets are exclusive ends, None is "not known"."""

    broker: Broker
    log_dir: str
    log_start_offset: Offset | None
    local_log_start_offset: Offset | None
    log_end_offset: Offset | None
    high_watermark: Offset | None
    last_stable_offset: Offset | None
    recovery_point: Offset | None
    leader_epochs: list[tuple[Offset, Offset]] | None
    segments: Offset | None
    batches: Offset | None
    records: Offset | None
    bytes: Offset | None
    missing_offsets: Offset | None
    transactions: Transactions
    read: str
    read_end_offset: Offset | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """How the replicas of a partition agree."""

    kind: str
    common_end_offset: Offset | None
    fork_epochs: dict[str, Offset]


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition over all its replicas."""

    topic: str
    partition: Offset
    topic_id: str | None
    cleanup_policy: str
    is_tiered: bool
    verdict: str
    leader: Offset | None
    leader_epoch: Offset | None
    isr: list[Offset] | None
    replica_assignment: list[Offset] | None
    high_watermark_at_least: Offset | None
    high_watermark_witness: str | None
    agreement: Agreement
    replicas: list[ReplicaRow]
    read: str
    not_read: list[Broker]


@dataclass(frozen=True, slots=True)
class FindingRow:
    """A finding, its evidence apart: that is for programs."""

    kind: str
    severity: str
    confidence: str
    topic: str | None
    partition: Offset | None
    broker: Broker | None
    log_dir: str | None
    file: str | None
    byte_start: Offset | None
    byte_end: Offset | None
    offset_start: Offset | None
    offset_end: Offset | None
    message: str
    advice: str | None


@dataclass(frozen=True, slots=True)
class IncidentPartitionRow:
    """What an incident means for one partition."""

    topic: str
    partition: Offset
    lost_at_least: Offset
    lost_at_most: Offset
    records_lost_at_least: Offset | None
    records_lost_at_most: Offset | None


@dataclass(frozen=True, slots=True)
class IncidentRow:
    """Findings of one cause."""

    cause: str
    severity: str
    confidence: str
    message: str
    lost_at_least: Offset
    lost_at_most: Offset
    records_lost_at_least: Offset | None
    records_lost_at_most: Offset | None
    advice: str | None
    known_as: str | None
    from_ms: Offset | None
    to_ms: Offset | None
    brokers: list[Broker]
    held_by: list[Broker]
    partitions: list[IncidentPartitionRow]
    kinds: dict[str, Offset]


@dataclass(frozen=True, slots=True)
class Gap:
    """What could not be read."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Document:
    """The whole of it."""

    schema_version: str
    tool: Tool
    input: Input
    summary: Summary
    partitions: list[PartitionRow]
    findings: list[FindingRow]
    incomplete: list[Gap]
    incidents: list[IncidentRow]


def document_of(result: ScanResult) -> Document:
    """The document of a scan that was just made."""
    return msgspec.convert(json.loads("".join(document(result))), Document)


def partition_of(partition: PartitionSummary, findings: Iterable[Finding]) -> tuple[PartitionRow, list[FindingRow]]:
    """The rows of one partition alone, and of its findings."""
    row = {**partition_object(partition), "replicas": [replica_object(replica) for replica in partition.replicas]}
    row, found = json.loads(json_text([row, list(map(finding_object, findings))]))
    return msgspec.convert(row, PartitionRow), msgspec.convert(found, list[FindingRow])


def read_document(data: bytes, path: str) -> Document:
    """The document in a file that `scan --format json` wrote. Raises UsageError for anything else."""
    try:
        found = msgspec.convert(json.loads(data), Document)
    except (ValueError, RecursionError, MemoryError, msgspec.ValidationError) as error:
        raise _no_document(path, str(error)) from error
    verdicts = {found.summary.verdict, *(partition.verdict for partition in found.partitions)}
    severities = {*(finding.severity for finding in found.findings), *(incident.severity for incident in found.incidents)}
    for word in (*sorted(verdicts - set(VERDICTS)), *sorted(severities - set(SEVERITIES))):
        raise _no_document(path, f"there is no verdict or severity {word[:40]!r}")
    return found


def _no_document(path: str, why: str) -> UsageError:
    hint = "make one with `kafka-forensics scan PATH... --format json`, or give the log directories themselves"
    return UsageError(f"{path} is no document of scan: {why[:200]}", hint=hint)
