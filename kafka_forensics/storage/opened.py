"""Which files and directories this process reads as evidence: nothing is ever kept inside of them, or above."""

import os
from pathlib import PurePath

Identity = tuple[int, int]
"""(device, inode)."""

_inputs: dict[Identity, str] = {}
"""Identity of each input → its path, links resolved."""
_above_inputs: dict[Identity, str] = {}
"""Identity of each directory above an input → its path, links resolved."""


def note_input(path: str) -> None:
    """`path`, a file or directory, is read as evidence from now on; a missing path is ignored."""
    real = os.path.realpath(path)
    identity = _identity(real)
    if identity is None:
        return
    _inputs[identity] = real
    for directory in map(str, PurePath(real).parents):
        above = _identity(directory)
        if above is not None:
            _above_inputs[above] = directory


def is_input(info: os.stat_result) -> bool:
    """Whether this is a file or directory that is read as evidence."""
    return _is_known(_inputs, info)


def is_above_input(info: os.stat_result) -> bool:
    """Whether this is a directory with evidence somewhere below it."""
    return _is_known(_above_inputs, info)


def _identity(path: str) -> Identity | None:
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_dev, info.st_ino


def _is_known(known: dict[Identity, str], info: os.stat_result) -> bool:
    """Whether this is one of the known paths; an inode that was deleted may have been given to another."""
    identity = info.st_dev, info.st_ino
    path = known.get(identity)
    return path is not None and _identity(path) == identity
