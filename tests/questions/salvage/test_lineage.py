"""The copy that supplies each offset: proofs by epochs and damage, continuations, records left behind, and rivals."""

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.offset_ranges import Ranges, normalised
from kafka_forensics.questions.salvage.lineage import BASE, CONTINUED, LOG_START, LogCopy, LogLineage, trace

END = 30


def copy(
    broker: int,
    *good: tuple[int, int],
    epochs: dict[int, int] | None = None,
    committed: int = 0,
    damaged: Ranges = (),
    expected_log_start: int | None = None,
) -> LogCopy:
    """A copy with these good offsets; `epochs` (epoch → start) has one epoch by default."""
    entries = tuple(EpochEntry(epoch, start) for epoch, start in ({0: good[0][0]} if epochs is None else epochs).items())
    end = max(high for _, high in (*good, *damaged))
    return LogCopy(broker, tuple(good), good[0][0], end, entries, damaged, committed, expected_log_start)


def taken(lineage: LogLineage) -> list[tuple[int, int, int, str]]:
    return [(range_.copy, range_.start, range_.end, range_.why) for range_ in lineage.ranges]


BETWEEN = copy(1, (0, 10), (20, 30), epochs={0: 0, 2: 20})
HOLE, NO_EPOCHS = copy(1, (0, 10), (14, 20)), copy(1, (0, 10), (14, 20), epochs={})
ROTTEN, WHOLE = copy(1, (0, 10), (14, 20), epochs={}, damaged=((10, 14),)), copy(2, (0, 20), epochs={})


@pytest.mark.parametrize(
    ("copies", "differences", "gaps"),
    [
        ([BETWEEN, copy(2, (0, 30), epochs={0: 0, 1: 12, 2: 16})], (), ()),
        ([BETWEEN, copy(2, (0, 18), epochs={0: 0, 1: 15})], (), ((10, 20),)),
        ([BETWEEN, copy(2, (10, 18), epochs={0: 10, 2: 15})], (), ((10, 15), (18, 20))),
        ([HOLE, copy(2, (0, 20))], ((4, 6),), ((10, 14),)),
        ([ROTTEN, WHOLE], (), ()),
        ([ROTTEN, WHOLE], ((12, 14),), ((12, 14),)),
        ([NO_EPOCHS, WHOLE], (), ((10, 14),)),
        ([replace(copy(1, (5, 9)), log_start_offset=0), copy(2, (0, 4))], (), ((4, 5),)),
        ([replace(copy(1, (0, 10)), high_watermark=14), replace(copy(2, (0, 8)), high_watermark=10)], (), ((10, 14),)),
        ([copy(1, (0, 30), epochs={0: 0, 1: 10}), replace(copy(2, (0, 10)), high_watermark=40)], (), ()),
        ([copy(1, (0, 20)), replace(copy(2, (0, 12)), high_watermark=40)], ((10, 12),), ()),
    ],
    ids=[
        "between epochs, a copy that joins after the hole",
        "between epochs, a copy that does not join",
        "the epoch after a hole is enough, the one before it is not: it may have ended sooner in the base",
        "a copy that differs in the same epoch proves nothing",
        "damage that the plan says is the same",
        "damage that the plan says differs",
        "without epochs nothing proves what is missing",
        "nothing joins at the log start",
        "high watermarks after every end",
        "a high watermark of an epoch with a later leader proves nothing",
        "nor does a high watermark of another lineage",
    ],
)
def test_offsets_that_no_copy_has_are_a_gap(copies: list[LogCopy], differences: Ranges, gaps: Ranges) -> None:
    assert trace(copies, {(0, 1): differences} if differences else {}, 0).gaps == gaps


def test_the_lineage_continues_in_several_copies() -> None:
    lineage = trace([copy(1, (0, 10)), copy(2, (5, 15)), copy(3, (8, 20), epochs={0: 8, 3: 15})], {}, 0)
    assert lineage.log_end_offset == 20
    assert taken(lineage) == [(0, 0, 10, BASE), (2, 10, 20, CONTINUED)]
    assert trace([copy(1, (0, 10), epochs={}), copy(2, (0, 20), epochs={})], {}, 0).log_end_offset == 20, "as in old formats"
    assert trace([copy(1, (0, 10), epochs={}), copy(2, (0, 20))], {}, 0).log_end_offset == 10


def test_the_epoch_at_the_end_decides_whether_a_copy_continues() -> None:
    """Offset 9 is of epoch 1 in the base and of epoch 0 in the other."""
    lineage = trace([copy(1, (0, 10), epochs={0: 0, 1: 8}), copy(2, (0, 20), epochs={0: 0})], {(0, 1): ((8, 10),)}, 0)
    assert lineage.log_end_offset == 10
    assert [(left.start, left.end, left.rival_of) for left in lineage.left_behind] == [(8, 10, 1), (10, 20, None)]


