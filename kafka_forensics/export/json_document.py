"""A scan's answer as JSON: one document, or one object a line. `schema/scan-1.1.json` describes both."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Final

from kafka_forensics.export.json_values import Json, json_text, with_twins
from kafka_forensics.export.schema_versions import Shape
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.results import (
    SCHEMA_VERSION,
    BrokerSummary,
    Incomplete,
    PartitionSummary,
    ReplicaSummary,
    ScanResult,
)
from kafka_forensics.version import __version__
from kafka_forensics.wording import advice, message

FINDING_COLUMNS: Final = (
    "kind",
    "severity",
    "confidence",
    "topic",
    "partition",
    "broker",
    "log_dir",
    "file",
    "byte_start",
    "byte_end",
    "offset_start",
    "offset_end",
    "message",
    "evidence",
    "advice",
)


def document(result: ScanResult, shape: Shape | None = None) -> Iterator[str]:
    """The JSON document in pieces: the contract's order of keys, a line a row; in another `shape` than the present one if asked."""
    shape = shape or Shape()
    yield f'{{"schema_version": {json_text(shape.version)},\n "tool": {json_text(tool(result))},\n'
    yield from _list(' "input": {"brokers"', map(broker_object, result.brokers), "},\n")
    yield f' "summary": {json_text(summary_object(result, shape))},\n'
    partitions = (
        {**partition_object(partition), "replicas": [replica_object(replica) for replica in partition.replicas]}
        for partition in result.partitions
    )
    yield from _list(' "partitions"', shape.partitions(partitions), ",\n")
    yield from _list(' "findings"', map(finding_object, result.findings), ",\n")
    yield from _list(' "incomplete"', shape.gaps(map(incomplete_object, result.incomplete)), "}\n")


def lines(result: ScanResult, shape: Shape | None = None) -> Iterator[str]:
    """The same as JSON Lines, an object with its `type` each: brokers, every partition and what is its own, the summary."""
    shape = shape or Shape()
    for broker_summary in result.brokers:
        yield _line("broker", broker_object(broker_summary))
    partitions = {(each.topic, each.partition): each for each in result.partitions}
    findings: dict[tuple[str, int], list[Finding]] = {}
    for finding in result.findings:
        place = finding.place
        key = (place.topic or "", -1 if place.partition is None else place.partition)
        findings.setdefault(key, []).append(finding)
    for key in sorted(partitions.keys() | findings.keys()):
        if partition := partitions.get(key):
            for told in shape.partitions([partition_object(partition)]):
                yield _line("partition", told)
                for replica in shape.replicas(map(replica_object, partition.replicas)):
                    yield _line("replica", {"topic": partition.topic, "partition": partition.partition, **replica})
        for finding in findings.get(key, ()):
            yield _line("finding", finding_object(finding))
    for gap in shape.gaps(map(incomplete_object, result.incomplete)):
        yield _line("incomplete", gap)
    yield _line("summary", {"schema_version": shape.version, "tool": tool(result), **summary_object(result, shape)})


def tool(result: ScanResult) -> Json:
    """What made the answer."""
    return {"name": "kafka-forensics", "version": __version__, "engine": result.engine}


def broker_object(broker: BrokerSummary) -> Json:
    """An element of `input.brokers`."""
    return {
        "broker": broker.broker,
        "cluster_id": broker.cluster_id,
        "log_dirs": broker.log_dirs,
        "clean_shutdown": broker.clean_shutdown,
    }


def summary_object(result: ScanResult, shape: Shape) -> Json:
    """`summary`: totals, and the number of findings of each severity, worst first."""
    totals = result.totals
    return {
        "verdict": shape.verdict(result.verdict, result.findings),
        "brokers": totals.brokers,
        "partitions": totals.partitions,
        "replicas": totals.replicas,
        "segments": totals.segments,
        "batches": totals.batches,
        "records": totals.records,
        "bytes_total": totals.bytes_total,
        "bytes_decoded": totals.bytes_decoded,
        "bytes_damaged": totals.bytes_damaged,
        "bytes_skipped": totals.bytes_skipped,
        "findings": {severity.value: count for severity, count in severity_counts(result.findings).items()},
    }


