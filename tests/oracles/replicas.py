"""The records of replicas of a partition, and their first difference, found offset by offset.

Nothing is folded, hashed or skipped: a replica is a dictionary of all its records. It shares no code with the package.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations

from tests.oracles.decoder import Batch, Record, batches

StoredRecord = tuple[int, int, Record]
"""Leader epoch, attributes of the batch, record."""


@dataclass
class NaiveReplica:
    """A replica's batches by segment, and its record at each offset."""

    segments: dict[str, list[Batch]] = field(default_factory=dict)
    records: dict[int, StoredRecord] = field(default_factory=dict)
    log_end_offset: int = 0


def replica_of(files: Mapping[str, bytes]) -> NaiveReplica:
    """The replica in a partition directory, from its `.log` files (name → content)."""
    replica = NaiveReplica()
    for name in sorted(files):
        replica.segments[name] = decoded = list(batches(files[name]))
        replica.log_end_offset = max(replica.log_end_offset, int(name.split(".")[0]))
        for batch in decoded:
            replica.log_end_offset = max(replica.log_end_offset, batch.last_offset + 1)
            for record in batch.records:
                replica.records[record.offset] = batch.partition_leader_epoch, batch.attributes & ~7, record
    return replica


def differ(left: StoredRecord, right: StoredRecord) -> bool:
    """Whether two replicas have different records at an offset, or records of different leaders."""
    return left != right


def first_difference(left: NaiveReplica, right: NaiveReplica) -> int | None:
    """The first offset that both replicas have with different records; None if there is none."""
    for offset in sorted(left.records.keys() & right.records.keys()):
        if differ(left.records[offset], right.records[offset]):
            return offset
    return None


def first_of_all(replicas: Iterable[NaiveReplica]) -> int | None:
    """The first offset at which any two of these replicas differ."""
    found = [first_difference(left, right) for left, right in combinations(list(replicas), 2)]
    return min((offset for offset in found if offset is not None), default=None)


def only_on_one(left: NaiveReplica, right: NaiveReplica) -> list[int]:
    """Offsets between both log starts and below both log ends that only one of two replicas has."""
    if not left.records or not right.records:
        return []
    start, end = max(min(left.records), min(right.records)), min(left.log_end_offset, right.log_end_offset)
    return sorted(offset for offset in left.records.keys() ^ right.records.keys() if start <= offset < end)
