"""Rewrites the small text files of a log directory with pseudonyms instead of names, and nothing else that may be a name.

What readers use stays: numbers, ids, and the number of words of a line. Any other word becomes a question mark: an unreadable file
stays unreadable, for the same reason. Indexes and producer snapshots have only numbers.
"""

import json
import re
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Final

from kafka_forensics.model.json_objects import JsonValue
from kafka_forensics.model.pseudonyms import NameKind, Pseudonyms
from kafka_forensics.parsers.bounded import MAX_LINE_BYTES, MAX_LINES, MAX_TEXT_BYTES
from kafka_forensics.parsers.checkpoints import MAX_CLEAN_SHUTDOWN_BYTES, TOPIC, UUID, parse_meta_properties, read_properties
from kafka_forensics.parsers.log_dir import OFFSET_CHECKPOINTS, FileKind
from kafka_forensics.storage.source import BytesFile
from kafka_forensics.writers.files import write_properties

if TYPE_CHECKING:
    from kafka_forensics.storage.source import ByteFile

Rewrite = Callable[["ByteFile", Pseudonyms], bytes]
RewriteLine = Callable[[bytes, Pseudonyms], bytes]

_MASK: Final = b"?"
_LINE: Final = re.compile(rb"([^\r\n]*)(\r\n|\r|\n|\Z)")
_NUMBER: Final = re.compile(rb"[+-]?[0-9]{1,19}")
_METADATA_LINE: Final = re.compile(rb"\s*(\w+)\s*:\s+(\S+)\s*")
_OTHER_PROPERTY: Final = b"other: 0"
_BAD_ESCAPE: Final = b"other=\\u\n"
_NUMBERED_PROPERTIES: Final = ("version", "node.id", "broker.id")
_MAX_CLUSTER_ID: Final = 255
"""Characters of a cluster id that readers accept."""
_MAX_DEPTH: Final = 4
"""Levels of JSON; Kafka's files have fewer."""
_JSON_KEYS: Final = frozenset(
    (
        *("version", "brokerEpoch", "clusterId", "leaderId", "leaderEpoch", "votedId", "votedDirectoryId", "appliedOffset"),
        *("currentVoters", "voterId", "data_version"),
    )
)
"""Of `.kafka_cleanshutdown` and `quorum-state`."""


def redacted_file(kind: FileKind, file: "ByteFile", pseudonyms: Pseudonyms) -> "ByteFile":
    """A file of this kind without names; unchanged if the kind has none. Raises SourceError."""
    rewrite = _REWRITES.get(kind)
    return file if rewrite is None else BytesFile(rewrite(file, pseudonyms))


def _data(file: "ByteFile") -> bytes:
    """The bytes of a file that readers look at."""
    return file.read_at(0, min(file.size_in_bytes, MAX_TEXT_BYTES))


def _is_zeros(data: bytes) -> bool:
    """Whether a file is empty, or has only the zeros that a lost write leaves: it stays so."""
    return data.count(0) == len(data)


def _by_line(rewrite: RewriteLine) -> Rewrite:
    """Rewrites a file line by line and keeps all line ends; a line that is too long for readers stays too long."""

    def rewrite_all(file: "ByteFile", pseudonyms: Pseudonyms) -> bytes:
        data = _data(file)
        if _is_zeros(data):
            return data
        matches = list(islice(_LINE.finditer(data), MAX_LINES + 1))  # one more, because too many lines must stay too many
        lines = [
            _MASK * (MAX_LINE_BYTES + 1) if len(match[1]) > MAX_LINE_BYTES else rewrite(match[1], pseudonyms) for match in matches
        ]
        if rewrite is _offset_of_partition:
            lines = _in_order(lines)
        return b"".join(line + match[2] for line, match in zip(lines, matches, strict=True))

    return rewrite_all


def _in_order(lines: list[bytes]) -> list[bytes]:
    """The lines, with those of partitions in the order of pseudonyms: Kafka's order comes from hashes of names."""
    places = [number for number, line in enumerate(lines) if line.count(b" ") == 2 and not line.startswith(_MASK)]
    ordered = sorted((lines[number] for number in places), key=lambda line: line.rpartition(b" ")[0])
    for number, line in zip(places, ordered, strict=True):
        lines[number] = line
    return lines


