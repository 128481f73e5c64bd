"""Decompression, in pieces of at most 256 KiB and up to a limit.

Declared sizes are not trusted: output is counted as it comes, and a decompression bomb ends at the limit. Framing is as in Kafka's
readers (org.apache.kafka.common.compress, snappy-java's SnappyInputStream). The output before a fault is kept.
"""

import io
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final

from msgspec import Struct, field

from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import (
    HEADER_SIZE_UP_TO_MAGIC,
    LAST_OFFSET_DELTA_AT,
    LEGACY_V0_OVERHEAD,
    LOG_OVERHEAD,
    compression_name,
)
from kafka_forensics.parsers.log.collected import read_section
from kafka_forensics.parsers.log.damage import Detail
from kafka_forensics.parsers.spec.batch_header import BATCH_HEADER
from kafka_forensics.storage.bundles import CollectedLog, Frame
from kafka_forensics.storage.source import ByteFile

PIECE_BYTES: Final = 256 << 10
"""Size of the largest piece of a stream."""
HELD_BYTES: Final = 16 << 20
"""Most decompressed bytes of one batch in memory at once."""
DECOMPRESSION_LIMIT_BYTES: Final = 1 << 30
"""Most decompressed bytes of one batch that are counted."""

_SNAPPY_MAX_RATIO: Final = 22
"""A snappy copy of three bytes has an output of at most 64."""
_SNAPPY_BLOCK_LIMIT: Final = 128 << 20
"""A snappy block is decompressed at once, so a larger one is refused."""
_SNAPPY_CHUNK_LIMIT: Final = 512 << 20
_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 31
"""zlib's number for "gzip, any window"."""
_GZIP_INPUT: Final = 64 << 10
_GZIP_NEXT_INPUT: Final = 256
"""First input of each further member: thousands of empty members must not cost a copy of 64 KiB each."""
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEAD: Final = 0x82534E41
_XERIAL_HEADER_SIZE: Final = 16
_LZ4_MAGIC: Final = 0x184D2204
_LZ4_INDEPENDENT: Final = 0x20
_LZ4_BLOCK_CHECKSUM: Final = 0x10
_LZ4_CONTENT_SIZE: Final = 0x08
_LZ4_CONTENT_CHECKSUM: Final = 0x04
_LZ4_SHORT_HEADER: Final = 7
"""Header size of a frame without its content size."""
_ZSTD_SCRATCH_INPUT: Final = 256 << 10
_ZSTD_SCRATCH_OUTPUT: Final = 1 << 20
_SMALL_READ_BYTES: Final = 4 << 10
_scratch: Final = threading.local()


class _CodecError(Exception):
    """Ends a decoder; `kind` of finding and its detail."""

    def __init__(self, kind: str, reason: str, **numbers: int) -> None:
        super().__init__(reason)
        self.kind = kind
        self.detail: Detail = {"reason": reason, **numbers}


def _malformed(reason: str, **numbers: int) -> _CodecError:
    return _CodecError("CODEC_MALFORMED", reason, **numbers)


class Decompression:
    """The pieces of one decompressed stream, each at most 256 KiB, lazily; iterate once, then `problem` and `detail` are valid.

    `codec` is attribute bits 0-2, `magic` that of the batch. `problem` is a finding kind or None.
    """

    def __init__(self, codec: int, payload: bytes | memoryview, *, magic: int = 2, limit: int = DECOMPRESSION_LIMIT_BYTES) -> None:
        self._payload = memoryview(payload)
        self._codec = codec
        self._magic = magic
        self._limit = limit
        self.bytes_out = 0
        self.problem: str | None = None
        self.detail: Detail = {}

    def __iter__(self) -> Iterator[bytes]:
        try:
            for piece in _decoder(self._codec, self._payload, self._magic):
                room = self._limit - self.bytes_out
                self.bytes_out += len(piece)
                if len(piece) > room:
                    self._fail("DECOMP_LIMIT_EXCEEDED", {"limit": self._limit})
                    yield piece[:room]
                    return
                yield piece
        except _CodecError as error:
            self._fail(error.kind, error.detail)

    def _fail(self, kind: str, detail: Detail) -> None:
        self.problem = kind
        common: Detail = {"codec": compression_name(self._codec), "bytes_in": len(self._payload), "bytes_out": self.bytes_out}
        if kind == "DECOMP_LIMIT_EXCEEDED":
            declared = detail.get("declared", 0)
            assert isinstance(declared, int)
            common["ratio"] = max(self.bytes_out, declared) // max(len(self._payload), 1)
        self.detail = common | detail


