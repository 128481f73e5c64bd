"""A scan's answer as JSON: one document, or one object a line. `schema/scan-1.1.json` describes both."""

import json
import operator
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.results import (
    SCHEMA_VERSION,
    BrokerSummary,
    Incomplete,
    PartitionSummary,
    ReplicaSummary,
    ScanResult,
    verdict_of,
)
from kafka_forensics.version import __version__
from kafka_forensics.wording import advice, message

# Values as the contract writes them in JSON: one line of ASCII, times and wide integers as numbers and as text.


Json = dict[str, Any]

_TIME: Final = re.compile(r"(?:^|_)(?:timestamp|time|horizon|as_of)(?:_ms)?$")
_WIDE: Final = re.compile(r"(?:^|_)producer_ids?$")
_EXACT_IN_JSON: Final = 2**53
_LAST_TIME_MS: Final = 253_402_300_799_999


def json_text(value: Any) -> str:
    """`value` as JSON in one line of ASCII, which no control character or half of a surrogate pair survives; order as given."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, default=operator.index).replace("\x7f", "\\u007f")


def with_twins(evidence: Any) -> Any:
    """Evidence as the contract writes numbers: times as `…_ms` beside RFC 3339 text, wide integers beside their digits."""
    if isinstance(evidence, list | tuple):
        return [with_twins(each) for each in evidence]
    if not isinstance(evidence, dict):
        return evidence
    told: Json = {}
    for key, value in evidence.items():
        name = str(key)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if whole and _TIME.search(name):
            plain = name.removesuffix("_ms")
            told[f"{plain}_ms"] = value
            told[plain] = rfc3339(value)
            continue
        told[name] = with_twins(value)
        if whole and (_WIDE.search(name) or abs(value) > _EXACT_IN_JSON):
            told[f"{name}_string"] = str(value)
        elif isinstance(value, list | tuple) and _WIDE.search(name):
            told[f"{name}_string"] = [str(each) for each in value]
    return told


def rfc3339(time_ms: int) -> str | None:
    """Milliseconds since 1970 as `2026-03-01T12:00:00.000Z`; None for -1 and what no calendar holds."""
    if not 0 <= time_ms <= _LAST_TIME_MS:
        return None
    moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z"


# Answers in the shape of an earlier schema: what that has no words for is left out, and it is known that something was.


FIRST: Final = "1.0"
VERSIONS: Final = (FIRST, SCHEMA_VERSION)
_UNKNOWN: Final = "unknown"
_NEW: Final = frozenset({"read", "read_end_offset", "not_read", "is_absent"})
_NEW_OF_GAPS: Final = frozenset({"topic", "partition", "broker"})
_NOT_READ: Final = "what could not be read"
_WITNESSES: Final = {
    "copy_not_read": _NOT_READ,
    "not_copied": "what was not copied",
    "replica_absent": "replicas that are not where they should be",
    "controller_log_older": "a controller's log that is older than the copies",
    "voters_behind": "voters that lag behind the other copies of the controller's log",
    "topic_unknown": "a topic that the controller's log does not know",
}
"""Witnesses that plans of 1.0 do not know, and what they are of."""
_REASONS: Final = {
    "force": "that the election need not be forced",
    "log_start": "that the lowest log start decides who should lead",
}
_NUMBERS: Final = (
    *("log_start_offset", "log_end_offset", "leader_epochs", "segments", "batches", "records", "bytes", "missing_offsets"),
    *("is_live", "starts"),
)
"""Of a replica, what is never null in schema 1.0."""


class Shape:
    """The version of the schemas that one answer is written in."""

    def __init__(self, version: str = SCHEMA_VERSION) -> None:
        assert version in VERSIONS
        self.version = version
        self.left_out: list[str] = []
        """What was, as the version has no words for it: noun phrases, each once."""

    @property
    def _is_first(self) -> bool:
        return self.version == FIRST

    def _leave_out(self, what: str) -> None:
        if what not in self.left_out:
            self.left_out.append(what)

    def verdict(self, verdict: str, findings: Iterable[Finding]) -> str:
        """A verdict of all; where the version does not know it, that of the findings."""
        if not self._is_first or verdict != _UNKNOWN:
            return verdict
        self._leave_out(_NOT_READ)
        return verdict_of(findings)

    def partitions(self, partitions: Iterable[Json]) -> Iterator[Json]:
        """Partitions, with their `replicas` or without; in 1.0 not those whose verdict is `unknown`."""
        for partition in partitions:
            if not self._is_first:
                yield partition
                continue
            if partition["read"] != "whole":
                self._leave_out(_NOT_READ)
            if partition["verdict"] == _UNKNOWN:
                continue
            told = {name: value for name, value in partition.items() if name not in _NEW}
            if "replicas" in told:
                told["replicas"] = list(self.replicas(told["replicas"]))
            yield told

    def replicas(self, replicas: Iterable[Json]) -> Iterator[Json]:
        """Replicas of a scan or a plan; in 1.0 not those with a log that was not read to its end."""
        for replica in replicas:
            if not self._is_first:
                yield replica
            elif any(replica[name] is None for name in _NUMBERS if name in replica):
                self._leave_out(_WITNESSES["replica_absent"] if replica.get("is_absent") else _NOT_READ)
            else:
                yield {name: value for name, value in replica.items() if name not in _NEW}

    def gaps(self, gaps: Iterable[Json]) -> Iterator[Json]:
        """What could not be read; 1.0 has the path and the reason of it."""
        for gap in gaps:
            yield {name: value for name, value in gap.items() if name not in _NEW_OF_GAPS} if self._is_first else gap

    def held(self, held: Iterable[Json]) -> Iterator[Json]:
        """What replicas hold at an offset; in 1.0 nothing of those whose log could not be read there."""
        for one in held:
            if self._is_first and one["state"] == "not_read":
                self._leave_out(_NOT_READ)
            else:
                yield one

    def missing(self, missing: Iterable[Json]) -> Iterator[Json]:
        """Witnesses that a plan lacks; in 1.0 not those of kinds that it does not know."""
        for one in missing:
            if self._is_first and one["kind"] in _WITNESSES:
                self._leave_out(_WITNESSES[one["kind"]])
            else:
                yield one

    def reasons(self, reasons: Iterable[str]) -> Iterator[str]:
        """By what a candidate is chosen; in 1.0 not what that does not know."""
        for reason in reasons:
            if self._is_first and reason in _REASONS:
                self._leave_out(_REASONS[reason])
            else:
                yield reason

    def ordinary(self, leaders: Iterable[int | str], loss: int | None) -> Json:
        """Whom an ordinary start may elect and what that loses; nothing of it in 1.0."""
        if self._is_first and loss:
            self._leave_out("whom an ordinary start may elect and what that loses")
        return {} if self._is_first else {"ordinary_leaders": list(leaders), "ordinary_loss": loss}

    def unsaid(self, kinds: Iterable[tuple[str, int]]) -> list[Json]:
        """Why controllers say nothing of partitions, and of how many; to 1.0 voters that lag behind are silent."""
        counts: Counter[str] = Counter()
        for kind, partitions in kinds:
            counts["controller_log_silent" if self._is_first and kind == "voters_behind" else kind] += partitions
        return [{"kind": kind, "partitions": count} for kind, count in sorted(counts.items())]

    def start_order(self, order: Json | None) -> Json:
        """In which order to start brokers for all partitions; nothing of it in 1.0."""
        if self._is_first and order is not None:
            self._leave_out("the order in which to start brokers")
        return {} if self._is_first else {"start_order": order}

    def not_read(self, copies: list[Json]) -> Json:
        """Of how many partitions a plan has copies that could not be read, by broker; nothing of it in 1.0."""
        if self._is_first and copies:
            self._leave_out(_NOT_READ)
        return {} if self._is_first else {"copies_not_read": copies}

    def changes(self, changes: Iterable[Json]) -> Iterator[Json]:
        """Changes between snapshots; in 1.0 not those of offsets that are not known."""
        for change in changes:
            if self._is_first and change["offset_start"] is None:
                self._leave_out(_NOT_READ)
            else:
                yield change


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
