"""What a producer is promised."""

import pytest

from kafka_forensics.replication.acks import (
    ALL,
    LEADER,
    NONE,
    ProduceResponse,
    after_append,
    before_append,
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
