"""The small text files of a log directory: offset checkpoints (OffsetCheckpointFile), leader epochs, identities."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct

from kafka_forensics.model.batches import Damage
from kafka_forensics.model.constants import INT64_MAX, MAX_INT32
from kafka_forensics.model.files import CleanShutdown, EpochEntry, LeaderEpochs, MetaProperties, OffsetCheckpoint, PartitionMetadata
from kafka_forensics.parsers.bounded import MAX_DAMAGE_ROWS, DamageList, TextLine, parse_integer, read_text
from kafka_forensics.storage.source import ByteFile

CHECKPOINT_VERSION: Final = 0
_KIND: Final = "CHECKPOINT_MALFORMED"
_NEGATIVE: Final = re.compile(rb"-[0-9]{1,18}")
"""Kafka reads negative offsets, although none is valid."""
TOPIC: Final = re.compile(rb"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}")
"""A valid topic name."""

TakeEntry = Callable[[list[bytes]], str | None]
"""Stores the entry in the words of a line, or returns a short reason why there is none."""


def parse_offset_checkpoint(file: ByteFile) -> OffsetCheckpoint:
    """Every readable line of an offset checkpoint; the last line of a partition wins; an empty file is an empty map.

    Damage is `CHECKPOINT_MALFORMED` with `reason` and `line`, see `read_checkpoint`.
    """
    offsets: dict[tuple[str, int], int] = {}

    def take(words: list[bytes]) -> str | None:
        if len(words) != 3:
            return "fields"
        partition = parse_integer(words[1], 0, MAX_INT32)
        offset = parse_integer(words[2], 0, INT64_MAX)
        if not TOPIC.fullmatch(words[0]):
            return "topic"
        if partition is None:
            return "partition"
        if offset is None:
            return "negative" if _NEGATIVE.fullmatch(words[2]) else "offset"
        offsets[words[0].decode("ascii"), partition] = offset
        return None

    damage = read_checkpoint(file, take)
    return OffsetCheckpoint(offsets, damage)


def read_checkpoint(file: ByteFile, take: TakeEntry) -> list[Damage]:
    """Call `take` with the words of every entry line; returns damage, at most 33 rows.

    The format (CheckpointFile): a line with the version, one with the number of entries, one line per entry, words separated by
    white space. Reasons: `version` and `count` (absent, unreadable or wrong), the result of `take`, `unterminated` (the last line
    has no line end and may be cut; it is used nevertheless), and those of `bounded`.
    """
    headers: dict[int, tuple[TextLine, int | None]] = {}
    in_headers, damage = DamageList(_KIND, 2), DamageList(_KIND, MAX_DAMAGE_ROWS - 2)
    text = read_text(file, damage)
    entries = 0
    last = None
    for line in text.lines(damage):
        last = line
        words = [] if line.content is None else line.content.split()
        reason = take(words)
        if line.number <= 2 and reason is not None:
            number = parse_integer(words[0], -INT64_MAX - 1, INT64_MAX) if len(words) == 1 else None
            headers[line.number] = line, number
            continue
        entries += 1
        if reason is not None and line.content is not None:
            damage.add(line.position, line.size_in_bytes, reason, line=line.number)
    if last is None:
        return damage.rows()
    for number, name, expected in ((1, "version", CHECKPOINT_VERSION), (2, "count", entries)):
        line, value = headers.get(number, (_NO_LINE, None))
        if value != expected and (number == 1 or text.complete):
            found = {} if value is None else {"found": value}
            in_headers.add(line.position, line.size_in_bytes, name, line=number, expected=expected, **found)
    if text.complete and not last.terminated:
        damage.add(last.position, last.size_in_bytes, "unterminated", line=last.number)
    return in_headers.rows() + damage.rows()


_NO_LINE: Final = TextLine(0, 0, 0, None, terminated=False)


# Identity files: `meta.properties`, `partition.metadata`, `.kafka_cleanshutdown`.


MAX_IDENTITY_BYTES: Final = 1 << 20
MAX_CLEAN_SHUTDOWN_BYTES: Final = 4096
UUID: Final = re.compile(r"[A-Za-z0-9_-]{22}")
"""An id of a topic or a directory, as Kafka prints it."""
_ZERO_ID: Final = "A" * 22
_TOPIC_ID: Final = re.compile(rf"(?!{_ZERO_ID})[A-Za-z0-9_-]{{22}}")
_CLUSTER_ID: Final = re.compile(r".{1,255}", re.DOTALL)
_METADATA_LINE: Final = re.compile(r"\s*(\w+)\s*:\s+(\S+)\s*", re.ASCII)
_BLANK: Final = " \t\f"
_PROPERTY: Final = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_meta_properties(file: ByteFile) -> MetaProperties:
    """The identity in a `meta.properties` (MetaProperties; a Java properties file; of equal keys the last wins).

    Version 0 has the node as `broker.id`, all keys optional; version 1 requires `node.id` and `cluster.id`. Damage
    `CHECKPOINT_MALFORMED`, reasons: `version`, `node_id`, `cluster_id`, `directory_id` (unreadable), `cluster_id_empty`, `missing`
    (with `key`), `escape` (an invalid Unicode escape), and those of `bounded`.
    """
    damage = DamageList(_KIND)
    values = _read_properties(file, damage)
    version = _number(values.get("version"), "version", 1, damage)
    node_key = "node.id" if version == 1 or "node.id" in values else "broker.id"
    node_id = _number(values.get(node_key), "node_id", MAX_INT32, damage)
    is_empty = "cluster.id" in values and not values["cluster.id"].text
    cluster_id = _matching(values.get("cluster.id"), "cluster_id_empty" if is_empty else "cluster_id", _CLUSTER_ID, damage)
    directory_id = _matching(values.get("directory.id"), "directory_id", UUID, damage)
    for key in ("version", "node.id", "cluster.id") if version == 1 else ("version",):
        if key not in values:
            damage.add(0, file.size_in_bytes, "missing", key=key)
    return MetaProperties(version, node_id, cluster_id, directory_id, damage.rows())


def read_properties(file: ByteFile) -> dict[str, str]:
    """The readable keys and values of a Java properties file; of equal keys the last wins."""
    return {key: value.text for key, value in _read_properties(file, DamageList(_KIND)).items()}


def parse_partition_metadata(file: ByteFile) -> PartitionMetadata:
    """The topic id in a `partition.metadata` (PartitionMetadataFile, KIP-516): lines `version: 0`, `topic_id: <22 characters>`.

    Damage `CHECKPOINT_MALFORMED`, reasons: `fields` (a line of another format), `version`, `topic_id` (not base64url of 16
    bytes), `zero_id` (which Kafka refuses), `missing` (with `key`), and those of `bounded`.
    """
    damage = DamageList(_KIND)
    values: dict[str, _FieldValue] = {}
    for line in read_text(file, damage, MAX_IDENTITY_BYTES).lines(damage):
        match = _METADATA_LINE.fullmatch(line.content.decode("latin-1")) if line.content is not None else None
        if match is not None:
            values[match[1]] = _FieldValue(match[2], line)
        elif line.content is not None:
            damage.add(line.position, line.size_in_bytes, "fields", line=line.number)
    version = _number(values.get("version"), "version", MAX_INT32, damage)
    reason = "zero_id" if "topic_id" in values and values["topic_id"].text == _ZERO_ID else "topic_id"
    topic_id = _matching(values.get("topic_id"), reason, _TOPIC_ID, damage)
    for key in ("version", "topic_id"):
        if key not in values:
            damage.add(0, file.size_in_bytes, "missing", key=key)
    return PartitionMetadata(version, topic_id, damage.rows())


def parse_clean_shutdown(file: ByteFile) -> CleanShutdown:
    """The broker epoch in a `.kafka_cleanshutdown` (CleanShutdownFileHandler): JSON since Kafka 3.7, an empty file before.

    The file means a clean shutdown, whatever its content. Damage `CHECKPOINT_MALFORMED`, reasons: `json`, `version`,
    `broker_epoch`, `oversized`, `zeros`.
    """
    damage = DamageList(_KIND)
    data = read_text(file, damage, MAX_CLEAN_SHUTDOWN_BYTES).data
    if not data or file.size_in_bytes > MAX_CLEAN_SHUTDOWN_BYTES:
        return CleanShutdown(None, damage.rows())
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):  # RecursionError: thousands of nested brackets
        content = None
    if not isinstance(content, dict):
        damage.add(0, len(data), "json")
        return CleanShutdown(None, damage.rows())
    if content.get("version") != 0:
        damage.add(0, len(data), "version")
    broker_epoch = content.get("brokerEpoch")
    if type(broker_epoch) is not int or not -1 <= broker_epoch <= INT64_MAX:
        damage.add(0, len(data), "broker_epoch")
        broker_epoch = None
    return CleanShutdown(broker_epoch, damage.rows())


class _FieldValue(Struct, frozen=True):
    """The value of a key, and its line (the first of a continued line)."""

    text: str
    line: TextLine


def _number(value: _FieldValue | None, reason: str, largest: int, damage: DamageList) -> int | None:
    """The number in `value`, from 0 to `largest`; any other text is damage."""
    if value is None:
        return None
    number = parse_integer(value.text.encode("utf-8"), 0, largest)
    if number is None:
        damage.add(value.line.position, value.line.size_in_bytes, reason, line=value.line.number)
    return number


def _matching(value: _FieldValue | None, reason: str, pattern: re.Pattern[str], damage: DamageList) -> str | None:
    """The text of `value`; text that does not match `pattern` is damage."""
    if value is None or pattern.fullmatch(value.text):
        return None if value is None else value.text
    damage.add(value.line.position, value.line.size_in_bytes, reason, line=value.line.number)
    return None


def _read_properties(file: ByteFile, damage: DamageList) -> dict[str, _FieldValue]:
    """A Java properties file: comments with `#` or `!`, `=`, `:` or blanks after keys, escapes, continued lines, ISO 8859-1."""
    values: dict[str, _FieldValue] = {}
    for line, text in _logical_lines(read_text(file, damage, MAX_IDENTITY_BYTES).lines(damage)):
        match = _PROPERTY.fullmatch(text)
        assert match is not None, "the pattern matches any text that does not end within an escape"
        key, value = _unescape(match[1]), _unescape(match[2])
        if key is None or value is None:
            damage.add(line.position, line.size_in_bytes, "escape", line=line.number)
        else:
            values[key] = _FieldValue(value, line)
    return values


def _logical_lines(lines: Iterator[TextLine]) -> Iterator[tuple[TextLine, str]]:
    """Lines with properties; a line that ends with an odd number of backslashes is joined with the next."""
    first: TextLine | None = None
    parts: list[str] = []
    for line in lines:
        text = (line.content or b"").decode("latin-1").lstrip(_BLANK)
        if first is None:
            if not text or text[0] in "#!":
                continue
            first = line
        continued = (len(text) - len(text.rstrip("\\"))) % 2 == 1
        parts.append(text[:-1] if continued else text)
        if not continued:
            yield first, "".join(parts)
            first, parts = None, []
    if first is not None:
        yield first, "".join(parts)


def _unescape(text: str) -> str | None:
    """`text` without escapes; None if a Unicode escape has fewer than four digits. Half a surrogate pair becomes U+FFFD."""
    if "\\u" in _ESCAPE.findall(text):
        return None

    def character(match: re.Match[str]) -> str:
        escape = match[0][1:]
        return chr(int(escape[1:], 16)) if len(escape) > 1 else _CONTROL_ESCAPES.get(escape, escape)

    return _ESCAPE.sub(character, text).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


# `leader-epoch-checkpoint`: the first offset of every leader epoch (LeaderEpochCheckpointFile, KIP-101).


def parse_leader_epochs(file: ByteFile) -> LeaderEpochs:
    """Every readable line of a `leader-epoch-checkpoint`, in file order; an empty file has no entries.

    The order of epochs and offsets is not checked. Damage is `CHECKPOINT_MALFORMED`, see `read_checkpoint`.
    """
    if file.size_in_bytes <= _SHORT_BYTES and (plain := _plain_leader_epochs(file.read_at(0, _SHORT_BYTES))) is not None:
        return plain
    entries: list[EpochEntry] = []

    def take(words: list[bytes]) -> str | None:
        if len(words) != 2:
            return "fields"
        leader_epoch = parse_integer(words[0], 0, MAX_INT32)
        start_offset = parse_integer(words[1], 0, INT64_MAX)
        if leader_epoch is None:
            return "epoch"
        if start_offset is None:
            return "offset"
        entries.append(EpochEntry(leader_epoch, start_offset))
        return None

    damage = read_checkpoint(file, take)
    return LeaderEpochs(entries, damage)


_SHORT_BYTES: Final = 512
_PLAIN_EPOCHS: Final = re.compile(rb"0\n([0-9]{1,3})\n((?:[0-9]{1,9} [0-9]{1,18}\n)*)")


def _plain_leader_epochs(data: bytes) -> LeaderEpochs | None:
    """The entries of a short valid file, else None: nearly all are, and a scan reads one for every replica."""
    match = _PLAIN_EPOCHS.fullmatch(data)
    if match is None:
        return None
    numbers = list(map(int, match[2].split()))
    entries = list(map(EpochEntry, numbers[0::2], numbers[1::2]))
    return LeaderEpochs(entries, []) if len(entries) == int(match[1]) else None
