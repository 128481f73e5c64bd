"""Segments in the layout of Aiven's plugin: read byte for byte, and refused with a reason where they are damaged or hostile."""

import json
import random
import re
import struct
import time
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from kafka_forensics.errors import FormatError, SourceError
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.storage.open import open_source
from kafka_forensics.storage.source import ByteFile
from kafka_forensics.storage.tiered import RemotePart, list_store
from kafka_forensics.storage.tiered.aiven import decode_chunk_sizes
from kafka_forensics.storage.tiered.aiven_manifest import parse_manifest, parse_metadata
from tests.support.object_stores import S3Server
from tests.support.peak_memory import traced_memory
from tests.support.remote_stores import TieredSegment, chunk_index, encode_sizes, kafka_id, put_aiven, put_local, to_aiven

MIB = 1 << 20
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
SECONDS = 5.0
Change = Callable[[dict[str, Any]], Any]


def segment_of(log: bytes, **given: Any) -> TieredSegment:
    return TieredSegment("topic", kafka_id("topic"), 0, kafka_id("segment"), 0, log, **given)


def opened(folder: Path, part: RemotePart = RemotePart.LOG) -> ByteFile:
    """A part of the only segment of the store in a folder. Raises SourceError."""
    store = list_store(open_source(str(folder)), "")
    (log,) = store.logs.values()
    (segment,) = log.segments.values()
    return store.open(log, segment, part)


LOG = random.Random(1).randbytes(3000) + b"\0" * 5000 + random.Random(2).randbytes(300)


@pytest.mark.parametrize("compression", [False, True], ids=["fixed", "variable"])
@pytest.mark.parametrize("chunk_size", [1, 7, 100, 8299, 8300, 8301, 4 * MIB])
def test_a_log_equals_the_broker_s_at_any_position(compression: bool, chunk_size: int, tmp_path: Path) -> None:
    put_aiven(tmp_path, segment_of(LOG), chunk_size=chunk_size, compression=compression)
    with opened(tmp_path) as file:
        assert file.size_in_bytes == len(LOG)
        assert file.read_at(0, 2 * len(LOG)) == LOG
        rng = random.Random(chunk_size)
        for _ in range(100):
            position, size = rng.randrange(len(LOG) + 10), rng.choice([0, 1, 10, chunk_size, rng.randrange(len(LOG))])
            assert file.read_at(position, size) == LOG[position : position + size]
            buffer = bytearray(size)
            assert bytes(buffer[: file.read_into(position, memoryview(buffer))]) == LOG[position : position + size]


