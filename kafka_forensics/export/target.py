"""The directory an export goes to: empty at the start, told from any other while it is unfinished, and written without a trace.

Files are written under names that begin with a dot and end in `.tmp`, and renamed when they are whole. `_UNFINISHED` is there from
the first moment until `_SUCCESS`, the last file of all, is; all others are on disk before that. Other processes that take part know
the directory by the token in `_UNFINISHED`; they write into `_temporary`, and what is theirs gets its name from the one who began.
"""

import contextlib
import errno
import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from kafka_forensics.errors import UsageError
from kafka_forensics.storage.disks import sync_directory, why
from kafka_forensics.storage.private import DIRECTORY_MODE, FILE_MODE

SUCCESS: Final = "_SUCCESS"
INCOMPLETE: Final = "_INCOMPLETE"
"""The seal of an export of less than was given: everything that could be read was written."""
MANIFEST: Final = "_manifest.json"
LOCK: Final = "_LOCK"
"""The lock of a dataset of Parquet files that snapshots are added to."""
UNFINISHED: Final = "_UNFINISHED"
_SHARED: Final = "workers must see the directory that the driver made: name one that they share, or a URI"
TEMPORARY: Final = "_temporary"
"""Where processes that take part write."""
_CLEARINGS: Final = 100
"""How often at most `_temporary` is cleared, if others still write there; what is left is no part of any dataset."""
_UNFINISHED_TEXT: Final = "This export has not finished. If no export is running, remove this directory and export again.\n"


class HashedFile:
    """A file that knows its size and SHA-256 while it is written from front to end."""

    def __init__(self, file: Any) -> None:
        self._file = file
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
        return bool(self._file.closed)

    def close(self, *, on_disk: bool = False) -> None:
        """Hand everything to the system, and if asked wait until it is `on_disk`."""
        if on_disk:
            self._file.flush()
            os.fsync(self._file.fileno())
        self._file.close()

    def abandon(self) -> None:
        """Close without a care for what is still buffered."""
        with contextlib.suppress(OSError):
            self._file.close()

    @property
    def sha256(self) -> str:
        """Of everything written, in hexadecimal."""
        return self._digest.hexdigest()


def mark_of(token: str) -> str:
    """What `_UNFINISHED` says."""
    return f"{_UNFINISHED_TEXT}{token}\n"


