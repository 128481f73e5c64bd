"""Where an export goes, by what a user typed: a directory, or a URI of a storage service."""

import os

from kafka_forensics.export.target import ExportPlace, Target
from kafka_forensics.storage.open import local_path

Storage = tuple[tuple[str, str], ...]


def open_place(output: str, inputs: list[str], storage: Storage = ()) -> ExportPlace:
    """Begin an export. Raises UsageError if there is anything at `output`, it lies in an input, or cannot be written to."""
    here = local_path(output)
    if here is not None:
        return Target.open(here, inputs)
    from kafka_forensics.export.remote_target import RemoteTarget

    return RemoteTarget.open(output, inputs, storage)


def join_place(path: str, token: str, storage: Storage = ()) -> ExportPlace:
    """Take part in an export at `absolute(output)`. Raises UsageError if it is not there, or cannot be written to."""
    here = local_path(path)
    if here is not None:
        return Target.join(here, token)
    from kafka_forensics.export.remote_target import RemoteTarget

    return RemoteTarget.join(path, token, storage)


def is_remote(output: str) -> bool:
    """Whether it is a URI of a storage service."""
    return local_path(output) is None


def absolute(output: str) -> str:
    """The same place, whatever directory a process works in."""
    here = local_path(output)
    return output if here is None else os.path.abspath(here)


def inputs_named(paths: list[str]) -> list[str]:
    """What paths with or without a name before them may name."""
    return [path for given in paths for path in (given, given.partition("=")[2]) if path]
