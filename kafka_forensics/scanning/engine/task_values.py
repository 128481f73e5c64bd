"""What the tasks of a scan are given, and what they give; all of it is serializable."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.segments import IndexFold
from kafka_forensics.evidence.inputs import Inputs, LogDir, ReplicaPlan
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.controller import ControllerHistory
from kafka_forensics.model.files import CleanShutdown, MetaProperties, OffsetCheckpoint
from kafka_forensics.model.findings import Finding, TopicPartition
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.log_dir import LogDirectory, PartitionDirectory, SegmentFiles
from kafka_forensics.scanning.judging.whole_scan import PartitionAnswer
from kafka_forensics.scanning.witnesses.witnesses import Witnesses
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.storage.source import ByteSource, Entry, place_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafka_forensics.scanning.folding.keys import KeyAnswer, KeyPart, KeyQuestion


# What judging one partition needs of all that was gathered, small enough to go where the partition is judged.


@dataclass(slots=True)
class Neighbour:
    """What is asked about a log directory whose replicas are not judged: whose it is."""

    broker: int | str
    name: str
    meta: MetaProperties | None
    clean_shutdown: CleanShutdown | None
    node_id: int | None


@dataclass(slots=True)
class Surroundings:
    """What every partition's slice has in common."""

    neighbours: list[Neighbour]
    source_names: list[str]
    places: list[str]
    """Where another process finds the sources."""
    features: dict[str, int]


@dataclass(slots=True)
class Slice:
    """One partition: the replicas to be judged, and the directories beside them."""

    topic: str
    partition: int
    replicas: list[ReplicaPlan] = field(default_factory=list)
    aside: list[tuple[LogDir, PartitionDirectory]] = field(default_factory=list)
    relatives: dict[tuple[int | str, str | None, int | None], set[str]] = field(default_factory=dict)
    controller: ControllerHistory | None = None
    """Of the controller's log only what bears on this partition's identity."""
    keys: "list[KeyAnswer] | None" = None
    """What was answered about its keys, None where nothing was asked yet."""


@dataclass(slots=True)
class Noticed:
    """What reading small files elsewhere leaves to be remembered here: files as they were, and what could not be read."""

    files: list[tuple[ByteSource, Entry]] = field(default_factory=list)
    incomplete: list[Incomplete] = field(default_factory=list)


def surroundings(inputs: Inputs) -> Surroundings:
    """Of all that was gathered, once the controller's log is read."""
    neighbours = [
        Neighbour(log_dir.broker, log_dir.name, log_dir.meta, log_dir.clean_shutdown, log_dir.node_id)
        for log_dir in inputs.log_dirs
    ]
    names, places = [source.name for source in inputs.sources], [place_of(source) for source in inputs.sources]
    return Surroundings(neighbours, names, places, inputs.features)


def slices(inputs: Inputs) -> Iterator[Slice]:
    """A slice for every partition with replicas or directories aside, by topic and partition."""
    by_partition: dict[TopicPartition, Slice] = {}

    def of(key: TopicPartition) -> Slice:
        return by_partition.setdefault(key, Slice(*key))

    for plan in inputs.replicas:
        of((plan.context.topic, plan.context.partition)).replicas.append(plan)
    for key, aside in inputs.aside.items():
        of(key).aside = aside
    for place, suffixes in inputs.relatives.items():
        if (key := (place[1] or "", place[2] or 0)) in by_partition:
            by_partition[key].relatives[place] = suffixes
    for key in sorted(by_partition):
        yield _trimmed(by_partition[key], inputs.controller)


def thin_plans(plans: list[ReplicaPlan]) -> list[ReplicaPlan]:
    """The plans with log directories that hold these replicas alone."""
    return _trimmed(Slice("", -1, plans), None).replicas


def _trimmed(whole: Slice, controller: ControllerHistory | None) -> Slice:
    """The slice with log directories that hold this partition alone."""
    directories: dict[int, list[PartitionDirectory]] = {}
    log_dirs: dict[int, LogDir] = {}
    for log_dir, directory in [*((plan.log_dir, plan.directory) for plan in whole.replicas), *whole.aside]:
        directories.setdefault(id(log_dir), []).append(directory)
        log_dirs[id(log_dir)] = log_dir
    thin = {key: _thin(log_dir, directories[key]) for key, log_dir in log_dirs.items()}
    trimmed = replace(whole)
    trimmed.replicas = [replace(plan, log_dir=thin[id(plan.log_dir)]) for plan in whole.replicas]
    trimmed.aside = [(thin[id(log_dir)], directory) for log_dir, directory in whole.aside]
    trimmed.controller = None if controller is None else _identities(whole, controller)
    return trimmed


def _thin(log_dir: LogDir, directories: list[PartitionDirectory]) -> LogDir:
    """The log directory with these partitions alone; of its files the one that was changed last, whose time is the copy's, and the
    damage of its checkpoints."""
    directory = log_dir.found
    youngest = max(directory.entries.values(), key=lambda entry: entry.mtime_ns, default=None)
    entries = {} if youngest is None else {youngest.name: youngest}
    checkpoints = {
        name: OffsetCheckpoint({}, checkpoint.damage) for name, checkpoint in log_dir.checkpoints.items() if checkpoint.damage
    }
    return replace(log_dir, found=LogDirectory(directory.path, entries, directories, [], []), checkpoints=checkpoints)


