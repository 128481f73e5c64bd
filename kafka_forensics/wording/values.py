"""Numbers and lists of the evidence in words, printable and short. Evidence may be hostile: nothing here raises for it."""

from datetime import UTC, datetime
from typing import Final, SupportsIndex

TEXT_LIMIT: Final = 160
LIST_LIMIT: Final = 6
_UNITS: Final = ((172_800, 86_400, 3600, ("d", "h")), (3600, 3600, 60, ("h", "min")), (60, 60, 1, ("min", "s")))
"""From how many seconds on, how many each of two units has, and their names."""


def clean(value: object, limit: int = TEXT_LIMIT) -> str:
    """`value` as printable text of bounded length; of anything but text, numbers and lists of them only its type."""
    if isinstance(value, (list, tuple)) and limit:
        return ", ".join(clean(each, limit // 4) for each in value[:LIST_LIMIT])
    if isinstance(value, SupportsIndex):
        number = int(value)
        return str(number) if number.bit_length() <= 128 else "a huge number"
    text = str(value) if isinstance(value, (str, float)) else f"({type(value).__name__})"
    shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text[:limit])
    return shown if len(text) <= limit else f"{shown}…"


def listed(value: object) -> str | None:
    """`1 and 2`, or `a: x and b: y`: the first few of many, None for nothing; anything else as it is."""
    if isinstance(value, dict):
        items = [f"{clean(key, 40)}: {clean(each, 60)}" for key, each in list(value.items())[:LIST_LIMIT]]
    elif isinstance(value, (list, tuple)):
        items = [clean(each, 72) for each in value[:LIST_LIMIT]]
    else:
        return clean(value)
    if len(value) > len(items):
        items.append(f"{len(value) - len(items)} more")
    return " and ".join(each for each in (", ".join(items[:-1]), *items[-1:]) if each) or None


def named_brokers(value: object) -> str | None:
    """`broker 2`, `brokers 1 and 2`; None for nothing."""
    return f"broker{'s' if len(value) > 1 else ''} {listed(value)}" if isinstance(value, (list, tuple)) and value else None


def copies_on(value: object) -> str | None:
    """`a good copy is on broker 2`, `good copies are on brokers 1 and 2`."""
    holders = named_brokers(value)
    return holders and (f"good copies are on {holders}" if holders.startswith("brokers") else f"a good copy is on {holders}")


def amount(value: object, noun: str) -> str:
    """`1 batch`, `2 batches`; without a noun a number or a word as it is."""
    number = clean(value)
    plural = "" if number == "1" or not noun else "es" if noun.endswith("ch") else "s"
    return f"{number} {noun}{plural}".rstrip()


def moment(value: object) -> str:
    """Milliseconds as a UTC time, or the bare number where there is no such time."""
    if isinstance(value, int) and 0 <= value < 253_402_300_800_000:
        return datetime.fromtimestamp(value // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return clean(value)


def duration(milliseconds: object) -> str:
    """A time that passed, in its two largest units: `22 h 5 min`; `unknown` for what is none."""
    if not isinstance(milliseconds, int) or not 0 <= milliseconds < 1 << 63:
        return "unknown"
    seconds = milliseconds // 1000
    for least, large, small, units in _UNITS:
        if seconds >= least:
            rest = seconds % large // small
            return f"{seconds // large} {units[0]}" + (f" {rest} {units[1]}" if rest else "")
    return f"{seconds} s"


def span(start: object, end: object, noun: str) -> str | None:
    """`offset 5` for exclusive end 6, `offsets 5 to 9` for 10."""
    if not isinstance(start, int) or start < 0:
        return None
    if isinstance(end, int) and end > start + 1:
        return f"{noun}s {clean(start)} to {clean(end - 1)}"
    return f"{noun} {clean(start)}"
