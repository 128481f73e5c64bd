"""Trees that show a known incident in records or transactions, each with a near miss; and all trees of incidents."""

from pathlib import Path
from typing import Final

from kafka_forensics.writers.batches import RecordToWrite, write_batch, write_legacy_entry
from kafka_forensics.writers.files import write_offset_checkpoint
from tests.support.faults import BASE_TIMESTAMP, TOPIC, Brokers, Log, histories
from tests.support.incident_trees import HISTORY_TREES, Tree, as_before_epochs, as_before_topic_ids
from tests.support.incident_trees_files import FILE_TREES
from tests.support.transaction_logs import OTHER, CoordinatorLog, DataLog, write_cluster

END = 6
"""All logs end here; the cleaners have been everywhere."""


def keyed(*records: tuple[int, str, str | None], magic: int = 2) -> Log:
    """A compacted log of one record a batch: offset, key, value (None: a tombstone)."""
    log = Log()
    log.roll()
    for offset, key, value in records:
        log.next_offset = offset
        stamp = BASE_TIMESTAMP + offset
        encoded = None if value is None else value.encode()
        if magic == 2:
            data = write_batch([RecordToWrite(key.encode(), encoded)], base_offset=offset, base_timestamp=stamp)
        else:
            data = write_legacy_entry(key.encode(), encoded, offset=offset, magic=magic, timestamp=stamp)
        log.append(data, offset, stamp)
    if magic < 2:
        log.epochs.clear()
    return log


def cleaned_apart(root: Path, magic: int, *, tombstone: bool) -> Brokers:
    """Key A is deleted; brokers 1 and 2 have cleaned its value away, broker 3 has not. Its tombstone is everywhere, or nowhere."""
    others = [(1, "B", "1"), (2, "C", "1"), *[(3, "A", None)] * tombstone, (4, "D", "1"), (5, "E", "1")]
    without, with_value = keyed(*others, magic=magic), keyed((0, "A", "0"), *others, magic=magic)
    brokers = histories(root, {1: without, 2: without, 3: with_value}, dict.fromkeys((1, 2, 3), END))
    for broker in (1, 2, 3):
        checkpoint = write_offset_checkpoint({(TOPIC, 0): END - 1})
        (brokers.log_dir(broker) / "cleaner-offset-checkpoint").write_bytes(checkpoint)
    return brokers if magic == 2 else as_before_epochs(brokers)


def retried(root: Path, *, same: bool) -> Brokers:
    """A producer writes three records, and under its next epoch, from sequence 0, the same again or others."""
    log = Log()
    log.produce()
    for epoch, values in ((0, "abc"), (1, "abc" if same else "abd")):
        records = [RecordToWrite(b"key", value.encode()) for value in values]
        stamp, first = BASE_TIMESTAMP, log.next_offset
        data = write_batch(
            records, base_offset=first, base_timestamp=stamp, producer_id=5000, producer_epoch=epoch, base_sequence=0
        )
        log.append(data, first + 2, stamp)
    brokers = histories(root, {1: log, 2: log, 3: log}, dict.fromkeys((1, 2, 3), 9))
    for broker in (1, 2, 3):
        brokers.file(broker, 0, "timeindex").unlink()  # Kafka would have written other entries for equal times
    return brokers


RECORD_TREES = (
    Tree(
        "d14 confluentinc/librdkafka#4953",
        "a producer repeats three records, with their timestamps, under epoch 1 and from sequence 0",
        lambda root: retried(root, same=True),
        "one of the three records is another",
        lambda root: retried(root, same=False),
    ),
    Tree(
        "d8 Redpanda 2026-06-25",
        "compacted: one replica shows a key that is gone from the others, and so is the tombstone that took it",
        lambda root: cleaned_apart(root, 2, tombstone=False),
        "the tombstone is still on every replica",
        lambda root: cleaned_apart(root, 2, tombstone=True),
    ),
    Tree(
        "d21 KAFKA-4529",
        "the same in message format 1",
        lambda root: cleaned_apart(root, 1, tombstone=False),
        "the tombstone is still on every replica",
        lambda root: cleaned_apart(root, 1, tombstone=True),
    ),
)

# Transactions: partitions of `t` and the coordinators' log.

LATE = 30 * 60
"""Seconds: longer than any transaction may take."""


def cluster(root: Path, state: CoordinatorLog, *partitions: Log) -> Brokers:
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


def _number(tree: Tree) -> int:
    return int(tree.key.split()[0].removeprefix("d"))


TREES: Final = tuple(sorted((*HISTORY_TREES, *FILE_TREES, *RECORD_TREES, *TRANSACTION_TREES), key=_number))
"""Every tree of the known incidents, in the order of docs/incidents.md."""
