"""What looks like a fault beside the one that is there: each test holds a false alarm, or a silence, that once was given."""

import struct
from pathlib import Path

import pytest

from kafka_forensics.wording import advice, message
from tests.support.faults import HEALTHY, LOG_END, Brokers, Log, healthy, histories, write_checkpoint, write_files
from tests.support.faults_verdict import offsets, only, said, scan, span, verdict
from tests.support.injections import append, change, claim_epochs, delete_segment, noise, remove_snapshots, with_right_crc
from tests.support.segments import write_offset_index, write_time_index

pytestmark = pytest.mark.faults

TARGET = HEALTHY.at(40)
EPOCHS = "leader-epoch-checkpoint"


@pytest.fixture(name="brokers")
def three_equal_replicas(tmp_path: Path) -> Brokers:
    return healthy(tmp_path)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"0\n3\n0 0\n2 58\n", "count", id="count"),
        pytest.param(b"0\n3\n0 0\nx 32\n2 58\n", "epoch", id="epoch"),
        pytest.param(b"0\n3\n0 0\n1 -32\n2 58\n", "offset", id="offset"),
        pytest.param(b"7\n3\n0 0\n1 35\n2 58\n", "version", id="version"),
        pytest.param(b"\xff\xfe" * 40, "version", id="noise"),
    ],
)
def test_f32_malformed_leader_epochs_contradict_nobody(brokers: Brokers, data: bytes, reason: str) -> None:
    brokers.named(2, EPOCHS).write_bytes(data)
    result = verdict(brokers)
    assert said(result) == [("CHECKPOINT_MALFORMED", "warning", 2)]
    finding = only(result, "CHECKPOINT_MALFORMED")
    assert (finding.place.file, finding.evidence["reason"]) == (f"t-0/{EPOCHS}", reason)


def test_f32_malformed_leader_epochs_witness_nothing(brokers: Brokers) -> None:
    brokers.named(2, EPOCHS).write_bytes(b"7\n3\n0 0\n1 32\n2 58\n")
    brokers.flip(2, TARGET, 15, 3)
    result = verdict(brokers)
    assert said(result) == [("CHECKPOINT_MALFORMED", "warning", 2), ("EPOCH_FIELD_MISMATCH", "error", 2)]
    assert only(result, "EPOCH_FIELD_MISMATCH").evidence["witnesses"] == ["neighbouring batches", "other replicas"]


@pytest.mark.parametrize("delta", [5, 6, 8, 100, 70_000, 2**31 - 1 - 11])
@pytest.mark.parametrize("on", [(2,), (1, 2, 3)])
def test_f10_last_offset_far_upwards_makes_no_duplicate_of_what_follows(brokers: Brokers, delta: int, on: tuple[int, ...]) -> None:
    with_right_crc(brokers, TARGET, 23, struct.pack(">i", delta), on=on)
    result = verdict(brokers)
    assert said(result) == [("BATCH_RANGE_INCONSISTENT", "error", broker) for broker in on]


def copied(brokers: Brokers, first: int, last: int, *, behind: int = 74) -> None:
    """The batches of offsets `first` to `last` a second time on broker 2, right behind the batch of another offset."""
    data = b"".join(batch.data for batch in HEALTHY.batches if first <= batch.base_offset <= last)
    place = HEALTHY.at(behind)
    path = brokers.file(2, place.segment)
    log = path.read_bytes()
    path.write_bytes(log[: place.end] + data + log[place.end :])
    for segment in HEALTHY.segments:
        for suffix in ("index", "timeindex"):
            brokers.file(2, segment, suffix).write_bytes(b"")


@pytest.mark.parametrize(
    ("first", "last", "behind"), [(0, 2, 74), (0, 3, 74), (29, 34, 74), (26, 34, 74), (29, 31, 48), (29, 34, 54), (43, 46, 68)]
)
def test_f18_copied_batches_of_older_epochs_bring_only_their_offsets_twice(
    brokers: Brokers, first: int, last: int, behind: int
) -> None:
    copied(brokers, first, last, behind=behind)
    result = verdict(brokers)
    reopened = {"TXN_OPEN"} if (first, last) == (26, 34) else set()
    misread = {"RECOVERY_WOULD_TRUNCATE"} if behind == 74 else set()
    assert {kind for kind, _, _ in said(result)} == {"OFFSET_REGRESSION", "DUPLICATE_BATCH"} | reopened | misread
    end = HEALTHY.at(last).last_offset + 1
    assert offsets(only(result, "OFFSET_REGRESSION")) == (HEALTHY.at(first).base_offset, end)
    assert result.partitions[0].replicas[1].log_end_offset == LOG_END
    assert result.partitions[0].replicas[1].leader_epochs == [(0, 0), (1, 32), (2, 58)]


