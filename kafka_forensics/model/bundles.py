"""What a bundle says of itself."""

from dataclasses import dataclass


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
