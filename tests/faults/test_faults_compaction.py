"""Fault F39: replicas of a compacted topic that cleaned at different times, and replicas whose latest values differ."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.engine import local
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.controller import ControllerHistory, PartitionControl
from kafka_forensics.model.results import ScanResult
from kafka_forensics.witnesses.witnesses import Witnesses
from kafka_forensics.wording import message
from tests.support.compacted import (
    CLEANED,
    FUTURE_MS,
    History,
    beyond_reach,
    compacted,
    cut_between_batches,
    hidden_by_damage,
    history,
    offset_rotted_upwards,
    three,
)
from tests.support.faults import TOPIC, TOPIC_ID, Log
from tests.support.faults_verdict import offsets, only, said, verdict

pytestmark = pytest.mark.faults

SKEW = [("COMPACTION_SKEW", "info", None)]
DIFFERS = [("COMPACTED_VALUE_DIFFERS", "critical", None)]


def explained(result: ScanResult) -> Mapping[str, Any]:
    """Evidence of the one finding, that replicas were cleaned at different times."""
    assert said(result) == SKEW
    assert result.partitions[0].agreement.kind == "compacted"
    return only(result, "COMPACTION_SKEW").evidence


def differing(result: ScanResult) -> Mapping[str, Any]:
    """Evidence of the one finding, that latest values differ."""
    assert said(result) == DIFFERS
    assert result.partitions[0].agreement.kind == "missing"
    return only(result, "COMPACTED_VALUE_DIFFERS").evidence


def test_f39_equal_replicas_of_a_compacted_topic(tmp_path: Path) -> None:
    result = verdict(three(tmp_path, history(), {1: {0}, 2: {0}, 3: {0}}))
    assert said(result) == []
    assert result.partitions[0].agreement.kind == "compacted"


def test_f39_same_records_in_batches_cleaned_anew_say_nothing(tmp_path: Path) -> None:
    logs = {broker: history().left({0}, roll=CLEANED, horizon=1_700_000_000_000 + broker) for broker in (1, 2, 3)}
    assert said(verdict(compacted(tmp_path, logs, dict.fromkeys(logs, CLEANED)))) == []


def test_f39_a_superseded_record_removed_on_one_side(tmp_path: Path) -> None:
    result = verdict(three(tmp_path, history(), {2: {0, 3}}))
    evidence = explained(result)
    assert evidence["records"] == {"1": 16, "2": 14, "3": 16}
    assert (evidence["keys"], evidence["keys_cleaned_differently"]) == (14, 2)
    assert offsets(only(result, "COMPACTION_SKEW")) == (0, 16)
    assert "beyond_checkpoint" not in evidence


def test_f39_a_tombstone_past_its_horizon_removed_with_all_before_it(tmp_path: Path) -> None:
    evidence = explained(verdict(three(tmp_path, history(), {2: {0, 3, 4}, 3: {0, 3}})))
    assert (evidence["tombstones_expired"], evidence["keys_cleaned_differently"]) == (1, 2)
    assert "tombstones_early" not in evidence


def test_f39_a_tombstone_removed_before_its_horizon_is_counted_apart(tmp_path: Path) -> None:
    evidence = explained(verdict(three(tmp_path, history(FUTURE_MS), {2: {0, 3, 4}})))
    assert (evidence["tombstones_early"], "tombstones_expired" in evidence) == (1, False)


def test_f39_the_age_of_a_tombstone_counts_to_the_time_asked_for(tmp_path: Path) -> None:
    brokers = three(tmp_path, history(), {2: {0, 3, 4}})
    paths = [str(path) for path in brokers.log_dirs]
    day = 24 * 60 * 60 * 1000
    for as_of_ms, name in ((1_700_000_004_000 + day, "tombstones_expired"), (1_700_000_003_999 + day, "tombstones_early")):
        assert explained(local.scan(paths, ScanOptions(as_of_ms=as_of_ms)))[name] == 1


@pytest.mark.parametrize(("retention_ms", "severity"), [("1000", "info"), ("86400000", "warning")])
def test_f39_a_tombstone_removed_before_the_topic_allows_it(tmp_path: Path, retention_ms: str, severity: str) -> None:
    brokers = three(tmp_path, history(), {2: {0, 3, 4}})
    inputs = gather([str(path) for path in brokers.log_dirs], ScanOptions())
    settings = {"delete.retention.ms": retention_ms}
    control = PartitionControl(1, 0, [1, 2, 3], [], [1, 2, 3], settings, TOPIC_ID, was_compacted=True)
    witnesses = Witnesses(ControllerHistory({(TOPIC, 0): control}))
    result = local.scan_inputs(inputs, ScanOptions(as_of_ms=1_700_000_010_000), witnesses=witnesses)
    assert said(result) == [("COMPACTION_SKEW", severity, None)]


@pytest.mark.parametrize("cleaned_by", [1, 2, 3])
def test_what_one_replica_s_cleaner_says_holds_for_all_and_the_disagreement_is_told(tmp_path: Path, cleaned_by: int) -> None:
    """The controller's copy is older than the change of policy; the cleaner of one broker knows better."""
    brokers = three(tmp_path, history(), {cleaned_by: {0, 3}})
    inputs = gather([str(path) for path in brokers.log_dirs], ScanOptions())
    control = PartitionControl(1, 0, [1, 2, 3], [], [1, 2, 3], {}, TOPIC_ID, cleanup_policy="delete", was_compacted=False)
    result = local.scan_inputs(inputs, ScanOptions(), witnesses=Witnesses(ControllerHistory({(TOPIC, 0): control})))
    others = sorted({1, 2, 3} - {cleaned_by})
    premise = f"compacted by what is known of broker {cleaned_by}; nothing says so of brokers {others[0]}, {others[1]}"
    assert premise in explained(result)["premises"]


