"""The manifest of a segment in Aiven's layout (SegmentManifestV1), as JSON; imported only where one is read."""

from typing import Annotated, Final, Literal

import msgspec

from kafka_forensics.errors import FormatError
from kafka_forensics.storage.tiered.layout import RemotePart

Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)]
Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Size = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
"""Java's integers; a manifest with a larger number is none."""


class ChunkIndex(msgspec.Struct, rename="camel"):
    """How the log is divided into chunks, and how large these are in the `.log` object."""

    type: Literal["fixed", "variable"]
    original_chunk_size: Annotated[int, msgspec.Meta(gt=0, lt=1 << 31)]
    original_file_size: Size
    transformed_chunk_size: Size = 0
    """If `fixed`, of all chunks but the last."""
    final_transformed_chunk_size: Size = 0
    transformed_chunks: str = ""
    """If `variable`: see `aiven.decode_chunk_sizes`, in base64."""


class IndexPlace(msgspec.Struct):
    """Bytes of one index in the `.indexes` object."""

    position: Size
    size: Size


class SegmentIndexes(msgspec.Struct, rename="camel"):
    """Places of all indexes of a segment."""

    offset: IndexPlace
    timestamp: IndexPlace
    producer_snapshot: IndexPlace
    leader_epoch: IndexPlace
    transaction: IndexPlace | None = None

    def of(self, part: RemotePart) -> IndexPlace | None:
        """The place of a part; None if the segment has no such index."""
        return {
            RemotePart.OFFSET_INDEX: self.offset,
            RemotePart.TIME_INDEX: self.timestamp,
            RemotePart.PRODUCER_SNAPSHOT: self.producer_snapshot,
            RemotePart.LEADER_EPOCHS: self.leader_epoch,
        }.get(part, self.transaction)


class Encryption(msgspec.Struct, rename="camel"):
    """The key of an encrypted segment, itself encrypted with a key of the plugin's ring."""

    data_key: str


class TopicPartitionName(msgspec.Struct):
    """A topic's name and a partition."""

    topic: str
    partition: Size


class TopicIdPartitionName(msgspec.Struct, rename="camel"):
    """The same with the topic's id."""

    topic_id: str
    topic_partition: TopicPartitionName


class SegmentName(msgspec.Struct, rename="camel"):
    """Partition and id of a segment."""

    topic_id_partition: TopicIdPartitionName
    id: str


class SegmentMetadata(msgspec.Struct, rename="camel"):
    """The broker's metadata of the segment when it was copied (RemoteLogSegmentMetadata)."""

    remote_log_segment_id: SegmentName
    start_offset: Int64
    end_offset: Int64
    max_timestamp_ms: Int64
    broker_id: Int32
    event_timestamp_ms: Int64
    segment_leader_epochs: dict[Int32, Int64]


class SegmentManifest(msgspec.Struct, rename="camel"):
    """The whole manifest; `remote_log_segment_metadata` is for `parse_metadata`, because bytes of parts are read without it."""

    version: Literal["1"]
    chunk_index: ChunkIndex
    segment_indexes: SegmentIndexes
    compression: bool
    encryption: Encryption | None = None
    remote_log_segment_metadata: msgspec.Raw = msgspec.Raw(b"null")


def parse_manifest(data: bytes) -> SegmentManifest:
    """The manifest in these bytes. Raises FormatError."""
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"not a manifest of a remote segment: {error}") from error


def parse_metadata(manifest: SegmentManifest) -> SegmentMetadata | None:
    """The broker's metadata of the segment; None in the oldest manifests. Raises FormatError."""
    try:
        return _METADATA_DECODER.decode(manifest.remote_log_segment_metadata)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"not the metadata of a remote segment: {error}") from error


_METADATA_DECODER: Final[msgspec.json.Decoder[SegmentMetadata | None]] = msgspec.json.Decoder(SegmentMetadata | None)
_DECODER: Final = msgspec.json.Decoder(SegmentManifest)
