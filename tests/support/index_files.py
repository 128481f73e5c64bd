"""Files of a segment's `.index` and `.timeindex` from their entries."""

from collections.abc import Iterable

from kafka_forensics.parsers.spec.indexes import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY, build_entries


def write_offset_index(entries: Iterable[tuple[int, int]], base_offset: int) -> bytes:
    """A `.index` of (absolute offset, position in the `.log`); any order is written. Raises FormatError for what passes 32 bits."""
    rows = ({"relative_offset": offset - base_offset, "position": position} for offset, position in entries)
    return build_entries(OFFSET_INDEX_ENTRY, rows)


def write_time_index(entries: Iterable[tuple[int, int]], base_offset: int) -> bytes:
    """A `.timeindex` of (timestamp in ms, absolute offset); any order is written. Raises FormatError for an offset out of reach."""
    rows = ({"timestamp": timestamp, "relative_offset": offset - base_offset} for timestamp, offset in entries)
    return build_entries(TIME_INDEX_ENTRY, rows)