def _numbers(line: bytes, _: Pseudonyms) -> bytes:
    return b" ".join(map(_number, line.split())) or b" " * bool(line)  # an empty line at the end does not count


def _number(word: bytes) -> bytes:
    """A number unchanged; a mask for any other word."""
    return word if _NUMBER.fullmatch(word) else _MASK


def _offset_of_partition(line: bytes, pseudonyms: Pseudonyms) -> bytes:
    words = line.split()
    if len(words) != 3 or not TOPIC.fullmatch(words[0]):
        return _numbers(line, pseudonyms)
    topic = pseudonyms.pseudonym(NameKind.TOPIC, words[0].decode("ascii"))
    return b" ".join((topic.encode("ascii"), *map(_number, words[1:])))


def _partition_metadata_line(line: bytes, _: Pseudonyms) -> bytes:
    match = _METADATA_LINE.fullmatch(line)
    if match is None:
        return _MASK * bool(line)
    if match[1] == b"version":
        return b"version: " + _number(match[2])
    if match[1] == b"topic_id":
        return b"topic_id: " + (match[2] if UUID.fullmatch(match[2].decode("latin-1")) else _MASK)
    return _OTHER_PROPERTY


def _meta_properties(file: "ByteFile", pseudonyms: Pseudonyms) -> bytes:
    if _is_zeros(data := _data(file)):
        return data
    found = read_properties(file)
    kept: dict[str, str] = {key: _number(found[key].encode()).decode() for key in _NUMBERED_PROPERTIES if key in found}
    if "cluster.id" in found:
        cluster_id = found["cluster.id"]
        kept["cluster.id"] = pseudonyms.pseudonym(NameKind.CLUSTER, cluster_id) if len(cluster_id) <= _MAX_CLUSTER_ID else ""
    if "directory.id" in found:
        kept["directory.id"] = found["directory.id"] if UUID.fullmatch(found["directory.id"]) else _MASK.decode()
    has_bad_escape = any(row.detail["reason"] == "escape" for row in parse_meta_properties(file).damage)
    return write_properties(kept) + _BAD_ESCAPE * has_bad_escape


def _json_file(file: "ByteFile", pseudonyms: Pseudonyms) -> bytes:
    """JSON with its numbers and ids, and a pseudonym of the cluster's id."""
    data = _data(file)
    if _is_zeros(data):
        return data
    if len(data) > MAX_CLEAN_SHUTDOWN_BYTES:
        return _MASK * (MAX_CLEAN_SHUTDOWN_BYTES + 1)
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):  # RecursionError: thousands of nested brackets
        return _MASK
    return json.dumps(_redacted_json(content, pseudonyms, 0), separators=(",", ":")).encode()


def _redacted_json(value: JsonValue, pseudonyms: Pseudonyms, depth: int) -> JsonValue:
    """A value without unknown keys and words, and without levels deeper than Kafka's."""
    if isinstance(value, dict) and depth < _MAX_DEPTH:
        redacted = {key: _redacted_json(item, pseudonyms, depth + 1) for key, item in value.items() if key in _JSON_KEYS}
        if isinstance(cluster_id := value.get("clusterId"), str):
            redacted["clusterId"] = pseudonyms.pseudonym(NameKind.CLUSTER, cluster_id)
        return redacted
    if isinstance(value, list) and depth < _MAX_DEPTH:
        return [_redacted_json(item, pseudonyms, depth + 1) for item in value]
    if isinstance(value, str):
        return value if UUID.fullmatch(value) else ""
    return value if value is None or isinstance(value, bool | int) else None


_REWRITES: Final[dict[FileKind, Rewrite]] = {
    **dict.fromkeys(OFFSET_CHECKPOINTS, _by_line(_offset_of_partition)),
    FileKind.LEADER_EPOCH_CHECKPOINT: _by_line(_numbers),
    FileKind.META_PROPERTIES: _meta_properties,
    FileKind.PARTITION_METADATA: _by_line(_partition_metadata_line),
    FileKind.CLEAN_SHUTDOWN: _json_file,
    FileKind.QUORUM_STATE: _json_file,
}
