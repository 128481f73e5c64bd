"""Bytes made to waste a reader's time: all bytes are accounted for, and the work is proportional to the size."""

import random
import struct
import time
from collections.abc import Callable

import pytest

from kafka_forensics.parsers.log import damage
from tests.support.kernels import kernels
from tests.support.memory import MemoryFile
from tests.support.segments import batch, legacy_entry, read

MEBIBYTE = 1 << 20
SECONDS = 20
"""Limit of processor time; a read takes a fraction of a second."""


def header(size: int, base_offset: int) -> bytes:
    """A plausible magic 2 header of a batch of `size` bytes, with a wrong CRC."""
    return struct.pack(">qi", base_offset, size - 12) + batch(base_offset)[12:61]


def headers_between_good_batches(size: int) -> bytes:
    """Pairs of good batches, and between them headers of batches that extend to the end of the file."""
    parts, position, offset = [], 0, 1
    while position < size:
        pair = batch(offset) + batch(offset + 1)
        parts += [pair, header(max(61, size - position - len(pair)), offset + 2)]
        position += len(pair) + 61
        offset += 3
    return b"".join(parts)


def legacy_headers(size: int) -> bytes:
    entry = struct.pack(">qiIbb", 5, 100, 1, 1, 0) + bytes(82)
    return entry * (size // len(entry))


def overlapping_headers(size: int) -> bytes:
    """Bytes in which nearly every position could begin an entry of magic 0."""
    return (b"\0" * 10 + b"\x01\0" + bytes(4) + b"\0\0") * (size // 18)


HOSTILE: dict[str, Callable[[int], bytes]] = {
    "random": lambda size: random.Random(1).randbytes(size),
    "random after a batch": lambda size: batch(0) + random.Random(2).randbytes(size),
    "small headers": lambda size: b"".join(header(61, 10 + n) for n in range(size // 61)),
    "headers that reach the end": lambda size: b"".join(header(max(61, size - 61 * n), 10 + n) for n in range(size // 61)),
    "headers between good batches": headers_between_good_batches,
    "legacy headers": legacy_headers,
    "overlapping headers": overlapping_headers,
    "ones": lambda size: b"\xff" * size,
    "ones after a batch": lambda size: batch(0) + b"\xff" * size,
    "zeros that do not reach the end": lambda size: batch(0) + bytes(size) + b"\x01",
    "small batches": lambda size: b"".join(batch(n) for n in range(size // 80)),
    "small legacy entries": lambda size: b"".join(legacy_entry(n, 0, value=b"") for n in range(size // 40)),
    "the same batch": lambda size: batch(7) * (size // 80),
}


@pytest.mark.parametrize(
    ("name", "compiled"),
    [*((name, False) for name in HOSTILE), ("random", True), ("small headers", True), ("legacy headers", True)],
)
def test_a_mebibyte_of_malice_is_read_in_bounded_time(name: str, compiled: bool) -> None:
    data = HOSTILE[name](MEBIBYTE)
    started = time.process_time()
    with kernels(compiled=compiled):
        reading = read(data)
    assert time.process_time() - started < SECONDS
    assert reading.end_position == reading.total == len(data)


@pytest.mark.parametrize("name", HOSTILE)
def test_bytes_are_read_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """With small windows, looking at a byte twice reads it twice; a search may always spend its first budget."""
    monkeypatch.setattr(damage, "WINDOW_BYTES", 4096)
    monkeypatch.setattr(damage, "VAIN_CRC_BYTES_PER_BYTE", 2)
    monkeypatch.setattr(damage, "FIRST_BUDGET_BYTES", 8 * MEBIBYTE)
    data = HOSTILE[name](40_000)
    file = MemoryFile(data)
    assert read(file).end_position == len(data)
    assert file.bytes_read <= damage.FIRST_BUDGET_BYTES + 8 * (len(data) + MEBIBYTE)
    assert file.furthest_byte <= len(data)


def test_a_length_is_not_allocated_before_its_bytes_exist() -> None:
    data = batch(0) + header(2**31 - 1, 1) + bytes(100) + b"\x01"
    file = MemoryFile(data)
    assert read(file).kinds == ["SEG_TORN_TAIL"]
    assert file.bytes_read <= 5 * len(data)
