"""High watermarks after each fetch: an example, conditions that stop them, and properties of any schedule."""

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from kafka_forensics.replication.acks import ACKS_ALL, ACKS_LEADER, ACKS_NONE, ProduceResponse, after_append, before_append
from kafka_forensics.replication.watermarks import LeaderState, Transaction, follower_high_watermark, last_stable_offset, raised

THREE = LeaderState(1, 0, 0, frozenset({1, 2, 3}), {2: -1, 3: -1})


def appended_to(state: LeaderState, records: int) -> LeaderState:
    """The leader after an append (Partition.appendRecordsToLeader)."""
    return raised(replace(state, log_end_offset=state.log_end_offset + records))


def after_fetch(state: LeaderState, follower: int, fetch_offset: int) -> LeaderState:
    """The leader after a fetch at `fetch_offset`, up to which the follower has all records (Partition.updateFollowerFetchState)."""
    return raised(replace(state, follower_ends={**state.follower_ends, follower: fetch_offset}))


def test_high_watermarks_follow_the_fetches_of_the_example() -> None:
    """Fetches at (0, 0), (4, 5), (8, 10) from a leader whose end is 10, 15, 20."""
    state, seen = THREE, []
    for appended, fetches in ((10, (0, 0)), (5, (4, 5)), (5, (8, 10))):
        state = appended_to(state, appended)
        for follower, fetch_offset in zip((2, 3), fetches, strict=True):
            state = after_fetch(state, follower, fetch_offset)
        seen.append((state.log_end_offset, state.high_watermark))
    assert seen == [(10, 0), (15, 4), (20, 8)]
    assert follower_high_watermark(state.high_watermark, 8) == 8


@pytest.mark.parametrize(
    ("case", "state", "high_watermark"),
    [
        ("a leader that is the only ISR member commits at once", LeaderState(1, 7, 3, frozenset({1}), {2: 2}), 7),
        ("an ISR member that has not fetched stops it", LeaderState(1, 7, 3, frozenset({1, 2})), 3),
        ("it never decreases", LeaderState(1, 7, 6, frozenset({1, 2}), {2: 4}), 6),
        ("it stops below min.insync.replicas", LeaderState(1, 7, 3, frozenset({1}), {2: 2, 3: 2}, min_insync_replicas=2), 3),
        (
            "it does not stop before Kafka 3.7",
            LeaderState(1, 7, 3, frozenset({1}), {2: 2, 3: 2}, min_insync_replicas=2, freezes=False),
            7,
        ),
        (
            "min.insync.replicas is at most the number of replicas",
            LeaderState(1, 7, 3, frozenset({1, 2}), {2: 6}, min_insync_replicas=5),
            6,
        ),
    ],
)
def test_the_high_watermark_of_a_leader(case: str, state: LeaderState, high_watermark: int) -> None:
    assert raised(state).high_watermark == high_watermark, case


@pytest.mark.parametrize(("leader", "end", "expected"), [(9, 12, 9), (9, 5, 5), (0, 0, 0), (30, 12, 12)])
def test_a_follower_takes_the_leaders_high_watermark_up_to_its_log_end(leader: int, end: int, expected: int) -> None:
    assert follower_high_watermark(leader, end) == expected


@pytest.mark.parametrize(
    ("case", "high_watermark", "transactions", "expected"),
    [
        ("no open transaction", 10, [], 10),
        ("an open transaction", 10, [Transaction(4)], 4),
        ("the older of two open transactions", 10, [Transaction(6), Transaction(4)], 4),
        ("an open transaction above the high watermark", 10, [Transaction(12)], 10),
        ("ended, with a replicated marker", 10, [Transaction(4, 9)], 10),
        ("ended, with a marker that is not replicated yet", 10, [Transaction(4, 10)], 4),
    ],
)
def test_the_last_stable_offset_is_the_first_offset_of_the_oldest_open_transaction(
    case: str, high_watermark: int, transactions: list[Transaction], expected: int
) -> None:
    assert last_stable_offset(high_watermark, transactions) == expected, case


@given(st.lists(st.tuples(st.sampled_from("af"), st.sampled_from([2, 3]), st.integers(0, 5)), max_size=40), st.integers(1, 4))
def test_a_high_watermark_is_within_the_logs_of_the_isr_and_never_decreases(
    events: list[tuple[str, int, int]], min_insync_replicas: int
) -> None:
    """No high watermark, not even a follower's, exceeds the log end of any ISR member."""
    state = replace(THREE, min_insync_replicas=min_insync_replicas)
    ends, follower_watermarks = {2: 0, 3: 0}, {2: 0, 3: 0}
    for kind, follower, records in events:
        before = state.high_watermark
        if kind == "a":
            state = appended_to(state, records)
        else:
            state = after_fetch(state, follower, ends[follower])
            ends[follower] = min(state.log_end_offset, ends[follower] + records)
            follower_watermarks[follower] = follower_high_watermark(state.high_watermark, ends[follower])
        assert before <= state.high_watermark <= min(state.log_end_offset, *ends.values())
        assert all(follower_watermark <= state.high_watermark for follower_watermark in follower_watermarks.values())


FULL = LeaderState(1, 10, 6, frozenset({1, 2, 3}), {2: 6, 3: 9}, min_insync_replicas=2)
SHORT = LeaderState(1, 10, 6, frozenset({1, 2}), {2: 6, 3: 9}, min_insync_replicas=3)
ALONE = LeaderState(1, 10, 6, frozenset({1}), {2: 6, 3: 9}, min_insync_replicas=2)


@pytest.mark.parametrize(
    ("acks", "state", "last_offset", "answer"),
    [
        (ACKS_NONE, FULL, 99, ProduceResponse.ACKNOWLEDGED),
        (ACKS_LEADER, FULL, 9, ProduceResponse.ACKNOWLEDGED),
        (ACKS_LEADER, FULL, 10, ProduceResponse.WAITING),
        (ACKS_ALL, FULL, 5, ProduceResponse.ACKNOWLEDGED),
        (ACKS_ALL, FULL, 6, ProduceResponse.WAITING),
        (ACKS_ALL, ALONE, 5, ProduceResponse.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        (ACKS_ALL, ALONE, 9, ProduceResponse.WAITING),
        (ACKS_ALL, SHORT, 5, ProduceResponse.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
    ],
)
def test_a_produce_request_is_acknowledged_by_acks_and_isr(
    acks: int, state: LeaderState, last_offset: int, answer: ProduceResponse
) -> None:
    assert after_append(acks, state, last_offset) is answer


def test_only_acks_all_is_refused_when_the_isr_is_small() -> None:
    assert before_append(ACKS_ALL, ALONE) is ProduceResponse.NOT_ENOUGH_REPLICAS
    assert before_append(ACKS_LEADER, ALONE) is ProduceResponse.WAITING
    assert before_append(ACKS_ALL, FULL) is ProduceResponse.WAITING
