"""A sliding window over a file of evidence: the bytes the kernels look at, and never many of them."""

from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.parsers.kernels.crc import crc32, crc32c

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.storage.source import ByteFile

WINDOW_BYTES: Final = 1 << 20
"""Bytes of an ordinary window: what a read brought is still in the core's cache when the CRC passes over it."""
MAX_WINDOW_BYTES: Final = 16 << 20
"""A batch larger than this is never held whole; its CRC is streamed."""


class Window:
    """Bytes `[position, position + length)` of `file` in `buffer`, which grows from `capacity` (1 MiB) to 16 MiB on demand."""

    def __init__(self, file: "ByteFile", capacity: int | None = None) -> None:
        self.file = file
        self.size = file.size_in_bytes
        self.buffer: NDArray[np.uint8] = np.empty(min(capacity or WINDOW_BYTES, max(self.size, 64)), np.uint8)
        self.position = 0
        self.length = 0

    def move(self, position: int, needed: int = 1) -> int:
        """Make the window begin at `position` and hold `needed` bytes or all up to the end of file; its length.

        A file that became shorter since it was opened ends where its bytes end: `size` is lowered.
        """
        needed = min(needed, MAX_WINDOW_BYTES, max(self.size - position, 0))
        if needed > self.buffer.size:
            grown = np.empty(min(MAX_WINDOW_BYTES, 1 << (needed - 1).bit_length()), np.uint8)
            grown[: self.length] = self.buffer[: self.length]
            self.buffer = grown
        kept = 0
        if self.position <= position < self.position + self.length:
            kept = self.position + self.length - position
            start = position - self.position
            if start:
                self.buffer[:kept] = self.buffer[start : start + kept].copy() if kept > start else self.buffer[start : start + kept]
        self.position = position
        self.length = kept
        want = min(self.buffer.size, self.size - position) - kept
        if want > 0:
            got = self.file.read_into(position + kept, self.buffer.data[kept : kept + want])
            self.length += got
            if got < want:
                self.size = position + self.length
        return self.length

    def crc(self, start: int, end: int, *, legacy: bool) -> int:
        """CRC of file bytes `[start, end)` streamed through the window: CRC-32 for magic 0 and 1, else CRC-32C."""
        crc = 0
        while start < end:
            length = min(self.move(start, 1), end - start)
            if length <= 0:
                break
            crc = crc32(self.buffer, 0, length, crc) if legacy else crc32c(self.buffer, 0, length, crc)
            start += length
        return crc

    def all_zero_from(self, position: int) -> bool:
        """Whether every byte from `position` to the end of the file is zero; holes are not read."""
        for start, end in self.file.data_ranges():
            start = max(start, position)
            while start < min(end, self.size):
                length = min(self.move(start, 1), end - start)
                if length <= 0 or self.buffer[:length].any():
                    return False
                start += length
        return True
