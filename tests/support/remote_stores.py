"""Remote stores of tiered topics for tests, in the layouts of LocalTieredStorage and of Aiven's plugin.

Written from the formats' descriptions and the plugins' sources (RemoteLogSegmentFileset; ObjectKeyFactory, SegmentManifestV1,
SegmentIndexesV1, ChunkSizesBinaryCodec), without the package's reader. A store is a folder:

    segment = TieredSegment("topic", TOPIC_ID, 0, SEGMENT_ID, start_offset=0, log=batch(0))
    put_local(folder / "kafka-tiered-storage", segment)  # LocalTieredStorage's objects
    put_aiven(folder / "aiven", segment, compression=True, prefix="some/prefix/")  # the same in the plugin's layout
    to_aiven(folder / "kafka-tiered-storage", folder / "aiven")  # all segments of a LocalTieredStorage store, also a real one
"""

import json
import re
import struct
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

EMPTY_SNAPSHOT: Final = struct.pack(">hIi", 1, 0x48674BC7, 0)
"""A producer snapshot without producers: version, CRC-32C of what follows, count."""
_DIRECTORY: Final = re.compile(r"(.+)-([0-9]+)-(.{22})", re.DOTALL)
_FILE: Final = re.compile(r"([0-9]{20})-(.{22})\.(log|index|timeindex|txnindex|leader_epoch_checkpoint|snapshot)")


def kafka_id(*parts: object) -> str:
    """An id as Kafka writes them, made from these values: 16 bytes in base64url without padding."""
    return urlsafe_b64encode(blake2b(repr(parts).encode(), digest_size=16).digest()).decode().rstrip("=")


@dataclass(frozen=True)
class TieredSegment:
    """A segment with all that a broker copies of it; only the names and the log are needed."""

    topic: str
    topic_id: str
    partition: int
    segment_id: str
    start_offset: int
    log: bytes
    index: bytes = b""
    timeindex: bytes = b""
    snapshot: bytes = EMPTY_SNAPSHOT
    leader_epoch_checkpoint: bytes = b"0\n1\n0 0\n"
    txnindex: bytes | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    """What else `remoteLogSegmentMetadata` of the manifest says: `endOffset`, `maxTimestampMs`, `segmentLeaderEpochs`, ..."""

    @property
    def parts(self) -> dict[str, bytes]:
        """The content of its objects by suffix, as LocalTieredStorage keeps them."""
        parts = {"log": self.log, "index": self.index, "timeindex": self.timeindex, "snapshot": self.snapshot}
        parts["leader_epoch_checkpoint"] = self.leader_epoch_checkpoint
        return parts if self.txnindex is None else parts | {"txnindex": self.txnindex}

    @property
    def name(self) -> str:
        """Of its objects, without the suffix."""
        return f"{self.start_offset:020d}-{self.segment_id}"

    @property
    def local_directory(self) -> str:
        """Of its objects in LocalTieredStorage."""
        return f"{self.topic}-{self.partition}-{self.topic_id}"

    @property
    def aiven_directory(self) -> str:
        """Of its objects in the plugin's layout, without the prefix."""
        return f"{self.topic}-{self.topic_id}/{self.partition}"


def put_local(store: Path, segment: TieredSegment) -> Path:
    """Write a segment's objects into a folder in LocalTieredStorage's layout; the path of its `.log`."""
    directory = store / segment.local_directory
    directory.mkdir(parents=True, exist_ok=True)
    for suffix, content in segment.parts.items():
        (directory / f"{segment.name}.{suffix}").write_bytes(content)
    return directory / f"{segment.name}.log"


def local_segments(store: Path) -> Iterator[TieredSegment]:
    """The segments of a store in LocalTieredStorage's layout, by partition and start offset; without those that lack a `.log`."""
    for directory in sorted(store.iterdir()):
        named = _DIRECTORY.fullmatch(directory.name)
        found: dict[tuple[int, str], dict[str, bytes]] = {}
        for path in sorted(directory.iterdir()) if named else ():
            if match := _FILE.fullmatch(path.name):
                found.setdefault((int(match[1]), match[2]), {})[match[3]] = path.read_bytes()
        for (start_offset, segment_id), parts in found.items():
            if named and "log" in parts:
                given: dict[str, Any] = parts
                yield TieredSegment(named[1], named[3], int(named[2]), segment_id, start_offset, **given)


