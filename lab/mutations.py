"""Breaks segments on purpose, and writes the two oldest message formats.

It uses none of the package's parsers and writers, so that tests do not check code against itself.
"""

import gzip
import struct
import zlib
from typing import Final

import google_crc32c

LOG_OVERHEAD: Final = 12
NONE_TIMESTAMP: Final = -1
GZIP: Final = 1


def batch_ranges(data: bytes) -> list[tuple[int, int]]:
    """(start, end) of each whole batch of a sound segment."""
    ranges = []
    position = 0
    while position + LOG_OVERHEAD <= len(data):
        (batch_length,) = struct.unpack_from(">i", data, position + 8)
        end = position + LOG_OVERHEAD + batch_length
        if batch_length <= 0 or end > len(data):
            break
        ranges.append((position, end))
        position = end
    return ranges


def patched(data: bytes, position: int, patch: bytes) -> bytes:
    """`data` with the bytes at `position` replaced by `patch`."""
    return data[:position] + patch + data[position + len(patch) :]


def in_batch(data: bytes, number: int, position: int, patch: bytes, *, sealed: bool = False) -> bytes:
    """Patch batch `number` (from 0) at `position` within it; `sealed` corrects its CRC. Raises IndexError."""
    start, end = batch_ranges(data)[number]
    batch = patched(data[start:end], position, patch)
    if sealed:
        batch = patched(batch, 17, struct.pack(">I", google_crc32c.value(batch[21:])))
    return data[:start] + batch + data[end:]


def message(
    offset: int, magic: int, key: bytes | None, value: bytes | None, *, timestamp: int = NONE_TIMESTAMP, attributes: int = 0
) -> bytes:
    """One entry of a message set, magic 0 or 1."""
    body = struct.pack(">bb", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", timestamp)
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def gzip_message(first_offset: int, magic: int, values: list[bytes], *, timestamp: int = NONE_TIMESTAMP) -> bytes:
    """A gzip wrapper around one message per value; inner offsets are absolute in magic 0, relative in magic 1."""
    inner = b"".join(
        message(number if magic == 1 else first_offset + number, magic, b"%d" % number, value, timestamp=timestamp + number)
        for number, value in enumerate(values)
    )
    packed = gzip.compress(inner, mtime=0)
    return message(first_offset + len(values) - 1, magic, None, packed, timestamp=timestamp + len(values) - 1, attributes=GZIP)


def legacy_log(magic: int) -> bytes:
    """A small segment of magic 0 or 1: plain messages, one without a key, one without a value, and a gzip wrapper."""
    timestamp = 1_500_000_000_000 if magic == 1 else NONE_TIMESTAMP
    plain = [(b"key", b"value"), (None, b"no key"), (b"no value", None), (b"", b"")]
    entries = [message(offset, magic, key, value, timestamp=timestamp) for offset, (key, value) in enumerate(plain)]
    return b"".join(entries) + gzip_message(len(plain), magic, [b"first", b"second", b"third"], timestamp=timestamp)
