"""Dividing a scan into works of about equal cost, one for each task."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, Protocol, TypeVar

from msgspec.structs import replace

from kafka_forensics.evidence.inputs import LogDir, ReplicaPlan
from kafka_forensics.parsers.log_dir import LogDirectory
from kafka_forensics.scanning.engine.task_values import FoldPart, FoldWork, NumberedSplit, PartitionSlice
from kafka_forensics.scanning.folding.splits import split_count
from kafka_forensics.scanning.folding.waiting import CONCURRENT_PARTITIONS
from kafka_forensics.storage.source import ByteSource, Entry

FILE_COST_BYTES: Final = 256 << 10
"""Cost of opening a local file, in bytes read: an eighth of a millisecond. It keeps thousands of tiny files out of one task."""
BYTES_A_SECOND: Final = 2 << 30
"""Bytes of logs that one core reads."""
REQUESTS_AT_ONCE: Final = 6
"""Requests that are typically under way together when a storage service serves many small files."""
MAX_REQUEST_SECONDS: Final = 0.1
"""Seconds; a longer request was retried."""
GROUPS_A_CORE: Final = 2
"""Groups for each core when there is little work: with two, a core that finishes early takes another one."""
MIN_OPENING_SHARE: Final = 1 / 16
"""Of the costs of opening files: work that mostly opens files is in groups of at most a second by this estimate."""
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


def packed_for_cores(units: Iterable[tuple[_Unit, int, int]], limit: int, cores: int | None) -> Iterator[list[_Unit]]:
    """Group (unit, bytes read, cost of opening its files in bytes) in their order, up to a total of `limit`.

    Starting a task costs as much as opening hundreds of files, so if few bytes are read, the costs of opening count less until
    there are only `GROUPS_A_CORE` groups for each core; None: the number of cores is unknown.
    """
    listed = list(units)
    opening = sum(cost for _, _, cost in listed)
    share = 1.0
    if cores is not None and opening:
        room = GROUPS_A_CORE * cores * limit - limit // 4 - sum(read for _, read, _ in listed)
        share = min(1.0, max(MIN_OPENING_SHARE, room / opening))
    return packed(((unit, read + int(share * cost)) for unit, read, cost in listed), limit)


def read_bytes(entry: Entry) -> int:
    """The bytes of a file that have to be read: holes, as in preallocated indexes, cost nothing."""
    return entry.size_in_bytes if entry.allocated_bytes is None else min(entry.size_in_bytes, entry.allocated_bytes)


def file_cost(source: ByteSource) -> int:
    """Cost of opening a file of this source, in bytes read; for a storage service, by its response time."""
    if source.request_seconds is None:
        return FILE_COST_BYTES
    return FILE_COST_BYTES + int(min(source.request_seconds, MAX_REQUEST_SECONDS) / REQUESTS_AT_ONCE * BYTES_A_SECOND)


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
    return bool(plans) and is_small(plans) and all(plan.log_dir.source.request_seconds is not None for plan in plans)


def small_slice_works(
    parts: Iterable[tuple[int, _Slice]], limit: int, most_works: int, cores: int | None = None
) -> Iterator[list[tuple[int, _Slice]]]:
    """Group small numbered slices into works that each cost as much as reading `limit` bytes, or more to stay below `most_works`
    and to be few for each of the cores.

    A work of slices on storage services has at least twice as many slices as a task reads at once.
    """
    costs = [(part, sum(plan.bytes for plan in part[1].replicas), sum(map(_opening_cost, part[1].replicas))) for part in parts]
    limit = max(limit, sum(read + opening for _, read, opening in costs) // most_works)
    most = limit // (2 * CONCURRENT_PARTITIONS)
    units = (
        (part, min(read, most), min(opening, max(most - read, 0))) if mostly_waits(part[1].replicas) else (part, read, opening)
        for part, read, opening in costs
    )
    return packed_for_cores(units, limit, cores)


def _opening_cost(plan: ReplicaPlan) -> int:
    """Cost of opening the files of a replica to fold and judge it, in bytes read."""
    return file_cost(plan.log_dir.source) * (1 + len(plan.directory.entries) + 3 * len(plan.directory.segments))


def _splits(plan: ReplicaPlan, split_bytes: int) -> Iterator[NumberedSplit]:
    for segment, log, next_base_offset in plan.directory.logs():
        count = split_count(plan, segment, split_bytes)
        yield from (NumberedSplit(segment, number, next_base_offset, read_bytes(log) // count) for number in range(count))


def bare_plan(plan: ReplicaPlan) -> ReplicaPlan:
    """The plan without its lists of files and without the facts that only judging needs."""
    log_dir = LogDir(plan.log_dir.source, plan.log_dir.name, LogDirectory("", {}, [], [], []), plan.log_dir.broker)
    directory = replace(
        plan.directory, segments=[], snapshots=[], entries={}, metadata_snapshots=[], leftovers=[], unknown=[], irregular=[]
    )
    context = replace(plan.context, control=None, committed=[], leader_epochs=None, segment_base_offsets=[])
    return ReplicaPlan(log_dir, directory, context, plan.bytes, plan.samples_keys)
