# mypy: disallow-subclassing-any=False
"""A magic 2 record (DefaultRecord): zig-zag varints, key, value, headers. Exact and slow; `kernels.records` is its fast twin."""

from typing import Any, Final

from construct import (
    Construct,
    ConstructError,
    Int8sb,
    IntegerError,
    StreamError,
    Struct,
    stream_read,
    stream_size,
    stream_tell,
    stream_write,
)


class OverlongVarintError(ConstructError):
    """A varint that goes on past the bytes its width may take."""


class LengthError(ConstructError):
    """A length or count that reaches past the bytes there are, or is negative where null is not allowed."""


class ZigZag(Construct):
    """A zig-zag LEB128 integer of `bits` (32 or 64) bits, at most 5 or 10 bytes (ByteUtils.readVarint, readVarlong).

    One more continued byte is an error; bits beyond the width are dropped, as Java's shifts drop them.
    """

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.bits = bits
        self.max_size = (bits + 6) // 7

    def _parse(self, stream: Any, _context: Any, path: str) -> int:
        raw = 0
        for index in range(self.max_size):
            byte = stream_read(stream, 1, path)[0]
            raw |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                raw &= (1 << self.bits) - 1
                return (raw >> 1) ^ -(raw & 1)
        raise OverlongVarintError(f"varint longer than {self.max_size} bytes", path=path)

    def _build(self, obj: int, stream: Any, _context: Any, path: str) -> int:
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

    def _parse(self, stream: Any, context: Any, path: str) -> bytes | None:
        length = VARINT._parse(stream, context, path)
        if length >= 0:
            return read_sized(stream, length, path)
        if not self.nullable:
            raise LengthError("negative length", path=path)
        return None

    def _build(self, obj: bytes | None, stream: Any, context: Any, path: str) -> bytes | None:
        VARINT._build(-1 if obj is None else len(obj), stream, context, path)
        if obj is not None:
            stream_write(stream, obj, len(obj), path)
        return obj


def read_sized(stream: Any, length: int, path: str) -> bytes:
    """`length` bytes of `stream`. Raises LengthError if there are fewer."""
    data: bytes = stream.read(length) if length >= 0 else b""
    if len(data) != length:
        raise LengthError(f"{length} bytes declared, {len(data)} there", path=path)
    return data


RECORD_HEADER: Final = Struct("key" / VarintBytes(nullable=False), "value" / VarintBytes(nullable=True))
"""One of a record's headers; the key is UTF-8."""


class Headers(Construct):
    """A varint count and that many headers; a count below 0 is an error."""

    def _parse(self, stream: Any, context: Any, path: str) -> list[Any]:
        count = VARINT._parse(stream, context, path)
        if not 0 <= count <= stream_size(stream) - stream_tell(stream, path):
            raise LengthError("more headers than bytes, or fewer than none", path=path)
        headers: list[Any] = []
        while len(headers) < count:
            headers.append(RECORD_HEADER.parse_stream(stream))
        return headers

    def _build(self, obj: list[dict[str, Any]], stream: Any, context: Any, path: str) -> list[dict[str, Any]]:
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
"""What a record's length counts, and what must fill it exactly."""


class SizedBytes(Construct):
    """A record in its stream: a varint that cannot be null, then that many bytes; cut anywhere, its length is at fault."""

    def _parse(self, stream: Any, context: Any, path: str) -> bytes:
        try:
            length = VARINT._parse(stream, context, path)
        except StreamError as error:
            raise LengthError("length cut short", path=path) from error
        return read_sized(stream, length, path)

    def _build(self, obj: bytes, stream: Any, context: Any, path: str) -> bytes:
        VARINT._build(len(obj), stream, context, path)
        stream_write(stream, obj, len(obj), path)
        return obj


RECORD: Final = Struct("body" / SizedBytes())
"""A record as it stands in the batch: the length of its body in bytes, then the body."""
