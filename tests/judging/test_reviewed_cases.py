"""States that once misled a scan: legal ones it took for faults, faults it did not see."""

import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from kafka_forensics.analysis.catalogue import finding
from kafka_forensics.analysis.replicas import diff as differences
from kafka_forensics.engine import local
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.folding import splits
from kafka_forensics.judging.scanning import EXAMPLES, LIMIT, counted
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity
from kafka_forensics.wording import advice, message
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from kafka_forensics.writers.files import write_leader_epochs, write_offset_checkpoint
from tests.support.faults import BASE_TIMESTAMP, DIRECTORY, TOPIC, Brokers, Log, healthy, histories, write_checkpoint
from tests.support.faults_verdict import kinds, offsets, only, said, scan, verdict
from tests.support.segments import write_offset_index

COMMON = [("p", 0)] * 4
"""Offsets [0, 12) of a history."""


def history(*batches: tuple[str, int]) -> Log:
    """A log of batches of three records, each with its history and its leader epoch; `|` begins a segment."""
    log = Log()
    for tag, leader_epoch in batches:
        if tag == "|":
            log.roll()
            continue
        log.tag = tag
        log.lead(leader_epoch)
        log.plain()
    return log


def remove_segment(brokers: Brokers, broker: int, base_offset: int) -> None:
    for path in (brokers.log_dir(broker) / DIRECTORY).glob(f"{base_offset:020d}.*"):
        path.unlink()


@pytest.mark.parametrize("folders", [("one", "two"), ("one/data", "two/data")])
def test_folders_called_alike_claim_no_node_id(tmp_path: Path, folders: tuple[str, str]) -> None:
    log = history(*COMMON)
    brokers = histories(tmp_path / "brokers", {1: log, 2: log}, {1: 12, 2: 12})
    for broker, folder in enumerate(folders, 1):
        shutil.copytree(brokers.log_dir(broker) / DIRECTORY, tmp_path / folder / DIRECTORY)
    paths = [tmp_path / folder for folder in folders]
    for result in (scan(paths), scan([path / DIRECTORY for path in paths])):
        assert said(result) == []
        assert (result.partitions[0].agreement.kind, len(result.partitions[0].replicas)) == ("identical", 2)


def test_damage_at_the_front_says_what_it_cost(tmp_path: Path) -> None:
    log = history(*COMMON)
    brokers = histories(tmp_path, {1: log, 2: log}, {1: 12, 2: 12})
    brokers.overwrite(2, log.batches[0], (2**31 - 1).to_bytes(4, "big"), 8)
    result = verdict(brokers)
    assert (offsets(only(result, "FRAMING_LOST")), only(result, "FRAMING_LOST").evidence["held_by"]) == ((0, 3), [1])
    assert offsets(only(result, "HIDDEN_BYTES")) == (3, 12)


def test_an_empty_last_segment_names_the_log_end(tmp_path: Path) -> None:
    log = history(*COMMON, ("|", 0))
    result = verdict(histories(tmp_path, {1: log, 2: log}, {1: 12, 2: 12}))
    assert said(result) == []
    assert [replica.log_end_offset for replica in result.partitions[0].replicas] == [12, 12]


def test_a_segment_missing_before_an_empty_one(tmp_path: Path) -> None:
    log = history(("p", 0), ("p", 0), ("|", 0), ("p", 0), ("p", 0), ("|", 0))
    brokers = histories(tmp_path, {1: log, 2: log}, {1: 6, 2: 12})
    remove_segment(brokers, 1, 6)
    result = verdict(brokers)
    assert said(result) == [("OFFSET_GAP", "critical", 1), ("SEGMENT_MISSING", "error", 1)]
    assert offsets(only(result, "OFFSET_GAP")) == (6, 12)
    assert only(result, "OFFSET_GAP").evidence["held_by"] == [2]
    assert [replica.log_end_offset for replica in result.partitions[0].replicas] == [12, 12]


def test_a_retry_that_came_to_two_leaders_is_no_wrong_epoch(tmp_path: Path) -> None:
    old, new = history(*COMMON, ("retry", 0)), history(*COMMON, ("retry", 1), ("n", 1))
    result = verdict(histories(tmp_path, {1: old, 2: new}, {1: 12, 2: 12}))
    assert said(result) == [("BATCHES_REENCODED", "info", None), ("REPLICA_LAGS", "info", 1)]
    assert offsets(only(result, "BATCHES_REENCODED")) == (12, 15)


