"""Faults F13 to F20: segments cut, zeroed, deleted, shuffled and renamed, on broker 2 unless said otherwise."""

from pathlib import Path

import pytest

from kafka_forensics.wording import advice
from tests.support.faults import HEALTHY, LOG_END, Brokers, healthy, write_checkpoint
from tests.support.faults_verdict import offsets, only, said, span, verdict
from tests.support.injections import append, cut, delete_segment, rename_segment, swap, zero_page

pytestmark = pytest.mark.faults

LAST = HEALTHY.batches[-1]
"""Offsets [72, 75): above the high watermark."""
CUTS = (1, 11, 12, 16, 17, 60, 61, 100, len(LAST.data) - 1)
"""Bytes kept of the last batch."""


@pytest.fixture(name="brokers")
def three_equal_replicas(tmp_path: Path) -> Brokers:
    return healthy(tmp_path)


@pytest.mark.parametrize("kept", CUTS)
def test_f13_torn_tail_after_a_crash_is_ordinary(brokers: Brokers, kept: int) -> None:
    brokers.crash(2)
    cut(brokers, 55, LAST.position + kept)
    result = verdict(brokers)
    assert said(result) == [("REPLICA_LAGS", "info", 2), ("SEG_TORN_TAIL", "info", 2)]
    finding = only(result, "SEG_TORN_TAIL")
    assert span(finding) == (LAST.position, LAST.position + kept)
    assert finding.evidence["last_valid_offset"] == 71
    assert finding.evidence["index_entries_beyond"] == 1
    assert offsets(only(result, "REPLICA_LAGS")) == (72, 75)
    assert result.partitions[0].agreement.kind == "prefix"


def test_f13_torn_tail_after_a_clean_shutdown_is_suspicious(brokers: Brokers) -> None:
    cut(brokers, 55, LAST.position + 100)
    result = verdict(brokers)
    assert said(result) == [
        ("CHECKPOINT_OUT_OF_ORDER", "warning", 2),
        ("RECOVERY_WOULD_TRUNCATE", "critical", 2),
        ("REPLICA_LAGS", "info", 2),
        ("SEG_TORN_TAIL", "warning", 2),
    ]
    shorter = only(result, "RECOVERY_WOULD_TRUNCATE")
    assert (offsets(shorter), shorter.evidence["check"], shorter.evidence["held_by"]) == ((55, 72), 39, [1, 3])
    finding = only(result, "SEG_TORN_TAIL")
    assert span(finding) == (LAST.position, LAST.position + 100)
    assert (finding.evidence["last_valid_offset"], finding.evidence["clean_shutdown"]) == (71, True)
    disorder = only(result, "CHECKPOINT_OUT_OF_ORDER")
    assert "stopped in order" in (advice(disorder) or "")
    assert "--live" not in (advice(disorder) or "")
    recovery = disorder.evidence
    assert (recovery["what"], recovery["value"], recovery["limit"]) == ("recovery point", LOG_END, 72)


def test_f13_below_the_high_watermark_what_is_cut_off_was_committed(brokers: Brokers) -> None:
    brokers.crash(2)
    cut(brokers, 55, HEALTHY.at(69).position + 50)
    result = verdict(brokers)
    assert said(result) == [("HW_BEYOND_LEO", "critical", 2), ("REPLICA_LAGS", "info", 2), ("SEG_TORN_TAIL", "info", 2)]
    finding = only(result, "HW_BEYOND_LEO")
    assert offsets(finding) == (69, 72)
    assert finding.evidence["held_by"] == [1, 3]


@pytest.mark.parametrize("kept", [0, 1, 100])
def test_f14_cut_segment_before_the_last(brokers: Brokers, kept: int) -> None:
    place = HEALTHY.at(49).position
    cut(brokers, 29, place + kept)
    result = verdict(brokers)
    assert said(result) == [("OFFSET_GAP", "critical", 2), ("SEG_SHORT", "error", 2)]
    gap, short = only(result, "OFFSET_GAP"), only(result, "SEG_SHORT")
    assert offsets(gap) == (49, 55)
    assert (gap.evidence["missing"], gap.evidence["held_by"]) == (6, [1, 3])
    assert (span(short), short.evidence["last_valid_offset"]) == ((place, place + kept), 48)


@pytest.mark.parametrize(("kept", "kind"), [(0, "SEGMENT_MISSING"), (1, "SEG_SHORT"), (100, "SEG_SHORT")])
def test_f14_without_indexes_a_torn_batch_alone_tells_a_cut_from_a_lost_file(brokers: Brokers, kept: int, kind: str) -> None:
    """Cut between two batches, the segment looks as if the next file were gone; cut within one, only its own end is."""
    cut(brokers, 29, HEALTHY.at(49).position + kept)
    for suffix in ("index", "timeindex"):
        brokers.file(2, 29, suffix).unlink()
    kinds = {one for one, _, _ in said(verdict(brokers))}
    assert kinds & {"OFFSET_GAP", "SEG_SHORT", "SEGMENT_MISSING"} == {"OFFSET_GAP", kind}


