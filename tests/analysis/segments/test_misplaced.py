"""Wrong base offsets by neighbours and witnesses: laws and tables; and nothing loops over offsets."""

import ast
import inspect
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

import kafka_forensics
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas.diff import walked
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


def matrix(spans: Spans, first_row: int = 0) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
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
    add_batches(fold, matrix(spans), [])
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


def moved(spans: Spans, row: int, bit: int) -> Spans:
    """The log with one bit of a base offset flipped; bit 63 is the sign."""
    start, end = spans[row]
    there = start ^ (1 << bit) if bit < 63 else start - 2**63
    return [*spans[:row], (there, there + end - start), *spans[row + 1 :]]


FLIPS = st.integers(0, 63)


@given(logs(gaps=False), st.data(), FLIPS)
def test_neighbours_that_join_give_the_right_offset(spans: Spans, data: st.DataObject, bit: int) -> None:
    assert misplaced_between_neighbours(matrix(spans), 0, spans[0][0], None) == []
    row = data.draw(st.integers(0, len(spans) - 2))
    (misplaced,) = misplaced_between_neighbours(matrix(moved(spans, row, bit)), 0, spans[0][0], None)
    assert (misplaced.position, misplaced.offset, misplaced.end_offset) == (100 * row, *spans[row])


@given(logs(gaps=True), st.data(), FLIPS)
def test_no_sound_batch_of_a_cleaned_log_is_reported(spans: Spans, data: st.DataObject, bit: int) -> None:
    assert list(misplaced_in_cleaned_log(runs_of(spans, spans[0][0]))) == []
    assert misplaced_between_neighbours(matrix(spans), 0, spans[0][0], None) == []
    wrong = moved(spans, data.draw(st.integers(0, len(spans) - 1)), bit)
    for misplaced in misplaced_in_cleaned_log(runs_of(wrong, spans[0][0])):
        others = [span for index, span in enumerate(wrong) if index != misplaced.position // 100]
        assert others == sorted(others)
        room = [(0, 0), *others, (2**63, 2**63)]
        place = misplaced.position // 100
        assert room[place][1] <= misplaced.offset <= misplaced.end_offset <= room[place + 1][0]


@given(logs(gaps=True), st.data(), st.integers(14, 63))
def test_a_distant_batch_of_a_cleaned_log_is_reported(spans: Spans, data: st.DataObject, bit: int) -> None:
    row = data.draw(st.integers(0, len(spans) - 2))
    (misplaced,) = misplaced_in_cleaned_log(runs_of(moved(spans, row, bit), spans[0][0]))
    assert (misplaced.position, misplaced.offset, misplaced.end_offset) == (100 * row, *spans[row])


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 5)), max_size=14), st.booleans(), st.data())
def test_edges_of_runs_by_any_cut(drawn: list[tuple[int, int]], compacted: bool, draw: st.DataObject) -> None:
    spans = [(start, start + size) for start, size in drawn]

    def feed(state: ContinuityFold, start: int, end: int) -> None:
        add_batches(state, matrix(spans[start:end], start), [])

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
        pytest.param(NEAR, [105], [], [], False, True, id="one bit, near, a watermark just there"),
        pytest.param(NEAR, [104], [], [], False, False, id="a watermark behind says nothing"),
        pytest.param(NEAR, [], [100], [], False, True, id="equal bytes name the place"),
        pytest.param(NEAR, [], [], [105], False, True, id="others end there"),
        pytest.param(BELOW, [], [], [], False, True, id="below, where others lie"),
        pytest.param(TWO_BITS, [], [], [], False, False, id="two bits"),
        pytest.param(TWO_BITS, [105], [], [], False, True, id="two bits, far away, a recovery point just there"),
        pytest.param(TWO_BITS, [], [100], [], False, True, id="two bits, an index entry"),
        pytest.param(LAST, [105], [LAST.written], [], False, False, id="its segment is named so"),
        pytest.param(LAST, [LAST.written + 5], [100], [], False, False, id="a watermark ends where it does"),
        pytest.param(LAST, [LAST.written - 20], [], [], False, False, id="a watermark between"),
        pytest.param(LAST, [], [], [LAST.written + 5], False, False, id="others end where it does"),
        pytest.param(LAST, [], [], [LAST.written - 20], False, True, id="others are longer"),
        pytest.param(LAST, [105], [], [], True, False, id="cleaned: a watermark is no witness"),
        pytest.param(LAST, [], [100], [], True, True, id="cleaned: equal bytes are"),
        pytest.param(TWO_BITS, [], [100], [], True, False, id="cleaned: equal bytes of a retry"),
    ],
)
def test_the_last_batch_by_its_witnesses(
    last: MisplacedBatch, ends: list[int], starts: list[int], elsewhere: list[int], cleaned: bool, is_wrong: bool
) -> None:
    heard = LogEndWitnesses(*([(offset, "somebody") for offset in each] for each in (ends, starts, elsewhere)))
    misplaced = misplaced_last_batch(last, heard, cleaned=cleaned)
    assert (misplaced is not None) is is_wrong
    assert misplaced is None or misplaced.offset == 100


