"""An object of a storage service as an open file: ranged reads, read ahead where they are sequential, in bounded memory."""

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafka_forensics.errors import SourceError
from kafka_forensics.storage.remote.errors import Failure, RequestFailedError, attempt, once, source_error
from kafka_forensics.storage.remote.options import StorageOptions
from kafka_forensics.storage.source import OpenFile

if TYPE_CHECKING:
    from pyarrow import NativeFile
    from pyarrow.fs import FileSystem


BLOCKS_AHEAD: Final = 2
"""Blocks fetched before they are asked for; with the one being read, what a file holds at most."""
SMALL_FILE: Final = 1 << 20
"""Files up to this size are fetched whole."""
SMALL_READ: Final = 64 << 10
"""A random read fetches at least so much, which the next one may find; twice that when the next one goes on, and so forth."""
STREAM_AFTER: Final = 2 << 20
"""Bytes read one behind the other after which the rest of the file is read in blocks."""

Data = bytes | bytearray


class RangedObject(Protocol):
    """An object that is read by ranges."""

    size_in_bytes: int

    def fetch(self, position: int, size: int, /) -> Data:
        """Those bytes, or fewer if the object has no more. Raises RequestFailedError."""

    def close(self) -> None:
        """Nothing more is asked for."""


class RemoteFile(OpenFile):
    """An object as a file; any number of threads may read it at once.

    Sequential reads, and those within a range announced by `will_read`, are made in blocks of `block_bytes`, two of which are
    fetched ahead on `pool`; other reads fetch what they ask for. An object that has fewer bytes than it had when it was opened is
    an error, never an end of file.
    """

    def __init__(self, path: str, ranged: RangedObject, pool: Executor, block_bytes: int) -> None:
        self.size_in_bytes = ranged.size_in_bytes
        self._path = path
        self._object = ranged
        self._pool = pool
        self._block_bytes = block_bytes
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

    def close(self) -> None:
        """Forget what was read and what was on its way; a second call does nothing."""
        with self._lock:
            closed, self._closed = self._closed, True
            self._drop_blocks()
            self._held = b""
        if not closed:
            self._object.close()

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
        for piece in ahead:
            if piece not in self._blocks:
                start = self._first + piece * self._block_bytes
                self._blocks[piece] = self._pool.submit(self._whole, start, min(self._block_bytes, self._last - start))
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
        data = self._object.fetch(position, size)
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


# Ranged reads of one object, each of them proved to be whole.
#
# The S3 reader of pyarrow believes a range to be filled however few bytes the service sent, as it does when an object was replaced
# by a shorter one: what lies behind them is whatever was in memory. So every range is read into a buffer that ends in random bytes
# of ours, and a range that still ends in them was not filled.


_MARK: Final = 32
"""Random bytes at the end of a buffer."""


class ObjectReader:
    """Object `path` of a source, `full` in `filesystem`, of which `listed` bytes were listed; any number of threads may read it.

    `same` is told the ETag each time the object is opened, and says whether it is the one known. Raises SourceError if the object
    cannot be opened, is shorter than it was listed, or another one.
    """

    def __init__(
        self,
        filesystem: "FileSystem",
        full: str,
        path: str,
        listed: int,
        options: StorageOptions,
        same: Callable[[str, bytes], bool],
    ) -> None:
        self._filesystem = filesystem
        self._full = full
        self._path = path
        self._options = options
        self._same = same
        self._lock = threading.Lock()
        self._idle: list[NativeFile] = []
        self.size_in_bytes = listed
        try:
            file = self._open()
            self.size_in_bytes = file.size()
        except RequestFailedError as error:
            raise source_error(path, error.failure) from None
        self._idle.append(file)

    def fetch(self, position: int, size: int) -> bytearray:
        """Those bytes, or fewer if the object has no more. Raises RequestFailedError, and SourceError if it was replaced."""
        return attempt(lambda: self._read(position, size), self._options, self._look)

    def part(self, position: int, size: int) -> bytes:
        """All of those bytes, which were listed. Raises SourceError if there are fewer."""
        try:
            data = bytes(self.fetch(position, size))
        except RequestFailedError as error:
            raise source_error(self._path, error.failure) from None
        if len(data) < size:
            raise SourceError(self._path, _shorter(position + len(data), self.size_in_bytes))
        return data

    def close(self) -> None:
        """Give the handles back."""
        with self._lock:
            idle, self._idle = self._idle, []
        for file in idle:
            file.close()

    def _open(self) -> "NativeFile":
        """A handle of the object; every one but the first must be of the same object."""
        file = attempt(lambda: self._filesystem.open_input_file(self._full), self._options)
        size: int = attempt(file.size, self._options)
        if size < self.size_in_bytes:
            file.close()
            raise SourceError(self._path, _shorter(size, self.size_in_bytes))
        metadata: Any = attempt(file.metadata, self._options) if self._filesystem.type_name == "s3" else {}
        etag = metadata.get("ETag")  # text, whatever its stubs say
        if etag is not None and not self._same(self._path, etag):
            file.close()
            raise SourceError(self._path, "replaced since it was first read: its ETag is another one")
        return file

    def _read(self, position: int, size: int) -> bytearray:
        with self._lock:
            file = self._idle.pop() if self._idle else None
        if file is None:
            file = self._open()
        mark = secrets.token_bytes(_MARK)
        data = _filled(file, position, size, mark)
        if data and data[-1] == mark[-1]:  # one time in 256 by chance: then other bytes are put there
            tail = min(size, _MARK)
            other = bytes(byte ^ 0xFF for byte in mark)
            if _filled(file, position + size - tail, tail, other)[-1:] != data[-1:]:
                file.close()
                raise EOFError("the service sent fewer bytes than were asked for")
        with self._lock:
            self._idle.append(file)
        return data

    def _look(self, failure: Failure) -> Failure | None:
        """What a failure really is: an object that is gone or shorter does not come back by asking again, nor do rights.

        The words of a refusal do not fit where a small object shall be, and then S3's client tells of its connection instead.
        """
        try:
            info = once(lambda: self._filesystem.get_file_info(self._full), self._options)
        except RequestFailedError as error:
            return error.failure if error.failure.kind == "forbidden" else None
        if not info.is_file:
            return Failure("missing", failure.words)
        if info.size is not None and info.size < self.size_in_bytes:
            return Failure("final", _shorter(info.size, self.size_in_bytes))
        return None


