"""The directory that an export writes: empty at the start, marked while unfinished, and without traces of incomplete files.

Files are written under names that begin with a dot and end in `.tmp`, and renamed when complete. `_UNFINISHED` exists from the
start until `_SUCCESS` does, which is written when all other files are on disk. Workers recognise the directory by the token in
`_UNFINISHED`; they write to `_temporary`, and the process that began the export renames their files.
"""

import contextlib
import errno
import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from kafka_forensics.errors import UsageError
from kafka_forensics.export.labels import CLUSTER_DIRECTORY
from kafka_forensics.storage.disks import sync_directory, why
from kafka_forensics.storage.private import DIRECTORY_MODE, FILE_MODE

SUCCESS: Final = "_SUCCESS"
INCOMPLETE: Final = "_INCOMPLETE"
"""Instead of `_SUCCESS`: some input could not be read, and everything else was written."""
MANIFEST: Final = "manifest.json"
"""Written when all other files are complete; its name is one that Spark reads."""
LOCK: Final = "_LOCK"
"""The lock of a dataset of Parquet files."""
UNFINISHED: Final = "_UNFINISHED"
_SHARED: Final = "workers must see the directory that the driver created: name a shared one, or a URI"
TEMPORARY: Final = "_temporary"
"""The directory in which workers write."""
_CLEARINGS: Final = 100
"""How often `_temporary` is cleared at most while workers still write there; files that are left belong to no dataset."""
_UNFINISHED_TEXT: Final = "This export has not finished. If no export is running, remove this directory and export again.\n"


class HashedFile:
    """A file that is written from start to end, with its size and SHA-256."""

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
        """Flush the buffer."""
        self._file.flush()

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        return bool(self._file.closed)

    def close(self, *, on_disk: bool = False) -> None:
        """Close the file, and wait until it is `on_disk` if requested."""
        if on_disk:
            self._file.flush()
            os.fsync(self._file.fileno())
        self._file.close()

    @property
    def sha256(self) -> str:
        """Of everything written, in hexadecimal."""
        return self._digest.hexdigest()


def marker_text(token: str) -> str:
    """The content of `_UNFINISHED`."""
    return f"{_UNFINISHED_TEXT}{token}\n"


def missing_directories(path: str) -> list[str]:
    """The directory at `path` and those above it that do not exist, innermost first."""
    missing, directory = [], os.path.abspath(path)
    while not os.path.lexists(directory):
        missing.append(directory)
        directory = os.path.dirname(directory)
    return missing


