"""Digests of the content of batches: what they cover, with any windows, read sizes and damage."""

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.parsers.log import ContentDigests, SegmentReader, content
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support.kernels import kernels
from tests.support.memory import MemoryFile
from tests.support.segments import batch, flip_bit, legacy_entry, log, small_windows
from tests.support.strategies import any_segments

if TYPE_CHECKING:
    from numpy.typing import NDArray

SECRET = bytes(range(100, 132))
KEYS = [SECRET, b""]
BOTH = pytest.mark.parametrize("key", KEYS, ids=["keyed", "unkeyed"])


@dataclass
class DigestsByPosition:
    """Digests of the batches of a segment."""

    good: dict[int, bytes] = field(default_factory=dict)
    """Position → digest of batches with the right CRC."""
    bad: dict[int, bytes] = field(default_factory=dict)


def digests_of(data: bytes, key: bytes) -> DigestsByPosition:
    """The digests of all batches of a segment."""
    digests, found = ContentDigests(key), DigestsByPosition()
    reader = SegmentReader(MemoryFile(data), inspect=digests.inspect, inspect_batch=digests.inspect_batch)
    for chunk in reader.chunks():
        columns = chunk.columns
        taken = digests.take(columns)
        assert taken.shape == (columns.shape[1], 2)
        right = columns[BatchColumn.CRC] == columns[BatchColumn.CRC_COMPUTED]
        for position, is_right, digest in zip(columns[BatchColumn.POSITION].tolist(), right.tolist(), taken, strict=True):
            (found.good if is_right else found.bad)[position] = digest.tobytes()
    return found


def expected(data: bytes, key: bytes) -> bytes:
    """The digest of one batch, computed with the library."""
    return hashlib.blake2b(data[61 if data[16] >= 2 else 17 :], digest_size=16, key=key).digest()


def expected_by_position(batches: list[bytes], key: bytes) -> dict[int, bytes]:
    starts = np.cumsum([0, *map(len, batches)]).tolist()
    return {start: expected(data, key) for start, data in zip(starts, batches, strict=False)}


@BOTH
@pytest.mark.parametrize("compiled", [False, True])
def test_every_batch_has_the_digest_of_the_bytes_after_its_header(key: bytes, compiled: bool) -> None:
    batches = [legacy_entry(0, 0), legacy_entry(1, 1), *log(5, start=2), batch(12, 99, compression_type="zstd")]
    with kernels(compiled=compiled):
        assert digests_of(b"".join(batches), key) == DigestsByPosition(expected_by_position(batches, key))
        assert digests_of(b"", key) == DigestsByPosition()


@BOTH
def test_a_digest_depends_on_the_records_and_not_on_the_header(key: bytes) -> None:
    plain, changed = batch(0, value=b"v"), batch(78, value=b"w")
    other = batch(77, value=b"v", epoch=4, base_timestamp=9, producer_id=8, producer_epoch=1, base_sequence=3)
    digests = list(digests_of(plain + other + changed, key).good.values())
    assert digests[0] == digests[1] != digests[2]


@BOTH
def test_batches_after_damage_and_batches_with_a_wrong_crc_have_digests(key: bytes) -> None:
    batches = log(6)
    whole = expected_by_position(batches, key)
    starts = list(whole)
    data = flip_bit(b"".join(batches), starts[1] + 9)
    assert digests_of(data, key).good == {start: whole[start] for start in starts if start != starts[1]}
    data = flip_bit(b"".join(batches), starts[2] + 70)
    found = digests_of(data, key)
    assert found.good == {start: whole[start] for start in starts if start != starts[2]}
    assert found.bad == {starts[2]: expected(data[starts[2] : starts[3]], key)}


@BOTH
def test_batches_read_in_parts_have_the_same_digest(key: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    small_windows(monkeypatch, 96, 256)
    batches = [batch(0), large(2, 6000), batch(3), large(5, 61 + 70 * 7), legacy_entry(6, 1)]
    for size in (7, 70, 700, content._READ_BYTES):
        monkeypatch.setattr(content, "_READ_BYTES", size)
        assert digests_of(b"".join(batches), key) == DigestsByPosition(expected_by_position(batches, key))


def large(offset: int, size: int) -> bytes:
    return write_batch([RecordToWrite(b"k", bytes(index % 251 for index in range(size)))], base_offset=offset, base_timestamp=5)


@given(any_segments())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_windows_do_not_change_digests_of_any_bytes(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    whole = {key: digests_of(data, key) for key in KEYS}
    with monkeypatch.context() as patch:
        small_windows(patch, 64, 96)
        for key, before in whole.items():
            assert digests_of(data, key).good == before.good


class _CutFile(MemoryFile):
    """A file that returns at most 4096 bytes for each read."""

    def read_into(self, position: int, buffer: memoryview) -> int:
        return super().read_into(position, buffer[:4096])


def test_a_batch_that_became_shorter_has_the_digest_zero() -> None:
    digests = ContentDigests(SECRET)
    data = large(0, 9000)
    assert digests.inspect_batch(_CutFile(data), 0, len(data)) == []
    assert digests.take(columns_at(0)).tolist() == [[0, 0]]
    assert digests.inspect_batch(MemoryFile(data), 0, len(data)) == []
    assert digests.take(columns_at(9, 0))[1].tobytes() == expected(data, SECRET)
    assert digests.take(columns_at(0)).tolist() == [[0, 0]]


def columns_at(*positions: int) -> "NDArray[np.int64]":
    columns = np.zeros((len(BatchColumn), len(positions)), np.int64)
    columns[BatchColumn.POSITION] = positions
    return columns