@given(
    log=st.binary(min_size=1, max_size=300),
    chunk_size=st.integers(1, 400),
    compression=st.booleans(),
    reads=st.lists(st.tuples(st.integers(0, 310), st.integers(0, 310)), max_size=8),
)
def test_any_read_of_any_log_equals_the_broker_s(
    tmp_path_factory: pytest.TempPathFactory, log: bytes, chunk_size: int, compression: bool, reads: list[tuple[int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("store")
    put_aiven(folder, segment_of(log), chunk_size=chunk_size, compression=compression)
    with opened(folder) as file:
        for position, size in reads:
            assert file.read_at(position, size) == log[position : position + size]


def test_a_manifest_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_aiven(tmp_path, segment_of(LOG), compression=True)
    opens: list[str] = []
    open_file = LocalSource.open

    def counted_open(source: LocalSource, path: str) -> ByteFile:
        opens.append(path.rpartition(".")[2])
        return open_file(source, path)

    monkeypatch.setattr(LocalSource, "open", counted_open)
    store = list_store(open_source(str(tmp_path)), "")
    (log,) = store.logs.values()
    (segment,) = log.segments.values()
    for part in (RemotePart.LOG, RemotePart.LEADER_EPOCHS, RemotePart.LOG):
        store.open(log, segment, part).close()
    assert opens == ["rsm-manifest", "log", "indexes", "log"]


def test_an_empty_log_is_read(tmp_path: Path) -> None:
    put_aiven(tmp_path, segment_of(b""))
    with opened(tmp_path) as file:
        assert (file.size_in_bytes, file.read_at(0, 10)) == (0, b"")


@pytest.mark.usefixtures("credentials")
def test_a_compressed_log_on_s3_equals_the_broker_s(s3: S3Server, tmp_path: Path) -> None:
    log = LOG * 300
    put_aiven(tmp_path, segment_of(log, index=b"i" * 800), chunk_size=MIB, compression=True)
    s3.upload(tmp_path, "aiven-log", "store")
    source = open_source("s3://aiven-log/store")
    store = list_store(source, "")
    ((stored_log, segment),) = ((log, segment) for log in store.logs.values() for segment in log.segments.values())
    with store.open(stored_log, segment, RemotePart.LOG) as file:
        assert file.read_at(0, len(log)) == log
    with store.open(stored_log, segment, RemotePart.OFFSET_INDEX) as file:
        assert file.read_at(0, 1000) == b"i" * 800


@pytest.mark.parametrize("txnindex", [None, b"", b"t" * 34], ids=["none", "empty", "there"])
@pytest.mark.parametrize("compression", [False, True])
def test_indexes_equal_the_broker_s(compression: bool, txnindex: bytes | None, tmp_path: Path) -> None:
    segment = segment_of(LOG, index=b"o" * 16, timeindex=b"t" * 24, snapshot=b"s" * 10, txnindex=txnindex)
    put_aiven(tmp_path, segment, compression=compression)
    for part in RemotePart:
        if part.value not in segment.parts:
            with pytest.raises(SourceError, match="holds no txnindex of this segment"):
                opened(tmp_path, part)
            continue
        with opened(tmp_path, part) as file:
            assert (part, file.read_at(0, file.size_in_bytes)) == (part, segment.parts[part.value])


def test_a_store_in_the_plugin_s_layout_equals_that_of_local_tiered_storage(tmp_path: Path) -> None:
    for number in range(6):
        segment = TieredSegment(
            "t-1.x", kafka_id("t"), number % 2, kafka_id(number), number * 10, LOG * (number + 1), index=b"i" * 8
        )
        put_local(tmp_path / "local", segment)
    to_aiven(tmp_path / "local", tmp_path / "aiven", compression=True, chunk_size=1000)
    local, aiven = (list_store(open_source(str(tmp_path / name)), "") for name in ("local", "aiven"))
    assert local.logs.keys() == aiven.logs.keys()
    for key, log in local.logs.items():
        assert log.segments.keys() == aiven.logs[key].segments.keys()
        for segment_id, stored in log.segments.items():
            for part in (RemotePart.LOG, RemotePart.OFFSET_INDEX, RemotePart.LEADER_EPOCHS, RemotePart.PRODUCER_SNAPSHOT):
                other = aiven.open(aiven.logs[key], aiven.logs[key].segments[segment_id], part)
                with local.open(log, stored, part) as file, other:
                    assert other.read_at(0, 10**6) == file.read_at(0, 10**6)


@pytest.mark.parametrize("compression", [False, True])
def test_an_encrypted_segment_is_named_as_such(compression: bool, tmp_path: Path) -> None:
    put_aiven(tmp_path, segment_of(LOG), compression=compression, encrypted=True, chunk_size=1000)
    for part in RemotePart:
        with pytest.raises(SourceError, match="encrypted by the plugin: it can be read only with the plugin's key ring"):
            opened(tmp_path, part)


PLUGIN_S_MANIFEST = (
    '{"version":"1","chunkIndex":{"type":"fixed","originalChunkSize":100,"originalFileSize":1000,"transformedChunkSize":110,'
    '"finalTransformedChunkSize":110},"segmentIndexes":{"offset":{"position":0,"size":1},"timestamp":{"position":1,"size":1},'
    '"producerSnapshot":{"position":2,"size":1},"leaderEpoch":{"position":3,"size":1},"transaction":null},"compression":false,'
    '"encryption":{"dataKey":"static-key-id:AAAA","aad":"CgsMDQ=="},"remoteLogSegmentMetadata":{"remoteLogSegmentId":{'
    '"topicIdPartition":{"topicId":"lZ6vvmajTWKDBUTV6SQAtQ","topicPartition":{"topic":"topic1","partition":42}},'
    '"id":"adh9f8BMS4anaUnD8KWfWg"},"startOffset":0,"endOffset":1000,"maxTimestampMs":1000000000,"brokerId":2,'
    '"eventTimestampMs":2000000000,"segmentLeaderEpochs":{"0":100,"1":200,"2":300}}}'
)
"""As in the plugin's SegmentManifestV1SerdeTest."""


def test_a_manifest_of_the_plugin_s_tests_is_parsed() -> None:
    manifest = parse_manifest(PLUGIN_S_MANIFEST.encode())
    assert manifest.encryption is not None
    assert manifest.segment_indexes.transaction is None
    metadata = parse_metadata(manifest)
    assert metadata is not None
    partition = metadata.remote_log_segment_id.topic_id_partition
    assert (partition.topic_id, partition.topic_partition.topic) == ("lZ6vvmajTWKDBUTV6SQAtQ", "topic1")
    assert (partition.topic_partition.partition, metadata.end_offset) == (42, 1000)
    assert metadata.segment_leader_epochs == {0: 100, 1: 200, 2: 300}
    oldest = json.loads(PLUGIN_S_MANIFEST)
    del oldest["remoteLogSegmentMetadata"], oldest["encryption"]
    assert parse_metadata(parse_manifest(json.dumps(oldest).encode())) is None


@pytest.mark.parametrize(
    "value", [{}, [], 1, "text", {"segmentLeaderEpochs": {"9" * 30: 0}}, {"endOffset": 1 << 63}, {"brokerId": 0.5}], ids=str
)
def test_metadata_that_deviates_leaves_the_log_readable(value: Any, tmp_path: Path) -> None:
    def change(manifest: dict[str, Any]) -> Any:
        metadata = manifest["remoteLogSegmentMetadata"]
        return manifest | {"remoteLogSegmentMetadata": metadata | value if value and isinstance(value, dict) else value}

    path = put_aiven(tmp_path, segment_of(LOG), change=change).with_suffix(".rsm-manifest")
    with opened(tmp_path) as file:
        assert file.read_at(0, len(LOG)) == LOG
    with pytest.raises(FormatError, match="not the metadata of a remote segment"):
        parse_metadata(parse_manifest(path.read_bytes()))


@pytest.mark.parametrize(
    ("sizes", "width"),
    [
        ([0, 1000, 2, 44002, 369], 2),
        ([2**31 - 1, 2**31 - 2, 2**31 - 3, 10], 1),
        ([1, 2, 3, 2**31 - 1], 1),
        ([1, 0xFF + 10, 0xFF + 20, 2**31 - 1], 2),
        ([1, 0xFFFF + 10, 0xFFFF + 20, 2**31 - 1], 3),
        ([1, 0xFFFFFF + 10, 0xFFFFFF + 20, 2**31 - 1], 4),
    ],
)
def test_sizes_of_the_plugin_s_tests_are_decoded(sizes: list[int], width: int) -> None:
    encoded = encode_sizes(sizes)
    assert len(encoded) == 4 + 4 + 1 + (len(sizes) - 1) * width + 4
    assert decode_chunk_sizes(encoded, len(sizes)) == sizes


@given(data=st.binary(max_size=60), count=st.integers(0, 12))
def test_any_bytes_are_sizes_or_an_error(data: bytes, count: int) -> None:
    try:
        sizes = decode_chunk_sizes(data, count)
    except FormatError:
        return
    assert len(sizes) == count


def at(*path: str, value: object) -> Change:
    """A change of one value in a manifest."""

    def change(manifest: dict[str, Any]) -> Any:
        inner = manifest
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] = value
        return manifest

    return change


def chunks(*sizes: int, chunk_size: int = 1000, file_size: int = len(LOG)) -> Change:
    return at("chunkIndex", value=chunk_index(chunk_size, file_size, list(sizes), variable=True))


def listing(data: bytes) -> Change:
    return at("chunkIndex", "transformedChunks", value=b64encode(data).decode())


NOT_A_MANIFEST = "not a manifest of a remote segment"
HOSTILE_MANIFESTS: dict[str, tuple[Change, str]] = {
    "version": (at("version", value="2"), NOT_A_MANIFEST),
    "list": (lambda _: [], NOT_A_MANIFEST),
    "chunk index": (at("chunkIndex", value=None), NOT_A_MANIFEST),
    "chunk type": (at("chunkIndex", "type", value="other"), NOT_A_MANIFEST),
    "negative file": (at("chunkIndex", "originalFileSize", value=-1), NOT_A_MANIFEST),
    "negative chunk": (at("chunkIndex", "originalChunkSize", value=-1), NOT_A_MANIFEST),
    "no chunk": (at("chunkIndex", "originalChunkSize", value=0), NOT_A_MANIFEST),
    "huge number": (at("chunkIndex", "originalChunkSize", value=10**4000), NOT_A_MANIFEST),
    "fraction": (at("chunkIndex", "originalFileSize", value=0.5), NOT_A_MANIFEST),
    "long": (at("chunkIndex", "originalFileSize", value=1 << 31), NOT_A_MANIFEST),
    "huge chunks": (chunks(10, chunk_size=(1 << 31) - 1, file_size=(1 << 31) - 1), "compressed chunks of 2,147,483,647 bytes"),
    "many chunks": (chunks(10, chunk_size=1, file_size=(1 << 31) - 1), "a log of 2,147,483,647 chunks is not read"),
    "fewer chunks": (chunks(10, 10), "lists 2 chunks of a log with 9"),
    "more chunks": (listing(struct.pack(">i", (1 << 31) - 1)), "lists 2,147,483,647 chunks of a log with 9"),
    "negative count": (listing(struct.pack(">i", -1)), "lists -1 chunks of a log with 9"),
    "no list": (listing(b""), "its list of chunks is cut short"),
    "cut list": (listing(struct.pack(">iib", 9, 10, 1) + b"\0" * 5), "its list of chunks is malformed"),
    "long list": (listing(struct.pack(">iib", 9, 10, 1) + b"\0" * 50), "its list of chunks is malformed"),
    "width": (listing(struct.pack(">iib", 9, 10, -1) + b"\0" * 50), "its list of chunks is malformed"),
    "no base64": (at("chunkIndex", "transformedChunks", value="???"), "its list of chunks is not base64"),
    "no ascii": (at("chunkIndex", "transformedChunks", value="\u00fc"), "its list of chunks is not base64"),
    "negative size": (listing(struct.pack(">iib8xi", 9, 10, 1, -5)), "its list of chunks has a size out of range"),
    "negative base": (listing(struct.pack(">iib8xi", 9, -10, 1, 5)), "its list of chunks has a size out of range"),
    "no bytes": (chunks(*[1] * 8, 0), "its list of chunks has a size out of range"),
    "large size": (chunks(*[1] * 8, 1 << 30), "its list of chunks has a size out of range"),
    "other sizes": (chunks(*[30] * 9), r"has [0-9,]+ bytes, but 270 in its manifest"),
    "overlapping": (chunks(*[2000] * 9), r"has [0-9,]+ bytes, but 18,000 in its manifest"),
}


@pytest.mark.parametrize("name", HOSTILE_MANIFESTS)
def test_a_hostile_manifest_is_refused_with_a_reason(name: str, tmp_path: Path) -> None:
    change, reason = HOSTILE_MANIFESTS[name]
    put_aiven(tmp_path, segment_of(LOG), chunk_size=1000, compression=True, change=change)
    begin = time.monotonic()
    with traced_memory() as peak_bytes, pytest.raises(SourceError, match=re.escape(reason) if "[" not in reason else reason):
        opened(tmp_path)
    assert time.monotonic() - begin < SECONDS
    assert peak_bytes() < 4 * MIB


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ({"position": -1, "size": 1}, NOT_A_MANIFEST),
        ({"position": 0, "size": -1}, NOT_A_MANIFEST),
        ({"position": 0, "size": 1 << 31}, NOT_A_MANIFEST),
        ({"position": 0, "size": (1 << 31) - 1}, "its index is not read: it has 2,147,483,647 bytes"),
        ({"position": (1 << 31) - 1, "size": 1}, "ends inside its index"),
        ({"position": 0, "size": 1000}, "ends inside its index"),
        (None, NOT_A_MANIFEST),
    ],
)
def test_a_hostile_place_of_an_index_is_refused_with_a_reason(place: object, reason: str, tmp_path: Path) -> None:
    put_aiven(tmp_path, segment_of(LOG, index=b"i" * 8), change=at("segmentIndexes", "offset", value=place))
    with pytest.raises(SourceError, match=reason):
        opened(tmp_path, RemotePart.OFFSET_INDEX)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"null",
        b"\xff\xfe",
        b"[" * 10**6,
        b'{"a":' * 10**6,
        b'{"version":"1","x":' + b"[" * (15 * MIB),
        b" " * (17 * MIB),
    ],
    ids=["empty", "cut", "null", "bytes", "deep lists", "deep objects", "deep unknown field", "large"],
)
def test_bytes_that_are_no_manifest_are_refused(data: bytes, tmp_path: Path) -> None:
    log = put_aiven(tmp_path, segment_of(LOG))
    log.with_suffix(".rsm-manifest").write_bytes(data)
    begin = time.monotonic()
    with pytest.raises(SourceError, match=NOT_A_MANIFEST if len(data) < 16 * MIB else "a manifest of more than 16,777,216 bytes"):
        opened(tmp_path)
    assert time.monotonic() - begin < SECONDS


