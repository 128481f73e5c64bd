"""A scan's answer as JSON: one document, or one object a line. `schema/scan-1.1.json` describes both."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from typing import Final, TypeVar

from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.incidents import Incident
from kafka_forensics.model.json_objects import Columns, Json, attributes, json_text, object_of, times, with_twins
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
from kafka_forensics.wording import advice, gravity, incident_advice, incident_message, message

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
    "no_topic_id": "logs without the id of their topic",
}
"""Witnesses that plans of 1.0 do not know, and what they are of."""
_REASONS: Final = {
    "force": "that the election need not be forced",
    "log_start": "that the lowest log start decides who should lead",
}
Item = TypeVar("Item")
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

    def _leave_out(self, key: str) -> None:
        if key not in self.left_out:
            self.left_out.append(key)

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
            shown = {name: value for name, value in partition.items() if name not in _NEW}
            if "replicas" in shown:
                shown["replicas"] = list(self.replicas(shown["replicas"]))
            yield shown

    def replicas(self, replicas: Iterable[Json]) -> Iterator[Json]:
        """Replicas of a scan or a plan; in 1.0 not those with a log that was not read to its end."""
        for replica in replicas:
            if not self._is_first:
                yield replica
            elif any(replica[name] is None for name in _NUMBERS if name in replica):
                self._leave_out(_WITNESSES["replica_absent"] if replica.get("is_absent") else _NOT_READ)
            else:
                yield {name: value for name, value in replica.items() if name not in _NEW}

    def incidents(self, incidents: Iterable[Json]) -> Iterable[Json] | None:
        """The findings' incidents, which say nothing that these do not; 1.0 has no list of them."""
        return None if self._is_first else incidents

    def gaps(self, gaps: Iterable[Json]) -> Iterator[Json]:
        """What could not be read; 1.0 has the path and the reason of it."""
        for gap in gaps:
            yield {name: value for name, value in gap.items() if name not in _NEW_OF_GAPS} if self._is_first else gap

    def held(self, held: Iterable[Json]) -> Iterator[Json]:
        """What replicas hold at an offset; in 1.0 nothing of those whose log could not be read there."""
        return self._known(held, lambda item: _NOT_READ if item["state"] == "not_read" else None)

    def missing(self, missing: Iterable[Json]) -> Iterator[Json]:
        """Witnesses that a plan lacks; in 1.0 not those of kinds that it does not know."""
        return self._known(missing, lambda gap: _WITNESSES.get(gap["kind"]))

    def reasons(self, reasons: Iterable[str]) -> Iterator[str]:
        """By what a candidate is chosen; in 1.0 not what that does not know."""
        return self._known(reasons, _REASONS.get)

    def changes(self, changes: Iterable[Json]) -> Iterator[Json]:
        """Changes between snapshots; in 1.0 not those of offsets that are not known."""
        return self._known(changes, lambda change: _NOT_READ if change["offset_start"] is None else None)

    def _known(self, items: "Iterable[Item]", unknown: "Callable[[Item], str | None]") -> "Iterator[Item]":
        """Those of `items` that the version has words for; `unknown` says what the others are of."""
        for item in items:
            if self._is_first and (of := unknown(item)) is not None:
                self._leave_out(of)
            else:
                yield item

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

    def cluster_ids(self, ids: Iterable[str]) -> Json:
        """The clusters that copies are of, as a plan tells them; 1.0 has no place for them."""
        return {} if self._is_first else {"cluster_ids": sorted(ids)}

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


