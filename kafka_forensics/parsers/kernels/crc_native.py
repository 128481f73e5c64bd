"""CRCs, loads and comparisons as machine code: the compiled form of the primitives in `crc`.

CRC-32C uses the CPU's instruction where it has one (x86 with SSE 4.2) and eight tables elsewhere; CRC-32 always uses tables.
A library call for each of millions of small batches would cost more than their bytes. Polynomials: Castagnoli (RFC 3720) and
IEEE 802.3, both reflected.
"""

from typing import TYPE_CHECKING, Final

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from kafka_forensics.parsers.kernels.compiling import compile_function
from kafka_forensics.parsers.kernels.crc import LANES

if TYPE_CHECKING:
    from collections.abc import Callable

    from numba.core.base import BaseContext
    from numba.core.extending import _Intrinsic
    from numba.core.typing import BaseContext as TypingContext, Signature
    from numpy.typing import NDArray

    Generate = Callable[[BaseContext, ir.IRBuilder, Signature, list[ir.Value]], ir.Value]
    Buffer = NDArray[np.uint8]

_CASTAGNOLI: Final = 0x82F63B78
_IEEE: Final = 0xEDB88320
_ODD: Final = np.uint64(0xD6E8FEB86659FD93)
_SECOND_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
HAS_CRC_INSTRUCTION: Final = bool(binding.get_host_cpu_features().get("sse4.2", False))


def _tables(polynomial: int) -> "NDArray[np.uint32]":
    """Eight tables of 256 for slicing by eight."""
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (polynomial if crc & 1 else 0)
        tables[0, byte] = crc
    for byte in range(256):
        for table in range(1, 8):
            previous = int(tables[table - 1, byte])
            tables[table, byte] = (previous >> 8) ^ int(tables[0, previous & 0xFF])
    return tables


def _shift_tables(tables: "NDArray[np.uint32]", zeros: int) -> "NDArray[np.uint32]":
    """For each byte of a CRC register, by its value: the register after `zeros` zero bytes; the XOR of the four is the result."""
    register = np.arange(256, dtype=np.uint32) << np.array([[0], [8], [16], [24]], np.uint32)
    for _ in range(zeros):
        register = tables[0][register & 0xFF] ^ (register >> 8)
    return np.ascontiguousarray(register, np.uint32)


_CASTAGNOLI_TABLES: Final = _tables(_CASTAGNOLI)
_IEEE_TABLES: Final = _tables(_IEEE)
_LANE: Final = 1024
"""Bytes of each of three ranges whose CRCs are computed side by side; a multiple of 8."""
_OVER_LANE: Final = _shift_tables(_CASTAGNOLI_TABLES, _LANE)


def _load(width: int, result: types.Integer, *, swap: bool) -> "_Intrinsic":
    """An intrinsic that loads `width` bits at a byte index of a uint8 array, unaligned."""

    @intrinsic
    def load(_context: "TypingContext", array: types.Array, _index: types.Integer) -> "tuple[Signature, Generate]":
        def generate(context: "BaseContext", builder: ir.IRBuilder, signature: "Signature", arguments: list[ir.Value]) -> ir.Value:
            array_value = context.make_array(signature.args[0])(context, builder, arguments[0])
            address = builder.gep(array_value.data, [arguments[1]])
            word = ir.IntType(width)
            value = builder.load(builder.bitcast(address, word.as_pointer()), align=1)
            if swap:
                value = builder.bswap(value)
            if width < 64:
                value = builder.sext(value, ir.IntType(64)) if result is types.int64 else builder.zext(value, ir.IntType(64))
            return value

        return result(array, types.intp), generate

    return load


_load_be_i64: Final = _load(64, types.int64, swap=True)
_load_be_i32: Final = _load(32, types.int64, swap=True)
_load_be_i16: Final = _load(16, types.int64, swap=True)
load_le_u64: Final = _load(64, types.uint64, swap=False)
"""Eight bytes, little-endian; an intrinsic, which only compiled code can call."""


