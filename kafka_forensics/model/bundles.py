"""What a bundle says of itself."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Digests:
    """How contents were digested: by BLAKE2b without a key, or with that of a map of pseudonyms.

    Digests that were made in equal ways can be compared.
    """

    key_name: str | None = None
    """Of the map's key, which no bundle holds; None: without a key."""


@dataclass(frozen=True, slots=True)
class About:
    """Who made a bundle, where and how; words come from outside."""

    broker: int | str | None
    paths: tuple[str, ...]
    """As absolute paths there."""
    is_deep: bool
    """Whether every batch was opened to tell what is wrong inside."""
    live: bool
    is_selected: bool
    """Whether it holds only partitions that were asked for."""
    transaction_partitions: int
    """Of the transaction coordinators' log at least, by the ids in it: told where these are pseudonyms, which do not."""
    redaction: str | None
    """Where pseudonyms stand for names: by which key, as its name says."""

    @property
    def digests(self) -> Digests:
        """How contents were digested."""
        return Digests(self.redaction)
