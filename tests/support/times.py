"""Times as facts have them, made from milliseconds by Python's calendar."""

from datetime import UTC, datetime, timedelta
from typing import Final

DAY: Final = timedelta(days=1)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
FIRST: Final = datetime.min.replace(tzinfo=UTC) + 2 * DAY
LAST: Final = datetime.max.replace(microsecond=999_000, tzinfo=UTC) - DAY


def time_of(milliseconds: int | None) -> datetime | None:
    """None for -1, and for times that no calendar holds in every time zone."""
    if milliseconds is None or milliseconds == -1:
        return None
    try:
        time = EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    return time if FIRST <= time <= LAST else None


def ms_of(time: datetime) -> int:
    """Milliseconds since 1970."""
    return (time - EPOCH) // timedelta(milliseconds=1)
