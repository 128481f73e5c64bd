"""Documents that a user names: only regular files of limited size, because a pipe may block and a large file fills the memory."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final, cast

from kafka_forensics.errors import UsageError

MAX_BYTES: Final = 1 << 30
"""Largest document, and longest line of a file that is read line by line."""
_FILE_TYPES: Final = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


@contextmanager
def open_document(path: str, hint: str, *, max_bytes: int | None = MAX_BYTES) -> Iterator[BinaryIO]:
    """Open a regular file of at most `max_bytes`. Raises UsageError with `hint`, also for an OSError in the block."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            os.close(descriptor)
            raise UsageError(f"{path} is {_FILE_TYPES.get(stat.S_IFMT(info.st_mode), 'a device')}, not a regular file", hint=hint)
        with cast("BinaryIO", os.fdopen(descriptor, "rb")) as file:
            if max_bytes is not None and info.st_size > max_bytes:
                text = f"{path} is too large: it has {info.st_size:,} bytes, and at most {max_bytes:,} are read"
                raise UsageError(text, hint=hint)
            yield file
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint=hint) from error


def document_bytes(path: str, hint: str) -> bytes:
    """All bytes of a document. Raises UsageError."""
    with open_document(path, hint) as file:
        return file.read(MAX_BYTES)
