"""Opens a URI as a source, expands patterns in it, and suggests a name if nothing is there."""

import os
import re
from fnmatch import fnmatchcase
from itertools import islice
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from kafka_forensics.errors import PathMissingError, SourceError, UsageError, nearest
from kafka_forensics.model.json_objects import Json
from kafka_forensics.storage.remote.errors import PAUSES, RequestFailedError, RequestFailure, attempt, source_error
from kafka_forensics.storage.remote.options import StorageOptions
from kafka_forensics.storage.remote.source import LISTED_AHEAD, RemoteSource
from kafka_forensics.storage.remote.uris import PYARROW_SCHEMES, RemotePlace, remote_place
from kafka_forensics.storage.source import EntryKind, errors_named

if TYPE_CHECKING:
    from collections.abc import Callable

    from fsspec import AbstractFileSystem
    from pyarrow.fs import FileSystem, FSSpecHandler

MAX_MATCHES: Final = 10_000
"""Paths that a pattern may match."""
_PATTERN: Final = frozenset("*?[")
_MAX_SIBLINGS: Final = 10_000
"""Names considered for a hint."""
_BUCKETS: Final = "check its name and the rights of the credentials (docs/storage.md)"


def open_remote(uri: str, options: StorageOptions) -> RemoteSource:
    """The evidence at `uri`. Raises PathMissingError if nothing is there, UsageError, SourceError."""
    place = remote_place(uri)
    source = _source(place, options.with_options(place.options), LISTED_AHEAD)
    if source.is_missing:
        raise _missing(place, source)
    return source


def expand(uri: str, options: StorageOptions) -> list[tuple[str, StorageOptions]]:
    """(URI, options) of what a pattern matches, sorted: `*`, `?` and `[...]` in any part after the bucket; else the URI itself.

    The URIs have no credentials; these are in the options. Raises UsageError, PathMissingError if nothing matches, SourceError.
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
        if len(paths) > MAX_MATCHES:
            raise UsageError(f"{place.name}: matches more than {MAX_MATCHES:,} paths", hint="give a narrower pattern")
    if not paths:
        raise PathMissingError(f"{place.name}: matches nothing", hint=f"there is {_first_names(source)}")
    return [(f"{base.name}/{path}", options) for path in sorted(paths)]


def _source(place: RemotePlace, options: StorageOptions, ahead: int) -> RemoteSource:
    filesystem, root = open_filesystem(place, options)
    with errors_named(place.name):
        return RemoteSource(place.name, filesystem, root, options, ahead)


def _matching(source: RemoteSource, above: str, pattern: str, *, last: bool) -> list[str]:
    """Paths directly below `above` that match one part of a pattern; only directories, unless it is the last part."""
    with errors_named(f"{source.name}/{above}".rstrip("/")):
        entries = source.list(above)
    matches = [entry for entry in entries if fnmatchcase(entry.name, pattern)]
    return [entry.path for entry in matches if last or entry.kind is EntryKind.DIRECTORY]


def _missing(place: RemotePlace, source: RemoteSource) -> PathMissingError:
    """The error for a missing URI, with the most similar existing name."""
    above, slash, name = place.name.rpartition("/")
    if place.scheme in {"s3", "gs", "abfs"} and above.endswith("/"):
        return PathMissingError(f"{place.name}: no such bucket, or no right to read it", hint=_BUCKETS)
    bucket = place.root.partition("/")[0]
    try:
        if place.scheme in {"s3", "gs"} and source.at(bucket).is_missing:
            return PathMissingError(f"{place.name}: no such bucket: {bucket}", hint=_BUCKETS)
    except SourceError:
        pass  # the right to read a path does not include its bucket
    hint = None
    if slash and not above.endswith("/") and place.scheme != "gs":  # gs lists everything below to list one level
        try:
            beside = source.beside()
            names = [entry.name for entry in islice(beside.list(), _MAX_SIBLINGS)] if not beside.is_missing else []
        except SourceError:
            names = []
        near = nearest(name, names)
        hint = f"did you mean {above}/{near}?" if near else None if names else f"nothing is at {above} either"
    return PathMissingError(f"{place.name}: no such object or directory", hint=hint)


def _first_names(source: RemoteSource) -> str:
    names = [entry.name for entry in source.list()]
    more = ", ..." if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more} in {source.name}" if names else f"nothing in {source.name}"


# The `pyarrow.fs` file system of a URI: pyarrow's own for S3, GCS, Azure and HDFS, fsspec's for all others.


CONNECT_SECONDS: Final = 5.0
REQUEST_SECONDS: Final = 30.0
"""Without receiving a byte; the request is then repeated."""
_GCS_SECONDS: Final = 10.0
"""How long Google's client retries a request of an upload."""
_NAME_NODE: Final = re.compile(r"HDFS connection failed|refused|timed? ?out|SafeMode|Standby", re.IGNORECASE)
_AZURE: Final = ("account_name", "account_key", "sas_token", "tenant_id", "client_id", "client_secret")
_AZURE_ENVIRONMENT: Final = {
    "account_name": ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"),
    "account_key": ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY"),
    "sas_token": ("AZURE_STORAGE_SAS_TOKEN",),
}


