"""Segments of the output that are copied ahead, and meanwhile read back, hashed and put on disk."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import accumulate, pairwise
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from kafka_forensics.storage.copying import Growth, open_growing
from kafka_forensics.storage.disks import sync_file
from kafka_forensics.storage.open import sha256_of

if TYPE_CHECKING:
    from kafka_forensics.storage.source import ByteFile

_BEHIND: Final = 4
"""Segments that may be copied and not be sealed yet: few enough that the page cache still has them."""


class Copied:
    """A file of the output that is copied, hashed and put on disk, sooner or later."""

    def __init__(self, path: Path, sizes: Sequence[int]) -> None:
        self._path, self._sizes, self._growth = path, sizes, Growth()
        self._seal: Future[tuple[Future[None], Future[list[str]]]]

    def open(self) -> "ByteFile":
        """The file, whose reads wait for the bytes. Raises SourceError, OSError, as its reads do."""
        return open_growing(self._path, sum(self._sizes), self._growth)

    def digests(self) -> list[str]:
        """SHA-256 of each of its parts, once it is on disk. Raises OSError, SourceError."""
        on_disk, digests = self._seal.result()
        on_disk.result()
        return digests.result()

    def _hashed(self) -> list[str]:
        with self.open() as file:
            return [sha256_of(file, start, end) for start, end in pairwise([0, *accumulate(self._sizes)])]


class Sealing:
    """Threads of one salvage: one copies segments in their order, a few seal them. Leaving the `with` block drops what waits."""

    def __init__(self) -> None:
        self._copies = ThreadPoolExecutor(1)
        self._seals = ThreadPoolExecutor(2 * _BEHIND)
        self._waiting = deque[Future[Any]]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for pool in (self._copies, self._seals):
            pool.shutdown(cancel_futures=True)

    def copied(self, copy: Callable[[Growth], None], path: Path, sizes: Sequence[int]) -> Copied:
        """`copy`, which makes a file, fills it and says how it grows, begun when those before it are done; the file is sealed by
        parts of `sizes` bytes."""
        copied = Copied(path, sizes)
        copied._seal = self._copies.submit(self._copied, copy, copied)
        return copied

    def _copied(self, copy: Callable[[Growth], None], copied: Copied) -> tuple[Future[None], Future[list[str]]]:
        while len(self._waiting) >= 2 * _BEHIND:
            wait([self._waiting.popleft()])
        digests = self._seals.submit(copied._hashed)
        self._waiting.append(digests)
        with copied._growth as growth:
            copy(growth)
        on_disk = self._seals.submit(sync_file, copied._path)
        self._waiting.append(on_disk)
        return on_disk, digests


def drop(files: Iterable[Copied]) -> None:
    """Return when none of these is copied any more: nobody wants them."""
    wait([copied._seal for copied in files if not copied._seal.cancel()])
