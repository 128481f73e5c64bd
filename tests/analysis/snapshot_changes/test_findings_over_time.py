"""One log in two snapshots against a naive comparison by the first differing batch and both ends."""

import pytest
from hypothesis import given, strategies as st

from kafka_forensics.analysis.replicas.diff import Counts, counted
from kafka_forensics.analysis.snapshot_changes import SnapshotPair, log_changes
from kafka_forensics.model.changes import ChangeKind
from kafka_forensics.wording import change_text
from tests.analysis.replica_logs import Logs, batches

OLDER, NEWER = 1, 2
BETWEEN = SnapshotPair("a", "b")
Rows = list[tuple[str, int, int, int | None]]
"""Kind, first offset, end, batches."""


def rows_of(
    logs: Logs, old: list[tuple[int, str]], new: list[tuple[int, str]], *, start: int = 0, records_per_batch: int = 1
) -> Rows:
    """The changes from log `old` (runs of an epoch and letters) to `new`, which begins at batch `start`."""
    before = logs.add(OLDER, batches(*old, records_per_batch=records_per_batch), start=0)
    after = logs.add(
        NEWER, [batch for batch in batches(*new, records_per_batch=records_per_batch) if batch.base_offset >= start], start=start
    )
    result = log_changes(before, after, BETWEEN, logs)
    return [(change.kind.value, change.offset_start, change.offset_end, change.batches) for change in result.changes]


def naive(old: str, new: str, start: int, records_per_batch: int) -> Rows:
    """The same changes from the letters, each a batch; `start` is a batch of both logs."""
    same = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if at >= start and a != b), min(len(old), len(new)))
    rows: Rows = []
    if same < len(old):
        rows.append(("truncated", same * records_per_batch, len(old) * records_per_batch, len(old) - same))
    if same < len(new):
        rows.append(("appended", same * records_per_batch, len(new) * records_per_batch, len(new) - same))
    if start:
        rows.append(("deleted", 0, start * records_per_batch, start))
    return rows


@given(
    st.text("abc", min_size=1, max_size=12),
    st.text("abc", max_size=6),
    st.text("xyz", max_size=6),
    st.integers(0, 12),
    st.integers(1, 4),
)
def test_changes_equal_the_naive_ones(common: str, truncated: str, appended: str, start: int, records_per_batch: int) -> None:
    start = min(start, len(common) - 1)
    old, new = common + truncated, common + appended
    assert rows_of(
        Logs(), [(0, old)], [(0, common), (3, appended)], start=start * records_per_batch, records_per_batch=records_per_batch
    ) == naive(old, new, start, records_per_batch)


def test_equal_logs_have_no_changes_and_are_not_read_again() -> None:
    logs = Logs()
    assert rows_of(logs, [(0, "abcdef"), (1, "gh")], [(0, "abcdef"), (1, "gh")]) == []
    assert logs.ranges_read == []


def test_records_written_again_in_another_epoch_are_truncated_but_not_lost() -> None:
    logs = Logs()
    old = logs.add(OLDER, batches((0, "abc")), checkpoint=[(0, 0)])
    result = log_changes(old, logs.add(NEWER, batches((0, "ab"), (2, "cd")), checkpoint=[(0, 0), (2, 2)]), BETWEEN, logs)
    rows = [(change.kind, change.offset_start, change.offset_end, change.reason, change.replaced_by) for change in result.changes]
    assert rows == [(ChangeKind.TRUNCATED, 2, 3, "same_records_again", 2), (ChangeKind.APPENDED, 2, 4, None, None)]
    assert result.lost_from is None


def test_the_loss_begins_after_records_written_again() -> None:
    logs = Logs()
    old = logs.add(OLDER, batches((0, "abcx")), checkpoint=[(0, 0)])
    result = log_changes(old, logs.add(NEWER, batches((0, "ab"), (2, "cy")), checkpoint=[(0, 0), (2, 2)]), BETWEEN, logs)
    assert (result.cut, result.lost_from) == (2, 3)


def test_equal_records_in_other_batches_are_rewritten() -> None:
    logs = Logs()
    old = logs.add(OLDER, batches((0, "ab"), records_per_batch=3))
    (row,) = log_changes(old, logs.add(NEWER, batches((0, "ab"), records_per_batch=3, codec="gzip")), BETWEEN, logs).changes
    assert (row.kind, row.reason, row.offset_start, row.offset_end) == (ChangeKind.REWRITTEN, "reencoded", 0, 6)


@pytest.mark.parametrize(
    ("holes", "words"), [(64, ""), (65, "and 1 more such range after it"), (70, "and 6 more such ranges after it")]
)
def test_further_gaps_are_counted(holes: int, words: str) -> None:
    logs = Logs()
    full = batches((0, "ab" * holes + "z"))
    old, new = logs.add(OLDER, full), logs.add(NEWER, full[::2])
    for older, newer, kind in ((old, new, ChangeKind.MISSING), (new, old, ChangeKind.RESTORED)):
        changes = [change for change in log_changes(older, newer, BETWEEN, logs).changes if change.kind is kind]
        assert [(change.offset_start, change.offset_end) for change in changes] == [(at, at + 1) for at in range(1, 128, 2)]
        assert [change.evidence.get("ranges_more") for change in changes] == [*[None] * 63, holes - 64 or None]
        assert change_text(changes[-1]).endswith(words)
        assert "more such" not in change_text(changes[0])


def test_batches_are_counted_once_however_many_blocks_they_span() -> None:
    logs = Logs()
    wide = batches((0, "abcd"), span=40_000)
    replica = logs.add(OLDER, wide)
    sizes = [len(batch.written()) for batch in wide]
    assert counted(replica, logs, 1, 160_000) == Counts(4, 4, sum(sizes))
    assert counted(replica, logs, 40_000, 120_000) == Counts(2, 2, sum(sizes[1:3]))
    assert counted(replica, logs, 160_000, 200_000) == Counts(0, 0, 0)
