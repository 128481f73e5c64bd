"""Files that only their owner can read, whatever the umask: they contain payloads of records."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700


def open_private(path: str, flags: int) -> int:
    """An `opener` that sets mode 0600, also of an existing file; pipes and devices keep their mode. Raises OSError."""
    descriptor = os.open(path, flags & ~os.O_TRUNC, FILE_MODE)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.fchmod(descriptor, FILE_MODE)
            os.ftruncate(descriptor, 0)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def private_files(directory: str | None = None) -> Iterator[None]:
    """Create files with mode 0600 and directories with 0700 in the block; an existing empty `directory` gets 0700 after it."""
    was_empty = directory is not None and os.path.isdir(directory) and not os.listdir(directory)
    umask = os.umask(stat.S_IRWXG | stat.S_IRWXO)
    try:
        yield
    finally:
        os.umask(umask)
    if was_empty:
        with suppress(PermissionError):  # another user's directory: the files in it are private
            os.chmod(str(directory), DIRECTORY_MODE)
