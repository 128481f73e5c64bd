"""Digests of content under a secret key: a polynomial over a prime field, whose value at a secret point is sealed by SipHash-2-4.

The bytes are taken as words of seven, little-endian, the last one shorter: w1 … wn. With p = 2^61-1 and a secret r below it,

    value = w1·r^n + w2·r^(n-1) + … + wn·r + size in bytes   mod p

Two contents are two polynomials that differ, for a word is less than p, and words of zero show in the size; so at most n of all p
points give them one value: with a key that is not known, contents collide with probability n / 2^61. The seal hides that value from
those who see digests of content that they wrote, and might compute r from it.

Buffers are as in `crc`; keys are what `content_keys` gives.
"""

import hashlib
from functools import lru_cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kafka_forensics.compiled import inlined_kernel, interpreted_by, kernel, primitive

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Buffer = NDArray[np.uint8]
    Ints = NDArray[np.int64]

PRIME: Final = 2**61 - 1
_PRIME_BITS: Final = 61
WORD_BYTES: Final = 7
SECRET_BYTES: Final = 32
_PURPOSE_BYTES: Final = 16

_LANES: Final = 4
"""Words whose products are computed side by side: one takes several cycles, and one can begin in each."""
_LANE_BYTES: Final = _LANES * WORD_BYTES
_LOAD_BYTES: Final = 8
"""Bytes that a load of a word touches."""
_SEAL: Final = 4
"""Place of the key of the seal among the keys; before it stand the first four powers of the point."""
_MASK: Final = 2**64 - 1
_FEW_WORDS: Final = 96
"""Fewer words than these are multiplied one by one sooner than as arrays."""
_BLOCK_WORDS: Final = 2048


def content_keys(secret: bytes, purpose: bytes = b"content digests") -> "Ints":
    """The keys of kernels by 32 secret bytes: four powers of the point, and the two halves of the seal's key.

    Those for different purposes, of at most 16 bytes, have nothing to do with each other.
    """
    assert len(secret) == SECRET_BYTES
    drawn = hashlib.blake2b(key=secret, digest_size=SECRET_BYTES, person=purpose.ljust(_PURPOSE_BYTES, b"\0")).digest()
    point = int.from_bytes(drawn[:16], "little") % PRIME
    powers = [pow(point, power, PRIME) for power in range(1, _LANES + 1)]
    return np.array([*powers, *(int.from_bytes(drawn[at : at + 8], "little", signed=True) for at in (16, 24))], np.int64)


def _native(name: str) -> Any:
    return getattr(import_module("kafka_forensics.parsers.kernels.content_native"), name)


@primitive(partial(_native, "times"))
def times(value: int, factor: int) -> int:
    """The product mod p; the compiled form may give p more. `value` is less than 2^63, `factor` less than p."""
    return int(value) * int(factor) % PRIME


@primitive(partial(_native, "load_word"))
def load_word(buffer: "Buffer", position: int) -> int:
    """The word of the seven bytes at `position`; the caller has checked that eight are there."""
    return int.from_bytes(buffer[position : position + WORD_BYTES].tobytes(), "little")


@primitive(partial(_native, "load_last_word"))
def load_last_word(buffer: "Buffer", start: int, end: int) -> int:
    """The word of `buffer[start:end]`, which are one to seven bytes."""
    return int.from_bytes(buffer[start:end].tobytes(), "little")


@primitive(partial(_native, "sealed"))
def sealed(value: int, key_low: int, key_high: int) -> int:
    """SipHash-2-4 of the eight bytes of `value`, as an int64 bit pattern."""
    digest: int = _sip_hash(int(value) & _MASK, int(key_low) & _MASK, int(key_high) & _MASK)
    return digest - ((digest >> 63) << 64)


def _sip_hash(value: Any, low: int, high: int) -> Any:
    """Of an integer, or of each of a uint64 array."""
    first, second = low ^ 0x736F6D6570736575, high ^ 0x646F72616E646F6D
    third, fourth = low ^ 0x6C7967656E657261, high ^ 0x7465646279746573
    state = (first, second, third, fourth)
    for word in (value, _LOAD_BYTES << 56):
        first, second, third, fourth = _sip_rounds((*state[:3], state[3] ^ word), 2)
        state = (first ^ word, second, third, fourth)
    first, second, third, fourth = _sip_rounds((state[0], state[1], state[2] ^ 0xFF, state[3]), 4)
    return first ^ second ^ third ^ fourth


def _sip_rounds(state: tuple[Any, Any, Any, Any], count: int) -> tuple[Any, Any, Any, Any]:
    first, second, third, fourth = state
    for _ in range(count):
        first = (first + second) & _MASK
        second = _rotated(second, 13) ^ first
        first = _rotated(first, 32)
        third = (third + fourth) & _MASK
        fourth = _rotated(fourth, 16) ^ third
        first = (first + fourth) & _MASK
        fourth = _rotated(fourth, 21) ^ first
        third = (third + second) & _MASK
        second = _rotated(second, 17) ^ third
        third = _rotated(third, 32)
    return first, second, third, fourth


def _rotated(word: Any, bits: int) -> Any:
    return (word << bits | word >> (64 - bits)) & _MASK


