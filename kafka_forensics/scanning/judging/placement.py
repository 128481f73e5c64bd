"""How the keys of each topic are placed: whose keys are worth looking at, and the judgement once its last partition is read."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.placement import PartitionKeys, judge_topic, placement_finding
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.evidence.inputs import Inputs
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.results import KeyPlacement, PartitionSummary
from kafka_forensics.scanning.witnesses.witnesses import Witnesses

if TYPE_CHECKING:
    from kafka_forensics.analysis.placement import Placement

_INTERNAL: Final = "__"
"""What names of topics begin with whose records are placed by brokers."""
_BY_CONTROLLER: Final = "the controller's log"
_BY_DIRECTORIES: Final = "the partition directories among the copies, of which the last ones may be missing"


class TopicPlacements:
    """Gathers what was looked at of a topic's partitions, which come one after the other, and judges it when it is complete."""

    def __init__(self, inputs: Inputs, witnesses: Witnesses) -> None:
        self._counts = _partition_counts(inputs)
        self._exact = _controllers_counts(witnesses)
        for plan in inputs.replicas:
            plan.samples_keys = self._is_worth(plan.context.topic)
        self._topic: str | None = None
        self._partitions: dict[int, PartitionKeys] = {}
        self._found: list[Finding] = []
        self.placements: dict[str, Placement] = {}
        """Every topic judged, those that are as they should be included."""

    def _count(self, topic: str) -> int:
        return max(self._exact.get(topic, 0), self._counts.get(topic, 0))

    def _is_worth(self, topic: str) -> bool:
        return not topic.startswith(_INTERNAL) and self._count(topic) > 1

    def awaits(self, topic: str) -> bool:
        """Whether what is said of the topic's partitions waits for its last one."""
        return topic == self._topic and self._is_worth(topic)

    def take(self, topic: str, partition: int, keys: PartitionKeys | None) -> None:
        """Add a partition, and judge the topic before if this is of another."""
        if topic != self._topic:
            self._judge()
            self._topic = topic
        if keys is not None:
            self._partitions[partition] = keys

    def finish(self) -> list[Finding]:
        """What is to be told of all topics."""
        self._judge()
        return self._found

    def tell(self, partitions: Iterable[PartitionSummary]) -> None:
        """Say of every one of these partitions how its topic's keys are placed, when its topic is judged."""
        for summary in partitions:
            placement = self.placements.get(summary.topic)
            if placement is not None:
                summary.key_placement = KeyPlacement(*placement.last_rule, placement.keyless_share.get(summary.partition))

    def _judge(self) -> None:
        topic, partitions = self._topic, self._partitions
        self._topic, self._partitions = None, {}
        if topic is None or not partitions or not self._is_worth(topic):
            return

        exact = topic in self._exact
        placement = judge_topic(topic, partitions, self._count(topic), exact_count=exact)
        self.placements[topic] = placement
        finding = placement_finding(placement, partitions, _BY_CONTROLLER if exact else _BY_DIRECTORIES)
        self._found += [] if finding is None else [finding]


def partition_keys(replicas: Iterable[Replica]) -> PartitionKeys | None:
    """What was looked at of a partition, in its fullest copy; None if nothing was."""
    fullest = max(replicas, key=lambda replica: replica.state.framing.records)
    keys, records = fullest.state.keys, fullest.state.framing.records
    return PartitionKeys(keys.samples(), keys.records, keys.keyless, records) if keys.records else None


def _partition_counts(inputs: Inputs) -> dict[str, int]:
    """Topic → its highest partition among all copies and one, whatever was asked for."""
    counts: dict[str, int] = {}
    for log_dir in inputs.log_dirs:
        for directory in log_dir.found.partitions:
            if directory.legal and directory.suffix is None and directory.topic is not None:
                counts[directory.topic] = max(counts.get(directory.topic, 0), (directory.partition or 0) + 1)
    return counts


def _controllers_counts(witnesses: Witnesses) -> dict[str, int]:
    """Topic → how many partitions the controller knows of."""
    counts: dict[str, int] = {}
    for topic, partition in () if witnesses.controller is None else witnesses.controller.partitions:
        counts[topic] = max(counts.get(topic, 0), partition + 1)
    return counts
