"""Faults that brokers produce: every topic of every copy has the declared findings, and no others."""

from collections import Counter
from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.results import ScanResult
from kafka_forensics.scanning.engine import local
from lab.broker_faults import TOPICS
from lab.fault_base import read_log
from lab.story import Story
from tests.broker.kafka_facts import SUFFIXES, differences_from_kafka_s_tool, lay_out
from tests.gallery import broker_made
from tests.support.brokers import Brokers
from tests.support.faults_verdict import scan
from tests.support.segments import segment_file

pytestmark = pytest.mark.broker

COPIES = [copy for copy in broker_made.COPIES if copy != broker_made.READ]
COVERED = {(case.copy, case.topic) for case in broker_made.BROKER_CASES}
UNDECLARED = [(copy, topic) for copy in COPIES for topic in TOPICS if (copy, topic) not in COVERED]


@pytest.fixture(scope="module")
def results(broker_copies: Path) -> dict[str, ScanResult]:
    folders = {copy: broker_copies / (broker_made.LIVE if copy == broker_made.STILL else copy) for copy in COPIES}
    return {copy: scan(sorted(folder.iterdir()), live=copy == broker_made.LIVE) for copy, folder in folders.items()}


@pytest.fixture(scope="module")
def told(results: dict[str, ScanResult], broker_story: Story) -> dict[str, dict[str, Counter[broker_made.FindingRow]]]:
    told = {copy: broker_made.answers(result) for copy, result in results.items()}
    return told | {
        broker_made.READ: {
            topic: broker_made.answers(result).get(topic, Counter()) for topic, result in broker_story.disturbed.items()
        }
    }


@pytest.fixture(scope="module")
def numbers(broker_copies: Path) -> dict[int, int]:
    log = read_log(broker_copies / broker_made.FORKED / "b2" / "fork-0")
    return {broker_made.FORK: log.epochs[-1].start_offset, broker_made.GROWN: log.next_offset}


def with_real_offsets(row: broker_made.FindingRow, numbers: dict[int, int]) -> broker_made.FindingRow:
    partition, kind, severity, broker, start, end, holders = row
    offsets = [None if offset is None else numbers.get(offset, offset) for offset in (start, end)]
    return partition, kind, severity, broker, offsets[0], offsets[1], holders


@pytest.mark.parametrize("case", broker_made.BROKER_CASES, ids=[f"{case.fault} {case.done}" for case in broker_made.BROKER_CASES])
def test_faults_of_brokers_are_found(
    told: dict[str, dict[str, Counter[broker_made.FindingRow]]], numbers: dict[int, int], case: broker_made.BrokerCase
) -> None:
    assert told[case.copy].get(case.topic, Counter()) == Counter(with_real_offsets(row, numbers) for row in case.findings)


@pytest.mark.parametrize(("copy", "topic"), UNDECLARED)
def test_nothing_else_is_wrong(results: dict[str, ScanResult], copy: str, topic: str) -> None:
    """A topic without a new fault in a copy keeps the findings of an earlier copy, or has none."""
    told = Counter(row for row in broker_made.answers(results[copy]).get(topic, Counter()).elements() if row[2] != "info")
    earlier = [broker_made.above_info(earlier_copy, topic) for earlier_copy in COPIES[: COPIES.index(copy)]]
    assert told == earlier[0] if topic in broker_made.LASTING else told in (Counter(), *earlier, *map(suspected, earlier))


def suspected(rows: Counter[broker_made.FindingRow]) -> Counter[broker_made.FindingRow]:
    """The findings with `warning`, as for brokers that crashed, whose log end proves less."""
    return Counter((row[0], row[1], "warning", *row[3:]) for row in rows.elements())


def test_internal_topics_and_the_cluster_have_only_info(results: dict[str, ScanResult]) -> None:
    """They have only findings of `info`: lag, and elections without loss."""
    for result in results.values():
        others = {topic: told for topic, told in broker_made.answers(result).items() if topic not in TOPICS}
        assert {row[2] for told in others.values() for row in told} <= {"info"}


def test_the_fork_is_where_the_brokers_truncated(broker_copies: Path, numbers: dict[int, int]) -> None:
    """The dead leader's log continues after the fork; when it is back, its log ends like the others."""
    before, after = (read_log(broker_copies / copy / "b1" / "fork-0") for copy in (broker_made.FORKED, broker_made.AFTER))
    assert before.next_offset > numbers[broker_made.FORK]
    assert [entry.start_offset for entry in after.epochs[:2]] == [0, numbers[broker_made.FORK]]
    assert after.next_offset == numbers[broker_made.GROWN]


def test_lost_records_were_in_the_log(broker_copies: Path) -> None:
    ends = {copy: read_log(broker_copies / copy / "b2" / "loss-0").next_offset for copy in (broker_made.UNCLEAN, broker_made.AFTER)}
    assert ends == {broker_made.UNCLEAN: 90, broker_made.AFTER: 75}


def test_a_scan_of_one_dead_broker_alone_claims_no_loss(broker_copies: Path) -> None:
    """Its files do not show the election."""
    result = local.scan([str(broker_copies / broker_made.UNCLEAN / "b2")], ScanOptions(jobs=1))
    above = {(finding.place.topic, finding.kind) for finding in result.findings if finding.severity.value != "info"}
    assert above == {("hanging", "TXN_HANGING"), ("fenced", "TXN_LATE_WRITE"), ("skipping", "PRODUCER_SEQ_GAP")}


def test_a_log_that_shrinks_during_a_scan_is_reported(broker_story: Story) -> None:
    [log] = [
        finding.evidence
        for finding in broker_story.disturbed["shrinks"].findings
        if finding.kind == "EVIDENCE_CHANGED" and finding.place.file == f"shrinks-0/{segment_file(0)}"
    ]
    assert log["after"]["size"] < log["before"]["size"]


def test_logs_that_vanish_during_a_scan_make_it_incomplete(broker_story: Story) -> None:
    disturbed = broker_story.disturbed
    incomplete = {topic: [Path(gap.path) for gap in result.incomplete] for topic, result in disturbed.items()}
    assert (incomplete.pop("grows"), incomplete.pop("shrinks")) == ([], [])
    [gone] = incomplete.values()
    assert {path.parent.name for path in gone} == {"vanishes-0"}
    assert sorted(path.name for path in gone) == [segment_file(0)] * 2 + ["leader-epoch-checkpoint"] * 2


def test_facts_are_those_of_kafka_s_tool(real_base: Brokers, broker_copies: Path, tmp_path: Path) -> None:
    laid = lay_out([real_base.root, broker_copies], tmp_path / "layout")
    assert {Path(file.path).suffix for file in laid} >= set(SUFFIXES) - {".checkpoint"}
    assert {file.topic for file in laid} >= {None, "__consumer_offsets", "__transaction_state"}
    assert differences_from_kafka_s_tool(laid, tmp_path / "layout", tmp_path) == {}
