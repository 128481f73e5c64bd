"""Values as the report writes them: times, sizes, and whatever evidence holds, freed of what cannot be seen."""

from typing import Final

from kafka_forensics.model.json_objects import rfc3339

UNKNOWN: Final = "not known"
_LETTERS_SHOWN: Final = 400
_ITEMS_SHOWN: Final = 24
_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def shown(value: object, limit: int = _LETTERS_SHOWN) -> str:
    """`value` as text, cut, of a list the first items; a letter without a form of its own is spelled out. None is "not known"."""
    if value is None:
        return UNKNOWN
    if isinstance(value, list | tuple | set | frozenset):
        more = [f"{len(value) - _ITEMS_SHOWN} more"] if len(value) > _ITEMS_SHOWN else []
        return ", ".join([*(shown(item, limit) for item in list(value)[:_ITEMS_SHOWN]), *more]) or "none"
    text = str(value)
    kept = text if len(text) <= limit else f"{text[: limit - 1]}…"
    if kept.isascii() and kept.isprintable():
        return kept
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in kept)


def moment(time_ms: int | None) -> str:
    """A UTC time with its milliseconds; the bare number where no calendar has it."""
    if time_ms is None or time_ms < 0:
        return UNKNOWN
    return rfc3339(time_ms) or str(time_ms)


def number(count: int | None) -> str:
    """`12,345`."""
    return UNKNOWN if count is None else f"{count:,}"


def size(count: int | None) -> str:
    """`1.4 GiB (1,503,238,553 bytes)`."""
    if count is None:
        return UNKNOWN
    if count < 1024:
        return f"{count:,} byte{'' if count == 1 else 's'}"
    unit = min((count.bit_length() - 1) // 10, len(_UNITS))
    return f"{count / (1 << 10 * unit):.1f} {_UNITS[unit - 1]} ({count:,} bytes)"


def plural(count: int, noun: str) -> str:
    """`1 partition`, `2 partitions`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
