"""Targets of exports: a directory, or a URI of a storage service, as the user typed it.

A storage service has no directories and cannot rename: a file is copied to its final name. `_UNFINISHED` and `_SUCCESS` mean what
they mean in a directory (`target`), with two differences: two exports that begin at the same moment may both find the prefix empty
(the first that checks again stops), and an abandoned process may leave a file in `_temporary` after the end, which belongs to no
dataset. Where UsageError is raised because something cannot be written, it is TransientError if a retry may help.
"""

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
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
    marker_text,
    require_empty,
)
from kafka_forensics.storage.open import local_path
from kafka_forensics.storage.remote import (
    PYARROW_SCHEMES,
    OptionsArgument,
    RemotePlace,
    RequestFailedError,
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
    """Begin an export. Raises UsageError if `output` holds anything or cannot be written to."""
    here = local_path(output)
    if here is not None:
        return Target.open(here)
    return RemoteTarget.open(output, storage)


def join_place(path: str, token: str, storage: Storage = ()) -> "ExportPlace":
    """Join an export at `absolute_place(output)` as a worker. Raises UsageError if it is missing or cannot be written to."""
    here = local_path(path)
    if here is not None:
        return Target.join(here, token)
    return RemoteTarget.join(path, token, storage)


def shared_place(output: str, storage: Storage = ()) -> "ExportPlace":
    """A target that other exports may also write to. Raises UsageError if it cannot be opened."""
    here = local_path(output)
    if here is None:
        return RemoteTarget.opened(output, storage, "")
    return Target(here, "")


def place_below(output: str, name: str) -> str:
    """The target `name` below another, as a user would type it."""
    if (here := local_path(output)) is not None:
        return os.path.join(here, name)
    bare, _, query = output.rpartition("?")
    if not bare or remote_place(output).root.endswith(f"?{query}".rstrip("/")):  # the `?` is part of the name
        return f"{output.rstrip('/')}/{name}"
    return f"{bare.rstrip('/')}/{name}?{query}"


def table_root(output: str, storage: OptionsArgument = None) -> tuple[str, RemotePlace | None, StorageOptions]:
    """(absolute path or URI, place in a storage service, its options) of a target that a library of tables reads and writes.

    The place is None for a directory; options are `storage`, those of the URI, those of the environment.
    """
    here = local_path(output)
    if here is not None:
        return os.path.abspath(here), None, StorageOptions()
    place = remote_place(output)
    options = storage_options(storage, uri=place.name).with_options(place.options)
    return f"{place.scheme}://{place.root}", place, options


def s3_settings(options: StorageOptions, names: Sequence[str]) -> dict[str, str]:
    """The options that are set, under a library's names of region, access key, secret key, session token, anonymous, endpoint."""
    values = (
        *(options.region, options.access_key, options.secret_key, options.session_token),
        "true" if options.anonymous else None,
        None if options.endpoint is None else f"{options.scheme or 'https'}://{options.endpoint}",
    )
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


def one_line(error: BaseException) -> str:
    """A library's message, which may have many lines, in one line."""
    return " ".join(str(error).split())


def absolute_place(output: str) -> str:
    """The target with an absolute path, for processes with other working directories."""
    here = local_path(output)
    return output if here is None else os.path.abspath(here)


Answer = TypeVar("Answer")
_FLAT: Final = frozenset({"s3", "gs", "abfs"})
"""Schemes without directories and renaming."""
_MARK_BYTES: Final = 1 << 10
_CHECK_OPTIONS: Final = "check the name, the rights, and the address of the service: --storage-option, docs/storage.md"


class RemoteTarget:
    """The prefix of one export; `open` begins it, `finish` completes it."""

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
        """Begin an export at an empty prefix. Raises UsageError if it holds anything or cannot be written to."""
        target = cls.opened(uri, storage, uuid.uuid4().hex)
        require_empty(target.path, target.names())
        with target._writing(f"{target._root}/{UNFINISHED}") as file:
            file.write(marker_text(target.token).encode())
        if target._mark() != marker_text(target.token):
            require_empty(target.path, [UNFINISHED])
        return target

    @classmethod
    def opened(cls, uri: str, storage: tuple[tuple[str, str], ...], token: str) -> Self:
        """The prefix, whatever it holds. Raises UsageError if it cannot be opened."""
        place = remote_place(uri)
        try:
            return cls(place, storage_options(storage, uri=place.name).with_options(place.options), token)
        except SourceError as error:
            reason = f"cannot write to {place.name}: {error.reason}"
            raise (TransientError(reason) if is_transient(error.reason) else UsageError(reason, hint=_CHECK_OPTIONS)) from error

    @classmethod
    def join(cls, uri: str, token: str, storage: tuple[tuple[str, str], ...]) -> "RemoteTarget":
        """Join the export with this token as a worker. Raises UsageError if another is at `uri`."""
        target = cls.opened(uri, storage, token)
        target.require_no_other_export()
        return target

    @contextmanager
    def file(self, name: str) -> Iterator[HashedFile]:
        """A new file below the prefix, which gets its `name` when complete. Raises UsageError if it cannot be written."""
        temporary = f"{uuid.uuid4().hex}-{name.rpartition('/')[2]}"
        with self.temporary_file(temporary) as file:
            yield file
        self.adopt(temporary, name)

    @contextmanager
    def temporary_file(self, name: str) -> Iterator[HashedFile]:
        """A new file of a worker; each name is used once. Raises UsageError if it cannot be written."""
        with self._writing(f"{self._root}/{TEMPORARY}/{name}") as file:
            yield file

    def share(self) -> None:
        """Workers can always join."""

    def adopt(self, temporary: str, name: str) -> None:
        """Give its final name to a worker's complete file."""
        source, path = f"{self._root}/{TEMPORARY}/{temporary}", f"{self._root}/{name}"
        self._make_above(path)
        if self._is_flat:
            self._ask(lambda: self._fs.copy_file(source, path))
            self._remove(source)
        else:
            self._ask(lambda: self._move(source, path))

    def clear(self) -> None:
        """Remove the workers' files that were not adopted."""
        self._ask(lambda: self._delete(f"{self._root}/{TEMPORARY}"))

    def finish(self, *, whole: bool = True) -> None:
        """Mark the export as ended, and as complete if it is `whole`."""
        with self.file(SUCCESS if whole else INCOMPLETE):
            pass
        self.clear()
        self._remove(f"{self._root}/{UNFINISHED}")

    def remove(self) -> None:
        """Remove everything below the prefix, unless it is another export's."""
        with contextlib.suppress(ForensicsError):
            if self._mark() == marker_text(self.token):
                self._ask(lambda: self._delete(self._root))

    def require_no_other_export(self) -> None:
        """Raise UsageError if another export began at the same moment, and is at the prefix now."""
        if self._mark() != marker_text(self.token):
            raise UsageError(f"{self.path}: it already has another export", hint="run this one again with another prefix")

    def names(self, folder: str = "") -> list[str]:
        """The sorted names directly below the prefix, or a folder in it."""
        path = f"{self._root}/{folder}" if folder else self._root
        infos, _ = self._ask(lambda: list_children(self._fs, path, allow_not_found=True))
        return sorted(info.base_name for info in infos)

    def put_names_on_disk(self) -> None:
        """A service has stored the names when it answers."""

    def _remove(self, path: str) -> None:
        """Delete a file; a missing one may have been deleted by a request whose response was lost."""

        def delete() -> None:
            with contextlib.suppress(FileNotFoundError):
                self._fs.delete_file(path)

        self._ask(delete)

    def _move(self, source: str, path: str) -> None:
        """Rename a file; it may have been renamed already by a request whose response was lost."""
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
        """The content of `_UNFINISHED`; empty if it is missing."""

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
        """A file that exists when it is complete; a failed one is removed. Raises UsageError."""
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
            words = error.failure.words
            if error.failure.kind == "transient":
                reason = f"cannot write to {self.path}: {STILL_FAILING}; try again later; response of the service: {words}"
                raise TransientError(reason) from None
            hint = "check the bucket, credentials and rights (docs/storage.md)"
            raise UsageError(f"cannot write to {self.path}: {words}", hint=hint) from None


ExportPlace = Target | RemoteTarget
"""A target: a directory, or a prefix of a storage service."""


class _Stream:
    """A file that is being written to a storage service; raises our errors, and repeats no request."""

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
        """Flush the buffer. Raises UsageError."""
        self._target._ask(self._stream.flush, repeats=False)

    def close(self) -> None:
        """Complete the object; a second call does nothing. Raises UsageError."""
        if not self._stream.closed:
            self._target._ask(self._stream.close, repeats=False)
