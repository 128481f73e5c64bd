"""The controller elects the first eligible replica of the assignment, not the longest log."""

import pytest
from hypothesis import given, strategies as st

from kafka_forensics.replication import elections

NOBODY: frozenset[int] = frozenset()


def candidates(
    alive: set[int], isr: set[int], leader: int = -1, elr: set[int] | None = None, last: int | None = None
) -> elections.ElectionInput:
    return elections.ElectionInput((2, 3, 1), frozenset(alive), frozenset(isr), leader, frozenset(elr or ()), last)


@pytest.mark.parametrize(
    ("case", "election_input", "unclean", "leader", "kind", "isr"),
    [
        ("an eligible leader stays", candidates({1, 2, 3}, {1, 2, 3}, leader=1), False, 1, "stays", {1, 2, 3}),
        ("the first of the assignment in the ISR", candidates({1, 2, 3}, {1, 3}), False, 3, "clean", {1, 3}),
        ("dead brokers are skipped", candidates({1, 3}, {1, 2, 3}, leader=2), False, 3, "clean", {1, 2, 3}),
        ("no ISR member is alive", candidates({1, 3}, {2}), False, -1, "none", {2}),
        ("an unclean election takes the first alive", candidates({1, 3}, {2}), True, 3, "unclean", {3}),
        ("a clean election precedes an unclean one", candidates({1, 3}, {1}), True, 1, "clean", {1}),
        ("an ELR member if the ISR is empty", candidates({1, 3}, set(), elr={1, 3}), False, 3, "elr", {3}),
        ("no ELR member while the ISR has a member", candidates({1, 3}, {2}, elr={1}), False, -1, "none", {2}),
        ("the last known leader if both are empty", candidates({1, 3}, set(), last=1), False, 1, "last_known_leader", {1}),
        ("not the last known leader while the ELR has a member", candidates({1}, set(), elr={3}, last=1), False, -1, "none", set()),
        ("not a dead last known leader", candidates({3}, set(), last=1), False, -1, "none", set()),
        ("then an unclean election takes the first alive", candidates({3}, set(), last=1), True, 3, "unclean", {3}),
        ("no broker is alive", candidates(set(), {1}), True, -1, "none", {1}),
    ],
)
def test_the_controller_elects_by_isr_elr_and_last_leader(
    case: str, election_input: elections.ElectionInput, unclean: bool, leader: int, kind: str, isr: set[int]
) -> None:
    elected = elections.elect(election_input, unclean=unclean)
    assert (elected.leader, elected.kind, set(elected.isr)) == (leader, kind, isr), case
    assert elected.may_lose is (kind in ("unclean", "last_known_leader"))


def test_the_preferred_replica_is_the_first_assigned_if_it_is_eligible() -> None:
    assert elections.elect(candidates({1, 2, 3}, {1, 2, 3}, leader=1), preferred=True).leader == 2
    assert elections.elect(candidates({1, 2, 3}, {1, 3}, leader=1), preferred=True).leader == 1
    assert elections.elect(candidates({3}, {1}), preferred=True, unclean=True).kind == "none"


def test_the_last_member_leaves_the_isr_only_if_the_elr_is_enabled() -> None:
    assert elections.isr_without(frozenset({1, 2}), {2}, elr_enabled=False) == {1}
    assert elections.isr_without(frozenset({1}), {1}, elr_enabled=False) == {1}
    assert elections.isr_without(frozenset({1}), {1}, elr_enabled=True) == NOBODY


def test_members_that_leave_an_isr_below_the_minimum_join_the_elr() -> None:
    """min.insync.replicas is 2 of 3; the ISR shrinks to one member and to none, then grows to the minimum."""
    elr = elections.eligible_leader_replicas({1, 2}, NOBODY, {1}, 2)
    assert elr == {2}
    elr = elections.eligible_leader_replicas({1}, elr, set(), 2)
    assert elr == {1, 2}
    assert elections.elect(candidates({1, 2, 3}, set(), elr={2})).leader == 2
    assert elections.eligible_leader_replicas({2}, {1}, {2, 3}, 2) == NOBODY
    assert elections.eligible_leader_replicas({1, 2, 3}, NOBODY, {1, 2}, 2) == NOBODY, (
        "a broker that leaves an ISR above the minimum is not eligible"
    )


