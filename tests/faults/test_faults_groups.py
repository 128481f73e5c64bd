"""Committed group offsets as witnesses: loss they prove, what only looks like it, and records of theirs that cannot be read."""

from pathlib import Path

import pytest

from kafka_forensics.model.results import ScanResult
from tests.support.faults import BASE_TIMESTAMP, HIGH_WATERMARK, LOG_END, Log, healthy, histories
from tests.support.faults_verdict import Said, offsets, only, said, span, verdict
from tests.support.gallery_groups import (
    BY_CLIENTS,
    EARLIER,
    LATER,
    LIES,
    behind_a_leader,
    between_two,
    commit,
    control,
    copied,
    not_counting,
    proving,
)
from tests.support.group_records import commit_key, commit_value, log_of, put_offsets, transaction_of

pytestmark = pytest.mark.faults

KIND = "GROUP_OFFSET_BEYOND_LOG"


def judged(result: ScanResult) -> list[tuple[str, str]]:
    """(severity, confidence) of each finding of the kind."""
    return [(finding.severity.value, finding.confidence.value) for finding in result.findings if finding.kind == KIND]


def about_t(result: ScanResult) -> Said:
    """What is said of the partition itself."""
    return [
        (finding.kind, finding.severity.value, finding.place.broker) for finding in result.findings if finding.place.topic == "t"
    ]


