"""An object of a storage service as an open file: ranged reads, read ahead where they are sequential, in bounded memory."""

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future
from types import TracebackType
from typing import Final, Self

from kafka_forensics.errors import SourceError
from kafka_forensics.storage.remote.errors import RequestFailedError, source_error

BLOCKS_AHEAD: Final = 2
"""Blocks fetched before they are asked for; with the one being read, what a file holds at most."""
SMALL_FILE: Final = 1 << 20
"""Files up to this size are fetched whole."""
SMALL_READ: Final = 64 << 10
"""A random read fetches at least so much, which the next one may find; twice that when the next one goes on, and so forth."""
STREAM_AFTER: Final = 2 << 20
"""Bytes read one behind the other after which the rest of the file is read in blocks."""

Data = bytes | bytearray
Fetch = Callable[[int, int], Data]
"""`fetch(position, size)`: those bytes, or fewer if the object has no more. Raises RequestFailedError."""


class RemoteFile:
    """Bytes `[0, size_in_bytes)` behind `fetch`; any number of threads may read it at once.

    Sequential reads, and those within a range announced by `will_read`, are made in blocks of `block_bytes`, two of which are
    fetched ahead on `pool`; other reads fetch what they ask for. An object that has fewer bytes than it had when it was opened is
    an error, never an end of file.
    """

    def __init__(
        self, path: str, size_in_bytes: int, fetch: Fetch, pool: Executor, block_bytes: int, on_close: Callable[[], None]
    ) -> None:
        self.size_in_bytes = size_in_bytes
        self._path = path
        self._fetch = fetch
        self._pool = pool
        self._block_bytes = block_bytes
        self._on_close = on_close
        self._lock = threading.RLock()
        self._blocks: dict[int, Future[Data]] = {}
        self._first, self._last = 0, 0
        self._fetched_end, self._run = -1, 0
        self._held_at = 0
        self._held: Data = b""
        self._closed = False

    def will_read(self, start: int, end: int) -> None:
        """Announce that `[start, end)` is going to be read from left to right: fetched in blocks from `start`, and not beyond."""
        with self._lock:
            self._stream(start, min(end, self.size_in_bytes))

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`, fewer only at the end of the file. Raises SourceError."""
        assert position >= 0
        assert size >= 0
        wanted = max(0, min(size, self.size_in_bytes - position))
        pieces: list[memoryview] = []
        done = 0
        while done < wanted:
            pieces.append(self._piece(position + done, wanted - done))
            done += len(pieces[-1])
        return b"".join(pieces)

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position`; the number of bytes read, short only at the end of the file. Raises SourceError."""
        assert position >= 0
        buffer = buffer.cast("B")
        wanted = max(0, min(len(buffer), self.size_in_bytes - position))
        done = 0
        while done < wanted:
            data = self._piece(position + done, wanted - done)
            buffer[done : done + len(data)] = data
            done += len(data)
        return wanted

    def data_ranges(self) -> list[tuple[int, int]]:
        """The whole file: objects have no holes."""
        return [(0, self.size_in_bytes)] if self.size_in_bytes else []

    def close(self) -> None:
        """Forget what was read and what was on its way; a second call does nothing."""
        with self._lock:
            closed, self._closed = self._closed, True
            self._drop_blocks()
            self._held = b""
        if not closed:
            self._on_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _piece(self, position: int, size: int) -> memoryview:
        """At least one byte from `position`, at most `size`."""
        with self._lock:
            if self._closed:
                raise SourceError(self._path, "read after it was closed")
            held = position - self._held_at
            if 0 <= held < len(self._held):
                return memoryview(self._held)[held : held + size]
            streamed = self._first <= position < self._last
            if not streamed and position == self._fetched_end and self._run >= STREAM_AFTER:
                self._stream(position, self.size_in_bytes)
                streamed = True
            if streamed:
                start, future = self._block(position)
        if not streamed:
            return self._alone(position, size)
        try:
            data = self._answer(future.result)
        except CancelledError:  # another thread reads elsewhere in this file
            return self._alone(position, size)
        return memoryview(data)[position - start : position - start + size]

    def _stream(self, start: int, end: int) -> None:
        """Read `[start, end)` in blocks from now on."""
        self._drop_blocks()
        self._first, self._last = start, max(start, end)

    def _block(self, position: int) -> tuple[int, Future[Data]]:
        """(start, bytes) of the block that holds `position`; those behind it are begun, and those before it forgotten."""
        number = (position - self._first) // self._block_bytes
        blocks = -(-(self._last - self._first) // self._block_bytes)
        ahead = range(number, min(number + 1 + BLOCKS_AHEAD, blocks))
        for old in [block for block in self._blocks if block not in ahead]:
            self._blocks.pop(old).cancel()
        for one in ahead:
            if one not in self._blocks:
                start = self._first + one * self._block_bytes
                self._blocks[one] = self._pool.submit(self._whole, start, min(self._block_bytes, self._last - start))
        return self._first + number * self._block_bytes, self._blocks[number]

    def _alone(self, position: int, size: int) -> memoryview:
        """A piece outside what is streamed: the file if it is small, else what is asked for, rounded up if that is little."""
        start, length = 0, self.size_in_bytes
        with self._lock:
            if self.size_in_bytes > SMALL_FILE:
                before = self._run if position == self._fetched_end else 0
                start, length = position, min(max(size, SMALL_READ, min(before, SMALL_FILE)), self._block_bytes, length - position)
                self._fetched_end, self._run = position + length, before + length
        data = self._answer(lambda: self._whole(start, length))
        if length <= SMALL_FILE:
            with self._lock:
                self._held_at, self._held = start, data
        return memoryview(data)[position - start : position - start + size]

    def _whole(self, position: int, size: int) -> Data:
        data = self._fetch(position, size)
        if len(data) < size:
            there = position + len(data)
            raise SourceError(self._path, f"shorter than when it was listed: {there} of {self.size_in_bytes} bytes")
        return data

    def _answer(self, give: Callable[[], Data]) -> Data:
        try:
            return give()
        except RequestFailedError as error:
            raise source_error(self._path, error.failure) from None

    def _drop_blocks(self) -> None:
        for future in self._blocks.values():
            future.cancel()
        self._blocks.clear()
        self._first = self._last = 0
