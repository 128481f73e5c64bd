"""Truncation by each of Kafka's rules: known cases with their requests, and properties of any two logs."""

import itertools
from collections.abc import Callable

import pytest
from hypothesis import assume, given, strategies as st

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.replication.epochs import (
    UNDEFINED,
    EpochEndOffset,
    EpochLog,
    EpochRequest,
    TruncationResult,
    by_fetch,
    by_high_watermark,
    by_kip_101,
    by_kip_279,
    end_offset_for,
    truncation_state,
)

Rule = Callable[[EpochLog, EpochLog], TruncationResult]
RULES: tuple[Rule, ...] = (by_high_watermark, by_kip_101, by_kip_279, by_fetch)


def log(end: int, *epochs: tuple[int, int], hw: int = 0, start: int = 0) -> EpochLog:
    return EpochLog(tuple(EpochEntry(*pair) for pair in epochs), end, hw, start)


LEADER = log(200, (1, 20), (2, 80), (3, 120))


@pytest.mark.parametrize("rule", [by_kip_101, by_kip_279, by_fetch])
def test_followers_truncate_as_in_the_example(rule: Rule) -> None:
    """A follower whose last epoch 1 ends at 100 truncates to 80; one at epoch 3 keeps everything up to the leader's log end."""
    assert rule(log(100, (1, 20), start=20), LEADER).log_end_offset == 80
    assert rule(log(150, (1, 20), (2, 80), (3, 120), start=20), LEADER).log_end_offset == 150
    assert rule(log(250, (1, 20), (2, 80), (3, 120), start=20), LEADER).log_end_offset == 200


@pytest.mark.parametrize(("end", "cut"), [(5, 5), (9, 9), (12, 9)])
def test_a_follower_without_epochs_truncates_to_the_leaders_end(end: int, cut: int) -> None:
    assert truncation_state(log(end), EpochEndOffset(2, 9)) == (cut, True)


def test_fast_leader_changes_need_a_second_request() -> None:
    """KIP-279: B=[r1@1] follows A=[r0@0, r2@2]; the first later epoch starts at 1, where B ends."""
    follower, leader = log(1, (1, 0)), log(2, (0, 0), (2, 1))
    assert by_kip_101(follower, leader).questions == (EpochRequest(1, EpochEndOffset(1, 1), 1),)
    assert by_kip_101(follower, leader).log_end_offset == 1, "the fork remains"
    assert by_kip_279(follower, leader).questions == (EpochRequest(1, EpochEndOffset(0, 1), 0),)
    assert by_fetch(follower, leader).log_end_offset == 0


def test_requests_repeat_until_both_logs_have_the_epoch() -> None:
    follower, leader = log(9, (1, 0), (3, 5)), log(9, (1, 0), (2, 7), (4, 8))
    expected = (EpochRequest(3, EpochEndOffset(2, 8), 5), EpochRequest(1, EpochEndOffset(1, 7), 5))
    assert by_kip_279(follower, leader).questions == expected
    assert by_fetch(follower, leader).questions == expected[:1], "the next fetch at 5 in epoch 1 is in order"
    assert {rule(follower, leader).log_end_offset for rule in RULES[2:]} == {5}


def test_an_epoch_unknown_to_the_leader_falls_back() -> None:
    """With separate requests, to the high watermark; with epochs in fetches, to the leader's log end."""
    follower, leader = log(10, (3, 0), hw=4), log(9, (1, 0))
    assert [rule(follower, leader).log_end_offset for rule in RULES] == [4, 4, 4, 9]
    assert by_kip_279(follower, leader).questions == (EpochRequest(3, UNDEFINED, 4),)
    assert by_fetch(follower, leader).questions == ()
    assert by_kip_101(log(10, (0, 0), hw=4), log(20, (2, 5))).log_end_offset == 4, (
        "the old rule has no answer for an epoch older than all"
    )
    assert by_kip_279(log(10, (0, 0), hw=4), log(20, (2, 5))).log_end_offset == 5


@pytest.mark.parametrize("rule", RULES)
def test_a_follower_below_the_leaders_log_start_restarts_there(rule: Rule) -> None:
    """Retention deleted the records that the follower would fetch next."""
    assert rule(log(10, (0, 0), hw=10), log(500, (0, 300), start=300)).log_end_offset == 300


@pytest.mark.parametrize("rule", RULES)
def test_an_empty_follower_sends_no_request(rule: Rule) -> None:
    outcome = rule(log(0), LEADER)
    assert (outcome.log_end_offset, outcome.questions) == (0, ())


@st.composite
def logs(draw: st.DrawFn) -> EpochLog:
    epochs = sorted(draw(st.sets(st.integers(0, 8), max_size=5)))
    starts = sorted(draw(st.sets(st.integers(0, 20), min_size=len(epochs), max_size=len(epochs))))
    end = draw(st.integers(starts[-1] + 1 if starts else 0, 24))
    return EpochLog(tuple(map(EpochEntry, epochs, starts)), end, draw(st.integers(0, end)))


@given(logs(), logs(), st.sampled_from(RULES))
def test_every_rule_ends_and_adds_no_records(follower: EpochLog, leader: EpochLog, rule: Rule) -> None:
    outcome = rule(follower, leader)
    cuts = [question.truncation_offset for question in outcome.questions]
    assert outcome.log_end_offset <= follower.log_end_offset
    assert outcome.log_end_offset <= max(leader.log_end_offset, 0)
    assert all(earlier >= later for earlier, later in itertools.pairwise([follower.log_end_offset, *cuts]))
    assert len(cuts) <= len(follower.epochs) + 1


@given(logs(), logs())
def test_after_truncation_follower_and_leader_agree_on_the_last_epoch(follower: EpochLog, leader: EpochLog) -> None:
    """A fetch after the last truncation needs no further truncation."""
    assume(follower.epochs and leader.epochs and follower.epochs[-1].leader_epoch <= leader.epochs[-1].leader_epoch)
    truncated = follower.cut(by_fetch(follower, leader).log_end_offset)
    assert by_fetch(truncated, leader).questions == ()
    if truncated.epochs:
        answer = end_offset_for(leader.epochs, truncated.epochs[-1].leader_epoch, leader.log_end_offset)
        assert answer.leader_epoch == truncated.epochs[-1].leader_epoch
        assert answer.end_offset >= truncated.log_end_offset
