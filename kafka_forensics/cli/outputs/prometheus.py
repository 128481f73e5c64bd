"""A scan's answer as metrics in Prometheus' text format, for the textfile collector of a node exporter.

All are gauges of one scan. The same scan gives the same bytes; samples have no timestamps.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct, field

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
from kafka_forensics.export.json_document import counted as severities_counted
from kafka_forensics.model.findings import Confidence, Finding, Severity
from kafka_forensics.model.results import VERDICTS, ReadExtent, ScanResult
from kafka_forensics.model.safe_text import printable
from kafka_forensics.version import __version__

MOST_TOPICS: Final = 200
"""Topics with metrics by name, the worst ones; the others are counted together."""
OTHER_TOPICS: Final = "(other)"
"""The label of the others; Kafka allows no topic of this name."""

_DAMAGE: Final = (
    *(BatchDamageEvidence, FramingEvidence, HiddenBytesEvidence),
    *(OrderEvidence, SegmentMissingEvidence, RecoveryEvidence),
)
"""Evidence of kinds whose offsets may be lost if no broker has a good copy."""

Labels = Mapping[str, str]
Samples = Iterable[tuple[Labels, int | float]]


def lines(result: ScanResult, status: int, as_of_ms: int | None = None) -> Iterator[str]:
    """The metrics, each with its help and type; `status` is the exit status of the command, `as_of_ms` its option `--as-of`."""
    version = {"version": __version__, "engine": result.engine}
    yield from _metric("info", "Which version made these metrics, on which engine.", [(version, 1)])
    if as_of_ms is not None:
        yield from _metric("scan_as_of_timestamp_seconds", "The moment to which ages were counted.", [({}, as_of_ms / 1000)])
    verdicts = {verdict: int(verdict == result.verdict) for verdict in VERDICTS}
    yield from _metric("scan_verdict", "1 for the verdict of the scan, 0 for all others.", _by("verdict", verdicts))
    yield from _metric("scan_exit_status", "Status with which the scan ended.", [({}, status)])
    yield from _metric("scan_incomplete_inputs", "Inputs that could not be read.", [({}, len(result.incomplete))])
    yield from _size(result)
    yield from _findings(result)
    yield from _topics(result)


def _size(result: ScanResult) -> Iterator[str]:
    """How much was read."""
    totals = result.totals
    yield from _metric("brokers", "Brokers with a log directory in the evidence.", [({}, totals.brokers)])
    by_verdict = Counter(partition.verdict for partition in result.partitions)
    yield from _metric("partitions", "Partitions by verdict.", _by("verdict", {name: by_verdict[name] for name in VERDICTS}))
    by_read = Counter(replica.read for partition in result.partitions for replica in partition.replicas)
    reads = {read.value: by_read[read] for read in ReadExtent}
    yield from _metric("replicas", "Replicas by how much of their log was read.", _by("read", reads))
    for name, count in (("segments", totals.segments), ("batches", totals.batches), ("records", totals.records)):
        yield from _metric(name, f"{name.capitalize()} that were read.", [({}, count)])
    outcomes = {"decoded": totals.bytes_decoded, "damaged": totals.bytes_damaged, "skipped": totals.bytes_skipped}
    yield from _metric("read_bytes", "Bytes of logs by what was made of them.", _by("outcome", outcomes))


def _findings(result: ScanResult) -> Iterator[str]:
    """How many findings there are."""
    yield from _metric("findings", "Findings by severity.", _by("severity", severities_counted(result.findings)))
    by_kind = Counter((finding.kind, finding.severity) for finding in result.findings)
    ordered = sorted(by_kind.items(), key=lambda item: (-item[0][1].rank, item[0][0]))
    samples = [({"kind": kind, "severity": severity.value}, count) for (kind, severity), count in ordered]
    yield from _metric("findings_by_kind", "Findings by kind and severity; of kinds that were found.", samples)


class _TopicCounts(Struct):
    """Findings and losses of a topic, or of several together."""

    severities: Counter[Severity] = field(default_factory=Counter)
    at_least: int = 0
    at_most: int = 0

    def add(self, other: "_TopicCounts") -> None:
        self.severities.update(other.severities)
        self.at_least += other.at_least
        self.at_most += other.at_most

    @property
    def rank(self) -> tuple[int, int, int]:
        """Sort key, the least severe first."""
        return max(severity.rank for severity in self.severities), self.at_most, self.at_least


def _topics(result: ScanResult) -> Iterator[str]:
    """Findings and losses in all and by topic: the worst topics by name, the others together."""
    topics = _topic_counts(result.findings)
    total = _TopicCounts()
    for topic in topics.values():
        total.add(topic)
    at_least = "Committed records that are proven lost, or survive only where Kafka will cut them"
    at_most = "Records that may be lost, with those that are only at risk"
    yield from _metric("lost_records_at_least", f"{at_least}, counted by offsets.", [({}, total.at_least)])
    yield from _metric("lost_records_at_most", f"{at_most}, counted by offsets.", [({}, total.at_most)])
    shown = dict(sorted(topics.items(), key=lambda item: (*(-part for part in item[1].rank), item[0]))[:MOST_TOPICS])
    for name, topic in topics.items():
        if name not in shown:
            shown.setdefault(OTHER_TOPICS, _TopicCounts()).add(topic)
    named = [({"topic": name}, topic) for name, topic in sorted(shown.items())]
    severities = [severity for severity in sorted(Severity, key=lambda severity: -severity.rank) if severity.rank]
    counts = [
        ({**label, "severity": severity.value}, topic.severities[severity]) for label, topic in named for severity in severities
    ]
    yield from _metric("topic_findings", "Findings of a topic from warning upwards; of topics that have any.", counts)
    yield from _metric("topic_lost_records_at_least", f"{at_least}, by topic.", [(label, topic.at_least) for label, topic in named])
    yield from _metric("topic_lost_records_at_most", f"{at_most}, by topic.", [(label, topic.at_most) for label, topic in named])


def _topic_counts(findings: Iterable[Finding]) -> dict[str, _TopicCounts]:
    """Counts of topics that have findings from warning upwards."""
    topics: defaultdict[str, _TopicCounts] = defaultdict(_TopicCounts)
    partitions: defaultdict[tuple[str, int], list[Finding]] = defaultdict(list)
    for finding in findings:
        place = finding.place
        if place.topic is None or finding.severity is Severity.INFO:
            continue
        topics[place.topic].severities[finding.severity] += 1
        if place.partition is not None and (place.offset_start is None or place.offset_start >= 0):
            partitions[place.topic, place.partition].append(finding)
    lost = kinds_with(Trait.LOST_COMMITTED)
    for (topic, _), of_partition in partitions.items():
        proven = (finding for finding in of_partition if finding.kind in lost and finding.confidence is Confidence.PROVEN)
        topics[topic].at_least += count_offsets(proven)
        topics[topic].at_most += count_offsets(filter(_is_at_risk, of_partition))
    return topics


def _is_at_risk(finding: Finding) -> bool:
    is_damage = CATALOGUE[finding.kind].evidence in _DAMAGE
    return finding.kind in kinds_with(Trait.LOST_COMMITTED, Trait.COMMITTED_AT_RISK) or (
        is_damage and not finding.evidence.get("held_by")
    )


def _by(label: str, counts: Mapping[str, int]) -> Samples:
    return [({label: name}, count) for name, count in counts.items()]


def _metric(name: str, words: str, samples: Samples) -> Iterator[str]:
    """The lines of a gauge; none without samples."""
    heading = f"# HELP kafka_forensics_{name} {words}\n# TYPE kafka_forensics_{name} gauge\n"
    for labels, value in samples:
        yield heading
        heading = ""
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"kafka_forensics_{name}{f'{{{shown}}}' if shown else ''} {value}\n"


def _escaped(text: str) -> str:
    """The value of a label: made safe to print, then escaped as the format requires."""
    return printable(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
