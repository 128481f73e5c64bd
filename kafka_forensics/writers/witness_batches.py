"""Writes substitutes for batches of the internal topics, with what the analysis reads of each record and nothing else.

A substitute has the header of its batch, and the same records by offset and timestamp, uncompressed: every reader accepts it like
the original. Its keys and values have only the fields listed here; other fields are blank. A record of an unknown kind keeps only
its frame, and a record that cannot be read becomes one that cannot be read for the same reason. Names are kept, or replaced by
pseudonyms.
"""

import re
import struct
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import sha256
from itertools import chain
from typing import Final

from msgspec.structs import replace

from kafka_forensics.model.batches import TIMESTAMP_TYPES, Record
from kafka_forensics.model.constants import (
    CLUSTER_METADATA_TOPIC,
    COMPRESSION_MASK,
    CONSUMER_OFFSETS_TOPIC,
    CONTROL_ABORT,
    CONTROL_COMMIT,
    CRC_START,
    CURRENT_MAGIC,
    LOG_OVERHEAD,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    RECORD_BATCH_OVERHEAD,
    REMOTE_LOG_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TIMESTAMP_TYPE_MASK,
    TRANSACTION_STATE_TOPIC,
)
from kafka_forensics.model.controller import MetadataRecord
from kafka_forensics.model.coordinators import (
    GROUP_METADATA_TYPE,
    METADATA_OF_GROUP,
    OFFSET_COMMIT_TYPES,
    RECORD_TYPES,
    SHARED_TOPICS,
    STREAMS_TOPOLOGY,
    TARGET_EPOCHS,
    OffsetCommit,
)
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.pseudonyms import NameKind, Pseudonyms
from kafka_forensics.parsers.internal_topics import (
    MAX_VALUE_BYTES,
    REPLAYED_FIELDS,
    SHARE_RECORDS,
    check_value,
    decode_metadata_record,
    decode_remote_log_record,
    is_no_op_batch,
    parse_transaction_log_key,
    parse_transaction_log_value,
    read_group_metadata,
    read_group_value,
    read_key,
    read_offset_commit,
    read_share_key,
    read_share_value,
    unsigned_varint,
    write_frame,
    write_group_value,
    write_metadata_record,
    write_remote_log_record,
    write_share_value,
)
from kafka_forensics.parsers.log import (
    MARKER_VALUE_SIZE,
    MAX_BATCH_BYTES,
    MIN_CONTROL_KEY_SIZE,
    BatchHeader,
    LegacyWrapper,
    PlainRecord,
    decode_batch,
    parse_control_record,
    plain_records,
    write_control_value,
)
from kafka_forensics.parsers.spec.batch_header import BATCH_HEADER
from kafka_forensics.writers.batches import fix_crc, record_bytes, short_string, write_transaction_log_value

MAX_SUBSTITUTE_BYTES: Final = 32 << 20
"""Records beyond it are left out, and the batch is broken. No controller or coordinator writes so large a batch."""

KeyAndValue = tuple[bytes | None, bytes | None]
Reduce = Callable[[bytes | None, bytes | None, Pseudonyms | None], KeyAndValue]
"""Reduces the key and the value of a record."""

_INT32, _INT64 = struct.Struct(">i"), struct.Struct(">q")
_INT32_HALF: Final = 1 << 31
_INT64_HALF: Final = 1 << 63
_BAD_VERSION: Final = b"\xff\xff"
_OVERSIZED: Final = bytes(MAX_VALUE_BYTES + 1)
"""A value of version 0 that readers only measure."""
_MAX_CACHED_KEY_BYTES: Final = 256


