"""Decoders of compressed streams, in steps of bounded size: gzip and deflate (zlib), xz (lzma), zstd (pyarrow).

A restarted decoder gives the same chunks: a position found in one pass is found again in the next. No step makes more than `STEP`
bytes, whatever the stream declares: a small archive may decompress to terabytes.
"""

import io
import zlib
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Final, Protocol, Self

from msgspec import Struct

from kafka_forensics.errors import SourceError
from kafka_forensics.storage.source import ByteFile, ByteSource

if TYPE_CHECKING:
    import lzma


STEP: Final = 1 << 16
"""Most bytes made by one step; also the most that may be lost before a damaged place."""
_READ: Final = 1 << 17
"""Compressed bytes read at once."""
_XZ_MEMORY: Final = 256 << 20
"""Largest dictionary of an xz stream; `xz -9` uses 65 MiB."""
_GZIP: Final = 31
_RAW_DEFLATE: Final = -15


class DecodeError(Exception):
    """The stream gives no further bytes, for this reason."""


class Decoder(Protocol):
    """One pass through a compressed stream."""

    def step(self) -> bytes:
        """The next at most `STEP` bytes; b"" at the end. Raises DecodeError where the stream is truncated or damaged."""

    def snapshot(self) -> "Decoder | None":
        """An independent decoder that continues from here, or None if the library cannot copy its state."""


class _CompressedBytes(Struct):
    """The compressed bytes of `[position, end)` of a file, in order."""

    file: ByteFile
    position: int
    end: int

    def next(self, most: int = _READ) -> bytes:
        """The next bytes, b"" at the end."""
        data = self.file.read_at(self.position, max(0, min(most, self.end - self.position)))
        self.position += len(data)
        return data


class _ZlibState:
    """A zlib decompressor with the compressed bytes that it has yet to read; `bits` is zlib's `wbits`."""

    def __init__(self, file: ByteFile, span: tuple[int, int], bits: int) -> None:
        self.compressed = _CompressedBytes(file, *span)
        self._bits = bits
        self.restart(b"")

    def restart(self, pending: bytes) -> None:
        """Begin a new stream with the bytes that were read already."""
        self.zlib = zlib.decompressobj(self._bits)
        self._pending = pending

    def copy(self) -> Self:
        """An independent copy (about 50 KB)."""
        other = copy(self)
        other.compressed, other.zlib = copy(self.compressed), self.zlib.copy()
        return other

    def inflate(self, most: int = STEP) -> bytes:
        """At most `most` decompressed bytes; b"" only at the end of the stream or of the file. Raises zlib.error.

        zlib may hold back output after it took all its input, so it is called once more before more input is read.
        """
        while True:
            made = self.zlib.decompress(self._pending, most)
            self._pending = self.zlib.unconsumed_tail
            if made or self.zlib.eof:
                return made
            more = self.compressed.next()
            if not more:
                return b""
            self._pending += more


class GzipDecoder:
    """A gzip file: members one after another, with zeros allowed after each (RFC 1952)."""

    def __init__(self, file: ByteFile) -> None:
        self._state = _ZlibState(file, (0, file.size_in_bytes), _GZIP)

    def step(self) -> bytes:
        """See Decoder."""
        while True:
            if self._state.zlib.eof and not self._next_member():
                return b""
            try:
                made = self._state.inflate()
            except zlib.error as error:
                raise DecodeError(f"damaged gzip stream ({_zlib_reason(error)})") from error
            if made:
                return made
            if not self._state.zlib.eof:
                raise DecodeError("the gzip stream is cut short")

    def _next_member(self) -> bool:
        """Skip zeros up to the next member; False at the end of the file."""
        data = self._state.zlib.unused_data.lstrip(b"\0")
        while len(data) < 2 and (more := self._state.compressed.next()):
            data = (data + more).lstrip(b"\0")
        if not data:
            return False
        if not data.startswith(b"\x1f\x8b"):
            raise DecodeError("bytes after the gzip stream are not a gzip stream")
        self._state.restart(data)
        return True

    def snapshot(self) -> Self:
        """See Decoder."""
        other = copy(self)
        other._state = self._state.copy()
        return other