def test_the_start_of_the_log_comes_from_copies_that_join() -> None:
    assert taken(trace([copy(1, (10, 20), expected_log_start=0), copy(2, (0, 15))], {}, 0))[0] == (1, 0, 10, LOG_START)
    assert trace([copy(1, (10, 20)), copy(2, (0, 15))], {}, 0).log_start_offset == 10


def test_two_committed_continuations_are_rivals() -> None:
    copies = [copy(1, (0, 10)), copy(2, (0, 20), committed=18), copy(3, (0, 16), epochs={0: 0, 2: 10}, committed=16)]
    differences = {(1, 2): ((10, 16),)}
    for preferred, base in ((False, 0), (True, 0), (False, 1), (False, 2)):
        assert trace(copies, differences, base, preferred=preferred).rivals, (preferred, base)
    assert not trace(copies, differences, 1, preferred=True).rivals
    assert trace(copies, differences, 2, preferred=True).log_end_offset == 16


def test_the_only_committed_side_is_used_whichever_was_recommended() -> None:
    copies = [copy(1, (0, 20), committed=10), copy(2, (0, 16), epochs={0: 0, 2: 10}, committed=16)]
    lineage = trace(copies, {(0, 1): ((10, 16),)}, 0)
    assert (lineage.base, lineage.rivals) == (1, ())
    assert trace(copies, {(0, 1): ((10, 16),)}, 0, preferred=True).base == 0


@given(st.lists(st.sets(st.integers(0, END - 1), min_size=1), min_size=1, max_size=4), st.data())
def test_in_one_epoch_every_offset_of_any_copy_is_used_once(offsets_of: list[set[int]], data: st.DataObject) -> None:
    """The naive answer: every offset of any copy, from a copy that has it."""
    ranges = [normalised((offset, offset + 1) for offset in offsets) for offsets in offsets_of]
    copies = [LogCopy(number, good, 0, good[-1][1], (EpochEntry(0, 0),)) for number, good in enumerate(ranges)]
    base = data.draw(st.integers(0, len(copies) - 1))
    lineage = trace(copies, {}, base)
    given_by: dict[int, int] = {}
    for range_ in lineage.ranges:
        for offset in range(range_.start, range_.end):
            assert offset not in given_by
            assert offset in offsets_of[range_.copy]
            given_by[offset] = range_.copy
    assert list(given_by) == sorted(given_by)
    everything = set().union(*offsets_of)
    assert set(given_by) == everything
    missing = set(range(lineage.log_end_offset)) - set(given_by)
    assert normalised((offset, offset + 1) for offset in missing) == lineage.gaps
    assert all(given_by[offset] == base for offset in offsets_of[base])


@given(st.data())
def test_another_lineage_is_never_used(data: st.DataObject) -> None:
    """Each replica follows one of two histories of leaders up to some offset: ranges only come from equal (offset, epoch) pairs."""
    fork = data.draw(st.integers(1, END - 2))
    lines = [[0] * END, [0] * fork + [2] * (END - fork)]
    copies, truth = [], []
    for number in range(data.draw(st.integers(1, 4))):
        line = data.draw(st.sampled_from(lines))
        end = data.draw(st.integers(1, END))
        lost = data.draw(st.sets(st.integers(0, end - 1), max_size=end - 1))
        good = normalised((offset, offset + 1) for offset in range(end) if offset not in lost)
        starts = {line[offset]: offset for offset in reversed(range(end)) if offset not in lost}
        epochs = tuple(EpochEntry(epoch, start) for epoch, start in sorted(starts.items()))
        copies.append(LogCopy(number, good, 0, end, epochs, (), data.draw(st.integers(0, end))))
        truth.append({offset: line[offset] for offset in range(end) if offset not in lost})
    differences = {}
    for left in range(len(copies)):
        for right in range(left + 1, len(copies)):
            common = truth[left].keys() & truth[right].keys()
            differing = normalised((offset, offset + 1) for offset in common if truth[left][offset] != truth[right][offset])
            if differing:
                differences[left, right] = differing
    base = data.draw(st.integers(0, len(copies) - 1))
    lineage = trace(copies, differences, base, preferred=True)
    epochs_taken = [truth[range_.copy][offset] for range_ in lineage.ranges for offset in range(range_.start, range_.end)]
    assert epochs_taken == sorted(epochs_taken), "a log's epochs never fall"
    offsets = [offset for range_ in lineage.ranges for offset in range(range_.start, range_.end)]
    found = dict(zip(offsets, epochs_taken, strict=True))
    for offset, epoch in truth[base].items():
        assert found[offset] == epoch, "what the base has stays"
    assert any(all(expected[offset] == epoch for offset, epoch in found.items()) for expected in lines), "of one line of leaders"