def witness_batch(topic: str, batch: bytes | memoryview, pseudonyms: Pseudonyms | None = None) -> bytes | None:
    """The substitute of a stored batch of any magic: an uncompressed batch of magic 2, with `pseudonyms` instead of names.

    None for topics that are not read as evidence (with `pseudonyms` they get a substitute without keys and values), for the no-op
    records of an idle controller, for batches that are too large to be opened, and for bytes that are not a batch. The result has
    at most `MAX_SUBSTITUTE_BYTES`, and at most a header and four times the size of the decompressed records, plus the extra length
    of pseudonyms.
    """
    reduce = _REDUCERS.get(topic, None if pseudonyms is None else _no_record)
    if reduce is None or len(batch) > MAX_BATCH_BYTES:
        return None
    is_metadata = topic == CLUSTER_METADATA_TOPIC
    if is_metadata and is_no_op_batch(batch, int.from_bytes(batch[CRC_START : CRC_START + 2], "big")):
        return None
    data = bytes(batch)
    plain = plain_records(data)
    if plain is not None:
        return _substitute(BatchHeader(*BATCH_HEADER.unpack_from(data)), plain, reduce, pseudonyms, broken=False)
    decoded = decode_batch(data)
    if decoded.header is not None:
        reduce = _control_record if decoded.header.is_control_batch else reduce
        return _substitute(decoded.header, decoded.iter_records(), reduce, pseudonyms, broken=bool(decoded.problems))
    if decoded.legacy is None:
        return None
    header = _header_of_legacy(decoded.legacy)
    if is_metadata:  # controllers never wrote the old formats, and readers reject them
        return _substitute(header, (), reduce, pseudonyms, broken=True)
    return _substitute(header, decoded.iter_records(), reduce, pseudonyms, broken=bool(decoded.problems))


def _header_of_legacy(legacy: LegacyWrapper) -> BatchHeader:
    """The header of a magic 2 batch with these messages of magic 0 or 1."""
    deltas = _signed(legacy.last_offset - legacy.base_offset)
    return BatchHeader(
        base_offset=legacy.base_offset,
        batch_length=0,
        partition_leader_epoch=NO_PARTITION_LEADER_EPOCH,
        magic=CURRENT_MAGIC,
        crc=0,
        attributes=TIMESTAMP_TYPE_MASK * (legacy.timestamp_type == TIMESTAMP_TYPES[1]),
        last_offset_delta=deltas if -_INT32_HALF <= deltas < _INT32_HALF else 0,
        base_timestamp=legacy.timestamp,
        max_timestamp=legacy.timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        records_count=0,
    )


def _substitute(
    header: BatchHeader, records: Iterable[PlainRecord | Record], reduce: Reduce, pseudonyms: Pseudonyms | None, *, broken: bool
) -> bytes:
    """The batch; if it is `broken`, its header counts one record too many: readers also find it broken."""
    payload = bytearray()
    count = 0
    by_broker = header.attributes & TIMESTAMP_TYPE_MASK
    for record in records:
        offset_delta = _signed(record.offset - header.base_offset)
        timestamp_delta = 0 if by_broker else _signed(record.timestamp - header.base_timestamp)
        if not -_INT32_HALF <= offset_delta < _INT32_HALF or (by_broker and record.timestamp != header.max_timestamp):
            broken = True  # messages of an old format can have any offset and timestamp
            continue
        written = record_bytes(*reduce(record.key, record.value, pseudonyms), offset_delta, timestamp_delta)
        if len(payload) + len(written) > MAX_SUBSTITUTE_BYTES:
            broken = True
            break
        payload += written
        count += 1
    head = header._replace(
        batch_length=RECORD_BATCH_OVERHEAD - LOG_OVERHEAD + len(payload),
        magic=CURRENT_MAGIC,
        crc=0,
        attributes=header.attributes & ~COMPRESSION_MASK,
        records_count=count + broken,
    )
    return fix_crc(BATCH_HEADER.pack(*head) + payload)


def _signed(value: int) -> int:
    """`value` as a Java long."""
    return (value + _INT64_HALF) % (2 * _INT64_HALF) - _INT64_HALF


