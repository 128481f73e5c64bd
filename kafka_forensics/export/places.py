"""Where an export goes, by what a user typed: a directory, or a URI of a storage service."""

import os

from kafka_forensics.export.target import Place, Target
from kafka_forensics.storage.uris import URI

Storage = tuple[tuple[str, str], ...]


def open_place(output: str, inputs: list[str], storage: Storage = ()) -> Place:
    """Begin an export. Raises UsageError if there is anything at `output`, it lies in an input, or cannot be written to."""
    if not is_remote(output):
        return Target.open(output, inputs)
    from kafka_forensics.export.remote_target import RemoteTarget

    return RemoteTarget.open(output, inputs, storage)


def join_place(path: str, token: str, storage: Storage = ()) -> Place:
    """Take part in an export at `absolute(output)`. Raises UsageError if it is not there, or cannot be written to."""
    if not is_remote(path):
        return Target.join(path, token)
    from kafka_forensics.export.remote_target import RemoteTarget

    return RemoteTarget.join(path, token, storage)


def is_remote(output: str) -> bool:
    """Whether it is a URI, and no file is called so."""
    return URI.match(output) is not None and not os.path.lexists(output)


def absolute(output: str) -> str:
    """The same place, whatever directory a process works in."""
    return output if is_remote(output) else os.path.abspath(output)


def inputs_named(paths: list[str]) -> list[str]:
    """What paths with or without a name before them may name."""
    return [path for given in paths for path in (given, given.partition("=")[2]) if path]