class Decompressed(Struct):
    """A decompressed payload: all of it, or the part before `problem` (a finding kind) with its `detail`."""

    data: bytes
    problem: str | None = None
    detail: Detail = field(default_factory=dict)


def decompress(codec: int, payload: bytes | memoryview, *, magic: int = 2, limit: int = HELD_BYTES) -> Decompressed:
    """`payload` decompressed in memory, at most `limit` bytes: more is the problem DECOMP_LIMIT_EXCEEDED."""
    pieces = Decompression(codec, payload, magic=magic, limit=limit)
    parts = list(pieces)
    return Decompressed(parts[0] if len(parts) == 1 else b"".join(parts), pieces.problem, pieces.detail)


def decompress_into(codec: int, payload: memoryview, output: memoryview) -> int:
    """Decompress `payload` of a magic 2 batch to the start of `output`; returns how many bytes, the same as `decompress` returns.

    -1 if the payload is damaged, if `output` is too small (an LZ4 frame needs space for its largest block after all others), or if
    the codec cannot decompress without a copy: then use `decompress`. Bytes of `output` after the result may change.
    """
    if codec == 3:
        return _lz4_into(payload, output)
    if codec == 4 and 0 < len(payload) <= _ZSTD_SCRATCH_INPUT:
        import cramjam

        try:
            return int(cramjam.zstd.decompress_into(payload, output))
        except cramjam.DecompressionError:
            return -1
    return -1


def _decoder(codec: int, payload: memoryview, magic: int) -> Iterator[bytes]:
    if codec == 3:
        return _lz4(payload, magic)
    if codec == 4:
        return _zstd(payload, magic)
    decoders: dict[int, Callable[[memoryview], Iterator[bytes]]] = {0: _cut, 1: _gzip, 2: _snappy}
    if codec not in decoders:
        raise _malformed("unknown_codec")
    return decoders[codec](payload)


def _cut(data: memoryview) -> Iterator[bytes]:
    """`data` as pieces."""
    for start in range(0, len(data), PIECE_BYTES):
        yield bytes(data[start : start + PIECE_BYTES])


def _gzip(payload: memoryview) -> Iterator[bytes]:
    """RFC 1952 members, one after the other (GZIPInputStream); other bytes after the last member are a fault."""
    position = 0
    step = _GZIP_INPUT
    while position < len(payload) or position == 0:
        if position and bytes(payload[position : position + 2]) != _GZIP_MAGIC:
            raise _malformed("trailing_bytes", position=position)
        member = zlib.decompressobj(_GZIP_WINDOW)
        while not member.eof:
            pending: bytes | memoryview = payload[position : position + step]
            if not pending:
                raise _malformed("truncated", position=position)
            position += len(pending)
            step = min(2 * step, _GZIP_INPUT)
            full = True
            while (pending or full) and not member.eof:
                try:
                    piece = member.decompress(pending, PIECE_BYTES)
                except zlib.error as error:
                    raise _malformed("corrupt", position=position) from error
                full = len(piece) == PIECE_BYTES
                pending = member.unconsumed_tail
                if piece:
                    yield piece
        position -= len(member.unused_data)
        step = _GZIP_NEXT_INPUT


