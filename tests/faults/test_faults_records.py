"""Faults F11, F12 and F21 to F24: records and compressed payloads that lie under a right CRC."""

import gzip
import struct
from pathlib import Path

import cramjam
import pytest

from kafka_forensics.model.findings import Finding
from kafka_forensics.parsers.spec.record_batch import encode_zigzag
from kafka_forensics.writers.batches import RecordToWrite, compress, lz4_frame, write_record
from tests.support.faults_verdict import offsets, said, span, verdict
from tests.support.injections import CODECS, compressed_by, legacy_log, legacy_message, record, record_of, with_payload

pytestmark = pytest.mark.faults


def the_lie(root: Path, kind: str, payload: bytes, **given: object) -> Finding:
    """The finding about the second batch, the same on all replicas and the only one there."""
    brokers, liar = with_payload(root, payload, **given)  # type: ignore[arg-type]
    result = verdict(brokers, deep=True)
    assert said(result) == [(kind, "error", broker) for broker in (1, 2, 3)]
    finding = result.findings[0]
    assert (span(finding), finding.place.offset_start) == ((liar.position, liar.end), 1)
    assert result.partitions[0].agreement.kind == "identical"
    return finding


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"\x80\x80\x80\x80\x80\x01" + record(), id="length of six bytes"),
        pytest.param(record_of(b"\0" + b"\x80" * 10 + b"\1" + b"\0" * 20), id="timestamp delta of eleven bytes"),
    ],
)
def test_f11_integer_longer_than_any(tmp_path: Path, payload: bytes) -> None:
    finding = the_lie(tmp_path, "RECORD_VARINT_OVERLONG", payload)
    assert finding.evidence["record_index"] == 0


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(record_of(b"\0\0\0" + encode_zigzag(1000) + b"key" + encode_zigzag(-1) + b"\0"), id="key"),
        pytest.param(record_of(b"\0\0\0" + encode_zigzag(3) + b"key" + encode_zigzag(2**31 - 1) + b"v" + b"\0"), id="value"),
        pytest.param(record_of(b"\0\0\0" + encode_zigzag(-1) + encode_zigzag(-1) + encode_zigzag(2**31 - 1) + b"ab"), id="headers"),
        pytest.param(encode_zigzag(2**31 - 1) + b"\0" * 50, id="record"),
        pytest.param(encode_zigzag(100) + b"\0" * 50, id="record past the batch"),
    ],
)
@pytest.mark.parametrize("codec", CODECS)
def test_f12_length_past_what_holds_it(tmp_path: Path, payload: bytes, codec: str) -> None:
    finding = the_lie(tmp_path, "RECORD_LENGTH_OUT_OF_BOUNDS", compress(codec, payload), codec=codec)
    assert finding.evidence["record_index"] == 0


def test_f21_bomb_is_stopped_and_the_next_batch_read(tmp_path: Path) -> None:
    """F21: 1 MiB that would unpack to 32 GiB."""
    bomb = bytes(cramjam.zstd.compress(bytes(64 << 20))) * 512
    assert len(bomb) < 2 << 20
    finding = the_lie(tmp_path, "DECOMP_LIMIT_EXCEEDED", bomb, codec="zstd")
    assert finding.evidence["codec"] == "zstd"
    assert finding.evidence["ratio"] > 1000


def test_f22_snappy_chunk_longer_than_the_batch(tmp_path: Path) -> None:
    payload = compress("snappy", record())
    finding = the_lie(tmp_path, "CODEC_SIZE_LIE", payload[:16] + b"\x7f\xff\xff\xff" + payload[20:], codec="snappy")
    assert finding.evidence["declared"] == 0x7FFFFFFF


def test_f22_snappy_block_that_says_it_holds_more_than_it_can(tmp_path: Path) -> None:
    block = b"\xff\xff\xff\xff\x07" + b"\0abc"
    payload = compress("snappy", b"")[:16] + len(block).to_bytes(4, "big") + block
    finding = the_lie(tmp_path, "CODEC_SIZE_LIE", payload, codec="snappy")
    assert finding.evidence["declared"] == 2**31 - 1


@pytest.mark.parametrize(
    ("codec", "payload"),
    [
        pytest.param("lz4", lz4_frame(record(), magic=0), id="lz4 header checksum"),
        pytest.param("lz4", lz4_frame(record())[:-4], id="lz4 without end"),
        pytest.param(
            "lz4", lz4_frame(record())[:7] + struct.pack("<I", 1 << 20) + lz4_frame(record())[11:], id="lz4 block too large"
        ),
        pytest.param("gzip", gzip.compress(record(), mtime=0) + b"junk", id="gzip trailing bytes"),
        pytest.param("gzip", gzip.compress(record(), mtime=0)[:-4], id="gzip truncated"),
        pytest.param("zstd", b"\x28\xb5\x2f\xfd" + b"\xff" * 30, id="zstd"),
    ],
)
def test_f23_malformed_compression(tmp_path: Path, codec: str, payload: bytes) -> None:
    finding = the_lie(tmp_path, "CODEC_MALFORMED", payload, codec=codec)
    assert finding.evidence["codec"] == codec


@pytest.mark.parametrize("codec", CODECS)
def test_f23_sound_compression_is_silent(tmp_path: Path, codec: str) -> None:
    assert said(verdict(compressed_by(tmp_path, codec), deep=True)) == []


MEMBERS = [gzip.compress(one, mtime=0) for one in (record(), write_record(RecordToWrite(b"key", b"more", offset_delta=1), 0, 1))]


def test_f23_gzip_member_with_records_beyond_the_count(tmp_path: Path) -> None:
    finding = the_lie(tmp_path, "BATCH_COUNT_LIE", b"".join(MEMBERS), codec="gzip")
    assert (finding.evidence["records_count"], finding.evidence["records_found"]) == (1, 2)


@pytest.mark.parametrize(
    ("payload", "count"),
    [(b"".join(MEMBERS), 2), (MEMBERS[0] + gzip.compress(b"", mtime=0), 1)],
    ids=["records go on", "empty"],
)
def test_f23_gzip_member_that_kafka_reads_on_into_is_no_fault(tmp_path: Path, payload: bytes, count: int) -> None:
    """GZIPInputStream takes members one after the other."""
    brokers, _ = with_payload(tmp_path, payload, codec="gzip", count=count)
    result = verdict(brokers, deep=True)
    assert said(result) == []
    assert result.totals.records == 3 * (count + 2)


def test_f23_lz4_header_checksum_of_magic_0_is_no_fault(tmp_path: Path) -> None:
    wrapper = legacy_message(0, 0, 3, lz4_frame(legacy_message(0, 0, 0, b"value"), magic=0))
    assert said(verdict(legacy_log(tmp_path, wrapper), deep=True)) == []


@pytest.mark.parametrize("depth", [2, 1000])
def test_f24_wrapper_inside_a_wrapper(tmp_path: Path, depth: int) -> None:
    inner = legacy_message(0, 1, 0, b"value")
    for _ in range(depth):
        inner = legacy_message(0, 1, 1, gzip.compress(inner, 1, mtime=0))
    result = verdict(legacy_log(tmp_path, inner), deep=True)
    assert said(result) == [("LEGACY_NESTED_COMPRESSION", "error", broker) for broker in (1, 2, 3)]
    assert offsets(result.findings[0]) == (0, 1)
