"""The overview with which the text and the page of a scan begin: what was lost, and which copies hold it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from msgspec import Struct

from kafka_forensics.evidence.inputs import broker_order
from kafka_forensics.model.constants import INT64_MAX
from kafka_forensics.model.findings import Broker, TopicPartition
from kafka_forensics.model.incidents import IncidentLoss, PartitionLoss
from kafka_forensics.model.offset_ranges import clipped, counted, normalised
from kafka_forensics.wording.incidents import incident_loss


class Overview(Struct, frozen=True):
    """The losses of all incidents of a scan together. Offsets that two incidents lose count once."""

    lost_at_least: int
    """Committed records that are proven lost, or exist only where Kafka will truncate them."""
    lost_at_most: int
    """The same, plus records at risk."""
    recoverable: int
    """How many of `lost_at_most` some given copy holds."""
    noun: str
    """What the numbers count: `committed record`, or `committed offset` if a proven loss has an unknown number of records."""
    by_partition: Mapping[TopicPartition, tuple[int, int]]
    """Partition with a loss → its part of `lost_at_least` and `lost_at_most`."""
    holders: tuple[Broker, ...]
    """Brokers that hold recoverable records: they stay stopped until their log directories are copied elsewhere."""

    @property
    def partitions(self) -> int:
        """Number of partitions with a loss."""
        return len(self.by_partition)


def overview_of(incidents: Iterable[IncidentLoss]) -> Overview:
    """The overview of the incidents of a scan."""
    losing = [incident for incident in incidents if incident.lost_at_most]
    by_records = all(
        incident_loss(incident, incident)[2] == "committed record" or not incident.lost_at_least for incident in losing
    )  # an offset at risk is one record at most
    losses: defaultdict[TopicPartition, list[_JoinedLoss]] = defaultdict(list)
    for incident in losing:
        for partition in incident.partitions:
            if partition.lost_at_most:
                losses[partition.topic, partition.partition].append(_partition_loss(partition, by_records=by_records))
    by_partition = {key: _joined(of_partition) for key, of_partition in losses.items()}
    joined = [loss for of_partition in by_partition.values() for loss in of_partition]
    holders = {broker for loss in joined for broker in loss.held_by}
    return Overview(
        sum(loss.at_least for loss in joined),
        sum(loss.at_most for loss in joined),
        sum(loss.recoverable for loss in joined),
        "committed record" if by_records else "committed offset",
        {
            key: (sum(loss.at_least for loss in of_partition), sum(loss.at_most for loss in of_partition))
            for key, of_partition in by_partition.items()
        },
        tuple(sorted(holders, key=broker_order)),
    )


class _JoinedLoss(Struct, frozen=True):
    """What one incident loses in one partition."""

    start: int
    end: int
    at_least: int
    at_most: int
    recoverable: int
    held_by: tuple[Broker, ...]


def _partition_loss(partition: PartitionLoss, *, by_records: bool) -> _JoinedLoss:
    at_least, at_most = partition.lost_at_least, partition.lost_at_most
    held = at_most if partition.held_by else 0
    if partition.held_ranges and partition.offset_start is not None and partition.offset_end is not None:
        ranges = normalised((row["offset_start"], row["offset_end"]) for row in partition.held_ranges if row["brokers"])
        held = min(at_most, counted(clipped(ranges, partition.offset_start, partition.offset_end)))
    if by_records:
        missing = at_most - held
        records = partition.records_lost_at_most
        at_least, at_most = partition.records_lost_at_least or 0, at_most if records is None else records
        held = max(0, at_most - missing) if held else 0
    start, end = partition.offset_start, partition.offset_end
    if start is None or end is None:
        start, end = 0, INT64_MAX  # unknown offsets may be any
    return _JoinedLoss(start, end, at_least, at_most, held, tuple(partition.held_by))


def _joined(losses: Iterable[_JoinedLoss]) -> list[_JoinedLoss]:
    """The losses of one partition, with those joined whose offsets overlap: offsets count once, no holder is left out."""
    joined: list[_JoinedLoss] = []
    for loss in sorted(losses, key=lambda loss: (loss.start, loss.end)):
        if not joined or joined[-1].end <= loss.start:
            joined.append(loss)
            continue
        before = joined[-1]
        start, end = before.start, max(before.end, loss.end)
        most = max(before.at_most, loss.at_most, min(before.at_most + loss.at_most, end - start))
        held_all = before.recoverable == before.at_most and loss.recoverable == loss.at_most
        recoverable = most if held_all else max(before.recoverable, loss.recoverable)
        holders = tuple(dict.fromkeys((*before.held_by, *loss.held_by)))
        joined[-1] = _JoinedLoss(start, end, max(before.at_least, loss.at_least), most, recoverable, holders)
    return joined
