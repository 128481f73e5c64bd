"""Ranged reads of an object give the same bytes in any order, with few requests and bounded memory."""

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest
from hypothesis import given, strategies as st

from kafka_forensics.errors import SourceError
from kafka_forensics.storage.remote.errors import RequestFailedError, RequestFailure
from kafka_forensics.storage.remote.file import (
    EDGE,
    ROOM,
    SMALL_OBJECT,
    SMALL_READ,
    EdgedObject,
    ObjectReader,
    RemoteFile,
    SmallObjects,
)

MIB = 1 << 20
CONTENT = random.Random(7).randbytes(5 * MIB + 4321)
BLOCK = 512 << 10
"""Smaller than the default, so that a file of some MiB has several blocks."""


class RecordedRequests:
    """An object that records (position, size) of every request; it was `more` bytes longer when it was opened."""

    def __init__(self, content: bytes = CONTENT, more: int = 0) -> None:
        self.content = content
        self.size_in_bytes = len(content) + more
        self.requests: list[tuple[int, int]] = []
        self.lock = threading.Lock()

    def fetch(self, position: int, size: int) -> bytes:
        with self.lock:
            self.requests.append((position, size))
        return self.content[position : position + size]

    def close(self) -> None:
        pass

    @property
    def bytes_requested(self) -> int:
        return sum(size for _, size in self.requests)


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def opened(requests: RecordedRequests, pool: ThreadPoolExecutor) -> RemoteFile:
    return RemoteFile("d/a.log", requests, pool, BLOCK)


def test_a_file_read_forwards_is_fetched_once_in_blocks(pool: ThreadPoolExecutor) -> None:
    requests = RecordedRequests()
    read = bytearray()
    with opened(requests, pool) as file:
        file.will_read(0, file.size_in_bytes)
        while piece := file.read_at(len(read), 100_000):
            read += piece
    assert read == CONTENT
    assert sorted(requests.requests) == [(at, min(BLOCK, len(CONTENT) - at)) for at in range(0, len(CONTENT), BLOCK)]


def test_only_the_announced_range_is_fetched(pool: ThreadPoolExecutor) -> None:
    requests = RecordedRequests()
    start, end = MIB + 17, 3 * MIB + 5
    with opened(requests, pool) as file:
        file.will_read(start, end)
        for position in range(start, end, 250_000):
            assert file.read_at(position, min(250_000, end - position)) == CONTENT[position : min(position + 250_000, end)]
        assert requests.bytes_requested == end - start
        assert file.read_at(end - 10, 1000) == CONTENT[end - 10 : end + 990]
    assert requests.bytes_requested == end - start + SMALL_READ


def test_small_random_reads_fetch_little(pool: ThreadPoolExecutor) -> None:
    requests = RecordedRequests()
    with opened(requests, pool) as file:
        for position in range(4 * MIB, 0, -700_001):
            assert file.read_at(position, 61) == CONTENT[position : position + 61]
            assert file.read_at(position + 100, 61) == CONTENT[position + 100 : position + 161]
    assert {size for _, size in requests.requests} == {SMALL_READ}
    assert len(requests.requests) == 6


@given(
    reads=st.lists(st.tuples(st.integers(0, len(CONTENT) + 100), st.integers(0, 3 * MIB)), max_size=12),
    announced=st.none() | st.tuples(st.integers(0, len(CONTENT)), st.integers(0, len(CONTENT) + 100)),
)
def test_any_reads_give_the_bytes_of_the_object(reads: list[tuple[int, int]], announced: tuple[int, int] | None) -> None:
    with ThreadPoolExecutor(2) as pool, opened(RecordedRequests(), pool) as file:
        if announced is not None:
            file.will_read(min(announced), max(announced))
        for position, size in reads:
            buffer = bytearray(size)
            count = file.read_into(position, memoryview(buffer))
            assert buffer[:count] == CONTENT[position : position + size]
            assert count == len(CONTENT[position : position + size])
            assert len(file._blocks) <= 3


def test_threads_may_read_one_file_at_different_places(pool: ThreadPoolExecutor) -> None:
    wrong: list[int] = []
    with opened(RecordedRequests(), pool) as file:
        file.will_read(0, file.size_in_bytes)

        def read(seed: int) -> None:
            chance = random.Random(seed)
            for _ in range(60):
                position = chance.randrange(len(CONTENT))
                if file.read_at(position, 200_000) != CONTENT[position : position + 200_000]:
                    wrong.append(position)

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


@pytest.mark.parametrize("position", [0, 5 * MIB])
def test_fewer_bytes_than_listed_are_an_error(pool: ThreadPoolExecutor, position: int) -> None:
    with opened(RecordedRequests(more=5), pool) as file:
        file.will_read(position, file.size_in_bytes)
        short = f"d/a.log: shorter than when it was listed: {len(CONTENT)} of {len(CONTENT) + 5} bytes"
        with pytest.raises(SourceError, match=short):
            file.read_at(position, len(CONTENT) + 5 - position)
    with pytest.raises(SourceError, match="read after it was closed"):
        file.read_at(0, 1)


def test_an_error_of_a_prefetched_block_is_raised_when_it_is_read(pool: ThreadPoolExecutor) -> None:
    class Fails(RecordedRequests):
        def fetch(self, position: int, size: int) -> bytes:
            if position >= BLOCK:
                raise RequestFailedError(RequestFailure("forbidden", "no"))
            return super().fetch(position, size)

    with opened(Fails(), pool) as file:
        file.will_read(0, len(CONTENT))
        assert file.read_at(0, BLOCK) == CONTENT[:BLOCK]
        with pytest.raises(SourceError, match=r"d/a.log: access denied: check credentials and rights"):
            file.read_at(BLOCK, 1)


def test_small_objects_are_cached_within_bounds_and_failures_are_not(pool: ThreadPoolExecutor) -> None:
    requests: list[str] = []

    def fetch(path: str, size: int) -> bytes:
        requests.append(path)
        if requests.count("bad") == 1 and path == "bad":
            raise SourceError(path, "once")
        return bytes(3)

    small = SmallObjects(pool, fetch)
    assert small.bytes_of("a", 3) == small.bytes_of("a", 3) == bytes(3)
    with pytest.raises(SourceError, match="once"):
        small.bytes_of("bad", 3)
    assert small.bytes_of("bad", 3) == bytes(3)
    assert requests == ["a", "bad", "bad"]
    others = [str(number) for number in range(ROOM // SMALL_OBJECT)]
    for other in others:
        small.bytes_of(other, SMALL_OBJECT)
    small.bytes_of("a", 3)
    assert requests[3:] == [*others, "a"]
    small.forget()
    small.bytes_of("a", 3)
    assert requests[3:] == [*others, "a", "a"]


def edged(requests: RecordedRequests) -> EdgedObject:
    edges = requests.content[:EDGE] + requests.content[-EDGE:]
    return EdgedObject(len(requests.content), edges, lambda: cast("ObjectReader", requests))


@given(st.lists(st.tuples(st.integers(0, len(CONTENT) + 10), st.integers(0, 3 * EDGE)), max_size=12))
def test_an_edged_object_has_the_bytes_of_the_object(pool: ThreadPoolExecutor, reads: list[tuple[int, int]]) -> None:
    with RemoteFile("d/a.index", edged(RecordedRequests()), pool, BLOCK) as file:
        for position, size in reads:
            assert file.read_at(position, size) == CONTENT[position : position + size]
