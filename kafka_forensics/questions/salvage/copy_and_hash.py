"""Copies segments to the output in the background, and meanwhile hashes the copied bytes and puts them on disk."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import accumulate, pairwise
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from kafka_forensics.storage.copying import WriteProgress, open_while_written
from kafka_forensics.storage.disks import sync_file
from kafka_forensics.storage.open import sha256_of

if TYPE_CHECKING:
    from kafka_forensics.storage.source import ByteFile

_MAX_PENDING: Final = 8
"""Hashes and syncs that may be pending: few enough that their segments are still in the page cache."""


class OutputFile:
    """A file of the output that is copied, hashed and put on disk in the background."""

    def __init__(self, path: Path, sizes: Sequence[int]) -> None:
        self._path, self._sizes, self._growth = path, sizes, WriteProgress()
        self._copy: Future[tuple[Future[None], Future[list[str]]]]
        """Gives the pending sync and the pending hashes."""

    def open(self) -> "ByteFile":
        """The file, whose reads wait for the bytes. Raises SourceError, OSError, as its reads do."""
        return open_while_written(self._path, sum(self._sizes), self._growth)

    def digests(self) -> list[str]:
        """SHA-256 of each of its parts, once it is on disk. Raises OSError, SourceError."""
        on_disk, digests = self._copy.result()
        on_disk.result()
        return digests.result()

    def _hash(self) -> list[str]:
        with self.open() as file:
            return [sha256_of(file, start, end) for start, end in pairwise([0, *accumulate(self._sizes)])]


class CopyAndHash:
    """Threads of a salvage: one copies segments in order, a few hash and sync them. Leaving the `with` block drops pending work."""

    def __init__(self) -> None:
        self._copiers, self._finishers = ThreadPoolExecutor(1), ThreadPoolExecutor(_MAX_PENDING)
        self._pending = deque[Future[Any]]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for pool in (self._copiers, self._finishers):
            pool.shutdown(cancel_futures=True)

    def start(self, copy: Callable[[WriteProgress], None], path: Path, sizes: Sequence[int]) -> OutputFile:
        """Start `copy`, which creates and fills a file and reports its growth, after the earlier copies. Parts of `sizes` bytes are
        hashed."""
        output = OutputFile(path, sizes)
        output._copy = self._copiers.submit(self._run, copy, output)
        return output

    def _run(self, copy: Callable[[WriteProgress], None], output: OutputFile) -> tuple[Future[None], Future[list[str]]]:
        while len(self._pending) >= _MAX_PENDING:
            wait([self._pending.popleft()])
        digests = self._finishers.submit(output._hash)
        self._pending.append(digests)
        with output._growth as growth:
            copy(growth)
        on_disk = self._finishers.submit(sync_file, output._path)
        self._pending.append(on_disk)
        return on_disk, digests


def cancel(files: Iterable[OutputFile]) -> None:
    """Cancel the copies of these files, and return when none of them runs any more."""
    wait([file._copy for file in files if not file._copy.cancel()])
