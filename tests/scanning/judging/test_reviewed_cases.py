"""Legal states that a scan must not report, and faults that it must not miss, from reviews."""

import time
from collections import Counter
from pathlib import Path

import pytest

from kafka_forensics.analysis.kinds import finding
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity
from kafka_forensics.scanning.engine import local
from kafka_forensics.scanning.folding import splits
from kafka_forensics.scanning.judging.whole_scan import EXAMPLES, LIMIT, counted
from kafka_forensics.wording import advice, message
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.scanning.judging.scenes import history
from tests.support.brokers import DIRECTORY, TOPIC, Brokers, healthy, put_checkpoint, put_replicas, put_segment
from tests.support.faults_verdict import finding_rows, scan_brokers
from tests.support.segments import BASE_TIMESTAMP, write_offset_index


def test_split_points_inside_one_large_batch_are_all_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits, "SPLIT_BYTES", 1 << 14)
    monkeypatch.setattr(splits, "SEARCHED_BYTES", 1 << 13)
    log = history(*[("p", 0)] * 4)
    inner = [write_batch([RecordToWrite(b"k", bytes(2000))], base_offset=100 + n, base_timestamp=BASE_TIMESTAMP) for n in range(50)]
    outer = write_batch([RecordToWrite(b"k", b"".join(inner))], base_offset=12, base_timestamp=BASE_TIMESTAMP)
    log.append(outer, 12, BASE_TIMESTAMP)
    for _ in range(20):
        log.plain()
    brokers = put_replicas(tmp_path, {1: log})
    for suffix in ("index", "timeindex"):
        brokers.file(1, 0, suffix).unlink()
    (plan,) = gather([str(brokers.log_dir(1))], ScanOptions()).replicas
    size = brokers.file(1, 0).stat().st_size
    assert len(splits.splits_of(0, plan)) > 5
    result = scan_brokers(brokers)
    assert finding_rows(result) == [("INDEX_MISSING", "info", 1)]
    assert (result.totals.bytes_total, result.totals.batches) == (size, len(log.batches))


def test_many_short_segments_with_wrong_indexes_take_little_time(tmp_path: Path) -> None:
    directory = tmp_path / DIRECTORY
    directory.mkdir()
    for segment in range(0, 400_000, 1000):
        batches = [write_batch([RecordToWrite(None, b"v")], base_offset=segment + 10 * n, base_timestamp=0) for n in range(3)]
        put_segment(directory, segment, batches)
        beyond = [(segment + 500 + n, 10_000 + n) for n in range(8)]
        put_segment(directory, segment, write_offset_index(beyond, segment), "index")
    start = time.process_time()
    result = local.scan([str(directory)], ScanOptions())
    assert time.process_time() - start < 5
    assert sum(finding.kind == "SEG_SHORT" for finding in result.findings) == 399


MANY = LIMIT + 150


@pytest.fixture
def brokers(tmp_path: Path) -> Brokers:
    return healthy(tmp_path)


def missing(number: int, broker: int = 1, *, topic: str = "gone", severity: Severity | None = None) -> Finding:
    place = Place(topic, number, broker, f"/b{broker}", offset_start=0, offset_end=number)
    evidence = {"high_watermark": number, "file": "replication-offset-checkpoint"}
    return finding("REPLICA_MISSING", place, evidence, severity=severity)


def ordered(*findings: Finding) -> list[Finding]:
    return sorted(findings, key=Finding.sort_key)


def test_findings_beyond_the_limit_are_one_finding_for_each_broker() -> None:
    findings_before = ordered(*(missing(number) for number in range(MANY)), *(missing(number, 2) for number in range(3)))
    findings = counted(findings_before, ())
    assert findings == ordered(*findings)
    assert Counter(finding.place.broker for finding in findings) == {1: LIMIT + 1, 2: 3}
    assert [finding for finding in findings if "counted" not in finding.evidence] == [
        finding for finding in findings_before if finding.place.partition in range(LIMIT)
    ]
    (summary,) = [finding for finding in findings if "counted" in finding.evidence]
    assert (summary.severity, summary.place) == (findings_before[0].severity, Place(broker=1, log_dir="/b1"))
    examples = [f"gone-{number}" for number in range(LIMIT, LIMIT + EXAMPLES)]
    assert summary.evidence == {"counted": 150, "examples": examples, "file": "replication-offset-checkpoint"}
    assert message(summary).startswith("broker 1: 150 more findings of this kind (")
    assert message(summary).endswith(", gone-105.")


