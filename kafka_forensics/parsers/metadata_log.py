"""Records of `__cluster_metadata`: frame, kind, version and fields, read by plain loops; `spec.metadata_records` is the exact twin.

Every kind that Kafka has had in a release is taken apart; what else there is, is measured.
"""

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from functools import lru_cache
from math import isfinite
from struct import Struct, error, unpack_from
from typing import Any, Final

from kafka_forensics.model.controller import UNKNOWN_KIND, MetadataRecord
from kafka_forensics.parsers.unsigned_varint import OverlongVarintError, read_unsigned

NAMES: Final = {
    0: "REGISTER_BROKER_RECORD",
    1: "UNREGISTER_BROKER_RECORD",
    2: "TOPIC_RECORD",
    3: "PARTITION_RECORD",
    4: "CONFIG_RECORD",
    5: "PARTITION_CHANGE_RECORD",
    7: "FENCE_BROKER_RECORD",
    8: "UNFENCE_BROKER_RECORD",
    9: "REMOVE_TOPIC_RECORD",
    10: "DELEGATION_TOKEN_RECORD",
    11: "USER_SCRAM_CREDENTIAL_RECORD",
    12: "FEATURE_LEVEL_RECORD",
    14: "CLIENT_QUOTA_RECORD",
    15: "PRODUCER_IDS_RECORD",
    17: "BROKER_REGISTRATION_CHANGE_RECORD",
    18: "ACCESS_CONTROL_ENTRY_RECORD",
    19: "REMOVE_ACCESS_CONTROL_ENTRY_RECORD",
    20: "NO_OP_RECORD",
    21: "ZK_MIGRATION_STATE_RECORD",
    22: "REMOVE_USER_SCRAM_CREDENTIAL_RECORD",
    23: "BEGIN_TRANSACTION_RECORD",
    24: "END_TRANSACTION_RECORD",
    25: "ABORT_TRANSACTION_RECORD",
    26: "REMOVE_DELEGATION_TOKEN_RECORD",
    27: "REGISTER_CONTROLLER_RECORD",
    28: "CLEAR_ELR_RECORD",
    29: "UNREGISTER_CONTROLLER_RECORD",
}
"""apiKey → Kafka's name of the kind (MetadataRecordType)."""
NO_OP_FRAME: Final = bytes((1, 20, 0, 0))
"""What an idle controller appends twice a second."""

_Read = Callable[[bytes, int], tuple[Any, int]]


class _Malformed(Exception):  # noqa: N818 - never leaves this module
    """The bytes break the layout; the argument names how."""


def decode_metadata_record(value: bytes | None) -> MetadataRecord:
    """The record in a value of `__cluster_metadata`. Any bytes give an answer; `problem` says why there are no fields.

    `value`: there is none, or it was too large to hold; `frame`: it does not begin with a frame of version 1; `kind`, `version`:
    not one this tool knows; `fields`: its bytes end too early, too late, or are no such fields.
    """
    if value is None:
        return MetadataRecord(-1, "UNKNOWN", -1, 0, None, "value")
    size = len(value)
    try:
        frame_version, position = read_unsigned(value, 0)
        api_key, position = read_unsigned(value, position)
        version, position = read_unsigned(value, position)
    except (IndexError, OverlongVarintError):
        return MetadataRecord(-1, "UNKNOWN", -1, size, None, "frame")
    if frame_version != 1:
        return MetadataRecord(-1, "UNKNOWN", -1, size, None, "frame")
    name = NAMES.get(api_key)
    if name is None:
        return MetadataRecord(api_key, "UNKNOWN", version, size, None, UNKNOWN_KIND)
    layouts = _LAYOUTS[api_key]
    if version >= len(layouts):
        return MetadataRecord(api_key, name, version, size, None, "version")
    try:
        fields, position = _message(value, position, layouts[version])
    except (IndexError, error, UnicodeDecodeError, OverlongVarintError, _Malformed):
        fields, position = None, size + 1
    if position != size:
        return MetadataRecord(api_key, name, version, size, None, "fields")
    return MetadataRecord(api_key, name, version, size, fields)


def _message(data: bytes, position: int, layout: "_Layout") -> tuple[dict[str, Any], int]:
    """Fields of one structure, its tagged fields among them, and the position behind."""
    body, tags = layout
    fields: dict[str, Any] = {}
    for name, read in body:
        fields[name], position = read(data, position)
    for name, _, default in tags.values():
        fields[name] = [] if default == [] else default
    last = -1
    count, position = read_unsigned(data, position)
    while count > 0:
        tag, position = read_unsigned(data, position)
        size, position = read_unsigned(data, position)
        end = position + size
        if tag <= last or end > len(data):
            raise _Malformed("tag")
        if tag in tags:
            name, read, _ = tags[tag]
            fields[name], stop = read(data[position:end], 0)
            if stop != size:
                raise _Malformed("tag")
        last, position, count = tag, end, count - 1
    return fields, position


