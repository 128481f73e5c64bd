"""Work is divided evenly, with each split in one task."""

import tarfile
from collections import Counter
from pathlib import Path
from statistics import median

import pytest
from msgspec.structs import replace

from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.parsers.log_dir import SegmentFiles
from kafka_forensics.scanning.engine import local
from kafka_forensics.scanning.engine.task_values import PartitionSlice, slices
from kafka_forensics.scanning.engine.work_plan import (
    FILE_COST_BYTES,
    file_cost,
    fold_works,
    is_small,
    packed_for_cores,
    small_slice_works,
)
from kafka_forensics.scanning.folding.waiting import CONCURRENT_PARTITIONS
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.storage.source import Entry, EntryKind
from tests.scanning.engine import task_engine
from tests.support.brokers import put_copies
from tests.support.segments import log

GIB = 1 << 30
PIECE = 256 << 20


def sized(size_in_bytes: int, segments: int, part: PartitionSlice) -> PartitionSlice:
    """The slice with this number of segments of this size in each log."""

    def entry(number: int) -> Entry:
        return Entry(f"{number}.log", EntryKind.FILE, size_in_bytes, 0, None)

    files = [SegmentFiles(number, entry(number)) for number in range(segments)]
    plans = [
        replace(plan, directory=replace(plan.directory, segments=files), bytes=size_in_bytes * segments) for plan in part.replicas
    ]
    return replace(part, replicas=plans)


@pytest.fixture
def part(tmp_path: Path) -> PartitionSlice:
    """A partition of three brokers."""
    put_copies(tmp_path, (1, 2, 3), log(3))
    [only] = slices(gather([str(tmp_path / f"broker-{broker}") for broker in (1, 2, 3)], ScanOptions()))
    return only


