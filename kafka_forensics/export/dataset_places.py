"""Where a dataset lies that snapshots are added to, and how one run at a time adds to it.

`_UNFINISHED` names the run that is adding, from before its first file until after the manifest that names its files. In a directory
a lock of the system (`_LOCK`) says whether that run is still alive: it ends with the process, however that ends. A storage service
has none, so there a run writes `_UNFINISHED` anew every minute, and one whose mark is a quarter of an hour old by the service's
clock is taken for dead. Whoever is overtaken sees it before it puts its manifest in place.

What a dead run has left is known by its name: `_left-RUN` keeps it until all is taken away.
"""

import contextlib
import errno
import fcntl
import os
import re
import shutil
import socket
import threading
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from kafka_forensics.errors import ForensicsError, SourceError, UsageError
from kafka_forensics.export.places import RemoteTarget, Storage, content_of, service_at
from kafka_forensics.export.target import (
    APPEND,
    DATASET,
    INCOMPLETE,
    SUCCESS,
    TEMPORARY,
    UNFINISHED,
    Target,
    mark_of,
    refuse_names,
)
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.storage.disks import sync
from kafka_forensics.storage.open import local_path, refuse_output_inside
from kafka_forensics.storage.remote import (
    Given,
    RemotePlace,
    RequestFailedError,
    StorageOptions,
    attempt,
    children,
    open_filesystem,
    source_error,
)

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

LOCK: Final = "_LOCK"
LEFT: Final = "_left-"
RENEWED_SECONDS: Final = 60.0
DEAD_SECONDS: Final = 900.0
"""A mark that has not been written anew for so long is nobody's."""
_RUN: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_AT_WORK: Final = threading.Lock()
"""Held while a mark is written anew. Copies of the process are made in between, so that none has a lock of a request for ever."""
os.register_at_fork(before=_AT_WORK.acquire, after_in_parent=_AT_WORK.release, after_in_child=_AT_WORK.release)
_NO_LOCKS: Final = frozenset({errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL})
_MARK_BYTES: Final = 1 << 10


def run_of(mark: str) -> str | None:
    """The run that `_UNFINISHED` names; None where it is of another kind of export."""
    token = mark.rstrip("\n").rpartition("\n")[2]
    run = token.removeprefix(APPEND)
    return run if mark == mark_of(token) and token != run and _RUN.fullmatch(run) else None


