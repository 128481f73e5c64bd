"""Answers in which names from the evidence are pseudonyms: the same for the same key, in every format.

An answer is looked through twice. First the names are learnt from the fields that hold one (a topic, a group); then a copy is made
in which pseudonyms stand in those fields, and wherever else a text names something that was learnt (a path, a premise, a command).
Messages and advice are made of the copy afterwards. Numbers, offsets and Kafka's own names stay as they are.
"""

import copy
import hmac
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafka_forensics.errors import UsageError
from kafka_forensics.model.constants import WITNESS_TOPICS
from kafka_forensics.model.pseudonyms import NUMBERED, PSEUDONYM, PSEUDONYM_DIGITS, NameKind

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_forensics.model.json_objects import Json

Answer = TypeVar("Answer")


_RANKS: Final = {kind: rank for rank, kind in enumerate(NameKind)}


# The private file that holds the key, and which name is which.


_VERSION: Final = 1
_KEY_BYTES: Final = 32
_NAME_DIGITS: Final = 16
_REFUSED: Final = "name a file that --redact-map made, or one that is not there yet"


class PseudonymMap:
    """A key with the pseudonyms that were made with it; kept in a file that only its owner can read."""

    def __init__(self, key: str, names: dict[str, tuple[str, str]], path: Path | None = None) -> None:
        self._key = bytes.fromhex(key)
        self._names = names
        """Pseudonym → (kind, name)."""
        self._known = {kind_and_name: pseudonym for pseudonym, kind_and_name in names.items()}
        self._path = path
        self.stands_in_evidence = False
        """Whether pseudonyms of this key may come from evidence, of names that were not met here."""

    @classmethod
    def at(cls, path: Path) -> "PseudonymMap":
        """The one in the file, which is made with a new key if it is not there. Raises UsageError if that cannot be."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return cls._made(path)
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}", hint=_REFUSED) from error
        with os.fdopen(descriptor, encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise UsageError(f"{path} is no file", hint=_REFUSED)
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise UsageError(f"others may read or write {path}, which holds all names", hint=f"chmod 600 {path}")
            try:
                held = json.load(file)
                names = {str(pseudonym): (str(row["kind"]), str(row["name"])) for pseudonym, row in held["names"].items()}
                if held["version"] != _VERSION or len(bytes.fromhex(held["key"])) != _KEY_BYTES:
                    raise UsageError(f"{path} is no map of pseudonyms of this version", hint=_REFUSED)
                return cls(held["key"], names, path)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise UsageError(f"{path} is no map of pseudonyms", hint=_REFUSED) from error

    @classmethod
    def _made(cls, path: Path) -> "PseudonymMap":
        made = cls(token_hex(_KEY_BYTES), {}, path)
        with made._written_beside(path) as whole:
            return made if _linked(whole, path) else cls.at(path)

    def of(self, kind: str, name: str) -> str:
        """The pseudonym of a name."""
        known = self._known.get((kind, name))
        if known is not None:
            return known
        digest = self.secret(name, kind).hex()
        digits = next(count for count in range(PSEUDONYM_DIGITS, len(digest) + 1) if f"{kind}-{digest[:count]}" not in self._names)
        pseudonym = f"{kind}-{digest[:digits]}"
        self._known[kind, name] = pseudonym
        self._names[pseudonym] = kind, name
        return pseudonym

    def is_pseudonym(self, text: str) -> bool:
        """Whether it was made here, or looks like that where evidence is read in which pseudonyms of this key stand for names."""
        return text in self._names or (self.stands_in_evidence and PSEUDONYM.fullmatch(text) is not None)

    def unremembered(self, kind: str, name: str) -> str:
        """The pseudonym of a name that is not put into the map."""
        return self._known.get((kind, name)) or f"{kind}-{self.secret(name, kind).hex()[:PSEUDONYM_DIGITS]}"

    def secret(self, name: str, kind: str = "") -> bytes:
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
            with self._written_beside(self._path) as whole:
                whole.replace(self._path)

    @contextmanager
    def _written_beside(self, path: Path) -> Iterator[Path]:
        """The whole file under another name, to be given its own. Raises UsageError if that cannot be."""
        names = {pseudonym: {"kind": kind, "name": name} for pseudonym, (kind, name) in sorted(self._names.items())}
        text = json.dumps({"version": _VERSION, "key": self._key.hex(), "names": names}, indent=1) + "\n"
        beside = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            yield beside
        except OSError as error:
            raise UsageError(f"cannot write to {path}: {error.strerror}", hint="give --redact-map another place") from error
        finally:
            beside.unlink(missing_ok=True)


def _linked(beside: Path, path: Path) -> bool:
    """Give a file another name; False where there is one of that name."""
    try:
        os.link(beside, path)
    except FileExistsError:
        return False
    return True


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


# Which fields hold a name, by what they are called in answers, in evidence and in the records of internal topics.


_LEADER: Final = "leader"
"""Of a partition a broker, of a group a member."""
_NAMES: Final[dict[str, NameKind]] = {
    **dict.fromkeys(("topic", "topics", "internal_topics", "topic_name", "topic_glob"), NameKind.TOPIC),
    **dict.fromkeys(("subscribed_topic_names", "source_topics", "repartition_sink_topics"), NameKind.TOPIC),
    **dict.fromkeys(("group", "groups", "group_id"), NameKind.GROUP),
    "transactional_id": NameKind.TRANSACTIONAL_ID,
    **dict.fromkeys(("client_id", "member_id", "group_instance_id", "instance_id", "process_id", _LEADER), NameKind.CLIENT),
    **dict.fromkeys(("client_host", "host"), NameKind.HOST),
    **dict.fromkeys(("cluster_id", "cluster_ids"), NameKind.CLUSTER),
    **dict.fromkeys(("rack", "rack_id", "racks", "principal", "owner", "requester", "renewers", "token_id"), NameKind.OTHER),
    **dict.fromkeys(("subscribed_topic_regex", "source_topic_regex", "entity_name", "resource_name"), NameKind.OTHER),
}
_BROKERS: Final = frozenset(
    (
        *("broker", "brokers", "held_by", "held_before", "not_given", "not_on", "minority", "majority", "kept_on", "kept_by"),
        *("committed_on", "watermark_unknown", "leaders", "ended_on", "open_on", "present_on", "misplaced_on", "in_conflict"),
        *("follower", "named", "coordinator_broker", "directories_missing_on", "log_broker", "absent", "refused", "alike"),
    )
)
_KEYED_BY_NAMES: Final = frozenset(
    (
        *("cluster_ids", "topic_ids", "fork_epochs", "records", "markers", "aborted", "keyless", "groups"),
        *("absent", "not_read", "refused", "by_broker", "partitions", "topics", "snapshots"),
    )
)
"""Objects whose keys are no words of ours."""
_CODES: Final = frozenset(
    (
        *("kind", "state", "status", "verdict", "severity", "confidence", "cleanup_policy", "marker", "coordinator_state"),
        *("timestamp_type", "compression_type", "codec", "what", "limit_name", "read", "engine", "entry_kind", "event", "election"),
        *("truncate_by", "span", "control_record_type", "txn_state", "cost", "record_type", "index_type", "type_name", "policy"),
        *("shown_as", "partitioner", "partitioner_before", "membership", "capped_by", "cost_finding", "suffix", "leftover"),
        *("delivery_state", "protocol_type", "decision", "incident", "issue", "group_type", "group_state", "held_back_by"),
        *("topic_id", "directory_id", "incarnation_id", "directories", "record", "schema_version", "fact", "sha256", "controller"),
    )
)
"""Fields whose values are words of ours or of Kafka's, or numbers in another spelling."""
_PATHS: Final = frozenset(("log_dir", "log_dirs", "path", "paths", "file", "files", "directory", "shown", "name"))
_LISTS_OF_TOPICS: Final = frozenset(("repartition_source_topics", "state_changelog_topics", "repartition_topics"))
_NAMED_RECORDS: Final = {
    "TOPIC_RECORD": NameKind.TOPIC,
    "USER_SCRAM_CREDENTIAL_RECORD": NameKind.OTHER,
    "REMOVE_USER_SCRAM_CREDENTIAL_RECORD": NameKind.OTHER,
}
"""Records of the controllers' log whose `name` is one."""
_TOPIC_RESOURCE: Final = 2
_ILLEGAL_DIRECTORY: Final = "DIR_NAME_ILLEGAL"

