"""The table that goes by incident: a cluster fits a screen, the worst comes first, and a lone finding reads as it did."""

import io
import re
from pathlib import Path

import pytest

from kafka_forensics.analysis.catalogue import finding
from kafka_forensics.cli.outputs.scan import write_result
from kafka_forensics.cli.streams import Destination
from kafka_forensics.model.findings import Finding, Place
from kafka_forensics.model.results import Agreement, Read, ScanResult
from tests.support.plan_runs import Run
from tests.support.replicas import unclean_election
from tests.support.results import partition, replica, result_of

SCREEN = 60
"""Lines."""


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def table(result: ScanResult, *, by: str = "incident", verbose: bool = False, width: int = 80) -> str:
    stream = io.StringIO()
    write_result(result, "table", Destination(stream, width, colour=False), by=by, verbose=verbose)
    return stream.getvalue()


def unwrapped(text: str) -> str:
    return " ".join(text.split())


def rows(text: str) -> list[list[str]]:
    """The cells of the partitions of the only incident, without the head."""
    lines = text.split("  partition ")[1].splitlines()[1:]
    return [re.split(r" {3,}", line.strip()) for line in lines if re.match(r"  [\w.]+-\d+ ", line)]


def test_40_partitions_of_one_unclean_election_fit_a_screen(tmp_path: Path, run: Run) -> None:
    log_dirs = unclean_election(tmp_path / "copies", 40)
    status, out, err = run("scan", *log_dirs, "--format", "table")
    assert status == 1
    assert len((out + err).splitlines()) <= SCREEN
    text = unwrapped(out)
    assert text.startswith("CRITICAL unclean election, 2026-11-21T05:46:43Z: 40 partitions, 2800 committed records ")
    assert "An unclean election passed over broker 2; the leader elected instead lacks committed records of 40 partitions." in text
    assert "2800 committed records survive only on broker 2, and Kafka would truncate them there to match the new leader." in text
    assert "found UNCLEAN_LOSS 40 (critical, proven)" in text
    assert "known as KAFKA-10751" in text
    assert "do first Leave broker 2 stopped until its log directories are copied elsewhere." in text
    assert rows(out) == [[f"audit-{number}", "300 to 369", "70", "2"] for number in range(20)]
    paths = " ".join(map(str, log_dirs))
    commands = re.findall(r"\$ (.*)", out.replace(" \\\n", " "))
    assert [unwrapped(command) for command in commands] == [
        f"kafka-forensics plan {paths} --topic audit",
        f"kafka-forensics scan {paths} --by partition --topic audit",
    ]
    assert "20 more partitions, and every finding:\n" in out
    assert err.splitlines()[0].startswith("critical: 40 critical, ")
    assert max(map(len, re.sub(r"\n *\$ (?:.*\\\n)*.*", "", out).splitlines())) <= 80


def lost(number: int, offsets: int, topic: str = "audit") -> Finding:
    place = Place(topic, number, offset_start=0, offset_end=offsets)
    return finding("UNCLEAN_LOSS", place, {"held_by": [2], "versions": [{"brokers": [1]}, {"brokers": [2]}]})


def test_the_longest_loss_comes_first_and_kinds_stand_beside_where_there_are_several() -> None:
    differs = finding("REPLICA_DIFFERS", Place("audit", 1, 2, offset_start=0, offset_end=5), {"minority": [2], "held_by": [2]})
    text = table(result_of(lost(0, 10), lost(1, 30), differs, lost(2, 20)))
    assert rows(text) == [
        ["audit-1", "0 to 29", "30", "2", "UNCLEAN_LOSS, REPLICA_DIFFERS"],
        ["audit-2", "0 to 19", "20", "2", "UNCLEAN_LOSS"],
        ["audit-0", "0 to 9", "10", "2", "UNCLEAN_LOSS"],
    ]
    assert "CRITICAL  replicas diverge: 3 partitions, 60 committed offsets\n" in text
    narrow = table(result_of(lost(0, 10), lost(1, 30), differs, lost(2, 20)), width=50)
    assert rows(narrow)[0] == ["audit-1", "0 to 29", "30", "2"]


def test_the_worst_incident_comes_first_whatever_its_size() -> None:
    damage = [finding("BATCH_CRC_MISMATCH", Place("orders", number, 1), {"held_by": [2]}) for number in range(9)]
    text = table(result_of(*damage, lost(7, 10)))
    assert [line.split("  ")[0] for line in text.splitlines() if line[:1].isupper()] == ["CRITICAL", "ERROR"]
    assert text.startswith("CRITICAL  audit-7\n")


def test_a_lone_finding_reads_as_by_partition_but_for_the_line_of_its_incident() -> None:
    result = result_of(lost(0, 10))
    result.partitions = [partition("audit", 0, Agreement("conflict", 0), [replica(1, 5), replica(2, 10)], result.findings)]
    lines = table(result).splitlines()
    assert lines.pop(2) == "  incident  replicas diverge; it costs 10 committed offsets"
    assert lines == table(result, by="partition").splitlines()


def test_what_was_not_read_has_a_word_of_its_own_beside_incidents() -> None:
    result = result_of(lost(0, 10), lost(1, 10))
    unread = replica(1, 5, read=Read.NONE, log_end_offset=None)
    result.partitions = [partition("dark", number, Agreement("not_compared"), [unread], []) for number in range(9)]
    for summary in result.partitions:
        summary.judge([])
    text = table(result)
    assert text.count("UNKNOWN   dark-") == 5
    assert "  4 more partitions of which something is to be said:\n" in text
