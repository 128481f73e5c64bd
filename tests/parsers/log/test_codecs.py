"""Decompression: streams of Kafka's writers are decompressed, hostile streams end early and keep the data before the fault."""

import gzip
import random

import cramjam
import pytest
import xxhash
from hypothesis import given, strategies as st

from kafka_forensics.model.constants import COMPRESSION_TYPES
from kafka_forensics.parsers.log.codecs import PIECE_BYTES, Decompression, decompress, decompress_into
from kafka_forensics.writers.batches import XERIAL_HEADER, compress, lz4_frame, xerial
from tests.support.segments import MUTATIONS

NAMES = ("gzip", "snappy", "lz4", "zstd")
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
PROBLEMS = {None, "CODEC_MALFORMED", "CODEC_SIZE_LIE", "DECOMP_LIMIT_EXCEEDED"}
TEXT = b"".join(b"line %d of the text\n" % number for number in range(30_000))


def rehashed(frame: bytes) -> bytes:
    """An LZ4 frame with a right header checksum (six-byte headers)."""
    return frame[:6] + bytes([xxhash.xxh32_intdigest(frame[4:6]) >> 8 & 0xFF]) + frame[7:]


def raw_lz4_block(data: bytes) -> bytes:
    return (len(data) | 1 << 31).to_bytes(4, "little") + data


@pytest.mark.parametrize("name", COMPRESSION_TYPES)
@pytest.mark.parametrize("size", [0, 1, 1000, 65_536, 300_000, len(TEXT)])
def test_compressed_text_is_read_back(name: str, size: int) -> None:
    answer = decompress(COMPRESSION_TYPES.index(name), compress(name, TEXT[:size]))
    assert (answer.problem, answer.detail) == (None, {})
    assert answer.data == TEXT[:size]


@pytest.mark.parametrize("name", NAMES)
def test_incompressible_bytes_are_read_back_in_small_pieces(name: str) -> None:
    data = random.Random(1).randbytes(1_500_000)
    pieces = list(Decompression(NAMES.index(name) + 1, compress(name, data)))
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) <= PIECE_BYTES


def test_an_unknown_codec_is_malformed() -> None:
    answer = decompress(5, b"anything")
    assert (answer.data, answer.problem) == (b"", "CODEC_MALFORMED")
    assert answer.detail == {"codec": "unknown(5)", "bytes_in": 8, "bytes_out": 0, "reason": "unknown_codec"}


def test_gzip_members_are_concatenated() -> None:
    parts = [TEXT, b"", b"second", TEXT[:70_000]]
    assert decompress(GZIP, b"".join(map(gzip.compress, parts))).data == b"".join(parts)
    assert decompress(GZIP, gzip.compress(b"x") * 3000).data == b"x" * 3000
    answer = decompress(GZIP, gzip.compress(TEXT) + b"junk")
    assert (answer.data, answer.problem, answer.detail["reason"]) == (TEXT, "CODEC_MALFORMED", "trailing_bytes")


def test_snappy_raw_blocks_and_concatenated_streams_are_read() -> None:
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))).data == TEXT
    assert decompress(SNAPPY, b"\x05\x10hello").data == b"hello"
    assert decompress(SNAPPY, xerial(b"one") + xerial(TEXT) + xerial(b"")).data == b"one" + TEXT
    assert decompress(SNAPPY, xerial(b"one") + b"\0\0\0").data == b"one", "fewer than four bytes end the stream silently"


@pytest.mark.parametrize(
    ("payload", "data", "problem", "reason"),
    [
        (XERIAL_HEADER + b"\x7f\xff\xff\xffabc", b"", "CODEC_SIZE_LIE", "chunk"),
        (XERIAL_HEADER + b"\xff\xff\xff\xffabc", b"", "CODEC_SIZE_LIE", "chunk"),
        (xerial(b"kept") + (9).to_bytes(4, "big") + b"short", b"kept", "CODEC_SIZE_LIE", "chunk"),
        (b"\xff\xff\xff\xff\x07\x10hello", b"", "CODEC_SIZE_LIE", "block"),
        (b"\xff\xff\xff\xff\xff\xff", b"", "CODEC_SIZE_LIE", "block"),
        (b"\x06\x10hello", b"", "CODEC_MALFORMED", "corrupt"),
        (b"\x80", b"", "CODEC_MALFORMED", "corrupt"),
        (xerial(b"kept") + b"\x82SNA" + bytes(12), b"kept", "CODEC_MALFORMED", "header"),
        (xerial(b"kept") + b"\x82SNAPPY\x00" + bytes(8), b"kept", "CODEC_MALFORMED", "header"),
    ],
)
def test_malformed_snappy_has_a_reason(payload: bytes, data: bytes, problem: str, reason: str) -> None:
    answer = decompress(SNAPPY, payload)
    assert (answer.data, answer.problem, answer.detail["reason"]) == (data, problem, reason)


