"""The local engine: this machine's cores, no Java. Threads, because kernels and reads hold no interpreter lock."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from heapq import merge
from itertools import groupby, takewhile
from typing import TYPE_CHECKING

from kafka_forensics.analysis.internal_topics import Witnesses
from kafka_forensics.compiled import use_compiled, using_compiled, worth_compiling
from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan, gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.folding.fold_split import Folded, Folding, Merged, Pause, RecentIndexes, fold_split, merge_replica
from kafka_forensics.folding.prefetch import LARGE, ROOM, Walk, in_order, never
from kafka_forensics.folding.splits import Split, splits_of
from kafka_forensics.judging.recovery import lone_leftovers
from kafka_forensics.judging.scanning import Look, Scan, digest_key, judged
from kafka_forensics.model.results import ScanResult
from kafka_forensics.rereading.misplaced import with_right_offsets
from kafka_forensics.storage.archives import reading_order
from kafka_forensics.witnesses.witnesses import read_witnesses

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafka_forensics.storage.source import ByteSource

Progress = Callable[[int, int], None]
"""Called as `progress(bytes_done, bytes_total)`, from one thread."""


def scan(paths: list[str], options: ScanOptions, progress: Progress | None = None) -> ScanResult:
    """Scan log directories, archives and files. Raises UsageError for paths that make no sense; bad bytes are findings."""
    return scan_inputs(gather(paths, options), options, progress)


def scan_inputs(
    inputs: Inputs,
    options: ScanOptions,
    progress: Progress | None = None,
    look: Look | None = None,
    witnesses: Witnesses | None = None,
) -> ScanResult:
    """Scan what was gathered; `look` is shown every partition. `witnesses` are read unless they have been already."""
    use_compiled(worth_compiling(max(sum(plan.bytes for plan in plans) for plans in (inputs.replicas, inputs.internal))))
    running = Scan("local", inputs, options, read_witnesses(inputs) if witnesses is None else witnesses)
    running.findings += lone_leftovers(inputs)
    key = digest_key()
    for _, of_partition in groupby(folded_replicas([running], key, options.jobs, progress), key=partition_of):
        merged = with_right_offsets([merged_replica for _, merged_replica in of_partition], key, deep=running.deep)
        running.take(judged(merged, key, options, look))
    return running.finish()


def partition_of(folded: tuple[Scan, Merged]) -> tuple[str, int]:
    """Topic and partition of a replica."""
    context = folded[1][0].context
    return context.topic, context.partition


@dataclass(slots=True)
class _Report:
    """Where the merging thread tells how far it is and what could not be read."""

    progress: Progress | None
    total: int
    done: int = 0

    def folded(self, running: Scan, folded_split: Folded) -> None:
        """Count a split, or a stretch of one, that is merged."""
        self.done += folded_split.split.end - folded_split.split.start
        if folded_split.incomplete is not None:
            running.incomplete.append(folded_split.incomplete)
        if self.progress is not None:
            self.progress(self.done, self.total)


def folded_replicas(
    runs: list[Scan], key: "NDArray[np.int64]", jobs: int, progress: Progress | None = None
) -> Iterator[tuple[Scan, Merged]]:
    """Every replica of these scans, folded and whole, by topic, partition and scan; splits of later ones are folded meanwhile.

    Digests of replicas that were folded with one `key` can be compared, whichever scan they are of.
    """
    every = list(merge(*([(running, plan) for plan in running.inputs.replicas] for running in runs), key=_planned))
    plans = [plan for _, plan in every]
    report = _Report(progress, sum(running.bytes_total for running in runs))
    recent = RecentIndexes()

    def fold(split: Split, pause: Pause) -> Iterator[Folded]:
        running, plan = every[split.replica]
        return fold_split(plan, split, Folding(key, running.deep), recent.of(split.replica, plan, split.segment), pause)

    packed = _fold_packed(plans, fold)

    def fold_once(split: Split, pause: Pause) -> Iterator[Folded]:
        return iter(packed.pop(split)) if split in packed else fold(split, pause)

    def alone(split: Split) -> bool:
        return not plans[split.replica].log_dir.source.seekable

    def refold(split: Split) -> Iterator[Folded]:
        return fold(split, never)

    splits = (split for index, plan in enumerate(plans) for split in [*splits_of(index, plan), None])
    stretches = in_order(fold_once, splits, jobs if using_compiled() else 1, alone)
    for running, plan in every:
        of_replica = takewhile(lambda folded: folded is not None, stretches)
        show = partial(report.folded, running)
        whole = merge_replica(plan, running.inputs, (folded for folded in of_replica if folded is not None), refold, show)
        yield running, (plan, *whole)


def _planned(planned: tuple[Scan, ReplicaPlan]) -> tuple[str, int]:
    return planned[1].context.topic, planned[1].context.partition


def _fold_packed(plans: list[ReplicaPlan], fold: Walk) -> dict[Split, list[Folded]]:
    """Splits of sources that cannot seek, folded as they lie in their archives: one inflation each, whatever order is judged.

    When they hold too much together, the rest is left to be folded in its turn, at an inflation each.
    """
    by_source: dict[int, tuple[ByteSource, dict[str, Split]]] = {}
    for index, plan in enumerate(plans):
        source = plan.log_dir.source
        if not source.seekable:
            _, splits = by_source.setdefault(id(source), (source, {}))
            splits.update({split.segment.log.path: split for split in splits_of(index, plan) if split.segment.log is not None})
    answer: dict[Split, list[Folded]] = {}
    held = 0
    for source, splits in by_source.values():
        for path in reading_order(source, splits):
            stretches = []
            for folded in fold(splits[path], never):
                stretches.append(folded)
                held += folded.state.size_in_bytes if folded.state.size_in_bytes >= LARGE else 0
                if held > ROOM:
                    return answer
            answer[splits[path]] = stretches
    return answer
