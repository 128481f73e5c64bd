"""Products mod 2^61-1, loads of words and SipHash as machine code: the compiled form of the primitives in `content`."""

from typing import TYPE_CHECKING, Final

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from kafka_forensics.compiled import compile_function
from kafka_forensics.parsers.kernels.content import PRIME
from kafka_forensics.parsers.kernels.crc_native import load_le_u64

if TYPE_CHECKING:
    from collections.abc import Callable

    from numba.core.base import BaseContext
    from numba.core.typing import BaseContext as TypingContext
    from numba.core.typing import Signature
    from numpy.typing import NDArray

    Generate = Callable[[BaseContext, ir.IRBuilder, Signature, list[ir.Value]], ir.Value]
    Buffer = NDArray[np.uint8]
    State = tuple[np.uint64, np.uint64, np.uint64, np.uint64]

_WORD: Final = np.uint64(2**56 - 1)


@intrinsic
def _times(_context: "TypingContext", _value: types.Integer, _factor: types.Integer) -> "tuple[Signature, Generate]":
    """The product mod p, or p more: its upper bits count once more as lower ones, for 2^61 is 1.

    The factor is taken eight times, so that the product's halves part where the prime's bits do: p · 8 < 2^64.
    """

    def generate(_context: "BaseContext", builder: ir.IRBuilder, _signature: "Signature", arguments: list[ir.Value]) -> ir.Value:
        word, wide = ir.IntType(64), ir.IntType(128)
        prime, bits = ir.Constant(word, PRIME), ir.Constant(word, 61)
        factor = builder.shl(arguments[1], ir.Constant(word, 3))
        product = builder.mul(builder.zext(arguments[0], wide), builder.zext(factor, wide))
        upper = builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), word)
        total = builder.add(upper, builder.lshr(builder.trunc(product, word), ir.Constant(word, 3)))
        return builder.add(builder.and_(total, prime), builder.lshr(total, bits))

    return types.int64(types.int64, types.int64), generate


def _product(value: int, factor: int) -> np.int64:
    return _times(value, factor)


def _load_word(buffer: "Buffer", position: int) -> np.int64:
    return np.int64(load_le_u64(buffer, position) & _WORD)


def _load_last_word(buffer: "Buffer", start: int, end: int) -> np.int64:
    """By one load where eight bytes stand before the end: behind a batch's header they do."""
    if end >= 8:
        return np.int64(load_le_u64(buffer, end - 8) >> np.uint64(8 * (8 - (end - start))))
    word = np.int64(0)
    for position in range(end - 1, start - 1, -1):
        word = (word << 8) | np.int64(buffer[position])
    return word


@njit(nogil=True)
def _rotated(word: np.uint64, bits: int) -> np.uint64:
    return np.uint64((word << np.uint64(bits)) | (word >> np.uint64(64 - bits)))


@njit(nogil=True)
def _sip_round(first: np.uint64, second: np.uint64, third: np.uint64, fourth: np.uint64) -> "State":
    first += second
    second = _rotated(second, 13) ^ first
    first = _rotated(first, 32)
    third += fourth
    fourth = _rotated(fourth, 16) ^ third
    first += fourth
    fourth = _rotated(fourth, 21) ^ first
    third += second
    second = _rotated(second, 17) ^ third
    third = _rotated(third, 32)
    return first, second, third, fourth


def _sealed(value: int, key_low: int, key_high: int) -> np.int64:
    low, high, word = np.uint64(key_low), np.uint64(key_high), np.uint64(value)
    first, second = low ^ np.uint64(0x736F6D6570736575), high ^ np.uint64(0x646F72616E646F6D)
    third, fourth = low ^ np.uint64(0x6C7967656E657261), high ^ np.uint64(0x7465646279746573)
    for _ in range(2):
        fourth ^= word
        first, second, third, fourth = _sip_round(*_sip_round(first, second, third, fourth))
        first ^= word
        word = np.uint64(8 << 56)
    third ^= np.uint64(0xFF)
    for _ in range(4):
        first, second, third, fourth = _sip_round(first, second, third, fourth)
    return np.int64(first ^ second ^ third ^ fourth)


times = compile_function(_product, inlined=True)
load_word = compile_function(_load_word, inlined=True)
load_last_word = compile_function(_load_last_word, inlined=True)
sealed = compile_function(_sealed, inlined=True)
