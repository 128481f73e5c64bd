"""Whether retention has deleted the start of a log (`UnifiedLog.deleteOldSegments`), by age or by size."""

from typing import Final

from msgspec import Struct

DEFAULT_RETENTION_MS: Final = 7 * 24 * 3600 * 1000
DEFAULT_RETENTION_BYTES: Final = -1
SURELY_TOO_YOUNG_MS: Final = 3600 * 1000
"""No retention in common use deletes records younger than this; it serves where the retention is not known."""


class Retention(Struct, frozen=True):
    """A topic's `retention.ms` and `retention.bytes`, -1: unlimited; `is_known`: from settings that were read, not by default."""

    retention_ms: int = DEFAULT_RETENTION_MS
    retention_bytes: int = DEFAULT_RETENTION_BYTES
    is_known: bool = False

    @property
    def deletes(self) -> bool:
        """Whether it is limited at all."""
        return self.retention_ms >= 0 or self.retention_bytes >= 0

    def is_sure(self, head_timestamp_ms: int, now_ms: int) -> bool:
        """Whether unknown settings cannot have deleted the start of a log either; its last record has this timestamp."""
        return self.is_known or 0 <= now_ms - head_timestamp_ms <= SURELY_TOO_YOUNG_MS

    def certainly_keeps(self, head_timestamp_ms: int, now_ms: int, remaining_bytes: int) -> bool:
        """Whether retention has certainly not deleted this start of a log; see `explains`."""
        return explains(self, head_timestamp_ms, now_ms, remaining_bytes) is None and self.is_sure(head_timestamp_ms, now_ms)


NO_RETENTION: Final = Retention(-1, -1, is_known=True)


def retention_of(retention_ms: str | None, retention_bytes: str | None) -> Retention:
    """Retention from the text of the settings, None or not a number: not set."""
    time_limit, size_limit = _number(retention_ms), _number(retention_bytes)
    return Retention(
        DEFAULT_RETENTION_MS if time_limit is None else time_limit,
        DEFAULT_RETENTION_BYTES if size_limit is None else size_limit,
        time_limit is not None,
    )


def _number(text: str | None) -> int | None:
    digits = "" if text is None else text.strip().removeprefix("-")
    return int(text or "") if digits.isascii() and digits.isdigit() and len(digits) < 20 else None


def explains(retention: Retention, head_timestamp_ms: int, now_ms: int, remaining_bytes: int) -> str | None:
    """What has deleted the start of a log: `time`, `size`, or None: neither. `head_timestamp_ms` is the time of its last record.

    Time deletes a segment once its largest timestamp is too old; records without a timestamp (-1) count as oldest. Size deletes
    segments while the remaining ones still have `retention.bytes`.
    """
    if retention.retention_ms >= 0 and now_ms - head_timestamp_ms > retention.retention_ms:
        return "time"
    return "size" if 0 <= retention.retention_bytes <= remaining_bytes else None
