"""What a producer was promised, and what is left of it when replicas die."""

from itertools import chain, combinations

import pytest

from kafka_forensics.replication.acks import (
    ALL,
    LEADER,
    NONE,
    Fate,
    ProduceResponse,
    after_append,
    before_append,
    fate,
    promised_holders,
)
from kafka_forensics.replication.watermarks import LeaderState

FULL = LeaderState(1, 10, 6, frozenset({1, 2, 3}), {2: 6, 3: 9}, min_insync_replicas=2)
SHORT = LeaderState(1, 10, 6, frozenset({1, 2}), {2: 6, 3: 9}, min_insync_replicas=3)
ALONE = LeaderState(1, 10, 6, frozenset({1}), {2: 6, 3: 9}, min_insync_replicas=2)


@pytest.mark.parametrize(
    ("acks", "state", "last_offset", "answer"),
    [
        (NONE, FULL, 99, ProduceResponse.ACKNOWLEDGED),
        (LEADER, FULL, 9, ProduceResponse.ACKNOWLEDGED),
        (LEADER, FULL, 10, ProduceResponse.WAITING),
        (ALL, FULL, 5, ProduceResponse.ACKNOWLEDGED),
        (ALL, FULL, 6, ProduceResponse.WAITING),
        (ALL, ALONE, 5, ProduceResponse.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        (ALL, ALONE, 9, ProduceResponse.WAITING),
        (ALL, SHORT, 5, ProduceResponse.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
    ],
)
def test_what_the_producer_hears(acks: int, state: LeaderState, last_offset: int, answer: ProduceResponse) -> None:
    assert after_append(acks, state, last_offset) is answer


def test_only_acks_all_is_refused_when_the_isr_is_small() -> None:
    assert before_append(ALL, ALONE) is ProduceResponse.NOT_ENOUGH_REPLICAS
    assert before_append(LEADER, ALONE) is ProduceResponse.WAITING
    assert before_append(ALL, FULL) is ProduceResponse.WAITING


@pytest.mark.parametrize(
    ("acks", "isr", "dead", "expected"),
    [
        (ALL, {1, 2, 3}, {1}, Fate.KEPT),
        (ALL, {1, 2, 3}, {1, 2}, Fate.KEPT),
        (ALL, {1, 2, 3}, {1, 2, 3}, Fate.UNAVAILABLE),
        (ALL, {1}, {1}, Fate.UNAVAILABLE),
        (LEADER, {1, 2, 3}, {1}, Fate.NOT_PROMISED),
        (LEADER, {1, 2, 3}, {2, 3}, Fate.KEPT),
        (LEADER, {1}, {1}, Fate.UNAVAILABLE),
        (NONE, {1, 2, 3}, set(), Fate.NOT_PROMISED),
        (NONE, {1}, {1}, Fate.NOT_PROMISED),
    ],
)
def test_what_a_death_does_to_an_acknowledged_record(acks: int, isr: set[int], dead: set[int], expected: Fate) -> None:
    assert fate(acks, 1, isr, dead) is expected


def test_more_acks_never_promise_less() -> None:
    everyone = [1, 2, 3]
    subsets = list(chain.from_iterable(combinations(everyone, size) for size in range(4)))
    rank = {Fate.NOT_PROMISED: 0, Fate.UNAVAILABLE: 1, Fate.KEPT: 2}
    for isr in subsets:
        holders = [promised_holders(acks, 1, isr) for acks in (NONE, LEADER, ALL)]
        assert holders[0] <= holders[1] <= holders[2]
        for dead in subsets:
            ranks = [rank[fate(acks, 1, isr, dead)] for acks in (NONE, LEADER, ALL)]
            assert ranks == sorted(ranks)