def _snappy(payload: memoryview) -> Iterator[bytes]:
    """A snappy-java stream of chunks, or one raw block if its magic is missing (SnappyInputStream)."""
    if len(payload) < _XERIAL_HEADER_SIZE or bytes(payload[:8]) != _XERIAL_MAGIC:
        if len(payload):
            yield from _snappy_block(payload, 0)
        return
    position = 0
    while len(payload) - position >= 4:
        length = int.from_bytes(payload[position : position + 4], "big")
        if length == _XERIAL_HEAD:
            header = payload[position : position + _XERIAL_HEADER_SIZE]
            if len(header) < _XERIAL_HEADER_SIZE or bytes(header[:8]) != _XERIAL_MAGIC or int.from_bytes(header[8:12], "big") < 1:
                raise _malformed("header", position=position)
            position += _XERIAL_HEADER_SIZE
            continue
        position += 4
        if length > min(len(payload) - position, _SNAPPY_CHUNK_LIMIT):
            raise _CodecError("CODEC_SIZE_LIE", "chunk", declared=length, available=len(payload) - position)
        yield from _snappy_block(payload[position : position + length], position)
        position += length


def _snappy_block(block: memoryview, position: int) -> Iterator[bytes]:
    """A raw snappy block; a declared size that is impossible is refused before anything is allocated."""
    import cramjam

    declared = 0
    for index in range(5):
        if index == len(block):
            raise _malformed("corrupt", position=position)
        declared |= (block[index] & 0x7F) << (7 * index)
        if block[index] < 128:
            break
    if declared > _SNAPPY_MAX_RATIO * len(block):
        raise _CodecError("CODEC_SIZE_LIE", "block", declared=declared, available=len(block))
    if declared > _SNAPPY_BLOCK_LIMIT:
        raise _CodecError("DECOMP_LIMIT_EXCEEDED", "block", declared=declared, limit=_SNAPPY_BLOCK_LIMIT)
    try:
        plain = cramjam.snappy.decompress_raw(block)
    except cramjam.DecompressionError as error:
        raise _malformed("corrupt", position=position) from error
    yield from _cut(memoryview(plain))


def _lz4(payload: memoryview, magic: int) -> Iterator[bytes]:
    """One LZ4 frame of independent blocks (Lz4BlockInputStream); for magic 0 the header's checksum is not checked."""
    import cramjam

    flags, largest, position, header_is_right = _lz4_header(payload, magic)
    output = bytearray(largest)
    while True:
        if len(payload) - position < 4:
            raise _malformed("end_mark_missing", position=position)
        word = int.from_bytes(payload[position : position + 4], "little")
        position += 4
        size = word & 0x7FFFFFFF
        if size == 0:
            break
        if size > largest:
            raise _malformed("block_too_large", position=position, declared=size, limit=largest)
        end = position + size
        if end + (4 if flags & _LZ4_BLOCK_CHECKSUM else 0) > len(payload):
            raise _malformed("truncated", position=position, declared=size, available=len(payload) - position)
        block = payload[position:end]
        position = end
        if flags & _LZ4_BLOCK_CHECKSUM:
            position += 4
            if _xxh32(block) != int.from_bytes(payload[end:position], "little"):
                raise _malformed("block_checksum", position=end)
        if word >> 31:
            yield from _cut(block)
            continue
        try:
            size = cramjam.lz4.decompress_block_into(block, output, output_len=largest)
        except cramjam.DecompressionError as error:
            raise _malformed("corrupt", position=end - len(block)) from error
        yield from _cut(memoryview(output)[:size])
    if flags & _LZ4_CONTENT_CHECKSUM:
        position += 4
    if not header_is_right:
        raise _malformed("header_checksum")
    if position != len(payload):
        raise _malformed("truncated" if position > len(payload) else "trailing_bytes", position=min(position, len(payload)))


def _lz4_into(payload: memoryview, output: memoryview) -> int:
    """Decompress such a frame to the start of `output`, see `decompress_into`; -1 for any fault."""
    import cramjam

    largest, position = _lz4_plain_frame(bytes(payload[:_LZ4_SHORT_HEADER]))
    size, end, room = 0, len(payload) - 4, len(output) - largest
    while position <= end and largest:
        word = int.from_bytes(payload[position : position + 4], "little")
        position += 4
        if not word & 0x7FFFFFFF:
            return size if position == len(payload) else -1
        block_end = position + (word & 0x7FFFFFFF)
        if block_end > end or block_end - position > largest or size > room:
            return -1
        block = payload[position:block_end]
        if word >> 31:
            output[size : size + len(block)] = block
            size += len(block)
        else:
            try:
                size += cramjam.lz4.decompress_block_into(block, output[size:], output_len=largest)
            except cramjam.DecompressionError:
                return -1
        position = block_end
    return -1


