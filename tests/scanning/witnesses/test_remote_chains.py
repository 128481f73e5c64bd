"""Which segments of a remote store make one log."""

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.remote_log import StoredSegment
from kafka_forensics.scanning.witnesses.remote_chains import ChainSegment, chains_of

Epochs = tuple[tuple[int, int], ...]
LEADER: Epochs = (0, 0), (2, 300)


def segment(start: int, end: int, *epochs: tuple[int, int], size: int = 100) -> ChainSegment:
    entries = [EpochEntry(*entry) for entry in epochs]
    return ChainSegment(start, end, entries, StoredSegment(start, f"{start}-{end}", {}), size)


def chains(*segments: ChainSegment, epochs: Epochs = LEADER) -> list[list[tuple[int, int]]]:
    found, left_out = chains_of(segments, [EpochEntry(*entry) for entry in epochs])
    assert not left_out
    return [[(segment.start_offset, segment.end_offset) for segment in chain] for chain in found]


def test_segments_of_the_leaders_log_come_first() -> None:
    lost, lost_too = segment(300, 334, (0, 300)), segment(335, 374, (0, 335))
    kept, new = segment(240, 299, (0, 240)), segment(300, 346, (2, 300))
    assert chains(lost, lost_too, kept, new) == [[(240, 299), (300, 346)], [(300, 334), (335, 374)]]


def test_overlapping_segments_are_in_different_chains() -> None:
    """The next leader rolled its segments at other offsets."""
    segments = segment(0, 59, (0, 0)), segment(40, 99, (0, 40)), segment(100, 159, (0, 100))
    assert chains(*segments) == [[(0, 59), (100, 159)], [(40, 99)]]


def test_the_longer_one_of_two_copies_comes_first() -> None:
    assert chains(segment(0, 9, (0, 0)), segment(0, 59, (0, 0))) == [[(0, 59)], [(0, 9)]]


def test_unknown_epochs_and_no_epochs_of_a_leader() -> None:
    segments = segment(0, 0), segment(60, 60), segment(60, 60, size=200)
    assert chains(*segments) == [[(0, 0), (60, 60)], [(60, 60)]]
    assert chains(segment(60, 119, (1, 60)), segment(120, 179, (0, 120)), epochs=()) == [[(60, 119)], [(120, 179)]]


def test_a_segment_that_ends_before_it_begins_takes_the_place_of_its_start() -> None:
    assert chains(segment(0, -5, (0, 0)), segment(0, -5, (0, 0))) == [[(0, -5)], [(0, -5)]]


def test_many_copies_of_one_segment_are_bounded() -> None:
    found, left_out = chains_of([segment(0, 9, (0, 0)) for _ in range(100)], [EpochEntry(0, 0)])
    assert (len(found), left_out) == (64, 36)
