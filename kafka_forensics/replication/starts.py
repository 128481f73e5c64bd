"""What a broker's start makes of a damaged small file, by the table of what real brokers did (`starts.tsv`, docs/starts.md).

The table is written by `python -m lab.start_table`: a broker was started on each file with each kind of damage.
"""

import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Final, NamedTuple

from kafka_forensics.model.batches import Damage
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC

TABLE: Final = "starts.tsv"
KRAFT_DIRECTORY: Final = f"{CLUSTER_METADATA_TOPIC}-0"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
PARTITION_METADATA: Final = "partition.metadata"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
BOOTSTRAP: Final = "bootstrap.checkpoint"
QUORUM_STATE: Final = f"{KRAFT_DIRECTORY}/quorum-state"
RIGHT: Final = "right"
ABSENT: Final = "absent"
EMPTY: Final = "empty"
VERSION_ONLY: Final = "version_only"
UNREADABLE: Final = "text"
"""The kind of damage that stands for every unreadable content that the table does not name."""


class Outcome(Enum):
    """What a start did; the values are those of the table."""

    BROKER_STOPS = "broker_stops"
    """Also a broker with another log directory."""
    DIRECTORY_OFFLINE = "directory_offline"
    """A broker without another log directory ends."""
    NOT_SERVED = "not_served"
    """The broker runs, and serves no log of the directory that the file is of."""
    BEGINS_EMPTY = "begins_empty"
    """The broker sets the log aside and begins with an empty one."""
    SERVES_OTHER = "serves_other_records"
    """Other offsets or other records than with the right file."""
    CLEANER_STOPS = "cleaner_stops"
    REBUILT = "rebuilt"
    """Everything is served, and the file is written anew."""
    IGNORED = "ignored"
    """Everything is served, and the file stays as it is."""


STOPPING: Final = frozenset({Outcome.BROKER_STOPS, Outcome.DIRECTORY_OFFLINE, Outcome.NOT_SERVED, Outcome.BEGINS_EMPTY})
"""Not all logs are served after the start."""


class Row(NamedTuple):
    """One start, or those of several versions that did the same."""

    file: str
    damage: str
    before: str
    """`stopped` in an orderly way, or `killed`, before this start."""
    log_dirs: int
    versions: str
    """Versions of Kafka, parted by blanks."""
    outcome: Outcome
    served: str
    """What clients read of the log: log start, log end, records with isolation level read_uncommitted, and with read_committed."""


@cache
def table() -> tuple[Row, ...]:
    """All rows."""
    data = pkgutil.get_data(__package__, TABLE)
    assert data is not None, "the table is a file of the package"
    lines = data.decode("ascii").splitlines()[1:]
    cells = [line.split("\t") for line in lines]
    return tuple(Row(cell[0], cell[1], cell[2], int(cell[3]), cell[4], Outcome(cell[5]), cell[6]) for cell in cells)


@cache
def _outcomes() -> Mapping[tuple[str, str, str, int], Outcome]:
    """The outcomes of the newest version, whose rows are the last."""
    return {(row.file, row.damage, row.before, row.log_dirs): row.outcome for row in table()}


def table_name(file: str) -> str:
    """What the table calls a file of a log directory; of a partition's directory, but for the controllers' log, only its name."""
    directory, _, name = file.rpartition("/")
    is_of_controllers = directory.startswith(f"{CLUSTER_METADATA_TOPIC}-") or name == "quorum-state"
    return f"{KRAFT_DIRECTORY}/{name}" if is_of_controllers else name


def start_outcome(file: str, damage: str) -> Outcome:
    """What a start does with a file, named as in a log directory, that has a kind of damage; what the table does not name counts
    as text that is none of Kafka's. A file whose damage takes its directory offline and stops a broker that has another one
    stops every broker."""
    name, outcomes = table_name(file), _outcomes()
    known = damage if (name, damage, "stopped", 1) in outcomes else UNREADABLE
    outcome = outcomes[name, known, "stopped", 1]
    if outcome is Outcome.DIRECTORY_OFFLINE:
        return outcomes.get((name, known, "stopped", 2), outcomes[name, UNREADABLE, "stopped", 2])
    return outcome


def outcome_of(file: str, damage: Sequence[Damage], size_in_bytes: int | None = None) -> Outcome:
    """The same by what a parser found wrong with the file."""
    return start_outcome(file, damage_name(damage, size_in_bytes))


_NAMES: Final = {
    "broker_epoch": "bad_epoch",
    "cluster_id": UNREADABLE,
    "directory_id": "bad_directory_id",
    "epoch": "word",
    "escape": "bad_escape",
    "node_id": "bad_node_id",
    "offset": "word",
    "topic_id": "bad_id",
    "version": "other_version",
}
"""Kinds of damage in the table, by reasons of damage where they are called otherwise."""
_MISSING: Final = {
    "cluster.id": "no_cluster_id",
    "directory.id": "no_directory_id",
    "node.id": "no_node_id",
    "topic_id": VERSION_ONLY,
    "version": "no_version",
}
"""The same of a key that is missing."""
_READ_ON: Final = frozenset({"negative", "topic", "unterminated"})
"""Over which Kafka reads on."""


def damage_name(damage: Sequence[Damage], size_in_bytes: int | None = None) -> str:
    """The kind of damage, as the table calls it, that ends Kafka's reading of a file: it reads line by line, and compares the
    number of entries at the end (CheckpointFile)."""
    if size_in_bytes == 0:
        return EMPTY
    names = list(_in_order(damage))
    return next((name for name in names if not is_read_on(name)), names[0] if names else RIGHT)


def is_read_on(name: str) -> bool:
    """Whether Kafka reads the rest of a file that has this kind of damage."""
    return name in _READ_ON


def _in_order(damage: Sequence[Damage]) -> Iterator[str]:
    last = [row for row in damage if row.detail.get("reason") == "count" and "found" in row.detail]
    for row in damage:
        reason = str(row.detail.get("reason"))
        if reason == "missing":
            yield _MISSING.get(str(row.detail.get("key")), UNREADABLE)
        elif reason == "count" and not row.size_in_bytes:
            yield VERSION_ONLY  # there is no second line
        elif row not in last:
            yield _NAMES.get(reason, reason)
    yield from ["count"] * bool(last)


def is_small_file(file: str) -> bool:
    """Whether a file is one of those of which the table tells by name, no index and no snapshot."""
    return (table_name(file), ABSENT, "stopped", 1) in _outcomes()


def is_movable(file: str) -> bool:
    """Whether a broker starts without a small file and serves its logs: a damaged one may be moved out of the log directory then,
    for what that costs."""
    return is_small_file(file) and start_outcome(file, ABSENT) not in STOPPING