def test_replicas_that_all_know_it_have_no_disagreement_among_the_premises(tmp_path: Path) -> None:
    premises = explained(verdict(three(tmp_path, history(), {2: {0, 3}})))["premises"]
    assert not [premise for premise in premises if "what is known of" in premise]


def test_f39_the_horizon_of_a_batch_counts_from_its_own_cleaning(tmp_path: Path) -> None:
    story = history(FUTURE_MS)
    marked = story.left({0, 3}, roll=CLEANED, horizon=1_600_000_000_000)
    logs = {1: marked, 2: story.left({0, 3, 4}, roll=CLEANED), 3: marked}
    assert explained(verdict(compacted(tmp_path, logs, dict.fromkeys(logs, CLEANED))))["tombstones_expired"] == 1


def test_f39_a_marker_removed_after_its_records(tmp_path: Path) -> None:
    story = History().transaction(1000, ("a", "1"), commit=True).put(("a", "2"))
    story.fill(CLEANED + 4 - story.end)
    evidence = explained(verdict(three(tmp_path, story, {2: {0, 1}, 3: {0}})))
    assert evidence["markers"] == {"1": 1, "2": 0, "3": 1}
    assert evidence["records"] == {"1": 15, "2": 14, "3": 14}


def test_f39_aborted_records_are_no_values(tmp_path: Path) -> None:
    story = History().put(("a", "1")).transaction(2000, ("a", "2"), ("b", "1"), commit=False)
    story.fill(CLEANED + 4 - story.end)
    evidence = explained(verdict(three(tmp_path, story, {2: {1, 2}})))
    assert evidence["aborted"] == {"1": 2, "2": 0, "3": 2}
    assert evidence["keys_cleaned_differently"] == 0


def test_f39_records_without_a_key_are_dropped_at_once(tmp_path: Path) -> None:
    story = History().put((None, "1")).put(("a", "1"))
    story.fill(CLEANED + 4 - story.end)
    assert explained(verdict(three(tmp_path, story, {2: {0}})))["keyless"] == {"1": 1, "2": 0, "3": 1}


def test_f39_a_record_superseded_beyond_the_checkpoint_is_counted(tmp_path: Path) -> None:
    story = history().put(("a", "3"))
    evidence = explained(verdict(three(tmp_path, story, {2: {2, 0}}, {2: 5})))
    assert evidence["beyond_checkpoint"] == 1


def test_f39_retention_moved_the_log_start_of_one(tmp_path: Path) -> None:
    story = history()
    brokers = compacted(tmp_path, {1: story.left(roll=CLEANED), 2: story.left({0}, roll=CLEANED)}, {2: CLEANED})
    for broker in (1, 2):
        (brokers.log_dir(broker) / "log-start-offset-checkpoint").write_bytes(b"0\n1\nt 0 3\n")
    assert said(verdict(brokers)) == []


