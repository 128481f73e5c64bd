"""What a start does with a damaged small file, measured with real brokers (docs/starts.md, made by `python -m lab.start_table`)."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

from kafka_forensics.model.batches import Damage
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC

KRAFT_DIRECTORY: Final = f"{CLUSTER_METADATA_TOPIC}-0"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
PARTITION_METADATA: Final = "partition.metadata"
BOOTSTRAP: Final = "bootstrap.checkpoint"
RIGHT: Final = "right"
ABSENT: Final = "absent"
EMPTY: Final = "empty"
VERSION_ONLY: Final = "version_only"


class StartOutcome(Enum):
    """The outcome of a start; the values are those of `lab/starts.tsv`."""

    BROKER_STOPS = "broker_stops"
    """Even if it has another log directory."""
    DIRECTORY_OFFLINE = "directory_offline"
    """A broker without another log directory stops."""
    REFUSED = "refused"
    """The node runs, and the others of its cluster reject its requests."""
    NOT_SERVED = "not_served"
    """The broker runs, but may serve no log of the file's directory."""
    BEGINS_EMPTY = "begins_empty"
    """The broker renames the log and starts with an empty one."""
    SERVES_OTHER = "serves_other_records"
    """Other offsets or records than with the right file."""
    CLEANER_STOPS = "cleaner_stops"
    REBUILT = "rebuilt"
    """The broker serves everything and rewrites the file."""
    IGNORED = "ignored"
    """The broker serves everything and leaves the file as it is."""


NOT_ALL_SERVED: Final = frozenset(
    {
        StartOutcome.BROKER_STOPS,
        StartOutcome.DIRECTORY_OFFLINE,
        StartOutcome.REFUSED,
        StartOutcome.NOT_SERVED,
        StartOutcome.BEGINS_EMPTY,
    }
)
"""Outcomes after which not all logs are served."""
_OTHER: Final = "other"
OUTCOMES: Final[Mapping[str, Mapping[StartOutcome, str]]] = {
    "replication-offset-checkpoint": {
        StartOutcome.REBUILT: "right absent empty version_only negative unterminated topic",
        StartOutcome.NOT_SERVED: "offset partition",
        StartOutcome.DIRECTORY_OFFLINE: _OTHER,
    },
    "recovery-point-offset-checkpoint": {
        StartOutcome.REBUILT: "right absent empty version_only offset negative unterminated topic partition",
        StartOutcome.BROKER_STOPS: _OTHER,
    },
    "log-start-offset-checkpoint": {
        StartOutcome.IGNORED: "right",
        StartOutcome.REBUILT: "unterminated",
        StartOutcome.SERVES_OTHER: "absent empty version_only offset negative topic partition",
        StartOutcome.BROKER_STOPS: _OTHER,
    },
    "cleaner-offset-checkpoint": {
        StartOutcome.IGNORED: "right unterminated",
        StartOutcome.REBUILT: "absent empty version_only negative topic",
        StartOutcome.CLEANER_STOPS: "offset partition",
        StartOutcome.DIRECTORY_OFFLINE: _OTHER,
    },
    META_PROPERTIES: {
        StartOutcome.IGNORED: "right",
        StartOutcome.NOT_SERVED: "no_directory.id",
        StartOutcome.REFUSED: "cluster_id_empty",
        StartOutcome.BROKER_STOPS: _OTHER,
    },
    CLEAN_SHUTDOWN: {StartOutcome.IGNORED: _OTHER},
    BOOTSTRAP: {StartOutcome.IGNORED: "right absent", StartOutcome.BROKER_STOPS: _OTHER},
    f"{KRAFT_DIRECTORY}/quorum-state": {StartOutcome.REBUILT: "right absent", StartOutcome.BROKER_STOPS: _OTHER},
    f"{KRAFT_DIRECTORY}/leader-epoch-checkpoint": {
        StartOutcome.REBUILT: "right absent empty version_only unterminated",
        StartOutcome.BROKER_STOPS: _OTHER,
    },
    f"{KRAFT_DIRECTORY}/{PARTITION_METADATA}": {
        StartOutcome.REBUILT: "absent",
        StartOutcome.IGNORED: "right version",
        StartOutcome.BROKER_STOPS: _OTHER,
    },
    "leader-epoch-checkpoint": {
        StartOutcome.REBUILT: "right absent empty version_only unterminated",
        StartOutcome.BROKER_STOPS: "epoch offset negative",
        StartOutcome.DIRECTORY_OFFLINE: _OTHER,
    },
    PARTITION_METADATA: {
        StartOutcome.BEGINS_EMPTY: "absent",
        StartOutcome.IGNORED: "right version",
        StartOutcome.BROKER_STOPS: "empty version_only topic_id no_topic_id",
        StartOutcome.DIRECTORY_OFFLINE: _OTHER,
    },
}
"""Small file → outcome → kinds of damage (`damage_name`) that lead to it. Damage that takes a directory offline and also stops a
broker that has another one counts as `BROKER_STOPS`."""


def table_name(file: str) -> str:
    """The key in `OUTCOMES` of a file of a log directory: its name without the partition directory, except
    `__cluster_metadata-0`."""
    directory, _, name = file.rpartition("/")
    is_of_controllers = directory.startswith(f"{CLUSTER_METADATA_TOPIC}-") or name == "quorum-state"
    return f"{KRAFT_DIRECTORY}/{name}" if is_of_controllers else name


def start_outcome(file: str, damage: str) -> StartOutcome:
    """The outcome of a start with a damaged small file; `file` is its path in the log directory."""
    outcomes = {name: outcome for outcome, names in OUTCOMES[table_name(file)].items() for name in names.split()}
    return outcomes.get(damage, outcomes[_OTHER])


def outcome_of(file: str, damage: Sequence[Damage], size_in_bytes: int | None = None) -> StartOutcome:
    """The same from the damage that a parser found."""
    return start_outcome(file, damage_name(damage, size_in_bytes))


_READ_ON: Final = frozenset({"negative", "topic", "unterminated"})
"""Damage that does not end Kafka's reading of a file."""


def damage_name(damage: Sequence[Damage], size_in_bytes: int | None = None) -> str:
    """The kind of damage that ends Kafka's reading of a file, from the parser's reasons. Kafka reads line by line and compares the
    number of entries at the end (CheckpointFile)."""
    if size_in_bytes == 0:
        return EMPTY
    in_order = sorted(damage, key=lambda row: row.detail.get("reason") == "count" and "found" in row.detail)
    names = [_name(row) for row in in_order]
    return next((name for name in names if not is_read_on(name)), names[0] if names else RIGHT)


def _name(damage: Damage) -> str:
    reason = str(damage.detail.get("reason"))
    if reason == "missing":
        return f"no_{damage.detail.get('key')}"
    return VERSION_ONLY if reason == "count" and not damage.size_in_bytes else reason  # there is no second line


def is_read_on(name: str) -> bool:
    """Whether Kafka reads the rest of a file with this kind of damage."""
    return name in _READ_ON


def is_movable(file: str) -> bool:
    """Whether a broker starts without a small file and serves its logs, in which case a damaged one may be moved out of the log
    directory."""
    return table_name(file) in OUTCOMES and start_outcome(file, ABSENT) not in NOT_ALL_SERVED
