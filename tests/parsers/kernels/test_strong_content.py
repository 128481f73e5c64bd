"""Digests of content without a key: the compiled ones are a library's BLAKE2b, of contents of any size."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_forensics.parsers.kernels.strong_content import SMALL_BYTES, digest_of_range, strong_digest_ranges

SIZES = (0, 1, 7, 8, 9, 63, 64, 120, 127, 128, 129, 135, 136, 255, 256, 257, SMALL_BYTES - 1, SMALL_BYTES)


def library(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("form", ["interpreted", "compiled"])
def test_it_is_a_librarys_digest_at_every_edge_of_a_block(form: str, size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size + 5, np.uint8)
    halves = getattr(digest_of_range, form)(data, 3, 3 + size, np.full(16, -1, np.int64))
    assert np.array(halves, "<i8").tobytes() == library(data[3 : 3 + size].tobytes())


@pytest.mark.properties
@given(st.lists(st.binary(max_size=400) | st.binary(min_size=900, max_size=1100), max_size=6), st.binary(max_size=9))
def test_small_ranges_are_digested_one_by_one_and_large_ones_left_to_others(pieces: list[bytes], before: bytes) -> None:
    ends = len(before) + np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
    starts = (ends - [len(piece) for piece in pieces]).astype(np.int64)
    buffer = np.frombuffer(bytearray(before + b"".join(pieces)), np.uint8)
    expected = [library(piece) if len(piece) <= SMALL_BYTES else bytes(16) for piece in pieces]
    for form in ("interpreted", "compiled"):
        digests = np.zeros((len(pieces), 2), np.int64)
        getattr(strong_digest_ranges, form)(buffer, starts, ends, np.full(16, -1, np.int64), digests)
        assert [row.astype("<i8").tobytes() for row in digests] == expected