class DeflateDecoder:
    """A deflated zip member in `[start, end)` of the archive, of `size_in_bytes` bytes with `crc` (CRC-32) once decompressed.

    `report` is called if the CRC differs: the bytes are evidence all the same, so they are still given.
    """

    def __init__(
        self, file: ByteFile, span: tuple[int, int], *, size_in_bytes: int, crc: int, report: Callable[[str], None]
    ) -> None:
        self._state = _ZlibState(file, span, _RAW_DEFLATE)
        self._left = size_in_bytes
        self._crc = 0
        self._expected_crc = crc
        self._report = report

    def step(self) -> bytes:
        """See Decoder. Ends at the declared size, even if the stream goes on."""
        if self._left == 0:
            return b""
        try:
            made = self._state.inflate(min(STEP, self._left))
        except zlib.error as error:
            raise DecodeError(f"damaged deflate stream ({_zlib_reason(error)})") from error
        if not made:
            raise DecodeError(f"the deflate stream is {'shorter than declared' if self._state.zlib.eof else 'cut short'}")
        self._crc = zlib.crc32(made, self._crc)
        self._left -= len(made)
        if self._left == 0 and self._crc != self._expected_crc:
            self._report(f"CRC-32 is {self._crc:08x}, but {self._expected_crc:08x} in the archive")
        return made

    def snapshot(self) -> Self:
        """See Decoder."""
        other = copy(self)
        other._state = self._state.copy()
        return other


def measure_deflate(file: ByteFile, start: int) -> tuple[int, int, int, bool]:
    """(end in the file, decompressed size, CRC-32, whether it is complete) of the deflate stream at `start`, as far as readable."""
    state = _ZlibState(file, (start, file.size_in_bytes), _RAW_DEFLATE)
    size_in_bytes = crc = 0
    try:
        while not state.zlib.eof:
            made = state.inflate()
            if not made and not state.zlib.eof:
                break
            size_in_bytes += len(made)
            crc = zlib.crc32(made, crc)
    except zlib.error:
        pass  # damaged from here on, so not complete
    return state.compressed.position - len(state.zlib.unused_data), size_in_bytes, crc, state.zlib.eof


class XzDecoder:
    """An `.xz` file: streams one after another, padded with zeros (the .xz file format, 2.2)."""

    def __init__(self, file: ByteFile) -> None:
        self._compressed = _CompressedBytes(file, 0, file.size_in_bytes)
        self._lzma = _new_lzma()
        self._pending = b""

    def step(self) -> bytes:
        """See Decoder."""
        import lzma

        while True:
            if self._lzma.eof and not self._next_stream():
                return b""
            if self._lzma.needs_input and not self._pending:
                self._pending = self._compressed.next()
                if not self._pending:
                    raise DecodeError("the xz stream is cut short")
            try:
                made = self._lzma.decompress(self._pending, STEP)
            except lzma.LZMAError as error:
                raise DecodeError(f"damaged xz stream ({str(error)[:1].lower()}{str(error)[1:]})") from error
            self._pending = b""
            if made:
                return made

    def _next_stream(self) -> bool:
        """Skip padding up to the next stream; False at the end of the file."""
        data = self._lzma.unused_data.lstrip(b"\0")
        while not data and (more := self._compressed.next()):
            data = more.lstrip(b"\0")
        if not data:
            return False
        self._lzma = _new_lzma()
        self._pending = data
        return True

    def snapshot(self) -> None:
        """None: lzma cannot copy its state."""