def _number(form: str) -> _Read:
    layout = Struct(form)

    def read(data: bytes, position: int) -> tuple[Any, int]:
        return layout.unpack_from(data, position)[0], position + layout.size

    return read


def _flag(data: bytes, position: int) -> tuple[bool, int]:
    return data[position] != 0, position + 1


def _float64(data: bytes, position: int) -> tuple[float | str, int]:
    """A number, or the name of what is none and JSON cannot say."""
    value, position = _DOUBLE(data, position)
    return value if isfinite(value) else str(value), position


def _base64(data: bytes, position: int) -> tuple[str, int]:
    """Bytes, as Kafka's JSON has them."""
    length, position = _length(data, position, nullable=False)
    end = position + length
    if end > len(data):
        raise _Malformed("bytes")
    return b64encode(data[position:end]).decode(), end


def _uuid(data: bytes, position: int) -> tuple[str, int]:
    end = position + 16
    if end > len(data):
        raise _Malformed("uuid")
    return uuid_text(data[position:end]), end


@lru_cache(maxsize=4096)
def uuid_text(raw: bytes) -> str:
    """16 bytes as Kafka writes ids: 22 characters of base64url."""
    return urlsafe_b64encode(raw)[:22].decode()


def _length(data: bytes, position: int, *, nullable: bool) -> tuple[int, int]:
    """A compact length, -1 for null."""
    length, position = read_unsigned(data, position)
    if length == 0 and not nullable:
        raise _Malformed("null")
    return length - 1, position


def _string(*, nullable: bool) -> _Read:
    def read(data: bytes, position: int) -> tuple[str | None, int]:
        length, position = _length(data, position, nullable=nullable)
        if length < 0:
            return None, position
        end = position + length
        if end > len(data):
            raise _Malformed("string")
        return data[position:end].decode(), end

    return read


def _ints(*, nullable: bool) -> _Read:
    def read(data: bytes, position: int) -> tuple[list[int] | None, int]:
        count, position = _length(data, position, nullable=nullable)
        if count < 0:
            return None, position
        end = position + 4 * count
        if end > len(data):
            raise _Malformed("array")
        return list(unpack_from(f">{count}i", data, position)), end

    return read


def _array(element: _Read, *, nullable: bool = False) -> _Read:
    def read(data: bytes, position: int) -> tuple[list[Any] | None, int]:
        count, position = _length(data, position, nullable=nullable)
        if count < 0:
            return None, position
        if count > len(data) - position:
            raise _Malformed("array")
        found = []
        for _ in range(count):
            one, position = element(data, position)
            found.append(one)
        return found, position

    return read


_Fields = tuple[tuple[str, _Read], ...]
_Tags = dict[int, tuple[str, _Read, Any]]
_Layout = tuple[_Fields, _Tags]

_INT8, _INT16, _UINT16, _INT32, _INT64 = map(_number, (">b", ">h", ">H", ">i", ">q"))
_DOUBLE = _number(">d")
_STRING, _NULLABLE_STRING = _string(nullable=False), _string(nullable=True)
_INTS, _NULLABLE_INTS = _ints(nullable=False), _ints(nullable=True)
_UUIDS, _NULLABLE_UUIDS = _array(_uuid), _array(_uuid, nullable=True)


def _structure(*fields: tuple[str, _Read]) -> _Read:
    layout: _Layout = (fields, {})

    def read(data: bytes, position: int) -> tuple[dict[str, Any], int]:
        return _message(data, position, layout)

    return read


_END_POINTS = _array(_structure(("name", _STRING), ("host", _STRING), ("port", _UINT16), ("security_protocol", _INT16)))
_FEATURES = _array(_structure(("name", _STRING), ("min_supported_version", _INT16), ("max_supported_version", _INT16)))


def _register_broker(version: int) -> _Layout:
    body: list[tuple[str, _Read]] = [("broker_id", _INT32)]
    body += [("is_migrating_zk_broker", _flag)] if version >= 2 else []
    body += [("incarnation_id", _uuid), ("broker_epoch", _INT64), ("end_points", _END_POINTS), ("features", _FEATURES)]
    body += [("rack", _NULLABLE_STRING), ("fenced", _flag)]
    body += [("in_controlled_shutdown", _flag)] if version >= 1 else []
    tags: _Tags = {0: ("log_dirs", _UUIDS, [])} if version >= 3 else {}
    if version >= 4:
        tags[1] = ("cordoned_log_dirs", _NULLABLE_UUIDS, None)
    return tuple(body), tags


