"""Two copies of a batch of which a cleaner took records: a quick look whether what both still hold is the same."""

from typing import TYPE_CHECKING

import numpy as np

from kafka_forensics.model.records import RecordColumn
from kafka_forensics.parsers.log import HELD_BYTES

if TYPE_CHECKING:
    from kafka_forensics.parsers.log import DecodedBatch


def surely_equal_where_both(left: "DecodedBatch", right: "DecodedBatch") -> bool:
    """Whether every record whose offset both hold has equal bytes, timestamp and producer.

    False is no proof of a difference: batches of the old formats, very large ones, and other encodings of equal records are not
    looked at closely. Neither batch may have problems.
    """
    ours, theirs = left.header, right.header
    if ours is None or theirs is None or (ours.producer_id, ours.producer_epoch) != (theirs.producer_id, theirs.producer_epoch):
        return False
    sides = []
    for batch in (left, right):
        if len(batch.payload) >= HELD_BYTES:
            return False
        sides.append(_bodies(batch))
    fewer, more = sorted(sides, key=len)
    return all(offset not in more or more[offset] == body for offset, body in fewer.items())


def _bodies(batch: "DecodedBatch") -> dict[int, tuple[int, int, bytes]]:
    """Offset → timestamp, length of the key, and all bytes from the key on."""
    header = batch.header
    assert header is not None
    payload = bytes(batch.payload)
    stamped = header.timestamp_type == "LogAppendTime"
    bodies = {}
    for columns in batch.iter_columns():
        offsets = (columns[RecordColumn.OFFSET_DELTA] + header.base_offset).tolist()
        times = columns[RecordColumn.TIMESTAMP_DELTA] + header.base_timestamp
        stamps = (np.full_like(times, header.max_timestamp) if stamped else times).tolist()
        ends = (columns[RecordColumn.POSITION] + columns[RecordColumn.SIZE_IN_BYTES]).tolist()
        keys, sizes = columns[RecordColumn.KEY_POSITION].tolist(), columns[RecordColumn.KEY_LENGTH].tolist()
        for offset, stamp, size, key, end in zip(offsets, stamps, sizes, keys, ends, strict=True):
            bodies[offset] = stamp, size, payload[key:end]
    return bodies