class LocalDataset(Target):
    """A directory, held by a lock while this run adds to it."""

    def __init__(self, path: str, token: str) -> None:
        super().__init__(path, token)
        self.run = token.removeprefix(APPEND)
        self.left: list[str] = []
        """Runs that have ended without a word, whose files may be here."""
        self._lock: int | None = None

    @classmethod
    def begin(cls, path: str, inputs: list[str]) -> "LocalDataset":
        """Take the directory for a new run. Raises UsageError if it is no dataset and not empty, another run holds it, or it is an
        input or lies in one."""
        refuse_output_inside(path, inputs)
        for name in FACTS:
            refuse_output_inside(os.path.join(path, name), inputs)  # it may be a link
        place = cls(path, f"{APPEND}{uuid.uuid4().hex}")
        above = os.path.abspath(path)
        while not os.path.lexists(above):
            place._made.append(above)
            above = os.path.dirname(above)
        try:
            _refuse_what_is_no_dataset(path, _listed(path), lambda: place.mark)
        except UsageError:  # a run may have ended between the one look and the other
            _refuse_what_is_no_dataset(path, _listed(path), lambda: place.mark)
        with place.explained():
            os.makedirs(path, exist_ok=True)
            place._take_lock()
        try:
            with place.explained():
                place._note_dead_run()
                for name in os.listdir(path):
                    if name.startswith(".") and name.endswith(".tmp"):
                        os.unlink(os.path.join(path, name))
                place._write_mark()
                sync(path)
        except BaseException:
            place.release()
            raise
        return place

    @property
    def mark(self) -> str:
        """What `_UNFINISHED` says; nothing where it is not there."""
        try:
            with open(os.path.join(self.path, UNFINISHED), encoding="ascii", errors="replace") as marker:
                return marker.read(_MARK_BYTES)
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise UsageError(f"{self.path}: {error.strerror}", hint="choose another directory, or let this one be read") from error

    def manifest(self) -> bytes | None:
        """The manifest as it stands; None where there is none yet."""
        with self.explained():
            try:
                with open(os.path.join(self.path, DATASET), "rb") as file:
                    return file.read()
            except FileNotFoundError:
                return None

    def require_own(self, before: bytes | None) -> None:
        """Raise UsageError if the manifest is no longer the one that was there `before`, or another run has taken the directory."""
        _require_unchanged(self.path, self.mark, self.token, is_same=self.manifest() == before)

    def swap(self, data: bytes, before: bytes | None) -> None:
        """Put a manifest in place of the one that was there `before`; all that it names is on disk (`put_names_on_disk`).

        Raises UsageError as `require_own` does.
        """
        self.require_own(before)
        with self.file(DATASET) as file:
            file.write(data)
        with self.explained():
            sync(self.path)

    def clear(self) -> None:
        """Take away what no file came of, unless another run has taken the directory."""
        if self.mark == mark_of(self.token):
            super().clear()

    def runs(self, fact: str) -> list[str]:
        """Runs of which there are files of a fact."""
        with self.explained():
            return sorted(filter(_RUN.fullmatch, _listed(os.path.join(self.path, fact))))

    def files(self, fact: str, run: str) -> set[str]:
        """Names of a run's files of a fact."""
        with self.explained():
            return set(_listed(os.path.join(self.path, fact, run)))

    def remove_run(self, fact: str, run: str) -> None:
        """Take away a run's files of a fact."""
        assert _RUN.fullmatch(run)
        with self.explained(), contextlib.suppress(FileNotFoundError):
            if os.path.islink(os.path.join(self.path, fact, run)):
                os.unlink(os.path.join(self.path, fact, run))
                return
            shutil.rmtree(os.path.join(self.path, fact, run))

    def forget(self, run: str) -> None:
        """A dead run has left nothing more."""
        with self.explained(), contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.path, f"{LEFT}{run}"))

    def end(self) -> None:
        """This run has ended and left nothing that it must be known for."""
        with self.explained():
            os.unlink(os.path.join(self.path, UNFINISHED))
            sync(self.path)
        self.release()

    def withdraw(self) -> None:
        """Let go of the directory, in which nothing of this run is; take it away if it was made here and nothing counts in it."""
        with contextlib.suppress(OSError, UsageError):
            if self.mark != mark_of(self.token):
                self.release()  # another run has taken it, where there are no locks
                return
            for name in (*FACTS, TEMPORARY):
                with contextlib.suppress(OSError):
                    os.rmdir(os.path.join(self.path, name))
            os.unlink(os.path.join(self.path, UNFINISHED))
            if set(os.listdir(self.path)) == {LOCK}:
                os.unlink(os.path.join(self.path, LOCK))
                for folder in self._made:
                    os.rmdir(folder)
        self.release()

    def release(self) -> None:
        """Let another run begin."""
        if self._lock is not None:
            with contextlib.suppress(OSError):
                fcntl.flock(self._lock, fcntl.LOCK_UN)  # a forked process may hold it open, too
            os.close(self._lock)
            self._lock = None

    def _take_lock(self) -> None:
        """Raises UsageError if another run holds it; where the file system knows no locks, if there is a mark."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(os.path.join(self.path, LOCK), flags, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, _MARK_BYTES, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise UsageError(
                f"another run is adding a snapshot to {self.path}{f': {holder}' if holder.isprintable() and holder else ''}",
                hint="add this one when that has ended",
            ) from None
        except OSError as error:
            os.close(descriptor)
            if error.errno not in _NO_LOCKS:
                raise
            if self.mark:
                raise UsageError(
                    f"another run is adding a snapshot to {self.path}, or ended without a word; there are no locks there to tell",
                    hint=f"if none is running, remove {os.path.join(self.path, UNFINISHED)} (or all, if there is no {DATASET} yet)"
                    " and add this one again",
                ) from error
            return
        held = os.fstat(descriptor)
        with contextlib.suppress(FileNotFoundError):
            there = os.stat(os.path.join(self.path, LOCK), follow_symlinks=False)
            if (held.st_dev, held.st_ino) == (there.st_dev, there.st_ino):
                self._lock = descriptor
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{_who()}\n".encode("ascii", "replace"), 0)
                return
        os.close(descriptor)  # whoever held it took the directory away
        raise UsageError(f"another run has given up {self.path} at this moment", hint="add this snapshot again")

    def _note_dead_run(self) -> None:
        """Keep the name of a run that ended without a word: with the lock in hand no other is alive."""
        dead = run_of(self.mark)
        if dead is not None:
            descriptor = os.open(os.path.join(self.path, f"{LEFT}{dead}"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
            os.close(descriptor)
            sync(self.path)
        self.left = _left(os.listdir(self.path))

    def _write_mark(self) -> None:
        temporary = os.path.join(self.path, f".{UNFINISHED}.tmp")
        with open(temporary, "w", encoding="ascii") as marker:
            marker.write(mark_of(self.token))
            marker.flush()
            os.fsync(marker.fileno())
        os.rename(temporary, os.path.join(self.path, UNFINISHED))


class RemoteDataset(RemoteTarget):
    """A prefix of a storage service, held by a mark that is written anew while this run adds to it."""

    def __init__(self, place: RemotePlace, options: StorageOptions, token: str) -> None:
        super().__init__(place, options, token)
        self.run = token.removeprefix(APPEND)
        self.left: list[str] = []
        self._ended = threading.Event()
        self._renewing: threading.Thread | None = None

    @classmethod
    def begin(cls, uri: str, inputs: list[str], storage: Storage) -> "RemoteDataset":
        """Take the prefix for a new run. Raises UsageError if it is no dataset and not empty, another run holds it, or it is an
        input or lies in one."""
        place = cls.opened(uri, inputs, storage, f"{APPEND}{uuid.uuid4().hex}")
        names = place._names()
        _refuse_what_is_no_dataset(place.path, names, lambda: place.mark)
        dead = run_of(place.mark) if UNFINISHED in names else None
        if dead is not None:
            place._require_dead()
            with place.file(f"{LEFT}{dead}") as file:
                file.write(b"")
        with place.file(UNFINISHED) as file:
            file.write(mark_of(place.token).encode())
        _require_unchanged(place.path, place.mark, place.token, is_same=True)
        place.left = _left(place._names())
        place._renewing = threading.Thread(target=place._renew, name="export-mark", daemon=True)
        place._renewing.start()
        return place

    @property
    def mark(self) -> str:
        """What `_UNFINISHED` says; nothing where it is not there."""
        return self._mark()

    def manifest(self) -> bytes | None:
        """The manifest as it stands; None where there is none yet."""
        return self.content(DATASET)

    def put_names_on_disk(self) -> None:
        """A service keeps what it has taken."""

    def require_own(self, before: bytes | None) -> None:
        """Raise UsageError if the manifest is no longer the one that was there `before`, or another run has taken the prefix."""
        _require_unchanged(self.path, self.mark, self.token, is_same=self.manifest() == before)

    def swap(self, data: bytes, before: bytes | None) -> None:
        """Put a manifest in place of the one that was there `before`: as one object, written under another name and copied.

        Raises UsageError as `require_own` does.
        """
        self.require_own(before)
        with self.file(DATASET) as file:
            file.write(data)

    def clear(self) -> None:
        """Take away what no file came of, unless another run has taken the prefix."""
        if self.mark == mark_of(self.token):
            super().clear()

    def runs(self, fact: str) -> list[str]:
        """Runs of which there are files of a fact."""
        infos, _ = self._ask(lambda: children(self._fs, f"{self._root}/{fact}", allow_not_found=True))
        return sorted({info.base_name for info in infos if _RUN.fullmatch(info.base_name)})

    def files(self, fact: str, run: str) -> set[str]:
        """Names of a run's files of a fact."""
        infos, _ = self._ask(lambda: children(self._fs, f"{self._root}/{fact}/{run}", allow_not_found=True))
        return {info.base_name for info in infos}

    def remove_run(self, fact: str, run: str) -> None:
        """Take away a run's files of a fact."""
        assert _RUN.fullmatch(run)
        self._ask(lambda: self._delete(f"{fact}/{run}"))

    def forget(self, run: str) -> None:
        """A dead run has left nothing more."""
        self._remove(f"{self._root}/{LEFT}{run}")

    def end(self) -> None:
        """This run has ended and left nothing that it must be known for."""
        self.release()
        self.clear()
        if self.mark == mark_of(self.token):
            self._remove(f"{self._root}/{UNFINISHED}")

    def withdraw(self) -> None:
        """Let go of the prefix."""
        self.release()
        with contextlib.suppress(ForensicsError):
            self.clear()
            if self.mark == mark_of(self.token):
                self._remove(f"{self._root}/{UNFINISHED}")

    def release(self) -> None:
        """Write no mark any more."""
        self._ended.set()
        if self._renewing is not None:
            self._renewing.join()
            self._renewing = None

    def _require_dead(self) -> None:
        """Raise UsageError unless the mark that is there is old by the service's own clock."""
        look = f"{uuid.uuid4().hex}.look"
        with self.temporary_file(look):
            pass
        now, then = self._written(f"{TEMPORARY}/{look}"), self._written(UNFINISHED)
        self._remove(f"{self._root}/{TEMPORARY}/{look}")
        by_hand = f"if none is running, remove {self.path}/{UNFINISHED} and add this one again"
        if now is None or then is None:
            raise UsageError(f"another run is adding a snapshot to {self.path}, or ended without a word", hint=by_hand)
        age = (now - then).total_seconds()
        if age < DEAD_SECONDS:
            raise UsageError(
                f"another run is adding a snapshot to {self.path}, or ended without a word {max(age, 0):.0f} s ago",
                hint=f"wait until it has ended; after {DEAD_SECONDS / 60:.0f} minutes without a word it is given up. Or {by_hand}",
            )

    def _written(self, name: str) -> datetime | None:
        """When an object was written, by the service's clock; None where it does not tell."""
        written: datetime | None = self._ask(lambda: self._fs.get_file_info(f"{self._root}/{name}")).mtime
        return written

    def _renew(self) -> None:
        """Write the mark anew until the run ends, or another has taken its place. What fails now is tried again in a minute."""
        while not self._ended.wait(RENEWED_SECONDS):
            with _AT_WORK, contextlib.suppress(ForensicsError):
                if self.mark != mark_of(self.token):
                    return
                with self.file(UNFINISHED) as file:
                    file.write(mark_of(self.token).encode())


