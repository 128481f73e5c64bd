"""Digests of the content of batches, by which copies are compared without their bytes.

For magic 2 a digest covers the records, from byte 61 to the end, compressed or not: it does not depend on offset, leader epoch,
producer, sequence or CRC. For magic 0 and 1 it covers everything after the magic byte: attributes, timestamp, key and value, or the
compressed messages.
"""

import hashlib
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.model.batches import BatchColumn, Damage
from kafka_forensics.model.constants import MAGIC_AT, RECORD_BATCH_OVERHEAD
from kafka_forensics.parsers.kernels.strong_content import DIGEST_BYTES, fill_strong_digests

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.storage.source import ByteFile

_READ_BYTES: Final = 16 << 20
"""Most bytes of a batch per read."""
_LEGACY_CONTENT: Final = MAGIC_AT + 1


def content_digest(batch: bytes | memoryview) -> bytes:
    """The digest of one batch, the same as from `ContentDigests` without a key."""
    content = memoryview(batch)[RECORD_BATCH_OVERHEAD if batch[MAGIC_AT] >= 2 else _LEGACY_CONTENT :]
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()


class ContentDigests:
    """Computes digests (BLAKE2b, 128 bits) as the inspector of a `SegmentReader`; `take` returns them after each chunk.

    Without a `key`, anyone with a digest can test guesses at the content.
    """

    def __init__(self, key: bytes = b"") -> None:
        self._key = key
        self._positions: list[NDArray[np.int64]] = []
        self._digests: list[NDArray[np.uint64]] = []

    def inspect(
        self, buffer: "NDArray[np.uint8]", buffer_position: int, columns: "NDArray[np.int64]", first_row: int, end_row: int
    ) -> list[Damage]:
        """Compute the digests of rows `[first_row, end_row)`, see `Inspector`; returns no damage."""
        rows = columns[:, first_row:end_row]
        is_new = rows[BatchColumn.MAGIC] >= 2
        begins = rows[BatchColumn.POSITION] - buffer_position
        starts = begins + (RECORD_BATCH_OVERHEAD if is_new.all() else np.where(is_new, RECORD_BATCH_OVERHEAD, _LEGACY_CONTENT))
        ends = begins + rows[BatchColumn.SIZE_IN_BYTES]
        digests = np.empty((rows.shape[1], DIGEST_BYTES // 8), np.int64)
        fill_strong_digests(buffer, starts, ends, self._key, digests)
        self._positions.append(rows[BatchColumn.POSITION].copy())
        self._digests.append(digests.view(np.uint64))
        return []

    def inspect_batch(self, file: "ByteFile", position: int, size: int) -> list[Damage]:
        """Compute the digest of one batch of `size` bytes at `position`, unless the file has become shorter; returns no damage.

        Reads at most 16 MiB at a time. Raises SourceError if the file cannot be read.
        """
        magic = file.read_at(position + MAGIC_AT, 1)
        header = RECORD_BATCH_OVERHEAD if magic >= b"\2" else _LEGACY_CONTENT
        buffer = np.empty(max(min(size - header, _READ_BYTES), 0), np.uint8)
        digest = hashlib.blake2b(digest_size=DIGEST_BYTES, key=self._key)
        for start in range(header, size, _READ_BYTES):
            part = buffer[: min(_READ_BYTES, size - start)].data
            if file.read_into(position + start, part) < len(part):
                return []
            digest.update(part)
        self._positions.append(np.array([position], np.int64))
        self._digests.append(np.frombuffer(digest.digest(), np.uint64).reshape(1, -1))
        return []

    def take(self, columns: "NDArray[np.int64]") -> "NDArray[np.uint64]":
        """The digests of a chunk's rows, (n, 2), each as two native words; zeros for batches without one.

        Call it for each chunk before the reader continues.
        """
        chunk_positions = columns[BatchColumn.POSITION]
        taken = np.zeros((len(chunk_positions), DIGEST_BYTES // 8), np.uint64)
        if self._positions:
            positions, digests = np.concatenate(self._positions), np.concatenate(self._digests)
            if np.array_equal(positions, chunk_positions):
                taken = digests
            else:
                order = np.argsort(positions, kind="stable")
                rows = order[np.minimum(np.searchsorted(positions, chunk_positions, sorter=order), len(positions) - 1)]
                has_digest = positions[rows] == chunk_positions
                taken[has_digest] = digests[rows[has_digest]]
        self._positions.clear()
        self._digests.clear()
        return taken
