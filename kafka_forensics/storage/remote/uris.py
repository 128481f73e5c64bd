"""URIs of evidence: what they name, and the credentials in them, which are taken out before anything else is done with a URI."""

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote

from kafka_forensics.errors import UsageError
from kafka_forensics.storage.source import URI

ALIASES: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "viewfs": "hdfs"}
"""Aliases of the schemes that pyarrow opens."""
PYARROW_SCHEMES: Final = ("s3", "gs", "abfs", "hdfs")
"""Schemes that pyarrow opens itself."""
OPTIONS_IN_URIS: Final = frozenset(
    {"endpoint", "endpoint_override", "region", "scheme", "access_key", "secret_key", "session_token", "anonymous", "block_mib"}
)
"""Options allowed after a `?`; any other question mark is part of a name."""


@dataclass(frozen=True, slots=True)
class RemotePlace:
    """What a URI names: `name` is the URI without credentials and options, `root` is `name` without the scheme."""

    name: str
    scheme: str
    """One of `PYARROW_SCHEMES`, or a scheme of fsspec."""
    root: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Credentials and options of the URI."""


def remote_place(uri: str) -> RemotePlace:
    """Parse `uri`. Its path is not percent-decoded: a percent sign is part of the key. Raises UsageError."""
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
    if scheme in PYARROW_SCHEMES and scheme != "hdfs" and not authority:
        raise UsageError(f"{name}: has no bucket", hint=f"write {typed}://bucket/path")
    if "\0" in root or any(part in {".", ".."} for part in root.split("/")):
        raise UsageError(f"{name}: a path with . or .. in it", hint="write the path of the object or directory itself")
    return RemotePlace(name, scheme, root, tuple(options))


def _without_query(rest: str, scheme: str) -> tuple[str, list[tuple[str, str]]]:
    """(text before the `?`, options after it); for other schemes than `PYARROW_SCHEMES` the whole query is one option."""
    before, mark, query = rest.rpartition("?")
    if not mark or "=" not in query:
        return rest, []
    pairs = parse_qsl(query, keep_blank_values=True)
    if not pairs or (scheme in PYARROW_SCHEMES and not {name for name, _ in pairs} <= OPTIONS_IN_URIS):
        return rest, []
    if scheme not in PYARROW_SCHEMES:
        return before, [("query", query)]
    return before, [("endpoint" if name == "endpoint_override" else name, value) for name, value in pairs]


def _credentials(scheme: str, user: str) -> tuple[list[tuple[str, str]], str]:
    """(options, what stays in the URI) of the text before an `@`; the container of an `abfs` URI is not secret."""
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


# Options of a URI are taken out of it, because its name is shown. They apply to what is at the URI or below.
#
# They are passed on with the other options, as one option `at_N` per URI, whose JSON value has the URI and its options; so every
# process that opens a path with all options, on another machine too, uses the options that the user gave for it.


Pairs = tuple[tuple[str, str], ...]

_AT: Final = re.compile(r"at_\d+", re.ASCII)
_NAMES: Final = re.compile(r"\A(?:[^/=]*=)+(?=[A-Za-z][A-Za-z0-9+.-]*://)")
"""`NAME=` before a URI, also twice."""
_PATTERN: Final = re.compile(r"[*?\[]")
_LOCAL: Final = frozenset({"file"})


def without_uri_options(paths: Sequence[str], options: Iterable[tuple[str, str]]) -> tuple[list[str], Pairs]:
    """(`paths` without credentials and options of URIs, all options); names before paths (`NAME=PATH`) stay.

    Raises UsageError for an invalid URI.
    """
    bare: list[str] = []
    pairs = tuple(options)
    uri_options = dict.fromkeys(value for name, value in pairs if _AT.fullmatch(name))
    for path in paths:
        uri = _NAMES.sub("", path, count=1)
        name = path[: len(path) - len(uri)]
        match = URI.match(uri)
        if match is None or match[1].lower() in _LOCAL or os.path.lexists(path) or os.path.lexists(uri):
            bare.append(path)
            continue
        place = remote_place(uri)
        bare.append(name + place.name)
        if place.options:
            uri_options[json.dumps({"at": _without_pattern(place.name), "options": place.options})] = None
    general = tuple(pair for pair in pairs if not _AT.fullmatch(pair[0]))
    return bare, (*general, *((f"at_{number}", value) for number, value in enumerate(uri_options)))


def options_of_uris(options: Iterable[tuple[str, str]]) -> Pairs:
    """The options of all URIs among the paths (see `without_uri_options`)."""
    return tuple(
        (str(name), str(value))
        for place, described in options
        if _AT.fullmatch(place)
        for name, value in json.loads(described)["options"]
    )


def options_for_uri(uri: str, options: Iterable[tuple[str, str]]) -> Pairs:
    """The general options, then those of URIs at or above `uri`, the longest of these last. Raises UsageError."""
    general: list[tuple[str, str]] = []
    near: list[tuple[str, list[tuple[str, str]]]] = []
    for name, value in options:
        if not _AT.fullmatch(name):
            general.append((name, value))
            continue
        try:
            described = json.loads(value)
            place, pairs = str(described["at"]), [(str(option), str(text)) for option, text in described["options"]]
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(f"there is no storage option {name}", hint="docs/storage.md lists them") from error
        if f"{uri.rstrip('/')}/".startswith(f"{place.rstrip('/')}/"):
            near.append((place, pairs))
    return (*general, *(pair for _, pairs in sorted(near, key=lambda options_at: len(options_at[0])) for pair in pairs))


def _without_pattern(name: str) -> str:
    """The part of a URI before the first part that is a pattern."""
    match = _PATTERN.search(name)
    return name if match is None else name[: match.start()].rpartition("/")[0]
