"""Leader epochs of batches: runs against a naive grouping, stray epochs, and the checkpoint against a simulated cache."""

import itertools
from collections.abc import Collection
from dataclasses import dataclass, field

import pytest
from hypothesis import assume, given, strategies as st

from kafka_forensics.analysis import epochs
from kafka_forensics.analysis.epochs import EpochRun, EpochsFold, checkpoint_contradiction, differing_end, epoch_starts
from kafka_forensics.model.batches import BatchColumn as Columns
from kafka_forensics.model.controller import PartitionControl
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.replication.epochs import end_offset_for, epoch_at
from tests.support.segments import add_batches, columns_of
from tests.support.strategies import fold_in_parts


def entries(*pairs: tuple[int, int]) -> list[EpochEntry]:
    return [EpochEntry(*pair) for pair in pairs]


def fold_of(*batch_epochs: int, lost: Collection[int] = ()) -> EpochsFold:
    """A log of one-offset batches of these epochs, without those at the lost offsets."""
    state = EpochsFold(0)
    kept = [(n, epoch) for n, epoch in enumerate(batch_epochs) if n not in lost]
    add_batches(state, columns_of([{Columns.BASE_OFFSET: n, Columns.PARTITION_LEADER_EPOCH: epoch} for n, epoch in kept]))
    return state


@given(st.lists(st.tuples(st.sampled_from([0, 0, 1, 1, 2, -1, -(2**31)]), st.booleans()), max_size=25), st.data())
def test_any_cut_gives_the_runs_of_a_naive_grouping(log: list[tuple[int, bool]], draw: st.DataObject) -> None:
    rows = [
        {
            Columns.POSITION: 100 * n,
            Columns.BASE_OFFSET: 2 * n,
            Columns.LAST_OFFSET: 2 * n + 1,
            Columns.PARTITION_LEADER_EPOCH: epoch,
            Columns.CRC_COMPUTED: int(not good),
            Columns.MAX_TIMESTAMP: 7 * n,
        }
        for n, (epoch, good) in enumerate(log)
    ]
    state = fold_in_parts(draw, lambda: EpochsFold(0), lambda fold, a, b: add_batches(fold, columns_of(rows[a:b])), len(rows))
    usable = [(epoch, n) for n, (epoch, good) in enumerate(log) if good and epoch != -1]
    expected = []
    for epoch, group in itertools.groupby(usable, key=lambda batch: batch[0]):
        numbers = [n for _, n in group]
        times = 7 * numbers[0], 7 * numbers[-1]
        expected.append(EpochRun(epoch, 2 * numbers[0], 2 * numbers[-1] + 2, 0, 100 * numbers[0], 100, len(numbers), *times))
    assert state.runs == expected
    assert state.batches_without_epoch == sum(epoch == -1 for epoch, _ in log)


