"""How a partition is introduced: nothing may be said of replicas that their bytes do not say."""

import io

from kafka_forensics.cli.output import write_result
from kafka_forensics.cli.output_words import headline, replica_words, summary_lines
from kafka_forensics.cli.streams import Destination
from kafka_forensics.model.results import Agreement, Incomplete, TransactionCounts
from tests.support.results import clean_result, partition, replica


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


def test_what_could_not_be_read_is_not_called_clean() -> None:
    result = clean_result()
    assert summary_lines(result)[0].startswith("clean: nothing found in 2 partitions, ")
    result.incomplete.append(Incomplete("b1/orders-0/00000000000000000000.log", "permission denied"))
    assert summary_lines(result)[0].startswith("clean: nothing found where readable in 2 partitions, ")
    stream = io.StringIO()
    write_result(result, "table", Destination(stream, 80, colour=False), verbose=False)
    assert "4 replicas: nothing found where readable\n" in stream.getvalue()