@intrinsic
def _crc32c_step8(_context: "TypingContext", _crc: types.Integer, _word: types.Integer) -> "tuple[Signature, Generate]":
    """One CRC-32C instruction over eight bytes."""

    def generate(_context: "BaseContext", builder: ir.IRBuilder, _signature: "Signature", arguments: list[ir.Value]) -> ir.Value:
        i64 = ir.IntType(64)
        step = cgutils.get_or_insert_function(builder.module, ir.FunctionType(i64, [i64, i64]), "llvm.x86.sse42.crc32.64.64")
        return builder.call(step, arguments)

    return types.uint64(types.uint64, types.uint64), generate


@njit(nogil=True)
def _by_tables(tables: "NDArray[np.uint32]", buffer: "Buffer", start: int, end: int, crc: np.uint32) -> np.uint32:
    """CRC register after `buffer[start:end]`, eight bytes at a time."""
    position = start
    while position + 8 <= end:
        word = load_le_u64(buffer, position) ^ np.uint64(crc)
        crc = (
            tables[7, word & np.uint64(0xFF)]
            ^ tables[6, (word >> np.uint64(8)) & np.uint64(0xFF)]
            ^ tables[5, (word >> np.uint64(16)) & np.uint64(0xFF)]
            ^ tables[4, (word >> np.uint64(24)) & np.uint64(0xFF)]
            ^ tables[3, (word >> np.uint64(32)) & np.uint64(0xFF)]
            ^ tables[2, (word >> np.uint64(40)) & np.uint64(0xFF)]
            ^ tables[1, (word >> np.uint64(48)) & np.uint64(0xFF)]
            ^ tables[0, (word >> np.uint64(56)) & np.uint64(0xFF)]
        )
        position += 8
    while position < end:
        crc = tables[0, (crc ^ np.uint32(buffer[position])) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
        position += 1
    return np.uint32(crc)


@njit(nogil=True)
def _over_lane(register: np.uint64) -> np.uint64:
    """The CRC-32C register after `_LANE` zero bytes."""
    return np.uint64(
        _OVER_LANE[0, register & np.uint64(0xFF)]
        ^ _OVER_LANE[1, (register >> np.uint64(8)) & np.uint64(0xFF)]
        ^ _OVER_LANE[2, (register >> np.uint64(16)) & np.uint64(0xFF)]
        ^ _OVER_LANE[3, (register >> np.uint64(24)) & np.uint64(0xFF)]
    )


def _crc32c_by_instruction(buffer: "Buffer", start: int, end: int, crc: int) -> np.int64:
    """Three ranges side by side, joined by the shift tables: the instruction takes three cycles, and one can start in each."""
    register = np.uint64(np.uint32(crc) ^ np.uint32(0xFFFFFFFF))
    position = start
    while position + 3 * _LANE <= end:
        middle, right = np.uint64(0), np.uint64(0)
        stop = position + _LANE
        while position < stop:
            register = _crc32c_step8(register, load_le_u64(buffer, position))
            middle = _crc32c_step8(middle, load_le_u64(buffer, position + _LANE))
            right = _crc32c_step8(right, load_le_u64(buffer, position + 2 * _LANE))
            position += 8
        register = _over_lane(_over_lane(register) ^ middle) ^ right
        position += 2 * _LANE
    while position + 8 <= end:
        register = _crc32c_step8(register, load_le_u64(buffer, position))
        position += 8
    tail = _by_tables(_CASTAGNOLI_TABLES, buffer, position, end, np.uint32(register))
    return np.int64(tail ^ np.uint32(0xFFFFFFFF))


def _crc32c_by_tables(buffer: "Buffer", start: int, end: int, crc: int) -> np.int64:
    register = _by_tables(_CASTAGNOLI_TABLES, buffer, start, end, np.uint32(crc) ^ np.uint32(0xFFFFFFFF))
    return np.int64(register ^ np.uint32(0xFFFFFFFF))


def _crc32(buffer: "Buffer", start: int, end: int, crc: int) -> np.int64:
    register = _by_tables(_IEEE_TABLES, buffer, start, end, np.uint32(crc) ^ np.uint32(0xFFFFFFFF))
    return np.int64(register ^ np.uint32(0xFFFFFFFF))


@intrinsic
def _folded_product(_context: "TypingContext", _left: types.Integer, _right: types.Integer) -> "tuple[Signature, Generate]":
    """XOR of the lower and the upper half of the 128-bit product of two words."""

    def generate(_context: "BaseContext", builder: ir.IRBuilder, _signature: "Signature", arguments: list[ir.Value]) -> ir.Value:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(arguments[0], wide), builder.zext(arguments[1], wide))
        upper = builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))
        return builder.xor(builder.trunc(product, ir.IntType(64)), upper)

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def _pair_mask(
    _context: "TypingContext",
    array: types.Array,
    _position: types.Integer,
    _distance: types.Integer,
    _first: types.Integer,
    _second: types.Integer,
) -> "tuple[Signature, Generate]":
    """Compare 32 bytes with one byte and 32 others with another, as vectors: a bit for each position where both are equal."""

    def generate(context: "BaseContext", builder: ir.IRBuilder, signature: "Signature", arguments: list[ir.Value]) -> ir.Value:
        byte, lanes = ir.IntType(8), ir.VectorType(ir.IntType(8), LANES)
        array_value = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.gep(array_value.data, [arguments[1]])
        equal = []
        for place, wanted in ((address, arguments[3]), (builder.gep(address, [arguments[2]]), arguments[4])):
            loaded = builder.load(builder.bitcast(place, lanes.as_pointer()), align=1)
            first_lane = builder.insert_element(ir.Constant(lanes, ir.Undefined), builder.trunc(wanted, byte), ir.Constant(byte, 0))
            zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
            everywhere = builder.shuffle_vector(first_lane, ir.Constant(lanes, ir.Undefined), zeros)
            equal.append(builder.icmp_unsigned("==", loaded, everywhere))
        mask = builder.bitcast(builder.and_(*equal), ir.IntType(LANES))
        return builder.zext(mask, ir.IntType(64))

    return types.int64(array, types.int64, types.int64, types.int64, types.int64), generate


