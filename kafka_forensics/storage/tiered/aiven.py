"""Aiven's tiered-storage-for-apache-kafka: the log in chunks, all indexes in one object, and a manifest that describes both.

Source: ObjectKeyFactory, SegmentManifestV1, SegmentIndexesV1, ChunkSizesBinaryCodec and the chunk indexes of the plugin.
"""

import re
import struct
from base64 import b64decode
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from kafka_forensics.errors import FormatError, SourceError
from kafka_forensics.model.constants import INT64_MAX, MAX_INT32
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.remote_log import RemoteSegment, RemoteSegmentState
from kafka_forensics.storage.bundles import decompressed
from kafka_forensics.storage.source import ByteFile, BytesFile, ByteSource
from kafka_forensics.storage.tiered.layout import PARTITION, TOPIC, UUID, RemoteLayout, RemotePart, object_pattern

if TYPE_CHECKING:
    from kafka_forensics.storage.tiered.aiven_manifest import ChunkIndex, SegmentManifest

LOG: Final = "log"
INDEXES: Final = "indexes"
MANIFEST: Final = "rsm-manifest"
_MAX_MANIFEST_BYTES: Final = 16 << 20
_MAX_CHUNK_BYTES: Final = 64 << 20
"""The plugin's default is 4 MiB."""
_MAX_INDEX_BYTES: Final = 64 << 20
_MAX_CHUNKS: Final = 1 << 20
_UUID_CHARACTERS: Final = 22


def read_manifest(source: ByteSource, stem: str) -> "SegmentManifest":
    """The manifest of a segment. Raises SourceError if it is missing, unreadable or not a manifest."""
    from kafka_forensics.storage.tiered.aiven_manifest import parse_manifest

    path = f"{stem}.{MANIFEST}"
    with source.open(path) as file:
        if file.size_in_bytes > _MAX_MANIFEST_BYTES:
            raise SourceError(path, f"a manifest of more than {_MAX_MANIFEST_BYTES:,} bytes is not read")
        data = file.read_at(0, file.size_in_bytes)
    try:
        return parse_manifest(data)
    except FormatError as error:
        raise SourceError(path, str(error)) from error


def _open_part(source: ByteSource, stem: str, part: RemotePart) -> ByteFile:
    manifest = read_manifest(source, stem)
    if manifest.encryption is not None:
        raise SourceError(f"{stem}.{LOG}", "encrypted by the plugin: it can be read only with the plugin's key ring")
    if part is RemotePart.LOG:
        return _ChunkedLog(source.open(f"{stem}.{LOG}"), f"{stem}.{LOG}", manifest)
    index = manifest.segment_indexes.of(part)
    if index is None:
        raise SourceError(f"{stem}.{INDEXES}", f"holds no {part.value} of this segment")
    if index.size > _MAX_INDEX_BYTES:
        raise SourceError(f"{stem}.{INDEXES}", f"a {part.value} of {index.size:,} bytes is not read")
    with source.open(f"{stem}.{INDEXES}") as file:
        data = file.read_at(index.position, index.size)
    if len(data) < index.size:
        raise SourceError(f"{stem}.{INDEXES}", f"ends inside its {part.value}")
    return BytesFile(data)


def _describe(source: ByteSource, stem: str) -> RemoteSegment | None:
    """The segment by its manifest; None for one without the broker's metadata, or with metadata that brokers refuse."""
    manifest = read_manifest(source, stem)
    metadata, indexes = manifest.remote_log_segment_metadata, manifest.segment_indexes
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
    """Sizes of the chunks in the `.log` object. Raises FormatError if they contradict the original size."""
    count = -(-chunks.original_file_size // chunks.original_chunk_size)
    if count > _MAX_CHUNKS:
        raise FormatError(f"a log of {count:,} chunks is not read")
    if chunks.type == "fixed":
        last = [chunks.final_transformed_chunk_size] if count else []
        return [chunks.transformed_chunk_size] * (count - 1) + last
    try:
        sizes = decode_chunk_sizes(b64decode(chunks.transformed_chunks, validate=True))
    except ValueError as error:
        raise FormatError("its list of chunks is not base64") from error
    if len(sizes) != count:
        raise FormatError(f"lists {len(sizes)} chunks of a log that has {count}")
    return sizes


def decode_chunk_sizes(data: bytes) -> list[int]:
    """The sizes in `transformedChunks`: count, base, bytes a value, differences to the base, and the last size in full; numbers are
    big-endian. Raises FormatError."""
    try:
        (count,) = struct.unpack_from(">i", data)
        if count < 2:
            return list(struct.unpack_from(">i", data, 4)) if count == 1 else []
        base, width = struct.unpack_from(">ib", data, 4)
        end = 9 + (count - 1) * width
        (last,) = struct.unpack_from(">i", data, end)
    except struct.error as error:
        raise FormatError("its list of chunks is cut short") from error
    if not 0 < width <= 4 or end + 4 != len(data):
        raise FormatError("its list of chunks is malformed")
    return [*(base + int.from_bytes(data[at : at + width], "big") for at in range(9, end, width)), last]


class _ChunkedLog(ByteFile):
    """The log of a segment, put together from its chunks; the chunk read last is kept."""

    def __init__(self, file: ByteFile, path: str, manifest: "SegmentManifest") -> None:
        chunks = manifest.chunk_index
        self._file, self._path, self._is_compressed = file, path, manifest.compression
        if chunks.original_chunk_size > _MAX_CHUNK_BYTES:
            raise SourceError(path, f"chunks of {chunks.original_chunk_size:,} bytes are not read")
        try:
            sizes = transformed_sizes(chunks)
        except FormatError as error:
            raise SourceError(path, str(error)) from error
        if min(sizes, default=0) < 0 or (sum(sizes) != file.size_in_bytes):
            raise SourceError(path, f"has {file.size_in_bytes:,} bytes, and {sum(sizes):,} by its manifest")
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
        if self._kept[0] == number:
            return self._kept[1]
        start, size = self._starts[number], self._starts[number + 1] - self._starts[number]
        expected = min(self._chunk_size, self.size_in_bytes - number * self._chunk_size)
        data = self._file.read_at(start, size)
        try:
            if self._is_compressed:
                data = decompressed(data, expected)
        except FormatError as error:
            raise SourceError(self._path, f"chunk {number} at byte {start:,}: {error}") from error
        if len(data) != expected:
            raise SourceError(self._path, f"chunk {number} at byte {start:,} holds {len(data):,} bytes of {expected:,}")
        self._kept = number, data
        return data


AIVEN: Final = RemoteLayout(
    name="Aiven's tiered storage",
    objects=object_pattern(f"{TOPIC}-(?P<topic_id>{UUID})/{PARTITION}", (LOG, INDEXES, MANIFEST)),
    directories=re.compile(f"{TOPIC}-{UUID}"),
    log_suffix=LOG,
    needed=(LOG, INDEXES, MANIFEST),
    is_plain=False,
    open_part=_open_part,
    describe=_describe,
)
