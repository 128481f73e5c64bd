"""Dividing a scan into works of about equal size, each for one task."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, Protocol, TypeVar

from kafka_forensics.evidence.inputs import Inputs, LogDir, ReplicaPlan
from kafka_forensics.parsers.log_dir import LogDirectory
from kafka_forensics.scanning.engine.task_values import FoldPart, FoldWork, NumberedSplit, Slice, WitnessWork, thin_plans
from kafka_forensics.scanning.folding.splits import split_count
from kafka_forensics.storage.source import ByteSource, DistantSource

FILE_COST_BYTES: Final = 256 << 10
"""What a file costs beside its bytes, as so many bytes, so that thousands of tiny ones do not end up in one task: what is
read in an eighth of a millisecond."""
BYTES_A_SECOND: Final = 2 << 30
"""Of logs that a core reads."""
REQUESTS_AT_ONCE: Final = 6
"""That are under way together, more or less, where a storage service is asked for many small files."""
LONGEST_REQUEST: Final = 0.1
"""Seconds; what took longer was tried several times."""
SMALL_BYTES: Final = 16 << 20
"""Of the logs of a small partition's replicas together: most of what it costs is not its bytes."""
AT_ONCE: Final = 24
"""Small partitions on storage services that a process has under way at once: a client of S3 has 25 connections."""
_Unit = TypeVar("_Unit")


class _OfReplicas(Protocol):
    """A slice of any kind."""

    @property
    def replicas(self) -> list[ReplicaPlan]: ...


_Slice = TypeVar("_Slice", bound=_OfReplicas)


def packed(units: Iterable[tuple[_Unit, int]], limit: int, most: int | None = None) -> Iterator[list[_Unit]]:
    """Units, each with its weight, together up to a weight of `limit` and in the order they come, `most` at the most; a heavier one
    stays alone."""
    together: list[_Unit] = []
    weight = 0
    for unit, added in units:
        if together and (weight + added > limit or len(together) == most):
            yield together
            together, weight = [], 0
        together.append(unit)
        weight += added
    if together:
        yield together


def file_cost(source: ByteSource) -> int:
    """What a file of this source costs beside its bytes, as bytes: of a storage service by how long it takes to answer."""
    if not isinstance(source, DistantSource):
        return FILE_COST_BYTES
    return FILE_COST_BYTES + int(min(source.request_seconds, LONGEST_REQUEST) / REQUESTS_AT_ONCE * BYTES_A_SECOND)


def fold_works(parts: Iterable[tuple[int, Slice]], split_bytes: int, work_bytes: int) -> Iterator[FoldWork]:
    """What is to be folded of numbered slices, packed together to at most `work_bytes` unless a piece alone is more.

    An archive that cannot seek is one work.
    """
    alone: dict[int, FoldWork] = {}
    work = FoldWork()
    for number, partition_slice in parts:
        for replica, plan in enumerate(partition_slice.replicas):
            source = plan.log_dir.source
            cost_of_file = file_cost(source)
            part = _part(number, replica, plan)
            if not source.seekable:
                part.pieces = list(_pieces(plan, split_bytes))
                alone.setdefault(id(source), FoldWork()).parts.append(part)
                continue
            for piece in _pieces(plan, split_bytes):
                added = piece.size_in_bytes + (0 if piece.number else cost_of_file)
                if work.parts and work.size_in_bytes + added > work_bytes:
                    yield work
                    work, part = FoldWork(), _part(number, replica, plan)
                if not part.pieces:
                    work.parts.append(part)
                part.pieces.append(piece)
                work.size_in_bytes += added
    if work.parts:
        yield work
    yield from alone.values()


def is_small(plans: Sequence[ReplicaPlan], most_bytes: int = SMALL_BYTES) -> bool:
    """Whether the replicas of a partition are folded where they are judged; an archive that cannot seek is read by one task."""
    return sum(plan.bytes for plan in plans) <= most_bytes and all(plan.log_dir.source.seekable for plan in plans)


def mostly_waits(plans: Sequence[ReplicaPlan]) -> bool:
    """Whether a partition is small and all that is read of it comes from storage services."""
    return bool(plans) and is_small(plans) and all(isinstance(plan.log_dir.source, DistantSource) for plan in plans)


def whole_works(parts: Iterable[tuple[int, _Slice]], limit: int, most_works: int) -> Iterator[list[tuple[int, _Slice]]]:
    """Numbered slices that are small, packed together so that each task costs about as much as reading `limit` bytes, or more where
    there would be very many. Of those that wait for answers most of the time a task has at the least twice as many as it can have
    under way at once."""
    costs = [(numbered, sum(map(_cost, numbered[1].replicas))) for numbered in parts]
    limit = max(limit, sum(cost for _, cost in costs) // most_works)
    most = limit // (2 * AT_ONCE)
    return packed(((part, min(cost, most) if mostly_waits(part[1].replicas) else cost) for part, cost in costs), limit)


def _cost(plan: ReplicaPlan) -> int:
    """What folding and judging a whole replica costs, as bytes."""
    files = 1 + len(plan.directory.entries) + 3 * len(plan.directory.segments)
    return plan.bytes + file_cost(plan.log_dir.source) * files


def _pieces(plan: ReplicaPlan, split_bytes: int) -> Iterator[NumberedSplit]:
    for segment, log, following in plan.directory.logs():
        count, held = split_count(plan, segment, split_bytes), log.size_in_bytes
        if log.allocated_bytes is not None:
            held = min(held, log.allocated_bytes)  # the rest is holes, which cost nothing
        yield from (NumberedSplit(segment, number, following, held // count) for number in range(count))


def _part(number: int, replica: int, plan: ReplicaPlan) -> FoldPart:
    """A part without pieces."""
    return FoldPart(number, replica, bare_plan(plan))


def bare_plan(plan: ReplicaPlan) -> ReplicaPlan:
    """The plan without the directory's files, whichever are named apart, and without what is known of the replica."""
    log_dir = LogDir(plan.log_dir.source, plan.log_dir.name, LogDirectory("", {}, [], [], []), plan.log_dir.broker)
    directory = replace(
        plan.directory, segments=[], snapshots=[], entries={}, metadata_snapshots=[], leftovers=[], unknown=[], irregular=[]
    )
    context = replace(plan.context, control=None, committed=[], leader_epochs=None, segment_base_offsets=[])
    return ReplicaPlan(log_dir, directory, context, plan.bytes, plan.samples_keys)


def witness_work(inputs: Inputs) -> WitnessWork:
    """The replicas to be read for the witnesses."""
    return WitnessWork(thin_plans(inputs.internal))
