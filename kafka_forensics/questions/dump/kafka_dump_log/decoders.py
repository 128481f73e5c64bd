"""Keys and values as the decoders of Kafka's own tool print them: `--cluster-metadata-decoder` and its like (DumpLogSegments).

A decoder gives the texts of key and payload, None for one that is not printed. What it cannot read it says in place of them; in the
words of the reader here, where the tool prints the message of a Java exception.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable
from typing import Any, Final

from kafka_forensics.model.group_log import GROUP_METADATA_TYPE, MEMBER_TYPES, OFFSET_COMMIT_TYPES
from kafka_forensics.parsers.internal_topics import (
    MAX_VALUE_BYTES,
    SHARE_RECORDS,
    decode_metadata_record,
    parse_transaction_log_key,
    parse_transaction_log_value,
    read_key,
    read_offset_commit,
    read_share_key,
)
from kafka_forensics.parsers.spec.consumer_offsets import GROUP_METADATA_VALUES
from kafka_forensics.parsers.spec.consumer_protocol import ASSIGNMENT, NEWEST, SUBSCRIPTIONS
from kafka_forensics.parsers.spec.flexible import Flexible, parsed, without_defaults
from kafka_forensics.parsers.spec.group_records import GROUP_VALUES, SHARE_STATE_VALUES, read_value
from kafka_forensics.parsers.spec.metadata_records import MESSAGES
from kafka_forensics.parsers.spec.transaction_state import TRANSACTION_LOG_VALUES
from kafka_forensics.questions.dump.kafka_dump_log.segment import PeerGivesUpError, PeerLimitError, PeerRecord

Decoder = Callable[[PeerRecord], tuple[str | None, str | None]]

_NOT_TAKEN_APART: Final = "not taken apart here"
_CREDENTIAL: Final = "USER_SCRAM_CREDENTIAL_RECORD"
"""What is in it stays secret."""
_LAST: Final = ("directories", "eligible_leader_replicas", "last_known_elr")
"""Fields of partitions that Kafka's schema has at the end."""
_GROUP_TYPES: Final = frozenset({*OFFSET_COMMIT_TYPES, GROUP_METADATA_TYPE, *GROUP_VALUES})
"""Of Kafka 4.3.0; its tool knows no others."""
_LEGACY_COMMIT: Final = 0
_REGULAR_EXPRESSION: Final = 16
_CONSUMER: Final = "consumer"
_DELETED: Final = "<DELETE>"
_CONTROL: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u(00[0-9a-f]{2})")
"""A control character as JSON spells it, and not what looks so behind a backslash that is spelled itself."""


def camel(value: Any) -> Any:
    """`value` with the keys of its mappings as Kafka's JSON spells them, and bytes in base64."""
    if isinstance(value, dict):
        return {_camel_word(key): camel(each) for key, each in value.items() if key != "tagged_fields"}
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return [camel(each) for each in value] if isinstance(value, list | tuple) else value