@lru_cache
def _lz4_plain_frame(header: bytes) -> tuple[int, int]:
    """(largest block, position of the first) of a frame without block checksums and content size, from 7 bytes; else (0, 0)."""
    try:
        flags, largest, position, is_right = _lz4_header(memoryview(header + b"\0"), 2)
    except _CodecError:
        return 0, 0
    plain = is_right and not flags & (_LZ4_BLOCK_CHECKSUM | _LZ4_CONTENT_CHECKSUM | _LZ4_CONTENT_SIZE)
    return (largest, position) if plain else (0, 0)


def _lz4_header(payload: memoryview, magic: int) -> tuple[int, int, int, bool]:
    """(flags, largest block, position of the first block, whether the header's checksum is right) of a frame that Kafka reads."""
    if len(payload) < 7 or int.from_bytes(payload[:4], "little") != _LZ4_MAGIC:
        raise _malformed("header", position=0)
    flags, block = payload[4], payload[5]
    if flags >> 6 != 1 or flags & 0x03 or not flags & _LZ4_INDEPENDENT or block & 0x8F or block >> 4 < 4:
        raise _malformed("unsupported_header", flags=flags, block_descriptor=block)
    end = 14 if flags & _LZ4_CONTENT_SIZE else 6
    if len(payload) <= end:
        raise _malformed("header", position=0)
    right = magic == 0 or _xxh32(payload[4:end]) >> 8 & 0xFF == payload[end]
    return flags, 1 << (8 + 2 * (block >> 4)), end + 1, right


def _xxh32(data: memoryview) -> int:
    import xxhash

    return int(xxhash.xxh32_intdigest(data))


def _zstd(payload: memoryview, magic: int) -> Iterator[bytes]:
    """Zstandard frames, in one call if the scratch buffer is large enough. Windows above 128 MiB are refused, as by zstd-jni."""
    import cramjam

    if not len(payload):
        return
    size = -1
    if len(payload) <= _ZSTD_SCRATCH_INPUT:
        if not hasattr(_scratch, "output"):
            _scratch.output = bytearray(_ZSTD_SCRATCH_OUTPUT)
        try:
            size = cramjam.zstd.decompress_into(payload, _scratch.output)
        except cramjam.DecompressionError:
            size = -1
    if size >= 0:
        plain = bytes(memoryview(_scratch.output)[:size])
        yield from (plain,) if 0 < size <= PIECE_BYTES else _cut(memoryview(plain))
    else:
        yield from _zstd_stream(payload)
    if magic < 2:
        raise _malformed("codec_before_magic_2")


def _zstd_stream(payload: memoryview) -> Iterator[bytes]:
    """The same as a stream. On a fault it loses pending output, so the end is read again in small steps."""
    import pyarrow as pa

    done = 0
    fault: Exception | None = None
    for step in (PIECE_BYTES, 64, 1):
        source = pa.BufferReader(payload) if step == PIECE_BYTES else pa.PythonFile(_SmallReads(payload), mode="r")
        try:
            reader = pa.CompressedInputStream(source, "zstd")
            to_skip = done
            while to_skip > 0 and (piece := reader.read(min(to_skip, PIECE_BYTES))):
                to_skip -= len(piece)
            while piece := reader.read(step):
                done += len(piece)
                yield piece
        except (OSError, pa.ArrowInvalid) as error:
            fault = error
            continue
        return
    raise _malformed("corrupt") from fault


