"""How a partition is introduced: nothing may be said of replicas that their bytes do not say."""

import io
from dataclasses import replace

from kafka_forensics.analysis.catalogue import finding
from kafka_forensics.cli.outputs.scan import write_result
from kafka_forensics.cli.outputs.words import by_kind, headline, replica_words, summary_lines
from kafka_forensics.cli.streams import Destination
from kafka_forensics.model.findings import Place
from kafka_forensics.model.results import Agreement, Incomplete, TransactionCounts
from tests.support.results import clean_result, partition, replica, result_of


def test_a_damaged_replica_is_not_called_identical() -> None:
    healthy = partition("orders", 0, Agreement("identical", 9), [replica(1, 9), replica(2, 9)], [])
    assert headline(healthy).startswith("the replicas are identical; ")
    healthy.verdict = "error"
    assert headline(healthy).startswith("the replicas agree in what they still hold; ")


def test_where_damaged_batches_are_is_left_to_the_findings() -> None:
    damaged = partition("orders", 0, Agreement("content", 79), [replica(1, 79), replica(2, 79)], [])
    assert headline(damaged).startswith("the replicas differ in batches of one leader epoch; ")
    conflict = partition("orders", 0, Agreement("conflict", 79), [replica(1, 90), replica(2, 90)], [])
    assert headline(conflict).startswith("the replicas diverge at offset 79; ")


def test_a_count_is_not_taken_for_an_epoch() -> None:
    one = replica(1, 9, transactions=TransactionCounts(open=1), missing_offsets=1)
    assert replica_words(one)[-1] == "epoch 0; 1 offset missing; 1 open transaction"


def test_what_could_not_be_read_is_not_called_clean() -> None:
    result = clean_result()
    assert summary_lines(result)[0].startswith("clean: nothing found in 2 partitions, ")
    result.incomplete.append(Incomplete("b1/orders-0/00000000000000000000.index", "permission denied", "orders", 0, 1))
    assert summary_lines(result)[0].startswith("clean: nothing found where readable in 2 partitions, ")
    hidden = replace(result, incomplete=[Incomplete("b2", "permission denied")])
    assert summary_lines(hidden)[0].startswith("unknown: nothing found where readable in 2 partitions, ")
    stream = io.StringIO()
    write_result(result, "table", Destination(stream, 80, colour=False), verbose=False)
    assert "4 replicas: nothing found where readable\n" in stream.getvalue()


def test_what_an_election_cost_is_told_though_it_is_info() -> None:
    def table(evidence: dict[str, object]) -> str:
        one = finding("UNCLEAN_ELECTION", Place("audit", 0), {"old_leader": 2, "new_leader": 1} | evidence)
        open_transaction = finding("TXN_OPEN", Place("audit", 0), {})
        stream = io.StringIO()
        write_result(result_of(one, open_transaction), "table", Destination(stream, 80, colour=False), verbose=False)
        return stream.getvalue()

    assert "an unclean election" not in table({"same_leader": True})
    told = table({"cost_finding": "UNCLEAN_LOSS"})
    assert "background  audit-0: an unclean election made broker 1 the leader" in told
    assert "more with -v: TXN_OPEN" in told
    assert "harmless" not in told


def test_the_gravest_come_first_in_tables_and_rows() -> None:
    same = {"same_leader": True, "new_leader": 2}
    findings = [
        finding("RISKY_CONFIG", Place()),
        finding("UNCLEAN_ELECTION", Place("a", 0), same),
        finding("UNCLEAN_LOSS", Place("b", 0, offset_start=5, offset_end=9)),
        finding("UNCLEAN_ELECTION", Place("c", 0), {"agree_again": True, "new_leader": 1}),
        finding("UNCLEAN_LOSS", Place("d", 0, offset_start=5, offset_end=50)),
    ]
    result = result_of(*findings)
    rows = io.StringIO()
    write_result(result, "tsv", Destination(rows, 80, colour=False))
    told = [tuple(line.split("\t")[0:4:3]) for line in rows.getvalue().splitlines()[1:]]
    assert told == [
        ("UNCLEAN_LOSS", "d"),
        ("UNCLEAN_LOSS", "b"),
        ("UNCLEAN_ELECTION", "c"),
        ("RISKY_CONFIG", ""),
        ("UNCLEAN_ELECTION", "a"),
    ]
    page = io.StringIO()
    write_result(result, "table", Destination(page, 80, colour=False), by="partition")
    heads = [line.split()[:2] for line in page.getvalue().splitlines() if line[:1].isalpha()]
    assert heads == [["CRITICAL", "d-0"], ["CRITICAL", "b-0"], ["INFO", "c-0"], ["info", "more"]]
    assert [each.place.topic for each in by_kind(findings)[0]] == ["d", "b"]