@inlined_kernel
def reduced(value: int) -> int:
    """`value`, which is less than 2^63, mod p."""
    value = (value & PRIME) + (value >> _PRIME_BITS)
    return value - PRIME if value >= PRIME else value


def _polynomial(buffer: "Buffer", start: int, end: int, keys: "Ints", value: int) -> int:
    """`polynomial` by Python's integers where there are few words, else by arrays."""
    content, point = buffer[start:end].tobytes(), int(keys[0])
    count = -(-len(content) // WORD_BYTES)
    if count < _FEW_WORDS:
        for at in range(0, len(content), WORD_BYTES):
            value = (value * point + int.from_bytes(content[at : at + WORD_BYTES], "little")) % PRIME
        return value
    words = np.zeros((count, _LOAD_BYTES), np.uint8)
    words[:, :WORD_BYTES] = np.frombuffer(content.ljust(count * WORD_BYTES, b"\0"), np.uint8).reshape(-1, WORD_BYTES)
    coefficients, powers = words.view("<u8").ravel(), _powers(point)
    for at in range(0, count, _BLOCK_WORDS):
        block = coefficients[at : at + _BLOCK_WORDS]
        value = (value * pow(point, len(block), PRIME) + _dot(block, powers[_BLOCK_WORDS - len(block) :])) % PRIME
    return value


@lru_cache(maxsize=4)
def _powers(point: int) -> "NDArray[np.uint64]":
    """Powers of the point, the highest first, that of 0 last."""
    powers = [1]
    for _ in range(_BLOCK_WORDS - 1):
        powers.append(powers[-1] * point % PRIME)
    return np.array(powers[::-1], np.uint64)


def _dot(words: "NDArray[np.uint64]", powers: "NDArray[np.uint64]") -> int:
    """Sum of products, exactly: of halves, whose products fit a word and whose sums do when they are halved again."""
    total = 0
    half, low = np.uint64(32), np.uint64(2**32 - 1)
    for word_shift, word_part in ((28, words >> np.uint64(28)), (0, words & np.uint64(2**28 - 1))):
        for power_shift, power_part in ((31, powers >> np.uint64(31)), (0, powers & np.uint64(2**31 - 1))):
            products = word_part * power_part
            total += ((int((products >> half).sum()) << 32) + int((products & low).sum())) << (word_shift + power_shift)
    return total


@interpreted_by(_polynomial, inlined=True)
def polynomial(buffer: "Buffer", start: int, end: int, keys: "Ints", value: int) -> int:
    """Horner's rule over the words of `buffer[start:end]`, going on from `value` (0 to begin); less than p.

    Content may come in pieces if all but the last are of whole words.
    """
    point, square, cube, fourth_power = int(keys[0]), int(keys[1]), int(keys[2]), int(keys[3])
    if end - start > _LANE_BYTES:
        first, second, third, fourth = 0, 0, 0, value
        while end - start > _LANE_BYTES:
            first = times(first, fourth_power) + load_word(buffer, start)
            second = times(second, fourth_power) + load_word(buffer, start + WORD_BYTES)
            third = times(third, fourth_power) + load_word(buffer, start + 2 * WORD_BYTES)
            fourth = times(fourth, fourth_power) + load_word(buffer, start + 3 * WORD_BYTES)
            start += _LANE_BYTES
        higher = times(first, cube) + times(second, square)
        value = (higher & PRIME) + (higher >> _PRIME_BITS) + times(third, point) + fourth
    while end - start >= _LOAD_BYTES:
        value = times(value, point) + load_word(buffer, start)
        start += WORD_BYTES
    if start < end:
        value = times(value, point) + load_last_word(buffer, start, end)
    return reduced(value)


@inlined_kernel
def with_size(value: int, size: int, keys: "Ints") -> int:
    """The value of content of `size` bytes whose words gave `value`; less than p."""
    return reduced(times(value, keys[0]) + size)


@kernel
def finished(value: int, size: int, keys: "Ints") -> int:
    """The digest of content of `size` bytes whose words gave `value`, as an int64 bit pattern."""
    return sealed(with_size(value, size, keys), keys[_SEAL], keys[_SEAL + 1])


def _digest_ranges(buffer: "Buffer", starts: "Ints", ends: "Ints", keys: "Ints", digests: "Ints") -> None:
    """`digest_ranges` with all seals at once."""
    point = int(keys[0])
    values = [
        (_polynomial(buffer, start, end, keys, 0) * point + end - start) % PRIME
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    low, high = (int(key) & _MASK for key in keys[_SEAL:])
    digests[:] = _sip_hash(np.array(values, np.uint64), low, high).view(np.int64)


@interpreted_by(_digest_ranges)
def digest_ranges(buffer: "Buffer", starts: "Ints", ends: "Ints", keys: "Ints", digests: "Ints") -> None:
    """Write to `digests` the digest of `buffer[start:end]` for each start and end, which are one-dimensional arrays.

    The seals come last, in a loop of their own: of several values the compiler takes them side by side.
    """
    for index in range(len(starts)):
        start, end = starts[index], ends[index]
        digests[index] = with_size(polynomial(buffer, start, end, keys, 0), end - start, keys)
    low, high = keys[_SEAL], keys[_SEAL + 1]
    for index in range(len(digests)):
        digests[index] = sealed(digests[index], low, high)
