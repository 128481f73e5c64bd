"""Reading a compressed stream at any position, in blocks of 1 MiB that one cache of the process keeps.

Reading forward is cheap. Reading back beyond the cache decompresses again from the last snapshot (gzip, deflate) or from the start
(xz, zstd): read the files of an archive in archive order (`archive.reading_order`).
"""

import threading
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from kafka_forensics.storage.archives.decoders import DecodeError, Decoder

BLOCK_SIZE: Final = 1 << 20
CACHE_BYTES: Final = 48 << 20
"""Decompressed blocks kept at once, of all archives together."""
KEPT_BYTES: Final = 16 << 20
"""Small members kept permanently (see `Budget`), of all archives together."""
_ZERO_BLOCK: Final = bytes(BLOCK_SIZE)
_MAX_SNAPSHOTS: Final = 128

BlockKey = tuple[int, int, int]
"""(archive, stream in the archive, block)."""


class BlockCache:
    """The most recently used blocks, at most `capacity` bytes; shared by threads."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._blocks: OrderedDict[BlockKey, bytes] = OrderedDict()
        self._lock = threading.Lock()
        self._closed_archives: deque[int] = deque()
        self.size_in_bytes = 0

    def get(self, key: BlockKey) -> bytes | None:
        """The block, which becomes the most recently used one."""
        with self._lock:
            block = self._blocks.get(key)
            if block is not None:
                self._blocks.move_to_end(key)
            return block

    def put(self, key: BlockKey, block: bytes) -> None:
        """Keep `block`; the least recently used ones are dropped."""
        with self._lock:
            self._drop_closed()
            before = self._blocks.pop(key, b"")
            self._blocks[key] = block
            self.size_in_bytes += len(block) - len(before)
            while self.size_in_bytes > self._capacity:
                self.size_in_bytes -= len(self._blocks.popitem(last=False)[1])

    def forget(self, archive: int) -> None:
        """Drop the blocks of a closed archive: immediately, or later if the lock is taken.

        The garbage collector may call this during `put` in the same thread, where waiting for the lock would never end.
        """
        self._closed_archives.append(archive)
        if self._lock.acquire(blocking=False):
            try:
                self._drop_closed()
            finally:
                self._lock.release()

    def _drop_closed(self) -> None:
        while self._closed_archives:
            archive = self._closed_archives.popleft()
            for key in [key for key in list(self._blocks) if key[0] == archive]:
                self.size_in_bytes -= len(self._blocks.pop(key))


class Budget:
    """Bytes that may still be kept permanently; shared by threads."""

    def __init__(self, size_in_bytes: int) -> None:
        self._left = size_in_bytes
        self._returned: deque[int] = deque()
        self._lock = threading.Lock()

    def take(self, size_in_bytes: int) -> bool:
        """Take `size_in_bytes` from the budget; False if that is more than is left."""
        with self._lock:
            while self._returned:
                self._left += self._returned.popleft()
            if self._left < size_in_bytes:
                return False
            self._left -= size_in_bytes
            return True

    def put_back(self, size_in_bytes: int) -> None:
        """Return bytes to the budget; takes no lock, because the garbage collector may call it anywhere."""
        self._returned.append(size_in_bytes)


CACHE: Final = BlockCache(CACHE_BYTES)
KEPT: Final = Budget(KEPT_BYTES)


class InflatedStream:
    """The bytes that a decoder makes, at any position; any number of threads may read at once.

    `start()` begins a new pass. `key` is (archive, stream) in the cache. `broken` says why the stream ends early, "" if it does not
    or that is not known yet; `passes` counts how often it was decompressed from the start.
    """

    def __init__(self, start: Callable[[], Decoder], key: tuple[int, int], cache: BlockCache = CACHE) -> None:
        self.broken = ""
        self.passes = 0
        self._start = start
        self._key = key
        self._cache = cache
        self._lock = threading.Lock()
        self._end: int | None = None
        self._is_zero = bytearray()
        """For each block made so far, whether it is all zeros: such blocks are not cached, and never decompressed again."""
        self._decoder: Decoder | None = None
        self._next_block = 0
        self._ahead = bytearray()
        """Bytes of the next block that are already decompressed."""
        self._snapshots: list[tuple[int, bytes, Decoder]] = []
        """(next block, its bytes already decompressed, decoder), ascending."""
        self._snapshot_distance = 16
        """Blocks between snapshots."""

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`, fewer only where the stream ends (`broken` says why). Raises SourceError."""
        chunks = []
        while size > 0:
            number, start = divmod(position, BLOCK_SIZE)
            block = self._block(number)
            chunk = block if start == 0 and size >= len(block) else block[start : start + size]
            if not chunk:
                break
            chunks.append(chunk)
            position += len(chunk)
            size -= len(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position`; the number of bytes read, short only where the stream ends."""
        done = 0
        while done < len(buffer):
            number, start = divmod(position + done, BLOCK_SIZE)
            chunk = memoryview(self._block(number))[start : start + len(buffer) - done]
            if not chunk:
                break
            buffer[done : done + len(chunk)] = chunk
            done += len(chunk)
        return done

    def _block(self, number: int) -> bytes:
        """Block `number`, shorter than BLOCK_SIZE only at the end, b"" after it."""
        if number < len(self._is_zero) and self._is_zero[number]:
            return _ZERO_BLOCK
        block = self._cache.get((*self._key, number))
        if block is not None:
            return block
        with self._lock:
            block = self._cache.get((*self._key, number))  # another thread may have made it meanwhile
            if block is not None:
                return block
            if self._end is not None and number * BLOCK_SIZE >= self._end:
                return b""
            self._seek(number)
            while self._next_block <= number:
                block = self._make_block()
                if len(block) < BLOCK_SIZE:
                    break
            return block if block and self._next_block == number + 1 else b""

    def _seek(self, number: int) -> None:
        """Set `_decoder` to one at or before block `number`, as near as possible."""
        if self._decoder is not None and self._next_block > number:
            self._decoder = None
        index = bisect_right(self._snapshots, number, key=lambda snapshot: snapshot[0]) - 1
        nearest = self._snapshots[index] if index >= 0 else None
        if nearest is not None and (self._decoder is None or nearest[0] > self._next_block):
            self._next_block, ahead, decoder = nearest
            self._ahead = bytearray(ahead)
            self._decoder = decoder.snapshot()
        if self._decoder is None:
            self._next_block = 0
            self._ahead = bytearray()
            self._decoder = self._start()
            self.passes += 1

    def _make_block(self) -> bytes:
        """Decompress the next block, b"" at the end. After an error `_decoder` is None, and the next read starts from the
        beginning."""
        decoder, self._decoder = self._decoder, None
        assert decoder is not None
        self._take_snapshot(decoder)
        while len(self._ahead) < BLOCK_SIZE:
            try:
                made = decoder.step()
            except DecodeError as error:
                self.broken = str(error)
                made = b""
            if not made:
                self._end = self._next_block * BLOCK_SIZE + len(self._ahead)
                break
            self._ahead += made
        block = bytes(memoryview(self._ahead)[:BLOCK_SIZE])
        del self._ahead[:BLOCK_SIZE]
        is_zero = block == _ZERO_BLOCK
        if self._next_block == len(self._is_zero):
            self._is_zero.append(is_zero)
        if is_zero:
            block = _ZERO_BLOCK
        elif block:
            self._cache.put((*self._key, self._next_block), block)
        self._next_block += 1
        self._decoder = decoder
        return block

    def _take_snapshot(self, decoder: Decoder) -> None:
        """Save the state of the decoder; if there are too many snapshots, every second one is dropped."""
        number = self._next_block
        if number == 0 or number % self._snapshot_distance or (self._snapshots and self._snapshots[-1][0] >= number):
            return
        copy = decoder.snapshot()
        if copy is None:
            return
        self._snapshots.append((number, bytes(self._ahead), copy))
        if len(self._snapshots) > _MAX_SNAPSHOTS:
            self._snapshot_distance *= 2
            self._snapshots = [snapshot for snapshot in self._snapshots if snapshot[0] % self._snapshot_distance == 0]