def test_the_doubtful_last_batch() -> None:
    assert doubtful_last_batch([]) is None
    assert doubtful_last_batch(runs_of([(0, 3), (3, 5)])) is None
    assert doubtful_last_batch([Run(0, 5, 0, 0, 1), Run(7, 9, 0, 100, 1, after_damage=(0, 50))]) is None
    last = doubtful_last_batch(runs_of([(0, 3), (4, 5), (99, 101)]))
    assert last is not None
    assert (last.position, last.offsets, last.written, last.offset) == (200, 2, 99, 5)


def test_base_offsets_are_corrected_in_a_copy() -> None:
    columns = matrix([(0, 3), (99, 101), (5, 6)])
    chunk = BatchChunk(columns, [], 300, 0, 0)
    right = correct_base_offsets(chunk, {100: 3}).columns
    assert right[BatchColumn.BASE_OFFSET].tolist() == [0, 3, 5]
    assert right[BatchColumn.LAST_OFFSET].tolist() == [2, 4, 5]
    assert columns[BatchColumn.BASE_OFFSET].tolist() == [0, 99, 5]
    assert correct_base_offsets(chunk, {999: 3}) is chunk


def test_bytes_are_rewritten_by_the_difference() -> None:
    """The first field of an old compressed message is its last offset."""
    wrong = MisplacedBatch(0, 0, 3, 1000, 8, 8)
    assert wrong.rewritten((1002).to_bytes(8, "big") + b"rest") == (10).to_bytes(8, "big") + b"rest"
    assert wrong.rewritten(b"short") == b"short"
    assert wrong.rewritten((-(2**63)).to_bytes(8, "big", signed=True)) == (-(2**63)).to_bytes(8, "big", signed=True)


# Nothing walks through offsets.


@dataclass
class FewBatches:
    """A reader of given batches that counts its calls."""

    spans: Spans
    asked: list[tuple[int, int]] = field(default_factory=list)

    def batches(self, _: Replica, start: int, end: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        self.asked.append((start, end))
        assert len(self.asked) < 1000, "it walks through offsets"
        columns = matrix(self.spans)
        wanted = (columns[BatchColumn.LAST_OFFSET] >= start) & (columns[BatchColumn.BASE_OFFSET] < end)
        return np.concatenate([columns[:, wanted], np.zeros((1, int(wanted.sum())), np.int64)])


@pytest.mark.parametrize(
    "spans",
    [
        pytest.param([(0, 5), (2**60, 2**60 + 5), (2**61, 2**61 + 1)], id="far apart"),
        pytest.param([(0, 2**31), (2**31, 2**32), (2**32, 2**32 + 3)], id="wide"),
        pytest.param([(n * 50_000, n * 50_000 + 9) for n in range(60)], id="some in each block"),
    ],
)
def test_each_batch_is_read_once(spans: Spans) -> None:
    reader = FewBatches(spans)
    replica = Logs().add(1, batches((0, "a")))
    found = [row for rows in walked(reader, replica, 2, 2**62) for row in rows[BatchColumn.BASE_OFFSET].tolist()]  # type: ignore[arg-type]
    assert found == [start for start, _ in spans]
    assert len(reader.asked) <= 70 * len(spans)


def test_no_range_of_offsets_is_looped_over() -> None:
    """Rules, folds, planner and commands loop over what exists: `range` is never given offsets, nor stepped by blocks of them.

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
                given_to = ast.unparse(node).lower()
                if "offset" in given_to or "claimed" in given_to:
                    found.append((module, given_to))
    assert [module for module, _ in found] == ["questions/compare.py"], found
