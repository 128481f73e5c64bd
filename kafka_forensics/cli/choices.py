"""Names to choose from, and what a mistyped one was probably meant to be."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from kafka_forensics.errors import UsageError, did_you_mean

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DATE_DIGITS: Final = 8
"""20260301 is a day."""
_MOST_DIGITS: Final = 15


def choose(what: str, name: str, names: Iterable[str]) -> str:
    """`name` if it is one of `names`. Raises UsageError with the nearest name, or all of them, as hint."""
    known = list(names)
    if name in known:
        return name
    raise UsageError(f"there is no {what} {name!r}", hint=did_you_mean(name, known, otherwise=f"choose from {', '.join(known)}"))


def time_ms(text: str) -> int:
    """Milliseconds since 1970 of an ISO 8601 time (UTC if it names no zone) or of such a number. Raises UsageError."""
    if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS and len(text) != _DATE_DIGITS:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{text!r} is not a time", hint="write it like 2026-03-01T12:00:00Z, or as milliseconds since 1970"
        ) from None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(milliseconds=1)
