"""Writes batches as columns in few bytes, for a bundle; `parsers.log.collected` reads them and describes the format."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kafka_forensics.model.batches import CHUNK_ROWS, BatchColumn, Damage
from kafka_forensics.model.constants import MAX_SEQUENCE
from kafka_forensics.parsers.log import COLUMNS_HEAD, PLANES_HEAD, SECTION_HEAD, by_producer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


def write_batches(
    columns: "Ints", damage: Sequence[tuple[Damage, bool]], *, written: "Ints", digests: "NDArray[np.uint64]"
) -> bytes:
    """A section of at most `CHUNK_ROWS` batches: a (BATCH_COLUMNS, n) matrix in file order, damage and whether it is inside a
    batch, the offsets in entries of magic 0 and 1 (n), and content digests, (n, 2) uint64.
    """
    assert columns.shape[1] <= CHUNK_ROWS
    head, planes = _columns(columns, written)
    rows = [
        [found.kind, found.position, found.size_in_bytes, found.base_offset, found.last_offset, found.detail, is_inside]
        for found, is_inside in damage
    ]
    damage_json = json.dumps(rows).encode() if rows else b""
    section_head = SECTION_HEAD.pack(len(head) + len(planes), 8 * digests.shape[1])
    return b"".join([section_head, head, planes, np.ascontiguousarray(digests).data, damage_json])


def _columns(columns: "Ints", written: "Ints") -> tuple[bytes, bytes]:
    """The head of the columns, and the columns as differences from what the other columns predict."""
    size, position = columns[BatchColumn.SIZE_IN_BYTES], columns[BatchColumn.POSITION]
    base_offset, last_offset = columns[BatchColumn.BASE_OFFSET], columns[BatchColumn.LAST_OFFSET]
    delta, count = columns[BatchColumn.LAST_OFFSET_DELTA], columns[BatchColumn.RECORDS_COUNT]
    base_timestamp, max_timestamp = columns[BatchColumn.BASE_TIMESTAMP], columns[BatchColumn.MAX_TIMESTAMP]
    producer_id = columns[BatchColumn.PRODUCER_ID]
    rows = columns.shape[1]
    stored = [
        size,
        _gaps(position, position + size),
        _gaps(base_offset, last_offset + 1),
        last_offset - base_offset - delta,
        delta - count + 1,
        count,
        columns[BatchColumn.PARTITION_LEADER_EPOCH],
        columns[BatchColumn.MAGIC],
        columns[BatchColumn.CRC],
        columns[BatchColumn.CRC_COMPUTED] - columns[BatchColumn.CRC],
        columns[BatchColumn.ATTRIBUTES],
        _gaps(base_timestamp, max_timestamp),
        max_timestamp - base_timestamp,
        producer_id,
        columns[BatchColumn.PRODUCER_EPOCH],
        _sequences(columns[BatchColumn.BASE_SEQUENCE], producer_id, delta),
        columns[BatchColumn.CONTROL_RECORD_TYPE],
        columns[BatchColumn.COORDINATOR_EPOCH],
        written - last_offset,
    ]
    start = (int(position[0]), int(base_offset[0]), int(base_timestamp[0])) if rows else (0, 0, 0)
    return COLUMNS_HEAD.pack(rows, *start), b"".join(map(_planes_of, stored))


def _gaps(starts: "Ints", ends: "Ints") -> "Ints":
    """The start of each row minus the end of the row before; 0 for the first. Differences and their sums wrap around."""
    gaps = np.zeros(starts.size, np.int64)
    gaps[1:] = starts[1:] - ends[:-1]
    return gaps


def _sequences(sequences: "Ints", producer_id: "Ints", delta: "Ints") -> "Ints":
    """Sequences minus the next sequence of the same producer by its last batch; negative ones unchanged."""
    stored = sequences.copy()
    rows, first = by_producer(producer_id, sequences >= 0)
    if rows.size:
        predicted = np.zeros(rows.size, np.int64)
        predicted[1:] = np.where(first[1:], 0, sequences[rows][:-1] + delta[rows][:-1] + 1)
        stored[rows] = (sequences[rows] - predicted) & MAX_SEQUENCE
    return stored


def _planes_of(values: "Ints") -> bytes:
    """The smallest value, and the differences from it in as many bytes as the largest needs, as planes of bytes."""
    if not values.size:
        return PLANES_HEAD.pack(0, 0)
    least, most = int(values.min()), int(values.max())
    width = ((most - least).bit_length() + 7) // 8
    if not width:
        return PLANES_HEAD.pack(0, least)
    differences = (values - least).astype("<i8", copy=False).view(np.uint8).reshape(-1, 8)
    return PLANES_HEAD.pack(width, least) + differences[:, :width].T.tobytes()
