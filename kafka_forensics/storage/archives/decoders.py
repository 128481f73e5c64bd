"""Streams of compressed bytes, opened in bounded steps: gzip and deflate (zlib), xz (lzma), zstd (pyarrow).

A decoder gives the same pieces each time it is started anew, so that a place found in one pass is found again in the next.
No step makes more than `STEP` bytes, whatever the stream declares: a small archive may stand for terabytes.
"""

import io
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, Self

from kafka_forensics.errors import SourceError
from kafka_forensics.storage.source import ByteFile, ByteSource

if TYPE_CHECKING:
    import lzma


STEP: Final = 1 << 16
"""Most bytes one step makes; also what may be lost before a damaged place."""
_READ: Final = 1 << 17
"""Compressed bytes read at once."""
_XZ_MEMORY: Final = 256 << 20
"""What an xz stream may ask for its dictionary; `xz -9` asks 65 MiB."""
_GZIP: Final = 31
_RAW_DEFLATE: Final = -15


class BrokenStreamError(Exception):
    """No further byte can be had from this stream, for the reason given."""


class Decoder(Protocol):
    """One pass through a compressed stream."""

    def step(self) -> bytes:
        """The next at most `STEP` bytes; b"" at the end. Raises BrokenStreamError where the stream is cut or damaged."""

    def snapshot(self) -> "Decoder | None":
        """A decoder that goes on from here independently, or None where the library cannot copy its state."""


class _Input:
    """The compressed bytes of `[position, end)` of a file, in order."""

    def __init__(self, file: ByteFile, position: int, end: int) -> None:
        self.file = file
        self.position = position
        self.end = end

    def next(self, most: int = _READ) -> bytes:
        """The next bytes, b"" at the end."""
        data = self.file.read_at(self.position, max(0, min(most, self.end - self.position)))
        self.position += len(data)
        return data

    def copy(self) -> "_Input":
        """Another reader that goes on from the same position."""
        return _Input(self.file, self.position, self.end)


class GzipDecoder:
    """A gzip file: members one after another, zeros allowed behind them (RFC 1952)."""

    def __init__(self, file: ByteFile) -> None:
        self._input = _Input(file, 0, file.size_in_bytes)
        self._inflate = zlib.decompressobj(_GZIP)
        self._pending = b""

    def step(self) -> bytes:
        """The next bytes; see Decoder."""
        while True:
            if self._inflate.eof and not self._next_member():
                return b""
            try:
                made, self._pending = _inflate(self._inflate, self._pending, self._input)
            except zlib.error as error:
                raise BrokenStreamError(f"damaged gzip stream ({_zlib_words(error)})") from error
            if made:
                return made
            if not self._inflate.eof:
                raise BrokenStreamError("the gzip stream is cut short")

    def _next_member(self) -> bool:
        """Step over zeros to the next member; False at the end of the file."""
        data = self._inflate.unused_data.lstrip(b"\0")
        while len(data) < 2 and (more := self._input.next()):
            data = (data + more).lstrip(b"\0")
        if not data:
            return False
        if not data.startswith(b"\x1f\x8b"):
            raise BrokenStreamError("bytes behind the gzip stream are no gzip stream")
        self._inflate = zlib.decompressobj(_GZIP)
        self._pending = data
        return True

    def snapshot(self) -> Self:
        """A copy of the state (about 50 KB)."""
        other = object.__new__(type(self))
        other._input = self._input.copy()
        other._inflate = self._inflate.copy()
        other._pending = self._pending
        return other


