"""Faults F01 to F10: bytes of one batch in the middle of a segment, changed on broker 2."""

import struct
from pathlib import Path

import pytest

from tests.support.faults import HEALTHY, LOG_END, Brokers, healthy, write_checkpoint
from tests.support.faults_verdict import kinds, offsets, only, said, span, verdict
from tests.support.injections import cleaned, with_right_crc

pytestmark = pytest.mark.faults

TARGET = HEALTHY.at(40)
"""Offsets [39, 42) in the segment 29, with five batches behind it, below the high watermark."""
BEHIND = [one for one in HEALTHY.of_segment(29) if one.base_offset > TARGET.base_offset]
BYTES = (TARGET.position, TARGET.end)
OFFSETS = (39, 42)


@pytest.fixture(name="brokers")
def three_equal_replicas(tmp_path: Path) -> Brokers:
    return healthy(tmp_path)


def test_f00_untouched_replicas_give_no_finding(brokers: Brokers) -> None:
    result = verdict(brokers)
    assert said(result) == []
    assert result.verdict == "clean"
    assert result.partitions[0].agreement.kind == "identical"
    assert [replica.log_end_offset for replica in result.partitions[0].replicas] == [LOG_END] * 3
    assert result.totals.bytes_decoded == 3 * sum(len(batch.data) for batch in HEALTHY.batches)
    assert result.totals.bytes_damaged == result.totals.bytes_skipped == 0
    assert result.partitions[0].replicas[0].transactions.aborted == 3


@pytest.mark.parametrize("byte", [21, 61, 100, len(TARGET.data) - 1])
def test_f01_flipped_bit_under_the_crc(brokers: Brokers, byte: int) -> None:
    brokers.flip(2, TARGET, byte)
    result = verdict(brokers)
    assert said(result) == [("BATCH_CRC_MISMATCH", "error", 2), ("REPLICA_DIFFERS", "error", 2)]
    for kind in ("BATCH_CRC_MISMATCH", "REPLICA_DIFFERS"):
        finding = only(result, kind)
        assert (span(finding), offsets(finding)) == (BYTES, OFFSETS)
        assert finding.place.file == "t-0/00000000000000000029.log"
        assert finding.evidence["held_by"] == [1, 3]
    differs = only(result, "REPLICA_DIFFERS").evidence
    assert (differs["kind"], differs["epoch"], differs["majority"]) == ("rot", 1, [1, 3])


@pytest.mark.parametrize(("byte", "bit", "epoch"), [(15, 3, 9), (15, 0, 0), (12, 7, 1 - 2**31), (14, 0, 257)])
def test_f02_flipped_leader_epoch(brokers: Brokers, byte: int, bit: int, epoch: int) -> None:
    brokers.flip(2, TARGET, byte, bit)
    result = verdict(brokers)
    assert said(result) == [("EPOCH_FIELD_MISMATCH", "error", 2)]
    finding = only(result, "EPOCH_FIELD_MISMATCH")
    assert (span(finding), offsets(finding)) == (BYTES, OFFSETS)
    assert (finding.evidence["epoch"], finding.evidence["expected_epoch"], finding.evidence["crc"]) == (epoch, 1, "right")
    assert finding.evidence["witnesses"] == ["neighbouring batches", "leader-epoch-checkpoint", "other replicas"]
    assert finding.evidence["held_by"] == [1, 3]


@pytest.mark.parametrize(("byte", "bit"), [(7, 0), (7, 7), (6, 0), (4, 0), (2, 0), (0, 7)])
def test_f03_flipped_base_offset(brokers: Brokers, byte: int, bit: int) -> None:
    brokers.flip(2, TARGET, byte, bit)
    result = verdict(brokers)
    assert said(result) == [("OFFSET_DISCONTINUITY", "critical", 2)]
    finding = only(result, "OFFSET_DISCONTINUITY")
    assert (finding.place.byte_start, offsets(finding)) == (TARGET.position, OFFSETS)
    assert finding.evidence["expected_offset"] == 39
    assert finding.evidence["held_by"] == [1, 3]


def test_f03_above_the_high_watermark_is_an_error(brokers: Brokers) -> None:
    for broker in (1, 2, 3):
        write_checkpoint(brokers.log_dir(broker), "replication", 39)
    brokers.flip(2, TARGET, 6)
    assert said(verdict(brokers)) == [("OFFSET_DISCONTINUITY", "error", 2)]


@pytest.mark.parametrize("batch_length", [len(TARGET.data) - 12 + 5, len(TARGET.data) - 12 - 5, 49, 2000])
def test_f04_length_that_leads_out_of_frame(brokers: Brokers, batch_length: int) -> None:
    brokers.overwrite(2, TARGET, struct.pack(">i", batch_length), 8)
    assert_framing_lost(brokers, batch_length, hidden=False)


def test_f05_length_beyond_the_file_hides_good_batches(brokers: Brokers) -> None:
    brokers.overwrite(2, TARGET, struct.pack(">i", 0x7FFFFFFF), 8)
    assert_framing_lost(brokers, 0x7FFFFFFF, hidden=True)


