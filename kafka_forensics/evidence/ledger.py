"""The ledger of what should be there: for every replica that a witness expects, who expects it and what is the case.

Facts come from files that exist; this is the one place that says what it means that a file does not. A replica is expected by the
controllers' log (who is assigned, and to which of its log directories), by a high-watermark checkpoint that names it, and, where a
log directory was wiped and no controllers' log says what it held, by the copies on other brokers.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.controller import ControllerHistory, PartitionControl
from kafka_forensics.model.findings import TopicPartition

CONTROLLER: Final = "__cluster_metadata"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
OTHER_COPIES: Final = "copies on other brokers"
"""Who expects a replica."""
RESERVED_DIRECTORY_IDS: Final = frozenset({"AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"})
"""Ids that name no directory: unassigned, lost, migrating (DirectoryId)."""


class Presence(StrEnum):
    """What is the case with a replica."""

    WHOLE = "whole"
    """Its directory is there, with log files; what they hold is for others to judge."""
    EMPTY = "empty"
    """Its directory is there, and its log holds nothing."""
    ABSENT = "absent"
    """The log directory it belongs to was given, and no directory of it is there: its broker will start with an empty log."""
    NOT_GIVEN = "not_given"
    """Nothing of the log directory it belongs to was given."""
    NOT_COPIED = "not_copied"
    """The log directory was copied in part, and this replica is not in the copy."""
    LINK = "link"
    """Its directory, or a file of its log, is a link that was not followed, or a special file."""
    UNREADABLE = "unreadable"
    """Its directory is there and could not be listed, or was copied without `.log` files."""


class Extent(StrEnum):
    """How a log directory is read."""

    WHOLE = "whole"
    PARTIAL = "partial"
    """Copied in part, by hand."""
    WIPED = "wiped"
    """It holds nothing that a broker writes when it runs: `meta.properties` at most."""


@dataclass(frozen=True, slots=True)
class GivenDirectory:
    """A log directory that was given, as its listing and its checkpoints show it."""

    broker: int | str
    name: str
    node_id: int | None = None
    directory_id: str | None = None
    there: Mapping[TopicPartition, Presence] = field(default_factory=dict)
    """Partitions with a directory of their own; the controllers' log among them."""
    set_aside: frozenset[TopicPartition] = frozenset()
    """Partitions of which its broker renamed the directory: `-delete`, `-stray`."""
    watermarks: Mapping[TopicPartition, int] = field(default_factory=dict)
    """`replication-offset-checkpoint`."""
    has_identity: bool = True
    """Whether `meta.properties` is there."""
    has_checkpoints: bool = True
    """Whether any offset checkpoint is there: a broker writes them when it starts."""
    is_alone: bool = False
    """Whether it is a partition directory, or a file, that was given without the log directory around it."""
    stopped_cleanly: bool = False
    of_another_cluster: bool = False
    """Whether it is, or may be, of another cluster than the controllers' log that was given."""
    copied: Extent | None = None
    """How it was copied, by what the copy itself says."""
    is_empty: bool = False
    """Whether nothing at all is in it, not even `meta.properties`: a replaced disk, which was given with its broker's name."""
    log_starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """`log-start-offset-checkpoint`."""


@dataclass(frozen=True, slots=True)
class DirectoryReading:
    """How one log directory is read, and by which row of the table; see `read_directory`."""

    directory: GivenDirectory
    reading: Extent
    reason: str


@dataclass(frozen=True, slots=True)
class ExpectedReplica:
    """A row of the ledger: one replica, what is expected of it, and what is the case."""

    topic: str
    partition: int
    broker: int | str
    """As the scan calls it; of a broker of which nothing was given, its node id."""
    case: Presence
    expected_by: tuple[str, ...]
    log_dir: str | None = None
    """The log directory given to which it belongs; None where none was."""
    node: int | None = None
    """What the controllers call its broker; None where nothing says."""
    is_assigned: bool | None = None
    """Whether the controllers' log gives its broker a replica; None where it does not say."""
    is_deleted: bool = False
    """The controllers' log deleted the partition, or may have done so before it begins."""
    never_known: bool = False
    """The controllers' log, which is here from its beginning, never had a topic of this name."""
    high_watermark: int | None = None
    """By its log directory's checkpoint."""
    is_set_aside: bool = False
    """Whether its broker has renamed a directory of it, to be deleted or as a stray."""
    is_wiped: bool = False
    """Whether all of its log directory is gone."""
    stopped_cleanly: bool = False
    log_start_offset: int = 0
    """By its log directory's checkpoint: what lay before was deleted; 0 where that does not name it."""

    @property
    def key(self) -> TopicPartition:
        """Topic and partition."""
        return self.topic, self.partition


