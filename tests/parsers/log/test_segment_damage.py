"""Damage that a reader reports, and where it continues: the faults of the catalogue that need one file only."""

import struct

import pytest

from kafka_forensics.model.batches import BatchColumn, Damage
from kafka_forensics.parsers.log import damage, segment
from tests.support.segments import (
    batch,
    batch_positions,
    flip_bit,
    legacy_entry,
    log,
    read,
    replace_bytes,
    small_windows,
    with_length,
)

BASE_OFFSET, LENGTH, EPOCH, MAGIC = range(8), range(8, 12), range(12, 16), 16
"""Bytes of the header that no CRC covers."""


@pytest.mark.parametrize("which", [0, 2, 4])
def test_every_flipped_bit_has_the_damage_of_its_field(which: int) -> None:
    """Every bit of the header and one bit of every later byte, in the first, a middle or the last batch; others are read."""
    batches = log(5)
    at, others = batch_positions(batches), [offset for index, offset in enumerate(range(0, 10, 2)) if index != which]
    data = b"".join(batches)
    for inside in range(len(batches[which])):
        for bit in range(8 if inside < 61 else 1):
            reading = read(flip_bit(data, at[which] + inside, bit))
            kinds = reading.kinds
            if inside in BASE_OFFSET or inside in EPOCH:
                assert (kinds, len(reading.good)) == ([], 5)
            elif inside == MAGIC:
                assert kinds == ["BATCH_MAGIC_REGRESSION" if bit == 1 else "BATCH_MAGIC_UNKNOWN"]
                assert reading.good == [0, 2, 4, 6, 8]
            elif inside in LENGTH:
                assert kinds[0] in ("FRAMING_LOST", "SEG_TORN_TAIL"), (inside, bit)
                assert reading.good == others
            else:
                assert kinds == ["BATCH_CRC_MISMATCH"], (inside, bit)
                assert reading.base_offsets == [0, 2, 4, 6, 8]
                assert reading.good == others


def test_a_crc_mismatch_has_its_range_and_both_crcs() -> None:
    batches = log(3)
    (found,) = read(flip_bit(b"".join(batches), len(batches[0]) + 65)).damage
    assert (found.kind, found.position, found.size_in_bytes) == ("BATCH_CRC_MISMATCH", len(batches[0]), len(batches[1]))
    assert (found.base_offset, found.last_offset) == (2, 3)
    assert found.detail["stored_crc"] == struct.unpack_from(">I", batches[1], 17)[0]
    assert found.detail["computed_crc"] != found.detail["stored_crc"]


@pytest.mark.parametrize("magic", [2, 1, 0])
def test_a_cut_at_any_byte_is_a_torn_tail_after_the_last_whole_batch(magic: int) -> None:
    batches = log(3) if magic == 2 else [legacy_entry(2 * n, magic) for n in range(3)]
    data, at = b"".join(batches), batch_positions(batches)
    for cut in range(len(data) + 1):
        reading = read(data[:cut])
        whole = [2 * n for n in range(3) if at[n + 1] <= cut]
        assert reading.good == whole
        if cut in at:
            assert reading.damage == []
            continue
        (found,) = reading.damage
        assert (found.kind, found.position, found.size_in_bytes) == ("SEG_TORN_TAIL", at[len(whole)], cut - at[len(whole)])


@pytest.mark.parametrize("zeros", [12, 16, 17, 60, 61, 5000, 3 << 20])
def test_a_zero_tail_is_skipped_and_not_damaged(zeros: int) -> None:
    for data in (b"".join(log(3)), b""):
        reading = read(data + bytes(zeros))
        (found,) = reading.damage
        assert (found.kind, found.position, found.size_in_bytes) == ("SEG_ZERO_TAIL", len(data), zeros)
        assert (reading.decoded, reading.damaged, reading.skipped) == (len(data), 0, zeros)


@pytest.mark.parametrize(("size", "good", "base_offsets"), [(3000, [0, 3], [0, 3]), (9000, [0, 2, 3], [0, 1, 2, 3])])
def test_a_zero_page_inside_is_a_hole(size: int, good: list[int], base_offsets: list[int]) -> None:
    """The zeros are in several batches, or in one batch, which keeps its row."""
    batches = log(4, records=1, value=b"x" * size)
    position = batch_positions(batches)[1] + 2000
    reading = read(replace_bytes(b"".join(batches), position, bytes(4096)))
    (hole,) = [found for found in reading.damage if found.kind == "SEG_HOLE"]
    assert hole.detail["zero_bytes"] == 4096
    assert hole.position <= position < position + 4096 <= hole.position + hole.size_in_bytes
    assert (reading.good, reading.base_offsets) == (good, base_offsets)


