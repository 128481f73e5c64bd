"""Which disk is full: what an error of writing says, with the place at which the disk is mounted."""

import errno
import os
from typing import Final

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""There is no room, or none for this user."""


def why(error: OSError, path: str) -> str:
    """Why nothing could be written to `path`, in the system's words; of a disk that is full, also which one."""
    said = str(error.strerror or error)
    return f"{said}: {disk_of(path)} is full" if error.errno in FULL else said


def disk_of(path: str) -> str:
    """The disk that `path` lies on, or would lie on, by the directory at which it is mounted."""
    place = os.path.realpath(path)
    while not os.path.ismount(place) and (above := os.path.dirname(place)) != place:
        place = above
    return f"the disk mounted at {place}"