def _identities(part: Slice, controller: ControllerHistory) -> ControllerHistory:
    """The controller's word on this partition and on the topics whose ids its copies carry, without their histories."""
    key = part.topic, part.partition
    ids = {plan.context.topic_id for plan in part.replicas}
    return ControllerHistory(
        {key: controller.partitions[key]} if key in controller.partitions else {},
        {topic_id: replace(topic, partitions={}) for topic_id, topic in controller.topics.items() if topic_id in ids},
    )


def inputs_of(part: Slice, around: Surroundings) -> Inputs:
    """The slice as inputs, to be judged like any others."""
    log_dirs = {
        id(log_dir): log_dir for log_dir in [*(plan.log_dir for plan in part.replicas), *(log_dir for log_dir, _ in part.aside)]
    }
    by_name = {(str(log_dir.broker), log_dir.name): log_dir for log_dir in log_dirs.values()}
    known = [by_name.get((str(neighbour.broker), neighbour.name)) or _stranger(neighbour) for neighbour in around.neighbours]
    inputs = Inputs(known, part.replicas, relatives=part.relatives, features=around.features, controller=part.controller)
    if part.aside:
        inputs.aside[part.topic, part.partition] = part.aside
    inputs.elsewhere = around.source_names
    inputs.sources = list({id(log_dir.source): log_dir.source for log_dir in log_dirs.values()}.values())
    return inputs


def _stranger(neighbour: Neighbour) -> LogDir:
    """A log directory of which nothing is read here."""
    return LogDir(
        LocalSource(neighbour.name),
        neighbour.name,
        LogDirectory("", {}, [], [], []),
        neighbour.broker,
        neighbour.meta,
        neighbour.clean_shutdown,
        node_id=neighbour.node_id,
    )


def noticed(inputs: Inputs) -> Noticed:
    """What came up while a slice was judged."""
    broken = [Incomplete(source.name, problem) for source in inputs.sources for problem in source.problems]
    return Noticed(inputs.manifest.files(), [*inputs.incomplete, *broken])


def notice(inputs: Inputs, seen: Noticed) -> None:
    """Remember here what was noticed elsewhere."""
    inputs.incomplete += seen.incomplete
    for source, entry in seen.files:
        inputs.manifest.record(source, entry)


EDGES_FIRST: Final = 1 << 62


@dataclass(slots=True)
class Common:
    """What all tasks of a scan have in common."""

    options: ScanOptions
    key: "NDArray[np.int64]"
    """`digest_key`."""
    work_bytes: int
    """Of all logs that the scan reads: whether compiled kernels are worth their start."""
    split_bytes: int
    around: Surroundings
    deep: bool = False
    """Whether every record is decoded."""
    keys_apart_bytes: int | None = None
    """From how many bytes of logs on the keys of a compacted partition are asked for (`KeysApart`), None: never."""


@dataclass(slots=True)
class WitnessWork:
    """Replicas of the topics that are evidence themselves."""

    internal: list[ReplicaPlan]


@dataclass(slots=True)
class WitnessAnswer:
    """What they say."""

    witnesses: Witnesses
    noticed: Noticed


@dataclass(slots=True)
class NumberedSplit:
    """A split by its number (`numbered_range`) in a segment."""

    segment: SegmentFiles
    number: int
    next_base_offset: int | None
    size_in_bytes: int


@dataclass(slots=True)
class FoldPart:
    """Pieces of one replica of one slice, by their numbers; `plan` knows only what folding asks for."""

    slice: int
    replica: int
    plan: ReplicaPlan
    pieces: list[NumberedSplit] = field(default_factory=list)


@dataclass(slots=True)
class FoldWork:
    """Pieces to be folded by one task."""

    parts: list[FoldPart] = field(default_factory=list)
    size_in_bytes: int = 0


@dataclass(slots=True)
class StretchEdges:
    """A folded stretch without its state: what tells whether it meets its neighbours, and whether its index fits."""

    start: int
    end: int
    first: bool
    next_base_offset: int | None
    landed: int
    incomplete: Incomplete | None
    index: IndexFold | None


@dataclass(frozen=True, slots=True)
class StretchRow:
    """Packed `StretchEdges`, or the `ReplicaState` that goes with them, and where it belongs.

    Rows are put together in the order of these numbers. Edges have their `start` lowered by EDGES_FIRST, so that those of a whole
    segment come before its states, of which there can be more than fit in memory together.
    """

    slice: int
    replica: int
    segment: int
    start: int
    packed: bytes


@dataclass(slots=True)
class SliceAnswer:
    """What came of a slice: about its replicas, None without any, and about the files aside of a partition without replicas."""

    answer: PartitionAnswer | None
    lone: list[Finding]
    incomplete: list[Incomplete]
    noticed: Noticed
    questions: "list[KeyQuestion]" = field(default_factory=list)
    """What must be answered first: the slice is to be judged again with the answers, and this is no answer about it."""


@dataclass(slots=True)
class KeyWork:
    """Segments of replica `number` of those that a question asks about; `plan` knows only what reading them asks for.

    `question` is its number, `log` the replica's among those of all questions, `first` the first segment's base offset; the
    rest is as `KeyReader` takes it, but for what was decided of transactions: that of a whole log, it is sent once.
    """

    question: int
    log: int
    number: int
    first: int
    plan: ReplicaPlan
    next_base_offset: int | None
    cuts: "NDArray[np.int64]"
    seed: int
    delete_retention_ms: int
    hash_key: str | None = None


@dataclass(slots=True)
class KeyReading:
    """What reading a `KeyWork` gave beside rows."""

    question: int
    number: int
    first: int
    part: "KeyPart"
