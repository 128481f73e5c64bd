"""Pseudonyms: what names are of, and what gives each the word that stands for it."""

import re
from enum import StrEnum
from typing import Final, Protocol


class NameKind(StrEnum):
    """What a name is of; how its pseudonym begins."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "txn"
    BROKER = "broker"
    """One that is named otherwise than by a number."""
    CLIENT = "client"
    HOST = "host"
    CLUSTER = "cluster"
    OTHER = "name"
    """Paths that were given, and files and directories that are none of Kafka's."""


PSEUDONYM_DIGITS: Final = 12
"""Of a pseudonym at least, hexadecimal; one has more where two would be alike."""
PSEUDONYM: Final = re.compile(rf"(?P<kind>{'|'.join(NameKind)})-[0-9a-f]{{{PSEUDONYM_DIGITS},64}}")
NUMBERED: Final = re.compile(r"(?:broker|node|controller|kafka)?[-_]?\d+", re.IGNORECASE)
"""Names of brokers that say nothing."""


class Pseudonyms(Protocol):
    """Gives each name its pseudonym, the same every time."""

    def __hash__(self) -> int: ...

    @property
    def key_name(self) -> str:
        """16 hexadecimal digits by which keys of pseudonyms are told apart, and which tell nothing of them."""

    def digests_key(self) -> bytes:
        """The key with which contents are digested by all who have the map: 32 bytes."""

    def pseudonym(self, kind: NameKind, name: str) -> str:
        """What stands for a name; Kafka's own names, and pseudonyms, stand for themselves."""

    def unremembered(self, kind: NameKind, name: str) -> str:
        """The same of a name that need not be found again, as there may be very many."""
