"""Errors of storage services: which are transient, and what the others mean."""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Self, TypeVar

from msgspec import Struct

from kafka_forensics.errors import DENIED, STILL_FAILING, SourceError, is_transient
from kafka_forensics.storage.disks import FULL
from kafka_forensics.storage.remote.options import StorageOptions

Answer = TypeVar("Answer")

PAUSES: Final = (0.2, 0.7, 2.0)
"""Seconds between the attempts."""
_MISSING: Final = re.compile(
    r"NO_SUCH_(?:BUCKET|KEY)|RESOURCE_NOT_FOUND|status(?: code)?:? 404|\b404 |NoSuch(?:Key|Bucket)|BlobNotFound"
)
_FORBIDDEN: Final = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY|SIGNATURE_DOES_NOT_MATCH|INVALID_SIGNATURE|UNRECOGNIZED_CLIENT|MISSING_AUTHENTICATION"
    r"|INVALID_CLIENT_TOKEN|EXPIRED_TOKEN|TOKEN_EXPIRED|InvalidToken|ExpiredToken|status(?: code)?:? 40[13]|\b40[13] "
    r"|AuthenticationFailed|AuthorizationFailure|[Pp]ermission denied|PERMISSION_DENIED|UNAUTHENTICATED"
)
_FINAL: Final = re.compile(r"status(?: code)?:? (?:301|307|400|416|501)|INVALID_RANGE|InvalidRange|INVALID_PARAMETER|\b416 ")
_NO_ENDPOINT: Final = "no endpoint is set (AWS_ENDPOINT_URL_S3, or the storage option endpoint), so the request went to Amazon"
_NOT_LIBRARIES: Final = frozenset({"builtins", "kafka_forensics"})
_LONGEST: Final = 400
"""Characters of a service's message that are shown."""


class RequestFailure(Struct, frozen=True):
    """Why a request failed: `kind` is `missing`, `forbidden`, `final` or `transient`; `words`: the service's, no secrets."""

    kind: str
    words: str


class RequestFailedError(Exception):
    """A request that failed, after all attempts."""

    def __init__(self, failure: RequestFailure) -> None:
        super().__init__(failure.words)
        self.failure = failure


class _CaughtErrors:
    """Catches what libraries of storage services raise; `failure` is then the reason, else None.

    Errors of back ends have no common base class; a Python error of our own code (TypeError, AssertionError, ...) is not caught.
    """

    def __init__(self, options: StorageOptions) -> None:
        self.failure: RequestFailure | None = None
        self._options = options

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception):
            return False
        is_foreign = type(error).__module__.partition(".")[0] not in _NOT_LIBRARIES
        if not is_foreign and not isinstance(error, OSError | ValueError | LookupError | RuntimeError | EOFError | ImportError):
            return False
        self.failure = _failure(error, self._options)
        return True


def attempt(
    request: Callable[[], Answer],
    options: StorageOptions,
    give_up: "Callable[[RequestFailure], RequestFailure | None] | None" = None,
    *,
    pauses: Iterable[float] | None = None,
) -> Answer:
    """The result of `request`, repeated after each of `pauses` (seconds, default `PAUSES`) while its error may be transient.

    `give_up` may examine a failure, and return its real reason. Raises RequestFailedError.
    """
    pauses_left = iter(PAUSES if pauses is None else pauses)
    while True:
        caught = _CaughtErrors(options)
        with caught:
            return request()
        failure = caught.failure
        assert failure is not None
        if failure.kind in {"transient", "final"} and give_up is not None:
            failure = give_up(failure) or failure
        pause = next(pauses_left, None)
        if failure.kind != "transient" or pause is None:
            raise RequestFailedError(failure)
        time.sleep(pause)


def request_once(request: Callable[[], Answer], options: StorageOptions) -> Answer:
    """The result of `request`, which is not repeated. Raises RequestFailedError."""
    return attempt(request, options, pauses=())


@contextmanager
def failures_named(path: str) -> Iterator[None]:
    """Raise a RequestFailedError of the block as a SourceError of `path`."""
    try:
        yield
    except RequestFailedError as error:
        raise source_error(path, error.failure) from None


def source_error(path: str, failure: RequestFailure) -> SourceError:
    """The error for the user: the reason, and what to do about it."""
    reason = failure.words
    if failure.kind == "missing":
        reason = "no such object (deleted since it was listed, or it never existed)"
    elif failure.kind == "forbidden":
        reason = f"{DENIED}; response of the service: {failure.words}"
    elif failure.words.startswith(_NO_ENDPOINT):
        reason = f"{STILL_FAILING} after {len(PAUSES) + 1} attempts; {failure.words}"
    elif failure.kind == "transient":
        reason = f"{STILL_FAILING} after {len(PAUSES) + 1} attempts; try again later; response of the service: {failure.words}"
    return SourceError(path, reason)


def with_missing_variables(reason: str, elsewhere: Iterable[str]) -> str:
    """The reason of a failure on a worker of Spark, with what its environment lacks of the driver's `variables_here`.

    For a worker without the endpoint this replaces Amazon's reason. Reasons that no variable can cure stay.
    """
    missing = [name for name in elsewhere if not os.environ.get(name)]
    if not missing or not (is_transient(reason) or DENIED in reason):
        return reason
    lacks = (
        f"the environment of this worker lacks {', '.join(missing)}, which the driver has: set spark.executorEnv.{missing[0]},"
        " or give the value as a storage option"
    )
    return reason.partition(STILL_FAILING)[0] + lacks if _NO_ENDPOINT in reason else f"{reason}; {lacks}"


def _failure(error: Exception, options: StorageOptions) -> RequestFailure:
    text = " ".join(options.hide(str(error) or type(error).__name__).split())[:_LONGEST]
    status = getattr(error, "status", getattr(error, "status_code", None))
    if isinstance(error, FileNotFoundError) or _MISSING.search(text) or status == 404:
        return RequestFailure("missing", text)
    if isinstance(error, PermissionError) or _FORBIDDEN.search(text) or status in {401, 403}:
        return RequestFailure("forbidden", text)
    is_permanent = isinstance(error, ImportError | ValueError | RuntimeError | IsADirectoryError)
    if is_permanent or _FINAL.search(text) or getattr(error, "errno", None) in FULL:
        return RequestFailure("final", text)
    if "NETWORK_CONNECTION" in text and options.endpoint is None:
        text = f"{_NO_ENDPOINT}: {text}"
    return RequestFailure("transient", text)