_TOKEN: Final = re.compile(r"[A-Za-z0-9._\-]+")
_PART: Final = re.compile(r"[A-Za-z0-9]+")
_WORD: Final = re.compile(r"[a-z_]+")
_KEY: Final = re.compile(r"[a-z][a-z0-9_]*")
_SNAKE: Final = re.compile(r"(?<=[a-z])([A-Z])")
_PARTITION: Final = re.compile(r"-\d")
_SHORTEST: Final = 3
"""Characters of a name that is found in other texts wherever it stands; `a` and `is` are words."""
_TOKENS_KEPT: Final = 1 << 16
_MOST_EDGES: Final = 200
"""Of the parts of a run of characters; no name has more than one of 249 characters can have."""
_AUTHORITY: Final = re.compile(r"\b(?!file:)[A-Za-z][A-Za-z0-9+.-]*://([^/\s]+)")
_HOST: Final = re.compile(r"(?:\d{1,3}\.){3}\d{1,3}|(?:[A-Za-z0-9-]+\.){2,}[A-Za-z]{2,}")
_NO_DOMAINS: Final = frozenset(
    (
        *("log", "index", "timeindex", "txnindex", "snapshot", "properties", "checkpoint", "metadata"),
        *("deleted", "swap", "cleaned", "tar", "gz", "tgz", "xz", "zst", "zip", "tmp", "bak", "kfb"),
        *("json", "jsonl", "parquet", "html", "tsv", "md", "txt"),
    )
)
"""How names of files end that look like those of hosts."""
_SAFE_PACKAGES: Final = tuple(
    f"kafka_forensics.{name}" for name in ("model.", "questions.", "replication.", "analysis.", "evidence.context")
)
"""Whose classes are answers, or parts of such."""


