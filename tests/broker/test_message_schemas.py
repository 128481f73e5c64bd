"""Our layouts of Kafka's records, compared with the schemas in the jars of every version of the laboratory: each message is
written by its schema, with different values in all fields, and read by our layout."""

import json
import re
import struct
import zipfile
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from kafka_forensics.parsers.internal_topics import (
    decode_metadata_record,
    decode_remote_log_record,
    read_group_value,
    read_share_value,
)
from kafka_forensics.parsers.log.control_values import read_control_value
from lab.kafka_jars import kafka_jars
from lab.versions import VERSIONS
from tests.support.layouts.flexible import UNSIGNED_VARINT

pytestmark = [pytest.mark.broker, pytest.mark.nightly]

Json = dict[str, Any]
NUMBERS: Final = {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "int64": ">q", "float64": ">d"}
CONTROL: Final = {"LeaderChangeMessage": 2, "SnapshotHeaderRecord": 3, "SnapshotFooterRecord": 4, "KRaftVersionRecord": 5,
                  "VotersRecord": 6}  # fmt: skip
DECODED_TYPES: Final = range(3, 24)
"""Types of group records; older types (commits and groups) have other readers, which other tests compare with Kafka's tool."""
NOT_YET_WRITTEN: Final = {
    "3.3.2": re.compile("DelegationTokenRecord|UserScramCredentialRecord|RemoteLog.*"),
}
"""Schemas of a version that none of its nodes writes: tokens and remote segments are written since 3.6, SCRAM credentials since
3.5."""
NEVER_RELEASED: Final = frozenset({6, 13})
"""Kinds of metadata records that no release wrote."""


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name.replace("KRaft", "Kraft")).lower()


def covers(versions: str, version: int) -> bool:
    if versions == "none":
        return False
    first, _, last = versions.partition("-")
    return int(first.rstrip("+")) <= version and (versions.endswith("+") or version <= int(last or first))


class WrittenMessage:
    """A message written by its schema, and the fields that must be read from it."""

    def __init__(self, schema: Json, version: int, *, nulls: bool) -> None:
        self.schema, self.version, self.nulls = schema, version, nulls
        self.flexible = covers(schema["flexibleVersions"], version)
        self.structs = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", [])}
        self._count = 0
        self.data, self.fields = self._structure(schema["fields"])

    def _structure(self, fields: list[Json]) -> tuple[bytes, Json]:
        data, expected, tagged = b"", {}, dict[int, bytes]()
        for field in fields:
            tag = None if field.get("tag") is None else int(field["tag"])
            if not covers(str(field.get("versions", field.get("taggedVersions", "0+"))), self.version):
                continue
            if tag is not None and covers(field["taggedVersions"], self.version):
                if not self.nulls:
                    tagged[tag], expected[snake(field["name"])] = self._value(field, field["type"])
            else:
                written, expected[snake(field["name"])] = self._value(field, field["type"])
                data += written
        if self.flexible:
            data += varint(len(tagged)) + b"".join(varint(tag) + varint(len(raw)) + raw for tag, raw in sorted(tagged.items()))
        return data, expected

    def _length(self, length: int, form: str) -> bytes:
        return varint(length + 1) if self.flexible else struct.pack(form, length)

    def _value(self, field: Json, kind: str) -> tuple[bytes, Any]:
        self._count += 1
        by_name = {"Version": self.version, "RemoteLogSegmentState": 1, "RemotePartitionDeleteState": 1}
        number = by_name.get(field.get("name", ""), self._count)
        is_nullable = self.nulls and covers(field.get("nullableVersions", "none"), self.version)
        if kind in NUMBERS:
            return struct.pack(NUMBERS[kind], number), float(number) if kind == "float64" else number
        if kind == "bool":
            return bytes([number % 2]), bool(number % 2)
        if kind == "uuid":
            raw = number.to_bytes(16, "big")
            return raw, urlsafe_b64encode(raw)[:22].decode()
        if kind == "string":
            text = f"text {number}"
            return (self._length(-1, ">h"), None) if is_nullable else (self._length(len(text), ">h") + text.encode(), text)
        if kind in ("bytes", "records"):
            raw = f"bytes {number}".encode()
            return (self._length(-1, ">i"), None) if is_nullable else (self._length(len(raw), ">i") + raw, b64encode(raw).decode())
        if kind.startswith("[]"):
            if is_nullable:
                return self._length(-1, ">i"), None
            pairs = [self._element(field, kind[2:]) for _ in range(2)]
            return self._length(2, ">i") + b"".join(raw for raw, _ in pairs), [value for _, value in pairs]
        data, expected = self._structure(field.get("fields") or self.structs[kind])
        if covers(field.get("nullableVersions", "none"), self.version):
            return (b"\xff", None) if is_nullable else ((b"\1" + data), expected)
        return data, expected

    def _element(self, field: Json, kind: str) -> tuple[bytes, Any]:
        if kind in NUMBERS or kind in ("bool", "uuid", "string", "bytes"):
            return self._value({}, kind)
        return self._structure(field.get("fields") or self.structs[kind])


