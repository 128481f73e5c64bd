"""Two lineages of one log: the first epoch whose end they tell apart."""

from hypothesis import given
from hypothesis import strategies as st

from kafka_forensics.analysis.epochs import differing_end
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.replication.epochs import end_offset_for, epoch_at


def entries(*pairs: tuple[int, int]) -> list[EpochEntry]:
    return [EpochEntry(*pair) for pair in pairs]


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
def lineages(draw: st.DrawFn) -> list[EpochEntry]:
    epochs = sorted(draw(st.sets(st.integers(0, 6), max_size=5)))
    starts = sorted(draw(st.lists(st.integers(0, 9), min_size=len(epochs), max_size=len(epochs))))
    return entries(*zip(epochs, starts, strict=True))


@given(lineages(), lineages())
def test_no_earlier_epoch_of_either_has_two_ends(left: list[EpochEntry], right: list[EpochEntry]) -> None:
    epoch, ours, theirs = differing_end(left, right, 10)
    for known in {entry.leader_epoch for entry in (*left, *right) if entry.leader_epoch < epoch}:
        assert end_offset_for(left, known, 10).end_offset == end_offset_for(right, known, 10).end_offset
    if ours == theirs:
        assert all(entry.leader_epoch <= epoch for entry in (*left, *right))
