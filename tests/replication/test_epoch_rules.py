"""End offsets of epochs and truncation offsets of followers: Kafka's examples and random histories."""

from dataclasses import dataclass, field

import pytest
from hypothesis import assume, given, strategies as st

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.replication.epochs import UNDEFINED, EpochEndOffset, end_offset_for, truncation_offset


def entries(*pairs: tuple[int, int]) -> list[EpochEntry]:
    return [EpochEntry(epoch, start) for epoch, start in pairs]


CACHED = entries((2, 5), (4, 20), (7, 30))


@pytest.mark.parametrize(
    ("requested", "answer"),
    [
        (-1, UNDEFINED),
        (7, EpochEndOffset(7, 50)),
        (8, UNDEFINED),
        (0, EpochEndOffset(0, 5)),
        (1, EpochEndOffset(1, 5)),
        (2, EpochEndOffset(2, 20)),
        (3, EpochEndOffset(2, 20)),
        (4, EpochEndOffset(4, 30)),
        (6, EpochEndOffset(4, 30)),
    ],
)
def test_the_end_offset_of_a_requested_epoch(requested: int, answer: EpochEndOffset) -> None:
    assert end_offset_for(CACHED, requested, 50) == answer


def test_a_log_without_epochs_has_no_end_offset() -> None:
    assert [end_offset_for([], requested, 50) for requested in (-1, 0, 3)] == [UNDEFINED] * 3


@given(st.sets(st.integers(0, 20), min_size=1, max_size=6), st.integers(-1, 22))
def test_the_answer_has_the_largest_epoch_up_to_the_requested_one(epochs: set[int], requested: int) -> None:
    answer = end_offset_for(entries(*((epoch, 10 * epoch) for epoch in sorted(epochs))), requested, 1000)
    if requested == -1 or requested > max(epochs):
        assert answer == UNDEFINED
        return
    below, above = [epoch for epoch in epochs if epoch <= requested], [epoch for epoch in epochs if epoch > requested]
    assert answer == EpochEndOffset(max(below, default=requested), 10 * min(above) if above else 1000)


@dataclass
class Log:
    """A replica: (epoch, number within its epoch) of every record, and the epoch cache of a broker."""

    records: list[tuple[int, int]] = field(default_factory=list)
    cache: list[EpochEntry] = field(default_factory=list)

    def append(self, record: tuple[int, int]) -> None:
        if not self.cache or self.cache[-1].leader_epoch != record[0]:
            self.assign(record[0])
        self.records.append(record)

    def assign(self, epoch: int) -> None:
        while self.cache and (self.cache[-1].leader_epoch >= epoch or self.cache[-1].start_offset >= len(self.records)):
            self.cache.pop()
        self.cache.append(EpochEntry(epoch, len(self.records)))

    def truncate(self, end: int) -> None:
        del self.records[end:]
        self.cache = [entry for entry in self.cache if entry.start_offset < end]


def shared_prefix(left: Log, right: Log) -> int:
    pairs = zip(left.records, right.records, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(left.records), len(right.records)))


@st.composite
def histories(draw: st.DrawFn) -> list[Log]:
    """Three replicas after clean and unclean elections, in which some followers replicate; the last replica leads."""
    logs = [Log(), Log(), Log()]
    epoch = 0
    for _ in range(draw(st.integers(1, 6))):
        epoch += draw(st.integers(1, 2))
        leader = logs[draw(st.integers(0, 2))]
        leader.assign(epoch)
        for number in range(draw(st.integers(0, 3))):
            leader.append((epoch, number))
        for follower in logs:
            if follower is not leader and draw(st.booleans()):
                follower.truncate(shared_prefix(follower, leader))
                copied = draw(st.integers(len(follower.records), len(leader.records)))
                for record in leader.records[len(follower.records) : copied]:
                    follower.append(record)
    last = logs.pop(draw(st.integers(0, 2)))
    last.assign(epoch + 1)
    return [*logs, last]


@given(histories())
def test_a_follower_truncates_where_the_logs_diverge(logs: list[Log]) -> None:
    """In histories of fenced replicas, epochs alone give the end of the common prefix."""
    *followers, leader = logs
    for follower in followers:
        cut = truncation_offset(follower.cache, len(follower.records), leader.cache, len(leader.records))
        assert cut == shared_prefix(follower, leader)


@given(histories(), st.integers(0, 6), st.data())
def test_a_higher_log_start_does_not_change_a_truncation_above_it(logs: list[Log], start: int, draw: st.DataObject) -> None:
    """The leader deleted records below its log start; a truncation above it is the same."""
    follower, leader = logs[0], logs[2]
    shared = shared_prefix(follower, leader)
    assume(start <= shared)
    deleted = [entry for entry in leader.cache if entry.start_offset <= start]
    raised = [EpochEntry(deleted[-1].leader_epoch, start), *leader.cache[len(deleted) :]] if deleted else leader.cache
    assert truncation_offset(follower.cache, len(follower.records), raised, len(leader.records)) == shared


@st.composite
def caches(draw: st.DrawFn, end: int) -> list[EpochEntry]:
    epochs = sorted(draw(st.sets(st.integers(0, 8), max_size=5)))
    offsets = sorted(draw(st.lists(st.integers(0, end), min_size=len(epochs), max_size=len(epochs))))
    return [EpochEntry(epoch, offset) for epoch, offset in zip(epochs, offsets, strict=True)]


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 30), st.data())
def test_a_truncation_is_within_the_log_and_final(follower_end: int, leader_end: int, watermark: int, draw: st.DataObject) -> None:
    follower, leader = draw.draw(caches(follower_end)), draw.draw(caches(leader_end))
    cut = truncation_offset(follower, follower_end, leader, leader_end, follower_high_watermark=watermark)
    assert 0 <= cut <= follower_end
    entries_in_log = [entry for entry in follower if entry.start_offset < follower_end]
    if entries_in_log and leader and entries_in_log[-1].leader_epoch <= leader[-1].leader_epoch:
        again = truncation_offset(follower, cut, leader, leader_end, follower_high_watermark=watermark)
        assert again == cut, "a truncated follower must not truncate again"
        assert cut <= leader_end


@given(st.lists(st.builds(EpochEntry, st.integers(-3, 6), st.integers(-5, 15)), max_size=5), st.data())
def test_any_checkpoint_gives_a_truncation_within_the_log(checkpoint: list[EpochEntry], draw: st.DataObject) -> None:
    """Entries are sorted by epoch, as for a damaged checkpoint, with start offsets in any order."""
    other = draw.draw(caches(10))
    assert truncation_offset(sorted(checkpoint), 10, other, 10) <= 10
    assert truncation_offset(other, 10, sorted(checkpoint), 10) <= 10
