"""How work is divided: no piece is left out or taken twice, and no task gets much more than the others."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from kafka_forensics.engine.task_values import Slice, slices
from kafka_forensics.engine.work_plan import FILE_COST_BYTES, file_cost, fold_works, is_small, whole_works
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.parsers.log_dir import SegmentFiles
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.storage.source import Entry, EntryKind
from tests.support.replicas import put_replica
from tests.support.segments import log

GIB = 1 << 30
PIECE = 256 << 20


def sized(size_in_bytes: int, segments: int, part: Slice) -> Slice:
    """The slice with logs of so many segments of that size."""

    def entry(number: int) -> Entry:
        return Entry(f"{number}.log", EntryKind.FILE, size_in_bytes, 0, None)

    files = [SegmentFiles(number, entry(number)) for number in range(segments)]
    plans = [
        replace(plan, directory=replace(plan.directory, segments=files), bytes=size_in_bytes * segments) for plan in part.replicas
    ]
    return replace(part, replicas=plans)


@pytest.fixture
def part(tmp_path: Path) -> Slice:
    """A partition of three brokers."""
    for broker in (1, 2, 3):
        put_replica(tmp_path, broker, b"".join(log(3)))
    [only] = slices(gather([str(tmp_path / f"broker-{broker}") for broker in (1, 2, 3)], ScanOptions()))
    return only


@pytest.mark.parametrize("size_in_bytes", [GIB - 4096, GIB - (1 << 20), GIB, GIB + 5, GIB - (100 << 20)])
@pytest.mark.parametrize("work_bytes", [PIECE, GIB])
def test_works_of_real_segments_are_of_one_size(part: Slice, size_in_bytes: int, work_bytes: int) -> None:
    parts = [(number, sized(size_in_bytes, 6, part)) for number in range(4)]
    works = list(fold_works(parts, PIECE, work_bytes))
    sizes = [work.size_in_bytes for work in works]
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


def test_small_partitions_are_dealt_out_by_what_they_cost(part: Slice) -> None:
    of_one = sum(4 + len(plan.directory.entries) for plan in part.replicas)
    parts = [(number, part) for number in range(100)]
    works = list(whole_works(parts, (10 * of_one + 1) * FILE_COST_BYTES, 1000))
    assert [numbered for work in works for numbered in work] == parts
    assert {len(work) for work in works[:-1]} == {10}, "files of some bytes each"
    assert len(list(whole_works(parts, (10 * of_one + 1) * FILE_COST_BYTES, 4))) == 4


class Distant(LocalSource):
    """A directory of which every file costs a request."""

    request_seconds = 0.05


def test_what_answers_slowly_is_dealt_out_to_more_tasks(part: Slice, tmp_path: Path) -> None:
    """Whichever way it is read: whole partitions, pieces of logs, facts, keys."""
    here, there = LocalSource(str(tmp_path)), Distant(str(tmp_path))
    assert file_cost(here) == FILE_COST_BYTES
    assert file_cost(there) > 50 * FILE_COST_BYTES
    plans = [replace(plan, log_dir=replace(plan.log_dir, source=there)) for plan in part.replicas]
    distant = replace(part, replicas=plans)
    for limit in (512 * FILE_COST_BYTES, 2048 * FILE_COST_BYTES):
        near, far = ([(number, made) for number in range(100)] for made in (part, distant))
        assert len(list(whole_works(far, limit, 1000))) > 3 * len(list(whole_works(near, limit, 1000)))
        assert len(list(fold_works(far, PIECE, limit))) > 3 * len(list(fold_works(near, PIECE, limit)))


@pytest.mark.parametrize(("most_bytes", "small"), [(-1, False), (0, False), (1 << 24, True)])
def test_small_is_what_the_logs_of_all_replicas_are_together(part: Slice, most_bytes: int, small: bool) -> None:
    assert is_small(part.replicas, most_bytes) is small
    total = sum(plan.bytes for plan in part.replicas)
    assert is_small(part.replicas, total)
    assert not is_small(part.replicas, total - 1)
