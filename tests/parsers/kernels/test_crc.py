"""CRCs, loads, the identity hash and digests: both forms agree with independent implementations on any bytes."""

import hashlib
import struct
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

import google_crc32c
import numpy as np
import pytest
from hypothesis import given, strategies as st

from kafka_forensics.parsers.kernels import crc_native
from kafka_forensics.parsers.kernels.compiling import Kernel, compile_function
from kafka_forensics.parsers.kernels.crc import crc32, crc32c, identity, load_i16, load_i32, load_i64
from kafka_forensics.parsers.kernels.strong_content import SMALL_BYTES, digest_of_range, strong_digest_ranges
from kafka_forensics.parsers.kernels.walk import longest_zero_run
from tests.support.kernels import FORMS

INT64 = st.integers(-(2**63), 2**63 - 1)


def both(kernel: Kernel[int], data: bytes, *arguments: int) -> int:
    """The answer of both forms, which must be equal."""
    buffer = np.frombuffer(bytearray(data), np.uint8)
    [answer] = {int(getattr(kernel, form)(buffer, *arguments)) for form in FORMS}
    return answer


@given(st.binary(max_size=200), st.data())
def test_crcs_of_any_range_in_two_steps_agree_with_libraries(data: bytes, draw: st.DataObject) -> None:
    start = draw.draw(st.integers(0, len(data)))
    end = draw.draw(st.integers(start, len(data)))
    middle = draw.draw(st.integers(start, end))
    oracles: list[tuple[Kernel[int], Callable[[bytes], int]]] = [(crc32c, google_crc32c.value), (crc32, zlib.crc32)]
    for kernel, oracle in oracles:
        expected = oracle(data[start:end])
        assert both(kernel, data, start, end, 0) == expected
        assert both(kernel, data, middle, end, both(kernel, data, start, middle, 0)) == expected


@given(st.binary(max_size=100), st.integers(0, 2**32 - 1))
def test_the_table_path_agrees_with_the_processor_instruction(data: bytes, crc: int) -> None:
    buffer = np.frombuffer(bytearray(data), np.uint8)
    expected = google_crc32c.extend(crc, data)
    assert int(crc_by_tables()(buffer, 0, len(data), crc)) == expected
    assert int(crc_native.crc32c(buffer, 0, len(data), crc)) == expected


@cache
def crc_by_tables() -> Callable[..., Any]:
    """The CRC for processors without the instruction."""
    return compile_function(crc_native._crc32c_by_tables)


@given(st.binary(min_size=8, max_size=40), st.data())
def test_loads_agree_with_struct(data: bytes, draw: st.DataObject) -> None:
    position = draw.draw(st.integers(0, len(data) - 8))
    for kernel, layout in ((load_i64, ">q"), (load_i32, ">i"), (load_i16, ">h")):
        assert both(kernel, data, position) == struct.unpack_from(layout, data, position)[0]


def plain_identity(words: list[int], key_high: int, key_low: int) -> tuple[int, int]:
    """The hash by its definition, in unsigned words."""

    def folded(left: int, right: int) -> int:
        product = left * right
        return product % 2**64 ^ product // 2**64

    first, second, third, fourth, high_key, low_key = (word % 2**64 for word in (*words, key_high, key_low))
    odd, other = 0xD6E8FEB86659FD93, 0x9E3779B97F4A7C15
    left, right = folded(first ^ high_key, second ^ low_key ^ odd), folded(third ^ low_key, fourth ^ high_key ^ odd)
    high, low = folded(left ^ low_key, right ^ odd), folded((left + right) % 2**64, high_key ^ other)
    signed: tuple[int, int] = struct.unpack(">qq", struct.pack(">QQ", high, low))
    return signed


@given(st.lists(INT64, min_size=4, max_size=4), INT64, INT64)
def test_identity_agrees_with_its_definition(words: list[int], key_high: int, key_low: int) -> None:
    expected = plain_identity(words, key_high, key_low)
    keys = np.array([key_high, key_low], np.int64)
    for form in FORMS:
        assert tuple(map(int, getattr(identity, form)(*words, keys[0], keys[1]))) == expected


@given(st.lists(st.sampled_from([0, 0, 0, 1, 255]), max_size=60), st.data())
def test_longest_zero_run_of_any_range(values: list[int], draw: st.DataObject) -> None:
    start = draw.draw(st.integers(0, len(values)))
    end = draw.draw(st.integers(start, len(values)))
    expected = max(map(len, bytes(values[start:end]).replace(b"\xff", b"\x01").split(b"\x01")), default=0)
    assert both(longest_zero_run, bytes(values), start, end) == expected


# Digests of content without a key are BLAKE2b.


SIZES = (0, 1, 7, 8, 9, 63, 64, 120, 127, 128, 129, 135, 136, 255, 256, 257, SMALL_BYTES - 1, SMALL_BYTES)


def blake2b(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("form", ["interpreted", "compiled"])
def test_digests_at_the_edges_of_blocks_agree_with_the_library(form: str, size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size + 5, np.uint8)
    halves = getattr(digest_of_range, form)(data, 3, 3 + size, np.full(16, -1, np.int64))
    assert np.array(halves, "<i8").tobytes() == blake2b(data[3 : 3 + size].tobytes())


@given(st.lists(st.binary(max_size=400) | st.binary(min_size=900, max_size=1100), max_size=6), st.binary(max_size=9))
def test_small_ranges_are_digested_and_large_ranges_are_left_out(contents: list[bytes], before: bytes) -> None:
    ends = len(before) + np.cumsum([len(content) for content in contents], dtype=np.int64)
    starts = (ends - [len(content) for content in contents]).astype(np.int64)
    buffer = np.frombuffer(bytearray(before + b"".join(contents)), np.uint8)
    expected = [blake2b(content) if len(content) <= SMALL_BYTES else bytes(16) for content in contents]
    for form in ("interpreted", "compiled"):
        digests = np.zeros((len(contents), 2), np.int64)
        getattr(strong_digest_ranges, form)(buffer, starts, ends, np.full(16, -1, np.int64), digests)
        assert [row.astype("<i8").tobytes() for row in digests] == expected