def _camel_word(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def json_line(value: Any) -> str:
    """`value` as Kafka's JSON in one line, in which control characters are spelled with large letters."""
    line = json.dumps(camel(value), separators=(",", ":"), ensure_ascii=False)
    return _CONTROL.sub(lambda match: f"{match[1]}\\u{match[2].upper()}", line)


def cluster_metadata(record: PeerRecord) -> tuple[None, str]:
    """`--cluster-metadata-decoder`."""
    read = decode_metadata_record(record.value)
    if read.problem == "kind":
        return None, f"Error at {record.offset}, skipping. Unknown metadata id {read.api_key}"
    if read.problem is not None:
        return None, f"Error at {record.offset}, skipping. {read.name} of {read.size_in_bytes} bytes: {read.problem}"
    if read.fields is None or read.name == _CREDENTIAL:
        return None, f"Error at {record.offset}, skipping. {read.name} of {read.size_in_bytes} bytes is {_NOT_TAKEN_APART}"
    fields = dict(read.fields)
    for tag in MESSAGES[read.api_key][read.version].tags:
        if fields[tag.name] == tag.default:
            del fields[tag.name]
    ordered = {name: each for name, each in fields.items() if name not in _LAST}
    if "leader_recovery_state" in ordered and "leader_epoch" in ordered:
        ordered = _behind(ordered, "leader_recovery_state", "leader")
    ordered |= {name: fields[name] for name in _LAST if name in fields}
    return None, json_line({"type": read.name, "version": read.version, "data": ordered})


def _behind(fields: dict[str, Any], name: str, other: str) -> dict[str, Any]:
    """`fields` with one of them moved behind another."""
    moved = {}
    for each, value in fields.items():
        if each != name:
            moved[each] = value
        if each == other:
            moved[name] = fields[name]
    return moved


def transaction_log(record: PeerRecord) -> tuple[str, str | None]:
    """`--transaction-log-decoder`. Raises PeerGivesUpError for a record without key."""
    name, problem = parse_transaction_log_key(_key(record))
    if problem == "key_version":
        return _unknown_type(record)
    if problem is not None:
        return _error(record, problem)
    key = json_line({"type": "0", "data": {"transactional_id": name}})
    if record.value is None:
        return key, _DELETED
    metadata, problem = parse_transaction_log_value(record.value)
    if metadata is None:
        return _error(record, str(problem))
    version = int.from_bytes(record.value[:2], "big")
    fields = parsed(TRANSACTION_LOG_VALUES[version], record.value)
    if isinstance(fields, str):
        return _error(record, fields)
    told: dict[str, Any] = {"producer_id": fields.pop("producer_id")}
    told |= {"previous_producer_id": metadata.previous_producer_id} if metadata.previous_producer_id != -1 else {}
    told |= {"next_producer_id": metadata.next_producer_id} if metadata.next_producer_id != -1 else {}
    told["producer_epoch"] = fields.pop("producer_epoch")
    told |= {"next_producer_epoch": metadata.next_producer_epoch} if metadata.next_producer_epoch != -1 else {}
    told |= {field: each for field, each in fields.items() if field != "version"}
    if metadata.client_transaction_version:
        told["client_transaction_version"] = metadata.client_transaction_version
    return key, json_line({"version": str(version), "data": told})


def consumer_offsets(record: PeerRecord) -> tuple[str, str | None]:
    """`--offsets-decoder`. Raises PeerGivesUpError for a record without key, and for a value too large to take apart."""
    read = read_key(_key(record))
    if isinstance(read, str):
        return _unreadable_key(record)
    if read.record_type not in _GROUP_TYPES:
        return _unknown_type(record)
    if read.record_type in OFFSET_COMMIT_TYPES:
        data: dict[str, Any] = {"group": read.group, "topic": read.topic, "partition": read.partition}
    elif read.record_type == GROUP_METADATA_TYPE:
        data = {"group": read.group}
    else:
        data = {"group_id": read.group}
        if read.record_type in MEMBER_TYPES:
            data["regular_expression" if read.record_type == _REGULAR_EXPRESSION else "member_id"] = read.member_id
    key = json_line({"type": str(read.record_type), "data": data})
    if record.value is None:
        return key, _DELETED
    if read.record_type in GROUP_VALUES:
        return _with_value(record, key, read.record_type, _flexible(record, GROUP_VALUES[read.record_type]))
    newest = 0 if read.record_type == _LEGACY_COMMIT else len(GROUP_METADATA_VALUES) - 1
    commit_or_group = _commit if read.record_type in OFFSET_COMMIT_TYPES else _group
    version = _version(record)
    value = "version" if version is None or not 0 <= version <= newest else commit_or_group(record.value, version)
    return _with_value(record, key, read.record_type, value)


def share_group_state(record: PeerRecord) -> tuple[str, str | None]:
    """`--share-group-state-decoder`. Raises as `consumer_offsets` does."""
    read = read_share_key(_key(record))
    if isinstance(read, str):
        return _unreadable_key(record)
    if read.record_type not in SHARE_RECORDS:
        return _unknown_type(record)
    data = {"group_id": read.group, "topic_id": read.topic_id, "partition": read.partition}
    key = json_line({"type": str(read.record_type), "data": data})
    if record.value is None:
        return key, _DELETED
    return _with_value(record, key, read.record_type, _flexible(record, SHARE_STATE_VALUES[read.record_type]))


def _flexible(record: PeerRecord, layout: Flexible) -> dict[str, Any] | str:
    """The value's fields as Kafka 4.3.0 shows them, by its own layout alone."""
    value = record.value or b""
    if len(value) > MAX_VALUE_BYTES:
        raise PeerLimitError(f"the value at offset {record.offset} has {len(value)} bytes, more than {MAX_VALUE_BYTES}")
    if _version(record) != 0:
        return "version"
    read = read_value(layout, value)
    return "fields" if read is None else dict(without_defaults(layout, read[0]))


def _with_value(record: PeerRecord, key: str, record_type: int, value: dict[str, Any] | str) -> tuple[str, str | None]:
    """The key, and the value's fields behind their version; or what is wrong with it."""
    version = _version(record)
    if version is None:
        return _error(record, "Could not read version from value's buffer.")
    if value == "version":
        return _error(record, f"Found an unknown record version {version} for {record_type} type")
    if isinstance(value, str):
        return _error(record, f"Could not read record with version {version} from value's buffer due to: {value}.")
    return key, json_line({"version": str(version), "data": value})


def _version(record: PeerRecord) -> int | None:
    """The version a value begins with, None if it is too short for one."""
    value = record.value or b""
    return int.from_bytes(value[:2], "big", signed=True) if len(value) >= 2 else None


def _unreadable_key(record: PeerRecord) -> tuple[str, None]:
    key = record.key or b""
    if len(key) < 2:
        return _error(record, "Could not read version from key's buffer.")
    record_type = int.from_bytes(key[:2], "big", signed=True)
    return _error(record, f"Could not read record with version {record_type} from key's buffer due to: key.")


def _commit(value: bytes, version: int) -> dict[str, Any] | str:
    read = read_offset_commit(value)
    if isinstance(read, str):
        return read
    fields = read._asdict()
    wanted = {"leader_epoch": version >= 3, "expire_timestamp": version == 1, "topic_id": read.topic_id is not None}
    return {name: each for name, each in fields.items() if wanted.get(name, True)}


def _group(value: bytes, version: int) -> dict[str, Any] | str:
    fields = parsed(GROUP_METADATA_VALUES[version], value)
    if isinstance(fields, str):
        return fields
    del fields["version"]
    if fields["protocol_type"] == _CONSUMER:
        for member in fields["members"]:
            member["subscription"] = _protocol(member["subscription"], SUBSCRIPTIONS)
            member["assignment"] = _protocol(member["assignment"], (ASSIGNMENT,) * (NEWEST + 1))
    return fields


def _protocol(data: bytes, layouts: tuple[Any, ...]) -> Any:
    """The fields of bytes that begin with their version; the bytes themselves where they are not laid out so."""
    version = int.from_bytes(data[:2], "big", signed=True)
    if not 0 <= version < len(layouts):
        return data
    fields = parsed(layouts[version], data)
    if isinstance(fields, str):
        return data
    return {name: each for name, each in fields.items() if name != "version"}


def _key(record: PeerRecord) -> bytes:
    if record.key is None:
        raise PeerGivesUpError(
            f"Failed to decode message at offset {record.offset} using the specified decoder (message had a missing key)"
        )
    return record.key


def _unknown_type(record: PeerRecord) -> tuple[str, None]:
    kind = int.from_bytes((record.key or b"")[:2], "big", signed=True)
    return f"Unknown record type {kind} at offset {record.offset}, skipping.", None


def _error(record: PeerRecord, reason: str) -> tuple[str, None]:
    return f"Error at offset {record.offset}, skipping. {reason}", None
