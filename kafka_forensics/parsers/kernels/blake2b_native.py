"""BLAKE2b as machine code (RFC 7693): the compiled form of the primitive in `strong_content`."""

from typing import TYPE_CHECKING, Final

import numpy as np
from numba import njit

from kafka_forensics.parsers.kernels.compiling import compile_function
from kafka_forensics.parsers.kernels.crc_native import load_le_u64
from kafka_forensics.parsers.kernels.strong_content import BLOCK_BYTES, DIGEST_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Word = np.uint64
    Quarter = tuple[np.uint64, np.uint64, np.uint64, np.uint64]
    State = tuple[Word, Word, Word, Word, Word, Word, Word, Word]

START: Final = tuple(
    np.uint64(word)
    for word in (
        0x6A09E667F3BCC908,
        0xBB67AE8584CAA73B,
        0x3C6EF372FE94F82B,
        0xA54FF53A5F1D36F1,
        0x510E527FADE682D1,
        0x9B05688C2B3E6C1F,
        0x1F83D9ABFB41BD6B,
        0x5BE0CD19137E2179,
    )
)
"""The initial state, that of SHA-512: fractional parts of the square roots of the first eight primes."""
_ORDER: Final = np.array(
    [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
        [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
        [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
        [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
        [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
        [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
        [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
        [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
        [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
    ],
    np.uint8,
)
"""Order in which each round takes the words (SIGMA of RFC 7693)."""
_ROUNDS: Final = 12
PARAMETERS: Final = np.uint64(1 << 24 | 1 << 16 | DIGEST_BYTES)
"""Parameter block: depth and fanout 1, no key, the size of the digest."""
LAST: Final = np.uint64(2**64 - 1)
_NOT_LAST: Final = np.uint64(0)


@njit(nogil=True)
def _rotated(word: "Word", bits: int) -> "Word":
    return np.uint64((word >> np.uint64(bits)) | (word << np.uint64(64 - bits)))


@njit(nogil=True)
def _mixed(a: "Word", b: "Word", c: "Word", d: "Word", first: "Word", second: "Word") -> "Quarter":
    a += b + first
    d = _rotated(d ^ a, 32)
    c += d
    b = _rotated(b ^ c, 24)
    a += b + second
    d = _rotated(d ^ a, 16)
    c += d
    b = _rotated(b ^ c, 63)
    return a, b, c, d


@njit(nogil=True)
def compressed(state: "State", m: "NDArray[np.uint64]", counted: "Word", last: "Word") -> "State":
    """The state after one more block of 16 words, which ends at byte `counted` of the content; `last` is `LAST` or 0."""
    v0, v1, v2, v3, v4, v5, v6, v7 = state
    v8, v9, v10, v11, v12, v13, v14, v15 = START
    v12, v14 = v12 ^ counted, v14 ^ last
    for turn in range(_ROUNDS):
        s = _ORDER[turn % 10]
        v0, v4, v8, v12 = _mixed(v0, v4, v8, v12, m[s[0]], m[s[1]])
        v1, v5, v9, v13 = _mixed(v1, v5, v9, v13, m[s[2]], m[s[3]])
        v2, v6, v10, v14 = _mixed(v2, v6, v10, v14, m[s[4]], m[s[5]])
        v3, v7, v11, v15 = _mixed(v3, v7, v11, v15, m[s[6]], m[s[7]])
        v0, v5, v10, v15 = _mixed(v0, v5, v10, v15, m[s[8]], m[s[9]])
        v1, v6, v11, v12 = _mixed(v1, v6, v11, v12, m[s[10]], m[s[11]])
        v2, v7, v8, v13 = _mixed(v2, v7, v8, v13, m[s[12]], m[s[13]])
        v3, v4, v9, v14 = _mixed(v3, v4, v9, v14, m[s[14]], m[s[15]])
    h0, h1, h2, h3, h4, h5, h6, h7 = state
    return h0 ^ v0 ^ v8, h1 ^ v1 ^ v9, h2 ^ v2 ^ v10, h3 ^ v3 ^ v11, h4 ^ v4 ^ v12, h5 ^ v5 ^ v13, h6 ^ v6 ^ v14, h7 ^ v7 ^ v15


def _digest_of_range(buffer: "NDArray[np.uint8]", start: int, end: int, words: "NDArray[np.int64]") -> tuple[np.int64, np.int64]:
    m = words.view(np.uint64)
    h0, h1, h2, h3, h4, h5, h6, h7 = START
    state = (h0 ^ PARAMETERS, h1, h2, h3, h4, h5, h6, h7)
    at = start
    while end - at > BLOCK_BYTES:
        for word in range(16):
            m[word] = load_le_u64(buffer, at + 8 * word)
        at += BLOCK_BYTES
        state = compressed(state, m, np.uint64(at - start), _NOT_LAST)
    for word in range(16):
        position, value = at + 8 * word, np.uint64(0)
        if end - position >= 8:
            value = load_le_u64(buffer, position)
        else:
            for byte in range(position, end):
                value |= np.uint64(buffer[byte]) << np.uint64(8 * (byte - position))
        m[word] = value
    state = compressed(state, m, np.uint64(end - start), LAST)
    return np.int64(state[0]), np.int64(state[1])


digest_of_range = compile_function(_digest_of_range)
