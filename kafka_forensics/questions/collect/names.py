"""By which names a bundle holds files and directories, and in which words it says what became of them."""

import re
from collections.abc import Sequence
from typing import Final

from kafka_forensics.model.pseudonyms import NUMBERED, NameKind, Pseudonyms
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

NameOrder = tuple[bool, str]
_OURS: Final = re.compile(r"[a-z ,:]+")
"""Words of this package or of the system, without any name in them: none has an upper-case letter, a digit, a dot or a slash."""
_UNSAID: Final = "for a reason that is not said, as it may hold names"


def is_log_directory(listed: Sequence[Entry]) -> bool:
    """Whether a directory is one entry of a broker's `log.dirs`, whatever its name is."""
    names = (parse_file_name(entry.name) for entry in listed)
    return any(name is not None and name.kind in LOG_DIRECTORY_KINDS for name in names)


class BundleNames:
    """Names as they are, or with `pseudonyms` for all but Kafka's own; a partition's stays one, with its suffix."""

    def __init__(self, pseudonyms: Pseudonyms | None) -> None:
        self._pseudonyms = pseudonyms

    def directory(self, name: str, listed: Sequence[Entry] = (), *, in_log_directory: bool = False) -> str:
        """What a directory of these entries is called, which lies in a log directory or does not; "" stays."""
        if self._pseudonyms is None or not name or name in SYSTEM_DIRECTORIES:
            return name
        is_log_dir = is_log_directory(listed)
        holds_directories = any(entry.kind is EntryKind.DIRECTORY for entry in listed)
        if NUMBERED.fullmatch(name) and (is_log_dir or holds_directories):
            return name
        partition = None if is_log_dir else parse_partition_name(name)
        if partition is not None:
            return self._pseudonyms.pseudonym(NameKind.TOPIC, partition.topic) + name[len(partition.topic) :]
        holds_partitions = any(entry.kind is EntryKind.DIRECTORY and parse_partition_name(entry.name) for entry in listed)
        if is_log_dir or holds_partitions:  # it names its broker where nothing else does
            return self._pseudonyms.pseudonym(NameKind.BROKER, name)
        is_alone = not in_log_directory and _holds_segments(listed)  # it is read as a topic of its name
        return self._pseudonyms.pseudonym(NameKind.TOPIC if is_alone else NameKind.OTHER, name)

    def file(self, entry: Entry) -> str:
        """What a file, a link or a pipe is called."""
        name = entry.name
        if self._pseudonyms is None or name in SYSTEM_FILES or parse_file_name(name) is not None or _is_remote_index(entry):
            return name
        if entry.kind is not EntryKind.FILE and (name in SYSTEM_DIRECTORIES or parse_partition_name(name) is not None):
            return self.directory(name)
        return self._pseudonyms.pseudonym(NameKind.OTHER, name)

    def order(self, name: str) -> NameOrder:
        """Where an entry stands among those of its directory: pseudonyms do not stand in the order of the names."""
        if self._pseudonyms is None or parse_file_name(name) is not None:
            return False, name
        return True, self._pseudonyms.unremembered(NameKind.OTHER, name)

    def reason(self, reason: str | None) -> str | None:
        """Why something could not be read, which may say where a link leads."""
        return reason if self._pseudonyms is None or reason is None or _OURS.fullmatch(reason) else _UNSAID

    def incomplete(self, typed: str, path: str, reason: str) -> Incomplete:
        """What could not be read at a path of the bundle; where names stay, by the path as it was given."""
        return Incomplete(typed if self._pseudonyms is None else path, self.reason(reason) or "")

    # What a bundle says of itself.

    def broker(self, broker: int | str | None) -> int | str | None:
        """What the broker is called that has the logs."""
        if self._pseudonyms is None or not isinstance(broker, str) or NUMBERED.fullmatch(broker):
            return broker
        return self._pseudonyms.pseudonym(NameKind.BROKER, broker)

    def host(self, host: str) -> str:
        """The machine that makes the bundle."""
        return host if self._pseudonyms is None else self._pseudonyms.pseudonym(NameKind.HOST, host)

    def path(self, path: str) -> str:
        """A path that was given, whole."""
        return path if self._pseudonyms is None else f"/{self._pseudonyms.pseudonym(NameKind.OTHER, path)}"

    def topics(self, pattern: str | None) -> str | None:
        """A pattern of topics' names."""
        return pattern if self._pseudonyms is None or pattern is None else self._pseudonyms.pseudonym(NameKind.TOPIC, pattern)


def _is_remote_index(entry: Entry) -> bool:
    """Whether a file is an index of a remote segment, whose name holds the segment's id and no name."""
    return f"/{entry.path}".endswith(f"/{REMOTE_INDEX_CACHE}/{entry.name}") and parse_remote_index_name(entry.name) is not None


def _holds_segments(listed: Sequence[Entry]) -> bool:
    names = (parse_file_name(entry.name) for entry in listed)
    return any(name is not None and (name.offset is not None or name.kind in PARTITION_KINDS) for name in names)
