"""What a scan of a materialised history must find, from record ids and the simulator's state alone.

A witness is a checkpointed high watermark: it proves that the records below it in its own log were committed. The current leader is
the longest log of those with the latest epoch; all others follow it.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.simulation.cluster import Batch, Cluster, PartitionChange, SimulatedPartition, SimulatedReplica
from kafka_forensics.simulation.transactions import Coordinator
from tests.simulation import record_ids
from tests.simulation.record_ids import Entry, Log, Ranges

Version = tuple[int, Entry]
"""(offset, entry)."""
FindingKey = tuple[str, int | None, int | None, int | None]
"""A finding by its kind, broker and offsets `[start, end)`."""
MAY_LOSE = ("unclean", "last_known_leader")
"""Kinds of elections whose leader may lack committed records."""


class Disk(NamedTuple):
    """A partition on the disks of its brokers, by broker."""

    partition: SimulatedPartition
    logs: Mapping[int, Log]
    watermarks: Mapping[int, int]
    """Checkpointed high watermarks."""
    epochs: Mapping[int, int]
    """The last leader epoch in the files of a replica; -1 without any."""

    def committed_end(self, broker: int) -> int:
        """The end of the records that the broker's checkpoint proves committed in its log."""
        return min(self.watermarks[broker], len(self.logs[broker]))

    def versions(self, broker: int, ranges: Ranges) -> set[Version]:
        log = self.logs[broker]
        return {(offset, log[offset]) for start, end in ranges for offset in range(start, min(end, len(log)))}

    @property
    def current_leader(self) -> int:
        latest = max(self.epochs.values())
        return max((broker for broker, epoch in self.epochs.items() if epoch == latest), key=lambda broker: len(self.logs[broker]))

    @property
    def longest(self) -> int:
        return max(map(len, self.logs.values()))


def mounted_disk(cluster: Cluster, partition: SimulatedPartition, logs: Mapping[int, Log]) -> Disk:
    replicas = sorted(partition.replicas.items())
    watermarks = {broker: replica.checkpointed for broker, replica in replicas}
    return Disk(partition, logs, watermarks, {broker: _last_epoch(cluster, replica) for broker, replica in replicas})


def _last_epoch(cluster: Cluster, replica: SimulatedReplica) -> int:
    if not cluster.has_leader_epochs:
        return -1
    written = replica.batches[-1].leader_epoch if replica.batches else -1
    cached = replica.epochs[-1].leader_epoch if replica.epochs and replica.epochs[-1].start_offset == replica.log_end_offset else -1
    return max(written, cached)


def lost_versions(disk: Disk) -> set[Version]:
    """Versions that a witness of an earlier epoch proves committed and the current leader lacks."""
    latest, leader = max(disk.epochs.values()), disk.logs[disk.current_leader]
    committed = {
        version
        for broker, log in disk.logs.items()
        if disk.epochs[broker] < latest
        for version in enumerate(log[: disk.committed_end(broker)])
    }
    return committed - set(enumerate(leader))


def false_witnesses(cluster: Cluster, disk: Disk) -> set[tuple[int, int]]:
    """(broker, record) below the broker's watermark that was never below a leader's, without a truncation after the checkpoint.

    No file shows whether a checkpoint is older than a truncation of its log, so such a checkpoint is a witness too.
    """
    ever = cluster.committed[disk.partition.name]
    below_watermark = (
        (broker, record)
        for broker, log in disk.logs.items()
        for _, record in log[: min(disk.committed_end(broker), disk.partition.replicas[broker].checkpoint_valid_end)]
    )
    return {(broker, record) for broker, record in below_watermark if record >= 0 and record not in ever}


def permanent_fork(disk: Disk) -> tuple[int, int, set[Version]] | None:
    """(start, end, versions) of the fork below a witness in logs without epochs; None if no witness is beyond the fork.

    The versions are those committed if only one side reaches the end of the fork, which is where all diverging logs agree again.
    """
    start = min(record_ids.forks(disk.logs).values(), default=None)
    if start is None:
        return None
    sides: dict[Entry, int] = {}
    for broker, log in disk.logs.items():
        if len(log) > start:
            sides[log[start]] = max(disk.committed_end(broker), sides.get(log[start], 0))
    end = furthest_end = max(sides.values())
    if end <= start:
        return None
    furthest = [side for side, committed_end in sides.items() if committed_end == end]
    pairs = [(disk.logs[left], disk.logs[right]) for left, right in record_ids.forks(disk.logs)]
    differ_until = [record_ids.differing(left, right, from_end=False)[-1][1] for left, right in pairs]
    if all(differ_end < min(len(left), len(right)) for differ_end, (left, right) in zip(differ_until, pairs, strict=True)):
        end = min(end, max(differ_until))
    if len(furthest) > 1:
        return start, end, set()
    on_side = [broker for broker, log in disk.logs.items() if log[start : start + 1] == [furthest[0]]]
    holder = next(broker for broker in on_side if disk.committed_end(broker) == furthest_end)
    return start, end, disk.versions(holder, ((start, end),))


def lagging(disk: Disk, *, leader_loses: bool) -> set[FindingKey]:
    """Logs without a fork that are shorter than another, except a leader that loses something by it."""
    forked = {broker for pair in record_ids.forks(disk.logs) for broker in pair}
    return {
        ("REPLICA_LAGS", broker, len(log), disk.longest)
        for broker, log in disk.logs.items()
        if len(log) < disk.longest and broker not in forked and not (leader_loses and broker == disk.current_leader)
    }


