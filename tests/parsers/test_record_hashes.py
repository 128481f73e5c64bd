"""Blocks of hashed records: written records are read back, a record takes few bytes, and invalid blocks are refused."""

import struct
from typing import TYPE_CHECKING

import cramjam
import numpy as np
import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from kafka_forensics.errors import FormatError
from kafka_forensics.parsers.log import HashedRecords, StrongHasher
from kafka_forensics.parsers.record_hashes import HEADER, MAX_BLOCK_BYTES, parse_record_hashes
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from kafka_forensics.writers.record_hashes import write_record_hashes
from tests.scanning.folding.held_records import hashed
from tests.support.memory import MemoryFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

INT64 = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)
SIZES = st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 9), min_size=5, max_size=5)


def same(left: HashedRecords, right: HashedRecords) -> bool:
    return all(np.array_equal(getattr(left, part), getattr(right, part)) for part in HashedRecords.__struct_fields__)


@st.composite
def any_records(draw: st.DrawFn) -> HashedRecords:
    """Records with any numbers; hashes of null are 0, and a key is represented by its hash."""
    positions_of_batches = sorted(draw(st.sets(st.integers(0, 2**63 - 1), max_size=4)))
    counts = [draw(st.integers(1, 4)) for _ in positions_of_batches]
    total = sum(counts)

    def column(values: st.SearchStrategy[int]) -> "NDArray[np.int64]":
        return np.array(draw(st.lists(values, min_size=total, max_size=total)), np.int64)

    key_lengths, value_lengths = column(st.integers(-1, 2**31)), column(st.integers(-1, 2**31))
    keys = np.stack([column(INT64), column(st.integers(0, 2**16 - 1))], axis=1)
    keys[key_lengths < 0] = 0
    values = np.where(value_lengths < 0, 0, column(INT64))
    unread = np.array(sorted(draw(st.sets(st.integers(0, 2**63 - 1), max_size=3))), np.int64)
    positions = np.repeat(np.array(positions_of_batches, np.int64), np.array(counts, np.int64))
    return HashedRecords(
        positions,
        column(INT64),
        column(INT64),
        keys,
        key_lengths,
        keys[:, 0].copy(),
        values,
        value_lengths,
        column(st.integers(0, 2**32 - 1)),
        unread,
    )


def block_of(records: HashedRecords) -> bytes:
    """The only block of few records."""
    (block,) = write_record_hashes(records)
    return block


@given(any_records())
def test_written_records_are_read_back(records: HashedRecords) -> None:
    assert same(parse_record_hashes(block_of(records)), records)


@given(any_records(), st.data())
def test_a_changed_block_is_read_or_refused(records: HashedRecords, draw: st.DataObject) -> None:
    """A byte of the block is changed, or a byte of its decompressed columns."""
    block = bytearray(block_of(records))
    if draw.draw(st.booleans()):
        plain = bytearray(bytes(cramjam.zstd.decompress(bytes(block[HEADER.size :]))) or b"\0")
        plain[draw.draw(st.integers(0, len(plain) - 1))] ^= draw.draw(st.integers(1, 255))
        block[HEADER.size :] = bytes(cramjam.zstd.compress(bytes(plain)))
    else:
        block[draw.draw(st.integers(0, len(block) - 1))] ^= draw.draw(st.integers(1, 255))
        block = block[: draw.draw(st.integers(0, len(block)))] if draw.draw(st.booleans()) else block
    assert_read_or_refused(bytes(block))


