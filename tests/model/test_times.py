"""Times as Arrow columns: null for -1 and for what no calendar holds, from arrays and from rows."""

import numpy as np
import pyarrow as pa
from hypothesis import given, strategies as st

from kafka_forensics.export.facts.rows import array
from kafka_forensics.model.arrow import TIME, times
from tests.support.times import time_of

EDGES = (-(1 << 63), (1 << 63) - 1, -1, 0, -2, -62_135_596_800_000, 253_402_300_799_999, 253_402_214_399_999, 253_402_214_400_000)
MILLISECONDS = (
    st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-62_135_596_800_000, 253_402_300_799_999) | st.sampled_from(EDGES)
)


@given(st.lists(MILLISECONDS))
def test_times_agree_with_pythons_calendar(stored: list[int]) -> None:
    made = times(np.array(stored, np.int64))
    made.validate(full=True)
    assert made.type == TIME
    assert made.to_pylist() == list(map(time_of, stored))
    assert made.cast(pa.timestamp("us", "UTC")).to_pylist() == made.to_pylist()


@given(st.lists(st.none() | MILLISECONDS | st.integers()))
def test_rows_of_any_integers_agree_with_pythons_calendar(stored: list[int | None]) -> None:
    made = array(stored, TIME)
    made.validate(full=True)
    assert made.to_pylist() == list(map(time_of, stored))


def test_missing_and_impossible_times_are_null() -> None:
    assert times(np.array(EDGES)).is_null().to_pylist() == [True, True, True, False, False, True, True, False, True]
    masked = times(np.array([0, 1, -1]), null=np.array([True, False, False]))
    assert masked.is_null().to_pylist() == [True, False, True]
