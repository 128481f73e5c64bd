"""The names of files and directories in a bundle, and the texts about them, with or without pseudonyms."""

import re
from collections.abc import Sequence
from typing import Final

from kafka_forensics.model.pseudonyms import NUMBERED_BROKER, NameKind, Pseudonyms
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.log_dir import (
    LOG_DIRECTORY_KINDS,
    PARTITION_KINDS,
    REMOTE_INDEX_CACHE,
    SYSTEM_DIRECTORIES,
    SYSTEM_FILES,
    parse_file_name,
    parse_partition_name,
    parse_remote_index_name,
)
from kafka_forensics.storage.source import Entry, EntryKind

_WITHOUT_NAMES: Final = re.compile(r"[a-z ,:]+")
"""Texts of this package or of the system that cannot have a name: no upper-case letter, digit, dot or slash."""
_HIDDEN_REASON: Final = "for a reason that is left out, because it may hold names"


def is_log_directory(listed: Sequence[Entry]) -> bool:
    """Whether a directory with these entries is one of a broker's `log.dirs`, whatever its name is."""
    names = (parse_file_name(entry.name) for entry in listed)
    return any(name is not None and name.kind in LOG_DIRECTORY_KINDS for name in names)


class BundleNames:
    """Names unchanged, or with `pseudonyms` for all names that are not Kafka's; a partition keeps its number and suffix."""

    def __init__(self, pseudonyms: Pseudonyms | None) -> None:
        self._pseudonyms = pseudonyms

    def directory(self, name: str, listed: Sequence[Entry] = (), *, in_log_directory: bool = False) -> str:
        """The name of a directory with these entries, inside a log directory or not; "" stays."""
        if self._pseudonyms is None or not name or name in SYSTEM_DIRECTORIES:
            return name
        is_log_dir = is_log_directory(listed)
        directories = [entry.name for entry in listed if entry.kind is EntryKind.DIRECTORY]
        if NUMBERED_BROKER.fullmatch(name) and (is_log_dir or directories):
            return name
        partition = None if is_log_dir else parse_partition_name(name)
        if partition is not None:
            return self._pseudonyms.pseudonym(NameKind.TOPIC, partition.topic) + name[len(partition.topic) :]
        if is_log_dir or any(map(parse_partition_name, directories)):  # the scan takes the broker's name from it
            return self._pseudonyms.pseudonym(NameKind.BROKER, name)
        is_alone = not in_log_directory and _has_segments(listed)  # the scan takes the topic's name from it
        return self._pseudonyms.pseudonym(NameKind.TOPIC if is_alone else NameKind.OTHER, name)

    def file(self, entry: Entry) -> str:
        """The name of a file, link or pipe."""
        name = entry.name
        if self._pseudonyms is None or name in SYSTEM_FILES or parse_file_name(name) is not None or _is_remote_index(entry):
            return name
        if entry.kind is not EntryKind.FILE and (name in SYSTEM_DIRECTORIES or parse_partition_name(name) is not None):
            return self.directory(name)
        return self._pseudonyms.pseudonym(NameKind.OTHER, name)

    def order(self, name: str) -> tuple[bool, str]:
        """The sort key of an entry in its directory: pseudonyms are not in the order of the names."""
        if self._pseudonyms is None or parse_file_name(name) is not None:
            return False, name
        return True, self._pseudonyms.one_time_pseudonym(NameKind.OTHER, name)

    def reason(self, reason: str | None) -> str | None:
        """Why something could not be read; the text may name the target of a link."""
        return reason if self._pseudonyms is None or reason is None or _WITHOUT_NAMES.fullmatch(reason) else _HIDDEN_REASON

    def incomplete(self, typed: str, path: str, reason: str) -> Incomplete:
        """What could not be read: by the path that the user `typed`, or with pseudonyms by its `path` in the bundle."""
        return Incomplete(typed if self._pseudonyms is None else path, self.reason(reason) or "")

    # The description of a bundle.

    def broker(self, broker: int | str | None) -> int | str | None:
        """The name of the broker."""
        if self._pseudonyms is None or not isinstance(broker, str) or NUMBERED_BROKER.fullmatch(broker):
            return broker
        return self._pseudonyms.pseudonym(NameKind.BROKER, broker)

    def text(self, kind: NameKind, text: str | None) -> str | None:
        """A host, a pattern of topic names, or a whole path that the user typed."""
        return text if self._pseudonyms is None or text is None else self._pseudonyms.pseudonym(kind, text)


def _is_remote_index(entry: Entry) -> bool:
    """Whether a file is the index of a remote segment: its name has the segment's id, and no name."""
    return f"/{entry.path}".endswith(f"/{REMOTE_INDEX_CACHE}/{entry.name}") and parse_remote_index_name(entry.name) is not None


def _has_segments(listed: Sequence[Entry]) -> bool:
    names = (parse_file_name(entry.name) for entry in listed)
    return any(name is not None and (name.offset is not None or name.kind in PARTITION_KINDS) for name in names)
