"""Batches and records of every magic (DefaultRecordBatch, DefaultRecord, LegacyRecord), declared with construct."""

from typing import BinaryIO, Final

from construct import (
    Bytes,
    Construct,
    ConstructError,
    Container,
    If,
    Int8sb,
    Int16sb,
    Int32sb,
    Int32ub,
    Int64sb,
    IntegerError,
    StreamError,
    Struct,
    stream_read,
    stream_size,
    stream_tell,
    stream_write,
)

from kafka_forensics.model.constants import LEGACY_V0_OVERHEAD, LEGACY_V1_OVERHEAD, LOG_OVERHEAD
from kafka_forensics.model.json_objects import Json
from kafka_forensics.parsers.spec import batch_header

Layout = Struct
"""A declared layout, for code outside of this package, which does not import construct."""

_NUMBERS: Final = {"b": Int8sb, "h": Int16sb, "i": Int32sb, "I": Int32ub, "q": Int64sb}
RECORD_BATCH_HEADER: Final = Struct(*(name / _NUMBERS[code] for name, code in batch_header.FORMATS.items()))
"""The header as `batch_header` declares it; `records_count` records follow, or one compressed stream of them, up to
`12 + batch_length` bytes in all."""


# A magic 2 record (DefaultRecord): zig-zag varints, key, value, headers. Exact and slow; `kernels.records` is its fast twin.


class OverlongVarintError(ConstructError):
    """A varint of more bytes than its width allows."""


class LengthError(ConstructError):
    """A length or count beyond the end of the bytes, or negative where null is not allowed."""


class ZigZag(Construct):
    """A zig-zag LEB128 integer of `bits` (32 or 64) bits, at most 5 or 10 bytes (ByteUtils.readVarint, readVarlong).

    A longer one is an error; bits beyond the width are dropped, as by Java's shifts.
    """

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.bits = bits
        self.max_size = (bits + 6) // 7

    def _parse(self, stream: BinaryIO, _context: Container, path: str) -> int:
        raw = 0
        for index in range(self.max_size):
            byte = stream_read(stream, 1, path)[0]
            raw |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                raw &= (1 << self.bits) - 1
                return (raw >> 1) ^ -(raw & 1)
        raise OverlongVarintError(f"varint longer than {self.max_size} bytes", path=path)

    def _build(self, obj: int, stream: BinaryIO, _context: Container, path: str) -> int:
        if not -(1 << (self.bits - 1)) <= obj < 1 << (self.bits - 1):
            raise IntegerError(f"{obj} does not fit {self.bits} bits", path=path)
        encoded = encode_zigzag(obj)
        stream_write(stream, encoded, len(encoded), path)
        return obj


def encode_zigzag(value: int) -> bytes:
    """`value` (int64) as the shortest zig-zag LEB128 bytes."""
    return encode_unsigned((value << 1) ^ (value >> 63))


def encode_unsigned(value: int) -> bytes:
    """`value` (not negative) as the shortest LEB128 bytes."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append((value & 0x7F) | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


VARINT: Final = ZigZag(32)
VARLONG: Final = ZigZag(64)


class VarintBytes(Construct):
    """A varint length and that many bytes; any negative length is null where `nullable`, else an error."""

    def __init__(self, *, nullable: bool) -> None:
        super().__init__()
        self.nullable = nullable

    def _parse(self, stream: BinaryIO, context: Container, path: str) -> bytes | None:
        length = VARINT._parse(stream, context, path)
        if length >= 0:
            return read_sized(stream, length, path)
        if not self.nullable:
            raise LengthError("negative length", path=path)
        return None

    def _build(self, obj: bytes | None, stream: BinaryIO, context: Container, path: str) -> bytes | None:
        VARINT._build(-1 if obj is None else len(obj), stream, context, path)
        if obj is not None:
            stream_write(stream, obj, len(obj), path)
        return obj


def read_sized(stream: BinaryIO, length: int, path: str) -> bytes:
    """`length` bytes of `stream`. Raises LengthError if it has fewer."""
    data: bytes = stream.read(length) if length >= 0 else b""
    if len(data) != length:
        raise LengthError(f"{length} bytes declared, {len(data)} present", path=path)
    return data


RECORD_HEADER: Final = Struct("key" / VarintBytes(nullable=False), "value" / VarintBytes(nullable=True))
"""One of a record's headers; the key is UTF-8."""


