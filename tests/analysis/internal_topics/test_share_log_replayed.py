"""A share partition's state: updates are combined like in a share coordinator, in bounded memory."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kafka_forensics.analysis.internal_topics import share_log
from kafka_forensics.analysis.internal_topics.share_log import ShareReplay, combined
from kafka_forensics.model.constants import NO_OFFSET
from kafka_forensics.model.coordinators import ShareLog, ShareState, StateBatch
from tests.support.places import GOLDEN

MERGES = GOLDEN / "share-merges.json"
KEY = ("workers", "id", 0)
BATCHES = st.lists(
    st.builds(
        lambda first, size, state, count: StateBatch(first, first + size, state, count),
        st.integers(0, 30),
        st.integers(-1, 12),
        st.sampled_from((-1, 0, 2, 4)),
        st.integers(-1, 3),
    ),
    max_size=12,
)


def offset_by_offset(batches: list[StateBatch], start_offset: int) -> dict[int, tuple[int, int]]:
    """Offset → the greatest (count, state) of the batches that include it."""
    found: dict[int, tuple[int, int]] = {}
    for batch in batches:
        for offset in range(batch.first_offset, batch.last_offset + 1):
            if start_offset == NO_OFFSET or offset >= start_offset:
                found[offset] = max(found.get(offset, (-200, -200)), (batch.delivery_count, batch.delivery_state))
    return found


def assert_in_order(batches: list[StateBatch]) -> None:
    for batch, following in pairwise(batches):
        assert batch.last_offset < following.first_offset
        assert batch.last_offset + 1 < following.first_offset or batch[2:] != following[2:]


@given(BATCHES, st.integers(-1, 35))
def test_batches_are_combined_offset_by_offset(batches: list[StateBatch], start_offset: int) -> None:
    combined_batches = combined(batches, start_offset)
    assert_in_order(combined_batches)
    assert offset_by_offset(combined_batches, NO_OFFSET) == offset_by_offset(batches, start_offset)


@pytest.mark.parametrize(
    ("batches", "start_offset", "expected"),
    [
        ([], 5, []),
        ([(0, 9, 0, 1), (10, 19, 0, 1)], -1, [(0, 19, 0, 1)]),
        ([(0, 9, 0, 1), (3, 5, 2, 1)], -1, [(0, 2, 0, 1), (3, 5, 2, 1), (6, 9, 0, 1)]),
        ([(0, 9, 0, 2), (3, 5, 2, 1)], -1, [(0, 9, 0, 2)]),
        ([(0, 9, 2, 1), (5, 14, 4, 1)], 7, [(7, 14, 4, 1)]),
        ([(9, 3, 0, 1)], -1, []),
        ([(2**63 - 2, 2**63 - 1, 0, 1), (-(2**63), 2**63 - 1, 0, 0)], 5, [(5, 2**63 - 3, 0, 0), (2**63 - 2, 2**63 - 1, 0, 1)]),
    ],
)
def test_combined_batches(batches: list[Any], start_offset: int, expected: list[Any]) -> None:
    assert combined([StateBatch(*batch) for batch in batches], start_offset) == [StateBatch(*batch) for batch in expected]


def test_batches_are_combined_as_in_kafka() -> None:
    """Cases of PersisterStateBatchCombiner of 4.3.0, by `lab/share_merges.py`; the test joins equal adjacent batches."""
    cases = json.loads(MERGES.read_text())["cases"]
    assert len(cases) == 400
    for case in cases:
        batches = [StateBatch(*batch) for batch in (*case["before"], *case["after"])]
        merged = [StateBatch(*batch) for batch in case["merged"]]
        assert combined(batches, case["start"]) == combined(merged, NO_OFFSET), case
        assert sum(batch.last_offset - batch.first_offset + 1 for batch in merged) == len(offset_by_offset(merged, NO_OFFSET))


def fields(start_offset: int, batches: list[StateBatch], **more: Any) -> dict[str, Any]:
    values = {"snapshot_epoch": 1, "state_epoch": 2, "leader_epoch": 3, "start_offset": start_offset, "delivery_complete_count": 4}
    return values | {"state_batches": [batch._asdict() for batch in batches]} | more


def only(replay: ShareReplay) -> ShareState:
    [state] = replay.finish().states
    return state


@given(st.lists(st.tuples(st.booleans(), st.integers(-1, 35), BATCHES), max_size=12), st.sampled_from((0, 3, 256)))
def test_a_replay_equals_merging_every_update(updates: list[tuple[bool, int, list[StateBatch]]], waiting: int) -> None:
    replay = ShareReplay(ShareLog(0, 1))
    start, naive = NO_OFFSET, dict[int, tuple[int, int]]()
    replay.snapshot(KEY, fields(start, []), 0, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(share_log, "_WAITING", waiting)
        for number, (is_snapshot, new_start, batches) in enumerate(updates, 1):
            start = new_start if is_snapshot or new_start != NO_OFFSET else start
            before = [] if is_snapshot else [StateBatch(offset, offset, state, count) for offset, (count, state) in naive.items()]
            naive = offset_by_offset([*before, *batches], start)
            (replay.snapshot if is_snapshot else replay.update)(KEY, fields(new_start, batches), number, 0)
        state = only(replay)
    assert (state.start_offset, offset_by_offset(list(state.batches), NO_OFFSET)) == (start, naive)
    assert not replay.log.limited


def test_an_update_changes_only_its_fields() -> None:
    replay = ShareReplay(ShareLog(0, 1))
    replay.snapshot(KEY, fields(5, [StateBatch(5, 6, 0, 1)]), 7, 100)
    replay.update(KEY, {"snapshot_epoch": 1, "leader_epoch": -1, "start_offset": NO_OFFSET, "state_batches": []}, 8, 200)
    assert only(replay) == ShareState(*KEY, 1, 2, 3, 5, -1, (StateBatch(5, 6, 0, 1),), 8, 200)


def test_an_update_without_a_snapshot_has_no_state_epoch() -> None:
    replay = ShareReplay(ShareLog(0, 1))
    replay.update(KEY, {"snapshot_epoch": 9, "leader_epoch": 3, "start_offset": 5, "state_batches": []}, 8, 200)
    assert only(replay).state_epoch is None


def test_unreadable_records_make_state_unknown() -> None:
    replay = ShareReplay(ShareLog(0, 1))
    other = ("others", "id", 0)
    for key in (KEY, other):
        replay.snapshot(key, fields(5, []), 0, 0)
    replay.unreadable(KEY, 3)
    replay.unreadable(("nobody", "id", 1), 3)
    replay.unreadable(None, 6)
    replay.snapshot(other, fields(6, []), 8, 0)
    assert {state.group: state.unknown_after for state in replay.finish().states} == {"workers": 2, "others": None}


def test_a_tombstone_frees_all_memory_of_its_key() -> None:
    replay = ShareReplay(ShareLog(0, 1))
    for number in range(100):
        replay.snapshot(KEY, fields(5, [StateBatch(5, 6, 0, 1)] * 100), number, 0)
        replay.tombstone(KEY)
    assert (replay.finish().states, replay._batches_count, replay._text) == ([], 0, 0)


def test_time_and_memory_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [StateBatch(2 * number, 2 * number, 0, 1) for number in range(share_log.MAX_BATCHES + 5)]
    replay = ShareReplay(ShareLog(0, 1))
    replay.snapshot(KEY, fields(0, many), 0, 0)
    assert len(only(replay).batches) == share_log.MAX_BATCHES
    assert replay.log.limited
    monkeypatch.setattr(share_log, "MERGES", 100_000)
    replay = ShareReplay(ShareLog(0, 1))
    replay.snapshot(KEY, fields(0, many), 0, 0)
    for number in range(1, 2000):
        replay.update(KEY, fields(number % 2 + 5, [StateBatch(number, number, 0, 1)]), number, 0)
    state = only(replay)
    assert (state.start_offset, replay.log.limited, state.record_offset) == (6, True, 1999)
    assert replay._merges_left > -100_000
    monkeypatch.setattr(share_log, "MAX_KEYS", 2)
    replay = ShareReplay(ShareLog(0, 1))
    for number in range(4):
        replay.snapshot((str(number), "id", 0), fields(0, []), number, 0)
    assert (len(replay.finish().states), replay.log.limited) == (2, True)
