"""Trees that show a known incident in records or transactions, each with a near miss; and all trees of incidents."""

from pathlib import Path
from typing import Final

from kafka_forensics.writers.batches import RecordToWrite, write_batch, write_legacy_entry
from kafka_forensics.writers.files import write_offset_checkpoint
from tests.support import incident_trees, incident_trees_files  # noqa: F401 - declares its trees
from tests.support.faults import BASE_TIMESTAMP, TOPIC, Brokers, Log, histories
from tests.support.incident_trees import Tree, as_before_epochs, as_before_topic_ids, incident, near_miss
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


@incident(
    "d8 Redpanda 2026-06-25",
    "compacted: one replica shows a key that is gone from the others, and so is the tombstone that took it",
    2,
    tombstone=False,
)
@near_miss("the tombstone is still on every replica", 2, tombstone=True)
@incident("d21 KAFKA-4529", "the same in message format 1", 1, tombstone=False)
@near_miss("the tombstone is still on every replica", 1, tombstone=True)
def cleaned_apart(root: Path, magic: int, *, tombstone: bool) -> Brokers:
    others = [(1, "B", "1"), (2, "C", "1"), *[(3, "A", None)] * tombstone, (4, "D", "1"), (5, "E", "1")]
    without, with_value = keyed(*others, magic=magic), keyed((0, "A", "0"), *others, magic=magic)
    brokers = histories(root, {1: without, 2: without, 3: with_value}, dict.fromkeys((1, 2, 3), END))
    for broker in (1, 2, 3):
        checkpoint = write_offset_checkpoint({(TOPIC, 0): END - 1})
        (brokers.log_dir(broker) / "cleaner-offset-checkpoint").write_bytes(checkpoint)
    return brokers if magic == 2 else as_before_epochs(brokers)


@incident(
    "d14 confluentinc/librdkafka#4953",
    "a producer repeats three records, with their timestamps, under epoch 1 and from sequence 0",
    same=True,
)
@near_miss("one of the three records is another", same=False)
def retried(root: Path, *, same: bool) -> Brokers:
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


# Transactions: partitions of `t` and the coordinators' log.

LATE = 30 * 60
"""Seconds: longer than any transaction may take."""


def cluster(root: Path, state: CoordinatorLog, *partitions: Log) -> Brokers:
    logs: dict[str, Log] = {f"t-{number}": log for number, log in enumerate(partitions)}
    write_cluster(root, {**logs, "__transaction_state-0": state})
    return Brokers(root, partitions[0])


@incident("d9 KAFKA-14402", "a delayed request opened an aborted transaction again, half an hour ago", LATE)
@near_miss("the same ten seconds ago", 16)
def late_request(root: Path, later: float) -> Brokers:
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


@incident("d9 KAFKA-19999", "a commit was prepared half an hour ago, the partition has no marker", LATE)
@near_miss("it was prepared a second ago", 3)
def prepared(root: Path, later: float) -> Brokers:
    data, state = DataLog(), CoordinatorLog()
    data.data(1)
    data.traffic(later)
    state.state(1, "Ongoing", (0,))
    state.state(2, "PrepareCommit", (0,), since=1)
    state.transaction(later, (0,), commit=True, name=OTHER)
    return cluster(root, state, data)


@incident("d12 KAFKA-17754", "a committed transaction over two partitions, one of which has an ABORT marker", "COMMIT", "ABORT")
@near_miss("both have COMMIT markers", "COMMIT", "COMMIT")
def two_partitions(root: Path, *markers: str) -> Brokers:
    logs = [DataLog() for _ in markers]
    state = CoordinatorLog()
    for log, marker in zip(logs, markers, strict=True):
        log.data(0)
        log.marker(0.07, commit=marker == "COMMIT")
        log.traffic(LATE)
    state.transaction(0, (0, 1), commit=True)
    state.transaction(LATE, (0, 1), commit=True, name=OTHER)
    return cluster(root, state, *logs)


@incident("d11 KAFKA-9144", "markers of one producer with coordinator epochs 3 and 1", 3, 1)
@near_miss("with 1 and 3", 1, 3)
def coordinator_epochs(root: Path, *epochs: int) -> Brokers:
    data = DataLog()
    for number, epoch in enumerate(epochs):
        data.data(number)
        data.marker(number + 0.07, commit=True, coordinator_epoch=epoch)
    write_cluster(root, {"t-0": data})
    return as_before_topic_ids(Brokers(root, data))


def _number(tree: Tree) -> int:
    return int(tree.key.split()[0].removeprefix("d"))


TREES: Final = tuple(sorted(incident_trees.TREES, key=_number))
"""Every tree of the known incidents, in the order of docs/incidents.md."""