class Target:
    """The directory of one export; `open` creates it, `finish` completes it."""

    def __init__(self, path: str, token: str) -> None:
        self.path = path
        self.token = token
        self._made: list[str] = []
        """Directories that this export created, the target first."""
        self._changed: set[str] = set()
        """Directories in which files were renamed."""

    @classmethod
    def open(cls, path: str) -> "Target":
        """Create the directory, or use an empty one. Raises UsageError if it holds anything."""
        target = cls(path, uuid.uuid4().hex)
        require_empty(path, target.names())
        target._made = missing_directories(path)
        with as_usage_errors(path):
            os.makedirs(path, exist_ok=True)
            descriptor = os.open(os.path.join(path, UNFINISHED), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
            with os.fdopen(descriptor, "w", encoding="ascii") as marker:
                marker.write(marker_text(target.token))
                marker.flush()
                os.fsync(marker.fileno())
            if len(os.listdir(path)) > 1:
                os.unlink(os.path.join(path, UNFINISHED))
                require_empty(path, target.names())
        return target

    @classmethod
    def join(cls, path: str, token: str) -> "Target":
        """Join the export with this token as a worker. Raises UsageError if something else is at `path` here."""
        try:
            with open(os.path.join(path, UNFINISHED), encoding="ascii", errors="replace") as marker:
                mark = marker.read(1 << 10)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}", hint=_SHARED) from error
        if mark != marker_text(token):
            raise UsageError(f"{path} is a different directory here", hint=_SHARED)
        return cls(path, token)

    @contextmanager
    def file(self, name: str) -> Iterator[HashedFile]:
        """A new file below the directory, which gets its `name` when complete. Raises UsageError if it cannot be written."""
        path = os.path.join(self.path, *name.split("/"))
        folder, last = os.path.split(path)
        temporary = os.path.join(folder, f".{last}.tmp")
        with as_usage_errors(self.path):
            self._make(folder)
            with _new(temporary) as file:
                yield file
                file.close(on_disk=True)
                os.rename(temporary, path)

    @contextmanager
    def temporary_file(self, name: str) -> Iterator[HashedFile]:
        """A new file of a worker, on disk when complete; each name is used once. Raises UsageError if it cannot be written."""
        with as_usage_errors(self.path), _new(os.path.join(self.path, TEMPORARY, name)) as file:
            yield file
            file.close(on_disk=True)

    def share(self) -> None:
        """Let workers join."""
        with as_usage_errors(self.path):
            os.mkdir(os.path.join(self.path, TEMPORARY), DIRECTORY_MODE)

    def adopt(self, temporary: str, name: str) -> None:
        """Give its final name to a worker's complete file."""
        path = os.path.join(self.path, *name.split("/"))
        with as_usage_errors(self.path):
            self._make(os.path.dirname(path))
            os.rename(os.path.join(self.path, TEMPORARY, temporary), path)

    def clear(self) -> None:
        """Remove the workers' files that were not adopted; a worker that still writes then fails."""
        folder = os.path.join(self.path, TEMPORARY)
        with as_usage_errors(self.path):
            for _ in range(_CLEARINGS):
                if not os.path.lexists(folder):
                    return
                with contextlib.suppress(FileNotFoundError):
                    _remove(folder)

    def finish(self, *, whole: bool = True) -> None:
        """Mark the export as ended, and as complete if it is `whole`."""
        self.put_names_on_disk()
        with self.file(SUCCESS if whole else INCOMPLETE):
            pass
        with as_usage_errors(self.path):
            sync_directory(self.path)
            os.unlink(os.path.join(self.path, UNFINISHED))

    def require_no_other_export(self) -> None:
        """No other export is in the directory, whose name is unique to a run."""

    def put_names_on_disk(self) -> None:
        """Wait until the names of all files are on disk."""
        with as_usage_errors(self.path):
            for folder in sorted({*self._changed, *(os.path.dirname(path) for path in self._made)}):
                sync_directory(folder)

    def names(self, folder: str = "") -> list[str]:
        """The sorted names directly below the directory, or a folder in it; none if it does not exist. Raises UsageError."""
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
        """Remove everything that was written, and the directories that were created for it if they are empty."""
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            for folder in self._made[1:]:
                os.rmdir(folder)

    def _make(self, folder: str) -> None:
        """Create a directory of files; `put_names_on_disk` syncs it and the directories between it and the target."""
        os.makedirs(folder, exist_ok=True)
        directory, target = os.path.abspath(folder), os.path.abspath(self.path)
        while directory not in self._changed:
            self._changed.add(directory)
            directory = directory if directory == target else os.path.dirname(directory)


@contextmanager
def as_usage_errors(path: str) -> Iterator[None]:
    """Turn OSError into UsageError, which says that `path` cannot be written to."""
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
    """A file that must not exist, and is removed if anything fails."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    file = HashedFile(open(os.open(path, flags, FILE_MODE), "wb", buffering=1 << 20))  # noqa: SIM115 - closed below, or when it is whole
    try:
        yield file
    except BaseException:
        with contextlib.suppress(OSError):
            file.close()
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


def _remove(folder: str) -> None:
    """Remove a directory of files, unless another file appears in it meanwhile."""
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, name))
    try:
        os.rmdir(folder)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise


def dataset_exists_error(path: str) -> UsageError:
    """The error for an export without `append` to a dataset, in any format."""
    return UsageError(f"{path} holds a dataset", hint="add --append to add a snapshot to it, or choose a new directory")


def require_empty(path: str, names: list[str]) -> None:
    """Raise UsageError, which says what the `names` at `path` are, if there are any."""
    if not names:
        return
    if any(name.startswith(CLUSTER_DIRECTORY) for name in names):
        raise dataset_exists_error(path)
    if MANIFEST in names:
        raise UsageError(f"{path} holds this snapshot already", hint="give it another name, or remove that one first")
    if UNFINISHED in names:
        raise UsageError(
            f"{path} has an export that did not finish or is still running",
            hint="an export cannot be resumed: if none is running, remove the directory and export again",
        )
    raise UsageError(f"{path} is not empty: it holds {names[0]}", hint="choose a directory that is empty or does not exist yet")
