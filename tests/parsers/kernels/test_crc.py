"""CRCs, loads and the identity hash: interpreted, compiled and independent oracles agree on any bytes."""

import random
import struct
import zlib
from collections.abc import Callable
from typing import Any

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_forensics.compiled import Kernel, compile_function
from kafka_forensics.parsers.kernels import crc_native
from kafka_forensics.parsers.kernels.crc import crc32, crc32c, identity, load_i16, load_i32, load_i64
from kafka_forensics.parsers.kernels.walk import longest_zero_run

INT64 = st.integers(-(2**63), 2**63 - 1)
FORMS = ("interpreted", "compiled")
_MASK = 2**64 - 1


def array(data: bytes) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    return np.frombuffer(bytearray(data), np.uint8)


def form_of(kernel: Kernel[int], form: str) -> Callable[..., Any]:
    chosen: Callable[..., Any] = getattr(kernel, form)
    return chosen


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("kernel", "expected"),
    [(crc32c, 0xE3069283), (crc32, 0xCBF43926)],
    ids=["castagnoli", "ieee"],
)
def test_published_check_values(kernel: Kernel[int], expected: int, form: str) -> None:
    assert form_of(kernel, form)(array(b"123456789"), 0, 9, 0) == expected


@pytest.mark.properties
@given(st.binary(max_size=200), st.data())
def test_crcs_agree_with_libraries_on_any_range_and_any_cut(data: bytes, draw: st.DataObject) -> None:
    start = draw.draw(st.integers(0, len(data)))
    end = draw.draw(st.integers(start, len(data)))
    middle = draw.draw(st.integers(start, end))
    buffer = array(data)
    oracles: list[tuple[Kernel[int], Callable[[bytes], int]]] = [(crc32c, google_crc32c.value), (crc32, zlib.crc32)]
    for kernel, oracle in oracles:
        expected = oracle(data[start:end])
        for form in FORMS:
            crc = form_of(kernel, form)
            assert int(crc(buffer, start, end, 0)) == expected
            assert int(crc(buffer, middle, end, crc(buffer, start, middle, 0))) == expected


@pytest.mark.properties
@given(st.binary(max_size=100), st.integers(0, 2**32 - 1))
def test_the_table_path_of_other_processors_equals_the_instruction(data: bytes, crc: int) -> None:
    by_tables = _by_tables()
    buffer = array(data)
    expected = google_crc32c.extend(crc, data)
    assert int(by_tables(buffer, 0, len(data), crc)) == expected
    assert int(crc_native.crc32c(buffer, 0, len(data), crc)) == expected


_compiled_tables: list[Callable[..., Any]] = []


def _by_tables() -> Callable[..., Any]:
    """The path without an instruction, compiled once."""
    if not _compiled_tables:
        _compiled_tables.append(compile_function(crc_native._crc32c_by_tables))
    return _compiled_tables[0]


@pytest.mark.properties
@given(st.binary(min_size=8, max_size=40), st.data())
def test_loads_agree_with_struct(data: bytes, draw: st.DataObject) -> None:
    position = draw.draw(st.integers(0, len(data) - 8))
    buffer = array(data)
    for kernel, layout in ((load_i64, ">q"), (load_i32, ">i"), (load_i16, ">h")):
        expected = struct.unpack_from(layout, data, position)[0]
        assert [int(form_of(kernel, form)(buffer, position)) for form in FORMS] == [expected, expected]


def plain_identity(words: list[int], key_high: int, key_low: int) -> tuple[int, int]:
    """The hash as its definition reads, in unsigned words."""

    def folded(left: int, right: int) -> int:
        product = left * right
        return product % 2**64 ^ product // 2**64

    first, second, third, fourth, one, two = (word % 2**64 for word in (*words, key_high, key_low))
    odd, other = 0xD6E8FEB86659FD93, 0x9E3779B97F4A7C15
    left, right = folded(first ^ one, second ^ two ^ odd), folded(third ^ two, fourth ^ one ^ odd)
    high, low = folded(left ^ two, right ^ odd), folded((left + right) % 2**64, one ^ other)
    signed: tuple[int, int] = struct.unpack(">qq", struct.pack(">QQ", high, low))
    return signed


@pytest.mark.properties
@given(st.lists(INT64, min_size=4, max_size=4), INT64, INT64)
def test_identity_is_the_same_in_both_forms(words: list[int], key_high: int, key_low: int) -> None:
    expected = plain_identity(words, key_high, key_low)
    keys = np.array([key_high, key_low], np.int64)
    for form in FORMS:
        found = form_of(identity, form)(*words, keys[0], keys[1])
        assert tuple(map(int, found)) == expected


@pytest.mark.properties
@given(st.lists(INT64, min_size=4, max_size=4), st.integers(0, 3), st.integers(0, 63), st.integers(0, 10**6))
def test_identity_feels_every_bit_of_every_word(words: list[int], which: int, bit: int, seed: int) -> None:
    """Under keys as a scan draws them; special keys may be blind."""
    drawn = random.Random(seed)
    key_high, key_low = drawn.getrandbits(63), drawn.getrandbits(63)
    other = list(words)
    other[which] = struct.unpack(">q", struct.pack(">Q", other[which] & _MASK ^ 1 << bit))[0]
    left = identity.interpreted(*words, key_high, key_low)
    right = identity.interpreted(*other, key_high, key_low)
    assert left[0] != right[0]
    assert left[1] != right[1]


def test_identity_depends_on_the_key() -> None:
    words = (1, 2, 3, 4)
    hashes = {identity.interpreted(*words, high, low) for high in (0, 1) for low in (0, 1)}
    assert len(hashes) == 4


@pytest.mark.properties
@given(st.lists(st.sampled_from([0, 0, 0, 1, 255]), max_size=60), st.data())
def test_longest_zero_run(values: list[int], draw: st.DataObject) -> None:
    start = draw.draw(st.integers(0, len(values)))
    end = draw.draw(st.integers(start, len(values)))
    expected = max(map(len, bytes(values[start:end]).replace(b"\xff", b"\x01").split(b"\x01")), default=0)
    for form in FORMS:
        assert form_of(longest_zero_run, form)(array(bytes(values)), start, end) == expected