DatasetPlace = LocalDataset | RemoteDataset
"""Where a dataset lies: a directory, or a prefix of a storage service."""


def begin_at(output: str, inputs: list[str], storage: Storage = ()) -> DatasetPlace:
    """A dataset that this run may add to, until `end` or `withdraw`. Raises UsageError."""
    here = local_path(output)
    return LocalDataset.begin(here, inputs) if here is not None else RemoteDataset.begin(output, inputs, storage)


def manifest_at(path: str, storage: Given = None) -> "tuple[bytes | None, str, FileSystem]":
    """(manifest, root, file system) of a dataset that is to be read, the root as the file system spells it. Raises UsageError."""
    from pyarrow.fs import LocalFileSystem

    here = local_path(path)
    if here is not None:
        root = os.path.abspath(here)
        try:
            with open(os.path.join(root, DATASET), "rb") as file:
                return file.read(), root, LocalFileSystem()
        except (FileNotFoundError, NotADirectoryError):
            return None, root, LocalFileSystem()
        except OSError as error:
            raise SourceError(os.path.join(root, DATASET), error.strerror or str(error)) from error
    place, options = service_at(path, storage)
    filesystem, root = open_filesystem(place, options)
    try:
        return attempt(lambda: content_of(filesystem, f"{root}/{DATASET}"), options), root, filesystem
    except RequestFailedError as error:
        raise source_error(f"{place.name}/{DATASET}", error.failure) from None


