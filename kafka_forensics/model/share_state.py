"""What `__share_group_state` says: from where share groups take the records of a partition, and how far each record has come."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

DELIVERY_STATES: Final = {0: "available", 1: "acquired", 2: "acknowledged", 3: "archiving", 4: "archived"}
"""Kafka's names by number; acquired records are never written, archived ones were rejected or delivered too often."""
NO_OFFSET: Final = -1
"""The start offset of a share partition that nobody has read from yet."""


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


@dataclass(slots=True)
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
    """Of the first record that is not done with; -1 is none yet. It may be set by hand: no proof of records."""
    delivery_complete_count: int
    """Records from the start offset on that are done with; -1 is not known (before Kafka 4.2)."""
    create_timestamp: int
    write_timestamp: int
    """Of the snapshot, in milliseconds; -1 is none."""
    batches: tuple[StateBatch, ...]
    record_offset: int
    batches_count: int = 0
    """`batches` lists the first 65,536 of them."""
    unknown_after: int | None = None
    """Unreadable records behind that offset of the log may have changed it since, None if there are none."""


@dataclass(slots=True)
class ShareLog:
    """One partition of `__share_group_state`, replayed from one replica's copy to `end_offset` (exclusive)."""

    partition: int
    broker: int | str
    cluster_id: str | None = None
    """From `meta.properties`; None if the copy does not tell."""
    end_offset: int = 0
    states: list[ShareState] = field(default_factory=list)
    complete: bool = True
    """False where bytes of the log are damaged or could not be read: states may be missing."""
    limited: bool = False
    """There was more than is followed: what was new after that is left out."""
