"""Keys of some records, gathered while a deep scan looks into batches anyway."""

from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import COMPRESSION_MASK, CONTROL_MASK
from kafka_forensics.model.key_samples import KEY_SAMPLE_COLUMNS
from kafka_forensics.model.records import RECORD_COLUMNS
from kafka_forensics.parsers.kernels.partitioners import MOST_OF_A_BATCH, is_sampled, room_for, sample_batches, sample_payload
from kafka_forensics.parsers.kernels.records import readable

if TYPE_CHECKING:
    from numpy.typing import NDArray

SAMPLED_BATCHES: Final = 1024
"""Batches of a log that are looked at, at most and about."""
LEAST_GRAIN: Final = 64
"""At most one batch is looked at for so many bytes of log."""
COMPRESSED_GRAINS: Final = 4
"""How many times more for a compressed one: each is looked at by itself, which costs more."""
MOST_FOR_ONE_MORE: Final = 32
"""Of a batch the first record is looked at, and one more for each so many it holds; for fewer in small logs."""
BYTES_FOR_EACH: Final = 2048
"""By one more for so many bytes of log, so that of a log of some kilobytes nearly every record is looked at."""


class KeySampler:
    """Looks at batches of a log of `log_bytes` bytes; which ones depends on nothing but that and where they stand in their file.

    Compressed messages of magic 0 and 1 are passed over.
    """

    def __init__(self, log_bytes: int) -> None:
        self._grain = max(LEAST_GRAIN, log_bytes // SAMPLED_BATCHES)
        self._every = min(max(log_bytes // BYTES_FOR_EACH, 1), MOST_FOR_ONE_MORE)
        self._scratch = np.empty((RECORD_COLUMNS, 1), np.int64)
        self._out = np.empty((KEY_SAMPLE_COLUMNS, MOST_OF_A_BATCH), np.int64)
        self._taken: list[NDArray[np.int64]] = []

    def plain(self, buffer: "NDArray[np.uint8]", position: int, columns: "NDArray[np.int64]", first: int, end: int) -> None:
        """Look at the uncompressed batches of rows `[first, end)`, whose bytes are in `buffer`, byte `position` of the file on."""
        room = room_for(columns[:, first:end], self._every)
        if self._out.shape[1] < room:
            self._out = np.empty((KEY_SAMPLE_COLUMNS, room), np.int64)
        written = sample_batches(
            readable(buffer), position, columns, first, end, self._grain, self._every, self._scratch, self._out
        )
        self._keep(int(written))

    def opened(self, columns: "NDArray[np.int64]", row: int, payload: bytes | memoryview) -> None:
        """Look at a batch that had to be opened, if it was a compressed one of records; `payload` is what it holds."""
        attributes = int(columns[BatchColumn.ATTRIBUTES, row])
        position, size = int(columns[BatchColumn.POSITION, row]), int(columns[BatchColumn.SIZE_IN_BYTES, row])
        of_records = attributes & COMPRESSION_MASK and not attributes & CONTROL_MASK and columns[BatchColumn.MAGIC, row] >= 2
        if of_records and is_sampled.interpreted(position, size, COMPRESSED_GRAINS * self._grain):
            view = readable(payload)
            self._keep(int(sample_payload(view, 0, len(payload), columns, row, self._every, self._scratch, self._out, 0)))

    def _keep(self, written: int) -> None:
        if written:
            self._taken.append(self._out[:, :written].copy())

    def take(self) -> "NDArray[np.int64]":
        """What was gathered since the last time, as a (KEY_SAMPLE_COLUMNS, n) matrix in order of the file; compressed ones after
        plain ones of the same stretch."""
        taken, self._taken = self._taken, []
        return np.concatenate([np.empty((KEY_SAMPLE_COLUMNS, 0), np.int64), *taken], axis=1)
