"""Who is in sync, by replica.lag.time.max.ms."""

import pytest

from kafka_forensics.replication.elections import FetchState, fetched, is_caught_up, may_join, out_of_sync

LAG_MS = 30_000


def test_a_follower_that_has_all_is_caught_up_however_long_ago_it_fetched() -> None:
    follower = fetched(FetchState(), 10, 10, 1_000)
    assert is_caught_up(follower, 10, 10_000_000, LAG_MS)
    assert not is_caught_up(follower, 11, 10_000_000, LAG_MS)


@pytest.mark.parametrize(("now_ms", "in_sync"), [(1_000, True), (31_000, True), (31_001, False)])
def test_lag_is_counted_in_time_not_in_records(now_ms: int, in_sync: bool) -> None:
    follower = fetched(FetchState(), 10, 10, 1_000)
    assert is_caught_up(follower, 1_000_000, now_ms, LAG_MS) is in_sync


def test_a_follower_that_always_reaches_the_end_of_its_last_fetch_stays() -> None:
    """Under steady writes it never has all there is, yet had all there was a fetch ago."""
    follower = fetched(FetchState(), 0, 0, 0)
    for round_number in range(1, 20):
        follower = fetched(follower, 100 * (round_number - 1), 100 * round_number, 10_000 * round_number)
        assert follower.last_caught_up_ms == 10_000 * (round_number - 1)
        assert is_caught_up(follower, 100 * round_number + 50, 10_000 * round_number + 5_000, LAG_MS)


def test_a_follower_that_falls_behind_leaves_though_it_fetches() -> None:
    follower = fetched(FetchState(), 0, 0, 0)
    for second in range(1, 40):
        follower = fetched(follower, second, 100 * second, 1_000 * second)
    assert follower.last_caught_up_ms == 0
    assert not is_caught_up(follower, 4_000, 40_000, LAG_MS)


def test_the_leader_never_leaves_and_strangers_are_out() -> None:
    followers = {2: fetched(FetchState(), 50, 50, 90_000), 3: fetched(FetchState(), 20, 20, 1_000)}
    assert out_of_sync({1, 2, 3, 4}, 1, followers, 60, 100_000, LAG_MS) == {3, 4}
    assert out_of_sync({1}, 1, {}, 60, 100_000, LAG_MS) == frozenset()


@pytest.mark.parametrize(
    ("end", "high_watermark", "epoch_start", "joins"),
    [(10, 10, 5, True), (9, 10, 5, False), (10, 8, 12, False), (12, 8, 12, True), (0, 0, 0, True)],
)
def test_joining_takes_the_watermark_and_the_leaders_own_epoch(
    end: int, high_watermark: int, epoch_start: int, joins: bool
) -> None:
    """The third: a new leader's watermark is 8 only because it has not heard better; committed may be up to 12."""
    assert may_join(end, high_watermark, epoch_start) is joins
