"""Objects of a storage service as open files: ranged reads, fetched ahead if they are sequential, in bounded memory."""

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafka_forensics.errors import SourceError
from kafka_forensics.storage.remote.errors import RequestFailedError, RequestFailure, attempt, failures_named, request_once
from kafka_forensics.storage.remote.options import StorageOptions
from kafka_forensics.storage.source import ByteFile

if TYPE_CHECKING:
    from pyarrow import NativeFile
    from pyarrow.fs import FileSystem


BLOCKS_AHEAD: Final = 2
"""Blocks fetched ahead; a file keeps these and the one being read in memory."""
SMALL_FILE: Final = 1 << 20
"""Files up to this size are fetched whole."""
SMALL_READ: Final = 64 << 10
"""Least bytes fetched by a random read; as long as the next read continues, it fetches twice as many as the one before."""
STREAM_AFTER: Final = 2 << 20
"""After this many sequential bytes the rest of the file is read in blocks."""

Data = bytes | bytearray


class RangedObject(Protocol):
    """An object that is read by ranges."""

    size_in_bytes: int

    def fetch(self, position: int, size: int, /) -> Data:
        """These bytes, or fewer if the object has no more. Raises RequestFailedError."""

    def close(self) -> None:
        """Release all handles."""


class RemoteFile(ByteFile):
    """An object as a file; any number of threads may read it at once.

    Sequential reads, and reads within a range announced by `will_read`, use blocks of `block_bytes`, two of which are fetched ahead
    on `pool`; other reads fetch what they need. If an object has become shorter since it was opened, reads raise SourceError.
    """

    def __init__(self, path: str, ranged: RangedObject, pool: Executor, block_bytes: int) -> None:
        self.size_in_bytes = ranged.size_in_bytes
        self._path = path
        self._object = ranged
        self._pool = pool
        self._block_bytes = block_bytes
        self._lock = threading.RLock()
        self._blocks: dict[int, Future[Data]] = {}
        self._stream_start, self._stream_end = 0, 0
        """The range that is read in blocks."""
        self._fetched_end, self._sequential_bytes = -1, 0
        """End of the last random read, and bytes of the sequential reads up to it."""
        self._last_position = 0
        self._last_data: Data = b""
        """Data of the last small random read."""
        self._closed = False

    def will_read(self, start: int, end: int) -> None:
        """Announce that `[start, end)` is going to be read from left to right: it is fetched in blocks, and nothing after it."""
        with self._lock:
            self._start_stream(start, min(end, self.size_in_bytes))

    def read_at(self, position: int, size: int) -> bytes:
        """See ByteFile."""
        requested = self.available(position, size)
        chunks: list[memoryview] = []
        done = 0
        while done < requested:
            chunks.append(self._read_some(position + done, requested - done))
            done += len(chunks[-1])
        return b"".join(chunks)

    def read_into(self, position: int, buffer: memoryview) -> int:
        """See ByteFile."""
        buffer = buffer.cast("B")
        requested = self.available(position, len(buffer))
        done = 0
        while done < requested:
            data = self._read_some(position + done, requested - done)
            buffer[done : done + len(data)] = data
            done += len(data)
        return requested

    def close(self) -> None:
        """Drop all data and pending requests; a second call does nothing."""
        with self._lock:
            was_closed, self._closed = self._closed, True
            self._drop_blocks()
            self._last_data = b""
        if not was_closed:
            self._object.close()

    def _read_some(self, position: int, size: int) -> memoryview:
        """At least one byte from `position`, at most `size`."""
        with self._lock:
            if self._closed:
                raise SourceError(self._path, "read after it was closed")
            offset = position - self._last_position
            if 0 <= offset < len(self._last_data):
                return memoryview(self._last_data)[offset : offset + size]
            is_streamed = self._stream_start <= position < self._stream_end
            if not is_streamed and position == self._fetched_end and self._sequential_bytes >= STREAM_AFTER:
                self._start_stream(position, self.size_in_bytes)
                is_streamed = True
            if is_streamed:
                start, future = self._block(position)
        if not is_streamed:
            return self._read_random(position, size)
        try:
            with failures_named(self._path):
                data = future.result()
        except CancelledError:  # another thread reads elsewhere in this file
            return self._read_random(position, size)
        return memoryview(data)[position - start : position - start + size]

    def _start_stream(self, start: int, end: int) -> None:
        """Read `[start, end)` in blocks."""
        self._drop_blocks()
        self._stream_start, self._stream_end = start, max(start, end)

    def _block(self, position: int) -> tuple[int, Future[Data]]:
        """(start, bytes) of the block with `position`; requests the blocks after it, and drops those before it."""
        number = (position - self._stream_start) // self._block_bytes
        count = -(-(self._stream_end - self._stream_start) // self._block_bytes)
        requested = range(number, min(number + 1 + BLOCKS_AHEAD, count))
        for old in [block for block in self._blocks if block not in requested]:
            self._blocks.pop(old).cancel()
        for block in requested:
            if block not in self._blocks:
                start = self._stream_start + block * self._block_bytes
                size = min(self._block_bytes, self._stream_end - start)
                self._blocks[block] = self._pool.submit(self._fetch_all, start, size)
        return self._stream_start + number * self._block_bytes, self._blocks[number]

    def _read_random(self, position: int, size: int) -> memoryview:
        """Bytes outside of the stream: fetches a small file whole, else `size` bytes, rounded up if that is little."""
        start, length = 0, self.size_in_bytes
        with self._lock:
            if self.size_in_bytes > SMALL_FILE:
                before = self._sequential_bytes if position == self._fetched_end else 0
                start, length = position, min(max(size, SMALL_READ, min(before, SMALL_FILE)), self._block_bytes, length - position)
                self._fetched_end, self._sequential_bytes = position + length, before + length
        with failures_named(self._path):
            data = self._fetch_all(start, length)
        if length <= SMALL_FILE:
            with self._lock:
                self._last_position, self._last_data = start, data
        return memoryview(data)[position - start : position - start + size]

    def _fetch_all(self, position: int, size: int) -> Data:
        data = self._object.fetch(position, size)
        if len(data) < size:
            raise SourceError(self._path, _shorter(position + len(data), self.size_in_bytes))
        return data

    def _drop_blocks(self) -> None:
        for future in self._blocks.values():
            future.cancel()
        self._blocks.clear()
        self._stream_start = self._stream_end = 0


# Ranged reads of one object, each of which is checked to be complete.
#
# pyarrow's S3 reader reports a full range however few bytes the service sent, for example after an object was replaced
# by a shorter one: the rest of the buffer is uninitialised memory. So every range is read into a buffer that ends in random bytes;
# if these are still there, the range was not filled.


_MARK: Final = 32
"""Random bytes at the end of a buffer."""


class ObjectReader:
    """Object `path` of a source, `full` in `filesystem`, of `listed` bytes by its listing; any number of threads may read it.

    `is_known(path, etag)` is called each time the object is opened, and returns False if the ETag differs from an earlier one.
    Raises SourceError if the object cannot be opened, is shorter than it was listed, or was replaced.
    """

    def __init__(
        self,
        filesystem: "FileSystem",
        full: str,
        path: str,
        listed: int,
        options: StorageOptions,
        is_known: Callable[[str, bytes], bool],
    ) -> None:
        self._filesystem = filesystem
        self._full = full
        self._path = path
        self._options = options
        self._is_known = is_known
        self._lock = threading.Lock()
        self._idle: list[NativeFile] = []
        self.size_in_bytes = listed
        with failures_named(path):
            file = self._open()
            self.size_in_bytes = file.size()
        self._idle.append(file)

    def fetch(self, position: int, size: int) -> bytearray:
        """These bytes, or fewer if the object has no more. Raises RequestFailedError, and SourceError if it was replaced."""
        return attempt(lambda: self._read(position, size), self._options, self._explain)

    def part(self, position: int, size: int) -> bytes:
        """All of these bytes. Raises SourceError if the object has fewer."""
        with failures_named(self._path):
            data = bytes(self.fetch(position, size))
        if len(data) < size:
            raise SourceError(self._path, _shorter(position + len(data), self.size_in_bytes))
        return data

    def close(self) -> None:
        """Release all handles."""
        with self._lock:
            idle, self._idle = self._idle, []
        for file in idle:
            file.close()

    def _open(self) -> "NativeFile":
        """A new handle of the object. Raises RequestFailedError, and SourceError if the object was replaced or is shorter."""
        file = attempt(lambda: self._filesystem.open_input_file(self._full), self._options)
        size: int = attempt(file.size, self._options)
        if size < self.size_in_bytes:
            file.close()
            raise SourceError(self._path, _shorter(size, self.size_in_bytes))
        metadata: Any = attempt(file.metadata, self._options) if self._filesystem.type_name == "s3" else {}
        etag = metadata.get("ETag")  # text, whatever its stubs say
        if etag is not None and not self._is_known(self._path, etag):
            file.close()
            raise SourceError(self._path, "replaced since it was first read: its ETag changed")
        return file

    def _read(self, position: int, size: int) -> bytearray:
        with self._lock:
            file = self._idle.pop() if self._idle else None
        if file is None:
            file = self._open()
        mark = secrets.token_bytes(_MARK)
        data = _read_marked(file, position, size, mark)
        if data and data[-1] == mark[-1]:  # by chance one time in 256: read the end again with another mark
            tail = min(size, _MARK)
            other = bytes(byte ^ 0xFF for byte in mark)
            if _read_marked(file, position + size - tail, tail, other)[-1:] != data[-1:]:
                file.close()
                raise EOFError("the service sent fewer bytes than requested")
        with self._lock:
            self._idle.append(file)
        return data

    def _explain(self, failure: RequestFailure) -> RequestFailure | None:
        """The permanent reason of a failed read, None if it may be transient: the object is missing or shorter, access is denied.

        S3's client reports a connection error if the message of a refusal is longer than the buffer for a small object.
        """
        try:
            info = request_once(lambda: self._filesystem.get_file_info(self._full), self._options)
        except RequestFailedError as error:
            return error.failure if error.failure.kind == "forbidden" else None
        if not info.is_file:
            return RequestFailure("missing", failure.words)
        if info.size is not None and info.size < self.size_in_bytes:
            return RequestFailure("final", _shorter(info.size, self.size_in_bytes))
        return None


def _read_marked(file: "NativeFile", position: int, size: int, mark: bytes) -> bytearray:
    """`size` bytes from `position`, fewer if the file reports so; bytes that were not filled end like `mark`."""
    data = bytearray(size)
    tail = min(size, len(mark))
    data[size - tail :] = mark[len(mark) - tail :]
    file.seek(position)
    count = file.readinto(data)
    del data[count:]
    return data


def _shorter(size: int, listed: int) -> str:
    return f"shorter than when it was listed: {size} of {listed} bytes"


EDGE: Final = SMALL_READ
"""Bytes at either end of a large index that are fetched ahead; of a preallocated index hardly anything else is read."""


class EdgedObject:
    """An object of `size_in_bytes` whose first and last `EDGE` bytes are in `edges`; `reader` opens it for all others."""

    def __init__(self, size_in_bytes: int, edges: bytes, reader: "Callable[[], ObjectReader]") -> None:
        self.size_in_bytes = size_in_bytes
        self._edges = edges
        self._open = reader
        self._lock = threading.Lock()
        self._reader: ObjectReader | None = None

    def fetch(self, position: int, size: int) -> Data:
        """These bytes, or fewer if the object has no more. Raises as ObjectReader and its `fetch` do."""
        if position + size <= EDGE:
            return self._edges[position : position + size]
        last_edge = self.size_in_bytes - EDGE
        if position >= last_edge:
            return self._edges[EDGE + position - last_edge :][:size]
        with self._lock:
            self._reader = self._reader or self._open()
        return self._reader.fetch(position, size)

    def close(self) -> None:
        """Release all handles."""
        if self._reader is not None:
            self._reader.close()


SMALL_OBJECT: Final = 1 << 20
"""Objects up to this size are fetched whole and cached, because a scan opens them several times."""
ROOM: Final = 64 << 20
"""Bytes of small objects that one source caches; the least recently used are dropped first."""


class SmallObjects:
    """A cache of small objects by path, and of the edges of larger ones, fetched on `pool` by `fetch(path, size)`.

    All threads that wait for an object get its error; the next request fetches it again. Threads may share it.
    """

    def __init__(self, pool: Executor, fetch: Callable[[str, int], bytes]) -> None:
        self._pool = pool
        self._fetch = fetch
        self._lock = threading.Lock()
        self._cached: OrderedDict[str, tuple[int, Future[bytes]]] = OrderedDict()
        """Path → (size, bytes)."""
        self._size = 0

    def begin(self, path: str, size_in_bytes: int) -> "Future[bytes]":
        """Start to fetch the object unless it is cached or on its way."""
        with self._lock:
            if path in self._cached:
                self._cached.move_to_end(path)
                return self._cached[path][1]
            future = self._pool.submit(self._fetch, path, size_in_bytes)
            cached_size = size_in_bytes if size_in_bytes <= SMALL_OBJECT else 2 * EDGE
            self._cached[path] = cached_size, future
            self._size += cached_size
            while self._size > ROOM and len(self._cached) > 1:
                self._size -= self._cached.popitem(last=False)[1][0]
            return future

    def bytes_of(self, path: str, size_in_bytes: int) -> bytes:
        """The whole object, or its edges. Raises what `fetch` raises."""
        future = self.begin(path, size_in_bytes)
        if future.exception() is not None:
            with self._lock:
                if path in self._cached and self._cached[path][1] is future:
                    self._size -= self._cached.pop(path)[0]
        return future.result()

    def forget(self) -> None:
        """Drop everything."""
        with self._lock:
            self._cached.clear()
            self._size = 0
