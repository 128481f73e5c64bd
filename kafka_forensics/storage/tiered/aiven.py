"""Aiven's tiered-storage-for-apache-kafka: the log in chunks, all indexes in one object, and a manifest that describes both.

Source: ObjectKeyFactory, KafkaRemoteStorageManager, SegmentManifestV1, SegmentIndexesV1, ChunkSizesBinaryCodec and the chunk
indexes of the plugin.
"""

import re
import struct
import threading
from base64 import b64decode
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from kafka_forensics.errors import FormatError, SourceError
from kafka_forensics.model.constants import INT64_MAX, MAX_INT32
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.remote_log import RemoteSegment, RemoteSegmentState
from kafka_forensics.storage.bundles import decompressed
from kafka_forensics.storage.source import ByteFile, BytesFile, ByteSource
from kafka_forensics.storage.tiered.layout import PARTITION, UUID, RemoteLayout, RemotePart, object_pattern

if TYPE_CHECKING:
    from kafka_forensics.storage.tiered.aiven_manifest import ChunkIndex, SegmentManifest

LOG: Final = "log"
INDEXES: Final = "indexes"
MANIFEST: Final = "rsm-manifest"
_TOPIC: Final = "(?P<topic>[^/]{1,512})"
"""With what is in front of it: `key.prefix` has any characters, and a `/` at its end only if the user wrote one."""
_MAX_MANIFEST_BYTES: Final = 16 << 20
_KEPT_MANIFEST_BYTES: Final = 32 << 10
"""Size of the largest manifest that is kept; a log of 1 GiB has one of about 2 KiB."""
_MANIFESTS_KEPT: Final = 1024
_MAX_CHUNK_BYTES: Final = 64 << 20
"""Of a compressed chunk, inflated; the plugin's manual starts with 4 MiB."""
_MAX_INDEX_BYTES: Final = 64 << 20
_MAX_CHUNKS: Final = 1 << 20
_UUID_CHARACTERS: Final = 22


def read_manifest(source: ByteSource, stem: str) -> "SegmentManifest":
    """The manifest of a segment. Raises SourceError if it is missing, unreadable or not a manifest."""
    return _parsed(stem, _read_manifest(source, stem))


def _parsed(stem: str, data: bytes) -> "SegmentManifest":
    from kafka_forensics.storage.tiered.aiven_manifest import parse_manifest

    try:
        return parse_manifest(data)
    except FormatError as error:
        raise SourceError(f"{stem}.{MANIFEST}", str(error)) from error


def _read_manifest(source: ByteSource, stem: str) -> bytes:
    path = f"{stem}.{MANIFEST}"
    try:
        with source.open(path) as file:
            if file.size_in_bytes <= _MAX_MANIFEST_BYTES:
                return file.read_at(0, file.size_in_bytes)
    except SourceError as error:
        raise SourceError(path, f"its {MANIFEST}: {error.reason}") from error
    raise SourceError(path, f"a manifest of more than {_MAX_MANIFEST_BYTES:,} bytes is not read")


class _PartOpener:
    """Opens parts of segments, each of which needs the segment's manifest: small ones read last are kept. Threads may share it."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._kept: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def __call__(self, stem: str, part: RemotePart) -> ByteFile:
        manifest = self._manifest(stem)
        path = f"{stem}.{LOG if part is RemotePart.LOG else INDEXES}"
        if manifest.encryption is not None:
            raise SourceError(path, "encrypted by the plugin: it can be read only with the plugin's key ring")
        file = self._source.open(path)
        try:
            if part is RemotePart.LOG:
                return _log(file, path, manifest)
            with file:
                return _index(file, manifest, part)
        except FormatError as error:
            file.close()
            raise SourceError(path, str(error)) from error

    def _manifest(self, stem: str) -> "SegmentManifest":
        data = self._kept.get(stem)
        if data is None:
            data = _read_manifest(self._source, stem)
            if len(data) <= _KEPT_MANIFEST_BYTES:
                with self._lock:
                    if len(self._kept) >= _MANIFESTS_KEPT:
                        del self._kept[next(iter(self._kept))]
                    self._kept[stem] = data
        return _parsed(stem, data)


def _index(file: ByteFile, manifest: "SegmentManifest", part: RemotePart) -> ByteFile:
    """An index from the `.indexes` object, where indexes are never compressed. Raises FormatError, SourceError."""
    index = manifest.segment_indexes.of(part)
    if index is None:
        raise FormatError(f"holds no {part.value} of this segment")
    if index.size > _MAX_INDEX_BYTES:
        raise FormatError(f"its {part.value} is not read: it has {index.size:,} bytes")
    data = file.read_at(index.position, index.size)
    if len(data) < index.size:
        raise FormatError(f"ends inside its {part.value}")
    return BytesFile(data)


def _log(file: ByteFile, path: str, manifest: "SegmentManifest") -> ByteFile:
    """The log with the broker's bytes: the object itself unless it is compressed. Raises FormatError."""
    chunks = manifest.chunk_index
    sizes = transformed_sizes(chunks) if manifest.compression else [chunks.original_file_size]
    if sum(sizes) != file.size_in_bytes:
        raise FormatError(f"has {file.size_in_bytes:,} bytes, but {sum(sizes):,} in its manifest")
    return _CompressedLog(file, path, chunks, sizes) if manifest.compression else file


