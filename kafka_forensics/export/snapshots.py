"""A dataset of snapshots as Parquet files: a snapshot is a directory, `cluster=…/snapshot=…/`, that is renamed as a whole.

A run writes the directory as `_unfinished-RUN`, which readers of datasets skip, and renames it when all of it is on disk. A rerun
first renames the directory of the earlier run to `_replaced-NAME`. So a reader finds a complete snapshot or none, whenever a run is
killed:

- before the first rename: the earlier snapshot;
- between the two: none, until the next run restores the earlier directory;
- after the second: the new snapshot; the next run removes the earlier one.

A system lock on `_LOCK` prevents two runs at once. It ends with the process that holds it, so it is never stale.
"""

import contextlib
import errno
import fcntl
import glob
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kafka_forensics.errors import UsageError
from kafka_forensics.export.labels import CLUSTER_DIRECTORY, SNAPSHOT_DIRECTORY, SnapshotLabel
from kafka_forensics.export.target import LOCK, MANIFEST, Target, as_usage_errors, missing_directories, require_empty
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.storage.disks import sync_directory
from kafka_forensics.storage.private import FILE_MODE

WRITTEN: Final = "_unfinished-"
"""Prefix of a directory that a run writes or removes. Without `=`, because Spark does not skip `_name=value`."""
REPLACED: Final = "_replaced-"
"""Prefix of a snapshot's complete directory of the earlier run."""
_NO_LOCKS: Final = frozenset({errno.ENOTSUP, errno.ENOSYS, errno.EINVAL})
"""Errors of file systems without locks."""
_WRITTEN: Final = re.compile(rf"{WRITTEN}[0-9a-f]{{32}}", re.ASCII)


class NewSnapshot:
    """A snapshot that is being added to a dataset; `target` is the directory to write."""

    def __init__(self, folder: str, label: SnapshotLabel, target: Target) -> None:
        name = os.path.basename(label.directory)
        self._folder = folder
        self._place = os.path.join(folder, name)
        self._replaced_path = os.path.join(folder, f"{REPLACED}{name.removeprefix(SNAPSHOT_DIRECTORY)}")
        self.target = target

    def publish(self) -> bool:
        """Replace the earlier directory by the new one, which is complete; whether there was one. Raises UsageError."""
        with as_usage_errors(self.target.path):
            sync_directory(self.target.path)
            replaces = os.path.lexists(self._place)
            try:
                if replaces:
                    os.rename(self._place, self._replaced_path)
                    sync_directory(self._folder)
                os.rename(self.target.path, self._place)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.rename(self._replaced_path, self._place)  # fails if the new directory is in place, which then stays
                raise
            sync_directory(self._folder)
            if replaces:
                _remove(self._replaced_path)
            return replaces


@contextmanager
def open_snapshot(root: str, label: SnapshotLabel, *, append: bool) -> Iterator[NewSnapshot]:
    """A snapshot to write and publish in the dataset at `root`, which is created if missing and unchanged if anything fails.

    Without `append`, what killed runs left may be in it, but no snapshot. Raises UsageError if something else is at `root`, another
    run adds to it, or it cannot be locked.
    """
    _refuse_others(root)
    with _locked(root, required=append):
        _refuse_others(root)
        _repair(root)
        if append:
            _require_partitioning(root, label)
        else:
            _refuse_snapshots(root)
        folder = os.path.join(root, os.path.dirname(label.directory))
        snapshot = NewSnapshot(folder, label, Target.open(os.path.join(folder, f"{WRITTEN}{label.run}")))
        try:
            yield snapshot
        except BaseException:
            snapshot.target.remove()
            raise


@contextmanager
def _locked(root: str, *, required: bool) -> Iterator[None]:
    """Create the directory if it is missing, and hold its lock; if anything fails, remove it unless snapshots are in it."""
    made = missing_directories(root)
    with as_usage_errors(root):
        descriptor = _lock(root, made, required=required)
        for path in made:
            sync_directory(os.path.dirname(path))
    try:
        yield
    except BaseException:
        _remove_if_unused(root, made)
        raise
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a forked process may also have it open
        os.close(descriptor)


