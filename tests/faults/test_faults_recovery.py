"""Faults F01, F03 to F06, F13, F16 and F47 after a crash: what the broker would cut, rename or delete if it started on the copy."""

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_forensics.model.results import RecoveryOutlook, ScanResult
from kafka_forensics.wording import advice, message
from tests.support.faults import HEALTHY, LOG_END, Brokers, healthy, write_checkpoint
from tests.support.faults_verdict import offsets, only, said, span, verdict
from tests.support.gallery_bytes import TARGET
from tests.support.gallery_leftovers import crash, half_of_a_split, only_a_crash_would_cut, swap_in
from tests.support.injections import append, zero_page

pytestmark = pytest.mark.faults

BEHIND = [batch for batch in HEALTHY.batches if batch.base_offset > TARGET.base_offset]
CUT = "RECOVERY_WOULD_TRUNCATE"


@pytest.fixture(name="brokers")
def three_equal_replicas(tmp_path: Path) -> Brokers:
    return healthy(tmp_path)


def outlook(result: ScanResult) -> RecoveryOutlook:
    recovery_outlook = result.partitions[0].replicas[1].recovery
    assert recovery_outlook is not None
    return recovery_outlook


def test_a_crash_without_damage_walks_and_cuts_nothing(brokers: Brokers) -> None:
    crash(brokers, 55)
    result = verdict(brokers)
    assert said(result) == []
    walked = f"recover {55:020d}.log"
    assert outlook(result) == RecoveryOutlook(starts=True, log_start_offset=0, log_end_offset=LOG_END, checks=[17], steps=[walked])
    assert result.partitions[0].replicas[0].recovery == replace(outlook(result), checks=[], steps=[])


@pytest.mark.parametrize("recovery_point", [0, 29, 54])
def test_f01_flipped_bit_from_the_recovery_point_on_cuts_the_log(brokers: Brokers, recovery_point: int) -> None:
    crash(brokers, recovery_point)
    brokers.flip(2, TARGET, 100)
    result = verdict(brokers)
    assert said(result) == [("BATCH_CRC_MISMATCH", "error", 2), (CUT, "critical", 2), ("REPLICA_DIFFERS", "error", 2)]
    finding = only(result, CUT)
    assert (finding.place.file, finding.place.byte_start, offsets(finding)) == (
        f"t-0/{29:020d}.log",
        TARGET.position,
        (39, LOG_END),
    )
    evidence = finding.evidence
    assert (evidence["check"], evidence["reason"], evidence["log_end_foretold"]) == (22, "batch_invalid", 39)
    assert (evidence["segments"], evidence["segments_deleted"]) == (1, [f"{55:020d}.log"])
    assert (evidence["batches_recovered"], evidence["held_by"], evidence["high_watermark"]) == (len(BEHIND), [1, 3], 72)
    damage = only(result, "BATCH_CRC_MISMATCH").evidence["unclean_restart"]
    assert damage == {"walked": True, "recovery_point": recovery_point, "log_end_offset": 39, "segments": 1}
    first = 0 if recovery_point < 29 else 29
    assert outlook(result).steps == [
        *(f"recover {segment:020d}.log" for segment in (0, 29) if segment >= first),
        f"truncate {29:020d}.log at offset 39",
        f"delete {55:020d}.log",
        "forget leader-epoch-checkpoint at offset 58",
        f"delete {55:020d}.snapshot",
        "set replication-offset-checkpoint at offset 39",
    ]


def test_f01_flipped_bit_below_the_recovery_point_is_not_seen_by_kafka(brokers: Brokers) -> None:
    crash(brokers, 55)
    brokers.flip(2, TARGET, 100)
    result = verdict(brokers)
    assert said(result) == [("BATCH_CRC_MISMATCH", "error", 2), ("REPLICA_DIFFERS", "error", 2)]
    assert only(result, "BATCH_CRC_MISMATCH").evidence["unclean_restart"] == {"walked": False, "recovery_point": 55}
    assert outlook(result).log_end_offset == LOG_END


def test_f01_after_a_clean_shutdown_only_a_crash_would_cut(brokers: Brokers) -> None:
    only_a_crash_would_cut(brokers)
    result = verdict(brokers)
    assert said(result) == [("BATCH_CRC_MISMATCH", "error", 2), ("REPLICA_DIFFERS", "error", 2)]
    damage = only(result, "BATCH_CRC_MISMATCH").evidence["unclean_restart"]
    assert damage == {"walked": True, "recovery_point": 29, "log_end_offset": 39, "segments": 1}


def test_f01_above_every_high_watermark_is_a_warning(brokers: Brokers) -> None:
    for broker in (1, 2, 3):
        write_checkpoint(brokers.log_dir(broker), "replication", 39)
    crash(brokers, 29)
    brokers.flip(2, TARGET, 100)
    assert (CUT, "warning", 2) in said(verdict(brokers))


def test_f01_in_a_live_copy_is_info(brokers: Brokers) -> None:
    crash(brokers, 29)
    brokers.flip(2, TARGET, 100)
    assert (CUT, "info", 2) in said(verdict(brokers, live=True))


@pytest.mark.parametrize(("batch_length", "check"), [(2**31 - 1, 20), (13, 19), (-1, 19), (49, 22), (len(TARGET.data) - 7, 22)])
def test_f04_to_f06_lengths_that_lie_cut_at_their_batch(brokers: Brokers, batch_length: int, check: int) -> None:
    crash(brokers, 29)
    brokers.overwrite(2, TARGET, struct.pack(">i", batch_length), 8)
    finding = only(verdict(brokers), CUT)
    assert (offsets(finding), finding.place.byte_start, finding.evidence["check"]) == ((39, LOG_END), TARGET.position, check)
    assert finding.evidence["batches_recovered"] == len(BEHIND)


