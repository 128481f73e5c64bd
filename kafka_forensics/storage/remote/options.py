"""Options of storage services, from the user and the environment; secrets in them are never shown."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from kafka_forensics.errors import UsageError
from kafka_forensics.storage.remote.uris import options_for_uri

MIN_BLOCK_MIB: Final = 8
MAX_BLOCK_MIB: Final = 32
HIDDEN: Final = "***"
"""Replaces secrets in texts."""

_YES: Final = frozenset({"1", "true", "yes"})
_NO: Final = frozenset({"0", "false", "no"})
NON_SECRET_OPTIONS: Final = frozenset({"endpoint", "region", "scheme", "anonymous", "block_mib"})
"""Options whose values may be shown."""
_HARMLESS: Final = frozenset({"account_name", "host", "port", "user", "project", "tenant_id", "client_id", "kerb_ticket"})
"""Other options whose values may appear in errors; all the rest are secret."""
_MIN_SECRET_LENGTH: Final = 4
"""Characters; replacing a shorter value would spoil messages and protect nothing."""
_ENVIRONMENT: Final = {
    "endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
}
_SECRETS_IN_ENVIRONMENT: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_STORAGE_KEY",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_CONNECTION_STRING",
    "AZURE_CLIENT_SECRET",
)
_OTHERS_IN_ENVIRONMENT: Final = (
    "AWS_PROFILE",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_ROLE_ARN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AZURE_STORAGE_ACCOUNT",
    "AZURE_CLIENT_ID",
    "AZURE_TENANT_ID",
    "GOOGLE_APPLICATION_CREDENTIALS",
)
"""What else in the environment services' libraries use."""


def variables_here() -> tuple[str, ...]:
    """The names of the environment variables of this process by which storage services are reached."""
    known = (*_ENVIRONMENT["endpoint"], *_ENVIRONMENT["region"], *_SECRETS_IN_ENVIRONMENT, *_OTHERS_IN_ENVIRONMENT)
    return tuple(name for name in known if os.environ.get(name))