@pytest.mark.parametrize("number", [LIMIT - 1, LIMIT, LIMIT + 1])
def test_up_to_the_limit_and_one_more_no_findings_are_merged(number: int) -> None:
    findings_before = ordered(*(missing(partition) for partition in range(number)))
    assert counted(findings_before, ()) == findings_before


def test_severities_are_counted_separately_with_the_least_confidence() -> None:
    grave = [missing(number, severity=Severity.CRITICAL) for number in range(MANY)]
    mild = [missing(number, topic="other") for number in range(5)]
    doubtful = finding("REPLICA_MISSING", Place("last", 1, 1), {}, severity=Severity.CRITICAL, confidence=Confidence.SUSPECTED)
    findings = counted(ordered(*grave, *mild, doubtful), ())
    assert Counter(finding.severity for finding in findings) == {Severity.CRITICAL: LIMIT + 1, mild[0].severity: 5}
    assert [finding.confidence for finding in findings if "counted" in finding.evidence] == [Confidence.SUSPECTED]


@pytest.mark.parametrize("topic", ["gone", "__cluster_metadata", "__transaction_state", "__consumer_offsets"])
def test_findings_of_logs_that_were_read_are_not_merged(topic: str) -> None:
    findings_before = ordered(*(missing(number, topic=topic) for number in range(MANY)))
    assert counted(findings_before, {("gone", number) for number in range(MANY)}) == findings_before


def test_findings_of_topics_and_transactions_are_not_merged() -> None:
    """They are not about log directories."""
    findings_before = ordered(*(finding("RISKY_CONFIG", Place(f"t{number}"), {}) for number in range(MANY)))
    findings_before += [finding("TXN_PARTLY_LOST", Place(), {"transactional_id": str(number)}) for number in range(MANY)]
    assert counted(findings_before, ()) == findings_before


def test_a_checkpoint_with_very_many_lines_is_summarised(brokers: Brokers) -> None:
    offsets = {f"gone-{number}": number + 1 for number in range(MANY)} | {DIRECTORY: 72}
    for broker in (1, 2):
        put_checkpoint(brokers.log_dir(broker), "replication", offsets)
    findings = [finding for finding in scan_brokers(brokers).findings if finding.place.topic != TOPIC]
    groups = Counter((finding.kind, finding.severity, finding.place.broker) for finding in findings)
    assert groups
    assert max(groups.values()) <= LIMIT + 1
    summaries = [finding for finding in findings if "counted" in finding.evidence]
    for merged in summaries:
        assert merged.evidence["counted"] + groups[merged.kind, merged.severity, merged.place.broker] - 1 == MANY
        assert message(merged)
        assert merged.severity is Severity.INFO or advice(merged)


ONLY = "Only one copy was scanned"


def damaged(root: Path) -> Brokers:
    """On broker 2 a batch has a flipped bit, and a segment is missing."""
    brokers = healthy(root)
    brokers.flip(2, brokers.log.at(5), 100)
    for suffix in ("log", "index", "timeindex"):
        brokers.file(2, 29, suffix).unlink()
    return brokers


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("broker", [None, "2"])
def test_comparing_is_advised_where_several_copies_were_given(tmp_path: Path, together: bool, broker: str | None) -> None:
    """Even if only one of them is scanned."""
    brokers = damaged(tmp_path)
    paths = brokers.log_dirs if together else [brokers.log_dir(2)]
    findings = local.scan([str(path) for path in paths], ScanOptions(broker=broker)).findings
    assert {finding.kind for finding in findings} >= {"BATCH_CRC_MISMATCH", "SEGMENT_MISSING"}
    texts = [
        advice(finding) or "" for finding in findings if finding.kind in ("BATCH_CRC_MISMATCH", "SEGMENT_MISSING", "OFFSET_GAP")
    ]
    assert all(("kafka-forensics compare" in text) is together for text in texts)
    assert all((ONLY in text) is not together for text in texts)
