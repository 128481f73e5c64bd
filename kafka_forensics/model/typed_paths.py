"""What to type on a command line to reach the file of a place: a place names files within a log directory, users name inputs."""

import re
from typing import Final

from kafka_forensics.model.findings import Place

_ARCHIVE: Final = re.compile(r"(.*?[^/]\.(?:tar(?:\.gz|\.xz|\.zst)?|tgz|txz|tzst|zip))(?:/|$)", re.IGNORECASE | re.DOTALL)


def typed_words(place: Place) -> list[str] | None:
    """The words after a command that show the file at `place` and no more than its offsets; None where there is no file.

    An input that was a partition directory or one `.log` has the partition's name in `Place.file` although the input's path holds
    it already. A path ends at an archive, so its members are chosen by topic and partition.
    """
    if not place.file:
        return None
    inside = _ARCHIVE.match(place.log_dir or "")
    if inside is None:
        words = [_path((place.log_dir or "").rstrip("/"), place.file)]
    elif place.topic is None or place.partition is None:
        words = [inside[1]]
    else:
        words = [inside[1], "--topic", place.topic, "--partition", str(place.partition)]
    if place.file.endswith(".log") and place.offset_start is not None and place.offset_end is not None:
        words += ["--offset", f"{place.offset_start}:{place.offset_end}"]
    return words


def _path(log_dir: str, file: str) -> str:
    """The path of `file`, whatever kind of input `log_dir` names."""
    folder, _, name = file.partition("/")
    parent, _, last = log_dir.rpartition("/")
    if last == folder and name:  # a partition directory by itself
        return f"{log_dir}/{name}"
    if last.endswith(".log") and file.endswith(".log") and (parent.rpartition("/")[2] in {folder, "", ".", ".."} or last == name):
        return log_dir  # one file by itself
    return "/".join(part for part in (log_dir, file) if part)