NOT_READ: Final = frozenset({Presence.LINK, Presence.UNREADABLE})
UNSEEN: Final = NOT_READ | {Presence.NOT_GIVEN, Presence.NOT_COPIED}
"""Cases in which records may be where nobody looked, so that nothing follows from what is not there."""


def read_directory(directory: GivenDirectory, expected: Iterable[TopicPartition], copied: Extent | None = None) -> DirectoryReading:
    """How a log directory is read, by the first row that fits; `expected` are partitions that should lie in it.

    | row | reading |
    |---|---|
    | the user said so (`--partial`, `--whole`) | as said |
    | a partition directory or a file given by itself | partial |
    | an empty directory that was given as a broker's | wiped |
    | no `meta.properties`, no checkpoint | partial: files gathered by hand |
    | `meta.properties`, no checkpoint, no partition | wiped |
    | some of the expected partitions are there, and most are not | partial |
    | all else | whole |
    """
    wanted = set(expected)
    absent = wanted - directory.there.keys()
    has_data = any(topic != CLUSTER_METADATA_TOPIC for topic, _ in directory.there)
    bare = (directory.has_identity or directory.is_empty) and not directory.has_checkpoints and not has_data
    rows = (
        (directory.is_alone, Extent.PARTIAL, "alone"),
        (copied is Extent.WHOLE and bare, Extent.WIPED, "said"),
        (copied is not None, copied or Extent.WHOLE, "said"),
        (directory.is_empty, Extent.WIPED, "empty"),
        (not directory.has_identity and not directory.has_checkpoints, Extent.PARTIAL, "no_small_files"),
        (bare and (bool(wanted) or not directory.there), Extent.WIPED, "identity_alone"),
        (len(wanted) < 2 * len(absent) < 2 * len(wanted), Extent.PARTIAL, "most_absent"),
    )
    extent, reason = next(((extent, reason) for fits, extent, reason in rows if fits), (Extent.WHOLE, "whole"))
    return DirectoryReading(directory, extent, reason)