@pytest.mark.parametrize("size_in_bytes", [GIB - 4096, GIB - (1 << 20), GIB, GIB + 5, GIB - (100 << 20)])
@pytest.mark.parametrize("work_bytes", [PIECE, GIB])
def test_works_of_real_segments_are_of_one_size(part: PartitionSlice, size_in_bytes: int, work_bytes: int) -> None:
    works = list(fold_works([(number, sized(size_in_bytes, 6, part)) for number in range(4)], PIECE, work_bytes))
    sizes = [sum(piece.size_in_bytes for fold_part in work.parts for piece in fold_part.pieces) for work in works]
    assert max(sizes) <= max(work_bytes, size_in_bytes // 4 + FILE_COST_BYTES)
    assert max(sizes) <= 1.2 * median(sizes)
    pieces = Counter(
        (fold_part.slice, fold_part.replica, piece.segment.base_offset, piece.number)
        for work in works
        for fold_part in work.parts
        for piece in fold_part.pieces
    )
    assert set(pieces.values()) == {1}
    assert len(pieces) == 4 * 3 * 6 * 4


def test_small_partitions_are_grouped_by_cost(part: PartitionSlice) -> None:
    cost_of_one = sum(4 + len(plan.directory.entries) for plan in part.replicas)
    parts = [(number, part) for number in range(100)]
    works = list(small_slice_works(parts, (10 * cost_of_one + 1) * FILE_COST_BYTES, 1000))
    assert [numbered for work in works for numbered in work] == parts
    assert {len(work) for work in works[:-1]} == {10}, "files of some bytes each"
    assert len(list(small_slice_works(parts, (10 * cost_of_one + 1) * FILE_COST_BYTES, 4))) == 4


@pytest.mark.parametrize(
    ("files", "size_in_bytes", "cores", "groups"),
    [
        (6_000, 1_000, None, 24),
        (6_000, 1_000, 2, 4),
        (6_000, 1_000, 100, 24),
        (90_000, 1_000, 2, 24),  # no task opens more than sixteen times as many
        (100, 1_000, 2, 1),
        (64, 64 << 20, 2, 64),
        (6_000, 64 << 10, 2, 8),
    ],
)
def test_little_work_has_two_tasks_a_core(files: int, size_in_bytes: int, cores: int | None, groups: int) -> None:
    units = [(number, size_in_bytes, FILE_COST_BYTES) for number in range(files)]
    packed = list(packed_for_cores(units, 64 << 20, cores))
    assert [number for group in packed for number in group] == list(range(files))
    assert len(packed) == groups
    assert max(len(group) for group in packed) * size_in_bytes <= 64 << 20


class SlowSource(LocalSource):
    """A directory in which opening a file takes as long as a request to a storage service."""

    request_seconds = 0.05


@pytest.fixture
def remote_part(part: PartitionSlice, tmp_path: Path) -> PartitionSlice:
    """The partition on a storage service."""
    source = SlowSource(str(tmp_path))
    return replace(part, replicas=[replace(plan, log_dir=replace(plan.log_dir, source=source)) for plan in part.replicas])


def test_slow_storage_services_get_more_tasks(part: PartitionSlice, remote_part: PartitionSlice) -> None:
    """The same cost divides facts and keys."""
    assert file_cost(part.replicas[0].log_dir.source) == FILE_COST_BYTES
    assert file_cost(remote_part.replicas[0].log_dir.source) > 50 * FILE_COST_BYTES
    for limit in (512 * FILE_COST_BYTES, 2048 * FILE_COST_BYTES):
        local_parts, remote_parts = (
            [(number, partition_slice) for number in range(100)] for partition_slice in (part, remote_part)
        )
        assert len(list(fold_works(remote_parts, PIECE, limit))) > 3 * len(list(fold_works(local_parts, PIECE, limit)))


@pytest.mark.parametrize("limit", [FILE_COST_BYTES, 512 * FILE_COST_BYTES])
def test_a_task_on_a_storage_service_has_enough_partitions(part: PartitionSlice, remote_part: PartitionSlice, limit: int) -> None:
    """For any speed of the service: a task takes as long as the number of partitions read concurrently allows."""
    parts = [(number, remote_part) for number in range(5 * CONCURRENT_PARTITIONS)]
    works = list(small_slice_works(parts, limit, 100_000))
    assert [numbered for work in works for numbered in work] == parts
    assert [len(work) for work in works] == [2 * CONCURRENT_PARTITIONS, 2 * CONCURRENT_PARTITIONS, CONCURRENT_PARTITIONS]
    both_kinds = [*parts, *((number, part) for number in range(1000, 1100))]
    assert [numbered for work in small_slice_works(both_kinds, limit, 100_000) for numbered in work] == both_kinds


@pytest.mark.parametrize(("most_bytes", "small"), [(-1, False), (0, False), (1 << 24, True)])
def test_is_small_counts_the_logs_of_all_replicas(part: PartitionSlice, most_bytes: int, small: bool) -> None:
    assert is_small(part.replicas, most_bytes) is small
    total = sum(plan.bytes for plan in part.replicas)
    assert is_small(part.replicas, total)
    assert not is_small(part.replicas, total - 1)


def cut_archive(folder: Path) -> Path:
    """A tar of two replicas of one partition that ends in the middle of the second."""
    put_copies(folder / "brokers", (1, 2), log(40), high_watermark=80)
    whole = folder / "whole.tar"
    with tarfile.open(whole, "w") as archive:
        for path in sorted((folder / "brokers").rglob("*")):
            archive.add(path, str(path.relative_to(folder / "brokers")), recursive=False)
    cut = folder / "cut.tar"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    return cut


def test_incomplete_is_the_same_in_every_engine(tmp_path: Path) -> None:
    path = str(cut_archive(tmp_path))
    local_result, task_result = local.scan([path], ScanOptions()), task_engine.scan([path], ScanOptions())
    assert [incomplete.path for incomplete in local_result.incomplete] == [path]
    assert task_result.incomplete == local_result.incomplete