class ZstdDecoder:
    """A `.zst` file: frames one after another; the library refuses windows above 128 MiB (RFC 8878)."""

    def __init__(self, file: ByteFile) -> None:
        self._file = file
        self._stream = _arrow_stream(file)
        self._position = 0
        self._broken = ""

    def step(self) -> bytes:
        """See Decoder."""
        if self._broken:
            raise DecodeError(self._broken)
        try:
            made = self._stream.read(STEP)
        except (OSError, ValueError) as error:
            fault = "is cut short" if "runcated" in str(error) else f"is damaged ({error})"
            self._broken = f"the zstd stream {fault}"
            made = self._read_to_damage()
            if not made:
                raise DecodeError(self._broken) from error
        self._position += len(made)
        return made

    def _read_to_damage(self) -> bytes:
        """The bytes from the last complete step to the damage, in small reads, because a failed read loses what it has read."""
        stream = _arrow_stream(self._file)
        chunks = []
        try:
            position = 0
            while position < self._position and (chunk := stream.read(min(STEP, self._position - position))):
                position += len(chunk)
            while chunk := stream.read(512):
                chunks.append(chunk)
        except (OSError, ValueError):
            pass  # the damage, which the caller reports
        return b"".join(chunks)

    def snapshot(self) -> None:
        """None: zstd cannot copy its state."""


class _RawFile(io.RawIOBase):
    """The compressed file in the form that pyarrow reads."""

    def __init__(self, file: ByteFile) -> None:
        super().__init__()
        self._compressed = _CompressedBytes(file, 0, file.size_in_bytes)

    def readable(self) -> bool:
        """Always."""
        return True

    def read(self, size: int = -1) -> bytes:
        """The next at most `size` bytes."""
        return self._compressed.next(size if size >= 0 else _READ)


class _ReadableStream(Protocol):
    def read(self, size: int, /) -> bytes: ...


def _arrow_stream(file: ByteFile) -> _ReadableStream:
    import pyarrow as pa

    stream: _ReadableStream = pa.CompressedInputStream(pa.PythonFile(_RawFile(file), mode="r"), "zstd")
    return stream


def _new_lzma() -> "lzma.LZMADecompressor":
    import lzma

    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)


def _zlib_reason(error: zlib.error) -> str:
    """zlib's own words, without the sentence that Python puts before them."""
    return str(error).rsplit(": ", 1)[-1]


class Container(Struct, frozen=True):
    """A kind of archive or compressed file: its description `words`, and how names of such files end."""

    words: str
    ends: tuple[str, ...]


_MAGICS: Final = (
    (0, b"\x1f\x8b\x08", Container("gzip-compressed data", (".tar.gz", ".tgz", ".tar.z", ".gz"))),
    (0, b"\xfd7zXZ\x00", Container("xz-compressed data", (".tar.xz", ".txz", ".xz"))),
    (0, b"\x28\xb5\x2f\xfd", Container("zstd-compressed data", (".tar.zst", ".tzst", ".zst"))),
    (0, b"BZh", Container("bzip2-compressed data", (".tar.bz2", ".tbz", ".tbz2", ".bz2"))),
    (0, b"PK\x03\x04", Container("a zip archive", (".zip",))),
    (0, b"PK\x05\x06", Container("a zip archive", (".zip",))),
    (0, b"7z\xbc\xaf\x27\x1c", Container("a 7z archive", (".7z",))),
    (0, b"Rar!\x1a\x07", Container("a rar archive", (".rar",))),
    (257, b"ustar", Container("a tar archive", (".tar",))),
)
"""(position, bytes at it, kind)."""
_MAGIC_BYTES: Final = 512
"""Read to find out the kind."""


def container_of(source: ByteSource) -> Container | None:
    """The kind of container, by its first bytes, of the file that `source` is; None if it is none, or cannot be read."""
    try:
        with source.open("") as file:
            first = file.read_at(0, _MAGIC_BYTES)
    except SourceError:
        return None
    return next((kind for position, magic, kind in _MAGICS if first[position:].startswith(magic)), None)
