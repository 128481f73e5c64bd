"""What looks like a fault beside the one that is there: each test holds a false alarm, or a silence, that once was given."""

import struct
from pathlib import Path

import pytest

from kafka_forensics.writers.batches import fix_crc
from tests.support.faults import HEALTHY, LOG_END, Brokers, healthy, write_checkpoint
from tests.support.faults_verdict import offsets, only, said, verdict

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
    one = only(result, "CHECKPOINT_MALFORMED")
    assert (one.place.file, one.evidence["reason"]) == (f"t-0/{EPOCHS}", reason)


def test_f32_malformed_leader_epochs_witness_nothing(brokers: Brokers) -> None:
    brokers.named(2, EPOCHS).write_bytes(b"7\n3\n0 0\n1 32\n2 58\n")
    brokers.flip(2, TARGET, 15, 3)
    result = verdict(brokers)
    assert said(result) == [("CHECKPOINT_MALFORMED", "warning", 2), ("EPOCH_FIELD_MISMATCH", "error", 2)]
    assert only(result, "EPOCH_FIELD_MISMATCH").evidence["witnesses"] == ["neighbouring batches", "other replicas"]


@pytest.mark.parametrize("delta", [5, 6, 8, 100, 70_000, 2**31 - 1 - 11])
@pytest.mark.parametrize("on", [(2,), (1, 2, 3)])
def test_f10_last_offset_far_upwards_makes_no_duplicate_of_what_follows(brokers: Brokers, delta: int, on: tuple[int, ...]) -> None:
    for broker in on:
        brokers.overwrite(broker, TARGET, fix_crc(TARGET.data[:23] + struct.pack(">i", delta) + TARGET.data[27:]))
    result = verdict(brokers)
    assert said(result) == [("BATCH_RANGE_INCONSISTENT", "error", broker) for broker in on]


def copied(brokers: Brokers, first: int, last: int, *, behind: int = 74) -> None:
    """The batches of offsets `first` to `last` a second time on broker 2, right behind the batch of another offset."""
    data = b"".join(one.data for one in HEALTHY.batches if first <= one.base_offset <= last)
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
    assert {kind for kind, _, _ in said(result)} == {"OFFSET_REGRESSION", "DUPLICATE_BATCH"} | reopened
    end = HEALTHY.at(last).last_offset + 1
    assert offsets(only(result, "OFFSET_REGRESSION")) == (HEALTHY.at(first).base_offset, end)
    assert result.partitions[0].replicas[1].log_end_offset == LOG_END
    assert result.partitions[0].replicas[1].leader_epochs == [(0, 0), (1, 32), (2, 58)]


def test_f18_an_epoch_field_that_lies_is_told_beside_a_copy(brokers: Brokers) -> None:
    brokers.flip(2, TARGET, 15, 3)
    copied(brokers, 0, 3)
    assert {kind for kind, _, _ in said(verdict(brokers))} == {"OFFSET_REGRESSION", "DUPLICATE_BATCH", "EPOCH_FIELD_MISMATCH"}


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
    after_a_crash = next(one for one in result.findings if one.place.broker == 2)
    assert after_a_crash.evidence["value"] == 62
    assert after_a_crash.evidence["limit"] == 60
    assert "5 s" in after_a_crash.evidence["harmless_if"]
    assert all("harmless_if" not in one.evidence for one in result.findings if one.place.broker != 2)


def test_log_start_beyond_the_log_end_is_no_matter_of_seconds(brokers: Brokers) -> None:
    brokers.crash(2)
    write_checkpoint(brokers.log_dir(2), "log-start", 80)
    assert ("CHECKPOINT_OUT_OF_ORDER", "warning", 2) in said(verdict(brokers))
