"""Segments of the output copied ahead, put on disk and hashed, while what was copied before is read back and scanned."""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kafka_forensics.storage.disks import sync_file
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.storage.open import sha256_of

_BEHIND: Final = 4
"""Segments that may be copied and not be sealed yet: few enough that the page cache still has them."""


@dataclass(frozen=True, slots=True)
class Seal:
    """A file that is put on disk and hashed, sooner or later."""

    _on_disk: Future[None]
    _digests: Future[list[str]]

    def digests(self) -> list[str]:
        """SHA-256 of each of its parts, once it is on disk. Raises OSError, SourceError."""
        self._on_disk.result()
        return self._digests.result()


class Sealing:
    """Threads of one salvage: one copies segments in their order, a few seal them. Leaving the `with` block drops what waits."""

    def __init__(self) -> None:
        self._copies = ThreadPoolExecutor(1)
        self._seals = ThreadPoolExecutor(_BEHIND)
        self._waiting = deque[Future[list[str]]]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for pool in (self._copies, self._seals):
            pool.shutdown(cancel_futures=True)

    def copied(self, copy: Callable[[], None], path: Path, sizes: Sequence[int]) -> Future[Seal]:
        """`copy`, which fills a file, begun when those before it are done; the file is then sealed by parts of `sizes` bytes."""
        return self._copies.submit(self._copied, copy, path, sizes)

    def _copied(self, copy: Callable[[], None], path: Path, sizes: Sequence[int]) -> Seal:
        copy()
        while len(self._waiting) >= _BEHIND:
            wait([self._waiting.popleft()])
        seal = Seal(self._seals.submit(sync_file, path), self._seals.submit(digests_of, path, sizes))
        self._waiting.append(seal._digests)
        return seal


def digests_of(path: Path, sizes: Sequence[int]) -> list[str]:
    """SHA-256 of parts of a file that follow each other. Raises SourceError."""
    with LocalSource(str(path.parent)).open(path.name) as file:
        return [sha256_of(file, start, end) for start, end in pairwise([0, *accumulate(sizes)])]
