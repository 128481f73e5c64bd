"""Possible leaders of the controller quorum agree with elections by every majority."""

from itertools import combinations

from hypothesis import given, strategies as st

from kafka_forensics.model.controller import QuorumLog, VoterSet
from kafka_forensics.replication.quorum import possible_leaders

NODES = range(1, 6)


def log(node: int, epoch: int, end: int, voters: VoterSet | None, directory_id: str | None = None) -> QuorumLog:
    return QuorumLog(node, directory_id, epoch, end, end, voters)


def elected_by_some_majority(candidate: QuorumLog, logs: list[QuorumLog]) -> bool:
    """Whether any majority of the candidate's voters that contains it votes for it."""
    if candidate.voters is None or candidate.node not in candidate.voters.directories:
        return False
    by_node = {log.node: log for log in logs}
    voters = [*candidate.voters.directories]
    for size in range(len(voters) // 2 + 1, len(voters) + 1):
        for majority in combinations(voters, size):
            if candidate.node in majority and all(node in by_node and by_node[node].rank <= candidate.rank for node in majority):
                return True
    return False


@given(st.data())
def test_possible_leaders_are_those_that_a_majority_elects(data: st.DataObject) -> None:
    sets = st.none() | st.sets(st.sampled_from(NODES), min_size=1).map(lambda nodes: VoterSet(dict.fromkeys(nodes)))
    present = data.draw(st.sets(st.sampled_from(NODES)))
    ranks = st.tuples(st.integers(-1, 2), st.integers(0, 2))
    logs = [log(node, *data.draw(ranks), data.draw(sets)) for node in sorted(present)]
    assert possible_leaders(logs) == [candidate for candidate in logs if elected_by_some_majority(candidate, logs)]


def test_two_of_three_voters_with_empty_logs_can_elect_each_other() -> None:
    voters = VoterSet(dict.fromkeys([1, 2, 3]))
    logs = [log(1, -1, 0, voters), log(2, -1, 0, voters), log(3, 1, 300, voters)]
    assert [leader.node for leader in possible_leaders(logs)] == [1, 2, 3]
    assert [leader.node for leader in possible_leaders(logs[1:])] == [3]
    assert possible_leaders(logs[2:]) == []


def test_a_node_with_an_empty_log_has_no_voters_and_cannot_lead() -> None:
    voters = VoterSet(dict.fromkeys([1, 2, 3]))
    logs = [log(1, -1, 0, None), log(2, -1, 0, None), log(3, 1, 300, voters)]
    assert [leader.node for leader in possible_leaders(logs)] == [3]


def test_a_vote_counts_only_from_the_log_directory_of_the_voter() -> None:
    voters = VoterSet({1: "one", 2: "two", 3: "three"})
    replaced = [log(1, -1, 0, None, "other"), log(2, -1, 0, None, "other"), log(3, 1, 300, voters, "three")]
    assert possible_leaders(replaced) == []
    kept = [log(1, -1, 0, None, "one"), *replaced[1:]]
    assert [leader.node for leader in possible_leaders(kept)] == [3]