def short_members(cluster: Cluster, disk: Disk) -> set[FindingKey]:
    """Members of the ISR or ELR that lack what a witness proves committed, in a partition without forks.

    A witness from before an unclean election, whose broker has not followed the new leader, only proves what its own log has.
    """
    members = disk.partition.isr | disk.partition.elr
    unclean = [change.leader_epoch for change in _elections(cluster, disk.partition) if change.kind in MAY_LOSE]
    reliable = {log for log in disk.logs if not any(epoch > disk.epochs[log] for epoch in unclean)}
    longest = max((len(disk.logs[broker]) for broker in reliable), default=0)
    ends = [min(disk.watermarks[broker], longest) for broker in reliable]
    end = max([*ends, *(disk.committed_end(log) for log in disk.logs)])
    kind = "LRS_RISK" if len(members) == 1 else "ISR_MEMBER_MISSING_COMMITTED"
    return {(kind, member, len(disk.logs[member]), end) for member in members if len(disk.logs[member]) < end}


def beyond_the_log(disk: Disk) -> Iterator[FindingKey]:
    """Watermarks beyond the ends of their logs, and watermarks of 0."""
    for broker, log in disk.logs.items():
        if disk.watermarks[broker] > len(log):
            yield "HW_BEYOND_LEO", broker, len(log), disk.watermarks[broker]
        if log and disk.watermarks[broker] == 0:
            yield "HW_UNKNOWN", broker, None, None


def unclean_elections(cluster: Cluster, partition: SimulatedPartition) -> int:
    return sum(change.kind in MAY_LOSE for change in _elections(cluster, partition)) if cluster.fences_fetches else 0


def losing_elections(elected: Mapping[tuple[TopicPartition, int], Log], name: TopicPartition, lost: Version) -> set[int]:
    """The epochs of elections whose leaders lacked a version that the previous leader had or had written."""
    offset, entry = lost
    after = sorted(epoch for topic_partition, epoch in elected if topic_partition == name and epoch > entry[0])
    has_it = [True, *(list(elected[name, epoch][offset : offset + 1]) == [entry] for epoch in after)]
    return {epoch for epoch, before, after_it in zip(after, has_it, has_it[1:], strict=False) if before and not after_it}


def _elections(cluster: Cluster, partition: SimulatedPartition) -> list[PartitionChange]:
    return [change for change in cluster.changes if change.topic_partition == partition.name and change.elected]


class LogTransaction(NamedTuple):
    """A transaction in one log: its producer, first offset, state, and the offset of its marker."""

    producer_id: int
    first_offset: int | None
    state: str
    marker_offset: int | None


def transactions(batches: list[Batch]) -> list[LogTransaction]:
    """Every transaction of a log; a marker without data is `empty`."""
    begun: dict[int, int] = {}
    found = []
    for batch in batches:
        if batch.marker is not None:
            first = begun.pop(batch.producer_id, None)
            state = "empty" if first is None else {"COMMIT": "committed", "ABORT": "aborted"}[batch.marker]
            found.append(LogTransaction(batch.producer_id, first, state, batch.base_offset))
        elif batch.is_transactional:
            begun.setdefault(batch.producer_id, batch.base_offset)
    return found + [LogTransaction(producer_id, first, "open", None) for producer_id, first in begun.items()]


class Completion(NamedTuple):
    """A decision of a coordinator, and when all its markers were written."""

    producer_id: int
    producer_epoch: int
    decided_ms: int
    completed_ms: int

    def wrote(self, marker: Batch) -> bool:
        """Whether a marker belongs to this decision: it was written between decision and completion."""
        return marker.producer_id == self.producer_id and self.decided_ms <= marker.timestamp_ms <= self.completed_ms


def torn(coordinator: Coordinator, partition: SimulatedPartition, batches: list[Batch]) -> set[tuple[int, int]]:
    """Producers and first offsets of transactions that are open in a log though the coordinator completed them and no log has the
    marker.

    One clock gives the times of markers and decisions, so they match exactly.
    """
    written = [batch for replica in partition.replicas.values() for batch in replica.batches if batch.marker is not None]
    begun = {
        transaction.producer_id: transaction.first_offset for transaction in transactions(batches) if transaction.state == "open"
    }
    found = set()
    for completion in _completions(coordinator, partition):
        first = begun.get(completion.producer_id)
        if first is None:
            continue
        data = next(batch for batch in batches if batch.base_offset == first)
        belongs = data.timestamp_ms <= completion.decided_ms and data.producer_epoch <= completion.producer_epoch
        if belongs and not any(map(completion.wrote, written)):
            found.add((completion.producer_id, first))
    return found


def short_of_markers(coordinator: Coordinator, disk: Disk) -> set[FindingKey]:
    """Members of the ISR or ELR that end before the marker of a completed transaction, up to which everything was committed."""
    members = disk.partition.isr | disk.partition.elr
    kind = "LRS_RISK" if len(members) == 1 else "ISR_MEMBER_MISSING_COMMITTED"
    completions = list(_completions(coordinator, disk.partition))
    ends = {
        marker.base_offset + 1
        for replica in disk.partition.replicas.values()
        for marker in replica.batches
        if marker.marker is not None and any(completion.wrote(marker) for completion in completions)
    }
    return {(kind, member, len(disk.logs[member]), end) for end in ends for member in members if len(disk.logs[member]) < end}


def _completions(coordinator: Coordinator, partition: SimulatedPartition) -> Iterator[Completion]:
    """The coordinator's completed decisions on this partition."""
    for number, (decided, name, state) in enumerate(coordinator.log):
        if state.state.startswith("Prepare") and partition.name in state.partitions:
            after = (
                when
                for when, other, metadata in coordinator.log[number + 1 :]
                if other == name and metadata.state.startswith("Complete")
            )
            if (completed := next(after, -1)) >= 0:
                yield Completion(state.producer_id, state.producer_epoch, decided, completed)
