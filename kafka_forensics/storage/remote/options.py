"""How a storage service is reached: by options, by the environment; what is secret in them is never shown."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from kafka_forensics.errors import UsageError
from kafka_forensics.storage.remote.uris import holding_at

MIN_BLOCK_MIB: Final = 8
MAX_BLOCK_MIB: Final = 32
HIDDEN: Final = "***"
"""What stands where a secret stood."""

_YES: Final = frozenset({"1", "true", "yes"})
_NO: Final = frozenset({"0", "false", "no"})
SHOWN: Final = frozenset({"endpoint", "region", "scheme", "anonymous", "block_mib"})
"""Options whose values may be told."""
_HARMLESS: Final = frozenset({"account_name", "host", "port", "user", "project", "tenant_id", "client_id", "kerb_ticket"})
"""Further options whose values may stand in an error; of all others they may not."""
_SHORTEST_SECRET: Final = 4
"""Characters; what is shorter would hide half of a message and protect nothing."""
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


@dataclass(frozen=True, slots=True, repr=False)
class StorageOptions:
    """Options of a storage service; None is "not given", and then what the service's own library finds.

    `repr` tells which options are set and shows no secret.
    """

    endpoint: str | None = None
    """`host:port`, or a URL, which says the scheme too."""
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    session_token: str | None = None
    anonymous: bool = False
    """Without credentials, whatever the environment holds: for public buckets."""
    scheme: str | None = None
    """`http` or `https` (default), where `endpoint` does not say."""
    block_mib: int = MIN_BLOCK_MIB
    """MiB asked of the service at once by sequential reads, 8 to 32."""
    other: tuple[tuple[str, str], ...] = ()
    """Further options by name, as the back end calls them."""
    environment_secrets: tuple[str, ...] = field(default=(), compare=False)
    """Values of the environment that must not appear anywhere."""

    def __repr__(self) -> str:
        said = []
        for option in fields(self):
            value = getattr(self, option.name)
            if option.name in {"other", "environment_secrets"} or value == option.default:
                continue
            said.append(f"{option.name}={value!r}" if option.name in SHOWN else f"{option.name}={HIDDEN}")
        said += [f"{name}={value!r}" if name in _HARMLESS else f"{name}={HIDDEN}" for name, value in self.other]
        return f"StorageOptions({', '.join(said)})"

    def get(self, name: str) -> str | None:
        """A further option, None if it is not given."""
        return dict(self.other).get(name)

    def with_options(self, pairs: Iterable[tuple[str, str]]) -> "StorageOptions":
        """These options, but for what `pairs` say."""
        every = [*_pairs_of(self), *pairs]
        return replace(from_pairs(every, {}), environment_secrets=self.environment_secrets)

    def hide(self, text: str) -> str:
        """`text` without any of the secrets."""
        secrets = [self.access_key, self.secret_key, self.session_token, *self.environment_secrets]
        secrets += [value for name, value in self.other if name not in _HARMLESS]
        for secret in sorted({text for text in secrets if text and len(text) >= _SHORTEST_SECRET}, key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return text


Given: TypeAlias = StorageOptions | Mapping[str, str] | Iterable[tuple[str, str]] | None
"""How a caller may give options."""


def storage_options(given: Given, environment: Mapping[str, str] | None = None, *, uri: str = "") -> StorageOptions:
    """Options from a mapping or pairs, and from the environment (by default this process's) for what they do not say.

    Of those that hold at some URIs only (`reached`), the ones that hold at `uri` are among them.
    Credentials of the environment are left to the service's own library, which knows more places. Raises UsageError, which names
    options and no values, for one that cannot be.
    """
    if isinstance(given, StorageOptions):
        return given
    pairs = given.items() if isinstance(given, Mapping) else given or ()
    return from_pairs(holding_at(uri, pairs), os.environ if environment is None else environment)


def from_pairs(pairs: Iterable[tuple[str, str]], environment: Mapping[str, str]) -> StorageOptions:
    """`storage_options` of plain pairs; a later one of the same name counts."""
    values = {name.strip().lower().replace("-", "_"): value for name, value in pairs}
    for name, variables in _ENVIRONMENT.items():
        variable_value = next((environment[variable] for variable in variables if environment.get(variable)), None)
        if variable_value is not None:
            values.setdefault(name, variable_value)
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
    """`KEY=VALUE` of the command line. Raises UsageError, which does not repeat it: it may hold a secret."""
    name, equals, value = text.partition("=")
    if not equals or not name.replace("_", "").replace("-", "").isalnum():
        raise UsageError(
            "--storage-option takes KEY=VALUE", hint="for example --storage-option endpoint=http://127.0.0.1:9000; docs/storage.md"
        )
    return name, value


def _pairs_of(options: StorageOptions) -> Iterable[tuple[str, str]]:
    for option in fields(options):
        value = getattr(options, option.name)
        if option.name not in {"other", "environment_secrets"} and value != option.default:
            yield option.name, str(value)
    yield from options.other


def _endpoint(text: str | None, scheme: str | None) -> tuple[str | None, str | None]:
    """(host and port, scheme) of an endpoint as it was given."""
    if scheme not in {None, "http", "https"}:
        raise UsageError("the storage option scheme is http or https", hint="give scheme=http or scheme=https")
    if text is None:
        return None, scheme
    parts = urlsplit(text if "://" in text else f"{scheme or 'https'}://{text}")
    if parts.scheme not in {"http", "https"} or not parts.netloc or "@" in parts.netloc or parts.query:
        raise UsageError(
            "the storage option endpoint is no host, host:port, or http(s) URL of those",
            hint="credentials are options of their own",
        )
    return parts.netloc + parts.path.rstrip("/"), parts.scheme if "://" in text else scheme


def _flag(name: str, text: str) -> bool:
    if text.lower() not in _YES | _NO:
        raise UsageError(f"the storage option {name} is true or false", hint=f"give {name}=true or {name}=false")
    return text.lower() in _YES


def _block_mib(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 4 and MIN_BLOCK_MIB <= int(text) <= MAX_BLOCK_MIB):
        wanted = f"a number of MiB from {MIN_BLOCK_MIB} to {MAX_BLOCK_MIB}"
        raise UsageError(f"the storage option block_mib is {wanted}", hint="give, for example, block_mib=8")
    return int(text)
