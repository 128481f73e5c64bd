"""From a URI to a source: what it names, what its pattern matches, and the nearest name where there is nothing."""

import os
import re
from fnmatch import fnmatchcase
from itertools import islice
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from kafka_forensics.errors import PathMissingError, SourceError, UsageError, nearest
from kafka_forensics.model.json_objects import Json
from kafka_forensics.storage.remote.errors import PAUSES, Failure, RequestFailedError, attempt, source_error
from kafka_forensics.storage.remote.options import StorageOptions
from kafka_forensics.storage.remote.source import LISTED_AHEAD, RemoteSource
from kafka_forensics.storage.remote.uris import NATIVE, RemotePlace, remote_place
from kafka_forensics.storage.source import EntryKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from fsspec import AbstractFileSystem
    from pyarrow.fs import FileSystem, FSSpecHandler

MOST_MATCHES: Final = 10_000
"""Directories that a pattern may match."""
_PATTERN: Final = frozenset("*?[")
_MOST_SIBLINGS: Final = 10_000
"""Names looked at for a hint."""
_BUCKETS: Final = "check its name, and what the credentials may see (docs/storage.md)"


def open_remote(uri: str, options: StorageOptions) -> RemoteSource:
    """The evidence at `uri`. Raises PathMissingError if nothing is there, UsageError, SourceError."""
    place = remote_place(uri)
    source = _source(place, options.with_options(place.options), LISTED_AHEAD)
    if source.is_missing:
        raise _missing(place, source)
    return source


def expand(uri: str, options: StorageOptions) -> list[tuple[str, StorageOptions]]:
    """The URIs that a pattern matches, sorted: `*`, `?` and `[...]` in any part behind the bucket; one without a pattern, itself.

    They hold no credentials: what the URI said about how to reach it is among the options beside them. Raises UsageError,
    PathMissingError if nothing matches, SourceError.
    """
    place = remote_place(uri)
    options = options.with_options(place.options)
    parts = place.name.split("/")
    first = next((number for number, part in enumerate(parts) if number > 2 and _PATTERN & set(part)), None)
    if first is None:
        return [(place.name, options)]
    base = remote_place("/".join(parts[:first]))
    source = _source(base, options, 0)
    if source.is_missing:
        raise _missing(base, source)
    paths = [""]
    for number, pattern in enumerate(parts[first:], first):
        paths = [path for above in paths for path in _matching(source, above, pattern, last=number == len(parts) - 1)]
        if len(paths) > MOST_MATCHES:
            raise UsageError(f"{place.name}: matches more than {MOST_MATCHES:,} paths", hint="give a narrower pattern")
    if not paths:
        raise PathMissingError(f"{place.name}: matches nothing", hint=f"there is {_some(source)}")
    return [(f"{base.name}/{path}", options) for path in sorted(paths)]


def _source(place: RemotePlace, options: StorageOptions, ahead: int) -> RemoteSource:
    filesystem, root = open_filesystem(place, options)
    try:
        return RemoteSource(place.name, filesystem, root, options, ahead)
    except SourceError as error:
        raise SourceError(place.name, error.reason) from None


def _matching(source: RemoteSource, above: str, pattern: str, *, last: bool) -> list[str]:
    """What matches one part of a pattern directly below `above`; directories only, unless it is the last part."""
    try:
        entries = source.list(above)
    except SourceError as error:
        raise SourceError(f"{source.name}/{above}".rstrip("/"), error.reason) from None
    matches = [entry for entry in entries if fnmatchcase(entry.name, pattern)]
    return [entry.path for entry in matches if last or entry.kind is EntryKind.DIRECTORY]


def _missing(place: RemotePlace, source: RemoteSource) -> PathMissingError:
    """The error for a URI at which nothing is, with the nearest name that is there."""
    above, slash, name = place.name.rpartition("/")
    if place.scheme in {"s3", "gs", "abfs"} and above.endswith("/"):
        return PathMissingError(f"{place.name}: no such bucket, or no right to see it", hint=_BUCKETS)
    bucket = place.root.partition("/")[0]
    try:
        if place.scheme in {"s3", "gs"} and source.at(bucket).is_missing:
            return PathMissingError(f"{place.name}: no such bucket: {bucket}", hint=_BUCKETS)
    except SourceError:
        pass  # who may read a path need not see its bucket
    hint = None
    if slash and not above.endswith("/") and place.scheme != "gs":  # there, one level is not listed without all below it
        try:
            beside = source.beside()
            names = [entry.name for entry in islice(beside.list(), _MOST_SIBLINGS)] if not beside.is_missing else []
        except SourceError:
            names = []
        near = nearest(name, names)
        hint = f"did you mean {above}/{near}?" if near else None if names else f"nothing is at {above} either"
    return PathMissingError(f"{place.name}: no such object or directory", hint=hint)


