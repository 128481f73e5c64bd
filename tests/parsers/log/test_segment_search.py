"""Searching for the next batch: a header that cannot be afforded is passed over, not the end of the search."""

import struct

from kafka_forensics.parsers.log.segment import SegmentReader, find_batch
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support.memory import MemoryFile


def batch(base_offset: int, value: bytes = b"value") -> bytes:
    return write_batch([RecordToWrite(b"key", value)], base_offset=base_offset, base_timestamp=1_700_000_000_000)


def seeming_header(base_offset: int, size: int) -> bytes:
    return struct.pack(">qiibIhiqqqhii", base_offset, size - 12, 0, 2, 1, 0, 0, 0, 0, -1, -1, -1, 1)


def test_a_seeming_header_of_great_size_does_not_end_the_search() -> None:
    size = 17 << 20
    good = batch(7)
    lost = bytearray(batch(5, seeming_header(6, size)))
    lost[8:12] = struct.pack(">i", 5)
    filler = write_batch([RecordToWrite(None, bytes(size))], base_offset=8, base_timestamp=1_700_000_000_000)
    data = batch(4) + bytes(lost) + good + filler
    chunks = [
        (chunk.columns[2].tolist(), [damage.kind for damage in chunk.damage]) for chunk in SegmentReader(MemoryFile(data)).chunks()
    ]
    assert [offset for offsets, _ in chunks for offset in offsets] == [4, 7, 8]
    assert [kind for _, kinds in chunks for kind in kinds] == ["FRAMING_LOST"]


def test_a_split_point_has_offsets_of_its_segment() -> None:
    data = batch(100) + batch(101)
    inside = len(batch(100)) // 2
    assert find_batch(MemoryFile(data), inside, len(data), 100) == len(batch(100))
    assert find_batch(MemoryFile(data), inside, len(data), 200) is None
