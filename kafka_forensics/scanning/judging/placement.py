"""How each topic assigns keys to partitions, judged when its last partition was read."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.placement import PartitionKeys, placement_finding, weigh_rules
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.evidence.inputs import Inputs
from kafka_forensics.model.findings import Finding, TopicPartition
from kafka_forensics.model.results import KeyPlacement, PartitionSummary
from kafka_forensics.scanning.witnesses.witnesses import Witnesses

if TYPE_CHECKING:
    from kafka_forensics.analysis.placement import Placement

_INTERNAL: Final = "__"
"""Prefix of topics whose records brokers assign to partitions."""
_BY_CONTROLLER: Final = "the controller's log"
_BY_DIRECTORIES: Final = "the partition directories among the copies, where the last ones may be missing"


class TopicPlacements:
    """Collects the sampled keys of each topic's partitions, and judges a topic when it is complete."""

    def __init__(self, inputs: Inputs, witnesses: Witnesses) -> None:
        directories = (part for log_dir in inputs.log_dirs for part in log_dir.found.partitions)
        live = ((part.topic, part.partition or 0) for part in directories if part.is_replica)
        self._copied_counts = _partition_counts((topic, partition) for topic, partition in live if topic is not None)
        self._exact_counts = _partition_counts(() if witnesses.controller is None else witnesses.controller.partitions)
        for plan in inputs.replicas:
            plan.samples_keys = self._is_sampled(plan.context.topic)
        self._topic: str | None = None
        self._partitions: dict[int, PartitionKeys] = {}
        self._findings: list[Finding] = []
        self.placements: dict[str, Placement] = {}
        """Every judged topic, with or without a finding."""

    def _count(self, topic: str) -> int:
        return max(self._exact_counts.get(topic, 0), self._copied_counts.get(topic, 0))

    def _is_sampled(self, topic: str) -> bool:
        return not topic.startswith(_INTERNAL) and self._count(topic) > 1

    def is_pending(self, topic: str) -> bool:
        """Whether the key placement of the topic is unknown until its last partition is judged."""
        return topic == self._topic and self._is_sampled(topic)

    def take(self, topic: str, partition: int, keys: PartitionKeys | None) -> None:
        """Add a partition; if it is of another topic, judge the topic before."""
        if topic != self._topic:
            self._judge()
            self._topic = topic
        if keys is not None:
            self._partitions[partition] = keys

    def finish(self) -> list[Finding]:
        """Judge the last topic; the findings about all topics."""
        self._judge()
        return self._findings

    def set_key_placement(self, partitions: Iterable[PartitionSummary]) -> None:
        """Set `key_placement` of the partitions whose topics are judged."""
        for summary in partitions:
            placement = self.placements.get(summary.topic)
            if placement is not None:
                summary.key_placement = KeyPlacement(*placement.last_rule, placement.keyless_share.get(summary.partition))

    def _judge(self) -> None:
        topic, partitions = self._topic, self._partitions
        self._topic, self._partitions = None, {}
        if topic is None or not partitions or not self._is_sampled(topic):
            return
        is_exact = topic in self._exact_counts
        placement = weigh_rules(topic, partitions, self._count(topic), exact_count=is_exact)
        self.placements[topic] = placement
        finding = placement_finding(placement, partitions, _BY_CONTROLLER if is_exact else _BY_DIRECTORIES)
        self._findings += [] if finding is None else [finding]


def partition_keys(replicas: Iterable[Replica]) -> PartitionKeys | None:
    """The sampled keys of the copy with most records; None if none were sampled."""
    largest = max(replicas, key=lambda replica: replica.state.framing.records)
    keys, records = largest.state.keys, largest.state.framing.records
    return PartitionKeys(keys.samples(), keys.records, keys.keyless, records) if keys.records else None


def _partition_counts(partitions: Iterable[TopicPartition]) -> dict[str, int]:
    """Topic → one more than its highest partition."""
    counts: dict[str, int] = {}
    for topic, partition in partitions:
        counts[topic] = max(counts.get(topic, 0), partition + 1)
    return counts
