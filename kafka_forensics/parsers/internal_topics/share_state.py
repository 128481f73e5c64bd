"""Records of `__share_group_state` read fast: the twin of `spec.consumer_offsets.SHARE_STATE_KEY` and `SHARE_STATE_VALUES`."""

from struct import Struct
from typing import Final, NamedTuple

from kafka_forensics.model.coordinators import TRANSACTION_STATES, TransactionMetadata
from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.model.json_objects import Json
from kafka_forensics.parsers.internal_topics.consumer_offsets import read_alternatives
from kafka_forensics.parsers.internal_topics.flexible_fields import (
    INT8,
    INT16,
    INT32,
    INT64,
    LEFT_OUT,
    UINT16,
    UNREADABLE,
    Layout,
    Tags,
    array,
    number,
    structure,
    uuid_text,
)
from kafka_forensics.parsers.log import UnsignedVarintError, read_unsigned

SNAPSHOT: Final = 0
UPDATE: Final = 1
SHARE_RECORDS: Final = {SNAPSHOT: "ShareSnapshot", UPDATE: "ShareUpdate"}
"""Kafka's names by the number a key begins with."""
_PARTITION: Final = Struct(">16si")
_LENGTH: Final = number(">h")


class ShareKey(NamedTuple):
    """The key of a record: a group, and a partition by its topic's id."""

    record_type: int
    group: str
    topic_id: str
    partition: int


def read_share_key(key: bytes | None) -> ShareKey | str:
    """The key of a record, `key` if it is none; of an unknown type the group and the id are empty."""
    if key is None or len(key) < 2:
        return "key"
    record_type = int.from_bytes(key[:2], "big", signed=True)
    if record_type not in SHARE_RECORDS:
        return ShareKey(record_type, "", "", -1)
    try:
        length, position = _LENGTH(key, 2)
        end = position + length
        if length < 0 or end > len(key):
            return "key"
        topic_id, partition = _PARTITION.unpack_from(key, end)
        return ShareKey(record_type, key[position:end].decode(), uuid_text(topic_id), partition)
    except UNREADABLE:
        return "key"


def read_share_value(record_type: int, value: bytes) -> Json | str:
    """The fields of a snapshot or an update; reasons as `consumer_offsets.read_group_value` gives them."""
    return read_alternatives(_LAYOUTS.get(record_type, ()), value)


_BATCHES: Final = array(
    structure(("first_offset", INT64), ("last_offset", INT64), ("delivery_state", INT8), ("delivery_count", INT16))
)
_COMPLETE: Final[Tags] = {0: ("delivery_complete_count", INT32, LEFT_OUT)}
_LAYOUTS: Final[dict[int, tuple[Layout, ...]]] = {
    SNAPSHOT: (
        (
            (
                *((f"{name}_epoch", INT32) for name in ("snapshot", "state", "leader")),
                *((name, INT64) for name in ("start_offset", "create_timestamp", "write_timestamp")),
                ("state_batches", _BATCHES),
            ),
            _COMPLETE,
        ),
        (
            (
                ("snapshot_epoch", UINT16),
                *((f"{name}_epoch", INT32) for name in ("state", "leader")),
                ("start_offset", INT64),
                ("state_batches", _BATCHES),
            ),
            {},
        ),
    ),
    UPDATE: (
        (
            (("snapshot_epoch", INT32), ("leader_epoch", INT32), ("start_offset", INT64), ("state_batches", _BATCHES)),
            _COMPLETE,
        ),
        (
            (("snapshot_epoch", UINT16), ("leader_epoch", INT32), ("start_offset", INT64), ("state_batches", _BATCHES)),
            {},
        ),
    ),
}
"""By type: the layout of Kafka 4.1 and later, and that of the preview in 4.0."""


# Records of `__transaction_state`, read by hand: the fast twin of `spec.transaction_state` (TransactionLog).
#
# A broker's log of them holds a hundred thousand and more. Nothing is allocated from a declared count: every element takes bytes
# that must be there, so the work is bounded by the value's length.


_HEAD: Final = Struct(">hqhib")
_TIMES: Final = Struct(">qq")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
MAX_PARTITIONS: Final = 1 << 16
"""More partitions than one transaction can be believed to have."""
_TAGS: Final = {0: 8, 1: 8, 2: 2, 3: 2}
"""Size of each tagged field that has a meaning."""


class _MalformedError(Exception):
    """Why bytes are no such record; never leaves this module."""


def parse_transaction_log_key(key: bytes | None) -> tuple[str | None, str | None]:
    """(transactional id, None), or (None, why there is none): `key_null`, `key_version`, `key_short`, `key_string`."""
    if key is None:
        return None, "key_null"
    if len(key) < 2:
        return None, "key_short"
    if key[:2] != b"\0\0":
        return None, "key_version"
    try:
        return _short_string(key, 2)[0], None
    except _MalformedError as error:
        return None, f"key_{error}"


