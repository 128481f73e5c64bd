"""Random access to compressed streams: blocks, passes, snapshots, input errors."""

import gzip
import lzma
import random
import zlib
from collections.abc import Callable

import pytest

from kafka_forensics.errors import SourceError
from kafka_forensics.storage.archives.decoders import STEP, Decoder, GzipDecoder, XzDecoder, ZstdDecoder
from kafka_forensics.storage.archives.inflate import BLOCK_SIZE, BlockCache, InflatedStream
from kafka_forensics.storage.source import ByteFile
from tests.storage.trees import in_parts, zstd
from tests.support.memory import MemoryFile
from tests.support.peak_memory import traced_memory

FORMS: dict[str, tuple[Callable[[ByteFile], Decoder], Callable[[bytes], bytes]]] = {
    "gz": (GzipDecoder, lambda data: gzip.compress(data, 1)),
    "xz": (XzDecoder, lambda data: lzma.compress(data, preset=0)),
    "zst": (ZstdDecoder, zstd),
}


def content(blocks: float) -> bytes:
    """Bytes with noise, zeros and repeats."""
    noise = random.Random(5)
    data = b"".join(noise.randbytes(3000) * 20 + bytes(20_000) for _ in range(int(blocks * BLOCK_SIZE / 80_000) + 1))
    return data[: int(blocks * BLOCK_SIZE)]


def stream_of(form: str, packed: bytes, capacity: int = 2 << 20) -> InflatedStream:
    decoder, _ = FORMS[form]
    return InflatedStream(lambda: decoder(MemoryFile(packed)), (0, 0), BlockCache(capacity))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [0, 1, BLOCK_SIZE - 1, BLOCK_SIZE, BLOCK_SIZE + 1, 3 * BLOCK_SIZE])
def test_streams_of_any_size_end_at_their_last_byte(form: str, size: int) -> None:
    data = content(3)[:size]
    stream = stream_of(form, FORMS[form][1](data))
    assert stream.read_at(0, size + 100) == data
    assert stream.read_at(size, 1) == b""
    assert stream.read_at(10 << 30, 1) == b""
    assert stream.read_into(size, memoryview(bytearray(4))) == 0
    assert (stream.broken, stream.passes) == ("", 1)


@pytest.mark.parametrize("form", FORMS)
def test_reading_backwards_gives_the_same_bytes(form: str) -> None:
    data = content(5.3)
    stream = stream_of(form, in_parts(FORMS[form][1])(data))
    for position in range(len(data) - 1, -1, -700_001):
        assert stream.read_at(position, 1_200_000) == data[position : position + 1_200_000]
    assert stream.passes > 1


def test_gzip_is_read_backwards_from_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_forensics.storage.archives.inflate._MAX_SNAPSHOTS", 4)
    data = content(40)
    stream = stream_of("gz", in_parts(FORMS["gz"][1])(data))
    stream._snapshot_distance = 2
    assert stream.read_at(len(data) - 1, 1) == data[-1:]
    assert len(stream._snapshots) <= 4
    for position in range(len(data) - 1, 20 << 20, -1_500_000):
        assert stream.read_at(position, 100) == data[position : position + 100]
    assert stream.passes == 1
    assert stream.read_at(0, 100) == data[:100]
    assert stream.passes == 2


@pytest.mark.parametrize("form", FORMS)
def test_zero_blocks_are_not_inflated_again(form: str) -> None:
    data = content(1) + bytes(20 * BLOCK_SIZE) + content(3)
    stream = stream_of(form, FORMS[form][1](data))
    stream.read_at(len(data) - 1, 1)
    assert stream.read_at(BLOCK_SIZE, 20 * BLOCK_SIZE) == bytes(20 * BLOCK_SIZE)
    assert stream.passes == 1


