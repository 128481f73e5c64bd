"""Magic 0 and 1: single messages, compressed wrapper messages, tolerated quirks and faults."""

import zlib
from typing import Any

import construct
import pytest
from hypothesis import example, given, strategies as st

from kafka_forensics.model.batches import RecordColumn
from kafka_forensics.parsers.kernels.records import MALFORMED, OK, readable, scan_messages
from kafka_forensics.parsers.log.legacy import LEGACY_HELD_BYTES, MAX_BAD_MESSAGES, open_wrapper
from kafka_forensics.parsers.log.records import decode_batch
from kafka_forensics.parsers.spec.record_batch import LEGACY_ENTRY_HEADER, LEGACY_MESSAGES
from kafka_forensics.writers.batches import fix_legacy_crc, write_legacy_entry
from tests.parsers.exact_readers import matrix
from tests.support.kernels import FORMS, call_both_forms, kernels
from tests.support.segments import legacy_entry, write_legacy_wrapper

CODECS = ("gzip", "snappy", "lz4")


def inner(count: int, magic: int, *, start: int = 0, **given: Any) -> list[bytes]:
    return [
        write_legacy_entry(b"k%d" % index, b"v%d" % index, offset=start + index, magic=magic, timestamp=100 + index, **given)
        for index in range(count)
    ]


def wrapper(entries: list[bytes], magic: int = 1, *, offset: int = 42, compression_type: str = "gzip", **given: Any) -> bytes:
    return write_legacy_wrapper(entries, offset=offset, magic=magic, compression_type=compression_type, **given)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("data", [None, b"", b"x"])
def test_plain_messages_are_read(magic: int, data: bytes | None) -> None:
    entry = write_legacy_entry(
        data, data, offset=9, magic=magic, timestamp=7, timestamp_type=("CreateTime", "LogAppendTime")[magic]
    )
    decoded = decode_batch(entry)
    (record,) = decoded.iter_records()
    assert (decoded.problems, decoded.records_count, decoded.header) == ([], 1, None)
    assert (record.offset, record.key, record.value, record.headers, record.sequence) == (9, data, data, (), -1)
    assert (record.timestamp, record.timestamp_type) == ((-1, "NoTimestampType"), (7, "LogAppendTime"))[magic]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("magic", "start"), [(0, 38), (1, 0)])
def test_inner_offsets_are_absolute_in_magic_0_and_relative_in_magic_1(magic: int, start: int, codec: str) -> None:
    opened = open_wrapper(wrapper(inner(5, magic, start=start), magic, compression_type=codec, timestamp=104))
    assert (opened.base_offset, opened.last_offset, opened.records_count, opened.problems) == (38, 42, 5, [])
    for index, record in enumerate(opened.iter_records()):
        assert (record.offset, record.key, record.value) == (38 + index, b"k%d" % index, b"v%d" % index)
        stamp = (100 + index, "CreateTime") if magic else (-1, "NoTimestampType")
        assert (record.timestamp, record.timestamp_type) == stamp


def test_gaps_of_compaction_are_kept() -> None:
    entries = [entry for index, entry in enumerate(inner(8, 1)) if index in (0, 3, 7)]
    assert [record.offset for record in open_wrapper(wrapper(entries)).iter_records()] == [35, 38, 42]


def test_log_append_time_of_the_wrapper_applies_to_all_messages() -> None:
    opened = open_wrapper(wrapper(inner(2, 1), timestamp=5000, timestamp_type="LogAppendTime"))
    assert {(record.timestamp, record.timestamp_type) for record in opened.iter_records()} == {(5000, "LogAppendTime")}


def test_wrapper_offset_0_of_old_librdkafka_is_tolerated_and_other_wrong_offsets_are_damage() -> None:
    opened = open_wrapper(wrapper(inner(3, 1), offset=0))
    assert (opened.base_offset, opened.last_offset, opened.problems) == (0, 2, [])
    (damage,) = open_wrapper(wrapper(inner(3, 1), offset=1), 70).problems
    assert (damage.kind, damage.position, damage.detail) == ("RECORD_MALFORMED", 70, {"reason": "inner_offset", "inner_offset": 2})


