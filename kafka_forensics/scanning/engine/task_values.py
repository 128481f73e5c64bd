"""Arguments and results of the tasks of a scan; all are serializable."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from kafka_forensics.analysis.segments import IndexFold
from kafka_forensics.evidence.context import local_and_remote
from kafka_forensics.evidence.inputs import Inputs, LogDir, ReplicaPlan
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.controller import ControllerHistory
from kafka_forensics.model.files import CleanShutdown, MetaProperties, OffsetCheckpoint
from kafka_forensics.model.findings import Finding, TopicPartition
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.log_dir import LogDirectory, PartitionDirectory, SegmentFiles
from kafka_forensics.scanning.judging.whole_scan import PartitionAnswer, RemoteLogAnswer
from kafka_forensics.scanning.witnesses.witnesses import Witnesses
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.storage.source import ByteSource, Entry, place_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafka_forensics.scanning.folding.keys import KeyAnswer, KeyPart, KeyQuestion, KeyReadOptions


class OtherLogDir(Struct):
    """The identity of a log directory whose replicas are not in the slice."""

    broker: int | str
    name: str
    meta: MetaProperties | None
    clean_shutdown: CleanShutdown | None
    node_id: int | None


class SharedInputs(Struct):
    """The inputs that all slices share."""

    log_dirs: list[OtherLogDir]
    source_names: list[str]
    places: list[str]
    """Addresses of the sources, for another process."""
    features: dict[str, int]


class PartitionSlice(Struct):
    """The inputs for judging one partition, small enough to be sent to the task that does it."""

    topic: str
    partition: int
    replicas: list[ReplicaPlan] = field(default_factory=list)
    """Its replicas, then its logs in remote stores."""
    renamed_directories: list[tuple[LogDir, PartitionDirectory]] = field(default_factory=list)
    relatives: dict[tuple[int | str, str | None, int | None], set[str]] = field(default_factory=dict)
    controller: ControllerHistory | None = None
    """The part that concerns this partition's identity."""
    keys: "list[KeyAnswer] | None" = None
    """Answers to its key questions; None before the first question."""


class TaskNotes(Struct):
    """What the driver has to record of small files that a task read: their entries, and what could not be read."""

    files: list[tuple[ByteSource, Entry]] = field(default_factory=list)
    incomplete: list[Incomplete] = field(default_factory=list)


def shared_inputs(inputs: Inputs) -> SharedInputs:
    """The inputs that all slices share, once the controller's log is read."""
    log_dirs = [
        OtherLogDir(log_dir.broker, log_dir.name, log_dir.meta, log_dir.clean_shutdown, log_dir.node_id)
        for log_dir in inputs.log_dirs
    ]
    names, places = [source.name for source in inputs.sources], [place_of(source) for source in inputs.sources]
    return SharedInputs(log_dirs, names, places, inputs.features)


def slices(inputs: Inputs) -> Iterator[PartitionSlice]:
    """A slice for every partition with replicas or directories aside, by topic and partition."""
    by_partition: dict[TopicPartition, PartitionSlice] = {}

    def slice_of(key: TopicPartition) -> PartitionSlice:
        return by_partition.setdefault(key, PartitionSlice(*key))

    for plan in inputs.folded:
        slice_of(plan.context.topic_partition).replicas.append(plan)
    for key, renamed_directories in inputs.renamed_directories.items():
        slice_of(key).renamed_directories = renamed_directories
    for place, suffixes in inputs.relatives.items():
        if (key := (place[1] or "", place[2] or 0)) in by_partition:
            by_partition[key].relatives[place] = suffixes
    for key in sorted(by_partition):
        yield _trimmed(by_partition[key], inputs.controller)


def trimmed_plans(plans: list[ReplicaPlan]) -> list[ReplicaPlan]:
    """The plans, with log directories that list only these replicas."""
    return _trimmed(PartitionSlice("", -1, plans), None).replicas


def _trimmed(whole: PartitionSlice, controller: ControllerHistory | None) -> PartitionSlice:
    """The slice, with log directories that list only its partition."""
    directories: dict[int, list[PartitionDirectory]] = {}
    log_dirs: dict[int, LogDir] = {}
    for log_dir, directory in [*((plan.log_dir, plan.directory) for plan in whole.replicas), *whole.renamed_directories]:
        directories.setdefault(id(log_dir), []).append(directory)
        log_dirs[id(log_dir)] = log_dir
    trimmed_log_dirs = {key: _trimmed_log_dir(log_dir, directories[key]) for key, log_dir in log_dirs.items()}
    return replace(
        whole,
        replicas=[replace(plan, log_dir=trimmed_log_dirs[id(plan.log_dir)]) for plan in whole.replicas],
        renamed_directories=[(trimmed_log_dirs[id(log_dir)], directory) for log_dir, directory in whole.renamed_directories],
        controller=None if controller is None else _identities(whole, controller),
    )


def _trimmed_log_dir(log_dir: LogDir, directories: list[PartitionDirectory]) -> LogDir:
    """The log directory with these partitions alone, the damage of its checkpoints, and its last changed file, which dates it."""
    directory = log_dir.found
    newest = max(directory.entries.values(), key=lambda entry: entry.mtime_ns, default=None)
    entries = {} if newest is None else {newest.name: newest}
    checkpoints = {
        name: OffsetCheckpoint({}, checkpoint.damage) for name, checkpoint in log_dir.checkpoints.items() if checkpoint.damage
    }
    return replace(log_dir, found=LogDirectory(directory.path, entries, directories, [], []), checkpoints=checkpoints)