def _partition(version: int) -> _Layout:
    body: list[tuple[str, _Read]] = [("partition_id", _INT32), ("topic_id", _uuid), ("replicas", _INTS), ("isr", _INTS)]
    body += [("removing_replicas", _NULLABLE_INTS), ("adding_replicas", _NULLABLE_INTS)]
    body += [(name, _INT32) for name in ("leader", "leader_epoch", "partition_epoch")]
    body += [("directories", _UUIDS)] if version >= 1 else []
    tags: _Tags = {0: ("leader_recovery_state", _INT8, 0)}
    if version >= 2:
        tags |= {1: ("eligible_leader_replicas", _NULLABLE_INTS, None), 2: ("last_known_elr", _NULLABLE_INTS, None)}
    return tuple(body), tags


def _partition_change(version: int) -> _Layout:
    tags: _Tags = {
        0: ("isr", _NULLABLE_INTS, None),
        1: ("leader", _INT32, -2),
        2: ("replicas", _NULLABLE_INTS, None),
        3: ("removing_replicas", _NULLABLE_INTS, None),
        4: ("adding_replicas", _NULLABLE_INTS, None),
        5: ("leader_recovery_state", _INT8, -1),
    }
    if version >= 2:
        tags |= {6: ("eligible_leader_replicas", _NULLABLE_INTS, None), 7: ("last_known_elr", _NULLABLE_INTS, None)}
    if version >= 1:
        tags[8] = ("directories", _NULLABLE_UUIDS, None)
    return (("partition_id", _INT32), ("topic_id", _uuid)), tags


def _registration_change(version: int) -> _Layout:
    tags: list[tuple[str, _Read, Any]] = [
        ("fenced", _INT8, 0),
        ("in_controlled_shutdown", _INT8, 0),
        ("log_dirs", _UUIDS, []),
        ("cordoned_log_dirs", _NULLABLE_UUIDS, None),
    ]
    return (("broker_id", _INT32), ("broker_epoch", _INT64)), dict(enumerate(tags[: version + 1]))


def _plain(*fields: tuple[str, _Read]) -> tuple[_Layout, ...]:
    """A kind of version 0 alone, without tagged fields."""
    return ((fields, {}),)


_CONTROLLER: Final = (
    ("controller_id", _INT32),
    ("incarnation_id", _uuid),
    ("zk_migration_ready", _flag),
    ("end_points", _END_POINTS),
    ("features", _FEATURES),
)
_CONFIG: Final = (("resource_type", _INT8), ("resource_name", _STRING), ("name", _STRING), ("value", _NULLABLE_STRING))
_TOKEN: Final = (
    *(("owner", _STRING), ("requester", _STRING), ("renewers", _array(_STRING))),
    *((name, _INT64) for name in ("issue_timestamp", "max_timestamp", "expiration_timestamp")),
    ("token_id", _STRING),
)
_SCRAM: Final = (
    ("name", _STRING),
    ("mechanism", _INT8),
    *((name, _base64) for name in ("salt", "stored_key", "server_key")),
    ("iterations", _INT32),
)
_ENTITY: Final = _array(_structure(("entity_type", _STRING), ("entity_name", _NULLABLE_STRING)))
_ACCESS: Final = (
    *(("id", _uuid), ("resource_type", _INT8), ("resource_name", _STRING), ("pattern_type", _INT8)),
    *(("principal", _STRING), ("host", _STRING), ("operation", _INT8), ("permission_type", _INT8)),
)
_LAYOUTS: Final[dict[int, tuple[_Layout, ...]]] = {
    0: tuple(map(_register_broker, range(5))),
    1: _plain(("broker_id", _INT32), ("broker_epoch", _INT64)),
    2: _plain(("name", _STRING), ("topic_id", _uuid)),
    3: tuple(map(_partition, range(3))),
    4: _plain(*_CONFIG),
    5: tuple(map(_partition_change, range(3))),
    7: _plain(("id", _INT32), ("epoch", _INT64)),
    8: _plain(("id", _INT32), ("epoch", _INT64)),
    9: _plain(("topic_id", _uuid)),
    10: _plain(*_TOKEN),
    11: _plain(*_SCRAM),
    12: _plain(("name", _STRING), ("feature_level", _INT16)),
    14: _plain(("entity", _ENTITY), ("key", _STRING), ("value", _float64), ("remove", _flag)),
    15: _plain(("broker_id", _INT32), ("broker_epoch", _INT64), ("next_producer_id", _INT64)),
    17: tuple(map(_registration_change, range(4))),
    18: _plain(*_ACCESS),
    19: _plain(("id", _uuid)),
    20: _plain(),
    21: _plain(("zk_migration_state", _INT8)),
    22: _plain(("name", _STRING), ("mechanism", _INT8)),
    23: (((), {0: ("name", _NULLABLE_STRING, None)}),),
    24: _plain(),
    25: (((), {0: ("reason", _NULLABLE_STRING, None)}),),
    26: _plain(("token_id", _STRING)),
    27: _plain(*_CONTROLLER),
    28: _plain(("topic_name", _STRING)),
    29: _plain(("controller_id", _INT32)),
}
"""apiKey → layout of each version from 0 up."""
