"""Contents of the small files of a log directory; `damage` lists the unreadable parts of a file, the other fields have the rest."""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, overload

from msgspec import Struct, field

from kafka_forensics.model.batches import Damage
from kafka_forensics.model.findings import Place
from kafka_forensics.model.offset_ranges import range_argument

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class EpochEntry(Struct, frozen=True, order=True):
    """A line of `leader-epoch-checkpoint`: the first offset of a leader epoch."""

    leader_epoch: int
    start_offset: int


class LeaderEpochs(Struct):
    """`leader-epoch-checkpoint` of one replica, in file order."""

    entries: list[EpochEntry]
    damage: list[Damage] = field(default_factory=list)


class OffsetCheckpoint(Struct):
    """One of the four `*-offset-checkpoint` files: (topic, partition) → offset; the last line of duplicates wins."""

    offsets: dict[tuple[str, int], int]
    damage: list[Damage] = field(default_factory=list)


class OffsetIndex(Struct):
    """`.index`: parallel int64 arrays of absolute offsets and positions, without the zero tail.

    `zero_tail_bytes` is the size of the preallocated zeros (or the hole) after the entries, which is not damage.
    """

    offsets: "NDArray[np.int64]"
    positions: "NDArray[np.int64]"
    zero_tail_bytes: int
    damage: list[Damage] = field(default_factory=list)


class TimeIndex(Struct):
    """`.timeindex`: parallel int64 arrays of timestamps (ms) and absolute offsets, without the zero tail."""

    timestamps: "NDArray[np.int64]"
    offsets: "NDArray[np.int64]"
    zero_tail_bytes: int
    damage: list[Damage] = field(default_factory=list)


class AbortedTxn(Struct, frozen=True):
    """An entry of `.txnindex`; `last_offset` is the ABORT marker's, inclusive."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    version: int = 0
    position: int = -1
    """Byte position of the entry in its file."""


_ABORTED_TXN_FIELDS: Final = ("producer_id", "first_offset", "last_offset", "last_stable_offset", "version")
_CHUNK: Final = 4096


class AbortedTxns(Sequence[AbortedTxn]):
    """A sequence of many entries as an array with AbortedTxn's fields, in file order, and an array of byte positions."""

    def __init__(self, entries: "NDArray[np.void]", positions: "NDArray[np.int64]") -> None:
        self._entries = entries
        self._positions = positions

    @property
    def last_offsets(self) -> "NDArray[np.int64]":
        """The offsets of the markers."""
        answer: NDArray[np.int64] = self._entries["last_offset"]
        return answer

    def select(self, numbers: "NDArray[np.int64]") -> "AbortedTxns":
        """The entries with these indexes."""
        return AbortedTxns(self._entries[numbers], self._positions[numbers])

    def rows(self) -> "NDArray[np.int64]":
        """The fields of all entries, (n, 6)."""
        import numpy as np

        columns = [self._entries[name].astype(np.int64) for name in _ABORTED_TXN_FIELDS]
        return np.stack([*columns, self._positions], axis=1)

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> AbortedTxn: ...

    @overload
    def __getitem__(self, index: slice) -> "AbortedTxns": ...

    def __getitem__(self, index: int | slice) -> "AbortedTxn | AbortedTxns":
        if isinstance(index, slice):
            return AbortedTxns(self._entries[index], self._positions[index])
        entry = self._entries[index]
        producer_id, first_offset, last_offset, last_stable_offset, version = (int(entry[name]) for name in _ABORTED_TXN_FIELDS)
        return AbortedTxn(producer_id, first_offset, last_offset, last_stable_offset, version, int(self._positions[index]))

    def __iter__(self) -> Iterator[AbortedTxn]:
        for start in range(0, len(self), _CHUNK):
            for row in self[start : start + _CHUNK].rows().tolist():
                yield AbortedTxn(*row)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]


class TransactionIndex(Struct):
    """`.txnindex` of one segment, in file order."""

    entries: Sequence[AbortedTxn]
    damage: list[Damage] = field(default_factory=list)


class ProducerEntry(Struct, frozen=True):
    """A producer in a `.snapshot` (ProducerSnapshot.json); -1 means none in every field."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


class ProducerSnapshot(Struct):
    """`.snapshot`: the state of every producer before `offset`, which is the file name."""

    offset: int
    version: int
    crc: int
    crc_computed: int
    entries: list[ProducerEntry]
    damage: list[Damage] = field(default_factory=list)


class MetaProperties(Struct):
    """`meta.properties`; None: not in the file."""

    version: int | None
    node_id: int | None
    """`node.id` (v1) or `broker.id` (v0)."""
    cluster_id: str | None
    directory_id: str | None
    damage: list[Damage] = field(default_factory=list)


class PartitionMetadata(Struct):
    """`partition.metadata`; None: not in the file."""

    version: int | None
    topic_id: str | None
    """22 characters of base64url, as in the file."""
    damage: list[Damage] = field(default_factory=list)


class CleanShutdown(Struct):
    """`.kafka_cleanshutdown`; `broker_epoch` None before Kafka 3.7 (the file is empty)."""

    broker_epoch: int | None
    damage: list[Damage] = field(default_factory=list)


# The arguments of a command that shows the file of a place: a place names a file of a log directory, a command an input.


_ARCHIVE: Final = re.compile(r"(.*?[^/]\.(?:tar(?:\.gz|\.xz|\.zst)?|tgz|txz|tzst|zip))(?:/|$)", re.IGNORECASE | re.DOTALL)


def file_arguments(place: Place) -> list[str] | None:
    """The arguments that make a command show the file at `place` and only its offsets; None: the place has no file.

    For an input that is a partition directory or one `.log`, `Place.file` repeats the partition's name. A path ends at an archive;
    topic and partition select its members.
    """
    if not place.file:
        return None
    inside = _ARCHIVE.match(place.log_dir or "")
    if inside is None:
        words = [_path((place.log_dir or "").rstrip("/"), place.file)]
    elif place.topic is None or place.partition is None:
        words = [inside[1]]
    else:
        words = [inside[1], "--topic", place.topic, "--partition", str(place.partition)]
    if place.file.endswith(".log") and place.offset_start is not None and place.offset_end is not None:
        words += ["--offset", range_argument(place.offset_start, place.offset_end)]
    return words


def _path(log_dir: str, file: str) -> str:
    """The path of `file` for any kind of input."""
    folder, _, name = file.partition("/")
    parent, _, last = log_dir.rpartition("/")
    if last == folder and name:  # a partition directory by itself
        return f"{log_dir}/{name}"
    if last.endswith(".log") and file.endswith(".log") and (parent.rpartition("/")[2] in {folder, "", ".", ".."} or last == name):
        return log_dir  # one file by itself
    return "/".join(part for part in (log_dir, file) if part)
