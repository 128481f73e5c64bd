"""Digests of batches as a reader passes them: what they cover, in whatever windows, pieces and damage."""

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
class Passed:
    """What a reader passed."""

    good: dict[int, bytes] = field(default_factory=dict)
    """Digest by position."""
    bad: dict[int, bytes] = field(default_factory=dict)


def passed(data: bytes, key: bytes) -> Passed:
    """The digests of all of a segment's batches."""
    digests, found = ContentDigests(key), Passed()
    reader = SegmentReader(MemoryFile(data), inspect=digests.inspect, inspect_alone=digests.alone)
    for chunk in reader.chunks():
        columns = chunk.columns
        taken = digests.take(columns)
        assert taken.shape == (columns.shape[1], 2)
        right = columns[BatchColumn.CRC] == columns[BatchColumn.CRC_COMPUTED]
        for position, is_right, digest in zip(columns[BatchColumn.POSITION].tolist(), right.tolist(), taken, strict=True):
            (found.good if is_right else found.bad)[position] = digest.tobytes()
    return found


def expected(data: bytes, key: bytes) -> bytes:
    """The digest of a batch by itself."""
    return hashlib.blake2b(data[61 if data[16] >= 2 else 17 :], digest_size=16, key=key).digest()


def at_starts(batches: list[bytes], key: bytes) -> dict[int, bytes]:
    starts = np.cumsum([0, *map(len, batches)]).tolist()
    return {start: expected(data, key) for start, data in zip(starts, batches, strict=False)}


@BOTH
@pytest.mark.parametrize("compiled", [False, True])
def test_every_batch_has_the_digest_of_what_is_behind_its_header(key: bytes, compiled: bool) -> None:
    batches = [legacy_entry(0, 0), legacy_entry(1, 1), *log(5, start=2), batch(12, 99, compression_type="zstd")]
    with kernels(compiled=compiled):
        assert passed(b"".join(batches), key) == Passed(at_starts(batches, key))
        assert passed(b"", key) == Passed()


@BOTH
def test_nothing_of_the_header_is_in_a_digest_and_everything_behind_it(key: bytes) -> None:
    plain, changed = batch(0, value=b"v"), batch(78, value=b"w")
    other = batch(77, value=b"v", epoch=4, base_timestamp=9, producer_id=8, producer_epoch=1, base_sequence=3)
    digests = list(passed(plain + other + changed, key).good.values())
    assert digests[0] == digests[1] != digests[2]


@BOTH
def test_behind_damage_batches_are_taken_by_themselves_and_bad_ones_too(key: bytes) -> None:
    batches = log(6)
    whole = at_starts(batches, key)
    starts = list(whole)
    data = flip_bit(b"".join(batches), starts[1] + 9)
    assert passed(data, key).good == {start: whole[start] for start in starts if start != starts[1]}
    data = flip_bit(b"".join(batches), starts[2] + 70)
    found = passed(data, key)
    assert found.good == {start: whole[start] for start in starts if start != starts[2]}
    assert found.bad == {starts[2]: expected(data[starts[2] : starts[3]], key)}


@BOTH
def test_large_batches_have_the_digest_that_they_have_in_one_piece(key: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    small_windows(monkeypatch, 96, 256)
    batches = [batch(0), large(2, 6000), batch(3), large(5, 61 + 70 * 7), legacy_entry(6, 1)]
    for piece in (7, 70, 700, content._READ_BYTES):
        monkeypatch.setattr(content, "_READ_BYTES", piece)
        assert passed(b"".join(batches), key) == Passed(at_starts(batches, key))


def large(offset: int, size: int) -> bytes:
    return write_batch([RecordToWrite(b"k", bytes(index % 251 for index in range(size)))], base_offset=offset, base_timestamp=5)


@given(any_segments())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_windows_change_nothing_on_any_bytes(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    whole = {key: passed(data, key) for key in KEYS}
    with monkeypatch.context() as patch:
        small_windows(patch, 64, 96)
        for key, before in whole.items():
            assert passed(data, key).good == before.good


class _CutFile(MemoryFile):
    """A file that is found shorter when more than a page of it is read."""

    def read_into(self, position: int, buffer: memoryview) -> int:
        return super().read_into(position, buffer[:4096])


def test_a_file_that_has_become_shorter_gives_zeros() -> None:
    digests = ContentDigests(SECRET)
    data = large(0, 9000)
    assert digests.alone(_CutFile(data), 0, len(data)) == []
    assert digests.take(columns_at(0)).tolist() == [[0, 0]]
    assert digests.alone(MemoryFile(data), 0, len(data)) == []
    assert digests.take(columns_at(9, 0))[1].tobytes() == expected(data, SECRET)
    assert digests.take(columns_at(0)).tolist() == [[0, 0]]


def columns_at(*positions: int) -> "NDArray[np.int64]":
    columns = np.zeros((len(BatchColumn), len(positions)), np.int64)
    columns[BatchColumn.POSITION] = positions
    return columns