def test_f39_latest_value_differs(tmp_path: Path) -> None:
    result = verdict(three(tmp_path, history(), {2: {2}}))
    evidence = differing(result)
    assert offsets(only(result, "COMPACTED_VALUE_DIFFERS")) == (2, 3)
    assert (evidence["keys"], evidence["stale"], evidence["held_by"]) == (1, 1, [1, 3])
    row = {"offset": 2, "reason": "stale", "held_by": [1, 3], "not_on": [2]}
    assert [{name: one[name] for name in row} for one in evidence["records"]] == [row]
    assert evidence["records"][0]["key_hash"] == "e6c632b61e964e1f"
    assert result.partitions[0].agreement.common_end_offset == 2


@pytest.mark.parametrize(("cleaned", "reason"), [({1: CLEANED, 2: CLEANED, 3: CLEANED}, "vanished"), ({3: 1}, "missing")])
def test_f39_a_key_is_missing_without_a_rule(tmp_path: Path, cleaned: dict[int, int], reason: str) -> None:
    evidence = differing(verdict(three(tmp_path, history(), {2: {1}}, cleaned)))
    assert (evidence["keys"], evidence[reason], evidence["held_by"]) == (1, 1, [1, 3])
    assert [(one["offset"], one["not_on"]) for one in evidence["records"]] == [(1, [2])]


def test_f39_a_key_re_appears_after_its_tombstone_was_removed(tmp_path: Path) -> None:
    """Broker 2 was away while the others wrote the tombstone, removed what it deletes and then the tombstone."""
    evidence = differing(verdict(three(tmp_path, history(), {1: {0, 3, 4}, 2: {0, 4}, 3: {0, 3, 4}})))
    assert (evidence["keys"], evidence["vanished"], evidence["held_by"]) == (1, 1, [2])
    assert [(one["offset"], one["held_by"], one["not_on"]) for one in evidence["records"]] == [(3, [2], [1, 3])]


def test_f39_a_tombstone_is_on_one_side_behind_the_others_value(tmp_path: Path) -> None:
    evidence = differing(verdict(three(tmp_path, history(), {2: {4}})))
    assert (evidence["keys"], evidence["tombstones"], evidence["held_by"]) == (1, 1, [1, 3])


def test_f39_committed_on_one_side_and_undecided_on_another(tmp_path: Path) -> None:
    """Broker 2 never got the marker, which the others keep as long as records of the transaction are there."""
    story = History().put(("a", "0")).transaction(1000, ("a", "1"), commit=True)
    story.fill(CLEANED + 4 - story.end)
    result = verdict(three(tmp_path, story, {2: {2}}))
    assert ("COMPACTED_VALUE_DIFFERS", "critical", None) in said(result)
    evidence = only(result, "COMPACTED_VALUE_DIFFERS").evidence
    assert (evidence["keys"], evidence["markers"], evidence["transactional"]) == (1, 1, 1)
    assert "held_by" not in evidence


def test_f39_undecided_for_ever_where_the_marker_came_and_went(tmp_path: Path) -> None:
    story = History().put(("a", "0")).transaction(1000, ("b", "1"), commit=False)
    story.fill(CLEANED + 4 - story.end)
    result = verdict(three(tmp_path, story, {1: {1, 2}, 2: {2}, 3: {1, 2}}))
    assert [row for row in said(result) if row[0] != "TXN_OPEN"] == DIFFERS
    assert only(result, "COMPACTED_VALUE_DIFFERS").evidence["markers"] == 1


def test_f39_undecided_in_a_log_that_ends_before_the_marker_is_no_difference(tmp_path: Path) -> None:
    story = History().put(("a", "0")).transaction(1000, ("a", "1"), commit=True).fill(8)
    logs = {1: story.left(), 2: story.left(end=2)}
    result = verdict(compacted(tmp_path, logs, {}, 2))
    assert [row[0] for row in said(result) if row[0] != "TXN_OPEN"] == ["REPLICA_LAGS"]


def test_f39_deleted_beyond_the_end_of_a_lagging_replica(tmp_path: Path) -> None:
    """The tombstone of d, at offset 4, is gone; broker 2 ends before it and still has d."""
    result = verdict(beyond_reach(tmp_path, None))
    assert said(result) == [*SKEW, ("REPLICA_LAGS", "info", 2)]
    assert only(result, "COMPACTION_SKEW").evidence["out_of_reach"] == 1


