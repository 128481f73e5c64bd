"""Primitives whose compiled form is other code (`crc_native`): CRCs, loads, a vector comparison, the identity hash.

Buffers are writable uint8 arrays, or where bytes are only read, what `records.readable` returns.
"""

import zlib
from collections.abc import Callable
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
"""Whether the library takes an array without a copy; its implementation in Python takes bytes only."""
_MASK: Final = 2**64 - 1
_ODD: Final = 0xD6E8FEB86659FD93
_SECOND_ODD: Final = 0x9E3779B97F4A7C15


_primitive: Final = primitive("kafka_forensics.parsers.kernels.crc_native")


@_primitive
def crc32c(buffer: "Buffer", start: int, end: int, crc: int) -> int:
    """CRC-32C of `buffer[start:end]`, continuing from `crc` (0 to begin); unsigned."""
    return google_crc32c.extend(crc, buffer[start:end] if _TAKES_ARRAYS else buffer[start:end].tobytes())


@_primitive
def crc32(buffer: "Buffer", start: int, end: int, crc: int) -> int:
    """CRC-32 (IEEE) of `buffer[start:end]`, continuing from `crc` (0 to begin); unsigned."""
    held: Any = buffer[start:end]
    return zlib.crc32(held, crc)


@_primitive
def load_i64(buffer: "Buffer", position: int) -> int:
    """Signed 64-bit big-endian integer at `position`, which the caller has checked."""
    return _unpack_i64(buffer, position)[0]


@_primitive
def load_i32(buffer: "Buffer", position: int) -> int:
    """Signed 32-bit big-endian integer at `position`, which the caller has checked."""
    return _unpack_i32(buffer, position)[0]


@_primitive
def load_i16(buffer: "Buffer", position: int) -> int:
    """Signed 16-bit big-endian integer at `position`, which the caller has checked."""
    return _unpack_i16(buffer, position)[0]


@_primitive
def byte_at(buffer: "Buffer | memoryview", position: int) -> int:
    """The byte at `position`, which the caller has checked."""
    return int(buffer[position])


LANES: Final = 32
"""Positions that `pair_mask` compares."""


@_primitive
def pair_mask(buffer: "Buffer | memoryview", position: int, distance: int, first: int, second: int) -> int:
    """Bit `i`, below 32, is set where the byte `first` is at `position + i` and `second` is `distance` bytes after it.

    The caller has checked that the buffer holds all these bytes.
    """
    mask = 0
    for lane in range(LANES):
        if buffer[position + lane] == first and buffer[position + distance + lane] == second:
            mask |= 1 << lane
    return mask


@_primitive
def lowest_bit(mask: int) -> int:
    """Number of the lowest set bit; `mask` is not 0."""
    return (mask & -mask).bit_length() - 1


@_primitive
def identity(first: int, second: int, third: int, fourth: int, key_high: int, key_low: int) -> tuple[int, int]:
    """128-bit hash of four words under a key, as two int64 bit patterns.

    The key is random for each scan: evidence cannot be crafted to have colliding sums of hashes.
    """
    upper, lower = int(key_high) & _MASK, int(key_low) & _MASK
    left = _folded_product((int(first) & _MASK) ^ upper, (int(second) & _MASK) ^ lower ^ _ODD)
    right = _folded_product((int(third) & _MASK) ^ lower, (int(fourth) & _MASK) ^ upper ^ _ODD)
    high = _folded_product(left ^ lower, right ^ _ODD)
    low = _folded_product((left + right) & _MASK, upper ^ _SECOND_ODD)
    return high - ((high >> 63) << 64), low - ((low >> 63) << 64)


def _folded_product(left: int, right: int) -> int:
    """XOR of the lower and the upper half of the 128-bit product of two words."""
    product = left * right
    return (product ^ (product >> 64)) & _MASK
