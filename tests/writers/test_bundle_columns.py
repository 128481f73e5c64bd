"""Columns of a bundle with any values."""

import numpy as np
from hypothesis import given, strategies as st

from kafka_forensics.writers.bundle_columns import _planes_of, _sequences

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
LIMITS = st.sampled_from([0, 255, 256, 2**32 - 1, 2**32, 2**40, 2**63 - 1, -1, -256, -(2**32), -(2**63)])
MAX_SEQUENCE = 2**31 - 1


@given(
    st.integers(0, 12).flatmap(
        lambda rows: st.lists(st.lists(INT64 | LIMITS, min_size=rows, max_size=rows), min_size=1, max_size=5)
    )
)
def test_planes_have_the_differences_from_the_smallest_value(columns: list[list[int]]) -> None:
    expected = b""
    for values in columns:
        least = min(values, default=0)
        width = ((max(values, default=0) - least).bit_length() + 7) // 8
        expected += bytes([width]) + least.to_bytes(8, "little", signed=True)
        expected += b"".join(bytes(((value - least) >> 8 * plane) & 255 for value in values) for plane in range(width))
    assert b"".join(_planes_of(np.array(values, np.int64)) for values in columns) == expected


@given(
    st.lists(st.tuples(st.integers(0, 3) | INT64, st.integers(-(2**31), MAX_SEQUENCE), st.integers(-5, MAX_SEQUENCE)), max_size=30)
)
def test_the_last_sequence_of_a_producer_predicts_its_next(rows: list[tuple[int, int, int]]) -> None:
    producer_id, sequences, delta = np.array(rows, np.int64).reshape(-1, 3).T.copy()
    expected, following = [], dict[int, int]()
    for producer, sequence, last in rows:
        expected.append(sequence if sequence < 0 else (sequence - following.get(producer, 0)) & MAX_SEQUENCE)
        if sequence >= 0:
            following[producer] = sequence + last + 1
    assert _sequences(sequences, producer_id, delta).tolist() == expected
