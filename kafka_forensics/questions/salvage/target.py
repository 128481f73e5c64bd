"""The directory that a salvage goes to: built under another name, put on disk, and renamed last; never half there."""

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kafka_forensics.errors import UsageError
from kafka_forensics.storage.disks import UNFINISHED, sync, sync_file, why
from kafka_forensics.storage.private import private_files

_AT_ONCE: Final = 8
"""Files that are put on disk at a time."""


@contextmanager
def built(output: Path) -> Iterator[Path]:
    """The directory to build in, which becomes `output` if the `with` block ends well, and is removed if not.

    Raises UsageError for an output that holds anything or is a mount point, one that another process builds (or
    that was killed while it did), and where nothing can be written.
    """
    output = output.resolve()
    beside = output.with_name(output.name + UNFINISHED)
    with _explained(output), private_files():
        if output.exists() and any(output.iterdir()):
            raise UsageError(f"{output} is not empty", hint="choose a directory that is empty or does not exist yet")
        if output.is_mount():
            hint = f"name a directory in it, as {output / 'salvaged'}: it is built beside its place, on the same disk"
            raise UsageError(f"{output} is where a disk is mounted, and cannot be given its name at the end", hint=hint)
        try:
            beside.mkdir()
        except FileExistsError:
            hint = "if no salvage is running, one was killed there: remove that directory, and run this command again"
            raise UsageError(f"{beside} is there already", hint=hint) from None
        try:
            yield beside
            put_on_disk(beside)
            beside.rename(output)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
    try:
        sync(str(output.parent))
    except OSError as error:
        text = f"{output} is whole, but its name may not be on disk: {why(error, str(output.parent))}"
        raise UsageError(text, hint="look for it after the next start of this machine, before the copies go") from error


@contextmanager
def _explained(output: Path) -> Iterator[None]:
    """Errors of the file system, which can only be of writing, as UsageError."""
    try:
        yield
    except OSError as error:
        text = f"cannot write {output}: {why(error, str(output.parent))}"
        raise UsageError(text, hint="nothing of it is left there; choose another place, or make room") from error


def put_on_disk(root: Path) -> None:
    """Wait until all that is below `root` is on disk, files before the names that they have. Raises OSError."""
    with ThreadPoolExecutor(_AT_ONCE) as beside:
        for folder, _, names in os.walk(root, topdown=False):
            list(beside.map(sync_file, [Path(folder, name) for name in names]))
            sync(folder)