def test_f18_an_epoch_field_that_lies_is_told_beside_a_copy(brokers: Brokers) -> None:
    brokers.flip(2, TARGET, 15, 3)
    copied(brokers, 0, 3)
    found = {kind for kind, _, _ in said(verdict(brokers))}
    assert found == {"OFFSET_REGRESSION", "DUPLICATE_BATCH", "EPOCH_FIELD_MISMATCH", "RECOVERY_WOULD_TRUNCATE"}


def test_f18_an_epoch_field_that_lies_within_a_copy_is_told(brokers: Brokers) -> None:
    size = brokers.file(2, 55).stat().st_size
    copied(brokers, 39, 54)
    change(brokers.file(2, 55), size + HEALTHY.at(46).position - HEALTHY.at(39).position + 15, 8)
    result = verdict(brokers)
    finding = only(result, "EPOCH_FIELD_MISMATCH")
    assert (offsets(finding), finding.evidence["epoch"], finding.evidence["expected_epoch"]) == ((46, 49), 9, 1)
    assert {kind for kind, _, _ in said(result)} == {
        "OFFSET_REGRESSION",
        "DUPLICATE_BATCH",
        "EPOCH_FIELD_MISMATCH",
        "RECOVERY_WOULD_TRUNCATE",
    }


def test_log_start_beyond_the_high_watermark_after_a_crash_is_ordinary(brokers: Brokers) -> None:
    for broker in (1, 2, 3):
        write_checkpoint(brokers.log_dir(broker), "replication", 60)
        write_checkpoint(brokers.log_dir(broker), "log-start", 62)
        brokers.named(broker, EPOCHS).write_bytes(b"0\n1\n2 62\n")
    brokers.crash(2)
    result = verdict(brokers)
    assert said(result) == [
        ("CHECKPOINT_OUT_OF_ORDER", "info", 2),
        ("CHECKPOINT_OUT_OF_ORDER", "warning", 1),
        ("CHECKPOINT_OUT_OF_ORDER", "warning", 3),
    ]
    after_a_crash = next(finding for finding in result.findings if finding.place.broker == 2)
    assert after_a_crash.evidence["value"] == 62
    assert after_a_crash.evidence["limit"] == 60
    assert "5 s" in after_a_crash.evidence["harmless_if"]
    assert all("harmless_if" not in finding.evidence for finding in result.findings if finding.place.broker != 2)


def test_log_start_beyond_the_log_end_is_no_matter_of_seconds(brokers: Brokers) -> None:
    brokers.crash(2)
    write_checkpoint(brokers.log_dir(2), "log-start", 80)
    assert ("CHECKPOINT_OUT_OF_ORDER", "warning", 2) in said(verdict(brokers))


def lose_segment_behind_noise(brokers: Brokers, size: int) -> None:
    """Noise behind the first segment of broker 2, whose second is gone."""
    append(brokers, 0, noise(size))
    delete_segment(brokers, 2)


@pytest.mark.parametrize("size", [61, 100, len(HEALTHY.at(29).data) - 1])
def test_f17_noise_behind_a_segment_does_not_hide_that_the_next_is_missing(brokers: Brokers, size: int) -> None:
    lose_segment_behind_noise(brokers, size)
    result = verdict(brokers)
    assert said(result) == [("FRAMING_LOST", "error", 2), ("OFFSET_GAP", "critical", 2), ("SEGMENT_MISSING", "error", 2)]
    for kind in ("OFFSET_GAP", "SEGMENT_MISSING"):
        finding = only(result, kind)
        assert (offsets(finding), finding.evidence["missing"], finding.evidence["held_by"]) == ((29, 55), 26, [1, 3])
    end = HEALTHY.at(28).end
    assert (span(only(result, "FRAMING_LOST")), offsets(only(result, "FRAMING_LOST"))) == ((end, end + size), (None, None))


