"""Dividing a scan into works of about equal cost, one for each task."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final, Protocol, TypeVar

from kafka_forensics.evidence.inputs import LogDir, ReplicaPlan
from kafka_forensics.parsers.log_dir import LogDirectory
from kafka_forensics.scanning.engine.task_values import FoldPart, FoldWork, NumberedSplit, PartitionSlice
from kafka_forensics.scanning.folding.splits import split_count
from kafka_forensics.scanning.folding.waiting import CONCURRENT_PARTITIONS
from kafka_forensics.storage.source import ByteSource, DistantSource

FILE_COST_BYTES: Final = 256 << 10
"""Cost of opening a local file, in bytes read: an eighth of a millisecond. It keeps thousands of tiny files out of one task."""
BYTES_A_SECOND: Final = 2 << 30
"""Bytes of logs that one core reads."""
REQUESTS_AT_ONCE: Final = 6
"""Requests that are typically under way together when a storage service serves many small files."""
LONGEST_REQUEST: Final = 0.1
"""Seconds; a longer request was retried."""
SMALL_BYTES: Final = 16 << 20
"""Largest size of the logs of all replicas of a small partition: its cost is mostly not reading."""
_Unit = TypeVar("_Unit")


class _HasReplicas(Protocol):
    @property
    def replicas(self) -> list[ReplicaPlan]: ...


_Slice = TypeVar("_Slice", bound=_HasReplicas)


def packed(units: Iterable[tuple[_Unit, int]], limit: int, most: int | None = None) -> Iterator[list[_Unit]]:
    """Group (unit, weight) pairs in their order, up to a total weight of `limit` and `most` units; a heavier unit is a group."""
    group: list[_Unit] = []
    weight = 0
    for unit, added in units:
        if group and (weight + added > limit or len(group) == most):
            yield group
            group, weight = [], 0
        group.append(unit)
        weight += added
    if group:
        yield group


def file_cost(source: ByteSource) -> int:
    """Cost of opening a file of this source, in bytes read; for a storage service, by its response time."""
    if not isinstance(source, DistantSource):
        return FILE_COST_BYTES
    return FILE_COST_BYTES + int(min(source.request_seconds, LONGEST_REQUEST) / REQUESTS_AT_ONCE * BYTES_A_SECOND)


def fold_works(parts: Iterable[tuple[int, PartitionSlice]], split_bytes: int, work_bytes: int) -> Iterator[FoldWork]:
    """Group the splits of numbered slices into works of at most `work_bytes`; a larger split is a work.

    An archive that cannot seek is one work.
    """
    archives: dict[int, FoldWork] = {}

    def seekable_splits() -> Iterator[tuple[tuple[FoldPart, NumberedSplit], int]]:
        for number, partition_slice in parts:
            for replica, plan in enumerate(partition_slice.replicas):
                source, part = plan.log_dir.source, FoldPart(number, replica, bare_plan(plan))
                cost_of_file = file_cost(source)
                if not source.seekable:
                    part.pieces = list(_splits(plan, split_bytes))
                    archives.setdefault(id(source), FoldWork()).parts.append(part)
                    continue
                for split in _splits(plan, split_bytes):
                    yield (part, split), split.size_in_bytes + (0 if split.number else cost_of_file)

    for splits in packed(seekable_splits(), work_bytes):
        by_part = groupby(splits, key=lambda part_split: part_split[0])
        yield FoldWork([replace(part, pieces=[split for _, split in of_part]) for part, of_part in by_part])
    yield from archives.values()


def is_small(plans: Sequence[ReplicaPlan], most_bytes: int = SMALL_BYTES) -> bool:
    """Whether the task that judges a partition also folds it. Never for an archive that cannot seek, which one task reads."""
    return sum(plan.bytes for plan in plans) <= most_bytes and all(plan.log_dir.source.seekable for plan in plans)


def mostly_waits(plans: Sequence[ReplicaPlan]) -> bool:
    """Whether a partition is small and all its replicas are on storage services."""
    return bool(plans) and is_small(plans) and all(isinstance(plan.log_dir.source, DistantSource) for plan in plans)


def small_slice_works(parts: Iterable[tuple[int, _Slice]], limit: int, most_works: int) -> Iterator[list[tuple[int, _Slice]]]:
    """Group small numbered slices into works that each cost as much as reading `limit` bytes, or more to stay below `most_works`.

    A work of slices on storage services has at least twice as many slices as a task reads at once.
    """
    costs = [(numbered, sum(map(_cost, numbered[1].replicas))) for numbered in parts]
    limit = max(limit, sum(cost for _, cost in costs) // most_works)
    most = limit // (2 * CONCURRENT_PARTITIONS)
    return packed(((part, min(cost, most) if mostly_waits(part[1].replicas) else cost) for part, cost in costs), limit)


def _cost(plan: ReplicaPlan) -> int:
    """Cost of folding and judging a replica, in bytes read."""
    files = 1 + len(plan.directory.entries) + 3 * len(plan.directory.segments)
    return plan.bytes + file_cost(plan.log_dir.source) * files


def _splits(plan: ReplicaPlan, split_bytes: int) -> Iterator[NumberedSplit]:
    for segment, log, next_base_offset in plan.directory.logs():
        count, size = split_count(plan, segment, split_bytes), log.size_in_bytes
        if log.allocated_bytes is not None:
            size = min(size, log.allocated_bytes)  # holes cost nothing
        yield from (NumberedSplit(segment, number, next_base_offset, size // count) for number in range(count))


def bare_plan(plan: ReplicaPlan) -> ReplicaPlan:
    """The plan without its lists of files and without the facts that only judging needs."""
    log_dir = LogDir(plan.log_dir.source, plan.log_dir.name, LogDirectory("", {}, [], [], []), plan.log_dir.broker)
    directory = replace(
        plan.directory, segments=[], snapshots=[], entries={}, metadata_snapshots=[], leftovers=[], unknown=[], irregular=[]
    )
    context = replace(plan.context, control=None, committed=[], leader_epochs=None, segment_base_offsets=[])
    return ReplicaPlan(log_dir, directory, context, plan.bytes, plan.samples_keys)
