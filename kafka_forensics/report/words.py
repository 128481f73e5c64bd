"""Values as text of a report, with invisible letters of the evidence spelled out."""

from typing import Final

from kafka_forensics.model import amounts
from kafka_forensics.model.json_objects import time_text
from kafka_forensics.wording import escape_unprintable

UNKNOWN: Final = "not known"
_LETTERS_SHOWN: Final = 400
_ITEMS_SHOWN: Final = 24


def shown(value: object, limit: int = _LETTERS_SHOWN) -> str:
    """`value`, or the first items of a list, cut to `limit` letters, with invisible letters spelled out; None is "not known"."""
    if value is None:
        return UNKNOWN
    if isinstance(value, list | tuple | set | frozenset):
        more = [f"{len(value) - _ITEMS_SHOWN} more"] if len(value) > _ITEMS_SHOWN else []
        return ", ".join([*(shown(item, limit) for item in list(value)[:_ITEMS_SHOWN]), *more]) or "none"
    text = str(value)
    return escape_unprintable(text if len(text) <= limit else f"{text[: limit - 1]}…")


def moment(time_ms: int | None) -> str:
    """A UTC time with its milliseconds; the number where it is outside the calendar."""
    if time_ms is None or time_ms < 0:
        return UNKNOWN
    return time_text(time_ms)


def number(count: int | None) -> str:
    """`12,345`."""
    return UNKNOWN if count is None else f"{count:,}"


def plural(count: int, noun: str) -> str:
    """`1 partition`, `2,000 partitions`."""
    return amounts.plural(f"{count:,}", noun)
