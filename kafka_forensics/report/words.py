"""Values as text of a report, with digits in groups and invisible letters of the evidence spelled out."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from kafka_forensics.model import amounts
from kafka_forensics.model.json_objects import time_text
from kafka_forensics.model.offset_ranges import Range, normalised
from kafka_forensics.model.safe_text import printable

UNKNOWN: Final = "not known"
_LETTERS_SHOWN: Final = 400
_ITEMS_SHOWN: Final = 24
_UNGROUPED: Final = re.compile(r"(?<![\w.:/+-])(?<!broker )(?<!epoch )(?<!producer )(?<!port )(?<!id )\d{4,}(?![\w:/+-]|\.\w)")
"""Numbers in sentences, without parts of names and times, and without ids."""


def shown(value: object, limit: int = _LETTERS_SHOWN) -> str:
    """`value`, or the first items of a list, cut to `limit` letters, with invisible letters spelled out; None is "not known"."""
    if value is None:
        return UNKNOWN
    if isinstance(value, list | tuple | set | frozenset):
        more = [f"{len(value) - _ITEMS_SHOWN} more"] if len(value) > _ITEMS_SHOWN else []
        return ", ".join([*(shown(item, limit) for item in list(value)[:_ITEMS_SHOWN]), *more]) or "none"
    text = str(value)
    return printable(text if len(text) <= limit else f"{text[: limit - 1]}…")


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


def grouped(sentence: str) -> str:
    """A sentence with the digits of its numbers in groups: `offsets 1,200 to 12,345`."""
    return _UNGROUPED.sub(lambda found: f"{int(found[0]):,}", sentence)


def bounds(least: int, most: int) -> str:
    """`70`, `70 to 115`, or `at most 115`."""
    return f"{most:,}" if least == most else f"{least:,} to {most:,}" if least else f"at most {most:,}"


def offsets(span: Range) -> str:
    """The offsets [start, end) with inclusive ends: `1,210–1,335`."""
    start, end = span
    return f"{start:,}" if end - start == 1 else f"{start:,}–{end - 1:,}" if end > start else "none"


def offset_list(ranges: Sequence[Range], most: int = 3) -> str:
    """The first of some ranges: `0–9, 20–29 and 4 more ranges`."""
    return amounts.first_few(map(offsets, ranges), most) + (" ranges" if len(ranges) > most else "")


def named(brokers: Iterable[int | str]) -> str:
    """`broker 2`, `brokers 1, 2 and 3`."""
    *others, last = (shown(broker, 40) for broker in brokers)
    return f"brokers {', '.join(others)} and {last}" if others else f"broker {last}"


def numbered(partitions: Iterable[int]) -> str:
    """Numbers of partitions in ranges: `0–3, 7`."""
    ranges = normalised((number, number + 1) for number in partitions)
    return ", ".join(f"{start}" if end - start == 1 else f"{start}–{end - 1}" for start, end in ranges)
