"""Steps of which the two forms differ: CRCs, big-endian loads, the identity hash. Buffers are writable uint8 arrays."""

import zlib
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import google_crc32c

from kafka_forensics.compiled import primitive

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Buffer = NDArray[np.uint8]

_MASK: Final = 2**64 - 1
_ODD: Final = 0xD6E8FEB86659FD93
_OTHER_ODD: Final = 0x9E3779B97F4A7C15


def _native(name: str) -> Any:
    return getattr(import_module("kafka_forensics.parsers.kernels.crc_native"), name)


@primitive(partial(_native, "crc32c"))
def crc32c(buffer: "Buffer", start: int, end: int, crc: int) -> int:
    """CRC-32C of `buffer[start:end]`, continuing from `crc` (0 to begin); unsigned."""
    return google_crc32c.extend(crc, buffer[start:end].tobytes())


@primitive(partial(_native, "crc32"))
def crc32(buffer: "Buffer", start: int, end: int, crc: int) -> int:
    """CRC-32 (IEEE) of `buffer[start:end]`, continuing from `crc` (0 to begin); unsigned."""
    return zlib.crc32(buffer[start:end].tobytes(), crc)


@primitive(partial(_native, "load_i64"))
def load_i64(buffer: "Buffer", position: int) -> int:
    """Signed 64-bit big-endian integer at `position`; the caller has checked the bound."""
    return int.from_bytes(buffer[position : position + 8].tobytes(), "big", signed=True)


@primitive(partial(_native, "load_i32"))
def load_i32(buffer: "Buffer", position: int) -> int:
    """Signed 32-bit big-endian integer at `position`; the caller has checked the bound."""
    return int.from_bytes(buffer[position : position + 4].tobytes(), "big", signed=True)


@primitive(partial(_native, "load_i16"))
def load_i16(buffer: "Buffer", position: int) -> int:
    """Signed 16-bit big-endian integer at `position`; the caller has checked the bound."""
    return int.from_bytes(buffer[position : position + 2].tobytes(), "big", signed=True)


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
