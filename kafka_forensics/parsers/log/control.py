"""Control records: what ends a transaction, and what KRaft's leaders and snapshots write beside their records."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kafka_forensics.model.constants import CONTROL_COMMIT, control_record_name

_MIN_KEY_SIZE: Final = 4
_MARKER_VALUE_SIZE: Final = 6


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """A control record read; `problem` names what could not be: "key" or "value", None if all was.

    `type` is Kafka's number, -1 without a readable key; `name` its name, UNKNOWN for those that readers ignore. `version` and
    `coordinator_epoch` are None where there are none; `fields` holds the rest of the value under Kafka's names in snake case.
    """

    type: int
    name: str
    version: int | None = None
    coordinator_epoch: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None


def parse_control_record(key: bytes | None, value: bytes | None) -> ControlRecord:
    """The control record of `key` and `value` (ControlRecordType, EndTransactionMarker, ControlRecordUtils)."""
    if key is None or len(key) < _MIN_KEY_SIZE or key[0] & 0x80:
        return ControlRecord(-1, control_record_name(-1), problem="key")
    control_type = int.from_bytes(key[2:4], "big", signed=True)
    name = control_record_name(control_type)
    if name == "UNKNOWN":
        return ControlRecord(control_type, name)
    if value is None:
        return ControlRecord(control_type, name, problem="value")
    if 0 <= control_type <= CONTROL_COMMIT:
        if len(value) < _MARKER_VALUE_SIZE or value[0] & 0x80:
            return ControlRecord(control_type, name, problem="value")
        version = int.from_bytes(value[:2], "big")
        return ControlRecord(control_type, name, version, int.from_bytes(value[2:6], "big", signed=True))
    return _parse_kraft(control_type, name, value)


def _parse_kraft(control_type: int, name: str, value: bytes) -> ControlRecord:
    """A KRaft control record, whose value is read through its declaration: such records are few."""
    from kafka_forensics.parsers.spec.control import read_control_value

    fields = read_control_value(control_type, value)
    if fields is None:
        return ControlRecord(control_type, name, problem="value")
    return ControlRecord(control_type, name, fields.pop("version"), None, fields)