class Target:
    """The directory of one export; `open` makes it, `finish` seals it."""

    def __init__(self, path: str, token: str) -> None:
        self.path = path
        self.token = token
        self._made: list[str] = []
        """Directories that were not there before, the target's own first."""
        self._changed: set[str] = set()
        """Directories in which something got its name."""

    @classmethod
    def open(cls, path: str) -> "Target":
        """Make the directory, or take an empty one. Raises UsageError if it holds anything."""
        target = cls(path, uuid.uuid4().hex)
        refuse_names(path, target.names())
        above = os.path.abspath(path)
        while not os.path.lexists(above):
            target._made.append(above)
            above = os.path.dirname(above)
        with target.explained():
            os.makedirs(path, exist_ok=True)
            descriptor = os.open(os.path.join(path, UNFINISHED), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
            with os.fdopen(descriptor, "w", encoding="ascii") as marker:
                marker.write(mark_of(target.token))
                marker.flush()
                os.fsync(marker.fileno())
            if len(os.listdir(path)) > 1:
                os.unlink(os.path.join(path, UNFINISHED))
                refuse_names(path, target.names())
        return target

    @classmethod
    def join(cls, path: str, token: str) -> "Target":
        """Take part in the export with this token. Raises UsageError if it is not what is at `path` here."""
        try:
            with open(os.path.join(path, UNFINISHED), encoding="ascii", errors="replace") as marker:
                mark = marker.read(1 << 10)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}", hint=_SHARED) from error
        if mark != mark_of(token):
            raise UsageError(f"{path} is another directory here", hint=_SHARED)
        return cls(path, token)

    @contextmanager
    def file(self, name: str) -> Iterator[HashedFile]:
        """A new file below the directory, which has its `name` only once it is whole. Raises UsageError if it cannot be written."""
        path = os.path.join(self.path, *name.split("/"))
        folder, last = os.path.split(path)
        temporary = os.path.join(folder, f".{last}.tmp")
        with self.explained():
            self._make(folder)
            with _new(temporary) as file:
                yield file
                file.close(on_disk=True)
                os.rename(temporary, path)

    @contextmanager
    def temporary_file(self, name: str) -> Iterator[HashedFile]:
        """A new file of a process that takes part, on disk when it is whole; no name is used twice. Raises UsageError."""
        with self.explained(), _new(os.path.join(self.path, TEMPORARY, name)) as file:
            yield file
            file.close(on_disk=True)

    def share(self) -> None:
        """Let other processes take part."""
        with self.explained():
            os.mkdir(os.path.join(self.path, TEMPORARY), DIRECTORY_MODE)

    def adopt(self, temporary: str, name: str) -> None:
        """Give its name to a whole file of another process."""
        path = os.path.join(self.path, *name.split("/"))
        with self.explained():
            self._make(os.path.dirname(path))
            os.rename(os.path.join(self.path, TEMPORARY, temporary), path)

    def clear(self) -> None:
        """Take away what no file came of; a process that still writes finds no place any more."""
        folder = os.path.join(self.path, TEMPORARY)
        with self.explained():
            for _ in range(_CLEARINGS):
                if not os.path.lexists(folder):
                    return
                with contextlib.suppress(FileNotFoundError):
                    _remove(folder)

    def finish(self, *, whole: bool = True) -> None:
        """Say that the export has ended, and whether it is `whole`."""
        self.put_names_on_disk()
        with self.file(SUCCESS if whole else INCOMPLETE):
            pass
        with self.explained():
            sync_directory(self.path)
            os.unlink(os.path.join(self.path, UNFINISHED))

    def put_names_on_disk(self) -> None:
        """Wait until the names of all that was written are on disk."""
        with self.explained():
            for folder in sorted({*self._changed, *(os.path.dirname(path) for path in self._made)}):
                sync_directory(folder)

    def names(self, folder: str = "") -> list[str]:
        """What is directly below the directory, or a folder there, sorted; nothing where there is none. Raises UsageError."""
        path = os.path.join(self.path, folder)
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UsageError(
                f"cannot write to {path}: {error.strerror}", hint="choose a directory that does not exist yet"
            ) from error

    def remove(self) -> None:
        """Take away everything that was written, and the directories that were made for it if nothing else is in them."""
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            for folder in self._made[1:]:
                os.rmdir(folder)

    def withdraw(self) -> None:
        """Take the mark back, and the directory if it was made here, unless something has been written to it."""
        with contextlib.suppress(OSError):
            if set(os.listdir(self.path)) <= {UNFINISHED, TEMPORARY}:
                shutil.rmtree(os.path.join(self.path, TEMPORARY), ignore_errors=True)
                os.unlink(os.path.join(self.path, UNFINISHED))
                for folder in self._made:
                    os.rmdir(folder)

    def _make(self, folder: str) -> None:
        """Make a directory of files; it and those above it, up to the target's own, will be put on disk."""
        os.makedirs(folder, exist_ok=True)
        above, last = os.path.abspath(folder), os.path.abspath(self.path)
        while above not in self._changed:
            self._changed.add(above)
            above = above if above == last else os.path.dirname(above)

    def explained(self) -> AbstractContextManager[None]:
        """Errors of the file system as UsageError."""
        return explained(self.path)


@contextmanager
def explained(path: str) -> Iterator[None]:
    """Errors of the file system as UsageError: nothing can be written to `path`."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        raise UsageError(
            f"cannot write to {path}: {why(error, path)}", hint="choose another directory, or make room there"
        ) from error


@contextmanager
def _new(path: str) -> Iterator[HashedFile]:
    """A file that was not there, and will not be there if anything goes wrong."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    file = HashedFile(open(os.open(path, flags, FILE_MODE), "wb", buffering=1 << 20))  # noqa: SIM115 - closed below, or when it is whole
    try:
        yield file
    except BaseException:
        file.abandon()
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


def _remove(folder: str) -> None:
    """Remove a directory of files unless another one appears in it meanwhile."""
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, name))
    try:
        os.rmdir(folder)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise


def refuse_names(path: str, names: list[str]) -> None:
    """Raise UsageError, which says what they are, if there are `names` at `path`."""
    if not names:
        return
    if SUCCESS in names and MANIFEST in names:
        raise UsageError(f"{path} holds a finished export", hint="choose a new directory, or remove that one first")
    if INCOMPLETE in names and MANIFEST in names:
        raise UsageError(
            f"{path} holds an export of which some input could not be read", hint="choose a new directory, or remove that one first"
        )
    if LOCK in names:
        raise UsageError(f"{path} holds a dataset to which snapshots are added", hint="add --append, or choose a new directory")
    if UNFINISHED in names:
        raise UsageError(
            f"{path} holds an export that did not finish, or one that is running",
            hint="nothing is resumed: if none is running, remove the directory and export again",
        )
    raise UsageError(f"{path} is not empty: it holds {names[0]}", hint="choose a directory that is empty or does not exist yet")
