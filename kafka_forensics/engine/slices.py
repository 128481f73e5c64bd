"""What judging one partition needs of all that was gathered, small enough to go where the partition is judged."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kafka_forensics.evidence.inputs import Inputs, LogDir, ReplicaPlan
from kafka_forensics.model.controller import ControllerHistory
from kafka_forensics.model.files import CleanShutdown, MetaProperties, OffsetCheckpoint
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.log_dir import LogDirectory, PartitionDirectory
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.storage.source import ByteSource, Entry, EntryKind, place_of

if TYPE_CHECKING:
    from kafka_forensics.folding.keys import KeyAnswer

TopicPartition = tuple[str, int]


@dataclass(slots=True)
class Neighbour:
    """What is asked about a log directory whose replicas are not judged: whose it is."""

    broker: int | str
    name: str
    meta: MetaProperties | None
    clean_shutdown: CleanShutdown | None


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
    neighbours = [Neighbour(log_dir.broker, log_dir.name, log_dir.meta, log_dir.clean_shutdown) for log_dir in inputs.log_dirs]
    names, places = [source.name for source in inputs.sources], [place_of(source) for source in inputs.sources]
    return Surroundings(neighbours, names, places, inputs.features)


def slices(inputs: Inputs) -> Iterator[Slice]:
    """A slice for every partition with replicas or directories aside, by topic and partition."""
    found: dict[TopicPartition, Slice] = {}

    def of(key: TopicPartition) -> Slice:
        return found.setdefault(key, Slice(*key))

    for plan in inputs.replicas:
        of((plan.context.topic, plan.context.partition)).replicas.append(plan)
    for key, aside in inputs.aside.items():
        of(key).aside = aside
    for place, suffixes in inputs.relatives.items():
        if (key := (place[1] or "", place[2] or 0)) in found:
            found[key].relatives[place] = suffixes
    for key in sorted(found):
        yield _trimmed(found[key], inputs.controller)


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
    thin = {key: _thin(one, directories[key]) for key, one in log_dirs.items()}
    trimmed = replace(whole)
    trimmed.replicas = [replace(plan, log_dir=thin[id(plan.log_dir)]) for plan in whole.replicas]
    trimmed.aside = [(thin[id(log_dir)], directory) for log_dir, directory in whole.aside]
    trimmed.controller = None if controller is None else _identities(whole, controller)
    return trimmed


def _thin(log_dir: LogDir, directories: list[PartitionDirectory]) -> LogDir:
    found = log_dir.found
    entries = {name: entry for name, entry in found.entries.items() if entry.kind is not EntryKind.DIRECTORY}
    youngest = max(found.entries.values(), key=lambda entry: entry.mtime_ns, default=None)
    entries |= {} if youngest is None else {youngest.name: youngest}  # its time is the copy's
    checkpoints = {name: OffsetCheckpoint({}, checkpoint.damage) for name, checkpoint in log_dir.checkpoints.items()}
    return replace(log_dir, found=LogDirectory(found.path, entries, directories, [], []), checkpoints=checkpoints)


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
    log_dirs = {id(each): each for each in [*(plan.log_dir for plan in part.replicas), *(log_dir for log_dir, _ in part.aside)]}
    by_name = {(str(each.broker), each.name): each for each in log_dirs.values()}
    known = [by_name.get((str(neighbour.broker), neighbour.name)) or _stranger(neighbour) for neighbour in around.neighbours]
    inputs = Inputs(known, part.replicas, relatives=part.relatives, features=around.features, controller=part.controller)
    if part.aside:
        inputs.aside[part.topic, part.partition] = part.aside
    inputs.elsewhere = around.source_names
    inputs.sources = list({id(each.source): each.source for each in log_dirs.values()}.values())
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
    )


def noticed(inputs: Inputs) -> Noticed:
    """What came up while a slice was judged."""
    broken = [Incomplete(source.name, problem) for source in inputs.sources for problem in source.problems]
    return Noticed(inputs.manifest.files(), [*inputs.incomplete, *broken])