def test_f13_torn_tail_is_cut_without_a_finding_of_its_own(brokers: Brokers) -> None:
    crash(brokers, 55)
    path = brokers.file(2, 55)
    path.write_bytes(path.read_bytes()[:-100])
    result = verdict(brokers)
    assert said(result) == [("REPLICA_LAGS", "info", 2), ("SEG_TORN_TAIL", "info", 2)]
    assert (outlook(result).log_end_offset, outlook(result).checks) == (72, [17, 20])


def test_f15_zero_tail_of_a_closed_segment_costs_all_later_ones(brokers: Brokers) -> None:
    crash(brokers, 29)
    append(brokers, 29, bytes(4096))
    finding = only(verdict(brokers), CUT)
    assert (offsets(finding), finding.evidence["check"], finding.evidence["segments"]) == ((55, LOG_END), 19, 1)


def test_f16_page_of_zeros_cuts_where_it_begins(brokers: Brokers) -> None:
    crash(brokers, 29)
    zero_page(brokers, 29)
    result = verdict(brokers)
    assert offsets(only(result, CUT)) == (36, LOG_END)
    assert only(result, "SEG_HOLE").evidence["unclean_restart"]["log_end_offset"] == 36


@pytest.mark.parametrize(("byte", "bit"), [(2, 0), (0, 7)])
def test_f03_offset_that_no_index_holds_keeps_the_broker_down(brokers: Brokers, byte: int, bit: int) -> None:
    crash(brokers, 29)
    brokers.flip(2, TARGET, byte, bit)
    result = verdict(brokers)
    assert said(result) == [("OFFSET_DISCONTINUITY", "critical", 2)]
    assert (outlook(result).starts, outlook(result).log_end_offset, outlook(result).checks) == (False, None, [17, 23])
    assert only(result, "OFFSET_DISCONTINUITY").evidence["unclean_restart"]["starts"] is False


def test_segment_without_index_is_recovered_though_the_shutdown_was_clean(brokers: Brokers) -> None:
    brokers.flip(2, TARGET, 100)
    brokers.file(2, 29, "index").unlink()
    finding = only(verdict(brokers), CUT)
    assert (offsets(finding), finding.evidence["segments"], finding.evidence["log_end_foretold"]) == ((39, 55), 0, LOG_END)
    assert (finding.severity.value, finding.evidence["clean_shutdown"]) == ("critical", True)


def test_log_end_below_the_log_start_empties_the_log(brokers: Brokers) -> None:
    crash(brokers, 55)
    write_checkpoint(brokers.log_dir(2), "log-start", 90)
    result = verdict(brokers)
    recovery_outlook = outlook(result)
    assert (recovery_outlook.log_start_offset, recovery_outlook.log_end_offset) == (90, 90)
    assert recovery_outlook.checks == [17, 31, 32, 37, 41]


def test_f47_swap_is_renamed_over_what_lies_in_its_range(brokers: Brokers) -> None:
    swap_in(brokers, 29, brokers.file(2, 29).read_bytes())
    result = verdict(brokers)
    assert said(result) == [("INTERRUPTED_SWAP", "warning", 2)]
    names = [f"{29:020d}.{suffix}" for suffix in ("index", "log", "snapshot", "timeindex", "txnindex")]
    assert only(result, "INTERRUPTED_SWAP").evidence["steps"] == [
        *(f"delete {name}" for name in names),
        f"rename {29:020d}.log.swap to {29:020d}.log",
    ]
    assert outlook(result).log_end_offset == LOG_END


def test_f47_swap_that_lacks_what_was_committed_is_critical(brokers: Brokers) -> None:
    swap_in(brokers, 29, brokers.file(2, 29).read_bytes()[: TARGET.position])
    finding = only(verdict(brokers), "INTERRUPTED_SWAP")
    assert (finding.severity.value, offsets(finding), finding.evidence["held_by"]) == ("critical", (39, 55), [1, 3])


def test_f47_empty_swap_is_renamed_over_a_good_segment(brokers: Brokers) -> None:
    swap_in(brokers, 29, b"")
    finding = only(verdict(brokers), "INTERRUPTED_SWAP")
    assert finding.evidence["steps"] == [f"rename {29:020d}.log.swap to {29:020d}.log"]
    assert (finding.severity.value, offsets(finding)) == ("critical", (29, 55))


@pytest.mark.parametrize("data", [b"", None])
def test_f47_in_a_live_copy_the_cleaner_is_at_work(brokers: Brokers, data: bytes | None) -> None:
    """Whatever it has written so far, and though a start would lose what it has not: the broker runs, and ends its work."""
    swap_in(brokers, 29, brokers.file(2, 29).read_bytes() if data is None else data)
    half_of_a_split(brokers)
    result = verdict(brokers, live=True)
    assert said(result) == [("INTERRUPTED_SWAP", "info", 2)]
    finding = only(result, "INTERRUPTED_SWAP")
    assert (offsets(finding), advice(finding)) == ((None, None), None)
    assert "was cleaning or splitting segments when it was copied" in message(finding)


def test_f47_half_of_a_split_is_thrown_away(brokers: Brokers) -> None:
    half_of_a_split(brokers)
    result = verdict(brokers)
    assert said(result) == [("INTERRUPTED_SWAP", "info", 2)]
    assert only(result, "INTERRUPTED_SWAP").evidence["steps"] == [
        f"delete {0:020d}.log.deleted",
        f"delete {55:020d}.log.swap",
        f"delete {29:020d}.index.cleaned",
        f"delete {29:020d}.log.cleaned",
    ]
    assert span(only(result, "INTERRUPTED_SWAP")) == (None, None)