def _lock(root: str, made: list[str], *, required: bool) -> int:
    """The open lock file. Raises UsageError if another run holds the lock, or a `required` lock cannot be taken, and OSError."""
    path = os.path.join(root, LOCK)
    while True:
        os.makedirs(root, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        except FileNotFoundError:
            continue  # another run has just removed the directory
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise UsageError(f"another run is adding a snapshot to {root}", hint="add this one when that run has ended") from None
        except OSError as error:
            if error.errno in _NO_LOCKS and not required:
                return descriptor
            os.close(descriptor)
            if error.errno in _NO_LOCKS:  # otherwise another run may hold it
                _remove_if_unused(root, made)
            raise UsageError(
                f"cannot lock {root}: {error.strerror}",
                hint="choose a directory on a file system that has locks, or --table-format delta or iceberg",
            ) from error
        with contextlib.suppress(FileNotFoundError):  # another run may have removed the file that is open here
            if os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False)):
                return descriptor
        os.close(descriptor)


def _remove_if_unused(root: str, made: list[str]) -> None:
    """Remove the lock file and the directories that this run created, if nothing else is in them."""
    with contextlib.suppress(OSError):
        if os.listdir(root) == [LOCK]:
            os.unlink(os.path.join(root, LOCK))
        for path in made:
            os.rmdir(path)


def _repair(root: str) -> None:
    """Restore a directory that a killed run renamed but did not replace, and remove all else that killed runs left."""
    with as_usage_errors(root):
        for folder in sorted(entry.path for entry in os.scandir(root) if entry.name.startswith(CLUSTER_DIRECTORY)):
            for name in sorted(os.listdir(folder)):
                path = os.path.join(folder, name)
                if name.startswith(REPLACED):
                    place = os.path.join(folder, f"{SNAPSHOT_DIRECTORY}{name.removeprefix(REPLACED)}")
                    if not os.path.lexists(place):
                        os.rename(path, place)
                        sync_directory(folder)
                    else:
                        _remove(path)
                elif _WRITTEN.fullmatch(name):
                    _remove(path)


def _remove(path: str) -> None:
    """Rename a directory, then remove it: no worker of a dead run finds it, and no run restores a half removed one.

    What cannot be removed keeps that name, for the next run.
    """
    name = os.path.join(os.path.dirname(path), f"{WRITTEN}{uuid.uuid4().hex}")
    os.rename(path, name)
    shutil.rmtree(name, ignore_errors=True)


def _refuse_others(root: str) -> None:
    """Raise UsageError if `root` is not a directory, or holds anything but snapshots."""
    names = Target(root, "").names()
    if not FACTS.keys().isdisjoint(names):
        hint = "add --table-format with their format, delta or iceberg, or choose another directory"
        raise UsageError(f"{root} holds tables or an export of another layout", hint=hint)
    require_empty(root, [name for name in names if name != LOCK and not name.startswith(CLUSTER_DIRECTORY)])


def _require_partitioning(root: str, label: SnapshotLabel) -> None:
    """Raise UsageError if the snapshots of the dataset have directories of topics and this one has not, or the other way round."""
    pattern = os.path.join(glob.escape(root), f"{CLUSTER_DIRECTORY}*", f"{SNAPSHOT_DIRECTORY}*", MANIFEST)
    with as_usage_errors(root):
        for path in glob.iglob(pattern):
            with open(path, encoding="ascii") as manifest:
                by_topic = bool(json.load(manifest)["partition_by"])
            if by_topic != label.by_topic:
                hint = "add --partition-by topic" if by_topic else "leave --partition-by out"
                raise UsageError(f"the snapshots of {root} are {'' if by_topic else 'not '}partitioned by topic", hint=hint)
            return


def _refuse_snapshots(root: str) -> None:
    """Raise UsageError if the dataset holds a snapshot; directories that killed runs left empty are removed."""
    for name in Target(root, "").names():
        if name.startswith(CLUSTER_DIRECTORY):
            with contextlib.suppress(OSError):
                os.rmdir(os.path.join(root, name))
                continue
            require_empty(root, [name])
