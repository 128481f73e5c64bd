"""Whose it is what could not be read: broker, topic and partition by the place of a file."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kafka_forensics.evidence.inputs import Inputs, LogDir
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.log_dir import parse_partition_name


def attributed(gaps: Iterable[Incomplete], log_dirs: Sequence[LogDir]) -> list[Incomplete]:
    """`gaps` with the broker in whose log directory each lies, and the partition whose directory it is in or is.

    A gap that is a log directory itself, or holds some, is of nobody: what lies in it is not known.
    """
    by_name = {log_dir.name.rstrip(os.sep): log_dir for log_dir in log_dirs}
    return [_attributed(gap, by_name) for gap in gaps]


def may_hide_log_directory(inputs: Inputs) -> bool:
    """Whether something that was given may be or hold a log directory, and could not be read: a cut archive, a link not followed.

    What a copy in it holds is not known, so that nothing is lost everywhere.
    """
    cut = any(source.problems for source in inputs.sources)
    return cut or any(gap.broker is None for gap in attributed(inputs.incomplete, inputs.log_dirs))


def _attributed(gap: Incomplete, by_name: dict[str, LogDir]) -> Incomplete:
    if gap.broker is not None:
        return gap
    log_dir, inside = _around(gap.path, by_name)
    if log_dir is None:
        return gap
    lone = {
        (directory.topic, directory.partition) for directory in log_dir.found.partitions if directory.path == log_dir.found.path
    }
    if lone:  # the log directory is one partition's, or one file
        topic, partition = next(iter(lone))
        return replace(gap, topic=topic, partition=partition, broker=log_dir.broker)
    if not inside:
        return gap
    name = parse_partition_name(inside.split(os.sep, 1)[0])
    if name is None:
        return replace(gap, broker=log_dir.broker)
    return replace(gap, topic=name.topic, partition=name.partition, broker=log_dir.broker)


def _around(path: str, by_name: dict[str, LogDir]) -> tuple[LogDir | None, str]:
    """The innermost log directory that `path` is or lies in, and the path within it."""
    end = len(path)
    while end > 0:
        if (log_dir := by_name.get(path[:end].rstrip(os.sep))) is not None:
            return log_dir, path[end:].lstrip(os.sep)
        end = path.rfind(os.sep, 0, end)
    return None, ""
