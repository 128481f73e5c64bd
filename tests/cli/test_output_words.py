"""How a partition is introduced: nothing may be said of replicas that their bytes do not say."""

from kafka_forensics.cli.output_words import headline, replica_words
from kafka_forensics.model.results import Agreement, TransactionCounts
from tests.support.results import partition, replica


def test_a_damaged_replica_is_not_called_identical() -> None:
    healthy = partition("orders", 0, Agreement("identical", 9), [replica(1, 9), replica(2, 9)], [])
    assert headline(healthy).startswith("the replicas are identical; ")
    healthy.verdict = "error"
    assert headline(healthy).startswith("the replicas agree in what they still hold; ")


def test_where_damaged_batches_are_is_left_to_the_findings() -> None:
    damaged = partition("orders", 0, Agreement("content", 79), [replica(1, 79), replica(2, 79)], [])
    assert headline(damaged).startswith("the replicas differ in batches of one leader epoch; ")
    conflict = partition("orders", 0, Agreement("conflict", 79), [replica(1, 90), replica(2, 90)], [])
    assert headline(conflict).startswith("the replicas conflict from offset 79 on; ")


def test_a_count_is_not_taken_for_an_epoch() -> None:
    one = replica(1, 9, transactions=TransactionCounts(open=1), missing_offsets=1)
    assert replica_words(one)[-1] == "epoch 0; 1 offset missing; 1 open transaction"
