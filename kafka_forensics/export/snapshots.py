"""A dataset of many snapshots as Parquet files: a snapshot is a directory, `cluster=…/snapshot=…/`, that is renamed as a whole.

A run writes the directory as `_unfinished-RUN`, which readers of datasets skip, and renames it when all of it is on disk. A rerun
first renames the directory of the run before to `_replaced-NAME`. So a reader finds a whole snapshot or none, whenever a run is
killed:

- before the first rename: what was there before;
- between the two: none, until the next run puts the old directory back;
- after the second: the new one; the next run removes the old one.

A lock of the system on `_LOCK` keeps two runs apart. It ends with the process that holds it, so none is ever stale.
"""

import contextlib
import errno
import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kafka_forensics.errors import UsageError
from kafka_forensics.export.labels import Label, encoded
from kafka_forensics.export.target import INCOMPLETE, LOCK, SUCCESS, UNFINISHED, Target, explained, refuse_names
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.storage.disks import sync_directory
from kafka_forensics.storage.private import FILE_MODE

CLUSTER: Final = "cluster="
SNAPSHOT: Final = "snapshot="
WRITTEN: Final = "_unfinished-"
"""Before a run: what it writes, or is removing. Without `=`, because Spark reads a `_name=value` as any other."""
REPLACED: Final = "_replaced-"
"""Before a snapshot's name: its directory of the run before, whole."""
_NO_LOCKS: Final = frozenset({errno.ENOTSUP, errno.ENOSYS, errno.EINVAL})
"""The file system has no locks at all."""
_WRITTEN: Final = re.compile(rf"{WRITTEN}[0-9a-f]{{32}}", re.ASCII)


class Snapshot:
    """A snapshot that is being added to a dataset; `target` is the directory to write."""

    def __init__(self, folder: str, label: Label, target: Target) -> None:
        name = encoded(label.snapshot)
        self._folder = folder
        self._place = os.path.join(folder, f"{SNAPSHOT}{name}")
        self._aside = os.path.join(folder, f"{REPLACED}{name}")
        self.target = target

    def publish(self) -> bool:
        """Put the directory, which is whole, in place of the one before; whether there was one. Raises UsageError."""
        with self.target.explained():
            sync_directory(self.target.path)
            replaces = os.path.lexists(self._place)
            try:
                if replaces:
                    os.rename(self._place, self._aside)
                    sync_directory(self._folder)
                os.rename(self.target.path, self._place)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.rename(self._aside, self._place)  # fails where the new directory is there: it stays
                raise
            sync_directory(self._folder)
            if replaces:
                _remove(self._aside)
            return replaces


@contextmanager
def opened_snapshot(root: str, label: Label) -> Iterator[Snapshot]:
    """A snapshot to write and to publish, in the dataset at `root` or a new one there; if that fails, the dataset is as it was.

    Raises UsageError if something else is there, another run is adding to it, or no lock can be had.
    """
    _refuse_others(root)
    with _locked(root):
        _refuse_others(root)
        _mend(root)
        folder = os.path.join(root, f"{CLUSTER}{encoded(label.cluster)}")
        snapshot = Snapshot(folder, label, Target.open(os.path.join(folder, f"{WRITTEN}{label.run}")))
        try:
            yield snapshot
        except BaseException:
            snapshot.target.remove()
            raise


@contextmanager
def _locked(root: str) -> Iterator[None]:
    """Make the directory if it is not there, and hold its lock; if that fails, take it away again unless snapshots are in it."""
    made, above = [], os.path.abspath(root)
    while not os.path.lexists(above):
        made.append(above)
        above = os.path.dirname(above)
    with explained(root):
        descriptor = _lock(root, made)
        for path in made:
            sync_directory(os.path.dirname(path))
    try:
        yield
    except BaseException:
        _take_away(root, made)
        raise
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a forked process may hold it open, too
        os.close(descriptor)


def _lock(root: str, made: list[str]) -> int:
    """The open lock file. Raises UsageError if another run holds it, or no lock can be had, and OSError."""
    path = os.path.join(root, LOCK)
    while True:
        os.makedirs(root, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        except FileNotFoundError:
            continue  # another run has just taken the directory away
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise UsageError(f"another run is adding a snapshot to {root}", hint="add this one when that has ended") from None
        except OSError as error:
            os.close(descriptor)
            if error.errno in _NO_LOCKS:  # otherwise another run may hold it
                _take_away(root, made)
            raise UsageError(
                f"no lock can be had in {root}: {error.strerror}",
                hint="choose a directory on a file system that has locks, or --table-format delta or iceberg",
            ) from error
        if _is_at(descriptor, path):
            return descriptor
        os.close(descriptor)


def _is_at(descriptor: int, path: str) -> bool:
    """Whether the open file is the one at `path`, and not one that was taken away."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _take_away(root: str, made: list[str]) -> None:
    """Remove the lock file and the directories made here, if nothing else is in them."""
    with contextlib.suppress(OSError):
        if os.listdir(root) == [LOCK]:
            os.unlink(os.path.join(root, LOCK))
        for path in made:
            os.rmdir(path)


def _mend(root: str) -> None:
    """Put back what a killed run had set aside for a directory that never came, and remove what else such runs have left."""
    with explained(root):
        for folder in sorted(entry.path for entry in os.scandir(root) if entry.name.startswith(CLUSTER)):
            for name in sorted(os.listdir(folder)):
                path = os.path.join(folder, name)
                if name.startswith(REPLACED):
                    place = os.path.join(folder, f"{SNAPSHOT}{name.removeprefix(REPLACED)}")
                    if not os.path.lexists(place):
                        os.rename(path, place)
                        sync_directory(folder)
                    else:
                        _remove(path)
                elif _WRITTEN.fullmatch(name):
                    _remove(path)


def _remove(path: str) -> None:
    """Remove a directory, first by a new name: a worker of a dead run no longer finds it, and a half removed one is never put back.

    What cannot be removed stays by that name, for the next run.
    """
    name = os.path.join(os.path.dirname(path), f"{WRITTEN}{uuid.uuid4().hex}")
    os.rename(path, name)
    shutil.rmtree(name, ignore_errors=True)


def _refuse_others(root: str) -> None:
    """Raise UsageError if `root` is no directory, or holds anything but snapshots."""
    names = Target(root, "").names()
    if {SUCCESS, INCOMPLETE}.intersection(names):
        raise UsageError(f"{root} holds an export that was made without --append", hint="choose another directory")
    if not FACTS.keys().isdisjoint(names) and UNFINISHED not in names:
        hint = "add --table-format delta or iceberg, as they are, or choose another directory"
        raise UsageError(f"{root} holds tables of another format", hint=hint)
    refuse_names(root, [name for name in names if name != LOCK and not name.startswith(CLUSTER)])