def varint(number: int) -> bytes:
    return bytes(UNSIGNED_VARINT.build(number))


def schemas(jars: Path) -> Iterator[Json]:
    """Every message schema in the jars, once."""
    seen = set()
    for jar in sorted(jars.glob("kafka*.jar")):
        with zipfile.ZipFile(jar) as opened:
            for name in opened.namelist():
                if re.fullmatch(r"(?:common/)?(?:message|metadata)/\w+(?<!Request)(?<!Response)\.json", name) and name not in seen:
                    seen.add(name)
                    text = "\n".join(line for line in opened.read(name).decode().splitlines() if not line.strip().startswith("//"))
                    yield json.loads(re.sub(r"//[^\"\n]*$", "", text, flags=re.MULTILINE))


def versions_of(schema: Json) -> range:
    first, _, last = schema["validVersions"].partition("-")
    return range(0) if first == "none" else range(int(first), int(last or first) + 1)


def framed(written: WrittenMessage) -> bytes:
    return varint(1) + varint(written.schema["apiKey"]) + varint(written.version) + written.data


def of_metadata(written: WrittenMessage) -> Any:
    return decode_metadata_record(framed(written)).fields


def of_remote_log(written: WrittenMessage) -> Any:
    return decode_remote_log_record(framed(written)).fields


def of_group(written: WrittenMessage) -> Any:
    return read_group_value(written.schema["apiKey"], struct.pack(">h", written.version) + written.data)


def of_share_state(written: WrittenMessage) -> Any:
    return read_share_value(written.schema["apiKey"], struct.pack(">h", written.version) + written.data)


def of_control(written: WrittenMessage) -> Any:
    return ids_as_text(read_control_value(CONTROL[written.schema["name"]], written.data))


def ids_as_text(value: Any) -> Any:
    """A control record's fields with ids as text."""
    if isinstance(value, dict):
        return {name: ids_as_text(item) for name, item in value.items()}
    if isinstance(value, list):
        return [ids_as_text(item) for item in value]
    return urlsafe_b64encode(value)[:22].decode() if isinstance(value, bytes) else value


def reader_of(schema: Json) -> Callable[[WrittenMessage], Any] | None:
    name, kind, key = schema["name"], schema["type"], schema.get("apiKey")
    if kind == "metadata" and name.startswith("Remote"):
        return of_remote_log
    if kind == "metadata":
        return None if key in NEVER_RELEASED else of_metadata
    if name in ("ShareSnapshotValue", "ShareUpdateValue"):
        return of_share_state
    if kind == "coordinator-value" and key in DECODED_TYPES:
        return of_group
    return of_control if name in CONTROL else None


@pytest.mark.parametrize("version", [name for name, version in VERSIONS.items() if not version.zookeeper])
def test_every_message_of_a_version_is_read_by_its_schema(version: str) -> None:
    wrong, read = [], 0
    not_written = NOT_YET_WRITTEN.get(version)
    for schema in schemas(kafka_jars(version, VERSIONS[version].pom)):
        reader = None if not_written is not None and not_written.fullmatch(schema["name"]) else reader_of(schema)
        for number in versions_of(schema) if reader is not None else ():
            for nulls in (False, True):
                written = WrittenMessage(schema, number, nulls=nulls)
                assert reader is not None
                found = reader(written)
                read += 1
                if isinstance(found, dict):  # tagged fields that are left out, or of later versions, have their defaults
                    found = {name: value for name, value in found.items() if name in written.fields}
                if found != written.fields:
                    wrong.append((schema["name"], number, written.fields, found))
    assert wrong == []
    assert read > 40