class Redaction:
    """Pseudonyms for what one run of a command shows."""

    def __init__(self, pseudonyms: PseudonymMap) -> None:
        self._map = pseudonyms
        self._plain: dict[str, str] = {}
        """Name that is letters, digits, dots, dashes and underscores → pseudonym."""
        self._odd: dict[str, str] = {}
        """Any other."""
        self._odd_pattern: re.Pattern[str] | None = None
        self._kinds: dict[str, NameKind] = {}
        self._tokens: dict[str, str] = {}
        """Runs of characters → with pseudonyms; until there is another name."""

    def keep(self) -> None:
        """Write the map. Raises UsageError if that cannot be."""
        self._map.keep()

    # What a bundle is made with (`model.pseudonyms.Pseudonyms`), and read again.

    @property
    def key_name(self) -> str:
        """16 hexadecimal digits by which keys of pseudonyms are told apart, and which tell nothing of them."""
        return self._map.secret("name of the key").hex()[:_NAME_DIGITS]

    def pseudonym(self, kind: NameKind, name: str) -> str:
        """What stands for a name; Kafka's own names, and pseudonyms, stand for themselves."""
        return name if _is_own(name) or self._map.is_pseudonym(name) else self._map.of(kind.value, name)

    def unremembered(self, kind: NameKind, name: str) -> str:
        """The same of a name that need not be found again, as there may be very many."""
        return name if _is_own(name) or self._map.is_pseudonym(name) else self._map.unremembered(kind.value, name)

    def digests_key(self) -> bytes:
        """The key with which contents are digested by all who have the map: 32 bytes."""
        return self._map.secret("key of digests")

    def meet(self, key_name: str | None) -> None:
        """Evidence is read in which pseudonyms stand for names, by the name of their key: those of this key stay as they are."""
        if key_name == self.key_name:
            self._map.stands_in_evidence = True

    def answer(self, answer: Answer) -> Answer:
        """A copy of an answer, or of a part of one; iterators in it are read while they are asked for."""
        self.learn(answer)
        changed: Answer = self._changed(answer, "")
        return changed

    def rows(self, rows: Iterable[Answer]) -> Iterator[Answer]:
        """Copies of rows that are read while they are asked for."""
        return map(self.answer, rows)

    def listed(self, columns: Sequence[str], rows: Iterable[Any]) -> Iterator[Any]:
        """Copies of rows as `dump` and `find` list them: values by these columns, or many records as columns, of which at most what
        is the same in all of them holds names."""
        is_property = {"name", "value"} <= {*columns}
        for row in rows:
            if isinstance(row, tuple):
                yield self._listed_row([*columns], row, is_property=is_property)
            elif hasattr(row, "same"):
                yield replace(row, same=self.answer(row.same))
            else:
                yield row

    def _listed_row(self, names: list[str], row: tuple[Any, ...], *, is_property: bool) -> tuple[Any, ...]:
        """A row whose values stand in columns of these names; of a file of properties each value is of what its row is called."""
        if is_property:
            names[names.index("value")] = _SNAKE.sub(r"_\1", str(row[names.index("name")])).lower()
            names[names.index("name")] = "kind"  # a word of Kafka's
        texts = [number for number, value in enumerate(row) if isinstance(value, str | dict | list) and names[number] not in _CODES]
        if not texts:
            return row
        changed = list(row)
        for number in texts:
            self.learn(row[number], names[number])
            changed[number] = self._changed(row[number], names[number])
        return tuple(changed)

    def text(self, text: str) -> str:
        """`text` with pseudonyms for the names in it that are known."""
        if self._odd:
            if self._odd_pattern is None:
                longest_first = sorted(self._odd, key=lambda name: (-len(name), name))
                self._odd_pattern = re.compile("|".join(map(_by_itself, longest_first)))
            text = self._odd_pattern.sub(lambda match: self._odd[match[0]], text)
        return _TOKEN.sub(self._token, text) if self._plain else text

    def _token(self, match: re.Match[str]) -> str:
        """A run of characters as names have them; what becomes of one is kept, for most come again and again."""
        token = match[0]
        told = self._tokens.get(token)
        if told is None:
            if len(self._tokens) >= _TOKENS_KEPT:
                self._tokens.clear()
            told = self._tokens[token] = self._with_pseudonyms(token)
        return told

    def _with_pseudonyms(self, token: str) -> str:
        """A run of characters with the longest names within it, from the left, that begin and end where a part of it does."""
        own = PSEUDONYM.match(token)
        if own is not None and self._map.is_pseudonym(own[0]):
            return own[0] + (self._with_pseudonyms(token[own.end() :]) if token[own.end() :] else "")
        inside = {at for part in _PART.finditer(token) for at in range(part.start() + 1, part.end())}
        edges = [at for at in range(len(token) + 1) if at not in inside]
        if len(edges) > _MOST_EDGES:
            edges = [0, len(token)]
        told, at = "", 0
        while at < len(token):
            end = next((edge for edge in reversed(edges) if edge > at and self._is_name(token, at, edge)), None)
            if end is not None:
                told, at = told + self._plain[token[at:end]], end
            else:
                behind = next(edge for edge in edges if edge > at)
                told, at = told + token[at:behind], behind
        return told

    def _is_name(self, token: str, start: int, end: int) -> bool:
        """Whether a name stands there; of a number or a very short one, only where a partition follows."""
        name = token[start:end]
        is_word = name.isdecimal() or len(name) < _SHORTEST
        return name in self._plain and (not is_word or _PARTITION.match(token, end) is not None)

    # The names in an answer.

    def learn(self, value: object, name: str = "") -> None:
        """Take the names out of all fields that hold one."""
        shape = _shape_of(type(value))
        if shape is None:
            return
        if isinstance(value, str):
            self._learn_text(value, name)
        elif isinstance(value, Mapping):
            self._learn_object(value, name)
        elif isinstance(value, list | tuple | set | frozenset):
            for number, item in enumerate(value):
                self.learn(item, shape[number] if shape else name)
        else:
            self._learn_fields(value, shape)

    def learn_paths(self, paths: Iterable[str]) -> None:
        """Take hosts out of paths and URIs."""
        for path in paths:
            self._learn_path(path)

    def _learn_text(self, value: str, name: str) -> None:
        if name in _NAMES:
            self._learn_name(_NAMES[name], value)
        elif name in _BROKERS and not NUMBERED.fullmatch(value):
            self._learn_name(NameKind.BROKER, value)
        elif name in _PATHS:
            self._learn_path(value)
        elif "://" in value:
            self._learn_uris(value)

    def _learn_uris(self, text: str) -> None:
        for authority in _AUTHORITY.findall(text):
            self._learn_name(NameKind.HOST, authority.rpartition("@")[2])

    def _learn_path(self, path: str) -> None:
        self._learn_uris(path)
        for component in path.split("/"):
            if _HOST.fullmatch(component) and component.rpartition(".")[2].lower() not in _NO_DOMAINS:
                self._learn_name(NameKind.HOST, component)

    def _learn_object(self, value: Mapping[Any, object], name: str) -> None:
        record = value.get("record")
        if name == "detail" and isinstance(record, str):
            self._learn_record(record, value)
        for key, item in value.items():
            if name in _KEYED_BY_NAMES:
                self._learn_key(key, name)
                self.learn(item, name if name in _NAMES else "")
            elif name in _LISTS_OF_TOPICS and key == "name" and isinstance(item, str):
                self._learn_name(NameKind.TOPIC, item)
            else:
                self.learn(item, str(key))

    def _learn_key(self, key: object, name: str) -> None:
        """A key that is a name: of what its object is about, of a broker, or of a topic with its partition."""
        if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], str):
            self._learn_name(NameKind.TOPIC, key[0])
        elif isinstance(key, str) and name in ("groups", "topics"):
            self._learn_name(_NAMES[name], key)
        elif isinstance(key, str) and name not in ("snapshots", "partitions") and "/" not in key and not NUMBERED.fullmatch(key):
            self._learn_name(NameKind.BROKER, key)
        elif isinstance(key, str):
            self._learn_path(key)

    def _learn_record(self, record: str, detail: Mapping[Any, object]) -> None:
        """What only the kind of a controllers' record says to be a name."""
        value = detail.get("value")
        if not isinstance(value, Mapping):
            return
        own = value.get("name")
        if record in _NAMED_RECORDS and isinstance(own, str):
            self._learn_name(_NAMED_RECORDS[record], own)
        resource = value.get("resource_name")
        if isinstance(resource, str) and value.get("resource_type") == _TOPIC_RESOURCE:
            self._learn_name(NameKind.TOPIC, resource)

    def _learn_fields(self, value: object, names: tuple[str, ...]) -> None:
        for name in names:
            self.learn(getattr(value, name), name)
        if getattr(value, "kind", None) == _ILLEGAL_DIRECTORY:
            illegal = value.place.file  # type: ignore[attr-defined]
            if illegal:
                self._learn_name(NameKind.OTHER, illegal.split("/")[0])

    def _learn_name(self, kind: NameKind, name: str) -> None:
        """A name, for other texts that have it: unless it is Kafka's own or says nothing there, as numbers and dashes do."""
        is_number = name.isdecimal() and kind is not NameKind.TOPIC
        if _is_own(name) or is_number or self._map.is_pseudonym(name) or not any(map(str.isalnum, name)):
            return
        known = self._kinds.get(name)
        if known is not None and _RANKS[known] <= _RANKS[kind]:
            return
        self._kinds[name] = kind
        if _TOKEN.fullmatch(name):
            self._plain[name] = self._map.of(kind.value, name)
            self._tokens.clear()
        else:
            self._odd[name] = self._map.of(kind.value, name)
            self._odd_pattern = None

    # The copy.

    def _changed(self, value: Any, name: str) -> Any:
        """A copy of `value`, which stands in a field of this name."""
        shape = _shape_of(type(value))
        if shape is None:
            return self.rows(value) if isinstance(value, Iterator) else value
        if isinstance(value, str):
            return self._changed_text(value, name)
        if isinstance(value, Mapping):
            return self._changed_object(value, name)
        if isinstance(value, list | tuple | set | frozenset):
            items = [self._changed(item, shape[number] if shape else name) for number, item in enumerate(value)]
            return type(value)(*items) if shape else type(value)(items)
        return self._changed_fields(value, shape)

    def _changed_text(self, value: str, name: str) -> str:
        if name in _CODES or (name == "reason" and _WORD.fullmatch(value)):
            return value
        kind = self._kinds.get(value, NameKind.CLIENT) if name == _LEADER else _NAMES.get(name)
        if kind is None and name in _BROKERS:
            kind = NameKind.BROKER
        if kind is NameKind.OTHER or name in _PATHS:
            kind = self._kinds.get(value, kind)
        if kind is None or (name in (_LEADER, *_BROKERS) and NUMBERED.fullmatch(value)):
            return self.text(value)
        return value if kind is NameKind.OTHER and value.isdecimal() else self.pseudonym(kind, value)

    def _changed_object(self, value: Mapping[Any, object], name: str) -> Any:
        keyed = name in _KEYED_BY_NAMES
        inner = name if keyed and name in _NAMES else ""
        changed = {
            self._changed(key, "") if keyed or not _KEY.fullmatch(str(key)) else key: self._changed(
                item, inner if keyed else str(key)
            )
            for key, item in value.items()
        }
        if type(value) is dict:
            return changed
        same_kind: Any = copy.copy(value)  # a Counter, say
        same_kind.clear()
        same_kind.update(changed)
        return same_kind

    def _changed_fields(self, value: Any, names: tuple[str, ...]) -> Any:
        before = [getattr(value, name) for name in names]
        after = [self._changed(item, name) for item, name in zip(before, names, strict=True)]
        changed = copy.copy(value) if hasattr(value, "__dict__") else object.__new__(type(value))
        for name, item in zip(names, after, strict=True):
            object.__setattr__(changed, name, item)
        return changed

    # Arrow.

    def table(self, batch: "pa.RecordBatch") -> "pa.RecordBatch":
        """Rows of a fact with pseudonyms in the columns of text."""
        import pyarrow as pa

        if not batch.num_rows:
            return batch
        columns = [self._column(column, field.name) for field, column in zip(batch.schema, batch.columns, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)

    def _column(self, column: Any, name: str) -> Any:
        """A column with pseudonyms; each value that it has is looked at once."""
        import pyarrow as pa

        if pa.types.is_dictionary(column.type):
            return pa.DictionaryArray.from_arrays(column.indices, self._column(column.dictionary, name))
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            encoded = column.dictionary_encode()
            told = [None if value is None else self._cell(value, name) for value in encoded.dictionary.to_pylist()]
            return pa.array(told, column.type).take(encoded.indices)
        if pa.types.is_nested(column.type) and _has_text(column.type):
            rows = column.to_pylist()
            self.learn(rows, name)
            return pa.array(self._changed(rows, name), column.type)
        return column

    def _cell(self, value: str, name: str) -> str:
        """A value of a column; such as are JSON are taken apart."""
        if name in ("evidence", "detail", "fields", "members", "settings") and value[:1] in "{[":
            try:
                parsed: Json = json.loads(value)
            except ValueError:
                return self.text(value)
            self.learn(parsed, name)
            return json.dumps(self._changed(parsed, name), ensure_ascii=True)
        self._learn_text(value, name)
        return self._changed_text(value, name)


def _by_itself(name: str) -> str:
    """The pattern of a name where it is no part of a longer word."""
    before = "(?<![A-Za-z0-9])" if name[0].isalnum() else ""
    return before + re.escape(name) + ("(?![A-Za-z0-9])" if name[-1].isalnum() else "")


def _is_own(name: str) -> bool:
    """Whether a name is Kafka's own, or none at all."""
    return not name or name in WITNESS_TOPICS


def _has_text(kind: "pa.DataType") -> bool:
    """Whether a nested type has text anywhere in it."""
    import pyarrow as pa

    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return True
    return any(_has_text(kind.field(number).type) for number in range(kind.num_fields))


_SHAPES: Final[dict[type, tuple[str, ...] | None]] = {}


def _shape_of(kind: type) -> tuple[str, ...] | None:
    """Whether values of this type may hold names, None: no. The fields of an answer or of a named tuple; nothing of what has other
    parts, or is text itself."""
    if kind not in _SHAPES:
        _SHAPES[kind] = _shape(kind)
    return _SHAPES[kind]


def _shape(kind: type) -> tuple[str, ...] | None:
    if issubclass(kind, Enum):
        return None
    if issubclass(kind, tuple):
        return getattr(kind, "_fields", ())
    if is_dataclass(kind):
        return tuple(own.name for own in fields(kind)) if kind.__module__.startswith(_SAFE_PACKAGES) else None
    return () if issubclass(kind, str | Mapping | list | set | frozenset) else None
