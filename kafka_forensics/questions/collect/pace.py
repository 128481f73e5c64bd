"""Reading no faster than one may: a running broker wants its disks, too."""

import time
from typing import TYPE_CHECKING, Final

from kafka_forensics.storage.source import OpenFile

if TYPE_CHECKING:
    from kafka_forensics.storage.source import ByteFile


_SECONDS_MADE_UP_FOR: Final = 1.0


class Pace:
    """What is read by its files, all together, is at most `max_rate` bytes a second; as much as there is if that is None.

    Time in which nothing was read is made up for by no more than what a second allows.
    """

    def __init__(self, max_rate: int | None) -> None:
        self._max_rate = max_rate
        self._due = time.monotonic()

    def of(self, file: "ByteFile") -> "ByteFile":
        """The file, read at this pace."""
        return file if self._max_rate is None else _PacedFile(file, self)

    def passed(self, size_in_bytes: int) -> None:
        """So many more bytes are read: wait until that is no more than may be."""
        assert self._max_rate is not None
        now = time.monotonic()
        self._due = max(self._due, now - _SECONDS_MADE_UP_FOR) + size_in_bytes / self._max_rate
        if self._due > now:
            time.sleep(self._due - now)


class _PacedFile(OpenFile):
    """A file that waits behind every read."""

    def __init__(self, file: "ByteFile", pace: Pace) -> None:
        self.size_in_bytes = file.size_in_bytes
        self._file, self._pace = file, pace

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`, fewer only at the end of the file. Raises SourceError."""
        data = self._file.read_at(position, size)
        self._pace.passed(len(data))
        return data

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position`; the number of bytes read, short only at the end of the file. Raises SourceError."""
        count = self._file.read_into(position, buffer)
        self._pace.passed(count)
        return count

    def data_ranges(self) -> list[tuple[int, int]]:
        """(start, end) of what is no hole."""
        return self._file.data_ranges()

    def close(self) -> None:
        """Give the descriptor back."""
        self._file.close()