def _some(source: RemoteSource) -> str:
    names = [entry.name for entry in source.list()]
    more = ", ..." if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more} in {source.name}" if names else f"nothing in {source.name}"


# Which `pyarrow.fs` file system opens a URI: pyarrow's own for S3, GCS, Azure and HDFS, fsspec's for all others.


CONNECT_SECONDS: Final = 5.0
REQUEST_SECONDS: Final = 30.0
"""Without a byte; the request is then asked again."""
_GCS_SECONDS: Final = 10.0
"""How long Google's client repeats a request of an upload."""
_NAME_NODE: Final = re.compile(r"HDFS connection failed|refused|timed? ?out|SafeMode|Standby", re.IGNORECASE)
_AZURE: Final = ("account_name", "account_key", "sas_token", "tenant_id", "client_id", "client_secret")
_AZURE_ENVIRONMENT: Final = {
    "account_name": ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"),
    "account_key": ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY"),
    "sas_token": ("AZURE_STORAGE_SAS_TOKEN",),
}


def open_filesystem(place: RemotePlace, options: StorageOptions, *, uploads: bool = False) -> "tuple[FileSystem, str]":
    """The file system of a URI, and the path of what it names in there.

    One for `uploads` repeats each request itself, as often as others are repeated here: what has gone into a stream cannot be asked
    for again. Raises UsageError for a scheme or an option that nothing here knows, SourceError where a back end does not come up.
    """
    openers = {"s3": _s3, "gs": _gs, "abfs": _abfs, "hdfs": _hdfs}

    def opened() -> "tuple[FileSystem, str]":
        try:
            return openers.get(place.scheme, _fsspec)(place, options, uploads)
        except ValueError as error:
            said = options.hide(str(error)).partition("\n")[0]
            raise UsageError(f"{place.name}: these storage options do not go together: {said}", hint="docs/storage.md") from None

    try:
        return attempt(opened, options, _of_java if place.scheme == "hdfs" else None)
    except RequestFailedError as error:
        failure = error.failure
    if failure.kind in {"transient", "forbidden"}:
        raise source_error(place.name, failure)
    how = "; it needs Java, HADOOP_HOME and CLASSPATH (docs/storage.md)" if place.scheme == "hdfs" else ""
    raise SourceError(place.name, f"{place.scheme}:// does not come up: {failure.words}{how}")


def _of_java(failure: Failure) -> Failure | None:
    """What keeps Java from being found does not pass; a name node that does not answer may."""
    return None if _NAME_NODE.search(failure.words) else Failure("final", failure.words)


def _s3(place: RemotePlace, options: StorageOptions, uploads: bool) -> "tuple[FileSystem, str]":
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem, resolve_s3_region

    _require_known(place, options, ("role_arn", "external_id", "force_virtual_addressing"))
    if (options.secret_key is None) != (options.access_key is None):
        only = "access_key" if options.secret_key is None else "secret_key"
        raise UsageError(
            f"{place.name}: access_key and secret_key go together", hint=f"only {only} is given: give both, or neither"
        )
    given: Json = {"access_key": options.access_key, "secret_key": options.secret_key}
    given |= {
        "session_token": options.session_token,
        "role_arn": options.get("role_arn"),
        "external_id": options.get("external_id"),
    }
    given |= {"endpoint_override": options.endpoint, "scheme": options.scheme, "region": options.region}
    given["anonymous"] = options.anonymous or None
    if options.get("force_virtual_addressing"):
        given["force_virtual_addressing"] = options.get("force_virtual_addressing") == "true"
    if options.region is None:
        given["region"] = "us-east-1"
        if options.endpoint is None:
            try:
                given["region"] = resolve_s3_region(place.root.partition("/")[0])
            except OSError:
                del given["region"]  # no such bucket, or no way there: the first request says which
    attempts = len(PAUSES) + 1 if uploads else 1  # all others are repeated in one place, for every service alike
    strategy = AwsStandardS3RetryStrategy(max_attempts=attempts)
    given |= {"connect_timeout": CONNECT_SECONDS, "request_timeout": REQUEST_SECONDS, "retry_strategy": strategy}
    return S3FileSystem(**_set(given)), place.root


def _gs(place: RemotePlace, options: StorageOptions, uploads: bool) -> "tuple[FileSystem, str]":
    from datetime import UTC, datetime, timedelta

    from pyarrow.fs import GcsFileSystem

    _require_known(place, options, ("access_token", "project"))
    given: Json = {"endpoint_override": options.endpoint, "scheme": options.scheme, "project_id": options.get("project")}
    given["anonymous"] = options.anonymous or None
    if token := options.get("access_token"):
        given |= {"access_token": token, "credential_token_expiration": datetime.now(UTC) + timedelta(hours=1)}
    limit = timedelta(seconds=_GCS_SECONDS if uploads else 1)
    return GcsFileSystem(**_set(given), retry_time_limit=limit), place.root