class _SmallReads(io.RawIOBase):
    """A file whose reads return at most 4 KiB."""

    def __init__(self, data: memoryview) -> None:
        super().__init__()
        self._data = data
        self._position = 0

    def readable(self) -> bool:
        """True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """The next bytes, at most `size` and 4 KiB."""
        size = _SMALL_READ_BYTES if size < 0 else min(size, _SMALL_READ_BYTES)
        piece = bytes(self._data[self._position : self._position + size])
        self._position += len(piece)
        return piece


# The batches of a segment as Kafka's loader walks them: by their lengths, without CRCs (FileLogInputStream).


_HEADER: Final = struct.Struct(BATCH_HEADER.format[:5])
"""Base offset, length, leader epoch (of magic 2) and magic."""
_DELTA: Final = struct.Struct(">i")
_FRAME_COLUMNS: Final = [
    BatchColumn.POSITION,
    BatchColumn.BASE_OFFSET,
    BatchColumn.SIZE_IN_BYTES,
    BatchColumn.MAGIC,
    BatchColumn.LAST_OFFSET_DELTA,
]
_WINDOW: Final = 64 << 10


def read_next_offset(log: ByteFile, base_offset: int, entry: tuple[int, int]) -> int | None:
    """The next offset after the last batch, by LogSegment.readNextOffset of Kafka 4.3; None if its read throws.

    It searches from the index entry (absolute offset, byte position) for the batch with that offset, by base offsets, and uses the
    last batch after it, or without one the segment's base offset (FileRecords.searchForOffsetFromPosition). Raises SourceError.
    """
    target = entry[0]
    reached = False
    last: int | None = None
    for batch in _frames(log, max(entry[1], 0)):
        if batch is None:
            return None
        base, end = batch
        reached = reached or base >= target
        last = end
    if reached or (last is not None and last > target):
        return last
    return base_offset


def _frames(log: ByteFile, position: int) -> Iterator[tuple[int, int] | None]:
    """(base offset, next offset) of every complete batch from `position` on; None where Kafka throws because of a length."""
    if isinstance(log, CollectedLog):
        yield from _collected_frames(log, position)
        return
    size = log.size_in_bytes
    window, start = b"", 0
    while position < size - HEADER_SIZE_UP_TO_MAGIC:
        if not start <= position <= start + len(window) - LAST_OFFSET_DELTA_AT - _DELTA.size:
            window, start = log.read_at(position, _WINDOW), position
        if position + HEADER_SIZE_UP_TO_MAGIC > start + len(window):
            return
        offset, length, _, magic = _HEADER.unpack_from(window, position - start)
        if length < LEGACY_V0_OVERHEAD:
            yield None
            return
        if position > size - LOG_OVERHEAD - length:
            return
        delta = 0
        if magic >= 2 and position - start + LAST_OFFSET_DELTA_AT + _DELTA.size <= len(window):
            (delta,) = _DELTA.unpack_from(window, position - start + LAST_OFFSET_DELTA_AT)
        yield offset, offset + delta + 1
        position += LOG_OVERHEAD + length


def _collected_frames(log: CollectedLog, position: int) -> Iterator[tuple[int, int] | None]:
    """The same for a collected log, from its batches and the frames stored where damage begins."""
    for section, packed in log.batches(position, log.size_in_bytes):
        if position >= section.end:
            continue
        frames = log.frames(section.start, section.end)
        columns = read_section(log, packed).columns
        for at, base_offset, size, magic, delta in columns[_FRAME_COLUMNS].T.tolist():
            frames.setdefault(at, Frame(at, base_offset, size - LOG_OVERHEAD, magic, delta if magic >= 2 else 0))
        while position < min(section.end, log.size_in_bytes - HEADER_SIZE_UP_TO_MAGIC):
            frame = frames.get(position)
            if frame is None:
                raise log.missing_records_error()
            if frame.batch_length < LEGACY_V0_OVERHEAD:
                yield None
                return
            if position > log.size_in_bytes - LOG_OVERHEAD - frame.batch_length:
                return
            delta = frame.last_offset_delta if frame.magic >= 2 else 0
            yield frame.base_offset, frame.base_offset + delta + 1
            position += LOG_OVERHEAD + frame.batch_length


def last_entry(index: ByteFile, base_offset: int) -> tuple[int, int]:
    """The last entry of a `.index` by the file's size, even if it is zeros: (absolute offset, position). Raises SourceError."""
    entries = index.size_in_bytes // 8
    data = index.read_at(8 * (entries - 1), 8) if entries else b""
    if len(data) < 8:
        return base_offset, 0
    relative, position = struct.unpack(">ii", data)
    return base_offset + relative, position