def _identities(part: PartitionSlice, controller: ControllerHistory) -> ControllerHistory:
    """The controller's state of this partition, and the topics, without histories, whose ids its copies carry."""
    key = part.topic, part.partition
    ids = {plan.context.topic_id for plan in part.replicas}
    return ControllerHistory(
        {key: controller.partitions[key]} if key in controller.partitions else {},
        {topic_id: replace(topic, partitions={}) for topic_id, topic in controller.topics.items() if topic_id in ids},
    )


def inputs_of(part: PartitionSlice, shared: SharedInputs) -> Inputs:
    """The slice as `Inputs`, which the judging functions take."""
    log_dirs = {
        id(log_dir): log_dir
        for log_dir in [*(plan.log_dir for plan in part.replicas), *(log_dir for log_dir, _ in part.renamed_directories)]
    }
    by_name = {(str(log_dir.broker), log_dir.name): log_dir for log_dir in log_dirs.values()}
    all_log_dirs = [by_name.get((str(other.broker), other.name)) or _unread_log_dir(other) for other in shared.log_dirs]
    replicas, _ = local_and_remote(part.replicas, lambda plan: plan.context)
    inputs = Inputs(all_log_dirs, replicas, relatives=part.relatives, features=shared.features, controller=part.controller)
    if part.renamed_directories:
        inputs.renamed_directories[part.topic, part.partition] = part.renamed_directories
    inputs.elsewhere = shared.source_names
    inputs.sources = list({id(log_dir.source): log_dir.source for log_dir in log_dirs.values()}.values())
    return inputs


def _unread_log_dir(other: OtherLogDir) -> LogDir:
    source, found = LocalSource(other.name), LogDirectory("", {}, [], [], [])
    return LogDir(source, other.name, found, other.broker, other.meta, other.clean_shutdown, node_id=other.node_id)


def task_notes(inputs: Inputs) -> TaskNotes:
    """What has to be recorded of the small files that were read from these inputs."""
    broken = [Incomplete(source.name, problem) for source in inputs.sources for problem in source.problems]
    return TaskNotes(inputs.manifest.files(), [*inputs.incomplete, *broken])


def merge_notes(inputs: Inputs, seen: TaskNotes) -> None:
    """Record a task's notes in the driver's inputs."""
    inputs.incomplete += seen.incomplete
    for source, entry in seen.files:
        inputs.manifest.record(source, entry)


EDGES_FIRST: Final = 1 << 62
"""Subtracted from the `start` of edges, see `StretchRow`."""


class TaskArguments(Struct):
    """Arguments that all tasks of a scan share."""

    options: ScanOptions
    key: "NDArray[np.int64]"
    """`digest_key`."""
    work_bytes: int
    """Size of all logs that the scan reads, which decides whether compiled kernels are worth their start-up time."""
    split_bytes: int
    shared: SharedInputs
    deep: bool = False
    """Whether every record is decoded."""
    deferred_keys_bytes: int | None = None
    """Size of logs from which key questions of a compacted partition get separate tasks (`DeferredKeys`); None: never."""


class WitnessAnswer(Struct):
    """What the logs of internal topics say."""

    witnesses: Witnesses
    task_notes: TaskNotes


class NumberedSplit(Struct):
    """A split by its number in a segment, see `numbered_range`."""

    segment: SegmentFiles
    number: int
    next_base_offset: int | None
    size_in_bytes: int


class FoldPart(Struct):
    """Splits of one replica of a numbered slice; `plan` has only what folding needs."""

    slice: int
    replica: int
    plan: ReplicaPlan
    pieces: list[NumberedSplit] = field(default_factory=list)


class FoldWork(Struct):
    """Splits that one task folds."""

    parts: list[FoldPart] = field(default_factory=list)


class StretchEdges(Struct):
    """The ends of a folded stretch, which show whether it meets its neighbours, and its index; its state is sent separately."""

    start: int
    end: int
    first: bool
    next_base_offset: int | None
    end_position: int
    incomplete: Incomplete | None
    index: IndexFold | None


class StretchRow(Struct, frozen=True):
    """Packed `StretchEdges`, or the `ReplicaState` of the same stretch, and where it belongs.

    Rows are sorted by these numbers. Edges have `EDGES_FIRST` subtracted from `start`: all edges of a segment come before its
    states, which may not fit in memory together.
    """

    slice: int
    replica: int
    segment: int
    start: int
    packed: bytes


class SliceAnswer(Struct):
    """The result of judging a slice: `answer` about its replicas, None without any; `lone` about leftovers without a replica."""

    answer: PartitionAnswer | RemoteLogAnswer | None
    leftover_findings: list[Finding]
    incomplete: list[Incomplete]
    task_notes: TaskNotes
    questions: "list[KeyQuestion]" = field(default_factory=list)
    """Key questions to answer first; then the slice must be judged again with the answers, and the rest of this is void."""


class KeyWork(Struct):
    """Segments of one log of a key question; `plan` has only what reading them needs.

    `question` and `number` number the question and its replica, `log` the log among those of all questions; `first` is the first
    segment's base offset. The last fields are arguments of `KeyReader`; its `decided`, which is of the whole log, is sent once.
    """

    question: int
    log: int
    number: int
    first: int
    plan: ReplicaPlan
    next_base_offset: int | None
    options: "KeyReadOptions"


class KeyWorkResult(Struct):
    """The result of reading a `KeyWork`, except its rows."""

    question: int
    number: int
    first: int
    part: "KeyPart"