class Headers(Construct):
    """A varint count and that many headers; a count below 0 is an error."""

    def _parse(self, stream: BinaryIO, context: Container, path: str) -> list[object]:
        count = VARINT._parse(stream, context, path)
        if not 0 <= count <= stream_size(stream) - stream_tell(stream, path):
            raise LengthError("more headers than bytes, or a negative number of headers", path=path)
        headers: list[object] = []
        while len(headers) < count:
            headers.append(RECORD_HEADER.parse_stream(stream))
        return headers

    def _build(self, obj: list[Json], stream: BinaryIO, context: Container, path: str) -> list[Json]:
        VARINT._build(len(obj), stream, context, path)
        for header in obj:
            RECORD_HEADER.build_stream(header, stream)
        return obj


RECORD_BODY: Final = Struct(
    "attributes" / Int8sb,
    "timestamp_delta" / VARLONG,
    "offset_delta" / VARINT,
    "key" / VarintBytes(nullable=True),
    "value" / VarintBytes(nullable=True),
    "headers" / Headers(),
)
"""The fields of a record after its length; they must fill it exactly."""


class SizedRecord(Construct):
    """A record in its stream: a varint, then that many bytes. A record that is cut anywhere is a LengthError."""

    def _parse(self, stream: BinaryIO, context: Container, path: str) -> bytes:
        try:
            length = VARINT._parse(stream, context, path)
        except StreamError as error:
            raise LengthError("length cut short", path=path) from error
        return read_sized(stream, length, path)

    def _build(self, obj: bytes, stream: BinaryIO, context: Container, path: str) -> bytes:
        VARINT._build(len(obj), stream, context, path)
        stream_write(stream, obj, len(obj), path)
        return obj


RECORD: Final = Struct("body" / SizedRecord())
"""A record as in the batch: the length of its body in bytes, then the body."""


# Entries of magic 0 and 1 message sets (LegacyRecord, AbstractLegacyRecordBatch). Exact and slow; see `kernels.records`.


LEGACY_ENTRY_HEADER: Final = Struct("offset" / Int64sb, "size" / Int32sb)
"""The start of every entry; `size` is that of the message only."""
assert LEGACY_ENTRY_HEADER.sizeof() == LOG_OVERHEAD

_KEY = ("key_length" / Int32sb, "key" / If(lambda this: this.key_length >= 0, Bytes(lambda this: this.key_length)))
_VALUE = ("value_length" / Int32sb, "value" / If(lambda this: this.value_length >= 0, Bytes(lambda this: this.value_length)))
_HEAD = ("crc" / Int32ub, "magic" / Int8sb, "attributes" / Int8sb)

LEGACY_MESSAGE_V0: Final = Struct(*_HEAD, *_KEY, *_VALUE)
"""`crc` is the CRC-32 (IEEE) of everything after it; a negative length is null."""
LEGACY_MESSAGE_V1: Final = Struct(*_HEAD, "timestamp" / Int64sb, *_KEY, *_VALUE)
LEGACY_MESSAGES: Final = (LEGACY_MESSAGE_V0, LEGACY_MESSAGE_V1)
"""By magic. A compressed message has no key, and its value is a stream of entries of the same kind."""

_EMPTY = {"crc": 0, "magic": 0, "attributes": 0, "timestamp": 0, "key_length": -1, "key": None, "value_length": -1, "value": None}
assert len(LEGACY_MESSAGE_V0.build(_EMPTY)) == LEGACY_V0_OVERHEAD
assert len(LEGACY_MESSAGE_V1.build(_EMPTY)) == LEGACY_V1_OVERHEAD
