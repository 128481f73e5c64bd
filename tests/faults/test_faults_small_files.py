"""Faults F25 to F32: indexes, snapshots and checkpoints of broker 2 that contradict its log, or are no such files."""

from pathlib import Path

import pytest

from kafka_forensics.model.files import AbortedTxn
from kafka_forensics.wording import message
from kafka_forensics.writers.files import write_transaction_index
from tests.support.faults import ABORTING, COMMITTING, HEALTHY, LOG_END, Brokers, healthy, write_checkpoint
from tests.support.faults_verdict import offsets, only, said, span, verdict
from tests.support.injections import change, claim_epochs, delete_segment

pytestmark = pytest.mark.faults

ABORTED = HEALTHY.aborted[29][0]
CHECKPOINT = "replication-offset-checkpoint"


@pytest.fixture(name="brokers")
def three_equal_replicas(tmp_path: Path) -> Brokers:
    return healthy(tmp_path)


@pytest.mark.parametrize(("entry", "mask", "reason"), [(3, 0x01, "position_inside_batch"), (7, 0x40, "position_inside_batch")])
def test_f25_position_in_the_index(brokers: Brokers, entry: int, mask: int, reason: str) -> None:
    change(brokers.file(2, 29, "index"), 8 * entry + 7, mask)
    result = verdict(brokers)
    assert said(result) == [("INDEX_MISMATCH", "warning", 2)]
    finding = only(result, "INDEX_MISMATCH")
    assert (finding.place.file, span(finding)) == (f"t-0/{29:020d}.index", (8 * entry, 8 * entry + 8))
    assert finding.evidence["reason"] == reason


def test_f25_position_beyond_the_log(brokers: Brokers) -> None:
    change(brokers.file(2, 55, "index"), 8 * 5 + 4, 0x10)
    result = verdict(brokers)
    assert said(result) == [("INDEX_MISMATCH", "warning", 2)]


def test_f25_time_index_out_of_order(brokers: Brokers) -> None:
    path = brokers.file(2, 29, "timeindex")
    data = path.read_bytes()
    path.write_bytes(data[:12] + data[24:36] + data[12:24] + data[36:])
    result = verdict(brokers)
    assert said(result) == [("INDEX_MISMATCH", "warning", 2)]
    finding = only(result, "INDEX_MISMATCH")
    assert (finding.place.file, span(finding)) == (f"t-0/{29:020d}.timeindex", (24, 36))
    assert finding.evidence["reason"] == "out_of_order"


@pytest.mark.parametrize(
    ("suffix", "width", "more"), [("index", 8, 3), ("index", 8, -1), ("timeindex", 12, 8), ("timeindex", 12, -5)]
)
def test_f25_length_that_no_entries_have(brokers: Brokers, suffix: str, width: int, more: int) -> None:
    path = brokers.file(2, 29, suffix)
    data = path.read_bytes()
    path.write_bytes(data[:more] if more < 0 else data + b"\1" * more)
    result = verdict(brokers)
    assert said(result) == [("INDEX_MISMATCH", "warning", 2)]
    finding = only(result, "INDEX_MISMATCH")
    entries = (len(data) + more) // width
    assert (finding.evidence["reason"], finding.evidence["entry"]) == ("partial_entry", entries)
    assert span(finding) == (width * entries, width * entries + width)


@pytest.mark.parametrize("gone", [True, False])
def test_f26_aborted_transaction_left_out_of_its_index(brokers: Brokers, gone: bool) -> None:
    path = brokers.file(2, 29, "txnindex")
    if gone:
        path.unlink()
    else:
        path.write_bytes(b"")
    result = verdict(brokers)
    assert said(result) == [("TXNINDEX_MISSING_ABORT", "error", 2)]
    finding = only(result, "TXNINDEX_MISSING_ABORT")
    assert offsets(finding) == (ABORTED.first_offset, ABORTED.last_offset + 1) == (26, 36)
    assert finding.evidence["producer_id"] == ABORTING