def test_a_second_fork_behind_the_first_is_told_too(tmp_path: Path) -> None:
    logs = {1: history(("p", 0), ("p", 1), ("a", 1)), 2: history(("p", 0), ("p", 1), ("b", 1)), 3: history(("p", 0), ("x", 2))}
    result = verdict(histories(tmp_path, logs, {1: 3, 2: 3, 3: 3}))
    assert said(result) == [("FORK_ABOVE_HW", "info", None), ("SAME_EPOCH_DIVERGENCE", "critical", None)]
    assert offsets(only(result, "FORK_ABOVE_HW"))[0] == 3
    assert offsets(only(result, "SAME_EPOCH_DIVERGENCE")) == (6, 9)


@pytest.mark.parametrize(("high_watermark", "further"), [(12, []), (18, [("UNCLEAN_LOSS", "critical", None)])])
def test_a_replica_that_begins_behind_a_fork_speaks_for_its_version(
    tmp_path: Path, high_watermark: int, further: list[tuple[str, str, None]]
) -> None:
    old, new = history(*COMMON, *[("old", 0)] * 2), history(*COMMON, *[("new", 1)] * 2)
    late = Log(tag="old", next_offset=15)
    late.plain()
    brokers = histories(tmp_path, {1: old, 2: new, 3: late}, {1: 12, 2: 12, 3: high_watermark})
    result = verdict(brokers)
    assert said(result) == [("FORK_ABOVE_HW", "info", None), *further]
    assert offsets(only(result, "FORK_ABOVE_HW")) == (12, 18)


THREE_SEGMENTS = history(*[("p", 0)] * 3, ("|", 0), *[("p", 0)] * 3, ("|", 0), *[("p", 0)] * 3)
"""Offsets [0, 27) in the segments 0, 9 and 18."""


def cut_out(brokers: Brokers, broker: int, *offsets_of_batches: int) -> None:
    """Take whole batches out of the segment that holds them, and the indexes with them."""
    segment = THREE_SEGMENTS.at(offsets_of_batches[0]).segment
    kept = [one.data for one in THREE_SEGMENTS.of_segment(segment) if one.base_offset not in offsets_of_batches]
    brokers.file(broker, segment).write_bytes(b"".join(kept))
    for suffix in ("index", "timeindex"):
        brokers.file(broker, segment, suffix).unlink()


@pytest.mark.parametrize(("high_watermark", "lost"), [(27, (12, 15)), (13, (12, 13))])
def test_lost_everywhere_is_what_no_log_holds_below_the_high_watermark(
    tmp_path: Path, high_watermark: int, lost: tuple[int, int]
) -> None:
    brokers = histories(tmp_path, {1: THREE_SEGMENTS, 2: THREE_SEGMENTS}, {1: high_watermark, 2: high_watermark})
    cut_out(brokers, 1, 9, 12)
    cut_out(brokers, 2, 12, 15)
    result = verdict(brokers)
    finding = only(result, "COMMITTED_LOST_EVERYWHERE")
    assert (offsets(finding), finding.evidence["missing"]) == (lost, lost[1] - lost[0])
    assert sorted(offsets(finding) for finding in result.findings if finding.kind == "OFFSET_GAP") == [(9, 15), (12, 18)]


def test_what_expired_on_the_other_replica_is_not_lost_everywhere(tmp_path: Path) -> None:
    brokers = histories(tmp_path, {1: THREE_SEGMENTS, 2: THREE_SEGMENTS}, {1: 27, 2: 27})
    cut_out(brokers, 1, 3)
    remove_segment(brokers, 2, 0)
    result = verdict(brokers)
    assert said(result) == [("INDEX_MISSING", "info", 1), ("OFFSET_GAP", "critical", 1)]


def test_many_rotten_batches_at_the_end_keep_the_log_end(tmp_path: Path) -> None:
    log = history(*[("p", 0)] * 60)
    brokers = histories(tmp_path, {1: log, 2: log}, {1: 180, 2: 180})
    path = brokers.file(2, 0)
    rotten = bytearray(path.read_bytes())
    for batch in log.batches[10:]:
        rotten[batch.position + 70] ^= 1
    path.write_bytes(rotten)
    result = verdict(brokers)
    assert {kind for kind, _, _ in said(result)} == {"BATCH_CRC_MISMATCH", "REPLICA_DIFFERS"}
    assert [replica.log_end_offset for replica in result.partitions[0].replicas] == [180, 180]


