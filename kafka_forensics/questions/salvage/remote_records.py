"""The records of remote segments as bytes of a plain local log (`salvage --from-store`)."""

from collections.abc import Iterator

from kafka_forensics.errors import SourceError
from kafka_forensics.model.batches import LOG_DAMAGE
from kafka_forensics.model.offset_ranges import Ranges, normalised, without
from kafka_forensics.model.remote_log import REMOTE, RemoteSegment
from kafka_forensics.parsers.log import BatchChecks, SegmentReader
from kafka_forensics.questions.salvage.lineage import BASE, LineageRange
from kafka_forensics.questions.salvage.origins import SegmentOrigin
from kafka_forensics.questions.salvage.slices import SegmentSlice, SliceReader
from kafka_forensics.questions.salvage.stored_segments import StoredLineage
from kafka_forensics.scanning.witnesses.remote_stores import StoredPartition
from kafka_forensics.storage.tiered import RemotePart, stem_of


def store_origins(stored: StoredPartition, lineage: StoredLineage) -> list[SegmentOrigin]:
    """Each remote segment of a lineage whose objects are in the store, in this order."""
    return [_origin(stored, segment) for segment in lineage.segments if segment.segment_id in stored.log.segments]


def _origin(stored: StoredPartition, segment: RemoteSegment) -> SegmentOrigin:
    store, log = stored
    objects = log.segments[segment.segment_id]
    name = f"{stem_of(log, objects)}.{store.layout.needed[0]}"
    return SegmentOrigin(
        REMOTE,
        store.name,
        (segment.start_offset,),
        segment.size_in_bytes,
        lambda _: name,
        lambda _: store.open(log, objects, RemotePart.LOG),
    )


def remote_slices(
    origins: list[SegmentOrigin], first_copy: int, start: int, end: int, *, deep: bool
) -> tuple[list[SegmentSlice], SourceError | None]:
    """The good batches of remote segments in offsets `[start, end)`, and why a segment could not be read.

    What an object lacks or has damaged is taken from a later one with the same offsets. `first_copy` is the number of the first
    origin in the slices.
    """
    slices: list[SegmentSlice] = []
    unread: SourceError | None = None
    for number, origin in enumerate(origins, first_copy):
        found = normalised((part.start_offset, part.end_offset) for part in slices)
        lacking = tuple([span for span in without([(start, end)], found) if span[1] > origin.base_offsets[0]])
        try:
            slices += _slices(origin, number, lacking, start, deep=deep) if lacking else []
        except SourceError as error:
            unread = unread or error
    return sorted(slices, key=lambda part: part.start_offset), unread


def _slices(origin: SegmentOrigin, number: int, lacking: Ranges, log_start: int, *, deep: bool) -> Iterator[SegmentSlice]:
    """What a segment has of the lacking offsets. Raises SourceError."""
    base_offset = origin.base_offsets[0]
    with origin.open(base_offset) as file:
        readers = [
            SliceReader(LineageRange(number, *span, BASE), compacted=True, starts_log=span[0] == log_start) for span in lacking
        ]
        for chunk in SegmentReader(file, inspect=BatchChecks(deep=deep)).chunks():
            bad = {damage.position for damage in chunk.damage if damage.kind in LOG_DAMAGE}
            for reader in readers if chunk.columns.shape[1] else ():
                yield from reader.step(base_offset, chunk.columns, bad)
        for reader in readers:
            yield from reader.finish()
