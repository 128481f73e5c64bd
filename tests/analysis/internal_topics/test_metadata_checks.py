"""Records that stop controllers; real controllers stop in the same cases (`tests/broker/test_rejected_records.py`)."""

import pytest

from kafka_forensics.analysis.internal_topics import REPLAY_EXCEPTIONS, MetadataChecks
from kafka_forensics.model.controller import MetadataBatch, MetadataSnapshot
from kafka_forensics.parsers.internal_topics import decode_metadata_record
from tests.analysis.internal_topics.rejected_records import CASES, MADE
from tests.support.controllers import partition_change, record, topic


def problems(values: tuple[bytes, ...], checks: MetadataChecks | None = None) -> list[str | None]:
    checks = checks or MetadataChecks()
    return [checks.step(decode_metadata_record(value)) for value in values]


@pytest.mark.parametrize("name", CASES)
def test_only_the_last_record_cannot_be_applied(name: str) -> None:
    values, reason = CASES[name]
    assert problems(values) == [*[None] * (len(values) - 1), reason]


def test_every_exception_belongs_to_a_tested_problem() -> None:
    assert REPLAY_EXCEPTIONS.keys() <= {reason for _, reason in CASES.values()}


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_reported_after_a_gap_until_a_snapshot(name: str) -> None:
    values, reason = CASES[name]
    checks = MetadataChecks()
    checks.gap()
    assert problems(values, checks) == [None] * len(values)
    checks.replace_state(MetadataSnapshot(9, 0, ()))
    assert problems(values, checks)[-1] == reason


def test_a_snapshot_with_an_unreadable_record_makes_no_state_known() -> None:
    bad = MetadataBatch(0, 0, ((0, decode_metadata_record(b"\1\2\x63")),))
    checks = MetadataChecks()
    checks.replace_state(MetadataSnapshot(9, 0, (bad,)))
    assert problems((partition_change(leader=1),), checks) == [None]


def test_nothing_is_reported_after_an_unreadable_record() -> None:
    assert problems((*MADE, b"\1\2\x63", partition_change(partition_id=9, leader=1))) == [None] * 4


def test_checks_use_the_state_of_a_snapshot() -> None:
    records = tuple((0, decode_metadata_record(value)) for value in MADE)
    checks = MetadataChecks()
    checks.replace_state(MetadataSnapshot(9, 0, (MetadataBatch(0, 0, records),)))
    assert problems((partition_change(leader=1), topic(), record(20)), checks) == [None, "a_topic_of_this_name_exists", None]
