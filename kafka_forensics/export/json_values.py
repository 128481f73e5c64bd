"""Values as the contract writes them in JSON: one line of ASCII, times and wide integers as numbers and as text."""

import json
import operator
import re
from datetime import UTC, datetime
from typing import Any, Final

Json = dict[str, Any]

_TIME: Final = re.compile(r"(?:^|_)(?:timestamp|time|horizon|as_of)(?:_ms)?$")
_WIDE: Final = re.compile(r"(?:^|_)producer_ids?$")
_EXACT_IN_JSON: Final = 2**53
_LAST_TIME_MS: Final = 253_402_300_799_999


def json_text(value: Any) -> str:
    """`value` as JSON in one line of ASCII, which no control character or half of a surrogate pair survives; order as given."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, default=operator.index).replace("\x7f", "\\u007f")


def with_twins(evidence: Any) -> Any:
    """Evidence as the contract writes numbers: times as `…_ms` beside RFC 3339 text, wide integers beside their digits."""
    if isinstance(evidence, list | tuple):
        return [with_twins(each) for each in evidence]
    if not isinstance(evidence, dict):
        return evidence
    told: Json = {}
    for key, value in evidence.items():
        name = str(key)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if whole and _TIME.search(name):
            plain = name.removesuffix("_ms")
            told[f"{plain}_ms"] = value
            told[plain] = rfc3339(value)
            continue
        told[name] = with_twins(value)
        if whole and (_WIDE.search(name) or abs(value) > _EXACT_IN_JSON):
            told[f"{name}_string"] = str(value)
        elif isinstance(value, list | tuple) and _WIDE.search(name):
            told[f"{name}_string"] = [str(each) for each in value]
    return told


def rfc3339(time_ms: int) -> str | None:
    """Milliseconds since 1970 as `2026-03-01T12:00:00.000Z`; None for -1 and what no calendar holds."""
    if not 0 <= time_ms <= _LAST_TIME_MS:
        return None
    moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z"
