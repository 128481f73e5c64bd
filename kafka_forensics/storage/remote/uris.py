"""URIs of evidence: what they name, and the credentials in them, which are taken out before anything else sees them."""

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote

from kafka_forensics.errors import UsageError

URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
ALIASES: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "viewfs": "hdfs"}
"""Other names of schemes that pyarrow opens."""
NATIVE: Final = ("s3", "gs", "abfs", "hdfs")
"""Schemes that pyarrow opens itself."""
OPTIONS_IN_URIS: Final = frozenset(
    {"endpoint", "endpoint_override", "region", "scheme", "access_key", "secret_key", "session_token", "anonymous", "block_mib"}
)
"""What may stand behind a `?`; any other question mark is part of a name."""


@dataclass(frozen=True, slots=True)
class RemotePlace:
    """What a URI names: `name` is the URI without credentials and options, `root` what stands behind the scheme of it."""

    name: str
    scheme: str
    """One of `NATIVE`, or a scheme of fsspec."""
    root: str
    options: tuple[tuple[str, str], ...] = ()
    """What the URI said about how to reach it."""

    def __repr__(self) -> str:
        return f"RemotePlace({self.name!r})"


def remote_place(uri: str) -> RemotePlace:
    """What `uri` names. Nothing in it is decoded: a key with a percent sign is written as it is. Raises UsageError."""
    match = URI.match(uri)
    assert match is not None
    typed = match[1].lower()
    scheme = ALIASES.get(typed, typed)
    rest, options = _without_query(uri[match.end() :], scheme)
    authority, slash, path = rest.partition("/")
    user, at, host = authority.rpartition("@")
    if at:
        taken, kept = _credentials(scheme, user)
        options += taken
        authority = f"{kept}@{host}" if kept else host
    root = (authority + slash + path).rstrip("/")
    name = f"{typed}://{root}"
    if scheme in NATIVE and scheme != "hdfs" and not authority:
        raise UsageError(f"{name}: names no bucket", hint=f"write {typed}://bucket/path")
    if "\0" in root or any(part in {".", ".."} for part in root.split("/")):
        raise UsageError(f"{name}: a path with . or .. in it", hint="write the path of the object or directory itself")
    return RemotePlace(name, scheme, root, tuple(options))


def _without_query(rest: str, scheme: str) -> tuple[str, list[tuple[str, str]]]:
    """What stands before the `?`, and the options behind it; of other schemes than `NATIVE` all of them are taken."""
    before, mark, query = rest.rpartition("?")
    if not mark or "=" not in query:
        return rest, []
    pairs = parse_qsl(query, keep_blank_values=True)
    if not pairs or (scheme in NATIVE and not {name for name, _ in pairs} <= OPTIONS_IN_URIS):
        return rest, []
    if scheme not in NATIVE:
        return before, [("query", query)]
    return before, [("endpoint" if name == "endpoint_override" else name, value) for name, value in pairs]


def _credentials(scheme: str, user: str) -> tuple[list[tuple[str, str]], str]:
    """(options, what stays in the URI) of what stands before an `@`; the container of an `abfs` URI is no secret."""
    name, colon, secret = user.partition(":")
    secret = unquote(secret)
    if scheme == "abfs":
        return [("account_key", secret)] if colon else [], name
    name = unquote(name)
    if scheme == "s3":
        return [("access_key", name), *([("secret_key", secret)] if colon else [])], ""
    if scheme == "gs":
        return [("anonymous", "true")] if name == "anonymous" else [], ""
    if scheme == "hdfs":
        return [("user", name)] if name else [], ""
    return [("username", name), *([("password", secret)] if colon else [])], ""


# Options that stood in a URI, taken out of it: from then on they hold for what lies at it and below, and its name can be shown.
#
# They travel among the other options, one `at_N` for a URI, whose value says in JSON where it holds and what; so whoever opens a
# path with all options, a worker of another machine too, reaches it as its user said.


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


def of_places(options: Iterable[tuple[str, str]]) -> Pairs:
    """The options that URIs among the paths said (`apart`), of all of them together."""
    return tuple(
        (str(name), str(value))
        for place, described in options
        if _AT.fullmatch(place)
        for name, value in json.loads(described)["options"]
    )


def holding_at(uri: str, options: Iterable[tuple[str, str]]) -> Pairs:
    """The options for everything, and behind them those that hold at `uri`, of the nearest place last. Raises UsageError."""
    every: list[tuple[str, str]] = []
    near: list[tuple[str, list[tuple[str, str]]]] = []
    for name, value in options:
        if not _AT.fullmatch(name):
            every.append((name, value))
            continue
        try:
            described = json.loads(value)
            place, pairs = str(described["at"]), [(str(option), str(text)) for option, text in described["options"]]
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(f"there is no storage option {name}", hint="docs/storage.md tells them") from error
        if f"{uri.rstrip('/')}/".startswith(f"{place.rstrip('/')}/"):
            near.append((place, pairs))
    return (*every, *(pair for _, pairs in sorted(near, key=lambda pairs_near: len(pairs_near[0])) for pair in pairs))


def _fixed(name: str) -> str:
    """The part of a URI before the first name with a pattern in it."""
    match = _PATTERN.search(name)
    return name if match is None else name[: match.start()].rpartition("/")[0]
