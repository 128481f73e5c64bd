"""What can go wrong with a question, as one tree.

Bad bytes are facts and never raised past a parser; these are for questions that cannot be asked or answered::

    ForensicsError
    ├── UsageError            the command cannot mean anything: wrong option, output inside an input (exit 2)
    │   └── PathMissingError  an input that does not exist (exit 2)
    ├── SourceError           bytes exist but cannot be read: permission, I/O, unsupported container (exit 3)
    └── FormatError           a structure is not what its place promises; carries path and byte position
"""


class ForensicsError(Exception):
    """Base of every error this package raises on purpose."""


class UsageError(ForensicsError):
    """The question itself is wrong; `hint` names the next step."""

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


class FormatError(ForensicsError):
    """A structure breaks its format at byte `position` of `path` (either may be None where the caller knows better)."""

    def __init__(self, reason: str, *, path: str | None = None, position: int | None = None) -> None:
        where = "" if path is None else f"{path}: "
        at = "" if position is None else f" at byte {position}"
        super().__init__(f"{where}{reason}{at}")
        self.reason = reason
        self.path = path
        self.position = position