def open_filesystem(place: RemotePlace, options: StorageOptions, *, uploads: bool = False) -> "tuple[FileSystem, str]":
    """(file system, path in it) of a URI.

    With `uploads` the file system itself retries each request as often as `attempt` does, because bytes written to a stream cannot
    be sent again. Raises UsageError for an unknown scheme or option, SourceError if a back end does not start.
    """
    openers = {"s3": _s3, "gs": _gs, "abfs": _abfs, "hdfs": _hdfs}

    def opened() -> "tuple[FileSystem, str]":
        try:
            return openers.get(place.scheme, _fsspec)(place, options, uploads)
        except ValueError as error:
            reason = options.hide(str(error)).partition("\n")[0]
            raise UsageError(f"{place.name}: these storage options conflict: {reason}", hint="docs/storage.md") from None

    try:
        return attempt(opened, options, _permanent_java_failure if place.scheme == "hdfs" else None)
    except RequestFailedError as error:
        failure = error.failure
    if failure.kind in {"transient", "forbidden"}:
        raise source_error(place.name, failure)
    how = "; it needs Java, HADOOP_HOME and CLASSPATH (docs/storage.md)" if place.scheme == "hdfs" else ""
    raise SourceError(place.name, f"{place.scheme}:// does not come up: {failure.words}{how}")


def _permanent_java_failure(failure: RequestFailure) -> RequestFailure | None:
    """A missing Java is a permanent failure; a name node that does not answer may be transient."""
    return None if _NAME_NODE.search(failure.words) else RequestFailure("final", failure.words)


def _s3(place: RemotePlace, options: StorageOptions, uploads: bool) -> "tuple[FileSystem, str]":
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem, resolve_s3_region

    _require_known(place, options, ("role_arn", "external_id", "force_virtual_addressing"))
    if (options.secret_key is None) != (options.access_key is None):
        only = "access_key" if options.secret_key is None else "secret_key"
        raise UsageError(f"{place.name}: access_key requires secret_key", hint=f"only {only} is given: give both, or neither")
    settings: Json = {name: options.get(name) for name in ("role_arn", "external_id")}
    settings |= {"access_key": options.access_key, "secret_key": options.secret_key, "session_token": options.session_token}
    settings |= {"endpoint_override": options.endpoint, "scheme": options.scheme, "region": options.region}
    settings["anonymous"] = options.anonymous or None
    if options.get("force_virtual_addressing"):
        settings["force_virtual_addressing"] = options.get("force_virtual_addressing") == "true"
    if options.region is None:
        settings["region"] = "us-east-1"
        if options.endpoint is None:
            try:
                settings["region"] = resolve_s3_region(place.root.partition("/")[0])
            except OSError:
                del settings["region"]  # no such bucket, or no connection: the first request says which
    attempts = len(PAUSES) + 1 if uploads else 1  # `attempt` retries all other requests, of every service
    strategy = AwsStandardS3RetryStrategy(max_attempts=attempts)
    settings |= {"connect_timeout": CONNECT_SECONDS, "request_timeout": REQUEST_SECONDS, "retry_strategy": strategy}
    return S3FileSystem(**_set(settings)), place.root


def _gs(place: RemotePlace, options: StorageOptions, uploads: bool) -> "tuple[FileSystem, str]":
    from datetime import UTC, datetime, timedelta

    from pyarrow.fs import GcsFileSystem

    _require_known(place, options, ("access_token", "project"))
    settings: Json = {"endpoint_override": options.endpoint, "scheme": options.scheme, "project_id": options.get("project")}
    settings["anonymous"] = options.anonymous or None
    if token := options.get("access_token"):
        settings |= {"access_token": token, "credential_token_expiration": datetime.now(UTC) + timedelta(hours=1)}
    limit = timedelta(seconds=_GCS_SECONDS if uploads else 1)
    return GcsFileSystem(**_set(settings), retry_time_limit=limit), place.root


