"""Ranged reads of one object, each of them proved to be whole.

The S3 reader of pyarrow believes a range to be filled however few bytes the service sent, as it does when an object was replaced
by a shorter one: what lies behind them is whatever was in memory. So every range is read into a buffer that ends in random bytes
of ours, and a range that still ends in them was not filled.
"""

import secrets
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kafka_forensics.errors import SourceError
from kafka_forensics.storage.remote.errors import Failure, RequestFailedError, attempt, source_error
from kafka_forensics.storage.remote.options import StorageOptions

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

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
        self._idle: list[Any] = []
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

    def whole(self, listed: int) -> bytes:
        """The first `listed` bytes. Raises SourceError if there are fewer."""
        try:
            data = bytes(self.fetch(0, listed))
        except RequestFailedError as error:
            raise source_error(self._path, error.failure) from None
        if len(data) < listed:
            raise SourceError(self._path, _shorter(len(data), listed))
        return data

    def close(self) -> None:
        """Give the handles back."""
        with self._lock:
            idle, self._idle = self._idle, []
        for file in idle:
            file.close()

    def _open(self) -> Any:
        """A handle of the object; every one but the first must be of the same object."""
        file = attempt(lambda: self._filesystem.open_input_file(self._full), self._options)
        size: int = attempt(file.size, self._options)
        if size < self.size_in_bytes:
            file.close()
            raise SourceError(self._path, _shorter(size, self.size_in_bytes))
        metadata: Any = attempt(file.metadata, self._options) if self._filesystem.type_name == "s3" else {}
        etag = metadata.get("ETag")
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
        """What a failure really is: an object that is gone or shorter does not come back by asking again."""
        try:
            info = self._filesystem.get_file_info(self._full)
        except OSError:
            return None
        if not info.is_file:
            return Failure("missing", failure.words)
        if info.size is not None and info.size < self.size_in_bytes:
            return Failure("final", _shorter(info.size, self.size_in_bytes))
        return None


def _filled(file: Any, position: int, size: int, mark: bytes) -> bytearray:
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
