"""What the loading of a log starts from and leads to: the checks by number, segments as files show them, steps and forecasts.

The numbers are those of docs/recovery.md.
"""

from dataclasses import dataclass
from typing import Final

from kafka_forensics.model.files import EpochEntry

CLEAN_SHUTDOWN: Final = 1
META_PROPERTIES: Final = 2
CHECKPOINT_UNREADABLE: Final = 4
PARTITION_METADATA: Final = 6
DELETED_FILE: Final = 7
CLEANED_FILE: Final = 8
SWAP_FILE: Final = 9
INDEX_WITHOUT_LOG: Final = 10
LOG_NAME_OR_SIZE: Final = 11
INDEX_FILE_MISSING: Final = 12
TRANSACTION_INDEX: Final = 13
SEGMENT_WALKED: Final = 17
HEADER_CUT: Final = 18
LENGTH_TOO_SMALL: Final = 19
BATCH_BEYOND_FILE: Final = 20
BATCH_INVALID: Final = 22
OFFSET_OVERFLOW: Final = 23
OFFSET_REGRESSION: Final = 24
PRODUCER_STATE: Final = 26
ABORTED_TXN_ORDER: Final = 27
SEGMENTS_BEHIND_CUT: Final = 29
END_BELOW_START: Final = 31
NO_SEGMENT: Final = 32
LEADER_EPOCHS: Final = 36
SNAPSHOT: Final = 37
NO_SNAPSHOT: Final = 38
NEXT_OFFSET: Final = 39
HIGH_WATERMARK: Final = 41
METADATA_SNAPSHOT: Final = 42

HIGH_WATERMARK_FILE: Final = "replication-offset-checkpoint"
RECOVERY_POINT_FILE: Final = "recovery-point-offset-checkpoint"
LOG_START_FILE: Final = "log-start-offset-checkpoint"
EPOCHS_FILE: Final = "leader-epoch-checkpoint"
NEEDED_FILES: Final = (HIGH_WATERMARK_FILE, EPOCHS_FILE)
"""Over which a log directory goes offline, if they are there and break their format; where they are not, Kafka writes them anew."""
MAX_SEGMENT_BYTES: Final = 2**31 - 1
MAX_RELATIVE_OFFSET: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Stop:
    """Where recovery's walk of a segment ends before its file does: the rest is cut off.

    `end_offset` is the next offset behind the last batch kept; `check` says why.
    """

    position: int
    end_offset: int
    check: int


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """A segment as the loader meets it.

    `end_offset` is the next offset behind its last batch (its base offset if it holds none), walked to its end; `next_offset`
    what the loader reads as such through the index as it lies on disk, None where that reading throws.
    """

    base_offset: int
    size_in_bytes: int
    end_offset: int
    next_offset: int | None
    stop: Stop | None = None
    has_index: bool = True
    has_time_index: bool = True
    transaction_index: str = "sound"
    """`sound` (or absent), `below_base` (an entry ends below the segment), `version` (an entry of an unknown version)."""


@dataclass(frozen=True, slots=True)
class ReplayFault:
    """A batch at `position` of a segment at which replaying producers throws: no catch is above it, so the broker does not start.

    Where an unreadable marker ends the walk itself, the batch is kept, and replaying it behind the walk throws again.
    """

    segment: int
    position: int
    base_offset: int
    check: int


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """A `.snapshot` file: the offset in its name and whether it can be read."""

    offset: int
    sound: bool = True


@dataclass(frozen=True, slots=True)
class LogFacts:
    """One partition directory, and what its log directory's checkpoints say of it; None is "not in the file"."""

    segments: tuple[SegmentFacts, ...]
    end_offset: int
    """Next offset behind all batches that are there, whatever Kafka makes of them."""
    clean_shutdown: bool
    recovery_point: int | None = None
    log_start: int | None = None
    high_watermark: int | None = None
    swaps: tuple[SegmentFacts, ...] = ()
    """The `.log.swap` files."""
    files: tuple[str, ...] = ()
    """Names of all regular files of the directory."""
    snapshots: tuple[SnapshotFacts, ...] = ()
    epochs: tuple[EpochEntry, ...] = ()
    faults: tuple[ReplayFault, ...] = ()
    """Where replaying its producers throws, from `replayed_from` on; only the first is looked for."""
    is_metadata: bool = False
    """Whether it is the controller's log; then `epochs` are those of its batches, too."""
    unreadable: tuple[str, ...] = ()
    """Checkpoint files, of the log directory or of the partition, that are there and break their format."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing the loader does, in order: the check that fires, a verb, and the file it is done to ("" is the log itself)."""

    check: int
    action: str
    """delete | rename | recover | truncate | create | forget | set | split | refuse (the broker does not start)"""
    file: str = ""
    offset: int | None = None
    """Offset at which something is cut, created or set."""
    to: str = ""
    """New name, of a rename."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Offsets `[start_offset, end_offset)` that the log had and will not have: cut at `position` of a segment because of `check`.

    `position` is None where no byte is cut and only the log's end is read wrongly.
    """

    segment: int
    position: int | None
    check: int
    start_offset: int
    end_offset: int
    segments_deleted: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Forecast:
    """How the log comes up: its offsets (None: not foretold), what is cut, and every step in order.

    `refused`: the broker does not start, for the reason in the last step.
    """

    log_start_offset: int | None
    log_end_offset: int | None
    recovery_point: int | None
    high_watermark: int | None
    cuts: tuple[Cut, ...] = ()
    steps: tuple[Step, ...] = ()
    refused: bool = False
    segments: tuple[int, ...] = ()
    """Base offsets of the segments it comes up with."""