def _abfs(place: RemotePlace, options: StorageOptions, _uploads: bool) -> "tuple[FileSystem, str]":
    """`abfs://container@account.dfs.core.windows.net/path`, or `abfs://container/path` with the account among the options."""
    from pyarrow.fs import AzureFileSystem

    _require_known(place, options, _AZURE)
    settings = {name: options.get(name) for name in _AZURE}
    for name, variables in _AZURE_ENVIRONMENT.items():
        settings[name] = settings[name] or next((os.environ[variable] for variable in variables if os.environ.get(variable)), None)
    authority, slash, path = place.root.partition("/")
    container, at, host = authority.rpartition("@")
    root = place.root
    if at:
        settings["account_name"] = host.partition(".")[0]
        root = f"{container}{slash}{path}"
    if not settings["account_name"]:
        hint = "write abfs://container@account.dfs.core.windows.net/path, or give --storage-option account_name=..."
        raise UsageError(f"{place.name}: no storage account is given", hint=hint)
    if settings["account_key"]:
        settings["sas_token"] = None  # the account key grants more
    if options.endpoint is not None:
        settings |= {"blob_storage_authority": options.endpoint, "dfs_storage_authority": options.endpoint}
        settings |= {"blob_storage_scheme": options.scheme, "dfs_storage_scheme": options.scheme}
    return AzureFileSystem(**_set(settings)), root


def _hdfs(place: RemotePlace, options: StorageOptions, _uploads: bool) -> "tuple[FileSystem, str]":
    from pyarrow.fs import HadoopFileSystem

    _require_known(place, options, ("user", "kerb_ticket"))
    authority, _, path = place.root.partition("/")
    parts = urlsplit(f"//{authority}")
    settings = {"user": options.get("user"), "kerb_ticket": options.get("kerb_ticket")}
    return HadoopFileSystem(parts.hostname or "default", parts.port or 8020 if parts.hostname else 0, **_set(settings)), f"/{path}"


def _fsspec(place: RemotePlace, options: StorageOptions, _uploads: bool) -> "tuple[FileSystem, str]":
    """Any other scheme; the options are passed to its back end unchanged."""
    try:
        import fsspec
    except ImportError:
        natives = ", ".join(f"{scheme}://" for scheme in PYARROW_SCHEMES)
        raise UsageError(
            f"{place.name}: {place.scheme}:// needs fsspec; without it there are {natives} and file://",
            hint="pip install 'kafka-forensics[fsspec]' and the back end's package",
        ) from None
    from pyarrow.fs import PyFileSystem

    settings: Json = dict(options.other)
    query = settings.pop("query", None)
    named = {"access_key": options.access_key, "secret_key": options.secret_key, "endpoint": options.endpoint}
    settings |= _set(named | {"region": options.region, "session_token": options.session_token})
    uri = place.name if query is None else f"{place.name}?{query}"
    try:
        filesystem, path = fsspec.core.url_to_fs(uri, **settings)
    except (ValueError, TypeError) as error:
        known = ", ".join(f"{scheme}://" for scheme in PYARROW_SCHEMES)
        raise UsageError(
            f"{place.name}: {options.hide(str(error))}", hint=f"there are {known}, file:// and what fsspec knows; docs/storage.md"
        ) from None
    except ImportError as error:
        raise UsageError(f"{place.name}: {place.scheme}:// needs a package that is not installed", hint=str(error)) from None
    return PyFileSystem(_uncached(filesystem)), path


def _uncached(filesystem: "AbstractFileSystem") -> "FSSpecHandler":
    """The handler of one of fsspec's file systems, without fsspec's cache: a ranged read requests that range only."""
    from pyarrow import PythonFile
    from pyarrow.fs import FSSpecHandler

    class Uncached(FSSpecHandler):
        def open_input_file(self, path: str) -> PythonFile:
            if not filesystem.isfile(path):
                raise FileNotFoundError(path)
            return PythonFile(filesystem.open(path, mode="rb", cache_type="none"), mode="r")

    make: Callable[..., FSSpecHandler] = Uncached  # its base class defines the rest, untyped
    return make(filesystem)


def _require_known(place: RemotePlace, options: StorageOptions, known: tuple[str, ...]) -> None:
    """Raise UsageError for an option that this scheme does not have."""
    unknown = sorted({name for name, _ in options.other} - set(known))
    if unknown:
        known_options = (
            "endpoint",
            "region",
            "scheme",
            "access_key",
            "secret_key",
            "session_token",
            "anonymous",
            "block_mib",
            *known,
        )
        raise UsageError(f"{place.scheme}:// has no storage option {unknown[0]}", hint=f"it has {', '.join(known_options)}")


def _set(settings: Json) -> Json:
    return {name: value for name, value in settings.items() if value is not None}
