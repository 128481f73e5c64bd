"""Pseudonyms of names, by kind of name."""

import re
from enum import StrEnum
from typing import Final, Protocol


class NameKind(StrEnum):
    """The kind of a name, which starts its pseudonym."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "txn"
    BROKER = "broker"
    """A broker whose name is not a number."""
    CLIENT = "client"
    HOST = "host"
    CLUSTER = "cluster"
    OTHER = "name"
    """Input paths, and files and directories that do not belong to Kafka."""


PSEUDONYM_DIGITS: Final = 12
"""The least number of hexadecimal digits; equal pseudonyms get more."""
PSEUDONYM: Final = re.compile(rf"(?P<kind>{'|'.join(NameKind)})-[0-9a-f]{{{PSEUDONYM_DIGITS},64}}")
NUMBERED_BROKER: Final = re.compile(r"(?:broker|node|controller|kafka)?[-_]?\d+", re.IGNORECASE)
"""Names of brokers that reveal nothing."""


class Pseudonyms(Protocol):
    """Gives each name its pseudonym, always the same."""

    def __hash__(self) -> int: ...

    @property
    def key_name(self) -> str:
        """16 hexadecimal digits that identify the key without revealing it."""

    def digests_key(self) -> bytes:
        """The key of content digests, 32 bytes, the same for everyone with the map."""

    def pseudonym(self, kind: NameKind, name: str) -> str:
        """The pseudonym of a name; Kafka's own names and pseudonyms stay as they are."""

    def one_time_pseudonym(self, kind: NameKind, name: str) -> str:
        """The same for one of very many names, which the map does not keep."""