@given(position=st.integers(0, 2000), data=st.binary(min_size=1, max_size=4), cut=st.booleans())
def test_a_changed_manifest_never_crashes(tmp_path_factory: pytest.TempPathFactory, position: int, data: bytes, cut: bool) -> None:
    folder = tmp_path_factory.mktemp("store")
    path = put_aiven(folder, segment_of(LOG), chunk_size=1000, compression=True).with_suffix(".rsm-manifest")
    content = path.read_bytes()
    position %= len(content)
    path.write_bytes(content[:position] + data + (b"" if cut else content[position + len(data) :]))
    for part in RemotePart:
        with suppress(SourceError), opened(folder, part) as file:
            file.read_at(0, 1 << 20)


def bomb() -> bytes:
    return pa.compress(b"\0" * (256 * MIB), codec="zstd", asbytes=True)


@pytest.mark.parametrize("missing", ["log", "rsm-manifest", "indexes"])
def test_a_missing_object_is_named(missing: str, tmp_path: Path) -> None:
    log = put_aiven(tmp_path, segment_of(LOG))
    log.with_suffix(f".{missing}").unlink()
    with pytest.raises(SourceError) as caught:
        opened(tmp_path, RemotePart.OFFSET_INDEX if missing == "indexes" else RemotePart.LOG)
    assert caught.value.path.endswith(f".{missing}")


