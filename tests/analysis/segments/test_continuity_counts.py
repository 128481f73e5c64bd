"""Batches whose last offset contradicts their records: joined by what they hold, at any cut."""

import pytest

from kafka_forensics.analysis.segments.continuity import ContinuityFold, judge
from kafka_forensics.model.batches import BatchColumn
from tests.support.segments import columns_of

LOG = [(0, 2, 3), (3, 6, 3), (6, 6, 3), (9, 11, 3)]
"""(base offset, last offset as told, records): the second tells one too many, the third two too few."""


def folded(cuts: list[int], *, compacted: bool = False) -> ContinuityFold:
    whole = ContinuityFold(0, compacted=compacted)
    rows = columns_of(
        [
            {BatchColumn.BASE_OFFSET: base, BatchColumn.LAST_OFFSET: last, BatchColumn.RECORDS_COUNT: count}
            for base, last, count in LOG
        ]
    )
    for start, end in zip([0, *cuts], [*cuts, len(LOG)], strict=True):
        part = ContinuityFold(0, compacted=compacted)
        part.step(rows[:, start:end], [])
        whole.merge(part)
    return whole


@pytest.mark.parametrize("cuts", [[], [1], [2], [3], [1, 2], [2, 3], [1, 2, 3]])
def test_joined_by_their_records(cuts: list[int]) -> None:
    fold = folded(cuts)
    assert [(run.start_offset, run.end_offset, run.batches) for run in fold.runs] == [(0, 12, 4)]
    assert judge(fold.runs).irregularities == []


@pytest.mark.parametrize("cuts", [[], [1], [2], [3]])
def test_of_a_cleaned_log_the_told_offsets_stand(cuts: list[int]) -> None:
    fold = folded(cuts, compacted=True)
    assert [(run.start_offset, run.end_offset) for run in fold.runs] == [(0, 7), (6, 12)]
    assert fold.missing_by_compaction == 2
