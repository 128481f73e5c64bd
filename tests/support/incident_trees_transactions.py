"""Trees that show a known incident of transactions, each with a near miss: partitions of `t` and the coordinators' log."""

from pathlib import Path

from tests.support.faults import Brokers, Log
from tests.support.incident_trees import Tree, as_before_topic_ids
from tests.support.transaction_logs import OTHER, CoordinatorLog, DataLog, write_cluster

LATE = 30 * 60
"""Seconds: longer than any transaction may take."""


def cluster(root: Path, state: CoordinatorLog, *partitions: Log) -> Brokers:
    """Three brokers with these partitions of `t` and the coordinators' log."""
    logs: dict[str, Log] = {f"t-{number}": log for number, log in enumerate(partitions)}
    write_cluster(root, {**logs, "__transaction_state-0": state})
    return Brokers(root, partitions[0])


def late_request(root: Path, later: float) -> Brokers:
    """A transaction timed out and was aborted under the next epoch; then a delayed request wrote. The log goes on at `later`."""
    data, state = DataLog(), CoordinatorLog()
    data.data(0)
    data.marker(5.07, commit=False, epoch=1)
    data.data(6)
    data.traffic(later)
    state.state(0, "Ongoing", (0,))
    state.state(5.05, "PrepareAbort", (0,), epoch=1, since=0)
    state.state(5.09, "CompleteAbort", epoch=1, since=0)
    state.transaction(later, (0,), commit=True, name=OTHER)
    return cluster(root, state, data)


def prepared(root: Path, later: float) -> Brokers:
    """The coordinator decided at 2 s to commit, and has no answer; somebody else goes on at `later`."""
    data, state = DataLog(), CoordinatorLog()
    data.data(1)
    data.traffic(later)
    state.state(1, "Ongoing", (0,))
    state.state(2, "PrepareCommit", (0,), since=1)
    state.transaction(later, (0,), commit=True, name=OTHER)
    return cluster(root, state, data)


def two_partitions(root: Path, *markers: str) -> Brokers:
    """A transaction over two partitions was committed; their markers say this."""
    logs = [DataLog() for _ in markers]
    state = CoordinatorLog()
    for log, marker in zip(logs, markers, strict=True):
        log.data(0)
        log.marker(0.07, commit=marker == "COMMIT")
        log.traffic(LATE)
    state.transaction(0, (0, 1), commit=True)
    state.transaction(LATE, (0, 1), commit=True, name=OTHER)
    return cluster(root, state, *logs)


def coordinator_epochs(root: Path, *epochs: int) -> Brokers:
    """One transaction after the other, their markers with these coordinator epochs."""
    data = DataLog()
    for number, epoch in enumerate(epochs):
        data.data(number)
        data.marker(number + 0.07, commit=True, coordinator_epoch=epoch)
    write_cluster(root, {"t-0": data})
    return as_before_topic_ids(Brokers(root, data))


TRANSACTION_TREES = (
    Tree(
        "d9 KAFKA-14402",
        "a delayed request opened an aborted transaction again, half an hour ago",
        lambda root: late_request(root, LATE),
        "the same ten seconds ago",
        lambda root: late_request(root, 16),
    ),
    Tree(
        "d9 KAFKA-19999",
        "a commit was prepared half an hour ago, the partition has no marker",
        lambda root: prepared(root, LATE),
        "it was prepared a second ago",
        lambda root: prepared(root, 3),
    ),
    Tree(
        "d11 KAFKA-9144",
        "markers of one producer with coordinator epochs 3 and 1",
        lambda root: coordinator_epochs(root, 3, 1),
        "with 1 and 3",
        lambda root: coordinator_epochs(root, 1, 3),
    ),
    Tree(
        "d12 KAFKA-17754",
        "a committed transaction over two partitions, one of which has an ABORT marker",
        lambda root: two_partitions(root, "COMMIT", "ABORT"),
        "both have COMMIT markers",
        lambda root: two_partitions(root, "COMMIT", "COMMIT"),
    ),
)