class Ledger:
    """Every replica that is expected, with what is the case; rows of a partition by broker."""

    def __init__(
        self, directories: Sequence[GivenDirectory], controller: ControllerHistory | None = None, copied: Extent | None = None
    ) -> None:
        self._directories = directories
        self._controller = controller
        self._of_node: dict[int, list[GivenDirectory]] = {}
        self._of_broker: dict[int | str, list[GivenDirectory]] = {}
        for given_directory in directories:
            self._of_broker.setdefault(given_directory.broker, []).append(given_directory)
            if given_directory.node_id is not None:
                self._of_node.setdefault(given_directory.node_id, []).append(given_directory)
        self.nodes_known = all(given_directory.node_id is not None for given_directory in directories)
        """Whether every log directory says whose it is: else one of them may be of a broker that seems not to be given."""
        assigned = self._assigned_to_directories()
        self.readings = [
            read_directory(
                given_directory,
                self._expected_in(given_directory, assigned.get(id(given_directory), ())),
                copied or given_directory.copied,
            )
            for given_directory in directories
        ]
        self._reading = {id(reading.directory): reading.reading for reading in self.readings}
        self._wiped = [reading.directory for reading in self.readings if reading.reading is Extent.WIPED]
        self._topics_known = (
            frozenset() if controller is None else frozenset(history.topic for history in controller.topics.values())
        )
        self._named: dict[TopicPartition, list[GivenDirectory]] = {}
        self._there: dict[TopicPartition, list[GivenDirectory]] = {}
        for given_directory in directories:
            for key in given_directory.there:
                self._there.setdefault(key, []).append(given_directory)
            for key, offset in given_directory.watermarks.items():
                if offset > 0 and key not in given_directory.there and key not in given_directory.set_aside:
                    self._named.setdefault(key, []).append(given_directory)

    def keys(self) -> list[TopicPartition]:
        """Every partition that is there or expected, in order."""
        known = () if self._controller is None else self._controller.partitions
        return sorted({*self._there, *self._named, *known})

    def rows(self, topic: str, partition: int) -> list[ExpectedReplica]:
        """The replicas of one partition; those of which a copy is there among them."""
        key = (topic, partition)
        known = self._assignment(key)
        replicas = [self._there_row(key, given_directory, known) for given_directory in self._there.get(key, ())]
        without = [row for row in self.rows_without_copy(topic, partition) if row.case not in NOT_READ]
        return replicas + without

    def _assigned_elsewhere(self, key: TopicPartition, holders: set[int | str]) -> Iterator[ExpectedReplica]:
        """Replicas that the controllers' log assigns to nodes none of whose directories is known to hold one."""
        control = None if self._controller is None else self._controller.partitions.get(key)
        for node in (control.replica_assignment if control is not None else None) or ():
            given = self._of_node.get(node, [])
            if not any(given_directory.broker in holders for given_directory in given):
                yield self._assigned_row(key, node, given, control)

    def rows_without_copy(self, topic: str, partition: int) -> list[ExpectedReplica]:
        """The replicas of one partition of which no copy is there, or none that could be read."""
        key = (topic, partition)
        if topic == CLUSTER_METADATA_TOPIC:
            return []
        there = self._there.get(key, ())
        known = self._assignment(key)
        replicas = [
            self._there_row(key, given_directory, known) for given_directory in there if given_directory.there[key] in NOT_READ
        ]
        holders = {given_directory.broker for given_directory in there}
        for given_directory in self._named.get(key, ()):
            if given_directory.broker not in holders:
                replicas.append(self._absent_row(key, given_directory, (HIGH_WATERMARKS,), known))
                holders.add(given_directory.broker)
        replicas += self._assigned_elsewhere(key, holders)
        if known is None and self._wiped and not self._is_gone(key):
            for given_directory in self._wiped:
                if given_directory.broker not in holders and self._elsewhere(key, given_directory):
                    replicas.append(self._absent_row(key, given_directory, (OTHER_COPIES,), None))
                    holders.add(given_directory.broker)
        return replicas

    def without_copy(self) -> Iterator[ExpectedReplica]:
        """All rows without a copy, by partition."""
        for key in self.keys():
            yield from self.rows_without_copy(*key)

    def _assignment(self, key: TopicPartition) -> frozenset[int] | None:
        """Who has a replica by the controllers' log; None where it does not say."""
        control = None if self._controller is None else self._controller.partitions.get(key)
        return None if control is None or control.replica_assignment is None else frozenset(control.replica_assignment)

    def is_there(self, key: TopicPartition) -> bool:
        """Whether any log directory given has a directory of the partition."""
        return key in self._there

    def copies(self, key: TopicPartition) -> int:
        """How many log directories given have a directory of the partition."""
        return len(self._there.get(key, ()))

    @property
    def is_empty(self) -> bool:
        """Whether no partition is there, and none expected."""
        return not self.keys()

    def has_node(self, node: int) -> bool:
        """Whether a log directory of a node was given."""
        return node in self._of_node

    def _is_gone(self, key: TopicPartition) -> bool:
        """Whether the controllers' log is there and knows no such partition."""
        return self._controller is not None and key not in self._controller.partitions

    def _was_never_known(self, key: TopicPartition, directory: GivenDirectory) -> bool:
        """Whether the controllers' log of the directory's cluster is here from its beginning and never had such a topic."""
        known = self._controller
        if known is None or known.log_start_offset or not known.is_complete:
            return False
        return self._is_gone(key) and key[0] not in self._topics_known and not directory.of_another_cluster

    def _elsewhere(self, key: TopicPartition, wiped: GivenDirectory) -> bool:
        """Whether another broker of the same cluster holds the partition."""
        return any(given_directory.broker != wiped.broker for given_directory in self._there.get(key, ()))

    def _there_row(self, key: TopicPartition, given_directory: GivenDirectory, known: frozenset[int] | None) -> ExpectedReplica:
        by = [HIGH_WATERMARKS] if key in given_directory.watermarks else []
        assigned = None if known is None or given_directory.node_id is None else given_directory.node_id in known
        by += [CONTROLLER] if assigned else []
        return self._row(key, given_directory, given_directory.there[key], tuple(by), assigned)

    def _absent_row(
        self, key: TopicPartition, given_directory: GivenDirectory, by: tuple[str, ...], known: frozenset[int] | None
    ) -> ExpectedReplica:
        case = Presence.NOT_COPIED if self._reading[id(given_directory)] is Extent.PARTIAL else Presence.ABSENT
        assigned = None if known is None or given_directory.node_id is None else given_directory.node_id in known
        return self._row(key, given_directory, case, (*by, CONTROLLER) if assigned else by, assigned)

    def _assigned_row(
        self, key: TopicPartition, node: int, given: list[GivenDirectory], control: PartitionControl | None
    ) -> ExpectedReplica:
        """The row of a broker that the controllers' log assigns a replica to, and of which no copy is there."""
        assert control is not None
        if not given:
            return ExpectedReplica(*key, node, Presence.NOT_GIVEN, (CONTROLLER,), node=node, is_assigned=True)
        directory_id = directory_of(control, node)
        fitting = [
            given_directory
            for given_directory in given
            if directory_id is not None and given_directory.directory_id == directory_id
        ]
        wiped = [given_directory for given_directory in given if self._reading[id(given_directory)] is Extent.WIPED]
        if (
            not fitting
            and not wiped
            and directory_id is not None
            and all(given_directory.directory_id is not None for given_directory in given)
        ):
            return ExpectedReplica(*key, given[0].broker, Presence.NOT_GIVEN, (CONTROLLER,), node=node, is_assigned=True)
        whole = [given_directory for given_directory in given if self._reading[id(given_directory)] is Extent.WHOLE]
        return self._absent_row(key, (fitting or wiped or whole or given)[0], (), frozenset([node]))

    def _row(
        self, key: TopicPartition, given_directory: GivenDirectory, case: Presence, by: tuple[str, ...], assigned: bool | None
    ) -> ExpectedReplica:
        never_known = self._was_never_known(key, given_directory)
        return ExpectedReplica(
            *key,
            given_directory.broker,
            case,
            by,
            given_directory.name,
            given_directory.node_id,
            assigned,
            self._is_gone(key) and not never_known,
            never_known,
            given_directory.watermarks.get(key),
            any(key in other.set_aside for other in self._of_broker[given_directory.broker]),
            self._reading[id(given_directory)] is Extent.WIPED,
            given_directory.stopped_cleanly,
            given_directory.log_starts.get(key, 0),
        )

    def _assigned_to_directories(self) -> dict[int, list[TopicPartition]]:
        """`id` of a log directory → partitions that the controllers' log assigns to it, or to its broker's only directory."""
        partitions_by_broker: dict[int, list[TopicPartition]] = {}
        for key, control in ({} if self._controller is None else self._controller.partitions).items():
            for node in control.replica_assignment or ():
                given = self._of_node.get(node, ())
                directory_id = directory_of(control, node)
                fitting = [
                    given_directory
                    for given_directory in given
                    if directory_id is not None and given_directory.directory_id == directory_id
                ]
                if not fitting and len(given) == 1:
                    fitting = list(given)
                for given_directory in fitting[:1]:
                    partitions_by_broker.setdefault(id(given_directory), []).append(key)
        return partitions_by_broker

    def _expected_in(self, directory: GivenDirectory, assigned: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Partitions that should lie in a log directory: by its checkpoint, unless the controllers say otherwise, and by them."""
        of_broker = self._of_broker[directory.broker]
        named = {key for key, offset in directory.watermarks.items() if offset > 0 and not self._is_gone(key)}
        named -= directory.set_aside
        elsewhere = {key for given_directory in of_broker if given_directory is not directory for key in given_directory.there}
        expected = named | {key for key in assigned if key not in elsewhere}
        if self._controller is None:
            return expected - elsewhere
        return {key for key in expected - elsewhere if key in directory.there or self._may_hold(directory, key)}

    def _may_hold(self, directory: GivenDirectory, key: TopicPartition) -> bool:
        """Whether the controllers' log, which knows the partition, gives the directory's broker a replica, or does not say."""
        assert self._controller is not None
        assignment = self._controller.partitions[key].replica_assignment
        return not assignment or directory.node_id is None or directory.node_id in assignment


def directory_of(control: PartitionControl, node: int) -> str | None:
    """Id of the log directory to which a broker's replica is assigned; None where records do not carry it, or name none."""
    pairs = zip(control.replica_assignment or (), control.directories or (), strict=False)
    directory = next((directory for broker, directory in pairs if broker == node), None)
    return None if directory in RESERVED_DIRECTORY_IDS else directory


def lost_directory_ids(
    controller: ControllerHistory | None, node: int, present: Collection[str | None]
) -> dict[TopicPartition, str]:
    """Ids of log directories of a node, by the partitions that the controllers assign there, without ids that are `present`."""
    partitions = {} if controller is None else controller.partitions
    assigned = ((key, directory_of(control, node)) for key, control in partitions.items())
    return {key: directory for key, directory in assigned if directory is not None and directory not in present}
