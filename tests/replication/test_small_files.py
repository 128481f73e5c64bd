"""Outcomes of a start with a damaged small file: predictions from parsed damage agree with a table measured on real brokers."""

from collections.abc import Callable

import pytest

from kafka_forensics.model.batches import Damage
from kafka_forensics.parsers import checkpoints
from kafka_forensics.parsers.quorum_state import bootstrap_damage, quorum_state_damage
from kafka_forensics.replication.small_files import NOT_ALL_SERVED, OUTCOMES, StartOutcome, is_movable, outcome_of, start_outcome
from lab.start_page import DERIVED, PAGE, page, table
from lab.start_table import FILES, OFFSET_CHECKPOINTS, START_SERIES, damages
from tests.support.memory import MemoryFile
from tests.support.places import SAMPLES

CHECKPOINT = b"0\n2\nt 0 5\nc 1 7\n"
EPOCHS = b"0\n2\n0 0\n2 9\n"
TOPIC_ID = b"version: 0\ntopic_id: c_TLqC5DSGCVYbR_hKm2PQ"
QUORUM = b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,"currentVoters":[{"voterId":1}],"data_version":0}'
LOG_DIR = SAMPLES / "healthy" / "broker-1"
SOUND_FILES: dict[str, tuple[bytes, Callable[[MemoryFile], list[Damage]]]] = {
    **dict.fromkeys(OFFSET_CHECKPOINTS, (CHECKPOINT, lambda file: checkpoints.parse_offset_checkpoint(file).damage)),
    "leader-epoch-checkpoint": (EPOCHS, lambda file: checkpoints.parse_leader_epochs(file).damage),
    "partition.metadata": (TOPIC_ID, lambda file: checkpoints.parse_partition_metadata(file).damage),
    "quorum-state": (QUORUM, quorum_state_damage),
    "meta.properties": ((LOG_DIR / "meta.properties").read_bytes(), lambda file: checkpoints.parse_meta_properties(file).damage),
    ".kafka_cleanshutdown": (b'{"version":0,"brokerEpoch":5}', lambda file: checkpoints.parse_clean_shutdown(file).damage),
    "bootstrap.checkpoint": ((LOG_DIR / "bootstrap.checkpoint").read_bytes(), bootstrap_damage),
}
"""File → (valid bytes, function that returns the damage)."""
CELLS = [(file, damage) for file in FILES if file not in DERIVED for damage in damages(file) if damage != "absent"]


def test_outcomes_agree_with_the_newest_measured_broker() -> None:
    """The outcome for one log directory, or for two if the broker takes the only directory offline."""
    measured = {(*row[:2], row.log_dirs): row.outcome for row in table() if row.before == "stopped" and row.file not in DERIVED}
    assert {file for file, _, _ in measured} == OUTCOMES.keys()
    for (file, damage, log_dirs), outcome in measured.items():
        if outcome is StartOutcome.DIRECTORY_OFFLINE and log_dirs == 1:
            outcome = measured.get((file, damage, 2), measured[file, "text", 2])
        assert start_outcome(file, damage) is outcome, (file, damage)


@pytest.mark.parametrize(("file", "damage"), CELLS)
def test_the_outcome_predicted_from_damaged_bytes_is_that_of_a_broker(file: str, damage: str) -> None:
    sound, parse = SOUND_FILES[file.rpartition("/")[2]]
    data = damages(file)[damage](sound)
    assert data is not None
    found, expected = parse(MemoryFile(data)), start_outcome(file, damage)
    if found:
        assert outcome_of(file, found, len(data)) is expected
    else:  # the parser cannot know that the controller has registered the id of the directory
        assert expected not in NOT_ALL_SERVED or damage == "no_directory.id"


def test_a_file_is_movable_only_if_a_broker_serves_everything_without_it() -> None:
    not_movable = {file for file in FILES if file not in DERIVED and not is_movable(file)}
    assert not_movable == {"meta.properties", "partition.metadata"}
    assert start_outcome("t-0/partition.metadata", "absent") is StartOutcome.BEGINS_EMPTY
    assert not is_movable(f"{0:020d}.log")


def test_the_table_has_every_start_and_the_page_is_up_to_date() -> None:
    """After a change of its text, run `python -m lab.start_page`."""
    seen = {(version, *row[2:4], *row[:2]) for row in table() for version in row.versions.split()}
    expected = {
        (series.version, series.state, series.log_dirs, file, damage)
        for series in START_SERIES
        for file in series.files
        for damage in damages(file)
        if series.damages is None or damage in series.damages
    }
    assert seen == expected
    assert PAGE.read_text() == page()