@pytest.mark.parametrize(("size", "first"), [(len(HEALTHY.at(29).data), 32), (3000, 32), (3200, 36)])
def test_f17_noise_that_could_have_been_some_batches_explains_no_more(brokers: Brokers, size: int, first: int) -> None:
    lose_segment_behind_noise(brokers, size)
    result = verdict(brokers)
    assert said(result) == [("FRAMING_LOST", "error", 2), ("OFFSET_GAP", "critical", 2)]
    assert offsets(only(result, "FRAMING_LOST")) == (29, first)
    assert offsets(only(result, "OFFSET_GAP")) == (first, 55)


def test_f17_noise_with_room_for_all_that_is_missing_is_all(brokers: Brokers) -> None:
    lose_segment_behind_noise(brokers, sum(len(one.data) for one in HEALTHY.of_segment(29)))
    result = verdict(brokers)
    assert said(result) == [("FRAMING_LOST", "error", 2)]
    assert offsets(only(result, "FRAMING_LOST")) == (29, 55)


@pytest.mark.parametrize(("size", "missing"), [(30, True), (60, True), (61, False)])
def test_f17_one_replica_by_itself_knows_only_what_no_batch_fits_into(brokers: Brokers, size: int, missing: bool) -> None:
    lose_segment_behind_noise(brokers, size)
    result = scan([brokers.log_dir(2)])
    assert ("SEGMENT_MISSING" in {finding.kind for finding in result.findings}) == missing
    assert offsets(only(result, "FRAMING_LOST")) == ((None, None) if missing else (29, 55))


def test_f28_no_snapshot_at_all_after_a_clean_shutdown(brokers: Brokers) -> None:
    remove_snapshots(brokers, 2)
    result = verdict(brokers)
    assert said(result) == [("PRODUCER_SNAPSHOT_MISSING", "info", 2)]
    assert only(result, "PRODUCER_SNAPSHOT_MISSING").evidence == {"count": 3}


def test_f28_no_snapshot_where_other_partitions_of_the_copy_have_theirs(brokers: Brokers) -> None:
    remove_snapshots(brokers, 2)
    for broker in (1, 2, 3):
        write_files(brokers.log_dir(broker) / "u-0", HEALTHY)
    result = verdict(brokers)
    assert said(result) == [("PRODUCER_SNAPSHOT_MISSING", "warning", 2)]


def test_f28_no_snapshot_after_a_crash_is_rebuilt_by_kafka(brokers: Brokers) -> None:
    brokers.crash(2)
    remove_snapshots(brokers, 2)
    assert said(verdict(brokers)) == []


@pytest.mark.parametrize("offset", [29, 55, 75])
def test_f28_one_snapshot_less_is_nothing(brokers: Brokers, offset: int) -> None:
    brokers.file(2, offset, "snapshot").unlink()
    assert said(verdict(brokers)) == []


def test_f28_no_snapshot_of_a_log_without_producers(tmp_path: Path) -> None:
    log = Log()
    _ = log.plain(), log.plain()
    brokers = histories(tmp_path, dict.fromkeys((1, 2), log), dict.fromkeys((1, 2), 6))
    remove_snapshots(brokers, 1, 2)
    assert said(verdict(brokers)) == []


@pytest.mark.parametrize(("stale", "crashed", "closed", "severity"), [
    ((6,), True, False, "info"),
    ((5, 6), True, False, "info"),
    ((5,), True, False, "warning"),
    ((6,), False, False, "warning"),
    ((6,), True, True, "warning"),
])  # fmt: skip
def test_f25_entries_that_a_truncation_left_in_an_open_time_index(
    tmp_path: Path, stale: tuple[int, ...], crashed: bool, closed: bool, severity: str
) -> None:
    """As brokers leave it (`tests/broker`): only the last entries, only before zeros, only where nobody closed the file."""
    brokers = healthy(tmp_path)
    path = brokers.file(2, 55, "timeindex")
    data = bytearray(path.read_bytes())
    assert len(data) == 7 * 12
    for entry in stale:
        data[12 * entry : 12 * entry + 8] = (int.from_bytes(data[12 * entry : 12 * entry + 8], "big") - 1).to_bytes(8, "big")
    path.write_bytes(data if closed else data + bytes(120))
    if crashed:
        brokers.crash(2)
    result = verdict(brokers)
    assert [row for row in said(result) if row[0] == "INDEX_MISMATCH"] == [("INDEX_MISMATCH", severity, 2)]
    assert ("harmless_if" in only(result, "INDEX_MISMATCH").evidence) == (severity == "info")


