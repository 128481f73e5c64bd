"""Entries of magic 0 and 1 message sets (LegacyRecord, AbstractLegacyRecordBatch). Exact and slow; see `kernels.records`."""

from typing import Final

from construct import Bytes, If, Int8sb, Int32sb, Int32ub, Int64sb, Struct

from kafka_forensics.model.constants import LEGACY_V0_OVERHEAD, LEGACY_V1_OVERHEAD, LOG_OVERHEAD

LEGACY_ENTRY_HEADER: Final = Struct("offset" / Int64sb, "size" / Int32sb)
"""Before every message; `size` counts the message alone."""
assert LEGACY_ENTRY_HEADER.sizeof() == LOG_OVERHEAD

_KEY = ("key_length" / Int32sb, "key" / If(lambda this: this.key_length >= 0, Bytes(lambda this: this.key_length)))
_VALUE = ("value_length" / Int32sb, "value" / If(lambda this: this.value_length >= 0, Bytes(lambda this: this.value_length)))
_HEAD = ("crc" / Int32ub, "magic" / Int8sb, "attributes" / Int8sb)

LEGACY_MESSAGE_V0: Final = Struct(*_HEAD, *_KEY, *_VALUE)
"""`crc` is CRC-32 (IEEE) of everything behind it; a negative length is null."""
LEGACY_MESSAGE_V1: Final = Struct(*_HEAD, "timestamp" / Int64sb, *_KEY, *_VALUE)
LEGACY_MESSAGES: Final = (LEGACY_MESSAGE_V0, LEGACY_MESSAGE_V1)
"""By magic. A compressed message has no key, and its value is a stream of entries of the same kind."""

_EMPTY = {"crc": 0, "magic": 0, "attributes": 0, "timestamp": 0, "key_length": -1, "key": None, "value_length": -1, "value": None}
assert len(LEGACY_MESSAGE_V0.build(_EMPTY)) == LEGACY_V0_OVERHEAD
assert len(LEGACY_MESSAGE_V1.build(_EMPTY)) == LEGACY_V1_OVERHEAD
