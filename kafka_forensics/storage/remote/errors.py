"""Errors of storage services: which go away by themselves, and what the others mean."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self, TypeVar

from kafka_forensics.errors import STILL_FAILING, SourceError
from kafka_forensics.storage.disks import FULL
from kafka_forensics.storage.remote.options import StorageOptions

Answer = TypeVar("Answer")

PAUSES: Final = (0.2, 0.7, 2.0)
"""Seconds waited between the attempts."""
_MISSING: Final = re.compile(
    r"NO_SUCH_(?:BUCKET|KEY)|RESOURCE_NOT_FOUND|status(?: code)?:? 404|\b404 |NoSuch(?:Key|Bucket)|BlobNotFound"
)
_FORBIDDEN: Final = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY|SIGNATURE_DOES_NOT_MATCH|INVALID_SIGNATURE|UNRECOGNIZED_CLIENT|MISSING_AUTHENTICATION"
    r"|INVALID_CLIENT_TOKEN|EXPIRED_TOKEN|TOKEN_EXPIRED|InvalidToken|ExpiredToken|status(?: code)?:? 40[13]|\b40[13] "
    r"|AuthenticationFailed|AuthorizationFailure|[Pp]ermission denied|PERMISSION_DENIED|UNAUTHENTICATED"
)
_FINAL: Final = re.compile(r"status(?: code)?:? (?:301|307|400|416|501)|INVALID_RANGE|InvalidRange|INVALID_PARAMETER|\b416 ")
_OURS: Final = frozenset({"builtins", "kafka_forensics"})
_LONGEST: Final = 400
"""Characters of a service's own words that are repeated."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request failed: `kind` is `missing`, `forbidden`, `final` or `transient`, `words` are the service's without secrets."""

    kind: str
    words: str


class RequestFailedError(Exception):
    """A request that failed for good."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.words)
        self.failure = failure


class _Caught:
    """Catches what libraries of storage services raise: `failure` afterwards says what it was, None if nothing was.

    Errors of back ends have no common base; a Python error of ours (TypeError, AssertionError, ...) is never taken for one.
    """

    def __init__(self, options: StorageOptions) -> None:
        self.failure: Failure | None = None
        self._options = options

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception):
            return False
        foreign = type(error).__module__.partition(".")[0] not in _OURS
        if not foreign and not isinstance(error, OSError | ValueError | LookupError | RuntimeError | EOFError | ImportError):
            return False
        self.failure = _judged(error, self._options)
        return True


def attempt(
    ask: Callable[[], Answer], options: StorageOptions, give_up: "Callable[[Failure], Failure | None] | None" = None
) -> Answer:
    """What `ask` gives, asked again up to three times, about 3 s in all, when an error may go away by itself.

    `give_up` may look closer after a failure that it knows more about, and say what it is instead. Raises RequestFailedError.
    """
    pauses = iter(PAUSES)
    while True:
        caught = _Caught(options)
        with caught:
            return ask()
        failure = caught.failure
        assert failure is not None
        if failure.kind in {"transient", "final"} and give_up is not None:
            failure = give_up(failure) or failure
        pause = next(pauses, None)
        if failure.kind != "transient" or pause is None:
            raise RequestFailedError(failure)
        time.sleep(pause)


def once(ask: Callable[[], Answer], options: StorageOptions) -> Answer:
    """What `ask` gives, asked a single time. Raises RequestFailedError."""
    caught = _Caught(options)
    with caught:
        return ask()
    assert caught.failure is not None
    raise RequestFailedError(caught.failure)


def source_error(path: str, failure: Failure) -> SourceError:
    """The error that a person reads: the reason, and what to do about it."""
    if failure.kind == "missing":
        return SourceError(path, "no such object (deleted since it was listed, or never there)")
    if failure.kind == "forbidden":
        return SourceError(
            path, f"access denied: check credentials and rights (docs/storage.md); the service said: {failure.words}"
        )
    if failure.kind == "transient":
        return SourceError(
            path, f"{STILL_FAILING} after {len(PAUSES) + 1} attempts; try again later; the service said: {failure.words}"
        )
    return SourceError(path, failure.words)


def _judged(error: Exception, options: StorageOptions) -> Failure:
    text = " ".join(options.hide(str(error) or type(error).__name__).split())[:_LONGEST]
    status = getattr(error, "status", getattr(error, "status_code", None))
    if isinstance(error, FileNotFoundError) or _MISSING.search(text) or status == 404:
        return Failure("missing", text)
    if isinstance(error, PermissionError) or _FORBIDDEN.search(text) or status in {401, 403}:
        return Failure("forbidden", text)
    does_not_pass = isinstance(error, ImportError | ValueError | RuntimeError | IsADirectoryError)
    if does_not_pass or _FINAL.search(text) or getattr(error, "errno", None) in FULL:
        return Failure("final", text)
    return Failure("transient", text)