def test_lz4_header_checksum_is_checked_from_magic_1_on() -> None:
    quirk = lz4_frame(TEXT, magic=0)
    assert decompress(LZ4, quirk, magic=0).problem is None
    for magic in (1, 2):
        answer = decompress(LZ4, quirk, magic=magic)
        assert (answer.data, answer.problem, answer.detail["reason"]) == (TEXT, "CODEC_MALFORMED", "header_checksum")


def test_lz4_optional_fields_are_read() -> None:
    block = raw_lz4_block(b"hello")
    checksum = xxhash.xxh32_intdigest(b"hello").to_bytes(4, "little")
    for flags, extra, body in (
        (0x64, b"", block + bytes(4) + b"ABCD"),
        (0x70, b"", block + checksum + bytes(4)),
        (0x68, (99).to_bytes(8, "little"), block + bytes(4)),
        (0x60, b"", block + b"\0\0\0\x80"),
    ):
        header = bytes([flags, 0x70]) + extra
        frame = b"\x04\x22\x4d\x18" + header + bytes([xxhash.xxh32_intdigest(header) >> 8 & 0xFF]) + body
        answer = decompress(LZ4, frame)
        assert (answer.data, answer.problem) == (b"hello", None)


_FRAME = lz4_frame(b"a" * 9)


@pytest.mark.parametrize(
    ("payload", "data", "reason"),
    [
        (b"", b"", "header"),
        (b"\x05" + _FRAME[1:], b"", "header"),
        (rehashed(_FRAME[:4] + b"\x40" + _FRAME[5:]), b"", "unsupported_header"),
        (rehashed(_FRAME[:4] + b"\xa0" + _FRAME[5:]), b"", "unsupported_header"),
        (rehashed(_FRAME[:4] + b"\x61" + _FRAME[5:]), b"", "unsupported_header"),
        (rehashed(_FRAME[:5] + b"\x30" + _FRAME[6:]), b"", "unsupported_header"),
        (_FRAME[:-4], b"a" * 9, "end_mark_missing"),
        (_FRAME + b"!", b"a" * 9, "trailing_bytes"),
        (_FRAME[:-4] + (65_537).to_bytes(4, "little"), b"a" * 9, "block_too_large"),
        (_FRAME[:-4] + (9).to_bytes(4, "little") + b"short", b"a" * 9, "truncated"),
        (_FRAME[:-4] + b"\x03\0\0\0\xff\xff\xff", b"a" * 9, "corrupt"),
        (rehashed(_FRAME[:4] + b"\x70" + _FRAME[5:7] + raw_lz4_block(b"x") + b"bad!" + bytes(4)), b"", "block_checksum"),
    ],
)
def test_malformed_lz4_has_a_reason(payload: bytes, data: bytes, reason: str) -> None:
    answer = decompress(LZ4, payload)
    assert (answer.data, answer.problem, answer.detail["reason"]) == (data, "CODEC_MALFORMED", reason)


def test_zstd_frames_are_concatenated_and_junk_is_malformed() -> None:
    frame = compress("zstd", TEXT)
    assert decompress(ZSTD, frame + compress("zstd", b"more")).data == TEXT + b"more"
    answer = decompress(ZSTD, frame + b"junk")
    assert (answer.data, answer.problem) == (TEXT, "CODEC_MALFORMED")
    early = decompress(ZSTD, frame, magic=1)
    assert (early.data, early.problem, early.detail["reason"]) == (TEXT, "CODEC_MALFORMED", "codec_before_magic_2")


def test_a_zstd_window_larger_than_readers_allow_is_refused() -> None:
    frame = bytes.fromhex("28b52ffd") + bytes([0, (31 - 10) << 3]) + ((131_072 << 3) | 3).to_bytes(3, "little") + b"x"
    answer = decompress(ZSTD, frame)
    assert (answer.data, answer.problem) == (b"", "CODEC_MALFORMED")
    assert decompress(ZSTD, frame[:5] + bytes([(20 - 10) << 3]) + frame[6:]).data == b"x" * 131_072


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("keep", [0.3, 0.99])
def test_cut_streams_keep_the_data_before_the_cut(name: str, keep: float) -> None:
    data = random.Random(2).randbytes(500_000)
    payload = compress(name, data)
    answer = decompress(NAMES.index(name) + 1, payload[: int(len(payload) * keep)])
    assert answer.problem in {"CODEC_MALFORMED", "CODEC_SIZE_LIE"}
    assert data.startswith(answer.data)
    assert len(answer.data) >= len(data) * keep - 135_000
    assert answer.detail["bytes_out"] == len(answer.data)


