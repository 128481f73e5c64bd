"""What a scan of a materialised history must find, worked out from records' ids and the simulator's state alone.

A witness is a checkpointed high watermark: it proves the records below it, in the log it was read with, to have been committed. The
present leader is, by the disks, the longest log of those that name the latest epoch: all others will follow it.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.simulation.cluster import Batch, Cluster, Partition, PartitionChange, SimulatedReplica
from kafka_forensics.simulation.transactions import Coordinator
from tests.simulation import truth as told
from tests.simulation.truth import Entry, Log, Ranges

Version = tuple[int, Entry]
"""An entry, and the offset at which it stands."""
Told = tuple[str, int | None, int | None, int | None]
"""A finding by its kind, broker and offsets `[start, end)`."""
MAY_LOSE = ("unclean", "last-known-leader")
"""Elections of brokers that were not known to have everything."""


class Disk(NamedTuple):
    """A partition as the brokers' disks hold it, by broker."""

    partition: Partition
    logs: Mapping[int, Log]
    watermarks: Mapping[int, int]
    """As checkpointed."""
    epochs: Mapping[int, int]
    """The last leader epoch that a replica's files name, -1 without any."""

    def witnessed(self, broker: int) -> int:
        """End of what the broker's own checkpoint proves of its log."""
        return min(self.watermarks[broker], len(self.logs[broker]))

    def versions(self, broker: int, ranges: Ranges) -> set[Version]:
        log = self.logs[broker]
        return {(offset, log[offset]) for start, end in ranges for offset in range(start, min(end, len(log)))}

    @property
    def present_leader(self) -> int:
        latest = max(self.epochs.values())
        return max((one for one, epoch in self.epochs.items() if epoch == latest), key=lambda one: len(self.logs[one]))

    @property
    def longest(self) -> int:
        return max(map(len, self.logs.values()))


def disk_of(cluster: Cluster, partition: Partition, logs: Mapping[int, Log]) -> Disk:
    replicas = sorted(partition.replicas.items())
    watermarks = {broker: replica.checkpointed for broker, replica in replicas}
    return Disk(partition, logs, watermarks, {broker: _last_epoch(cluster, replica) for broker, replica in replicas})


def _last_epoch(cluster: Cluster, replica: SimulatedReplica) -> int:
    if not cluster.has_leader_epochs:
        return -1
    written = replica.batches[-1].leader_epoch if replica.batches else -1
    begun = replica.epochs[-1].leader_epoch if replica.epochs and replica.epochs[-1].start_offset == replica.log_end_offset else -1
    return max(written, begun)


def given_up(disk: Disk) -> set[Version]:
    """What a witness proves committed and the present leader lacks, whom its holders, of earlier epochs, will follow."""
    latest, leader = max(disk.epochs.values()), disk.logs[disk.present_leader]
    held = {
        one for broker, log in disk.logs.items() if disk.epochs[broker] < latest for one in enumerate(log[: disk.witnessed(broker)])
    }
    return held - set(enumerate(leader))


def false_witnesses(cluster: Cluster, disk: Disk) -> set[tuple[int, int]]:
    """Brokers and records below their watermarks that were never below a leader's, though no cut came after the checkpoint.

    A checkpoint that is older than a cut of its own log (in brokers by some seconds) speaks of records that are gone, and no file
    shows that: it is believed.
    """
    ever = cluster.committed[disk.partition.name]
    spoken = (
        (broker, record)
        for broker, log in disk.logs.items()
        for _, record in log[: min(disk.witnessed(broker), disk.partition.replicas[broker].checkpoint_valid_end)]
    )
    return {(broker, record) for broker, record in spoken if record >= 0 and record not in ever}


def settled(disk: Disk) -> tuple[int, int, set[Version]] | None:
    """Of logs without epochs: the fork that stays below a witness, `[start, end)`, and what was committed if one version reaches
    that far; None if no witness reaches beyond the fork. It ends where all that part agree again, if they do."""
    start = min(told.forks(disk.logs).values(), default=None)
    if start is None:
        return None
    sides: dict[Entry, int] = {}
    for broker, log in disk.logs.items():
        if len(log) > start:
            sides[log[start]] = max(disk.witnessed(broker), sides.get(log[start], 0))
    end = reach = max(sides.values())
    if end <= start:
        return None
    furthest = [side for side, witnessed in sides.items() if witnessed == end]
    apart = [told.differing(disk.logs[one], disk.logs[other], from_end=False)[-1][1] for one, other in told.forks(disk.logs)]
    shared = [min(len(disk.logs[one]), len(disk.logs[other])) for one, other in told.forks(disk.logs)]
    if all(last < until for last, until in zip(apart, shared, strict=True)):
        end = min(end, max(apart))
    if len(furthest) > 1:
        return start, end, set()
    bearer = next(one for one, log in disk.logs.items() if log[start : start + 1] == [furthest[0]] and disk.witnessed(one) == reach)
    return start, end, disk.versions(bearer, ((start, end),))


def lagging(disk: Disk, *, leader_loses: bool) -> set[Told]:
    """Logs that part from none and are shorter than another; one that leads and loses something by it is told as that."""
    forked = {broker for pair in told.forks(disk.logs) for broker in pair}
    return {
        ("REPLICA_LAGS", broker, len(log), disk.longest)
        for broker, log in disk.logs.items()
        if len(log) < disk.longest and broker not in forked and not (leader_loses and broker == disk.present_leader)
    }


