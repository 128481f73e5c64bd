"""Records of `__consumer_offsets` read fast: the twin of `spec.consumer_offsets` for logs that hold millions of them.

Everything here answers with what was read, or with a short word for why it could not be: `str` is never a good answer.
"""

from base64 import urlsafe_b64encode
from struct import Struct
from typing import Final

from kafka_forensics.model.coordinators import (
    MEMBER_TYPES,
    MEMBERS_LISTED,
    OFFSET_COMMIT_TYPES,
    RECORD_TYPES,
    GroupKey,
    GroupMember,
    GroupMetadata,
    OffsetCommit,
)
from kafka_forensics.model.json_objects import Json
from kafka_forensics.parsers.internal_topics.flexible_fields import (
    BASE64,
    INT8,
    INT16,
    INT32,
    INT64,
    INTS,
    LEFT_OUT,
    NULLABLE_INTS,
    NULLABLE_STRING,
    STRING,
    UINT16,
    UNREADABLE,
    Layout,
    Read,
    Tags,
    array,
    nullable_structure,
    read_message,
    structure,
    uuid,
)
from kafka_forensics.parsers.log import UnsignedVarintError, read_unsigned

_WITH_EPOCH: Final = Struct(">hqih")
_INT64: Final = Struct(">q")
_FLEXIBLE: Final = 4
_NEWEST: Final = 4
_TOPIC_ID_SIZE: Final = 16


def read_key(key: bytes | None) -> GroupKey | str:
    """The key of a record. An unknown type is no fault: coordinators pass over it (CoordinatorRecordSerde)."""
    if key is None or len(key) < 2:
        return "key"
    record_type = int.from_bytes(key[:2], "big", signed=True)
    if record_type not in RECORD_TYPES:
        return GroupKey(record_type, "")
    cursor = _Cursor(key, 2)
    try:
        group = cursor.short_string()
        if record_type in OFFSET_COMMIT_TYPES:
            return GroupKey(record_type, group, cursor.short_string(), cursor.integer(4))
        return GroupKey(record_type, group, member_id=cursor.short_string() if record_type in MEMBER_TYPES else None)
    except _Unreadable:
        return "key"


def read_offset_commit(value: bytes) -> OffsetCommit | str:
    """An OffsetCommitValue of any version."""
    size = len(value)
    if size >= _WITH_EPOCH.size and value[:2] == b"\x00\x03":
        _, offset, leader_epoch, length = _WITH_EPOCH.unpack_from(value)
        end = _WITH_EPOCH.size + length
        if length == 0 and size >= end + 8:
            return OffsetCommit(offset, leader_epoch, "", _INT64.unpack_from(value, end)[0], -1, None)
    try:
        return _offset_commit(value)
    except _Unreadable as fault:
        return fault.reason


def _offset_commit(value: bytes) -> OffsetCommit:
    cursor = _Cursor(value, 0)
    version = cursor.version()
    offset = cursor.integer(8)
    leader_epoch = cursor.integer(4) if version >= 3 else -1
    metadata = cursor.compact_string() if version >= _FLEXIBLE else cursor.short_string()
    commit_timestamp = cursor.integer(8)
    expire_timestamp = cursor.integer(8) if version == 1 else -1
    topic_id = None
    if version >= _FLEXIBLE:
        tag = cursor.tagged_fields()
        if tag is not None:
            if len(tag) < _TOPIC_ID_SIZE:
                raise _Unreadable("topic_id")
            topic_id = urlsafe_b64encode(tag[:_TOPIC_ID_SIZE]).decode().rstrip("=")
    return OffsetCommit(offset, leader_epoch, metadata, commit_timestamp, expire_timestamp, topic_id)


def read_group_metadata(value: bytes) -> GroupMetadata | str:
    """A GroupMetadataValue of any version; members beyond 1024 are only counted."""
    try:
        return _group_metadata(value)
    except _Unreadable as fault:
        return fault.reason


