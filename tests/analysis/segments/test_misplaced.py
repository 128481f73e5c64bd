"""Wrong base offsets, found by neighbours and witnesses; no code loops over offsets."""

import ast
import inspect
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

import kafka_forensics
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas.diff import read_in_steps
from kafka_forensics.analysis.segments.continuity import ContinuityFold, Run
from kafka_forensics.analysis.segments.misplaced import (
    LogEndWitnesses,
    MisplacedBatch,
    correct_base_offsets,
    doubtful_last_batch,
    misplaced_between_neighbours,
    misplaced_in_cleaned_log,
    misplaced_last_batch,
)
from kafka_forensics.model.batches import BatchChunk, BatchColumn
from tests.analysis.replica_logs import Logs, batches
from tests.support.segments import add_batches, columns_of
from tests.support.strategies import fold_in_parts

Spans = list[tuple[int, int]]
"""Offsets `[start, end)` of batches, each 100 bytes after the previous one."""


def columns_of_spans(spans: Spans, first_row: int = 0) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return columns_of(
        [
            {
                BatchColumn.POSITION: 100 * (first_row + row),
                BatchColumn.SIZE_IN_BYTES: 100,
                BatchColumn.BASE_OFFSET: start,
                BatchColumn.LAST_OFFSET: end - 1,
                BatchColumn.RECORDS_COUNT: end - start,
            }
            for row, (start, end) in enumerate(spans)
        ]
    )


def runs_of(spans: Spans, segment: int = 0) -> list[Run]:
    fold = ContinuityFold(segment, compacted=True)
    add_batches(fold, columns_of_spans(spans), [])
    return fold.runs


@st.composite
def logs(draw: st.DrawFn, *, gaps: bool) -> Spans:
    """Batches in order; with gaps, as a cleaner leaves them."""
    start = draw(st.integers(0, 2000))
    spans: Spans = []
    for _ in range(draw(st.integers(2, 12))):
        start += draw(st.integers(0, 40)) if gaps and spans else 0
        end = start + draw(st.integers(1, 9))
        spans.append((start, end))
        start = end
    return spans


def flipped_offset(spans: Spans, row: int, bit: int) -> Spans:
    """The log with one bit of a base offset flipped; bit 63 is the sign."""
    start, end = spans[row]
    wrong_start = start ^ (1 << bit) if bit < 63 else start - 2**63
    return [*spans[:row], (wrong_start, wrong_start + end - start), *spans[row + 1 :]]


FLIPS = st.integers(0, 63)


@given(logs(gaps=False), st.data(), FLIPS)
def test_neighbours_that_join_give_the_right_offset(spans: Spans, data: st.DataObject, bit: int) -> None:
    assert misplaced_between_neighbours(columns_of_spans(spans), 0, spans[0][0], None) == []
    row = data.draw(st.integers(0, len(spans) - 2))
    (misplaced,) = misplaced_between_neighbours(columns_of_spans(flipped_offset(spans, row, bit)), 0, spans[0][0], None)
    assert (misplaced.position, misplaced.offset, misplaced.end_offset) == (100 * row, *spans[row])


