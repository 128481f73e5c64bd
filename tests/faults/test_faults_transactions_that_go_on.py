"""Fault F44 where the same producer goes on behind a lost marker, so that two of its transactions look like one that is open."""

from pathlib import Path

import pytest

from tests.support.faults_verdict import offsets, only, said, scan
from tests.support.transaction_logs import OTHER, CoordinatorLog, DataLog, cluster, write_cluster

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize(
    ("client", "later", "torn"),
    [(2, 32, True), (0, 50, True), (0, 32, False)],
    ids=["an epoch of its own", "long after", "the same epoch, at once"],
)
def test_f44_what_was_written_before_the_transaction_in_hand_is_of_the_one_that_ended(
    tmp_path: Path, client: int, later: float, torn: bool, commit: bool
) -> None:
    """In version 2 the next transaction has the next epoch; before, only time tells whose the first records are."""
    result = scan(goes_on(tmp_path, client, later, [30, later], commit=commit))
    told = [one for one in said(result) if one[1] != "info"]
    assert told == ([("TXN_TORN", "critical" if commit else "error", 1)] if torn else [])
    if torn:
        finding = only(result, "TXN_TORN")
        assert (finding.evidence["reason"], finding.evidence["coordinator_offset"], offsets(finding)) == ("no_marker", 4, (3, 7))


def test_f44_what_was_written_long_behind_the_end_leaves_nothing_of_it(tmp_path: Path) -> None:
    result = scan(goes_on(tmp_path, 0, 50, [50], commit=True))
    assert [one for one in said(result) if one[1] != "info"] == [("TXN_PARTLY_LOST", "critical", 1)]


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("later", [True, False])
def test_f44_the_marker_of_the_next_transaction_ended_what_the_lost_one_should_have(
    tmp_path: Path, commit: bool, later: bool
) -> None:
    """In version 2 the marker's epoch tells whose it was. That the records ended as decided was luck, and did no harm."""
    log, state, other = DataLog(), CoordinatorLog(), DataLog()
    log.traffic(0)
    log.data(30)
    log.data(50, epoch=1)
    log.marker(50.07, commit=later, epoch=2)
    log.traffic(72)
    other.traffic(72)
    state.transaction(0, (0,), commit=True, name=OTHER)
    state.transaction(30, (0,), commit=commit, client=2)
    state.transaction(50, (0,), commit=later, epoch=1, client=2)
    result = scan(write_cluster(tmp_path, cluster(log, other, state)))
    told = [one for one in said(result) if one[1] != "info"]
    assert told == ([] if commit == later else [("TXN_TORN", "critical" if commit else "error", 1)])
    if told:
        finding = only(result, "TXN_TORN")
        assert (finding.evidence["reason"], finding.evidence["coordinator_offset"], offsets(finding)) == (
            "opposite_marker",
            4,
            (7, 8),
        )


def goes_on(root: Path, client: int, later: float, written: list[float], *, commit: bool) -> list[Path]:
    """A transaction at 30 s ended so without a marker in t-0; one is in hand since `later`; `written` is when the open was."""
    log, state, other = DataLog(), CoordinatorLog(), DataLog()
    log.traffic(0)
    for at in written:
        log.data(at, epoch=client // 2 if at == later else 0)
    log.traffic(62)
    other.traffic(62)
    state.transaction(0, (0,), commit=True, name=OTHER)
    state.transaction(30, (0,), commit=commit, client=client)
    state.state(later, "Ongoing", (0,), epoch=client // 2, since=later, client=client)
    return write_cluster(root, cluster(log, other, state))
