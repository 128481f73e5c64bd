"""The description in a bundle."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BundleDescription:
    """Where, how and of what a bundle was made."""

    broker: int | str | None
    paths: tuple[str, ...]
    """Absolute paths on the machine where it was made."""
    is_deep: bool
    """Whether every batch was decoded."""
    live: bool
    is_selected: bool
    """Whether it has only selected partitions."""
    transaction_partitions: int
    """A lower bound for the partitions of `__transaction_state`; stated because pseudonyms of ids no longer show it."""
    redaction: str | None
    """The name of the key of its pseudonyms; None: it has real names."""
