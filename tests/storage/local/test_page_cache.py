"""Reading does not change which pages are cached, on a real disk."""

import ctypes
import errno
import logging
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import Mock, patch

import pytest
from hypothesis import given, settings, strategies as st

from kafka_forensics.storage import page_cache
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.storage.page_cache import PAGE_BYTES, PageCache

PAGES = 96
SIZE = PAGES * PAGE_BYTES - 1000
CONTENT = bytes(range(251)) * (SIZE // 251 + 1)
Reading = Callable[[LocalSource], None]


def resident(path: Path) -> set[int]:
    """The cached pages of a file, by mincore."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        flags = (ctypes.c_ubyte * -(-len(mapped) // PAGE_BYTES))()
        start = ctypes.c_char.from_buffer(mapped)
        failed = ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(len(mapped)), flags)
        del start
    assert not failed
    return {page for page, flag in enumerate(flags) if flag & 1}


def set_cached_pages(path: Path, pages: set[int]) -> None:
    """Make exactly these pages of a file cached."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        for page in pages:
            os.pread(descriptor, 1, page * PAGE_BYTES)
    finally:
        os.close(descriptor)
    assert resident(path) == pages


@pytest.fixture(scope="module")
def on_disk() -> Iterator[Path]:
    """A file on a file system whose pages can be dropped: the temporary directory's, or the repository's."""
    for directory in (None, Path(__file__).parent):
        with TemporaryDirectory(dir=directory) as folder:
            path = Path(folder) / "file"
            path.write_bytes(CONTENT[:SIZE])
            descriptor = os.open(path, os.O_RDWR)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
            if not resident(path):
                yield path
                return
    pytest.fail("no pages can be dropped: neither the temporary directory nor the repository is on a disk")


def uncached_source(path: Path) -> LocalSource:
    source = LocalSource(str(path))
    source.page_cache = PageCache()
    return source


def read_whole(source: LocalSource) -> None:
    with source.open("") as file:
        assert file.read_at(0, 10 * SIZE) == CONTENT[:SIZE]


def read_in_windows(source: LocalSource) -> None:
    """Read ranges that start and end within pages, and reach beyond the end."""
    read = bytearray()
    buffer = memoryview(bytearray(3 * PAGE_BYTES + 123))
    with source.open("") as file:
        while count := file.read_into(len(read), buffer):
            read += buffer[:count]
        assert file.read_into(SIZE + PAGE_BYTES, buffer) == 0
        assert file.read_at(SIZE + 3 * PAGE_BYTES, 5) == b""
    assert read == CONTENT[:SIZE]


BOTH = pytest.mark.parametrize("read", [read_whole, read_in_windows])


@settings(max_examples=30, deadline=None)
@given(pages=st.sets(st.integers(0, PAGES - 1)), start=st.integers(0, SIZE), size=st.integers(0, SIZE))
def test_a_read_of_any_range_keeps_the_cached_pages(on_disk: Path, pages: set[int], start: int, size: int) -> None:
    set_cached_pages(on_disk, pages)
    with uncached_source(on_disk).open("") as file:
        assert file.read_at(start, size) == CONTENT[start : min(start + size, SIZE)]
    assert resident(on_disk) == pages


def test_pages_are_dropped_while_a_file_is_read(on_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "MAX_ADDED_BYTES", 8 * PAGE_BYTES)
    set_cached_pages(on_disk, set())
    with uncached_source(on_disk).open("") as file:
        for page in range(PAGES):
            file.read_at(page * PAGE_BYTES, PAGE_BYTES)
            assert len(resident(on_disk)) <= 8
    assert resident(on_disk) == set()


def test_an_unclosed_file_drops_its_pages_when_it_is_deleted(on_disk: Path) -> None:
    set_cached_pages(on_disk, {1})
    uncached_source(on_disk).open("").read_at(0, SIZE)
    assert resident(on_disk) == {1}


def test_holes_are_not_cached(on_disk: Path) -> None:
    sparse = on_disk.with_name("sparse")
    with sparse.open("wb") as file:
        file.write(b"x" * PAGE_BYTES)
        file.truncate(16 * PAGE_BYTES)
    set_cached_pages(sparse, {0})
    with uncached_source(sparse).open("") as file:
        assert file.data_ranges() == [(0, PAGE_BYTES)]
        assert file.read_at(0, 16 * PAGE_BYTES) == b"x" * PAGE_BYTES + bytes(15 * PAGE_BYTES)
    assert resident(sparse) == {0}


def without_cachestat(monkeypatch: pytest.MonkeyPatch, *, nowait: bool) -> None:
    """Simulate a system without cachestat, and with `nowait` a file system without RWF_NOWAIT."""

    def unknown(*_: object) -> int:
        ctypes.set_errno(errno.ENOSYS)
        return -1

    def begin(self: page_cache._Cachestat) -> None:
        counting(self)
        monkeypatch.setattr(self, "_call", unknown)

    counting = page_cache._Cachestat.__init__
    monkeypatch.setattr(page_cache._Cachestat, "__init__", begin)
    if nowait:
        monkeypatch.setattr(page_cache, "_read_cached", Mock(side_effect=OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))))


@BOTH
def test_cached_pages_stay_without_cachestat(
    read: Reading, on_disk: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A page that is read ahead before the check counts as cached and stays; on a fast disk these may be all."""
    caplog.set_level(logging.INFO)
    without_cachestat(monkeypatch, nowait=False)
    missing = set[int]()
    unpatched = page_cache._NowaitReads.missing

    def record_missing(self: page_cache._NowaitReads, descriptor: int, first: int, end: int) -> page_cache.Ranges:
        ranges = unpatched(self, descriptor, first, end)
        missing.update(page for start, stop in ranges for page in range(start, stop))
        return ranges

    monkeypatch.setattr(page_cache._NowaitReads, "missing", record_missing)
    half = set(range(PAGES // 2))
    set_cached_pages(on_disk, half)
    read(uncached_source(on_disk))
    assert not missing & half
    assert resident(on_disk) == set(range(PAGES)) - missing
    assert caplog.messages == ["the page cache: RWF_NOWAIT reports its content; pages that were not in it before are dropped again"]


@given(cached=st.sets(st.integers(0, PAGES - 1)), start=st.integers(0, PAGES - 1))
def test_reads_that_do_not_wait_find_the_missing_pages(cached: set[int], start: int) -> None:
    def read_cached(_: int, page: int, buffer: memoryview) -> int:
        size = 0
        while size < len(buffer) and page + size // PAGE_BYTES in cached:
            size += PAGE_BYTES
        return min(size, len(buffer))

    with patch.object(page_cache, "_read_cached", read_cached):
        ranges = page_cache._NowaitReads().missing(-1, start, PAGES)
    assert [page for first, end in ranges for page in range(first, end)] == sorted(set(range(start, PAGES)) - cached)


@BOTH
def test_nothing_is_dropped_without_any_method(
    read: Reading, on_disk: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    without_cachestat(monkeypatch, nowait=True)
    set_cached_pages(on_disk, set())
    read(uncached_source(on_disk))
    assert resident(on_disk) == set(range(PAGES))
    assert caplog.messages == ["the page cache: RWF_NOWAIT fails here (Operation not supported), so nothing is dropped from it"]