@given(logs(gaps=True), st.data(), FLIPS)
def test_no_sound_batch_of_a_cleaned_log_is_reported(spans: Spans, data: st.DataObject, bit: int) -> None:
    assert list(misplaced_in_cleaned_log(runs_of(spans, spans[0][0]))) == []
    assert misplaced_between_neighbours(columns_of_spans(spans), 0, spans[0][0], None) == []
    wrong = flipped_offset(spans, data.draw(st.integers(0, len(spans) - 1)), bit)
    for misplaced in misplaced_in_cleaned_log(runs_of(wrong, spans[0][0])):
        other_spans = [span for index, span in enumerate(wrong) if index != misplaced.position // 100]
        assert other_spans == sorted(other_spans)
        neighbours = [(0, 0), *other_spans, (2**63, 2**63)]
        place = misplaced.position // 100
        assert neighbours[place][1] <= misplaced.offset <= misplaced.end_offset <= neighbours[place + 1][0]


@given(logs(gaps=True), st.data(), st.integers(14, 63))
def test_a_distant_batch_of_a_cleaned_log_is_reported(spans: Spans, data: st.DataObject, bit: int) -> None:
    row = data.draw(st.integers(0, len(spans) - 2))
    (misplaced,) = misplaced_in_cleaned_log(runs_of(flipped_offset(spans, row, bit), spans[0][0]))
    assert (misplaced.position, misplaced.offset, misplaced.end_offset) == (100 * row, *spans[row])


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 5)), max_size=14), st.booleans(), st.data())
def test_any_cut_gives_the_edges_of_runs(drawn: list[tuple[int, int]], compacted: bool, draw: st.DataObject) -> None:
    spans = [(start, start + size) for start, size in drawn]

    def feed(state: ContinuityFold, start: int, end: int) -> None:
        add_batches(state, columns_of_spans(spans[start:end], start), [])

    state = fold_in_parts(draw, lambda: ContinuityFold(0, compacted=compacted), feed, len(spans))
    assert sum(run.batches for run in state.runs) == len(spans)
    row = 0
    for run in state.runs:
        end = row + run.batches
        assert (run.start_offset, run.start_offset + run.first_offsets) == spans[row]
        assert (run.last_place, run.last_start) == ((0, 100 * (end - 1)), spans[end - 1][0])
        assert run.last_offsets == spans[end - 1][1] - spans[end - 1][0]
        assert run.second_start == (spans[row + 1][0] if run.batches > 1 else None)
        assert run.end_before_last == (spans[end - 2][1] if run.batches > 1 else None)
        row = end


LAST = MisplacedBatch(0, 500, 5, 100 ^ 1 << 12, 100, 100, ("the batch before",))
NEAR = replace(LAST, written=100 ^ 1 << 3)
TWO_BITS = replace(LAST, written=100 ^ 0x3000)
BELOW = replace(LAST, written=100 ^ 1 << 6)


@pytest.mark.parametrize(
    ("last", "ends", "starts", "elsewhere", "cleaned", "is_wrong"),
    [
        pytest.param(LAST, [], [], [], False, True, id="one bit, far away"),
        pytest.param(NEAR, [], [], [], False, False, id="one bit, near: an old gap"),
        pytest.param(NEAR, [105], [], [], False, True, id="one bit, near, a watermark at its end"),
        pytest.param(NEAR, [104], [], [], False, False, id="a lower watermark is no witness"),
        pytest.param(NEAR, [], [100], [], False, True, id="equal bytes have the offset"),
        pytest.param(NEAR, [], [], [105], False, True, id="others end at it"),
        pytest.param(BELOW, [], [], [], False, True, id="below, at offsets of other batches"),
        pytest.param(TWO_BITS, [], [], [], False, False, id="two bits"),
        pytest.param(TWO_BITS, [105], [], [], False, True, id="two bits, far away, a recovery point at its end"),
        pytest.param(TWO_BITS, [], [100], [], False, True, id="two bits, an index entry"),
        pytest.param(LAST, [105], [LAST.written], [], False, False, id="its segment has the offset as its name"),
        pytest.param(LAST, [LAST.written + 5], [100], [], False, False, id="a watermark at its written end"),
        pytest.param(LAST, [LAST.written - 20], [], [], False, False, id="a watermark between"),
        pytest.param(LAST, [], [], [LAST.written + 5], False, False, id="others end at its written end"),
        pytest.param(LAST, [], [], [LAST.written - 20], False, True, id="others are longer"),
        pytest.param(LAST, [105], [], [], True, False, id="cleaned: a watermark is no witness"),
        pytest.param(LAST, [], [100], [], True, True, id="cleaned: equal bytes are a witness"),
        pytest.param(TWO_BITS, [], [100], [], True, False, id="cleaned: equal bytes of a retry"),
    ],
)
def test_witnesses_decide_whether_the_last_batch_is_wrong(
    last: MisplacedBatch, ends: list[int], starts: list[int], elsewhere: list[int], cleaned: bool, is_wrong: bool
) -> None:
    witnesses = LogEndWitnesses(*([(offset, "somebody") for offset in offsets] for offsets in (ends, starts, elsewhere)))
    misplaced = misplaced_last_batch(last, witnesses, cleaned=cleaned)
    assert (misplaced is not None) is is_wrong
    assert misplaced is None or misplaced.offset == 100


