"""The result of a scan as JSON: a document, or an object for each line. `schema/scan-1.0.json` describes both."""

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import to_builtins
from msgspec.structs import replace

from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.incidents import Incident
from kafka_forensics.model.json_objects import Columns, Json, attributes, json_text, object_of, times, with_number_texts
from kafka_forensics.model.results import (
    SCHEMA_VERSION,
    BrokerSummary,
    Incomplete,
    PartitionSummary,
    ReplicaSummary,
    ScanResult,
)
from kafka_forensics.version import __version__
from kafka_forensics.wording import advice, incident_advice, incident_message, message, severity_order

_BROKER: Final = attributes("broker cluster_id log_dirs clean_shutdown")
_TOTALS: Final = attributes(
    "brokers partitions replicas segments batches records bytes_total bytes_decoded bytes_damaged bytes_skipped"
)
_AGREEMENT: Final = attributes("kind common_end_offset fork_epochs")
_KEY_PLACEMENT: Final = attributes("partitioner partition_count agreeing_percent keyless_percent")
_TRANSACTIONS: Final = attributes("committed aborted open hanging")
_RECOVERY: Final = attributes("starts log_start_offset log_end_offset checks steps")
_PARTITION: Final[Columns] = {
    **attributes("topic partition topic_id cleanup_policy is_tiered verdict leader leader_epoch isr replica_assignment"),
    **attributes("high_watermark_at_least high_watermark_witness"),
    "agreement": lambda partition: object_of(_AGREEMENT, partition.agreement),
    "key_placement": lambda partition: (
        None if partition.key_placement is None else object_of(_KEY_PLACEMENT, partition.key_placement)
    ),
    **attributes("read=read.value not_read"),
}
_REPLICA: Final[Columns] = {
    **attributes("broker log_dir log_start_offset local_log_start_offset log_end_offset high_watermark last_stable_offset"),
    **attributes("recovery_point leader_epochs"),
    **attributes("segments batches records bytes missing_offsets"),
    "transactions": lambda replica: object_of(_TRANSACTIONS, replica.transactions),
    "recovery": lambda replica: None if replica.recovery is None else object_of(_RECOVERY, replica.recovery),
    **attributes("reference_broker agreement_with_reference read=read.value read_end_offset"),
}
_FINDING: Final[Columns] = {
    **attributes("kind severity=severity.value confidence=confidence.value"),
    **attributes("topic partition broker log_dir file byte_start byte_end offset_start offset_end", of="place"),
    "message": message,
    "evidence": lambda finding: with_number_texts(finding.evidence),
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
    "partitions": lambda incident: [to_builtins(partition) for partition in incident.partitions],
    **attributes("kinds findings"),
}


def document(result: ScanResult) -> Iterator[str]:
    """The JSON document in chunks, with a line for each row and the most severe findings first."""
    yield head(result.engine)
    yield from json_list(' "input": {"brokers"', (object_of(_BROKER, broker) for broker in result.brokers), "},\n")
    yield f' "summary": {json_text(summary_object(result))},\n'
    partitions = (
        {**partition_object(partition), "replicas": [replica_object(replica) for replica in partition.replicas]}
        for partition in result.partitions
    )
    yield from json_list(' "partitions"', partitions)
    order = sorted(range(len(result.findings)), key=lambda number: severity_order(result.findings[number]))
    yield from json_list(' "findings"', (finding_object(result.findings[number]) for number in order))
    yield from json_list(' "incidents"', map(incident_object, _placed(result.incidents, order)))
    yield from json_list(' "incomplete"', map(incomplete_object, result.incomplete), "}\n")


def lines(result: ScanResult) -> Iterator[str]:
    """The result as JSON Lines, objects with a `type`: brokers, partitions with their replicas and findings, the summary.

    Partitions that were final before the end of the scan come first, then the others and further findings.
    """
    yield from broker_lines(result.brokers)
    yield from lines_at_end(result, 0)


