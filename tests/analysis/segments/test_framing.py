"""Framing: counts, samples of damage, batches hidden after a wrong length, headers that are wrong though their CRC is right."""

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from kafka_forensics.analysis.segments.framing import FramingFold, ReadersStop, SegmentTotals, chunk_facts
from kafka_forensics.model.batches import BatchChunk, BatchColumn, Damage
from kafka_forensics.model.constants import CONTROL_MASK, TIMESTAMP_TYPE_MASK
from tests.support.segments import (
    BASE_TIMESTAMP,
    batch,
    batch_positions,
    chunk_of,
    columns_of,
    flip_bit,
    log,
    read,
    replace_bytes,
    with_length,
)
from tests.support.strategies import any_segments, fold_in_parts

Item = dict[str, Any]


@st.composite
def items(draw: st.DrawFn) -> list[Item]:
    """Rows and damage in file order, over a few segments."""
    made: list[Item] = []
    segment = position = 0
    for _ in range(draw(st.integers(0, 14))):
        if draw(st.integers(0, 4)) == 0:
            segment, position = segment + 1000, 0
        size = draw(st.integers(61, 90))
        kind = draw(st.sampled_from(["row", "row", "row", "FRAMING_LOST", "SEG_HOLE", "SEG_TORN_TAIL", "BATCH_CRC_MISMATCH"]))
        count = draw(st.one_of(st.integers(-1, 14), st.just(2**31 - 1)))
        made.append(
            {
                "kind": kind,
                "segment": segment,
                "position": position,
                "size": size,
                "count": count,
                "delta": draw(st.sampled_from([count - 1, count - 1, 0, 2, -1, 2**31 - 1])),
                "codec": draw(st.integers(0, 1)),
                "good": draw(st.integers(0, 4)) > 0,
                "magic": draw(st.sampled_from([2, 2, 1])),
                "stamp": draw(st.integers(-1, 9)),
                "clock": draw(st.sampled_from([0, 0, TIMESTAMP_TYPE_MASK, CONTROL_MASK])),
                "past": draw(st.booleans()),
            }
        )
        position += size
    return made


def chunk(log: list[Item]) -> BatchChunk:
    """The chunk of these items of one segment."""
    rows = [
        {
            BatchColumn.POSITION: item["position"],
            BatchColumn.SIZE_IN_BYTES: item["size"],
            BatchColumn.BASE_OFFSET: item["position"],
            BatchColumn.LAST_OFFSET: item["position"] + 1,
            BatchColumn.RECORDS_COUNT: item["count"],
            BatchColumn.LAST_OFFSET_DELTA: item["delta"],
            BatchColumn.ATTRIBUTES: item["codec"] | item["clock"],
            BatchColumn.CRC_COMPUTED: int(not item["good"]),
            BatchColumn.MAGIC: item["magic"],
            BatchColumn.MAX_TIMESTAMP: item["stamp"],
        }
        for item in log
        if item["kind"] == "row"
    ]
    lost = [damage(item) for item in log if item["kind"] != "row"]
    return chunk_of(columns_of(rows), lost)


def damage(item: Item) -> Damage:
    detail: dict[str, int | str | bool | list[int]] = {"runs_past_end": item["past"]}
    if item["kind"] == "BATCH_CRC_MISMATCH":
        detail = {"stored_crc": 1}
    return Damage(item["kind"], item["position"], item["size"], detail=detail)


def wrong_header_kind(item: Item) -> str | None:
    """The kind of damage of a header that contradicts itself, computed naively."""
    count, offsets, compressed = item["count"], item["delta"] + 1, item["codec"] > 0
    if item["kind"] != "row" or not item["good"] or item["magic"] < 2:
        return None
    if count < 0 or (not compressed and count * 7 > item["size"] - 61):
        return "BATCH_COUNT_LIE"
    if compressed and count > max(offsets, 1):
        return "BATCH_COUNT_LIE"
    return None if count == offsets else "BATCH_RANGE_INCONSISTENT"


@given(items(), st.data())
def test_any_cut_gives_what_a_plain_loop_gives(log: list[Item], draw: st.DataObject) -> None:
    def feed(state: FramingFold, start: int, end: int) -> None:
        for segment in sorted({item["segment"] for item in log[start:end]}):
            part = FramingFold(segment)
            segment_chunk = chunk([item for item in log[start:end] if item["segment"] == segment])
            part.step(segment_chunk, chunk_facts(segment_chunk.columns))
            state.merge(part)

    state = fold_in_parts(draw, lambda: FramingFold(0), feed, len(log))
    rows = [item for item in log if item["kind"] == "row"]
    good = [item for item in rows if item["good"]]
    assert state.batches == len(rows)
    assert state.records == sum(min(max(item["count"], 0), 2**20) for item in good)
    assert state.max_timestamp == max((item["stamp"] for item in good), default=-1)
    assert state.broker_timestamp == max((item["stamp"] for item in good if item["clock"]), default=-1)
    assert state.bytes_decoded == sum(item["size"] for item in good)
    assert state.bytes_damaged == sum(item["size"] for item in log) - state.bytes_decoded
    assert state.by_segment == plain_totals(rows)
    assert state.readers_stop == plain_readers_stop(log)
    found = {kind: [(segment, damage_span.position) for segment, damage_span in sample] for kind, sample in state.damage.items()}
    expected: dict[str, list[tuple[int, int]]] = {}
    for item in log:
        kind = wrong_header_kind(item) if item["kind"] == "row" else item["kind"]
        if kind is not None:
            expected.setdefault(kind, []).append((item["segment"], item["position"]))
    assert found == expected


