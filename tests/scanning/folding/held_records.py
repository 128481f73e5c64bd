"""Readers of logs with hashes instead of records, as in bundles."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from msgspec.structs import replace

from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.parsers.log import HashedRecords, RecordHasher, SeededHasher, SegmentHashes, SegmentReader
from kafka_forensics.scanning.folding.keys import KeyPart, KeyReader, KeyRuns, reader
from kafka_forensics.storage.source import ByteFile, ByteSource, Entry

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


def hashed(file: ByteFile, hasher: RecordHasher) -> HashedRecords:
    hashes = SegmentHashes(hasher)
    for _ in SegmentReader(file, inspect=hashes.inspect, inspect_batch=hashes.inspect_batch).chunks():
        pass
    return hashes.take()


class HeldFile(ByteFile):
    def __init__(self, file: ByteFile, hasher: RecordHasher) -> None:
        self._file = file
        self._records = hashed(file, hasher)
        self.size_in_bytes = file.size_in_bytes

    def read_at(self, position: int, size: int) -> bytes:
        return self._file.read_at(position, size)

    def read_into(self, position: int, buffer: memoryview) -> int:
        return self._file.read_into(position, buffer)

    def data_ranges(self) -> list[tuple[int, int]]:
        return self._file.data_ranges()

    def close(self) -> None:
        self._file.close()

    def hashed_records(self, positions: "Ints") -> HashedRecords:
        return self._records.of(positions)


class HoldingSource(ByteSource):
    def __init__(self, source: ByteSource, hasher: RecordHasher) -> None:
        super().__init__(source.name)
        self._source = source
        self._hasher = hasher
        self.seekable, self.problems = source.seekable, source.problems
        self.rejected, self.replaced, self.refused = source.rejected, source.replaced, source.refused

    def list(self, path: str = "") -> list[Entry]:
        return self._source.list(path)

    def stat(self, path: str = "") -> Entry:
        return self._source.stat(path)

    def open(self, path: str) -> HeldFile:
        return HeldFile(self._source.open(path), self._hasher)


class _OpensNothing:
    """A `HashingReader` that must not decode."""

    def __init__(self, *_: RecordHasher) -> None:
        pass

    def release(self) -> None:
        """This reader has no hashed records."""


def opens_nothing(patch: pytest.MonkeyPatch) -> None:

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a batch was opened")

    patch.setattr(reader, "HashingReader", _OpensNothing)
    patch.setattr(reader, "decode_batch", refuse)
    patch.setattr(reader, "_inspect_legacy", refuse)


def holding(plan: ReplicaPlan, hasher: RecordHasher) -> ReplicaPlan:
    """The same replica, with hashes instead of the records in its log."""
    return replace(plan, log_dir=replace(plan.log_dir, source=HoldingSource(plan.log_dir.source, hasher)))


class HeldReader(KeyReader):
    def _hashes_of(self, file: ByteFile) -> Any:
        return file if isinstance(file, HeldFile) else super()._hashes_of(file)


class Checked(KeyReader):
    """Reads a log from hashes, and compares the result with that from bytes."""

    def read(self) -> None:
        from_bytes, rows = read(self, self.plan)
        with pytest.MonkeyPatch.context() as patch:
            opens_nothing(patch)
            from_hashes, same_rows = read(self, holding(self.plan, SeededHasher(self.options.seed)))
        assert np.array_equal(rows, same_rows)
        assert_same(from_bytes, from_hashes)
        self.part = replace(from_hashes, problems=from_bytes.problems)
        self.runs.add(same_rows)


def assert_same(from_bytes: KeyPart, from_hashes: KeyPart) -> None:
    """Compares everything except damage inside batches, which hashes do not show."""
    for name in ("records", "keyless", "markers"):
        assert np.array_equal(getattr(from_bytes.counts, name), getattr(from_hashes.counts, name)), name
    assert from_hashes.problems == []
    assert replace(from_bytes, counts=from_hashes.counts, problems=[]) == from_hashes


def read(like: KeyReader, plan: ReplicaPlan) -> "tuple[KeyPart, Ints]":
    with KeyRuns() as runs:
        key_reader = HeldReader(plan, like.decided, like.number, like.options, runs, like.next_base_offset, like.strict)
        key_reader.read()
        return key_reader.part, np.concatenate(list(runs.blocks()))