@given(st.binary(max_size=80), SIZES, st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(data: bytes, sizes: list[int], columns: bytes) -> None:
    assert_read_or_refused(data)
    assert_read_or_refused(HEADER.pack(b"KFRH", 1, *sizes) + data)
    assert_read_or_refused(HEADER.pack(b"KFRH", 1, *(size % 4 for size in sizes)) + bytes(cramjam.zstd.compress(columns)))


def assert_read_or_refused(block: bytes) -> None:
    try:
        records = parse_record_hashes(block)
    except FormatError:
        return
    lengths = {len(getattr(records, part)) for part in HashedRecords.__struct_fields__ if part != "unread"}
    assert len(lengths) == 1
    assert np.all(np.diff(records.positions) >= 0)
    assert same(parse_record_hashes(block_of(records)), records)


def block_of_columns(sizes: list[int], columns: list[list[int]], hashes: bytes = b"") -> bytes:
    """A block made of the 64-bit words of its columns, without code of the package."""
    planes = [bytes(word >> 8 * plane & 255 for plane in range(8) for word in words) for words in columns]
    return struct.pack("<4sB5Q", b"KFRH", 1, *sizes) + bytes(cramjam.zstd.compress(b"".join(planes) + hashes))


def test_the_format_of_blocks_does_not_change() -> None:
    """Later versions must read bundles that were collected before."""
    positions, offsets, times, keys, values = [64, 2 * 90], [2 * 100, 2, 2 * 3], [2 * 1000, 1, 2 * 7], [4, 0, 1], [0, 6, 0]
    hashes = struct.pack("<qHqHq", -7, 3, 2**40, 0, 5)
    block = block_of_columns([2, 3, 2, 1, 1], [positions, [1, 2], offsets, times, keys, values, [0, 77, 0], [2 * 9]], hashes)
    records = parse_record_hashes(block)
    found = {part: getattr(records, part).tolist() for part in HashedRecords.__struct_fields__}
    assert found == {
        "positions": [32, 122, 122],
        "offsets": [100, 101, 104],
        "timestamps": [1000, 999, 1006],
        "keys": [[-7, 3], [0, 0], [2**40, 0]],
        "key_lengths": [3, -1, 0],
        "shown": [-7, 0, 2**40],
        "values": [0, 5, 0],
        "value_lengths": [-1, 5, -1],
        "headers": [0, 77, 0],
        "unread": [9],
    }
    written = block_of(records)
    assert written[: HEADER.size] == block[: HEADER.size]
    assert bytes(cramjam.zstd.decompress(written[HEADER.size :])) == bytes(cramjam.zstd.decompress(block[HEADER.size :]))


@pytest.mark.parametrize(
    ("sizes", "columns", "reason"),
    [
        ([2, 2, 0, 0, 0], [[10, 0], [1, 1], [0, 0], [0, 0], [0, 0], [0, 0], [0, 0], []], "in order"),
        ([2, 2, 0, 0, 0], [[10, 1], [1, 1], [0, 0], [0, 0], [0, 0], [0, 0], [0, 0], []], "in order"),
        ([1, 1, 0, 0, 0], [[1], [1], [0], [0], [0], [0], [0], []], "in order"),
        ([1, 1, 0, 0, 2], [[0], [1], [0], [0], [0], [0], [0], [4, 1]], "in order"),
        ([1, 1, 0, 0, 0], [[0], [2], [0], [0], [0], [0], [0], []], "other batches"),
        ([2, 1, 0, 0, 0], [[0, 2], [2**64 - 1, 2], [0], [0], [0], [0], [0], []], "other batches"),
        ([1, 1, 0, 0, 0], [[0], [1], [0], [0], [2**64 - 1], [0], [0], []], "below null"),
        ([1, 1, 0, 0, 0], [[0], [1], [0], [0], [0], [2**64 - 5], [0], []], "below null"),
        ([1, 1, 0, 0, 0], [[0], [1], [0], [0], [1], [0], [0], []], "more or fewer"),
        ([1, 1, 0, 0, 0], [[0], [1], [0], [0], [0], [9], [0], []], "more or fewer"),
    ],
)
def test_invalid_columns_are_refused(sizes: list[int], columns: list[list[int]], reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        parse_record_hashes(block_of_columns(sizes, columns))


def test_a_bomb_ends_at_the_size_in_its_header() -> None:
    bomb = bytes(cramjam.zstd.compress(bytes(64 << 20)))
    with pytest.raises(FormatError, match="do not fill"):
        parse_record_hashes(HEADER.pack(b"KFRH", 1, 0, 2, 0, 0, 0) + bomb)
    records = MAX_BLOCK_BYTES // 40 + 1
    with pytest.raises(FormatError, match=f"of {40 * records} bytes are more than {MAX_BLOCK_BYTES}"):
        parse_record_hashes(HEADER.pack(b"KFRH", 1, 0, records, 0, 0, 0) + bomb)
    block = block_of(HashedRecords.none(7))
    assert parse_record_hashes(block, limit=8).unread.tolist() == [7]
    with pytest.raises(FormatError, match="of 8 bytes are more than 7"):
        parse_record_hashes(block, limit=7)


def test_other_versions_are_refused() -> None:
    for version in (0, 2, 255):
        with pytest.raises(FormatError, match="unknown version"):
            parse_record_hashes(HEADER.pack(b"KFRH", version, 0, 0, 0, 0, 0))
    with pytest.raises(FormatError, match="no block"):
        parse_record_hashes(struct.pack("<46s", b"KFRX"))


def log(batches: int, per_batch: int) -> bytes:
    """A log of a compacted topic with mostly distinct keys and some tombstones."""
    random = np.random.default_rng(7)
    data, offset, timestamp = [], 0, 1_700_000_000_000
    for _ in range(batches):
        deltas = np.cumsum(random.integers(1, 4, per_batch)).tolist()
        records = []
        for delta in deltas:
            key, value = b"key-%d" % random.integers(0, 10**12), random.bytes(int(random.integers(20, 400)))
            is_tombstone = random.random() < 0.05 or delta == 3
            records.append(RecordToWrite(key, None if is_tombstone else value, timestamp_delta=3 * delta, offset_delta=delta))
        data.append(write_batch(records, base_offset=offset, base_timestamp=timestamp))
        offset += deltas[-1] + int(random.integers(1, 4))
        timestamp += int(random.integers(1, 5000))
    return b"".join(data)


@pytest.mark.parametrize("per_batch", [1, 30])
def test_a_record_takes_no_more_than_24_bytes(per_batch: int) -> None:
    records = hashed(MemoryFile(log(6000 // per_batch, per_batch)), StrongHasher())
    assert len(records.offsets) == 6000
    block = block_of(records)
    assert len(block) <= 24 * 6000
    assert same(parse_record_hashes(block), as_written(records))


def as_written(records: HashedRecords) -> HashedRecords:
    """`records` as a block stores them."""
    return replace(records, shown=records.keys[:, 0], values=np.where(records.value_lengths < 0, 0, records.values))


@pytest.mark.parametrize("block_records", [1, 7, 40, 60, 61])
def test_blocks_of_few_records_join(block_records: int, monkeypatch: pytest.MonkeyPatch) -> None:
    records = replace(hashed(MemoryFile(log(3, 20)), StrongHasher()), unread=np.array([3, 9]))
    monkeypatch.setattr("kafka_forensics.writers.record_hashes.BLOCK_RECORDS", block_records)
    blocks = list(write_record_hashes(records))
    assert len(blocks) == -(-60 // block_records)
    assert same(HashedRecords.together([parse_record_hashes(block) for block in blocks]), as_written(records))
    unread = HashedRecords.none(*range(100))
    assert [len(parse_record_hashes(block).unread) for block in write_record_hashes(unread)] == [
        min(block_records, 100 - start) for start in range(0, 100, block_records)
    ]
