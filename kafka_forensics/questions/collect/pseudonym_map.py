"""The private map of `collect --redact`: the key of the pseudonyms, and the name of each pseudonym."""

import hmac
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Final

from kafka_forensics.errors import UsageError
from kafka_forensics.model.constants import WITNESS_TOPICS
from kafka_forensics.model.pseudonyms import PSEUDONYM_DIGITS, NameKind
from kafka_forensics.storage.disks import atomic_text_file
from kafka_forensics.storage.documents import open_document
from kafka_forensics.storage.private import open_private

_VERSION: Final = 1
_KEY_BYTES: Final = 32
_KEY_NAME_DIGITS: Final = 16
_HINT: Final = "name a file that --redact-map made, or a new one"


class PseudonymMap:
    """A key and the pseudonyms made with it (`model.pseudonyms.Pseudonyms`), in a file that only its owner can read."""

    def __init__(self, key: str, names: dict[str, tuple[str, str]], path: Path | None = None) -> None:
        """`names` maps a pseudonym to kind and name; without a `path` the map is never written."""
        self._key = bytes.fromhex(key)
        self._names = names
        self._pseudonyms = {kind_and_name: pseudonym for pseudonym, kind_and_name in names.items()}
        self._path = path

    @classmethod
    def at(cls, path: Path) -> "PseudonymMap":
        """The map in the file, or a new one with a new key. Raises UsageError if it cannot be read or written."""
        if not os.path.lexists(path):
            made = cls(token_hex(_KEY_BYTES), {}, path)
            try:
                made._write(path, replace=False)
            except UsageError:
                if not os.path.lexists(path):
                    raise
                return cls.at(path)  # another process made it meanwhile
            return made
        with open_document(str(path), _HINT) as file:
            if os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise UsageError(f"others may read or write {path}, which holds all names", hint=f"chmod 600 {path}")
            try:
                content = json.load(file)
                names = {str(pseudonym): (str(row["kind"]), str(row["name"])) for pseudonym, row in content["names"].items()}
                if content["version"] != _VERSION or len(bytes.fromhex(content["key"])) != _KEY_BYTES:
                    raise UsageError(f"{path} is not a map of pseudonyms of this version", hint=_HINT)
                return cls(content["key"], names, path)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError, MemoryError) as error:
                raise UsageError(f"{path} is not a map of pseudonyms", hint=_HINT) from error

    @classmethod
    def in_memory(cls) -> "PseudonymMap":
        """A map with a new key and without a file, for an estimate."""
        return cls(token_hex(_KEY_BYTES), {})

    @property
    def key_name(self) -> str:
        """16 hexadecimal digits that distinguish keys and reveal nothing about them."""
        return self._digest("name of the key").hex()[:_KEY_NAME_DIGITS]

    def digests_key(self) -> bytes:
        """The key of content digests, the same for all who have the map: 32 bytes."""
        return self._digest("key of digests")

    def pseudonym(self, kind: NameKind, name: str) -> str:
        """The pseudonym of a name; Kafka's own names and pseudonyms stay."""
        if self._is_kept_unchanged(name):
            return name
        existing = self._pseudonyms.get((kind, name))
        if existing is not None:
            return existing
        digest = self._digest(name, kind).hex()
        digits = next(count for count in range(PSEUDONYM_DIGITS, len(digest) + 1) if f"{kind}-{digest[:count]}" not in self._names)
        pseudonym = f"{kind}-{digest[:digits]}"
        self._pseudonyms[kind, name] = pseudonym
        self._names[pseudonym] = kind, name
        return pseudonym

    def one_time_pseudonym(self, kind: NameKind, name: str) -> str:
        """The pseudonym of a name, which is not added to the map because there may be very many."""
        if self._is_kept_unchanged(name):
            return name
        return self._pseudonyms.get((kind, name)) or f"{kind}-{self._digest(name, kind).hex()[:PSEUDONYM_DIGITS]}"

    def _is_kept_unchanged(self, name: str) -> bool:
        return not name or name in WITNESS_TOPICS or name in self._names

    def _digest(self, name: str, kind: str = "") -> bytes:
        """The keyed digest of a name, 32 bytes; without a kind, of a purpose."""
        return hmac.new(self._key, f"{kind}\0{name}".encode("utf-8", "surrogatepass"), sha256).digest()

    def keep(self) -> None:
        """Write the file, with the names that other processes wrote meanwhile. Raises UsageError if it cannot be written, or has
        another key by now."""
        if self._path is None:
            return
        with _locked(self._path):
            if self._path.exists():
                current = PseudonymMap.at(self._path)
                if current._key != self._key:
                    raise UsageError(f"{self._path} was replaced by a map with another key", hint="run it again")
                self._names = current._names | self._names
            self._write(self._path, replace=True)

    def _write(self, path: Path, *, replace: bool) -> None:
        names = {pseudonym: {"kind": kind, "name": name} for pseudonym, (kind, name) in sorted(self._names.items())}
        text = json.dumps({"version": _VERSION, "key": self._key.hex(), "names": names}, indent=1) + "\n"
        try:
            with atomic_text_file(path, open_private, replace=replace) as file:
                file.write(text)
        except OSError as error:
            raise UsageError(f"cannot write to {path}: {error.strerror}", hint="give --redact-map another path") from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock a file that processes replace: after waiting for the lock, check that it is still the file of that name. A missing file
    is not locked."""
    import fcntl

    while True:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            yield  # reading or writing the file reports the error
            return
        with os.fdopen(descriptor, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
            except OSError as error:
                raise UsageError(f"cannot lock {path}: {error.strerror}", hint="give --redact-map another path") from error
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                yield
                return