def test_f27_committed_transaction_listed_as_aborted(brokers: Brokers) -> None:
    path = brokers.file(2, 29, "txnindex")
    path.write_bytes(path.read_bytes() + write_transaction_index([AbortedTxn(COMMITTING, 36, 42, 43)]))
    result = verdict(brokers)
    assert said(result) == [("TXNINDEX_PHANTOM_ABORT", "error", 2)]
    finding = only(result, "TXNINDEX_PHANTOM_ABORT")
    assert (span(finding), offsets(finding)) == ((34, 68), (36, 43))
    assert (finding.evidence["producer_id"], finding.evidence["entry"]) == (COMMITTING, 1)


@pytest.mark.parametrize("offset", [29, 55, 75])
def test_f28_flipped_bit_in_a_snapshot(brokers: Brokers, offset: int) -> None:
    change(brokers.file(2, offset, "snapshot"), 3)
    result = verdict(brokers)
    assert said(result) == [("PRODUCER_SNAPSHOT_CORRUPT", "warning", 2)]
    finding = only(result, "PRODUCER_SNAPSHOT_CORRUPT")
    assert (finding.place.file, span(finding)) == (f"t-0/{offset:020d}.snapshot", (2, 6))
    assert (finding.evidence["reason"], finding.place.offset_end) == ("crc", offset)
    assert finding.evidence["rebuilt_from"] == {29: 0, 55: 29, 75: 55}[offset]


def test_f28_snapshot_of_an_earlier_state(brokers: Brokers) -> None:
    brokers.file(2, 55, "snapshot").write_bytes(brokers.file(2, 29, "snapshot").read_bytes())
    result = verdict(brokers)
    assert said(result) == [("PRODUCER_SNAPSHOT_CORRUPT", "warning", 2)]
    finding = only(result, "PRODUCER_SNAPSHOT_CORRUPT")
    assert finding.place.file == f"t-0/{55:020d}.snapshot"
    contradicted = {row["producer_id"]: row["reason"] for row in finding.evidence["contradictions"]}
    assert contradicted == {3000: "last_offset", COMMITTING: "last_offset", ABORTING: "current_txn_first_offset"}


@pytest.mark.parametrize(
    ("entries", "reason", "asked", "by_checkpoint", "by_batches"),
    [
        pytest.param([(0, 0), (2, 58)], "entry_missing", 0, 58, 32, id="dropped"),
        pytest.param([(0, 0), (2, 58), (1, 32)], "order", 2, 75, 75, id="reordered"),
        pytest.param([(0, 0), (1, 35), (2, 58)], "entry_shifted", 0, 35, 32, id="shifted up"),
        pytest.param([(0, 0), (1, 32), (2, 55)], "entry_shifted", 1, 55, 58, id="shifted down"),
        pytest.param([(0, 0), (1, 32), (2, 58), (4, 65)], "entry_without_batches", 2, 65, 75, id="invented"),
    ],
)
def test_f29_leader_epochs_that_the_batches_contradict(
    brokers: Brokers, entries: list[tuple[int, int]], reason: str, asked: int, by_checkpoint: int, by_batches: int
) -> None:
    claim_epochs(brokers, 2, *entries)
    result = verdict(brokers)
    assert said(result) == [("EPOCH_CACHE_MISMATCH", "error", 2)]
    finding = only(result, "EPOCH_CACHE_MISMATCH")
    assert finding.place.file == "t-0/leader-epoch-checkpoint"
    assert (finding.evidence["reason"], finding.evidence["epoch"]) == (reason, asked)
    assert finding.evidence["truncation_offset_by_checkpoint"] == by_checkpoint
    assert finding.evidence["truncation_offset_by_batches"] == by_batches
    assert finding.evidence["batches"] == [[0, 0], [1, 32], [2, 58]]


def test_f29_entry_at_the_log_end_is_an_epoch_that_wrote_nothing_yet(brokers: Brokers) -> None:
    claim_epochs(brokers, 2, (0, 0), (1, 32), (2, 58), (3, LOG_END))
    assert said(verdict(brokers)) == []


