"""Which retention would have deleted the head of a log (`UnifiedLog.deleteOldSegments`): its age, or the log's size."""

from dataclasses import dataclass
from typing import Final

DEFAULT_RETENTION_MS: Final = 7 * 24 * 3600 * 1000
DEFAULT_RETENTION_BYTES: Final = -1
SURELY_TOO_YOUNG_MS: Final = 3600 * 1000
"""A head younger than this is not deleted by any retention in common use, where nothing says which one holds."""


@dataclass(frozen=True, slots=True)
class Retention:
    """A topic's `retention.ms` and `retention.bytes`, -1 without limit; `is_known`: by settings that were read, not by default."""

    retention_ms: int = DEFAULT_RETENTION_MS
    retention_bytes: int = DEFAULT_RETENTION_BYTES
    is_known: bool = False

    @property
    def deletes(self) -> bool:
        """Whether it deletes anything, ever."""
        return self.retention_ms >= 0 or self.retention_bytes >= 0

    def is_sure(self, head_timestamp_ms: int, now_ms: int) -> bool:
        """Whether what it does not explain is not explained by settings that are not known either."""
        return self.is_known or 0 <= now_ms - head_timestamp_ms <= SURELY_TOO_YOUNG_MS

    def spares(self, head_timestamp_ms: int, now_ms: int, remaining_bytes: int) -> bool:
        """Whether it surely does not delete such a head; see `explains`."""
        spared = explains(self, head_timestamp_ms, now_ms, remaining_bytes) is None
        return spared and self.is_sure(head_timestamp_ms, now_ms)


NO_RETENTION: Final = Retention(-1, -1, is_known=True)


def retention_of(retention_ms: str | None, retention_bytes: str | None) -> Retention:
    """Retention by the settings' text, None where they are not set; what is no number is taken for not set."""
    numbers = [_number(retention_ms), _number(retention_bytes)]
    return Retention(
        DEFAULT_RETENTION_MS if numbers[0] is None else numbers[0],
        DEFAULT_RETENTION_BYTES if numbers[1] is None else numbers[1],
        numbers[0] is not None,
    )


def _number(text: str | None) -> int | None:
    digits = "" if text is None else text.strip().removeprefix("-")
    return int(text or "") if digits.isascii() and digits.isdigit() and len(digits) < 20 else None


def explains(retention: Retention, head_timestamp_ms: int, now_ms: int, remaining_bytes: int) -> str | None:
    """What deletes a head whose last record has this time from a log of which so many bytes remain: `time`, `size`, None: neither.

    A segment goes by time once its largest timestamp is older than allowed; a head whose last record is too young cannot have
    gone so. By size segments go while those that remain hold at least what is allowed. Records without a time (-1) are as old as
    can be.
    """
    if retention.retention_ms >= 0 and now_ms - head_timestamp_ms > retention.retention_ms:
        return "time"
    return "size" if 0 <= retention.retention_bytes <= remaining_bytes else None