@intrinsic
def _trailing_zeros(_context: "TypingContext", _word: types.Integer) -> "tuple[Signature, Generate]":
    """How many zero bits are below the lowest set bit."""

    def generate(_context: "BaseContext", builder: ir.IRBuilder, _signature: "Signature", arguments: list[ir.Value]) -> ir.Value:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), generate


@intrinsic
def _load_byte(_context: "TypingContext", array: types.Array, _position: types.Integer) -> "tuple[Signature, Generate]":
    """A byte of a uint8 array at an index that is not negative: no check for wraparound."""

    def generate(context: "BaseContext", builder: ir.IRBuilder, signature: "Signature", arguments: list[ir.Value]) -> ir.Value:
        array_value = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.zext(builder.load(builder.gep(array_value.data, [arguments[1]])), ir.IntType(64))

    return types.int64(array, types.int64), generate


def _identity(first: int, second: int, third: int, fourth: int, key_high: int, key_low: int) -> tuple[np.int64, np.int64]:
    upper, lower = np.uint64(key_high), np.uint64(key_low)
    left = _folded_product(np.uint64(first) ^ upper, np.uint64(second) ^ lower ^ _ODD)
    right = _folded_product(np.uint64(third) ^ lower, np.uint64(fourth) ^ upper ^ _ODD)
    high = _folded_product(left ^ lower, right ^ _ODD)
    low = _folded_product(left + right, upper ^ _SECOND_ODD)
    return np.int64(high), np.int64(low)


crc32c = compile_function(_crc32c_by_instruction if HAS_CRC_INSTRUCTION else _crc32c_by_tables)
crc32 = compile_function(_crc32)
load_i64 = compile_function(lambda buffer, position: _load_be_i64(buffer, position))
load_i32 = compile_function(lambda buffer, position: _load_be_i32(buffer, position))
load_i16 = compile_function(lambda buffer, position: _load_be_i16(buffer, position))
byte_at = compile_function(lambda buffer, position: _load_byte(buffer, position))
pair_mask = compile_function(
    lambda buffer, position, distance, first, second: _pair_mask(buffer, position, distance, first, second)
)
lowest_bit = compile_function(lambda mask: _trailing_zeros(mask))
identity = compile_function(_identity)