class DeflateDecoder:
    """A deflated zip member in `[start, end)` of the archive: exactly `size_in_bytes` bytes with `crc` (CRC-32) once inflated.

    `report` is told when they are not: the bytes are evidence all the same, so they are given and not withheld.
    """

    def __init__(
        self, file: ByteFile, span: tuple[int, int], *, size_in_bytes: int, crc: int, report: Callable[[str], None]
    ) -> None:
        self._input = _Input(file, *span)
        self._inflate = zlib.decompressobj(_RAW_DEFLATE)
        self._pending = b""
        self._left = size_in_bytes
        self._crc = 0
        self._expected_crc = crc
        self._report = report

    def step(self) -> bytes:
        """The next bytes; see Decoder. Ends at the declared size, even if the stream goes on."""
        if self._left == 0:
            return b""
        try:
            made, self._pending = _inflate(self._inflate, self._pending, self._input, min(STEP, self._left))
        except zlib.error as error:
            raise BrokenStreamError(f"damaged deflate stream ({_zlib_words(error)})") from error
        if not made:
            raise BrokenStreamError(
                "the deflate stream is shorter than declared" if self._inflate.eof else "the deflate stream is cut short"
            )
        self._crc = zlib.crc32(made, self._crc)
        self._left -= len(made)
        if self._left == 0 and self._crc != self._expected_crc:
            self._report(f"CRC-32 is {self._crc:08x}, the archive says {self._expected_crc:08x}")
        return made

    def snapshot(self) -> Self:
        """A copy of the state (about 50 KB)."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._input = self._input.copy()
        other._inflate = self._inflate.copy()
        return other


def measure_deflate(file: ByteFile, start: int) -> tuple[int, int, int, bool]:
    """(end in the file, size inflated, CRC-32, whether it is whole) of the deflate stream at `start`, as far as it can be read."""
    source = _Input(file, start, file.size_in_bytes)
    inflate = zlib.decompressobj(_RAW_DEFLATE)
    pending = b""
    size_in_bytes = crc = 0
    try:
        while not inflate.eof:
            made, pending = _inflate(inflate, pending, source)
            if not made and not inflate.eof:
                break
            size_in_bytes += len(made)
            crc = zlib.crc32(made, crc)
    except zlib.error:
        pass  # damaged from here on: the measure says that it is not whole
    return source.position - len(inflate.unused_data), size_in_bytes, crc, inflate.eof


class XzDecoder:
    """A `.xz` file: streams one after another, padded with zeros (the .xz file format, 2.2)."""

    def __init__(self, file: ByteFile) -> None:
        self._input = _Input(file, 0, file.size_in_bytes)
        self._lzma = _new_lzma()
        self._pending = b""

    def step(self) -> bytes:
        """The next bytes; see Decoder."""
        import lzma

        while True:
            if self._lzma.eof and not self._next_stream():
                return b""
            if self._lzma.needs_input and not self._pending:
                self._pending = self._input.next()
                if not self._pending:
                    raise BrokenStreamError("the xz stream is cut short")
            try:
                made = self._lzma.decompress(self._pending, STEP)
            except lzma.LZMAError as error:
                raise BrokenStreamError(f"damaged xz stream ({str(error)[:1].lower()}{str(error)[1:]})") from error
            self._pending = b""
            if made:
                return made

    def _next_stream(self) -> bool:
        """Step over padding to the next stream; False at the end of the file."""
        data = self._lzma.unused_data.lstrip(b"\0")
        while not data and (more := self._input.next()):
            data = more.lstrip(b"\0")
        if not data:
            return False
        self._lzma = _new_lzma()
        self._pending = data
        return True

    def snapshot(self) -> None:
        """None: lzma cannot copy its state."""


class ZstdDecoder:
    """A `.zst` file: frames one after another; windows above 128 MiB are refused by the library (RFC 8878)."""

    def __init__(self, file: ByteFile) -> None:
        self._file = file
        self._stream = _arrow_stream(file)
        self._position = 0
        self._broken = ""

    def step(self) -> bytes:
        """The next bytes; see Decoder."""
        if self._broken:
            raise BrokenStreamError(self._broken)
        try:
            made = self._stream.read(STEP)
        except (OSError, ValueError) as error:
            words = "is cut short" if "runcated" in str(error) else f"is damaged ({error})"
            self._broken = f"the zstd stream {words}"
            made = self._read_to_the_edge()
            if not made:
                raise BrokenStreamError(self._broken) from error
        self._position += len(made)
        return made

    def _read_to_the_edge(self) -> bytes:
        """What there is between the last whole step and the broken place; in small reads, because a failed one loses all it had."""
        stream = _arrow_stream(self._file)
        pieces = []
        try:
            position = 0
            while position < self._position and (piece := stream.read(min(STEP, self._position - position))):
                position += len(piece)
            while piece := stream.read(512):
                pieces.append(piece)
        except (OSError, ValueError):
            pass  # the edge: the caller has the reason
        return b"".join(pieces)

    def snapshot(self) -> None:
        """None: zstd cannot copy its state."""


class _RawFile(io.RawIOBase):
    """The compressed file in the shape pyarrow reads from."""

    def __init__(self, file: ByteFile) -> None:
        super().__init__()
        self._input = _Input(file, 0, file.size_in_bytes)

    def readable(self) -> bool:
        """Always."""
        return True

    def read(self, size: int = -1) -> bytes:
        """The next at most `size` bytes."""
        return self._input.next(size if size >= 0 else _READ)


class _ReadsBytes(Protocol):
    def read(self, size: int, /) -> bytes: ...


def _arrow_stream(file: ByteFile) -> _ReadsBytes:
    import pyarrow as pa

    stream: _ReadsBytes = pa.CompressedInputStream(pa.PythonFile(_RawFile(file), mode="r"), "zstd")
    return stream


def _new_lzma() -> "lzma.LZMADecompressor":
    import lzma

    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)


def _inflate(inflate: "zlib._Decompress", pending: bytes, source: _Input, most: int = STEP) -> tuple[bytes, bytes]:
    """(at most `most` inflated bytes, compressed bytes not used yet); b"" only at the end of the stream or of the input.

    zlib may hold back output after it took all its input, so it is asked once more before more input is read.
    """
    while True:
        made = inflate.decompress(pending, most)
        pending = inflate.unconsumed_tail
        if made or inflate.eof:
            return made, pending
        more = source.next()
        if not more:
            return b"", pending
        pending += more


def _zlib_words(error: zlib.error) -> str:
    """zlib's own words, without the sentence Python puts before them."""
    return str(error).rsplit(": ", 1)[-1]


