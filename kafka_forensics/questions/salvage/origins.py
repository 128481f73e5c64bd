"""Where the bytes of a salvaged log come from: the segments of a copy, those of a remote store, or batches that were built."""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.model.remote_log import REMOTE
from kafka_forensics.replication.planner import Broker
from kafka_forensics.replication.recovery import segment_file
from kafka_forensics.storage.source import ByteFile, BytesFile

BUILT: Final = "built"
"""Named in the place of a file for batches that no file has."""


class SegmentOrigin(Struct, frozen=True):
    """Segments whose bytes may be copied, by base offset."""

    broker: Broker
    log_dir: str
    """The log directory, or the remote store."""
    base_offsets: Sequence[int]
    """Where its segments start, ascending."""
    largest: int
    """Bytes of the largest segment."""
    name: Callable[[int], str]
    """Base offset → file, as the manifest shows it."""
    open: Callable[[int], ByteFile]
    """Opens a segment by its base offset. Raises SourceError."""


def copy_origin(plan: ReplicaPlan) -> SegmentOrigin:
    """The segments of a copy."""
    context, entries = plan.context, {log.base_offset: log.entry for log in plan.directory.logs()}
    return SegmentOrigin(
        context.broker,
        context.log_dir,
        [segment.base_offset for segment in plan.directory.segments],
        max((entry.size_in_bytes for entry in entries.values()), default=0),
        lambda base_offset: f"{context.directory}/{segment_file(base_offset)}",
        lambda base_offset: plan.log_dir.source.open(entries[base_offset].path),
    )


def built_origin(store: str, batches: bytes, base_offset: int = 0) -> SegmentOrigin:
    """One segment, built from what a remote store has."""
    return SegmentOrigin(REMOTE, store, (base_offset,), len(batches), lambda _: BUILT, lambda _: BytesFile(batches))
