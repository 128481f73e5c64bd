"""Digests of what batches hold, by which copies are compared without their bytes.

A digest covers what stands behind a batch's header: of magic 2 the records from byte 61 to its end, compressed or not, so that it
depends on no offset, leader epoch, producer, sequence or CRC; of magic 0 and 1 what follows the magic, from byte 17 to the end: the
attributes, of magic 1 the timestamp, key and value with their lengths, or the compressed messages as the value of their wrapper.
"""

import hashlib
from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.model.batches import BatchColumn, Damage
from kafka_forensics.model.constants import RECORD_BATCH_OVERHEAD
from kafka_forensics.parsers.kernels.strong_content import DIGEST_BYTES, fill_strong_digests

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.storage.source import ByteFile

_PIECE_BYTES: Final = 16 << 20
"""Most bytes of a batch that are read at once by themselves."""
_MAGIC_POSITION: Final = 16
_LEGACY_CONTENT: Final = 17


def content_digest(batch: bytes | memoryview) -> bytes:
    """The digest of one batch, as `ContentDigests` takes it without a key."""
    content = memoryview(batch)[RECORD_BATCH_OVERHEAD if batch[_MAGIC_POSITION] >= 2 else _LEGACY_CONTENT :]
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()


class ContentDigests:
    """Takes the digests of batches as a `SegmentReader` passes them, and gives them chunk by chunk, see `take`.

    They are BLAKE2b of 128 bits. Without a `key` whoever has one can see whether a guess at the content is right.
    """

    def __init__(self, key: bytes = b"") -> None:
        self._key = key
        self._positions: list[NDArray[np.int64]] = []
        self._digests: list[NDArray[np.uint64]] = []

    def inspect(
        self, buffer: "NDArray[np.uint8]", buffer_position: int, columns: "NDArray[np.int64]", first_row: int, end_row: int
    ) -> list[Damage]:
        """Take the batches of rows `[first_row, end_row)`, see `Inspector`. There is no damage to be told."""
        rows = columns[:, first_row:end_row]
        is_new = rows[BatchColumn.MAGIC] >= 2
        begins = rows[BatchColumn.POSITION] - buffer_position
        starts = begins + (RECORD_BATCH_OVERHEAD if is_new.all() else np.where(is_new, RECORD_BATCH_OVERHEAD, _LEGACY_CONTENT))
        ends = begins + rows[BatchColumn.SIZE_IN_BYTES]
        digests = np.empty((rows.shape[1], DIGEST_BYTES // 8), np.int64)
        fill_strong_digests(buffer, starts, ends, self._key, digests)
        self._note(rows[BatchColumn.POSITION].copy(), digests)
        return []

    def alone(self, file: "ByteFile", position: int, size: int) -> list[Damage]:
        """Take the batch of `size` bytes at `position` by itself, in pieces of at most 16 MiB; none if the file has become shorter.

        Raises SourceError if it cannot be read.
        """
        magic = file.read_at(position + _MAGIC_POSITION, 1)
        header = RECORD_BATCH_OVERHEAD if magic >= b"\2" else _LEGACY_CONTENT
        buffer = np.empty(max(min(size - header, _PIECE_BYTES), 0), np.uint8)
        digest = hashlib.blake2b(digest_size=DIGEST_BYTES, key=self._key)
        for start in range(header, size, _PIECE_BYTES):
            wanted = min(_PIECE_BYTES, size - start)
            if file.read_into(position + start, buffer[:wanted].data) < wanted:
                return []
            digest.update(buffer[:wanted].data)
        self._note(np.array([position], np.int64), np.frombuffer(digest.digest(), np.int64).reshape(1, -1))
        return []

    def _note(self, positions: "NDArray[np.int64]", digests: "NDArray[np.int64]") -> None:
        self._positions.append(positions)
        self._digests.append(digests.view(np.uint64))

    def take(self, columns: "NDArray[np.int64]") -> "NDArray[np.uint64]":
        """The digests of a chunk's rows in their order, (n, 2), and forget them; zeros for batches that were not taken.

        To be asked about each chunk that the reader gives, before the next. Two words are the digest's bytes as they lie.
        """
        wanted = columns[BatchColumn.POSITION]
        taken = np.zeros((len(wanted), DIGEST_BYTES // 8), np.uint64)
        if self._positions:
            positions, digests = self._positions[0], self._digests[0]
            if len(self._positions) > 1:
                positions, digests = np.concatenate(self._positions), np.concatenate(self._digests)
            if np.array_equal(positions, wanted):
                taken = digests
            else:
                order = np.argsort(positions, kind="stable")
                rows = order[np.minimum(np.searchsorted(positions, wanted, sorter=order), len(positions) - 1)]
                known = positions[rows] == wanted
                taken[known] = digests[rows[known]]
        self._positions.clear()
        self._digests.clear()
        return taken
