"""The table of expected replicas: for every replica that a witness expects, which witness, and whether a copy exists.

Facts come from files that exist; this module decides what a missing file means. A replica is expected by the controllers' log
(which assigns it to a broker and one of its log directories), by a high-watermark checkpoint that lists it, and, if a log
directory was wiped and no controllers' log says what was in it, by the copies on other brokers. Replicas that only
`__remote_log_metadata` names are added when the scan is judged (`scanning/judging/absence.py`).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct, field

from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.controller import ControllerHistory, PartitionControl
from kafka_forensics.model.findings import TopicPartition

CONTROLLER: Final = "__cluster_metadata"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"  # replication.recovery has it too, but --help must not load that
OTHER_COPIES: Final = "copies on other brokers"
"""The witnesses that expect replicas."""
RESERVED_DIRECTORY_IDS: Final = frozenset({"AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"})
"""Reserved ids of no directory: unassigned, lost, migrating (Kafka's DirectoryId)."""


class Presence(StrEnum):
    """Whether, and how, a replica was copied."""

    WHOLE = "whole"
    """Its directory exists, with log files, whatever their content."""
    EMPTY = "empty"
    """Its directory exists, and its log is empty."""
    ABSENT = "absent"
    """Its log directory was given, without a directory of it: its broker will start with an empty log."""
    NOT_GIVEN = "not_given"
    """Its log directory was not given."""
    NOT_COPIED = "not_copied"
    """Its log directory was copied in part, without this replica."""
    LINK = "link"
    """Its directory, or a file of its log, is a link that was not followed, or a special file."""
    UNREADABLE = "unreadable"
    """Its directory could not be listed, or was copied without `.log` files."""


class CopyExtent(StrEnum):
    """How a log directory is read."""

    WHOLE = "whole"
    PARTIAL = "partial"
    """Copied in part, by hand."""
    WIPED = "wiped"
    """Contains nothing that a running broker writes: at most `meta.properties`."""


class GivenDirectory(Struct, frozen=True):
    """A log directory that was given, with its partitions and checkpoints."""

    broker: int | str
    name: str
    node_id: int | None = None
    directory_id: str | None = None
    partitions: Mapping[TopicPartition, Presence] = field(default_factory=dict)
    """Partitions that have a directory in it, including the controllers' log."""
    set_aside: frozenset[TopicPartition] = frozenset()
    """Partitions whose directory its broker renamed: `-delete`, `-stray`."""
    watermarks: Mapping[TopicPartition, int] = field(default_factory=dict)
    """`replication-offset-checkpoint`."""
    has_identity: bool = True
    """Whether it has `meta.properties`."""
    has_checkpoints: bool = True
    """Whether it has any offset checkpoint: a broker writes them when it starts."""
    is_without_log_dir: bool = False
    """Whether it is a partition directory, or a file, given without its log directory."""
    stopped_cleanly: bool = False
    of_another_cluster: bool = False
    """Whether it belongs, or may belong, to another cluster than the given controllers' log."""
    copied: CopyExtent | None = None
    """How it was copied, if the copy itself (a bundle) says so."""
    is_empty: bool = False
    """Whether it is completely empty, without `meta.properties`: a replaced disk, given with its broker's name."""
    log_starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """`log-start-offset-checkpoint`."""


class DirectoryReading(Struct, frozen=True):
    """How one log directory is read, and by which row of the table of `read_directory`."""

    directory: GivenDirectory
    extent: CopyExtent
    reason: str


class ExpectedReplica(Struct, frozen=True):
    """One replica: which witnesses expect it, and whether it was copied."""

    topic: str
    partition: int
    broker: int | str
    """Its name in the scan; the node id of a broker without any given directory."""
    presence: Presence
    expected_by: tuple[str, ...]
    log_dir: str | None = None
    """Its log directory; None if that was not given."""
    node: int | None = None
    """Its broker's node id; None if unknown."""
    is_assigned: bool | None = None
    """Whether the controllers' log assigns it to its broker; None if unknown."""
    is_deleted: bool = False
    """The controllers' log deleted the partition, possibly before its first record here."""
    never_known: bool = False
    """The controllers' log, complete from its first record, never had a topic of this name."""
    high_watermark: int | None = None
    """By its log directory's checkpoint."""
    is_set_aside: bool = False
    """Whether its broker renamed a directory of it, to be deleted or as a stray."""
    is_wiped: bool = False
    """Whether its whole log directory was wiped."""
    stopped_cleanly: bool = False
    log_start_offset: int = 0
    """By its log directory's checkpoint: records before it were deleted; 0 if that does not list it."""

    @property
    def key(self) -> TopicPartition:
        """Topic and partition."""
        return self.topic, self.partition


NOT_READ: Final = frozenset({Presence.LINK, Presence.UNREADABLE})
UNSEEN: Final = NOT_READ | {Presence.NOT_GIVEN, Presence.NOT_COPIED}
"""Cases in which unread records may exist: their absence proves nothing."""


def read_directory(
    directory: GivenDirectory, expected: Iterable[TopicPartition], copied: CopyExtent | None = None
) -> DirectoryReading:
    """How a log directory is read, by the first row that applies; `expected` are the partitions that should be in it.

    | row | extent |
    |---|---|
    | the user says so (`--partial`, `--whole`) | as the user says |
    | a partition directory or a file given by itself | partial |
    | an empty directory given with a broker's name | wiped |
    | no `meta.properties`, no checkpoint | partial: files gathered by hand |
    | `meta.properties`, no checkpoint, no partition | wiped |
    | it has some of the expected partitions, but most are missing | partial |
    | all else | whole |
    """
    keys = set(expected)
    absent = keys - directory.partitions.keys()
    has_data = any(topic != CLUSTER_METADATA_TOPIC for topic, _ in directory.partitions)
    bare = (directory.has_identity or directory.is_empty) and not directory.has_checkpoints and not has_data
    rows = (
        (directory.is_without_log_dir, CopyExtent.PARTIAL, "alone"),
        (copied is CopyExtent.WHOLE and bare, CopyExtent.WIPED, "said"),
        (copied is not None, copied or CopyExtent.WHOLE, "said"),
        (directory.is_empty, CopyExtent.WIPED, "empty"),
        (not directory.has_identity and not directory.has_checkpoints, CopyExtent.PARTIAL, "no_small_files"),
        (bare and (bool(keys) or not directory.partitions), CopyExtent.WIPED, "identity_alone"),
        (len(keys) < 2 * len(absent) < 2 * len(keys), CopyExtent.PARTIAL, "most_absent"),
    )
    extent, reason = next(((extent, reason) for applies, extent, reason in rows if applies), (CopyExtent.WHOLE, "whole"))
    return DirectoryReading(directory, extent, reason)


class Ledger:
    """The table of expected replicas; rows of a partition are in the order of brokers."""

    def __init__(
        self, directories: Sequence[GivenDirectory], controller: ControllerHistory | None = None, copied: CopyExtent | None = None
    ) -> None:
        self._controller = controller
        self._controlled = {} if controller is None else controller.partitions
        self._of_node: dict[int, list[GivenDirectory]] = {}
        self._of_broker: dict[int | str, list[GivenDirectory]] = {}
        for directory in directories:
            self._of_broker.setdefault(directory.broker, []).append(directory)
            if directory.node_id is not None:
                self._of_node.setdefault(directory.node_id, []).append(directory)
        self.all_nodes_known = all(directory.node_id is not None for directory in directories)
        """Whether every log directory has a node id: otherwise one of them may belong to a broker that seems not to be given."""
        assigned = self._assigned_to_directories()
        self.readings = []
        for directory in directories:
            expected = self._expected_in(directory, assigned.get(id(directory), ()))
            self.readings.append(read_directory(directory, expected, copied or directory.copied))
        self._extent = {id(reading.directory): reading.extent for reading in self.readings}
        self._wiped = [reading.directory for reading in self.readings if reading.extent is CopyExtent.WIPED]
        self._topics = frozenset(() if controller is None else (history.topic for history in controller.topics.values()))
        self._listed: dict[TopicPartition, list[GivenDirectory]] = {}
        """Directories whose high-watermark checkpoint lists a partition that they do not have."""
        self._present: dict[TopicPartition, list[GivenDirectory]] = {}
        for directory in directories:
            for key in directory.partitions:
                self._present.setdefault(key, []).append(directory)
            for key, offset in directory.watermarks.items():
                if offset > 0 and key not in directory.partitions and key not in directory.set_aside:
                    self._listed.setdefault(key, []).append(directory)

    def keys(self) -> list[TopicPartition]:
        """Every partition that is present or expected, in order."""
        return sorted({*self._present, *self._listed, *self._controlled})

    def rows(self, topic: str, partition: int) -> list[ExpectedReplica]:
        """The replicas of one partition, with and without a copy."""
        key = (topic, partition)
        replicas = [self._present_row(key, directory) for directory in self._present.get(key, ())]
        return replicas + [row for row in self.rows_without_copy(topic, partition) if row.presence not in NOT_READ]

    def rows_without_copy(self, topic: str, partition: int) -> list[ExpectedReplica]:
        """The replicas of one partition without a copy, or without a readable one."""
        key = (topic, partition)
        if topic == CLUSTER_METADATA_TOPIC:
            return []
        present = self._present.get(key, ())
        replicas = [self._present_row(key, directory) for directory in present if directory.partitions[key] in NOT_READ]
        holders = {directory.broker for directory in present}
        for directory in self._listed.get(key, ()):
            if directory.broker not in holders:
                replicas.append(self._absent_row(key, directory, (HIGH_WATERMARKS,)))
                holders.add(directory.broker)
        control = self._controlled.get(key)
        nodes = (control.replica_assignment if control is not None else None) or ()
        missing = [node for node in nodes if holders.isdisjoint(directory.broker for directory in self._of_node.get(node, ()))]
        replicas += [self._assigned_row(key, node) for node in missing]
        if self._assignment(key) is None and not self._is_unknown_to_controllers(key):
            for directory in self._wiped:
                is_on_others = any(other.broker != directory.broker for other in present)
                if directory.broker not in holders and is_on_others:
                    replicas.append(self._absent_row(key, directory, (OTHER_COPIES,)))
                    holders.add(directory.broker)
        return replicas

    def without_copy(self) -> Iterator[ExpectedReplica]:
        """All rows without a copy, by partition."""
        for key in self.keys():
            yield from self.rows_without_copy(*key)

    def _assignment(self, key: TopicPartition) -> frozenset[int] | None:
        """The nodes to which the controllers' log assigns a partition; None if unknown."""
        control = self._controlled.get(key)
        return None if control is None or control.replica_assignment is None else frozenset(control.replica_assignment)

    def has_directory(self, key: TopicPartition) -> bool:
        """Whether any given log directory has a directory of the partition."""
        return key in self._present

    def copies(self, key: TopicPartition) -> int:
        """How many given log directories have a directory of the partition."""
        return len(self._present.get(key, ()))

    @property
    def is_empty(self) -> bool:
        """Whether no partition is present, and none expected."""
        return not self.keys()

    def has_node(self, node: int) -> bool:
        """Whether a log directory of a node was given."""
        return node in self._of_node

    def _is_unknown_to_controllers(self, key: TopicPartition) -> bool:
        """Whether the given controllers' log has no such partition."""
        return self._controller is not None and key not in self._controlled

    def _is_assigned(self, key: TopicPartition, directory: GivenDirectory) -> bool | None:
        """Whether the controllers' log assigns a partition to the broker of a log directory; None if unknown."""
        nodes = self._assignment(key)
        return None if nodes is None or directory.node_id is None else directory.node_id in nodes

    def _present_row(self, key: TopicPartition, directory: GivenDirectory) -> ExpectedReplica:
        by = (HIGH_WATERMARKS,) if key in directory.watermarks else ()
        return self._row(key, directory, directory.partitions[key], by)

    def _absent_row(self, key: TopicPartition, directory: GivenDirectory, by: tuple[str, ...]) -> ExpectedReplica:
        is_partial = self._extent[id(directory)] is CopyExtent.PARTIAL
        return self._row(key, directory, Presence.NOT_COPIED if is_partial else Presence.ABSENT, by)

    def _assigned_row(self, key: TopicPartition, node: int) -> ExpectedReplica:
        """The row of a broker to which the controllers' log assigns a replica of which there is no copy."""
        given = self._of_node.get(node, [])
        directory_id = assigned_directory_id(self._controlled[key], node)
        with_id = _with_id(given, directory_id)
        wiped = [directory for directory in given if self._extent[id(directory)] is CopyExtent.WIPED]
        has_other_ids = directory_id is not None and all(directory.directory_id is not None for directory in given)
        if not given or (not with_id and not wiped and has_other_ids):
            broker = given[0].broker if given else node
            return ExpectedReplica(*key, broker, Presence.NOT_GIVEN, (CONTROLLER,), node=node, is_assigned=True)
        whole = [directory for directory in given if self._extent[id(directory)] is CopyExtent.WHOLE]
        return self._absent_row(key, (with_id or wiped or whole or given)[0], ())

    def _row(self, key: TopicPartition, directory: GivenDirectory, case: Presence, by: tuple[str, ...]) -> ExpectedReplica:
        controller, is_assigned = self._controller, self._is_assigned(key, directory)
        is_complete = controller is not None and controller.is_complete and not controller.log_start_offset
        never_known = (
            is_complete and self._is_unknown_to_controllers(key) and key[0] not in self._topics and not directory.of_another_cluster
        )
        return ExpectedReplica(
            *key,
            directory.broker,
            case,
            (*by, CONTROLLER) if is_assigned else by,
            directory.name,
            directory.node_id,
            is_assigned,
            self._is_unknown_to_controllers(key) and not never_known,
            never_known,
            directory.watermarks.get(key),
            any(key in other.set_aside for other in self._of_broker[directory.broker]),
            self._extent[id(directory)] is CopyExtent.WIPED,
            directory.stopped_cleanly,
            directory.log_starts.get(key, 0),
        )

    def _assigned_to_directories(self) -> dict[int, list[TopicPartition]]:
        """`id` of a log directory → partitions that the controllers' log assigns to it, or to its broker's only directory."""
        partitions: dict[int, list[TopicPartition]] = {}
        for key, control in self._controlled.items():
            for node in control.replica_assignment or ():
                given = self._of_node.get(node, [])
                with_id = _with_id(given, assigned_directory_id(control, node))
                for directory in (with_id or (given if len(given) == 1 else []))[:1]:
                    partitions.setdefault(id(directory), []).append(key)
        return partitions

    def _expected_in(self, directory: GivenDirectory, assigned: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Partitions that should be in a log directory by its checkpoint, unless the controllers contradict it, and by them."""
        listed = {key for key, offset in directory.watermarks.items() if offset > 0 and not self._is_unknown_to_controllers(key)}
        others = [other for other in self._of_broker[directory.broker] if other is not directory]
        elsewhere = {key for other in others for key in other.partitions}
        expected = (listed - directory.set_aside | set(assigned)) - elsewhere
        return {key for key in expected if key in directory.partitions or self._may_contain(directory, key)}

    def _may_contain(self, directory: GivenDirectory, key: TopicPartition) -> bool:
        """Whether the controllers' log assigns a partition to the directory's broker, or that is unknown."""
        nodes = self._assignment(key)
        return not nodes or directory.node_id is None or directory.node_id in nodes


def _with_id(directories: Iterable[GivenDirectory], directory_id: str | None) -> list[GivenDirectory]:
    return [directory for directory in directories if directory_id is not None and directory.directory_id == directory_id]


def assigned_directory_id(control: PartitionControl, node: int) -> str | None:
    """Id of the log directory to which a broker's replica is assigned; None if the records have none, or a reserved one."""
    pairs = zip(control.replica_assignment or (), control.directories or (), strict=False)
    directory = next((directory for broker, directory in pairs if broker == node), None)
    return None if directory in RESERVED_DIRECTORY_IDS else directory


def lost_directory_ids(
    controller: ControllerHistory | None, node: int, present: Collection[str | None]
) -> dict[TopicPartition, str]:
    """Partition → id of the log directory to which the controllers assign it on a node, if that id is not `present`."""
    partitions = {} if controller is None else controller.partitions
    assigned = ((key, assigned_directory_id(control, node)) for key, control in partitions.items())
    return {key: directory for key, directory in assigned if directory is not None and directory not in present}
