"""Which `pyarrow.fs` file system opens a URI: pyarrow's own for S3, GCS, Azure and HDFS, fsspec's for all others.

pyarrow and fsspec are imported when a URI is opened and not before: they cost more than a small scan.
"""

import os
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from kafka_forensics.errors import SourceError, UsageError
from kafka_forensics.model.json_objects import Json
from kafka_forensics.storage.remote.errors import PAUSES
from kafka_forensics.storage.remote.options import StorageOptions
from kafka_forensics.storage.remote.uris import NATIVE, RemotePlace

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


CONNECT_SECONDS: Final = 5.0
REQUEST_SECONDS: Final = 30.0
"""Without a byte; the request is then asked again."""
_GCS_SECONDS: Final = 10.0
"""How long Google's client repeats a request of an upload."""
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
    try:
        return openers.get(place.scheme, _fsspec)(place, options, uploads)
    except ValueError as error:
        said = options.hide(str(error)).partition("\n")[0]
        raise UsageError(f"{place.name}: these storage options do not go together: {said}", hint="docs/storage.md") from None
    except (OSError, RuntimeError) as error:
        reason = options.hide(str(error)).partition("\n")[0]
        how = "; it needs Java, HADOOP_HOME and CLASSPATH (docs/storage.md)" if place.scheme == "hdfs" else ""
        raise SourceError(place.name, f"{place.scheme}:// does not come up: {reason}{how}") from None


def _s3(place: RemotePlace, options: StorageOptions, uploads: bool) -> "tuple[FileSystem, str]":
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem, resolve_s3_region

    _require_known(place, options, ("role_arn", "external_id", "force_virtual_addressing"))
    if (options.secret_key is None) != (options.access_key is None):
        raise UsageError(f"{place.name}: access_key and secret_key go together")
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

    from kafka_forensics.storage.remote.fsspec_handler import handler_of

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
    return PyFileSystem(handler_of(filesystem)), path


def _require_known(place: RemotePlace, options: StorageOptions, known: tuple[str, ...]) -> None:
    """Raise UsageError for an option that this scheme would not look at."""
    unknown = sorted({name for name, _ in options.other} - set(known))
    if unknown:
        every = ("endpoint", "region", "scheme", "access_key", "secret_key", "session_token", "anonymous", "block_mib", *known)
        raise UsageError(f"{place.scheme}:// has no storage option {unknown[0]}", hint=f"it has {', '.join(every)}")


def _set(given: Json) -> Json:
    return {name: value for name, value in given.items() if value is not None}
