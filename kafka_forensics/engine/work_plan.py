"""Dividing a scan into works of about equal size, each for one task."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, TypeVar

from kafka_forensics.engine.task_values import FoldPart, FoldWork, NumberedSplit, Slice, WitnessWork, thin_plans
from kafka_forensics.evidence.inputs import Inputs, LogDir, ReplicaPlan
from kafka_forensics.folding.splits import segments_of, split_count
from kafka_forensics.parsers.log_dir import LogDirectory

FILE_COST_BYTES: Final = 256 << 10
"""What opening a file costs beside its bytes, as so many bytes, so that thousands of tiny ones do not end up in one task."""
_Unit = TypeVar("_Unit")


def packed(units: Iterable[tuple[_Unit, int]], limit: int) -> Iterator[list[_Unit]]:
    """Units, each with its weight, together up to a weight of `limit` and in the order they come; a heavier one stays alone."""
    together: list[_Unit] = []
    weight = 0
    for unit, added in units:
        if together and weight + added > limit:
            yield together
            together, weight = [], 0
        together.append(unit)
        weight += added
    if together:
        yield together


def fold_works(parts: Iterable[Slice], split_bytes: int, work_bytes: int) -> Iterator[FoldWork]:
    """What is to be folded, packed together to about `work_bytes`; an archive that cannot seek is one work."""
    alone: dict[int, FoldWork] = {}
    work = FoldWork()
    for number, partition_slice in enumerate(parts):
        for replica, plan in enumerate(partition_slice.replicas):
            source = plan.log_dir.source
            if not source.seekable:
                part = _part(number, replica, plan)
                part.pieces = list(_pieces(plan, split_bytes))
                alone.setdefault(id(source), FoldWork()).parts.append(part)
                continue
            part = _part(number, replica, plan)
            for piece in _pieces(plan, split_bytes):
                if not part.pieces:
                    work.parts.append(part)
                part.pieces.append(piece)
                work.size_in_bytes += piece.size_in_bytes + (0 if piece.number else FILE_COST_BYTES)
                if work.size_in_bytes >= work_bytes:
                    yield work
                    work, part = FoldWork(), _part(number, replica, plan)
    if work.parts:
        yield work
    yield from alone.values()


def _pieces(plan: ReplicaPlan, split_bytes: int) -> Iterator[NumberedSplit]:
    for segment, following in segments_of(plan):
        assert segment.log is not None
        count, held = split_count(plan, segment, split_bytes), segment.log.size_in_bytes
        if segment.log.allocated_bytes is not None:
            held = min(held, segment.log.allocated_bytes)  # the rest is holes, which cost nothing
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