@pytest.mark.parametrize("length", [2**31 - 1, 13, 0, -1, -(2**31), 48, 60, 90, 200, 1000])
@pytest.mark.parametrize("which", [0, 2])
def test_a_wrong_length_loses_one_batch(which: int, length: int) -> None:
    """F04, F05, F06: framing is lost and found again at the next batch."""
    batches = log(5)
    at = batch_positions(batches)
    reading = read(with_length(b"".join(batches), at[which], length))
    (found,) = reading.damage
    assert (found.kind, found.position, found.size_in_bytes) == ("FRAMING_LOST", at[which], len(batches[which]))
    assert found.detail["declared_length"] == length
    assert found.detail["found_at"] == at[which + 1]
    assert found.detail["runs_past_end"] is (length + 12 > at[-1] - at[which])
    assert reading.good == [offset for index, offset in enumerate(range(0, 10, 2)) if index != which]


@pytest.mark.parametrize("length", [2**31 - 1, 1000, 20, -1])
def test_a_wrong_length_of_the_last_batch_is_proved_by_its_crc(length: int) -> None:
    batches = log(3)
    at = batch_positions(batches)
    (found,) = read(with_length(b"".join(batches), at[2], length)).damage
    assert (found.kind, found.position, found.size_in_bytes) == ("FRAMING_LOST", at[2], len(batches[2]))
    assert (found.base_offset, found.last_offset, found.detail["reason"]) == (4, 5, "wrong_length")


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("magic", [0, 1, 3, 127, 255])
def test_a_batch_with_a_wrong_magic_byte_keeps_its_row(which: int, magic: int) -> None:
    """F07, F08: the CRC does not cover the magic byte; it proves the right one."""
    batches = log(3)
    at = batch_positions(batches)
    reading = read(replace_bytes(b"".join(batches), at[which] + 16, bytes([magic])))
    (found,) = reading.damage
    kind = "BATCH_MAGIC_REGRESSION" if magic < 2 else "BATCH_MAGIC_UNKNOWN"
    assert (found.kind, found.position, found.size_in_bytes) == (kind, at[which], len(batches[which]))
    assert (found.base_offset, found.last_offset) == (2 * which, 2 * which + 1)
    assert found.detail == {"magic": magic, "crc_is_right_as_magic": 2}
    assert reading.good == [0, 2, 4]
    assert reading.column(BatchColumn.MAGIC)[which] == magic
    assert reading.damaged == 0


@pytest.mark.parametrize("damaged", [(0, 1), (1, 2), (2, 3), (0, 1, 2), (1, 2, 3), (0, 1, 2, 3), (0, 2), (1, 3)])
@pytest.mark.parametrize("magic", [2, 1, 0])
def test_consecutive_damaged_batches_are_reported_separately(damaged: tuple[int, ...], magic: int) -> None:
    batches = log(4) if magic == 2 else [legacy_entry(2 * n, magic) for n in range(4)]
    at, data = batch_positions(batches), b"".join(batches)
    for which in damaged:
        data = flip_bit(data, at[which + 1] - 3)
    reading = read(data)
    assert [(found.kind, found.position) for found in reading.damage] == [("BATCH_CRC_MISMATCH", at[which]) for which in damaged]
    assert reading.base_offsets == [0, 2, 4, 6]
    assert reading.good == [2 * which for which in range(4) if which not in damaged]