@pytest.mark.parametrize("name", NAMES)
def test_the_limit_stops_a_bomb(name: str) -> None:
    payload = compress(name, bytes(8 << 20))
    answer = decompress(NAMES.index(name) + 1, payload, limit=1_000_000)
    assert (answer.data, answer.problem) == (bytes(1_000_000), "DECOMP_LIMIT_EXCEEDED")
    assert (answer.detail["codec"], answer.detail["limit"]) == (name, 1_000_000)
    bytes_out = answer.detail["bytes_out"]
    assert isinstance(bytes_out, int)
    assert 1_000_000 < bytes_out <= 1_000_000 + PIECE_BYTES
    assert answer.detail["ratio"] == bytes_out // len(payload)


def test_a_bomb_of_32_gib_ends_at_the_default_limit() -> None:
    """One frame of 2^18 blocks of a repeated byte: 1 MiB that decompresses to 32 GiB."""
    block = (131_072 << 3 | 2).to_bytes(3, "little") + b"x"
    payload = bytes.fromhex("28b52ffd") + bytes([0, (17 - 10) << 3]) + block * (1 << 18)
    pieces = Decompression(ZSTD, payload)
    assert sum(map(len, pieces)) == 1 << 30
    assert (pieces.problem, pieces.detail["ratio"]) == ("DECOMP_LIMIT_EXCEEDED", 1024)


def test_a_snappy_block_too_large_for_memory_is_refused() -> None:
    preamble = bytes([0x80, 0x80, 0x80, 0x64])  # 200 MiB
    answer = decompress(SNAPPY, preamble + bytes(10 << 20))
    assert (answer.data, answer.problem, answer.detail["declared"]) == (b"", "DECOMP_LIMIT_EXCEEDED", 200 << 20)


def into(codec: int, payload: bytes, capacity: int = 300_000) -> bytes | None:
    """The bytes that `decompress_into` writes, equal to those of `decompress`; None if it refuses."""
    output = memoryview(bytearray(capacity))
    size = decompress_into(codec, memoryview(payload), output)
    if size < 0:
        return None
    answer = decompress(codec, payload)
    assert (bytes(output[:size]), None) == (answer.data, answer.problem)
    return answer.data


@pytest.mark.parametrize("name", ["lz4", "zstd"])
@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 200_000])
def test_a_sound_stream_is_decompressed_in_place(name: str, size: int) -> None:
    codec = NAMES.index(name) + 1
    for data in (TEXT[:size], random.Random(4).randbytes(size)):
        payload = compress(name, data)
        assert into(codec, payload) == data
        assert into(codec, payload[:-1]) is None
        assert into(codec, payload + b"!") is None
        assert into(codec, payload, size + 65_536) == data
        assert into(codec, payload, max(size - 1, 0)) in ({data, None} if not size else {None})
    assert into(codec, b"") is None


def test_streams_with_optional_fields_are_not_decompressed_in_place() -> None:
    assert into(LZ4, lz4_frame(TEXT, magic=0)) is None
    assert into(LZ4, rehashed(_FRAME[:4] + b"\x64" + _FRAME[5:]) + b"ABCD") is None
    assert into(LZ4, rehashed(_FRAME[:5] + b"\x30" + _FRAME[6:])) is None
    assert into(SNAPPY, compress("snappy", TEXT)) is None
    assert into(ZSTD, compress("zstd", random.Random(3).randbytes(300_000)), 400_000) is None


@given(codec=st.integers(0, 7), payload=st.binary(max_size=200), magic=st.integers(0, 2))
def test_any_bytes_are_decompressed_within_the_limit(codec: int, payload: bytes, magic: int) -> None:
    answer = decompress(codec, payload, magic=magic, limit=100_000)
    assert answer.problem in PROBLEMS
    assert len(answer.data) <= 100_000


@given(name=st.sampled_from(NAMES), seed=st.integers(0, 2**32), faults=st.integers(1, 4))
def test_damaged_streams_are_decompressed_within_the_limit(name: str, seed: int, faults: int) -> None:
    rng = random.Random(seed)
    payload = compress(name, TEXT[:20_000])
    for _ in range(faults):
        payload = rng.choice(MUTATIONS)(rng, payload)
    answer = decompress(NAMES.index(name) + 1, payload, limit=1_000_000)
    assert answer.problem in PROBLEMS
    assert len(answer.data) <= 1_000_000
    into(NAMES.index(name) + 1, payload)
    into(NAMES.index(name) + 1, payload, 30_000)
