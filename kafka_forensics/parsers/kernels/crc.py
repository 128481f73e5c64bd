"""Steps of which the two forms differ: CRCs, loads, bytes compared side by side, the identity hash.

Buffers are writable uint8 arrays; where bytes are only looked at, also what `records.readable` gives.
"""

import zlib
from collections.abc import Callable
from functools import partial
from importlib import import_module
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import google_crc32c

from kafka_forensics.parsers.kernels.compiling import primitive

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Buffer = NDArray[np.uint8]

_unpack_i64: Final[Callable[..., tuple[int]]] = Struct(">q").unpack_from
_unpack_i32: Final[Callable[..., tuple[int]]] = Struct(">i").unpack_from
_unpack_i16: Final[Callable[..., tuple[int]]] = Struct(">h").unpack_from
_TAKES_ARRAYS: Final = google_crc32c.implementation == "c"
"""Whether bytes of an array need not be copied for it; its form in Python wants Python's own bytes."""
_MASK: Final = 2**64 - 1
_ODD: Final = 0xD6E8FEB86659FD93
_OTHER_ODD: Final = 0x9E3779B97F4A7C15


def _native(name: str) -> Any:
    return getattr(import_module("kafka_forensics.parsers.kernels.crc_native"), name)


@primitive(partial(_native, "crc32c"))
def crc32c(buffer: "Buffer", start: int, end: int, crc: int) -> int:
    """CRC-32C of `buffer[start:end]`, continuing from `crc` (0 to begin); unsigned."""
    return google_crc32c.extend(crc, buffer[start:end] if _TAKES_ARRAYS else buffer[start:end].tobytes())


@primitive(partial(_native, "crc32"))
def crc32(buffer: "Buffer", start: int, end: int, crc: int) -> int:
    """CRC-32 (IEEE) of `buffer[start:end]`, continuing from `crc` (0 to begin); unsigned."""
    held: Any = buffer[start:end]
    return zlib.crc32(held, crc)


@primitive(partial(_native, "load_i64"))
def load_i64(buffer: "Buffer", position: int) -> int:
    """Signed 64-bit big-endian integer at `position`; the caller has checked the bound."""
    return _unpack_i64(buffer, position)[0]


@primitive(partial(_native, "load_i32"))
def load_i32(buffer: "Buffer", position: int) -> int:
    """Signed 32-bit big-endian integer at `position`; the caller has checked the bound."""
    return _unpack_i32(buffer, position)[0]


@primitive(partial(_native, "load_i16"))
def load_i16(buffer: "Buffer", position: int) -> int:
    """Signed 16-bit big-endian integer at `position`; the caller has checked the bound."""
    return _unpack_i16(buffer, position)[0]


@primitive(partial(_native, "byte_at"))
def byte_at(buffer: "Buffer | memoryview", position: int) -> int:
    """The byte at `position`; the caller has checked the bound."""
    return int(buffer[position])


LANES: Final = 32
"""Positions that `pair_mask` looks at."""


@primitive(partial(_native, "pair_mask"))
def pair_mask(buffer: "Buffer | memoryview", position: int, distance: int, first: int, second: int) -> int:
    """Bit `i` for each `i` below 32 for which the byte `first` stands at `position + i` and `second` at `distance` behind it.

    The caller has checked that all these bytes are there.
    """
    mask = 0
    for lane in range(LANES):
        if buffer[position + lane] == first and buffer[position + distance + lane] == second:
            mask |= 1 << lane
    return mask


@primitive(partial(_native, "lowest_bit"))
def lowest_bit(mask: int) -> int:
    """Number of the lowest bit that is set; `mask` is not 0."""
    return (mask & -mask).bit_length() - 1


@primitive(partial(_native, "identity"))
def identity(first: int, second: int, third: int, fourth: int, key_high: int, key_low: int) -> tuple[int, int]:
    """128-bit hash of four words under a key, as two int64 bit patterns.

    The key is drawn anew for each scan, so nobody can write evidence whose sums of hashes collide.
    """
    upper, lower = int(key_high) & _MASK, int(key_low) & _MASK
    left = _folded_product((int(first) & _MASK) ^ upper, (int(second) & _MASK) ^ lower ^ _ODD)
    right = _folded_product((int(third) & _MASK) ^ lower, (int(fourth) & _MASK) ^ upper ^ _ODD)
    high = _folded_product(left ^ lower, right ^ _ODD)
    low = _folded_product((left + right) & _MASK, upper ^ _OTHER_ODD)
    return high - ((high >> 63) << 64), low - ((low >> 63) << 64)


def _folded_product(left: int, right: int) -> int:
    """Lower and upper half of the 128-bit product of two words, one laid over the other."""
    product = left * right
    return (product ^ (product >> 64)) & _MASK