def put_aiven(
    store: Path,
    segment: TieredSegment,
    *,
    chunk_size: int = 4 << 20,
    compression: bool = False,
    encrypted: bool = False,
    prefix: str = "",
    change: Callable[[dict[str, Any]], Any] = lambda manifest: manifest,
) -> Path:
    """Write a segment's objects into a folder in the layout of Aiven's plugin; the path of its `.log`.

    Without compression the chunk index is `fixed`, with it `variable`. `encrypted` bytes are noise of the right sizes. `prefix` is
    the plugin's `key.prefix`, to which it adds no `/`. `change` may replace the manifest before it is written.
    """
    stem = store / f"{prefix}{segment.aiven_directory}/{segment.name}"
    stem.parent.mkdir(parents=True, exist_ok=True)
    chunks = [segment.log[start : start + chunk_size] for start in range(0, len(segment.log), chunk_size)] or [b""]
    stored = [_transformed(chunk, compression=compression, encrypted=encrypted) for chunk in chunks]
    places, indexes = _indexes(segment, encrypted=encrypted)
    manifest = {
        "version": "1",
        "chunkIndex": chunk_index(chunk_size, len(segment.log), [len(chunk) for chunk in stored], variable=compression),
        "segmentIndexes": places,
        "compression": compression,
        **({"encryption": {"dataKey": "key1:" + _base64(b"k" * 256), "aad": _base64(b"a" * 32)}} if encrypted else {}),
        "remoteLogSegmentMetadata": _metadata(segment),
    }
    Path(f"{stem}.log").write_bytes(b"".join(stored))
    Path(f"{stem}.indexes").write_bytes(indexes)
    Path(f"{stem}.rsm-manifest").write_text(json.dumps(change(manifest), separators=(",", ":")))
    return Path(f"{stem}.log")


def to_aiven(local_store: Path, store: Path, **options: Any) -> None:
    """Write all segments of a store in LocalTieredStorage's layout in that of Aiven's plugin; options as for `put_aiven`."""
    for segment in local_segments(local_store):
        put_aiven(store, segment, **options)


def chunk_index(chunk_size: int, file_size: int, transformed_sizes: list[int], *, variable: bool) -> dict[str, Any]:
    """The `chunkIndex` of a manifest; one that is not `variable` has chunks of one size, but for the last."""
    index: dict[str, Any] = {"type": "variable" if variable else "fixed", "originalChunkSize": chunk_size}
    index["originalFileSize"] = file_size
    if variable:
        return index | {"transformedChunks": _base64(encode_sizes(transformed_sizes))}
    first, last = transformed_sizes[0], transformed_sizes[-1]
    return index | {"transformedChunkSize": first if len(transformed_sizes) > 1 else chunk_size, "finalTransformedChunkSize": last}


def encode_sizes(sizes: list[int]) -> bytes:
    """Sizes of chunks as in `transformedChunks`: count, then base, bytes per value, differences to the base, the last in full."""
    if len(sizes) < 2:
        return struct.pack(f">i{len(sizes)}i", len(sizes), *sizes)
    base = min(sizes[:-1])
    width = max(1, -(-(max(sizes[:-1]) - base).bit_length() // 8))
    differences = b"".join((size - base).to_bytes(width, "big") for size in sizes[:-1])
    return struct.pack(">iib", len(sizes), base, width) + differences + struct.pack(">i", sizes[-1])


def _indexes(segment: TieredSegment, *, encrypted: bool) -> tuple[dict[str, dict[str, int] | None], bytes]:
    """(`segmentIndexes` of the manifest, bytes of the `.indexes` object): in the plugin's order, never compressed."""
    parts = {
        "offset": segment.index,
        "timestamp": segment.timeindex,
        "producerSnapshot": segment.snapshot,
        "leaderEpoch": segment.leader_epoch_checkpoint,
        "transaction": segment.txnindex,
    }
    places: dict[str, dict[str, int] | None] = {}
    indexes = b""
    for name, part in parts.items():
        stored = None if part is None else _transformed(part, compression=False, encrypted=encrypted and part != b"")
        places[name] = None if stored is None else {"position": len(indexes), "size": len(stored)}
        indexes += stored or b""
    return places, indexes


def _transformed(chunk: bytes, *, compression: bool, encrypted: bool) -> bytes:
    """A chunk as it is stored: a zstd frame, 28 bytes larger if encrypted (12 of the IV in front, 16 of the tag behind)."""
    data = pa.compress(chunk, codec="zstd", asbytes=True) if compression else chunk
    if not encrypted:
        return data
    return b"".join(blake2b(struct.pack(">q", number)).digest() for number in range((len(data) + 28) // 64 + 1))[: len(data) + 28]


def _metadata(segment: TieredSegment) -> dict[str, Any]:
    partition = {"topic": segment.topic, "partition": segment.partition}
    return {
        "remoteLogSegmentId": {
            "topicIdPartition": {"topicId": segment.topic_id, "topicPartition": partition},
            "id": segment.segment_id,
        },
        "startOffset": segment.start_offset,
        "endOffset": segment.start_offset,
        "maxTimestampMs": -1,
        "brokerId": 1,
        "eventTimestampMs": 0,
        "segmentLeaderEpochs": {"0": segment.start_offset},
    } | segment.metadata


def _base64(data: bytes) -> str:
    return b64encode(data).decode()