def test_an_inner_magic_that_differs_from_the_wrapper_is_tolerated() -> None:
    opened = open_wrapper(wrapper([*inner(1, 0), *inner(2, 1)[1:]]))
    assert opened.problems == []
    found = [(record.offset, record.timestamp, record.timestamp_type) for record in opened.iter_records()]
    assert found == [(41, -1, "NoTimestampType"), (42, 101, "CreateTime")]


@pytest.mark.parametrize("cut", [1, 5, 11, 12, 20, 30])
def test_a_cut_last_message_is_dropped_without_damage(cut: int) -> None:
    entries = inner(3, 1)
    opened = open_wrapper(wrapper([*entries[:2], entries[2][:cut]]))
    assert (opened.problems, opened.records_count, opened.base_offset, opened.last_offset) == ([], 2, 41, 42)


@pytest.mark.parametrize("depth", [2, 1000])
def test_nested_wrappers_are_damage_and_are_not_decompressed(depth: int) -> None:
    nested = inner(1, 1)[0]
    for _ in range(depth):
        nested = wrapper([nested], offset=0)
    opened = open_wrapper(nested)
    assert [(damage.kind, damage.detail["record_index"]) for damage in opened.problems] == [("LEGACY_NESTED_COMPRESSION", 0)]
    (record,) = opened.iter_records()
    assert record.value is not None
    assert record.value[:2] == b"\x1f\x8b"


def test_messages_around_a_malformed_message_are_read() -> None:
    entries = inner(4, 1)
    corrupt = entries[1][:-1] + b"?"
    opened = open_wrapper(wrapper([entries[0], corrupt, *entries[2:]]))
    assert [(damage.kind, damage.detail["reason"], damage.detail["record_index"]) for damage in opened.problems] == [
        ("RECORD_MALFORMED", "inner_crc", 1)
    ]
    assert [record.value for record in opened.iter_records()] == [b"v0", b"v?", b"v2", b"v3"]
    wrong_length = fix_legacy_crc(entries[1][:26] + (99).to_bytes(4, "big") + entries[1][30:])
    opened = open_wrapper(wrapper([entries[0], wrong_length, *entries[2:]]))
    assert [(damage.kind, damage.detail["record_index"]) for damage in opened.problems] == [("RECORD_LENGTH_OUT_OF_BOUNDS", 1)]
    assert [(record.offset, record.value) for record in opened.iter_records()] == [(39, b"v0"), (41, b"v2"), (42, b"v3")]


def test_reading_stops_after_many_malformed_messages() -> None:
    assert open_wrapper(wrapper([inner(1, 1)[0][:-1] + b"?"] * (2 * MAX_BAD_MESSAGES))).records_count == MAX_BAD_MESSAGES


@pytest.mark.parametrize(
    ("entry", "kind", "reason"),
    [
        (wrapper([]), "RECORD_MALFORMED", "empty"),
        (write_legacy_entry(None, None, offset=4, magic=1, compression_type="gzip"), "RECORD_MALFORMED", "null_value"),
        (write_legacy_entry(None, b"no gzip", offset=4, magic=1, compression_type="gzip"), "CODEC_MALFORMED", "corrupt"),
        (wrapper(inner(1, 1), compression_type="zstd"), "CODEC_MALFORMED", "codec_before_magic_2"),
        (wrapper([b"\0" * 40]), "RECORD_LENGTH_OUT_OF_BOUNDS", "inner_message"),
        (legacy_entry(0)[:20], "RECORD_MALFORMED", "header"),
        (bytes(40), "RECORD_MALFORMED", "header"),
    ],
)
def test_a_malformed_wrapper_has_a_reason(entry: bytes, kind: str, reason: str) -> None:
    assert [(damage.kind, damage.detail["reason"]) for damage in open_wrapper(entry).problems] == [(kind, reason)]