# Control batches of any topic. Voters stay, without the addresses of their listeners.


def is_marker(batch: bytes) -> bool:
    """Whether a stored batch has only transaction markers as brokers write them."""
    decoded = decode_batch(batch)
    header = decoded.header
    if header is None or not header.is_control_batch or header.attributes & COMPRESSION_MASK or decoded.problems:
        return False
    return all(
        record.key is not None
        and len(record.key) == MIN_CONTROL_KEY_SIZE
        and parse_control_record(record.key, record.value).type in (CONTROL_ABORT, CONTROL_COMMIT)
        and len(record.value or b"") <= _MAX_MARKER_BYTES
        and not record.headers
        for record in decoded.iter_records()
    )


_MAX_MARKER_BYTES: Final = 16
"""Of a marker's value: version, epoch, and fields of newer versions."""


def _control_record(key: bytes | None, value: bytes | None, _: Pseudonyms | None) -> KeyAndValue:
    control = parse_control_record(key, value)
    kept_key = None if key is None else key[:MIN_CONTROL_KEY_SIZE]
    if control.problem is not None or value is None or control.name == "UNKNOWN":
        return kept_key, None
    if 0 <= control.type <= CONTROL_COMMIT:
        return kept_key, value[:MARKER_VALUE_SIZE]
    voters = control.fields.get("voters", ())
    fields = control.fields | {"version": control.version}
    if voters and "endpoints" in voters[0]:
        fields["voters"] = [voter | {"endpoints": []} for voter in voters]
    return kept_key, write_control_value(control.type, fields)


# `__cluster_metadata`: the kinds that a replay uses.


_SETTING, _FEATURE = 4, 12
_TOPIC_NAME_FIELDS: Final = {2: "name", _SETTING: "resource_name", 28: "topic_name"}
"""Kind → the field with the name of a topic."""
_CREDENTIALS: Final = frozenset({11, 22})
"""Kinds that name a user; none of their fields is kept."""
_TOPIC, _BROKER = 2, 4
KEPT_SETTINGS: Final = {
    _TOPIC: frozenset(
        {
            "cleanup.policy",
            "delete.retention.ms",
            "index.interval.bytes",
            "min.cleanable.dirty.ratio",
            "min.insync.replicas",
            "remote.storage.enable",
            "retention.bytes",
            "retention.ms",
            "unclean.leader.election.enable",
        }
    ),
    _BROKER: frozenset(
        {
            "log.cleaner.min.cleanable.ratio",
            "log.cleanup.policy",
            "log.message.timestamp.type",
            "log.retention.bytes",
            "log.retention.ms",
            "min.insync.replicas",
            "unclean.leader.election.enable",
        }
    ),
}
"""Type of the resource → settings: of topics, and defaults of all brokers."""
_SETTING_VALUE: Final = re.compile(
    r"-?\d{1,19}|[01]\.\d{1,9}|true|false|createtime|logappendtime|(?:compact|delete|[ ,])+", re.IGNORECASE | re.ASCII
)
"""Valid values of these settings; with pseudonyms any other value, which may be a name, becomes a question mark."""
KEPT_FEATURES: Final = frozenset({"eligible.leader.replicas.version", "metadata.version", "transaction.version"})
_OTHER_KEY: Final = b"\0"
"""Distinguishes the record from the no-op of an idle controller, which readers skip: controllers write no keys."""
_PROBLEMS_AFTER_FRAME: Final = frozenset({"kind", "version", "fields"})


def _metadata_record(_: bytes | None, value: bytes | None, pseudonyms: Pseudonyms | None) -> KeyAndValue:
    record = decode_metadata_record(value)
    if record.fields is None:
        return None, _unreadable_record(record, value)
    kept = _kept_fields(record.api_key, record.fields)
    if not kept:
        return _OTHER_KEY, write_metadata_record(record.api_key, record.version, {})
    if pseudonyms is not None:
        name = _TOPIC_NAME_FIELDS.get(record.api_key)
        if name is not None and kept.get(name):  # it is empty in a default of all brokers
            kept[name] = pseudonyms.pseudonym(NameKind.TOPIC, kept[name])
        if kept.get("value") and not _SETTING_VALUE.fullmatch(kept["value"]):
            kept["value"] = "?"
    return None, write_metadata_record(record.api_key, record.version, kept)


