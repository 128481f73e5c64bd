"""Both indexes of a segment, parsed before its log is read."""

from dataclasses import dataclass

from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import ReplicaPlan, typed_path
from kafka_forensics.model.files import OffsetIndex, TimeIndex
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.indexes import parse_offset_index, parse_time_index
from kafka_forensics.parsers.log_dir import SegmentFiles


@dataclass(slots=True)
class SegmentIndexes:
    """Both indexes of a segment as parsed; None where the file is absent or unreadable, with the reason for the latter."""

    index: OffsetIndex | None = None
    time_index: TimeIndex | None = None
    incomplete: Incomplete | None = None


def read_indexes(plan: ReplicaPlan, segment: SegmentFiles) -> SegmentIndexes:
    """Parse the indexes of a segment; of two that cannot be read, the second is named."""
    source, base_offset = plan.log_dir.source, segment.base_offset
    indexes = SegmentIndexes()
    for entry in (segment.index, segment.time_index):
        if entry is None:
            continue
        try:
            with source.open(entry.path) as file:
                if entry is segment.index:
                    indexes.index = parse_offset_index(file, base_offset)
                else:
                    indexes.time_index = parse_time_index(file, base_offset)
        except SourceError as error:
            indexes.incomplete = Incomplete(typed_path(source, entry.path), error.reason)
    return indexes