LOG = b"".join(log(4))
BATCH = len(LOG) // 4
ENTRY, JUNK = legacy_entry(50, 1), b"\xf0" * 30
CRC, FRAMING, TORN = "BATCH_CRC_MISMATCH", "FRAMING_LOST", "SEG_TORN_TAIL"
DAMAGED_LOGS = {
    "a damaged batch before a zero tail": (flip_bit(LOG, 3 * BATCH + 70) + bytes(8192), [CRC, "SEG_ZERO_TAIL"], [0, 2, 4]),
    "damaged batches before a torn one": (flip_bit(flip_bit(LOG, BATCH + 70), 2 * BATCH + 70)[:-5], [CRC, CRC, TORN], [0]),
    "a damaged batch before a cut batch": (
        flip_bit(LOG, 3 * BATCH + 70) + batch(8, value=b"x" * 300)[:200],
        [CRC, TORN],
        [0, 2, 4],
    ),
    "a damaged batch before a cut batch with other offsets": (
        flip_bit(LOG, 3 * BATCH + 70) + batch(999, value=b"x" * 300)[:200],
        [FRAMING],
        [0, 2, 4],
    ),
    "a damaged batch before a wrong magic byte": (
        replace_bytes(flip_bit(LOG, BATCH + 70), 2 * BATCH + 16, b"\1"),
        [CRC, "BATCH_MAGIC_REGRESSION"],
        [0, 4, 6],
    ),
    "a damaged batch before a wrong magic byte in the last batch": (
        replace_bytes(flip_bit(LOG, 2 * BATCH + 70), 3 * BATCH + 16, b"\3"),
        [CRC, "BATCH_MAGIC_UNKNOWN"],
        [0, 2, 6],
    ),
    "junk at the end": (batch(0) + b"\x7f" * 100, [FRAMING], [0]),
    "a batch with a wrong magic byte has valid offsets: batches below them are not accepted": (
        replace_bytes(batch(0, 10), 16, b"\3") + with_length(batch(10, value=b"".join(log(2, start=5))), 0, 7) + batch(11),
        ["BATCH_MAGIC_UNKNOWN", FRAMING],
        [0, 11],
    ),
    "a batch inside a damaged batch of known size is not read": (
        batch(0, 2) + flip_bit(batch(2, value=b"?" * 10 + batch(2)), 62) + batch(3),
        [CRC],
        [0, 3],
    ),
    "a legacy entry after magic 2 is not accepted": (batch(0) + JUNK + ENTRY + batch(51), [FRAMING], [0, 51]),
    "a legacy entry after legacy entries": (legacy_entry(0, 1) + JUNK + ENTRY + batch(51), [FRAMING], [0, 50, 51]),
    "a legacy entry before any batch": (JUNK + ENTRY + batch(51), [FRAMING], [50, 51]),
    "a legacy entry with a repeated offset is not accepted": (ENTRY + JUNK + ENTRY + batch(51), [FRAMING], [50, 51]),
}
"""Name → (log, kinds of damage, base offsets of good batches)."""


@pytest.mark.parametrize("name", DAMAGED_LOGS)
def test_damage_and_good_batches_of_a_log(name: str) -> None:
    data, kinds, good = DAMAGED_LOGS[name]
    reading = read(data)
    assert (reading.kinds, reading.good) == (kinds, good)


def test_a_chain_of_damaged_batches_is_not_split_between_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "CHUNK_ROWS", 4)
    monkeypatch.setattr(segment, "MAX_CHAIN", 3)
    monkeypatch.setattr(damage, "MAX_CHAIN", 3)
    batches = log(6)
    data = b"".join(batches)
    for which in (3, 4, 5):
        data = flip_bit(data, batch_positions(batches)[which] + 70)
    reading = read(data)
    assert reading.base_offsets == [0, 2, 4, 6, 8, 10]
    assert [chunk.rows for chunk in reading.chunks] == [3, 3]


def test_too_many_consecutive_damaged_batches_are_one_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage, "MAX_CHAIN", 3)
    batches = log(8)
    at, data = batch_positions(batches), b"".join(batches)
    for which in range(1, 6):
        data = flip_bit(data, at[which] + 70)
    reading = read(data)
    (found,) = reading.damage
    assert (found.kind, found.position, found.size_in_bytes) == ("FRAMING_LOST", at[1], at[6] - at[1])
    assert reading.good == [0, 12, 14]


def test_reading_stops_after_many_damaged_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "MAX_DAMAGED_PLACES", 2)
    batches = log(9)
    at, data = batch_positions(batches), b"".join(batches)
    for which in (1, 4, 7):
        data = with_length(data, at[which], 5)
    reading = read(data)
    assert reading.kinds == ["FRAMING_LOST", "FRAMING_LOST", "BUDGET_EXCEEDED"]
    assert reading.good == [0, 4, 6, 10, 12]
    assert reading.skipped == len(data) - at[7]


