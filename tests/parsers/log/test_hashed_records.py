"""Hashes of keys and values: what they cover, which functions compute them, and which records belong to which batch."""

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import pytest
import xxhash
from hypothesis import given, strategies as st

from kafka_forensics.parsers.log import HashedRecords, RecordHasher, SeededHasher, SegmentHashes, StrongHasher, hashed_records
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.scanning.folding.held_records import hashed
from tests.support.memory import MemoryFile
from tests.support.segments import batch, flip_bit, legacy_entry, log, marker

if TYPE_CHECKING:
    from numpy.typing import NDArray

SECRET = bytes(range(50, 82))
HASHERS: list[RecordHasher] = [SeededHasher(7), StrongHasher(SECRET), StrongHasher()]


def little_endian(digest: bytes) -> int:
    return int.from_bytes(digest, "little", signed=True)


def expected(hasher: RecordHasher, key: bytes, value: bytes) -> tuple[list[int], int, int]:
    """(hash of the key, the hash that represents it in output, hash of the value)."""
    if isinstance(hasher, SeededHasher):
        digest = xxhash.xxh3_128_digest(key, 7)
        shown = int.from_bytes(xxhash.xxh3_64_digest(key), "big", signed=True)
        return [little_endian(digest[:8]), little_endian(digest[8:])], shown, little_endian(xxhash.xxh3_128_digest(value, 7)[:8])
    assert isinstance(hasher, StrongHasher)
    strong = hashlib.blake2b(key, digest_size=10, key=hasher._secret).digest()
    high = little_endian(strong[:8])
    value_hash = little_endian(hashlib.blake2b(value, digest_size=8, key=hasher._secret).digest())
    return [high, int.from_bytes(strong[8:], "little")], high, value_hash


@given(st.lists(st.tuples(st.binary(max_size=30), st.binary(max_size=90)), max_size=5), st.sampled_from(HASHERS))
def test_hashes_of_keys_and_values_agree_with_libraries(pairs: list[tuple[bytes, bytes]], hasher: RecordHasher) -> None:
    payload, starts = b"|", []
    for key, value in pairs:
        starts.append(len(payload))
        payload += key + value
    key_sizes, value_sizes = (np.array([len(pair[part]) for pair in pairs], np.int64) for part in range(2))
    batch_positions = np.array(starts, np.int64)
    keys, shown = hasher.keys(payload, batch_positions, key_sizes)
    values = hasher.values(payload, batch_positions + key_sizes, value_sizes)
    assert list(zip(keys.tolist(), shown.tolist(), values.tolist(), strict=True)) == [expected(hasher, *pair) for pair in pairs]
    assert keys.shape == (len(pairs), 2)


@pytest.mark.parametrize("hasher", HASHERS)
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_every_record_of_a_batch_is_hashed(hasher: RecordHasher, codec: str) -> None:
    pairs = [(b"a", b"1"), (None, b"2"), (b"", None), (b"a", b"1")]
    records = [RecordToWrite(key, value, timestamp_delta=n, offset_delta=2 * n) for n, (key, value) in enumerate(pairs)]
    before = batch(1, 1)
    data = write_batch(records, base_offset=10, base_timestamp=100, compression_type=codec)
    found = hashed(MemoryFile(before + data), hasher).of(np.array([len(before)]))
    assert found.positions.tolist() == [len(before)] * 4
    assert found.offsets.tolist() == [10, 12, 14, 16]
    assert found.timestamps.tolist() == [100, 101, 102, 103]
    assert found.key_lengths.tolist() == [1, -1, 0, 1]
    assert found.value_lengths.tolist() == [1, 1, -1, 1]
    for row, (key, value) in enumerate(pairs):
        key_hash, shown, value_hash = expected(hasher, key or b"", value or b"")
        assert key is None or (found.keys[row].tolist(), found.shown[row]) == (key_hash, shown)
        assert value is None or found.values[row] == value_hash


def test_old_formats_and_log_append_times_are_read() -> None:
    stamped = batch(2, timestamp_type="LogAppendTime", max_timestamp=77)
    found = hashed(MemoryFile(b"".join([legacy_entry(0, 0), legacy_entry(1, 1, timestamp=8), stamped])), HASHERS[0])
    assert found.offsets.tolist() == [0, 1, 2]
    assert found.timestamps.tolist() == [-1, 8, 77]
    assert found.keys[0].tolist() == found.keys[1].tolist() == expected(HASHERS[0], b"key", b"")[0]


def test_markers_and_corrupt_batches_have_no_records_and_malformed_batches_are_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [*log(3), marker(6, commit=True)]
    starts = np.cumsum([0, *map(len, batches)]).tolist()
    data = flip_bit(b"".join(batches), starts[1] + 70)
    malformed = write_batch([RecordToWrite(b"k", b"v")], base_offset=7, base_timestamp=5, records_count=2)
    found = hashed(MemoryFile(data + malformed), HASHERS[0])
    assert np.unique(found.positions).tolist() == [starts[0], starts[2]]
    assert found.unread.tolist() == [starts[4]]
    monkeypatch.setattr(hashed_records, "MAX_BATCH_BYTES", 10)
    hashes = SegmentHashes(HASHERS[0])
    hashes.inspect_batch(MemoryFile(data), starts[2], starts[3] - starts[2])
    assert hashes.take().unread.tolist() == [starts[2]]
    assert not len(hashes.take().unread)


@given(st.lists(st.integers(0, 6), max_size=12), st.sets(st.integers(0, 6)), st.sets(st.integers(0, 7)), st.integers(1, 5))
def test_records_are_selected_by_their_batches(batch_positions: list[int], unread: set[int], wanted: set[int], size: int) -> None:
    numbers = np.arange(len(batch_positions))
    keys = np.stack([numbers, -numbers], axis=1)
    batches, missing = np.array(batch_positions, np.int64), np.array(sorted(unread), np.int64)
    whole = HashedRecords(batches, numbers, numbers, keys, numbers, numbers, numbers, numbers, numbers, missing)
    parts = [whole.part(start, start + size) for start in range(0, max(len(batch_positions), len(unread)), size)]
    joined = HashedRecords.together(parts)
    assert joined.positions.tolist() == sorted(batch_positions)
    assert joined.offsets.tolist() == sorted(numbers.tolist(), key=lambda number: batch_positions[number])
    found = joined.of(np.array(sorted(wanted), np.int64))
    kept = [number for number in joined.offsets.tolist() if batch_positions[number] in wanted]
    assert found.unread.tolist() == sorted(unread & wanted)
    for part in HashedRecords.__struct_fields__:
        column: NDArray[np.int64] = getattr(found, part)
        if part not in ("positions", "keys", "unread"):
            assert column.tolist() == kept
    assert found.keys.tolist() == [[number, -number] for number in kept]
