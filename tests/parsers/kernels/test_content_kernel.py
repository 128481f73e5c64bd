"""Digests of content: the polynomial as its definition reads, SipHash by its published values, one answer from every form."""

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_forensics.parsers.kernels.content import (
    PRIME,
    WORD_BYTES,
    content_keys,
    digest_ranges,
    finished,
    load_last_word,
    polynomial,
    reduced,
    sealed,
    times,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMS = ("interpreted", "source", "compiled")
SECRET = bytes(range(32))
KEYS = content_keys(SECRET)
POINT = int(KEYS[0])
ANY_CONTENT = st.binary(max_size=400) | st.builds(
    lambda one, count: one * count, st.binary(min_size=1, max_size=9), st.integers(0, 3000)
)
"""The longer ones are summed as arrays where nothing is compiled."""


def array(data: bytes) -> "NDArray[np.uint8]":
    return np.frombuffer(bytearray(data), np.uint8)


def plain_value(content: bytes, point: int, size: int) -> int:
    """The polynomial as the sum that its definition is."""
    words = [int.from_bytes(content[at : at + 7], "little") for at in range(0, len(content), 7)]
    value: int = sum(word * point ** (len(words) - index) for index, word in enumerate(words)) + size
    return value % PRIME


def plain_words(content: bytes, point: int) -> int:
    """The same without the size, by Horner's rule."""
    value = 0
    for at in range(0, len(content), 7):
        value = (value * point + int.from_bytes(content[at : at + 7], "little")) % PRIME
    return value


@pytest.mark.properties
@given(ANY_CONTENT, st.data())
def test_every_form_is_horners_rule_on_any_range_and_any_cut(content: bytes, draw: st.DataObject) -> None:
    start = draw.draw(st.integers(0, min(len(content), 20)))
    end = draw.draw(st.integers(start, len(content)))
    middle = start + draw.draw(st.integers(0, (end - start) // WORD_BYTES)) * WORD_BYTES
    buffer = array(content)
    expected = plain_words(content[start:end], POINT)
    for form in FORMS:
        walk = getattr(polynomial, form)
        assert int(walk(buffer, start, end, KEYS, 0)) == expected
        assert int(walk(buffer, middle, end, KEYS, walk(buffer, start, middle, KEYS, 0))) == expected


@pytest.mark.properties
@given(st.binary(max_size=120), st.integers(1, PRIME - 1) | st.just(PRIME - 1))
def test_the_value_is_the_polynomial_of_the_words_and_the_size(content: bytes, point: int) -> None:
    keys = np.array([pow(point, power, PRIME) for power in range(1, 5)] + [3, -4], np.int64)
    expected = int(sealed.interpreted(plain_value(content, point, len(content)), 3, -4))
    for form in FORMS:
        value = getattr(polynomial, form)(array(content), 0, len(content), keys, 0)
        assert int(getattr(finished, form)(value, len(content), keys)) == expected


@pytest.mark.parametrize("form", FORMS)
def test_the_largest_words_and_keys_overflow_nothing(form: str) -> None:
    for point in (PRIME - 1, PRIME - 2, 1, 2**60):
        keys = np.array([pow(point, power, PRIME) for power in range(1, 5)] + [0, 0], np.int64)
        for size in (27, 28, 29, 63, 64, 1000):
            content = b"\xff" * size
            assert (
                int(getattr(polynomial, form)(array(content), 0, size, keys, PRIME - 1))
                == (plain_words(content, point) + (PRIME - 1) * pow(point, -(-size // 7), PRIME)) % PRIME
            )


@pytest.mark.properties
@given(st.integers(0, 2**63 - 1), st.integers(0, PRIME - 1))
def test_products_are_right_up_to_the_prime(value: int, factor: int) -> None:
    for form in FORMS:
        product = int(getattr(times, form)(value, factor))
        assert product % PRIME == value * factor % PRIME
        assert 0 <= product <= PRIME + 8
        assert int(getattr(reduced, form)(value)) == value % PRIME


@pytest.mark.properties
@given(st.binary(min_size=1, max_size=7), st.binary(max_size=9))
def test_the_last_word_is_what_is_left_of_the_bytes(word: bytes, before: bytes) -> None:
    buffer = array(before + word)
    for form in FORMS:
        found = getattr(load_last_word, form)(buffer, len(before), len(before) + len(word))
        assert int(found) == int.from_bytes(word, "little")


@pytest.mark.parametrize("form", FORMS)
def test_the_seal_is_siphash_by_its_published_value(form: str) -> None:
    """For the key 00 … 0f and the message 00 … 07: 62 24 93 9a 79 f5 f5 93 (vectors.h of its authors)."""
    low, high = (int.from_bytes(SECRET[at : at + 8], "little") for at in (0, 8))
    digest = int(getattr(sealed, form)(int.from_bytes(SECRET[:8], "little"), low, high))
    assert digest.to_bytes(8, "little", signed=True) == bytes.fromhex("6224939a79f5f593")


@pytest.mark.properties
@given(st.integers(0, 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_the_seal_is_the_same_in_both_forms(value: int, low: int, high: int) -> None:
    assert int(sealed.compiled(value, low, high)) == sealed.interpreted(value, low, high)


@pytest.mark.properties
@given(st.lists(st.binary(max_size=200), max_size=6), st.binary(max_size=9))
def test_ranges_are_digested_one_by_one(pieces: list[bytes], before: bytes) -> None:
    ends = len(before) + np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
    starts = ends - [len(piece) for piece in pieces]
    buffer = array(before + b"".join(pieces))
    expected = [int(sealed.interpreted(plain_value(piece, POINT, len(piece)), KEYS[4], KEYS[5])) for piece in pieces]
    for form in FORMS:
        digests = np.zeros(len(pieces), np.int64)
        getattr(digest_ranges, form)(buffer, starts.astype(np.int64), ends, KEYS, digests)
        assert digests.tolist() == expected


@pytest.mark.properties
@given(st.binary(min_size=1, max_size=70), st.data())
def test_a_digest_feels_every_bit_the_size_and_the_key(content: bytes, draw: st.DataObject) -> None:
    bit = draw.draw(st.integers(0, 8 * len(content) - 1))
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    others = [(bytes(changed), SECRET), (content + b"\0", SECRET), (b"\0" + content, SECRET), (content, SECRET[::-1])]
    assert digest_of(content, SECRET) not in {digest_of(*other) for other in others}


def digest_of(content: bytes, secret: bytes) -> int:
    keys = content_keys(secret)
    return int(finished.interpreted(polynomial.interpreted(array(content), 0, len(content), keys, 0), len(content), keys))


def test_keys_are_drawn_from_all_of_the_secret_and_for_one_purpose() -> None:
    assert len({int(content_keys(SECRET, purpose)[0]) for purpose in (b"", b"a", b"aa", b"content digests")}) == 4
    drawn: list[Any] = [content_keys(SECRET[:at] + b"\xff" + SECRET[at + 1 :]).tolist() for at in range(32)]
    assert len({tuple(keys) for keys in drawn}) == 32
    point = int.from_bytes(hashlib.blake2b(key=SECRET, digest_size=32, person=b"content digests\0").digest()[:16], "little") % PRIME
    assert KEYS[:4].tolist() == [pow(point, power, PRIME) for power in (1, 2, 3, 4)]
