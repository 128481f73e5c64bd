"""What the names of files and directories in a log directory say (LogFileUtils, LocalLog, Snapshots)."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kafka_forensics.model.constants import INT64_MAX


class FileKind(StrEnum):
    """What a file holds, as its name says."""

    LOG = "log"
    INDEX = "index"
    TIME_INDEX = "timeindex"
    TRANSACTION_INDEX = "txnindex"
    PRODUCER_SNAPSHOT = "snapshot"
    LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
    REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"
    RECOVERY_POINT_OFFSET_CHECKPOINT = "recovery-point-offset-checkpoint"
    LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
    CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
    META_PROPERTIES = "meta.properties"
    PARTITION_METADATA = "partition.metadata"
    CLEAN_SHUTDOWN = "clean_shutdown"
    QUORUM_STATE = "quorum-state"
    METADATA_CHECKPOINT = "metadata_checkpoint"
    """A KRaft snapshot: `bootstrap.checkpoint` or `<offset>-<epoch>.checkpoint`."""


SEGMENT_KINDS: Final = (FileKind.LOG, FileKind.INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)
OFFSET_CHECKPOINTS: Final = (
    FileKind.REPLICATION_OFFSET_CHECKPOINT,
    FileKind.RECOVERY_POINT_OFFSET_CHECKPOINT,
    FileKind.LOG_START_OFFSET_CHECKPOINT,
    FileKind.CLEANER_OFFSET_CHECKPOINT,
)
LOG_DIRECTORY_KINDS: Final = (*OFFSET_CHECKPOINTS, FileKind.META_PROPERTIES, FileKind.CLEAN_SHUTDOWN)
PARTITION_KINDS: Final = (FileKind.LEADER_EPOCH_CHECKPOINT, FileKind.PARTITION_METADATA, FileKind.QUORUM_STATE)

_FIXED_NAMES: Final = {
    **{kind.value: kind for kind in (*OFFSET_CHECKPOINTS, FileKind.META_PROPERTIES, *PARTITION_KINDS)},
    ".kafka_cleanshutdown": FileKind.CLEAN_SHUTDOWN,
    "bootstrap.checkpoint": FileKind.METADATA_CHECKPOINT,
}
_SUFFIXES: Final = frozenset({"deleted", "swap", "cleaned", "tmp", "part"})
_OFFSET_NAME: Final = re.compile(r"([0-9]{20})\.(log|index|timeindex|txnindex|snapshot)")
_METADATA_CHECKPOINT: Final = re.compile(r"([0-9]{20})-([0-9]{10})(-[0-9]{1,20})?\.checkpoint")
_PARTITION: Final = re.compile(
    r"(?P<topic>(?!\.{1,2}-[0-9]+(?:\.[0-9a-f]{32}-[a-z]+)?\Z)[a-zA-Z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})"
    r"(?:\.(?P<unique_id>[0-9a-f]{32})-(?P<suffix>delete|future|stray))?"
)
_MAX_INT32: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class FileName:
    """A name taken apart. `offset` and `leader_epoch` are None where such names hold none, `suffix` where nothing is appended."""

    kind: FileKind
    offset: int | None = None
    leader_epoch: int | None = None
    suffix: str | None = None
    """The outermost of `deleted`, `swap`, `cleaned`, `tmp`, `part`."""


@dataclass(frozen=True, slots=True)
class PartitionName:
    """A partition directory's name taken apart.

    Of one that waits to be deleted, or is stray, Kafka cuts the topic short where the name would pass 255 characters.
    """

    topic: str
    partition: int
    suffix: str | None = None
    """`delete`, `future` or `stray`, None for an ordinary replica."""
    unique_id: str | None = None


def parse_file_name(name: str) -> FileName | None:
    """What `name` says, None if it is none of Kafka's names. Offsets are 20 digits up to 2^63 - 1, epochs 10 up to 2^31 - 1."""
    inner, suffix = name, None
    for _ in _SUFFIXES:
        stem, _, last = inner.rpartition(".")
        if last not in _SUFFIXES or not stem:
            break
        inner, suffix = stem, suffix or last
    if inner in _FIXED_NAMES:
        return FileName(_FIXED_NAMES[inner], suffix=suffix)
    if match := _OFFSET_NAME.fullmatch(inner):
        offset = int(match[1])
        return FileName(FileKind(match[2]), offset, suffix=suffix) if offset <= INT64_MAX else None
    if match := _METADATA_CHECKPOINT.fullmatch(inner):
        offset, leader_epoch = int(match[1]), int(match[2])
        in_bounds = offset <= INT64_MAX and leader_epoch <= _MAX_INT32
        finished = match[3] is None or suffix is not None
        return FileName(FileKind.METADATA_CHECKPOINT, offset, leader_epoch, suffix) if in_bounds and finished else None
    return None


def classify_file(name: str) -> FileKind | None:
    """The kind of file that `name` promises, whatever suffix is appended to it; None if it is none of Kafka's names."""
    parsed = parse_file_name(name)
    return None if parsed is None else parsed.kind


def parse_partition_name(name: str) -> PartitionName | None:
    """Topic and partition of a directory, split at the last `-`; None if no broker would have made a directory of that name."""
    match = _PARTITION.fullmatch(name)
    if match is None or int(match["partition"]) > _MAX_INT32:
        return None
    return PartitionName(match["topic"], int(match["partition"]), match["suffix"], match["unique_id"])