def _abfs(place: RemotePlace, options: StorageOptions, _uploads: bool) -> "tuple[FileSystem, str]":
    """`abfs://container@account.dfs.core.windows.net/path`, or `abfs://container/path` with the account among the options."""
    from pyarrow.fs import AzureFileSystem

    _require_known(place, options, _AZURE)
    given = {name: options.get(name) for name in _AZURE}
    for name, variables in _AZURE_ENVIRONMENT.items():
        given[name] = given[name] or next((os.environ[variable] for variable in variables if os.environ.get(variable)), None)
    authority, slash, path = place.root.partition("/")
    container, at, host = authority.rpartition("@")
    root = place.root
    if at:
        given["account_name"] = host.partition(".")[0]
        root = f"{container}{slash}{path}"
    if not given["account_name"]:
        hint = "write abfs://container@account.dfs.core.windows.net/path, or give --storage-option account_name=..."
        raise UsageError(f"{place.name}: which storage account is not said", hint=hint)
    if given["account_key"]:
        given["sas_token"] = None  # the one that was given, or what is more than the other
    if options.endpoint is not None:
        given |= {"blob_storage_authority": options.endpoint, "dfs_storage_authority": options.endpoint}
        given |= {"blob_storage_scheme": options.scheme, "dfs_storage_scheme": options.scheme}
    return AzureFileSystem(**_set(given)), root


def _hdfs(place: RemotePlace, options: StorageOptions, _uploads: bool) -> "tuple[FileSystem, str]":
    from pyarrow.fs import HadoopFileSystem

    _require_known(place, options, ("user", "kerb_ticket"))
    authority, _, path = place.root.partition("/")
    parts = urlsplit(f"//{authority}")
    given = {"user": options.get("user"), "kerb_ticket": options.get("kerb_ticket")}
    return HadoopFileSystem(parts.hostname or "default", parts.port or 8020 if parts.hostname else 0, **_set(given)), f"/{path}"


def _fsspec(place: RemotePlace, options: StorageOptions, _uploads: bool) -> "tuple[FileSystem, str]":
    """Any other scheme; the options go to its back end as they are."""
    try:
        import fsspec
    except ImportError:
        natives = ", ".join(f"{scheme}://" for scheme in NATIVE)
        raise UsageError(
            f"{place.name}: {place.scheme}:// needs fsspec; without it there are {natives} and file://",
            hint="pip install 'kafka-forensics[fsspec]' and the back end's own package",
        ) from None
    from pyarrow.fs import PyFileSystem

    given: Json = dict(options.other)
    query = given.pop("query", None)
    named = {"access_key": options.access_key, "secret_key": options.secret_key, "endpoint": options.endpoint}
    given |= _set(named | {"region": options.region, "session_token": options.session_token})
    uri = place.name if query is None else f"{place.name}?{query}"
    try:
        filesystem, path = fsspec.core.url_to_fs(uri, **given)
    except (ValueError, TypeError) as error:
        known = ", ".join(f"{scheme}://" for scheme in NATIVE)
        raise UsageError(
            f"{place.name}: {options.hide(str(error))}", hint=f"there are {known}, file:// and what fsspec knows; docs/storage.md"
        ) from None
    except ImportError as error:
        raise UsageError(f"{place.name}: {place.scheme}:// needs a package that is not installed", hint=str(error)) from None
    return PyFileSystem(_uncached(filesystem)), path


def _uncached(filesystem: "AbstractFileSystem") -> "FSSpecHandler":
    """The handler of one of fsspec's file systems, without a second cache behind ours: a ranged read asks for that range alone."""
    from pyarrow import PythonFile
    from pyarrow.fs import FSSpecHandler

    class Uncached(FSSpecHandler):
        def open_input_file(self, path: str) -> PythonFile:
            if not filesystem.isfile(path):
                raise FileNotFoundError(path)
            return PythonFile(filesystem.open(path, mode="rb", cache_type="none"), mode="r")

    make: Callable[..., FSSpecHandler] = Uncached  # all that it lacks by its type is written by its base without one
    return make(filesystem)


def _require_known(place: RemotePlace, options: StorageOptions, known: tuple[str, ...]) -> None:
    """Raise UsageError for an option that this scheme would not look at."""
    unknown = sorted({name for name, _ in options.other} - set(known))
    if unknown:
        every = ("endpoint", "region", "scheme", "access_key", "secret_key", "session_token", "anonymous", "block_mib", *known)
        raise UsageError(f"{place.scheme}:// has no storage option {unknown[0]}", hint=f"it has {', '.join(every)}")


def _set(given: Json) -> Json:
    return {name: value for name, value in given.items() if value is not None}