def _group_metadata(value: bytes) -> GroupMetadata:
    cursor = _Cursor(value, 0)
    version = cursor.version()
    flexible = version >= _FLEXIBLE
    string = cursor.compact_string if flexible else cursor.short_string
    nullable = cursor.nullable_compact_string if flexible else cursor.nullable_short_string
    sized = cursor.compact_bytes if flexible else cursor.sized_bytes
    protocol_type, generation, protocol, leader = string(), cursor.integer(4), nullable(), nullable()
    timestamp = cursor.integer(8) if version >= 2 else -1
    count = cursor.varint() - 1 if flexible else cursor.integer(4)
    if count < 0:
        raise _Unreadable("array")
    members = []
    for index in range(count):
        member = GroupMember(
            string(),
            nullable() if version >= 3 else None,
            string(),
            string(),
            cursor.integer(4) if version >= 1 else -1,
            cursor.integer(4),
            sized(),
            sized(),
        )
        if flexible:
            cursor.tagged_fields()
        if index < MEMBERS_LISTED:
            members.append(member)
    if flexible:
        cursor.tagged_fields()
    return GroupMetadata(protocol_type, generation, protocol, leader, timestamp, count, tuple(members))


def check_value(value: bytes) -> str | None:
    """What is wrong with a value that is only named and measured: its version is not 0, or not there; None if nothing is."""
    return None if value[:2] == b"\0\0" else "version" if len(value) >= 2 else "truncated"


class _Unreadable(Exception):  # noqa: N818 - no error of the program; it never leaves this module
    """Bytes that are not laid out as they should be; `reason` is a short word."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Cursor:
    """Walks over the fields of a key or value; nothing is taken that is not there."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise _Unreadable("length" if size < 0 else "truncated")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def integer(self, size: int) -> int:
        """A signed big-endian integer of `size` bytes."""
        return int.from_bytes(self._take(size), "big", signed=True)

    def version(self) -> int:
        """The version a value begins with, 0 to 4."""
        version = self.integer(2)
        if not 0 <= version <= _NEWEST:
            raise _Unreadable("version")
        return version

    def varint(self) -> int:
        """An unsigned varint of at most five bytes."""
        try:
            value, self._position = read_unsigned(self._data, self._position)
        except IndexError:
            raise _Unreadable("truncated") from None
        except UnsignedVarintError:
            raise _Unreadable("varint") from None
        return value

    def _text(self, length: int) -> str:
        try:
            return self._take(length).decode()
        except UnicodeDecodeError:
            raise _Unreadable("text") from None

    def short_string(self) -> str:
        """A string behind its length in 16 bits."""
        return self._text(self.integer(2))

    def nullable_short_string(self) -> str | None:
        """The same, null where the length is -1."""
        length = self.integer(2)
        return None if length == -1 else self._text(length)

    def compact_string(self) -> str:
        """A string behind its length + 1 as a varint."""
        return self._text(self.varint() - 1)

    def nullable_compact_string(self) -> str | None:
        """The same, null where the varint is 0."""
        length = self.varint() - 1
        return None if length < 0 else self._text(length)

    def sized_bytes(self) -> int:
        """Size of bytes behind their length in 32 bits."""
        return len(self._take(self.integer(4)))

    def compact_bytes(self) -> int:
        """Size of bytes behind their length + 1 as a varint."""
        return len(self._take(self.varint() - 1))

    def tagged_fields(self) -> bytes | None:
        """The field of tag 0, None if there is none; tags must rise. Others are passed over."""
        first = None
        last = -1
        for _ in range(self.varint()):
            tag, size = self.varint(), self.varint()
            if tag <= last:
                raise _Unreadable("tag")
            taken = self._take(size)
            first = taken if tag == 0 else first
            last = tag
        return first


# Values of `__consumer_offsets` that tell of new groups, read fast: the twin of `spec.consumer_offsets`.
#
# Every kind that Kafka has had in a release from 4.0 on is taken apart; what is larger than any coordinator writes is only
# measured. Everything here answers with what was read, or with a short word for why it could not be: `str` is never a good answer.


