"""Versions of the log at a fork: which replicas hold the same there, and which begin behind it and go on with one."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas.diff import Conflicts
from kafka_forensics.analysis.replicas.fork_cuts import last_epoch
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.replication.epochs import epoch_at

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(slots=True)
class Version:
    """Replicas that hold the same batch at the fork."""

    replicas: list[Replica]
    epoch: int
    batches: "list[NDArray[np.int64]]"
    """The batch of each replica, with its segment in a last row."""
    behind: list[Replica] = field(default_factory=list)
    """Whose logs begin behind the fork and go on with this version alone: retention removed the rest of it there."""

    @property
    def witness(self) -> int:
        """Highest watermark any of them checkpointed: it speaks for this version of the log only."""
        return max(replica.context.high_watermark or 0 for replica in self.replicas)

    @property
    def log_end_offset(self) -> int:
        """End of the longest copy."""
        return max(replica.log_end_offset for replica in self.replicas)

    @property
    def committed_end(self) -> int:
        """Up to where its records are known to have been committed."""
        return min(self.witness, self.log_end_offset)

    @property
    def witness_bearer(self) -> Replica:
        """Whose log and watermark prove the most of it."""
        return max(self.replicas, key=lambda replica: min(replica.context.high_watermark or 0, replica.log_end_offset))

    @property
    def head(self) -> Replica:
        """The one of the latest epoch: it speaks for the others, who will follow it or whoever it follows."""
        return max((*self.replicas, *self.behind), key=last_epoch)

    @property
    def brokers(self) -> list[int | str]:
        """Who holds it at the fork."""
        return [replica.broker for replica in self.replicas]

    def as_evidence(self) -> dict[str, Any]:
        """The row of `evidence.versions`."""
        return {
            "brokers": self.brokers,
            "epoch": self.epoch,
            "log_end_offset": self.log_end_offset,
            "high_watermark": self.witness,
            "places": [_batch_place(replica, batch) for replica, batch in zip(self.replicas, self.batches, strict=True)],
        }


def _batch_place(replica: Replica, batch: "NDArray[np.int64]") -> dict[str, Any]:
    """File and bytes of a batch."""
    context, start = replica.context, int(batch[BatchColumn.POSITION])
    file = f"{context.directory}/{context.log_file(int(batch[-1]))}"
    return {"broker": replica.broker, "file": file, "byte_start": start, "byte_end": start + int(batch[BatchColumn.SIZE_IN_BYTES])}


def versions_at(replicas: list[Replica], conflicts: Conflicts, every: Conflicts, first: int) -> list[Version]:
    """Groups of replicas that hold offset `first` and do not conflict with each other there, ordered by broker.

    `every` holds all pairs that differ, `conflicts` those that are asked about.
    """
    at = {
        pair: next((difference for difference in differences if difference.offset == first), None)
        for pair, differences in conflicts.items()
    }
    batches: dict[int, NDArray[np.int64]] = {}
    for (i, j), difference in at.items():
        if difference is not None:
            batches[i], batches[j] = difference.left, difference.right
    epoch_of = {index: int(batch[BatchColumn.PARTITION_LEADER_EPOCH]) for index, batch in batches.items()}
    grouped: list[tuple[int, list[int]]] = []
    for index in sorted(epoch_of):
        for epoch, members in grouped:
            if epoch == epoch_of[index] and all(at.get((min(m, index), max(m, index))) is None for m in members):
                members.append(index)
                break
        else:
            grouped.append((epoch_of[index], [index]))
    versions = [Version([replicas[k] for k in members], epoch, [batches[k] for k in members]) for epoch, members in grouped]
    for index, replica in enumerate(replicas):
        if replica.first_batch_offset > first:
            own = [version for version in versions if goes_on_with(index, version, replicas, every)]
            if len(own) == 1:
                own[0].behind.append(replica)
    return versions


def goes_on_with(index: int, version: Version, replicas: list[Replica], conflicts: Conflicts) -> bool:
    """Whether a replica that does not hold the fork's offset is of a version: its log overlaps with one of that version at least,
    and holds the same as each where the overlap begins."""
    one, overlaps = replicas[index], False
    for other in version.replicas:
        at = next(k for k, replica in enumerate(replicas) if replica is other)
        start = max(one.first_batch_offset, other.first_batch_offset)
        if at == index:
            return False
        if min(one.log_end_offset, other.log_end_offset) <= start:
            continue
        differences = conflicts.get((min(at, index), max(at, index)))
        if differences and (differences[0].offset <= start or epoch_at(one.epochs, start) != epoch_at(other.epochs, start)):
            return False
        overlaps = True
    return overlaps
