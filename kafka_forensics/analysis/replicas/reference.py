"""How each replica of a partition agrees with its reference: the leader's copy, or the one with the latest leader epoch."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas.comparison import Comparison, lacks_offsets
from kafka_forensics.analysis.replicas.diff import is_compacted
from kafka_forensics.analysis.replicas.forks import last_epoch
from kafka_forensics.model.results import ReadExtent


class ReferenceAgreement(NamedTuple):
    """The broker of the reference, None without one, and how a replica agrees with it: see `ReplicaSummary`."""

    reference_broker: int | str | None = None
    kind: str | None = None


def reference_agreements(
    replicas: list[Replica], comparison: Comparison, without_start: Collection[Replica], *, all_read: bool
) -> list[ReferenceAgreement]:
    """How each replica agrees with the reference; `comparison` is that of the replicas.

    `without_start`: those that certainly lack the start of their log. `all_read`: whether all could be read again that had to be.
    """
    if len(replicas) < 2:
        return [ReferenceAgreement() for _ in replicas]
    lacking = {
        number
        for number, replica in enumerate(replicas)
        if lacks_offsets(replicas, number, comparison) or any(replica is other for other in without_start)
    }
    agreements = _ReferenceAgreements(replicas, comparison, lacking, all_read)
    broker = None if agreements.reference is None else replicas[agreements.reference].broker
    return [ReferenceAgreement(broker, agreements.kind(number)) for number in range(len(replicas))]


@dataclass(slots=True)
class _ReferenceAgreements:
    """Replicas, by their numbers, and their reference."""

    replicas: list[Replica]
    comparison: Comparison
    lacking: set[int]
    """Replicas that lack offsets."""
    all_read: bool
    reference: int | None = field(init=False)

    def __post_init__(self) -> None:
        self.reference = self._reference()

    def _reference(self) -> int | None:
        """The leader by the controller's log if its log was read completely, else the replica with the latest leader epoch, of
        several the one that ends last: the one that Kafka would prefer. Of several such one without damage, then the first.

        None if the replicas with that epoch conflict with each other, or none was read completely.
        """
        whole = [number for number, replica in enumerate(self.replicas) if replica.read is ReadExtent.WHOLE]
        candidates = [number for number in whole if _leads(self.replicas[number])] or whole
        latest = max((last_epoch(self.replicas[number]) for number in candidates), default=-1)
        candidates = [number for number in candidates if last_epoch(self.replicas[number]) == latest]
        if any(left in candidates and right in candidates for left, right in self.comparison.conflicts):
            return None
        damaged = self.comparison.damaged | self.lacking
        return min(candidates, key=lambda number: (-self.replicas[number].log_end_offset, number in damaged, number), default=None)

    def kind(self, number: int) -> str | None:
        """How a replica agrees with the reference."""
        if self._differs(number, self.comparison.conflicts):
            return "conflict"
        if number in self.comparison.damaged or self._differs(number, self.comparison.different_content):
            return "content"
        if self.replicas[number].read is not ReadExtent.WHOLE:
            return "not_compared"
        if number in self.lacking or self._lacks_keys(number):
            return "missing"
        if self.reference is None or number == self.reference:
            return None if self.reference is None else "reference"
        return self._without_difference(number, self.reference)

    def _differs(self, number: int, pairs: Collection[tuple[int, int]]) -> bool:
        """Whether a replica and the reference are one of these pairs; without a reference, whether the replica is in any."""
        if self.reference is None:
            return any(number in pair for pair in pairs)
        return _pair(number, self.reference) in pairs

    def _lacks_keys(self, number: int) -> bool:
        """Whether a replica lacks latest records of keys that the reference has, or the reference those that any replica has."""
        holders = {holder for lacking, holder in self.comparison.lacks_keys if lacking == number}
        return bool(holders if self.reference in (None, number) else self.reference in holders)

    def _without_difference(self, number: int, reference: int) -> str:
        """How a replica agrees with the reference if it lacks no records and both have the same ones as far as they reach."""
        pair = _pair(number, reference)
        if pair in self.comparison.read_in_part or not self.all_read:
            return "not_compared"
        end, reference_end = (self.replicas[at].log_end_offset for at in (number, reference))
        if end != reference_end:
            return "behind" if end < reference_end else "ahead"
        return "compacted" if pair in self.comparison.differing_pairs and is_compacted(*self.replicas) else "identical"


def _leads(replica: Replica) -> bool:
    control = replica.context.control
    return control is not None and control.leader == replica.context.node


def _pair(left: int, right: int) -> tuple[int, int]:
    return min(left, right), max(left, right)