BROKERS = st.frozensets(st.integers(1, 5))


@given(st.permutations(range(1, 6)), BROKERS, BROKERS, BROKERS, st.integers(-1, 5), st.booleans())
def test_only_live_brokers_lead_and_only_unclean_elections_may_lose(
    assignment: list[int], alive: frozenset[int], isr: frozenset[int], elr: frozenset[int], leader: int, unclean: bool
) -> None:
    election_input = elections.ElectionInput(tuple(assignment), alive, isr, leader, elr - isr)
    elected = elections.elect(election_input, unclean=unclean)
    assert elected.leader == -1 or elected.leader in alive & elected.isr
    assert elected.may_lose is (elected.kind == "unclean")
    clean = alive & (isr or election_input.elr)
    assert elected.kind in (("unclean", "none") if not clean else ("stays", "clean", "elr"))
    assert (elected.leader == -1) is not bool(clean or (unclean and alive))
    if clean and leader not in clean:
        assert elected.leader == next(broker for broker in assignment if broker in clean)
    if elected.kind == "unclean":
        assert elected.leader == next(broker for broker in assignment if broker in alive)


LAG_MS = 30_000


def test_a_follower_at_the_leaders_log_end_is_caught_up_at_any_time() -> None:
    follower = elections.fetched(elections.FetchState(), 10, 10, 1_000)
    assert elections.is_caught_up(follower, 10, 10_000_000, LAG_MS)
    assert not elections.is_caught_up(follower, 11, 10_000_000, LAG_MS)


@pytest.mark.parametrize(("now_ms", "in_sync"), [(1_000, True), (31_000, True), (31_001, False)])
def test_lag_is_measured_in_time_and_not_in_records(now_ms: int, in_sync: bool) -> None:
    follower = elections.fetched(elections.FetchState(), 10, 10, 1_000)
    assert elections.is_caught_up(follower, 1_000_000, now_ms, LAG_MS) is in_sync


def test_a_follower_that_reaches_the_log_end_of_its_last_fetch_is_caught_up() -> None:
    """Under steady writes it never has all records, but has all records up to the log end at its previous fetch."""
    follower = elections.fetched(elections.FetchState(), 0, 0, 0)
    for round_number in range(1, 20):
        follower = elections.fetched(follower, 100 * (round_number - 1), 100 * round_number, 10_000 * round_number)
        assert follower.last_caught_up_ms == 10_000 * (round_number - 1)
        assert elections.is_caught_up(follower, 100 * round_number + 50, 10_000 * round_number + 5_000, LAG_MS)


def test_a_fetching_follower_that_lags_is_not_caught_up() -> None:
    follower = elections.fetched(elections.FetchState(), 0, 0, 0)
    for second in range(1, 40):
        follower = elections.fetched(follower, second, 100 * second, 1_000 * second)
    assert follower.last_caught_up_ms == 0
    assert not elections.is_caught_up(follower, 4_000, 40_000, LAG_MS)


def test_the_leader_is_in_sync_and_followers_without_fetches_are_not() -> None:
    followers = {
        2: elections.fetched(elections.FetchState(), 50, 50, 90_000),
        3: elections.fetched(elections.FetchState(), 20, 20, 1_000),
    }
    assert elections.out_of_sync({1, 2, 3, 4}, 1, followers, 60, 100_000, LAG_MS) == {3, 4}
    assert elections.out_of_sync({1}, 1, {}, 60, 100_000, LAG_MS) == frozenset()


@pytest.mark.parametrize(
    ("end", "high_watermark", "epoch_start", "joins"),
    [(10, 10, 5, True), (9, 10, 5, False), (10, 8, 12, False), (12, 8, 12, True), (0, 0, 0, True)],
)
def test_a_follower_joins_at_the_high_watermark_and_the_start_of_the_leader_epoch(
    end: int, high_watermark: int, epoch_start: int, joins: bool
) -> None:
    """In the third case, a new leader's high watermark is 8, but records below 12 may be committed."""
    assert elections.may_join(end, high_watermark, epoch_start) is joins