def _filled(file: "NativeFile", position: int, size: int, mark: bytes) -> bytearray:
    """`size` bytes from `position`, cut where the file says that it ends; what nothing was written to ends like `mark`."""
    data = bytearray(size)
    tail = min(size, len(mark))
    data[size - tail :] = mark[len(mark) - tail :]
    file.seek(position)
    count = file.readinto(data)
    del data[count:]
    return data


def _shorter(there: int, listed: int) -> str:
    return f"shorter than when it was listed: {there} of {listed} bytes"


EDGE: Final = SMALL_READ
"""Bytes at either end of a large index that are fetched ahead: of one that was preallocated nearly always all that is asked for."""


class EdgedObject:
    """An object of `size_in_bytes` whose first and last `EDGE` bytes are at hand, in `edges`; `reader` opens it for all others."""

    def __init__(self, size_in_bytes: int, edges: bytes, reader: "Callable[[], ObjectReader]") -> None:
        self.size_in_bytes = size_in_bytes
        self._edges = edges
        self._open = reader
        self._lock = threading.Lock()
        self._reader: ObjectReader | None = None

    def fetch(self, position: int, size: int) -> Data:
        """Those bytes, or fewer if the object has no more. Raises as `ObjectReader` and its `fetch` do."""
        if position + size <= EDGE:
            return self._edges[position : position + size]
        before_last = self.size_in_bytes - EDGE
        if position >= before_last:
            return self._edges[EDGE + position - before_last :][:size]
        with self._lock:
            self._reader = self._reader or self._open()
        return self._reader.fetch(position, size)

    def close(self) -> None:
        """Give the handles back."""
        if self._reader is not None:
            self._reader.close()


# Small objects of a storage service, and edges of indexes, held once they were read: a scan opens them several times, each time a
# journey.


SMALL_OBJECT: Final = 1 << 20
"""Objects up to this size are fetched whole and held."""
ROOM: Final = 64 << 20
"""Bytes of small objects that one source holds; the one asked for longest ago goes first."""


class SmallObjects:
    """Bytes of small objects by path, of larger ones their edges, fetched on `pool` by `fetch(path, size)`; everybody who waits for
    an object gets its error.

    An object whose fetching failed is not remembered: the next one to ask begins anew. Threads may share it.
    """

    def __init__(self, pool: Executor, fetch: Callable[[str, int], bytes]) -> None:
        self._pool = pool
        self._fetch = fetch
        self._lock = threading.Lock()
        self._held: OrderedDict[str, tuple[int, Future[bytes]]] = OrderedDict()
        self._size = 0

    def begin(self, path: str, size_in_bytes: int) -> "Future[bytes]":
        """Have the object fetched unless it is held or on its way."""
        with self._lock:
            if path in self._held:
                self._held.move_to_end(path)
                return self._held[path][1]
            future = self._pool.submit(self._fetch, path, size_in_bytes)
            held = size_in_bytes if size_in_bytes <= SMALL_OBJECT else 2 * EDGE
            self._held[path] = held, future
            self._size += held
            while self._size > ROOM and len(self._held) > 1:
                _, (size, _) = self._held.popitem(last=False)
                self._size -= size
            return future

    def bytes_of(self, path: str, size_in_bytes: int) -> bytes:
        """The whole object, or its edges. Raises what `fetch` raises."""
        future = self.begin(path, size_in_bytes)
        if future.exception() is not None:
            self._drop(path, future)
        return future.result()

    def forget(self) -> None:
        """Hold nothing any more."""
        with self._lock:
            self._held.clear()
            self._size = 0

    def _drop(self, path: str, future: "Future[bytes]") -> None:
        with self._lock:
            if path in self._held and self._held[path][1] is future:
                self._size -= self._held.pop(path)[0]
