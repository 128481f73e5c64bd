"""The position at which recovery ends equals that of a naive loop over the bytes, for any split of the log."""

import struct
from itertools import pairwise

import google_crc32c
import numpy as np
import pytest
from hypothesis import given, strategies as st

from kafka_forensics.analysis.replica import RecoveryFold, WalkEnd
from kafka_forensics.analysis.segments.framing import NO_BATCHES, chunk_facts
from kafka_forensics.model.batches import BATCH_COLUMNS, BatchChunk
from kafka_forensics.parsers.log.codecs import last_entry, read_next_offset
from kafka_forensics.replication.recovery import LENGTH_TOO_SMALL, OFFSET_OVERFLOW, RecoveryStop
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support.memory import MemoryFile
from tests.support.segments import read


def batch(base: int, count: int = 2) -> bytes:
    return write_batch([RecordToWrite(b"k", bytes([base % 251]) * 40)] * count, base_offset=base, base_timestamp=1000 + base)


BASE = 100
LOG = [batch(offset) for offset in range(BASE, BASE + 40, 2)]
STARTS = [sum(map(len, LOG[:n])) for n in range(len(LOG) + 1)]
DATA = b"".join(LOG)
END = BASE + 40


def naive(data: bytes) -> tuple[int, int] | None:
    """(position, next offset) at which recovery truncates, None if it reaches the end: Kafka's loop."""
    position, end = 0, BASE
    while position < len(data) - 17:
        offset, length, _, magic = struct.unpack_from(">qiib", data, position)
        if length < 14 or position > len(data) - 12 - length or magic < 2 or length < 49:
            break
        (stored,) = struct.unpack_from(">I", data, position + 17)
        if google_crc32c.value(data[position + 21 : position + 12 + length]) != stored:
            break
        (delta,) = struct.unpack_from(">i", data, position + 23)
        if not 0 <= offset + delta - BASE < 2**31:
            break
        position, end = position + 12 + length, offset + delta + 1
    return None if position == len(data) else (position, end)


def folded(chunks: list[BatchChunk]) -> RecoveryFold:
    fold = RecoveryFold(BASE)
    for chunk in chunks:
        fold.step(chunk, chunk_facts(chunk.columns))
    return fold


def cut(chunk: BatchChunk, points: list[int]) -> list[BatchChunk]:
    """The parts of the chunk, each with the damage that begins in it."""
    positions = chunk.columns[0].tolist()
    inner = sorted({point for point in points if 0 < point < chunk.rows})
    edges, limits = [0, *inner, chunk.rows], [0, *(positions[point] for point in inner), 1 << 62]
    return [
        BatchChunk(chunk.columns[:, a:b], [damage for damage in chunk.damage if low <= damage.position < high], 0, 0, 0)
        for (a, b), (low, high) in zip(pairwise(edges), pairwise(limits), strict=True)
    ]


@given(st.binary(min_size=1, max_size=3), st.integers(0, STARTS[-1] - 1), st.lists(st.integers(0, 20), max_size=4), st.booleans())
def test_recovery_ends_where_a_naive_loop_ends(noise: bytes, at: int, points: list[int], truncate: bool) -> None:
    data = bytearray(b"".join(LOG))
    data[at : at + len(noise)] = noise
    damaged = bytes(data[:at] if truncate else data)
    (chunk,) = read(damaged).chunks
    whole = folded([chunk]).stop(BASE)
    assert (None if whole is None else (whole.position, whole.end_offset)) == naive(damaged)
    merged: RecoveryFold | None = None
    for piece in cut(chunk, points):
        part = folded([piece])
        if merged is None:
            merged = part
        else:
            merged.merge(part)
    assert merged is not None
    assert merged.ends == folded([chunk]).ends


@pytest.mark.parametrize(("segment", "stopped_at"), [(BASE, None), (BASE - 2**31 + 30, 15), (BASE + 1, None), (BASE + 2, 0)])
def test_offsets_beyond_a_segments_range_end_the_walk(segment: int, stopped_at: int | None) -> None:
    (chunk,) = read(DATA).chunks
    seen = chunk_facts(chunk.columns)
    assert seen.joined
    fold = RecoveryFold(segment)
    fold.step(chunk, seen)
    stop = fold.stop(segment)
    assert (None if stop is None else (stop.position, stop.check)) == (
        None if stopped_at is None else (STARTS[stopped_at], OFFSET_OVERFLOW)
    )


def test_an_end_in_a_later_segment_does_not_depend_on_earlier_segments() -> None:
    left, right = folded(read(LOG[0]).chunks), RecoveryFold(200)
    right.step(BatchChunk(np.empty((BATCH_COLUMNS, 0), np.int64), read(bytes(50)).chunks[0].damage, 0, 0, 0), NO_BATCHES)
    left.merge(right)
    assert left.ends == {200: WalkEnd(0, LENGTH_TOO_SMALL, None, 0)}
    assert left.stop(200) == RecoveryStop(0, 200, LENGTH_TOO_SMALL)


@pytest.mark.parametrize(
    ("entry", "data", "expected"),
    [
        pytest.param((BASE, 0), DATA, END, id="no entry"),
        pytest.param((BASE + 21, STARTS[10]), DATA, END, id="entry"),
        pytest.param((END - 1, STARTS[19]), DATA, END, id="last batch"),
        pytest.param((END - 1, STARTS[19]), DATA[:-1], BASE, id="last batch torn"),
        pytest.param((BASE + 21, STARTS[10]), DATA[:-1], END - 2, id="torn after the entry"),
        pytest.param((END + 5, STARTS[19]), DATA, BASE, id="offset beyond"),
        pytest.param((BASE + 21, 1 << 20), DATA, BASE, id="position beyond"),
        pytest.param((BASE + 21, -5), DATA, END, id="negative position"),
        pytest.param((END - 1, STARTS[19]), DATA + LOG[0], BASE, id="older batch after the entry"),
        pytest.param((BASE, 0), DATA + LOG[0], BASE + 2, id="older batch at the end, no entry"),
        pytest.param((BASE, 0), DATA + bytes(100), None, id="zeros"),
        pytest.param((BASE, 0), DATA + bytes(17), END, id="few zeros"),
        pytest.param((BASE, 0), b"", BASE, id="empty"),
    ],
)
def test_next_offset_by_the_last_index_entry(entry: tuple[int, int], data: bytes, expected: int | None) -> None:
    assert read_next_offset(MemoryFile(data), BASE, entry) == expected


def test_last_entry_counts_zeros_and_not_torn_ones() -> None:
    entries = struct.pack(">iiii", 3, 100, 9, 700)
    assert last_entry(MemoryFile(entries), 50) == (59, 700)
    assert last_entry(MemoryFile(entries + b"abc"), 50) == (59, 700)
    assert last_entry(MemoryFile(entries + bytes(16)), 50) == (50, 0)
    assert last_entry(MemoryFile(b""), 50) == (50, 0)