@given(st.integers(0, 40), st.data())
def test_many_runs_keep_their_ends_whatever_the_cut(count: int, draw: st.DataObject) -> None:
    rows = [{Columns.BASE_OFFSET: n, Columns.PARTITION_LEADER_EPOCH: n} for n in range(count)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(epochs, "MAX_RUNS", 8)
        state = fold_in_parts(draw, lambda: EpochsFold(0), lambda fold, a, b: add_batches(fold, columns_of(rows[a:b])), count)
    kept = list(range(count)) if count <= 8 else [*range(4), *range(count - 4, count)]
    assert [run.leader_epoch for run in state.runs] == kept
    assert state.dropped_runs == max(0, count - 8)


def test_a_run_knows_its_segment() -> None:
    left, right = fold_of(0, 0), EpochsFold(2)
    add_batches(right, columns_of([{Columns.BASE_OFFSET: 2}, {Columns.BASE_OFFSET: 3, Columns.PARTITION_LEADER_EPOCH: 4}]))
    left.merge(right)
    assert [(run.leader_epoch, run.segment, run.batches) for run in left.runs] == [(0, 0, 3), (4, 2, 1)]


@st.composite
def lineages(draw: st.DrawFn) -> list[int]:
    """Ascending epochs, each of at least three batches."""
    ascending = sorted(draw(st.sets(st.integers(0, 12), min_size=1, max_size=4)))
    return [epoch for epoch in ascending for _ in range(draw(st.integers(3, 4)))]


@given(lineages(), st.integers(0, 31), st.data())
def test_a_flipped_epoch_field_is_a_stray_if_neighbours_contradict_it(log: list[int], bit: int, draw: st.DataObject) -> None:
    """F02, any bit of any batch: reported if and only if neighbours contradict it."""
    at = draw.draw(st.integers(0, len(log) - 1))
    wrong = log[at] ^ 1 << bit
    wrong -= (wrong >> 31) << 32
    changed = [*log[:at], wrong, *log[at + 1 :]]
    low = log[at - 1] if at else 0
    high = log[at + 1] if at + 1 < len(log) else 2**31 - 1
    state = fold_of(*changed)
    contradicted_runs = state.contradicted_runs(None)
    if at > 1 and log[at - 2] == wrong != log[at - 1]:
        assert len(contradicted_runs) == 1, "0 0 0 8 0 8: either of the lonely two may be the wrong one"
    elif wrong == -1:
        assert state.batches_without_epoch == 1
    elif low <= wrong <= high:
        assert contradicted_runs == []
    else:
        ((run, expected),) = contradicted_runs
        assert (run.start_offset, run.leader_epoch, run.batches) == (at, wrong, 1)
        assert expected in (low, high)
        assert EpochEntry(wrong, at) not in state.lineage()
    assert state.regressions() == []


@pytest.mark.parametrize(("leader", "leader_epoch", "stray"), [(1, 2, False), (-1, 2, True), (1, 3, True), (None, None, True)])
def test_an_epoch_with_a_leader_is_no_stray_at_the_log_end(leader: int | None, leader_epoch: int | None, stray: bool) -> None:
    """The checkpoint ends with epoch 0: it lacks epoch 2 if the controller's log has epoch 2; else the last batch is wrong."""
    state = fold_of(0, 0, 2)
    control = PartitionControl(leader, leader_epoch, [1], [], [1, 2])
    assert [run.leader_epoch for run, _ in state.contradicted_runs([EpochEntry(0, 0)], control)] == ([2] if stray else [])


def test_the_checkpoint_decides_at_the_log_end() -> None:
    state = fold_of(0, 0, 0, 9)
    assert state.contradicted_runs(None) == []
    assert [run.leader_epoch for run, _ in state.contradicted_runs([EpochEntry(0, 0)])] == [9]
    assert state.contradicted_runs([EpochEntry(0, 0), EpochEntry(9, 3)]) == []
    assert state.contradicted_runs([]) == [], "an empty checkpoint witnesses nothing"


@pytest.mark.parametrize(
    ("log", "contradicted_runs", "regressions", "lineage"),
    [
        pytest.param((), [], [], [], id="empty"),
        pytest.param((0, 1, 2, 5), [], [], [(0, 0), (1, 1), (2, 2), (5, 3)], id="epochs that stand alone"),
        pytest.param((0, 0, 5, 3, 5, 5), [(3, 3, 5)], [], [(0, 0), (5, 2)], id="the one after a rise is flipped"),
        pytest.param((-7, 0, 0), [(-7, 0, 0)], [], [(0, 1)], id="negative at the start"),
        pytest.param((0, -7, 0), [(-7, 1, 0)], [], [(0, 0)], id="negative between"),
        pytest.param((0, 0, -7), [(-7, 2, 0)], [], [(0, 0)], id="negative at the end"),
        pytest.param((-7, -7, 0), [], [(-7, 0, -1)], [(0, 2)], id="negative twice"),
        pytest.param((0, 0, 7, 7, 2, 2, 2, 8, 8), [], [(2, 4, 7)], [(0, 0), (7, 2), (8, 7)], id="epochs that fall for long"),
    ],
)
def test_strays_and_regressions(
    log: tuple[int, ...], contradicted_runs: list[object], regressions: list[object], lineage: list[tuple[int, int]]
) -> None:
    """Epoch, first offset, and the epoch expected there or the highest before."""
    state = fold_of(*log)
    assert [(run.leader_epoch, run.start_offset, expected) for run, expected in state.contradicted_runs(None)] == contradicted_runs
    assert [(run.leader_epoch, run.start_offset, highest) for run, highest in state.regressions()] == regressions
    assert state.lineage() == entries(*lineage)


@dataclass
class Cache:
    """A leader-epoch cache and its log, by the rules of LeaderEpochFileCache."""

    log: list[tuple[int, int]] = field(default_factory=list)
    """(offset, epoch) of every batch on disk."""
    entries: list[EpochEntry] = field(default_factory=list)
    log_start: int = 0
    end: int = 0

    def assign(self, epoch: int, offset: int) -> None:
        if self.entries and epoch == self.entries[-1].leader_epoch and offset >= self.entries[-1].start_offset:
            return
        while self.entries and (self.entries[-1].leader_epoch >= epoch or self.entries[-1].start_offset >= offset):
            self.entries.pop()
        self.entries.append(EpochEntry(epoch, offset))

    def append(self, epoch: int) -> None:
        self.assign(epoch, self.end)
        self.log.append((self.end, epoch))
        self.end += 1

    def delete_records(self, log_start: int, *, with_batches: bool) -> None:
        self.log_start = log_start
        removed = [entry for entry in self.entries if entry.start_offset <= log_start]
        if removed:
            self.entries = [EpochEntry(removed[-1].leader_epoch, log_start), *self.entries[len(removed) :]]
        if with_batches:
            self.log = [batch for batch in self.log if batch[0] >= log_start]

    def lineage(self) -> list[EpochEntry]:
        groups = itertools.groupby(self.log, key=lambda batch: batch[1])
        return [EpochEntry(epoch, next(group)[0]) for epoch, group in groups]

    def contradiction(self, entries: list[EpochEntry], *, compacted: bool = False) -> str | None:
        return checkpoint_contradiction(entries, self.lineage(), self.log_start, self.end, compacted=compacted)


@st.composite
def caches(draw: st.DrawFn) -> Cache:
    """A log after appends, elections without records, deletions of records."""
    cache = Cache()
    epoch = 0
    for action in draw(st.lists(st.sampled_from(["append", "append", "elect", "elect", "delete", "retain"]), max_size=25)):
        if action == "append":
            cache.append(epoch)
        elif action == "elect":
            epoch += draw(st.integers(1, 3))
            if draw(st.booleans()):
                cache.assign(epoch, cache.end)
        elif cache.end > cache.log_start:
            cache.delete_records(draw(st.integers(cache.log_start, cache.end)), with_batches=action == "retain")
    return cache


@given(caches(), st.booleans())
def test_a_checkpoint_written_by_a_cache_is_never_a_contradiction(cache: Cache, compacted: bool) -> None:
    assert cache.contradiction(cache.entries, compacted=compacted) is None


@given(caches(), st.data())
def test_compaction_explains_starts_that_moved_up_and_epochs_without_batches(cache: Cache, draw: st.DataObject) -> None:
    cache.log = [batch for batch in cache.log if draw.draw(st.booleans())]
    assert cache.contradiction(cache.entries, compacted=True) is None


@given(caches(), st.data())
def test_a_changed_checkpoint_is_contradicted(cache: Cache, draw: st.DataObject) -> None:
    """F29: an entry dropped, shifted, re-numbered or out of order, if it concerns batches at or above the log start."""
    inside = [n for n, entry in enumerate(cache.entries) if entry.start_offset < cache.end]
    assume(inside)
    at = draw.draw(st.sampled_from(inside))
    epoch_entry = cache.entries[at]
    without = cache.entries[:at] + cache.entries[at + 1 :]
    assert cache.contradiction(without) == "entry_missing"
    by = draw.draw(st.integers(-3, 3))
    shifted = [*cache.entries[:at], EpochEntry(epoch_entry.leader_epoch, epoch_entry.start_offset + by), *cache.entries[at + 1 :]]
    moved_below_the_log = at == 0 and epoch_entry.start_offset + by <= cache.log_start
    if by and not moved_below_the_log:
        assert cache.contradiction(shifted) in ("entry_shifted", "order", "entry_missing")
    if len(cache.entries) > 1:
        swapped = list(cache.entries)
        swapped[0], swapped[1] = swapped[1], swapped[0]
        assert cache.contradiction(swapped) == "order"


DELETED = [(0, 0), (1, 30), (2, 60)]
"""A log after DeleteRecords: batches below the log start are still on disk, without entries in the cache."""


@pytest.mark.parametrize(
    ("checkpoint", "batches", "log_start", "end", "compacted", "expected"),
    [
        ([(0, 0), (2, 5), (4, 10)], [(0, 0), (4, 10)], 0, 20, False, "entry_without_batches"),
        ([(0, 0), (2, 5), (4, 10)], [(0, 0), (4, 10)], 0, 20, True, None),
        ([(0, 0), (2, 10), (4, 10)], [(0, 0), (4, 10)], 0, 20, False, None),
        ([(0, 0)], [(0, 5)], 0, 9, False, None),
        ([(0, 3)], [(0, 5)], 0, 9, False, "entry_shifted"),
        ([(3, 2)], [(0, 1)], 2, 3, True, None),
        ([(1, 50), (2, 60)], DELETED, 50, 100, False, None),
        ([(2, 60)], DELETED, 60, 100, False, None),
        ([(2, 60)], DELETED, 50, 100, False, "entry_missing"),
        ([(2, 100)], DELETED, 100, 100, False, None),
        ([(3, 100)], DELETED, 100, 100, False, None),
    ],
)
def test_how_a_checkpoint_contradicts_the_log(
    checkpoint: list[tuple[int, int]],
    batches: list[tuple[int, int]],
    log_start: int,
    end: int,
    compacted: bool,
    expected: str | None,
) -> None:
    assert checkpoint_contradiction(entries(*checkpoint), entries(*batches), log_start, end, compacted=compacted) == expected


def test_first_epoch_with_another_end() -> None:
    batches = entries((0, 0), (1, 32), (2, 58))
    assert differing_end(entries((0, 0), (2, 58)), batches, 75) == (0, 58, 32)
    assert differing_end(entries((0, 0), (1, 35), (2, 58)), batches, 75) == (0, 35, 32)
    assert differing_end(entries((0, 0), (1, 32), (2, 58), (4, 65)), batches, 75) == (2, 65, 75)
    assert differing_end(entries((0, 0), (1, 32)), batches, 75) == (1, 75, 58)
    assert differing_end(batches, batches, 75) == (2, 75, 75)
    assert differing_end([], batches, 75) == (0, -1, 32)
    assert differing_end([], [], 75) == (-1, 75, 75)


def test_epoch_of_an_offset() -> None:
    lines = entries((2, 58), (0, 10), (1, 32))
    assert [epoch_at(lines, offset) for offset in (9, 10, 31, 32, 57, 58, 99)] == [None, 0, 0, 1, 1, 2, 2]


@st.composite
def checkpoints(draw: st.DrawFn) -> list[EpochEntry]:
    epochs = sorted(draw(st.sets(st.integers(0, 6), max_size=5)))
    starts = sorted(draw(st.lists(st.integers(0, 9), min_size=len(epochs), max_size=len(epochs))))
    return entries(*zip(epochs, starts, strict=True))


@given(checkpoints(), checkpoints())
def test_no_earlier_epoch_has_different_ends(left: list[EpochEntry], right: list[EpochEntry]) -> None:
    epoch, ours, theirs = differing_end(left, right, 10)
    for earlier in {entry.leader_epoch for entry in (*left, *right) if entry.leader_epoch < epoch}:
        assert end_offset_for(left, earlier, 10).end_offset == end_offset_for(right, earlier, 10).end_offset
    if ours == theirs:
        assert all(entry.leader_epoch <= epoch for entry in (*left, *right))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=20).map(sorted), st.sets(st.integers(0, 19)))
