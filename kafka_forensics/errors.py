"""What can go wrong with a question, as one tree; and what a mistyped name was meant to be.

Bad bytes are facts and never raised past a parser; these are for questions that cannot be asked or answered::

    ForensicsError
    ├── UsageError            the command cannot mean anything: wrong option, output inside an input (exit 2)
    │   └── PathMissingError  an input that does not exist (exit 2)
    ├── SourceError           bytes exist but cannot be read: permission, I/O, unsupported container (exit 3)
    ├── PassingError          the place that is written to, or another machine, failed as it may not the next time (exit 3)
    └── FormatError           a structure is not what its place promises; carries path and byte position
"""

from collections.abc import Iterable
from typing import Final

STILL_FAILING: Final = "still failing"
"""How the reason begins for which a storage service gave nothing, where it may give it the next time."""
TRY_AGAIN: Final = "try again later: the storage service was too busy, or could not be reached"
_NEXT: Final = {
    "permission denied": "read it as a user who may, or have such a user copy it and give the copy",
    "an unsupported container": "unpack it, and give the directory",
    "nothing can be read of this archive": "take it again from where it was made, and compare the checksums of both",
}
"""What to do next, by how the reason begins."""
_LONGEST_NAME: Final = 249
"""Characters of a mistyped name that are looked at: those of Kafka's longest topic."""


class ForensicsError(Exception):
    """Base of every error this package raises on purpose; `hint` names the next step, where there is one."""

    hint: str | None = None


class UsageError(ForensicsError):
    """The question itself is wrong."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class PathMissingError(UsageError):
    """An input path that does not exist."""


class SourceError(ForensicsError):
    """Bytes that should be there cannot be read: `path` as the source names it, `reason` for a person."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason
        self.hint = TRY_AGAIN if may_pass(reason) else next((step for why, step in _NEXT.items() if reason.startswith(why)), None)


class PassingError(ForensicsError):
    """Something failed for a reason that may pass; `hint` says to try again."""

    hint = TRY_AGAIN


class FormatError(ForensicsError):
    """A structure breaks its format at byte `position` of `path` (either may be None where the caller knows better)."""

    def __init__(self, reason: str, *, path: str | None = None, position: int | None = None) -> None:
        where = "" if path is None else f"{path}: "
        at = "" if position is None else f" at byte {position}"
        super().__init__(f"{where}{reason}{at}")
        self.reason = reason
        self.path = path
        self.position = position


def may_pass(reason: str) -> bool:
    """Whether a reason, or a sentence about it, is of a storage service that may do better the next time."""
    return STILL_FAILING in reason


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The one of `known` that a mistyped name was probably meant to be, whatever its case; None if none is like it."""
    from difflib import get_close_matches  # only a mistake pays for it

    by_lower = {known_name.lower(): known_name for known_name in reversed(list(known))}
    near = get_close_matches(name[:_LONGEST_NAME].lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[near[0]] if near else None


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str) -> str:
    """The hint for a mistyped name: the nearest of `known`, else what `otherwise` says."""
    near = nearest(name, known)
    return f"did you mean {near}?" if near else otherwise


def perhaps_meant(name: str, known: Iterable[str]) -> str:
    """A question to go before a hint, with a space behind it: the nearest of `known`, or nothing."""
    near = nearest(name, known)
    return f"did you mean {near}? " if near else ""