def severity_counts(findings: Iterable[Finding]) -> dict[Severity, int]:
    """Number of findings of every severity, worst first, none left out."""
    counts = dict.fromkeys(sorted(Severity, key=lambda severity: -severity.rank), 0)
    for finding in findings:
        counts[finding.severity] += 1
    return counts


def partition_object(partition: PartitionSummary) -> Json:
    """An element of `partitions`, without its replicas."""
    agreement = partition.agreement
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "topic_id": partition.topic_id,
        "cleanup_policy": partition.cleanup_policy,
        "verdict": partition.verdict,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "isr": partition.isr,
        "replica_assignment": partition.replica_assignment,
        "high_watermark_at_least": partition.high_watermark_at_least,
        "high_watermark_witness": partition.high_watermark_witness,
        "agreement": {
            "kind": agreement.kind,
            "common_end_offset": agreement.common_end_offset,
            "fork_epochs": agreement.fork_epochs,
        },
        "key_placement": None if partition.key_placement is None else asdict(partition.key_placement),
        "read": partition.read.value,
        "not_read": partition.not_read,
    }


def replica_object(replica: ReplicaSummary) -> Json:
    """An element of a partition's `replicas`."""
    transactions = replica.transactions
    return {
        "broker": replica.broker,
        "log_dir": replica.log_dir,
        "log_start_offset": replica.log_start_offset,
        "log_end_offset": replica.log_end_offset,
        "high_watermark": replica.high_watermark,
        "last_stable_offset": replica.last_stable_offset,
        "recovery_point": replica.recovery_point,
        "leader_epochs": replica.leader_epochs,
        "segments": replica.segments,
        "batches": replica.batches,
        "records": replica.records,
        "bytes": replica.bytes,
        "missing_offsets": replica.missing_offsets,
        "transactions": asdict(transactions),
        "recovery": None if replica.recovery is None else asdict(replica.recovery),
        "read": replica.read.value,
        "read_end_offset": replica.read_end_offset,
    }


def finding_object(finding: Finding) -> Json:
    """An element of `findings`, its keys in the order of `FINDING_COLUMNS`."""
    place = finding.place
    return {
        "kind": finding.kind,
        "severity": finding.severity.value,
        "confidence": finding.confidence.value,
        "topic": place.topic,
        "partition": place.partition,
        "broker": place.broker,
        "log_dir": place.log_dir,
        "file": place.file,
        "byte_start": place.byte_start,
        "byte_end": place.byte_end,
        "offset_start": place.offset_start,
        "offset_end": place.offset_end,
        "message": message(finding),
        "evidence": with_twins(finding.evidence),
        "advice": advice(finding),
    }


def incomplete_object(gap: Incomplete) -> Json:
    """An element of `incomplete`."""
    return {"path": gap.path, "reason": gap.reason, "topic": gap.topic, "partition": gap.partition, "broker": gap.broker}


def _line(kind: str, content: Json) -> str:
    return json_text({"type": kind, **content}) + "\n"


def _list(opening: str, objects: Iterable[Json], closing: str) -> Iterator[str]:
    """`opening: [` and a line an object, then `]` and `closing`."""
    yield f"{opening}: ["
    for index, each in enumerate(objects):
        yield f"{',' if index else ''}\n  {json_text(each)}"
    yield f"]{closing}"


def json_schema(command: str = "scan", version: str = SCHEMA_VERSION) -> Json:
    """The JSON Schema (2020-12) of a command's document; `$defs/line` of scan's describes a line of its JSON Lines.

    That of `compare` refers to that of `scan` by its `$id`.
    """
    from importlib.resources import files

    text = files("kafka_forensics").joinpath("schema", f"{command}-{version}.json").read_text(encoding="utf-8")
    return dict(json.loads(text))