MAX_VALUE_BYTES: Final = 2 << 20
"""Larger values are not taken apart. Coordinators write none larger than a batch may be: 1 MiB unless that is set otherwise."""
_VERSION_SIZE: Final = 2


def read_group_value(record_type: int, value: bytes) -> Json | str:
    """The fields of a value of one of the types 3 to 23; tagged ones that are left out are not among them.

    `kind`: no such type is known here; `version`, `truncated`: its version is not 0, or not there; `oversized`; `fields`: it is not
    laid out so. Bytes behind the fields are passed over, as coordinators do.
    """
    return read_alternatives(_LAYOUTS.get(record_type, ()), value)


def read_alternatives(layouts: tuple[Layout, ...], value: bytes) -> Json | str:
    """The fields by the first layout that takes the whole value, else by the first that can be read at all."""
    if not layouts:
        return "kind"
    if value[:_VERSION_SIZE] != b"\0\0":
        return "version" if len(value) >= _VERSION_SIZE else "truncated"
    if len(value) > MAX_VALUE_BYTES:
        return "oversized"
    first: Json | None = None
    for layout in layouts:
        try:
            fields, position = read_message(value, _VERSION_SIZE, layout)
        except UNREADABLE:
            continue
        if position == len(value):
            return fields
        first = first or fields
    return "fields" if first is None else first


def _plain(*fields: tuple[str, Read], tags: Tags | None = None) -> Layout:
    return fields, tags or {}


