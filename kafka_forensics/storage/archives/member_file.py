"""A member of an archive as an open file."""

from types import TracebackType
from typing import Final, Protocol, Self

from kafka_forensics.errors import SourceError
from kafka_forensics.storage.archives.members import Extents

_ZEROS: Final = bytes(1 << 20)


class Stored(Protocol):
    """What members are cut from: the archive's own file, what a stream in it inflates to, or bytes held."""

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`, fewer only where the bytes end."""

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position`; the number of bytes read, short only where the bytes end."""


class HeldBytes:
    """Bytes in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`."""
        return self._data[position : position + size]

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position`; the number of bytes there were."""
        data = self.read_at(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)


class MemberFile:
    """Bytes `[position, position + size_in_bytes)` of `stored`, or its `extents` with zeros between; `path` for errors.

    Unlike a file that ends early, an archive that does is an error: every read that needs a missing byte raises SourceError.
    """

    def __init__(self, path: str, size_in_bytes: int, stored: Stored, position: int, extents: Extents | None = None) -> None:
        self.size_in_bytes = size_in_bytes
        self._path = path
        self._stored = stored
        self._position = position
        self._extents = extents

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`, fewer only at the end of the member. Raises SourceError if bytes are missing."""
        assert position >= 0
        assert size >= 0
        wanted = max(0, min(size, self.size_in_bytes - position))
        if self._extents is None:
            try:
                data = self._stored.read_at(self._position + position, wanted)
            except SourceError as error:
                raise SourceError(self._path, error.reason) from error
            self._require(len(data), wanted, position)
            return data
        buffer = bytearray(wanted)
        self._fill(position, memoryview(buffer))
        return bytes(buffer)

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position`; the number of bytes read, short only at the end of the member. Raises SourceError."""
        assert position >= 0
        buffer = buffer.cast("B")
        wanted = max(0, min(len(buffer), self.size_in_bytes - position))
        target = buffer[:wanted]
        if self._extents is None:
            self._copy(self._position + position, target, position)
        else:
            for start in range(0, wanted, len(_ZEROS)):
                piece = target[start : start + len(_ZEROS)]
                piece[:] = _ZEROS[: len(piece)]
            self._fill(position, target)
        return wanted

    def data_ranges(self) -> list[tuple[int, int]]:
        """(start, end) of the stored parts of a sparse member; the whole of any other."""
        if self._extents is None:
            return [(0, self.size_in_bytes)] if self.size_in_bytes else []
        ranges: list[tuple[int, int]] = []
        for start, end in zip(self._extents.starts, self._extents.ends, strict=True):
            if ranges and ranges[-1][1] == start:
                ranges[-1] = (ranges[-1][0], end)
            else:
                ranges.append((start, end))
        return ranges

    def close(self) -> None:
        """Nothing to give back: the archive stays open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _fill(self, position: int, target: memoryview) -> None:
        """Put what is stored of `[position, position + len(target))` over the zeros in `target`."""
        assert self._extents is not None
        for start, end, stored_position in self._extents.within(position, position + len(target)):
            self._copy(stored_position, target[start - position : end - position], start)

    def _copy(self, stored_position: int, target: memoryview, position: int) -> None:
        try:
            count = self._stored.read_into(stored_position, target)
        except SourceError as error:
            raise SourceError(self._path, error.reason) from error
        self._require(count, len(target), position)

    def _require(self, count: int, wanted: int, position: int) -> None:
        if count < wanted:
            missing = f"[{position + count}, {position + wanted})"
            raise SourceError(self._path, f"the archive is cut short or damaged: bytes {missing} of this member are missing")
