"""One bit of each byte of a base offset, flipped in logs of controllers and coordinators and in a log with transactions."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import CONTROL_MASK
from kafka_forensics.model.coordinators import GroupLog
from kafka_forensics.parsers.kernels.commits import Superseded
from kafka_forensics.questions.metadata import controller_events
from kafka_forensics.questions.plan import PlanOptions, make_plans
from kafka_forensics.questions.search import Conditions, search
from kafka_forensics.questions.transactions import transactions
from kafka_forensics.scanning.rereading.logs_in_order import OffsetCorrector
from kafka_forensics.scanning.witnesses.coordinators import read_group_history, read_transaction_log, replay_log
from tests.scanning.witnesses.flipped_offsets import Batch, batches_of, flipped
from tests.support.brokers import put_consumer_offsets, put_segment
from tests.support.groups import commit_key, commit_value, coordinator_batches, transaction_batches
from tests.support.memory import MemoryFile
from tests.support.places import SAMPLES
from tests.support.segments import batch, chunk_of, columns_of

SAMPLE = SAMPLES / "healthy" / "broker-2"
BITS = (7, 0, 3, 1, 2, 5, 0, 6)
"""The bit that is flipped in each byte of a base offset."""


def controllers(path: Path) -> object:
    """The controllers' history, with its start and end."""
    return controller_events([str(path)], ScanOptions())


def transaction_log(path: Path) -> object:
    """The coordinators' transaction log."""
    return read_transaction_log(gather([str(path)], ScanOptions()))


def groups(path: Path) -> list[GroupLog]:
    """The replayed logs of group coordinators, which must be the same if superseded batches are skipped."""
    inputs = gather([str(path)], ScanOptions())
    history = read_group_history(inputs)
    assert history is not None
    skipping = [
        replay_log(inputs, plan, Superseded(compiled=True))
        for plan in inputs.internal
        if plan.context.topic == "__consumer_offsets"
    ]
    assert skipping == history.logs
    return history.logs


def transaction_rows(path: Path) -> object:
    """Every transaction, by the offsets of its first and last batch and of its marker."""
    return list(transactions([str(path)], ScanOptions(topic_glob="payments")).rows)


