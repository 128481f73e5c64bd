"""Hostile coordinators' logs: work and memory stay within what is kept, and nothing is concluded of what is not."""

from types import SimpleNamespace
from typing import Any

from kafka_forensics.analysis.transactions_decided import _ends_open
from kafka_forensics.model.transaction_log import Decision

P0 = ("t", 0)


def decision(epoch: int, at: int) -> Decision:
    return Decision("a", 7, epoch, True, (P0,), at, at, at + 1, 0, at)  # noqa: FBT003 - fields in order


class Counted(int):
    """A number that counts how often numbers like it are compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return int(self) == other

    def __lt__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) < int(other)

    __hash__ = int.__hash__


def test_the_decision_about_open_records_is_found_without_comparing_all_with_all() -> None:
    many = [decision(Counted(1), number) for number in range(300)]
    facts: Any = SimpleNamespace(open={7: SimpleNamespace(producer_epoch=0, first_timestamp=0)})
    Counted.compared = 0
    assert _ends_open(facts, many) is many[0]
    assert Counted.compared < 20 * len(many)
    assert _ends_open(facts, [decision(5, 0)]) is None
