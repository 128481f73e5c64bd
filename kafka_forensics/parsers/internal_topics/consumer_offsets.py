"""Records of `__consumer_offsets` read fast: the twin of `spec.consumer_offsets` for logs that hold millions of them.

Everything here answers with what was read, or with a short word for why it could not be: `str` is never a good answer.
"""

from base64 import urlsafe_b64encode
from struct import Struct
from typing import Final

from kafka_forensics.model.group_log import (
    MEMBER_TYPES,
    MEMBERS_LISTED,
    OFFSET_COMMIT_TYPES,
    RECORD_TYPES,
    GroupKey,
    GroupMember,
    GroupMetadata,
    OffsetCommit,
)
from kafka_forensics.parsers.log import OverlongVarintError, read_unsigned

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
        except OverlongVarintError:
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
