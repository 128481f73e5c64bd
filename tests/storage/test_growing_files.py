"""Reads of a file that another thread is writing wait for their bytes."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from kafka_forensics.errors import SourceError
from kafka_forensics.storage import copying
from kafka_forensics.storage.copying import WriteProgress, open_while_written
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.storage.open import sha256_of

DATA = bytes(number * 31 % 253 for number in range(10_000))
WAIT = 0.05
"""Seconds in which a read that must wait does not come back; nothing depends on a longer one."""


def waits(read: Future[Any]) -> bool:
    try:
        read.result(WAIT)
    except TimeoutError:
        return True
    return False


LONG: Final = 60
"""Seconds after which a read that should have come back never will."""


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as threads:
        yield threads


def test_a_read_waits_for_its_bytes_and_no_longer(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    path, growth = tmp_path / "log", WriteProgress()
    opened = pool.submit(open_while_written, path, len(DATA), growth)
    assert waits(opened)
    with growth, path.open("wb", buffering=0) as target:
        growth.begin()
        with opened.result(LONG) as file:
            assert file.size_in_bytes == len(DATA)
            assert file.read_at(0, 0) == b""
            read = pool.submit(file.read_at, 0, 100)
            target.write(DATA[:99])
            growth.grow(99)
            assert waits(read)
            target.write(DATA[99:150])
            growth.grow(51)
            assert read.result(LONG) == DATA[:100]
            buffer = bytearray(50)
            assert file.read_into(100, memoryview(buffer)) == 50
            assert buffer == DATA[100:150]
            ranges = pool.submit(file.data_ranges)
            assert waits(ranges)
            target.write(DATA[150:])
            growth.grow(len(DATA) - 150)
            assert file.read_at(9_990, 100) == DATA[9_990:]
            assert ranges.result(LONG) == [(0, len(DATA))]


def test_the_error_that_ended_the_writing_is_raised_by_every_read(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    path, growth = tmp_path / "log", WriteProgress()
    path.write_bytes(DATA[:10])
    growth.begin()
    growth.grow(10)
    read = pool.submit(sha256_of, open_while_written(path, len(DATA), growth))
    assert waits(read)
    with pytest.raises(SourceError), growth:
        raise SourceError("in", "input/output error")
    assert isinstance(read.exception(LONG), SourceError)
    with pytest.raises(SourceError, match="input/output error"):
        open_while_written(path, len(DATA), growth)


def test_a_file_that_was_never_created_is_not_waited_for(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    growth = WriteProgress()
    opened = pool.submit(open_while_written, tmp_path / "log", 10, growth)
    with pytest.raises(PermissionError), growth:
        raise PermissionError
    assert isinstance(opened.exception(LONG), PermissionError)


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_copy_reports_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_hand: bool) -> None:
    (tmp_path / "in").write_bytes(DATA)
    monkeypatch.setattr(copying, "_AT_ONCE", 4096)
    monkeypatch.setattr(copying, "_BLOCK_BYTES", 4096)
    if by_hand:
        monkeypatch.setattr(copying, "_HAS_COPY_FILE_RANGE", False)
    reported = list[int]()
    with LocalSource(str(tmp_path)).open("in") as file, (tmp_path / "out").open("wb", buffering=0) as target:
        copying.copy_range(file, "in", 500, 9_500, target.fileno(), reported.append)
    assert (tmp_path / "out").read_bytes() == DATA[500:9_500]
    assert sum(reported) == 9_000
    assert len(reported) >= 3