_STRINGS: Final = array(STRING)
_SHORTS: Final = array(INT16)
_EPOCHS: Final[Tags] = {0: ("assignment_epochs", NULLABLE_INTS, LEFT_OUT)}
_ASSIGNED: Final = array(structure(("topic_id", uuid), ("partitions", INTS)))
_ASSIGNED_WITH_EPOCHS: Final = array(structure(("topic_id", uuid), ("partitions", INTS), tags=_EPOCHS))
_TASKS: Final = array(structure(("subtopology_id", STRING), ("partitions", INTS)))
_TASKS_WITH_EPOCHS: Final = array(structure(("subtopology_id", STRING), ("partitions", INTS), tags=_EPOCHS))
_KEY_VALUE: Final = structure(("key", STRING), ("value", STRING))
_KEY_VALUES: Final = array(_KEY_VALUE)
_RACKS: Final = array(structure(("partition", INT32), ("racks", _STRINGS)))
_PARTITION_METADATA: Final = _plain(
    (
        "topics",
        array(structure(("topic_id", uuid), ("topic_name", STRING), ("num_partitions", INT32), ("partition_metadata", _RACKS))),
    )
)
_PROTOCOLS: Final = array(structure(("name", STRING), ("metadata", BASE64)))
_CLASSIC_MEMBER: Final = structure(("session_timeout_ms", INT32), ("supported_protocols", _PROTOCOLS))
_TARGET_EPOCH: Final = _plain(("assignment_epoch", INT32), tags={0: ("assignment_timestamp", INT64, LEFT_OUT)})
_TARGET: Final = _plain(("topic_partitions", _ASSIGNED))
_MEMBER_EPOCHS: Final = (("member_epoch", INT32), ("previous_member_epoch", INT32), ("state", INT8))
_CLIENT: Final = (("client_id", STRING), ("client_host", STRING))
_STATIC: Final = (("instance_id", NULLABLE_STRING), ("rack_id", NULLABLE_STRING), *_CLIENT)
_TASK_KINDS: Final = ("active_tasks", "standby_tasks", "warmup_tasks")
_SHARED: Final = array(structure(("topic_id", uuid), ("topic_name", STRING), ("partitions", INTS)))
_DELETING: Final = array(structure(("topic_id", uuid), ("topic_name", STRING)))
_INITIALIZED: Final = (("initialized_topics", _SHARED), ("deleting_topics", _DELETING))
_TOPICS: Final = array(
    structure(("name", STRING), ("partitions", INT32), ("replication_factor", INT16), ("topic_configs", _KEY_VALUES))
)
_COPARTITIONED: Final = array(
    structure(("source_topics", _SHORTS), ("source_topic_regex", _SHORTS), ("repartition_source_topics", _SHORTS))
)
_SUBTOPOLOGIES: Final = array(
    structure(
        ("subtopology_id", STRING),
        ("source_topics", _STRINGS),
        ("source_topic_regex", _STRINGS),
        ("state_changelog_topics", _TOPICS),
        ("repartition_sink_topics", _STRINGS),
        ("repartition_source_topics", _TOPICS),
        ("copartition_groups", _COPARTITIONED),
    )
)
_LAYOUTS: Final[dict[int, tuple[Layout, ...]]] = {
    3: (_plain(("epoch", INT32), tags={0: ("metadata_hash", INT64, LEFT_OUT)}),),
    4: (_PARTITION_METADATA,),
    5: (
        _plain(
            *_STATIC,
            ("subscribed_topic_names", _STRINGS),
            ("subscribed_topic_regex", NULLABLE_STRING),
            ("rebalance_timeout_ms", INT32),
            ("server_assignor", NULLABLE_STRING),
            tags={0: ("classic_member_metadata", nullable_structure(_CLASSIC_MEMBER, tagged=True), LEFT_OUT)},
        ),
    ),
    6: (_TARGET_EPOCH,),
    7: (_TARGET,),
    8: (
        _plain(
            *_MEMBER_EPOCHS,
            ("assigned_partitions", _ASSIGNED_WITH_EPOCHS),
            ("partitions_pending_revocation", _ASSIGNED_WITH_EPOCHS),
        ),
    ),
    9: (_PARTITION_METADATA,),
    10: (_plain(("rack_id", NULLABLE_STRING), *_CLIENT, ("subscribed_topic_names", _STRINGS)),),
    11: (_plain(("epoch", INT32), ("metadata_hash", INT64)), _plain(("epoch", INT32))),
    12: (_TARGET_EPOCH,),
    13: (_TARGET,),
    14: (_plain(*_MEMBER_EPOCHS, ("assigned_partitions", _ASSIGNED)),),
    15: (_plain(("initializing_topics", _SHARED), *_INITIALIZED), _plain(*_INITIALIZED)),
    16: (_plain(("topics", _STRINGS), ("version", INT64), ("timestamp", INT64)),),
    17: (
        _plain(
            ("epoch", INT32),
            ("metadata_hash", INT64),
            tags={
                0: ("validated_topology_epoch", INT32, LEFT_OUT),
                1: ("last_assignment_configs", array(_KEY_VALUE, nullable=True), LEFT_OUT),
                2: ("stored_description_topology_epoch", INT32, LEFT_OUT),
                3: ("failed_description_topology_epoch", INT32, LEFT_OUT),
            },
        ),
    ),
    19: (
        _plain(
            *_STATIC,
            ("rebalance_timeout_ms", INT32),
            ("topology_epoch", INT32),
            ("process_id", STRING),
            ("user_endpoint", nullable_structure(structure(("host", STRING), ("port", UINT16)))),
            ("client_tags", _KEY_VALUES),
        ),
    ),
    20: (_TARGET_EPOCH,),
    21: (_plain(*((kind, _TASKS) for kind in _TASK_KINDS)),),
    22: (
        _plain(
            *_MEMBER_EPOCHS,
            *((f"{kind}{pending}", _TASKS_WITH_EPOCHS) for pending in ("", "_pending_revocation") for kind in _TASK_KINDS),
        ),
    ),
    23: (_plain(("epoch", INT32), ("subtopologies", _SUBTOPOLOGIES)),),
}
"""Type of the key → layout of Kafka 4.3, and that of the preview of share groups in 4.0 where it was another."""
