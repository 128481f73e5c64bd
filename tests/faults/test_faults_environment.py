"""Fault F46: copies taken from running brokers, and evidence that changes while it is read; and parts of F47."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_forensics.engine import local
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.results import ScanResult
from kafka_forensics.writers.files import write_leader_epochs
from tests.support.faults import HEALTHY, LOG_END, Brokers, healthy, write_checkpoint
from tests.support.faults_verdict import kinds, offsets, only, said, verdict
from tests.support.gallery_leftovers import NAMES, empty_leftovers, sparse
from tests.support.gallery_replicas import torn_copy
from tests.support.injections import cut_log

pytestmark = pytest.mark.faults


@pytest.fixture(name="brokers")
def three_equal_replicas(tmp_path: Path) -> Brokers:
    return healthy(tmp_path)


def test_f46_log_older_than_checkpoint_and_index_in_a_live_copy(brokers: Brokers) -> None:
    cut_log(brokers, 65, 0)
    result = verdict(brokers, live=True)
    assert kinds(result) == {("INCONSISTENT_CUT", "info"): 3, ("REPLICA_LAGS", "info"): 1}
    assert [finding.place.file for finding in result.findings if finding.kind == "INCONSISTENT_CUT"] == [
        None,
        f"t-0/{55:020d}.index",
        f"t-0/{55:020d}.timeindex",
    ]
    assert offsets(result.findings[0]) == (65, 72)


def test_f46_without_the_option_the_same_copy_is_judged(brokers: Brokers) -> None:
    cut_log(brokers, 65, 0)
    result = verdict(brokers)
    assert kinds(result) == {("HW_BEYOND_LEO", "critical"): 1, ("INDEX_MISMATCH", "warning"): 2, ("REPLICA_LAGS", "info"): 1}


def test_f46_torn_tail_of_a_live_copy_is_info_though_a_clean_shutdown_is_told(brokers: Brokers) -> None:
    torn_copy(brokers)
    result = verdict(brokers, live=True)
    assert {finding.severity.value for finding in result.findings} == {"info"}
    assert only(result, "SEG_TORN_TAIL").evidence["capped_by"] == "--live"


def test_f46_epoch_begun_after_its_checkpoint_was_copied(brokers: Brokers) -> None:
    brokers.named(2, "leader-epoch-checkpoint").write_bytes(write_leader_epochs(HEALTHY.epochs[:2]))
    result = verdict(brokers, live=True)
    assert said(result) == [("INCONSISTENT_CUT", "info", 2)]
    assert only(result, "INCONSISTENT_CUT").evidence["epoch"] == 2
    assert said(verdict(brokers)) == [("EPOCH_CACHE_MISMATCH", "error", 2)]


def test_f46_live_says_nothing_of_a_fault_in_the_middle(brokers: Brokers) -> None:
    brokers.flip(2, HEALTHY.at(40), 100)
    assert {severity for _, severity in kinds(verdict(brokers, live=True))} == {"error"}


def scan_while(brokers: Brokers, change: Callable[[], object]) -> ScanResult:
    """A scan during which `change` is done once, when the first segment has been folded."""
    waiting = [change]

    def progress(_done: int, _total: int) -> None:
        if waiting:
            waiting.pop()()

    return local.scan([str(path) for path in brokers.log_dirs], ScanOptions(jobs=1), progress)


@pytest.mark.parametrize("segment", [0, 29, 55])
def test_f46_log_that_grows_while_it_is_read(brokers: Brokers, segment: int) -> None:
    path = brokers.file(1, segment)
    size = path.stat().st_size
    result = scan_while(brokers, lambda: path.write_bytes(path.read_bytes() + b"more"))
    finding = only(result, "EVIDENCE_CHANGED")
    assert (finding.severity.value, finding.place.broker, finding.place.file) == ("error", 1, f"t-0/{segment:020d}.log")
    assert finding.place.log_dir == str(brokers.log_dir(1))
    assert (finding.evidence["before"]["size"], finding.evidence["after"]["size"]) == (size, size + 4)


def test_f46_log_that_shrinks_while_it_is_read(brokers: Brokers) -> None:
    path = brokers.file(2, 55)
    result = scan_while(brokers, lambda: os.truncate(path, 100))
    assert only(result, "EVIDENCE_CHANGED").evidence["after"]["size"] == 100
    assert only(result, "SEG_TORN_TAIL").evidence["last_valid_offset"] == 54


@pytest.mark.parametrize("segment", [29, 55])
def test_f46_log_that_vanishes_is_incomplete_and_no_loss(brokers: Brokers, segment: int) -> None:
    result = scan_while(brokers, brokers.file(2, segment).unlink)
    assert said(result) == [("EVIDENCE_CHANGED", "error", 2)]
    assert only(result, "EVIDENCE_CHANGED").evidence["after"] is None
    assert [incomplete.path for incomplete in result.incomplete] == [str(brokers.file(2, segment))]


def test_f46_index_that_vanishes_does_not_cost_the_log(brokers: Brokers) -> None:
    brokers.flip(1, HEALTHY.at(40), 15)
    result = scan_while(brokers, brokers.file(2, 29, "index").unlink)
    assert said(result) == [("EPOCH_FIELD_MISMATCH", "error", 1), ("EVIDENCE_CHANGED", "error", 2)]
    assert "other replicas" in only(result, "EPOCH_FIELD_MISMATCH").evidence["witnesses"]
    assert [incomplete.path for incomplete in result.incomplete] == [str(brokers.file(2, 29, "index"))]
    assert result.totals.batches == 3 * len(HEALTHY.batches)


def test_f46_checkpoint_written_while_the_log_is_read(brokers: Brokers) -> None:
    result = scan_while(brokers, lambda: write_checkpoint(brokers.log_dir(2), "replication", LOG_END))
    assert said(result) == [("EVIDENCE_CHANGED", "error", 2)]
    assert only(result, "EVIDENCE_CHANGED").place.file == "replication-offset-checkpoint"


def test_f47_links_out_of_it_and_pipes_are_named_and_make_the_scan_incomplete(brokers: Brokers) -> None:
    directory = brokers.log_dir(2) / "t-0"
    (directory / "loop").symlink_to(directory)
    brokers.file(2, 99).symlink_to("/etc/passwd")
    os.mkfifo(brokers.log_dir(2) / "u-0")
    result = local.scan([str(path) for path in brokers.log_dirs], ScanOptions(jobs=1))
    outside = "a symbolic link, not followed: it leads out of what was given"
    assert [(incomplete.path, incomplete.reason) for incomplete in result.incomplete] == [
        (str(brokers.file(2, 99)), outside),
        (str(brokers.log_dir(2) / "u-0"), "not a regular file"),
    ]
    assert kinds(result) == {("FILE_UNKNOWN", "info"): 1, ("NON_REGULAR_SKIPPED", "info"): 2}
    skipped = sorted(str(finding.place.file) for finding in result.findings if finding.kind == "NON_REGULAR_SKIPPED")
    assert skipped == [f"t-0/{99:020d}.log", "u-0"]


@pytest.mark.parametrize("name", NAMES)
def test_f47_directory_with_an_illegal_name(brokers: Brokers, name: str) -> None:
    directory = brokers.log_dir(2) / name
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(b"")
    result = verdict(brokers)
    assert kinds(result)["DIR_NAME_ILLEGAL", "warning"] == 1
    assert {severity for _, severity in kinds(result)} <= {"warning", "info"}


def test_f47_interrupted_swap(brokers: Brokers) -> None:
    empty_leftovers(brokers, "swap", "cleaned")
    result = verdict(brokers)
    assert said(result) == [("INTERRUPTED_SWAP", "info", 2)]
    assert only(result, "INTERRUPTED_SWAP").evidence["count"] == 2


def test_f47_huge_sparse_log(brokers: Brokers) -> None:
    sparse(brokers)
    result = local.scan([str(path) for path in brokers.log_dirs], ScanOptions(jobs=1))
    assert said(result) == [("SEG_ZERO_TAIL", "info", 2), ("SPARSE_FILE", "info", 2)]
