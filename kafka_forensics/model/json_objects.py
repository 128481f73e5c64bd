"""JSON's objects and arrays, the one place where values may be of any kind; how numbers and times are written in them, and columns.

A column is a name and what it holds of an item; objects of JSON, rows of tables and of datasets are made of the same columns.
"""

import json
import operator
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

JsonValue = Any
"""A value that JSON has, or that becomes one where it is written."""
Json = dict[str, JsonValue]
"""Names, each with a value."""
JsonArray = list[JsonValue]
"""Values in an order."""
JsonRow = tuple[JsonValue, ...]
"""Values in the order of known columns."""
Columns = Mapping[str, Callable[..., object]]
"""Names in their order → what they hold of an item."""

# Values as the contract writes them in JSON: one line of ASCII, times and wide integers as numbers and as text.


_TIME: Final = re.compile(r"(?:^|_)(?:timestamp|time|horizon|as_of)(?:_ms)?$")
_WIDE: Final = re.compile(r"(?:^|_)producer_ids?$")
_EXACT_IN_JSON: Final = 2**53
LAST_TIME_MS: Final = 253_402_300_799_999


def json_text(value: object) -> str:
    """`value` as JSON in one line of ASCII, which no control character or half of a surrogate pair survives; order as given."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, default=operator.index).replace("\x7f", "\\u007f")


def with_twins(evidence: JsonValue) -> JsonValue:
    """Evidence as the contract writes numbers: times as `…_ms` beside RFC 3339 text, wide integers beside their digits."""
    if isinstance(evidence, list | tuple):
        return [with_twins(item) for item in evidence]
    if not isinstance(evidence, dict):
        return evidence
    twins: Json = {}
    for key, value in evidence.items():
        name = str(key)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if whole and _TIME.search(name):
            plain = name.removesuffix("_ms")
            twins[f"{plain}_ms"] = value
            twins[plain] = rfc3339(value)
            continue
        twins[name] = with_twins(value)
        if whole and (_WIDE.search(name) or abs(value) > _EXACT_IN_JSON):
            twins[f"{name}_string"] = str(value)
        elif isinstance(value, list | tuple) and _WIDE.search(name):
            twins[f"{name}_string"] = [str(item) for item in value]
    return twins


def rfc3339(time_ms: int) -> str | None:
    """Milliseconds since 1970 as `2026-03-01T12:00:00.000Z`; None for -1 and what no calendar holds."""
    if not 0 <= time_ms <= LAST_TIME_MS:
        return None
    moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z"


def time_text(time_ms: int) -> str:
    """The same for people: the bare number where there is no such time."""
    return rfc3339(time_ms) or str(time_ms)


# Columns of items, declared by the names of their attributes.


def attribute(path: str) -> Callable[[object], JsonValue]:
    """What stands at `path`, names with dots between them, of an item; None where a part of the way is None."""
    names = path.split(".")

    def value(item: object) -> JsonValue:
        for name in names:
            item = None if item is None else getattr(item, name)
        return item

    return value


def attributes(names: str, of: str = "") -> dict[str, Callable[..., object]]:
    """Columns called as attributes of an item, in this order, or as `name=path` says; those of what stands at `of` in the item."""
    prefix = f"{of}." if of else ""
    renamed = (name.partition("=") for name in names.split())
    return {name: attribute(prefix + (path or name)) for name, _, path in renamed}


def times(name: str, path: str | None = None) -> dict[str, Callable[..., object]]:
    """The time at `path` (else `name_ms`) twice: milliseconds as `name_ms`, and text as `name`."""
    at_ms = attribute(path or f"{name}_ms")

    def text(item: object) -> str | None:
        time_ms = at_ms(item)
        return None if time_ms is None else rfc3339(time_ms)

    return {f"{name}_ms": at_ms, name: text}


def object_of(columns: Columns, item: object) -> Json:
    """The columns of one item."""
    return {name: value(item) for name, value in columns.items()}