@pytest.mark.parametrize(("high_watermark", "end"), [(90, 75), (76, 75)])
def test_f30_high_watermark_beyond_the_log(brokers: Brokers, high_watermark: int, end: int) -> None:
    write_checkpoint(brokers.log_dir(2), "replication", high_watermark)
    result = verdict(brokers)
    assert said(result) == [("HW_BEYOND_LEO", "critical", 2)]
    finding = only(result, "HW_BEYOND_LEO")
    assert offsets(finding) == (end, high_watermark)
    assert finding.evidence["held_by"] == []


def test_f30_names_who_has_what_this_replica_lost(brokers: Brokers) -> None:
    delete_segment(brokers, 2, 55)
    brokers.file(2, 75, "snapshot").unlink()
    write_checkpoint(brokers.log_dir(2), "recovery-point", 55)
    result = verdict(brokers)
    assert said(result) == [("HW_BEYOND_LEO", "critical", 2), ("REPLICA_LAGS", "info", 2)]
    finding = only(result, "HW_BEYOND_LEO")
    assert (offsets(finding), finding.evidence["held_by"]) == ((55, 72), [1, 3])


def test_f30_the_high_watermark_told_is_the_replicas_own(brokers: Brokers) -> None:
    """Broker 2 checkpointed 60 and its log ends at 55; that the others checkpointed 72 is another matter."""
    delete_segment(brokers, 2, 55)
    brokers.file(2, 75, "snapshot").unlink()
    for name, offset in (("recovery-point", 55), ("replication", 60)):
        write_checkpoint(brokers.log_dir(2), name, offset)
    finding = only(verdict(brokers), "HW_BEYOND_LEO")
    assert (offsets(finding), finding.evidence["high_watermark"]) == ((55, 60), 60)
    assert "the checkpointed high watermark 60 lies beyond the log's end 55" in message(finding)


def test_f30_in_a_live_copy_the_checkpoint_is_only_newer(brokers: Brokers) -> None:
    write_checkpoint(brokers.log_dir(2), "replication", 90)
    result = verdict(brokers, live=True)
    assert said(result) == [("INCONSISTENT_CUT", "info", 2)]
    assert offsets(only(result, "INCONSISTENT_CUT")) == (75, 90)


def test_f31_without_a_checkpoint_nothing_is_claimed(brokers: Brokers) -> None:
    (brokers.log_dir(2) / CHECKPOINT).unlink()
    result = verdict(brokers)
    assert said(result) == [("HW_UNKNOWN", "info", 2)]
    assert only(result, "HW_UNKNOWN").evidence["reason"] == "missing"
    assert [replica.high_watermark for replica in result.partitions[0].replicas] == [72, None, 72]


def test_f31_high_watermark_zero_is_not_known(brokers: Brokers) -> None:
    write_checkpoint(brokers.log_dir(2), "replication", 0)
    result = verdict(brokers)
    assert said(result) == [("HW_UNKNOWN", "info", 2)]
    assert only(result, "HW_UNKNOWN").evidence["reason"] == "zero"


@pytest.mark.parametrize(
    ("data", "reason", "high_watermark"),
    [
        pytest.param(b"0\n2147483647\nt 0 72\n", "count", 72, id="count"),
        pytest.param(b"0\n1\nt 0 " + b"7" * 10_000_000 + b"\n", "line_too_long", None, id="digits"),
        pytest.param(b"9\n1\nt 0 72\n", "version", 72, id="version"),
        pytest.param(b"\xff\x00\xfe" * 1000, "version", None, id="noise"),
    ],
)
def test_f32_checkpoint_that_is_none(brokers: Brokers, data: bytes, reason: str, high_watermark: int | None) -> None:
    (brokers.log_dir(2) / CHECKPOINT).write_bytes(data)
    brokers.flip(2, HEALTHY.at(40), 100)
    result = verdict(brokers)
    rest = [("BATCH_CRC_MISMATCH", "error", 2), ("REPLICA_DIFFERS", "error", 2)]
    assert said(result) == [rest[0], ("CHECKPOINT_MALFORMED", "warning", 2), rest[1]]
    finding = only(result, "CHECKPOINT_MALFORMED")
    assert finding.place.file == CHECKPOINT
    assert finding.evidence["reason"] == reason
    assert result.partitions[0].replicas[1].high_watermark == high_watermark
