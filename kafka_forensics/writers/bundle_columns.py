"""Batches as columns in few bytes, for a bundle: the twin of `parsers.log.collected`, which says how."""

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
    columns: "Ints",
    damage: Sequence[tuple[Damage, bool]],
    *,
    written: "Ints",
    digests: "NDArray[np.uint64]",
) -> bytes:
    """A section of at most `CHUNK_ROWS` batches: a (BATCH_COLUMNS, n) matrix in file order, what is damaged and whether only
    opening the batch tells, the offsets that entries of magic 0 and 1 bear (n), and digests of contents, (n, 2) uint64.
    """
    assert columns.shape[1] <= CHUNK_ROWS
    head, planes = _columns(columns, written)
    rows = [
        [found.kind, found.position, found.size_in_bytes, found.base_offset, found.last_offset, found.detail, inside]
        for found, inside in damage
    ]
    told = json.dumps(rows).encode() if rows else b""
    kept = np.ascontiguousarray(digests).data
    return b"".join([SECTION_HEAD.pack(len(head) + len(planes), 8 * digests.shape[1]), head, planes, kept, told])


def _columns(columns: "Ints", written: "Ints") -> tuple[bytes, bytes]:
    """The head of the columns and these, each foretold as far as it can be."""
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


def _gaps(begins: "Ints", ends: "Ints") -> "Ints":
    """How far behind the end of the row before each begins; 0 of the first. Differences wrap around, and so do the sums of them."""
    gaps = np.zeros(begins.size, np.int64)
    gaps[1:] = begins[1:] - ends[:-1]
    return gaps


def _sequences(sequences: "Ints", producer_id: "Ints", delta: "Ints") -> "Ints":
    """What is left of sequences where the last one of the same producer foretells the next; negative ones as they are."""
    stored = sequences.copy()
    rows, first = by_producer(producer_id, sequences >= 0)
    if rows.size:
        foretold = np.zeros(rows.size, np.int64)
        foretold[1:] = np.where(first[1:], 0, sequences[rows][:-1] + delta[rows][:-1] + 1)
        stored[rows] = (sequences[rows] - foretold) & MAX_SEQUENCE
    return stored


def _planes_of(values: "Ints") -> bytes:
    """The least value, and of what lies above it as many bytes as the most needs, byte by byte."""
    if not values.size:
        return PLANES_HEAD.pack(0, 0)
    least, most = int(values.min()), int(values.max())
    width = ((most - least).bit_length() + 7) // 8
    if not width:
        return PLANES_HEAD.pack(0, least)
    above = (values - least).astype("<i8", copy=False).view(np.uint8).reshape(-1, 8)
    return PLANES_HEAD.pack(width, least) + above[:, :width].T.tobytes()