def plain_totals(rows: list[Item]) -> dict[int, SegmentTotals]:
    totals: dict[int, SegmentTotals] = {}
    for item in rows:
        segment_totals = totals.setdefault(item["segment"], SegmentTotals(first_offset=item["position"]))
        segment_totals.max_timestamp = max(segment_totals.max_timestamp, item["stamp"] if item["good"] else -1)
        segment_totals.batches += 1
        segment_totals.last_offset = item["position"] + 1
        segment_totals.end_position = item["position"] + item["size"]
    return totals


def plain_readers_stop(log: list[Item]) -> dict[int, ReadersStop]:
    found: dict[int, ReadersStop] = {}
    before: dict[int, int] = {}
    for item in log:
        segment = item["segment"]
        if item["kind"] == "row":
            before[segment] = before.get(segment, 0) + 1
        elif item["kind"] in ("FRAMING_LOST", "SEG_HOLE") and segment not in found:
            found[segment] = ReadersStop(item["position"], item["past"], before.get(segment, 0))
    return found


@given(any_segments())
def test_bytes_of_any_file_add_up_to_its_size(data: bytes) -> None:
    state = FramingFold(0)
    reading = read(data)
    for batch_chunk in reading.chunks:
        state.step(batch_chunk, chunk_facts(batch_chunk.columns))
    assert state.bytes_decoded + state.bytes_damaged + state.bytes_skipped == len(data)
    assert state.batches == reading.columns.shape[1]


def fold_of(data: bytes) -> FramingFold:
    state = FramingFold(0)
    for batch_chunk in read(data).chunks:
        state.step(batch_chunk, chunk_facts(batch_chunk.columns))
    return state


def test_a_wrong_count_found_by_decoding_is_reported_once() -> None:
    columns = read(batch(0, 3, records_count=-1)).columns
    state = FramingFold(0)
    state.step(chunk_of(columns, [Damage("BATCH_COUNT_LIE", 0, int(columns[BatchColumn.SIZE_IN_BYTES, 0]))]), chunk_facts(columns))
    assert state.damage["BATCH_COUNT_LIE"].count == 1


def test_damage_is_sampled_and_counted() -> None:
    batches = log(100)
    at, data = batch_positions(batches), bytearray(b"".join(batches))
    for position in at[:-1]:
        data[position + 70] ^= 1
    sample = fold_of(bytes(data)).damage["BATCH_CRC_MISMATCH"]
    assert (sample.count, len(sample)) == (100, 32)
    assert [damage_span.position for _, damage_span in sample] == [*at[:16], *at[84:100]]


@pytest.mark.parametrize(("length", "past"), [(2**31 - 1, True), (3, False)])
def test_batches_after_a_wrong_length_are_hidden(length: int, past: bool) -> None:
    """F05: consumers stop silently if the length exceeds the file, and with an error if it does not."""
    batches = log(5)
    state = fold_of(with_length(b"".join(batches), batch_positions(batches)[1], length))
    assert state.readers_stop == {0: ReadersStop(batch_positions(batches)[1], past, 1)}
    assert state.by_segment == {0: SegmentTotals(4, 9, batch_positions(batches)[5], 0, BASE_TIMESTAMP + 14)}


def test_damage_inside_a_frame_hides_nothing() -> None:
    batches = log(3, records=1, value=b"x" * 9000)
    assert fold_of(flip_bit(b"".join(batches), 100)).readers_stop == {}
    hole = fold_of(replace_bytes(b"".join(batches), 2000, bytes(4096)))
    assert "SEG_HOLE" in hole.damage
    assert hole.readers_stop == {}


def test_counts_are_plain_integers() -> None:
    """JSON cannot represent numpy's integers."""
    state = fold_of(batch(0, 3, records_count=-1) + struct.pack(">q", 9))
    numbers = [state.batches, state.records, state.bytes_decoded, state.max_timestamp, state.by_segment[0].last_offset]
    assert all(type(number) is int for number in numbers)
    ((_, damage_span),) = state.damage["BATCH_COUNT_LIE"]
    assert not any(isinstance(value, np.generic) for value in damage_span.detail.values())