def _unreadable_record(record: MetadataRecord, value: bytes | None) -> bytes | None:
    """A value that cannot be read for the same reason."""
    if record.problem in _PROBLEMS_AFTER_FRAME:
        return write_frame(record.api_key, record.version)
    return None if value is None else b""


def _kept_fields(api_key: int, fields: Json) -> Json:
    if api_key == _SETTING:
        kind, name = fields["resource_type"], fields["name"]
        is_default = kind == _BROKER and fields["resource_name"] == ""
        if name not in KEPT_SETTINGS.get(kind, ()) or not (is_default or kind == _TOPIC):
            return {}
    if api_key in _CREDENTIALS:
        return {}
    if api_key == _FEATURE and fields["name"] not in KEPT_FEATURES:
        return {}
    return {name: fields[name] for name in REPLAYED_FIELDS.get(api_key, ()) if name in fields}


# `__consumer_offsets`: commits, groups, and the number of their members.


_PARTITION_BYTES: Final = 4
_DIGEST_CHARACTERS: Final = 16
_COMMIT_HEADS: Final = (10, 10, 10, 14)
"""Bytes before the metadata of a commit, by version; the length of the metadata in 16 bits follows."""
_COMMIT_TAILS: Final = (8, 16, 8, 8)
"""Bytes after the metadata, by version."""
_FLEXIBLE_COMMIT: Final = struct.Struct(">hqi")
_COMMIT_4: Final = _FLEXIBLE_COMMIT.pack(4, 0, 0)
_BAD_COMMITS: Final = {
    "length": bytes(_COMMIT_HEADS[0]) + b"\xff\xff",
    "tag": _COMMIT_4 + b"\1" + bytes(8) + b"\2\1\0\1\0",
    "text": bytes(_COMMIT_HEADS[0]) + b"\0\1\xff",
    "topic_id": _COMMIT_4 + b"\1" + bytes(8) + b"\1\0\0",
    "truncated": b"",
    "varint": _COMMIT_4 + b"\xff" * 5,
    "version": _BAD_VERSION,
}
_GROUP_4: Final = b"\0\4\1" + bytes(4) + b"\0\0" + bytes(8)
"""A classic group of version 4 up to its members."""
_BAD_GROUPS: Final = {
    "array": _GROUP_4 + b"\0",
    "length": b"\0\0\xff\xff",
    "tag": _GROUP_4 + b"\1\2\1\0\1\0",
    "text": b"\0\0\0\1\xff",
    "truncated": b"",
    "varint": b"\0\4" + b"\xff" * 5,
    "version": _BAD_VERSION,
}
_BAD_VALUES: Final = {"fields": b"\0\0", "truncated": b"", "version": _BAD_VERSION}
"""Of new groups and of share groups' state; every layout has at least one byte after the version."""
_NOT_PARSED: Final = {"kind": b"\0\0", "oversized": _OVERSIZED}
_FLEXIBLE_GROUP: Final = 4
_EPOCHS: Final = (
    dict.fromkeys(METADATA_OF_GROUP, "epoch") | dict.fromkeys(TARGET_EPOCHS, "assignment_epoch") | {STREAMS_TOPOLOGY: "epoch"}
)
"""Type of a key → the only field of its value that is kept."""
_SHARED_TOPIC_FIELDS: Final = ("initializing_topics", "initialized_topics", "deleting_topics")


