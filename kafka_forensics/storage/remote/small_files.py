"""Small objects of a storage service, held once they were read: a scan opens them several times, each time a journey."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Final

SMALL_OBJECT: Final = 1 << 20
"""Objects up to this size are fetched whole and held."""
ROOM: Final = 64 << 20
"""Bytes of small objects that one source holds; the one asked for longest ago goes first."""


class SmallObjects:
    """Bytes of small objects by path, fetched on `pool` by `fetch(path, size)`; everybody who waits for an object gets its error.

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
            self._held[path] = size_in_bytes, future
            self._size += size_in_bytes
            while self._size > ROOM and len(self._held) > 1:
                _, (size, _) = self._held.popitem(last=False)
                self._size -= size
            return future

    def bytes_of(self, path: str, size_in_bytes: int) -> bytes:
        """The whole object. Raises what `fetch` raises."""
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
