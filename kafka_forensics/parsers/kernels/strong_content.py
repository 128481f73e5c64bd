"""Digests of content: BLAKE2b of 128 bits (RFC 7693), of many small contents at once.

A call of a library costs more than the one or two blocks that a small batch has. Buffers are as in `crc`.
"""

import hashlib
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

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
"""Of larger contents the library takes blocks sooner than machine code for every processor does."""


def _native(name: str) -> Any:
    return getattr(import_module("kafka_forensics.parsers.kernels.blake2b_native"), name)


@primitive(partial(_native, "digest_of_range"))
def digest_of_range(buffer: "Buffer", start: int, end: int, _words: "Ints") -> tuple[int, int]:
    """The BLAKE2b of `buffer[start:end]` as two int64 bit patterns; `_words` are room for a block, 16."""
    made = hashlib.blake2b(buffer[start:end].tobytes(), digest_size=DIGEST_BYTES).digest()
    return int.from_bytes(made[:8], "little", signed=True), int.from_bytes(made[8:], "little", signed=True)


def _fill_by_library(buffer: "Buffer", starts: "Ints", ends: "Ints", digests: "Ints", which: "NDArray[np.intp]") -> None:
    """Those of some of the ranges."""
    ranges = zip(starts[which].tolist(), ends[which].tolist(), strict=True)
    pieces = [hashlib.blake2b(buffer[start:end].data, digest_size=DIGEST_BYTES).digest() for start, end in ranges]
    digests[which] = np.frombuffer(b"".join(pieces), "<i8").reshape(-1, 2)


def _fill_with_key(buffer: "Buffer", starts: "Ints", ends: "Ints", key: bytes, digests: "Ints") -> None:
    """All of them: the key is taken once."""
    keyed, view, made = hashlib.blake2b(digest_size=DIGEST_BYTES, key=key), buffer.data, []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        digest = keyed.copy()
        digest.update(view[start:end])
        made.append(digest.digest())
    digests[:] = np.frombuffer(b"".join(made), "<i8").reshape(-1, 2)


@kernel
def strong_digest_ranges(buffer: "Buffer", starts: "Ints", ends: "Ints", words: "Ints", digests: "Ints") -> None:
    """Write to `digests`, (n, 2), the digest of `buffer[start:end]` for each start and end that are at most `SMALL_BYTES` apart, as
    it lies in little-endian order; `words` are room for `BLOCK_WORDS`."""
    for index in range(len(starts)):
        start, end = starts[index], ends[index]
        if end - start <= SMALL_BYTES:
            first, second = digest_of_range(buffer, start, end, words)
            digests[index, 0] = first
            digests[index, 1] = second


def fill_strong_digests(buffer: "Buffer", starts: "Ints", ends: "Ints", key: bytes, digests: "Ints") -> None:
    """`strong_digest_ranges` of contents of any size; under a `key`, where that is not empty."""
    if key:
        _fill_with_key(buffer, starts, ends, key, digests)
        return
    strong_digest_ranges(buffer, starts, ends, np.empty(BLOCK_WORDS, np.int64), digests)
    _fill_by_library(buffer, starts, ends, digests, np.flatnonzero(ends - starts > SMALL_BYTES))