def dropped_entries(brokers: Brokers, stamp: int, count: int = 40) -> None:
    """Broker 2 crashed with open indexes, which end in entries of a tail that is not there, of times from `stamp`."""
    index, times = brokers.file(2, 55, "index"), brokers.file(2, 55, "timeindex")
    more = [(200 + number, 1_000_000 + number) for number in range(count)]
    index.write_bytes(index.read_bytes() + write_offset_index(more, 55) + bytes(80))
    later = [(stamp + number, 200 + number) for number in range(count)]
    times.write_bytes(times.read_bytes() + write_time_index(later, 55) + bytes(120))
    brokers.crash(2)


NEWEST = max(batch.max_timestamp for batch in HEALTHY.batches)


@pytest.mark.parametrize("live", [False, True])
def test_f25_many_entries_of_a_tail_that_was_cut_before_the_log_went_on(brokers: Brokers, live: bool) -> None:
    """Their times are older than what the log holds: they were written before it."""
    dropped_entries(brokers, NEWEST - 1_000_000)
    result = verdict(brokers, live=live)
    assert {severity for _, severity, _ in said(result)} == {"info"}
    assert {kind for kind, _, _ in said(result)} <= {"INDEX_MISMATCH", "INCONSISTENT_CUT"}


@pytest.mark.parametrize(("epoch_start", "high_watermark", "severity"), [
    (LOG_END, LOG_END, "info"),
    (None, LOG_END, "warning"),
    (LOG_END + 1, LOG_END, "warning"),
    (LOG_END, LOG_END + 5, "warning"),
])  # fmt: skip
def test_f25_entries_of_a_tail_that_is_gone_are_harmless_if_a_later_leader_did_not_have_it(
    brokers: Brokers, epoch_start: int | None, high_watermark: int, severity: str
) -> None:
    """Nothing was written since: only another copy tells whether the log was cut, or lost its end with the power."""
    dropped_entries(brokers, NEWEST + 1000)
    write_checkpoint(brokers.log_dir(2), "replication", high_watermark)
    if epoch_start is not None:
        epochs = [(entry.leader_epoch, entry.start_offset) for entry in HEALTHY.epochs]
        claim_epochs(brokers, 1, *epochs, (7, epoch_start))
    findings = [finding for finding in verdict(brokers).findings if finding.kind == "INDEX_MISMATCH"]
    assert [(finding.severity.value, "harmless_if" in finding.evidence) for finding in findings] == [
        (severity, severity == "info")
    ] * 2


def test_f29_a_log_with_epochs_whose_checkpoint_is_missing_beside_others(brokers: Brokers) -> None:
    """Alone it says nothing, for copies are made without the small files; other partitions' files say that it was there."""
    brokers.named(2, EPOCHS).unlink()
    assert said(verdict(brokers)) == []
    for broker in (1, 2, 3):
        write_files(brokers.log_dir(broker) / "u-0", HEALTHY)
    result = verdict(brokers)
    assert said(result) == [("EPOCH_CACHE_MISMATCH", "warning", 2)]
    finding = only(result, "EPOCH_CACHE_MISMATCH")
    assert (finding.confidence.value, finding.evidence["batches"]) == ("inferred", [[0, 0], [1, 32], [2, 58]])
    assert finding.evidence["epochs_after_start"] == []
    assert "leader-epoch-checkpoint is missing, though these batches have leader epochs" in message(finding)
    assert "a broker that starts like this cuts the log as a follower at its high watermark" in message(finding)
    assert said(verdict(brokers, live=True)) == []
    brokers.crash(2)
    finding = only(verdict(brokers), "EPOCH_CACHE_MISMATCH")
    assert finding.evidence["epochs_after_start"] == [[1, 55], [2, 58]], "recovery walks the last segment"
    assert "its recovery takes epochs from the batches that it walks" in message(finding)
    assert "high watermark" not in message(finding)
    assert "its recovery writes that file anew" in str(advice(finding))
    brokers.named(2, "partition.metadata").unlink()
    remove_snapshots(brokers, 2)
    assert said(verdict(brokers)) == [("TOPIC_ID_MISSING", "error", 2)]