def _group_record(raw_key: bytes | None, value: bytes | None, pseudonyms: Pseudonyms | None) -> KeyAndValue:
    if raw_key is None:
        return None, None
    key, record_type = (_group_key if len(raw_key) <= _MAX_CACHED_KEY_BYTES else _group_key.__wrapped__)(raw_key, pseudonyms)
    if record_type is None or value is None:
        return key, None
    if record_type in OFFSET_COMMIT_TYPES:
        return key, _commit_value(value, pseudonyms)
    return key, _classic_value(value) if record_type == GROUP_METADATA_TYPE else _group_value(record_type, value, pseudonyms)


@lru_cache(maxsize=1 << 14)
def _group_key(raw: bytes, pseudonyms: Pseudonyms | None) -> tuple[bytes, int | None]:
    """A reduced key, and its type; None if its value is not kept.

    Members get digests of their ids: different keys stay different, and the work of the cleaner can be checked.
    """
    key = read_key(raw)
    if isinstance(key, str):
        return b"", None
    if key.record_type not in RECORD_TYPES:
        return _unknown_key(raw, pseudonyms), None
    if key.record_type in OFFSET_COMMIT_TYPES and pseudonyms is None:
        return raw[: _end_of_string(raw, _end_of_string(raw, 2)) + _PARTITION_BYTES], key.record_type
    group, topic, member_id = key.group, key.topic, key.member_id
    if member_id is not None:
        member_id = sha256(member_id.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    if pseudonyms is not None:
        group = pseudonyms.pseudonym(NameKind.GROUP, group)
        if topic is not None:
            topic = pseudonyms.pseudonym(NameKind.TOPIC, topic)
        if key.member_id is not None:
            member_id = pseudonyms.one_time_pseudonym(NameKind.CLIENT, key.member_id)
    strings = b"".join(short_string(text) for text in (group, topic, member_id) if text is not None)
    partition = b"" if key.partition is None else _INT32.pack(key.partition)
    return raw[:2] + strings + partition, key.record_type


def _unknown_key(raw: bytes, pseudonyms: Pseudonyms | None) -> bytes:
    """The type of a key of a newer version; with pseudonyms different keys stay different, because the reduced keys are hashed."""
    return raw[:2] if pseudonyms is None else raw[:2] + pseudonyms.one_time_pseudonym(NameKind.OTHER, raw.hex()).encode()


def _end_of_string(data: bytes, position: int) -> int:
    """The end of a complete string with its length in 16 bits in front, by its position."""
    return position + 2 + int.from_bytes(data[position : position + 2], "big")


def _commit_value(value: bytes, pseudonyms: Pseudonyms | None) -> bytes:
    """A commit with masked metadata of the same length; with pseudonyms without metadata."""
    version = int.from_bytes(value[:2], "big")
    if len(value) > 2 and version < len(_COMMIT_HEADS):
        start = _COMMIT_HEADS[version] + 2
        length = int.from_bytes(value[start - 2 : start], "big", signed=True)
        end = start + length
        stop = end + _COMMIT_TAILS[version]
        if length == 0 and stop <= len(value):
            return value[:stop]
        if length > 0 and stop <= len(value) and _is_text(value[start:end]):
            kept = b"*" * length if pseudonyms is None else b""
            return value[: start - 2] + len(kept).to_bytes(2, "big") + kept + value[end:stop]
    commit = read_offset_commit(value)
    if isinstance(commit, str):
        return _BAD_COMMITS[commit]
    return _flexible_commit(commit if pseudonyms is None else commit._replace(metadata=""))


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _flexible_commit(commit: OffsetCommit) -> bytes:
    """A commit of version 4."""
    length = len(commit.metadata.encode())
    tags = b"\0" if commit.topic_id is None else b"\1\0\x10" + urlsafe_b64decode(f"{commit.topic_id}==")
    head = _FLEXIBLE_COMMIT.pack(4, commit.offset, commit.leader_epoch)
    return b"".join((head, unsigned_varint(length + 1), b"*" * length, _INT64.pack(commit.commit_timestamp), tags))


def _classic_value(value: bytes) -> bytes:
    """A classic group: its generation, whether it has a protocol, and blank members."""
    group = read_group_metadata(value)
    if isinstance(group, str):
        return _BAD_GROUPS[group]
    version = int.from_bytes(value[:2], "big")
    flexible = version >= _FLEXIBLE_GROUP
    empty, null, no_bytes, tags = (b"\1", b"\0", b"\1", b"\0") if flexible else (b"\0\0", b"\xff\xff", bytes(4), b"")
    count = unsigned_varint(group.members_count + 1) if flexible else _INT32.pack(group.members_count)
    member = b"".join(
        (
            *(empty, null * (version >= 3), empty, empty),  # ids, client and host
            bytes(4 if version < 1 else 8),  # timeouts
            *(no_bytes, no_bytes, tags),
        )
    )
    protocol = null if group.protocol is None else empty
    timestamp = bytes(8 * (version >= 2))
    head = (value[:2], empty, _INT32.pack(group.generation), protocol, null, timestamp)
    return b"".join((*head, count, member * group.members_count, tags))


def _group_value(record_type: int, value: bytes, pseudonyms: Pseudonyms | None) -> bytes:
    """A value of a consumer, share or streams group."""
    fields = read_group_value(record_type, value)
    if isinstance(fields, str):
        problem = check_value(value) if fields in _NOT_PARSED else fields
        return _NOT_PARSED[fields] if problem is None else _BAD_VALUES[problem]
    if record_type == SHARED_TOPICS:
        names = {kind: [topic | {"partitions": []} for topic in fields.get(kind, ())] for kind in _SHARED_TOPIC_FIELDS}
        if pseudonyms is not None:
            for topic in chain(*names.values()):
                topic["topic_name"] = pseudonyms.pseudonym(NameKind.TOPIC, topic["topic_name"])
            for topics in names.values():
                topics.sort(key=lambda topic: str(topic["topic_name"]))
        return write_group_value(record_type, names)
    name = _EPOCHS.get(record_type)
    return write_group_value(record_type, {} if name is None else {name: fields[name]})


# `__share_group_state`: the positions of share groups; the time of a record is in its batch.


_ID_AND_PARTITION_BYTES: Final = 20
_SHARE_FIELDS: Final = frozenset(
    {"snapshot_epoch", "state_epoch", "leader_epoch", "start_offset", "state_batches", "delivery_complete_count"}
)


def _share_record(raw_key: bytes | None, value: bytes | None, pseudonyms: Pseudonyms | None) -> KeyAndValue:
    key = read_share_key(raw_key)
    if raw_key is None or isinstance(key, str):
        return None if raw_key is None else b"", None
    if key.record_type not in SHARE_RECORDS:
        return _unknown_key(raw_key, pseudonyms), None
    end = _end_of_string(raw_key, 2)
    group = raw_key[2:end] if pseudonyms is None else short_string(pseudonyms.pseudonym(NameKind.GROUP, key.group))
    kept_key = raw_key[:2] + group + raw_key[end : end + _ID_AND_PARTITION_BYTES]
    if value is None:
        return kept_key, None
    fields = read_share_value(key.record_type, value)
    if isinstance(fields, str):
        return kept_key, _OVERSIZED if fields == "oversized" else _BAD_VALUES[fields]
    kept = {name: field for name, field in fields.items() if name in _SHARE_FIELDS}
    return kept_key, write_share_value(key.record_type, kept)


# `__transaction_state`: every field is evidence.


_MAX_PARTITIONS: Final = 1 << 16
_TRANSACTION_HEAD: Final = struct.Struct(">hqhib")
_TRANSACTION_1: Final = _TRANSACTION_HEAD.pack(1, 0, 0, 0, 0)
_BAD_KEYS: Final = {"key_null": b"\0\0\xff\xff", "key_short": b"", "key_string": b"\0\0\0\1\xff", "key_version": _BAD_VERSION}
_BAD_TRANSACTIONS: Final = {
    "null": _TRANSACTION_1 + b"\2\0",
    "short": b"",
    "state": _TRANSACTION_HEAD.pack(0, 0, 0, 0, -1) + bytes(20),
    "string": _TRANSACTION_1 + b"\2\2\xff",
    "tag": _TRANSACTION_1 + b"\0" + bytes(16) + b"\1\0\0",
    "varint": _TRANSACTION_1 + b"\xff" * 5,
    "version": _BAD_VERSION,
}


def _transaction_record(raw_key: bytes | None, value: bytes | None, pseudonyms: Pseudonyms | None) -> KeyAndValue:
    name, problem = parse_transaction_log_key(raw_key)
    if raw_key is None or name is None:
        return None if raw_key is None else _BAD_KEYS[str(problem)], None
    key = raw_key[: _end_of_string(raw_key, 2)]
    if pseudonyms is not None:
        key = raw_key[:2] + short_string(pseudonyms.pseudonym(NameKind.TRANSACTIONAL_ID, name))
    if value is None:
        return key, None
    metadata, problem = parse_transaction_log_value(value)
    if metadata is not None:
        if pseudonyms is not None:
            partitions = ((pseudonyms.pseudonym(NameKind.TOPIC, topic), partition) for topic, partition in metadata.partitions)
            metadata = replace(metadata, partitions=tuple(sorted(partitions)))  # Kafka's order comes from hashes of names
        return key, write_transaction_log_value(metadata, int.from_bytes(value[:2], "big"))
    return key, _too_many_partitions() if problem == "partitions" else _BAD_TRANSACTIONS[str(problem)]


def _no_record(_: bytes | None, _value: bytes | None, _pseudonyms: Pseudonyms | None) -> KeyAndValue:
    return None, None


def _too_many_partitions() -> bytes:
    """A transaction in an implausible number of partitions of one topic."""
    numbers = _MAX_PARTITIONS + 1
    return _TRANSACTION_HEAD.pack(0, 0, 0, 0, 0) + _INT32.pack(1) + b"\0\0" + _INT32.pack(numbers) + bytes(4 * numbers)


# `__remote_log_metadata`: every field is evidence. The plugin's own metadata, which names objects, is dropped with pseudonyms.


_REFUSED_FIELDS: Final[dict[str, Json]] = {
    "state": {"remote_log_segment_state": -1, "remote_partition_delete_state": -1},
    "offsets": {"start_offset": -1},
    "epochs": {},
}
"""Problem → fields that give a blank record of the same kind the same problem."""


def _remote_log_record(_: bytes | None, value: bytes | None, pseudonyms: Pseudonyms | None) -> KeyAndValue:
    record = decode_remote_log_record(value)
    if record.problem in _REFUSED_FIELDS:
        return None, write_remote_log_record(record.api_key, _REFUSED_FIELDS[record.problem])
    if record.fields is None:
        return None, _unreadable_record(record, value)
    fields = record.fields
    if pseudonyms is not None:
        fields |= {"custom_metadata": None}
        partition = fields.get("remote_log_segment_id", fields).get("topic_id_partition")
        if partition is not None:
            partition["name"] = pseudonyms.pseudonym(NameKind.TOPIC, partition["name"])
    return None, write_remote_log_record(record.api_key, fields)


_REDUCERS: Final[dict[str, Reduce]] = {
    CLUSTER_METADATA_TOPIC: _metadata_record,
    CONSUMER_OFFSETS_TOPIC: _group_record,
    REMOTE_LOG_METADATA_TOPIC: _remote_log_record,
    SHARE_GROUP_STATE_TOPIC: _share_record,
    TRANSACTION_STATE_TOPIC: _transaction_record,
}
