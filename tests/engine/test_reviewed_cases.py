"""States that once misled a scan: legal ones it took for faults, faults it did not see."""

import shutil
from pathlib import Path

import pytest

from tests.support.faults import DIRECTORY, Brokers, Log, histories
from tests.support.faults_verdict import offsets, only, said, scan, verdict

COMMON = [("p", 0)] * 4
"""Offsets [0, 12) of a history."""


def history(*batches: tuple[str, int]) -> Log:
    """A log of batches of three records, each with its history and its leader epoch; `|` begins a segment."""
    log = Log()
    for tag, leader_epoch in batches:
        if tag == "|":
            log.roll()
            continue
        log.tag = tag
        log.lead(leader_epoch)
        log.plain()
    return log


def remove_segment(brokers: Brokers, broker: int, base_offset: int) -> None:
    for path in (brokers.log_dir(broker) / DIRECTORY).glob(f"{base_offset:020d}.*"):
        path.unlink()


@pytest.mark.parametrize("folders", [("one", "two"), ("one/data", "two/data")])
def test_folders_called_alike_claim_no_node_id(tmp_path: Path, folders: tuple[str, str]) -> None:
    log = history(*COMMON)
    brokers = histories(tmp_path / "brokers", {1: log, 2: log}, {1: 12, 2: 12})
    for broker, folder in enumerate(folders, 1):
        shutil.copytree(brokers.log_dir(broker) / DIRECTORY, tmp_path / folder / DIRECTORY)
    paths = [tmp_path / folder for folder in folders]
    for result in (scan(paths), scan([path / DIRECTORY for path in paths])):
        assert said(result) == []
        assert (result.partitions[0].agreement.kind, len(result.partitions[0].replicas)) == ("identical", 2)


def test_damage_at_the_front_says_what_it_cost(tmp_path: Path) -> None:
    log = history(*COMMON)
    brokers = histories(tmp_path, {1: log, 2: log}, {1: 12, 2: 12})
    brokers.overwrite(2, log.batches[0], (2**31 - 1).to_bytes(4, "big"), 8)
    result = verdict(brokers)
    assert (offsets(only(result, "FRAMING_LOST")), only(result, "FRAMING_LOST").evidence["held_by"]) == ((0, 3), [1])
    assert offsets(only(result, "HIDDEN_BYTES")) == (3, 12)


def test_an_empty_last_segment_names_the_log_end(tmp_path: Path) -> None:
    log = history(*COMMON, ("|", 0))
    result = verdict(histories(tmp_path, {1: log, 2: log}, {1: 12, 2: 12}))
    assert said(result) == []
    assert [one.log_end_offset for one in result.partitions[0].replicas] == [12, 12]


def test_a_segment_missing_before_an_empty_one(tmp_path: Path) -> None:
    log = history(("p", 0), ("p", 0), ("|", 0), ("p", 0), ("p", 0), ("|", 0))
    brokers = histories(tmp_path, {1: log, 2: log}, {1: 6, 2: 12})
    remove_segment(brokers, 1, 6)
    result = verdict(brokers)
    assert said(result) == [("OFFSET_GAP", "critical", 1), ("SEGMENT_MISSING", "error", 1)]
    assert offsets(only(result, "OFFSET_GAP")) == (6, 12)
    assert only(result, "OFFSET_GAP").evidence["held_by"] == [2]
    assert [one.log_end_offset for one in result.partitions[0].replicas] == [12, 12]


def test_a_retry_that_came_to_two_leaders_is_no_wrong_epoch(tmp_path: Path) -> None:
    old, new = history(*COMMON, ("retry", 0)), history(*COMMON, ("retry", 1), ("n", 1))
    result = verdict(histories(tmp_path, {1: old, 2: new}, {1: 12, 2: 12}))
    assert said(result) == [("BATCHES_REENCODED", "info", None), ("REPLICA_LAGS", "info", 1)]
    assert offsets(only(result, "BATCHES_REENCODED")) == (12, 15)