@pytest.mark.parametrize("form", FORMS)
def test_a_step_is_bounded_for_any_stream(form: str) -> None:
    decoder = FORMS[form][0](MemoryFile(FORMS[form][1](bytes(5 << 20))))
    total = 0
    while piece := decoder.step():
        assert len(piece) <= STEP
        total += len(piece)
    assert total == 5 << 20


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("damage", ["cut", "flipped", "trailing garbage", "nothing"])
def test_a_damaged_stream_gives_the_bytes_before_the_damage(form: str, damage: str) -> None:
    data = content(2.5)
    packed = FORMS[form][1](data)
    half = len(packed) // 2
    damaged = {
        "cut": packed[:half],
        "flipped": packed[:half] + bytes(byte ^ 0xFF for byte in packed[half : half + 40]) + packed[half + 40 :],
        "trailing garbage": packed + b"garbage",
        "nothing": b"no such stream at all",
    }[damage]
    stream = stream_of(form, damaged)
    got = stream.read_at(0, 10 << 20)
    assert stream.broken
    assert stream.read_at(0, 10 << 20) == got
    if damage != "flipped":
        assert data.startswith(got)
    assert len(got) > {"cut": len(data) // 3, "flipped": 0, "trailing garbage": len(data) - 1, "nothing": -1}[damage]


@pytest.mark.parametrize("form", FORMS)
def test_an_input_error_is_raised_and_later_reads_succeed(form: str) -> None:
    data = content(4)
    file = _FailingFile(FORMS[form][1](data))
    stream = InflatedStream(lambda: FORMS[form][0](file), (0, 0), BlockCache(1 << 20))
    file.fails = True
    with pytest.raises(SourceError, match="input/output error"):
        stream.read_at(0, len(data))
    file.fails = False
    assert stream.read_at(0, len(data)) == data


class _FailingFile(MemoryFile):
    fails = False

    def read_at(self, position: int, size: int) -> bytes:
        if self.fails and position:
            raise SourceError("", "input/output error")
        return super().read_at(position, 100 if self.fails else size)


def test_an_xz_stream_that_needs_much_memory_is_refused() -> None:
    packed = bytearray(lzma.compress(b"x" * 1000, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 20}]))
    at = packed.index(b"\x21\x01", 12)  # filter LZMA2, one byte of properties: the size of the dictionary
    packed[at + 2] = 40  # 4 GiB - 1
    size = (packed[12] + 1) * 4
    packed[12 + size - 4 : 12 + size] = zlib.crc32(packed[12 : 12 + size - 4]).to_bytes(4, "little")
    stream = stream_of("xz", bytes(packed))
    assert stream.read_at(0, 10) == b""
    assert "memory" in stream.broken


@pytest.mark.parametrize("form", FORMS)
def test_memory_stays_bounded_for_a_small_stream_of_many_zeros(form: str) -> None:
    stream = stream_of(form, FORMS[form][1](bytes(64 << 20)))
    with traced_memory() as peak_bytes:
        assert stream.read_at((64 << 20) - 1, 9) == b"\0"
    assert peak_bytes() < 8 << 20


def test_the_cache_drops_the_least_recently_used_blocks() -> None:
    cache = BlockCache(30)
    for number in range(3):
        cache.put((0, 0, number), bytes(10))
    cache.get((0, 0, 0))
    cache.put((1, 0, 0), bytes(10))
    assert cache.get((0, 0, 1)) is None
    assert cache.get((0, 0, 0)) is not None
    cache.put((1, 0, 0), bytes(4))
    assert cache.size_in_bytes == 24
    cache.forget(0)
    assert cache.size_in_bytes == 4


def test_blocks_are_dropped_later_if_the_cache_is_in_use() -> None:
    cache = BlockCache(30)
    cache.put((0, 0, 0), bytes(10))
    with cache._lock:
        cache.forget(0)
        assert cache.size_in_bytes == 10
    cache.put((1, 0, 0), bytes(10))
    assert cache.size_in_bytes == 10