def embedded(inner: bytes, *, base_offset: int = 2, trailing: bytes = b"!" * 40) -> list[bytes]:
    """Three batches; the value of the second contains `inner` between other bytes."""
    return [batch(0, 2), batch(base_offset, 1, value=b"?" * 10 + inner + trailing), batch(base_offset + 1, 2)]


@pytest.mark.parametrize("offset", [0, 1, 2, 3, 100, 2**40])
def test_a_batch_inside_a_damaged_batch_is_not_a_batch_of_the_log(offset: int) -> None:
    """A right CRC and plausible offsets are not enough: a sound batch must follow."""
    batches = embedded(batch(offset, 1))
    reading = read(with_length(b"".join(batches), len(batches[0]), 7))
    assert reading.good == [0, 3]
    (found,) = reading.damage
    assert (found.kind, found.size_in_bytes) == ("FRAMING_LOST", len(batches[1]))
    assert found.detail.get("candidates", 0) == (1 if offset > 1 else 0)


def test_a_log_inside_a_damaged_batch_is_bounded_by_offsets() -> None:
    """A chain of batches in a value is accepted only between the last good offset and the next segment."""
    for inner in (0, 15, 50, 900):
        batches = [batch(18, 2), batch(20, 1, value=b"".join(log(3, start=inner))), batch(21, 2)]
        assert read(with_length(b"".join(batches), len(batches[0]), 7), max_plausible_offset=40).good == [18, 21], inner


def test_an_accepted_batch_must_end_before_the_next_segment() -> None:
    batches = [batch(0, 2), batch(20, 1, value=batch(38, 5) + batch(43)), batch(21, 2)]
    data = with_length(b"".join(batches), len(batches[0]), 7)
    assert read(data, max_plausible_offset=43).good == [0, 38, 43]
    assert read(data, max_plausible_offset=42).good == [0, 21]


def test_a_batch_inside_a_damaged_batch_larger_than_the_window_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader knows the size of the damaged batch, as for a small one."""
    small_windows(monkeypatch, 128, 256)
    for following in ([batch(3, 2)], []):
        batches = [batch(0, 2), batch(2, 1, value=b"x" * 400 + batch(2, 1)), *following]
        reading = read(flip_bit(b"".join(batches), len(batches[0]) + 80))
        assert reading.kinds == ["BATCH_CRC_MISMATCH"]
        assert reading.good == [0, *(3 for _ in following)]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("which", [0, 1, 3])
def test_a_wrong_length_of_a_legacy_entry_loses_one_entry(which: int, magic: int) -> None:
    entries = [legacy_entry(n, magic, value=b"x" * 50) for n in range(4)]
    at = batch_positions(entries)
    reading = read(with_length(b"".join(entries), at[which], 3))
    (found,) = reading.damage
    assert (found.kind, found.position, found.size_in_bytes) == ("FRAMING_LOST", at[which], len(entries[which]))
    assert reading.good == [n for n in range(4) if n != which]


def test_damage_where_the_format_changes_keeps_every_row() -> None:
    batches = [legacy_entry(0, 0), legacy_entry(1, 1, value=b"x" * 40), *log(2, start=2)]
    at, data = batch_positions(batches), b"".join(batches)
    for which in range(4):
        reading = read(flip_bit(data, at[which + 1] - 1))
        assert (reading.kinds, reading.base_offsets) == (["BATCH_CRC_MISMATCH"], [0, 1, 2, 4])


def test_damage_contains_no_bytes_of_records() -> None:
    batches = log(4, value=b"SECRETSECRET")
    for position in range(0, 2 * len(batches[0]), 3):
        for found in read(flip_bit(b"".join(batches), position)).damage:
            assert isinstance(found, Damage)
            assert "SECRET" not in repr(found)


def test_a_plausible_header_of_a_large_batch_does_not_end_the_search() -> None:
    """The CRC of such a batch would exceed the budget, so the search skips it."""
    size = 17 << 20
    plausible_header = struct.pack(">qiibIhiqqqhii", 6, size - 12, 0, 2, 1, 0, 0, 0, 0, -1, -1, -1, 1)
    data = batch(4) + with_length(batch(5, value=plausible_header), 0, 5) + batch(7) + batch(8, value=bytes(size))
    reading = read(data)
    assert (reading.base_offsets, reading.kinds) == ([4, 7, 8], ["FRAMING_LOST"])
