"""What a bundle says of itself."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Digests:
    """By which way contents were digested: those of one way can be compared. The `key` is None if it is not known."""

    is_keyed: bool = False
    name: str = ""
    """Of the key."""
    key: bytes | None = None
    is_secret: bool = False
    """Whether the key may not be put into a bundle."""
    is_drawn: bool = False
    """Whether the key was drawn for this bundle; one that is gone on with keeps its own."""

    def agree(self, other: "Digests") -> bool:
        """Whether what was digested by both can be compared."""
        return (self.is_keyed, self.name) == (other.is_keyed, other.name)


@dataclass(frozen=True, slots=True)
class About:
    """Who made a bundle, where and how; words come from outside."""

    broker: int | str | None
    paths: tuple[str, ...]
    """As absolute paths there."""
    is_deep: bool
    """Whether every batch was opened to tell what is wrong inside."""
    live: bool
    digests: Digests
    is_selected: bool
    """Whether it holds only partitions that were asked for."""
    host: str | None
    """As it calls itself."""
    transaction_partitions: int
    """Of the transaction coordinators' log at least, by the ids in it: told where these are pseudonyms, which do not."""
    redaction: str | None
    """Where pseudonyms stand for names: by which key, as its name says."""
