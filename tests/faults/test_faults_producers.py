"""Faults F42 and F45: open transactions and sequence numbers, the same on all three replicas."""

from pathlib import Path

import pytest

from kafka_forensics.model.constants import MAX_SEQUENCE
from kafka_forensics.model.files import ProducerEntry
from tests.support.faults import ABORTING, COMMITTING, IDEMPOTENT, Log, histories
from tests.support.faults_verdict import offsets, only, said, span, verdict

pytestmark = pytest.mark.faults


def test_f42_open_transaction_is_no_hanging_one(tmp_path: Path) -> None:
    log = Log()
    _ = log.produce(), log.produce(ABORTING, transactional=True)
    log.end_transaction(ABORTING, commit=False)
    opened = log.produce(COMMITTING, transactional=True)
    _ = log.produce(), log.produce(COMMITTING, transactional=True)
    brokers = histories(tmp_path, dict.fromkeys((1, 2, 3), log), dict.fromkeys((1, 2, 3), 7))
    result = verdict(brokers)
    assert said(result) == [("TXN_OPEN", "info", broker) for broker in (1, 2, 3)]
    finding = result.findings[0]
    assert finding.evidence["producer_id"] == COMMITTING
    assert (finding.evidence["first_offset"], finding.evidence["last_offset"]) == (7, 15)
    assert finding.evidence["last_stable_offset"] == 7
    assert finding.place.byte_start == opened.position
    counts = result.partitions[0].replicas[0].transactions
    assert (counts.committed, counts.aborted, counts.open, counts.hanging) == (0, 1, 1, 0)


@pytest.mark.parametrize("skip", [1, 3, 1000])
def test_f45_missing_sequence_numbers(tmp_path: Path, skip: int) -> None:
    log = Log()
    _ = log.produce(), log.produce()
    behind = log.produce(skip=skip)
    log.produce()
    brokers = histories(tmp_path, dict.fromkeys((1, 2, 3), log), dict.fromkeys((1, 2, 3), 9))
    result = verdict(brokers)
    assert said(result) == [("PRODUCER_SEQ_GAP", "warning", broker) for broker in (1, 2, 3)]
    finding = result.findings[0]
    assert (span(finding), offsets(finding)) == ((behind.position, behind.end), (6, 9))
    assert (finding.evidence["expected_sequence"], finding.evidence["found_sequence"]) == (6, 6 + skip)
    assert finding.evidence["producer_id"] == IDEMPOTENT


@pytest.mark.parametrize("before", [1, 2, 3, 4, 5])
def test_f45_sequence_numbers_wrap(tmp_path: Path, before: int) -> None:
    """The producer's next sequence number is MAX_SEQUENCE + 1 - before, in batches of three."""
    log = Log()
    log.producers[IDEMPOTENT] = ProducerEntry(IDEMPOTENT, 0, MAX_SEQUENCE - before, -1, 0, -1, -1, -1)
    _ = log.produce(), log.produce(), log.produce()
    assert log.producers[IDEMPOTENT].last_sequence == 8 - before
    brokers = histories(tmp_path, dict.fromkeys((1, 2, 3), log), dict.fromkeys((1, 2, 3), 9))
    assert said(verdict(brokers)) == []


def test_f45_a_gap_behind_damage_is_the_damage(tmp_path: Path) -> None:
    log = Log()
    _ = log.produce(), log.produce()
    lost = log.produce()
    log.produce()
    brokers = histories(tmp_path, dict.fromkeys((1, 2, 3), log), dict.fromkeys((1, 2, 3), 9))
    brokers.overwrite(2, lost, b"\0\0\0\x05", 8)
    result = verdict(brokers)
    assert said(result) == [("FRAMING_LOST", "error", 2)]
    assert offsets(only(result, "FRAMING_LOST")) == (6, 9)
