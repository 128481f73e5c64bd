"""Ranges on the command line: `A..B` with both ends included, `A..`, `..B`, or `A` alone."""

import re
from datetime import date
from typing import Final

from kafka_forensics.cli.options import time_ms
from kafka_forensics.errors import UsageError
from kafka_forensics.model.constants import INT64_MAX

OFFSETS_METAVAR: Final = "A..B"
OFFSETS_HELP: Final = "A and B included; also A.., ..B, and A alone."
_OFFSETS_HINT: Final = "write it like 100..199 (with both ends), 100.., ..199 or 100"
_TIMES_HINT: Final = "write it like 2026-03-01T12:00:00Z..2026-03-01T12:05:00Z (with both ends), or a day like 2026-03-01"
_TIME_OF_DAY: Final = re.compile(r"\D\d\d(?P<minute>:?\d\d)?(?P<second>:?\d\d)?(?P<fraction>[.,]\d+)?(?:Z|[+-][\d:.]+)?$")
_DAY_MS: Final = 86_400_000
_UNITS_MS: Final = (("fraction", 1), ("second", 1000), ("minute", 60_000))
"""The smallest part of a time of day, and how long it lasts."""

Bounds = tuple[int | None, int | None]
"""[start, end); None: no bound."""


def offsets(text: str | None) -> Bounds:
    """The offsets of a range. Raises UsageError."""
    if text is None:
        return None, None
    ends = _ends(text)
    if ends is None or not all(end.isascii() and end.isdecimal() and len(end) < 20 and int(end) < INT64_MAX for end in ends if end):
        raise UsageError(f"{text!r} is not a range of offsets", hint=_OFFSETS_HINT)
    first, last = ends
    return _bounds(text, int(first) if first else None, int(last) + 1 if last else None, _OFFSETS_HINT)


def times(text: str | None) -> Bounds:
    """The milliseconds of a range of times. Raises UsageError.

    An end includes all that it names: a day all of it, `12:05` that minute, `12:05:00` that second.
    """
    if text is None:
        return None, None
    ends = _ends(text)
    if ends is None:
        raise UsageError(f"{text!r} is not a range of times", hint=_TIMES_HINT)
    first, last = ends
    end_ms = time_ms(last) + _duration_ms(last) if last else None
    return _bounds(text, time_ms(first) if first else None, end_ms, _TIMES_HINT)


def _ends(text: str) -> tuple[str, str] | None:
    """First and last of a range as typed, empty if omitted; None if both are."""
    first, dots, last = text.partition("..")
    return (first, last if dots else first) if first or last else None


def _bounds(text: str, start: int | None, end: int | None, hint: str) -> Bounds:
    if start is not None and end is not None and end <= start:
        raise UsageError(f"{text!r} ends before it starts", hint=hint)
    return start, end


def _duration_ms(text: str) -> int:
    """How long the time lasts that a valid text names."""
    if text.isdecimal():  # milliseconds, or a day without hyphens
        return _DAY_MS if len(text) == len("20260301") else 1
    try:
        date.fromisoformat(text)
    except ValueError:
        match = _TIME_OF_DAY.search(text)
        return next((milliseconds for part, milliseconds in _UNITS_MS if match is None or match[part]), 3_600_000)
    return _DAY_MS
