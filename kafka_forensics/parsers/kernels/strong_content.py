"""Digests of the content of batches: BLAKE2b of 128 bits (RFC 7693), for many small contents in one call.

A library call for each small batch would cost more than its one or two blocks. Buffers are as in `crc`.
"""

import hashlib
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.parsers.kernels.compiling import kernel, primitive

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Buffer = NDArray[np.uint8]
    Ints = NDArray[np.int64]

DIGEST_BYTES: Final = 16
BLOCK_BYTES: Final = 128
BLOCK_WORDS: Final = BLOCK_BYTES // 8
SMALL_BYTES: Final = 8 * BLOCK_BYTES
"""For larger contents the library is faster than code that numba compiles."""


@primitive("kafka_forensics.parsers.kernels.blake2b_native")
def digest_of_range(buffer: "Buffer", start: int, end: int, _words: "Ints") -> tuple[int, int]:
    """The BLAKE2b of `buffer[start:end]` as two int64 bit patterns; `_words` is scratch memory for a block, `BLOCK_WORDS`."""
    digest = hashlib.blake2b(buffer[start:end].tobytes(), digest_size=DIGEST_BYTES).digest()
    return int.from_bytes(digest[:8], "little", signed=True), int.from_bytes(digest[8:], "little", signed=True)


@kernel
def strong_digest_ranges(buffer: "Buffer", starts: "Ints", ends: "Ints", words: "Ints", digests: "Ints") -> None:
    """Write to `digests`, (n, 2), the digest of each `buffer[start:end]` of at most `SMALL_BYTES`, as little-endian words.

    `words` is scratch memory for `BLOCK_WORDS`.
    """
    for index in range(len(starts)):
        start, end = starts[index], ends[index]
        if end - start <= SMALL_BYTES:
            first, second = digest_of_range(buffer, start, end, words)
            digests[index, 0] = first
            digests[index, 1] = second


def fill_strong_digests(buffer: "Buffer", starts: "Ints", ends: "Ints", key: bytes, digests: "Ints") -> None:
    """Write to `digests`, (n, 2), the digest of each `buffer[start:end]` of any size, under `key` if it is not empty."""
    rows = np.arange(len(starts))
    if not key:
        strong_digest_ranges(buffer, starts, ends, np.empty(BLOCK_WORDS, np.int64), digests)
        rows = np.flatnonzero(ends - starts > SMALL_BYTES)
    keyed, view, by_library = hashlib.blake2b(digest_size=DIGEST_BYTES, key=key), buffer.data, []
    for start, end in zip(starts[rows].tolist(), ends[rows].tolist(), strict=True):
        digest = keyed.copy()
        digest.update(view[start:end])
        by_library.append(digest.digest())
    digests[rows] = np.frombuffer(b"".join(by_library), "<i8").reshape(-1, 2)
