"""Fault F03 at every place of a log: one bit of a base offset, which no CRC covers, and what looks like it."""

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_forensics.engine.local import scan as scan_once
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.results import PartitionSummary, ScanResult
from kafka_forensics.questions.compare import compare
from kafka_forensics.questions.plan import PlanOptions, make_plans
from kafka_forensics.questions.search import Conditions, search
from kafka_forensics.writers.batches import write_batch
from tests.support.faults import HEALTHY, LOG_END, Brokers, Log, Written, healthy, histories, write_base, write_checkpoint
from tests.support.faults_verdict import offsets, only, said, verdict

pytestmark = pytest.mark.faults

FIRST, LAST = HEALTHY.batches[0], HEALTHY.batches[-1]
NEW_EPOCH = next(batch for batch in HEALTHY.batches if batch.base_offset == HEALTHY.epochs[1].start_offset)
NEW_SEGMENT = HEALTHY.of_segment(29)[0]
END_OF_SEGMENT = HEALTHY.of_segment(29)[-1]
PLACES = {"first": FIRST, "epoch": NEW_EPOCH, "segment": NEW_SEGMENT, "end of segment": END_OF_SEGMENT, "last": LAST}
BITS = [(0, 7), (0, 0), (1, 3), (2, 2), (3, 0), (4, 7), (5, 1), (6, 0), (7, 7), (7, 0)]


@pytest.fixture(name="brokers")
def three_equal_replicas(tmp_path: Path) -> Brokers:
    return healthy(tmp_path)


def told(partition: PartitionSummary) -> object:
    """What a partition is said to hold, without how a start would go."""
    return partition.high_watermark_at_least, [replace(replica, recovery=None) for replica in partition.replicas]


def found_all(brokers: Brokers) -> list[tuple[object, int]]:
    """(broker, offset) of every record that a search for offsets finds."""
    conditions = Conditions(offset_start=0, offset_end=LOG_END + 10)
    return [(row[2], row[3]) for row in search([str(path) for path in brokers.log_dirs], ScanOptions(), conditions).rows()]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("byte", "bit"), BITS)
def test_every_batch_is_put_where_it_belongs(brokers: Brokers, place: str, byte: int, bit: int) -> None:
    before = scan_once([str(path) for path in brokers.log_dirs], ScanOptions())
    batch = PLACES[place]
    brokers.flip(2, batch, byte, bit)
    result = verdict(brokers)
    above = [one for one in said(result) if one[0] != "RECOVERY_WOULD_TRUNCATE"]
    severity = "error" if batch is LAST else "critical"
    assert above == [("OFFSET_DISCONTINUITY", severity, 2)]
    finding = only(result, "OFFSET_DISCONTINUITY")
    assert (finding.place.byte_start, *offsets(finding)) == (batch.position, batch.base_offset, batch.last_offset + 1)
    assert finding.evidence["expected_offset"] == batch.base_offset
    assert finding.evidence["held_by"] == [1, 3]
    assert told(result.partitions[0]) == told(before.partitions[0])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("byte", "bit"), [(0, 7), (2, 2), (4, 0), (6, 0), (7, 5)])
def test_other_commands_see_the_log_as_it_was(brokers: Brokers, place: str, byte: int, bit: int) -> None:
    searched = found_all(brokers)
    brokers.flip(2, PLACES[place], byte, bit)
    paths = [str(path) for path in brokers.log_dirs]
    assert found_all(brokers) == searched
    assert compare(paths, ScanOptions()).first_difference is None
    (planned,) = make_plans(paths, ScanOptions(), PlanOptions()).planned
    lost = [(loss.start, loss.end) for candidate in planned.plan.candidates for loss in candidate.losses]
    assert all(0 <= start < end <= LOG_END for start, end in lost)
    assert planned.plan.recommended in (1, 3) or not lost
    assert all(replica.log_end_offset <= LOG_END for replica in planned.given.replicas)


def test_the_last_batch_of_a_lone_copy(brokers: Brokers) -> None:
    brokers.flip(2, LAST, 5)
    result = scan_once([str(brokers.log_dir(2))], ScanOptions())
    finding = only(result, "OFFSET_DISCONTINUITY")
    assert offsets(finding) == (LAST.base_offset, LOG_END)
    assert result.partitions[0].replicas[0].log_end_offset == LOG_END
    assert {"the batch before", "offset index", "recovery point"} <= set(finding.evidence["witnesses"])