def test_wrong_lengths_of_a_plain_message_are_damage() -> None:
    entry = legacy_entry(3)
    for place, kind in ((26, "RECORD_LENGTH_OUT_OF_BOUNDS"), (33, "RECORD_LENGTH_OUT_OF_BOUNDS")):
        wrong = fix_legacy_crc(entry[:place] + (2**31 - 1).to_bytes(4, "big") + entry[place + 4 :])
        assert [damage.kind for damage in open_wrapper(wrong).problems] == [kind]
    short = fix_legacy_crc(entry[:33] + (1).to_bytes(4, "big") + entry[37:])
    assert [damage.kind for damage in open_wrapper(short).problems] == ["RECORD_MALFORMED"]


def test_offsets_are_unknown_without_the_last_message() -> None:
    whole = wrapper(inner(2000, 1), compression_type="snappy", offset=5000)
    cut = whole[: len(whole) // 2]
    entry = fix_legacy_crc(
        cut[:8] + (len(cut) - 12).to_bytes(4, "big") + cut[12:30] + (len(cut) - 34).to_bytes(4, "big") + cut[34:]
    )
    opened = open_wrapper(entry)
    assert [damage.kind for damage in opened.problems] == ["CODEC_SIZE_LIE"]
    assert 0 < opened.records_count < 2000
    assert (opened.base_offset, opened.last_offset) == (5000, 5000)
    assert {record.offset for record in opened.iter_records()} == {-1}


def test_a_bomb_ends_at_the_limit_of_a_wrapper() -> None:
    big = write_legacy_entry(None, bytes(LEGACY_HELD_BYTES), offset=0, magic=1)
    opened = open_wrapper(wrapper([big], offset=0, compression_type="lz4"))
    assert [(damage.kind, damage.detail["limit"]) for damage in opened.problems] == [("DECOMP_LIMIT_EXCEEDED", LEGACY_HELD_BYTES)]


def spec_message(entry: bytes) -> tuple[Any, ...] | None:
    """(attributes, timestamp, offset, key, value) of an entry, read with the spec; None if the message does not fill it."""
    try:
        header = LEGACY_ENTRY_HEADER.parse(entry)
        message = construct.FocusedSeq("message", "message" / LEGACY_MESSAGES[entry[16]], construct.Terminated).parse(entry[12:])
    except construct.ConstructError:
        return None
    return message.attributes & 0xFF, message.get("timestamp", -1), header.offset, message.key, message.value


def spec_messages(payload: bytes) -> tuple[list[tuple[Any, ...]], bool, int]:
    """(messages as `spec_message` reads them, whether all are valid, end position) of the message set of a wrapper."""
    messages: list[tuple[Any, ...]] = []
    position = 0
    while len(payload) - position >= 12:
        length = int.from_bytes(payload[position + 8 : position + 12], "big", signed=True)
        if length >= 14 and position + 12 + length > len(payload):
            break
        entry = payload[position : position + 12 + length]
        if length < 14 or entry[16] >= len(LEGACY_MESSAGES) or (message := spec_message(entry)) is None:
            return messages, False, position
        if message[0] & 7 or zlib.crc32(entry[16:]) != int.from_bytes(entry[12:16], "big"):
            return messages, False, position
        messages.append(message)
        position += len(entry)
    return messages, True, position


SMALL = st.none() | st.binary(max_size=5)


@st.composite
def message_sets(draw: st.DrawFn) -> bytes:
    """Messages of both formats, some with a changed byte and the right CRC; then some bytes may be replaced."""
    entries = []
    for _ in range(draw(st.integers(0, 3))):
        key, value = draw(SMALL), draw(SMALL)
        offset, magic = draw(st.integers(-(2**63), 2**63 - 1)), draw(st.integers(0, 1))
        entry = write_legacy_entry(key, value, offset=offset, magic=magic, timestamp=5)
        if draw(st.booleans()):
            place = draw(st.integers(16, len(entry) - 1))
            entry = fix_legacy_crc(entry[:place] + draw(st.sampled_from([0, 1, 2, 3, 127, 255])).to_bytes() + entry[place + 1 :])
        entries.append(entry)
    data = b"".join(entries)
    if draw(st.booleans()):
        place = draw(st.integers(0, len(data)))
        data = data[:place] + draw(st.binary(max_size=30)) + data[place + draw(st.integers(0, 2)) :]
    return data


@given(message_sets())
@example(b"".join([*inner(1, 1), fix_legacy_crc(inner(1, 0)[0][:16] + b"\x02" + inner(1, 0)[0][17:]), *inner(1, 1)]))
@example(fix_legacy_crc(bytes(8) + (14).to_bytes(4, "big") + bytes(4) + b"\x01" + bytes(9)) + inner(1, 1)[0])
def test_forms_and_spec_agree_on_any_message_set(entries: bytes) -> None:
    messages, good, stopped = spec_messages(entries)
    for form in FORMS:
        out = matrix(10)
        buffer = readable(entries, compiled=form == "compiled")
        count, code, position = map(int, getattr(scan_messages, form)(buffer, 0, len(entries), out, 1))
        assert (count, code == OK, position) == (len(messages), good, stopped)
        assert [message_of(entries, row) for row in out[:, :count].T.tolist()] == messages


def message_of(entries: bytes, row: list[int]) -> tuple[Any, ...]:
    """The message of a kernel's row, in the form of `spec_message`."""
    fields = dict(zip(RecordColumn, row, strict=True))
    key, value = (
        None if fields[length] < 0 else entries[fields[place] : fields[place] + fields[length]]
        for place, length in (
            (RecordColumn.KEY_POSITION, RecordColumn.KEY_LENGTH),
            (RecordColumn.VALUE_POSITION, RecordColumn.VALUE_LENGTH),
        )
    )
    return fields[RecordColumn.ATTRIBUTES], fields[RecordColumn.TIMESTAMP_DELTA], fields[RecordColumn.OFFSET_DELTA], key, value


@pytest.mark.parametrize("magic", [2, 3, 127, 128, 255])
def test_a_message_of_a_later_magic_in_a_wrapper_is_malformed(magic: int) -> None:
    """Its lengths and its CRC are right."""
    stamps = bytes(8 * magic)
    message = bytes(16) + bytes([magic, 0]) + stamps + b"\xff\xff\xff\xff" + (1).to_bytes(4, "big") + b"v"
    later = fix_legacy_crc(message[:8] + (len(message) - 12).to_bytes(4, "big") + message[12:])
    entries = inner(1, 1)[0] + later
    assert call_both_forms(scan_messages, entries, 0, len(entries), matrix(4), 1) == (1, MALFORMED, len(inner(1, 1)[0]))
    opened = open_wrapper(wrapper([*inner(1, 1), later]))
    assert [(damage.kind, damage.detail["record_index"]) for damage in opened.problems] == [("RECORD_MALFORMED", 1)]
    assert [record.value for record in opened.iter_records()] == [b"v0"]


@given(entry=st.binary(max_size=120), codec=st.integers(0, 7), magic=st.integers(0, 2), compiled=st.booleans())
def test_any_bytes_are_read_with_at_most_one_problem(entry: bytes, codec: int, magic: int, compiled: bool) -> None:
    patched = bytearray(entry)
    for place, byte in ((16, magic), (17, codec), (8, 0), (9, 0), (10, 0)):
        if place < len(patched):
            patched[place] = byte
    with kernels(compiled=compiled):
        opened = open_wrapper(bytes(patched))
        assert len(list(opened.iter_records())) == opened.records_count
    assert len(opened.problems) <= 1
