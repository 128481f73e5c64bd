"""The directory an export goes to: empty at the start, told from any other while it is unfinished, and written without a trace.

Files are written under names that begin with a dot and end in `.tmp`, and renamed when they are whole. `_UNFINISHED` is there from
the first moment until `_SUCCESS`, the last file of all, is; all others are on disk before that.
"""

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kafka_forensics.errors import UsageError
from kafka_forensics.storage.open import refuse_output_inside

SUCCESS: Final = "_SUCCESS"
MANIFEST: Final = "_manifest.json"
UNFINISHED: Final = "_UNFINISHED"
_UNFINISHED_TEXT: Final = "This export has not finished. If no export is running, remove this directory and export again.\n"


class HashedFile:
    """A new file that knows its size and SHA-256 while it is written from front to end."""

    def __init__(self, path: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = open(os.open(path, flags, 0o666), "wb", buffering=1 << 20)  # noqa: SIM115 - closed by whoever made it
        self._digest = hashlib.sha256()
        self.size_in_bytes = 0

    def write(self, data: "bytes | memoryview") -> int:
        """Append `data`; the number of bytes."""
        view = memoryview(data).cast("B")
        self._file.write(view)
        self._digest.update(view)
        self.size_in_bytes += len(view)
        return len(view)

    def tell(self) -> int:
        """Bytes written so far."""
        return self.size_in_bytes

    def flush(self) -> None:
        """Hand what is buffered to the system."""
        self._file.flush()

    @property
    def closed(self) -> bool:
        """Whether nothing more can be written."""
        return self._file.closed

    def close(self) -> None:
        """Hand everything to the system; whether it is on disk is asked once for all files."""
        self._file.close()

    def abandon(self) -> None:
        """Close without a care for what is still buffered."""
        with contextlib.suppress(OSError):
            self._file.close()

    @property
    def sha256(self) -> str:
        """Of everything written, in hexadecimal."""
        return self._digest.hexdigest()


class Target:
    """The directory of one export; `open` makes it, `finish` seals it."""

    def __init__(self, path: str) -> None:
        self.path = path

    @classmethod
    def open(cls, path: str, inputs: list[str]) -> "Target":
        """Make the directory, or take an empty one. Raises UsageError if it holds anything, or lies in an input."""
        refuse_output_inside(path, inputs)
        _refuse_what_is_there(path)
        target = cls(path)
        with target.explained():
            os.makedirs(path, exist_ok=True)
            descriptor = os.open(os.path.join(path, UNFINISHED), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            with os.fdopen(descriptor, "w", encoding="ascii") as marker:
                marker.write(_UNFINISHED_TEXT)
                marker.flush()
                os.fsync(marker.fileno())
            if len(os.listdir(path)) > 1:
                os.unlink(os.path.join(path, UNFINISHED))
                _refuse_what_is_there(path)
        return target

    @contextmanager
    def file(self, name: str) -> Iterator[HashedFile]:
        """A new file below the directory, which has its `name` only once it is whole. Raises UsageError if it cannot be written."""
        path = os.path.join(self.path, *name.split("/"))
        folder, last = os.path.split(path)
        temporary = os.path.join(folder, f".{last}.tmp")
        with self.explained():
            os.makedirs(folder, exist_ok=True)
            file = HashedFile(temporary)
            try:
                yield file
                file.close()
                os.rename(temporary, path)
            except BaseException:
                file.abandon()
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise

    def finish(self) -> None:
        """Say that the export is whole."""
        os.sync()
        with self.file(SUCCESS):
            pass
        with self.explained():
            _sync(self.path)
            os.unlink(os.path.join(self.path, UNFINISHED))

    def withdraw(self) -> None:
        """Take the directory back if nothing has been written to it."""
        with contextlib.suppress(OSError):
            if os.listdir(self.path) == [UNFINISHED]:
                os.unlink(os.path.join(self.path, UNFINISHED))
                os.rmdir(self.path)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Errors of the file system as UsageError."""
        try:
            yield
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            raise UsageError(
                f"cannot write to {self.path}: {error.strerror or error}", hint="choose another directory, or make room there"
            ) from error


def _refuse_what_is_there(path: str) -> None:
    """Raise UsageError if `path` is anything but an empty directory, or nothing."""
    try:
        names = sorted(os.listdir(path))
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"cannot write to {path}: {error.strerror}", hint="choose a directory that does not exist yet") from error
    if not names:
        return
    if SUCCESS in names and MANIFEST in names:
        raise UsageError(f"{path} holds a finished export", hint="choose a new directory, or remove that one first")
    if UNFINISHED in names:
        raise UsageError(
            f"{path} holds an export that did not finish, or one that is running",
            hint="nothing is resumed: if none is running, remove the directory and export again",
        )
    raise UsageError(f"{path} is not empty: it holds {names[0]}", hint="choose a directory that is empty or does not exist yet")


def _sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
