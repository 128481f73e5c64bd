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
from kafka_forensics.parsers.kernels.content import WORD_BYTES, content_keys, digest_ranges, finished, polynomial
from kafka_forensics.parsers.kernels.records import readable
from kafka_forensics.parsers.kernels.strong_content import DIGEST_BYTES as _UNKEYED_BYTES
from kafka_forensics.parsers.kernels.strong_content import fill_strong_digests

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.storage.source import ByteFile

_PIECE_BYTES: Final = (16 << 20) // WORD_BYTES * WORD_BYTES
"""Most bytes of a batch that are read at once by themselves; whole words."""
_MAGIC_POSITION: Final = 16
_LEGACY_CONTENT: Final = 17
_KEYED_BYTES: Final = 8


def content_digest(batch: bytes | memoryview, key: bytes | None) -> bytes:
    """The digest of one batch, as `ContentDigests` takes it."""
    content = memoryview(batch)[RECORD_BATCH_OVERHEAD if batch[_MAGIC_POSITION] >= 2 else _LEGACY_CONTENT :]
    if key is None:
        return hashlib.blake2b(content, digest_size=_UNKEYED_BYTES).digest()
    keys = content_keys(key)
    value = polynomial(readable(content), 0, len(content), keys, 0)
    return np.int64(finished(value, len(content), keys)).tobytes()


def digest_size(*, is_keyed: bool) -> int:
    """Bytes of a digest, with a key or without."""
    return _KEYED_BYTES if is_keyed else _UNKEYED_BYTES


class ContentDigests:
    """Takes the digests of batches as a `SegmentReader` passes them, and gives them chunk by chunk, see `take`.

    With a `key` of 32 secret bytes they are of 64 bits, under which contents that somebody writes who does not know it collide with
    a probability of one in 2^61 for each seven bytes; without one they are BLAKE2b, of 128 bits.
    """

    def __init__(self, key: bytes | None) -> None:
        self._keys = None if key is None else content_keys(key)
        self._positions: list[NDArray[np.int64]] = []
        self._digests: list[NDArray[np.uint64]] = []

    @property
    def width(self) -> int:
        """Bytes of a digest: 8 or 16."""
        return digest_size(is_keyed=self._keys is not None)

    def inspect(
        self, buffer: "NDArray[np.uint8]", buffer_position: int, columns: "NDArray[np.int64]", first_row: int, end_row: int
    ) -> list[Damage]:
        """Take the batches of rows `[first_row, end_row)`, see `Inspector`. There is no damage to be told."""
        rows = columns[:, first_row:end_row]
        is_new = rows[BatchColumn.MAGIC] >= 2
        begins = rows[BatchColumn.POSITION] - buffer_position
        starts = begins + (RECORD_BATCH_OVERHEAD if is_new.all() else np.where(is_new, RECORD_BATCH_OVERHEAD, _LEGACY_CONTENT))
        ends = begins + rows[BatchColumn.SIZE_IN_BYTES]
        digests = np.empty((rows.shape[1], self.width // 8), np.int64)
        if self._keys is not None:
            digest_ranges(buffer, starts, ends, self._keys, digests[:, 0])
        else:
            fill_strong_digests(buffer, starts, ends, digests)
        self._note(rows[BatchColumn.POSITION].copy(), digests)
        return []

    def alone(self, file: "ByteFile", position: int, size: int) -> list[Damage]:
        """Take the batch of `size` bytes at `position` by itself, in pieces of at most 16 MiB; none if the file has become shorter.

        Raises SourceError if it cannot be read.
        """
        magic = file.read_at(position + _MAGIC_POSITION, 1)
        header = RECORD_BATCH_OVERHEAD if magic >= b"\2" else _LEGACY_CONTENT
        buffer = np.empty(max(min(size - header, _PIECE_BYTES), 0), np.uint8)
        value, strong = 0, hashlib.blake2b(digest_size=_UNKEYED_BYTES)
        for start in range(header, size, _PIECE_BYTES):
            wanted = min(_PIECE_BYTES, size - start)
            if file.read_into(position + start, buffer[:wanted].data) < wanted:
                return []
            if self._keys is None:
                strong.update(buffer[:wanted].data)
            else:
                value = polynomial(buffer, 0, wanted, self._keys, value)
        keyed = self._keys is not None
        digest = np.int64(finished(value, size - header, self._keys)).tobytes() if keyed else strong.digest()
        self._note(np.array([position], np.int64), np.frombuffer(digest, np.int64).reshape(1, -1))
        return []

    def _note(self, positions: "NDArray[np.int64]", digests: "NDArray[np.int64]") -> None:
        self._positions.append(positions)
        self._digests.append(digests.view(np.uint64))

    def take(self, columns: "NDArray[np.int64]") -> "NDArray[np.uint64]":
        """The digests of a chunk's rows in their order, (n, 1) or (n, 2), and forget them; zeros for batches that were not taken.

        To be asked about each chunk that the reader gives, before the next. Two words are the digest's bytes as they lie.
        """
        wanted = columns[BatchColumn.POSITION]
        taken = np.zeros((len(wanted), self.width // 8), np.uint64)
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