@pytest.mark.parametrize("batch_length", [13, 0, -1, -(2**31)])
def test_f06_length_too_small_for_any_batch(brokers: Brokers, batch_length: int) -> None:
    brokers.overwrite(2, TARGET, struct.pack(">i", batch_length), 8)
    assert_framing_lost(brokers, batch_length, hidden=False)


def assert_framing_lost(brokers: Brokers, batch_length: int, *, hidden: bool) -> None:
    result = verdict(brokers)
    assert said(result) == [("FRAMING_LOST", "error", 2), ("HIDDEN_BYTES", "error", 2)][: 1 + hidden]
    finding = only(result, "FRAMING_LOST")
    assert (span(finding), offsets(finding)) == (BYTES, OFFSETS)
    evidence = finding.evidence
    assert (evidence["declared_length"], evidence["found_at"]) == (batch_length, TARGET.end)
    assert evidence["batches_recovered"] == len(BEHIND) == 5
    assert (evidence["first_recovered_offset"], evidence["last_recovered_offset"]) == (42, 54)
    assert evidence["held_by"] == [1, 3]
    if hidden:
        finding = only(result, "HIDDEN_BYTES")
        assert (span(finding), offsets(finding)) == ((TARGET.position, BEHIND[-1].end), (42, 55))
        assert finding.evidence["batches_recovered"] == 5
        assert finding.evidence["bytes"] == BEHIND[-1].end - TARGET.position
        assert finding.evidence["held_by"] == [1, 3]


@pytest.mark.parametrize("magic", [3, 4, 127])
def test_f07_unknown_magic(brokers: Brokers, magic: int) -> None:
    brokers.overwrite(2, TARGET, bytes([magic]), 16)
    assert_magic(brokers, "BATCH_MAGIC_UNKNOWN", magic)


@pytest.mark.parametrize("magic", [1, 0])
def test_f08_magic_of_an_older_format(brokers: Brokers, magic: int) -> None:
    brokers.overwrite(2, TARGET, bytes([magic]), 16)
    assert_magic(brokers, "BATCH_MAGIC_REGRESSION", magic)


def assert_magic(brokers: Brokers, kind: str, magic: int) -> None:
    result = verdict(brokers)
    assert said(result) == [(kind, "error", 2)]
    finding = only(result, kind)
    assert (span(finding), offsets(finding)) == (BYTES, OFFSETS)
    cut = {"unclean_restart": {"walked": False, "recovery_point": LOG_END}} if magic < 2 else {}
    assert finding.evidence == {"magic": magic, "crc_is_right_as_magic": 2, "held_by": [1, 3], **cut}


@pytest.mark.parametrize("count", [2**31 - 1, -1, 1000])
@pytest.mark.parametrize("deep", [True, False])
def test_f09_lying_records_count(brokers: Brokers, count: int, deep: bool) -> None:
    with_right_crc(brokers, TARGET, 57, struct.pack(">i", count))
    result = verdict(brokers, deep=deep)
    assert said(result) == [("BATCH_COUNT_LIE", "error", 2)]
    finding = only(result, "BATCH_COUNT_LIE")
    assert (span(finding), offsets(finding)) == (BYTES, OFFSETS)
    assert finding.evidence["records_count"] == count
    assert finding.evidence["held_by"] == [1, 3]
    if deep:
        assert finding.evidence["records_found"] == 3


@pytest.mark.parametrize("delta", [3, 1, 0, 4])
def test_f10_last_offset_delta_that_its_records_contradict(brokers: Brokers, delta: int) -> None:
    with_right_crc(brokers, TARGET, 23, struct.pack(">i", delta))
    result = verdict(brokers)
    assert said(result) == [("BATCH_RANGE_INCONSISTENT", "error", 2)]
    finding = only(result, "BATCH_RANGE_INCONSISTENT")
    assert (span(finding), offsets(finding)) == (BYTES, (39, 40 + delta))
    assert (finding.evidence["records_count"], finding.evidence["last_offset_delta"]) == (3, delta)


@pytest.mark.parametrize(("cleaned_on", "skew"), [((1, 2, 3), []), ((2,), [("COMPACTION_SKEW", "info", None)])])
def test_f10_silent_where_the_cleaner_took_records(
    tmp_path: Path, cleaned_on: tuple[int, ...], skew: list[tuple[str, str, None]]
) -> None:
    """That one broker cleaned and another did not yet is F39."""
    result = verdict(cleaned(tmp_path, cleaned_on))
    assert said(result) == skew
    assert result.partitions[0].cleanup_policy == "compact"


def test_several_faults_in_one_segment_are_told_apart(brokers: Brokers) -> None:
    brokers.flip(2, HEALTHY.at(33), 100)
    brokers.flip(2, HEALTHY.at(43), 16, 0)
    brokers.overwrite(2, HEALTHY.at(49), struct.pack(">i", 13), 8)
    result = verdict(brokers)
    expected = {
        "BATCH_CRC_MISMATCH": (32, 35),
        "REPLICA_DIFFERS": (32, 35),
        "BATCH_MAGIC_UNKNOWN": (43, 46),
        "FRAMING_LOST": (49, 52),
    }
    assert kinds(result) == {(kind, "error"): 1 for kind in expected}
    assert {finding.kind: offsets(finding) for finding in result.findings} == expected
