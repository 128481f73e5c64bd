"""Where an export goes, by what a user typed: a directory, or a URI of a storage service."""

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Self, TypeVar

from kafka_forensics.errors import STILL_FAILING, ForensicsError, SourceError, TransientError, UsageError, is_transient
from kafka_forensics.export.target import (
    INCOMPLETE,
    SUCCESS,
    TEMPORARY,
    UNFINISHED,
    HashedFile,
    Target,
    mark_of,
    refuse_names,
)
from kafka_forensics.storage.open import local_path
from kafka_forensics.storage.remote import (
    PYARROW_SCHEMES,
    OptionsArgument,
    RemotePlace,
    RequestFailedError,
    RequestFailure,
    StorageOptions,
    attempt,
    list_children,
    open_filesystem,
    remote_place,
    request_once,
    storage_options,
)

Storage = tuple[tuple[str, str], ...]


def open_place(output: str, storage: Storage = ()) -> "ExportPlace":
    """Begin an export. Raises UsageError if there is anything at `output`, or it cannot be written to."""
    here = local_path(output)
    if here is not None:
        return Target.open(here)
    return RemoteTarget.open(output, storage)


@contextmanager
def opened_place(output: str, storage: Storage = ()) -> "Iterator[ExportPlace]":
    """An export begun with `open_place`; if it fails before anything is written, the place is as it was."""
    target = open_place(output, storage)
    try:
        yield target
    except BaseException:
        target.withdraw()
        raise


def join_place(path: str, token: str, storage: Storage = ()) -> "ExportPlace":
    """Take part in an export at `absolute(output)`. Raises UsageError if it is not there, or cannot be written to."""
    here = local_path(path)
    if here is not None:
        return Target.join(here, token)
    return RemoteTarget.join(path, token, storage)


def root_of(output: str, storage: Storage = ()) -> "ExportPlace":
    """A place that others may write to at the same time. Raises UsageError if it cannot be opened."""
    here = local_path(output)
    if here is None:
        return RemoteTarget.opened(output, storage, "")
    return Target(here, "")


def below(output: str, name: str) -> str:
    """A place below another, as a user would type it."""
    if (here := local_path(output)) is not None:
        return os.path.join(here, name)
    bare, _, query = output.rpartition("?")
    if not bare or remote_place(output).root.endswith(f"?{query}".rstrip("/")):  # it is part of the name
        return f"{output.rstrip('/')}/{name}"
    return f"{bare.rstrip('/')}/{name}?{query}"


def service_at(uri: str, storage: OptionsArgument = None) -> tuple[RemotePlace, StorageOptions]:
    """The place that a URI names in a storage service, and how it is reached: as is given, as the URI says, as is found around."""
    place = remote_place(uri)
    return place, storage_options(storage, uri=place.name).with_options(place.options)


def one_line(error: BaseException) -> str:
    """What a library says, which may be many lines."""
    return " ".join(str(error).split())


def absolute(output: str) -> str:
    """The same place, whatever directory a process works in."""
    here = local_path(output)
    return output if here is None else os.path.abspath(here)


# An export at a prefix of a storage service. There are no directories and no renaming there: a file is copied to its name.
# Where UsageError is raised because something cannot be written, it is TransientError if the service may do better the next time.
#
# `_UNFINISHED` and `_SUCCESS` mean what they mean in a directory (`target`). What differs: two exports that begin at the same
# moment may both find the prefix empty (the first that looks again gives way), and a process that has been given up may still
# leave a file in `_temporary` after the end, which is no part of any dataset.


Answer = TypeVar("Answer")
_FLAT: Final = frozenset({"s3", "gs", "abfs"})
"""Schemes without directories: nothing is made above a file, and a file is renamed by copying it."""
_MARK_BYTES: Final = 1 << 10
_LOOK: Final = "check the name, the rights, and how the service is reached: --storage-option, docs/storage.md"