def test_a_group_that_read_what_no_copy_holds_proves_loss(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    proving(brokers)
    result = verdict(brokers)
    assert about_t(result) == [(KIND, "critical", None)]
    finding = only(result, KIND)
    assert (offsets(finding), finding.confidence.value) == ((LOG_END, LOG_END + 25), "proven")
    expected = {
        "group": "billing",
        "groups": ["billing"],
        "committed_offset": LOG_END + 25,
        "commit_timestamp": EARLIER,
        "log_end_offset": LOG_END,
        "missing": 25,
        "held_by": [],
        "commit_record": {"topic": "__consumer_offsets", "partition": 0, "broker": 1, "offset": 0},
    }
    assert {name: finding.evidence[name] for name in expected} == expected
    assert "harmless_if" not in finding.evidence
    assert result.verdict == "critical"


def test_without_the_controllers_log_the_loss_is_inferred(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    commit(brokers, LOG_END + 1)
    result = verdict(brokers)
    assert judged(result) == [("critical", "inferred")]
    assert only(result, KIND).evidence["harmless_if"].startswith("a longer replica was not given")


def test_an_older_commit_that_was_larger_still_proves_it(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    late, reset = commit_value(LOG_END + 5, timestamp=EARLIER), commit_value(3, timestamp=LATER)
    put_offsets(brokers.log_dir(1), log_of((commit_key(), late), (commit_key(), reset)))
    result = verdict(brokers)
    assert judged(result) == [("critical", "inferred")]
    assert only(result, KIND).evidence["commit_record"]["offset"] == 0


def test_one_finding_for_all_groups_of_a_partition(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    records = [(commit_key(f"g-{number:02}"), commit_value(LOG_END + number, timestamp=EARLIER)) for number in range(20)]
    put_offsets(brokers.log_dir(2), log_of(*records))
    finding = only(verdict(brokers), KIND)
    assert (finding.evidence["group"], finding.evidence["groups_count"], len(finding.evidence["groups"])) == ("g-19", 19, 16)


@pytest.mark.parametrize("offset", [LOG_END, HIGH_WATERMARK, 0])
def test_a_commit_within_the_log_is_no_finding(tmp_path: Path, offset: int) -> None:
    brokers = healthy(tmp_path)
    commit(brokers, offset, timestamp=LATER)
    assert said(verdict(brokers)) == []


@pytest.mark.parametrize("value", ["aborted", "pending", "deleted", "other topic id"])
def test_a_commit_that_does_not_count_is_no_finding(tmp_path: Path, value: str) -> None:
    assert [one for one in about_t(verdict(not_counting(tmp_path, value))) if one[0] == KIND] == []


def test_a_commit_in_a_committed_transaction_counts(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    put_offsets(brokers.log_dir(1), transaction_of((commit_key(), commit_value(LOG_END + 9)), start=0, commit=True))
    assert judged(verdict(brokers))[0][0] == "critical"


def test_a_copy_of_an_earlier_moment_lowers_the_confidence(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    proving(brokers, timestamp=LATER)
    result = verdict(brokers)
    assert judged(result) == [("critical", "suspected")]
    assert only(result, KIND).evidence["harmless_if"] == "the log was copied before the offset was committed"


def test_a_clients_clock_proves_nothing(tmp_path: Path) -> None:
    """The last marker is older than the commit; the last batch has a later time, which its producer set."""
    brokers = healthy(tmp_path)
    proving(brokers, timestamp=BY_CLIENTS)
    result = verdict(brokers)
    assert judged(result) == [("critical", "inferred")]
    expected = "a client's clock was ahead, and the log was copied before the offset was committed"
    assert only(result, KIND).evidence["harmless_if"] == expected


def test_an_offset_that_may_have_been_set_by_hand_is_not_proven(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    proving(brokers, leader_epoch=-1)
    result = verdict(brokers)
    assert judged(result) == [("critical", "inferred")]
    assert only(result, KIND).evidence["harmless_if"] == "the offset was set by hand"


def test_a_topic_created_anew_looks_like_it(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    commit(brokers, LOG_END + 25, timestamp=BASE_TIMESTAMP - 1)
    assert judged(verdict(brokers)) == [("warning", "suspected")]


def test_one_copy_alone_may_only_lag(tmp_path: Path) -> None:
    assert judged(verdict(copied(tmp_path, 1))) == [("info", "suspected")]


def test_a_copy_that_is_not_of_the_isr_may_only_lag(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    commit(brokers, LOG_END + 25)
    control(brokers, isr=[4], replicas=[1, 2, 3, 4])
    assert judged(verdict(brokers)) == [("info", "suspected")]


def test_a_live_copy_caps_it(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    commit(brokers, LOG_END + 25)
    result = verdict(brokers, live=True)
    assert judged(result) == [("info", "inferred")]
    assert only(result, KIND).evidence["capped_by"] == "--live"


def test_a_commit_says_how_far_the_high_watermark_was(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    commit(brokers, LOG_END, timestamp=LATER)
    [partition] = [one for one in verdict(brokers).partitions if one.topic == "t"]
    assert (partition.high_watermark_at_least, partition.high_watermark_witness) == (
        LOG_END,
        "offset 75 committed by group billing",
    )


@pytest.mark.parametrize("timestamp", [BASE_TIMESTAMP, 0, -1])
def test_a_commit_older_than_the_record_before_it_is_of_another_log(tmp_path: Path, timestamp: int) -> None:
    brokers = healthy(tmp_path)
    commit(brokers, LOG_END, timestamp=timestamp)
    [partition] = [one for one in verdict(brokers).partitions if one.topic == "t"]
    assert partition.high_watermark_at_least == HIGH_WATERMARK


def test_where_logs_part_a_commit_is_no_witness(tmp_path: Path) -> None:
    logs = {}
    for broker, tag in ((1, "old"), (2, "new")):
        log = Log()
        log.plain(12)
        log.tag = tag
        log.lead(broker)
        log.plain(3)
        logs[broker] = log
    brokers = histories(tmp_path, logs, {1: 12, 2: 12})
    commit(brokers, 15, copies=(1,), timestamp=LATER)
    result = verdict(brokers)
    assert about_t(result) == [("FORK_ABOVE_HW", "info", None)]
    assert [partition.high_watermark_at_least for partition in result.partitions if partition.topic == "t"] == [12]


@pytest.mark.parametrize("lie", LIES)
def test_f48_records_that_lie_are_one_finding_each_and_the_rest_is_read(tmp_path: Path, lie: str) -> None:
    brokers = between_two(tmp_path, LIES[lie])
    path = brokers.log_dir(2) / "__consumer_offsets-0" / f"{0:020d}.log"
    result = verdict(brokers)
    assert said(result) == [(KIND, "critical", None), ("METADATA_RECORD_MALFORMED", "error", 2)]
    finding = only(result, "METADATA_RECORD_MALFORMED")
    size = path.stat().st_size
    assert (offsets(finding), finding.place.topic, finding.place.file) == (
        (1, 2),
        "__consumer_offsets",
        f"__consumer_offsets-0/{path.name}",
    )
    assert 0 < (span(finding)[0] or 0) < (span(finding)[1] or 0) < size
    assert (finding.evidence["record_type"], finding.evidence["unknown_after_offset"]) == ("OffsetCommit", 0)
    assert only(result, KIND).evidence["groups"] == ["audit", "billing"]


def test_f48_a_conclusion_says_from_where_on_it_is_in_doubt(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    good = commit_value(LOG_END + 1, timestamp=EARLIER)
    put_offsets(brokers.log_dir(2), log_of((commit_key(), good), (commit_key(), b"\0\5"), (commit_key(), b"\0\6")))
    result = verdict(brokers)
    assert only(result, KIND).evidence["unknown_after_offset"] == 0
    assert [offsets(finding) for finding in result.findings if finding.kind == "METADATA_RECORD_MALFORMED"] == [(1, 2), (2, 3)]


def test_readers_held_back_by_a_member_of_the_isr(tmp_path: Path) -> None:
    result = verdict(behind_a_leader(tmp_path))
    assert about_t(result) == [("READERS_HELD_BACK", "info", None), ("REPLICA_LAGS", "info", 2)]
    finding = only(result, "READERS_HELD_BACK")
    assert (offsets(finding), finding.evidence["brokers"], finding.evidence["reason"]) == ((3, 63), [2], "isr_member_behind")
    assert (finding.evidence["since_ms"], finding.evidence["waiting_ms"]) == (BASE_TIMESTAMP + 3000, 57_000)


@pytest.mark.parametrize(("batches", "isr"), [(5, (1, 2)), (20, (1,))])
def test_an_active_tail_and_a_replica_out_of_the_isr_hold_nobody_back(tmp_path: Path, batches: int, isr: tuple[int, ...]) -> None:
    assert about_t(verdict(behind_a_leader(tmp_path, batches=batches, isr=isr))) == [("REPLICA_LAGS", "info", 2)]
