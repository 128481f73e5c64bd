"""The part of a scan's JSON document that a report uses, from a scan or from a file, with every field checked against its type."""

import json
from collections.abc import Iterable
from typing import Annotated, Any, Final

import msgspec

from kafka_forensics.errors import UsageError
from kafka_forensics.export.json_document import document, finding_object, partition_object, replica_object
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.json_objects import json_text
from kafka_forensics.model.results import VERDICTS, PartitionSummary, ScanResult

Offset = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""An int64: also a number of bytes, milliseconds or partitions."""
Broker = Offset | str
SEVERITIES: Final = ("critical", "error", "warning", "info")
"""Worst first."""


class Tool(msgspec.Struct, frozen=True):
    """The program that made the document."""

    name: str
    version: str
    engine: str


class BrokerRow(msgspec.Struct, frozen=True):
    """A broker with a log directory among the inputs."""

    broker: Broker
    cluster_id: str | None
    log_dirs: list[str]
    clean_shutdown: bool


class ScannedInput(msgspec.Struct, frozen=True):
    """What was scanned."""

    brokers: list[BrokerRow]


class Summary(msgspec.Struct, frozen=True):
    """Verdict and totals of the whole scan."""

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


class ReplicaRow(msgspec.Struct, frozen=True):
    """A replica; end offsets are exclusive, None is "not known"."""

    broker: Broker
    log_dir: str
    log_start_offset: Offset | None
    local_log_start_offset: Offset | None
    log_end_offset: Offset | None
    high_watermark: Offset | None
    last_stable_offset: Offset | None
    leader_epochs: list[tuple[Offset, Offset]] | None
    records: Offset | None
    bytes: Offset | None
    read: str
    read_end_offset: Offset | None


class ReplicaAgreement(msgspec.Struct, frozen=True):
    """How the replicas of a partition agree."""

    kind: str
    common_end_offset: Offset | None
    fork_epochs: dict[str, Offset]


class PartitionRow(msgspec.Struct, frozen=True):
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
    agreement: ReplicaAgreement
    replicas: list[ReplicaRow]
    read: str
    not_read: list[Broker]


class FindingRow(msgspec.Struct, frozen=True):
    """A finding without its evidence, which is for programs."""

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


class IncidentPartitionRow(msgspec.Struct, frozen=True):
    """The losses of one partition by an incident."""

    topic: str
    partition: Offset
    lost_at_least: Offset
    lost_at_most: Offset
    records_lost_at_least: Offset | None
    records_lost_at_most: Offset | None
    offset_start: Offset | None
    offset_end: Offset | None
    held_by: list[Broker]
    held_ranges: list[dict[str, Any]]


class IncidentRow(msgspec.Struct, frozen=True):
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


class UnreadInput(msgspec.Struct, frozen=True):
    """What could not be read."""

    path: str
    reason: str


class Document(msgspec.Struct, frozen=True):
    """A scan's document."""

    schema_version: str
    tool: Tool
    input: ScannedInput
    summary: Summary
    partitions: list[PartitionRow]
    findings: list[FindingRow]
    incomplete: list[UnreadInput]
    incidents: list[IncidentRow]


def document_of(result: ScanResult) -> Document:
    """The document of a scan's answer."""
    return msgspec.convert(json.loads("".join(document(result))), Document)


def partition_of(partition: PartitionSummary, findings: Iterable[Finding]) -> tuple[PartitionRow, list[FindingRow]]:
    """The rows of one partition and of its findings."""
    row = {**partition_object(partition), "replicas": list(map(replica_object, partition.replicas))}
    content = json.loads(json_text([row, list(map(finding_object, findings))]))
    return msgspec.convert(content, tuple[PartitionRow, list[FindingRow]])


def read_document(data: bytes, path: str) -> Document:
    """The document in a file that `scan --format json` wrote. Raises UsageError for anything else."""
    try:
        content = msgspec.convert(json.loads(data), Document)
    except (ValueError, RecursionError, MemoryError, msgspec.ValidationError) as error:
        raise _not_a_document(path, str(error)) from error
    verdicts = {content.summary.verdict, *(partition.verdict for partition in content.partitions)}
    severities = {*(finding.severity for finding in content.findings), *(incident.severity for incident in content.incidents)}
    if unknown := [*sorted(verdicts - set(VERDICTS)), *sorted(severities - set(SEVERITIES))]:
        raise _not_a_document(path, f"there is no verdict or severity {unknown[0][:40]!r}")
    return content


def _not_a_document(path: str, why: str) -> UsageError:
    hint = "make one with `kafka-forensics scan PATH... --format json`, or give the log directories themselves"
    return UsageError(f"{path} is not a document of scan: {why[:200]}", hint=hint)
