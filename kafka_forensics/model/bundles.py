"""What a bundle says of itself."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


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


class Detail(StrEnum):
    """What a bundle has of a log's batches."""

    BATCHES = "batches"
    """Each by itself."""
    BLOCKS = "blocks"
    """Sums of blocks of them, but for the newest and such as stand out."""


_OF_PRODUCERS: Final = "who wrote a batch, and with which sequence, is not known"
_OF_INDEXES: Final = "indexes are not collected beside blocks"
_APART: Final = "which batch of two blocks differs, and how, is not known"
_OF_ONE_HISTORY: Final = "it rests on logs being the same as far as both reach, which blocks that differ leave open"
UNTOLD_BY_BLOCKS: Final = {
    **dict.fromkeys(
        (
            "DUPLICATE_BATCH",
            "PRODUCER_EPOCH_REGRESSION",
            "PRODUCER_SEQ_GAP",
            "PRODUCER_SEQ_REGRESSION",
            "PRODUCER_SNAPSHOT_CORRUPT",
            "PRODUCER_SNAPSHOT_MISSING",
        ),
        _OF_PRODUCERS,
    ),
    **dict.fromkeys(("INDEX_MISMATCH", "SEGMENT_MISSING", "SEG_SHORT"), _OF_INDEXES),
    "RECOVERY_WOULD_TRUNCATE": "from which index entry a start reads on behind damage is not known",
    **dict.fromkeys(
        ("BATCHES_REENCODED", "FORK_ABOVE_HW", "FORK_BELOW_HW", "REPLICA_DIFFERS", "SAME_EPOCH_DIVERGENCE", "UNCLEAN_LOSS"), _APART
    ),
    **dict.fromkeys(
        (
            "COMMITTED_LOST_EVERYWHERE",
            "EMPTY_REPLICA_MAY_LEAD",
            "GROUP_OFFSET_BEYOND_LOG",
            "INCIDENT_SIGNATURE",
            "ISR_MEMBER_MISSING_COMMITTED",
            "LOG_HEAD_MISSING",
            "LRS_LOSS",
            "LRS_RISK",
            "READERS_HELD_BACK",
            "REPLICA_LAGS",
            "UNCLEAN_ELECTION",
        ),
        _OF_ONE_HISTORY,
    ),
    "OFFSET_GAP": "how many batches fitted into damaged bytes at a segment's end is not known",
    "KEY_PLACEMENT": "how keys are placed no bundle tells",
}
"""Kinds of findings that may be missing where only blocks of batches are known, and why."""


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
    tool_version: str
    started_ms: int
    with_records: bool
    """Whether batches of any partition were asked for whole, payloads and all."""
    host: str | None
    """As it calls itself."""
    transaction_partitions: int
    """Of the transaction coordinators' log at least, by the ids in it: told where these are pseudonyms, which do not."""
    redaction: str | None
    """Where pseudonyms stand for names: by which key, as its name says."""
    detail: "Detail | None"
    """Of what is known of all logs that may be in blocks; None where it was chosen log by log."""