def test_f14_above_the_high_watermark_is_an_error(brokers: Brokers) -> None:
    for broker in (1, 2, 3):
        write_checkpoint(brokers.log_dir(broker), "replication", 49)
    cut(brokers, 29, HEALTHY.at(49).position + 100)
    assert said(verdict(brokers)) == [("OFFSET_GAP", "error", 2), ("SEG_SHORT", "error", 2)]


@pytest.mark.parametrize("zeros", [12, 100, 10_000, 1 << 20])
def test_f15_zero_tail_is_preallocation(brokers: Brokers, zeros: int) -> None:
    append(brokers, 55, bytes(zeros))
    result = verdict(brokers)
    assert said(result) == [("SEG_ZERO_TAIL", "info", 2)]
    assert span(only(result, "SEG_ZERO_TAIL")) == (LAST.end, LAST.end + zeros)
    assert result.totals.bytes_skipped == zeros


def test_f16_page_of_zeros_is_a_hole_and_what_follows_is_found(brokers: Brokers) -> None:
    zero_page(brokers, 29)
    result = verdict(brokers)
    assert said(result) == [("SEG_HOLE", "error", 2)]
    finding = only(result, "SEG_HOLE")
    first, following = HEALTHY.at(36), HEALTHY.at(49)
    assert first.position < 4096 < 8192 < following.position
    assert (span(finding), offsets(finding)) == ((first.position, following.position), (36, 49))
    assert (finding.evidence["zero_bytes"], finding.evidence["batches_recovered"]) == (4096, 2)
    assert finding.evidence["held_by"] == [1, 3]


def test_f17_deleted_segment_is_held_by_the_others(brokers: Brokers) -> None:
    delete_segment(brokers, 1)
    result = verdict(brokers)
    assert said(result) == [("OFFSET_GAP", "critical", 1), ("SEGMENT_MISSING", "error", 1)]
    for kind in ("OFFSET_GAP", "SEGMENT_MISSING"):
        finding = only(result, kind)
        assert offsets(finding) == (29, 55)
        assert (finding.evidence["missing"], finding.evidence["held_by"]) == (26, [2, 3])
    assert only(result, "SEGMENT_MISSING").evidence["file"] == "00000000000000000029.log"


def test_f17_deleted_everywhere_committed_records_are_gone(brokers: Brokers) -> None:
    for broker in (1, 2, 3):
        delete_segment(brokers, broker)
    result = verdict(brokers)
    own = [
        (kind, severity, broker)
        for kind, severity in (("OFFSET_GAP", "critical"), ("SEGMENT_MISSING", "error"))
        for broker in (1, 2, 3)
    ]
    assert said(result) == [("COMMITTED_LOST_EVERYWHERE", "critical", None), *own]
    finding = only(result, "COMMITTED_LOST_EVERYWHERE")
    assert offsets(finding) == (29, 55)
    assert (finding.evidence["missing"], finding.evidence["held_by"], finding.evidence["high_watermark"]) == (26, [], 72)


@pytest.mark.parametrize("offset", [0, 43, 70])
def test_f18_copy_of_an_older_batch_at_the_end(brokers: Brokers, offset: int) -> None:
    copied = HEALTHY.at(offset)
    append(brokers, 55, copied.data)
    result = verdict(brokers)
    assert said(result) == [
        ("DUPLICATE_BATCH", "error", 2),
        ("OFFSET_REGRESSION", "error", 2),
        ("RECOVERY_WOULD_TRUNCATE", "critical", 2),
    ]
    assert offsets(only(result, "RECOVERY_WOULD_TRUNCATE")) == (55, LOG_END)
    regression, duplicate = only(result, "OFFSET_REGRESSION"), only(result, "DUPLICATE_BATCH")
    assert offsets(regression) == offsets(duplicate) == (copied.base_offset, copied.last_offset + 1)
    assert span(duplicate) == (LAST.end, LAST.end + len(copied.data))
    assert regression.place.byte_start == LAST.end
    assert duplicate.evidence["first_offset"] == copied.base_offset
    assert (duplicate.evidence["producer_id"], duplicate.evidence["producer_epoch"]) == (3000, 0)
    assert result.partitions[0].replicas[1].log_end_offset == LOG_END


def test_f19_swapped_batches(brokers: Brokers) -> None:
    first, second = HEALTHY.at(46), HEALTHY.at(49)
    swap(brokers, first, second)
    result = verdict(brokers)
    assert said(result) == [("OFFSET_NON_MONOTONIC", "error", 2)]
    finding = only(result, "OFFSET_NON_MONOTONIC")
    assert offsets(finding) == (46, 49)
    assert finding.place.byte_start == first.position + len(second.data)
    assert finding.evidence["expected_offset"] == 52


@pytest.mark.parametrize("name", [31, 27])
def test_f20_renamed_segment(brokers: Brokers, name: int) -> None:
    rename_segment(brokers, 29, name)
    result = verdict(brokers)
    assert said(result) == [("SEG_NAME_MISMATCH", "error", 2)]
    finding = only(result, "SEG_NAME_MISMATCH")
    assert finding.place.file == f"t-0/{name:020d}.log"
    assert (finding.evidence["name_offset"], finding.evidence["first_offset"]) == (name, 29)
