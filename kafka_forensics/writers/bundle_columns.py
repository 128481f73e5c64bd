"""Batches as columns in few bytes, for a bundle: the twin of `parsers.log.collected`, which says how."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.compiled import interpreted_by
from kafka_forensics.model.batches import CHUNK_ROWS, BatchColumn, Damage
from kafka_forensics.model.constants import MAX_SEQUENCE
from kafka_forensics.parsers.log import COLUMNS_HEAD, PLANES_HEAD, SECTION_HEAD, STORED_COLUMNS, by_producer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


def write_batches(
    columns: "Ints",
    damage: Sequence[tuple[Damage, bool]],
    *,
    written: "Ints",
    digests: "NDArray[np.uint64]",
    room: "NDArray[np.uint8]",
) -> bytes:
    """A section of at most `CHUNK_ROWS` batches: a (BATCH_COLUMNS, n) matrix in file order, what is damaged and whether only
    opening the batch tells, the offsets that entries of magic 0 and 1 bear (n), and digests of contents, (n, 2) uint64.

    `room` is `room_for` of as many rows at least.
    """
    assert columns.shape[1] <= CHUNK_ROWS
    head, planes = _columns(columns, written, room)
    rows = [
        [found.kind, found.position, found.size_in_bytes, found.base_offset, found.last_offset, found.detail, inside]
        for found, inside in damage
    ]
    told = json.dumps(rows).encode() if rows else b""
    kept = np.ascontiguousarray(digests).data
    return b"".join([SECTION_HEAD.pack(len(head) + len(planes), 8 * digests.shape[1]), head, planes, kept, told])


def room_for(rows: int) -> "NDArray[np.uint8]":
    """Where the planes of so many rows are made."""
    return np.empty(STORED_COLUMNS * (PLANES_HEAD.size + 8 * rows), np.uint8)


def _columns(columns: "Ints", written: "Ints", room: "NDArray[np.uint8]") -> tuple[bytes, memoryview]:
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
    return COLUMNS_HEAD.pack(rows, *start), _planes(stored, room)


def _gaps(begins: "Ints", ends: "Ints") -> "Ints":
    """How far behind the end of the row before each begins; 0 of the first. Differences wrap around, and so do the sums of them."""
    gaps = np.zeros(begins.size, np.int64)
    gaps[1:] = begins[1:] - ends[:-1]
    return gaps


def _sequences(sequences: "Ints", producer_id: "Ints", delta: "Ints") -> "Ints":
    """What is left of sequences where the last one of the same producer foretells the next; negative ones as they are."""
    stored = sequences.copy()
    if not foretell_sequences(producer_id, delta, sequences, stored, np.full(SLOTS, -1, np.int16)):
        _by_sorting(producer_id, delta, sequences, stored)
    return stored


def _by_sorting(
    producer_id: "Ints", delta: "Ints", sequences: "Ints", stored: "Ints", _slots: "NDArray[np.int16] | None" = None
) -> bool:
    """`foretell_sequences` of any rows."""
    rows, first = by_producer(producer_id, sequences >= 0)
    if rows.size:
        foretold = np.zeros(rows.size, np.int64)
        foretold[1:] = np.where(first[1:], 0, sequences[rows][:-1] + delta[rows][:-1] + 1)
        stored[rows] = (sequences[rows] - foretold) & MAX_SEQUENCE
    return True


_SLOT_BITS: Final = 15
SLOTS: Final = 1 << _SLOT_BITS
"""More than there are rows in a section, whose numbers are in 16 bits."""
_SPREAD: Final = 0x61C88647
_LOOKS: Final = 8
"""Slots that are looked at for a row, on average: more are for producer ids that somebody chose for it."""


@interpreted_by(_by_sorting)
def foretell_sequences(producer_id: "Ints", delta: "Ints", sequences: "Ints", stored: "Ints", slots: "NDArray[np.int16]") -> bool:
    """Write to `stored` what is left of each sequence that is not negative; whether that was done, and not given up midway.

    `slots` are 2^14, all -1: a table of the last row of each producer.
    """
    last = -1
    looks = _LOOKS * len(sequences)
    for row in range(len(sequences)):
        if sequences[row] < 0:
            continue
        producer = producer_id[row]
        if last < 0 or producer_id[last] != producer:
            mixed = ((producer ^ (producer >> 31)) & MAX_SEQUENCE) * _SPREAD
            slot = (mixed & MAX_SEQUENCE) >> (31 - _SLOT_BITS)
            while slots[slot] >= 0 and producer_id[slots[slot]] != producer:
                slot = (slot + 1) & (SLOTS - 1)
                looks -= 1
                if looks < 0:
                    return False
            last = int(slots[slot])
        foretold = sequences[last] + delta[last] + 1 if last >= 0 else 0
        stored[row] = (sequences[row] - foretold) & MAX_SEQUENCE
        slots[slot] = last = row
    return True


def _planes(stored: "Sequence[Ints]", room: "NDArray[np.uint8]") -> memoryview:
    """Of each column the least value, and of what lies above it as many bytes as the most needs, byte by byte."""
    assert room.size >= len(stored) * (PLANES_HEAD.size + 8 * stored[0].size)
    return room[: fill_planes(tuple(map(np.ascontiguousarray, stored)), room)].data


def _fill_planes(stored: "tuple[Ints, ...]", room: "NDArray[np.uint8]") -> int:
    """`fill_planes` by arrays."""
    made = b"".join(map(_planes_of, stored))
    room[: len(made)] = np.frombuffer(made, np.uint8)
    return len(made)


def _planes_of(values: "Ints") -> bytes:
    if not values.size:
        return PLANES_HEAD.pack(0, 0)
    least, most = int(values.min()), int(values.max())
    width = ((most - least).bit_length() + 7) // 8
    if not width:
        return PLANES_HEAD.pack(0, least)
    above = (values - least).astype("<i8", copy=False).view(np.uint8).reshape(-1, 8)
    return PLANES_HEAD.pack(width, least) + above[:, :width].T.tobytes()


_HALF: Final = (1 << 32) - 1


@interpreted_by(_fill_planes)
def fill_planes(stored: "tuple[Ints, ...]", room: "NDArray[np.uint8]") -> int:
    """Write the planes of each column to `room`, which has place for them; the bytes that they take.

    Differences of any two int64 are taken by halves of 32 bits, which do not overflow.
    """
    at, rows = 0, len(stored[0])
    for column in range(len(stored)):
        values = stored[column]
        least = most = values[0] if rows else 0
        for row in range(rows):
            least = min(least, values[row])
        for row in range(rows):
            most = max(most, values[row])
        least_low, least_high = least & _HALF, least >> 32
        low = (most & _HALF) - least_low
        high = (most >> 32) - least_high + (low >> 32)
        width, rest = (4, high) if high else (0, low & _HALF)
        while rest:
            width += 1
            rest >>= 8
        room[at] = width
        for byte in range(8):
            room[at + 1 + byte] = (least >> (8 * byte)) & 0xFF
        at += 9
        for plane in range(width):
            shift, target = 8 * (plane & 3), room[at : at + rows]
            if plane < 4:
                for row in range(rows):
                    target[row] = (((values[row] & _HALF) - least_low) >> shift) & 0xFF
            else:
                for row in range(rows):
                    carried = ((values[row] & _HALF) - least_low) >> 32
                    target[row] = (((values[row] >> 32) - least_high + carried) >> shift) & 0xFF
            at += rows
    return at
