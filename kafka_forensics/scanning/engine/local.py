"""The local engine: this machine's cores, no Java.

Threads, because kernels and reads hold no interpreter lock; but for many small partitions, which cost little else, processes, and
for those on storage services more threads than there are cores.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from heapq import merge
from itertools import chain, groupby, takewhile
from typing import TYPE_CHECKING, Final, TypeVar

from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan, gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.model.results import ScanResult
from kafka_forensics.parsers.kernels.compiling import compile_as_needed, worth_threads
from kafka_forensics.scanning.engine.garbage import rarely_collected
from kafka_forensics.scanning.engine.processes import can_fork, forked
from kafka_forensics.scanning.engine.serialization import pack, unpack
from kafka_forensics.scanning.engine.task_values import Noticed, notice
from kafka_forensics.scanning.engine.waiting import at_once
from kafka_forensics.scanning.engine.work_plan import is_small, mostly_waits, packed
from kafka_forensics.scanning.folding.fold_split import Folded, Folding, Merged, Pause, RecentIndexes, fold_split, merge_replica
from kafka_forensics.scanning.folding.prefetch import LARGE, ROOM, Walk, in_order, never
from kafka_forensics.scanning.folding.splits import Split, splits_of
from kafka_forensics.scanning.judging.recovery_files import lone_leftovers
from kafka_forensics.scanning.judging.whole_scan import (
    Listener,
    Look,
    PartitionAnswer,
    Scan,
    ScanInterruptedError,
    digest_key,
    judged,
)
from kafka_forensics.scanning.rereading.right_offsets import with_right_offsets
from kafka_forensics.scanning.witnesses.witnesses import Witnesses, read_witnesses
from kafka_forensics.storage.archives import reading_order
from kafka_forensics.storage.local import LocalSource

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafka_forensics.storage.source import ByteSource

Progress = Callable[[int, int], None]
"""Called as `progress(bytes_done, bytes_total)`, from one thread."""
Answer = TypeVar("Answer")
Answering = Callable[[TopicPartition, Iterable[tuple[Scan, Merged]]], Answer]
"""Answers about a partition from all its replicas."""

_Planned = tuple[Scan, ReplicaPlan]
_Part = tuple[TopicPartition, list[_Planned]]

MANY: Final = 512
"""Replicas of small partitions that are worth copies of this process."""
TASK_REPLICAS: Final = 192
"""Replicas that one of them is given at once: a tenth of a second."""


@rarely_collected()
def scan(paths: list[str], options: ScanOptions, progress: Progress | None = None, listener: Listener | None = None) -> ScanResult:
    """Scan log directories, archives and files. Raises UsageError for paths that make no sense; bad bytes are findings."""
    return scan_inputs(gather(paths, options, scanned=True), options, progress, listener=listener)


@rarely_collected()
def scan_inputs(
    inputs: Inputs,
    options: ScanOptions,
    progress: Progress | None = None,
    look: Look | None = None,
    witnesses: Witnesses | None = None,
    listener: Listener | None = None,
) -> ScanResult:
    """Scan what was gathered; `look` is shown every partition, in this process; `witnesses` are read unless they have been."""
    work_bytes = max(sum(plan.bytes for plan in plans) for plans in (inputs.replicas, inputs.internal))
    compile_as_needed(work_bytes)
    running = Scan("local", inputs, options, read_witnesses(inputs) if witnesses is None else witnesses, listener)
    running.findings += lone_leftovers(inputs)
    key = digest_key()

    def answer(_partition: TopicPartition, folded: Iterable[tuple[Scan, Merged]]) -> PartitionAnswer:
        merged = with_right_offsets([replica for _, replica in folded], key, deep=running.deep)
        return judged(merged, key, options, look)

    try:
        for partition_answer in answers_in_order([running], key, options.jobs, answer, progress, here=look is not None):
            running.take(partition_answer)
    except KeyboardInterrupt as interruption:
        raise ScanInterruptedError(running.so_far()) from interruption
    return running.finish()


def answers_in_order(
    runs: list[Scan],
    key: "NDArray[np.int64]",
    jobs: int,
    answer: Answering[Answer],
    progress: Progress | None = None,
    *,
    here: bool = False,
) -> Iterator[Answer]:
    """What `answer` says of every partition of these scans, by topic and partition.

    It is given the replicas folded and whole, by scan; digests of all that were folded with one `key` can be compared. Many small
    partitions are answered by copies of this process: their answers must be serializable, and nothing else that is done there is
    known here. Unless all is to be answered `here`.
    """
    every = list(merge(*([(running, plan) for plan in running.inputs.replicas] for running in runs), key=_partition))
    parts = [(partition, list(of_partition)) for partition, of_partition in groupby(every, key=_partition)]
    report = _Report(progress, sum(running.bytes_total for running in runs))
    small = [part for part in parts if _is_small(part)] if jobs > 1 and not here and can_fork() else []
    small = small if sum(len(planned) for _, planned in small) >= MANY else []
    distant = [part for part in parts if mostly_waits([plan for _, plan in part[1]])]
    elsewhere = {partition for partition, _ in [*small, *distant]}
    by_copies = _answers_apart(runs, small, key, jobs, answer, report)
    by_waiting = _answers_of_distant(distant, key, answer, report)
    by_threads = _answers_here([part for part in parts if part[0] not in elsewhere], key, jobs, answer, report)
    with closing(by_copies), closing(by_waiting), closing(by_threads):
        answers: dict[TopicPartition, Iterator[Answer]] = {partition: by_waiting for partition, _ in distant}
        if small:
            of_small = chain([next(by_copies)], by_copies)  # copies are made before there are threads
            answers |= {partition: of_small for partition, _ in small}
        for partition, _ in parts:
            yield next(answers.get(partition, by_threads))


def _answers_here(
    parts: list[_Part], key: "NDArray[np.int64]", jobs: int, answer: Answering[Answer], report: "_Report"
) -> Generator[Answer, None, None]:
    """Answers about partitions by this process."""
    every = [planned for _, of_partition in parts for planned in of_partition]
    for partition, folded in groupby(_folded_replicas(every, key, jobs, report), key=_partition_of):
        yield answer(partition, folded)


def _answers_of_distant(
    parts: list[_Part], key: "NDArray[np.int64]", answer: Answering[Answer], report: "_Report"
) -> Generator[Answer, None, None]:
    """Answers about small partitions on storage services, folded many at once and judged in turn."""
    silent = _Report(None, 0)

    def folded(part: _Part) -> list[tuple[Scan, Merged]]:
        return list(_folded_replicas(part[1], key, 1, silent))

    with closing(at_once(folded, parts)) as every:
        for part, replicas in zip(parts, every, strict=True):
            report.read(_bytes_of(part))
            yield answer(part[0], replicas)


def _is_small(part: _Part) -> bool:
    """Whether most of what the partition costs is not its bytes; and whether copies of a process can read its files, too."""
    plans = [plan for _, plan in part[1]]
    return is_small(plans) and all(isinstance(plan.log_dir.source, LocalSource) for plan in plans)


def _bytes_of(part: _Part) -> int:
    return sum(plan.bytes for _, plan in part[1])


def _answers_apart(
    runs: list[Scan], parts: list[_Part], key: "NDArray[np.int64]", jobs: int, answer: Answering[Answer], report: "_Report"
) -> Generator[Answer, None, None]:
    """Answers about partitions by copies of this process."""
    tasks = [parts[:1], *packed(((part, len(part[1])) for part in parts[1:]), TASK_REPLICAS)]
    silent = _Report(None, 0)

    def task(number: int) -> bytes:
        inputs = [running.inputs for running in runs]
        before = [(len(run.incomplete), len(run.inputs.incomplete), run.inputs.manifest.count) for run in runs]
        answers = list(_answers_here(tasks[number], key, 1, answer, silent))
        gaps = [running.incomplete[count:] for running, (count, _, _) in zip(runs, before, strict=True)]
        seen = [
            Noticed(of_run.manifest.files(files), of_run.incomplete[count:])
            for of_run, (_, count, files) in zip(inputs, before, strict=True)
        ]
        return pack((answers, gaps, seen))

    by_name = {source.name: source for running in runs for source in running.inputs.sources}
    for done, packed_answers in zip(tasks, forked(task, len(tasks), jobs), strict=True):
        answers, gaps, seen = unpack(packed_answers, lambda name, _: by_name[name])
        for running, gaps_of_run, seen_by_run in zip(runs, gaps, seen, strict=True):
            running.incomplete += gaps_of_run
            notice(running.inputs, seen_by_run)
        report.read(sum(plan.bytes for _, planned in done for _, plan in planned))
        yield from answers


@dataclass(slots=True)
class _Report:
    """Where the merging thread tells how far it is and what could not be read."""

    progress: Progress | None
    total: int
    done: int = 0

    def folded(self, running: Scan, folded_split: Folded) -> None:
        """Count a split, or a stretch of one, that is merged."""
        if folded_split.incomplete is not None:
            running.incomplete.append(folded_split.incomplete)
        self.read(folded_split.split.end - folded_split.split.start)

    def read(self, size_in_bytes: int) -> None:
        """Count bytes of log that need not be read any more."""
        self.done += size_in_bytes
        if self.progress is not None:
            self.progress(self.done, self.total)


def _folded_replicas(
    every: "list[_Planned]", key: "NDArray[np.int64]", jobs: int, report: _Report
) -> Iterator[tuple[Scan, Merged]]:
    """Every one of these replicas, folded and whole, in order; splits of later ones are folded meanwhile."""
    plans = [plan for _, plan in every]
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
    stretches = in_order(fold_once, splits, lambda: jobs if worth_threads() else 1, alone)
    for running, plan in every:
        of_replica = takewhile(lambda folded: folded is not None, stretches)
        show = partial(report.folded, running)
        whole = merge_replica(plan, running.inputs, (folded for folded in of_replica if folded is not None), refold, show)
        yield running, (plan, *whole)


def _partition(planned: _Planned) -> TopicPartition:
    return planned[1].context.topic, planned[1].context.partition


def _partition_of(folded: tuple[Scan, Merged]) -> TopicPartition:
    return _partition((folded[0], folded[1][0]))


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
