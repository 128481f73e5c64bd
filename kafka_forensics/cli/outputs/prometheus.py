"""A scan's answer as metrics in Prometheus' text format, for the textfile collector of a node exporter.

All are gauges: they tell of one scan. The same scan gives the same bytes; no sample has a time.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kafka_forensics.analysis.incidents import count_offsets
from kafka_forensics.analysis.kinds import CATALOGUE, Trait, kinds_with
from kafka_forensics.analysis.kinds.evidence_classes import (
    BatchDamageEvidence,
    FramingEvidence,
    HiddenBytesEvidence,
    OrderEvidence,
    RecoveryEvidence,
    SegmentMissingEvidence,
)
from kafka_forensics.cli.streams import printable
from kafka_forensics.export.json_document import severity_counts
from kafka_forensics.model.findings import Confidence, Finding, Severity
from kafka_forensics.model.results import VERDICTS, ReadExtent, ScanResult
from kafka_forensics.version import __version__

MOST_TOPICS: Final = 200
"""Topics with metrics of their own: the worst. The rest are one."""
OTHER_TOPICS: Final = "(other)"
"""What the rest are called; no topic can be called so."""

_DAMAGE: Final = (
    *(BatchDamageEvidence, FramingEvidence, HiddenBytesEvidence),
    *(OrderEvidence, SegmentMissingEvidence, RecoveryEvidence),
)
"""Evidence of kinds whose offsets may be lost where no good copy is known."""

Labels = Mapping[str, str]
Samples = Iterable[tuple[Labels, int | float]]


def lines(result: ScanResult, status: int, as_of_ms: int | None = None) -> Iterator[str]:
    """The metrics, each with its help and type; `status` is that with which the command ends, `as_of_ms` what `--as-of` said."""
    yield from _metric(
        "info", "Which version made these metrics, on which engine.", [({"version": __version__, "engine": result.engine}, 1)]
    )
    if as_of_ms is not None:
        yield from _metric("scan_as_of_timestamp_seconds", "The moment to which ages were counted.", [({}, as_of_ms / 1000)])
    verdicts = [({"verdict": verdict}, int(verdict == result.verdict)) for verdict in VERDICTS]
    yield from _metric("scan_verdict", "1 for the verdict of the scan, 0 for all others.", verdicts)
    yield from _metric("scan_exit_status", "Status with which the scan ended.", [({}, status)])
    yield from _metric("scan_incomplete_inputs", "Inputs that could not be read.", [({}, len(result.incomplete))])
    yield from _size(result)
    yield from _findings(result)
    yield from _topics(result)


def _size(result: ScanResult) -> Iterator[str]:
    """What was read."""
    totals = result.totals
    yield from _metric("brokers", "Brokers with a log directory in the evidence.", [({}, totals.brokers)])
    by_verdict = Counter(partition.verdict for partition in result.partitions)
    yield from _metric(
        "partitions", "Partitions by verdict.", [({"verdict": verdict}, by_verdict[verdict]) for verdict in VERDICTS]
    )
    by_read = Counter(replica.read for partition in result.partitions for replica in partition.replicas)
    yield from _metric(
        "replicas", "Replicas by how much of their log was read.", [({"read": read.value}, by_read[read]) for read in ReadExtent]
    )
    for name, count in (("segments", totals.segments), ("batches", totals.batches), ("records", totals.records)):
        yield from _metric(name, f"{name.capitalize()} that were read.", [({}, count)])
    outcomes = {"decoded": totals.bytes_decoded, "damaged": totals.bytes_damaged, "skipped": totals.bytes_skipped}
    yield from _metric(
        "read_bytes", "Bytes of logs by what was made of them.", [({"outcome": name}, count) for name, count in outcomes.items()]
    )


def _findings(result: ScanResult) -> Iterator[str]:
    """How many findings there are."""
    by_severity = severity_counts(result.findings)
    yield from _metric(
        "findings", "Findings by severity.", [({"severity": each.value}, count) for each, count in by_severity.items()]
    )
    by_kind = Counter((finding.kind, finding.severity) for finding in result.findings)
    ordered = sorted(by_kind.items(), key=lambda item: (-item[0][1].rank, item[0][0]))
    samples = [({"kind": kind, "severity": severity.value}, count) for (kind, severity), count in ordered]
    yield from _metric("findings_by_kind", "Findings by kind and severity; of kinds that were found.", samples)


class _Topic:
    """What is told of one topic, or of all that are told as one."""

    def __init__(self) -> None:
        self.severities: Counter[Severity] = Counter()
        self.at_least = 0
        self.at_most = 0

    def add(self, other: "_Topic") -> None:
        self.severities.update(other.severities)
        self.at_least += other.at_least
        self.at_most += other.at_most

    @property
    def rank(self) -> tuple[int, int, int]:
        """Sort key, the least first."""
        return max(severity.rank for severity in self.severities), self.at_most, self.at_least


def _topics(result: ScanResult) -> Iterator[str]:
    """What was lost, in all and by topic: the worst topics by name, the others together; none that are only of info."""
    topics = _told_topics(result.findings)
    total = _Topic()
    for topic in topics.values():
        total.add(topic)
    at_least = "Committed records that are proven lost, or survive only where Kafka will cut them"
    at_most = "Records that may be lost, with those that are only at risk"
    yield from _metric("lost_records_at_least", f"{at_least}, counted by offsets.", [({}, total.at_least)])
    yield from _metric("lost_records_at_most", f"{at_most}, counted by offsets.", [({}, total.at_most)])
    shown = dict(sorted(topics.items(), key=lambda item: (*(-part for part in item[1].rank), item[0]))[:MOST_TOPICS])
    rest = shown.setdefault(OTHER_TOPICS, _Topic()) if len(topics) > len(shown) else None
    for name, topic in topics.items():
        if rest is not None and name not in shown:
            rest.add(topic)
    named = [({"topic": name}, topic) for name, topic in sorted(shown.items())]
    severities = [severity for severity in sorted(Severity, key=lambda severity: -severity.rank) if severity.rank]
    counts = [({**label, "severity": each.value}, topic.severities[each]) for label, topic in named for each in severities]
    yield from _metric("topic_findings", "Findings of a topic from warning upwards; of topics that have any.", counts)
    yield from _metric("topic_lost_records_at_least", f"{at_least}, by topic.", [(label, topic.at_least) for label, topic in named])
    yield from _metric("topic_lost_records_at_most", f"{at_most}, by topic.", [(label, topic.at_most) for label, topic in named])


def _told_topics(findings: Iterable[Finding]) -> dict[str, _Topic]:
    """Topics with findings from warning upwards."""
    topics: dict[str, _Topic] = {}
    partitions: dict[tuple[str, int], list[Finding]] = {}
    for finding in findings:
        place = finding.place
        if place.topic is None or finding.severity is Severity.INFO:
            continue
        topics.setdefault(place.topic, _Topic()).severities[finding.severity] += 1
        if place.partition is not None:
            partitions.setdefault((place.topic, place.partition), []).append(finding)
    for (topic, _), own in partitions.items():
        ranged = [finding for finding in own if finding.place.offset_start is None or finding.place.offset_start >= 0]
        topics[topic].at_least += count_offsets(
            each for each in ranged if each.kind in kinds_with(Trait.LOST_COMMITTED) and each.confidence is Confidence.PROVEN
        )
        topics[topic].at_most += count_offsets(filter(_is_at_risk, ranged))
    return topics


def _is_at_risk(finding: Finding) -> bool:
    is_damage = CATALOGUE[finding.kind].evidence in _DAMAGE
    return finding.kind in kinds_with(Trait.LOST_COMMITTED, Trait.COMMITTED_AT_RISK) or (
        is_damage and not finding.evidence.get("held_by")
    )


def _metric(name: str, words: str, samples: Samples) -> Iterator[str]:
    """A gauge: what it is, and a line a sample; nothing without samples."""
    heading = f"# HELP kafka_forensics_{name} {words}\n# TYPE kafka_forensics_{name} gauge\n"
    for labels, value in samples:
        yield heading
        heading = ""
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"kafka_forensics_{name}{f'{{{shown}}}' if shown else ''} {value}\n"


def _escaped(text: str) -> str:
    """A label's value: what is not plainly visible as an escape, then as the format wants it."""
    return printable(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
