"""Rows of any number in bounded memory: sorted runs in a temporary file that has no name, merged block by block."""

import os
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, Final, Self

import numpy as np

from kafka_forensics.analysis.compaction import ROW_WIDTH, Row, reduced
from kafka_forensics.errors import SourceError

if TYPE_CHECKING:
    from types import TracebackType

    from numpy.typing import NDArray

    Rows = NDArray[np.int64]

CAPACITY: Final = 1 << 17
"""Rows held before they are sorted: 8 MiB, and as much again several times while they are sorted and judged."""
LEAST_ROWS: Final = 64
"""Rows of a run that are read at a time, however many runs there are."""
_ROW_BYTES: Final = 8 * ROW_WIDTH


class KeyRuns:
    """Takes rows in any order and gives them back in blocks of whole keys, reduced; a context, at whose end the file is gone.

    Runs are written only when the rows do not fit, never below one of the directories of `evidence`. Raises SourceError where
    there is no room for them.
    """

    def __init__(self, evidence: Iterable[str] = (), capacity: int = CAPACITY) -> None:
        self._evidence = [os.path.realpath(one) for one in evidence]
        self._buffer: Rows = np.empty((capacity, ROW_WIDTH), np.int64)
        self._used = 0
        self._file: IO[bytes] | None = None
        self._runs: list[tuple[int, int]] = []
        """Byte range of each run in the file."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: "TracebackType | None") -> None:
        if self._file is not None:
            self._file.close()

    @property
    def spilled(self) -> int:
        """How many runs were written."""
        return len(self._runs)

    def add(self, rows: "Rows") -> None:
        """Take rows, (n, ROW_WIDTH)."""
        while len(rows):
            if self._used == len(self._buffer):
                self._make_room()
            taken = min(len(rows), len(self._buffer) - self._used)
            self._buffer[self._used : self._used + taken] = rows[:taken]
            self._used += taken
            rows = rows[taken:]

    def _make_room(self) -> None:
        """Reduce what is held; if that is not to much avail, write it out as a run."""
        rows = reduced(self._buffer[: self._used])
        if 2 * len(rows) <= len(self._buffer):
            self._buffer[: len(rows)] = rows
            self._used = len(rows)
            return
        self._used = 0
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._directory())  # noqa: SIM115 - open until our own context ends
            start = self._runs[-1][1] if self._runs else 0
            self._file.write(rows.tobytes())
            self._file.flush()
        except OSError as error:
            raise SourceError("", f"no room for a temporary file: {error.strerror}") from error
        self._runs.append((start, start + len(rows) * _ROW_BYTES))

    def _directory(self) -> str:
        """A directory for temporary files outside of the evidence.

        Not `tempfile.gettempdir()`, which tries a directory by writing to it.
        """
        for one in (os.environ.get("TMPDIR") or "/tmp", "/var/tmp", os.path.expanduser("~")):  # noqa: S108 - the file has no name
            path = os.path.realpath(one)
            if os.access(path, os.W_OK) and not any(os.path.commonpath((path, root)) == root for root in self._evidence):
                return path
        raise OSError(0, "every directory for temporary files is part of the input")

    def blocks(self) -> Iterator["Rows"]:
        """Blocks in ascending order of keys, each reduced and with all rows of its keys. Nothing may be added any more."""
        held = reduced(self._buffer[: self._used])
        if not self._runs:
            yield held
            return
        size = max(len(self._buffer) // len(self._runs), LEAST_ROWS)
        heads = [held, *(np.empty((0, ROW_WIDTH), np.int64) for _ in self._runs)]
        rest = [(0, 0), *self._runs]
        while True:
            for number, head in enumerate(heads):
                if not len(head):
                    heads[number] = self._more(rest, number, size)
            last = [tuple(heads[n][-1, : Row.PLACE].tolist()) for n, (start, end) in enumerate(rest) if start < end]
            if not last:
                yield reduced(np.concatenate(heads))
                return
            limit = min(last)
            counts = [below(head, limit) for head in heads]
            if any(counts):
                yield reduced(np.concatenate([head[:count] for head, count in zip(heads, counts, strict=True)]))
                heads = [head[count:] for head, count in zip(heads, counts, strict=True)]
                continue
            for number, (start, end) in enumerate(rest):
                if start < end and tuple(heads[number][-1, : Row.PLACE].tolist()) == limit:
                    heads[number] = np.concatenate((heads[number], self._more(rest, number, size)))

    def _more(self, rest: list[tuple[int, int]], number: int, size: int) -> "Rows":
        """The next rows of a run."""
        start, end = rest[number]
        stop = min(start + size * _ROW_BYTES, end)
        rest[number] = (stop, end)
        if start == stop:
            return np.empty((0, ROW_WIDTH), np.int64)
        assert self._file is not None
        self._file.seek(start)
        return np.frombuffer(self._file.read(stop - start), np.int64).reshape(-1, ROW_WIDTH)


def below(rows: "Rows", key: tuple[int, ...]) -> int:
    """How many of sorted rows have a lower key."""
    high = rows[:, Row.KEY_HIGH]
    first, end = int(np.searchsorted(high, key[0], "left")), int(np.searchsorted(high, key[0], "right"))
    return first + int(np.searchsorted(rows[first:end, Row.KEY_LOW], key[1], "left"))