class RemoteTarget:
    """The prefix of one export; `open` begins it, `finish` seals it."""

    def __init__(self, place: RemotePlace, options: StorageOptions, token: str) -> None:
        self.path = place.name
        self.token = token
        self._options = options
        self._is_flat = place.scheme in _FLAT
        filesystem, self._root = open_filesystem(place, options)
        self._fs: Any = filesystem
        self._uploads: Any = open_filesystem(place, options, uploads=True)[0]
        self._repeats_beginning = place.scheme not in PYARROW_SCHEMES  # fsspec's back ends need not repeat a request

    @classmethod
    def open(cls, uri: str, storage: tuple[tuple[str, str], ...]) -> "RemoteTarget":
        """Take an empty prefix. Raises UsageError if something is there, or it cannot be written to."""
        target = cls.opened(uri, storage, uuid.uuid4().hex)
        refuse_names(target.path, target.names())
        with target._writing(f"{target._root}/{UNFINISHED}") as file:
            file.write(mark_of(target.token).encode())
        if target._mark() != mark_of(target.token):
            refuse_names(target.path, [UNFINISHED])
        return target

    @classmethod
    def opened(cls, uri: str, storage: tuple[tuple[str, str], ...], token: str) -> Self:
        """The prefix, of which nothing is known yet. Raises UsageError if it cannot be opened."""
        place = remote_place(uri)
        with _no_source(place.name):
            return cls(place, storage_options(storage, uri=place.name).with_options(place.options), token)

    @classmethod
    def join(cls, uri: str, token: str, storage: tuple[tuple[str, str], ...]) -> "RemoteTarget":
        """Take part in the export with this token. Raises UsageError if it is not what is at `uri`."""
        target = cls.opened(uri, storage, token)
        if target._mark() != mark_of(token):
            raise UsageError(f"{target.path}: another export is there", hint="run this one again, to a prefix of its own")
        return target

    @contextmanager
    def file(self, name: str) -> Iterator[HashedFile]:
        """A new file below the prefix, which has its `name` only once it is whole. Raises UsageError if it cannot be written."""
        temporary = f"{uuid.uuid4().hex}-{name.rpartition('/')[2]}"
        with self.temporary_file(temporary) as file:
            yield file
        self.adopt(temporary, name)

    @contextmanager
    def temporary_file(self, name: str) -> Iterator[HashedFile]:
        """A new file of a process that takes part; it uses no name twice. Raises UsageError if it cannot be written."""
        with self._writing(f"{self._root}/{TEMPORARY}/{name}") as file:
            yield file

    def share(self) -> None:
        """Let other processes take part: there is nothing to be made."""

    def adopt(self, temporary: str, name: str) -> None:
        """Give its name to a whole file of another process."""
        source, path = f"{self._root}/{TEMPORARY}/{temporary}", f"{self._root}/{name}"
        self._make_above(path)
        if self._is_flat:
            self._ask(lambda: self._fs.copy_file(source, path))
            self._remove(source)
        else:
            self._ask(lambda: self._move(source, path))

    def clear(self) -> None:
        """Take away what no file came of."""
        self._ask(lambda: self._delete(f"{self._root}/{TEMPORARY}"))

    def finish(self, *, whole: bool = True) -> None:
        """Say that the export has ended, and whether it is `whole`."""
        with self.file(SUCCESS if whole else INCOMPLETE):
            pass
        self.clear()
        self._remove(f"{self._root}/{UNFINISHED}")

    def withdraw(self) -> None:
        """Take the prefix back if nothing has been written to it."""
        with contextlib.suppress(ForensicsError):
            if set(self.names()) <= {UNFINISHED, TEMPORARY}:
                self.clear()
                self._remove(f"{self._root}/{UNFINISHED}")

    def remove(self) -> None:
        """Take away everything below the prefix."""
        with contextlib.suppress(ForensicsError):
            self._ask(lambda: self._delete(self._root))

    def names(self, folder: str = "") -> list[str]:
        """What is directly below the prefix, or a folder there, sorted."""
        path = f"{self._root}/{folder}" if folder else self._root
        infos, _ = self._ask(lambda: list_children(self._fs, path, allow_not_found=True))
        return sorted(info.base_name for info in infos)

    def put_names_on_disk(self) -> None:
        """A service keeps what it has taken."""

    def _remove(self, path: str) -> None:
        """Delete a file; one that is gone may be gone by a request whose answer was lost."""

        def delete() -> None:
            with contextlib.suppress(FileNotFoundError):
                self._fs.delete_file(path)

        self._ask(delete)

    def _move(self, source: str, path: str) -> None:
        """Rename a file; one that has its name already may have it by a request whose answer was lost."""
        try:
            self._fs.move(source, path)
        except FileNotFoundError:
            if not self._fs.get_file_info(path).is_file:
                raise

    def _delete(self, path: str) -> None:
        from pyarrow.fs import FileType

        if self._fs.get_file_info(path).type is not FileType.NotFound:
            self._fs.delete_dir(path)

    def _mark(self) -> str:
        """What `_UNFINISHED` says; nothing where it is not there."""

        def read() -> bytes:
            try:
                with self._fs.open_input_file(f"{self._root}/{UNFINISHED}") as file:
                    return bytes(file.read(_MARK_BYTES))
            except FileNotFoundError:
                return b""

        return self._ask(read).decode("ascii", "replace")

    def _make_above(self, path: str) -> None:
        if not self._is_flat:
            self._ask(lambda: self._fs.create_dir(path.rpartition("/")[0], recursive=True))

    @contextmanager
    def _writing(self, path: str) -> Iterator[HashedFile]:
        """A file that is there once it is whole; of one that failed, nothing stays. Raises UsageError."""
        self._make_above(path)
        stream = _Stream(self, self._ask(lambda: self._uploads.open_output_stream(path), repeats=self._repeats_beginning))
        try:
            yield HashedFile(stream)
            stream.close()
        except BaseException:
            with contextlib.suppress(ForensicsError):
                stream.close()
            with contextlib.suppress(ForensicsError):
                self._remove(path)
            raise

    def _ask(self, ask: Callable[[], Answer], *, repeats: bool = True) -> Answer:
        try:
            return attempt(ask, self._options) if repeats else request_once(ask, self._options)
        except RequestFailedError as error:
            raise self._cannot(error.failure) from None

    def _cannot(self, failure: RequestFailure) -> ForensicsError:
        if failure.kind == "transient":
            return TransientError(
                f"cannot write to {self.path}: {STILL_FAILING}; try again later; the service said: {failure.words}"
            )
        return UsageError(
            f"cannot write to {self.path}: {failure.words}", hint="check the bucket, credentials and rights (docs/storage.md)"
        )


ExportPlace = Target | RemoteTarget
"""Where an export goes: a directory, or a prefix of a storage service."""


class _Stream:
    """A file on its way to a storage service. What its library raises is one of our errors here, and nothing of it is repeated."""

    def __init__(self, target: RemoteTarget, stream: Any) -> None:
        self._target = target
        self._stream = stream

    @property
    def closed(self) -> bool:
        """Whether nothing more can be written."""
        return bool(self._stream.closed)

    def write(self, data: memoryview) -> None:
        """Append `data`. Raises UsageError."""
        self._target._ask(lambda: self._stream.write(data), repeats=False)

    def flush(self) -> None:
        """Hand what is buffered on. Raises UsageError."""
        self._target._ask(self._stream.flush, repeats=False)

    def close(self) -> None:
        """Make the object of what was written; a second call does nothing. Raises UsageError."""
        if not self._stream.closed:
            self._target._ask(self._stream.close, repeats=False)


@contextmanager
def _no_source(name: str) -> Iterator[None]:
    """Errors of what is read as errors of what is to be written to."""
    try:
        yield
    except SourceError as error:
        words = f"cannot write to {name}: {error.reason}"
        raise (TransientError(words) if is_transient(error.reason) else UsageError(words, hint=_LOOK)) from error
