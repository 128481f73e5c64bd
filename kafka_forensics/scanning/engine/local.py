"""The local engine: a scan on this machine's cores, without Java.

Kernels and reads release the interpreter lock, so it uses threads. Many small partitions cost mostly Python time: forked processes
judge them. Small partitions on storage services mostly wait: more threads than cores read them.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from functools import partial
from heapq import merge
from itertools import chain, groupby, takewhile
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct

from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan, gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.model.results import ScanResult
from kafka_forensics.parsers.kernels.compiling import compile_as_needed, gains_by_threads
from kafka_forensics.scanning.engine.garbage import gc_less_often
from kafka_forensics.scanning.engine.processes import can_fork, forked
from kafka_forensics.scanning.engine.serialization import pack, unpack
from kafka_forensics.scanning.engine.task_values import TaskNotes, merge_notes
from kafka_forensics.scanning.engine.work_plan import is_small, mostly_waits, packed
from kafka_forensics.scanning.folding.fold_split import (
    FoldedReplica,
    FoldedStretch,
    FoldOptions,
    Pause,
    RecentIndexes,
    fold_split,
    merge_replica,
    no_wait,
)
from kafka_forensics.scanning.folding.prefetch import LARGE, MAX_WAITING_BYTES, FoldStretches, in_order
from kafka_forensics.scanning.folding.splits import Split, splits_of
from kafka_forensics.scanning.folding.waiting import map_concurrently
from kafka_forensics.scanning.judging.recovery_files import leftovers_without_replica
from kafka_forensics.scanning.judging.whole_scan import (
    InspectPartition,
    Listener,
    PartitionAnswer,
    RemoteLogAnswer,
    Scan,
    ScanInterruptedError,
    digest_key,
    judge_logs,
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
Answering = Callable[[TopicPartition, Iterable[tuple[Scan, FoldedReplica]]], Answer]
"""Turns all folded replicas of a partition into an answer about it."""

_Planned = tuple[Scan, ReplicaPlan]
_Partition = tuple[TopicPartition, list[_Planned]]

MANY: Final = 512
"""Replicas of small partitions from which forking processes pays."""
TASK_REPLICAS: Final = 192
"""Replicas in a task of a forked process, which take a tenth of a second."""


@gc_less_often()
def scan(paths: list[str], options: ScanOptions, progress: Progress | None = None, listener: Listener | None = None) -> ScanResult:
    """Scan log directories, archives and files. Raises UsageError for paths that cannot be scanned; bad bytes are findings."""
    return scan_inputs(gather(paths, options, scanned=True), options, progress, listener=listener)


@gc_less_often()
def scan_inputs(
    inputs: Inputs,
    options: ScanOptions,
    progress: Progress | None = None,
    on_partition: InspectPartition | None = None,
    witnesses: Witnesses | None = None,
    listener: Listener | None = None,
) -> ScanResult:
    """Scan gathered inputs. `on_partition` is called for every partition, in this process; `witnesses` are read if None."""
    work_bytes = max(sum(plan.bytes for plan in plans) for plans in (inputs.replicas, inputs.internal))
    compile_as_needed(work_bytes)
    running = Scan("local", inputs, options, read_witnesses(inputs) if witnesses is None else witnesses, listener)
    running.findings += leftovers_without_replica(inputs)
    key = digest_key()

    def answer(_partition: TopicPartition, folded: Iterable[tuple[Scan, FoldedReplica]]) -> PartitionAnswer | RemoteLogAnswer:
        merged = with_right_offsets([replica for _, replica in folded], key, deep=running.deep)
        return judge_logs(merged, key, options, on_partition)

    try:
        for partition_answer in answers_in_order(
            [running], key, options.jobs, answer, progress, in_process=on_partition is not None
        ):
            running.take(partition_answer)
    except KeyboardInterrupt as interruption:
        raise ScanInterruptedError(running.partial_result()) from interruption
    return running.finish()


def answers_in_order(
    runs: list[Scan],
    key: "NDArray[np.int64]",
    jobs: int,
    answer: Answering[Answer],
    progress: Progress | None = None,
    *,
    in_process: bool = False,
) -> Iterator[Answer]:
    """Yield `answer(partition, replicas)` for every partition of these scans, by topic and partition.

    The replicas are folded, in the order of the scans. Digests of all that are folded with one `key` can be compared. Unless
    `in_process` is true, forked processes answer about many small partitions: their answers must be serializable, and side effects
    are lost.
    """
    planned_replicas = list(merge(*([(running, plan) for plan in running.inputs.folded] for running in runs), key=_partition))
    parts = [(partition, list(planned)) for partition, planned in groupby(planned_replicas, key=_partition)]
    reporter = _Reporter(progress, sum(running.bytes_total for running in runs))
    small = [part for part in parts if _can_fork_for(part)] if jobs > 1 and not in_process and can_fork() else []
    small = small if sum(len(planned) for _, planned in small) >= MANY else []
    remote_parts = [part for part in parts if mostly_waits([plan for _, plan in part[1]])]
    elsewhere = {partition for partition, _ in [*small, *remote_parts]}
    by_processes = _answers_by_processes(runs, small, key, jobs, answer, reporter)
    by_waiting = _answers_about_remote(remote_parts, key, answer, reporter)
    by_threads = _answers_by_threads([part for part in parts if part[0] not in elsewhere], key, jobs, answer, reporter)
    with closing(by_processes), closing(by_waiting), closing(by_threads):
        answers: dict[TopicPartition, Iterator[Answer]] = {partition: by_waiting for partition, _ in remote_parts}
        if small:
            of_small = chain([next(by_processes)], by_processes)  # fork before any thread starts
            answers |= {partition: of_small for partition, _ in small}
        for partition, _ in parts:
            yield next(answers.get(partition, by_threads))


def _answers_by_threads(
    parts: list[_Partition], key: "NDArray[np.int64]", jobs: int, answer: Answering[Answer], reporter: "_Reporter"
) -> Generator[Answer, None, None]:
    """Answers about partitions that threads of this process fold."""
    planned_replicas = [planned for _, of_partition in parts for planned in of_partition]
    replicas = _folded_replicas(planned_replicas, key, jobs, reporter)
    for partition, folded in groupby(replicas, key=lambda replica: _partition((replica[0], replica[1][0]))):
        yield answer(partition, folded)


def _answers_about_remote(
    parts: list[_Partition], key: "NDArray[np.int64]", answer: Answering[Answer], reporter: "_Reporter"
) -> Generator[Answer, None, None]:
    """Answers about small partitions on storage services, folded concurrently and judged in order."""

    def folded(part: _Partition) -> list[tuple[Scan, FoldedReplica]]:
        return list(_folded_replicas(part[1], key, 1, _Reporter(None, 0)))

    with closing(map_concurrently(folded, parts)) as folded_parts:
        for part, replicas in zip(parts, folded_parts, strict=True):
            reporter.add_bytes(sum(plan.bytes for _, plan in part[1]))
            yield answer(part[0], replicas)


def _can_fork_for(part: _Partition) -> bool:
    """Whether a partition is small, and a forked process can read its files."""
    plans = [plan for _, plan in part[1]]
    return is_small(plans) and all(isinstance(plan.log_dir.source, LocalSource) for plan in plans)


def _answers_by_processes(
    runs: list[Scan],
    parts: list[_Partition],
    key: "NDArray[np.int64]",
    jobs: int,
    answer: Answering[Answer],
    reporter: "_Reporter",
) -> Generator[Answer, None, None]:
    """Answers about partitions by forked processes."""
    tasks = [parts[:1], *packed(((part, len(part[1])) for part in parts[1:]), TASK_REPLICAS)]

    def task(number: int) -> bytes:
        before = [(len(running.incomplete), len(running.inputs.incomplete), running.inputs.manifest.count) for running in runs]
        answers = list(_answers_by_threads(tasks[number], key, 1, answer, _Reporter(None, 0)))
        gaps = [running.incomplete[count:] for running, (count, _, _) in zip(runs, before, strict=True)]
        notes = [
            TaskNotes(running.inputs.manifest.files(files), running.inputs.incomplete[count:])
            for running, (_, count, files) in zip(runs, before, strict=True)
        ]
        return pack((answers, gaps, notes))

    by_name = {source.name: source for running in runs for source in running.inputs.sources}
    for done, packed_answers in zip(tasks, forked(task, len(tasks), jobs), strict=True):
        answers, gaps, notes = unpack(packed_answers, lambda name, _: by_name[name])
        for running, gaps_of_run, notes_of_run in zip(runs, gaps, notes, strict=True):
            running.incomplete += gaps_of_run
            merge_notes(running.inputs, notes_of_run)
        reporter.add_bytes(sum(plan.bytes for _, planned in done for _, plan in planned))
        yield from answers


class _Reporter(Struct):
    """Reports progress, and what could not be read, from the merging thread."""

    progress: Progress | None
    total: int
    done: int = 0

    def add_stretch(self, running: Scan, folded: FoldedStretch) -> None:
        """Count a merged stretch."""
        if folded.incomplete is not None:
            running.incomplete.append(folded.incomplete)
        self.add_bytes(folded.split.end - folded.split.start)

    def add_bytes(self, size_in_bytes: int) -> None:
        """Count bytes of logs whose fold is merged."""
        self.done += size_in_bytes
        if self.progress is not None:
            self.progress(self.done, self.total)


def _folded_replicas(
    planned_replicas: "list[_Planned]", key: "NDArray[np.int64]", jobs: int, reporter: _Reporter
) -> Iterator[tuple[Scan, FoldedReplica]]:
    """These replicas, folded, in order; threads fold splits of later replicas ahead."""
    plans = [plan for _, plan in planned_replicas]
    recent = RecentIndexes()

    def fold(split: Split, pause: Pause = no_wait) -> Iterator[FoldedStretch]:
        running, plan = planned_replicas[split.replica]
        return fold_split(plan, split, FoldOptions(key, running.deep), recent.of(split.replica, plan, split.segment), pause)

    from_archives = _fold_archives(plans, fold)

    def fold_once(split: Split, pause: Pause) -> Iterator[FoldedStretch]:
        return iter(from_archives.pop(split)) if split in from_archives else fold(split, pause)

    def must_run_in_order(split: Split) -> bool:
        return not plans[split.replica].log_dir.source.seekable

    splits = (split for index, plan in enumerate(plans) for split in [*splits_of(index, plan), None])
    stretches = in_order(fold_once, splits, lambda: jobs if gains_by_threads() else 1, must_run_in_order)
    for running, plan in planned_replicas:
        of_replica = (folded for folded in takewhile(lambda folded: folded is not None, stretches) if folded is not None)
        yield running, merge_replica(plan, running.inputs, of_replica, fold, partial(reporter.add_stretch, running))


def _partition(planned: _Planned) -> TopicPartition:
    return planned[1].context.topic, planned[1].context.partition


def _fold_archives(plans: list[ReplicaPlan], fold: FoldStretches) -> dict[Split, list[FoldedStretch]]:
    """Fold the splits of sources that cannot seek in the order of their archives, to inflate each once.

    If they take too much memory together, the rest is folded in the order of judging, at an inflation each.
    """
    by_source: dict[int, tuple[ByteSource, dict[str, Split]]] = {}
    for index, plan in enumerate(plans):
        source = plan.log_dir.source
        if not source.seekable:
            _, splits = by_source.setdefault(id(source), (source, {}))
            splits.update({split.segment.log.path: split for split in splits_of(index, plan) if split.segment.log is not None})
    folded_splits: dict[Split, list[FoldedStretch]] = {}
    size = 0
    for source, splits in by_source.values():
        for path in reading_order(source, splits):
            stretches = []
            for folded in fold(splits[path], no_wait):
                stretches.append(folded)
                size += folded.state.size_in_bytes if folded.state.size_in_bytes >= LARGE else 0
                if size > MAX_WAITING_BYTES:
                    return folded_splits
            folded_splits[splits[path]] = stretches
    return folded_splits
