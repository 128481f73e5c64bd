"""The exception tree, and suggestions for mistyped names.

Parsers return bad bytes as facts; exceptions are for invalid requests and for missing answers::

    ForensicsError
    ├── UsageError            an invalid request: wrong option, output inside an input (exit 2)
    │   └── PathMissingError  an input that does not exist (exit 2)
    ├── SourceError           bytes exist but cannot be read: permission, I/O, unsupported container (exit 3)
    ├── IncompleteError       rows are missing, and the caller did not allow that (exit 3)
    ├── TransientError          a transient failure of an output's service, or of another machine (exit 3)
    └── FormatError           a structure breaks its format; has path and byte position
"""

from collections.abc import Iterable
from typing import Final

STILL_FAILING: Final = "still failing"
"""Start of the reason of a transient failure of a storage service."""
DENIED: Final = "access denied: check credentials and rights (docs/storage.md)"
"""Start of the reason of what a storage service refuses."""
TRY_AGAIN: Final = "try again later: the storage service was too busy, or could not be reached"
_NEXT: Final = {
    "permission denied": "run as a user who may read it, or give a copy that such a user made",
    "an unsupported container": "unpack it, and give the directory",
    "nothing in this archive can be read": "copy it again from its origin, and compare the checksums of both",
}
"""Start of a reason → what to do next."""
_MAX_NAME_LENGTH: Final = 249
"""Characters of a mistyped name that are compared: the length of Kafka's longest topic name."""


class ForensicsError(Exception):
    """Base class of the errors of this package; `hint` is the next step, if there is one."""

    hint: str | None = None


class UsageError(ForensicsError):
    """The request is invalid."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        if hint is not None:
            self.add_note(f"hint: {hint}")  # Python and notebooks show it below the message


class PathMissingError(UsageError):
    """An input path that does not exist."""


class SourceError(ForensicsError):
    """Existing bytes cannot be read: `path` as in the source, `reason` for the user."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason
        self.hint = (
            TRY_AGAIN if is_transient(reason) else next((step for start, step in _NEXT.items() if reason.startswith(start)), None)
        )


class IncompleteError(ForensicsError):
    """Rows are missing because something cannot be read, is unfinished, or has changed; `path` and `reason` of the first such
    thing, and how many `more` there are."""

    def __init__(self, path: str, reason: str, more: int = 0) -> None:
        others = f", and {more} more {'paths' if more > 1 else 'path'}" if more else ""
        super().__init__(f"{path}: {reason}{others}; allow_incomplete=True reads the rest")


class TransientError(ForensicsError):
    """A failure that may be transient; `hint` says to try again."""

    hint = TRY_AGAIN


class FormatError(ForensicsError):
    """A structure breaks its format at byte `position` of `path`; either is None if only the caller knows it."""

    def __init__(self, reason: str, *, path: str | None = None, position: int | None = None) -> None:
        where = "" if path is None else f"{path}: "
        at = "" if position is None else f" at byte {position}"
        super().__init__(f"{where}{reason}{at}")
        self.reason = reason
        self.path = path
        self.position = position


def is_transient(reason: str) -> bool:
    """Whether a reason, or a sentence with it, is of a transient failure of a storage service."""
    return STILL_FAILING in reason


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The name of `known` that is most similar to a mistyped one, ignoring case; None if none is similar."""
    from difflib import get_close_matches  # only needed after a mistake

    by_lower = {known_name.lower(): known_name for known_name in reversed(list(known))}
    near = get_close_matches(name[:_MAX_NAME_LENGTH].lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[near[0]] if near else None


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str) -> str:
    """The hint for a mistyped name: the nearest of `known`, else `otherwise`."""
    near = nearest(name, known)
    return f"did you mean {near}?" if near else otherwise


def did_you_mean_prefix(name: str, known: Iterable[str]) -> str:
    """The start of a hint, with a space after it: the nearest of `known`, or ""."""
    near = nearest(name, known)
    return f"did you mean {near}? " if near else ""