@pytest.mark.parametrize(
    ("directory", "read"),
    [
        ("__cluster_metadata-0", controllers),
        ("__transaction_state-0", transaction_log),
        ("__consumer_offsets-0", groups),
        ("payments-0", transaction_rows),
    ],
)
def test_a_flipped_bit_does_not_change_the_facts_of_a_copy(tmp_path: Path, directory: str, read: Callable[[Path], object]) -> None:
    path = tmp_path / "broker-2"
    shutil.copytree(SAMPLE, path)
    before = read(path)
    batches = batches_of(path / directory)
    for byte, bit in enumerate(BITS):
        for number in (0, len(batches) // 2):
            with flipped(batches[number], byte, bit):
                assert read(path) == before, (byte, number)


KEY, OTHER = commit_key(), commit_key("audit")


@pytest.mark.parametrize("bit", [0, 1, 4, 33, 61, 62, 63])
def test_a_plain_commit_after_a_misplaced_transactional_batch_stays_valid(tmp_path: Path, bit: int) -> None:
    log = coordinator_batches((OTHER, commit_value(1)), (OTHER, commit_value(2)))
    log += transaction_batches((KEY, commit_value(9)), start=2) + coordinator_batches((KEY, commit_value(6)), start=3)
    log += transaction_batches(start=4, commit=True) + coordinator_batches((OTHER, commit_value(3)), start=5)
    directory = put_consumer_offsets(tmp_path / "b1", log).parent
    (before,) = groups(tmp_path / "b1")
    commits = [(commit.group, commit.last.offset, commit.record_offset) for commit in before.committed]
    assert commits == [("audit", 3, 5), ("billing", 6, 3)]
    for place in batches_of(directory):
        if place.base_offset in (2, 3):
            with flipped(place, 7 - bit // 8, bit % 8):
                assert groups(tmp_path / "b1") == [before]


def test_a_malformed_record_of_a_misplaced_batch_has_the_right_offset(tmp_path: Path) -> None:
    log = (
        coordinator_batches((KEY, commit_value(1)))
        + coordinator_batches((KEY, b"\0\1"), start=1)
        + coordinator_batches((OTHER, commit_value(2)), start=2)
    )
    directory = put_consumer_offsets(tmp_path / "b1", log).parent
    (before,) = groups(tmp_path / "b1")
    assert [record.offset for record in before.malformed] == [1]
    with flipped(batches_of(directory)[1], 3, 4):
        assert groups(tmp_path / "b1") == [before]


INT64_MAX = 2**63 - 1


@pytest.mark.parametrize("last_offset", [7, INT64_MAX, -(2**63) + 1])
def test_batches_at_the_largest_offset_are_not_corrected(last_offset: int) -> None:
    offsets, size = (INT64_MAX, 7, last_offset), len(batch(0))
    log = b"".join(offset.to_bytes(8, signed=True) + batch(0)[8:] for offset in offsets)
    placing = OffsetCorrector(MemoryFile(log), 0, None, None, None)
    for number, offset in enumerate(offsets):
        row = {BatchColumn.BASE_OFFSET: offset, BatchColumn.LAST_OFFSET: offset}
        chunk = chunk_of(columns_of([row | {BatchColumn.POSITION: number * size, BatchColumn.SIZE_IN_BYTES: size}]))
        right, wrong = placing.correct_base_offsets(chunk)
        assert (wrong, right is chunk) == ({}, True)


HOSTILE = (INT64_MAX, INT64_MAX - 1, -(2**63), -1, 2**62, -(2**63) + 1, 2**53 + 1)


@pytest.mark.parametrize("first", HOSTILE)
@pytest.mark.parametrize("second", HOSTILE)
def test_commands_accept_hostile_offsets(tmp_path: Path, first: int, second: int) -> None:
    path = tmp_path / "broker-2"
    for directory, commits in (("__consumer_offsets-0", True), ("payments-0", False)):
        (path / directory).mkdir(parents=True)
        log = b""
        for start in (0, first, second, 3):
            batches = coordinator_batches((KEY, commit_value(5)), (OTHER, commit_value(6))) if commits else batch(0, 2)
            log += start.to_bytes(8, "big", signed=True) + batches[8:]
        put_segment(path / directory, 0, log)
    (path / "meta.properties").write_text("version=1\nbroker.id=2\ncluster.id=c\n")
    assert groups(path)
    assert transaction_rows(path) == []
    list(search([str(path)], ScanOptions("payments"), Conditions(offset_start=0, offset_end=9)).rows())
    make_plans([str(path)], ScanOptions("payments", 0), PlanOptions())


def test_a_batch_with_a_wrong_crc_does_not_set_the_log_end() -> None:
    rows = [{BatchColumn.BASE_OFFSET: offset} for offset in (0, 1, 2)]
    rows[2] |= {BatchColumn.LAST_OFFSET: INT64_MAX, BatchColumn.CRC_COMPUTED: 1}
    placing = OffsetCorrector(MemoryFile(b""), 0, 0, None, None)
    placing.correct_base_offsets(chunk_of(columns_of(rows)))
    more = chunk_of(columns_of([{BatchColumn.POSITION: 300, BatchColumn.BASE_OFFSET: 2**40}, {BatchColumn.POSITION: 400}]))
    more.columns[[BatchColumn.BASE_OFFSET, BatchColumn.LAST_OFFSET], 1] = 3
    right, wrong = placing.correct_base_offsets(more)
    assert [(position, batch.offset) for position, batch in wrong.items()] == [(300, 2)]
    assert right.columns[BatchColumn.BASE_OFFSET].tolist() == [2, 3]


@pytest.mark.parametrize("bit", range(14, 64))
def test_a_misplaced_batch_of_a_cleaned_log_counts_at_its_right_offset(tmp_path: Path, bit: int) -> None:
    starts = (3, 5, 9, 20, 33)
    log = b"".join(coordinator_batches((commit_key(f"group-{start}"), commit_value(start)), start=start) for start in starts)
    directory = put_consumer_offsets(tmp_path / "b1", log).parent
    before = groups(tmp_path / "b1")
    assert [commit.record_offset for commit in sorted(before[0].committed, key=lambda commit: commit.record_offset)] == list(starts)
    for place in batches_of(directory)[:-1]:
        with flipped(place, 7 - bit // 8, bit % 8):
            assert groups(tmp_path / "b1") == before, place


def ended_by_marker(path: Path) -> list[Batch]:
    """The batches of a log up to its last marker, written into a log directory."""
    (log,) = (SAMPLE / "payments-0").glob("*.log")
    data, batches = log.read_bytes(), batches_of(log.parent)
    last = max(number for number, place in enumerate(batches) if data[place.position + 22] & CONTROL_MASK)
    (path / "payments-0").mkdir(parents=True)
    (path / "payments-0" / log.name).write_bytes(data[: [*batches, Batch(log, len(data), 0)][last + 1].position])
    return batches_of(path / "payments-0")


TAILS = {"clean": b"", "zeros": bytes(4096), "few zeros": bytes(5), "torn": b"\0\0\0\1\0", "torn batch": batch(10**6)[:70]}


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize(("byte", "bit"), [(0, 7), (0, 0), (2, 3), (4, 5), (5, 7)])
def test_a_misplaced_last_batch_counts_before_any_tail_of_a_crash(tmp_path: Path, tail: str, byte: int, bit: int) -> None:
    path = tmp_path / "broker-2"
    place = ended_by_marker(path)[-1]
    with place.log.open("ab") as log:
        log.write(TAILS[tail])
    before = transaction_rows(path)
    assert str(place.base_offset) in str(before)
    with flipped(place, byte, bit):
        assert transaction_rows(path) == before


def test_a_misplaced_last_batch_counts_after_earlier_damage(tmp_path: Path) -> None:
    path = tmp_path / "broker-2"
    batches = ended_by_marker(path)
    data = bytearray(batches[0].log.read_bytes())
    data[batches[1].position + 61] ^= 1
    batches[0].log.write_bytes(data)
    before = transaction_rows(path)
    with flipped(batches[-1], 3, 4):
        assert transaction_rows(path) == before
