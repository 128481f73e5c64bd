"""JSON values, the format of numbers and times in JSON, and columns: a name and a function of an item, for JSON objects, tables and
datasets."""

import json
import operator
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

JsonValue = Any
"""A JSON value, or a value that is converted when it is written."""
Json = dict[str, JsonValue]
"""A JSON object."""
JsonArray = list[JsonValue]
"""A JSON array."""
JsonRow = tuple[JsonValue, ...]
"""Values in the order of columns."""
Columns = Mapping[str, Callable[..., object]]
"""Names in order → their value of an item."""

_TIME: Final = re.compile(r"(?:^|_)(?:timestamp|time|horizon|as_of)(?:_ms)?$")
_WIDE: Final = re.compile(r"(?:^|_)producer_ids?$")
_EXACT_IN_JSON: Final = 2**53
LAST_TIME_MS: Final = 253_402_300_799_999


def json_text(value: object) -> str:
    """`value` as JSON in one line of ASCII, without control characters and lone surrogates; the order stays."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, default=operator.index).replace("\x7f", "\\u007f")


def with_number_texts(evidence: JsonValue) -> JsonValue:
    """Evidence with text beside numbers: RFC 3339 beside times (`…_ms`), digits beside integers that JSON readers may round."""
    if isinstance(evidence, list | tuple):
        return [with_number_texts(item) for item in evidence]
    if not isinstance(evidence, dict):
        return evidence
    with_texts: Json = {}
    for key, value in evidence.items():
        name = str(key)
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        if is_integer and _TIME.search(name):
            plain = name.removesuffix("_ms")
            with_texts[f"{plain}_ms"] = value
            with_texts[plain] = rfc3339(value)
            continue
        with_texts[name] = with_number_texts(value)
        if is_integer and (_WIDE.search(name) or abs(value) > _EXACT_IN_JSON):
            with_texts[f"{name}_string"] = str(value)
        elif isinstance(value, list | tuple) and _WIDE.search(name):
            with_texts[f"{name}_string"] = [str(item) for item in value]
    return with_texts


def rfc3339(time_ms: int) -> str | None:
    """Milliseconds since 1970 as `2026-03-01T12:00:00.000Z`; None for -1 and times beyond the year 9999."""
    if not 0 <= time_ms <= LAST_TIME_MS:
        return None
    moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z"


def time_text(time_ms: int) -> str:
    """The same, or the number where that is None."""
    return rfc3339(time_ms) or str(time_ms)


def attribute(path: str) -> Callable[[object], JsonValue]:
    """A function that returns the attribute at `path`, names joined by dots; None if one before the last is None."""
    names = path.split(".")

    def value(item: object) -> JsonValue:
        for name in names:
            item = None if item is None else getattr(item, name)
        return item

    return value


def attributes(names: str, of: str = "") -> dict[str, Callable[..., object]]:
    """Columns for attribute names or `name=path`, in this order; `of` is a path before all of them."""
    prefix = f"{of}." if of else ""
    renamed = (name.partition("=") for name in names.split())
    return {name: attribute(prefix + (path or name)) for name, _, path in renamed}


def times(name: str, path: str | None = None) -> dict[str, Callable[..., object]]:
    """Two columns of the time at `path` (default `name_ms`): milliseconds as `name_ms`, text as `name`."""
    at_ms = attribute(path or f"{name}_ms")

    def text(item: object) -> str | None:
        time_ms = at_ms(item)
        return None if time_ms is None else rfc3339(time_ms)

    return {f"{name}_ms": at_ms, name: text}


def object_of(columns: Columns, item: object) -> Json:
    """The columns of one item as a JSON object."""
    return {name: value(item) for name, value in columns.items()}
