"""Reads of a file that another thread writes wait for their bytes."""

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
WAIT_SECONDS = 0.05
"""Time in which a read that must wait does not return."""


def waits(read: Future[Any]) -> bool:
    try:
        read.result(WAIT_SECONDS)
    except TimeoutError:
        return True
    return False


TIMEOUT_SECONDS: Final = 60
"""Time after which a read has failed to return."""


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as threads:
        yield threads


def test_a_read_waits_until_its_bytes_are_written(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    path, progress = tmp_path / "log", WriteProgress()
    opened = pool.submit(open_while_written, path, len(DATA), progress)
    assert waits(opened)
    with progress, path.open("wb", buffering=0) as target:
        progress.begin()
        with opened.result(TIMEOUT_SECONDS) as file:
            assert file.size_in_bytes == len(DATA)
            assert file.read_at(0, 0) == b""
            read = pool.submit(file.read_at, 0, 100)
            target.write(DATA[:99])
            progress.grow(99)
            assert waits(read)
            target.write(DATA[99:150])
            progress.grow(51)
            assert read.result(TIMEOUT_SECONDS) == DATA[:100]
            buffer = bytearray(50)
            assert file.read_into(100, memoryview(buffer)) == 50
            assert buffer == DATA[100:150]
            ranges = pool.submit(file.data_ranges)
            assert waits(ranges)
            target.write(DATA[150:])
            progress.grow(len(DATA) - 150)
            assert file.read_at(9_990, 100) == DATA[9_990:]
            assert ranges.result(TIMEOUT_SECONDS) == [(0, len(DATA))]


def test_the_error_of_the_writer_is_raised_by_every_read(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    path, progress = tmp_path / "log", WriteProgress()
    path.write_bytes(DATA[:10])
    progress.begin()
    progress.grow(10)
    read = pool.submit(sha256_of, open_while_written(path, len(DATA), progress))
    assert waits(read)
    with pytest.raises(SourceError), progress:
        raise SourceError("in", "input/output error")
    assert isinstance(read.exception(TIMEOUT_SECONDS), SourceError)
    with pytest.raises(SourceError, match="input/output error"):
        open_while_written(path, len(DATA), progress)


def test_opening_a_file_that_is_never_created_raises_the_error_of_the_writer(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    progress = WriteProgress()
    opened = pool.submit(open_while_written, tmp_path / "log", 10, progress)
    with pytest.raises(PermissionError), progress:
        raise PermissionError
    assert isinstance(opened.exception(TIMEOUT_SECONDS), PermissionError)


@pytest.mark.parametrize("without_system_call", [False, True])
def test_a_copy_reports_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_system_call: bool) -> None:
    (tmp_path / "in").write_bytes(DATA)
    monkeypatch.setattr(copying, "_AT_ONCE", 4096)
    monkeypatch.setattr(copying, "_BLOCK_BYTES", 4096)
    if without_system_call:
        monkeypatch.setattr(copying, "_HAS_COPY_FILE_RANGE", False)
    reported = list[int]()
    with LocalSource(str(tmp_path)).open("in") as file, (tmp_path / "out").open("wb", buffering=0) as target:
        copying.copy_range(file, "in", 500, 9_500, target.fileno(), reported.append)
    assert (tmp_path / "out").read_bytes() == DATA[500:9_500]
    assert sum(reported) == 9_000
    assert len(reported) >= 3