def test_the_last_batch_is_doubtful_after_a_gap_without_damage() -> None:
    assert doubtful_last_batch([]) is None
    assert doubtful_last_batch(runs_of([(0, 3), (3, 5)])) is None
    assert doubtful_last_batch([Run(0, 5, 0, 0, 1), Run(7, 9, 0, 100, 1, after_damage=(0, 50))]) is None
    last = doubtful_last_batch(runs_of([(0, 3), (4, 5), (99, 101)]))
    assert last is not None
    assert (last.position, last.offsets, last.written, last.offset) == (200, 2, 99, 5)


def test_base_offsets_are_corrected_in_a_copy() -> None:
    columns = columns_of_spans([(0, 3), (99, 101), (5, 6)])
    chunk = BatchChunk(columns, [], 300, 0, 0)
    right = correct_base_offsets(chunk, {100: 3}).columns
    assert right[BatchColumn.BASE_OFFSET].tolist() == [0, 3, 5]
    assert right[BatchColumn.LAST_OFFSET].tolist() == [2, 4, 5]
    assert columns[BatchColumn.BASE_OFFSET].tolist() == [0, 99, 5]
    assert correct_base_offsets(chunk, {999: 3}) is chunk


def test_the_base_offset_in_the_bytes_is_corrected() -> None:
    """The first field of an old compressed message is its last offset."""
    wrong = MisplacedBatch(0, 0, 3, 1000, 8, 8)
    assert wrong.rewritten((1002).to_bytes(8, "big") + b"rest") == (10).to_bytes(8, "big") + b"rest"
    assert wrong.rewritten(b"short") == b"short"
    assert wrong.rewritten((-(2**63)).to_bytes(8, "big", signed=True)) == (-(2**63)).to_bytes(8, "big", signed=True)


# No code loops over offsets.


@dataclass
class RecordingReader:
    """A reader of these batches that records the ranges it is called with."""

    spans: Spans
    ranges_read: list[tuple[int, int]] = field(default_factory=list)

    def batches(self, _: Replica, start: int, end: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        self.ranges_read.append((start, end))
        assert len(self.ranges_read) < 1000, "the reader is called for every offset"
        columns = columns_of_spans(self.spans)
        wanted = (columns[BatchColumn.LAST_OFFSET] >= start) & (columns[BatchColumn.BASE_OFFSET] < end)
        return np.concatenate([columns[:, wanted], np.zeros((1, int(wanted.sum())), np.int64)])


@pytest.mark.parametrize(
    "spans",
    [
        pytest.param([(0, 5), (2**60, 2**60 + 5), (2**61, 2**61 + 1)], id="distant"),
        pytest.param([(0, 2**31), (2**31, 2**32), (2**32, 2**32 + 3)], id="wide"),
        pytest.param([(n * 50_000, n * 50_000 + 9) for n in range(60)], id="some in each block"),
    ],
)
def test_each_batch_is_read_once(spans: Spans) -> None:
    reader = RecordingReader(spans)
    replica = Logs().add(1, batches((0, "a")))
    found = [row for rows in read_in_steps(reader, replica, 2, 2**62) for row in rows[BatchColumn.BASE_OFFSET].tolist()]  # type: ignore[arg-type]
    assert found == [start for start, _ in spans]
    assert len(reader.ranges_read) <= 70 * len(spans)


def test_no_code_loops_over_offsets() -> None:
    """Rules, folds, planner and commands loop over batches and blocks that exist, and never call `range` with offsets.

    The one exception lists the offsets of a batch that cannot be decoded, as many as it has bytes.
    """
    root = Path(inspect.getfile(kafka_forensics)).parent
    found = []
    for path in sorted(root.rglob("*.py")):
        module = path.relative_to(root).as_posix()
        if module.startswith("simulation/"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
                arguments = ast.unparse(node).lower()
                if "offset" in arguments or "claimed" in arguments:
                    found.append((module, arguments))
    assert [module for module, _ in found] == ["questions/compare.py"], found
