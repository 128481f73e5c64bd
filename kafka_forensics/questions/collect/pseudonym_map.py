"""The private file of `collect --redact`: the key of the pseudonyms, and which pseudonym stands for which name."""

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
from kafka_forensics.storage.disks import whole_file
from kafka_forensics.storage.documents import opened_document
from kafka_forensics.storage.private import open_private

_VERSION: Final = 1
_KEY_BYTES: Final = 32
_KEY_NAME_DIGITS: Final = 16
_REFUSED: Final = "name a file that --redact-map made, or one that is not there yet"


class PseudonymMap:
    """A key with the pseudonyms that were made with it (`model.pseudonyms.Pseudonyms`); kept in a file that only its owner can
    read."""

    def __init__(self, key: str, names: dict[str, tuple[str, str]], path: Path | None = None) -> None:
        self._key = bytes.fromhex(key)
        self._names = names
        """Pseudonym → (kind, name)."""
        self._known = {kind_and_name: pseudonym for pseudonym, kind_and_name in names.items()}
        self._path = path

    @classmethod
    def at(cls, path: Path) -> "PseudonymMap":
        """The one in the file, which is made with a new key if it is not there. Raises UsageError if that cannot be."""
        if not os.path.lexists(path):
            return cls._made(path)
        with opened_document(str(path), _REFUSED) as file:
            if os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise UsageError(f"others may read or write {path}, which holds all names", hint=f"chmod 600 {path}")
            try:
                held = json.load(file)
                names = {str(pseudonym): (str(row["kind"]), str(row["name"])) for pseudonym, row in held["names"].items()}
                if held["version"] != _VERSION or len(bytes.fromhex(held["key"])) != _KEY_BYTES:
                    raise UsageError(f"{path} is no map of pseudonyms of this version", hint=_REFUSED)
                return cls(held["key"], names, path)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError, MemoryError) as error:
                raise UsageError(f"{path} is no map of pseudonyms", hint=_REFUSED) from error

    @classmethod
    def unkept(cls) -> "PseudonymMap":
        """One with a new key, in no file: for what nobody reads."""
        return cls(token_hex(_KEY_BYTES), {})

    @classmethod
    def _made(cls, path: Path) -> "PseudonymMap":
        made = cls(token_hex(_KEY_BYTES), {}, path)
        try:
            made._write(path, replace=False)
        except UsageError:
            if not os.path.lexists(path):
                raise
            return cls.at(path)  # another process has made it meanwhile
        return made

    @property
    def key_name(self) -> str:
        """16 hexadecimal digits by which keys of pseudonyms are distinguished, and which reveal nothing of them."""
        return self._secret("name of the key").hex()[:_KEY_NAME_DIGITS]

    def digests_key(self) -> bytes:
        """The key with which contents are digested by all who have the map: 32 bytes."""
        return self._secret("key of digests")

    def pseudonym(self, kind: NameKind, name: str) -> str:
        """What stands for a name; Kafka's own names, and pseudonyms, stand for themselves."""
        if self._stands_for_itself(name):
            return name
        known = self._known.get((kind, name))
        if known is not None:
            return known
        digest = self._secret(name, kind).hex()
        digits = next(count for count in range(PSEUDONYM_DIGITS, len(digest) + 1) if f"{kind}-{digest[:count]}" not in self._names)
        pseudonym = f"{kind}-{digest[:digits]}"
        self._known[kind, name] = pseudonym
        self._names[pseudonym] = kind, name
        return pseudonym

    def unremembered(self, kind: NameKind, name: str) -> str:
        """The same of a name that is not put into the map, as there may be very many."""
        if self._stands_for_itself(name):
            return name
        return self._known.get((kind, name)) or f"{kind}-{self._secret(name, kind).hex()[:PSEUDONYM_DIGITS]}"

    def _stands_for_itself(self, name: str) -> bool:
        return not name or name in WITNESS_TOPICS or name in self._names

    def _secret(self, name: str, kind: str = "") -> bytes:
        """32 bytes that only those know who have the key; of a name, or without a kind for a purpose of this name."""
        return hmac.new(self._key, f"{kind}\0{name}".encode("utf-8", "surrogatepass"), sha256).digest()

    def keep(self) -> None:
        """Write the file anew, whole or not at all, with what another process has put there meanwhile. Raises UsageError if that
        cannot be, and if it holds another key by now."""
        if self._path is None:
            return
        with _alone_with(self._path):
            if self._path.exists():
                there = PseudonymMap.at(self._path)
                if there._key != self._key:
                    raise UsageError(f"{self._path} was replaced by a map of another key", hint="run it again")
                self._names = there._names | self._names
            self._write(self._path, replace=True)

    def _write(self, path: Path, *, replace: bool) -> None:
        """Write the file. Raises UsageError if that cannot be, and without `replace` where one is there."""
        names = {pseudonym: {"kind": kind, "name": name} for pseudonym, (kind, name) in sorted(self._names.items())}
        text = json.dumps({"version": _VERSION, "key": self._key.hex(), "names": names}, indent=1) + "\n"
        try:
            with whole_file(path, open_private, replace=replace) as file:
                file.write(text)
        except OSError as error:
            raise UsageError(f"cannot write to {path}: {error.strerror}", hint="give --redact-map another place") from error


@contextmanager
def _alone_with(path: Path) -> Iterator[None]:
    """While this holds, nobody else does so for the same file, which each puts there anew: so the lock is of the one that is there
    when it is had. Of a file that is gone nobody is kept out."""
    import fcntl

    while True:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            yield  # what is wrong with it is said where it is read or written
            return
        with os.fdopen(descriptor, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
            except OSError as error:
                raise UsageError(f"cannot lock {path}: {error.strerror}", hint="give --redact-map another place") from error
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                yield
                return
