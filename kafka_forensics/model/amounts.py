"""Counts and sizes as text. Pages group digits (`12,345`); terminals do not, because people search and copy there."""

from collections.abc import Iterable

_UNITS = ("B", "kB", "MB", "GB", "TB")


def plural(count: int | str, noun: str) -> str:
    """`1 batch`, `2 batches`, `0 segments`; `count` may be formatted already."""
    return f"{count} {noun}" + ("" if str(count) == "1" else "es" if noun.endswith("ch") else "s")


def first_few(names: Iterable[str], most: int) -> str:
    """The first `most` names and the number of the rest: `a, b and 3 more`."""
    all_names = list(names)
    return ", ".join(all_names[:most]) + (f" and {len(all_names) - most} more" if len(all_names) > most else "")


def size(size_in_bytes: int) -> str:
    """Bytes in powers of 1000: `20774` is `20.8 kB`."""
    amount = float(size_in_bytes)
    for unit in _UNITS:
        if amount < 999.5:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.4g} PB"


def exact_size(size_in_bytes: int) -> str:
    """A size with its bytes, for a page: `20.8 kB (20,774 bytes)`."""
    exact = plural(f"{size_in_bytes:,}", "byte")
    return exact if size_in_bytes < 1000 else f"{size(size_in_bytes)} ({exact})"
