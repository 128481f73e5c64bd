"""What `__share_group_state` says: from where share groups take the records of a partition, and how far each record has come."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

DELIVERY_STATES: Final = {0: "available", 1: "acquired", 2: "acknowledged", 3: "archiving", 4: "archived"}
"""Kafka's names by number; acquired records are never written, archived ones were rejected or delivered too often."""
NO_OFFSET: Final = -1


def delivery_state_name(number: int) -> str | int:
    """Kafka's name of a delivery state, the number itself if it has none."""
    return DELIVERY_STATES.get(number, number)


class StateBatch(NamedTuple):
    """Records `first_offset` to `last_offset` (inclusive) that are in one state."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int
    """How often they were handed to a member."""


@dataclass(frozen=True, slots=True)
class ShareState:
    """How far a share group is on a partition, as the last records of its key say."""

    group: str
    topic_id: str
    partition: int
    snapshot_epoch: int
    state_epoch: int | None
    """None where no snapshot is left."""
    leader_epoch: int
    start_offset: int
    """Of the first record that is not done with; -1 while nobody has read. It may be set by hand: it proves no records."""
    delivery_complete_count: int
    """Records from the start offset on that are done with; -1 is not known (before Kafka 4.2)."""
    batches: tuple[StateBatch, ...]
    """By offset, without overlaps; what no batch names is yet to be delivered, or is being so."""
    record_offset: int
    timestamp: int
    """Of the last record, in milliseconds."""
    unknown_after: int | None = None
    """Unreadable records behind that offset of the log may have changed it since, None if there are none."""

    def offsets_in(self, delivery_state: int) -> int:
        """How many offsets are in a state."""
        return sum(batch.last_offset - batch.first_offset + 1 for batch in self.batches if batch.delivery_state == delivery_state)


@dataclass(slots=True)
class ShareLog:
    """One partition of `__share_group_state`, replayed from one replica's copy."""

    partition: int
    broker: int | str
    states: list[ShareState] = field(default_factory=list)
    """By group, topic id and partition."""
    complete: bool = True
    """False where bytes of the log are damaged or could not be read: states may be missing."""
    limited: bool = False
    """There was more than is followed: what was new after that is left out."""