def test_epochs_cut_before_the_moved_log_start_was_written(tmp_path: Path) -> None:
    brokers = histories(tmp_path, {1: history(("p", 0), ("p", 0), ("p", 1), ("p", 1))}, {1: 12})
    brokers.named(1, "leader-epoch-checkpoint").write_bytes(write_leader_epochs([EpochEntry(1, 8)]))
    assert said(verdict(brokers)) == [("EPOCH_CACHE_MISMATCH", "error", 1)]
    brokers.crash(1)
    assert said(verdict(brokers)) == [("EPOCH_CACHE_MISMATCH", "info", 1)]


@pytest.mark.parametrize(("start", "severity"), [(12, "info"), (9, "error"), (10, "info")])
def test_epochs_cut_behind_segments_that_are_still_there(tmp_path: Path, start: int, severity: str) -> None:
    """Segments below a log start that DeleteRecords moved stay until retention is checked. A cut where an epoch begins may be a
    file that lost its first entry."""
    log = history(("p", 0), ("p", 0), ("|", 0), ("p", 0), ("p", 1), ("p", 1))
    brokers = histories(tmp_path, {1: log}, {1: 15})
    brokers.named(1, "leader-epoch-checkpoint").write_bytes(write_leader_epochs([EpochEntry(1, start)]))
    assert said(verdict(brokers)) == [("EPOCH_CACHE_MISMATCH", "error", 1)]
    brokers.crash(1)
    assert said(verdict(brokers)) == [("EPOCH_CACHE_MISMATCH", severity, 1)]
    assert ("EPOCH_CACHE_MISMATCH", "info", 1) in said(verdict(brokers, live=True))


@pytest.mark.parametrize(("epoch", "severity"), [(1, "info"), (2, "error")])
def test_records_deleted_up_to_the_log_end(tmp_path: Path, epoch: int, severity: str) -> None:
    """A checkpoint with one entry at the log end: nothing of it contradicts a log that starts there; before that was written, it
    must be of the last batch's epoch, or the file may have been made anew."""
    brokers = histories(tmp_path, {1: history(("p", 0), ("p", 0), ("p", 1), ("p", 1))}, {1: 12})
    brokers.named(1, "leader-epoch-checkpoint").write_bytes(write_leader_epochs([EpochEntry(epoch, 12)]))
    brokers.crash(1)
    assert said(verdict(brokers)) == [("EPOCH_CACHE_MISMATCH", severity, 1)]
    write_checkpoint(brokers.log_dir(1), "log-start", 12)
    assert said(verdict(brokers)) == []


def test_split_points_inside_one_large_batch_are_all_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits, "SPLIT_BYTES", 1 << 14)
    monkeypatch.setattr(splits, "SEARCHED_BYTES", 1 << 13)
    log = history(*COMMON)
    inner = [write_batch([RecordToWrite(b"k", bytes(2000))], base_offset=100 + n, base_timestamp=BASE_TIMESTAMP) for n in range(50)]
    outer = write_batch([RecordToWrite(b"k", b"".join(inner))], base_offset=12, base_timestamp=BASE_TIMESTAMP)
    log.append(outer, 12, BASE_TIMESTAMP)
    for _ in range(20):
        log.plain()
    brokers = histories(tmp_path, {1: log}, {1: log.next_offset})
    for suffix in ("index", "timeindex"):
        brokers.file(1, 0, suffix).unlink()
    (plan,) = gather([str(brokers.log_dir(1))], ScanOptions()).replicas
    size = brokers.file(1, 0).stat().st_size
    assert len(splits.splits_of(0, plan)) > 5
    result = verdict(brokers)
    assert said(result) == [("INDEX_MISSING", "info", 1)]
    assert (result.totals.bytes_total, result.totals.batches) == (size, len(log.batches))


def test_many_short_segments_with_lying_indexes_take_little_time(tmp_path: Path) -> None:
    directory = tmp_path / DIRECTORY
    directory.mkdir()
    for segment in range(0, 400_000, 1000):
        batches = [write_batch([RecordToWrite(None, b"v")], base_offset=segment + 10 * n, base_timestamp=0) for n in range(3)]
        (directory / f"{segment:020d}.log").write_bytes(b"".join(batches))
        beyond = [(segment + 500 + n, 10_000 + n) for n in range(8)]
        (directory / f"{segment:020d}.index").write_bytes(write_offset_index(beyond, segment))
    start = time.process_time()
    result = local.scan([str(directory)], ScanOptions())
    assert time.process_time() - start < 5
    assert sum(finding.kind == "SEG_SHORT" for finding in result.findings) == 399


