"""What replicas of one partition hold, and where two of them first differ, found offset by offset.

Nothing is folded, hashed or skipped here: a replica is a dictionary of all its records. Shares nothing with the package.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations

from tests.oracles.decoder import Batch, Record, batches

Held = tuple[int, int, Record]
"""Leader epoch, attributes of the batch, and the record."""


@dataclass
class NaiveReplica:
    """A replica's batches by segment, and what it holds at each offset."""

    segments: dict[str, list[Batch]] = field(default_factory=dict)
    held: dict[int, Held] = field(default_factory=dict)
    log_end_offset: int = 0


def replica_of(files: Mapping[str, bytes]) -> NaiveReplica:
    """The replica of a partition directory, from its `.log` files by name."""
    replica = NaiveReplica()
    for name in sorted(files):
        replica.segments[name] = found = list(batches(files[name]))
        replica.log_end_offset = max(replica.log_end_offset, int(name.split(".")[0]))
        for batch in found:
            replica.log_end_offset = max(replica.log_end_offset, batch.last_offset + 1)
            for record in batch.records:
                replica.held[record.offset] = batch.partition_leader_epoch, batch.attributes & ~7, record
    return replica


def differ(left: Held, right: Held) -> bool:
    """Whether two replicas hold different things at an offset: another record, or one of another leader."""
    return left != right


def first_difference(left: NaiveReplica, right: NaiveReplica) -> int | None:
    """The first offset that both hold and hold differently; None if there is none."""
    for offset in sorted(left.held.keys() & right.held.keys()):
        if differ(left.held[offset], right.held[offset]):
            return offset
    return None


def first_of_all(replicas: Iterable[NaiveReplica]) -> int | None:
    """The first offset at which any two of these replicas differ."""
    found = [first_difference(left, right) for left, right in combinations(list(replicas), 2)]
    return min((offset for offset in found if offset is not None), default=None)


def only_on_one(left: NaiveReplica, right: NaiveReplica) -> list[int]:
    """Offsets below both ends, from both logs' first on, that one of two replicas holds and the other does not."""
    if not left.held or not right.held:
        return []
    start, end = max(min(left.held), min(right.held)), min(left.log_end_offset, right.log_end_offset)
    return sorted(offset for offset in left.held.keys() ^ right.held.keys() if start <= offset < end)