def broker_lines(brokers: Iterable[BrokerSummary]) -> Iterator[str]:
    """The lines about brokers, which come first."""
    for broker in brokers:
        yield json_line("broker", object_of(_BROKER, broker))


def partition_lines(partition: PartitionSummary, findings: Iterable[Finding]) -> Iterator[str]:
    """The lines of a partition: the partition, its replicas, its findings."""
    yield json_line("partition", partition_object(partition))
    for replica in partition.replicas:
        yield json_line("replica", {"topic": partition.topic, "partition": partition.partition, **replica_object(replica)})
    for finding in findings:
        yield json_line("finding", finding_object(finding))


def lines_at_end(result: ScanResult, written: int) -> Iterator[str]:
    """The lines after those of the first `written` final partitions (`ScanResult.final_partitions`)."""
    for number, finding_numbers in result.final_partitions[written:]:
        yield from partition_lines(result.partitions[number], [result.findings[finding] for finding in finding_numbers])
    final = {number for number, _ in result.final_partitions}
    order = [finding for _, finding_numbers in result.final_partitions for finding in finding_numbers]
    partitions = {
        (partition.topic, partition.partition): partition
        for number, partition in enumerate(result.partitions)
        if number not in final
    }
    findings: dict[tuple[str, int], list[int]] = {}
    listed = frozenset(order)
    for number, finding in enumerate(result.findings):
        if number not in listed:
            place = finding.place
            findings.setdefault((place.topic or "", -1 if place.partition is None else place.partition), []).append(number)
    for key in sorted(partitions.keys() | findings.keys()):
        order += findings.get(key, [])
        of_key = [result.findings[number] for number in findings.get(key, [])]
        if partition := partitions.get(key):
            yield from partition_lines(partition, of_key)
        else:
            yield from (json_line("finding", finding_object(finding)) for finding in of_key)
    for incident in _placed(result.incidents, order):
        yield json_line("incident", incident_object(incident))
    for unread in result.incomplete:
        yield json_line("incomplete", incomplete_object(unread))
    yield json_line("summary", {"schema_version": SCHEMA_VERSION, "tool": tool(result.engine), **summary_object(result)})


def _placed(incidents: Iterable[Incident], order: Iterable[int]) -> Iterator[Incident]:
    """Incidents with the numbers of findings replaced by their places in `order`."""
    places = {number: place for place, number in enumerate(order)}
    return (replace(incident, findings=sorted(places[number] for number in incident.findings)) for incident in incidents)


def head(engine: str) -> str:
    """The start of a document."""
    return f'{{"schema_version": {json_text(SCHEMA_VERSION)},\n "tool": {json_text(tool(engine))},\n'


def tool(engine: str) -> Json:
    """The program that made the result."""
    return {"name": "kafka-forensics", "version": __version__, "engine": engine}


def summary_object(result: ScanResult) -> Json:
    """`summary`: totals, and the number of findings of each severity, most severe first."""
    return {"verdict": result.verdict, **object_of(_TOTALS, result.totals), "findings": counted(result.findings)}


def counted(findings: Iterable[Finding]) -> Json:
    """Number of findings by the name of each severity, most severe first."""
    return {severity.value: count for severity, count in severity_counts(findings).items()}


def severity_counts(findings: Iterable[Finding]) -> dict[Severity, int]:
    """Number of findings of every severity, most severe first."""
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


def incomplete_object(unread: Incomplete) -> Json:
    """An element of `incomplete`."""
    return object_of(_INCOMPLETE, unread)


def json_line(kind: str, content: Json) -> str:
    """An object of JSON Lines with its `type`."""
    return json_text({"type": kind, **content}) + "\n"


def json_list(opening: str, objects: Iterable[Json], closing: str = ",\n") -> Iterator[str]:
    """`opening: [`, a line for each object, `]` and `closing`."""
    yield f"{opening}: ["
    for index, item in enumerate(objects):
        yield f"{',' if index else ''}\n  {json_text(item)}"
    yield f"]{closing}"