def test_a_damaged_chunk_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    path = put_aiven(tmp_path, segment_of(LOG), chunk_size=1000, compression=True)
    first, second, *others = path.read_bytes().split(ZSTD_MAGIC)[1:]
    path.write_bytes(b"".join((ZSTD_MAGIC, first, b"\0\0\0\0", second, *(ZSTD_MAGIC + other for other in others))))
    with opened(tmp_path) as file:
        assert file.read_at(0, 1000) == LOG[:1000]
        with pytest.raises(SourceError, match=r"chunk 1 at byte [0-9,]+: a zstd frame that is damaged or cut short"):
            file.read_at(0, 2000)
        assert file.read_at(2000, 5000) == LOG[2000:7000]


@pytest.mark.parametrize("frames", [1, 3], ids=["one frame", "frames in a row"])
def test_a_zip_bomb_is_refused_with_bounded_memory(frames: int, tmp_path: Path) -> None:
    data = bomb() * frames
    path = put_aiven(
        tmp_path, segment_of(b"\0" * MIB), chunk_size=MIB, compression=True, change=chunks(len(data), chunk_size=MIB, file_size=MIB)
    )
    path.write_bytes(data)
    with opened(tmp_path) as file, traced_memory() as peak_bytes:
        with pytest.raises(SourceError, match=r"chunk 0 at byte 0: inflates to more than 1048576 bytes"):
            file.read_at(0, 10)
        assert peak_bytes() < 8 * MIB


@pytest.mark.parametrize("size", [0, 10, 900])
def test_a_chunk_that_is_too_short_is_refused(size: int, tmp_path: Path) -> None:
    data = pa.compress(b"\0" * size, codec="zstd", asbytes=True)
    path = put_aiven(tmp_path, segment_of(LOG), change=lambda manifest: manifest)
    put_aiven(tmp_path, segment_of(b"\0" * 1000), compression=True, change=chunks(len(data), file_size=1000))
    path.write_bytes(data)
    with opened(tmp_path) as file, pytest.raises(SourceError, match=f"chunk 0 at byte 0: has {size} bytes of 1,000"):
        file.read_at(0, 10)


def test_a_log_of_another_size_than_its_manifest_says_is_refused(tmp_path: Path) -> None:
    path = put_aiven(tmp_path, segment_of(LOG))
    path.write_bytes(LOG[:-1])
    with pytest.raises(SourceError, match="has 8,299 bytes, but 8,300 in its manifest"):
        opened(tmp_path)