def test_batches_written_anew_hide_no_conflict_behind_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences, "DIFFERENCES_KEPT", 16)
    for name, compression_type, other in (("a", "none", b"x"), ("b", "gzip", b"y")):
        values = [b"v"] * 60 + [other] * 4
        batches = [
            write_batch([RecordToWrite(b"k", value)], base_offset=n, base_timestamp=0, compression_type=compression_type)
            for n, value in enumerate(values)
        ]
        directory = tmp_path / name / DIRECTORY
        directory.mkdir(parents=True)
        (directory / f"{0:020d}.log").write_bytes(b"".join(batches))
    result = scan([tmp_path / "a", tmp_path / "b"])
    assert offsets(only(result, "SAME_EPOCH_DIVERGENCE")) == (60, 64)
    finding = only(result, "BATCHES_REENCODED")
    assert (offsets(finding), finding.evidence["batches"]) == ((0, 60), 60)


def test_a_partition_directory_without_any_log_is_scanned(tmp_path: Path) -> None:
    broker = tmp_path / "broker-1"
    (broker / "t-0").mkdir(parents=True)
    (broker / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    (broker / "t-0" / "leader-epoch-checkpoint").write_text("0\n0\n")
    result = local.scan([str(broker)], ScanOptions())
    assert [(partition.topic, partition.replicas[0].segments) for partition in result.partitions] == [("t", 0)]


MANY = LIMIT + 150


@pytest.fixture(name="brokers")
def three_equal_replicas(tmp_path: Path) -> Brokers:
    return healthy(tmp_path)


def missing(number: int, broker: int = 1, *, topic: str = "gone", severity: Severity | None = None) -> Finding:
    place = Place(topic, number, broker, f"/b{broker}", offset_start=0, offset_end=number)
    evidence = {"high_watermark": number, "file": "replication-offset-checkpoint"}
    return finding("REPLICA_MISSING", place, evidence, severity=severity)


def ordered(*findings: Finding) -> list[Finding]:
    return sorted(findings, key=Finding.sort_key)


def test_what_is_beyond_the_limit_is_one_finding_for_each_broker() -> None:
    given = ordered(*(missing(number) for number in range(MANY)), *(missing(number, 2) for number in range(3)))
    findings = counted(given, ())
    assert findings == ordered(*findings)
    assert Counter(one.place.broker for one in findings) == {1: LIMIT + 1, 2: 3}
    assert [one for one in findings if "counted" not in one.evidence] == [
        one for one in given if one.place.partition in range(LIMIT)
    ]
    (rest,) = [one for one in findings if "counted" in one.evidence]
    assert (rest.severity, rest.place) == (given[0].severity, Place(broker=1, log_dir="/b1"))
    examples = [f"gone-{number}" for number in range(LIMIT, LIMIT + EXAMPLES)]
    assert rest.evidence == {"counted": 150, "examples": examples, "file": "replication-offset-checkpoint"}
    assert message(rest).startswith("broker 1: 150 more findings of this kind (")
    assert message(rest).endswith(", gone-105.")


@pytest.mark.parametrize("number", [LIMIT - 1, LIMIT, LIMIT + 1])
def test_up_to_the_limit_and_one_behind_it_nothing_changes(number: int) -> None:
    given = ordered(*(missing(each) for each in range(number)))
    assert counted(given, ()) == given


def test_severities_are_counted_by_themselves_and_the_least_sure_is_told() -> None:
    grave = [missing(number, severity=Severity.CRITICAL) for number in range(MANY)]
    mild = [missing(number, topic="other") for number in range(5)]
    doubtful = finding("REPLICA_MISSING", Place("last", 1, 1), {}, severity=Severity.CRITICAL, confidence=Confidence.SUSPECTED)
    findings = counted(ordered(*grave, *mild, doubtful), ())
    assert Counter(one.severity for one in findings) == {Severity.CRITICAL: LIMIT + 1, given_severity(mild): 5}
    assert [one.confidence for one in findings if "counted" in one.evidence] == [Confidence.SUSPECTED]


def given_severity(findings: list[Finding]) -> Severity:
    return findings[0].severity


@pytest.mark.parametrize("topic", ["gone", "__cluster_metadata", "__transaction_state", "__consumer_offsets"])
def test_findings_of_a_log_that_was_read_stay(topic: str) -> None:
    given = ordered(*(missing(number, topic=topic) for number in range(MANY)))
    read = {("gone", number) for number in range(MANY)}
    assert counted(given, read) == given


def test_findings_of_topics_and_of_the_whole_stay() -> None:
    """What is said of each topic or of each transaction is none of a log directory's."""
    given = ordered(*(finding("RISKY_CONFIG", Place(f"t{number}"), {}) for number in range(MANY)))
    given += [finding("TXN_PARTLY_LOST", Place(), {"transactional_id": str(number)}) for number in range(MANY)]
    assert counted(given, ()) == given


def test_a_scan_of_a_checkpoint_with_very_many_lines(brokers: Brokers) -> None:
    offsets = {("gone", number): number + 1 for number in range(MANY)} | {(TOPIC, 0): 72}
    for broker in (1, 2):
        (brokers.log_dir(broker) / "replication-offset-checkpoint").write_bytes(write_offset_checkpoint(offsets))
    findings = [one for one in verdict(brokers).findings if one.place.topic != TOPIC]
    groups = Counter((one.kind, one.severity, one.place.broker) for one in findings)
    assert groups
    assert max(groups.values()) <= LIMIT + 1
    rest = [one for one in findings if "counted" in one.evidence]
    for one in rest:
        alike = groups[one.kind, one.severity, one.place.broker]
        assert one.evidence["counted"] + alike - 1 == MANY
        assert message(one)
        assert one.severity is Severity.INFO or advice(one)


@pytest.mark.parametrize("which", ["recovery-point", "log-start", "cleaner"])
def test_lines_of_other_checkpoints_for_partitions_that_are_not_there_are_none_of_a_findings_each(
    brokers: Brokers, which: str
) -> None:
    path = brokers.log_dir(1) / f"{which}-offset-checkpoint"
    offsets = {("gone", number): number + 1 for number in range(MANY)}
    path.write_bytes(write_offset_checkpoint(offsets))
    assert len(verdict(brokers).findings) <= LIMIT + 1


def test_odd_names_and_entries_are_counted(brokers: Brokers) -> None:
    for number in range(MANY):
        (brokers.log_dir(1) / f"no{number:04d}-topic-").mkdir()
        (brokers.log_dir(2) / f"link{number:04d}").symlink_to("/nowhere")
    found = verdict_of_some(brokers)
    assert found["DIR_NAME_ILLEGAL"] in (0, LIMIT + 1)
    assert max(found.values()) <= LIMIT + 1


def verdict_of_some(brokers: Brokers) -> Counter[str]:
    """Findings by kind; links make a scan incomplete, so that it is not held to the whole."""
    result = local.scan([str(path) for path in brokers.log_dirs], ScanOptions(jobs=1))
    found: Counter[str] = Counter()
    for (kind, _), number in kinds(result).items():
        found[kind] += number
    return found


ONLY = "Only one copy was looked at"


def damaged(root: Path) -> Brokers:
    """On broker 2 a batch has a flipped bit, and a segment is gone."""
    brokers = healthy(root)
    brokers.flip(2, brokers.log.at(5), 100)
    for suffix in ("log", "index", "timeindex"):
        brokers.file(2, 29, suffix).unlink()
    return brokers


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("broker", [None, "2"])
def test_comparing_is_advised_where_several_copies_were_given(tmp_path: Path, together: bool, broker: str | None) -> None:
    """Though one of them alone is looked at."""
    brokers = damaged(tmp_path)
    paths = brokers.log_dirs if together else [brokers.log_dir(2)]
    findings = local.scan([str(path) for path in paths], ScanOptions(broker=broker)).findings
    assert {finding.kind for finding in findings} >= {"BATCH_CRC_MISMATCH", "SEGMENT_MISSING"}
    texts = [
        advice(finding) or "" for finding in findings if finding.kind in ("BATCH_CRC_MISMATCH", "SEGMENT_MISSING", "OFFSET_GAP")
    ]
    assert all(("kafka-forensics compare" in text) is together for text in texts)
    assert all((ONLY in text) is not together for text in texts)