@pytest.mark.parametrize(
    ("byte", "bit", "end"),
    [
        pytest.param(6, 3, (LAST.base_offset ^ 1 << 11) + 3, id="above"),
        pytest.param(7, 3, 55, id="below: no batch reaches the last index entry, so the segment's name is taken"),
    ],
)
def test_a_start_believes_what_is_written(brokers: Brokers, byte: int, bit: int, end: int) -> None:
    """Kafka reads its log end from the last batch, behind the last index entry; the tool says so, and where the log really ends."""
    brokers.flip(2, LAST, byte, bit)
    replica = verdict(brokers).partitions[0].replicas[1]
    assert replica.log_end_offset == LOG_END
    assert replica.recovery is not None
    assert replica.recovery.log_end_offset == end


# What looks like it.


def equal_bytes(log: Log, sequence: int) -> Written:
    """A batch that a producer sent once more to a later leader."""
    records = Log(tag="retried").records(3)
    data = write_batch(
        records,
        base_offset=log.next_offset,
        base_timestamp=1_700_000_500_000,
        partition_leader_epoch=log.leader_epoch,
        producer_id=4000,
        producer_epoch=0,
        base_sequence=sequence,
    )
    return log.append(data, log.next_offset + 2, 1_700_000_500_000)


@pytest.mark.parametrize("more", [0, 2])
def test_a_retry_across_an_unclean_election_has_two_offsets(tmp_path: Path, more: int) -> None:
    old, new = Log(), Log()
    for log in (old, new):
        write_base(log)
    old.produce()
    first = equal_bytes(old, 0)
    new.lead(3)
    second = equal_bytes(new, 0)
    assert first.base_offset != second.base_offset
    assert first.data[17:] == second.data[17:]
    for _ in range(more):
        _ = old.produce(), new.produce()
    brokers = histories(tmp_path, {1: old, 2: new, 3: new}, {1: 75, 2: 75, 3: 75})
    assert "OFFSET_DISCONTINUITY" not in {finding.kind for finding in verdict(brokers).findings}


def test_a_last_segment_of_one_batch_behind_a_missing_one(brokers: Brokers) -> None:
    for path in brokers.log_dir(2).glob("t-0/00000000000000000055.*"):
        if path.suffix == ".log":
            path.write_bytes(HEALTHY.of_segment(55)[0].data)
        elif path.suffix != ".snapshot":
            path.unlink()
    for suffix in ("log", "index", "timeindex", "txnindex"):
        brokers.file(2, 29, suffix).unlink(missing_ok=True)
    found = {finding.kind for finding in verdict(brokers).findings}
    assert {"OFFSET_GAP", "SEGMENT_MISSING"} <= found
    assert "OFFSET_DISCONTINUITY" not in found


def test_a_log_that_begins_after_retention_or_deletion(brokers: Brokers) -> None:
    for one in (1, 2, 3):
        for suffix in ("log", "index", "timeindex", "txnindex"):
            brokers.file(one, 0, suffix).unlink(missing_ok=True)
        write_checkpoint(brokers.log_dir(one), "log-start", 40)
    result = verdict(brokers)
    assert "OFFSET_DISCONTINUITY" not in {finding.kind for finding in result.findings}
    assert [replica.log_start_offset for replica in result.partitions[0].replicas] == [40] * 3


def test_an_older_batch_at_the_end_stays_a_regression(tmp_path: Path) -> None:
    """The copy stands where one bit of the right offset would put it: its equal bytes lie before it in the log."""
    log, older = Log(), None
    write_base(log)
    while older is None:
        log.plain()
        older = next((batch for batch in log.batches if (batch.base_offset ^ log.next_offset).bit_count() == 1), None)
    brokers = histories(tmp_path, {1: log, 2: log, 3: log}, dict.fromkeys((1, 2, 3), 75))
    path = brokers.file(2, 55)
    path.write_bytes(path.read_bytes() + older.data)
    found = {finding.kind for finding in verdict(brokers).findings}
    assert "OFFSET_REGRESSION" in found
    assert "OFFSET_DISCONTINUITY" not in found


def test_a_watermark_beyond_speaks_for_the_batch(tmp_path: Path) -> None:
    """A batch that was lost before the last one leaves a gap: watermark and recovery point name the end as it is written."""
    log = Log()
    write_base(log)
    log.append(b"", log.next_offset + 255, 0)
    log.produce()
    brokers = histories(tmp_path, {1: log, 2: log, 3: log}, dict.fromkeys((1, 2, 3), log.next_offset))
    result: ScanResult = verdict(brokers)
    assert "OFFSET_DISCONTINUITY" not in {finding.kind for finding in result.findings}
    assert "OFFSET_GAP" in {finding.kind for finding in result.findings}