# What kind of container a file is by its first bytes, whatever it is called.


@dataclass(frozen=True, slots=True)
class Container:
    """A kind of archive or compressed file: in `words`, and how names of such files end."""

    words: str
    ends: tuple[str, ...]


_TAR: Final = Container("a tar archive", (".tar",))
_GZIP_FILE: Final = Container("gzip-compressed data", (".tar.gz", ".tgz", ".tar.z", ".gz"))
_TAR_MAGIC_AT: Final = 257
_MAGICS: Final = (
    (0, b"\x1f\x8b\x08", _GZIP_FILE),
    (0, b"\xfd7zXZ\x00", Container("xz-compressed data", (".tar.xz", ".txz", ".xz"))),
    (0, b"\x28\xb5\x2f\xfd", Container("zstd-compressed data", (".tar.zst", ".tzst", ".zst"))),
    (0, b"BZh", Container("bzip2-compressed data", (".tar.bz2", ".tbz", ".tbz2", ".bz2"))),
    (0, b"PK\x03\x04", Container("a zip archive", (".zip",))),
    (0, b"PK\x05\x06", Container("a zip archive", (".zip",))),
    (0, b"7z\xbc\xaf\x27\x1c", Container("a 7z archive", (".7z",))),
    (0, b"Rar!\x1a\x07", Container("a rar archive", (".rar",))),
    (_TAR_MAGIC_AT, b"ustar", _TAR),
)
"""(byte, what stands there, kind)."""
_LOOKED_AT: Final = 512


def container_of(source: ByteSource) -> Container | None:
    """The kind of container that the one file of `source` is; None if its bytes are of none, or cannot be read."""
    try:
        with source.open("") as file:
            first = file.read_at(0, _LOOKED_AT)
    except SourceError:
        return None
    return next((kind for at, magic, kind in _MAGICS if first[at:].startswith(magic)), None)