def test_every_offset_before_the_last_good_batch_has_its_epoch(log: list[int], lost: set[int]) -> None:
    kept = [n for n in range(len(log)) if n not in lost]
    entries = epoch_starts(fold_of(*log, lost=lost), Cache(list(enumerate(log))).lineage(), 0)
    assert [epoch_at(entries, offset) for offset in range(max(kept, default=-1) + 1)] == log[: max(kept, default=-1) + 1]


@pytest.mark.parametrize(
    ("checkpoint", "expected"),
    [
        pytest.param(None, [(1, 0), (4, 6)], id="none"),
        pytest.param([(1, 0), (4, 3)], [(1, 0), (4, 3)], id="shifted"),
        pytest.param([(1, 0), (2, 3), (4, 5)], [(1, 0), (2, 3), (4, 5)], id="an epoch lost"),
        pytest.param([(1, 0), (2, 3), (3, 3), (4, 6)], [(1, 0), (3, 3), (4, 6)], id="one that wrote nothing"),
        pytest.param([(1, 0), (4, 2)], [(1, 0), (4, 6)], id="against a batch"),
        pytest.param([(1, 0), (5, 4)], [(1, 0), (4, 6)], id="later than the next"),
        pytest.param([(4, 3), (1, 4)], [(1, 0), (4, 6)], id="order"),
        pytest.param([(0, 0), (1, 0), (4, 3)], [(1, 0), (4, 3)], id="first"),
        pytest.param([(1, 0), (1, 2), (4, 3)], [(1, 0), (4, 6)], id="an epoch twice"),
    ],
)
def test_the_checkpoint_counts_where_batches_are_missing(
    checkpoint: list[tuple[int, int]] | None, expected: list[tuple[int, int]]
) -> None:
    """A log of epochs 1 1 1 . . . 4 4."""
    entries = None if checkpoint is None else [EpochEntry(*entry) for entry in checkpoint]
    epoch_entries = epoch_starts(fold_of(1, 1, 1, 4, 4, 4, 4, 4, lost={3, 4, 5}), entries, 0)
    assert [(entry.leader_epoch, entry.start_offset) for entry in epoch_entries] == expected


def test_the_checkpoint_counts_from_the_log_start_to_the_first_batch() -> None:
    fold = fold_of(1, 1, 1, 4, 4, 4, lost={0, 1, 2, 3})
    checkpoint = [EpochEntry(1, 0), EpochEntry(4, 3)]
    assert epoch_starts(fold, checkpoint, 0) == checkpoint
    assert epoch_starts(fold, checkpoint, 3) == checkpoint[1:]
    assert epoch_starts(fold, checkpoint, 4) == [EpochEntry(4, 4)]
