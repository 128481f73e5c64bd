"""Options that stood in a URI, taken out of it: from then on they hold for what lies at it and below, and its name can be shown.

They travel among the other options, one `at_N` for a URI, whose value says in JSON where it holds and what; so whoever opens a path
with all options, a worker of another machine too, reaches it as its user said.
"""

import json
import os
import re
from collections.abc import Iterable, Sequence
from typing import Final

from kafka_forensics.errors import UsageError
from kafka_forensics.storage.remote.uris import URI, remote_place

Pairs = tuple[tuple[str, str], ...]

_AT: Final = re.compile(r"at_\d+", re.ASCII)
_NAMES: Final = re.compile(r"\A(?:[^/=]*=)+(?=[A-Za-z][A-Za-z0-9+.-]*://)")
"""`NAME=` before a URI, also twice."""
_PATTERN: Final = re.compile(r"[*?\[]")
_LOCAL: Final = frozenset({"file"})


def apart(paths: Sequence[str], options: Iterable[tuple[str, str]]) -> tuple[list[str], Pairs]:
    """The paths without credentials and options of URIs among them, and all options; names before paths (`NAME=PATH`) stay.

    Raises UsageError for a URI that names nothing.
    """
    bare: list[str] = []
    pairs = tuple(options)
    said = dict.fromkeys(value for name, value in pairs if _AT.fullmatch(name))
    for path in paths:
        uri = _NAMES.sub("", path, count=1)
        head = path[: len(path) - len(uri)]
        match = URI.match(uri)
        if match is None or match[1].lower() in _LOCAL or os.path.lexists(path) or os.path.lexists(uri):
            bare.append(path)
            continue
        place = remote_place(uri)
        bare.append(head + place.name)
        if place.options:
            said[json.dumps({"at": _fixed(place.name), "options": place.options})] = None
    rest_of = tuple(pair for pair in pairs if not _AT.fullmatch(pair[0]))
    return bare, (*rest_of, *((f"at_{number}", value) for number, value in enumerate(said)))


def holding_at(uri: str, options: Iterable[tuple[str, str]]) -> Pairs:
    """The options for everything, and behind them those that hold at `uri`, of the nearest place last. Raises UsageError."""
    every: list[tuple[str, str]] = []
    near: list[tuple[str, list[tuple[str, str]]]] = []
    for name, value in options:
        if not _AT.fullmatch(name):
            every.append((name, value))
            continue
        try:
            told = json.loads(value)
            place, pairs = str(told["at"]), [(str(option), str(text)) for option, text in told["options"]]
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(f"there is no storage option {name}", hint="docs/storage.md tells them") from error
        if f"{uri.rstrip('/')}/".startswith(f"{place.rstrip('/')}/"):
            near.append((place, pairs))
    return (*every, *(pair for _, pairs in sorted(near, key=lambda one: len(one[0])) for pair in pairs))


def _fixed(name: str) -> str:
    """The part of a URI before the first name with a pattern in it."""
    found = _PATTERN.search(name)
    return name if found is None else name[: found.start()].rpartition("/")[0]
