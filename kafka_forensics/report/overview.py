"""The overview of a scan: what was lost, and which copies hold it."""

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_forensics.evidence.inputs import broker_order
from kafka_forensics.report.document import Broker, IncidentRow
from kafka_forensics.wording import incident_loss


@dataclass(frozen=True, slots=True)
class Overview:
    """The losses of all incidents of a scan together."""

    lost_at_least: int
    """Committed records that are proven lost, or exist only where Kafka will truncate them."""
    lost_at_most: int
    """The same, plus records at risk."""
    recoverable: int
    """How many of `lost_at_most` some given copy holds."""
    noun: str
    """What the numbers count: `committed record`, or `committed offset`."""
    holders: tuple[Broker, ...]
    """Brokers that hold recoverable records."""


def overview_of(incidents: Sequence[IncidentRow]) -> Overview:
    """The overview of a scan's incidents."""
    losing = [(row, incident_loss(row, incident)) for incident in incidents for row in incident.partitions]
    return Overview(
        sum(least for _, (least, _, _) in losing),
        sum(most for _, (_, most, _) in losing),
        sum(most for row, (_, most, _) in losing if row.held_by),
        "committed record" if {noun for _, (_, most, noun) in losing if most} <= {"committed record"} else "committed offset",
        tuple(sorted({broker for row, (_, most, _) in losing if most for broker in row.held_by}, key=broker_order)),
    )