_BROKER: Final = attributes("broker cluster_id log_dirs clean_shutdown")
_TOTALS: Final = attributes(
    "brokers partitions replicas segments batches records bytes_total bytes_decoded bytes_damaged bytes_skipped"
)
_AGREEMENT: Final = attributes("kind common_end_offset fork_epochs")
_KEY_PLACEMENT: Final = attributes("partitioner partition_count agreeing_percent keyless_percent")
_TRANSACTIONS: Final = attributes("committed aborted open hanging")
_RECOVERY: Final = attributes("starts log_start_offset log_end_offset checks steps")
_PARTITION: Final[Columns] = {
    **attributes("topic partition topic_id cleanup_policy verdict leader leader_epoch isr replica_assignment"),
    **attributes("high_watermark_at_least high_watermark_witness"),
    "agreement": lambda partition: object_of(_AGREEMENT, partition.agreement),
    "key_placement": lambda partition: (
        None if partition.key_placement is None else object_of(_KEY_PLACEMENT, partition.key_placement)
    ),
    **attributes("read=read.value not_read"),
}
_REPLICA: Final[Columns] = {
    **attributes("broker log_dir log_start_offset log_end_offset high_watermark last_stable_offset recovery_point leader_epochs"),
    **attributes("segments batches records bytes missing_offsets"),
    "transactions": lambda replica: object_of(_TRANSACTIONS, replica.transactions),
    "recovery": lambda replica: None if replica.recovery is None else object_of(_RECOVERY, replica.recovery),
    **attributes("read=read.value read_end_offset"),
}
_FINDING: Final[Columns] = {
    **attributes("kind severity=severity.value confidence=confidence.value"),
    **attributes("topic partition broker log_dir file byte_start byte_end offset_start offset_end", of="place"),
    "message": message,
    "evidence": lambda finding: with_twins(finding.evidence),
    "advice": advice,
}
FINDING_COLUMNS: Final = tuple(_FINDING)
_INCOMPLETE: Final = attributes("path reason topic partition broker")
_INCIDENT: Final[Columns] = {
    **attributes("cause=cause.value severity=severity.value confidence=confidence.value known_as"),
    **times("from", "from_ms"),
    **times("to", "to_ms"),
    **attributes("brokers lost_at_least lost_at_most records_lost_at_least records_lost_at_most held_by"),
    "partitions_count": lambda incident: len(incident.partitions),
    "message": incident_message,
    "advice": incident_advice,
    "partitions": lambda incident: [asdict(partition) for partition in incident.partitions],
    **attributes("kinds findings"),
}


def document(result: ScanResult, shape: Shape | None = None) -> Iterator[str]:
    """The JSON document in pieces: the contract's order of keys, a line a row, the gravest findings first; in another `shape` than
    the present one if asked."""
    shape = shape or Shape()
    yield head(shape, result.engine)
    yield from json_list(' "input": {"brokers"', map(broker_object, result.brokers), "},\n")
    yield f' "summary": {json_text(summary_object(result, shape))},\n'
    partitions = (
        {**partition_object(partition), "replicas": [replica_object(replica) for replica in partition.replicas]}
        for partition in result.partitions
    )
    yield from json_list(' "partitions"', shape.partitions(partitions))
    order = sorted(range(len(result.findings)), key=lambda number: gravity(result.findings[number]))
    yield from json_list(' "findings"', (finding_object(result.findings[number]) for number in order))
    if incidents := shape.incidents(map(incident_object, _placed(result.incidents, order))):
        yield from json_list(' "incidents"', incidents)
    yield from json_list(' "incomplete"', shape.gaps(map(incomplete_object, result.incomplete)), "}\n")


def lines(result: ScanResult, shape: Shape | None = None) -> Iterator[str]:
    """The same as JSON Lines, an object with its `type` each: brokers, every partition and what is its own, the summary.

    First the partitions that were settled before the scan was whole, then the others, and what else was found.
    """
    shape = shape or Shape()
    yield from broker_lines(result.brokers)
    yield from lines_at_end(result, shape, 0)


def broker_lines(brokers: Iterable[BrokerSummary]) -> Iterator[str]:
    """The lines that are the first."""
    for broker_summary in brokers:
        yield json_line("broker", broker_object(broker_summary))


def partition_lines(partition: PartitionSummary, findings: Iterable[Finding], shape: Shape) -> Iterator[str]:
    """The lines of a partition: itself, its replicas, what was found in it."""
    for partition_line in shape.partitions([partition_object(partition)]):
        yield json_line("partition", partition_line)
        for replica in shape.replicas(map(replica_object, partition.replicas)):
            yield json_line("replica", {"topic": partition.topic, "partition": partition.partition, **replica})
    for finding in findings:
        yield json_line("finding", finding_object(finding))