def _listed(path: str) -> list[str]:
    """What is in a directory; nothing where there is none. Raises UsageError."""
    try:
        return sorted(os.listdir(path))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"cannot write to {path}: {error.strerror}", hint="choose a directory that does not exist yet") from error


def _left(names: list[str]) -> list[str]:
    return sorted(name.removeprefix(LEFT) for name in names if name.startswith(LEFT) and _RUN.fullmatch(name.removeprefix(LEFT)))


def _refuse_what_is_no_dataset(path: str, names: list[str], mark: Callable[[], str]) -> None:
    """Raise UsageError if something is at `path` to which no snapshot can be added."""
    if SUCCESS in names or INCOMPLETE in names:
        hint = "--append adds to a dataset that it began itself: choose another directory"
        raise UsageError(f"{path} holds an export that was made without --append", hint=hint)
    if DATASET in names or (UNFINISHED in names and run_of(mark()) is not None):
        return
    refuse_names(path, [name for name in names if name not in (LOCK, TEMPORARY, f".{UNFINISHED}.tmp")])


def taken(path: str) -> UsageError:
    """The error of a run that was overtaken."""
    return UsageError(f"another run has taken {path} meanwhile, and this one has added nothing", hint="add this snapshot again")


def _require_unchanged(path: str, mark: str, token: str, *, is_same: bool) -> None:
    if mark != mark_of(token):
        raise taken(path)
    if not is_same:
        raise UsageError(
            f"the manifest of {path} was changed while this run was adding to it, and it has added nothing",
            hint="add this snapshot again",
        )


def _who() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}, since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