@dataclass(frozen=True, slots=True, repr=False)
class StorageOptions:
    """Options of a storage service; for None the service's own library finds a value.

    `repr` shows which options are set, but no secrets.
    """

    endpoint: str | None = None
    """`host:port`, or a URL, which includes the scheme."""
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    session_token: str | None = None
    anonymous: bool = False
    """Use no credentials, even if the environment has some: for public buckets."""
    scheme: str | None = None
    """`http` or `https` (default), unless `endpoint` includes it."""
    block_mib: int = MIN_BLOCK_MIB
    """MiB per request of sequential reads, 8 to 32."""
    other: tuple[tuple[str, str], ...] = ()
    """Other options, by their name in the back end."""
    environment_secrets: tuple[str, ...] = field(default=(), compare=False)
    """Secrets in the environment, which must not be shown."""

    def __repr__(self) -> str:
        named = [f"{name}={value!r}" if name in NON_SECRET_OPTIONS else f"{name}={HIDDEN}" for name, value in self._named()]
        other = [f"{name}={value!r}" if name in _HARMLESS else f"{name}={HIDDEN}" for name, value in self.other]
        return f"StorageOptions({', '.join([*named, *other])})"

    def _named(self) -> list[tuple[str, object]]:
        """(name, value) of the options that are fields of this class and are set."""
        names = [option.name for option in fields(self) if getattr(self, option.name) != option.default]
        return [(name, getattr(self, name)) for name in names if name not in {"other", "environment_secrets"}]

    def get(self, name: str) -> str | None:
        """An option in `other`, None if it is not set."""
        return dict(self.other).get(name)

    def with_options(self, pairs: Iterable[tuple[str, str]]) -> "StorageOptions":
        """These options, updated by `pairs`."""
        fields = ((name, str(value)) for name, value in self._named())
        return replace(from_pairs([*fields, *self.other, *pairs], {}), environment_secrets=self.environment_secrets)

    def hide(self, text: str) -> str:
        """`text` with all secrets replaced."""
        secrets = [self.access_key, self.secret_key, self.session_token, *self.environment_secrets]
        secrets += [value for name, value in self.other if name not in _HARMLESS]
        for secret in sorted({text for text in secrets if text and len(text) >= _MIN_SECRET_LENGTH}, key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return text


OptionsArgument: TypeAlias = StorageOptions | Mapping[str, str] | Iterable[tuple[str, str]] | None
"""Forms in which a caller may pass options."""


def storage_options(values: OptionsArgument, environment: Mapping[str, str] | None = None, *, uri: str = "") -> StorageOptions:
    """Options from a mapping or pairs, else from the environment (by default this process's).

    Options that apply to certain URIs only (`uris.without_uri_options`) are included if they apply to `uri`. Credentials in the
    environment are left to the service's own library, which knows more places. Raises UsageError, with names of options but no
    values.
    """
    if isinstance(values, StorageOptions):
        return values
    pairs = values.items() if isinstance(values, Mapping) else values or ()
    return from_pairs(options_for_uri(uri, pairs), os.environ if environment is None else environment)


def from_pairs(pairs: Iterable[tuple[str, str]], environment: Mapping[str, str]) -> StorageOptions:
    """Options from (name, value); the last value of a name counts."""
    values = {name.strip().lower().replace("-", "_"): value for name, value in pairs}
    for name, variables in _ENVIRONMENT.items():
        for variable in variables:
            if environment.get(variable):
                values.setdefault(name, environment[variable])
    endpoint, scheme = _endpoint(values.pop("endpoint", None), values.pop("scheme", None))
    return StorageOptions(
        endpoint=endpoint,
        region=values.pop("region", None),
        access_key=values.pop("access_key", None),
        secret_key=values.pop("secret_key", None),
        session_token=values.pop("session_token", None),
        anonymous=_flag("anonymous", values.pop("anonymous", "false")),
        scheme=scheme,
        block_mib=_block_mib(values.pop("block_mib", str(MIN_BLOCK_MIB))),
        other=tuple(sorted(values.items())),
        environment_secrets=tuple(environment[name] for name in _SECRETS_IN_ENVIRONMENT if environment.get(name)),
    )


def option_pair(text: str) -> tuple[str, str]:
    """Split `KEY=VALUE` of the command line. Raises UsageError without the text, which may contain a secret."""
    name, equals, value = text.partition("=")
    if not equals or not name.replace("_", "").replace("-", "").isalnum():
        raise UsageError(
            "--storage-option takes KEY=VALUE", hint="for example --storage-option endpoint=http://127.0.0.1:9000; docs/storage.md"
        )
    return name, value


def _endpoint(text: str | None, scheme: str | None) -> tuple[str | None, str | None]:
    """(host and port, scheme) of an endpoint and scheme as the user gave them. Raises UsageError."""
    if scheme not in {None, "http", "https"}:
        raise UsageError("the storage option scheme is http or https", hint="give scheme=http or scheme=https")
    if text is None:
        return None, scheme
    parts = urlsplit(text if "://" in text else f"{scheme or 'https'}://{text}")
    if parts.scheme not in {"http", "https"} or not parts.netloc or "@" in parts.netloc or parts.query:
        raise UsageError(
            "the storage option endpoint must be a host, host:port, or an http(s) URL with these",
            hint="credentials are separate options",
        )
    return parts.netloc + parts.path.rstrip("/"), parts.scheme if "://" in text else scheme


def _flag(name: str, text: str) -> bool:
    if text.lower() not in _YES | _NO:
        raise UsageError(f"the storage option {name} is true or false", hint=f"give {name}=true or {name}=false")
    return text.lower() in _YES


def _block_mib(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 4 and MIN_BLOCK_MIB <= int(text) <= MAX_BLOCK_MIB):
        requested = f"a number of MiB from {MIN_BLOCK_MIB} to {MAX_BLOCK_MIB}"
        raise UsageError(f"the storage option block_mib is {requested}", hint="give, for example, block_mib=8")
    return int(text)