def test_f39_superseded_beyond_the_end_of_a_lagging_replica(tmp_path: Path) -> None:
    result = verdict(beyond_reach(tmp_path, "2"))
    assert said(result) == [*SKEW, ("REPLICA_LAGS", "info", 2)]
    assert only(result, "COMPACTION_SKEW").evidence["superseded"] == 1


def test_f39_what_damage_may_hide_is_not_held_against_a_replica(tmp_path: Path) -> None:
    result = verdict(hidden_by_damage(tmp_path))
    assert ("BATCH_CRC_MISMATCH", "error", 2) in said(result)
    assert not [row for row in said(result) if row[0] == "COMPACTED_VALUE_DIFFERS"]
    assert only(result, "COMPACTION_SKEW").evidence["unreadable"] == 2


def test_f39_a_live_copy_proves_no_loss(tmp_path: Path) -> None:
    assert said(verdict(three(tmp_path, history(), {2: {1}}), live=True)) == [("COMPACTED_VALUE_DIFFERS", "info", None)]


def test_f39_live_a_value_that_no_cleaner_can_have_taken_is_a_warning(tmp_path: Path) -> None:
    """By the checkpoints no cleaner had been there, and no other record is gone."""
    result = verdict(three(tmp_path, history(), {2: {1}}, {3: 1}), live=True)
    assert said(result) == [("COMPACTED_VALUE_DIFFERS", "warning", None)]
    assert only(result, "COMPACTED_VALUE_DIFFERS").evidence["missing"] == 1


def test_f39_live_a_cleaner_that_came_after_its_checkpoint_was_copied_explains_a_value(tmp_path: Path) -> None:
    """Broker 2 lacks an older record too, which only a cleaner takes: it passed behind the checkpoint."""
    result = verdict(three(tmp_path, history(), {2: {0, 1}}, {3: 1}), live=True)
    assert ("COMPACTED_VALUE_DIFFERS", "info", None) in said(result)


def test_f39_what_is_cleaned_apart_and_what_differs_do_not_contradict_each_other(tmp_path: Path) -> None:
    result = verdict(three(tmp_path, history(), {2: {0, 1}}))
    assert "same latest value of all keys but 1" in message(only(result, "COMPACTION_SKEW"))
    assert "disagree on the latest value of 1 key" in message(only(result, "COMPACTED_VALUE_DIFFERS"))


def test_f39_a_fork_is_told_once(tmp_path: Path) -> None:
    other = History().put(("a", "1")).put(("b", "other"), ("a", "2")).put(("c", "1")).put(("c", None))
    other.fill(CLEANED + 4 - other.end)
    logs: dict[int, Log] = {1: history().left(roll=CLEANED), 2: other.left(roll=CLEANED)}
    assert [row[0] for row in said(verdict(compacted(tmp_path, logs, {1: CLEANED})))] == ["SAME_EPOCH_DIVERGENCE"]


def test_f39_bytes_lost_from_a_cleaned_segment_are_told_by_their_keys(tmp_path: Path) -> None:
    """The last batches before the active segment are gone with nothing torn: offsets look as if cleaned away, keys do not."""
    result = verdict(cut_between_batches(tmp_path))
    assert said(result) == [*DIFFERS, ("INDEX_MISMATCH", "warning", 2), ("INDEX_MISMATCH", "warning", 2)]
    evidence = only(result, "COMPACTED_VALUE_DIFFERS").evidence
    assert (evidence["keys"], evidence["missing"], evidence["held_by"]) == (2, 2, [1, 3])
    assert [one["offset"] for one in evidence["records"]] == [10, 11]


def test_f39_the_same_value_written_again_and_lost_is_no_difference(tmp_path: Path) -> None:
    story = History().put(("a", "1")).put(("b", "1")).put(("a", "1"))
    story.fill(CLEANED + 4 - story.end)
    assert explained(verdict(three(tmp_path, story, {2: {2}})))["same_value"] == 1


def test_f39_a_batch_whose_offset_rotted_upwards_is_no_other_value(tmp_path: Path) -> None:
    """F03 upwards looks like a gap that the cleaner left; the batch's keys have the same values at other offsets."""
    result = verdict(offset_rotted_upwards(tmp_path))
    assert explained(result)["same_value"] == 1