def short_members(cluster: Cluster, disk: Disk) -> set[Told]:
    """Members of the ISR or ELR that lack what a witness proves committed, while no log parts from another.

    Before an unclean election a witness spoke of another history, if its broker has not followed that leader since: it still
    proves what its own log holds.
    """
    members = disk.partition.isr | disk.partition.elr
    unclean = [change.leader_epoch for change in _elections(cluster, disk.partition) if change.kind in MAY_LOSE]
    sure = {log for log in disk.logs if not any(epoch > disk.epochs[log] for epoch in unclean)}
    ends = [min(disk.watermarks[one], max(len(disk.logs[each]) for each in sure)) for one in sure]
    end = max([*ends, *(disk.witnessed(log) for log in disk.logs)])
    kind = "LRS_RISK" if len(members) == 1 else "ISR_MEMBER_MISSING_COMMITTED"
    return {(kind, member, len(disk.logs[member]), end) for member in members if len(disk.logs[member]) < end}


def beyond_the_log(disk: Disk) -> Iterator[Told]:
    """Watermarks beyond the end of their own logs, and watermarks that say nothing."""
    for broker, log in disk.logs.items():
        if disk.watermarks[broker] > len(log):
            yield "HW_BEYOND_LEO", broker, len(log), disk.watermarks[broker]
        if log and disk.watermarks[broker] == 0:
            yield "HW_UNKNOWN", broker, None, None


def unclean_elections(cluster: Cluster, partition: Partition) -> int:
    return sum(change.kind in MAY_LOSE for change in _elections(cluster, partition)) if cluster.fences_fetches else 0


def losing_elections(elected: Mapping[tuple[TopicPartition, int], Log], name: TopicPartition, lost: Version) -> set[int]:
    """The leader epochs of the elections whose leaders' logs lacked a version that the leader before had, or had written."""
    offset, entry = lost
    after = sorted(epoch for topic_partition, epoch in elected if topic_partition == name and epoch > entry[0])
    has_it = [True, *(list(elected[name, epoch][offset : offset + 1]) == [entry] for epoch in after)]
    return {epoch for epoch, before, after_it in zip(after, has_it, has_it[1:], strict=False) if before and not after_it}


def _elections(cluster: Cluster, partition: Partition) -> list[PartitionChange]:
    return [change for change in cluster.changes if change.topic_partition == partition.name and change.elected]


class Spoken(NamedTuple):
    """A transaction in one log: who wrote it, where it begins, how it ends (`open` if it does not), and where its marker is."""

    producer_id: int
    first_offset: int | None
    state: str
    marker_offset: int | None


def transactions(batches: list[Batch]) -> list[Spoken]:
    """Every transaction of a log; one without records is a marker that ended nothing (`empty`)."""
    begun: dict[int, int] = {}
    spokens = []
    for batch in batches:
        if batch.marker is not None:
            first = begun.pop(batch.producer_id, None)
            state = "empty" if first is None else {"COMMIT": "committed", "ABORT": "aborted"}[batch.marker]
            spokens.append(Spoken(batch.producer_id, first, state, batch.base_offset))
        elif batch.is_transactional:
            begun.setdefault(batch.producer_id, batch.base_offset)
    return spokens + [Spoken(producer_id, first, "open", None) for producer_id, first in begun.items()]


class Completion(NamedTuple):
    """What a coordinator decided, and when it knew all markers of it written."""

    producer_id: int
    producer_epoch: int
    decided_ms: int
    completed_ms: int

    def wrote(self, marker: Batch) -> bool:
        """Whether a marker is of this decision: it was written between it and its completion."""
        return marker.producer_id == self.producer_id and self.decided_ms <= marker.timestamp_ms <= self.completed_ms


def torn(coordinator: Coordinator, partition: Partition, batches: list[Batch]) -> set[tuple[int, int]]:
    """Producers and first offsets of what is open in a log though its end was decided, its markers were written, and all said so;
    and no other log has the marker.

    A marker has the time at which it was written, and every decision its own: in one clock there is no doubt which is whose.
    """
    written = [batch for replica in partition.replicas.values() for batch in replica.batches if batch.marker is not None]
    begun = {spoken.producer_id: spoken.first_offset for spoken in transactions(batches) if spoken.state == "open"}
    found = set()
    for completion in _completions(coordinator, partition):
        first = begun.get(completion.producer_id)
        if first is None:
            continue
        data = next(one for one in batches if one.base_offset == first)
        of_it = data.timestamp_ms <= completion.decided_ms and data.producer_epoch <= completion.producer_epoch
        if of_it and not any(map(completion.wrote, written)):
            found.add((completion.producer_id, first))
    return found


def short_of_markers(coordinator: Coordinator, disk: Disk) -> set[Told]:
    """Members of the ISR or ELR that end before a marker whose transaction was completed, so that all before it was committed."""
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


def _completions(coordinator: Coordinator, partition: Partition) -> Iterator[Completion]:
    """What the coordinator completed over this partition."""
    for number, (decided, name, state) in enumerate(coordinator.log):
        if state.state.startswith("Prepare") and partition.name in state.partitions:
            after = (
                when
                for when, other, metadata in coordinator.log[number + 1 :]
                if other == name and metadata.state.startswith("Complete")
            )
            if (completed := next(after, -1)) >= 0:
                yield Completion(state.producer_id, state.producer_epoch, decided, completed)