def lines_at_end(result: ScanResult, shape: Shape, written: int) -> Iterator[str]:
    """The lines behind those of the first `written` partitions that were settled."""
    for number, of_partition in result.settled[written:]:
        yield from partition_lines(result.partitions[number], [result.findings[place] for place in of_partition], shape)
    told = {number for number, _ in result.settled}
    order = [place for _, of_partition in result.settled for place in of_partition]
    partitions = {
        (partition.topic, partition.partition): partition
        for number, partition in enumerate(result.partitions)
        if number not in told
    }
    findings: dict[tuple[str, int], list[int]] = {}
    known = frozenset(order)
    for number, finding in enumerate(result.findings):
        if number not in known:
            place = finding.place
            findings.setdefault((place.topic or "", -1 if place.partition is None else place.partition), []).append(number)
    for key in sorted(partitions.keys() | findings.keys()):
        own = findings.get(key, [])
        order += own
        of_key = [result.findings[number] for number in own]
        if partition := partitions.get(key):
            yield from partition_lines(partition, of_key, shape)
        else:
            yield from (json_line("finding", finding_object(finding)) for finding in of_key)
    for incident in shape.incidents(map(incident_object, _placed(result.incidents, order))) or ():
        yield json_line("incident", incident)
    for gap in shape.gaps(map(incomplete_object, result.incomplete)):
        yield json_line("incomplete", gap)
    yield json_line("summary", {"schema_version": shape.version, "tool": tool(result.engine), **summary_object(result, shape)})


def _placed(incidents: Iterable[Incident], order: Iterable[int]) -> Iterator[Incident]:
    """Incidents that number findings by their places in this order."""
    places = {number: place for place, number in enumerate(order)}
    return (replace(incident, findings=sorted(places[number] for number in incident.findings)) for incident in incidents)


def head(shape: Shape, engine: str) -> str:
    """The first lines of a document."""
    return f'{{"schema_version": {json_text(shape.version)},\n "tool": {json_text(tool(engine))},\n'


def tool(engine: str) -> Json:
    """What made the answer."""
    return {"name": "kafka-forensics", "version": __version__, "engine": engine}


def broker_object(broker: BrokerSummary) -> Json:
    """An element of `input.brokers`."""
    return object_of(_BROKER, broker)


def summary_object(result: ScanResult, shape: Shape) -> Json:
    """`summary`: totals, and the number of findings of each severity, worst first."""
    return {
        "verdict": shape.verdict(result.verdict, result.findings),
        **object_of(_TOTALS, result.totals),
        "findings": counted(result.findings),
    }


def counted(findings: Iterable[Finding]) -> Json:
    """Number of findings by the name of their severity, worst first, none left out."""
    return {severity.value: count for severity, count in severity_counts(findings).items()}


def severity_counts(findings: Iterable[Finding]) -> dict[Severity, int]:
    """Number of findings of every severity, worst first, none left out."""
    counts = dict.fromkeys(sorted(Severity, key=lambda severity: -severity.rank), 0)
    for finding in findings:
        counts[finding.severity] += 1
    return counts


def partition_object(partition: PartitionSummary) -> Json:
    """An element of `partitions`, without its replicas."""
    return object_of(_PARTITION, partition)


def replica_object(replica: ReplicaSummary) -> Json:
    """An element of a partition's `replicas`."""
    return object_of(_REPLICA, replica)


def finding_object(finding: Finding) -> Json:
    """An element of `findings`."""
    return object_of(_FINDING, finding)


def incident_object(incident: Incident) -> Json:
    """An element of `incidents`."""
    return object_of(_INCIDENT, incident)


def incomplete_object(gap: Incomplete) -> Json:
    """An element of `incomplete`."""
    return object_of(_INCOMPLETE, gap)


def json_line(kind: str, content: Json) -> str:
    """An object of JSON Lines, of a kind."""
    return json_text({"type": kind, **content}) + "\n"


def json_list(opening: str, objects: Iterable[Json], closing: str = ",\n") -> Iterator[str]:
    """`opening: [` and a line an object, then `]` and `closing`."""
    yield f"{opening}: ["
    for index, item in enumerate(objects):
        yield f"{',' if index else ''}\n  {json_text(item)}"
    yield f"]{closing}"


def json_schema(command: str = "scan", version: str = SCHEMA_VERSION) -> Json:
    """The JSON Schema (2020-12) of a command's document; `$defs/line` of scan's describes a line of its JSON Lines.

    That of `compare` refers to that of `scan` by its `$id`.
    """
    from importlib.resources import files

    text = files("kafka_forensics").joinpath("schema", f"{command}-{version}.json").read_text(encoding="utf-8")
    return dict(json.loads(text))
