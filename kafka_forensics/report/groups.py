"""Partitions that differ in the same way, and what each of them lost."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.model.incidents import CountedLoss
from kafka_forensics.model.offset_ranges import Ranges, normalised
from kafka_forensics.model.results import VERDICTS
from kafka_forensics.questions.plan import Planned
from kafka_forensics.report.document import FindingRow, IncidentPartitionRow, IncidentRow, PartitionRow
from kafka_forensics.report.lanes import fork_of, spans_of
from kafka_forensics.report.words import bounds, numbered, offset_list, plural, shown
from kafka_forensics.wording import Overview, incident_loss

_AGREEING: Final = frozenset({"identical", "prefix", "compacted", "not_compared"})
_TOPICS_LISTED: Final = 200
_NUMBERS: Final = 300
"""Letters of the partition numbers of a topic."""


class Lost(Struct, frozen=True):
    """Committed records that are lost, or offsets where records are not known: proven, and at most."""

    proven: int = 0
    at_most: int = 0
    noun: str = ""

    def __add__(self, other: "Lost") -> "Lost":
        noun = min(filter(None, (self.noun, other.noun)), default="")  # offsets, if one of them is in offsets
        return Lost(self.proven + other.proven, self.at_most + other.at_most, noun)

    def __str__(self) -> str:
        return f"{self.numbers} {self.noun}{'s' * (self.at_most != 1)}" if self.at_most else "nothing"

    @property
    def numbers(self) -> str:
        """The numbers without their noun."""
        return bounds(self.proven, self.at_most)


def loss_of(counted: CountedLoss, incident: CountedLoss) -> Lost:
    """The loss of an incident, or of its part in one partition."""
    least, most, noun = incident_loss(counted, incident)
    return Lost(least, most, noun.removeprefix("committed ") if most else "")


def losses_of(overview: Overview) -> dict[TopicPartition, Lost]:
    """The loss of each partition with one."""
    noun = overview.noun.removeprefix("committed ")
    return {partition: Lost(least, most, noun) for partition, (least, most) in overview.by_partition.items()}


def lost_everywhere_of(incidents: Iterable[IncidentRow], partition: TopicPartition) -> Ranges:
    """Lost offsets of a partition that no copy holds."""
    rows = [row for incident in incidents for row in incident.partitions if (row.topic, row.partition) == partition]
    places = [(row.offset_start, row.offset_end) for row in rows if row.lost_at_least and not row.held_by]
    return normalised((start, end) for start, end in places if start is not None and end is not None)


class PartitionGroup(Struct):
    """Partitions with the same lanes but for their offsets, the largest loss first."""

    rows: list[PartitionRow]
    losses: Mapping[TopicPartition, Lost]
    findings: Mapping[TopicPartition, Sequence[FindingRow]]
    planned: Mapping[TopicPartition, Planned]

    @property
    def first(self) -> PartitionRow:
        """The partition that is drawn."""
        return self.rows[0]

    @property
    def lost(self) -> Lost:
        """The loss of all its partitions."""
        return sum((self.losses.get((row.topic, row.partition), Lost()) for row in self.rows), Lost())

    def title(self, letters: int) -> str:
        """`audit-0: 70 records lost`, `96 partitions of 16 topics: 11,244 records lost`."""
        lost, topics = self.lost, {row.topic for row in self.rows}
        name = partition_name(self.first, letters)
        if len(self.rows) > 1:
            name = f"{plural(len(self.rows), 'partition')} of {plural(len(topics), 'topic')}"
        return f"{name}: {lost} lost" if lost.at_most else name

    def listed(self, most: int, letters: int) -> Iterator[tuple[str, str, str]]:
        """(name, offsets lost by the present leader, loss) of the first partitions."""
        for row in self.rows[:most]:
            key = row.topic, row.partition
            spans = spans_of(row, fork_of(row, self.findings.get(key, ())), self.planned.get(key))
            lost = sorted({span for parts in spans for style, span in parts if style == "lost"})
            loss = self.losses.get(key, Lost())
            yield partition_name(row, letters), offset_list(lost), str(loss)

    def others(self, listed: int, letters: int) -> Iterator[tuple[str, str, str]]:
        """(topic, numbers of partitions, loss) of the partitions after the first `listed`, by topic."""
        by_topic: defaultdict[str, list[int]] = defaultdict(list)
        losses: defaultdict[str, Lost] = defaultdict(Lost)
        for row in self.rows[listed:]:
            by_topic[row.topic].append(row.partition)
            losses[row.topic] += self.losses.get((row.topic, row.partition), Lost())
        topics = list(by_topic)
        for topic in topics[:_TOPICS_LISTED]:
            yield shown(topic, letters), shown(numbered(by_topic[topic]), _NUMBERS), str(losses[topic])
        if rest := topics[_TOPICS_LISTED:]:
            count = sum(len(by_topic[topic]) for topic in rest)
            yield plural(len(rest), "further topic"), plural(count, "partition"), str(sum((losses[t] for t in rest), Lost()))


def partition_name(row: PartitionRow | IncidentPartitionRow, letters: int) -> str:
    """`audit-0`."""
    return shown(f"{row.topic}-{row.partition}", letters)


def groups_of(
    rows: Iterable[PartitionRow],
    losses: Mapping[TopicPartition, Lost],
    findings: Mapping[TopicPartition, Sequence[FindingRow]],
    planned: Mapping[TopicPartition, Planned],
) -> list[PartitionGroup]:
    """The partitions that differ, or have a finding above `info`, in groups; the largest loss first."""

    def largest_loss_first(row: PartitionRow) -> tuple[int, int, int, str, int]:
        loss = losses.get((row.topic, row.partition), Lost())
        return -loss.proven, -loss.at_most, -VERDICTS.index(row.verdict), row.topic, row.partition

    by_shape: defaultdict[object, list[PartitionRow]] = defaultdict(list)
    for row in sorted(rows, key=largest_loss_first):
        key = row.topic, row.partition
        if row.verdict in ("warning", "error", "critical") or row.agreement.kind not in _AGREEING:
            by_shape[_shape(row, findings.get(key, ()), planned.get(key))].append(row)
    return [PartitionGroup(of_shape, losses, findings, planned) for of_shape in by_shape.values()]


def _shape(row: PartitionRow, findings: Sequence[FindingRow], planned: Planned | None) -> object:
    """What two partitions have in common whose lanes differ in offsets only."""
    spans = spans_of(row, fork_of(row, findings), planned)
    elections = (
        []
        if planned is None
        else [
            (candidate.broker, candidate.election, *dict.fromkeys(loss.held_by for loss in candidate.losses))
            for candidate in planned.plan.candidates
        ]
    )
    return (
        row.verdict,
        row.leader,
        tuple(
            (replica.broker, replica.read, *(style for style, _ in parts))
            for replica, parts in zip(row.replicas, spans, strict=True)
        ),
        tuple(elections),
        None if planned is None else planned.plan.recommended,
        frozenset((finding.kind, finding.broker) for finding in findings if finding.severity != "info"),
    )