def _describe(source: ByteSource, stem: str) -> RemoteSegment | None:
    """The segment by its manifest; None for one without the broker's metadata, or with metadata that brokers refuse."""
    from kafka_forensics.storage.tiered.aiven_manifest import parse_metadata

    manifest = read_manifest(source, stem)
    try:
        metadata, indexes = parse_metadata(manifest), manifest.segment_indexes
    except FormatError as error:
        raise SourceError(f"{stem}.{MANIFEST}", str(error)) from error
    if metadata is None or not 0 <= metadata.start_offset <= metadata.end_offset < INT64_MAX:
        return None
    epochs = sorted(EpochEntry(*item) for item in metadata.segment_leader_epochs.items())
    numbers = [number for entry in epochs for number in (entry.leader_epoch, entry.start_offset)]
    if not epochs or min(numbers) < 0 or max(numbers) > INT64_MAX or epochs[-1].leader_epoch > MAX_INT32:
        return None
    if not (-1 <= metadata.max_timestamp_ms <= INT64_MAX and 0 <= metadata.event_timestamp_ms <= INT64_MAX):
        return None
    return RemoteSegment(
        stem[-_UUID_CHARACTERS:],
        metadata.start_offset,
        metadata.end_offset,
        tuple(epochs),
        manifest.chunk_index.original_file_size,
        metadata.max_timestamp_ms,
        metadata.broker_id if 0 <= metadata.broker_id <= MAX_INT32 else -1,
        RemoteSegmentState.COPY_SEGMENT_FINISHED,
        metadata.event_timestamp_ms,
        -1,
        -1,
        indexes.transaction is None,
        None,
    )


def transformed_sizes(chunks: "ChunkIndex") -> list[int]:
    """Sizes of the compressed chunks in the `.log` object. Raises FormatError if they cannot be those of this log."""
    largest = min(chunks.original_chunk_size, chunks.original_file_size)
    if largest > _MAX_CHUNK_BYTES:
        raise FormatError(f"compressed chunks of {largest:,} bytes are not read")
    count = -(-chunks.original_file_size // chunks.original_chunk_size)
    if count > _MAX_CHUNKS:
        raise FormatError(f"a log of {count:,} chunks is not read")
    if chunks.type == "fixed":
        sizes = ([chunks.transformed_chunk_size] * count)[1:] + [chunks.final_transformed_chunk_size][:count]
    else:
        try:
            sizes = decode_chunk_sizes(b64decode(chunks.transformed_chunks, validate=True), count)
        except ValueError as error:
            raise FormatError("its list of chunks is not base64") from error
    if sizes and not 0 < min(sizes) <= max(sizes) <= 2 * largest + 1024:  # zstd adds at most 1/256 and some bytes
        raise FormatError("its list of chunks has a size out of range")
    return sizes


def decode_chunk_sizes(data: bytes, count: int) -> list[int]:
    """The `count` sizes in `transformedChunks`: their count, base, bytes a value, differences to the base of all but the last, and
    the last size in full; numbers are big-endian. Raises FormatError."""
    try:
        (listed_count,) = struct.unpack_from(">i", data)
        if listed_count != count:
            raise FormatError(f"lists {listed_count:,} chunks of a log with {count:,}")
        if count < 2:
            return list(struct.unpack_from(">i", data, 4)) if count else []
        base, width = struct.unpack_from(">ib", data, 4)
        end = 9 + (count - 1) * width
        if not 0 < width <= 4 or end + 4 != len(data):
            raise FormatError("its list of chunks is malformed")
        sizes = [base + int.from_bytes(data[at : at + width], "big") for at in range(9, end, width)]
        return [*sizes, *struct.unpack_from(">i", data, end)]
    except struct.error as error:
        raise FormatError("its list of chunks is cut short") from error


class _CompressedLog(ByteFile):
    """The log of a segment, put together from its chunks, each a zstd frame; the chunk read last is kept."""

    def __init__(self, file: ByteFile, path: str, chunks: "ChunkIndex", sizes: list[int]) -> None:
        self._file, self._path = file, path
        self.size_in_bytes = chunks.original_file_size
        self._chunk_size = chunks.original_chunk_size
        self._starts = [0, *accumulate(sizes)]
        self._kept: tuple[int, bytes] = (-1, b"")

    def read_at(self, position: int, size: int) -> bytes:
        """See ByteFile. Raises SourceError for a chunk that is damaged."""
        end = position + self.available(position, size)
        parts = []
        while position < end:
            number, inside = divmod(position, self._chunk_size)
            part = self._chunk(number)[inside : inside + end - position]
            parts.append(part)
            position += len(part)
        return b"".join(parts)

    def close(self) -> None:
        """See ByteFile."""
        self._file.close()

    def _chunk(self, number: int) -> bytes:
        kept, data = self._kept
        if kept == number:
            return data
        start, end = self._starts[number : number + 2]
        expected = min(self._chunk_size, self.size_in_bytes - number * self._chunk_size)
        place = f"chunk {number} at byte {start:,}"
        try:
            data = decompressed(self._file.read_at(start, end - start), expected)
        except FormatError as error:
            raise SourceError(self._path, f"{place}: {error}") from error
        if len(data) != expected:
            raise SourceError(self._path, f"{place}: has {len(data):,} bytes of {expected:,}")
        self._kept = number, data
        return data


AIVEN: Final = RemoteLayout(
    name="Aiven's tiered storage",
    objects=object_pattern(f"{_TOPIC}-(?P<topic_id>{UUID})/{PARTITION}", (LOG, INDEXES, MANIFEST)),
    directories=re.compile(f"{_TOPIC}-{UUID}"),
    partitions=re.compile(PARTITION),
    needed=(LOG, INDEXES, MANIFEST),
    part_opener=_PartOpener,
    describe=_describe,
)