def parse_transaction_log_value(value: bytes) -> tuple[TransactionMetadata | None, str | None]:
    """(metadata, None), or (None, why there is none): `version`, `short`, `null`, `string`, `varint`, `state`, `tag`, `partitions`.

    Bytes behind the last field are ignored, as Kafka's readers ignore them.
    """
    if len(value) < 2:
        return None, "short"
    version = _INT16.unpack_from(value)[0]
    if version not in (0, 1):
        return None, "version"
    try:
        return (_version_0 if version == 0 else _version_1)(value), None
    except _MalformedError as error:
        return None, str(error)


def _version_0(value: bytes) -> TransactionMetadata:
    _need(value, 0, _HEAD.size + 4)
    count, at = _INT32.unpack_from(value, _HEAD.size)[0], _HEAD.size + 4
    partitions: list[TopicPartition] = []
    for _ in range(count):  # a negative count is null
        topic, at = _short_string(value, at)
        _need(value, at, 4)
        numbers, at = _INT32.unpack_from(value, at)[0], at + 4
        if numbers < 0:
            raise _MalformedError("null")
        _need(value, at, 4 * numbers)
        _believable(len(partitions) + numbers)
        partitions += ((topic, number) for (number,) in _INT32.iter_unpack(value[at : at + 4 * numbers]))
        at += 4 * numbers
    _need(value, at, _TIMES.size)
    return _metadata(value, partitions, at, {})


def _version_1(value: bytes) -> TransactionMetadata:
    _need(value, 0, _HEAD.size)
    count, at = _varint(value, _HEAD.size)
    partitions: list[TopicPartition] = []
    for _ in range(count - 1):
        size, at = _varint(value, at)
        topic, at = _string(value, at, size - 1)
        numbers, at = _varint(value, at)
        if numbers == 0:
            raise _MalformedError("null")
        _need(value, at, 4 * (numbers - 1))
        _believable(len(partitions) + numbers - 1)
        partitions += ((topic, number) for (number,) in _INT32.iter_unpack(value[at : at + 4 * (numbers - 1)]))
        at = _tags(value, at + 4 * (numbers - 1), {})
    _need(value, at, _TIMES.size)
    tags: dict[int, int] = {}
    _tags(value, at + _TIMES.size, tags)
    return _metadata(value, partitions, at, tags)


def _metadata(value: bytes, partitions: list[TopicPartition], times_at: int, tags: dict[int, int]) -> TransactionMetadata:
    _, producer_id, producer_epoch, timeout, status = _HEAD.unpack_from(value)
    if not 0 <= status < len(TRANSACTION_STATES):
        raise _MalformedError("state")
    updated, started = _TIMES.unpack_from(value, times_at)
    return TransactionMetadata(
        producer_id,
        producer_epoch,
        timeout,
        TRANSACTION_STATES[status],
        tuple(partitions),
        updated,
        started,
        tags.get(0, -1),
        tags.get(1, -1),
        tags.get(2, 0),
        tags.get(3, -1),
    )


def _tags(value: bytes, at: int, known: dict[int, int]) -> int:
    """Position behind the tagged fields at `at`; those with a meaning go into `known`."""
    count, at = _varint(value, at)
    last = -1
    for _ in range(count):
        tag, at = _varint(value, at)
        size, at = _varint(value, at)
        if tag <= last:
            raise _MalformedError("tag")
        _need(value, at, size)
        if tag in _TAGS:
            if size != _TAGS[tag]:
                raise _MalformedError("tag")
            known[tag] = int.from_bytes(value[at : at + size], "big", signed=True)
        last, at = tag, at + size
    return at


def _short_string(value: bytes, at: int) -> tuple[str, int]:
    _need(value, at, 2)
    return _string(value, at + 2, _INT16.unpack_from(value, at)[0])


def _string(value: bytes, at: int, size: int) -> tuple[str, int]:
    if size < 0:
        raise _MalformedError("null")
    _need(value, at, size)
    try:
        return value[at : at + size].decode(), at + size
    except UnicodeDecodeError as error:
        raise _MalformedError("string") from error


def _varint(value: bytes, at: int) -> tuple[int, int]:
    """(unsigned 32-bit integer, position behind it)."""
    try:
        return read_unsigned(value, at)
    except IndexError:
        raise _MalformedError("short") from None
    except UnsignedVarintError:
        raise _MalformedError("varint") from None


def _believable(partitions: int) -> None:
    if partitions > MAX_PARTITIONS:
        raise _MalformedError("partitions")


def _need(value: bytes, at: int, size: int) -> None:
    if at + size > len(value):
        raise _MalformedError("short")
