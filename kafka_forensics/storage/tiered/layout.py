"""What a layout of a remote store declares: how its objects are called, which of them readers need, how their bytes are read."""

import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final

from msgspec import Struct

from kafka_forensics.model.remote_log import RemoteSegment
from kafka_forensics.storage.source import ByteFile, ByteSource

UUID: Final = "[A-Za-z0-9_-]{21}[AQgw]"
"""Pattern of Kafka's ids: base64url of 16 bytes without padding."""
PARTITION: Final = "(?P<partition>0|[1-9][0-9]{0,9})"
TOPIC: Final = "(?P<topic>[A-Za-z0-9._-]{1,255})"
SEGMENT: Final = f"(?P<start_offset>[0-9]{{20}})-(?P<segment_id>{UUID})"
"""Pattern of the name of a segment's objects, without the suffix."""


_NAMED_BY_ID: Final = re.compile(f".+-{UUID}", re.DOTALL)


def is_named_by_id(name: str) -> bool:
    """Whether a directory's name ends in an id, as the names of directories in a store do, and those in log directories do not."""
    return _NAMED_BY_ID.fullmatch(name) is not None


def object_pattern(directory: str, suffixes: Iterable[str]) -> re.Pattern[str]:
    """The pattern of a layout's objects: those in a partition's `directory`, by the suffixes of their names."""
    return re.compile(rf"(?:\A|/){directory}/{SEGMENT}\.(?P<suffix>{'|'.join(suffixes)})\Z")


class RemotePart(StrEnum):
    """What a broker copies of a segment (LogSegmentData)."""

    LOG = "log"
    OFFSET_INDEX = "index"
    TIME_INDEX = "timeindex"
    TRANSACTION_INDEX = "txnindex"
    PRODUCER_SNAPSHOT = "snapshot"
    LEADER_EPOCHS = "leader_epoch_checkpoint"


OpenPart = Callable[[str, RemotePart], ByteFile]
"""Opens a part of a segment, by the path of its objects without their suffix, with the bytes that the broker copied. Raises
SourceError for a part that is missing, damaged or encrypted."""


class RemoteLayout(Struct, frozen=True):
    """A layout of a remote store. A new one is a module that makes one of these, and a line in `LAYOUTS`."""

    name: str
    """As people call it."""
    objects: re.Pattern[str]
    """Found at the end of an object's path (`object_pattern`); with the groups `topic`, `topic_id`, `partition`, `start_offset`,
    `segment_id` and `suffix`."""
    directories: re.Pattern[str]
    """Fully matches the names of the directories in a store's root, which are `is_named_by_id`."""
    partitions: re.Pattern[str] | None
    """Fully matches the names of the partitions' directories in these; None if these are the partitions'."""
    needed: tuple[str, ...]
    """Suffixes of the objects without which brokers do not serve a segment; the first is that of the log."""
    part_opener: Callable[[ByteSource], OpenPart] | None = None
    """Makes the function that opens parts of the segments in a source; None if the objects hold these bytes, and nothing else."""
    describe: Callable[[ByteSource, str], RemoteSegment | None] | None = None
    """Reads what the broker that copied a segment knew of it, by the path of its objects; None if they do not say. Raises
    SourceError. Without it only names, epochs and batches describe a segment."""

    @property
    def is_plain(self) -> bool:
        """Whether the objects hold the bytes that the broker copied, and nothing else."""
        return self.part_opener is None

    def is_partition(self, directory: str, name: str) -> bool:
        """Whether a directory called `name`, in one called `directory`, is a partition's by these names."""
        if self.partitions is None:
            return self.directories.fullmatch(name) is not None
        return self.directories.fullmatch(directory) is not None and self.partitions.fullmatch(name) is not None
